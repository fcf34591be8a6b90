"""Compiled region arithmetic held to the plain one, on every operator of the bundled workloads."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoturbo.datasets.workloads import names
from autoturbo.graph.arrays import (
    GraphArrays,
    Regions,
    domain_points,
    graph_arrays,
    need,
    operator_axes,
    propagate_in,
    region_bytes,
)
from autoturbo.graph.domain import Interval, Region, hull, volume
from autoturbo.graph.operators import MAX_AXES, Graph, Operator, element_bytes
from tests.graph.graph_samples import model, workload
from tests.tiers import tiered, workloads

EXAMPLES = settings(max_examples=40, deadline=None)


def regions_of(graph: Graph, operator: Operator, data: st.DataObject) -> dict[int, Region]:
    """A random part of some outputs, by position."""
    count = len(operator.outputs)
    chosen = data.draw(st.sets(st.integers(0, count - 1), min_size=1)) if count else set()
    return {p: _part(graph.tensors[operator.outputs[p]].shape, data) for p in sorted(chosen)}


def _part(shape: tuple[int, ...], data: st.DataObject) -> Region:
    region: list[Interval] = []
    for extent in shape:
        low = data.draw(st.integers(0, max(extent - 1, 0)))
        region.append((low, data.draw(st.integers(min(low + 1, extent), extent))))
    return tuple(region)


class Compiled:
    """The state that compiled propagation works on."""

    def __init__(self, graph: Graph, arrays: GraphArrays) -> None:
        self.graph, self.arrays = graph, arrays
        self.regions = Regions.of(arrays)

    def want(self, tensor: int, region: Region) -> None:
        low = np.asarray([a for a, _ in region], np.int64)
        high = np.asarray([b for _, b in region], np.int64)
        need(self.arrays, tensor, low, high, self.regions)

    def run(self, *operators: int) -> None:
        propagate_in(self.arrays, np.asarray(operators, np.int64), self.regions)

    def region(self, tensor: int) -> Region:
        start = self.arrays.dim_start
        span = range(int(start[tensor]), int(start[tensor + 1]))
        return tuple((int(self.regions.low[d]), int(self.regions.high[d])) for d in span)

    def box(self, operator: int) -> tuple[Interval, ...]:
        start = self.arrays.axis_start
        span = range(int(start[operator]), int(start[operator + 1]))
        return tuple((int(self.regions.box_low[a]), int(self.regions.box_high[a])) for a in span)


def check_operator(graph: Graph, arrays: GraphArrays, index: int, data: st.DataObject) -> None:
    operator = graph.operators[index]
    wanted = regions_of(graph, operator, data)
    state = Compiled(graph, arrays)
    for position, region in wanted.items():
        if volume(region):
            state.want(operator.outputs[position], region)
    state.run(index)
    axes = operator.axis_region(wanted)
    assert volume(state.box(index)) == volume(axes)
    if volume(axes):
        assert state.box(index) == axes
    assert domain_points(arrays, index, state.regions) == volume(axes)
    expected: dict[int, Region] = {}
    for position, tensor in enumerate(operator.inputs):
        region = operator.input_region(position, axes, graph.tensors[tensor].shape)
        if volume(region):
            expected[tensor] = hull(expected.get(tensor, region), region)
    for tensor in set(operator.inputs) - set(operator.outputs):
        assert bool(state.regions.seen[tensor]) == (tensor in expected)
        if tensor in expected:
            assert state.region(tensor) == expected[tensor]
            size = volume(expected[tensor]) * element_bytes(graph.tensors[tensor].dtype, "float16")
            assert region_bytes(arrays, tensor, state.regions.low, state.regions.high) == size


@pytest.mark.parametrize("name", workloads(without=["unet"]))
def test_single_operators(name: str) -> None:
    graph = workload(name)
    arrays = graph_arrays(graph, "float16")
    kinds: dict[str, list[int]] = {}
    for index, operator in enumerate(graph.operators):
        kinds.setdefault(operator.kind, []).append(index)

    @EXAMPLES
    @given(kind=st.sampled_from(sorted(kinds)), data=st.data())
    def check(kind: str, data: st.DataObject) -> None:
        check_operator(graph, arrays, data.draw(st.sampled_from(kinds[kind])), data)

    check()


@pytest.mark.parametrize(
    "name", tiered(["resnet18"], ["shufflenet_v2", "bert_base_s128", "swin_t"])
)
@settings(max_examples=10, deadline=None)
@given(data=st.data())
def test_runs_of_operators(name: str, data: st.DataObject) -> None:
    """Regions grow to hulls where several operators read one tensor."""
    graph = workload(name)
    arrays = graph_arrays(graph, "float16")
    first = data.draw(st.integers(0, len(graph.operators) - 1))
    last = data.draw(st.integers(first, min(first + 25, len(graph.operators) - 1)))
    sink = graph.operators[last]
    state = Compiled(graph, arrays)
    regions: dict[int, Region] = {}
    for position, region in regions_of(graph, sink, data).items():
        if volume(region):
            state.want(sink.outputs[position], region)
            regions[sink.outputs[position]] = region
    state.run(*range(first, last + 1))
    for index in range(last, first - 1, -1):
        operator = graph.operators[index]
        wanted = {p: regions[t] for p, t in enumerate(operator.outputs) if t in regions}
        axes = operator.axis_region(wanted) if wanted else ((0, 0),) * len(operator.axes)
        assert volume(state.box(index)) == (volume(axes) if wanted else volume(state.box(index)))
        for position, tensor in enumerate(operator.inputs if wanted else ()):
            region = operator.input_region(position, axes, graph.tensors[tensor].shape)
            if volume(region):
                regions[tensor] = hull(regions.get(tensor, region), region)
    assert {
        t: state.region(t) for t in range(len(graph.tensors)) if state.regions.seen[t]
    } == regions


def test_layout() -> None:
    graph = workload("resnet18")
    arrays = graph_arrays(graph, "int8")
    assert arrays.dim_start[-1] == sum(len(t.shape) for t in graph.tensors) == len(arrays.extent)
    assert arrays.axis_start[-1] == sum(len(o.axes) for o in graph.operators)
    assert len(arrays.in_slot) + len(arrays.out_slot) == len(arrays.slot_dim) - 1
    assert set(arrays.element.tolist()) == {1}
    for operator, start, end in zip(
        graph.operators, arrays.in_start, arrays.in_start[1:], strict=False
    ):
        assert arrays.in_tensor[start:end].tolist() == list(operator.inputs)
    assert max(len(o.axes) for o in graph.operators) <= MAX_AXES


@pytest.mark.parametrize(
    ("compute", "size"), [("float16", 2), ("int8", 1), ("float32", 4), ("bfloat16", 2)]
)
def test_elements_take_the_compute_type(compute: str, size: int) -> None:
    graph = model("(float[2,3] x) => (float[2,3] y)", "y = Relu(x)")
    assert graph_arrays(graph, compute).element.tolist() == [size, size]


@pytest.mark.full
def test_every_operator_of_every_workload_fits_the_axes() -> None:
    for name in names():
        assert max(len(o.axes) for o in workload(name).operators) <= MAX_AXES


def test_an_operator_nobody_wants_has_an_empty_box() -> None:
    graph = model("(float[2,3] x) => (float[2,3] y, float[2,3] z)", "y = Relu(x) z = Neg(x)")
    state = Compiled(graph, graph_arrays(graph, "float16"))
    first = graph.operators[0].outputs[0]
    state.want(first, ((0, 1), (0, 3)))
    state.run(0, 1)
    assert volume(state.box(0)) == 3
    assert volume(state.box(1)) == 0
    assert state.region(graph.inputs[0]) == ((0, 1), (0, 3))


def test_several_outputs_are_joined() -> None:
    """A Split's outputs lie at offsets of one domain: the box holds what any of them wants."""
    graph = model("(float[8,3] x) => (float[4,3] y, float[4,3] z)", "y, z = Split <axis = 0> (x)")
    arrays = graph_arrays(graph, "float16")
    state = Compiled(graph, arrays)
    operator = graph.operators[0]
    state.want(operator.outputs[0], ((1, 2), (0, 3)))
    state.want(operator.outputs[1], ((0, 2), (0, 3)))
    assert operator_axes(arrays, 0, state.regions)
    state.run(0)
    rows = state.region(graph.inputs[0])[0]
    assert rows[0] <= 1
    assert rows[1] >= 6
    assert math.prod(b - a for a, b in state.region(graph.inputs[0])) <= 24
