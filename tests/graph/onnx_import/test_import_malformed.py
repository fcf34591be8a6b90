"""Every malformed model gives one located line."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto

from autoturbo.errors import Location, ModelError
from autoturbo.graph.onnx_import import import_model
from tests.graph.onnx_import.import_models import (
    BOOL,
    FLOAT,
    INT64,
    graph,
    ints,
    mlp,
    model,
    node,
    value,
    weight,
)
from tests.tiers import spread, tiered

if TYPE_CHECKING:
    from tests.graph.onnx_import.import_models import Load

NEWEST_OPSET = onnx.defs.onnx_opset_version()


def relu(shape: list[Any] | None, **more: Any) -> ModelProto:
    return model(
        [node("Relu", ["x"], ["y"], name="r")], [value("x", shape)], [value("y", None)], **more
    )


def changed(change: Callable[[ModelProto], object]) -> ModelProto:
    made = mlp()
    change(made)
    return made


def external(location: str, **entries: str) -> ModelProto:
    tensor = TensorProto(name="w", data_type=FLOAT, dims=[8, 4], data_location=TensorProto.EXTERNAL)
    for key, text in {"location": location, **entries}.items():
        tensor.external_data.add(key=key, value=text)
    made = mlp()
    made.graph.initializer[0].CopyFrom(tensor)
    return made


def cyclic() -> ModelProto:
    nodes = [
        node("Add", ["x", "c"], ["a"], name="one"),
        node("Relu", ["a"], ["b"], name="two"),
        node("Neg", ["b"], ["c"], name="three"),
    ]
    return model(nodes, [value("x", [2])], [value("c", [2])])


def foreign(known: list[Any]) -> ModelProto:
    return model(
        [node("Mystery", ["x"], ["m"], domain="org.acme", name="mys"), node("Relu", ["m"], ["y"])],
        [value("x", [2, 3])],
        [value("y", None)],
        known=known,
        domains=["org.acme"],
    )


def sequence_input() -> ModelProto:
    made = relu([2])
    made.graph.input[0].type.Clear()
    made.graph.input[0].type.sequence_type.elem_type.tensor_type.elem_type = FLOAT
    return made


def without_element_type() -> ModelProto:
    made = relu([2])
    made.graph.input[0].type.tensor_type.elem_type = 0
    return made


def assert_says(error: ModelError, expected: str) -> None:
    """The exact text; up to ``...`` where the rest is the library's, whose wording moves."""
    ours, dots, _ = f"model.onnx: {expected}".partition("...")
    if dots and not expected.endswith("N,..."):
        assert str(error).startswith(ours)
    else:
        assert str(error) == f"model.onnx: {expected}"


