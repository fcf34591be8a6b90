"""Binding instances to cores and choosing buffer scopes: GraphTurbo, OSDI '23, section 3.4.

The rule is Algorithm 4. A binding is a factor per dimension of a tensor: ``(2, 1, 4, 1)`` spreads
two samples by four row blocks over eight cores. Cores count row-major over the factors. All cores
of a cluster work on one instance.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

from autoturbo.graph.arrays import Regions
from autoturbo.graph.domain import AxisKind
from autoturbo.graph.operators import Operator
from autoturbo.schedule.place.instances import (
    InstanceGraph,
    PartBook,
    external_inputs,
    part_shape,
)
from autoturbo.schedule.place.recurrence import Recurrence
from autoturbo.schedule.problem import Problem, outer_axis
from autoturbo.stores import Store, remembered

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
        bindings: per instance, the binding of its output.
        scopes: per instance, where its output is declared.
        core_ids: per instance, which cores its parts run on, row-major over the factors of its
            binding; empty for 0, 1, 2, ... The cores of the whole kernel are renamed so. Empty as a
            whole if no instance names its cores.
    """

    bindings: tuple[Binding, ...]
    scopes: tuple[Scope, ...]
    core_ids: tuple[tuple[int, ...], ...] = ()

    def cores_of(self, instance: int, cores: int) -> tuple[int, ...]:
        """Per core of an instance's program, the core of the cluster that runs it."""
        named = self.core_ids[instance] if self.core_ids else ()
        return (*named, *(core for core in range(cores) if core not in named))


def plain_binding(
    extents: Sequence[int], order: Sequence[int], bindable: Sequence[bool], cores: int
) -> Binding:
    """Spread a tensor over cores, outermost loop first.

    The paper tries 8, 4, 2, 1 and takes the first that divides the extent, until the cores are
    used up; for other core counts the powers of two become all numbers that divide the extent.

    Args:
        extents: elements per dimension.
        order: dimensions from the outermost loop to the innermost.
        bindable: False for dimensions that may not be spread (a softmax's).
        cores: cores of a cluster.
    """
    factors = [1] * len(extents)
    left = cores
    for dim in order:
        if bindable[dim] and extents[dim] > 0:
            factors[dim] = _largest_factor(extents[dim], left, powers=cores & (cores - 1) == 0)
            left //= factors[dim]
    return tuple(factors)


def _largest_factor(extent: int, left: int, *, powers: bool) -> int:
    if powers:
        return math.gcd(extent, left)
    return next(f for f in range(min(extent, left), 0, -1) if extent % f == 0)


def cores_used(binding: Binding) -> int:
    """Number of cores that a binding keeps busy."""
    return math.prod(binding)


def bindable_dims(operator: Operator, output: int = 0) -> tuple[bool, ...]:
    """Which dimensions of an output may be spread over cores.

    Those with a parallel outer axis, or one that the cores of a part may share out.
    """
    dims = range(len(operator.output_maps[output].dims))
    return tuple(outer_axis(operator, output, dim, cores=True) is not None for dim in dims)


@remembered(1 << 14)
def spreading_order(problem: Problem, layer: int) -> tuple[int, ...]:
    """Return the dimensions of a layer's first output as they are spread over cores, remembered.

    From the outermost loop; what only the cores of a part may share out is first where steps of a
    recurrence then take less time.
    """
    operator = problem.graph.operators[problem.layers[layer].operators[-1]]
    order = problem.loop_order[operator.outputs[0]]
    if not operator.recurrent:
        return order
    shape = problem.graph.tensors[operator.outputs[0]].shape
    axes = [outer_axis(operator, 0, dim, cores=True) for dim in range(len(shape))]
    apart = [d for d in order if axes[d] is not None and outer_axis(operator, 0, d) is None]
    recurrence = Recurrence(operator, problem.target, problem.dtype)

    def seconds(loops: Sequence[int]) -> float:
        bound = plain_binding(shape, loops, bindable_dims(operator), problem.target.cores)
        parts = {axis: n for axis, n in zip(axes, bound, strict=True) if axis is not None}
        return recurrence.bound_seconds(parts)

    first = (*apart, *(dim for dim in order if dim not in apart))
    return first if seconds(first) < seconds(order) else order


