"""Where settings are measured: in this process, in local processes, on Ray."""

from __future__ import annotations

from autoturbo.search.executors.base import Executor, MakeEvaluator, Numbered, guarded
from autoturbo.search.executors.in_process import InProcess
from autoturbo.search.executors.processes import Processes
from autoturbo.search.executors.ray_pool import RayPool
from autoturbo.simulate.contract import Evaluates


def make_executor(
    evaluator: Evaluates,
    make_evaluator: MakeEvaluator,
    *,
    jobs: int = 1,
    ray: str | None = None,
    timeout_s: float | None = None,
) -> Executor:
    """The executor that flags ask for.

    Args:
        evaluator: the one of this process.
        make_evaluator: builds another one in a worker.
        jobs: workers; with Ray 0 stands for all CPUs of the cluster.
        ray: address of a cluster, ``"local"`` or empty for one of our own; None for no Ray.
        timeout_s: seconds for one measurement; needs workers, which can be ended.

    Raises:
        UsageError: nothing answers at the address.
        ExecutorError: Ray does not start.
    """
    if ray is not None:
        return RayPool(make_evaluator, ray, jobs or None, timeout_s)
    if jobs > 1 or timeout_s is not None:
        return Processes(make_evaluator, jobs, timeout_s)
    return InProcess(evaluator)


__all__ = [
    "Executor",
    "InProcess",
    "MakeEvaluator",
    "Numbered",
    "Processes",
    "RayPool",
    "guarded",
    "make_executor",
]
