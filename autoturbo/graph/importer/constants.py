"""Gathers the constants of a file: those of bodies and sparse ones become stored ones of the graph.

A constant that the body of an ``If`` or a ``Loop`` holds is a weight like any other: it is counted,
given a place and written once, wherever the body is written. Sparse constants are dense in
runtimes, and few operators are defined on them.
"""

from __future__ import annotations

import math
from collections import Counter
from itertools import count
from typing import TYPE_CHECKING

import numpy as np
from onnx import GraphProto, NodeProto, SparseTensorProto, TensorProto, helper, numpy_helper

from autoturbo.graph.importer.external_data import inline_bytes, left_out, most_elements, restore
from autoturbo.graph.source import domain_of, one_line
from autoturbo.graph.structure import (
    bodies,
    initializer_names,
    nodes_in,
    rename_read,
    stored_tensor,
)

if TYPE_CHECKING:
    from autoturbo.graph.source import Source

_MOST_DENSE = 1 << 28
"""Elements up to which a sparse constant is taken as a dense one."""


def gather(graph: GraphProto) -> None:
    """Move the constants of bodies, and sparse Constant nodes, to the constants of the graph.

    One whose name stands for something else elsewhere in the file gets another.
    """
    _store_nodes(graph, dense=False)
    inner = [body for node in nodes_in(graph.node) for body in bodies(node)]
    names = Counter(name for one in (graph, *inner) for name in _defined(one)) if inner else None
    for body in inner:
        if names is not None and max(Counter(_defined(body)).values(), default=1) == 1:
            _store_nodes(body, dense=True)
            _take(body, graph, names)


def _defined(graph: GraphProto) -> list[str]:
    """Return the names that a graph defines, without its bodies."""
    inputs = (value.name for value in graph.input)
    outputs = (name for node in graph.node for name in node.output if name)
    return [*initializer_names(graph), *inputs, *outputs]


def _store_nodes(graph: GraphProto, *, dense: bool) -> None:
    """Make stored constants of sparse Constant nodes, and of dense ones if asked."""
    for node in list(graph.node):
        tensor, sparse = stored_tensor(node), _sparse_tensor(node)
        if sparse is not None:
            graph.sparse_initializer.add().CopyFrom(sparse)
            graph.sparse_initializer[-1].values.name = node.output[0]
        elif dense and tensor is not None:
            graph.initializer.add().CopyFrom(tensor)
            graph.initializer[-1].name = node.output[0]
        else:
            continue
        graph.node.remove(node)


def _sparse_tensor(node: NodeProto) -> SparseTensorProto | None:
    if node.op_type != "Constant" or domain_of(node):
        return None
    return next((a.sparse_tensor for a in node.attribute if a.name == "sparse_value"), None)


def _take(body: GraphProto, graph: GraphProto, names: Counter[str]) -> None:
    """Move the constants of a body; those that it returns it passes on by an Identity."""
    returned = {value.name for value in body.output}
    moved: dict[str, str] = {}
    for tensor in (*body.initializer, *(sparse.values for sparse in body.sparse_initializer)):
        old = tensor.name
        if names[old] > 1 or old in returned:
            tensor.name = next(n for k in count(2) if not names[n := f"{old}_{k}"])
        names[tensor.name] += 1
        moved[old] = tensor.name
    graph.initializer.extend(body.initializer)
    graph.sparse_initializer.extend(body.sparse_initializer)
    del body.initializer[:], body.sparse_initializer[:]
    rename_read(body, moved)
    back = {moved[old]: old for old in returned if old in moved}
    for value in body.output:
        value.name = back.get(value.name, value.name)
    body.node.extend(helper.make_node("Identity", [new], [old], old) for new, old in back.items())


def densify(graph: GraphProto, source: Source, *, whole: bool) -> None:
    """Make the sparse constants of a graph dense, as runtimes do when they load it.

    Args:
        graph: Graph of the file, its constants attached.
        source: Names the file.
        whole: Make the elements of large ones, too.

    Raises:
        ModelError: One is not as its definition says, or too large.
    """
    for sparse in graph.sparse_initializer:
        try:
            graph.initializer.append(_dense(sparse, source, whole=whole))
        except (ValueError, TypeError, LookupError, OSError) as error:
            message = f"the sparse constant cannot be read: {one_line(error)}"
            raise source.error(message, sparse.values.name, "store it dense") from None
    del graph.sparse_initializer[:]


def _dense(sparse: SparseTensorProto, source: Source, *, whole: bool) -> TensorProto:
    size = math.prod(sparse.dims)
    if size > _MOST_DENSE:
        raise ValueError(f"it has more than {_MOST_DENSE} elements")
    values, places = (_array(tensor, source) for tensor in (sparse.values, sparse.indices))
    if places.ndim > 1:
        places = np.ravel_multi_index(tuple(places.T), tuple(sparse.dims))
    if len(places) != len(values) or (places.size and not 0 <= places.min() <= places.max() < size):
        raise ValueError(f"its positions are not those of {len(values)} elements of {size}")
    if not whole and size > most_elements(sparse.values.data_type):
        return left_out(sparse.values.name, sparse.values.data_type, sparse.dims)
    array = np.zeros(size, values.dtype)
    array[places] = values
    return numpy_helper.from_array(array.reshape(tuple(sparse.dims)), sparse.values.name)


def _array(tensor: TensorProto, source: Source) -> np.ndarray:
    """Return the elements of a part of a sparse constant, read now if they were skipped."""
    if inline_bytes(tensor) is not None:
        restore(tensor, source.path)
    return np.asarray(numpy_helper.to_array(tensor, str(source.path.absolute().parent)))
