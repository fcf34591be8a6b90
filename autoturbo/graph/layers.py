"""Layers: straight lines of operators that are computed tile by tile without a buffer between them.

GraphTurbo, OSDI '23, section 1.1: a layer is a straight line of nodes of which at most one has
learned parameters. Three additions of ours, stated here because the paper is silent: a layer holds
at most one operator of the matrix engine (two would need the whole of the first); an elementwise
diamond that closes on itself (SiLU's ``x * sigmoid(x)``, a GELU written out) counts as straight, as
it is in every compiler's fusion pass; and the scale of an integer product that is found while the
model runs ends its line as a bias does, together with the scalars that make it. A reduction of all
elements follows elementwise operators only: every part of what it begins with would need the whole
of the rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import add
from typing import NamedTuple

from autoturbo.graph.integers import Rescaling, rescalings
from autoturbo.graph.operators import Engine, Graph, Operator, Pattern
from autoturbo.graph.ordering import (
    AS_IN_FILE,
    BRANCHES,
    LONGEST_PATH,
    in_topological_order,
    least_live_first,
    longest_path_first,
)
from autoturbo.graph.stored import DEQUANTISE, QUANTISE

_LONGEST_BRANCH = 12
"""Operators followed along one side of a diamond, conversions apart: a GELU written out has 8."""


@dataclass(frozen=True, slots=True)
class Layer:
    """Operators computed together, tile by tile.

    Attributes:
        index: Position in the tuple that :func:`layers_of` returns.
        name: The anchor's.
        operators: Indices into :attr:`Graph.operators`, in topological order.
        anchor: The operator whose loops the others follow: the one on the matrix engine, else the
            last (section 4.1).
        inputs: Tensors made by other layers or given to the model.
        weights: Constant tensors.
        outputs: Tensors that other layers read or that leave the model.
        in_place: An output may take the buffer of an input that dies here: each element, or each
            row of a softmax or layer normalisation, is read before it is written.
    """

    index: int
    name: str
    operators: tuple[int, ...]
    anchor: int
    inputs: tuple[int, ...]
    weights: tuple[int, ...]
    outputs: tuple[int, ...]
    in_place: bool


def layers_of(graph: Graph, places: Sequence[int] | None = None) -> tuple[Layer, ...]:
    """Cut a graph into layers, in topological order; those go first that ``places`` says."""
    return layers_from(graph, _chains(graph), places)


def layers_from(
    graph: Graph, chains: Iterable[Iterable[int]], places: Sequence[int] | None = None
) -> tuple[Layer, ...]:
    """Return the layers of the given operators, in topological order.

    Args:
        graph: The graph they come from.
        chains: Operator indices of each layer; together they hold every operator once, and no
            layer may depend on itself through another.
        places: Per operator (:func:`places_of`): of the layers that are ready, that with the first
            of them goes first. If None, that after which the fewest elements are live.
    """
    parts = sorted(sorted(chain) for chain in chains)
    needs = _needs(graph, parts)
    if places is None:
        order = least_live_first(needs, _made_elements(graph, parts))
    else:
        first = [min(places[index] for index in part) for part in parts]
        order, _ = in_topological_order(needs, first)
    return tuple(_layer(graph, index, parts[number]) for index, number in enumerate(order))


def places_of(graph: Graph, order: str) -> Sequence[int]:
    """Return the place of every operator in an order of the graph's layers.

    The same places serve the graph at every batch: sizes and work differ there, the order does not.

    Args:
        graph: The graph.
        order: One of the words of :mod:`autoturbo.graph.ordering`.
    """
    if order == BRANCHES:
        return range(len(graph.operators))
    if order == AS_IN_FILE:
        return graph.file_places or range(len(graph.operators))
    parts = sorted(_chains(graph))
    needs = _needs(graph, parts)
    if order == LONGEST_PATH:
        numbers = longest_path_first(needs, [_work(graph, part) for part in parts])
    else:
        numbers = least_live_first(needs, _made_elements(graph, parts))
    places = [0] * len(graph.operators)
    for place, number in enumerate(numbers):
        for index in parts[number]:
            places[index] = place
    return places


def _chains(graph: Graph) -> list[list[int]]:
    """Return the operators of every layer, ascending."""
    chains: list[list[int]] = []
    taken = [False] * len(graph.operators)
    scales = {end.scale: end for end in rescalings(graph).values()}
    makers = {maker for end in scales.values() for maker in end.makers}
    starts = range(len(graph.operators))
    # What makes a scale belongs to the product's layer: it begins one only if none took it.
    for start in (*(i for i in starts if i not in makers), *sorted(makers)):
        if not taken[start]:
            chain = sorted(_grow(graph, start, scales))
            for index in chain:
                taken[index] = True
            chains.append(chain)
    return chains


def _grow(graph: Graph, start: int, scales: Mapping[int, Rescaling]) -> list[int]:
    """Return the longest layer that starts at an operator."""
    chain = [start]
    held = _kinds(graph, chain)
    while more := _next(graph, chain[-1], scales):
        added = _kinds(graph, more)
        if not _may_join(held, added):
            break
        chain += more
        held = held.with_(added)
    return chain


def _next(graph: Graph, last: int, scales: Mapping[int, Rescaling]) -> list[int]:
    """Return the operators that continue a layer: one, or a closed diamond; empty if none.

    The scale of an integer product, and what makes it, ends the product as a bias does.
    """
    tensor = _only_output(graph, last)
    if tensor is None:
        return []
    readers = graph.consumers[tensor]
    if len(readers) == 1:
        end = scales.get(readers[0])
        if end is not None and last == end.cast:
            return [*end.makers, end.scale]
        return list(readers) if _data_inputs(graph, readers[0]) == {tensor} else []
    return _diamond(graph, tensor)


def _only_output(graph: Graph, index: int) -> int | None:
    """Return the only used output of an operator, or None if it is an output of the graph."""
    used = [t for t in graph.operators[index].outputs if graph.consumers[t] or t in graph.returned]
    if len(used) != 1 or used[0] in graph.returned:
        return None
    return used[0]


def _data_inputs(graph: Graph, index: int) -> set[int]:
    return {t for t in graph.operators[index].inputs if not graph.tensors[t].constant}


def _diamond(graph: Graph, tensor: int) -> list[int]:
    """Return the elementwise operators from a tensor to the operator at which its readers meet."""
    readers = graph.consumers[tensor]
    # Bounded, so that looking for a diamond behind a tensor that many read stays cheap.
    if not 1 < len(readers) <= _LONGEST_BRANCH or not _all_elementwise(graph, readers):
        return []
    # Numbers are topological: only the last reader can have all branches before it.
    meet = max(readers)
    inner: set[int] = set()
    for reader in readers:
        branch = _branch(graph, tensor, reader, meet)
        if branch is None:
            return []
        inner.update(branch)
    made_tensors = {t for index in inner for t in graph.operators[index].outputs} | {tensor}
    return [*sorted(inner), meet] if _data_inputs(graph, meet) <= made_tensors else []


def _all_elementwise(graph: Graph, indices: Iterable[int]) -> bool:
    return all(is_elementwise(graph.operators[index]) for index in indices)


def _branch(graph: Graph, tensor: int, start: int, meet: int) -> list[int] | None:
    """Return the operators from a reader up to the meeting point; None if the branch leaves it."""
    branch: list[int] = []
    current, fed_by, length = start, tensor, 0
    while current != meet:
        output = _only_output(graph, current)
        alone = output is not None and len(graph.consumers[output]) == 1
        fits = _data_inputs(graph, current) == {fed_by} and is_elementwise(graph.operators[current])
        if output is None or not alone or not fits or length == _LONGEST_BRANCH:
            return None
        # Conversions are no work of their own on either side of a diamond.
        length += graph.operators[current].kind not in QUANTISE | DEQUANTISE
        branch.append(current)
        fed_by, current = output, graph.consumers[output][0]
    return branch


def is_elementwise(operator: Operator) -> bool:
    """Return whether the operator maps each element of its data input to one of its output."""
    return operator.pattern <= Pattern.BROADCAST and operator.engine is Engine.VECTOR


class _Kinds(NamedTuple):
    """Counts of operators of the kinds that a layer may hold few of."""

    matrix: int
    learned: int
    recurrent: int
    opaque: int
    reduces_all: int
    no_elementwise: int

    def with_(self, more: _Kinds) -> _Kinds:
        """Return the counts of these operators and of others."""
        return _Kinds(*map(add, self, more))


def _kinds(graph: Graph, indices: Iterable[int]) -> _Kinds:
    operators = [graph.operators[index] for index in indices]
    return _Kinds(
        sum(op.engine is Engine.MATRIX for op in operators),
        sum(op.parameterised for op in operators),
        sum(op.recurrent for op in operators),
        sum(bool(op.opaque) for op in operators),
        sum(op.reduces_all for op in operators),
        sum(not is_elementwise(op) for op in operators),
    )


def _may_join(held: _Kinds, more: _Kinds) -> bool:
    both = held.with_(more)
    if both.recurrent:
        return False  # its own cores share it out; what is fused would be bound otherwise
    if more.reduces_all:
        return not held.no_elementwise  # what it waits for all of is computed by all cores
    return both.matrix <= 1 and both.learned <= 1 and not both.opaque


def _needs(graph: Graph, chains: Sequence[Sequence[int]]) -> list[set[int]]:
    """Return, per chain, the other chains that it reads from."""
    owner = {index: number for number, chain in enumerate(chains) for index in chain}
    return [
        {owner[index] for index in _producers(graph, chain)} - {number}
        for number, chain in enumerate(chains)
    ]


def _producers(graph: Graph, chain: Iterable[int]) -> set[int]:
    producers = {graph.producer[t] for index in chain for t in graph.operators[index].inputs}
    return producers - {-1}


def _made_elements(graph: Graph, chains: Iterable[Sequence[int]]) -> list[int]:
    """Return, per chain, the elements that it makes for others."""
    return [sum(graph.tensors[t].elements for t in _leaving(graph, chain)) for chain in chains]


def _work(graph: Graph, chain: Iterable[int]) -> int:
    operators = (graph.operators[index] for index in chain)
    return sum(operator.macs + operator.points for operator in operators)


def _leaving(graph: Graph, chain: Sequence[int]) -> tuple[int, ...]:
    """Return the tensors of a chain that others read or that leave the model."""
    inside = set(chain)
    return tuple(
        t
        for index in chain
        for t in graph.operators[index].outputs
        if t in graph.returned or not inside.issuperset(graph.consumers[t])
    )


def _layer(graph: Graph, index: int, chain: list[int]) -> Layer:
    operators = [graph.operators[i] for i in chain]
    made_tensors = {t for op in operators for t in op.outputs}
    read = dict.fromkeys(t for op in operators for t in op.inputs if t not in made_tensors)
    anchor = next((i for i in chain if graph.operators[i].engine is Engine.MATRIX), chain[-1])
    return Layer(
        index=index,
        name=graph.operators[anchor].name,
        operators=tuple(chain),
        anchor=anchor,
        inputs=tuple(t for t in read if not graph.tensors[t].constant),
        weights=tuple(t for t in read if graph.tensors[t].constant),
        outputs=_leaving(graph, chain),
        in_place=_in_place(operators),
    )


BY_ROWS = frozenset(("Softmax", "LogSoftmax", "LayerNormalization", "SimplifiedLayerNormalization"))
"""Operators that read a whole row before they write it, and nothing else of their data input."""


def _in_place(operators: list[Operator]) -> bool:
    free = (
        op.engine is Engine.NONE or is_elementwise(op) or op.kind in BY_ROWS for op in operators
    )
    return all(free)
