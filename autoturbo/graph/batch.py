"""Which part of every tensor belongs to which sample, and the same graph for fewer samples.

Clusters share out the batch and loop over it, so the scheduler needs the graph at every batch size
that divides it. A model file has its batch baked into shapes and reshapes; instead of rewriting the
file, samples are traced through the access maps: an axis carries the batch when it addresses the
batch's digit of a dimension. Everything that multiplies with that axis is then scaled.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from autoturbo.graph.domain import AccessMap, Axis, AxisKind, DimAccess
from autoturbo.graph.operators import Graph, Operator, Tensor
from autoturbo.graph.repeats import REPEATS


@dataclass(frozen=True, slots=True)
class BatchObstacle:
    """Reason why samples cannot be told apart.

    Attributes:
        operator: Name of the first operator at which they cannot; of an output, that tensor's.
        kind: Kind of the operator; "output" for an output.
        reason: What it does, as the rest of a sentence that begins with it.
        mend: Change of the model that would help.
    """

    operator: str
    kind: str
    reason: str
    mend: str

    def __str__(self) -> str:
        """Return the reason as a sentence without its full stop."""
        return f"{self.operator} ({self.kind}) {self.reason}"

    @property
    def mixes(self) -> bool:
        """Return whether it computes across what was taken for samples, not only picks of them."""
        picks = self.kind in _GATHERS or self.kind in ("Slice", "Split", "Pad", "Concat")
        return self.reason in (_ACROSS, _COMBINES, _MIXES) and not picks


@dataclass(frozen=True, slots=True)
class BatchTrace:
    """Dimensions of tensors and axes of operators that count samples.

    Attributes:
        tensors: Per tensor index, ``(dimension, unit)``: sample ``i`` has the positions whose
            digit of weight ``unit`` is ``i``. Tensors without samples are absent.
        axes: Per operator index, ``(axis, unit)`` of its domain likewise.
        obstacle: Why samples cannot be told apart, or None. A single sample needs no telling.
    """

    tensors: dict[int, tuple[int, int]]
    axes: dict[int, tuple[int, int]]
    obstacle: BatchObstacle | None = None


class _MixedError(Exception):
    """An operator mixes samples.

    Attributes:
        obstacle: The operator, and why.
        without: A tensor that has no samples but would have to, and where.
    """

    def __init__(
        self,
        operator: Operator,
        reason: str,
        mend: str,
        without: tuple[int, tuple[int, int]] | None = None,
    ) -> None:
        super().__init__(reason)
        self.obstacle = BatchObstacle(operator.name, operator.kind, reason, mend)
        self.without = without


def trace_batch(graph: Graph) -> BatchTrace:
    """Follow the samples from the inputs to the outputs."""
    trace = BatchTrace({}, {})
    if graph.batch == 1:
        return trace
    if graph.fixed:
        return replace(trace, obstacle=BatchObstacle(*graph.fixed, _OF_FILE))
    try:
        _follow_all(graph, trace)
    except _MixedError as mixed:
        return replace(trace, obstacle=mixed.obstacle)
    for tensor in graph.outputs:
        if tensor not in trace.tensors:
            name, reason = graph.tensors[tensor].name, "does not carry the batch"
            return replace(trace, obstacle=BatchObstacle(name, "output", reason, _OF_OUTPUT))
    return trace


def sample_dims_from(graph: Graph, batch: int, dims: Mapping[int, int]) -> dict[int, int] | None:
    """Return the dimensions of all inputs that have samples, given those of some.

    What an operator combines with samples along their axis has samples too, and so has the input
    that it comes from.

    Args:
        graph: Any graph.
        batch: Samples that it processes, more than one.
        dims: The dimension that counts them, by input.

    Returns:
        The dimension by input; None where samples cannot be followed from there to every output.
    """
    found = dict(dims)
    while True:
        seeded = graph.sampled(batch, found)
        trace = BatchTrace({}, {})
        try:
            _follow_all(seeded, trace)
        except _MixedError as mixed:
            place = mixed.without and _origin(seeded, *mixed.without)
            if not place or place[0] in found:
                return None
            # One input more in every round, so this ends.
            found[place[0]] = place[1]
        else:
            return found if all(t in trace.tensors for t in graph.outputs) else None


def _follow_all(graph: Graph, trace: BatchTrace) -> None:
    trace.tensors.update((tensor, (dim, 1)) for tensor, dim in graph.samples.items())
    for index, operator in enumerate(graph.operators):
        _follow(graph, index, operator, trace)


def _origin(graph: Graph, tensor: int, label: tuple[int, int]) -> tuple[int, int] | None:
    """Return the input, and its dimension, that some samples of a tensor come from."""
    while (maker := graph.producer[tensor]) >= 0:
        operator = graph.operators[maker]
        place = operator.outputs.index(tensor)
        before = _before(graph, operator, operator.output_maps[place].dims[label[0]], label[1])
        if before is None:
            return None
        tensor, label = before
    dim, unit = label
    alone = unit == 1 and graph.tensors[tensor].shape[dim] == graph.batch
    return (tensor, dim) if alone and not graph.tensors[tensor].constant else None


def _before(
    graph: Graph, operator: Operator, made: DimAccess, unit: int
) -> tuple[int, tuple[int, int]] | None:
    """Return the first input of an operator that has the samples of a dimension it makes."""
    for axis, coefficient in made.terms:
        digit = _Digit(axis, unit, graph.batch)
        if coefficient < 1 or unit % coefficient or not digit.counted_by(operator, coefficient):
            continue
        for tensor, access in zip(operator.inputs, operator.input_maps, strict=True):
            for dim, read in enumerate(access.dims):
                step = dict(read.terms).get(axis, 0)
                if step > 0 and not graph.tensors[tensor].constant:
                    return tensor, (dim, unit // coefficient * step)
    return None


_MIXES, _ACROSS = "mixes samples", "works across the batch"
_COMBINES = "combines different samples"

_ALIKE = "compute every sample by itself, or export with a dynamic batch"
_OF_INDICES = "index each sample alike (the same pattern, counted from the sample's first element)"
_OF_OUTPUT = "give every output a dimension of samples, or export without this one"
_OF_FILE = "export with a dynamic batch"
_OF_OPAQUE = "leave it out of the model that is scheduled, or write it with operators of the table"
"""Change of the model that makes samples separable."""

_GATHERS = frozenset(("Gather", "GatherElements", "GatherND"))


def _follow(graph: Graph, index: int, operator: Operator, trace: BatchTrace) -> None:
    labelled = [(p, trace.tensors[t]) for p, t in enumerate(operator.inputs) if t in trace.tensors]
    if not labelled:
        return
    if operator.opaque:
        raise _MixedError(operator, "runs whole, not analysed", _OF_OPAQUE)
    sample_axes = {_axis_of(graph, operator, position, label) for position, label in labelled}
    # Two axes that count samples would pair every sample with every other.
    if len(sample_axes) != 1:
        raise _MixedError(operator, _COMBINES, _ALIKE)
    axis, unit = sample_axes.pop()
    _require_samples(graph, operator, (axis, unit), trace)
    # What it does depends on the position, which its maps do not show and a part counts anew.
    if operator.kind in _PLACED and axis in _PLACED[operator.kind](graph, operator):
        raise _MixedError(operator, "counts positions over the batch", _ALIKE)
    trace.axes[index] = (axis, unit)
    for place, tensor in enumerate(operator.outputs):
        trace.tensors[tensor] = _dim_of(graph, operator, place, (axis, unit))


def _axis_of(
    graph: Graph, operator: Operator, position: int, label: tuple[int, int]
) -> tuple[int, int]:
    """Return the axis of an operator that indexes the samples of an input dimension."""
    dim, unit = label
    access = operator.input_maps[position].dims[dim]
    for axis, coefficient in access.terms:
        if coefficient > 0 and unit % coefficient == 0:
            digit = _Digit(axis, unit, graph.batch)
            if not digit.counted_by(operator, coefficient):
                continue
            # Samples are apart if they are not summed and no other term reaches into the next.
            if operator.axes[axis].kind is AxisKind.PARALLEL and digit.alone(operator, access):
                return axis, unit // coefficient
            # A gather may read this axis whole; another one may still have the samples.
            if operator.kind not in _GATHERS:
                raise _MixedError(operator, _ACROSS, _ALIKE)
    raise _mixes(graph, operator, position)


@dataclass(frozen=True, slots=True)
class _Digit:
    """The digit of a dimension that counts samples.

    Attributes:
        axis: The axis that addresses the dimension.
        unit: Elements of the dimension from one sample to the next.
        batch: The number of samples along the axis.
    """

    axis: int
    unit: int
    batch: int

    def counted_by(self, operator: Operator, coefficient: int) -> bool:
        """Return whether steps of ``coefficient`` along the axis cover whole batches."""
        span = coefficient * operator.axes[self.axis].extent
        return span % (self.unit * self.batch) == 0

    def alone(self, operator: Operator, access: DimAccess) -> bool:
        """Return whether the axis alone selects the sample; other terms stay below one sample."""
        # Whole batches do not change which sample it is: what is left has to stay within one.
        low = high = self.less(access.offset)
        for axis, coefficient in access.terms:
            if axis == self.axis:
                high += self.unit - coefficient
            else:
                reach = self.less(coefficient) * (operator.axes[axis].extent - 1)
                low, high = low + min(reach, 0), high + max(reach, 0)
        return low >= 0 and high < self.unit

    def less(self, distance: int) -> int:
        """Return a distance without its whole batches: ahead, or back by less than a sample."""
        return distance - whole_batches(distance, self.unit, self.batch) * self.unit * self.batch


def whole_batches(distance: int, unit: int, batch: int) -> int:
    """Return the whole batches in a distance; one that lacks less than a sample counts."""
    return (distance + unit - 1) // (unit * batch)


def _mixes(graph: Graph, operator: Operator, position: int) -> _MixedError:
    """Return the error for an operator that mixes samples when it reads a dimension."""
    if operator.kind not in _GATHERS or position:
        return _MixedError(operator, _MIXES, _ALIKE)
    if len(operator.inputs) == 1:
        reason = "picks samples by constant indices that are not alike for every sample"
        return _MixedError(operator, reason, _OF_INDICES)
    indices = graph.tensors[operator.inputs[1]]
    if not indices.constant:
        return _MixedError(operator, f"finds samples by computed indices {indices.name}", _ALIKE)
    reason = f"mixes samples: its indices {indices.name} are not alike for every sample"
    return _MixedError(operator, f"{reason}, or not known", _OF_INDICES)


def _scattered_to(graph: Graph, operator: Operator) -> set[int]:
    """Return the axes of the dimensions that a scatter's indices address."""
    depth = graph.tensors[operator.inputs[1]].shape[-1]
    return {axis for dim in operator.input_maps[0].dims[:depth] for axis, _ in dim.terms}