MALFORMED: dict[str, tuple[ModelProto, str]] = {
    "cycle": (cyclic(), "the graph has a cycle: one -> two -> three -> one"),
    "undefined input": (
        model([node("Add", ["x", "ghost"], ["y"], name="a")], [value("x", [2])], [value("y", [2])]),
        "a: reads 'ghost', which nothing defines",
    ),
    "undefined input of a nameless node": (
        model([node("Neg", ["ghost"], ["y"])], [value("x", [2])], [value("y", [2])]),
        "Neg of 'y': reads 'ghost', which nothing defines",
    ),
    "undefined output": (
        model([node("Neg", ["x"], ["y"])], [value("x", [2])], [value("z", [2])]),
        "z: is an output of the graph, but nothing defines it",
    ),
    "name defined twice": (
        model(
            [node("Neg", ["x"], ["y"]), node("Abs", ["x"], ["y"])],
            [value("x", [2])],
            [value("y", [2])],
        ),
        "y: defined 2 times; every value has one origin",
    ),
    "node makes an input": (
        model([node("Neg", ["x"], ["x"])], [value("x", [2])], [value("x", [2])]),
        "x: defined 2 times; every value has one origin",
    ),
    "initializer stored twice": (
        changed(lambda m: m.graph.initializer.append(weight("w", 8, 4))),
        "w: defined 2 times; every value has one origin",
    ),
    "captured name undefined": (
        model(
            [
                node(
                    "If",
                    ["c"],
                    ["y"],
                    name="choose",
                    then_branch=graph([node("Neg", ["ghost"], ["t"])], [], [value("t", [2])]),
                    else_branch=graph([node("Neg", ["x"], ["e"])], [], [value("e", [2])]),
                )
            ],
            [value("x", [2]), value("c", [], BOOL)],
            [value("y", [2])],
        ),
        "choose: reads 'ghost', which nothing defines",
    ),
    "no graph": (ModelProto(ir_version=8), "no graph in the file; is it an ONNX model?"),
    "no nodes": (model([], [value("x", [2])], [value("x", [2])]), "the graph has no nodes"),
    "no IR version": (
        changed(lambda m: m.ClearField("ir_version")),
        "no IR version in the file; is it an ONNX model?",
    ),
    "IR version of the future": (
        relu([2], ir=99),
        (
            f"IR version 99 is newer than {onnx.IR_VERSION},"
            f" the newest that onnx {onnx.__version__}"
            " reads; upgrade onnx, or export for an older version"
        ),
    ),
    "opset of the future": (
        relu([2], opset=99),
        (
            f"opset 99 is newer than {NEWEST_OPSET}, the newest that onnx {onnx.__version__} knows;"
            " upgrade onnx, or export for an older opset"
        ),
    ),
    "opset below one": (relu([2], opset=-1), "opset -1 does not exist"),
    "no opset": (
        changed(lambda m: m.ClearField("opset_import")),
        "no opset is imported; the file may be truncated",
    ),
    "dynamic front that is no batch": (
        relu(["seq_len", 3]),
        "x: dimension 0 ('seq_len') has no value; give the extents, for example --dim seq_len=128",
    ),
    "dynamic inside": (
        relu(["N", "height", "width"]),
        (
            "x: dimensions 1 ('height') and 2 ('width') have no value;"
            " give the extents, for example --dim height=128 --dim width=128"
        ),
    ),
    "nameless inside": (
        relu(["N", 3, None, "width"]),
        (
            "x: dimensions 2 and 3 ('width') have no value;"
            " give the extents, for example --shape x=1,3,128,128"
        ),
    ),
    "computed inside": (
        relu(["N", "past + 1"]),
        "x: dimension 1 ('past + 1') has no value; give the extents, for example --dim past=128",
    ),
    "hard to type": (
        relu(["N", "a b"]),
        "x: dimension 1 ('a b') has no value; give the extents, for example --dim 'a b=128'",
    ),
    "negative extent": (
        relu([2, -1]),
        "x: dimension 1 (-1) has no value; give the extents, for example --shape x=2,128",
    ),
    "no samples": (
        relu([0, 3]),
        (
            "y: its only output is empty, of shape [0, 3]: nothing to schedule;"
            " give its input elements: --shape x=1,3"
        ),
    ),
    "zero extent": (
        relu([2, 0]),
        (
            "y: its only output is empty, of shape [2, 0]: nothing to schedule;"
            " give its input elements: --shape x=2,1"
        ),
    ),
    "no shape": (
        relu(None),
        "x: input has no shape; give the extents, for example --shape x=1,3,224,224",
    ),
    "several dynamic inputs": (
        model(
            [node("Add", ["x", "z"], ["y"])],
            [value("x", ["N", "tokens"]), value("z", ["N", "words"])],
            [value("y", None)],
        ),
        (
            "x: dimension 1 ('tokens') has no value (nor have 1 more inputs);"
            " give the extents, for example --dim tokens=128 --dim words=128"
        ),
    ),
    "input of sequences": (
        sequence_input(),
        "x: input is not a tensor; export with tensor inputs",
    ),
    "input without element type": (without_element_type(), "x: input has no element type"),
    "a tensor of 2^40 elements": (
        relu([2**20, 2**20]),
        (
            "x: shape [1048576, 1048576] makes 1099511627776 elements;"
            " all tensors together must have fewer than 2^40"
        ),
    ),
    "a tensor of 2^40 elements on the way": (
        model(
            [node("Mul", ["x", "z"], ["m"], name="outer"), node("ReduceSum", ["m"], ["y"])],
            [value("x", [2**20, 1]), value("z", [1, 2**20])],
            [value("y", None)],
        ),
        (
            "m: shape [1048576, 1048576] makes 1099511627776 elements;"
            " all tensors together must have fewer than 2^40"
        ),
    ),
    "too few inputs": (
        model(
            [node("Conv", ["x"], ["y"], name="c")], [value("x", [1, 1, 4, 4])], [value("y", None)]
        ),
        "c: invalid node: Node...",
    ),
    "attribute of another type": (
        model(
            [node("Elu", ["x"], ["y"], name="r", alpha="1")], [value("x", [2])], [value("y", None)]
        ),
        "r: invalid node: Mismatched attribute type...",
    ),
    "shapes that do not fit": (
        model(
            [node("MatMul", ["x", "w"], ["y"], name="mm")],
            [value("x", [2, 3])],
            [value("y", None)],
            [weight("w", 4, 5)],
        ),
        "mm: MatMul does not fit its inputs [2, 3], [4, 5]: Incompatible dimensions...",
    ),
    "unknown operator": (
        foreign([]),
        (
            "mys: unknown operator org.acme.Mystery, and the file does not state the shape of its"
            " output 'm'; state its shape in the file (value_info)"
        ),
    ),
    "shape that depends on data": (
        model(
            [node("Reshape", ["x", "s"], ["y"], name="r")],
            [value("x", [2, 3]), value("s", [2], INT64)],
            [value("y", None)],
        ),
        (
            "r: the shape of its output 'y' depends on values of inputs;"
            " give them, for example --value s=1,6"
        ),
    ),
    "nothing depends on an input": (
        model([node("Neg", ["w"], ["y"])], [value("x", [2])], [value("y", [2])], [weight("w", 2)]),
        "nothing in the model depends on an input: nothing to schedule",
    ),
    "empty value": (
        model(
            [node("Slice", ["x", "from", "to"], ["h"], name="s"), node("Neg", ["h"], ["y"])],
            [value("x", [4])],
            [value("y", None)],
            [ints("from", 2), ints("to", 2)],
        ),
        "y: its only output is empty, of shape [0]: nothing to schedule",
    ),
    "payload of the wrong length": (
        changed(lambda m: setattr(m.graph.initializer[0], "raw_data", b"12345678")),
        "w: holds 8 bytes, its shape needs 128",
    ),
    "unknown element type": (
        changed(lambda m: setattr(m.graph.initializer[0], "data_type", 99)),
        "w: unknown element type 99",
    ),
    "negative extent of a weight": (
        changed(lambda m: m.graph.initializer[0].dims.__setitem__(0, -8)),
        "w: extents [-8, 4] are negative",
    ),
    "weights above the folder": (
        external("../w.bin"),
        "w: external data '../w.bin' leaves the model's folder; keep the weights beside the model",
    ),
    "weights at an absolute path": (
        external("/etc/hostname"),
        (
            "w: external data '/etc/hostname' leaves the model's folder;"
            " keep the weights beside the model"
        ),
    ),
    "weights without a place": (external(""), "w: external data without a readable location"),
    "weights at a bad offset": (
        external("w.bin", offset="-4"),
        "w: external data with a bad offset or length",
    ),
    "weights at no offset": (
        external("w.bin", offset="four"),
        "w: external data with a bad offset or length",
    ),
    "weights shorter than their shape": (
        external("w.bin", length="64"),
        "w: holds 64 bytes, its shape needs 128",
    ),
}


