"""Candidates that a search starts from, besides the published heuristic.

The partition decides most, and its cuts interact: moved one at a time by chance they rarely end
well. The dynamic programme of :mod:`autoturbo.search.warm_starts` places all of them at once, by
the cost of sub-graphs with outputs in DDR. It does so again with outputs in the local buffers where
they fit, if that matters, and with outputs that clusters divide, where there are too few samples
for all of them. Its grid is coarse, so that it takes seconds, and nothing depends on the
clock: the same model, target and version give the same starts. The search then frees outputs,
weights and orders, and goes on.

Neighbours that only gain if both are cut alike are a start too, and so is the heuristic with
samples at once and splits that suit each other, with parts that fit the global buffer, and with
outputs that clusters divide. All starts are simulated, the fastest is first.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from autoturbo.errors import AutoTurboError, KnobsError
from autoturbo.graph.layers import layers_of
from autoturbo.schedule.chip_part import WHOLE, ChipPart, used_target
from autoturbo.schedule.knobs import AUTO, FAR, Knobs, SubGraphKnobs, fitting
from autoturbo.schedule.partition.boxes import external_inputs
from autoturbo.schedule.partition.clusters import BRANCHES, EITHER, narrow_places
from autoturbo.schedule.partition.grouping import SubGraph
from autoturbo.schedule.partition.split import SplitRules, sink, split_axes
from autoturbo.schedule.pipeline import Plan, plan
from autoturbo.search.constants import SEARCH, Starts
from autoturbo.search.warm_starts.best_sets import Grid, variants_of
from autoturbo.search.warm_starts.costs import Costs, DividedCosts, LocalBufferCosts, Variant
from autoturbo.search.warm_starts.dp_partition import FREE, PartitionProgram, PartitionSolver
from autoturbo.search.warm_starts.groups import GroupLimits, IsomorphismKeys, groups_of
from autoturbo.simulator.evaluator import Evaluator
from autoturbo.simulator.fitted import FITTING
from autoturbo.simulator.measurement import (
    seconds_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from autoturbo.hardware.target import Target
    from autoturbo.schedule.context import SchedulingContext
    from autoturbo.schedule.pipeline import ModelScheduler

GIVEN = "what was given to begin with"
PLACED = "partition by dynamic programming"
ALIKE = "the heuristic with neighbours cut alike"
SUITED = "the heuristic with samples and splits that suit each other"
DIVIDED = "the heuristic with outputs that clusters divide"
HOME = "the heuristic with parts that fit the global buffer"
BESIDE = "the heuristic with branches side by side"
"""Origins of a beginning."""


@dataclass(frozen=True, slots=True)
class WarmStart:
    """A candidate to start from.

    Attributes:
        knobs: The candidate.
        origin: Where it comes from, in words.
    """

    knobs: Knobs
    origin: str


LONGEST = (24, 16, 10)
"""Layers of the longest sub-graphs; every length gives another partition from the same costs."""

DIVIDED_LONGEST = (64, 24)
"""The same where clusters divide outputs: of one sample much fits the local buffers."""

WAYS = (EITHER, "channel")
"""Ways in which clusters divide outputs. Rows alone are behind on all of ten models at batch 1."""

_FACTORS = (1, 2, 4, 8, 16)

_SPREADS = tuple(SubGraphKnobs("", core_parallel_dim=depth) for depth in (0, 1, 2))
"""Loops from which outputs are spread over cores: rows or channels before samples, and a core loads
the weights of its own channels alone."""

_ROOMS = (AUTO, 0.1, 0.3, 0.5)
"""What weight tiles may have of the local buffers, where outputs stay there: less, and weights are
streamed once for each tile of a part; more, and there is no room for what others wait for."""

_KERNELS = tuple(
    dataclasses.replace(own, weight_buffer_fraction=share) for own in _SPREADS for share in _ROOMS
)
"""Kernels that are tried where outputs stay in the local buffers."""


_CLEARLY = 0.995
"""Most of its seconds that a start has left with a policy that its costs leave out, where it begins
with that."""

WAY_S, COVER_S = 1.1e-3, 0.5
"""Seconds of costing one way to compute a sub-graph, and of what comes before and after."""


def placing_seconds(
    model_scheduler: ModelScheduler, starts: Starts | None = SEARCH.starts
) -> float:
    """Return the estimated seconds of the dynamic programme, from the variants to cost.

    Args:
        model_scheduler: The model on the target.
        starts: Its limits; None where it is not run.
    """
    if starts is None or not model_scheduler.model.operators:
        return 0.0
    layers, ways = len(layers_of(model_scheduler.model)), 0
    with suppress(AutoTurboError):
        costs = LocalBufferCosts(model_scheduler, FREE)
        likeness = IsomorphismKeys(costs.context)
        alone = [
            Variant((layer.index,), 0, -1, 1, SubGraphKnobs("")) for layer in costs.context.layers
        ]
        divided = len(_ways_to_divide(model_scheduler)) * _SPREADS
        stays = not divided and costs.fitting(alone) >= starts.staying_share  # else these win
        near = _KERNELS if stays else ()
        tried = ((LONGEST, _SPREADS + near), (DIVIDED_LONGEST, divided))
        for lengths, own in ((lengths, own) for lengths, own in tried if own):
            limits = _limits(layers, starts, max(lengths))
            sets, _ = groups_of(costs.context, limits, SplitRules.of(FREE), likeness)
            kinds = {likeness.of(s): s for row in sets for s in row}
            grid = Grid(_FACTORS, None, own, limits, SplitRules.of(FREE))
            ways += sum(1 for s in kinds.values() for _ in variants_of(costs.context, s, grid))
    return COVER_S + WAY_S * ways


def starts_of(evaluator: Evaluator, starts: Starts | None = SEARCH.starts) -> tuple[Knobs, ...]:
    """Return the candidates of :func:`placed_starts`."""
    return tuple(start.knobs for start in placed_starts(evaluator, starts))


def groups_that_gain(evaluator: Evaluator) -> ChipPart:
    """Return the groups of cores with which branches side by side take clearly less time.

    What takes all cores well gains nothing by groups; only models with branches are looked at.
    """
    best, target = WHOLE, evaluator.model_scheduler.target
    least = simulated_seconds(evaluator, _with_policies(evaluator)) * (1.0 - FITTING.clear_gain)
    for groups in (2, 4):
        part = ChipPart(core_groups=groups)
        if target.cores % groups == 0:
            on = on_part(evaluator, part)
            seconds = min(
                (simulated_seconds(on, knobs) for knobs in _side_by_side(on)), default=math.inf
            )
            best, least = (part, seconds) if seconds < least else (best, least)
    return best


def simulated_seconds(evaluator: Evaluator, knobs: Knobs) -> float:
    """Return the simulated seconds of a candidate, infinite where it does not fit."""
    return seconds_of(evaluator.evaluate(knobs))


def on_part(evaluator: Evaluator, part: ChipPart) -> Evaluator:
    """Return the evaluator of the same model on a part of the chip, as a chip of its own."""
    scheduler = evaluator.model_scheduler
    if part == WHOLE:
        return evaluator
    return Evaluator(scheduler.model, used_target(scheduler.target, part), scheduler.dtype)


def placed_starts(
    evaluator: Evaluator,
    starts: Starts | None = SEARCH.starts,
    *,
    progress: Callable[[float], None] | None = None,
) -> tuple[WarmStart, ...]:
    """Return what is worth starting from, the fastest by the simulator first.

    Partitions of the dynamic programme, for all samples of a cluster at once and for as many as
    suit the heuristic, and the heuristic where its cuts and its samples suit each other, or with
    outputs that clusters divide. Empty where nothing fits.

    Args:
        evaluator: Of the model on the target.
        starts: How many, and of what kind; None for none.
        progress: Is given the share of the sub-graphs that is costed, as it grows; it begins anew
            where the partition is computed once more, for outputs that stay in the local buffers or
            for fewer samples.
    """
    model_scheduler = evaluator.model_scheduler
    if starts is None or not model_scheduler.model.operators:
        return ()
    ways = _ways_to_divide(model_scheduler) or _ways_that_gain(evaluator)
    far = _covers(evaluator, Costs, _SPREADS, starts, progress)
    divided = _divided(evaluator, ways, starts, progress)
    least = min((cover.seconds for covers in (far, *divided) for cover in covers), default=0.0)
    far, *divided = (_within(covers, starts.slack * least) for covers in (far, *divided))
    less_room = _with_less_room(model_scheduler.target, starts.waiting_parts)
    cramped = Evaluator(model_scheduler.model, less_room, model_scheduler.dtype)
    alone = bool(far) and far[0].seconds <= least  # else clusters hand outputs to each other
    near = _on_chip(cramped, far, starts, progress) if alone else []
    found = dict.fromkeys((start_from(cover.knobs, "LB") for cover in near), PLACED)
    covers = itertools.chain(far, *divided)
    found |= dict.fromkeys((_running_ahead(evaluator, cover.knobs) for cover in covers), PLACED)
    found |= dict.fromkeys(_cut_alike(evaluator), ALIKE)
    found |= dict.fromkeys((_cut_where_it_gains(evaluator, way, starts) for way in ways), DIVIDED)
    heuristic, suited = evaluator.heuristic(), _with_policies(evaluator)
    every = model_scheduler.batch_choices()[0]
    fewer = {knobs.batches_per_cluster for knobs in (heuristic, suited)}
    for samples in sorted(fewer - {AUTO, every}, key=int):
        knobs = dataclasses.replace(FREE, batches_per_cluster=samples)
        best = _covers(evaluator, Costs, _SPREADS, starts, progress, knobs)[:1]
        found |= dict.fromkeys((_running_ahead(evaluator, cover.knobs) for cover in best), PLACED)
    waiting = dataclasses.replace(suited, fetch_ahead=AUTO)
    if waiting not in (heuristic, Knobs()):  # loads alone are a choice
        found[suited] = SUITED
    if model_scheduler.target.gb.capacity:
        home = _as_cuts(evaluator, _with_policies(evaluator, part_memory="GB"))
        least = min((simulated_seconds(evaluator, one) for one in found), default=math.inf)
        if simulated_seconds(evaluator, home) <= starts.slack * least:
            found[home] = HOME
    found |= dict.fromkeys(_side_by_side(evaluator), BESIDE)
    origins = dict[Knobs, str]()
    for one, origin in found.items():
        origins.setdefault(_with_what_gains(evaluator, one), origin)
    seconds = {one: simulated_seconds(evaluator, one) for one in origins}
    apart = {each: one for one, each in reversed(seconds.items()) if math.isfinite(each)}
    fastest = [apart[each] for each in sorted(apart)[: starts.most]]  # equal ones are one schedule
    # branches side by side are the best of all or lead nowhere: nothing else is cut as they are
    kept = [one for one in fastest if one == fastest[0] or origins[one] != BESIDE]
    return tuple(WarmStart(one, origins[one]) for one in kept)


def _with_what_gains(evaluator: Evaluator, knobs: Knobs) -> Knobs:
    """Return a start, with tiles chosen by cost, and launches shared, where that is clearly faster.

    Where they hardly matter, the search goes from the start as its costs were.
    """
    for name, value in (("tiling", "cost"), ("launches", "shared")):
        other = dataclasses.replace(knobs, **dict[str, Any]({name: value}))
        if simulated_seconds(evaluator, other) < _CLEARLY * simulated_seconds(evaluator, knobs):
            knobs = other
    return knobs


def _with_policies(evaluator: Evaluator, part_memory: str = AUTO) -> Knobs:
    """Return the heuristic with the samples at once and the policy of splits that suit each other.

    Into how many parts a policy splits depends on how many samples there are: of 1,500 rows Whisper
    leaves most cores of mlu100 idle with either alone, and with both takes 0.58 times as long.

    Args:
        evaluator: Of the model on the target.
        part_memory: That parts have to fit.
    """
    target = evaluator.model_scheduler.target
    own = Knobs(part_memory=part_memory, fetch_ahead=FAR)
    at_once: list[int | str] = [AUTO, *evaluator.model_scheduler.batch_choices()[1:]]  # all, fewer
    tried = [
        fitting(dataclasses.replace(own, batches_per_cluster=batches, factor_policy=policy), target)
        for batches in at_once
        for policy in (AUTO, "divisors", "ragged")
    ]
    best = min(tried, key=lambda knobs: simulated_seconds(evaluator, knobs))
    return _running_ahead(evaluator, best)


def _side_by_side(evaluator: Evaluator) -> list[Knobs]:
    """Return the heuristic with each sub-graph where it ends first, if several clusters work."""
    target = evaluator.model_scheduler.target
    beside = fitting(Knobs(cluster_partitioning=BRANCHES, fetch_ahead=FAR), target)
    if target.clusters == 1 or not plan(evaluator.model_scheduler, beside).homes:
        return []
    return [_running_ahead(evaluator, beside)]


def _as_cuts(evaluator: Evaluator, knobs: Knobs) -> Knobs:
    """Return a candidate with every sub-graph named, so that a search may change each.

    It is the candidate itself where another partition would come of that.
    """
    planned = plan(evaluator.model_scheduler, knobs)
    rules = dataclasses.replace(FREE, output_scope=AUTO, part_memory=knobs.part_memory,
        batches_per_cluster=knobs.batches_per_cluster, fetch_ahead=knobs.fetch_ahead)  # fmt: skip
    cuts = tuple(
        SubGraphKnobs(
            planned.context.layers[subgraph.layers[-1]].name, boundary="cut",
            dim=subgraph.split.depth if subgraph.split.axis >= 0 else AUTO,
            factor=subgraph.split.instances,
        )
        for subgraph in planned.subgraphs
    )  # fmt: skip
    named = dataclasses.replace(rules, overrides=cuts)
    with suppress(KnobsError):
        if simulated_seconds(evaluator, named) == simulated_seconds(evaluator, knobs):
            return named
    return knobs


def _divided(
    evaluator: Evaluator,
    ways: Sequence[str],
    starts: Starts,
    progress: Callable[[float], None] | None,
) -> list[list[PartitionSolver]]:
    """Return partitions whose outputs clusters divide, by way, the cheapest first.

    Args:
        evaluator: Of the model on the target.
        ways: In which clusters divide outputs.
        starts: Limits of what is looked at.
        progress: Is given the share of the sub-graphs that is costed.
    """
    free = fitting(dataclasses.replace(FREE, fetch_ahead=FAR), evaluator.model_scheduler.target)
    settings = (dataclasses.replace(free, cluster_partitioning=kind) for kind in ways)
    found = [
        _covers(evaluator, DividedCosts, _SPREADS, starts, progress, own, DIVIDED_LONGEST)
        for own in settings
    ]
    return sorted(filter(None, found), key=lambda covers: covers[0].seconds)


def _ways_to_divide(model_scheduler: ModelScheduler) -> tuple[str, ...]:
    """Return ways to divide outputs over clusters; none where each has samples of its own."""
    idle = model_scheduler.share().clusters < model_scheduler.target.clusters
    return WAYS if idle else ()


def _ways_that_gain(evaluator: Evaluator) -> tuple[str, ...]:
    """Return ways to divide outputs over clusters with which the heuristic is faster.

    Clusters with samples of their own read all weights, each for itself. AlexNet's take most of its
    time, and are read once where clusters divide channels.
    """
    ways = (AUTO, *WAYS)
    divided = (Knobs(cluster_partitioning=way, fetch_ahead=FAR) for way in ways)
    target = evaluator.model_scheduler.target
    own, *others = (simulated_seconds(evaluator, fitting(knobs, target)) for knobs in divided)
    return tuple(way for way, seconds in zip(WAYS, others, strict=True) if seconds < own)


def _cut_where_it_gains(evaluator: Evaluator, way: str, starts: Starts) -> Knobs:
    """Return the heuristic with outputs that clusters divide, cut where that is faster.

    Of few sub-graphs each is large, and clusters repeat in it what they do not divide. Where loads
    run over kernels a cut costs little, which sub-graphs by themselves do not tell: GoogLeNet of
    one sample takes 452 us as it is, 345 with one cut, and 408 as the dynamic programme cuts it.

    Args:
        evaluator: Of the model on the target.
        way: In which clusters divide outputs.
        starts: How many cuts are tried, and of what.
    """
    scheduler = evaluator.model_scheduler
    best = fitting(Knobs(cluster_partitioning=way, fetch_ahead=FAR), scheduler.target)
    for _ in range(starts.divided_cuts):
        planned = plan(scheduler, best)
        if len(planned.subgraphs) > starts.divided_subgraphs:
            break
        places = [
            subgraph.layers[place]
            for subgraph in planned.subgraphs
            for place in sorted(narrow_places(planned.context, subgraph.layers))
            if place < len(subgraph.layers) - 1
        ]
        places = places[:: max(len(places) // starts.divided_places, 1)]
        cuts = (SubGraphKnobs(planned.context.layers[x].name, boundary="cut") for x in places)
        tried = (dataclasses.replace(best, overrides=(*best.overrides, cut)) for cut in cuts)
        fastest = min((best, *tried), key=lambda knobs: simulated_seconds(evaluator, knobs))
        if fastest == best:
            break
        best = fastest
    return best


def _within(covers: Sequence[PartitionSolver], most: float) -> list[PartitionSolver]:
    return [cover for cover in covers if cover.seconds <= most]


def _running_ahead(evaluator: Evaluator, knobs: Knobs) -> Knobs:
    """Return the start of a partition, with loads that run over its kernels where it is faster.

    Begun without them, a search that climbs keeps cuts that only save waiting for weights.
    """
    waiting = dataclasses.replace(start_from(knobs), fetch_ahead=AUTO)
    running = fitting(
        dataclasses.replace(waiting, fetch_ahead=FAR), evaluator.model_scheduler.target
    )
    return min((waiting, running), key=lambda tried: simulated_seconds(evaluator, tried))


def _cut_alike(evaluator: Evaluator) -> list[Knobs]:
    """Return the heuristic with neighbours cut alike, as finely as the tensor between them needs.

    Parts of a tensor that is larger than the local buffers stay there if who makes it and who reads
    it are both cut along the same two axes, part after part: either alone gains nothing. Into parts
    that divide the axes or into as few as will do, whichever is faster; none where no tensor asks
    for it, or where both take longer.
    """
    heuristic = evaluator.heuristic()
    planned = plan(evaluator.model_scheduler, heuristic)
    tried = [heuristic]
    for policy in (AUTO, "ragged"):
        cuts = _cuts(planned, divide=policy == AUTO)
        order = dataclasses.replace(heuristic, instance_order="dfs", factor_policy=policy)
        tried += [dataclasses.replace(order, overrides=cuts)] if cuts else []
    seconds = [seconds_of(evaluator.evaluate(knobs)) for knobs in tried]
    best = tried[seconds.index(min(seconds))]
    return [best] if best.overrides else []


def _cuts(found: Plan, *, divide: bool) -> tuple[SubGraphKnobs, ...]:
    """Return cuts of neighbours whose common tensor does not fit the local buffers."""
    context, cuts, maker = found.context, dict[int, SubGraphKnobs](), dict[int, SubGraph]()
    for subgraph in found.subgraphs:
        maker |= dict.fromkeys(context.layers[subgraph.layers[-1]].outputs, subgraph)
    element = context.arrays.element.tolist()
    for reader in found.subgraphs:
        for tensor in external_inputs(context, reader.layers):
            size = context.graph.tensors[tensor].elements * element[tensor]
            parts = math.ceil(size / max(context.cluster_lb_bytes, 1))
            source = maker.get(tensor)
            if source is None or parts <= source.split.instances:
                continue
            cut = cuts.get(source.index) or _cut(context, source, reader, parts, divide=divide)
            if cut is not None and cuts.get(reader.index, cut) == cut:
                cuts |= {source.index: cut, reader.index: cut}
    names = {i: context.layers[found.subgraphs[i].layers[-1]].name for i in sorted(cuts)}
    return tuple(dataclasses.replace(cuts[i], layer=name) for i, name in names.items())


def _cut(
    context: SchedulingContext, source: SubGraph, reader: SubGraph, parts: int, *, divide: bool
) -> SubGraphKnobs | None:
    """Return the cut of two sub-graphs into some parts along the outermost axes of both.

    Args:
        context: The model on the target.
        source: The sub-graph that makes the tensor.
        reader: The sub-graph that reads it.
        parts: The number of parts that is needed at least.
        divide: Take only numbers of parts that divide the extents.
    """
    source_extents, reader_extents = (
        {d: sink(context, s.layers).axes[a].extent for d, a in split_axes(context, s.layers)}
        for s in (source, reader)
    )
    depths = [
        d for d, extent in sorted(source_extents.items()) if reader_extents.get(d) == extent > 1
    ][:2]
    factors = list[int]()
    for extent in (source_extents[depth] for depth in depths):
        fine = (n for n in range(parts, extent) if extent % n == 0 or not divide)
        factors.append(next(fine, extent))
        parts = -(-parts // factors[-1])
    if parts > 1 or not depths:
        return None
    if len(depths) == 1 or factors[1] == 1:
        return SubGraphKnobs("", dim=depths[0], factor=factors[0])
    (dim, inner_dim), (factor, inner_factor) = depths, factors
    return SubGraphKnobs("", dim=dim, factor=factor, inner_dim=inner_dim, inner_factor=inner_factor)


def start_from(knobs: Knobs, scope: str = AUTO) -> Knobs:
    """Return the warm start of a candidate: its partition, splits, spreads and weight residency.

    Args:
        knobs: The candidate.
        scope: Of outputs. Where they are to stay in the local buffers that has to be said: one
            that its reader wants spread otherwise would go through slower memory.
    """
    overrides = tuple(
        SubGraphKnobs(
            o.layer, boundary=o.boundary, dim=o.dim, factor=o.factor,
            core_parallel_dim=o.core_parallel_dim, scope=scope,
            weight_buffer_fraction=o.weight_buffer_fraction,
        )
        for o in knobs.overrides
    )  # fmt: skip
    return dataclasses.replace(knobs, output_scope=AUTO, overrides=overrides)


def _with_less_room(target: Target, parts: int) -> Target:
    """Return the accelerator with one of so many parts less room in its local buffers."""
    capacity = target.lb.capacity - target.lb.capacity // parts
    return dataclasses.replace(target, lb=dataclasses.replace(target.lb, capacity=capacity))


def _covers(
    evaluator: Evaluator,
    costs: type[Costs],
    own: tuple[SubGraphKnobs, ...],
    starts: Starts,
    progress: Callable[[float], None] | None,
    knobs: Knobs = FREE,
    lengths: Sequence[int] = LONGEST,
) -> list[PartitionSolver]:
    """Return the best partition per maximal sub-graph length, cheapest first.

    Empty where the target cannot hold the tiles of any kernel.

    Args:
        evaluator: Of the model on the target.
        costs: Of sub-graphs.
        own: Further knobs of sub-graphs that are tried.
        starts: Limits of what is looked at.
        progress: Is given the share of the sub-graphs that is costed.
        knobs: The model's.
        lengths: Layers of the longest sub-graphs of each partition.
    """
    limits = _limits(len(layers_of(evaluator.model_scheduler.model)), starts, max(lengths))
    covers = list[PartitionSolver]()
    grid = Grid(_FACTORS, None, own, limits, SplitRules.of(FREE))
    with suppress(AutoTurboError):
        programme = PartitionProgram.over(evaluator, grid, knobs, costs=costs, progress=progress)
        for longest in lengths:
            with suppress(AutoTurboError):
                covers.append(programme.cover(longest))
    return sorted(covers, key=_seconds)


def _limits(layers: int, starts: Starts, longest: int = max(LONGEST)) -> GroupLimits:
    """Return the limits of the sub-graphs that are considered in a model of so many layers."""
    return GroupLimits(longest, max(min(starts.sets // max(layers, 1), 64), 4))


def _on_chip(
    evaluator: Evaluator,
    others: Sequence[PartitionSolver],
    starts: Starts,
    progress: Callable[[float], None] | None,
) -> list[PartitionSolver]:
    """Return the cheapest partition for outputs on the chip, if the others cost far more there.

    Args:
        evaluator: Of the model on the target with less room.
        others: The cheapest partitions with outputs in DDR.
        starts: When it is looked for, and when it is worth it.
        progress: Is given the share of the sub-graphs that is costed.
    """
    with suppress(AutoTurboError):
        costs = LocalBufferCosts(evaluator.model_scheduler, FREE)
        loops = costs.share.loops
        if others and all(
            costs.fitting(covering.variants) >= starts.staying_share for covering in others
        ):
            on_chip_s = [
                loops * float(costs.seconds(covering.variants).sum()) for covering in others
            ]
            best = _covers(evaluator, LocalBufferCosts, _KERNELS, starts, progress)[:1]
            return [
                cover for cover in best if min(on_chip_s) >= starts.nearer_ratio * cover.seconds
            ]
    return []


def _seconds(cover: PartitionSolver) -> float:
    return cover.seconds
