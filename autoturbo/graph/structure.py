"""Names and order of the nodes of a graph: what is defined where, and in which order it can run.

And which dimension of an input counts samples, where that is not the first: recurrent nets go
through time in front of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from onnx import GraphProto, NodeProto, TensorProto, numpy_helper

from autoturbo.graph.ordering import in_topological_order
from autoturbo.graph.source import Source, domain_of, label


def bodies(node: NodeProto) -> Iterator[GraphProto]:
    """The graphs inside a node of control flow."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def nodes_in(nodes: Iterable[NodeProto]) -> Iterator[NodeProto]:
    """Nodes and those in their bodies of control flow."""
    for node in nodes:
        yield node
        for body in bodies(node):
            yield from nodes_in(body.node)


def captured_names(node: NodeProto) -> list[str]:
    """Names that the bodies of a node read from outside, in the order of their first use."""
    return list(dict.fromkeys(name for body in bodies(node) for name in free_names(body)))


def free_names(graph: GraphProto) -> Iterator[str]:
    """Names that a body reads from outside."""
    defined = {value.name for value in graph.input} | set(initializer_names(graph))
    defined.update(name for node in graph.node for name in node.output)
    for node in graph.node:
        yield from (n for n in (*node.input, *captured_names(node)) if n and n not in defined)
    yield from (value.name for value in graph.output if value.name not in defined)


def initializer_names(graph: GraphProto) -> list[str]:
    """Names of the values stored in a graph."""
    dense = [tensor.name for tensor in graph.initializer]
    return dense + [tensor.values.name for tensor in graph.sparse_initializer]


def check_names(graph: GraphProto, outer: Iterable[str], source: Source) -> None:
    """Refuse names that are defined twice or not at all.

    Args:
        graph: the graph, or a body of control flow.
        outer: names that it may read from outside.
        source: where it is from.

    Raises:
        ModelError: naming the value and the node.
    """
    stored = initializer_names(graph)
    inputs = [value.name for value in graph.input]
    made = [name for node in graph.node for name in node.output if name]
    for names in (stored, inputs, [*made, *set(inputs).union(stored)]):
        for name, times in Counter(names).items():
            if times > 1:
                raise source.error(f"defined {times} times", name, "every value has one origin")
    known = {*stored, *inputs, *made, *outer}
    for node in graph.node:
        for name in (*node.input, *captured_names(node)):
            if name and name not in known:
                raise source.error(f"reads {name!r}, which nothing defines", label(node))
    for value in graph.output:
        if value.name not in known:
            raise source.error("is an output of the graph, but nothing defines it", value.name)


def in_order(nodes: Sequence[NodeProto], source: Source) -> list[NodeProto]:
    """The nodes in topological order, as near to the file's order as it allows.

    Raises:
        ModelError: the nodes form a cycle.
    """
    maker = {name: i for i, node in enumerate(nodes) for name in node.output if name}
    needs = [
        {maker[name] for name in (*node.input, *captured_names(node)) if name in maker}
        for node in nodes
    ]
    order, around = in_topological_order(needs)
    if around:
        first = around.index(min(around))
        cycle = [label(nodes[i]) for i in (*around[first:-1], *around[:first], around[first])]
        raise source.error(f"the graph has a cycle: {' -> '.join(_shortened(cycle))}")
    return [nodes[index] for index in order]


_SHOWN = 4
"""Nodes of a cycle that a message names."""


def _shortened(names: list[str]) -> list[str]:
    return names if len(names) <= _SHOWN + 1 else [*names[:_SHOWN], "...", names[-1]]


# ------------------------------------------------------------------------------ where samples are

_SAMPLES = {"LSTM": (0, 5, 6), "GRU": (0, 5), "RNN": (0, 5)}
"""Inputs of recurrences that have the samples second: behind time, or behind the directions."""

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
    """Return the dimension that counts samples, of the inputs of recurrent nets.

    Followed back from recurrences that go through time in front of the samples; other inputs have
    them in front.

    Returns:
        By input name; :data:`NO_SAMPLES` of one that gets the dimension inside the model.
    """
    makers = {name: node for node in graph.node for name in node.output if name}
    stored = {tensor.name: tensor for tensor in graph.initializer}
    inputs = {value.name for value in graph.input} - stored.keys()
    found: dict[str, int] = {}
    seen: set[tuple[str, int]] = set()
    ahead = [
        (node.input[place], 1)
        for node in graph.node
        if node.op_type in _SAMPLES and not domain_of(node) and not sum(_integers(node, "layout"))
        for place in _SAMPLES[node.op_type]
        if place < len(node.input)
    ]
    while ahead:
        name, dim = ahead.pop()
        if (name, dim) in seen:
            continue
        seen.add((name, dim))
        if name in inputs:
            found.setdefault(name, dim)
        elif name in makers:
            ahead += _before(makers[name], dim, makers, stored)
    return found


def _before(
    node: NodeProto,
    dim: int,
    makers: Mapping[str, NodeProto],
    stored: Mapping[str, TensorProto],
) -> list[tuple[str, int]]:
    """Where the inputs of a node have what its output has in a dimension; empty if not known."""
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
    """A dimension before some others went away, or came; empty where it is not known."""
    if not axes or axes[0] < 0:
        return []
    if not gone and dim in axes:
        return [(name, NO_SAMPLES)]
    for axis in axes if gone else ():
        dim += axis <= dim
    return [(name, dim if gone else dim - sum(axis < dim for axis in axes))]


def _numbers(tensor: TensorProto) -> list[int]:
    """The elements of a small tensor, empty where they cannot be read."""
    try:
        return [int(number) for number in numpy_helper.to_array(tensor).ravel()]
    except (ValueError, TypeError, LookupError, OSError):
        return []


def _constant(
    name: str, makers: Mapping[str, NodeProto], stored: Mapping[str, TensorProto]
) -> TensorProto | None:
    """The small tensor of a name, None where it is none."""
    if name in stored:
        return stored[name]
    node = makers.get(name)
    values = () if node is None or node.op_type != "Constant" else node.attribute
    return next((one.t for one in values if one.name == "value"), None)


def _integers(node: NodeProto, name: str) -> list[int]:
    """The numbers of an attribute, empty where it is not given."""
    found = next((one for one in node.attribute if one.name == name), None)
    return [] if found is None else [found.i] if found.type == found.INT else list(found.ints)
