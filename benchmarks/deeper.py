"""Deeper variants of residual networks, made by repeating a block of the file.

ResNet-101 is ResNet-50 with 23 instead of 6 blocks in its third stage (He et al., CVPR 2016,
table 1): the last block of that stage, which keeps its extents, is put behind itself 17 times. The
copies share its weights, which no schedule looks at.
"""

from __future__ import annotations

from collections.abc import Sequence

from onnx import GraphProto, ModelProto, NodeProto


def resnet101(resnet50: ModelProto) -> ModelProto:
    """Return ResNet-101, made from ResNet-50.

    Raises:
        ValueError: The model has no block ``layer3.5``.
    """
    return repeated(resnet50, "layer3.5.", 17)


def repeated(model: ModelProto, prefix: str, times: int) -> ModelProto:
    """Return a model with a block put behind itself.

    Args:
        model: Its weights' names begin with the name of their block.
        prefix: Of the weights of the block, which reads one value and makes one of the same shape.
        times: Copies.

    Raises:
        ValueError: No node reads a weight with the prefix.
    """
    graph = model.graph
    first, last = _extent(graph, prefix)
    block = list(graph.node[first : last + 1])
    made = {name for node in block for name in node.output}
    read = {name for node in block for name in node.input if name} - made
    (source,) = {name for name in read if _computed(graph, name)}
    result = block[-1].output[0]
    nodes, given = list(graph.node[: last + 1]), result
    for copy in range(times):
        names = {name: f"{name}_again{copy}" for name in made} | {source: given}
        nodes += [_renamed(node, names, copy) for node in block]
        given = names[result]
    behind = {result: given}
    nodes += [_renamed(node, behind, -1) for node in graph.node[last + 1 :]]
    deeper = ModelProto()
    deeper.CopyFrom(model)
    del deeper.graph.node[:]
    deeper.graph.node.extend(nodes)
    del deeper.graph.value_info[:]
    return deeper


def _extent(graph: GraphProto, prefix: str) -> tuple[int, int]:
    """Return a block's first and last node; what adds its input and clips the sum belongs to it."""
    own = [i for i, n in enumerate(graph.node) if any(t.startswith(prefix) for t in n.input)]
    if not own:
        raise ValueError(f"no node reads a weight of {prefix}*")
    last = own[-1]
    while graph.node[last + 1].op_type in {"Add", "Relu"}:
        last += 1
    return own[0], last


def _computed(graph: GraphProto, name: str) -> bool:
    """Return whether a name is made by a node that reads something: no weight and no constant."""
    return any(name in node.output and node.input for node in graph.node)


def _renamed(node: NodeProto, names: dict[str, str], copy: int) -> NodeProto:
    new = NodeProto()
    new.CopyFrom(node)
    _replace(new.input, names)
    if copy >= 0:
        _replace(new.output, names)
        new.name = f"{node.name}_again{copy}"
    return new


def _replace(field: Sequence[str], names: dict[str, str]) -> None:
    new = [names.get(name, name) for name in field]
    del field[:]  # type: ignore[attr-defined]
    field.extend(new)  # type: ignore[attr-defined]
