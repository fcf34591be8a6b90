"""Wider channels: the graph is the one that a model with as many channels gives."""

from __future__ import annotations

import pytest

from autoturbo.graph.operators import Graph
from autoturbo.graph.padding import channels_of, padded
from tests.schedule.schedule_samples import Net
from tests.tiers import spread


def image(channels: int) -> Graph:
    """A residual block with its own number of channels, between an input and an output of 8."""
    net = Net(x=(2, 8, 6, 6))
    stem = net.relu(net.conv("x", channels, bias=True))
    deep = net.conv(net.relu(net.conv(stem, channels)), channels, group=channels)
    net.conv(net.sum(deep, stem), 8, 1)
    return net.graph()


def rows(channels: int) -> Graph:
    net = Net(x=(2, 5, 8))
    net.linear(net.relu(net.linear("x", channels)), 8)
    return net.graph()


def index(graph: Graph, name: str) -> int:
    return next(i for i, tensor in enumerate(graph.tensors) if tensor.name == name)


@pytest.mark.parametrize(
    ("make", "name", "dim"), [(image, "relu0", 1), (image, "conv2", 1), (rows, "relu0", 2)]
)
def test_it_is_the_graph_of_a_model_with_as_many(make: object, name: str, dim: int) -> None:
    assert callable(make)
    graph, wide = make(10), make(16)
    channels = channels_of(graph, index(graph, name), dim)
    assert channels is not None
    assert channels.extent == 10
    assert padded(graph, channels, 16).hash == wide.hash
    assert padded(graph, channels, 10).hash == graph.hash


def refused() -> list[tuple[str, Graph, str, int]]:
    across = Net(x=(2, 8, 6, 6))
    across.conv(across.softmax(across.conv("x", 10), 1), 8)
    mean = Net(x=(2, 5, 8))
    inner = mean.linear("x", 10)
    mean.linear(mean.sum(inner, mean.mean(inner), "Sub"), 8)
    joined = Net(x=(2, 8, 6, 6))
    joined.conv(joined.concat(1, joined.conv("x", 10), joined.conv("x", 6)), 8)
    products = Net(x=(2, 5, 8))
    key = products.linear("x", 10)
    products.linear(products.matmul(products.linear("x", 10), products.transpose(key, 0, 2, 1)), 8)
    return [
        ("softmax", across.graph(), "conv0", 1),
        ("mean", mean.graph(), "matmul0", 2),
        ("concat", joined.graph(), "conv0", 1),
        ("activations", products.graph(), "matmul0", 2),
        ("input", image(10), "x", 1),
        ("output", image(10), "conv3", 1),
        ("rows", image(10), "relu0", 2),
    ]


@pytest.mark.parametrize(
    ("why", "graph", "name", "dim"), spread(refused(), 3), ids=lambda v: str(v)[:12]
)
def test_what_would_compute_something_else_is_refused(
    why: str, graph: Graph, name: str, dim: int
) -> None:
    del why
    assert channels_of(graph, index(graph, name), dim) is None
