"""The region check: parts tile every tensor, and their inputs are made earlier and linked.

Nothing here asks the scheduler's compiled code: regions are worked out anew from the operators'
access maps and compared with those that the schedule holds.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np

from autoturbo.graph.arrays import Ints
from autoturbo.graph.domain import Interval, Region, hull, meet, volume
from autoturbo.schedule.context import SchedulingContext
from autoturbo.schedule.schedule import Schedule
from autoturbo.verifier.findings import (
    Check,
    Finding,
    instance_name,
    layer_name,
    region_text,
    tensor_name,
)

Regions = dict[int, Region]
"""Regions by tensor; a tensor without one is not touched."""


@dataclass(frozen=True, slots=True)
class Needs:
    """Regions and loops of one part.

    Attributes:
        regions: Per tensor that it touches, the part of it: made, if a layer of the sub-graph makes
            it, else needed.
        boxes: Per operator that it runs, the steps of its loops.
    """

    regions: Regions
    boxes: dict[int, tuple[Interval, ...]]


def part_needs(
    context: SchedulingContext, layers: Sequence[int], outputs: Mapping[int, Region]
) -> Needs:
    """Return the regions that outputs of a sub-graph need, back from its last operator.

    Args:
        context: The context that the layers come from.
        layers: The sub-graph's, in topological order.
        outputs: Regions of tensors that its last layer makes.
    """
    regions = {t: r for t, r in outputs.items() if volume(r)}
    boxes: dict[int, tuple[Interval, ...]] = {}
    # Back from the outputs, so that a tensor's readers have all said what they need.
    for index in reversed([op for x in layers for op in context.layers[x].operators]):
        operator = context.graph.operators[index]
        wanted = {p: regions[t] for p, t in enumerate(operator.outputs) if t in regions}
        if not wanted:
            continue
        boxes[index] = operator.axis_region(wanted)
        for position, tensor in enumerate(operator.inputs):
            shape = context.graph.tensors[tensor].shape
            region = operator.input_region(position, boxes[index], shape)
            if volume(region):
                regions[tensor] = hull(regions.get(tensor, region), region)
    return Needs(regions, boxes)


def within(inner: Region, outer: Region) -> bool:
    """Return whether one region lies inside another; an empty one lies everywhere."""
    return volume(inner) == 0 or meet(inner, outer) == inner


def equal_part(interval: Interval, factor: int, place: int) -> Interval:
    """Return one of the equal parts of an interval; the last may be short or empty."""
    low, high = interval
    size = -(-(high - low) // factor)
    begin = min(low + place * size, high)
    return begin, min(begin + size, high)


def made_regions(schedule: Schedule, index: int) -> Regions:
    """Return the regions that an instance makes by its schedule, empty ones included."""
    graph = schedule.instances
    outputs = graph.parts[int(graph.subgraph[index])].outputs
    return _regions_at(schedule, outputs, int(graph.out_region[index]))


def read_regions(schedule: Schedule, index: int) -> Regions:
    """Return the regions that an instance reads by its schedule, empty ones included."""
    graph = schedule.instances
    inputs = graph.parts[int(graph.subgraph[index])].inputs
    return _regions_at(schedule, inputs, int(graph.in_region[index]))


def _regions_at(schedule: Schedule, tensors: Sequence[int], first: int) -> Regions:
    context = schedule.context
    rows: Ints = schedule.instances.book.regions.rows[first : first + len(tensors)]
    shapes = [context.graph.tensors[t].shape for t in tensors]
    return {
        tensor: tuple((low, high) for low, high in row[: len(shape)])
        for tensor, shape, row in zip(tensors, shapes, rows.tolist(), strict=True)
    }


_KNOWN: WeakKeyDictionary[Schedule, tuple[Regions, ...]] = WeakKeyDictionary()


def needs_of(schedule: Schedule) -> tuple[Regions, ...]:
    """Return, per instance, the regions of all tensors that its outputs need."""
    needs = _KNOWN.get(schedule)
    if needs is None:
        graph = schedule.instances
        needs = tuple(
            part_needs(
                schedule.context, graph.subgraphs[int(graph.subgraph[index])].layers,
                made_regions(schedule, index),
            ).regions
            for index in range(graph.count)
        )  # fmt: skip
        _KNOWN[schedule] = needs
    return needs


def check_regions(schedule: Schedule) -> tuple[Finding, ...]:
    """Return the findings about a schedule's regions, links and order.

    Kinds: ``"missing operator"``, ``"repeated operator"``, ``"missing layer"``, ``"repeated
    layer"``, ``"missing instance"``, ``"repeated instance"``, ``"order"``, ``"gap"``,
    ``"overlap"``, ``"outside"``, ``"halo"``, ``"uncovered"``, ``"unlinked"``, ``"foreign link"``.
    """
    findings = [*_structure(schedule), *_order(schedule)]
    findings += _tilings(schedule)
    findings += _halos(schedule)
    findings += _links(schedule)
    return tuple(findings)


def _finding(
    schedule: Schedule, kind: str, message: str, instance: int = -1, layer: int = -1
) -> Finding:
    return Finding(
        Check.REGIONS, kind, message,
        instance_name(schedule, instance) if instance >= 0 else None,
        layer_name(schedule, layer) if layer >= 0 else None,
    )  # fmt: skip


def _structure(schedule: Schedule) -> Iterator[Finding]:
    """Check that every operator is in one layer, and every layer in one sub-graph."""
    context = schedule.context
    operators = Counter(op for layer in context.layers for op in layer.operators)
    layers = Counter(x for s in schedule.instances.subgraphs for x in s.layers)
    for kind, counts, names, place in (
        ("operator", operators, [operator.name for operator in context.graph.operators], "layers"),
        ("layer", layers, [operator.name for operator in context.layers], "sub-graphs"),
    ):
        for index, name in enumerate(names):
            if counts[index] != 1:
                word = "repeated" if counts[index] else "missing"
                message = f"{kind} {name} is in {counts[index]} {place}"
                layer = index if kind == "layer" else -1
                yield _finding(schedule, f"{word} {kind}", message, layer=layer)
    yield from _left_inside(schedule)


def _left_inside(schedule: Schedule) -> Iterator[Finding]:
    """Check that the outputs of a sub-graph for others come from its last layer."""
    context = schedule.context
    for subgraph in schedule.instances.subgraphs:
        inside = set(subgraph.layers)
        for layer in subgraph.layers[:-1]:
            for tensor in context.layers[layer].outputs:
                away = set(context.consumers[tensor]) - inside
                if away or tensor in context.graph.returned:
                    name = tensor_name(schedule, tensor)
                    message = f"{name} is read elsewhere, but its sub-graph does not hand it out"
                    yield _finding(schedule, "uncovered", message, layer=layer)


def _order(schedule: Schedule) -> Iterator[Finding]:
    """Check that every instance runs once, after all its producers."""
    graph = schedule.instances
    runs = Counter(schedule.order)
    for index in range(graph.count):
        if runs[index] != 1:
            word = "repeated" if runs[index] else "missing"
            message = f"{instance_name(schedule, index)} is {runs[index]} times in the order"
            yield _finding(schedule, f"{word} instance", message, index)
    for index in sorted(set(runs) - set(range(graph.count))):
        message = f"the order names instance {index}, of which there is none"
        yield _finding(schedule, "foreign instance", message)
    # Reversed, so that of one that runs twice the first run counts.
    position = {index: at for at, index in reversed(list(enumerate(schedule.order)))}
    pairs = zip(graph.links.reader.tolist(), graph.links.maker.tolist(), strict=True)
    for reader, maker in dict.fromkeys(pairs):
        if position.get(maker, -1) >= position.get(reader, graph.count):
            names = instance_name(schedule, reader), instance_name(schedule, maker)
            yield _finding(schedule, "order", f"{names[0]} runs before {names[1]}", reader)
    yield from _kernels(schedule)


def _kernels(schedule: Schedule) -> Iterator[Finding]:
    """Check that clusters run the instances of the order, in its order."""
    for cluster, timeline in enumerate(schedule.timelines):
        expected = list(schedule.order)
        if schedule.cluster:
            expected = [
                i for i in expected if i < len(schedule.cluster) and schedule.cluster[i] == cluster
            ]
        for wanted, index in itertools.zip_longest(expected, timeline.order.tolist()):
            if wanted != index:
                names = [
                    "nothing" if one is None else instance_name(schedule, one)
                    for one in (index, wanted)
                ]
                message = f"cluster {cluster} runs {names[0]} where the order has {names[1]}"
                yield _finding(schedule, "order", message, -1 if index is None else index)
                break


def _tilings(schedule: Schedule) -> Iterator[Finding]:
    """Check that the parts of a sub-graph make every output element exactly once."""
    graph = schedule.instances
    rows = graph.book.regions.rows
    for subgraph, parts in enumerate(graph.parts):
        instances = np.flatnonzero(graph.subgraph == subgraph)
        for position, tensor in enumerate(parts.outputs):
            shape = schedule.context.graph.tensors[tensor].shape
            boxes = rows[graph.out_region[instances] + position][:, : len(shape)]
            yield from tiling_findings(schedule, tensor, boxes, instances)


def tiling_findings(schedule: Schedule, tensor: int, boxes: Ints, own: Ints) -> Iterator[Finding]:
    """Check that boxes ``(parts, rank, 2)`` tile a tensor.

    Args:
        schedule: The schedule.
        tensor: The tensor's number.
        boxes: Boxes that the parts make: begin and end along each dimension.
        own: The instances that the boxes are of.

    Yields:
        What is wrong: a box outside of the tensor, a gap, an overlap.
    """
    name = tensor_name(schedule, tensor)
    extents = np.asarray(schedule.context.graph.tensors[tensor].shape, np.int64)
    solid = (boxes[..., 1] > boxes[..., 0]).all(axis=1)
    outside = solid & ((boxes[..., 0] < 0) | (boxes[..., 1] > extents)).any(axis=1)
    for index in own[outside].tolist():
        message = f"{instance_name(schedule, index)} makes elements of {name} that it has not"
        yield _finding(schedule, "outside", message, index)
    kept, names = boxes[solid], own[solid]
    # Boxes that leave the tensor would show as gaps in it too.
    if outside.any() or not extents.all():
        return
    bounds = [_bounds(kept[:, dim], extents[dim]) for dim in range(len(extents))]
    counts = _counts(kept, bounds)
    if (counts == 0).any():
        hole = _corner(bounds, np.argwhere(counts == 0)[0])
        near = int(names[_nearest(kept, hole)]) if len(kept) else -1
        message = f"no part makes {name} from {_place(hole)} on"
        if near >= 0:
            message += f", next to {instance_name(schedule, near)}"
        yield _finding(schedule, "gap", message, near)
    if (counts > 1).any():
        place = _corner(bounds, np.argwhere(counts > 1)[0])
        inside = ((kept[..., 0] <= place) & (place < kept[..., 1])).all(axis=1)
        both = [instance_name(schedule, i) for i in names[inside].tolist()[:2]]
        message = f"{both[0]} and {both[1]} both make {name} at {_place(place)}"
        yield _finding(schedule, "overlap", message, int(names[inside][1]))


def _place(corner: Ints) -> str:
    return f"[{', '.join(map(str, corner.tolist()))}]"


def _bounds(intervals: Ints, extent: int) -> Ints:
    """Return the begins and ends of boxes along a dimension, the tensor's ends included."""
    return np.unique(np.concatenate((intervals.ravel(), (0, extent))))