def _scattered_along(_: Graph, operator: Operator) -> set[int]:
    """Return the axes that a scatter's indices do not use: that of the dimension they index."""
    return operator.input_axes(0) - operator.input_axes(1)


def _of_matrices(_: Graph, operator: Operator) -> set[int]:
    return {axis for dim in operator.input_maps[0].dims[-2:] for axis, _ in dim.terms}


def _counted(graph: Graph, operator: Operator) -> set[int]:
    """Return all axes of a pool that returns positions of maxima, since these count all samples."""
    positions = any(graph.tensors[tensor].dtype == "int64" for tensor in operator.outputs)
    return set(range(len(operator.axes))) if positions else set()


_PLACED: dict[str, Callable[[Graph, Operator], set[int]]] = {
    "MaxPool": _counted,
    "Scatter": _scattered_along,
    "ScatterElements": _scattered_along,
    "ScatterND": _scattered_to,
    "Trilu": _of_matrices,
}
"""Axes along which an operator computes by position: the second half is no smaller whole."""


def _require_samples(
    graph: Graph, operator: Operator, label: tuple[int, int], trace: BatchTrace
) -> None:
    """Refuse to split values with the samples where nothing says that they have a batch.

    Some operators repeat constants with the batch written into them for another batch; constants
    that are concatenated before or behind the samples are not repeated.

    Raises:
        _MixedError: The operator reads such values along the axis of its samples.
    """
    axis, unit = label
    repeats = operator.kind in REPEATS and not _joins(operator, axis)
    for position, tensor in enumerate(operator.inputs):
        known = tensor in trace.tensors or (graph.tensors[tensor].constant and repeats)
        if not known and axis in operator.input_axes(position):
            name = graph.tensors[tensor].name
            place = _place_of(operator.input_maps[position], axis, unit)
            raise _MixedError(
                operator, f"reads {name}, not of samples", _ALIKE, place and (tensor, place)
            )


