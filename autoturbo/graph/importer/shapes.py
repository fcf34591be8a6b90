"""Types and shapes of one node's outputs: by ONNX's own inference, by rules, at their largest.

Nodes are inferred one at a time in topological order, with the values of small constants given:
a whole-model inference would not see the values that folding makes on the way.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from onnx import NodeProto, TensorProto, TypeProto, defs, helper, numpy_helper, shape_inference

from autoturbo.graph.importer.external_data import SMALL
from autoturbo.graph.operator_table.build import MICROSOFT
from autoturbo.graph.source import Source, domain_of, integer_of
from autoturbo.graph.values import (
    Step,
    Value,
    dims_of,
    element_type,
    static_shape,
    tensor_type,
)

_TERM = r"[a-zA-Z]*(\.\.\.[a-zA-Z]*)?"
_EQUATION = re.compile(f"{_TERM}(,{_TERM})*(->{_TERM})?")
"""Equations of Einsum, without spaces."""


class InferenceError(Exception):
    """The node contradicts its operator's definition."""


def schema_of(node: NodeProto, source: Source) -> defs.OpSchema | None:
    """Return the schema of a node's operator at the model's opset; None for an unknown one."""
    domain = domain_of(node)
    try:
        return defs.get_schema(node.op_type, source.opsets.get(domain, 1), domain)
    except (defs.SchemaError, TypeError):  # the second of a name that is no text
        return None


def drop_unknown_attributes(node: NodeProto, source: Source) -> list[str]:
    """Drop the attributes of a node that its operator does not have; return their names."""
    schema = schema_of(node, source)
    known = schema.attributes if schema else {a.name for a in node.attribute}
    unknown = dict.fromkeys(a.name for a in node.attribute if a.name not in known)
    kept = [a for a in node.attribute if a.name in known]
    if unknown:
        del node.attribute[:]
        node.attribute.extend(kept)
    return list(unknown)


def infer(
    node: NodeProto, schema: defs.OpSchema, inputs: Mapping[str, Value], source: Source
) -> dict[str, TypeProto]:
    """Return the types of a node's outputs by name, as far as its inputs determine them.

    Args:
        node: The node.
        schema: The definition of the node's operator.
        inputs: Its inputs, and the outer values that its bodies read, by name.
        source: The file that the versions of operators come from.

    Raises:
        InferenceError: Shapes or types do not fit together.
    """
    if any(element_type(value.type) == 0 for value in inputs.values()):
        return {}
    if node.op_type == "Einsum" and not domain_of(node):
        _check_equation(node)
    try:
        if schema.has_type_and_shape_inference_function:
            return _by_definition(node, schema, inputs, source)
        return _by_body(node, inputs, source) if _has_body(schema) else {}
    except Exception as error:  # the library raises its own classes and RuntimeError
        raise InferenceError(str(error)) from error


def _by_definition(
    node: NodeProto, schema: defs.OpSchema, inputs: Mapping[str, Value], source: Source
) -> dict[str, TypeProto]:
    data = {
        name: numpy_helper.from_array(value.data, name)
        for name, value in inputs.items()
        if value.data is not None and value.data.size <= SMALL
    }
    return shape_inference.infer_node_outputs(
        schema,
        _with_default(node),
        {name: value.type for name, value in inputs.items()},
        data,
        opset_imports=[helper.make_opsetid(*opset) for opset in source.opsets.items()],
        ir_version=source.ir_version,
    )


def _check_equation(node: NodeProto) -> None:
    """Refuse an equation with other signs in it: ONNX goes round for ever at a lone dot.

    Raises:
        InferenceError: It is none.
    """
    equation = next(
        (a.s.decode(errors="replace") for a in node.attribute if a.name == "equation"), ""
    )
    if not _EQUATION.fullmatch(equation.replace(" ", "")):
        raise InferenceError(f"{equation!r:.40} is no equation, as 'ij,jk->ik' is one")


def _with_default(node: NodeProto) -> NodeProto:
    """Return an STFT with an explicit one-sided attribute.

    One-sided is the default by definition and in runtimes, but inference assumes two-sided.
    """
    if node.op_type != "STFT" or any(item.name == "onesided" for item in node.attribute):
        return node
    copy = NodeProto()
    copy.CopyFrom(node)
    copy.attribute.append(helper.make_attribute("onesided", 1))
    return copy


