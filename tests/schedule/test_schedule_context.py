"""The problem and the arithmetic of operators: loop orders, roles of axes, engines."""

from __future__ import annotations

import dataclasses
import math

import pytest
from hypothesis import given, settings

from autoturbo.graph.layers import layers_from
from autoturbo.graph.operators import Engine, Graph, Operator
from autoturbo.schedule.context import SchedulingContext, loop_orders, make_context, outer_axis
from autoturbo.schedule.knobs import Knobs
from autoturbo.schedule.pipeline import ModelScheduler, build_schedule
from autoturbo.schedule.stitch.stages import Stage
from autoturbo.schedule.work import (
    COLUMNS,
    COUNT,
    DEPTH,
    MATRIX,
    MOVE,
    NONE,
    ROWS,
    VECTOR,
    WINDOW,
    axis_roles,
    engine_code,
    matrix_cycles_of,
    matrix_shape,
)
from tests.schedule.schedule_samples import STCP920, Net, chain, networks, scheduler_of, target
from tests.schedule.steps import steps_of


def operator(net: Net, index: int = -1) -> Operator:
    return net.graph().operators[index]


def order_of(graph: Graph, name: str) -> tuple[int, ...]:
    index = next(i for i, t in enumerate(graph.tensors) if t.name == name)
    return loop_orders(graph)[index]


def test_images_are_walked_samples_rows_columns_channels() -> None:
    graph = chain("conv", "relu")
    assert order_of(graph, "relu0") == (0, 2, 3, 1)


def test_rows_of_sequences_come_before_their_features() -> None:
    net = Net(x=(2, 6, 8))
    net.relu(net.linear("x", 4))
    assert order_of(net.graph(), "relu0") == (0, 1, 2)


def test_a_transpose_takes_the_channels_along() -> None:
    net = Net(x=(2, 4, 8, 8))
    net.transpose(net.conv("x", 4), 0, 2, 3, 1)
    assert order_of(net.graph(), "transpose0") == (0, 1, 2, 3)


@pytest.mark.full
def test_channels_taken_apart_stay_side_by_side() -> None:
    """Positions inside a head follow each other in memory, heads do not."""
    net = Net(x=(2, 6, 8))
    net.transpose(net.reshape(net.linear("x", 24), 2, 6, 3, 8), 0, 2, 1, 3)
    graph = net.graph()
    assert order_of(graph, "reshape0") == (0, 1, 2, 3)
    assert order_of(graph, "transpose0") == (0, 1, 2, 3)


@settings(max_examples=10, deadline=None)
@given(graph=networks())
def test_loop_orders_are_permutations(graph: Graph) -> None:
    for order, tensor in zip(loop_orders(graph), graph.tensors, strict=True):
        assert sorted(order) == list(range(len(tensor.shape)))


@settings(max_examples=10, deadline=None)
@given(graph=networks())
def test_makers_and_readers(graph: Graph) -> None:
    context = make_context(graph, target(), "float16")
    for layer in context.layers:
        assert all(context.producer[t] == layer.index for t in layer.outputs)
        assert all(layer.index in context.consumers[t] for t in layer.inputs)
    for tensor, maker in enumerate(context.producer):
        assert maker >= 0 or not context.consumers[tensor] or tensor in graph.inputs


@pytest.mark.full
def test_other_layers_may_be_given() -> None:
    graph = chain("conv", "relu", "conv")
    single = layers_from(graph, [[i] for i in range(len(graph.operators))])
    context: SchedulingContext = make_context(graph, target(), "float16", single)
    assert len(context.layers) == 3
    assert len(make_context(graph, target(), "float16").layers) == 2


def test_all_local_buffers_of_a_cluster_but_the_staging_zones() -> None:
    assert scheduler_of("resnet50").context(16).cluster_lb_bytes == (8 << 20) * 15 // 16


def test_outer_axes() -> None:
    net = Net(x=(4, 6, 8))
    net.reshape("x", 24, 8)
    merged = operator(net)
    assert outer_axis(merged, 0, 0) == 0
    net = Net(x=(1, 6, 8))
    net.reshape("x", 6, 8)
    first = operator(net)
    axis = outer_axis(first, 0, 0)
    assert axis is not None
    assert first.axes[axis].extent == 6
    net = Net(x=(4, 6, 8))
    net.softmax("x")
    assert outer_axis(operator(net), 0, 2) is None


def test_roles_of_a_product() -> None:
    net = Net(x=(3, 4, 5), y=(3, 5, 6))
    net.matmul("x", "y")
    found = operator(net)
    by_extent = dict(zip(found.extents, axis_roles(found), strict=True))
    assert by_extent == {3: COUNT, 4: ROWS, 6: COLUMNS, 5: DEPTH}
    assert matrix_shape(found) == (3, 4, 6, 5)


def test_roles_of_a_convolution() -> None:
    net = Net(x=(2, 3, 8, 8))
    net.conv("x", 5)
    assert matrix_shape(operator(net)) == (1, 2 * 64, 5, 3 * 9)


