"""Samples of a model's inputs and outputs: cut out for a pass, put together after all passes."""

from __future__ import annotations

from collections.abc import Sequence

from autoturbo.graph.batch import BatchTrace
from autoturbo.graph.operators import Tensor
from autoturbo.graph.weight_values import Array
from autoturbo.verify.body import Body
from autoturbo.verify.passes import Pass


class Samples:
    """Where the samples of a model's tensors are.

    Sample ``i`` of a tensor has the positions of one dimension whose digit of some weight is ``i``.
    Where other digits stand before it (heads times samples), the dimension is taken apart first.
    """

    def __init__(self, tensors: Sequence[Tensor], trace: BatchTrace, batch: int) -> None:
        self._tensors, self._trace, self._batch = tensors, trace, batch

    def cut(self, body: Body, name: str, tensor: int, first: int, stop: int, batch: int) -> str:
        """Samples ``first`` to ``stop`` of a value that holds ``batch`` samples of a tensor."""
        if tensor not in self._trace.tensors or (first, stop) == (0, batch):
            return name
        shape, dim = self._digits(tensor, batch)
        apart = body.reshape(name, shape) if len(shape) != self._rank(tensor) else name
        whole = tuple((0, extent) for extent in shape)
        want = (*whole[:dim], (first, stop), *whole[dim + 1 :])
        part = body.slice(apart, whole, want)
        if len(shape) == self._rank(tensor):
            return part
        return body.reshape(part, self.shape(tensor, stop - first))

    def join(self, body: Body, names: Sequence[str], tensor: int, passes: Sequence[Pass]) -> str:
        """What several passes made of a tensor, the samples of each that are used."""
        if tensor not in self._trace.tensors:
            return names[0]
        parts = [
            self.cut(body, name, tensor, one.used[0] - one.start, one.used[1] - one.start,
                     one.samples)
            for name, one in zip(names, passes, strict=True)
        ]  # fmt: skip
        if len(parts) == 1:
            return parts[0]
        if len(self._digits(tensor, self._batch)[0]) == self._rank(tensor):
            return body.concat(parts, self._trace.tensors[tensor][0])
        apart = []
        for part, one in zip(parts, passes, strict=True):
            shape, dim = self._digits(tensor, one.used[1] - one.used[0])
            apart.append(body.reshape(part, shape))
        return body.reshape(body.concat(apart, dim), self.shape(tensor, self._batch))

    def _rank(self, tensor: int) -> int:
        return len(self._tensors[tensor].shape)

    def shape(self, tensor: int, samples: int) -> tuple[int, ...]:
        """Extents of a tensor that holds some samples."""
        shape = list(self._tensors[tensor].shape)
        if tensor not in self._trace.tensors:
            return tuple(shape)
        dim, _ = self._trace.tensors[tensor]
        shape[dim] = shape[dim] // self._batch * samples
        return tuple(shape)

    def _digits(self, tensor: int, samples: int) -> tuple[tuple[int, ...], int]:
        """The shape for some samples with the samples' digit outermost in its dimension, and it."""
        shape = self.shape(tensor, samples)
        dim, unit = self._trace.tensors[tensor]
        outer = shape[dim] // (unit * samples)
        if outer == 1 and unit == 1:
            return shape, dim
        return (*shape[:dim], outer, samples, unit, *shape[dim + 1 :]), dim + 1


def samples_of(
    array: Array, trace: BatchTrace, tensor: int, wanted: tuple[int, int], batch: int
) -> Array:
    """Some samples of a tensor.

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
