"""Remove what exporters leave of shape arithmetic, and let the batch be changed afterwards.

Fusions are left to the scheduler: only constants are folded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import onnx
from onnx import numpy_helper

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import numpy as np

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
    """Take the batch out of constant Reshape targets where the shape stays the same without it.

    The leading number of a target becomes 0 where it repeats the input's leading dimension, and
    -1 where the batch is merged into it: the same shape at this batch, the right one at others.
    """
    shapes = _shapes(model)
    batch = model.graph.input[0].type.tensor_type.shape.dim[0].dim_value
    constants = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer if _index(t)}
    for node in model.graph.node:
        if node.op_type == "Reshape" and node.input[1] in constants:
            target = _freed(constants[node.input[1]], shapes.get(node.input[0], ()), batch)
            _replace_target(model.graph, node, target)


def _index(tensor: onnx.TensorProto) -> bool:
    inline = tensor.data_location != onnx.TensorProto.EXTERNAL
    return inline and tensor.data_type == onnx.TensorProto.INT64


def _shapes(model: onnx.ModelProto) -> Mapping[str, tuple[int, ...]]:
    inferred = onnx.shape_inference.infer_shapes(model, strict_mode=True, data_prop=True)
    values = (*inferred.graph.input, *inferred.graph.value_info, *inferred.graph.output)
    return {v.name: tuple(d.dim_value for d in v.type.tensor_type.shape.dim) for v in values}


def _freed(
    target: np.ndarray[Any, Any], shape: tuple[int, ...], batch: int
) -> np.ndarray[Any, Any]:
    freed = target.copy()
    if shape and len(freed) and freed[0] > 0 and freed[0] % batch == 0:
        if freed[0] == shape[0]:
            freed[0] = 0
        elif (freed > 0).all():
            freed[0] = -1
    return freed


def _replace_target(
    graph: onnx.GraphProto, node: onnx.NodeProto, target: np.ndarray[Any, Any]
) -> None:
    """Give the node a constant named after its values, shared by all nodes that reshape alike.

    torch sets ``allowzero``, under which 0 would be a size; no tensor here is empty.
    """
    name = "shape_" + "_".join("rest" if size < 0 else str(size) for size in target)
    node.input[1] = name
    for attribute in [a for a in node.attribute if a.name == "allowzero"]:
        node.attribute.remove(attribute)
    if all(tensor.name != name for tensor in graph.initializer):
        graph.initializer.append(numpy_helper.from_array(target, name))