def _place_of(access: AccessMap, axis: int, unit: int) -> tuple[int, int] | None:
    """Return the dimension that an axis addresses, and the elements between two samples there."""
    steps = [dict(read.terms).get(axis, 0) for read in access.dims]
    return next(((dim, unit * step) for dim, step in enumerate(steps) if step > 0), None)


def _joins(operator: Operator, axis: int) -> bool:
    """Return whether an operator concatenates tensors along an axis."""
    maps = operator.input_maps if operator.kind == "Concat" else ()
    return any(
        access.offset
        for m in maps
        for access in m.dims
        if access.terms and access.terms[0][0] == axis
    )


def _dim_of(
    graph: Graph, operator: Operator, place: int, label: tuple[int, int]
) -> tuple[int, int]:
    """Return the output dimension that an axis indexes, and the elements between samples there."""
    axis, unit = label
    shape = graph.tensors[operator.outputs[place]].shape
    for dim, dim_access in enumerate(operator.output_maps[place].dims):
        for term_axis, coefficient in dim_access.terms:
            digit = _Digit(axis, unit * coefficient, graph.batch)
            if (
                term_axis == axis
                and coefficient > 0
                and shape[dim] % (digit.unit * graph.batch) == 0
                and digit.alone(operator, dim_access)
            ):
                return dim, digit.unit
    raise _MixedError(operator, "loses the batch", _ALIKE)


