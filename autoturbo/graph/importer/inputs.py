"""Inputs of a graph: which are weights, and which dimension of the others counts samples.

Exporters can leave the parameters out of the file.

``torch.onnx.export(export_params=False)`` writes every parameter as a plain input. An input is a
weight if it is read only where parameters are read (a convolution's kernel, the matrix of a matrix
product, scale and bias of a normalisation) while another input is not.

Some operators have a place for samples: recurrences behind time, those on images in front.
:mod:`~autoturbo.graph.importer.samples` asks what they say of the inputs.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import starmap

from onnx import GraphProto, NodeProto, TensorProto, ValueInfoProto, numpy_helper

from autoturbo.graph.source import Source, domain_of
from autoturbo.graph.structure import captured_names, initializer_names, stored_tensor

PARAMETERS: dict[str, tuple[int, ...]] = {
    "Conv": (1, 2),
    "ConvTranspose": (1, 2),
    "Gemm": (1, 2),
    "BatchNormalization": (1, 2, 3, 4),
    "InstanceNormalization": (1, 2),
    "LayerNormalization": (1, 2),
    "GroupNormalization": (1, 2),
    "RMSNormalization": (1,),
    "PRelu": (1,),
    "LSTM": (1, 2, 3),
    "GRU": (1, 2, 3),
    "RNN": (1, 2, 3),
}
"""Input positions that hold parameters of any rank."""

_MATRIX = ("MatMul", 1)
"""Reads a parameter where the operand is a plain matrix."""

_TABLE = ("Gather", 0)
"""Reads an embedding table where the operand is a plain matrix, if the model has weights."""

_VIEWS = frozenset(("Transpose", "Reshape", "Unsqueeze", "Squeeze", "Flatten", "Cast", "Identity"))
"""Operators that a weight may pass through on its way."""

_ADDENDS = frozenset(("Add", "Sub", "Mul", "Div"))
"""Operators whose operand of one dimension is a bias or a scale, if the model has weights."""

_MATRIX_RANK = 2

Reader = tuple[str, int]
"""Operator type and input position."""

_OUTPUT = "(output of the graph)"


def real_inputs(graph: GraphProto, source: Source) -> tuple[list[ValueInfoProto], set[str]]:
    """Return the inputs that change from call to call, and the names of those that are weights.

    Initializers are no inputs, though they may be listed as such (before IR version 4).
    """
    stored = set(initializer_names(graph))
    plain = [value for value in graph.input if value.name not in stored]
    ranks = {value.name: len(value.type.tensor_type.shape.dim) for value in plain}
    readers = _readers(graph, _views_of(graph))
    read = {
        name: [(reader, rank) for reader in readers.get(name, ())] for name, rank in ranks.items()
    }
    weights = {name for name, uses in read.items() if uses and all(starmap(_is_parameter, uses))}
    if weights:
        # Addends and tables alone prove nothing: any two inputs may be added.
        weights |= {n for n, uses in read.items() if uses and all(starmap(_is_companion, uses))}
    # A model of weights alone computes nothing: then they are its inputs.
    if not weights or len(weights) == len(plain):
        return plain, set()
    source.note(
        f"{len(weights)} inputs without values are read only as parameters and taken for weights"
        if len(weights) > 1
        else f"input {min(weights)!r} is read only as a parameter and taken for a weight"
    )
    return [value for value in plain if value.name not in weights], weights


def _views_of(graph: GraphProto) -> dict[str, str]:
    """Return the source of each transposed, reshaped or converted value."""
    origin: dict[str, str] = {}
    for node in graph.node:
        if node.op_type in _VIEWS and node.input and node.output:
            origin[node.output[0]] = origin.get(node.input[0], node.input[0])
    return origin


def _readers(graph: GraphProto, origin: dict[str, str]) -> dict[str, list[Reader]]:
    """Return the nodes and input positions that read each value, through views."""
    readers: dict[str, list[Reader]] = {}
    for node in graph.node:
        if node.op_type in _VIEWS and not node.domain:
            continue
        for position, name in enumerate((*node.input, *captured_names(node))):
            readers.setdefault(origin.get(name, name), []).append((node.op_type, position))
    for value in graph.output:
        readers.setdefault(origin.get(value.name, value.name), []).append((_OUTPUT, 0))
    return readers


def _is_parameter(reader: Reader, rank: int) -> bool:
    """Return whether a reader takes only parameters at this input, for a value of this rank."""
    kind, position = reader
    return position in PARAMETERS.get(kind, ()) or (reader == _MATRIX and rank == _MATRIX_RANK)


def _is_companion(reader: Reader, rank: int) -> bool:
    """Return whether a reader may take a parameter here if its other inputs are parameters."""
    addend = reader[0] in _ADDENDS and rank <= 1
    table = reader == _TABLE and rank == _MATRIX_RANK
    return addend or table or _is_parameter(reader, rank)


# ------------------------------------------------------------------------------ where samples are

_RECURRENCES = {"LSTM": (0, 5, 6), "GRU": (0, 5), "RNN": (0, 5)}
"""Inputs of recurrences that have the samples second: behind time, or behind the directions."""

_IMAGES = frozenset(
    ("Conv", "ConvTranspose", "AveragePool", "MaxPool", "LpPool", "GlobalAveragePool",
     "GlobalMaxPool", "BatchNormalization", "InstanceNormalization", "GroupNormalization", "LRN",
     "DepthToSpace", "SpaceToDepth", "RoiAlign", "MaxRoiPool")
)  # fmt: skip
"""Operators whose first input has the samples first."""

_FIRST_ONLY = frozenset(
    ("MatMul", "LayerNormalization", "Clip", "Slice", "Split", "Dropout", "Cast")
)
"""Operators whose first input has the dimensions of the output, up to the last."""

_IN_PLACE = _FIRST_ONLY | frozenset(
    ("Identity", "Relu", "Tanh", "Sigmoid", "Gelu", "Elu", "Softmax", "Neg", "Concat", "Add", "Sub",
     "Mul", "Div", "Where")
)  # fmt: skip
"""Operators that leave samples in their dimension."""


NO_SAMPLES = -1
"""The dimension of samples where there is none: the model is for one."""


def sample_dims(graph: GraphProto) -> dict[str, int]:
    """Return the dimension that counts samples, of the inputs of which operators say it.

    It is traced back from recurrences, which have time before the samples, and from operators on
    images, which have the samples first.

    Returns:
        By input name; :data:`NO_SAMPLES` for one that gets the dimension inside the model.
    """
    makers = {name: node for node in graph.node for name in node.output if name}
    stored = {tensor.name: tensor for tensor in graph.initializer}
    inputs = {value.name for value in graph.input} - stored.keys()
    dims_by_input: dict[str, int] = {}
    seen: set[tuple[str, int]] = set()
    nodes = [node for node in graph.node if not domain_of(node)]
    ahead = [
        *((node.input[0], 0) for node in nodes if node.op_type in _IMAGES),
        *(
            (node.input[place], 1)
            for node in nodes
            if node.op_type in _RECURRENCES and not sum(_integers(node, "layout"))
            for place in _RECURRENCES[node.op_type]
            if place < len(node.input)
        ),
    ]
    while ahead:
        name, dim = ahead.pop()
        if (name, dim) in seen:
            continue
        seen.add((name, dim))
        if name in inputs:
            # The last operators pushed speak first: recurrences, whose samples are second.
            dims_by_input.setdefault(name, dim)
        elif name in makers:
            ahead += _before(makers[name], dim, makers, stored)
    return dims_by_input


def _before(
    node: NodeProto, dim: int, makers: Mapping[str, NodeProto], stored: Mapping[str, TensorProto]
) -> list[tuple[str, int]]:
    """Return the inputs of a node with the dimension that one of its output's comes from."""
    kind, (first, second) = node.op_type, (*node.input, "", "")[:2]
    if domain_of(node) or dim == NO_SAMPLES:
        return [(first, dim)] if dim == NO_SAMPLES else []
    if kind in _IN_PLACE:
        return [(name, dim) for name in (node.input[:1] if kind in _FIRST_ONLY else node.input)]
    constant = _constant(second, makers, stored)
    if kind == "Transpose":
        return [(first, order) for order in _integers(node, "perm")[dim : dim + 1]]
    if kind == "Gather":
        axis = sum(_integers(node, "axis"))
        looked_up = [(second, dim)] if first in stored and axis == 0 else []
        gone = constant is not None and not constant.dims and axis <= dim
        return looked_up if constant is None or axis < 0 else [(first, dim + gone)]
    if kind in ("Squeeze", "Unsqueeze"):
        axes = _integers(node, "axes") if constant is None else _numbers(constant)
        return _around(first, dim, sorted(axes), gone=kind == "Squeeze")
    return []


