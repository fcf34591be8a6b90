"""The best schedule of a model where sub-graphs do not depend on each other.

Outputs go to DDR, bindings are chosen, weights are streamed, clusters share out samples: then a
schedule's time is the sum of its sub-graphs' (:mod:`autoturbo.search.warm_starts.costs`), and the
best one over a grid is found by dynamic programming over partitions of the layers: O(n^2) segments
of a chain, with branches between forks and joins cut on their own.

The answer is a candidate of the ordinary scheduler, whose Algorithm 2 is told to merge whatever is
not cut. Where it cannot form a set after all, that set is left out and the best other one taken.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from autoturbo.errors import KnobsError, UsageError
from autoturbo.schedule.context import SchedulingContext
from autoturbo.schedule.knobs import AUTO, Knobs, Stage, SubGraphKnobs, subgraph_knobs
from autoturbo.schedule.partition.split import SplitRules
from autoturbo.schedule.pipeline import plan, rules_of
from autoturbo.search.warm_starts.best_sets import Best, Grid, Table
from autoturbo.search.warm_starts.costs import Costs, Variant
from autoturbo.search.warm_starts.groups import IsomorphismKeys, Layers, groups_of
from autoturbo.simulator.evaluator import Evaluator, Simulator, tiles_overflow
from autoturbo.simulator.measurement import Outcome
from autoturbo.simulator.sequence import KernelMemory


@dataclass(frozen=True, slots=True)
class LayerPartition:
    """A partition of all layers into sets.

    Attributes:
        sets: Indices of the chosen sets, by end: ``(end, index among those that end there)``.
        cost: Sum of their costs.
        states: How many different remainders were looked at.
        exact: Whether it is the cheapest of all; False where states were dropped.
    """

    sets: tuple[tuple[int, int], ...]
    cost: float
    states: int
    exact: bool


MOST_STATES: Final = 256
"""Remainders that are kept of a layer. Ten of eleven models have fewer than 500 in all; of U-Net's
millions (552 layers, long connections) so many give what is 0.02 % from the result of 20,000, in a
hundredth of the time."""


def cheapest_cover(
    masks: Sequence[Sequence[int]], costs: Sequence[Sequence[float]], most_states: int = MOST_STATES
) -> LayerPartition | None:
    """Return the cheapest partition; None where the sets partition nothing whole.

    Args:
        masks: Per layer, the sets that end in it as bits, the layer's own the highest.
        costs: Of the same, at least 0.
        most_states: Remainders kept that end in the same layer, the cheapest so far.
    """
    waiting: list[dict[int, float]] = [{} for _ in range(len(masks) + 1)]
    came: dict[int, tuple[int, int, int]] = {}
    waiting[len(masks)][(1 << len(masks)) - 1] = 0.0
    states, exact = 0, True
    for end in range(len(masks), 0, -1):
        here = waiting[end]
        if len(here) > most_states:
            here = dict(sorted(here.items(), key=lambda item: item[1])[:most_states])
            exact = False
        states += len(here)
        for left, spent in here.items():
            for index, (mask, cost) in enumerate(zip(masks[end - 1], costs[end - 1], strict=True)):
                if mask & left != mask:
                    continue
                rest, total = left ^ mask, spent + cost
                later = waiting[rest.bit_length()]
                if total < later.get(rest, float("inf")):
                    later[rest] = total
                    came[rest] = (left, end - 1, index)
        waiting[end] = {}
    if 0 not in waiting[0]:
        return None
    chosen, at = [], 0
    while at in came:
        at, end, index = came[at]
        chosen.append((end, index))
    return LayerPartition(tuple(chosen[::-1]), waiting[0][0], states, exact)


FREE = Knobs(
    producer_factor_ratio=0, merged_factor_ratio=64, recompute_limit=4.0, factor_policy="ragged",
    output_scope="DDR",
)  # fmt: skip
"""Algorithm 2 merges what it may and what is not cut; outputs go to DDR."""

FIXED = {
    "instance_multiplier": (AUTO,), "weight_residency": (AUTO,),
    "output_scope": ("DDR",), "max_layers": (AUTO,), "overrides": ((),),
}  # fmt: skip
"""Values of the model's knobs without which costs do not add up, or cuts are not free; what
clusters divide, the costs say."""

_DIVIDED: Final = "cluster_partitioning"

_OWN = tuple(
    name
    for name, spec in subgraph_knobs().items()
    if spec.stage > Stage.ORDER and (spec.over or name) not in FIXED
)
"""Knobs of a sub-graph that a grid tries: those of a set of layers that is cut and in order."""

_ROUNDS = 64
"""Covers tried before it is given up: each leaves out a set that Algorithm 2 does not form."""


@dataclass(frozen=True, slots=True)
class PartitionOptimum:
    """The best schedule over a grid.

    Attributes:
        knobs: Build exactly this schedule.
        predicted: Seconds, the sum of its kernels'.
        outcome: What measuring it gives; the same seconds, or that it does not fit DDR.
        exact: Whether nothing better is in :attr:`space`.
        space: What was searched, for people.
        segments: Sets of layers, and ways to compute them, that were costed.
        left_out: Sets of layers that Algorithm 2 did not form.
    """

    knobs: Knobs
    predicted: float
    outcome: Outcome
    exact: bool
    space: str
    segments: int
    left_out: int


def _check(knobs: Knobs, costs: type[Costs]) -> None:
    for name, values in {**FIXED, _DIVIDED: costs.divided}.items():
        if getattr(knobs, name) not in values:
            raise UsageError(f"{name}: {getattr(knobs, name)!r} makes sub-graphs depend on others")


def _usable(context: SchedulingContext, grid: Grid, knobs: Knobs) -> Grid:
    """Return the grid without knobs whose tiles in flight do not fit the staging zone of LB."""
    cores = context.target.cores
    for tried in grid.own:
        strange = tried.as_dict().keys() - {"layer", *_OWN}
        if strange:
            raise UsageError(f"{min(strange)} is no knob that a grid tries for every sub-graph")
        if tried.cores != AUTO and cores % int(tried.cores):
            raise UsageError(f"cores: {tried.cores} does not divide the {cores} cores of a cluster")
    usable = tuple(
        tried
        for tried in grid.own
        if tiles_overflow(context, rules_of(context, knobs, tried).instructions) is None
    )
    if not usable or 1 not in grid.factors:
        raise UsageError("a grid needs the factor 1 and knobs whose tiles fit the local buffer")
    return dataclasses.replace(grid, own=usable)


@dataclass(frozen=True, slots=True)
class PartitionSolver:
    """The cheapest partition of a model's layers.

    Attributes:
        knobs: Build exactly this schedule.
        variants: Ways to compute its sub-graphs.
        seconds: The sum of what they cost, in all passes.
        exact: Whether no other partition of the table costs less.
        left_out: Sets of layers that Algorithm 2 did not form.
    """

    knobs: Knobs
    variants: tuple[Variant, ...]
    seconds: float
    exact: bool
    left_out: int


@dataclass(eq=False)
class PartitionProgram:
    """The costs of sets of layers, and the dynamic programme over partitions into them.

    Attributes:
        evaluator: Of the model on the target.
        grid: Ways to compute a set.
        costs: Of the sets.
        table: Per layer, the sets that end in it, each computed in the best way.
        ways: How many ways were costed.
        complete: Whether these are all sets within the grid's limits, and all ways of the grid.
    """

    evaluator: Evaluator
    grid: Grid
    costs: Costs
    table: list[list[Best]]
    ways: int
    complete: bool

    @staticmethod
    def over(
        evaluator: Evaluator,
        grid: Grid,
        knobs: Knobs = FREE,
        *,
        prune: bool = True,
        costs: type[Costs] = Costs,
        progress: Callable[[float], None] | None = None,
    ) -> PartitionProgram:
        """Return the dynamic programme with every variant of a grid costed.

        Args:
            evaluator: Of the model on the target.
            grid: Ways to compute a set.
            knobs: The model's, :data:`FREE` with changes.
            prune: Whether to leave out what bounds rule out.
            costs: What sets cost; answers need costs that add up exactly, partitions any.
            progress: Is given the share of the sets that is costed, as it grows.

        Raises:
            UsageError: Knobs under which sub-graphs depend on each other.
            KnobsError: More samples at once than there are.
        """
        _check(knobs, costs)
        set_costs = costs(evaluator.model_scheduler, knobs, _memory(evaluator))
        usable = _usable(set_costs.context, grid, knobs)
        likeness = IsomorphismKeys(set_costs.context)
        sets, complete = groups_of(set_costs.context, usable.limits, SplitRules.of(knobs), likeness)
        costed = Table(set_costs, usable, prune=prune, progress=progress)
        table = costed.of(sets, likeness)
        every = complete and usable.near is None
        return PartitionProgram(evaluator, usable, set_costs, table, costed.ways, every)

    def answer(self, longest: int | None = None) -> PartitionOptimum:
        """Return the best schedule whose sub-graphs have no more than a number of layers.

        Raises:
            KnobsError: No cut of the model is one that Algorithm 2 forms.
        """
        covering = self.cover(longest)
        limits = dataclasses.replace(self.grid.limits, layers=self._most(longest))
        grid = dataclasses.replace(self.grid, limits=limits)
        return PartitionOptimum(
            covering.knobs, covering.seconds, self.evaluator.evaluate(covering.knobs),
            self.complete and covering.exact, _statement(self.costs, grid), self.ways,
            covering.left_out,
        )  # fmt: skip

    def cover(self, longest: int | None = None) -> PartitionSolver:
        """Return the cheapest partition into sub-graphs of no more than a number of layers.

        Raises:
            KnobsError: No cut of the model is one that Algorithm 2 forms.
        """
        most, left_out = self._most(longest), 0
        table = [[b for b in row if len(b.variant.layers) <= most] for row in self.table]
        costs = self.costs
        for _ in range(_ROUNDS):
            cover = _cover(table)
            chosen = [table[end][index] for end, index in cover.sets]
            setting = _setting(costs.context, costs.knobs, chosen)
            strangers = _not_formed(self.evaluator, setting, chosen)
            if not strangers:
                break
            left_out += len(strangers)
            table = [[b for b in row if b.variant.layers not in strangers] for row in table]
        else:
            raise KnobsError("no cut of the model is one that Algorithm 2 forms")
        variants, seconds = tuple(b.variant for b in chosen), cover.cost * costs.share.loops
        return PartitionSolver(setting, variants, seconds, cover.exact and not left_out, left_out)

    def _most(self, longest: int | None) -> int:
        limit = self.grid.limits.layers
        return limit if longest is None else min(longest, limit)


def _memory(evaluator: Evaluator) -> KernelMemory:
    measurer = evaluator.measurer
    return measurer.memory if isinstance(measurer, Simulator) else KernelMemory()


def _cover(table: list[list[Best]]) -> LayerPartition:
    masks = [[sum(1 << x for x in b.variant.layers) for b in row] for row in table]
    cover = cheapest_cover(masks, [[b.seconds for b in row] for row in table])
    if cover is None:
        raise KnobsError("no cut of the model is one that Algorithm 2 forms")
    return cover


def _setting(context: SchedulingContext, knobs: Knobs, found: Iterable[Best]) -> Knobs:
    overrides = tuple(override_of(context, best.variant) for best in found)
    return dataclasses.replace(knobs, overrides=overrides)


def override_of(context: SchedulingContext, variant: Variant) -> SubGraphKnobs:
    """Return the override with which Algorithm 2 forms a sub-graph in one of its variants.

    Args:
        context: The model on the target.
        variant: The way to compute the sub-graph.

    Returns:
        The knobs of its last layer, at which the sub-graph is cut.
    """
    own, last = variant.own, context.layers[variant.layers[-1]]
    return dataclasses.replace(
        own,
        layer=last.name,
        boundary="cut",
        dim=variant.depth if variant.parts > 1 else AUTO,
        factor=variant.parts,
        cores=context.target.cores if own.cores == AUTO else own.cores,
        scope="DDR",
    )


def _not_formed(evaluator: Evaluator, setting: Knobs, found: Sequence[Best]) -> set[Layers]:
    """Return the sets of several layers that are no sub-graphs of a candidate."""
    formed = {s.layers for s in plan(evaluator.model_scheduler, setting).subgraphs}
    strangers = {b.variant.layers for b in found} - formed
    return {s for s in strangers if len(s) > 1}


def _statement(costs: Costs, grid: Grid) -> str:
    share, tried = costs.share, [_said(o) for o in grid.own]
    dims = "every output dimension" if grid.dims is None else f"dimensions {grid.dims}"
    return (
        f"{share.batches} samples at once; sub-graphs of up to {grid.limits.layers} layers with "
        f"one end that some split makes fit; cut along {dims} into "
        f"{', '.join(map(str, grid.factors))} parts{_nearness(grid)}; "
        f"{' or '.join(tried)}; outputs in DDR, weights streamed, on all cores unless said"
    )


def _nearness(grid: Grid) -> str:
    return "" if grid.near is None else ", several layers only about as Algorithm 1 does"


def _said(own: SubGraphKnobs) -> str:
    values = {n: v for n, v in own.as_dict().items() if n != "layer"}
    return ", ".join(f"{n} {v}" for n, v in values.items()) or "default instructions"
