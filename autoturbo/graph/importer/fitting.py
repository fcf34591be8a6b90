"""Relations between the open extents of inputs, found by trying numbers that nothing else has.

Exporters of today give every open dimension a symbol of its own, although the graph relates them:
the mask of a decoder is as long as its past and its present together. The graph is imported with a
number for each symbol; the first node whose inputs disagree then shows two numbers that must be
equal, and which sums of symbols they are. The next trial has numbers that fulfil what is known so
far, until nothing disagrees.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise

from autoturbo.graph.source import domain_of, integer_of
from autoturbo.graph.values import Step


class MisfitError(Exception):
    """Two extents that a node reads must be equal and are not.

    Attributes:
        extents: They.
    """

    def __init__(self, extents: tuple[int, int]) -> None:
        super().__init__(str(extents))
        self.extents = extents


# ------------------------------------------------------------------------ what nodes ask of shapes

Shape = tuple[int, ...]

_BROADCASTS = frozenset(
    ("Add", "Sub", "Mul", "Div", "Pow", "Min", "Max", "Sum", "Mean", "Where", "Mod", "And", "Or",
     "Xor", "Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual")
)  # fmt: skip
"""Operators whose inputs are broadcast to each other."""

RECURRENCES = {"LSTM": (5, 6), "GRU": (5,), "RNN": (5,)}
"""Operators that begin with a state per sample, and its inputs."""

UNCHECKED = frozenset(("Attention", "Conv", "ConvTranspose", *RECURRENCES))
"""Operators of which ONNX's inference lets pass what does not fit together."""

_MATRIX = 2
"""Dimensions of a matrix."""

_QUERY, _KEY, _VALUE, _MASK, _PAST_KEY, _PAST_VALUE = range(6)
"""Inputs of Attention."""

_PADS_MASKS = 24
"""Opset since which a mask may be shorter than the keys."""


def misfit(step: Step, opset: int) -> tuple[int, int] | None:
    """Return two extents that a node's operator wants equal and that are not; None if all fit."""
    if domain_of(step.node) or any(value and value.shape is None for value in step.inputs):
        return None
    pairs = (*_agreements(step, opset), *channels(step))
    return next((pair for pair in pairs if pair[0] != pair[1]), None)


def _agreements(step: Step, opset: int) -> Iterator[tuple[int, int]]:
    """Return pairs of extents that must be equal."""
    kind = step.node.op_type
    shapes = [None if value is None else value.shape for value in step.inputs]
    given = [shape for shape in shapes if shape is not None]
    if kind in _BROADCASTS:
        yield from _broadcast(given)
    elif kind == "MatMul" and all(len(shape) >= _MATRIX for shape in given):
        yield given[0][-1], given[1][-2]
        yield from _broadcast([shape[:-2] for shape in given])
    elif kind == "Concat":
        yield from _joined(given, integer_of(step.node, "axis"))
    elif kind in RECURRENCES:
        yield from ((had, wanted) for _, had, wanted in states_apart(step))
    elif kind == "Attention":
        yield from _attention(shapes, opset)
    elif kind in ("Gather", "GatherND"):
        yield from _picked(step)


def channels(step: Step) -> Iterator[tuple[int, int]]:
    """Return the channels of the data with those that the weights take."""
    kind = step.node.op_type
    first, second = [(v.shape if v else None) or () for v in (*step.inputs, None, None)][:2]
    if len(first) <= 1 or not second:
        return
    if kind == "Conv" and len(second) > 1:
        yield first[1], second[1] * integer_of(step.node, "group", 1)
    elif kind in ("ConvTranspose", "BatchNormalization"):
        yield first[1], second[0]
    elif kind == "Gemm" and len(first) == len(second) == _MATRIX:
        places = integer_of(step.node, "transA"), 1 - integer_of(step.node, "transB")
        yield first[1 - places[0]], second[1 - places[1]]
    elif kind in RECURRENCES:
        yield first[-1], second[-1]


def _broadcast(shapes: Sequence[Shape]) -> Iterator[tuple[int, int]]:
    for dim in range(1, max(map(len, shapes), default=0) + 1):
        # Pairs in a row are enough: equal neighbours are all equal.
        extents = [shape[-dim] for shape in shapes if len(shape) >= dim and shape[-dim] != 1]
        yield from pairwise(extents)


def _joined(shapes: Sequence[Shape], axis: int) -> Iterator[tuple[int, int]]:
    for one, other in pairwise(shapes):
        for dim, pair in enumerate(zip(one, other, strict=False)):
            if dim != axis % len(one):
                yield pair