def _around(name: str, dim: int, axes: list[int], *, gone: bool) -> list[tuple[str, int]]:
    """Return a dimension's position before other dimensions were removed or inserted."""
    if not axes or axes[0] < 0:
        return []
    if not gone and dim in axes:
        return [(name, NO_SAMPLES)]
    for axis in axes if gone else ():
        dim += axis <= dim
    return [(name, dim if gone else dim - sum(axis < dim for axis in axes))]


def _numbers(tensor: TensorProto) -> list[int]:
    """Return the elements of a small tensor, or an empty list if they cannot be read."""
    try:
        return [int(number) for number in numpy_helper.to_array(tensor).ravel()]
    except (ValueError, TypeError, LookupError, OSError):
        return []


def _constant(
    name: str, makers: Mapping[str, NodeProto], stored: Mapping[str, TensorProto]
) -> TensorProto | None:
    """Return the small constant of a name, or None if there is none."""
    if name in stored or name not in makers:
        return stored.get(name)
    return stored_tensor(makers[name])


def _integers(node: NodeProto, name: str) -> list[int]:
    """Return the numbers of an attribute, or an empty list if it is not given."""
    item = next((candidate for candidate in node.attribute if candidate.name == name), None)
    return [] if item is None else [item.i] if item.type == item.INT else list(item.ints)
