"""Isomorphic sub-graphs, as the blocks of a transformer are.

What a sub-graph takes alone follows from the loops of its operators, the shapes of its tensors, how
they are connected, and what makes its inputs. Where two sub-graphs have all that in common, in the
same order, everything that is found out about parts of one holds for the other.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Hashable, Iterable
from dataclasses import InitVar, dataclass, field
from typing import Final

from autoturbo.graph.layers import Layer
from autoturbo.graph.operators import Graph, Operator
from autoturbo.schedule.problem import Problem
from autoturbo.stores import remembered

_GIVEN, _INNER, _ESCAPING = -1, -2, -3
"""Where a tensor comes from, if no layer outside the sub-graph makes it: made by no layer (given, a
weight, or inside a layer), made in the sub-graph and read there alone, or outside too."""

_END: Final = -1
"""Ends a list of tensors."""


@dataclass(eq=False)
class Isomorphism:
    """Numbers sub-graphs: those that are isomorphic have the same number.

    Attributes:
        problem: whose layers are numbered; it is not kept.
        operators: per operator, a number that it shares with those that differ in names only.
        tensors: likewise per tensor.
        layers: per layer, what it is besides its operators.
        alone: per layer, all that it is, whoever makes its inputs.
        first: of each number, the layers that it was first given to.
    """

    problem: InitVar[Problem]
    operators: list[int] = field(init=False)
    tensors: list[int] = field(init=False)
    layers: list[int] = field(init=False)
    alone: list[int] = field(default_factory=list)
    first: list[tuple[int, ...]] = field(default_factory=list)
    _graph: Graph = field(init=False)
    _layers: tuple[Layer, ...] = field(init=False)
    _producer: tuple[int, ...] = field(init=False)
    _consumers: tuple[tuple[int, ...], ...] = field(init=False)
    _place: dict[int, int] = field(init=False)
    _known: dict[tuple[int, ...], int] = field(default_factory=dict)
    _numbers: dict[bytes, int] = field(default_factory=dict)

    def __post_init__(self, problem: Problem) -> None:
        graph = self._graph = problem.graph
        self._layers, self._producer = problem.layers, problem.producer
        self._consumers = problem.consumers
        outputs = set(graph.outputs)
        self._place = {t: at for x in problem.layers for at, t in enumerate(x.outputs)}
        self.operators = _numbered(map(_operator_kind, graph.operators))
        self.tensors = _numbered(
            (t.shape, t.dtype, t.constant, t.integer_bytes, order, index in outputs, bool(readers))
            for index, (t, order, readers) in enumerate(
                zip(graph.tensors, problem.loop_order, problem.consumers, strict=True)
            )
        )
        self.layers = _numbered(map(_layer_kind, problem.layers))
        self.alone = _numbered([self._signature((x.index,), alone=True) for x in problem.layers])

    def number(self, layers: tuple[int, ...]) -> int:
        """Return the number of the sub-graph of some layers, in order."""
        found = self._known.get(layers)
        if found is None:
            signature = self._signature(layers)
            found = self._known[layers] = self._numbers.setdefault(signature, len(self._numbers))
            if found == len(self.first):
                self.first.append(layers)
        return found

    def _signature(self, layers: tuple[int, ...], *, alone: bool = False) -> bytes:
        """Return a digest of all that isomorphic sub-graphs have in common.

        Args:
            layers: in order.
            alone: leave out who makes the inputs.
        """
        graph, inside = self._graph, frozenset(layers)
        words, tensors, makers = array("q"), dict[int, int](), dict[int, int]()

        def note(several: Iterable[int]) -> None:
            for tensor in several:
                if tensor not in tensors:
                    tensors[tensor] = len(tensors)
                    words.append(self.tensors[tensor])
                    words.extend([_GIVEN] if alone else self._origin(tensor, inside, makers))
                words.append(tensors[tensor])
            words.append(_END)

        for index in layers:
            layer = self._layers[index]
            words.append(self.layers[index])
            note(layer.inputs)
            note(layer.outputs)
            for operator in layer.operators:
                words.append(self.operators[operator])
                note(graph.operators[operator].inputs)
                note(graph.operators[operator].outputs)
        return hashlib.blake2b(words, digest_size=16).digest()

    def _origin(self, tensor: int, inside: frozenset[int], makers: dict[int, int]) -> list[int]:
        """Return where a tensor comes from; makers outside are numbered as they are met."""
        maker = self._producer[tensor]
        if maker < 0:
            return [_GIVEN]
        if maker in inside:
            escapes = not inside.issuperset(self._consumers[tensor])
            return [_ESCAPING if escapes else _INNER]
        place = makers.setdefault(maker, len(makers))
        return [place, self.alone[maker], self._place[tensor]]


def number_of(problem: Problem, layers: tuple[int, ...]) -> int:
    """Return a number that isomorphic sub-graphs of a model share."""
    return _isomorphism(problem).number(layers)


def first_alike(problem: Problem, layers: tuple[int, ...]) -> tuple[int, ...]:
    """Return the layers of the first sub-graph asked for that is isomorphic to the one of some."""
    known = _isomorphism(problem)
    return known.first[known.number(layers)]


@remembered(1)
def _isomorphism(problem: Problem) -> Isomorphism:
    return Isomorphism(problem)


def _operator_kind(operator: Operator) -> Hashable:
    return (
        operator.kind, tuple((axis.extent, axis.kind) for axis in operator.axes),
        operator.input_maps, operator.output_maps, operator.work, operator.engine,
        operator.pattern, operator.parameterised, operator.attributes, operator.opaque,
        operator.integer,
    )  # fmt: skip


def _layer_kind(layer: Layer) -> Hashable:
    return layer.in_place, layer.operators.index(layer.anchor), len(layer.operators)


def _numbered(kinds: Iterable[Hashable]) -> list[int]:
    numbers: dict[Hashable, int] = {}
    return [numbers.setdefault(kind, len(numbers)) for kind in kinds]