def rebatch(graph: Graph, batch: int, trace: BatchTrace) -> Graph:
    """Return the same model for ``batch`` samples.

    Raises:
        ValueError: The trace has an obstacle.
    """
    if batch == graph.batch:
        return graph
    if trace.obstacle:
        raise ValueError(str(trace.obstacle))
    tensors = list(graph.tensors)
    for tensor, (dim, _) in trace.tensors.items():
        tensors[tensor] = _scaled(tensors[tensor], dim, graph.batch, batch)
    operators = list(graph.operators)
    for index, (axis, unit) in trace.axes.items():
        change = _Change(axis, unit, graph.batch, batch)
        operators[index] = change.operator(operators[index])
        _scale_weights(graph, index, axis, batch, tensors)
    scaled = replace(graph, tensors=tuple(tensors), operators=tuple(operators))
    return scaled.sampled(batch, graph.samples)


def _scaled(tensor: Tensor, dim: int, old: int, new: int) -> Tensor:
    shape = list(tensor.shape)
    shape[dim] = shape[dim] * new // old
    return replace(tensor, shape=tuple(shape))


@dataclass(frozen=True, slots=True)
class _Change:
    """Another batch for one operator.

    Attributes:
        axis: The axis that counts samples.
        unit: Weight of the samples' digit of it.
        old: Samples so far.
        new: Samples from now on.
    """

    axis: int
    unit: int
    old: int
    new: int

    def operator(self, operator: Operator) -> Operator:
        """Return the operator with its sample axis and all outer axes scaled."""
        sample_axis, axes = operator.axes[self.axis], list(operator.axes)
        axes[self.axis] = Axis(
            sample_axis.name, sample_axis.extent * self.new // self.old, sample_axis.kind
        )
        inputs, outputs = map(self._maps, (operator.input_maps, operator.output_maps))
        return replace(operator, axes=tuple(axes), input_maps=inputs, output_maps=outputs)

    def _maps(self, maps: tuple[AccessMap, ...]) -> tuple[AccessMap, ...]:
        return tuple(AccessMap(tuple(map(self._dim, access.dims))) for access in maps)

    def _dim(self, dim: DimAccess) -> DimAccess:
        """Return an access whose steps over whole batches are scaled to the new batch."""
        coefficients = [coefficient for axis, coefficient in dim.terms if axis == self.axis]
        if not coefficients:
            return dim
        unit = abs(coefficients[0]) * self.unit
        terms = tuple((a, c if a == self.axis else self._far(c, unit)) for a, c in dim.terms)
        return replace(dim, terms=terms, offset=self._far(dim.offset, unit))

    def _far(self, distance: int, unit: int) -> int:
        return distance + whole_batches(distance, unit, self.old) * unit * (self.new - self.old)


def _scale_weights(graph: Graph, index: int, axis: int, batch: int, tensors: list[Tensor]) -> None:
    """Scale constants that have the batch written into them (an expanded position table)."""
    operator = graph.operators[index]
    for tensor, access in zip(operator.inputs, operator.input_maps, strict=True):
        if not graph.tensors[tensor].constant:
            continue
        for dim, dim_access in enumerate(access.dims):
            if any(a == axis for a, _ in dim_access.terms):
                tensors[tensor] = _scaled(graph.tensors[tensor], dim, graph.batch, batch)