QUICK = (
    "cycle", "undefined input", "name defined twice", "no graph", "no opset", "opset of the future",
    "dynamic inside", "negative extent", "input of sequences", "a tensor of 2^40 elements",
    "shapes that do not fit", "unknown operator", "shape that depends on data", "empty value",
    "weights above the folder", "weights shorter than their shape",
)  # fmt: skip
"""One of each kind."""


@pytest.mark.parametrize("case", tiered(QUICK, [case for case in MALFORMED if case not in QUICK]))
def test_a_malformed_model_gives_one_located_line(load: Load, case: str) -> None:
    made, expected = MALFORMED[case]
    with pytest.raises(ModelError) as caught:
        load(made)
    assert_says(caught.value, expected)
    assert str(caught.value.at.file) == "model.onnx"
    assert "\n" not in str(caught.value)


FLAGS: dict[str, tuple[ModelProto, dict[str, Any], str]] = {
    "unknown name, near": (
        mlp("N"),
        {"shapes": {"X": [2, 8]}},
        "X: --shape names no input of the model; did you mean 'x'?",
    ),
    "unknown name, far": (
        mlp("N"),
        {"shapes": {"pixels": [2, 8]}},
        "pixels: --shape names no input of the model; inputs are 'x'",
    ),
    "wrong rank": (
        mlp("N"),
        {"shapes": {"x": [2, 8, 1]}},
        "x: --shape x=2,8,1 has 3 dimensions, the input has 2",
    ),
    "extent below zero": (
        mlp("N"),
        {"shapes": {"x": [-1, 8]}},
        "x: --shape x=-1,8 has an extent below 0",
    ),
    "no samples": (
        mlp("N"),
        {"shapes": {"x": [0, 8]}},
        (
            "y: its only output is empty, of shape [0, 4]: nothing to schedule;"
            " give its input elements: --shape x=1,8"
        ),
    ),
    "unknown dimension, near": (
        mlp("N"),
        {"dims": {"n": 2}},
        "n: --dim names no dimension of the inputs; did you mean 'N'?",
    ),
    "unknown dimension, far": (
        mlp("N"),
        {"dims": {"pixels": 2}},
        "pixels: --dim names no dimension of the inputs; dimensions are 'N'",
    ),
    "dimension without a name": (
        mlp(2),
        {"dims": {"N": 2}},
        "N: --dim names no dimension of the inputs; they have no names: use --shape",
    ),
    "dimension below zero": (mlp("N"), {"dims": {"N": -1}}, "N: --dim N=-1 is below 0"),
    "dimension and shape": (
        mlp("N"),
        {"dims": {"N": 2}, "shapes": {"x": [3, 8]}},
        "x: dimension 'N' would be 2 and 3; give every dimension of one name the same extent",
    ),
    "dimension and batch": (
        mlp("N"),
        {"dims": {"N": 2}, "batch": 3},
        (
            "--batch was given, but --dim gives every leading dimension its extent;"
            " leave one of them out"
        ),
    ),
    "batch of zero": (mlp("N"), {"batch": 0}, "--batch 0 is not a positive number"),
    "batch without inputs": (
        model([node("RandomNormal", [], ["y"], shape=[2])], [], [value("y", [2])]),
        {"batch": 2},
        "--batch was given, but the model has no input with a batch",
    ),
    "batch of scalars": (
        relu([]),
        {"batch": 2},
        "--batch was given, but the model has no input with a batch",
    ),
    "one name, two extents": (
        model(
            [node("Add", ["x", "z"], ["y"])],
            [value("x", ["N"]), value("z", ["N"])],
            [value("y", None)],
        ),
        {"shapes": {"x": [2], "z": [3]}},
        "z: dimension 'N' would be 2 and 3; give every dimension of one name the same extent",
    ),
    "shape that the weights refuse": (
        mlp("N"),
        {"shapes": {"x": [2, 9]}},
        "fc: Gemm does not fit its inputs [2, 9], [8, 4], [4]: Dimension mismatch...",
    ),
    "batch fixed inside": (
        model(
            [node("ReduceMax", ["x"], ["h"], keepdims=0), node("Expand", ["h", "s"], ["y"])],
            [value("x", [2, 3])],
            [value("y", [2, 3])],
            [ints("s", 2, 3)],
        ),
        {"batch": 4},
        (
            "y: at another batch its shape [2, 3] became [2, 3]:"
            " the batch is fixed inside the graph;"
            " export with a dynamic batch"
        ),
    ),
}


