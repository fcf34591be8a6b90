"""Multiply-accumulates of an ONNX graph, from shapes alone, independently of the package."""

from __future__ import annotations

import csv
import math
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import onnx

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

REFERENCES = Path(__file__).parents[2] / "benchmarks" / "validation" / "references" / "macs"

Macs = Counter[tuple[str, int]]
"""How often an operator of a kind ("convolution" or "product") with so many MACs occurs."""

Shape = tuple[int, ...]


def shapes_of(model: onnx.ModelProto) -> dict[str, Shape]:
    """Shape of every value; a dimension that inference does not know is -1."""
    inferred = onnx.shape_inference.infer_shapes(model, strict_mode=True, data_prop=True)
    graph = inferred.graph
    shapes = {
        value.name: tuple(
            d.dim_value if d.HasField("dim_value") else -1 for d in value.type.tensor_type.shape.dim
        )
        for value in (*graph.input, *graph.value_info, *graph.output)
        if value.type.tensor_type.HasField("shape")
    }
    return shapes | {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}


def graph_macs(model: onnx.ModelProto) -> Macs:
    shapes = shapes_of(model)
    found: Macs = Counter()
    for node in model.graph.node:
        operands = [shapes[name] for name in node.input if name in shapes]
        if node.op_type == "Conv":
            macs = math.prod(shapes[node.output[0]]) * math.prod(operands[1][1:])
            found["convolution", macs] += 1
        elif node.op_type in ("MatMul", "Gemm"):
            macs = math.prod(shapes[node.output[0]]) * _depth(node, operands)
            found["product", macs] += 1
    return found


def _depth(node: onnx.NodeProto, operands: Sequence[Shape]) -> int:
    transposed = any(a.name == "transA" and a.i for a in node.attribute)
    return operands[0][0 if transposed else -1]


def reference_macs(name: str, batch: int) -> Macs:
    """Return the reference table for one sample, each entry multiplied by `batch`."""
    with (REFERENCES / f"{name}.b1.torch_aten.csv").open(newline="") as stream:
        return Counter((_kind(row), int(row["macs"]) * batch) for row in csv.DictReader(stream))


def _kind(row: Mapping[str, str]) -> str:
    return "convolution" if row["aten_op"] == "aten.convolution" else "product"
