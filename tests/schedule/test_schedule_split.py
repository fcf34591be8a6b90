"""Algorithm 1: where a sub-graph may be cut, into how many parts, and what a part costs."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoturbo.graph.domain import volume
from autoturbo.graph.operators import Graph
from autoturbo.hardware import Target
from autoturbo.schedule.context import SchedulingContext, Zones, make_context
from autoturbo.schedule.knobs import Knobs
from autoturbo.schedule.memory.timeline import TENSOR
from autoturbo.schedule.partition.boxes import external_inputs, part_bounds
from autoturbo.schedule.partition.split import (
    DEFAULT_RECOMPUTE_LIMIT,
    GB_SHARE,
    Split,
    SplitRules,
    best_split,
    candidate_factor,
    sink,
    split_axes,
)
from autoturbo.schedule.pipeline import ModelScheduler, build_schedule
from autoturbo.schedule.place.bind import Scope
from autoturbo.verifier.regions import part_needs
from tests.schedule.schedule_samples import Net, chain, networks, part_cost, scheduler_of, target


def problem_of(graph: Graph, machine: Target | None = None) -> SchedulingContext:
    return make_context(graph, machine or target(), "float16")


def all_layers(context: SchedulingContext) -> tuple[int, ...]:
    return tuple(layer.index for layer in context.layers)


def factors(extent: int, policy: str, peak: int, room: int) -> list[int]:
    """The factors that are tried, from the smallest whose parts fit by the printed estimate."""
    found, factor = [], max(-(-peak // max(room, 1)), 2)
    while factor := candidate_factor(factor, extent, policy):
        found.append(factor)
        factor += 1
    return found


def axis_names(context: SchedulingContext, layers: tuple[int, ...], dims: str = "all") -> list[str]:
    axes = sink(context, layers).axes
    return [axes[axis].name for _, axis in split_axes(context, layers, dims)]


def test_rules_default_to_the_paper() -> None:
    assert SplitRules.of(Knobs()) == SplitRules(
        1.0, DEFAULT_RECOMPUTE_LIMIT, "operators-factor-depth", "all", "published"
    )


def test_rules_follow_the_knobs() -> None:
    knobs = Knobs(lb_occupancy_limit=0.5, recompute_limit=2.0, split_key="factor-depth-operators",
    split_dims="batch",
                  factor_policy="ragged")  # fmt: skip
    assert SplitRules.of(knobs) == SplitRules(0.5, 2.0, "factor-depth-operators", "batch", "ragged")


def test_a_convolution_splits_over_samples_rows_columns_channels() -> None:
    """Loop order is that of NHWC, whatever the file's layout."""
    context = problem_of(chain("conv"))
    axes = sink(context, (0,)).axes
    order = [axes[axis].extent for _, axis in split_axes(context, (0,))]
    assert order == [2, 8, 8, 4]
    assert [depth for depth, _ in split_axes(context, (0,))] == [0, 1, 2, 3]


@pytest.mark.full
@pytest.mark.parametrize(("dims", "count"), [("batch", 1), ("spatial", 2), ("channel", 1)])
def test_dimensions_by_kind(dims: str, count: int) -> None:
    context = problem_of(chain("conv"))
    chosen = split_axes(context, (0,), dims)
    assert len(chosen) == count
    assert set(chosen) <= set(split_axes(context, (0,)))


def test_a_softmax_is_not_split_along_its_axis() -> None:
    net = Net(x=(4, 6, 8))
    net.softmax("x")
    context = problem_of(net.graph())
    assert [sink(context, (0,)).axes[a].extent for _, a in split_axes(context, (0,))] == [4, 6]


@pytest.mark.full
def test_a_reduction_axis_is_not_an_output_dimension() -> None:
    net = Net(x=(4, 6, 8))
    net.mean("x")
    context = problem_of(net.graph())
    extents = [sink(context, (0,)).axes[a].extent for _, a in split_axes(context, (0,))]
    assert extents == [4, 6]


def test_a_merged_dimension_splits_along_its_outer_part() -> None:
    net = Net(x=(4, 6, 8))
    net.reshape(net.relu("x"), 24, 8)
    context = problem_of(net.graph())
    layers = all_layers(context)
    (depth, axis), *_ = split_axes(context, layers)
    assert (depth, sink(context, layers).axes[axis].extent) == (0, 4)


