"""Binding instances to cores and choosing buffer scopes: GraphTurbo, OSDI '23, section 3.4.

The rule is Algorithm 4. A binding is a factor per dimension of a tensor: ``(2, 1, 4, 1)`` spreads
two samples by four row blocks over eight cores. Cores count row-major over the factors. All cores
of a cluster work on one instance.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

from autoturbo.graph.arrays import Ints
from autoturbo.graph.domain import AccessMap, AxisKind
from autoturbo.graph.operators import Operator
from autoturbo.schedule.instances import InstanceGraph, PartShape, external_inputs
from autoturbo.schedule.problem import Problem, outer_axis

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
    """

    bindings: tuple[Binding, ...]
    scopes: tuple[Scope, ...]


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
    """Which dimensions of an output may be spread over cores: those with a parallel outer axis."""
    dims = range(len(operator.output_maps[output].dims))
    return tuple(outer_axis(operator, output, dim) is not None for dim in dims)


def infer_input(operator: Operator, position: int, binding: Binding) -> Binding:
    """The binding of an input that an output's binding implies: matching dimensions copy theirs."""
    factors: dict[int, int] = {}
    for dim, factor in enumerate(binding):
        axis = outer_axis(operator, 0, dim)
        if factor > 1 and axis is not None:
            factors[axis] = factor
    return tuple(_factor_of(operator, dim, factors) for dim in _dims(operator.input_maps[position]))


def _dims(access: AccessMap) -> list[tuple[tuple[int, int], ...]]:
    return [dim.terms for dim in access.dims]


def _factor_of(
    operator: Operator, terms: tuple[tuple[int, int], ...], factors: Mapping[int, int]
) -> int:
    """The factor of the outermost parallel axis in an input dimension."""
    for axis, _ in sorted(terms, key=lambda term: -abs(term[1])):
        if operator.axes[axis].extent > 1:
            parallel = operator.axes[axis].kind is AxisKind.PARALLEL
            return factors.get(axis, 1) if parallel else 1
    return 1


def infer_layer(problem: Problem, layer: int, binding: Binding) -> dict[int, Binding]:
    """Bindings of a layer's inputs that its output's binding implies, by tensor."""
    operators = [problem.graph.operators[i] for i in problem.layers[layer].operators]
    wanted: dict[int, Binding] = {}
    if operators[-1].outputs and not operators[-1].opaque:
        wanted[operators[-1].outputs[0]] = binding
    for operator in reversed(operators):
        known = wanted.get(operator.outputs[0]) if operator.outputs else None
        if known is None or operator.opaque:
            continue
        for position, tensor in enumerate(operator.inputs):
            if not problem.graph.tensors[tensor].constant:
                wanted.setdefault(tensor, infer_input(operator, position, known))
    return {t: wanted[t] for t in problem.layers[layer].inputs if t in wanted}


def layer_bindings(
    problem: Problem, layers: Sequence[int], extents: Mapping[int, Sequence[int]], last: Binding
) -> tuple[dict[int, Binding], dict[int, Binding]]:
    """Bindings inside a sub-graph, from its output back (the kernel generator's part).

    A layer takes what its first consumer implies unless a plain binding keeps more cores busy.

    Args:
        problem: where the sub-graph comes from.
        layers: its layers in order.
        extents: elements per dimension of the tensors it touches.
        last: binding of its output.

    Returns:
        Per layer the binding of its output, and per external input the binding wanted of it.
    """
    chosen: dict[int, Binding] = {}
    implied: dict[int, Binding] = {}
    for layer in reversed(layers):
        output = problem.layers[layer].outputs[0]
        if layer == layers[-1]:
            chosen[layer] = last
        else:
            plain = plain_for(problem, layer, extents[output])
            taken = _clipped(implied.get(output, plain), extents[output])
            chosen[layer] = plain if cores_used(plain) > cores_used(taken) else taken
        for tensor, binding in infer_layer(problem, layer, chosen[layer]).items():
            implied.setdefault(tensor, binding)
    inputs = external_inputs(problem, layers)
    return chosen, {t: implied[t] for t in inputs if t in implied}


