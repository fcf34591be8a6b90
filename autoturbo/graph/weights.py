"""Which graph inputs are weights: exporters can leave the parameters out of the file.

``torch.onnx.export(export_params=False)`` writes every parameter as a plain input. An input is a
weight if it is read only where parameters are read (a convolution's kernel, the matrix of a matrix
product, scale and bias of a normalisation) while another input is not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from onnx import GraphProto, ValueInfoProto

from autoturbo.graph.source import Source
from autoturbo.graph.structure import captured_names, initializer_names

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
"""Input positions that hold parameters, whatever their rank."""

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
    """Inputs that change from call to call, and the names of the inputs that are weights.

    Initializers are no inputs, though they may be listed as such (before IR version 4).
    """
    stored = set(initializer_names(graph))
    plain = [value for value in graph.input if value.name not in stored]
    ranks = {value.name: len(value.type.tensor_type.shape.dim) for value in plain}
    readers = _readers(graph, _views_of(graph))
    weights = {n for n in ranks if _all(readers.get(n), ranks[n], _is_parameter)}
    if weights:
        weights |= {n for n in ranks if _all(readers.get(n), ranks[n], _is_companion)}
    if not weights or len(weights) == len(plain):
        return plain, set()
    source.note(
        f"{len(weights)} inputs without values are read only as parameters and taken for weights"
        if len(weights) > 1
        else f"input {min(weights)!r} is read only as a parameter and taken for a weight"
    )
    return [value for value in plain if value.name not in weights], weights


def _views_of(graph: GraphProto) -> dict[str, str]:
    """The value behind each transposed, reshaped or converted one."""
    origin: dict[str, str] = {}
    for node in graph.node:
        if node.op_type in _VIEWS and node.input and node.output:
            origin[node.output[0]] = origin.get(node.input[0], node.input[0])
    return origin


def _readers(graph: GraphProto, origin: dict[str, str]) -> dict[str, list[Reader]]:
    """Nodes and positions that read each value, views looked through."""
    readers: dict[str, list[Reader]] = {}
    for node in graph.node:
        if node.op_type in _VIEWS and not node.domain:
            continue
        for position, name in enumerate((*node.input, *captured_names(node))):
            readers.setdefault(origin.get(name, name), []).append((node.op_type, position))
    for value in graph.output:
        readers.setdefault(origin.get(value.name, value.name), []).append((_OUTPUT, 0))
    return readers


def _all(
    readers: Sequence[Reader] | None, rank: int, accepts: Callable[[Reader, int], bool]
) -> bool:
    return bool(readers) and all(accepts(reader, rank) for reader in readers or ())


def _is_parameter(reader: Reader, rank: int) -> bool:
    """Whether a value of this rank is read where only parameters are."""
    kind, position = reader
    return position in PARAMETERS.get(kind, ()) or (reader == _MATRIX and rank == _MATRIX_RANK)


def _is_companion(reader: Reader, rank: int) -> bool:
    """Whether it may be one too, given that other inputs are parameters."""
    addend = reader[0] in _ADDENDS and rank <= 1
    table = reader == _TABLE and rank == _MATRIX_RANK
    return addend or table or _is_parameter(reader, rank)
