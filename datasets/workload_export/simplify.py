"""Remove what exporters leave of shape arithmetic, and let the batch be changed afterwards.

Fusions are left to the scheduler: only constants are folded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx
from onnx import numpy_helper

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

_FOLDABLE = frozenset({"Shape", "Size", "ConstantOfShape", "Constant", "Identity", "If", "Pad"})
"""Operators that torch's own folding leaves behind although they may do nothing at run time."""


def fold(model: onnx.ModelProto, folder: Path) -> onnx.ModelProto:
    """Fold constants with onnxslim when something may fold; weights come from `folder`."""
    if not any(node.op_type in _FOLDABLE for node in model.graph.node):
        return model
    import onnxslim
    from onnxslim.core.pattern.registry import DEFAULT_FUSION_PATTERNS

    onnx.load_external_data_for_model(model, str(folder))
    slim: onnx.ModelProto = onnxslim.slim(model, skip_fusion_patterns=list(DEFAULT_FUSION_PATTERNS))
    return slim


def strip(model: onnx.ModelProto) -> None:
    """Drop everything that only describes: documentation, tracebacks, inferred shapes."""
    for described in (model, model.graph, *model.graph.node, *model.graph.initializer):
        described.ClearField("doc_string")
        described.ClearField("metadata_props")
    for value in (*model.graph.input, *model.graph.output):
        value.ClearField("doc_string")
        value.ClearField("metadata_props")
    model.graph.ClearField("value_info")


def free_batch(model: onnx.ModelProto) -> None:
    """Take the batch out of constant targets where the shape stays the same without it.

    In a Reshape the leading number becomes 0 where it repeats the input's leading dimension, and
    -1 where the batch is merged into it; in an Expand it becomes 1 where the input already has
    it. The shapes at this batch do not change, and those at other batches come out right.
    """
    shapes = _shapes(model)
    batch = model.graph.input[0].type.tensor_type.shape.dim[0].dim_value
    constants = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer if _index(t)}
    for node in model.graph.node:
        rule = _RULES.get(node.op_type)
        if rule is not None and node.input[1] in constants:
            target = constants[node.input[1]].tolist()
            _replace_target(model.graph, node, rule(target, shapes[node.input[0]], batch))


def _index(tensor: onnx.TensorProto) -> bool:
    inline = tensor.data_location != onnx.TensorProto.EXTERNAL
    return inline and tensor.data_type == onnx.TensorProto.INT64


def _shapes(model: onnx.ModelProto) -> Mapping[str, tuple[int, ...]]:
    inferred = onnx.shape_inference.infer_shapes(model, strict_mode=True, data_prop=True)
    values = (*inferred.graph.input, *inferred.graph.value_info, *inferred.graph.output)
    shapes = {v.name: tuple(d.dim_value for d in v.type.tensor_type.shape.dim) for v in values}
    return shapes | {tensor.name: tuple(tensor.dims) for tensor in model.graph.initializer}


def _free_reshape(target: list[int], shape: tuple[int, ...], batch: int) -> list[int]:
    if not target or not shape or target[0] <= 0 or target[0] % batch:
        return target
    if target[0] == shape[0]:
        return [0, *target[1:]]
    return [-1, *target[1:]] if min(target) > 0 else target


def _free_expand(target: list[int], shape: tuple[int, ...], batch: int) -> list[int]:
    same_rank = len(target) == len(shape) > 0
    return [1, *target[1:]] if same_rank and target[0] == shape[0] == batch else target


_RULES: Mapping[str, Callable[[list[int], tuple[int, ...], int], list[int]]] = {
    "Reshape": _free_reshape,
    "Expand": _free_expand,
}


def _replace_target(graph: onnx.GraphProto, node: onnx.NodeProto, target: list[int]) -> None:
    """Give the node a constant named after its values, shared by all nodes with the same target.

    torch sets ``allowzero`` on Reshape, under which 0 would be a size; no tensor here is empty.
    """
    name = "shape_" + "_".join("rest" if size < 0 else str(size) for size in target)
    node.input[1] = name
    for attribute in [a for a in node.attribute if a.name == "allowzero"]:
        node.attribute.remove(attribute)
    if all(tensor.name != name for tensor in graph.initializer):
        graph.initializer.append(numpy_helper.from_array(np.array(target, np.int64), name))
