"""Which dimension of which input counts samples."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from autoturbo.errors import ModelError
from autoturbo.graph.batch import trace_batch

if TYPE_CHECKING:
    from onnx import ModelProto

    from autoturbo.graph.operators import Graph
    from tests.graph.onnx_import.import_models import Load

STORED = {"w": (32, 32), "k": (8, 3, 3, 3), "t": (50, 32)}
NUMBERS: dict[str, int | list[int]] = {"two": [2], "i0": 0, "i1": 1, "b16": [0] * 100}


def made(inputs: str, body: str, outputs: str = "y") -> ModelProto:
    """A model of the text of its inputs and its nodes, outputs without shapes."""
    results = ", ".join(f"float[1] {name}" for name in outputs.split())
    head = '<ir_version: 8, opset_import: ["": 17]> net'
    parsed = onnx.parser.parse_model(f"{head} ({inputs}) => ({results}) {{ {body} }}")
    for value in parsed.graph.output:
        value.type.tensor_type.ClearField("shape")
    for name, shape in STORED.items():
        stored = np.random.default_rng(3).normal(size=shape).astype(np.float32)
        parsed.graph.initializer.append(numpy_helper.from_array(stored, name))
    for name, numbers in NUMBERS.items():
        stored = np.asarray(numbers, np.int64)
        parsed.graph.initializer.append(numpy_helper.from_array(stored, name))
    read = {name for node in parsed.graph.node for name in node.input}
    kept = [tensor for tensor in parsed.graph.initializer if tensor.name in read]
    del parsed.graph.initializer[:]
    parsed.graph.initializer.extend(kept)
    return parsed


def counted(graph: Graph) -> dict[str, int]:
    """The dimension that counts samples, by the name of the input."""
    return {graph.tensors[t].name: dim for t, dim in graph.samples.items()}


def attention(x: str = "x", y: str = "y", *, by_time: bool = False) -> str:
    """Attention over the second dimension, or over the first."""
    turned = f"{x}z = Transpose<perm=[1,0,2]>({x})" if by_time else f"{x}z = Identity({x})"
    back = f"{y} = Transpose<perm=[1,0,2]>({y}o)" if by_time else f"{y} = Identity({y}o)"
    return f"""{turned} {x}q = MatMul({x}z, w) {x}k = Transpose<perm=[0,2,1]>({x}z)
        {x}s = MatMul({x}q, {x}k) {x}p = Softmax<axis=2>({x}s) {y}o = MatMul({x}p, {x}z) {back}"""


DENSE = "h = MatMul(x, w) y = Relu(h)"
JOINED = "c = Concat<axis=0>(x, z) y = MatMul(c, w)"
MASKED = "h = MatMul(x, w) y = MatMul(mask, h)"
CACHED = "p = Gather<axis=0>(cache, i0) c = Concat<axis=1>(p, x) y = MatMul(c, w)"
PAIRS = """s = Gather<axis=0>(edges, i0) d = Gather<axis=0>(edges, i1) f = Gather<axis=1>(x, s)
    g = Gather<axis=1>(x, d) h = Mul(f, g) y = MatMul(h, w)"""
MEMORY = """n = Transpose<perm=[1,2,0]>(memory) q = Transpose<perm=[1,0,2]>(x) s = MatMul(q, n)
    p = Softmax<axis=2>(s) m = Transpose<perm=[1,0,2]>(memory) o = MatMul(p, m)
    y = Transpose<perm=[1,0,2]>(o)"""
BOXED = "y = RoiAlign<output_height=2,output_width=2>(x, boxes, b16)"

NAMED: dict[str, tuple[str, str, dict[str, int], dict[str, int]]] = {
    "a cache before the data": (
        "float[2,batch,8,32] cache, float[batch,4,32] x", CACHED, {"batch": 4},
        {"cache": 1, "x": 0}),
    "keys and values in one tensor": (
        "float[L,2,batch,4,16,8] kv, float[batch,4,1,8] x",
        """l = Gather<axis=0>(kv, i0) m = Gather<axis=0>(l, i1)
        q = Transpose<perm=[0,1,3,2]>(x) y = MatMul(m, q)""",
        {"L": 3, "batch": 4}, {"kv": 2, "x": 0}),
    "time first": ("float[seq_len,batch_size,32] x", DENSE, {"seq_len": 9, "batch_size": 4},
        {"x": 1}),
    "B behind T": ("float[T,B,32] x", DENSE, {"T": 9, "B": 4}, {"x": 1}),
    "n behind t": ("float[t,n,32] x", DENSE, {"t": 9, "n": 4}, {"x": 1}),
    "bs behind a sequence": ("float[dec_seq,bs,32] x", DENSE, {"dec_seq": 9, "bs": 4}, {"x": 1}),
    "shared by all behind others": ("float[T,s1,32] x, float[S,s1,32] z", JOINED,
        {"T": 9, "S": 5, "s1": 4}, {"x": 1, "z": 1}),
    "shared by all behind extents": ("float[7,s1,32] x, float[5,s1,32] z", JOINED, {"s1": 4},
        {"x": 1, "z": 1}),
    "names that say nothing": ("float[s0,s1,32] x", attention(by_time=True), {"s0": 9, "s1": 4},
        {"x": 1}),
    "a name that all begin with": ("float[s0,4,32] x", attention(by_time=True), {"s0": 9},
        {"x": 1}),
    "a product of the batch": ("float[batch_x_heads,16,32] z, float[batch,16,32] x",
        "a = Abs(z) n = ReduceMax<axes=[0]>(a) y = Add(x, n)", {"batch_x_heads": 8, "batch": 4},
        {"x": 0}),
    "a mask of positions": ("float[L,L] mask, float[N,L,32] x", MASKED, {"L": 9, "N": 4},
        {"x": 0}),
    "a mask as large as the batch": ("float[4,4] mask, float[N,4,32] x", MASKED, {"N": 4},
        {"x": 0}),
    "words and their positions": ("int64[batch,sequence] x, int64[sequence] places",
        "a = Gather<axis=0>(t, x) b = Gather<axis=0>(t, places) y = Add(a, b)",
        {"batch": 4, "sequence": 9}, {"x": 0}),
    "points of a cloud": ("float[B,N,32] x, float[N,32] z", "y = Add(x, z)", {"B": 4, "N": 9},
        {"x": 0}),
    "boxes called B": ("float[N,16,32] x, float[N,B,32] boxes",
        "c = Concat<axis=1>(x, boxes) y = MatMul(c, w)", {"N": 4, "B": 9}, {"x": 0, "boxes": 0}),
    "edges first": ("int64[2,E] edges, float[batch,nodes,32] x", PAIRS,
        {"E": 9, "nodes": 5, "batch": 4}, {"x": 0}),
    "names of two stacks": ("float[src_len,src_batch,32] x, float[tgt_len,tgt_batch,32] z",
        JOINED, {"src_len": 9, "tgt_len": 5, "src_batch": 4, "tgt_batch": 4}, {"x": 1, "z": 1}),
}  # fmt: skip


@pytest.mark.parametrize("kind", NAMED)
def test_the_name_of_a_dimension_says_what_counts_samples(kind: str, load: Load) -> None:
    inputs, body, extents, dims = NAMED[kind]
    graph = load(made(inputs, body), dims=extents)
    assert (graph.batch, counted(graph), graph.known_batch) == (4, dims, 4)
    assert trace_batch(graph).obstacle is None
    others = {n: e for n, e in extents.items() if e != 4}
    if kind not in {"names of two stacks", "names that say nothing", "a name that all begin with"}:
        assert load(made(inputs, body), dims=others, batch=4).hash == graph.hash


STATIC: dict[str, tuple[str, str, int, dict[str, int]]] = {
    "time first": ("float[7,4,32] x, float[5,4,32] z", JOINED, 4, {"x": 1, "z": 1}),
    "time first, alike": ("float[16,4,32] x", attention(by_time=True), 4, {"x": 1}),
    "time first, apart": ("float[7,4,32] x, float[5,4,32] z",
        attention(by_time=True) + attention("z", "v", by_time=True), 4, {"x": 1, "z": 1}),
    "one sequence": ("float[16,1,32] x", attention(by_time=True), 1, {"x": 1}),
    "words behind time": ("int64[16,4] x", f"u = Gather(t, x) {attention('u', by_time=True)}", 4,
        {"x": 1}),
    "a mask first": ("float[16,16] mask, float[4,16,32] x", MASKED, 4, {"x": 0}),
    "a mask as large as the batch": ("float[4,4] mask, float[4,4,32] x", MASKED, 4, {"x": 0}),
    "queries and a memory": ("float[10,4,32] memory, float[3,4,32] x", MEMORY, 4,
        {"memory": 1, "x": 1}),
    "a mask of samples": ("float[4,9] mask, float[9,4,32] x",
        f"n = Transpose(mask) u = Unsqueeze(n, two) h = Mul(x, u) {attention('h', by_time=True)}",
        4, {"mask": 0, "x": 1}),
    "a mask and a matrix": ("float[16,16] mask, float[4,16] x",
        "a = Abs(mask) h = Relu(x) ht = Transpose(h) u = MatMul(a, ht) y = Transpose(u)", 4,
        {"x": 0}),
    "boxes first": ("float[100,4] boxes, float[2,3,8,8] x", BOXED, 2, {"x": 0}),
    "edges first": ("int64[2,40] edges, float[4,10,32] x", PAIRS, 4, {"x": 0}),
    "a cache": ("float[3,4,8,32] cache, float[4,6,32] x", CACHED, 4, {"cache": 1, "x": 0}),
    "time first, a mask": ("float[16,16] mask, float[16,4,32] x",
        attention(by_time=True).replace("xs =", "xu =") + " xs = Add(xu, mask)", 4, {"x": 1}),
    "two caches": ("float[3,4,8,32] cache, float[3,4,2,32] more, float[4,6,32] x",
        f"{CACHED.replace('y =', 'v =')} m = Gather(more, i1) y = Concat<axis=1>(m, v)", 4,
        {"cache": 1, "more": 1, "x": 0}),
    "a cache of one sample": ("float[3,1,8,32] cache, float[1,6,32] x", CACHED, 1,
        {"cache": 1, "x": 0}),
    "a bias of positions": ("float[16,32] bias, float[4,16,32] x", "y = Add(bias, x)", 4,
        {"x": 0}),
    "a scale of channels": ("float[32] scale, float[4,16,32] x", "y = Mul(scale, x)", 4, {"x": 0}),
    "a shift of channels": ("float[8,1,1] shift, float[2,3,8,8] x",
        "c = Conv(x, k) y = Add(c, shift)", 2, {"x": 0}),
}  # fmt: skip


@pytest.mark.parametrize("kind", STATIC)
def test_inputs_vote_where_no_name_says_it(kind: str, load: Load) -> None:
    inputs, body, batch, dims = STATIC[kind]
    model = made(inputs, body, "y v" if "v = Tr" in body else "y")
    graph = load(model)
    assert (graph.batch, graph.known_batch) == (batch, batch)
    assert counted(graph) == dims
    if "boxes" not in kind:
        other = load(model, batch=2 * batch)
        assert (other.batch, counted(other)) == (2 * batch, dims)
        assert [other.tensors[t].shape[d] for t, d in other.samples.items()] == [
            2 * batch for _ in dims
        ]


UNKNOWN: dict[str, tuple[str, str]] = {
    "users and items": ("float[4,32] users, float[100,32] items",
        "a = Abs(items) i = Transpose(a) y = MatMul(users, i)"),
    "a graph": ("int64[2,40] edges, float[10,32] x", PAIRS.replace("axis=1", "axis=0")),
}  # fmt: skip


def test_inputs_that_do_not_agree_have_no_known_batch(load: Load) -> None:
    inputs, body = UNKNOWN["users and items"]
    graph = load(made(inputs, body))
    assert (graph.batch, graph.known_batch, counted(graph)) == (1, None, {})
    (note,) = graph.notes
    assert note == (
        "the inputs do not agree on a batch (users: 4, items: 100): no samples/s;"
        " --batch-dim NAME or INPUT:AXIS states it"
    )
    with pytest.raises(ModelError, match="--batch-dim"):
        load(made(inputs, body), batch=8)
    assert load(made(*UNKNOWN["a graph"])).known_batch is None


def test_batches_of_other_names_that_differ_are_not_known(load: Load) -> None:
    texts = made("float[text_batch,32] x, float[image_batch,32] z",
        "a = Abs(z) b = Transpose(a) y = MatMul(x, b)")  # fmt: skip
    assert load(texts, dims={"text_batch": 3, "image_batch": 5}).known_batch is None
    assert load(texts, batch=3).known_batch == 3


SAID = {
    "users:0": {"users": 0}, "users:-2": {"users": 0}, "items:0": {"items": 0},
}  # fmt: skip


@pytest.mark.parametrize("said", SAID)
def test_an_input_and_an_axis_state_the_batch(said: str, load: Load) -> None:
    model = made(*UNKNOWN["users and items"])
    graph = load(model, batch_dim=said)
    assert counted(graph) == SAID[said]
    assert graph.known_batch == graph.batch == (4 if "users" in said else 100)
    assert load(model, batch_dim=said, batch=8).batch == 8


def test_what_is_combined_with_samples_that_are_stated_has_them_too(load: Load) -> None:
    model = made("float[7,4,32] x, float[5,4,32] z, float[4,4] v", f"{JOINED} r = Relu(v)", "y")
    graph = load(model, batch_dim="x:1", batch=6)
    assert (graph.batch, counted(graph)) == (6, {"x": 1, "z": 1})


def test_the_name_of_a_dimension_states_the_batch(load: Load) -> None:
    model = made("float[rows,items,32] x, float[items,32] z", "y = Add(x, z)")
    assert counted(load(model, batch_dim="items", dims={"rows": 3, "items": 4})) == {"x": 1, "z": 0}
    graph = load(model, batch_dim="items", batch=4, dims={"rows": 3})
    assert (graph.batch, graph.notes) == (4, ())
    assert load(model, batch_dim="items", dims={"rows": 3}).batch == 1
    assert counted(load(model, batch_dim=["x:0"], dims={"rows": 3, "items": 4})) == {"x": 0}


@pytest.mark.parametrize(
    ("said", "field"), [("item", "item"), ("y:0", "y:0"), ("x:one", "x:one"), ("x:3", "x")]
)
def test_what_the_inputs_do_not_have_states_no_batch(said: str, field: str, load: Load) -> None:
    model = made("float[rows,items,32] x, float[items,32] z", "y = Add(x, z)")
    with pytest.raises(ModelError) as caught:
        load(model, batch_dim=said, dims={"rows": 3, "items": 4})
    assert caught.value.at.field == field