def states_apart(step: Step) -> Iterator[tuple[int, int, int]]:
    """Return the states of a recurrence that are for other samples than its input.

    Yields:
        The state's place, its samples, and those of the input.
    """
    dim = 0 if integer_of(step.node, "layout") else 1
    data = (step.inputs[0].shape if step.inputs[0] else None) or ()
    for place in RECURRENCES[step.node.op_type]:
        state = step.inputs[place] if place < len(step.inputs) else None
        extents = ((state.shape if state else None) or ())[dim : dim + 1]
        if extents and len(data) > dim and extents != data[dim : dim + 1]:
            yield place, extents[0], data[dim]


def _attention(shapes: Sequence[Shape | None], opset: int) -> Iterator[tuple[int, int]]:
    """Return pairs of extents of queries, keys, values, past and mask that have to be equal."""
    query, key, value, mask, past_key, past_value = (*shapes, *[None] * 6)[:6]
    if query is None or key is None or value is None:
        return
    yield query[0], key[0]
    yield key[0], value[0]
    yield key[-2], value[-2]
    length = key[-2]
    for past, new in ((past_key, key), (past_value, value)):
        if past is not None:
            yield past[0], new[0]
    if past_key is not None and past_value is not None:
        yield past_key[-2], past_value[-2]
        length += past_key[-2]
    if mask and mask[-1] != 1 and (opset < _PADS_MASKS or mask[-1] > length):
        yield mask[-1], length
    if mask and len(mask) >= _MATRIX and mask[-2] != 1:
        yield mask[-2], query[-2]


def _picked(step: Step) -> Iterator[tuple[int, int]]:
    """Return extents with how far known indices reach beyond: masks are looked up for every key."""
    data, indices = step.inputs[:2]
    if data is None or indices is None or indices.data is None or not indices.data.size:
        return
    shape = data.shape or ()
    if step.node.op_type == "Gather":
        axes, columns = [integer_of(step.node, "axis") % max(len(shape), 1)], [indices.data]
    else:
        first, width = integer_of(step.node, "batch_dims"), indices.data.shape[-1]
        axes = list(range(first, first + width))
        columns = [indices.data[..., k] for k in range(width)]
    for axis, column in zip(axes, columns, strict=True):
        reached = int(column.max()) + 1
        if axis < len(shape) and reached > shape[axis]:
            yield shape[axis], reached


# --------------------------------------------------------------------------- relations of symbols


@dataclass(frozen=True, slots=True)
class Form:
    """A sum of symbols and a number.

    Attributes:
        terms: Times that each symbol is in it; never zero.
        number: Number that is added.
    """

    terms: Mapping[str, int]
    number: int = 0

    def value(self, extents: Mapping[str, int]) -> int:
        """Return the sum; raise KeyError for a symbol without an extent."""
        return self.number + sum(times * extents[name] for name, times in self.terms.items())

    def less(self, other: Form, times: int = 1) -> Form:
        """Return the difference to a multiple of another form."""
        names = dict.fromkeys((*self.terms, *other.terms))
        terms = {n: self.terms.get(n, 0) - times * other.terms.get(n, 0) for n in names}
        number = self.number - times * other.number
        return Form({name: count for name, count in terms.items() if count}, number)

    def with_known(self, name: str, form: Form) -> Form:
        """Return the form with a symbol replaced by what it is equal to."""
        times = self.terms.get(name, 0)
        return self.less(Form({name: 1}).less(form), times) if times else self


Relations = dict[str, Form]
"""Symbols that follow from others, each by a form of symbols that do not."""

_APART = (1, 2, 4, 8, 13, 21, 31, 45, 66, 81, 97, 123, 148, 182, 204, 252)
"""Numbers of which no two pairs have the same sum (Mian and Chowla)."""

_STEP = 5
"""What they are multiplied with, so that a symbol plus one is no other symbol."""

MOST_SYMBOLS = len(_APART)
"""Symbols that are told from each other."""

_MOST_TERMS = 3
"""Symbols of which a sum is recognised."""

_MOST_APART = 2
"""Number that may be added to one symbol (``past + 1``)."""


