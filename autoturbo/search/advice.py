"""The cost model as a run begins with it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from autoturbo.errors import AutoTurboError
from autoturbo.search.space import batch_share

if TYPE_CHECKING:
    from autoturbo.cost_models.advisor import KernelAdvisor
    from autoturbo.graph.operators import Graph
    from autoturbo.hardware.target import Target
    from autoturbo.simulate.contract import Evaluates


def make_advisor(
    evaluator: Evaluates,
    graph: Graph,
    target: Target,
    dtype: str,
    seed: int,
    log: Callable[[str], None],
) -> KernelAdvisor:
    """The kernel model of a run, with what the package knows beforehand.

    Args:
        evaluator: of the run.
        graph: its model.
        target: its target.
        dtype: what it computes in.
        seed: of the run.
        log: is told where the package's cost model cannot be used.
    """
    from autoturbo.cost_models.advisor import KernelAdvisor, prior_of
    from autoturbo.cost_models.features import target_vector

    vector, prior = target_vector(target, dtype), None
    try:
        prior = prior_of(evaluator)
    except AutoTurboError as error:
        log(f"the search starts without the cost model of the package: {error}")
    share = batch_share(graph, target)
    return KernelAdvisor(evaluator, vector, share, seed, prior)
