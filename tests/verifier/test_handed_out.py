"""Models of unusual kinds: what is handed out can be written, and computes the model."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest
from onnx import ModelProto, SparseTensorProto, TensorProto, helper, numpy_helper
from onnx.external_data_helper import set_external_data

from autoturbo.graph.onnx_import import import_model
from autoturbo.schedule.knobs import Knobs
from autoturbo.schedule.pipeline import ModelScheduler, build_schedule
from autoturbo.verifier.numbers import check_numbers
from autoturbo.verifier.onnx_writer.scheduled_model import write_scheduled_model
from tests.verifier.scheduled_samples import small_target

if TYPE_CHECKING:
    from pathlib import Path

    from autoturbo.schedule.schedule import Schedule
    from autoturbo.verifier.findings import Numbers

MS = "com.microsoft"
_RNG = np.random.default_rng(56)


def planned(model: ModelProto, folder: Path) -> tuple[Schedule, Path]:
    """A model's schedule and file."""
    path = folder / "net.onnx"
    onnx.save(model, path)
    scheduler = ModelScheduler(import_model(path), small_target(), "float16")
    return build_schedule(scheduler, Knobs()), path


def checked(model: ModelProto, folder: Path, seed: int = 0) -> Numbers:
    """The numbers of a model's schedule, which ONNX's checker takes as a model."""
    schedule, path = planned(model, folder)
    write_scheduled_model(schedule, path, folder / "out.onnx")
    return check_numbers(schedule, path, seed=seed)


def test_roundings_within_a_quantised_recurrence_are_not_compared(tmp_path: Path) -> None:
    stored: dict[str, np.ndarray] = {
        "w": _RNG.integers(-63, 64, (1, 6, 32), dtype=np.int8),
        "r": _RNG.integers(-63, 64, (1, 8, 32), dtype=np.int8),
        "step": np.full(1, 0.01, np.float32),
        "zero": np.zeros(1, np.int8),
    }
    names = ["x", "w", "r", *[""] * 5, *["step", "zero"] * 2]
    lstm = helper.make_node("DynamicQuantizeLSTM", names, ["y"], "l", domain=MS, hidden_size=8)
    graph = helper.make_graph(
        [lstm],
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (5, 2, 6))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (5, 1, 2, 8))],
        [numpy_helper.from_array(array, name) for name, array in stored.items()],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(MS, 1)]
    found = checked(helper.make_model(graph, opset_imports=opsets, ir_version=8), tmp_path)
    assert (found.skipped, found.findings) == (None, ())
    notes = import_model(tmp_path / "net.onnx").notes
    assert any("activations stay real" in note for note in notes)


def _branches(stored: str, sparse: SparseTensorProto) -> ModelProto:
    """A model whose weight is a sparse constant: of the graph, of a branch, or of a Constant."""
    node = [helper.make_node("Constant", [], ["w"], "c", sparse_value=sparse)]
    product = [helper.make_node("MatMul", ["x", "w"], ["t"], "m")]
    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, (4, 8))
    result = helper.make_tensor_value_info("t", TensorProto.FLOAT, (4, 8))
    held = [sparse] if "initializer" in stored else []
    nodes = product if held else node + product
    if "branch" not in stored:
        graph = helper.make_graph(nodes, "net", [given], [result], sparse_initializer=held)
    else:
        then = helper.make_graph(nodes, "then", [], [result], sparse_initializer=held)
        other = helper.make_graph([helper.make_node("Neg", ["x"], ["t"])], "else", [], [result])
        chosen = helper.make_node("If", ["c"], ["y"], "i", then_branch=then, else_branch=other)
        condition = helper.make_tensor_value_info("c", TensorProto.BOOL, ())
        output = helper.make_tensor_value_info("y", TensorProto.FLOAT, (4, 8))
        graph = helper.make_graph([chosen], "net", [given, condition], [output])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize(
    "stored", ["initializer", "node", "initializer of a branch", "node of a branch"]
)
@pytest.mark.parametrize("by_dimension", [False, True])
def test_sparse_constants_are_written_dense(
    stored: str, by_dimension: bool, tmp_path: Path
) -> None:
    places = np.array([3, 17, 40], np.int64)
    if by_dimension:
        places = np.stack(np.unravel_index(places, (8, 8)), axis=1)
    values = numpy_helper.from_array(np.array([1, -2, 3], np.float32), "w")
    indices = numpy_helper.from_array(places, "places")
    sparse = helper.make_sparse_tensor(values, indices, [8, 8])
    found = checked(_branches(stored, sparse), tmp_path)
    assert (found.skipped, found.findings) == (None, ())


BRANCHES = """<ir_version: 8, opset_import: ["": 17]>
net (float[4,8] x, bool c) => (float[4,8] y)
<float[8,8] cheap = {%s}, float[8,8] shared = {%s}> {
    r = Relu(x)
    m = MatMul(r, shared)
    z = If(c)<
        then_branch = a () => (float[4,8] t) { t = MatMul(m, cheap) },
        else_branch = b () => (float[4,8] e) <float[8,8] own = {%s}> {
            p = MatMul(m, shared)
            q = MatMul(p, own)
            e = Add(q, x)
        }>
    y = Tanh(z)
}"""


@pytest.mark.parametrize("seed", range(3))
def test_branches_that_data_choose_are_written_with_their_weights(
    seed: int, tmp_path: Path
) -> None:
    numbers = [", ".join(f"{x:.2f}" for x in _RNG.normal(size=64)) for _ in range(3)]
    found = checked(onnx.parser.parse_model(BRANCHES % tuple(numbers)), tmp_path, seed)
    assert (found.skipped, found.findings) == (None, ())