def _has_body(schema: defs.OpSchema) -> bool:
    """Return whether ONNX defines an operator by others."""
    known: Any = schema
    return bool(known.has_function or known.has_context_dependent_function)


def _by_body(node: NodeProto, inputs: Mapping[str, Value], source: Source) -> dict[str, TypeProto]:
    """Return the types that the body of an operator without an inference of its own has."""
    given = [helper.make_value_info(name, value.type) for name, value in inputs.items()]
    made = [helper.make_empty_tensor_value_info(name) for name in node.output if name]
    opsets = [helper.make_opsetid(*opset) for opset in source.opsets.items()]
    graph = helper.make_graph([node], "node", given, made)
    model = helper.make_model(graph, opset_imports=opsets, ir_version=source.ir_version)
    inferred = shape_inference.infer_shapes(model, strict_mode=True)
    return {value.name: value.type for value in inferred.graph.output}


def merge(first: TypeProto | None, second: TypeProto | None) -> TypeProto:
    """Return the first type, its open extents taken from the second if the ranks agree."""
    if first is None or element_type(first) == 0:
        return second or first or TypeProto()
    if second is None or static_shape(first) is not None or not _is_tensor(first, second):
        return first
    merged = TypeProto()
    merged.CopyFrom(first)
    shape, second_shape = merged.tensor_type.shape, second.tensor_type.shape
    if not merged.tensor_type.HasField("shape"):
        shape.CopyFrom(second_shape)
    elif len(shape.dim) == len(second_shape.dim):
        for dim, known in zip(shape.dim, second_shape.dim, strict=True):
            if not dim.HasField("dim_value"):
                dim.CopyFrom(known)
    return merged


def _is_tensor(first: TypeProto, second: TypeProto) -> bool:
    return bool(
        first.HasField("tensor_type")
        and second.HasField("tensor_type")
        and second.tensor_type.HasField("shape")
    )


# ---------------------------------------------------------------------------- operators with a rule

Shape = tuple[int, ...]
Rule = Callable[[Step], Shape]
"""The shape of a node's first output; raises LookupError or ValueError where inputs do not say."""


def foreign_types(step: Step) -> dict[str, TypeProto]:
    """Return the types of the outputs of operators that ONNX does not infer, as far as known.

    Operators of ONNX Runtime are common in optimised and quantised models. Each has the shape of
    its first input, of a standard operator, or of a matrix product.

    Args:
        step: The node; its outputs need not be filled in.
    """
    if domain_of(step.node) == _CLASSICAL and step.node.op_type in _CLASSIFIERS:
        return _labels_and_scores(step)
    shape = _by_rule(step, _FOREIGN)
    typed = _TYPE_FROM.get(step.node.op_type, 0)
    if shape is None or typed >= len(step.inputs):
        return {}
    real = domain_of(step.node) == _CLASSICAL and step.node.op_type != "Imputer"
    element = TensorProto.FLOAT if real else element_type(_value(step, typed).type)
    kind = tensor_type(element, shape)
    alike = (0, _SUM) if step.node.op_type in _SKIP else (0,)
    return {name: kind for k, name in enumerate(step.node.output) if name and k in alike}


def _by_rule(step: Step, rules: Mapping[tuple[str, str], Rule]) -> Shape | None:
    rule = rules.get((domain_of(step.node), step.node.op_type))
    if rule is None or any(value and value.shape is None for value in step.inputs):
        return None
    try:
        return rule(step)
    except (LookupError, ValueError, TypeError):
        return None


def _value(step: Step, position: int) -> Value:
    value = step.inputs[position]
    if value is None:
        raise LookupError(position)
    return value


def _shape(step: Step, position: int) -> Shape:
    return _value(step, position).shape or ()


def _like_first(step: Step) -> Shape:
    return _shape(step, 0)


def _quantised_pair(step: Step) -> Shape:
    """Return the shape of a quantised operation: each operand is values, scale, zero point."""
    return np.broadcast_shapes(_shape(step, 0), _shape(step, 3))


def _matmul(step: Step) -> Shape:
    """Return the shape of a matrix product with optionally transposed operands."""
    left, right = (
        (*shape[:-2], shape[-1], shape[-2]) if integer_of(step.node, flag) else shape
        for shape, flag in ((_shape(step, 0), "transA"), (_shape(step, 1), "transB"))
    )
    if left[-1] != right[-2]:
        raise ValueError(step.name)
    return (*np.broadcast_shapes(left[:-2], right[:-2]), left[-2], right[-1])