@pytest.mark.parametrize("case", spread(FLAGS, 3))
def test_a_flag_that_does_not_fit_gives_one_located_line(load: Load, case: str) -> None:
    made, flags, expected = FLAGS[case]
    with pytest.raises(ModelError) as caught:
        load(made, **flags)
    assert_says(caught.value, expected)


def zip_archive() -> bytes:
    path = Path("inner.zip")
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("data.pkl", "x")
    return path.read_bytes()


BYTES: dict[str, tuple[Callable[[], bytes], str]] = {
    "empty": (lambda: b"", "the file is empty"),
    "text": (lambda: b"ir_version: 8\ngraph {}\n" * 9, "not an ONNX file but text"),
    "zip": (
        zip_archive,
        "not an ONNX file but a zip archive; export the network with torch.onnx.export",
    ),
    "gzip": (
        lambda: b"\x1f\x8b\x08" + bytes(64),
        "not an ONNX file but a gzip archive; unpack it first",
    ),
    "gguf": (
        lambda: b"GGUF" + bytes(64),
        "not an ONNX file but a GGUF file; export the network to ONNX",
    ),
    "lfs": (
        lambda: b"version https://git-lfs.github.com/spec/v1\n",
        "not an ONNX file but a Git LFS pointer; run 'git lfs pull'",
    ),
    "noise": (
        lambda: np.random.default_rng(1).bytes(4096),
        "not an ONNX file, or a damaged one",
    ),
    "truncated": (
        lambda: mlp().SerializeToString()[:-60],
        "truncated: 54 bytes are missing; copy or download the file again",
    ),
    "damaged": (
        lambda: mlp().SerializeToString().replace(b"Gemm", b"\xff\xff\xff\xff"),
        "not an ONNX file, or a damaged one: a name is not text",
    ),
}


@pytest.mark.parametrize("case", spread(BYTES, 3))
@pytest.mark.usefixtures("folder")
def test_bytes_that_are_no_model_give_one_located_line(case: str) -> None:
    make, expected = BYTES[case]
    Path("model.onnx").write_bytes(make())
    with pytest.raises(ModelError) as caught:
        import_model("model.onnx")
    assert_says(caught.value, expected)


