"""Binding instances to cores and choosing buffer scopes: GraphTurbo, OSDI '23, section 3.4.

The rule is Algorithm 4. A binding is a factor per dimension of a tensor: ``(2, 1, 4, 1)`` spreads
two samples by four row blocks over eight cores. Cores count row-major over the factors. All cores
of a cluster work on one instance.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from autoturbo.caches import remembered
from autoturbo.graph.arrays import Ints, Regions
from autoturbo.graph.domain import AxisKind
from autoturbo.graph.operators import Operator
from autoturbo.schedule.context import SchedulingContext, outer_axis
from autoturbo.schedule.partition.boxes import external_inputs
from autoturbo.schedule.partition.split import sink
from autoturbo.schedule.place.instances import InstanceGraph, PartBook, part_shape
from autoturbo.schedule.place.recurrence import Recurrence

Binding = tuple[int, ...]
"""Parts per dimension of a tensor; empty for "no valid binding"."""


class Scope(IntEnum):
    """Where a tensor is kept."""

    LB = 0
    GB = 1
    DDR = 2


@dataclass(frozen=True, slots=True)
class Placement:
    """Algorithm 4's answer.

    Attributes:
        bindings: Per instance, the binding of its output.
        scopes: Per instance, where its output is declared.
        core_ids: Per instance, which cores its parts run on, row-major over the factors of its
            binding; empty for 0, 1, 2, ... The cores of the whole kernel are renamed so. Empty as a
            whole if no instance names its cores.
        limits: Per instance, the most cores that any layer of its kernel is spread over, 0 for all.
            Empty as a whole if no instance is limited.
    """

    bindings: tuple[Binding, ...]
    scopes: tuple[Scope, ...]
    core_ids: tuple[tuple[int, ...], ...] = ()
    limits: tuple[int, ...] = ()

    def limit_of(self, instance: int) -> int:
        """Return the most cores that a layer of an instance is spread over, 0 for all."""
        return self.limits[instance] if self.limits else 0

    def cores_of(self, instance: int, cores: int) -> tuple[int, ...]:
        """Return the core of the cluster that runs each core of an instance's program."""
        named = self.core_ids[instance] if self.core_ids else ()
        return (*named, *(core for core in range(cores) if core not in named))


def plain_binding(
    extents: Sequence[int], order: Sequence[int], bindable: Sequence[bool], cores: int
) -> Binding:
    """Return the binding that spreads a tensor over cores, outermost loop first.

    The paper tries 8, 4, 2, 1 and takes the first that divides the extent, until the cores are used
    up; for other core counts the powers of two become all numbers that divide the extent.

    Args:
        extents: Elements per dimension.
        order: Dimensions from the outermost loop to the innermost.
        bindable: False for dimensions that may not be spread (a softmax's).
        cores: Cores of a cluster.
    """
    factors, left, powers = [1] * len(extents), cores, cores & (cores - 1) == 0
    for dim in order:
        if bindable[dim] and extents[dim] > 0:
            most = math.gcd(extents[dim], left) if powers else min(extents[dim], left)
            factors[dim] = next(f for f in range(most, 0, -1) if extents[dim] % f == 0)
            left //= factors[dim]
    return tuple(factors)


def cores_used(binding: Binding) -> int:
    """Return the number of cores that a binding keeps busy."""
    return math.prod(binding)


@remembered(1 << 14)
def bindable_dims(context: SchedulingContext, layer: int) -> tuple[bool, ...]:
    """Return which dimensions of a layer's first output may be spread over cores; cached.

    Those with a parallel outer axis, or one that only the cores of a part may divide.
    """
    operator = sink(context, (layer,))
    dims = range(len(operator.output_maps[0].dims))
    return tuple(outer_axis(operator, 0, dim, cores=True) is not None for dim in dims)


@remembered(1 << 14)
def spreading_order(context: SchedulingContext, layer: int) -> tuple[int, ...]:
    """Return the dimensions of a layer's first output in the order of spreading; cached.

    They start from the outermost loop. A dimension that only the cores of a part may divide is
    first if steps of a recurrence then take less time.
    """
    operator = sink(context, (layer,))
    order = context.loop_order[operator.outputs[0]]
    if not operator.recurrent:
        return order
    shape = context.graph.tensors[operator.outputs[0]].shape
    axes = [outer_axis(operator, 0, dim, cores=True) for dim in range(len(shape))]
    apart = [d for d in order if axes[d] is not None and outer_axis(operator, 0, d) is None]
    recurrence = Recurrence(operator, context.target, context.dtype)

    def seconds(loops: Sequence[int]) -> float:
        bound = plain_binding(shape, loops, bindable_dims(context, layer), context.target.cores)
        parts = {axis: n for axis, n in zip(axes, bound, strict=True) if axis is not None}
        return recurrence.bound_seconds(parts)

    first = (*apart, *(dim for dim in order if dim not in apart))
    return first if seconds(first) < seconds(order) else order


