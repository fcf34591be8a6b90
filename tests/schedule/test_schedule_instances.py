"""Sub-graphs become instances: parts, regions, and the edges that are left."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoturbo.graph.domain import volume
from autoturbo.graph.operators import Graph
from autoturbo.schedule.context import SchedulingContext, make_context
from autoturbo.schedule.knobs import Knobs
from autoturbo.schedule.partition.boxes import (
    WHOLE,
    Cut,
    box_regions,
    boxes_of,
    external_inputs,
    part_bounds,
)
from autoturbo.schedule.partition.grouping import GroupRules, SubGraph, group
from autoturbo.schedule.partition.split import Split, sink, split_axes
from autoturbo.schedule.place.instances import InstanceGraph, Links, PartBook, make_instances
from autoturbo.simulator.isolated import side_by_side
from autoturbo.verifier.regions import part_needs
from tests.schedule.schedule_checks import as_region
from tests.schedule.schedule_samples import Net, chain, networks, scheduler_of, target, volume_of
from tests.schedule.steps import instance_of, instances_of


@given(extent=st.integers(1, 60), data=st.data())
def test_bounds_cover_a_range_with_near_equal_parts(extent: int, data: st.DataObject) -> None:
    factor = data.draw(st.integers(1, extent))
    bounds = part_bounds(extent, factor)
    assert [x for a, b in bounds for x in range(a, b)] == list(range(extent))
    lengths = [b - a for a, b in bounds]
    assert len(lengths) == factor
    assert lengths == sorted(lengths, reverse=True)
    assert max(lengths) - min(lengths) <= 1


@pytest.mark.full
@pytest.mark.parametrize(
    "split",
    [
        Split(-1, 1, 0, 0, 0),
        Split(0, 3, 0, 0, 0),
        Split(2, 5, 1, 0, 0, 0, 2),
        Split(0, 4, 0, 0, 0, 3, 3),
    ],
)
def test_boxes_are_all_pairs_of_parts_the_outer_axis_slowest(split: Split) -> None:
    context = make_context(chain("conv", shape=(4, 2, 8, 8)), target(), "float16")
    boxes, extents = boxes_of(context, (0,), split), sink(context, (0,)).extents
    assert len(boxes) == split.instances
    assert {box.axes for box in boxes} == {tuple(axis for axis, _ in split.axes)}
    bounds = [box.bounds for box in boxes]
    assert bounds == sorted(set(bounds))
    for at, (axis, factor) in enumerate(split.axes):
        assert sorted({box[at] for box in bounds}) == part_bounds(extents[axis], factor)


def by_depth(graph: Graph, *cuts: tuple[int, int]) -> tuple[SchedulingContext, InstanceGraph]:
    """Every layer a sub-graph of its own, cut at a depth of the loop order into some parts."""
    context = make_context(graph, target(), "float16")
    subgraphs = []
    for layer, (depth, parts) in zip(context.layers, cuts, strict=True):
        axis = dict(split_axes(context, (layer.index,))).get(depth, -1) if parts > 1 else -1
        subgraphs.append(SubGraph(layer.index, (layer.index,), Split(axis, parts, depth, 0, 0)))
    return context, make_instances(PartBook(context), tuple(subgraphs))


def producers_by_part(graph: InstanceGraph) -> dict[tuple[int, int], list[int]]:
    """Per instance of the later sub-graph, the parts of the earlier one that it reads."""
    return {
        (i.subgraph, i.part): [instance_of(graph, p).part for p in graph.producers[i.index]]
        for i in instances_of(graph)
        if i.subgraph
    }


def test_samples_are_inherited_one_to_one() -> None:
    _, graph = by_depth(chain("conv", "conv", shape=(4, 2, 4, 4)), (0, 4), (0, 4))
    assert producers_by_part(graph) == {(1, part): [part] for part in range(4)}


def test_two_to_one_as_in_figure_6() -> None:
    _, graph = by_depth(chain("conv", "conv", "conv", shape=(8, 2, 4, 4)), (0, 8), (0, 4), (0, 2))
    assert producers_by_part(graph) == {
        **{(1, part): [2 * part, 2 * part + 1] for part in range(4)},
        **{(2, part): [2 * part, 2 * part + 1] for part in range(2)},
    }


@pytest.mark.full
def test_rows_of_a_pointwise_layer_need_no_halo() -> None:
    net = Net(x=(1, 2, 8, 8))
    net.conv(net.conv("x", 2, 1), 2, 1)
    _, graph = by_depth(net.graph(), (1, 4), (1, 4))
    assert producers_by_part(graph) == {(1, part): [part] for part in range(4)}


def test_rows_of_a_convolution_need_their_neighbours() -> None:
    _, graph = by_depth(chain("conv", "conv", shape=(1, 2, 8, 8)), (1, 4), (1, 4))
    assert producers_by_part(graph) == {
        (1, 0): [0, 1], (1, 1): [0, 1, 2], (1, 2): [1, 2, 3], (1, 3): [2, 3]
    }  # fmt: skip


@pytest.mark.full
def test_channels_need_all_that_came_before() -> None:
    _, graph = by_depth(chain("conv", "conv", shape=(2, 4, 4, 4)), (3, 4), (3, 2))
    assert producers_by_part(graph) == {(1, 0): [0, 1, 2, 3], (1, 1): [0, 1, 2, 3]}


def test_other_dimensions_meet_in_all_pairs() -> None:
    _, graph = by_depth(chain("conv", "conv", shape=(2, 4, 4, 4)), (0, 2), (3, 4))
    assert producers_by_part(graph) == {(1, part): [0, 1] for part in range(4)}


def test_a_concatenation_along_its_axis_reads_one_operand() -> None:
    """Parts on the seam read both operands, others the one that they come from."""
    net = Net(x=(1, 4, 4, 4), y=(1, 4, 4, 4))
    net.concat(1, net.conv("x", 4), net.conv("y", 4))
    _, graph = by_depth(net.graph(), (0, 1), (0, 1), (3, 4))
    parts = [[instance_of(graph, p).subgraph for p in graph.producers[i]] for i in range(2, 6)]
    assert parts == [[0], [0], [1], [1]]


def test_parts_side_by_side_read_of_whole_layers_what_instances_read() -> None:
    _, graph = by_depth(chain("conv", "conv", shape=(1, 2, 8, 8)), (0, 1), (1, 4))
    beside, whole = side_by_side(
        graph.book, graph.subgraphs[1:], lambda parts: np.arange(parts.count)
    )
    assert (whole, beside.count) == (1, graph.count)
    for field in dataclasses.fields(Links):
        found, expected = (getattr(g.links, field.name).tolist() for g in (beside, graph))
        assert found == expected


def test_ragged_parts() -> None:
    context, graph = by_depth(chain("relu", shape=(7, 4)), (0, 3))
    rows = [as_region(next(iter(i.outputs.values())))[0] for i in instances_of(graph)]
    assert rows == [(0, 3), (3, 5), (5, 7)]
    assert len(set(graph.shape.tolist())) == 2
    assert context.graph.tensors[0].shape == (7, 4)


def test_equal_parts_share_a_shape() -> None:
    _, graph = by_depth(chain("conv", shape=(8, 2, 4, 4)), (0, 8))
    assert len(set(graph.shape.tolist())) == 1
    assert {i.shape for i in instances_of(graph)} == {0}


@pytest.mark.full
def test_edge_parts_of_a_halo_have_shapes_of_their_own() -> None:
    _, graph = by_depth(chain("conv", shape=(1, 2, 8, 8)), (1, 4))
    assert len(set(graph.shape.tolist())) == 2
    assert [i.shape for i in instances_of(graph)] == [0, 1, 1, 0]


def test_external_inputs_in_order_of_first_use() -> None:
    net = Net(x=(2, 4), y=(2, 4), z=(2, 4))
    net.sum(net.sum("y", "x"), "z")
    context = make_context(net.graph(), target(), "float16")
    layers = tuple(x.index for x in context.layers)
    found = [context.graph.tensors[t].name for t in external_inputs(context, layers)]
    assert found == ["y", "x", "z"]


def test_resnet_instances_are_figure_6() -> None:
    context = scheduler_of("resnet50").context(16)
    graph = make_instances(PartBook(context), group(context, GroupRules.of(Knobs())))
    counts = [sum(i.subgraph == s for i in instances_of(graph)) for s in range(4)]
    assert counts == [8, 4, 2, 1]
    assert [list(p) for p in graph.producers[8:]] == [
        [0, 1], [2, 3], [4, 5], [6, 7], [8, 9], [10, 11], [12, 13]
    ]  # fmt: skip
    assert graph.consumers[14] == ()


@settings(max_examples=25, deadline=None)
@given(graph=networks(), data=st.data())
def test_part_regions_against_plain_python(graph: Graph, data: st.DataObject) -> None:
    """Compiled propagation over a whole network gives the regions of the access maps."""
    context = make_context(graph, target(), "float16")
    layers = tuple(x.index for x in context.layers)
    ends = [x for x in layers if set(context.layers[x].outputs) & set(graph.outputs)]
    layers = layers[: data.draw(st.sampled_from(ends)) + 1]
    axes = split_axes(context, layers)
    axis = data.draw(st.sampled_from([-1, *(a for _, a in axes)]))
    start = stop = 0
    if axis >= 0:
        extent = sink(context, layers).axes[axis].extent
        start = data.draw(st.integers(0, extent - 1))
        stop = data.draw(st.integers(start + 1, extent))
    shape = box_regions(context, layers, Cut((axis,), ((start, stop),)) if axis >= 0 else WHOLE)
    starts = context.arrays.dim_start

    def region(tensor: int) -> tuple[tuple[int, int], ...]:
        span = slice(int(starts[tensor]), int(starts[tensor + 1]))
        return as_region(np.stack((shape.low[span], shape.high[span]), axis=1))

    outputs = {t: region(t) for t in sink(context, layers).outputs if shape.seen[t]}
    needs = part_needs(context, layers, outputs)
    regions, boxes = needs.regions, needs.boxes
    assert {t: region(t) for t in range(len(graph.tensors)) if shape.seen[t]} == regions
    for op, box in boxes.items():
        span = slice(int(context.arrays.axis_start[op]), int(context.arrays.axis_start[op + 1]))
        compiled = np.stack((shape.box_low[span], shape.box_high[span]), axis=1)
        assert volume(as_region(compiled)) == volume(box)


@pytest.mark.full
@pytest.mark.parametrize("parts", [1, 4])
def test_whole_outputs_are_covered(parts: int) -> None:
    _, graph = by_depth(chain("conv", shape=(8, 2, 4, 4)), (0, parts))
    made = sum(volume_of(next(iter(i.outputs.values()))) for i in instances_of(graph))
    assert made == 8 * 2 * 4 * 4