def _corner(bounds: Sequence[Ints], cell: Ints) -> Ints:
    return np.asarray([b[c] for b, c in zip(bounds, cell.tolist(), strict=True)], np.int64)


def _nearest(boxes: Ints, corner: Ints) -> int:
    """Return the index of the box with the least distance from an element."""
    away = np.maximum(boxes[..., 0] - corner, corner - boxes[..., 1] + 1)
    return int(np.maximum(away, 0).sum(axis=1).argmin())


def _counts(boxes: Ints, bounds: Sequence[Ints]) -> Ints:
    """Return, per cell of the grid of all bounds, how many boxes hold it."""
    counts = np.zeros([len(b) - 1 for b in bounds], np.int64)
    ends = [np.searchsorted(b, boxes[:, dim]).tolist() for dim, b in enumerate(bounds)]
    # A scalar has one cell, which every box holds.
    for cells in zip(*ends, strict=True) if bounds else [()] * len(boxes):
        counts[tuple(slice(*cell) for cell in cells)] += 1
    return counts


def _halos(schedule: Schedule) -> Iterator[Finding]:
    """Check that every part has the regions that its outputs need."""
    for index, needs in enumerate(needs_of(schedule)):
        for tensor, given in read_regions(schedule, index).items():
            need = needs.get(tensor)
            if need is not None and not within(need, given):
                name, what = instance_name(schedule, index), tensor_name(schedule, tensor)
                message = (
                    f"{name} needs {region_text(need)} of {what} and reads {region_text(given)}"
                )
                yield _finding(schedule, "halo", message, index)