def _clipped(binding: Binding, extents: Sequence[int]) -> Binding:
    """A binding with no more parts than elements."""
    return tuple(min(f, max(extent, 1)) for f, extent in zip(binding, extents, strict=True))


def plain_for(problem: Problem, layer: int, extents: Sequence[int]) -> Binding:
    """The plain binding of a layer's first output."""
    operator = problem.graph.operators[problem.layers[layer].operators[-1]]
    if operator.opaque:
        return (1,) * len(extents)
    order = problem.loop_order[operator.outputs[0]]
    return plain_binding(extents, order, bindable_dims(operator), problem.target.cores)


def bind_instances(
    problem: Problem, graph: InstanceGraph, order: Sequence[int], *, always: bool
) -> Placement:
    """Algorithm 4: walk the order backwards, bind outputs, push bindings to producers.

    Args:
        problem: where the instances come from.
        graph: instances and edges.
        order: order of execution.
        always: push bindings to producers in the else-branch too; printed, only a node that got a
            plain binding does, so inference alternates along a chain.
    """
    bindings: list[Binding] = [()] * len(graph.instances)
    scopes = [Scope.LB] * len(graph.instances)
    for index in reversed(order):
        plain = _plain_of(problem, graph, index)
        taken = bindings[index]
        if taken and scopes[index] is Scope.LB:
            bindings[index] = taken if cores_used(taken) >= cores_used(plain) else plain
            if not always:
                continue
        else:
            bindings[index] = plain
        _push(problem, graph, index, bindings, scopes)
    return Placement(tuple(bindings), tuple(scopes))


def _plain_of(problem: Problem, graph: InstanceGraph, index: int) -> Binding:
    instance = graph.instances[index]
    layers = graph.subgraphs[instance.subgraph].layers
    output = problem.layers[layers[-1]].outputs[0]
    region = instance.outputs[output]
    return plain_for(problem, layers[-1], (region[:, 1] - region[:, 0]).tolist())


def _push(
    problem: Problem,
    graph: InstanceGraph,
    index: int,
    bindings: list[Binding],
    scopes: list[Scope],
) -> None:
    """Tell the producers of an instance how it wants their outputs bound."""
    wanted = wanted_inputs(problem, graph, index, bindings[index])
    for producer in graph.producers[index]:
        maker = graph.subgraphs[graph.instances[producer].subgraph]
        first = problem.layers[maker.layers[-1]].outputs[0]
        binding = wanted.get(first, ())
        if not binding or not _divides(binding, graph.instances[producer].outputs[first]):
            continue
        if not bindings[producer]:
            bindings[producer] = binding
        elif bindings[producer] != binding:
            scopes[producer] = Scope.GB


def _divides(binding: Binding, region: Ints) -> bool:
    """Whether a part of a tensor can be bound so: a consumer of several parts may want more."""
    extents = (region[:, 1] - region[:, 0]).tolist()
    return all(extent % factor == 0 for extent, factor in zip(extents, binding, strict=True))


def wanted_inputs(
    problem: Problem, graph: InstanceGraph, index: int, binding: Binding
) -> dict[int, Binding]:
    """Bindings that an instance wants of its inputs, remembered per sub-graph and extents."""
    instance = graph.instances[index]
    layers = graph.subgraphs[instance.subgraph].layers
    extents = extents_in(problem, layers, graph.shapes[instance.shape])
    key = ("wanted", layers, binding, tuple(map(tuple, extents.values())))
    found = problem.memory.get(key)
    if not isinstance(found, dict):
        found = layer_bindings(problem, layers, extents, binding)[1]
        problem.memory[key] = found
    return found


def extents_in(problem: Problem, layers: Sequence[int], shape: PartShape) -> dict[int, list[int]]:
    """Elements per dimension of every layer output in a part."""
    starts = problem.arrays.dim_start
    lengths = shape.high - shape.low
    return {
        t: lengths[starts[t] : starts[t + 1]].tolist()
        for layer in layers
        for t in problem.layers[layer].outputs
    }
