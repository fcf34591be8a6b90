"""Isomorphic sub-graphs, as the blocks of a transformer are.

What a sub-graph takes alone follows from the loops of its operators, the shapes of its tensors, how
they are connected, and what makes its inputs. Where two sub-graphs have all that in common, in the
same order, everything that is found out about parts of one holds for the other.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from autoturbo.caches import remembered
from autoturbo.schedule.context import SchedulingContext

_GIVEN, _INNER, _ESCAPING = -1, -2, -3
"""Where a tensor comes from, if no layer outside the sub-graph makes it: made by no layer (given, a
weight, or inside a layer), made in the sub-graph and read there alone, or outside too."""

_END: Final = -1
"""Ends a list of tensors."""


@dataclass(eq=False)
class _Kinds:
    """Numbers that parts of a model share with those that differ in names only.

    Attributes:
        operators: A number per operator.
        tensors: A number per tensor.
        alone: Per layer, whatever makes its inputs; empty while these are computed.
        first: By signature, the layers of the first sub-graph that had it.
    """

    operators: list[int]
    tensors: list[int]
    alone: list[int] = field(default_factory=list)
    first: dict[bytes, tuple[int, ...]] = field(default_factory=dict)


@remembered(1)
def _kinds(context: SchedulingContext) -> _Kinds:
    graph, readers = context.graph, context.consumers
    operators = (
        replace(
            operator, name="", inputs=(), outputs=(), counted=True,
            axes=tuple(replace(axis, name="") for axis in operator.axes),
        )
        for operator in graph.operators
    )  # fmt: skip
    tensors = (
        (replace(tensor, name=""), context.loop_order[t], t in graph.returned, bool(readers[t]))
        for t, tensor in enumerate(graph.tensors)
    )
    kinds = _Kinds(_numbered(operators), _numbered(tensors))
    kinds.alone = _numbered([_signature(context, (x.index,), kinds) for x in context.layers])
    return kinds


@remembered(1 << 16)
def first_alike(context: SchedulingContext, layers: tuple[int, ...]) -> tuple[int, ...]:
    """Return the layers of the first known sub-graph that is isomorphic to the given one."""
    kinds = _kinds(context)
    return kinds.first.setdefault(_signature(context, layers, kinds), layers)


def _signature(context: SchedulingContext, layers: Sequence[int], kinds: _Kinds) -> bytes:
    """Return a digest that isomorphic sub-graphs share."""
    graph, inside = context.graph, frozenset(layers)
    words, tensors, makers = array("q"), dict[int, int](), dict[int, int]()

    def origin(tensor: int) -> list[int]:
        maker = context.producer[tensor]
        # Signatures of single layers come first, and know nothing of what makes their inputs yet.
        if maker < 0 or not kinds.alone:
            return [_GIVEN]
        if maker in inside:
            return [_INNER if inside.issuperset(context.consumers[tensor]) else _ESCAPING]
        # makers outside are numbered as they are met
        place = context.layers[maker].outputs.index(tensor)
        return [makers.setdefault(maker, len(makers)), kinds.alone[maker], place]

    def note(several: Iterable[int]) -> None:
        for tensor in several:
            if tensor not in tensors:
                tensors[tensor] = len(tensors)
                words.append(kinds.tensors[tensor])
                words.extend(origin(tensor))
            words.append(tensors[tensor])
        words.append(_END)

    for index in layers:
        layer = context.layers[index]
        words.extend((layer.in_place, layer.operators.index(layer.anchor), len(layer.operators)))
        note(layer.inputs)
        note(layer.outputs)
        for operator in layer.operators:
            words.append(kinds.operators[operator])
            note(graph.operators[operator].inputs)
            note(graph.operators[operator].outputs)
    return hashlib.blake2b(words, digest_size=16).digest()


def _numbered(kinds: Iterable[Hashable]) -> list[int]:
    numbers: dict[Hashable, int] = {}
    return [numbers.setdefault(kind, len(numbers)) for kind in kinds]
