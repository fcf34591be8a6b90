"""The nodes behind a graph: what the scheduler does not need and what runs a model does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from onnx import NodeProto, TensorProto

from autoturbo.graph.operators import Graph


@dataclass(frozen=True, slots=True, eq=False)
class Operand:
    """A value that a node reads or makes.

    Attributes:
        name: unique in the model; of a tensor of the graph, that tensor's.
        tensor: index in :attr:`Graph.tensors`; -1 for a constant that the graph does not hold
            (a target shape, the bounds of a slice).
        shape: elements per dimension.
        element: ONNX element type.
        constant: depends on no real input.
        data: its elements, where it is a small constant.
    """

    name: str
    tensor: int
    shape: tuple[int, ...]
    element: int
    constant: bool
    data: np.ndarray | None


@dataclass(frozen=True, slots=True, eq=False)
class ModelNode:
    """The node of an operator.

    Attributes:
        proto: as in the file, with names as in the file.
        inputs: by ONNX position, None where absent.
        captured: outer values that bodies of control flow read, in the order of their first use.
        outputs: by ONNX position, None where absent or not used.
        positions: per input of the :class:`Operator`, its place in ``(*inputs, *captured)``.
    """

    proto: NodeProto
    inputs: tuple[Operand | None, ...]
    captured: tuple[Operand, ...]
    outputs: tuple[Operand | None, ...]
    positions: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class ModelNodes:
    """A model at static shapes, ready to be written again.

    Attributes:
        graph: as the scheduler sees it.
        ir_version: of the file.
        opsets: version by domain; ONNX's own domain is ``""``.
        nodes: one per operator of the graph.
        constants: nodes that make constants whose elements are not small, with unique names.
        stored: initializers by unique name; large ones may be references to files beside the model.
        outputs: per output of the file, its name there and the value it stands for.
    """

    graph: Graph
    ir_version: int
    opsets: Mapping[str, int]
    nodes: tuple[ModelNode, ...]
    constants: tuple[NodeProto, ...]
    stored: Mapping[str, TensorProto]
    outputs: tuple[tuple[str, Operand], ...]