@pytest.mark.full
def test_roles_of_a_grouped_convolution() -> None:
    net = Net(x=(2, 6, 8, 8))
    net.conv("x", 12, group=3)
    assert matrix_shape(operator(net)) == (3, 2 * 64, 4, 2 * 9)


@pytest.mark.full
def test_kernel_positions_are_no_channels() -> None:
    net = Net(x=(2, 3, 8, 8))
    net.conv("x", 5)
    assert axis_roles(operator(net)).count(WINDOW) == 2
    assert axis_roles(operator(net)).count(DEPTH) == 1


def test_a_channel_stationary_array_takes_channels_only() -> None:
    few, many = Net(x=(2, 3, 8, 8)), Net(x=(2, 64, 8, 8))
    few.conv("x", 5)
    many.conv("x", 5)
    array = dataclasses.replace(STCP920.matrix, rows=16, columns=16, depth=1, swap_operands=False)

    def cycles(net: Net, dataflow: str, *, im2col: bool = False) -> float:
        rate = (("int8", 1.0),)
        matrix = dataclasses.replace(array, dataflow=dataflow, rate=rate, im2col=im2col)
        chip = dataclasses.replace(STCP920, matrix=matrix)
        return matrix_cycles_of(operator(net), chip, "int8")

    assert cycles(few, "weight_stationary") == 128 * math.ceil(27 / 16)
    assert cycles(few, "channel_stationary") == 128 * 9
    assert cycles(few, "channel_stationary", im2col=True) == cycles(few, "weight_stationary")
    assert cycles(many, "weight_stationary") == cycles(many, "channel_stationary") == 128 * 36


@pytest.mark.full
def test_idle_rows_of_a_channel_stationary_array_reach_the_kernel() -> None:
    net = Net(x=(1, 3, 8, 8))
    net.conv("x", 256)
    depths = {}
    for dataflow in ("weight_stationary", "channel_stationary"):
        matrix = dataclasses.replace(STCP920.matrix, rows=16, dataflow=dataflow)
        chip = dataclasses.replace(STCP920, matrix=matrix)
        schedule = build_schedule(ModelScheduler(net.graph(), chip, "int8"), Knobs())
        stages = steps_of(schedule.timeline)[0].template.stages
        depths[dataflow] = float(stages[:, Stage.DEPTH].max())
    assert depths == {"weight_stationary": 27, "channel_stationary": 16 * 9}


@settings(max_examples=10, deadline=None)
@given(graph=networks())
def test_a_product_has_all_multiply_accumulates(graph: Graph) -> None:
    for found in graph.operators:
        if found.engine is Engine.MATRIX:
            count, m, n, k = matrix_shape(found)
            assert count * m * n * k == found.macs


def test_engines() -> None:
    cases = {
        "conv": (chain("conv", shape=(2, 64, 8, 8)), MATRIX),
        "relu": (chain("relu"), VECTOR),
    }
    for graph, code in cases.values():
        assert engine_code(graph.operators[0], STCP920, "float16") == code
    net = Net(x=(4, 6))
    net.transpose("x", 1, 0)
    assert engine_code(operator(net), STCP920, "float16") == MOVE
    net = Net(x=(4, 6))
    net.reshape("x", 24)
    assert engine_code(operator(net), STCP920, "float16") == NONE


def test_a_product_too_thin_for_the_array_goes_to_the_vector_engine() -> None:
    """One output column keeps one of 32 columns of the array busy."""
    net = Net(x=(64, 512))
    net.linear("x", 1)
    thin = operator(net)
    assert matrix_cycles_of(thin, STCP920, "float16") == 512
    assert engine_code(thin, STCP920, "float16") == MATRIX
    net = Net(x=(2, 64, 28, 28))
    net.conv("x", 64, group=64)
    assert engine_code(operator(net), STCP920, "float16") == VECTOR


@pytest.mark.full
@pytest.mark.parametrize(
    ("m", "n", "k", "cycles"),
    [(32, 64, 10, 10), (65, 32, 10, 20), (65, 33, 7, 21)],
)
def test_cycles_of_a_product(m: int, n: int, k: int, cycles: int) -> None:
    """A 64 x 32 array in the better of two orientations, one step of the reduction a cycle."""
    net = Net(x=(m, k))
    net.linear("x", n)
    found = matrix_cycles_of(operator(net), STCP920, "float16")
    assert found == min(cycles, -(-m // 64) * -(-n // 32) * k, -(-n // 64) * -(-m // 32) * k)


def test_an_array_that_does_not_compute_a_type_leaves_it_to_vectors() -> None:
    matrix = dataclasses.replace(STCP920.matrix, rate=(("int8", 2.0),))
    machine = dataclasses.replace(STCP920, matrix=matrix)
    graph = chain("conv", shape=(2, 64, 8, 8))
    assert engine_code(graph.operators[0], machine, "float16") == VECTOR