def _links(schedule: Schedule) -> Iterator[Finding]:
    """Check that a part's linked makers, or the model's inputs, cover its inputs."""
    graph, given = schedule.instances, set(schedule.context.graph.inputs)
    makers = {t: s for s, parts in enumerate(graph.parts) for t in parts.outputs}
    made_by_instance = [made_regions(schedule, index) for index in range(graph.count)]
    for index in range(graph.count):
        link_range = range(int(graph.links.start[index]), int(graph.links.start[index + 1]))
        regions = read_regions(schedule, index)
        for slot, (tensor, region) in enumerate(regions.items()):
            linked = [int(graph.links.maker[x]) for x in link_range if graph.links.slot[x] == slot]
            if tensor in makers:
                home = makers[tensor]
                yield from _covered(schedule, index, tensor, region, linked, home, made_by_instance)
            elif tensor not in given and volume(region):
                message = (
                    f"{instance_name(schedule, index)} reads {tensor_name(schedule, tensor)}, "
                    f"which nobody makes"
                )
                yield _finding(schedule, "uncovered", message, index)
    yield from _edges(schedule)


def _covered(
    schedule: Schedule, index: int, tensor: int, region: Region, linked: Sequence[int], home: int,
    made: Sequence[Regions],
) -> Iterator[Finding]:  # fmt: skip
    """Check that the linked regions of one input of one part add up to it.

    Makers tile the tensor (another check), so equal sums mean that none is missing; all makers are
    looked at only if the sums differ.

    Args:
        schedule: The schedule.
        index: The instance that reads.
        tensor: The number of the tensor that is read.
        region: Region that is read of it.
        linked: Instances that it is linked to for this input.
        home: The sub-graph that makes the tensor.
        made: Per instance, the regions that it makes.

    Yields:
        What is wrong: a link to a part that does not make the tensor, a missing link, missing
        elements.
    """
    names = instance_name(schedule, index), tensor_name(schedule, tensor)
    for maker in linked:
        if not 0 <= maker < len(made) or tensor not in made[maker]:
            maker_name = instance_name(schedule, maker)
            message = f"{names[0]} is to read {names[1]} from {maker_name}, which does not make it"
            yield _finding(schedule, "foreign link", message, index)
            return
    pieces = {maker: volume(meet(made[maker][tensor], region)) for maker in linked}
    if sum(pieces.values()) == volume(region):
        return
    graph = schedule.instances
    parts = range(int(graph.first[home]), int(graph.first[home + 1]))
    missing = [m for m in parts if m not in pieces and volume(meet(made[m][tensor], region))]
    for maker in missing:
        maker_name = instance_name(schedule, maker)
        message = (
            f"{names[0]} reads {names[1]} without a link to {maker_name}, which makes part of it"
        )
        yield _finding(schedule, "unlinked", message, index)
    total = sum(pieces.values()) + sum(volume(meet(made[m][tensor], region)) for m in missing)
    if total != volume(region):
        message = f"{names[0]} reads {volume(region)} elements of {names[1]}, {total} are made"
        yield _finding(schedule, "uncovered", message, index)


def _edges(schedule: Schedule) -> Iterator[Finding]:
    """Check that producers and consumers, which clusters wait for, match the links."""
    graph = schedule.instances
    linked = set(zip(graph.links.maker.tolist(), graph.links.reader.tolist(), strict=True))
    known = {
        "producers": {(m, i) for i, makers in enumerate(graph.producers) for m in makers},
        "consumers": {(m, i) for m, readers in enumerate(graph.consumers) for i in readers},
    }
    for word, edges in known.items():
        for maker, index in sorted(linked ^ edges):
            names = instance_name(schedule, index), instance_name(schedule, maker)
            message = f"{names[0]} and {names[1]} are linked otherwise than the {word} say"
            yield _finding(schedule, "unlinked", message, index)