def _n_bits(step: Step) -> Shape:
    return (*_shape(step, 0)[:-1], integer_of(step.node, "N"))


def _attention(step: Step) -> Shape:
    """Return ``[batch, sequence, hidden]``: the packed weight makes query, key and value."""
    sizes = [n for a in step.node.attribute if a.name == "qkv_hidden_sizes" for n in a.ints]
    return (*_shape(step, 0)[:-1], sizes[-1] if sizes else _shape(step, 1)[-1] // 3)


def _multi_head(step: Step) -> Shape:
    """Return ``[batch, sequence, hidden of the value]``."""
    query, value = _shape(step, 0), _shape(step, 2)
    if len(query) != 3 or len(value) != 3:  # noqa: PLR2004 - packed forms say less
        raise ValueError(step.name)
    return (*query[:-1], value[-1])


def _gathered_blocks(step: Step) -> Shape:
    """Return the shape of gathered rows; a byte holds one number of 8 bits or two of 4."""
    table, picks = _shape(step, 0), _shape(step, 1)
    per_byte = 8 // (integer_of(step.node, "bits") or 4) if _value(step, 0).dtype == "uint8" else 1
    return (*picks, *table[1:-1], table[-1] * per_byte)


def _labels_and_scores(step: Step) -> dict[str, TypeProto]:
    """Return the types of a classifier's outputs: a label per row, and a score of each label."""
    labels = {
        a.name: len(a.strings or a.ints)
        for a in step.node.attribute
        if a.name.startswith("classlabels_") and (a.strings or a.ints)
    }
    shape = step.inputs[0].shape if step.inputs and step.inputs[0] else None
    if not labels or shape is None:
        return {}
    name, classes = next(iter(labels.items()))
    element = TensorProto.STRING if name.endswith("strings") else TensorProto.INT64
    rows = shape[0] if len(shape) > 1 else 1
    kinds = tensor_type(element, (rows,)), tensor_type(TensorProto.FLOAT, (rows, classes))
    return {name: kind for name, kind in zip(step.node.output, kinds, strict=False) if name}


def _per_row(count: Callable[[NodeProto], int]) -> Rule:
    """Return the rule of an operator that makes so many numbers of every row."""

    def rule(step: Step) -> Shape:
        first = _shape(step, 0)
        return (first[0] if len(first) > 1 else 1, count(step.node))

    return rule


_CLASSICAL = "ai.onnx.ml"
"""The domain of classical models; ONNX infers the shapes of some of them."""

_CLASSIFIERS = frozenset(("SVMClassifier", "TreeEnsembleClassifier"))
"""Operators of that domain that make labels and scores."""

_SKIP = ("SkipLayerNormalization", "SkipSimplifiedLayerNormalization")
_SUM = 3
"""Output of the skip normalisations that holds the sum, of the same shape as the first."""

_TYPE_FROM = {"QuantizeLinear": 2, "DequantizeLinear": 1, "GatherBlockQuantized": 2}
"""Inputs whose element type the output has, where it is not the first one's."""

_LIKE_FIRST = (
    "Gelu", "FastGelu", "BiasGelu", "QuickGelu", "RotaryEmbedding", *_SKIP, "MoE", "QMoE",
    "QuantizeLinear", "DequantizeLinear", "GroupQueryAttention", "QLinearSigmoid",
    "QLinearLeakyRelu", "QLinearSoftmax",
)  # fmt: skip

_FOREIGN: dict[tuple[str, str], Rule] = {
    # Without a domain: unknown to ONNX, or to earlier opsets of it.
    ("", "SimplifiedLayerNormalization"): _like_first,
    ("", "LayerNormalization"): _like_first,
    # Defined by bodies that ONNX's inference does not get through.
    ("", "GroupNormalization"): _like_first,
    ("", "MeanVarianceNormalization"): _like_first,
    **{(MICROSOFT, op_type): _like_first for op_type in _LIKE_FIRST},
    (MICROSOFT, "GatherBlockQuantized"): _gathered_blocks,
    (MICROSOFT, "QLinearAdd"): _quantised_pair,
    (MICROSOFT, "QLinearMul"): _quantised_pair,
    (MICROSOFT, "FusedMatMul"): _matmul,
    (MICROSOFT, "FusedGemm"): _matmul,
    (MICROSOFT, "MatMulNBits"): _n_bits,
    (MICROSOFT, "Attention"): _attention,
    (MICROSOFT, "MultiHeadAttention"): _multi_head,
    **{(_CLASSICAL, op_type): _like_first for op_type in ("Imputer", "Normalizer", "Scaler")},
    (_CLASSICAL, "LinearRegressor"): _per_row(lambda node: integer_of(node, "targets", 1)),
    (_CLASSICAL, "SVMRegressor"): _per_row(lambda _: 1),
    (_CLASSICAL, "TreeEnsembleRegressor"): _per_row(lambda node: integer_of(node, "n_targets", 1)),
    (_CLASSICAL, "FeatureVectorizer"): _per_row(
        lambda node: sum(n for a in node.attribute if a.name == "inputdimensions" for n in a.ints)
    ),
}


# ---------------------------------------------------------------------- extents that depend on data


_BOX_COLUMNS = 3
"""NonMaxSuppression answers batch, class and box per row."""


def upper_bounds(step: Step, types: Mapping[str, TypeProto]) -> dict[str, TypeProto]:
    """Return the types of outputs whose extents are unknown but bounded.

    ``NonZero`` finds at most every element, ``NonMaxSuppression`` keeps at most every box, a
    ``Loop`` of known trip count runs at most that often and carries values that keep their shape.

    Args:
        step: The node.
        types: The known types of its outputs.
    """
    if step.node.op_type == "Loop" and not domain_of(step.node):
        return _loop(step, types)
    shape = _by_rule(step, _BOUNDS)
    if shape is None:
        return {}
    same = step.node.op_type == "Compress"  # of opset 9, of which ONNX infers nothing
    element = element_type(_value(step, 0).type) if same else TensorProto.INT64
    return {
        name: tensor_type(element_type(kind) or element, shape if first else shape[-1:])
        for first, (name, kind) in zip((True, False, False, False), types.items(), strict=False)
    }


def _nonzero(step: Step) -> Shape:
    shape = _shape(step, 0)
    return (max(len(shape), 1), math.prod(shape))


def _boxes(step: Step) -> Shape:
    (_, kept, _), (batch, classes, _) = _shape(step, 0), _shape(step, 1)
    limit = step.inputs[2] if len(step.inputs) > 2 else None  # noqa: PLR2004 - ONNX's position
    if limit is not None and limit.data is not None:
        kept = min(kept, int(limit.data.ravel()[0]))
    return (batch * classes * kept, _BOX_COLUMNS)


def _flat_or_axis(step: Step) -> Shape:
    """Return the shape of Unique and Compress: all elements, or the extent of their axis."""
    shape = _shape(step, 0)
    whole = any(attribute.name == "axis" for attribute in step.node.attribute)
    return shape if whole else (math.prod(shape),)


_BOUNDS: dict[tuple[str, str], Rule] = {
    ("", "NonZero"): _nonzero,
    ("", "NonMaxSuppression"): _boxes,
    ("", "Compress"): _flat_or_axis,
    ("", "Unique"): _flat_or_axis,
}


def _loop(step: Step, types: Mapping[str, TypeProto]) -> dict[str, TypeProto]:
    """Return a Loop's types: carried values keep their shape, stacked ones grow per trip."""
    most = step.inputs[0] if step.inputs else None
    longest = None if most is None or most.data is None else int(most.data.ravel()[0])
    longest = longest if step.trips is None else step.trips
    bounded = {}
    for position, name in enumerate(step.node.output):
        kind = types.get(name)
        if kind is None or static_shape(kind) is not None:
            continue
        carried = step.inputs[position + 2] if position + 2 < len(step.inputs) else None
        shape = _stacked(kind, longest) if carried is None else carried.shape
        if shape is not None:
            bounded[name] = tensor_type(element_type(kind), shape)
    return bounded


def _stacked(kind: TypeProto, trips: int | None) -> Shape | None:
    """Return the shape of an output with one entry per trip."""
    dims = dims_of(kind)
    if trips is None or not dims or dims[0] is not None or None in dims[1:]:
        return None
    return (trips, *(int(dim or 0) for dim in dims[1:]))
