"""Tracing samples through a graph, and the same graph for another number of them."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoturbo.errors import ModelError
from autoturbo.graph.batch import rebatch, trace_batch
from autoturbo.graph.operators import Graph
from tests.graph.graph_samples import model, workload
from tests.tiers import tiered, workloads


def shapes(graph: Graph) -> list[tuple[int, ...]]:
    return [t.shape for t in graph.tensors]


def obstacle(signature: str, body: str) -> str | None:
    found = trace_batch(model(signature, body)).obstacle
    return None if found is None else str(found)


@pytest.mark.parametrize("name", workloads())
def test_workloads_have_no_obstacle(name: str) -> None:
    graph = workload(name)
    trace = trace_batch(graph)
    if graph.batch == 1:
        return
    assert trace.obstacle is None
    for tensor, (dim, unit) in trace.tensors.items():
        assert graph.tensors[tensor].shape[dim] % (graph.batch * unit) == 0
    assert all(t in trace.tensors for t in graph.outputs)


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("name", workloads(without=["unet"]))
def test_rebatch_is_the_import_at_that_batch(name: str, batch: int) -> None:
    """Both ways to a smaller batch give one graph: shapes, domains, access maps, hash.

    At one sample the import leaves out axes of one step, which a reshape's domain does not need.
    """
    graph = workload(name)
    trace = trace_batch(graph)
    if trace.obstacle or graph.batch < batch:
        pytest.skip("one sample only")
    try:
        imported = workload(name, batch)
    except ModelError as error:
        pytest.skip(f"the import cannot: {error.message}")
    again = rebatch(graph, batch, trace)
    assert shapes(again) == shapes(imported)
    assert again.macs == imported.macs
    for mine, other in zip(again.operators, imported.operators, strict=True):
        assert mine.kind == other.kind
        assert [e for e in mine.extents if e > 1] == [e for e in other.extents if e > 1]
    assert again.hash == imported.hash or batch == 1
    assert again.batch == imported.batch == batch


@pytest.mark.parametrize("name", ["squeezenet1_1", "llama_decode"])
def test_macs_scale_with_samples(name: str) -> None:
    graph = workload(name)
    trace = trace_batch(graph)
    if trace.obstacle or graph.batch % 2:
        pytest.skip("an odd batch")
    assert rebatch(graph, graph.batch // 2, trace).macs * 2 == graph.macs


@pytest.mark.parametrize("name", tiered(["squeezenet1_1"], ["bert_base_s128", "conformer"]))
def test_there_and_back(name: str) -> None:
    graph = workload(name)
    half = rebatch(graph, graph.batch // 2, trace_batch(graph))
    back = rebatch(half, graph.batch, trace_batch(half))
    assert back.hash == graph.hash


def test_the_same_batch_is_the_same_graph() -> None:
    graph = workload("resnet18")
    assert rebatch(graph, graph.batch, trace_batch(graph)) is graph


@settings(max_examples=30, deadline=None)
@given(old=st.integers(2, 12), new=st.integers(1, 12))
def test_merged_and_transposed_batches(old: int, new: int) -> None:
    """Samples in the middle of a merged dimension, behind a transpose, and back in front."""
    text = (
        f"(float[{old},6,8] x) => (float[{old},6,8] y)",
        (
            "s = Constant <value_ints = [-1, 8]> ()  a = Reshape(x, s) "
            "b = Transpose <perm = [1, 0]> (a)  c = Relu(b)  d = Transpose <perm = [1, 0]> (c) "
            f"t = Constant <value_ints = [{old}, 6, 8]> ()  y = Reshape(d, t)"
        ),
    )
    graph = model(*text)
    trace = trace_batch(graph)
    assert trace.obstacle is None
    other = rebatch(graph, new, trace)
    sizes = {t.elements for t in other.tensors if not t.constant}
    assert sizes == {new * 48}
    assert other.tensors[other.outputs[0]].shape == (new, 6, 8)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("y = Softmax <axis = 0> (x)", "works across the batch"),
        ("a = Transpose <perm = [1, 0]> (x) y = Softmax <axis = 1> (a)", "works across the batch"),
        ("a = Transpose <perm = [1, 0]> (x) y = MatMul(x, a)", "combines different samples"),
    ],
)
def test_samples_that_mix(body: str, reason: str) -> None:
    found = obstacle("(float[4,4] x) => (float[4,4] y)", body)
    assert found is not None
    assert found.endswith(reason)


def test_a_mean_over_samples_is_an_obstacle() -> None:
    found = obstacle(
        "(float[4,8] x) => (float[1,8] y)", "y = ReduceMean <axes = [0], keepdims = 1> (x)"
    )
    assert found is not None
    assert "works across the batch" in found


def test_part_of_the_batch_is_an_obstacle() -> None:
    """Two of four samples: the output does not have them all."""
    found = obstacle(
        "(float[4,8] x) => (float[2,8] y)",
        "b = Constant <value_ints = [0]> () e = Constant <value_ints = [2]> () "
        "y = Slice(x, b, e, b)",
    )
    assert found is not None


def test_an_obstacle_is_not_scaled_away() -> None:
    graph = model("(float[4,4] x) => (float[4,4] y)", "y = Softmax <axis = 0> (x)")
    trace = trace_batch(graph)
    with pytest.raises(ValueError, match="Softmax_0"):
        rebatch(graph, 2, trace)


def test_weights_with_the_batch_baked_in_shrink() -> None:
    """A table expanded to the batch when the file was written."""
    graph = model(
        "(float[4,8] x) => (float[4,8] y)", "t = RandomNormal <shape = [4, 8]> () y = Add(x, t)"
    )
    other = rebatch(graph, 2, trace_batch(graph))
    assert {t.shape for t in other.tensors} == {(2, 8)}


def test_names_and_order_stay() -> None:
    graph = workload("mobilenet_v2")
    other = rebatch(graph, 8, trace_batch(graph))
    assert [o.name for o in other.operators] == [o.name for o in graph.operators]
    assert [t.name for t in other.tensors] == [t.name for t in graph.tensors]
    assert dataclasses.replace(other, batch=graph.batch).inputs == graph.inputs


@pytest.mark.parametrize(
    ("signature", "body", "says"),
    [
        ("float[4,3] x, float[12] y", ("k = Constant<value_ints=[4, 3]>() s = Reshape(y, k)"
         " z = Add(x, s)"), "reads s, not of samples"),
        ("float[4,3] x", ("i = Constant<value=int64[1,1] {2}>() u = Constant<value=float[1,3]"
         " {1,2,3}>() z = ScatterND(x, i, u)"), "counts positions over the batch"),
        ("float[4,3] x", "z = Trilu(x)", "counts positions over the batch"),
    ],
)  # fmt: skip
def test_what_looks_at_positions_of_the_batch_is_an_obstacle(
    signature: str, body: str, says: str
) -> None:
    assert says in str(obstacle(f"({signature}) => (float[4,3] z)", body))
