"""The body of a model-local function under construction: nodes on regions of tensors."""

from __future__ import annotations

from dataclasses import dataclass, field

from onnx import NodeProto

from autoturbo.graph.domain import Region
from autoturbo.graph.model_nodes import Operand


@dataclass(eq=False)
class Body:
    """Nodes of a function, and what it reads.

    A tensor of the graph is held under its own name as the region that the instance has of it; a
    constant is held whole. Values made on the way have names of their own.

    Attributes:
        opset: version of ONNX's own operators: slices and paddings are written as it wants them.
        regions: per tensor of the graph that is held, which region of it.
        nodes: in order.
        reads: names that the function must be given, in order of first use.
    """

    opset: int
    regions: dict[int, Region] = field(default_factory=dict)
    nodes: list[NodeProto] = field(default_factory=list)
    reads: dict[str, Operand] = field(default_factory=dict)
