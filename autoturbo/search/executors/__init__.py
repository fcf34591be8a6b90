"""Executors, which measure candidates: in this process, in local processes, on Ray."""

from __future__ import annotations

import multiprocessing
from collections.abc import Mapping
from typing import Any

from autoturbo.search.executors.base import (
    Answer,
    Executor,
    InProcessExecutor,
    Task,
    measured,
)
from autoturbo.search.executors.processes import ProcessExecutor
from autoturbo.search.executors.ray_actors import RayExecutor


def make_executor(
    *,
    jobs: int = 1,
    ray: str | None = None,
    timeout_s: float | None = None,
    runtime_env: Mapping[str, Any] | None = None,
    resource: str | None = None,
    apart: bool = False,
) -> Executor:
    """Return the executor that the flags ask for.

    Args:
        jobs: Workers; with Ray 0 stands for all CPUs of the cluster.
        ray: Address of a cluster, ``"local"`` or empty for one of our own; None for no Ray.
        timeout_s: Seconds for one measurement; needs workers, which can be ended.
        runtime_env: With Ray, its ``runtime_env`` for the workers.
        resource: With Ray, what each worker takes one of.
        apart: Whether what measures is code of others, which may end its process.

    Raises:
        UsageError: Nothing answers at the address.
        ExecutorError: Ray does not start.
    """
    if ray is not None:
        return RayExecutor(ray, jobs or None, timeout_s, runtime_env, resource)
    apart = apart and not multiprocessing.current_process().daemon  # such may not start any
    if jobs > 1 or timeout_s is not None or apart:
        return ProcessExecutor(jobs, timeout_s)
    return InProcessExecutor()


__all__ = [
    "Answer",
    "Executor",
    "InProcessExecutor",
    "ProcessExecutor",
    "RayExecutor",
    "Task",
    "make_executor",
    "measured",
]