@pytest.mark.usefixtures("folder")
def test_a_path_without_a_file_is_named() -> None:
    with pytest.raises(ModelError) as caught:
        import_model("nowhere.onnx")
    assert caught.value.at == Location(Path("nowhere.onnx"))
    Path("models").mkdir()
    with pytest.raises(ModelError) as caught:
        import_model("models")
    assert caught.value.at == Location(Path("models"))


def test_an_unreadable_file_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "model.onnx").write_bytes(mlp().SerializeToString())

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(ModelError) as caught:
        import_model("model.onnx")
    assert caught.value.at == Location(Path("model.onnx"))


@pytest.mark.parametrize("length", tiered([1, 64], [8, 22, 36, 120, 190]))
@pytest.mark.usefixtures("folder")
def test_no_truncation_escapes_as_a_library_error(length: int) -> None:
    Path("model.onnx").write_bytes(mlp().SerializeToString()[:-length])
    with pytest.raises(ModelError):
        import_model("model.onnx")


@pytest.mark.parametrize("seed", tiered(range(2), range(2, 10)))
@pytest.mark.usefixtures("folder")
def test_no_damage_escapes_as_a_library_error(seed: int) -> None:
    rng = np.random.default_rng(seed)
    data = bytearray(mlp().SerializeToString())
    for position in rng.integers(0, len(data), 4):
        data[position] = rng.integers(0, 256)
    Path("model.onnx").write_bytes(bytes(data))
    try:
        import_model("model.onnx")
    except ModelError as error:
        assert "\n" not in str(error)  # noqa: PT017 - importing is right too: weights may be hit


def test_an_error_survives_the_way_to_another_process() -> None:
    import pickle

    with pytest.raises(ModelError) as caught:
        import_model("nowhere.onnx")
    copy = pickle.loads(pickle.dumps(caught.value))  # noqa: S301 - our own bytes
    assert str(copy) == str(caught.value)


def test_an_element_type_that_onnx_does_not_have(load: Load) -> None:
    made = model(
        [node("Add", ["x", "w"], ["y"])], [value("x", [2])], [value("y", None)], [weight("w", 2)]
    )
    made.graph.initializer[0].data_type = 29
    with pytest.raises(ModelError):
        load(made)


@pytest.mark.parametrize(
    ("shape", "said"),
    [
        ([1], "choose its branch with --value use_cache=1 (or 0), or "),
        ([3], "choose its branch with --value use_cache=1 (or 0), or "),
        ([40], ""),
    ],
)
def test_the_value_that_a_branch_waits_for_is_named(
    load: Load, shape: list[int], said: str
) -> None:
    one = onnx.helper.make_graph([node("Exp", ["x"], ["v"])], "then", [], [value("v", [2])])
    two = onnx.helper.make_graph(
        [node("Concat", ["x", "x"], ["u"], axis=0)], "else", [], [value("u", [4])]
    )
    cast = node("Cast", ["use_cache"], ["wanted"], to=TensorProto.INT32)
    flag = node("ReduceMax", ["wanted"], ["most"], keepdims=0)
    asked = node("Cast", ["most"], ["flag"], to=TensorProto.BOOL)
    choice = node("If", ["flag"], ["y"], "choice", then_branch=one, else_branch=two)
    inputs = [value("x", [2]), value("use_cache", shape)]
    made = model([cast, flag, asked, choice], inputs, [value("y", ["n"])], [])
    with pytest.raises(ModelError) as caught:
        load(made)
    line = "choice: the shape of its output 'y' cannot be inferred; "
    assert_says(caught.value, f"{line}{said}state its shape in the file (value_info)")


def test_a_branch_with_fewer_outputs_than_its_node(load: Load) -> None:
    made = value("v", [2])
    full = onnx.helper.make_graph([node("Exp", ["x"], ["v"])], "else", [], [made])
    bare = onnx.helper.make_graph([node("Exp", ["x"], ["v"])], "then", [], [])
    flag = onnx.helper.make_tensor("flag", TensorProto.BOOL, [], [True])
    choice = node("If", ["flag"], ["y"], "choice", then_branch=bare, else_branch=full)
    last = node("Relu", ["y"], ["z"])
    with pytest.raises(ModelError) as caught:
        load(model([choice, last], [value("x", [2])], [value("z", None)], [flag]))
    assert_says(caught.value, "choice: its branch has 0 outputs, not 1")
