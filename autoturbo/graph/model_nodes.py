"""The nodes behind a graph: details that only running a model needs, not the scheduler."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, TypeProto, numpy_helper

from autoturbo.graph.importer.assemble import Assembled, Tensors, build_graph, values_read
from autoturbo.graph.importer.external_data import reference
from autoturbo.graph.importer.freeze import Extents
from autoturbo.graph.importer.propagate import Program
from autoturbo.graph.onnx_import import read_program
from autoturbo.graph.operators import Graph
from autoturbo.graph.source import Source
from autoturbo.graph.structure import outer_names, stored_tensor
from autoturbo.graph.values import Repetition, Step, Value, element_type, holds_tensors


@dataclass(frozen=True, slots=True, eq=False)
class Operand:
    """A value that a node reads or writes.

    Attributes:
        name: Unique in the model; of a tensor of the graph, that tensor's.
        tensor: Index in :attr:`Graph.tensors`; -1 for a constant that the graph does not hold
            (a target shape, the bounds of a slice).
        shape: Elements per dimension.
        element: ONNX element type.
        constant: Depends on no real input.
        data: Its elements, where it is a small constant.
        kind: Its type, where it is no tensor, such as a sequence.
    """

    name: str
    tensor: int
    shape: tuple[int, ...]
    element: int
    constant: bool
    data: np.ndarray | None
    kind: TypeProto | None = None


@dataclass(frozen=True, slots=True, eq=False)
class ModelNode:
    """The node of an operator.

    Attributes:
        proto: The node as in the file, with names as in the file.
        inputs: Inputs by ONNX position, None where absent.
        captured: Outer values that bodies of control flow read, in the order of their first use.
        outputs: Outputs by ONNX position, None where absent or not used.
        positions: Per input of the :class:`Operator`, its place in ``(*inputs, *captured)``.
    """

    proto: NodeProto
    inputs: tuple[Operand | None, ...]
    captured: tuple[Operand, ...]
    outputs: tuple[Operand | None, ...]
    positions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Repeated:
    """A constant of the file's own batch, taken for another one.

    Sample ``i`` has the elements of sample ``i`` modulo the file's own batch.

    Attributes:
        name: Name of the constant for the batch that was asked for.
        original: The constant of the file.
        dim: The dimension that counts the samples.
        had: The constant's extent in the file.
        has: The constant's extent now.
        batch: Samples in the file.
        inner: Elements of the dimension per sample that follow each other.
    """

    name: str
    original: str
    dim: int
    had: int
    has: int
    batch: int
    inner: int

    def taken(self, start: int) -> np.ndarray:
        """Return the positions along :attr:`dim` that the samples from ``start`` on have."""
        samples = (start + np.arange(self.has * self.batch // self.had)) % self.batch
        outer = np.arange(self.had // (self.batch * self.inner)) * self.batch
        blocks = (outer[:, None] + samples).ravel() * self.inner
        return (blocks[:, None] + np.arange(self.inner)).ravel()


@dataclass(frozen=True, slots=True, eq=False)
class ModelNodes:
    """A model at static shapes, ready to be written again.

    Attributes:
        graph: The model as the scheduler sees it.
        ir_version: ONNX's IR version of the file.
        opsets: Version by domain; ONNX's own domain is ``""``.
        nodes: One per operator of the graph.
        constants: Nodes that make constants whose elements are not small, with unique names.
        stored: Stored constants by unique name, which they bear; large ones may be references to
            files beside the model.
        given: Weights that are inputs of the file.
        repeated: Constants that have the file's own batch written into them.
        outputs: Per output of the file, its name there and the value it stands for.
    """

    graph: Graph
    ir_version: int
    opsets: Mapping[str, int]
    nodes: tuple[ModelNode, ...]
    constants: tuple[NodeProto, ...]
    stored: Mapping[str, TensorProto]
    given: tuple[Operand, ...]
    repeated: tuple[Repeated, ...]
    outputs: tuple[tuple[str, Operand], ...]


def load_nodes(
    path: str | Path,
    *,
    batch: int | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    values: Mapping[str, Sequence[float]] | None = None,
    samples: Mapping[str, int] | None = None,
) -> ModelNodes:
    """Return the nodes of an ONNX file at static shapes.

    The values that the file itself holds are read; those beside it are not.

    Args:
        path: The file.
        batch: Samples processed at once; None keeps the file's own.
        shapes: Extents by input name, where the batch does not say enough.
        values: Elements by input name, as for :func:`~autoturbo.graph.onnx_import.import_model`.
        samples: The dimension that counts samples in every input, where it is known.

    Raises:
        ModelError: The file is not usable.
    """
    source = Source(Path(path))
    model, program = read_program(
        source, Extents(batch, shapes or {}, samples=samples), values, whole=True
    )
    assembled = build_graph(program, source)
    results = zip(model.graph.output, program.results, strict=True)
    outputs = [(value.name, _operand(result, assembled.names)) for value, result in results]
    nodes = tuple(_nodes(assembled))
    constants = _Constants(model, program, assembled.names, source)
    constants.need(values_read(assembled.steps, program.outputs))
    return ModelNodes(
        assembled.graph, source.ir_version, dict(source.opsets), nodes,
        tuple(constants.nodes), constants.stored, tuple(constants.given),
        tuple(constants.repeated), tuple(outputs),
    )  # fmt: skip


def _operand(value: Value, names: Tensors) -> Operand:
    kind = value.type if holds_tensors(value.type) else None
    return Operand(
        names.name(value), names.known(value), value.shape or (), element_type(value.type),
        value.constant, value.data, kind,
    )  # fmt: skip


def _nodes(assembled: Assembled) -> Iterator[ModelNode]:
    names = assembled.names
    for step, positions in zip(assembled.steps, assembled.positions, strict=True):
        yield ModelNode(
            step.node,
            tuple(None if value is None else _operand(value, names) for value in step.inputs),
            tuple(_operand(value, names) for value in step.captured),
            tuple(None if value is None else _operand(value, names) for value in step.outputs),
            positions,
        )


class _Constants:
    """Finds where the constants that nodes read come from."""

    def __init__(self, model: ModelProto, program: Program, names: Tensors, source: Source) -> None:
        self.nodes: list[NodeProto] = []
        self.stored: dict[str, TensorProto] = {}
        self.given: list[Operand] = []
        self.repeated: list[Repeated] = []
        self._names, self._source = names, source
        self._tensors = {tensor.name: tensor for tensor in model.graph.initializer}
        self._inputs = {value.name for value in model.graph.input}
        self._makers = {v: step for step in program.constants for v in step.outputs if v}
        self._done: set[Value] = set()

    def need(self, values: Iterable[Value]) -> None:
        """Add the constants and everything that they are computed from.

        Raises:
            ModelError: One that cannot be found.
        """
        for value in values:
            if value.constant and value not in self._done:
                self._done.add(value)
                self._find(value)

    def _find(self, value: Value) -> None:
        name = self._names.name(value)
        maker = self._makers.get(value)
        if value.name in self._tensors and value.literal and maker is None:
            self.stored[name] = _named(reference(self._tensors[value.name]), name)
        elif value.data is not None and maker is None:
            self.stored[name] = numpy_helper.from_array(value.data, name)
        elif value.repeated is not None:
            self._repeat(value, value.repeated)
        elif maker is not None:
            self._make(maker)
        elif value.name in self._inputs:
            self.given.append(_operand(value, self._names))
        else:
            raise self._source.error("cannot be written again: no constant of the file", name)

    def _make(self, step: Step) -> None:
        """Keep the node that computes a constant; turn a Constant node into a stored constant."""
        stored = stored_tensor(step.node)
        if stored is not None:
            output = next(value for value in step.outputs if value)
            name = self._names.name(output)
            self.stored[name] = _named(stored, name)
            return
        self.need(step.read)
        self._done.update(value for value in step.outputs if value is not None)
        self.nodes.append(self._renamed(step))

    def _renamed(self, step: Step) -> NodeProto:
        """Return the node with unique names; control-flow bodies keep the names that they read."""
        for name, value in zip(outer_names(step.node), step.captured, strict=True):
            if self._names.name(value) != name:
                raise self._source.error("cannot be written again: its body reads it", name)
        node = NodeProto()
        node.CopyFrom(step.node)
        del node.input[:], node.output[:]
        node.input.extend("" if value is None else self._names.name(value) for value in step.inputs)
        node.output.extend(
            "" if value is None else self._names.name(value) for value in step.outputs
        )
        return node

    def _repeat(self, value: Value, origin: Repetition) -> None:
        original, dim = origin.original, origin.dim
        self.need([original])
        had, has = (original.shape or ())[dim], (value.shape or ())[dim]
        names = self._names.name(value), self._names.name(original)
        self.repeated.append(Repeated(*names, dim, had, has, origin.batch, origin.inner))


def _named(tensor: TensorProto, name: str) -> TensorProto:
    if tensor.name == name:
        return tensor
    copy = TensorProto()
    copy.CopyFrom(tensor)
    copy.name = name
    return copy