def relations(
    symbols: Sequence[str],
    given: Mapping[str, int],
    trial: Callable[[Mapping[str, int]], None],
    tied: Mapping[str, str],
) -> Relations:
    """Return how symbols follow from others.

    Args:
        symbols: Names of open extents.
        given: Symbols that the user gives: the others follow from them where that can be.
        trial: Imports the model with an extent for each symbol; raises MisfitError.
        tied: Symbols that are taken to be equal to others from the beginning.
    """
    found: Relations = {name: Form({other: 1}) for name, other in tied.items()}
    for turn in range(2 * MOST_SYMBOLS):
        extents = _extents(symbols, found, turn)
        if extents is None:
            return found
        try:
            trial(extents)
        except MisfitError as error:
            free = {name: extents[name] for name in symbols if name not in found}
            one, other = (_form_of(extent, free) for extent in error.extents)
            solved = _solved(one, other, given)
            if solved is None:
                return found
            name, form = solved
            found = {other: known.with_known(name, form) for other, known in found.items()}
            found[name] = form
        else:
            return found
    return found


def _extents(symbols: Sequence[str], found: Relations, turn: int) -> dict[str, int] | None:
    """Return numbers for all symbols that fulfil the relations; None if there are too many.

    A symbol's number is less than the sum of any two.
    """
    free = [name for name in symbols if name not in found]
    if len(free) > MOST_SYMBOLS:
        return None
    apart = [_STEP * number for number in _APART[: len(free)]]
    # So large that a sum of two is no third one. Other numbers in every turn: an extent that is
    # equal by chance is not so twice.
    least = max(apart, default=0) + 7 + 2 * turn
    extents = {name: least + number for name, number in zip(free, apart, strict=True)}
    extents |= {name: form.value(extents) for name, form in found.items()}
    return extents if min(extents.values(), default=1) > 0 else None


def _form_of(extent: int, symbols: Mapping[str, int]) -> Form:
    """Return the sum of symbols that an extent is, with as few as possible; else a number."""
    # The fewest symbols first: a long sum fits many extents.
    for count in range(1, min(_MOST_TERMS, len(symbols)) + 1):
        for names in combinations(symbols, count):
            if sum(symbols[name] for name in names) == extent:
                return Form(dict.fromkeys(names, 1))
    near = (name for name, number in symbols.items() if abs(extent - number) <= _MOST_APART)
    name = next(near, None)
    return Form({}, extent) if name is None else Form({name: 1}, extent - symbols[name])


def _solved(one: Form, other: Form, given: Mapping[str, int]) -> tuple[str, Form] | None:
    """Return a symbol that follows from two forms being equal, and what it is."""
    difference = one.less(other)
    alone = {name for side in (one, other) if len(side.terms) == 1 for name in side.terms}
    names = [name for name, times in difference.terms.items() if abs(times) == 1]
    if not names:
        return None
    # What the user gave stays as it is; a symbol alone on its side reads like an assignment.
    name = min(names, key=lambda name: (name in given, name not in alone))
    times = difference.terms[name]
    rest = difference.less(Form({name: times}))
    return name, Form({}).less(rest, times)


def mended(found: Relations, known: Mapping[str, int]) -> dict[str, int]:
    """Return the extents that some symbols must have so that known ones fulfil the relations.

    One symbol is changed if that is enough, first one that is a sum of others.
    """
    violated = [(n, form) for n, form in found.items() if form.value(known) != known[n]]
    for name, form in violated:
        zero = Form({name: 1}).less(form)
        for symbol, times in sorted(zero.terms.items(), key=lambda term: term[0] != name):
            extent = zero.less(Form({symbol: times})).value(known) * -times
            changed = {**known, symbol: extent}
            if abs(times) == 1 and extent > 0 and _hold(found, changed):
                return {symbol: extent}
    mended = {name: form.value(known) for name, form in violated}
    return mended if min(mended.values(), default=0) > 0 else {}


def _hold(found: Relations, extents: Mapping[str, int]) -> bool:
    return all(form.value(extents) == extents[name] for name, form in found.items())


def examples(
    found: Relations, known: Mapping[str, int], free: Mapping[str, int]
) -> dict[str, int] | None:
    """Return extents for all symbols that fulfil the relations; None if there are none.

    Args:
        found: The relations.
        known: Extents that are given.
        free: Those that others may have where nothing determines them; smaller ones are taken where
            what follows from them would come to nothing.
    """
    # Smaller ones only if a difference of larger ones comes to nothing.
    for most in (max(free.values(), default=1), 8, 1):
        extents = {name: min(extent, most) for name, extent in free.items()} | dict(known)
        follow = {name: form.value(extents) for name, form in found.items() if name not in known}
        least = 0 if 0 in known.values() else 1
        if min(follow.values(), default=1) >= least:
            return extents | follow
    return None