@pytest.mark.full
def test_dimensions_of_one_element_are_not_split() -> None:
    net = Net(x=(1, 6, 8))
    net.relu("x")
    context = problem_of(net.graph())
    assert [sink(context, (0,)).axes[a].extent for _, a in split_axes(context, (0,))] == [6, 8]


def test_factors() -> None:
    """The paper's list has no 3, 5, 6, 7 and takes the first factor only if it divides."""
    cases: tuple[tuple[int, str, int, int, list[int]], ...] = (
        (16, "published", 100, 60, [2, 4, 8]),
        (16, "published", 500, 100, [8]),
        (16, "divisors", 300, 100, [4, 8, 16]),
        (12, "published", 100, 60, [2, 4]),
        (12, "divisors", 100, 60, [2, 3, 4, 6, 12]),
        (7, "published", 100, 60, []),
        (7, "divisors", 100, 60, [7]),
        (5, "ragged", 100, 60, [2, 3, 4, 5]),
        (4, "published", 900, 100, []),
        (36, "published", 850, 100, [9]),
    )
    for extent, policy, peak, room, expected in cases:
        assert factors(extent, policy, peak, room) == expected


def test_what_fits_stays_whole() -> None:
    context = problem_of(chain("conv", "relu"), target(lb=1 << 20))
    layers = all_layers(context)
    assert best_split(context, layers, SplitRules()) == Split(
        -1, 1, 0, len(layers), part_cost(context, layers, -1, 0, 0)[0]
    )


def test_what_no_split_makes_fit_stays_whole_and_says_so() -> None:
    context = problem_of(chain("conv"), target(cores=1, lb=16))
    split = best_split(context, (0,), SplitRules())
    assert math.isinf(split.factor)
    assert (split.axis, split.instances, split.operators) == (-1, 1, 0)


def test_the_smallest_factor_that_fits() -> None:
    """Input and output of a pointwise layer: 2 x 4 x 4 x 8 x 8 x 2 bytes = 4096.

    A sixteenth of the local buffer is the staging zone: 4369 bytes have 4096 left.
    """
    net = Net(x=(4, 4, 8, 8))
    net.conv("x", 4, 1)
    for lb, factor in ((4369, 1), (4368, 2), (2184, 2), (2183, 4)):
        context = problem_of(net.graph(), target(cores=1, lb=lb))
        assert best_split(context, (0,), SplitRules()).factor == factor


@pytest.mark.full
@pytest.mark.parametrize(("fill", "factor"), [(1.0, 1), (0.5, 2), (0.25, 4)])
def test_fill(fill: float, factor: int) -> None:
    net = Net(x=(4, 4, 8, 8))
    net.conv("x", 4, 1)
    context = problem_of(net.graph(), target(cores=1, lb=4369))
    assert best_split(context, (0,), SplitRules(lb_occupancy_limit=fill)).factor == factor


@pytest.mark.full
@pytest.mark.parametrize(
    ("key", "expected"), [("operators-factor-depth", 0), ("depth-factor-operators", 0)]
)
def test_equal_splits_take_the_outermost_dimension(key: str, expected: int) -> None:
    net = Net(x=(4, 4, 4, 4))
    net.relu("x")
    context = problem_of(net.graph(), target(cores=1, lb=1024 - 16))
    assert best_split(context, (0,), SplitRules(split_key=key)).depth == expected


def test_key_order_matters() -> None:
    """Three samples cannot be halved: by factor the rows win, by depth the samples."""
    net = Net(x=(9, 4, 8, 8))
    net.relu("x")
    context = problem_of(net.graph(), target(cores=1, lb=5000))
    by_factor = best_split(
        context, (0,), SplitRules(split_key="factor-operators-depth", factor_policy="divisors")
    )
    by_depth = best_split(
        context, (0,), SplitRules(split_key="depth-factor-operators", factor_policy="divisors")
    )
    assert (by_factor.factor, by_factor.depth) == (2, 1)
    assert (by_depth.factor, by_depth.depth) == (3, 0)


def test_recomputation_is_limited() -> None:
    """Splitting the rows of three stacked convolutions repeats halo rows."""
    net = Net(x=(1, 2, 16, 16))
    at = "x"
    for _ in range(3):
        at = net.conv(at, 2)
    context = problem_of(net.graph(), target(cores=1, lb=1500))
    layers = all_layers(context)
    strict = best_split(context, layers, SplitRules(recompute_limit=1.0))
    assert strict.factor == 1 or math.isinf(strict.factor)
    generous = best_split(context, layers, SplitRules(recompute_limit=4.0))
    assert generous.factor > 1