def spreadable(context: SchedulingContext, layer: int, extents: Sequence[int]) -> list[int]:
    """Return the most parts along each dimension into which a layer's output may be bound.

    All cores run the steps of a recurrence one after another: steps are never spread, whatever a
    reader wants, or every core would run all of them.
    """
    if not sink(context, (layer,)).recurrent:
        return list(extents)
    pairs = zip(extents, bindable_dims(context, layer), strict=True)
    return [extent if bindable else 1 for extent, bindable in pairs]


def infer_input(operator: Operator, position: int, binding: Binding) -> Binding:
    """Return the binding of an input that an output's binding implies.

    A dimension copies that of the first output that has its outermost axis, if that axis is
    parallel.
    """
    outer = [outer_axis(operator, 0, dim) for dim in range(len(operator.output_maps[0].dims))]
    factor = {axis: parts for axis, parts in zip(outer, binding, strict=True) if axis is not None}
    factors = []
    for dim in operator.input_maps[position].dims:
        # The outermost axis of a dimension has the longest step.
        terms = sorted(dim.terms, key=lambda term: -abs(term[1]))
        axis = next((axis for axis, _ in terms if operator.axes[axis].extent > 1), -1)
        parallel = axis >= 0 and operator.axes[axis].kind is AxisKind.PARALLEL
        factors.append(factor.get(axis, 1) if parallel else 1)
    return tuple(factors)


@remembered(1 << 14)
def infer_layer(context: SchedulingContext, layer: int, binding: Binding) -> dict[int, Binding]:
    """Return the bindings of a layer's inputs that its output's implies, by tensor; cached."""
    graph, wanted = context.graph, dict[int, Binding]()
    operators = [graph.operators[index] for index in context.layers[layer].operators]
    if operators[-1].outputs:
        wanted[operators[-1].outputs[0]] = binding
    for operator in reversed(operators):
        known = wanted.get(operator.outputs[0]) if operator.outputs else None
        for position, tensor in enumerate(operator.inputs if not operator.opaque else ()):
            if known is not None and tensor not in wanted and not graph.tensors[tensor].constant:
                wanted[tensor] = infer_input(operator, position, known)
    return {t: wanted[t] for t in context.layers[layer].inputs if t in wanted}


@remembered(1 << 14)
def layer_bindings(
    context: SchedulingContext,
    layers: tuple[int, ...],
    extents: tuple[tuple[int, ...], ...],
    last: Binding,
    limit: int = 0,
) -> tuple[dict[int, Binding], dict[int, Binding]]:
    """Return the bindings inside a sub-graph, from its output back; cached.

    This is the kernel generator's part. A layer takes the binding that its first consumer implies,
    unless a plain binding keeps more cores busy.

    Args:
        context: The context that the sub-graph comes from.
        layers: Layers of the sub-graph, in order.
        extents: Elements per dimension of each one's first output.
        last: Binding of its output.
        limit: The most cores that a layer is spread over, 0 for all.

    Returns:
        Per layer the binding of its output, and per external input the binding wanted of it.
    """
    chosen: dict[int, Binding] = {}
    implied: dict[int, Binding] = {}
    for layer, extent in zip(reversed(layers), reversed(extents), strict=True):
        if layer == layers[-1]:
            chosen[layer] = last
        else:
            plain = plain_for(context, layer, extent, cores=limit)
            most_parts = spreadable(context, layer, extent)
            wanted = implied.get(context.layers[layer].outputs[0], plain)
            taken = tuple(min(f, max(n, 1)) for f, n in zip(wanted, most_parts, strict=True))
            chosen[layer] = plain if cores_used(plain) > cores_used(taken) else taken
        for tensor, binding in infer_layer(context, layer, chosen[layer]).items():
            # Back from the output, so the last reader is the first that asks.
            implied.setdefault(tensor, binding)
    inputs = external_inputs(context, layers)
    return chosen, {t: implied[t] for t in inputs if t in implied}


def plain_for(
    context: SchedulingContext,
    layer: int,
    extents: Sequence[int],
    depth: int = 0,
    cores: int = 0,
) -> Binding:
    """Return the plain binding of a layer's first output.

    Args:
        context: The context that the layer comes from.
        layer: The layer's number.
        extents: Elements of the output along each dimension.
        depth: The loop that spreading begins with; the loops outside it come last.
        cores: All of a cluster if 0.
    """
    if sink(context, (layer,)).opaque:
        return (1,) * len(extents)
    order, most = spreading_order(context, layer), context.target.cores
    loops = order[depth:] + order[:depth]
    return plain_binding(extents, loops, bindable_dims(context, layer), min(cores or most, most))


@remembered(1 << 16)
def chosen_binding(book: PartBook, shape: int, cores: int, depth: int | None) -> Binding:
    """Return a plain binding of a class of parts on some cores, from one loop inwards; cached.

    If the loops outside that one are samples and it is rows, more rows and then channels are
    spread, and each core loads its own channels' weights only.

    Args:
        book: The book that the class comes from.
        shape: The number of the class.
        cores: Cores to spread over.
        depth: The loop that spreading begins with; the outermost if None.
    """
    first = book.alike[shape]
    last, (extents,) = book.shapes[shape].layers[-1], _extents(book, first, -1)
    return plain_for(book.context, last, extents, depth or 0, cores)