def spreadable(problem: Problem, layer: int, extents: Sequence[int]) -> list[int]:
    """Return the most parts along each dimension into which a layer's output may be bound.

    Steps of a recurrence go one after another on all cores: whatever a reader wants, they are not
    spread, or every core would take all of them.
    """
    operator = problem.graph.operators[problem.layers[layer].operators[-1]]
    if not operator.recurrent:
        return list(extents)
    may = bindable_dims(operator)
    return [extent if own else 1 for extent, own in zip(extents, may, strict=True)]


def infer_input(operator: Operator, position: int, binding: Binding) -> Binding:
    """The binding of an input that an output's binding implies: matching dimensions copy theirs."""
    return _copied(binding, _matches(operator, position))


def _copied(binding: Binding, matches: Sequence[int]) -> Binding:
    return tuple(binding[dim] if dim >= 0 else 1 for dim in matches)


def _matches(operator: Operator, position: int) -> tuple[int, ...]:
    """Per dimension of an input, the dimension of the first output that it matches, -1 for none."""
    outer = [outer_axis(operator, 0, dim) for dim in range(len(operator.output_maps[0].dims))]
    dim_of = {axis: dim for dim, axis in enumerate(outer) if axis is not None}
    return tuple(_match(operator, dim.terms, dim_of) for dim in operator.input_maps[position].dims)


def _match(
    operator: Operator, terms: tuple[tuple[int, int], ...], dim_of: Mapping[int, int]
) -> int:
    """The output dimension of the outermost axis in an input dimension, if it is parallel."""
    for axis, _ in sorted(terms, key=lambda term: -abs(term[1])):
        if operator.axes[axis].extent > 1:
            parallel = operator.axes[axis].kind is AxisKind.PARALLEL
            return dim_of.get(axis, -1) if parallel else -1
    return -1


@remembered(1 << 14)
def steps_back(
    problem: Problem, layer: int
) -> tuple[tuple[int, tuple[tuple[int, tuple[int, ...]], ...]], ...]:
    """A layer's operators from the last to the first, remembered.

    Each as its first output and, per input that is no weight, the tensor and its matches.
    """
    operators = [problem.graph.operators[i] for i in problem.layers[layer].operators]
    return tuple(
        (op.outputs[0], tuple(
            (tensor, _matches(op, position))
            for position, tensor in enumerate(op.inputs)
            if not problem.graph.tensors[tensor].constant
        ))
        for op in reversed(operators) if op.outputs and not op.opaque
    )  # fmt: skip


def infer_layer(problem: Problem, layer: int, binding: Binding) -> dict[int, Binding]:
    """Bindings of a layer's inputs that its output's binding implies, by tensor."""
    last = problem.graph.operators[problem.layers[layer].operators[-1]]
    wanted: dict[int, Binding] = {}
    if last.outputs and not last.opaque:
        wanted[last.outputs[0]] = binding
    for output, inputs in steps_back(problem, layer):
        known = wanted.get(output)
        if known is None:
            continue
        for tensor, matches in inputs:
            if tensor not in wanted:
                wanted[tensor] = _copied(known, matches)
    return {t: wanted[t] for t in problem.layers[layer].inputs if t in wanted}


def layer_bindings(
    problem: Problem, layers: Sequence[int], extents: Mapping[int, Sequence[int]], last: Binding
) -> tuple[dict[int, Binding], dict[int, Binding]]:
    """Bindings inside a sub-graph, from its output back (the kernel generator's part), remembered.

    A layer takes what its first consumer implies unless a plain binding keeps more cores busy.

    Args:
        problem: where the sub-graph comes from.
        layers: its layers in order.
        extents: elements per dimension of the tensors it touches.
        last: binding of its output.

    Returns:
        Per layer the binding of its output, and per external input the binding wanted of it.
    """
    sizes = tuple((tensor, tuple(extent)) for tensor, extent in extents.items())
    return _layer_bindings(problem, tuple(layers), sizes, last)


