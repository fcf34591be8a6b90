"""Normalisations written out before fusion."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from autoturbo.baselines.tvm import fuse
from autoturbo.graph.domain import AxisKind
from autoturbo.graph.operators import Graph
from autoturbo.schedule.simplify import WRITTEN_OUT, simplified
from tests.schedule.schedule_samples import Net, networks, workload


def norm_net(kind: str) -> Graph:
    net = Net(x=(2, 6, 4, 4))
    if kind == "LayerNormalization":
        net.relu(net.norm(net.relu("x")))
    elif kind == "InstanceNormalization":
        inputs = [net.relu("x"), net.weight(6), net.weight(6)]
        net.relu(net.add(kind, inputs, (2, 6, 4, 4)))
    return net.graph()


def test_three_operators_for_a_layer_normalisation() -> None:
    graph = simplified(norm_net("LayerNormalization"))
    assert [op.kind for op in graph.operators] == ["Relu", "Mean", "Variance", "Normalize", "Relu"]
    mean, variance, rest = graph.operators[1:4]
    assert graph.tensors[mean.outputs[0]].shape == (2, 6, 4)
    assert variance.inputs == (*mean.inputs, *mean.outputs)
    assert rest.inputs[:3] == (*variance.inputs, *variance.outputs)
    assert mean.axes[3].kind is AxisKind.REDUCTION
    assert {axis.kind for axis in rest.axes} == {AxisKind.PARALLEL}


def test_three_kernels_for_a_layer_normalisation() -> None:
    """The ReLU before it is read three times, so it stays apart; the one after joins the rest."""
    net = Net(x=(2, 8))
    net.relu(net.norm(net.linear("x", 8)))
    graph = simplified(net.graph())
    names = [[graph.operators[i].kind for i in group] for group in fuse(graph)]
    assert names == [["MatMul"], ["Mean"], ["Variance"], ["Normalize", "Relu"]]


def test_statistics_of_an_instance_normalisation_are_per_channel() -> None:
    graph = simplified(norm_net("InstanceNormalization"))
    assert graph.tensors[graph.operators[1].outputs[0]].shape == (2, 6)


def test_without_normalisations_it_is_the_same_graph() -> None:
    graph = workload("resnet50")
    assert simplified(graph) is graph


@pytest.mark.full
@pytest.mark.parametrize("name", ["bert_base_s128", "conformer"])
def test_real_networks(name: str) -> None:
    graph = workload(name)
    norms = sum(op.kind in WRITTEN_OUT for op in graph.operators)
    found = simplified(graph)
    assert norms > 0
    assert len(found.operators) == len(graph.operators) + 2 * norms
    assert found.macs == graph.macs


@settings(max_examples=12, deadline=None)
@given(graph=networks(most=10))
def test_no_work_is_lost_and_producers_come_first(graph: Graph) -> None:
    found = simplified(graph)
    assert found.outputs == graph.outputs
    assert sum(op.vector_ops for op in found.operators) >= sum(
        op.vector_ops for op in graph.operators
    )
    assert sum(op.special_ops for op in found.operators) >= sum(
        op.special_ops for op in graph.operators
    ) * (1 - 1e-9)
    made = {t for t in range(len(found.tensors)) if found.producer[t] < 0}
    for operator in found.operators:
        assert set(operator.inputs) <= made
        made.update(operator.outputs)