def test_a_halo_adds_rows_and_work() -> None:
    context = problem_of(chain("conv", shape=(1, 1, 8, 8)))
    rows = next(axis for depth, axis in split_axes(context, (0,)) if depth == 1)
    peak, work, cut = part_cost(context, (0,), rows, 2, 4)
    assert peak == (4 * 8 + 2 * 8) * 2
    assert work * 4 == part_cost(context, (0,), -1, 0, 0)[1]
    assert cut == 1


def test_splitting_channels_keeps_the_whole_input() -> None:
    context = problem_of(chain("conv", shape=(1, 4, 8, 8)))
    channels = next(axis for depth, axis in split_axes(context, (0,)) if depth == 3)
    assert part_cost(context, (0,), channels, 0, 1)[0] == (4 * 64 + 64) * 2


def test_footprint_excludes_weights() -> None:
    net = Net(x=(2, 8))
    net.linear("x", 64)
    context = problem_of(net.graph())
    assert part_cost(context, (0,), -1, 0, 0)[0] == (2 * 8 + 2 * 64) * 2


def test_an_elementwise_layer_writes_over_an_inner_input_only() -> None:
    """A graph input is somebody else's: the first ReLU needs both, later ones reuse the space."""
    net = Net(x=(1, 4, 8, 8))
    first = net.conv("x", 4, 1)
    net.sum(net.relu(first), first)
    context = problem_of(net.graph())
    layers = all_layers(context)
    tensor = 4 * 64 * 2
    assert part_cost(context, layers, -1, 0, 0)[0] == 2 * tensor


@settings(max_examples=12, deadline=None)
@given(graph=networks(), factor=st.integers(1, 4), data=st.data())
def test_part_cost_against_plain_python(graph: Graph, factor: int, data: st.DataObject) -> None:
    """Work and operators cut from boxes, and the footprint from a walk over the layers."""
    context = problem_of(graph)
    layers = (data.draw(st.sampled_from(all_layers(context))),)
    axes = split_axes(context, layers)
    axis = data.draw(st.sampled_from([-1, *(a for _, a in axes)]))
    last = sink(context, layers)
    whole = {t: graph.tensors[t].whole for t in last.outputs}
    start = stop = 0
    if axis >= 0:
        parts = min(factor, last.axes[axis].extent)
        bounds = part_bounds(last.axes[axis].extent, parts)
        start, stop = data.draw(st.sampled_from(bounds))
        box = [(0, a.extent) for a in last.axes]
        box[axis] = (start, stop)
        from autoturbo.graph.domain import interval_of

        whole = {
            t: tuple(
                interval_of(d, tuple(box), e)
                for d, e in zip(m.dims, graph.tensors[t].shape, strict=True)
            )
            for t, m in zip(last.outputs, last.output_maps, strict=True)
        }
    needs = part_needs(context, layers, whole)
    regions, boxes = needs.regions, needs.boxes
    peak, work, cut = part_cost(context, layers, axis, start, stop)
    assert work == sum(volume(b) * int(context.layer_arrays.work[op]) for op, b in boxes.items())
    operators = context.layers[layers[0]].operators
    done = {op: volume(boxes[op]) if op in boxes else 0 for op in operators}
    assert cut == sum(points < graph.operators[op].points for op, points in done.items())
    read = [t for t in external_inputs(context, layers) if t in regions]
    kept = [t for t in context.layers[layers[0]].outputs if t in regions]
    element = context.arrays.element
    assert peak == sum(volume(regions[t]) * int(element[t]) for t in (*read, *kept))


@settings(max_examples=12, deadline=None)
@given(graph=networks(), lb=st.sampled_from((64, 256, 1024)), data=st.data())
def test_the_chosen_part_fits_and_smaller_printed_factors_do_not(
    graph: Graph, lb: int, data: st.DataObject
) -> None:
    context = problem_of(graph, target(cores=2, lb=lb))
    layers = (data.draw(st.sampled_from(all_layers(context))),)
    split = best_split(context, layers, SplitRules())
    whole = part_cost(context, layers, -1, 0, 0)
    room = context.cluster_lb_bytes
    if math.isinf(split.factor):
        assert whole[0] > room
        return
    assert split.footprint <= room
    if split.factor > 1:
        assert whole[0] > room
        assert sink(context, layers).axes[split.axis].extent % split.factor == 0
        assert (split.depth, split.axis) in split_axes(context, layers)


