"""Executors, which measure candidates: in this process, in local processes, on Ray."""

from __future__ import annotations

import multiprocessing
from collections.abc import Mapping
from typing import Any

from autoturbo.search.executors.base import (
    Answer,
    Elsewhere,
    Executor,
    InProcess,
    MakeEvaluator,
    Task,
    guarded,
    measured,
)
from autoturbo.search.executors.processes import Processes
from autoturbo.search.executors.ray_pool import RayPool


def make_executor(
    *,
    jobs: int = 1,
    ray: str | None = None,
    timeout_s: float | None = None,
    runtime_env: Mapping[str, Any] | None = None,
    apart: bool = False,
) -> Executor:
    """Return the executor that the flags ask for.

    Args:
        jobs: workers; with Ray 0 stands for all CPUs of the cluster.
        ray: address of a cluster, ``"local"`` or empty for one of our own; None for no Ray.
        timeout_s: seconds for one measurement; needs workers, which can be ended.
        runtime_env: with Ray, its ``runtime_env`` for the workers.
        apart: whether what measures is code of others, which may end its process.

    Raises:
        UsageError: nothing answers at the address.
        ExecutorError: Ray does not start.
    """
    if ray is not None:
        return RayPool(ray, jobs or None, timeout_s, runtime_env)
    apart = apart and not multiprocessing.current_process().daemon  # such may not start any
    if jobs > 1 or timeout_s is not None or apart:
        return Processes(jobs, timeout_s)
    return InProcess()


__all__ = [
    "Answer",
    "Elsewhere",
    "Executor",
    "InProcess",
    "MakeEvaluator",
    "Processes",
    "RayPool",
    "Task",
    "guarded",
    "make_executor",
    "measured",
]