BESIDE = """<ir_version: 8, opset_import: ["": 17]>
net (float[4,80] x, bool c) => (float[4,80] y) {
    y = If(c)<
        then_branch = a () => (float[4,80] t) { t = Neg(x) },
        else_branch = b () => (float[4,80] e) <float[80,80] own> { e = MatMul(x, own) }>
}"""


def test_weights_of_branches_may_be_beside_the_model(tmp_path: Path) -> None:
    model = onnx.parser.parse_model(BESIDE)
    branch = next(item.g for item in model.graph.node[0].attribute if item.name == "else_branch")
    own = numpy_helper.from_array(np.ones((80, 80), np.float32), "own")
    set_external_data(own, "w.bin")
    branch.initializer.append(own)
    found = checked(model, tmp_path)
    assert (found.skipped, found.findings) == (None, ())


SEQUENCES = {
    "of a branch": """(float[4,8] x, bool c) => (seq(float[4,8]) q) {
        n = Neg(x)
        q = If(c)<
            then_branch = a () => (seq(float[4,8]) t) { t = SequenceConstruct(x, n) },
            else_branch = b () => (seq(float[4,8]) e) { e = SequenceConstruct(n, x) }
        >
    }""",
    "read behind a branch": """(float[4,8] x, bool c) => (float[4,8] y) {
        n = Neg(x)
        k = Constant<value = int64 {1}>()
        q = If(c)<
            then_branch = a () => (seq(float[4,8]) t) { t = SequenceConstruct(x, n) },
            else_branch = b () => (seq(float[4,8]) e) { e = SequenceConstruct(n, x) }
        >
        z = SequenceAt(q, k)
        y = Tanh(z)
    }""",
    "grown in a branch": """(float[4,8] x, bool c) => (float[12,8] y) <float[12,8] z> {
        n = Neg(x)
        s = SequenceConstruct(x, n)
        q = If(c)<
            then_branch = a () => (seq(float[4,8]) t) { e = Exp(n) t = SequenceInsert(s, e) },
            else_branch = b () => (seq(float[4,8]) u) { u = SequenceInsert(s, x) }
        >
        z = ConcatFromSequence<axis = 0>(q)
        y = Tanh(z)
    }""",
    "of constants": """(float[4,8] x, bool c) => (float[4,8] y) {
        k = Constant<value = int64 {0}>()
        w = Constant<value = float[1,8] {1,2,3,4,5,6,7,8}>()
        s = SequenceConstruct(w, w)
        q = If(c)<
            then_branch = a () => (seq(float[1,8]) t) { t = SequenceInsert(s, w) },
            else_branch = b () => (seq(float[1,8]) u) {
                v = Constant<value = float[1,8] {8,7,6,5,4,3,2,1}>()
                u = SequenceConstruct(v, v)
            }
        >
        z = SequenceAt(q, k)
        o = SequenceAt(s, k)
        a = Mul(x, z)
        m = Mul(a, o)
        y = Tanh(m)
    }""",
    "of unlike tensors": """(float[4,8] x) => (seq(float[A,B]) q) {
        n = Neg(x)
        m = Concat<axis = 1>(x, n)
        q = SequenceConstruct(n, m)
    }""",
    "of a split": """(float[4,8] x) => (seq(float[4,4]) q) {
        n = Neg(x)
        k = Constant<value = int64 {4}>()
        q = SplitToSequence<axis = 1>(n, k)
    }""",
}


@pytest.mark.parametrize("opset", [13, 17])
@pytest.mark.parametrize("kind", SEQUENCES)
def test_sequences_are_written(kind: str, opset: int, tmp_path: Path) -> None:
    text = f'<ir_version: 8, opset_import: ["": {opset}]> net {SEQUENCES[kind]}'
    found = checked(onnx.parser.parse_model(text), tmp_path)
    assert (found.skipped, found.findings) == (None, ())
    assert found.max_abs_error == 0


NARROW = """<ir_version: 10, opset_import: ["": 21]>
net (float[4,4,8,8] x) => (float[4,4,8,8] y{more}) <float[4,4,3,3] w, float[4,4,3,3] v> {{
    a = Conv<pads = [1,1,1,1]>(x, w)
    n = Cast<to = {element}>(a)
    b = Cast<to = 1>(n)
    c = Conv<pads = [1,1,1,1]>(b, v)
    y = Relu(c)
}}"""


@pytest.mark.parametrize("output", [False, True], ids=["inside", "output"])
@pytest.mark.parametrize(
    "kind", ["FLOAT8E4M3FN", "FLOAT8E4M3FNUZ", "FLOAT8E5M2", "FLOAT8E5M2FNUZ", "INT4", "UINT4"]
)
def test_narrow_types_are_cut_and_joined(kind: str, *, output: bool, tmp_path: Path) -> None:
    element = TensorProto.DataType.Value(kind)
    more = f", {kind.lower()}[4,4,8,8] n" if output else ""
    model = onnx.parser.parse_model(NARROW.format(element=element, more=more))
    del model.graph.value_info[:]
    for name in "wv":
        weight = _RNG.normal(size=(4, 4, 3, 3)).astype(np.float32)
        model.graph.initializer.append(numpy_helper.from_array(weight, name))
    if output and kind != "FLOAT8E4M3FN":  # ONNX Runtime gives no other to Python
        schedule, path = planned(model, tmp_path)
        write_scheduled_model(schedule, path, tmp_path / "out.onnx")
        onnxruntime.InferenceSession(tmp_path / "out.onnx", providers=["CPUExecutionProvider"])
    else:
        found = checked(model, tmp_path)
        assert (found.skipped, found.findings) == (None, ())
