"""The nodes of a body under names of their own, where it is put in the place of a node."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from onnx import AttributeProto, GraphProto, NodeProto


@dataclass(frozen=True, slots=True, eq=False)
class Renaming:
    """Gives the values of a body names of their own.

    Attributes:
        stem: in front of names.
        names: by formal name; grows.
        given: attributes of the node that the body stands for.
    """

    stem: str
    names: dict[str, str]
    given: Mapping[str, AttributeProto]

    def nodes(self, nodes: Iterable[NodeProto]) -> list[NodeProto]:
        """Return copies of some nodes under the new names."""
        return [self._node(one, f"{self.stem}/{k}_{one.op_type}") for k, one in enumerate(nodes)]

    def name(self, formal: str) -> str:
        """Return the new name of a value of the body."""
        return self.names.setdefault(formal, f"{self.stem}/{formal}") if formal else ""

    def _node(self, node: NodeProto, label: str) -> NodeProto:
        copy = NodeProto(op_type=node.op_type, domain=node.domain, name=label)
        copy.input.extend(map(self.name, node.input))
        copy.output.extend(map(self.name, node.output))
        for item in node.attribute:
            if item.ref_attr_name and item.ref_attr_name not in self.given:
                continue
            copy.attribute.append(self.given[item.ref_attr_name] if item.ref_attr_name else item)
            copy.attribute[-1].name = item.name
            if item.HasField("g"):
                self._branch(copy.attribute[-1].g)
        return copy

    def _branch(self, graph: GraphProto) -> None:
        inner = self.nodes(graph.node)
        del graph.node[:]
        graph.node.extend(inner)
        for value in (*graph.input, *graph.output):
            value.name = self.name(value.name)
        for tensor in graph.initializer:
            tensor.name = self.name(tensor.name)