@remembered(1 << 16)
def _extents(book: PartBook, shape: int, start: int) -> tuple[tuple[int, ...], ...]:
    """Return the extents of the first outputs of a class of parts, from one layer on."""
    layers = book.shapes[shape].layers[start:]
    outputs = [book.context.layers[layer].outputs[0] for layer in layers]
    return extents_in(book.context, outputs, part_shape(book, shape))


def bind_instances(
    graph: InstanceGraph,
    order: Sequence[int],
    *,
    always: bool,
    forced: Mapping[int, Binding] | None = None,
    limits: Mapping[int, int] | None = None,
) -> Placement:
    """Return the placement of Algorithm 4: push bindings to producers, in reverse order.

    Args:
        graph: Instances and edges.
        order: Order of execution.
        always: Push bindings to producers in the else-branch too; printed, only a node that got a
            plain binding does, so inference alternates along a chain.
        forced: Bindings of instances that are decided already.
        limits: The most cores that layers of some of these are spread over.
    """
    book, context, links = graph.book, graph.context, graph.links
    shapes = [book.alike[shape] for shape in graph.shape.tolist()]
    most_parts = {
        shape: spreadable(context, book.shapes[shape].layers[-1], _extents(book, shape, -1)[0])
        for shape in dict.fromkeys(shapes)
    }
    columns = (column.tolist() for column in (links.slot, links.maker, links.output))
    start, inputs = links.start.tolist(), list(zip(*columns, strict=True))
    known, limits = forced or {}, limits or {}
    bindings, scopes = dict(known), [Scope.LB] * graph.count
    for index in reversed(order):
        shape = shapes[index]
        if index not in known:
            plain = chosen_binding(book, shape, context.target.cores, None)
            taken = bindings.get(index) if scopes[index] == Scope.LB else None
            # With as many cores either way, as its reader wants it: nothing is redistributed.
            bindings[index] = plain if taken is None else max(taken, plain, key=cores_used)
            if taken is not None and not always:
                continue
        makers = inputs[start[index] : start[index + 1]]
        limit = limits.get(index, 0)
        wants = inputs_wanted(book, shape, bindings[index], limit) if makers else ()
        for slot, maker, output in makers:
            # A binding is that of the first output; others follow it.
            wanted = None if output else wants[slot]
            if wanted is None or not _divides(wanted, most_parts[shapes[maker]]):
                continue
            # Where two readers want it differently it goes to GB.
            if bindings.setdefault(maker, wanted) != wanted:
                scopes[maker] = Scope.GB
    bound = tuple(map(bindings.__getitem__, range(graph.count)))
    most = tuple(limits.get(index, 0) for index in range(graph.count)) if limits else ()
    return Placement(bound, tuple(scopes), limits=most)


@remembered(1 << 16)
def inputs_wanted(
    book: PartBook, shape: int, binding: Binding, limit: int = 0
) -> tuple[Binding | None, ...]:
    """Return the bindings that a class of parts wants of its external inputs; cached."""
    context, layers = book.context, book.shapes[shape].layers
    wanted = layer_bindings(context, layers, _extents(book, shape, 0), binding, limit)[1]
    return tuple(map(wanted.get, external_inputs(context, layers)))


def _divides(binding: Binding, extents: Sequence[int]) -> bool:
    """Return whether a binding divides the extents of a part: another reader may want more."""
    pairs = itertools.zip_longest(extents, binding, fillvalue=1)
    return all(extent % parts == 0 for extent, parts in pairs)


def extents_in(
    context: SchedulingContext, tensors: Iterable[int], shape: Regions
) -> tuple[tuple[int, ...], ...]:
    """Return the extents of tensors in a part."""
    starts = context.arrays.dim_start
    dims = [slice(starts[t], starts[t + 1]) for t in tensors]
    return tuple(tuple((shape.high[span] - shape.low[span]).tolist()) for span in dims)


def core_spans(region: Ints, factors: Ints, core: Ints) -> tuple[Ints, Ints, NDArray[np.bool_]]:
    """Return the part of bound regions that each core has.

    Cores count row-major over the factors.

    Args:
        region: ``(n, rank, 2)``.
        factors: Factors of the bindings, ``(n, rank)``.
        core: ``(n,)``.

    Returns:
        First elements and ones past the last, ``(n, rank)``, and whether there is such a core.
    """
    low, high = np.empty_like(factors), np.empty_like(factors)
    for dim in reversed(range(factors.shape[1])):
        core, place = np.divmod(core, factors[:, dim])
        begin, end = region[:, dim, 0], region[:, dim, 1]
        size = -(-(end - begin) // factors[:, dim])
        low[:, dim] = np.minimum(begin + place * size, end)
        high[:, dim] = np.minimum(low[:, dim] + size, end)
    return low, high, core == 0
