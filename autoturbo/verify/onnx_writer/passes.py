"""Passes over the batch, and the samples of a model's tensors that each processes.

Samples are cut out of the inputs for a pass and joined after all passes. The model's nodes, and
constants with the file's own batch written into them, are made at the samples of a pass.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from autoturbo.errors import ModelError, VerifyError
from autoturbo.graph.batch import BatchTrace
from autoturbo.graph.model_nodes import ModelNodes, Repeated, load_nodes
from autoturbo.graph.operators import Graph, Tensor
from autoturbo.schedule.problem import BATCH
from autoturbo.schedule.schedule import Schedule
from autoturbo.verify.onnx_writer.builder import GraphBuilder
from autoturbo.verify.weight_values import Array


@dataclass(frozen=True, slots=True)
class Pass:
    """One run through the schedule.

    A last pass that would have too few samples starts earlier, so that it is full like all others;
    what it makes of samples that an earlier pass made is not used.

    Attributes:
        index: which.
        cluster: the cluster that runs it; -1 where all clusters work on it together.
        start: first sample that it processes.
        samples: how many.
        used: samples whose results leave the model, first and one past the last.
    """

    index: int
    cluster: int
    start: int
    samples: int
    used: tuple[int, int]


def passes_of(schedule: Schedule) -> tuple[Pass, ...]:
    """Return all passes over the batch, in the order of their samples."""
    full = schedule.share.batches
    return tuple(
        Pass(index, cluster, max(high - full, 0), full, (low, high))
        for index, (cluster, low, high) in enumerate(_turns(schedule))
    )


def _turns(schedule: Schedule) -> Iterator[tuple[int, int, int]]:
    """Yield cluster, first sample and one past the last that a pass is for."""
    share, batch = schedule.share, schedule.model.batch
    identical = share.split == BATCH
    for copy in range(share.copies):
        first = copy * share.samples
        end = min(first + share.samples, batch)
        for low in range(first, end, share.batches):
            yield copy if identical else -1, low, min(low + share.batches, end)


def one_pass(schedule: Schedule) -> Pass:
    """Return a single pass, as if the batch had no more samples than that."""
    samples = schedule.share.batches
    cluster = 0 if schedule.share.split == BATCH else -1
    return Pass(0, cluster, 0, samples, (0, samples))


class SampleSlicer:
    """Where the samples of a model's tensors are.

    Sample ``i`` of a tensor has the positions of one dimension whose digit of some weight is ``i``.
    Where other digits stand before it (heads times samples), the dimension is taken apart first.
    """

    def __init__(self, tensors: Sequence[Tensor], trace: BatchTrace, batch: int) -> None:
        self._tensors, self._trace, self._batch = tensors, trace, batch

    def cut(
        self, builder: GraphBuilder, name: str, tensor: int, first: int, stop: int, batch: int
    ) -> str:
        """Return samples ``first`` to ``stop`` of a value that holds ``batch`` samples."""
        if tensor not in self._trace.tensors or (first, stop) == (0, batch):
            return name
        shape, dim = self._digits(tensor, batch)
        apart = builder.reshape(name, shape) if len(shape) != self._rank(tensor) else name
        whole = tuple((0, extent) for extent in shape)
        want = (*whole[:dim], (first, stop), *whole[dim + 1 :])
        part = builder.slice(apart, whole, want)
        if len(shape) == self._rank(tensor):
            return part
        return builder.reshape(part, self.shape(tensor, stop - first))

    def join(
        self, builder: GraphBuilder, names: Sequence[str], tensor: int, passes: Sequence[Pass]
    ) -> str:
        """Return what several passes made of a tensor, joined: the used samples of each."""
        if tensor not in self._trace.tensors:
            return names[0]
        parts = [
            self.cut(builder, name, tensor, one.used[0] - one.start, one.used[1] - one.start,
                     one.samples)
            for name, one in zip(names, passes, strict=True)
        ]  # fmt: skip
        if len(parts) == 1:
            return parts[0]
        if len(self._digits(tensor, self._batch)[0]) == self._rank(tensor):
            return builder.concat(parts, self._trace.tensors[tensor][0])
        apart = []
        for part, one in zip(parts, passes, strict=True):
            shape, dim = self._digits(tensor, one.used[1] - one.used[0])
            apart.append(builder.reshape(part, shape))
        return builder.reshape(builder.concat(apart, dim), self.shape(tensor, self._batch))

    def _rank(self, tensor: int) -> int:
        return len(self._tensors[tensor].shape)

    def shape(self, tensor: int, samples: int) -> tuple[int, ...]:
        """Return the extents of a tensor that holds some samples."""
        shape = list(self._tensors[tensor].shape)
        if tensor not in self._trace.tensors:
            return tuple(shape)
        dim, _ = self._trace.tensors[tensor]
        shape[dim] = shape[dim] // self._batch * samples
        return tuple(shape)

    def _digits(self, tensor: int, samples: int) -> tuple[tuple[int, ...], int]:
        """Return a shape with the samples in a dimension of their own, and that dimension."""
        shape = self.shape(tensor, samples)
        dim, unit = self._trace.tensors[tensor]
        outer = shape[dim] // (unit * samples)
        if outer == 1 and unit == 1:
            return shape, dim
        return (*shape[:dim], outer, samples, unit, *shape[dim + 1 :]), dim + 1


def samples_of(
    array: Array, trace: BatchTrace, tensor: int, wanted: tuple[int, int], batch: int
) -> Array:
    """Return some samples of a tensor.

    Args:
        array: the tensor with ``batch`` samples.
        trace: where samples are.
        tensor: index of the tensor.
        wanted: the first, and how many.
        batch: samples of the array.
    """
    first, count = wanted
    if tensor not in trace.tensors or count == batch:
        return array
    dim, unit = trace.tensors[tensor]
    shape = array.shape
    digits = (shape[dim] // (unit * batch), batch, unit)
    apart = array.reshape(*shape[:dim], *digits, *shape[dim + 1 :])
    taken = apart.take(range(first, first + count), axis=dim + 1)
    return taken.reshape(*shape[:dim], shape[dim] // batch * count, *shape[dim + 1 :])


Shape = tuple[int, ...]


def input_shapes(graph: Graph) -> dict[str, Shape]:
    """Return the extents of a graph's inputs by name."""
    return {graph.tensors[t].name: graph.tensors[t].shape for t in graph.inputs}


def nodes_at(path: Path, graph: Graph, model: Graph) -> ModelNodes:
    """Return the nodes of a file at the extents of a graph.

    Args:
        path: the file.
        graph: the model for some samples.
        model: the whole model, which can be read from the file.

    Raises:
        ModelError: the file is not usable.
        VerifyError: it is, but not for so many samples: they cannot be followed through its
            constants.
    """
    try:
        return load_nodes(path, shapes=input_shapes(graph), values=dict(model.given))
    except ModelError as error:
        if graph.batch == model.batch:
            raise
        why = f"{error.at}: {error.message}"
        message = f"the model cannot be written for {graph.batch} samples: {why}"
        raise VerifyError(message, hint=error.hint) from None


def write_repeated(
    builder: GraphBuilder, constants: Iterable[Repeated], names: Mapping[str, str], start: int = 0
) -> None:
    """Write every constant for the samples that begin with ``start``.

    Args:
        builder: where the nodes go.
        constants: which.
        names: per constant, how the value is to be called; its own name if it is not there.
        start: the first sample.
    """
    for constant in constants:
        indices = builder.integers(constant.taken(start).tolist(), "samples")
        name = names.get(constant.name, constant.name)
        builder.node("Gather", [constant.original, indices], [name], axis=constant.dim)