@remembered(1 << 14)
def _layer_bindings(
    problem: Problem,
    layers: tuple[int, ...],
    sizes: tuple[tuple[int, tuple[int, ...]], ...],
    last: Binding,
) -> tuple[dict[int, Binding], dict[int, Binding]]:
    extents = dict(sizes)
    chosen: dict[int, Binding] = {}
    implied: dict[int, Binding] = {}
    for layer in reversed(layers):
        output = problem.layers[layer].outputs[0]
        if layer == layers[-1]:
            chosen[layer] = last
        else:
            plain = plain_for(problem, layer, extents[output])
            most = spreadable(problem, layer, extents[output])
            taken = _clipped(implied.get(output, plain), most)
            chosen[layer] = plain if cores_used(plain) > cores_used(taken) else taken
        for tensor, binding in infer_layer(problem, layer, chosen[layer]).items():
            implied.setdefault(tensor, binding)
    inputs = external_inputs(problem, layers)
    return chosen, {t: implied[t] for t in inputs if t in implied}


def _clipped(binding: Binding, extents: Sequence[int]) -> Binding:
    """A binding with no more parts than elements."""
    return tuple(min(f, max(extent, 1)) for f, extent in zip(binding, extents, strict=True))


def plain_for(
    problem: Problem,
    layer: int,
    extents: Sequence[int],
    order: Sequence[int] | None = None,
    cores: int | None = None,
) -> Binding:
    """The plain binding of a layer's first output.

    Args:
        problem: where the layer comes from.
        layer: which.
        extents: elements of the output along each dimension.
        order: its dimensions in the order in which they are spread; that of
            :func:`spreading_order` if None.
        cores: all of a cluster if None.
    """
    operator = problem.graph.operators[problem.layers[layer].operators[-1]]
    if operator.opaque:
        return (1,) * len(extents)
    loops = spreading_order(problem, layer) if order is None else order
    most = problem.target.cores if cores is None else cores
    return plain_binding(extents, loops, _bindable(problem, layer), most)


@remembered(1 << 14)
def _bindable(problem: Problem, layer: int) -> tuple[bool, ...]:
    return bindable_dims(problem.graph.operators[problem.layers[layer].operators[-1]])


def chosen_binding(book: PartBook, shape: int, cores: int, depth: int | None) -> Binding:
    """Return a plain binding of a class of parts on some cores, from one loop inwards.

    The loops of its output outside that one come last. Where they are samples and it is rows, more
    rows and then channels are spread, and each core loads its own channels' weights only.

    Args:
        book: where the class comes from.
        shape: its index.
        cores: cores to spread over.
        depth: the loop that spreading begins with; the outermost if None.
    """
    return _chosen_binding(book, book.alike[shape], cores, depth)


@remembered(1 << 16)
def _chosen_binding(book: PartBook, shape: int, cores: int, depth: int | None) -> Binding:
    problem, last = book.problem, book.shapes[shape].layers[-1]
    order = list(spreading_order(problem, last))
    if depth is not None and depth < len(order):
        order = order[depth:] + order[:depth]
    most = min(cores, problem.target.cores)
    return plain_for(problem, last, _output_extents(book, shape), order, most)


@remembered(1 << 16)
def _output_extents(book: PartBook, shape: int) -> list[int]:
    """Return the elements along each dimension of the first output of a class of parts."""
    problem, last = book.problem, book.shapes[shape].layers[-1]
    output = problem.layers[last].outputs[0]
    return extents_in(problem, (last,), part_shape(book, shape))[output]


@dataclass(eq=False)
class BindingBook:
    """The bindings of a problem, which are numbered.

    Attributes:
        rank: most dimensions of a tensor.
        index: number of a binding.
        bindings: by number.
        factors: of each, for compiled code, further dimensions 1.
        ranks: number of dimensions of each.
    """

    rank: int
    index: dict[Binding, int] = field(default_factory=dict)
    bindings: list[Binding] = field(default_factory=list)
    factors: Store = field(init=False)
    ranks: Store = field(default_factory=Store)

    def __post_init__(self) -> None:
        self.factors = Store((self.rank,))

    def number(self, binding: Binding) -> int:
        """Return the number of a binding."""
        found = self.index.get(binding)
        if found is None:
            found = self.index[binding] = self.ranks.add([len(binding)])
            self.bindings.append(binding)
            self.factors.add([*binding, *(1 for _ in range(self.rank - len(binding)))])
        return found