@pytest.mark.full
def test_resnet_stages_split_eight_four_two_one() -> None:
    """Identity blocks of the four stages at 16 images, FP16, 8 cores x 1 MiB (section 1.3)."""
    context = scheduler_of("resnet50").context(16)
    for channels, size, factor in ((256, 56, 8), (512, 28, 4), (1024, 14, 2), (2048, 7, 1)):
        net = Net(x=(16, channels, size, size))
        middle = net.relu(net.conv(net.relu(net.conv("x", channels // 4, 1)), channels // 4))
        net.relu(net.sum(net.conv(middle, channels, 1), "x"))
        stage = make_context(net.graph(), context.target, "float16")
        assert best_split(stage, all_layers(stage), SplitRules()).factor == factor


@settings(max_examples=20, deadline=None)
@given(graph=networks(6), lb=st.sampled_from((128, 512, 2048)), data=st.data())
def test_the_best_of_all_splits_that_may_be_tried(
    graph: Graph, lb: int, data: st.DataObject
) -> None:
    """Equation 1 over all dimensions and all factors that divide, one by one."""
    context = problem_of(graph, target(cores=2, lb=lb))
    first = data.draw(st.sampled_from(all_layers(context)))
    layers = tuple(range(first, data.draw(st.sampled_from(all_layers(context)[first:])) + 1))
    limit = data.draw(st.sampled_from((1.0, 1.25, 4.0)))
    key = data.draw(
        st.sampled_from(
            ("operators-factor-depth", "factor-operators-depth", "depth-factor-operators")
        )
    )
    split = best_split(context, layers, SplitRules(1.0, limit, key, "all", "divisors"))
    whole, work, _ = part_cost(context, layers, -1, 0, 0)
    room = context.cluster_lb_bytes
    found = []
    for depth, axis in split_axes(context, layers):
        extent = sink(context, layers).axes[axis].extent
        for factor in range(max(math.ceil(whole / room), 2), extent + 1):
            if extent % factor:
                continue
            size = extent // factor
            start = factor // 2 * size
            peak, own, cut = part_cost(context, layers, axis, start, start + size)
            if own * factor > limit * work + factor:
                break
            if peak <= room:
                rank = {"operators": cut, "factor": -factor, "depth": -depth}
                found.append(
                    ([rank[name] for name in key.split("-")], Split(axis, factor, depth, cut, peak))
                )
                break
    if whole <= room:
        assert split == Split(-1, 1, 0, len(layers), whole)
    elif found:
        assert split == max(found, key=lambda one: one[0])[1]
    else:
        assert (split.axis, split.factor) == (-1, math.inf)


def test_parts_that_fit_the_global_buffer() -> None:
    """Four times the room of LB: fewer parts, which take no more than their share of GB."""
    graph, machine = (
        chain("conv", "relu", "conv", shape=(4, 16, 16, 16)),
        target(lb=1 << 14, gb=1 << 18),
    )
    context = make_context(graph, machine, "float16")
    near, home = (best_split(context, all_layers(context), SplitRules(part_memory=memory))
                  for memory in ("LB", "GB"))  # fmt: skip
    assert near.footprint <= context.cluster_lb_bytes
    assert context.cluster_lb_bytes < home.footprint <= GB_SHARE * Zones.of(machine).gb
    assert home.instances < near.instances


@settings(max_examples=20)
@given(networks(), st.sampled_from((1 << 13, 1 << 15, 1 << 18)))
def test_what_has_no_room_in_lb_stays_in_gb(graph: Graph, capacity: int) -> None:
    """Of parts that fit their share of GB none moves what it makes to DDR, whatever LB has."""
    machine = target(lb=1024, gb=capacity)
    schedule = build_schedule(
        ModelScheduler(graph, machine, "float16"), Knobs(part_memory="GB", output_scope="GB")
    )
    context, timeline = schedule.context, schedule.timelines[0]
    fits = all(
        subgraph.split.footprint <= GB_SHARE * Zones.of(machine).gb
        for subgraph in schedule.instances.subgraphs
    )
    one = len(schedule.order) == 1
    if fits and one:
        inner = [t for layer in context.layers for t in layer.outputs if context.consumers[t]]
        kept = timeline.kind == TENSOR
        scopes = dict(
            zip(timeline.tensor[kept].tolist(), timeline.buffers.scope[kept], strict=True)
        )
        assert all(scopes.get(t, Scope.LB) < Scope.DDR for t in inner)
