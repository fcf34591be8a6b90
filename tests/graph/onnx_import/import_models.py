"""Small ONNX models for the import's tests."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from autoturbo.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from onnx import FunctionProto, GraphProto, ModelProto, NodeProto, ValueInfoProto

    from autoturbo.graph.operators import Graph

FLOAT = TensorProto.FLOAT
INT64 = TensorProto.INT64
BOOL = TensorProto.BOOL
OPSET = 17
IR = 8

node = helper.make_node


class Load(Protocol):
    """Saves a model as ``model.onnx`` and imports it."""

    def __call__(
        self,
        model: ModelProto,
        *,
        batch: int | None = None,
        batch_dim: str | Sequence[str] = (),
        shapes: Mapping[str, Sequence[int]] | None = None,
        dims: Mapping[str, int] | None = None,
        values: Mapping[str, Sequence[float]] | None = None,
    ) -> Graph: ...


def value(name: str, shape: Sequence[int | str | None] | None, kind: int = FLOAT) -> ValueInfoProto:
    """A typed value; None for an unknown shape."""
    return helper.make_tensor_value_info(name, kind, shape)


def weight(name: str, *shape: int) -> TensorProto:
    """Float weights, alike at each call."""
    elements = np.random.default_rng(7).standard_normal(shape).astype(np.float32)
    return numpy_helper.from_array(elements, name)


def ints(name: str, *numbers: int) -> TensorProto:
    """A vector of integers."""
    return numpy_helper.from_array(np.asarray(numbers, np.int64), name)


def scalar(name: str, number: int) -> TensorProto:
    """An integer without dimensions."""
    return numpy_helper.from_array(np.asarray(number, np.int64), name)


def graph(
    nodes: Sequence[NodeProto],
    inputs: Sequence[ValueInfoProto],
    outputs: Sequence[ValueInfoProto],
    stored: Sequence[TensorProto] = (),
    known: Sequence[ValueInfoProto] = (),
) -> GraphProto:
    """A graph."""
    return helper.make_graph(nodes, "g", inputs, outputs, stored, value_info=known)


def model(
    nodes: Sequence[NodeProto],
    inputs: Sequence[ValueInfoProto],
    outputs: Sequence[ValueInfoProto],
    stored: Sequence[TensorProto] = (),
    *,
    known: Sequence[ValueInfoProto] = (),
    opset: int = OPSET,
    ir: int = IR,
    domains: Sequence[str] = (),
    functions: Sequence[FunctionProto] = (),
) -> ModelProto:
    """A model; nothing in it is checked."""
    ids = [helper.make_opsetid("", opset), *(helper.make_opsetid(d, 1) for d in domains)]
    made = helper.make_model(
        graph(nodes, inputs, outputs, stored, known), opset_imports=ids, functions=functions
    )
    made.ir_version = ir
    return made


def mlp(batch: int | str | None = 2) -> ModelProto:
    """``x [batch, 8] -> Gemm -> Relu -> y [batch, 4]``."""
    return model(
        [node("Gemm", ["x", "w", "b"], ["h"], name="fc"), node("Relu", ["h"], ["y"], name="act")],
        [value("x", [batch, 8])],
        [value("y", [batch, 4])],
        [weight("w", 8, 4), weight("b", 4)],
    )


def shape_of(result: Graph, name: str) -> tuple[int, ...]:
    """The shape of a tensor by name."""
    return next(tensor.shape for tensor in result.tensors if tensor.name == name)


def kinds(result: Graph) -> list[str]:
    """Operator types in order."""
    return [operator.kind for operator in result.operators]


def out_shapes(result: Graph) -> list[tuple[int, ...]]:
    """Shapes of the graph's outputs."""
    return [result.tensors[index].shape for index in result.outputs]


def in_names(result: Graph) -> list[str]:
    """Names of the real inputs."""
    return [result.tensors[index].name for index in result.inputs]


# -------------------------------------------------------------------------- what messages propose


def flags_of(error: ModelError) -> dict[str, Any]:
    """What a message proposes, as arguments."""
    text = error.hint or ""
    dims = {name: int(extent) for name, extent in re.findall(r"--dim (\S+)=(\d+)", text)}
    values = re.findall(r"--value (\S+)=([\d,]*\d)", text)
    shapes = re.findall(r"--shape (\S+)=([\d,]*\d)", text)
    return {
        "dims": dims,
        "shapes": {name: [int(n) for n in extents.split(",")] for name, extents in shapes},
        "values": {name: [int(n) for n in numbers.split(",")] for name, numbers in values},
    }


def error_of(load: Load, made: ModelProto, asked: Mapping[str, Any]) -> ModelError | None:
    try:
        load(made, **asked)
    except ModelError as error:
        return error
    return None


def follow(load: Load, made: ModelProto, **asked: dict[str, Any]) -> list[str]:
    """Follow what is proposed until it imports; return what was said."""
    said: list[str] = []
    for _ in range(4):
        error = error_of(load, made, asked)
        if error is None:
            return said
        if str(error) in said:
            break
        said.append(str(error))
        for name, more in flags_of(error).items():
            asked[name] = {**asked.get(name, {}), **more}
    raise AssertionError(said)
