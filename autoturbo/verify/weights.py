"""Random weights, written once beside the models that refer to them.

The data file of a network need not be there: weights are made from a seed, each from a stream of
its own. Original and scheduled model name the same tensors and so read the same values.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

from autoturbo.atomic import atomic_writer
from autoturbo.graph.external_data import put_outside
from autoturbo.graph.weight_values import pieces
from autoturbo.verify.fills import Draw, draws

DATA_FILE = "weights.bin"

_INLINE = 128
"""Elements up to which a tensor stays in the model: shape inference may want to see it."""


@dataclass(frozen=True, slots=True)
class SeededWeights:
    """The random weights of a model.

    Attributes:
        folder: where the data file is; models that refer to it must be saved here.
        seed: that they were made from.
        tensors: by the name under which nodes read them: small ones whole, others references.
    """

    folder: Path
    seed: int
    tensors: Mapping[str, TensorProto]


def seeded_weights(
    model: ModelProto, folder: Path, seed: int, file: str = DATA_FILE
) -> SeededWeights:
    """Draw the weights of a model and write them to ``folder / file``.

    Args:
        model: without local functions; loaded without its external data, which may be missing.
        folder: an existing folder.
        seed: values depend on it and on the tensor's name only.
        file: name of the data file.

    Raises:
        UsageError: the file cannot be written.
    """
    stored = stored_tensors(model.graph)
    chosen = draws(model.graph, stored)
    tensors: dict[str, TensorProto] = {}
    with atomic_writer(folder / file) as stream:
        for name, draw in chosen.items():
            tensor = _empty(name, stored[name])
            _fill(tensor, draw, seed, stream, file)
            tensors[name] = tensor
    return SeededWeights(folder, seed, tensors)


def stored_tensors(graph: GraphProto) -> dict[str, TensorProto]:
    """The tensors stored in a graph, by the name under which its nodes read them."""
    stored = {tensor.name: tensor for tensor in graph.initializer}
    constants = ((node, _tensor_of(node)) for node in graph.node)
    return stored | {node.output[0]: tensor for node, tensor in constants if tensor is not None}


def _tensor_of(node: NodeProto) -> TensorProto | None:
    """The tensor of a Constant node; None where it holds plain numbers."""
    if node.op_type != "Constant":
        return None
    return next((a.t for a in node.attribute if a.name == "value"), None)


def _empty(name: str, like: TensorProto) -> TensorProto:
    return TensorProto(name=name, data_type=like.data_type, dims=like.dims)


def _fill(tensor: TensorProto, draw: Draw, seed: int, stream: BinaryIO, file: str) -> None:
    """Put the values of a tensor into it, or into the data file."""
    if math.prod(tensor.dims) <= _INLINE:
        tensor.raw_data = b"".join(_values(tensor, draw, seed))
        return
    put_outside(tensor, _values(tensor, draw, seed), stream, file)


def _values(tensor: TensorProto, draw: Draw, seed: int) -> Iterator[bytes]:
    if draw.fill is not None:
        yield from pieces(tensor, draw.fill, seed)
    elif draw.data is not None:
        dtype = helper.tensor_dtype_to_np_dtype(tensor.data_type)
        yield bytes(numpy_helper.from_array(draw.data.astype(dtype)).raw_data)


def with_weights(model: ModelProto, weights: SeededWeights) -> ModelProto:
    """A copy of a model that reads the random weights wherever it names one of them.

    Constants that hold a weight become initializers, which alone can be references.
    """
    copy = ModelProto()
    copy.CopyFrom(model)
    graph = copy.graph
    constants = [n for n in graph.node if _tensor_of(n) and n.output[0] in weights.tensors]
    for node in constants:
        graph.initializer.append(weights.tensors[node.output[0]])
        graph.node.remove(node)
    for tensor in graph.initializer:
        drawn = weights.tensors.get(tensor.name)
        if drawn is not None:
            tensor.CopyFrom(drawn)
    return copy