@remembered(1)
def binding_book(book: PartBook) -> BindingBook:
    """Return the bindings of a book of parts."""
    return BindingBook(book.rank)


def bind_instances(
    graph: InstanceGraph,
    order: Sequence[int],
    *,
    always: bool,
    forced: Mapping[int, Binding] | None = None,
) -> Placement:
    """Return what Algorithm 4 gives: walk the order backwards, push bindings to producers.

    Args:
        graph: instances and edges.
        order: order of execution.
        always: push bindings to producers in the else-branch too; printed, only a node that got a
            plain binding does, so inference alternates along a chain.
        forced: bindings of instances that are decided already.
    """
    book, links = graph.book, graph.links
    shapes = [book.alike[shape] for shape in graph.shape.tolist()]
    outputs = {shape: _output_of(book, shape) for shape in dict.fromkeys(shapes)}
    columns = (column.tolist() for column in (links.slot, links.maker, links.output))
    start, inputs = links.start.tolist(), list(zip(*columns, strict=True))
    known = forced or {}
    bindings, scopes = dict(known), [Scope.LB] * graph.count
    for index in reversed(order):
        shape = shapes[index]
        if index not in known:
            plain = outputs[shape][0]
            taken = bindings.get(index) if scopes[index] == Scope.LB else None
            bindings[index] = plain if taken is None else max(taken, plain, key=cores_used)
            if taken is not None and not always:
                continue
        own = inputs[start[index] : start[index + 1]]
        wants = _inputs_wanted(book, shape, bindings[index]) if own else ()
        for slot, maker, output in own:
            wanted = None if output else wants[slot]
            if wanted is None or not _divides(wanted, outputs[shapes[maker]][1]):
                continue
            # Where two readers want it differently it goes to GB.
            if bindings.setdefault(maker, wanted) != wanted:
                scopes[maker] = Scope.GB
    return Placement(tuple(map(bindings.__getitem__, range(graph.count))), tuple(scopes))


@remembered(1 << 16)
def _output_of(book: PartBook, shape: int) -> tuple[Binding, list[int]]:
    """Return a class of parts' plain binding, and into how many parts its output may be bound."""
    problem, last = book.problem, book.shapes[shape].layers[-1]
    extents = _output_extents(book, shape)
    return plain_for(problem, last, extents), spreadable(problem, last, extents)


def wanted_inputs(graph: InstanceGraph, index: int, binding: Binding) -> dict[int, Binding]:
    """Return the bindings that an instance wants of its inputs, its output bound in some way."""
    return _wanted_by(graph.book, int(graph.shape[index]), binding)


def _wanted_by(book: PartBook, shape: int, binding: Binding) -> dict[int, Binding]:
    problem, layers = book.problem, book.shapes[shape].layers
    extents = extents_in(problem, layers, part_shape(book, shape))
    return layer_bindings(problem, layers, extents, binding)[1]


@remembered(1 << 16)
def _inputs_wanted(book: PartBook, shape: int, binding: Binding) -> tuple[Binding | None, ...]:
    """Return what a class of parts bound so wants of its external inputs, remembered."""
    inputs = external_inputs(book.problem, book.shapes[shape].layers)
    return tuple(map(_wanted_by(book, shape, binding).get, inputs))


def _divides(binding: Binding, extents: Sequence[int]) -> bool:
    """Return whether a part of a tensor can be bound so: a consumer of several may want more."""
    pairs = itertools.zip_longest(extents, binding, fillvalue=1)
    return all(extent % parts == 0 for extent, parts in pairs)


def extents_in(problem: Problem, layers: Sequence[int], shape: Regions) -> dict[int, list[int]]:
    """Elements per dimension of every layer output in a part."""
    starts = problem.arrays.dim_start
    outputs = [t for layer in layers for t in problem.layers[layer].outputs]
    dims = [slice(starts[t], starts[t + 1]) for t in outputs]
    return {
        t: (shape.high[own] - shape.low[own]).tolist() for t, own in zip(outputs, dims, strict=True)
    }
