"""Layers in words: operator and shape, and the name that knobs use."""

from __future__ import annotations

from autoturbo.graph.operators import Graph
from autoturbo.report.names import kernel_label, layer_labels, operator_title
from autoturbo.schedule.knobs import Knobs
from autoturbo.simulator.evaluator import Evaluator
from tests.graph.graph_samples import model
from tests.schedule.schedule_samples import STCP920, Net


def titles(graph: Graph) -> list[str]:
    return [operator_title(graph, operator) for operator in graph.operators]


def test_convolutions_say_window_channels_and_extents() -> None:
    net = Net(x=(4, 16, 14, 14))
    net.relu(net.conv(net.conv("x", 32, stride=2), 64, 1))
    assert titles(net.graph()) == [
        "Conv 3x3 16->32, 7x7",
        "Conv 1x1 32->64, 7x7",
        "Relu 64x7x7",
    ]


def test_grouped_and_depthwise_convolutions_say_so() -> None:
    net = Net(x=(2, 8, 6, 6))
    net.conv(net.conv("x", 8, group=8), 16, group=2)
    assert titles(net.graph()) == ["Conv 3x3 8, depthwise, 6x6", "Conv 3x3 8->16, grouped, 6x6"]


def test_products_say_rows_depth_and_columns() -> None:
    graph = model("(float[4,10,6] x, float[6,8] w) => (float[4,10,8] y)", "y = MatMul (x, w)")
    assert titles(graph) == ["MatMul 10x6x8"]


def test_layers_and_kernels_keep_the_names_that_knobs_use() -> None:
    net = Net(x=(4, 16, 14, 14))
    net.relu(net.conv("x", 32))
    schedule = Evaluator(net.graph(), STCP920, "float16").schedule(Knobs())
    (layer,) = schedule.context.layers
    assert layer_labels(schedule) == {layer.name: f"Conv 3x3 16->32, 14x14 ({layer.name})"}
    assert kernel_label(schedule, 0).startswith(f"Conv 3x3 16->32, 14x14 ({layer.name}")
