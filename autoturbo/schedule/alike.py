"""Sets of layers that are alike, as the blocks of a transformer are.

What a sub-graph takes alone follows from the loops of its operators, the shapes of its tensors, how
they are connected, and what makes its inputs. Where two sets have all that in common, in the same
order, everything that is found out about parts of one holds for the other.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numba import njit

from autoturbo.compiled import borrowing
from autoturbo.graph.arrays import GraphArrays, Ints
from autoturbo.graph.layers import Layer
from autoturbo.graph.operators import Operator
from autoturbo.schedule.layer_sets import note_set
from autoturbo.schedule.problem import LayerArrays, Problem
from autoturbo.schedule.stores import Store, mix

_UNKNOWN = -1

_GIVEN, _INNER, _ESCAPING = -1, -2, -3
"""Where a tensor comes from, if no layer outside the set makes it: made by no layer (given, a
weight, or inside a layer), made in the set and read there alone, or outside too."""


class _Kinds(NamedTuple):
    """Numbers of what layers are made of, equal where there is no difference but in names.

    ``layer`` and ``alone`` are per layer: what it is besides its operators, and all that it is,
    whoever makes its inputs. ``maker`` is the layer that makes a tensor (-1: none), ``place`` the
    tensor's position among its outputs; ``readers`` from ``read_start[tensor]`` on are layers.
    """

    operator: Ints
    tensor: Ints
    layer: Ints
    alone: Ints
    maker: Ints
    place: Ints
    read_start: Ints
    readers: Ints


class _Room(NamedTuple):
    """Room for one set after another.

    Numbers of tensors and of makers within it, -1 for none yet; which layers are inside; two
    hashes; tensors and makers so far.
    """

    tensor: Ints
    maker: Ints
    inside: Ints
    hashes: Ints
    counts: Ints


@dataclass(eq=False)
class Alike:
    """Numbers sets of layers of a problem: the same number for those that are alike.

    Attributes:
        problem: whose layers.
    """

    problem: Problem
    _kinds: _Kinds = field(init=False)
    _known: Store = field(default_factory=Store)
    _numbers: dict[tuple[int, ...], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._kinds = _kinds_of(self.problem)

    def of(self, sets: Ints, start: Ints, members: Ints) -> Ints:
        """Numbers of what sets are alike with, ``(sets,)``.

        Args:
            sets: by number; a number always stands for the same layers.
            start: by number of a set, its first entry in ``members``; of one more than there are.
            members: layers, in rows of first and one past the last.
        """
        known = self._known
        known.reach(int(sets.max(initial=-1)) + 1, _UNKNOWN)
        new = np.unique(sets[known.rows[sets] == _UNKNOWN])
        if len(new):
            arrays = self.problem.arrays, self.problem.layer_arrays
            hashes = _hashes(*arrays, self._kinds, new, start, members)
            keys = map(tuple, hashes.tolist())
            known.rows[new] = [self._numbers.setdefault(k, len(self._numbers)) for k in keys]
        found: Ints = known.rows[sets]
        return found


def _kinds_of(problem: Problem) -> _Kinds:
    graph, count = problem.graph, len(problem.layers)
    outputs = set(graph.outputs)
    place = np.zeros(len(graph.tensors), np.int64)
    for layer in problem.layers:
        place[list(layer.outputs)] = np.arange(len(layer.outputs))
    counts = [len(readers) for readers in problem.consumers]
    kinds = _Kinds(
        _numbered(_operator_kind(operator) for operator in graph.operators),
        _numbered(
            (t.shape, t.dtype, t.constant, t.integer_bytes, order, index in outputs, bool(readers))
            for index, (t, order, readers) in enumerate(
                zip(graph.tensors, problem.loop_order, problem.consumers, strict=True)
            )
        ),
        _numbered(_layer_kind(layer) for layer in problem.layers),
        np.zeros(count, np.int64), np.asarray(problem.producer, np.int64), place,
        np.concatenate(([0], np.cumsum(counts))).astype(np.int64),
        np.asarray([layer for readers in problem.consumers for layer in readers], np.int64),
    )  # fmt: skip
    every, nowhere = np.arange(count + 1), kinds._replace(maker=np.full(len(place), -1))
    alone = np.stack((every[:-1], every[1:]), axis=1)
    hashes = _hashes(problem.arrays, problem.layer_arrays, nowhere, every[:-1], every, alone)
    return kinds._replace(alone=_numbered(map(tuple, hashes.tolist())))


def _operator_kind(operator: Operator) -> Hashable:
    return (
        operator.kind, tuple((axis.extent, axis.kind) for axis in operator.axes),
        operator.input_maps, operator.output_maps, operator.work, operator.engine,
        operator.pattern, operator.parameterised, operator.attributes, operator.opaque,
        operator.integer,
    )  # fmt: skip


def _layer_kind(layer: Layer) -> Hashable:
    return layer.in_place, layer.operators.index(layer.anchor), len(layer.operators)


def _numbered(kinds: Iterable[Hashable]) -> Ints:
    numbers: dict[Hashable, int] = {}
    return np.asarray([numbers.setdefault(kind, len(numbers)) for kind in kinds], np.int64)


@njit(cache=True)
def _hashes(
    g: GraphArrays, a: LayerArrays, k: _Kinds, sets: Ints, start: Ints, members: Ints
) -> Ints:
    """Two hashes of each set: chance makes them equal once in ``2**128`` pairs."""
    r = _Room(
        np.full(len(k.tensor), -1, np.int64), np.full(len(k.layer), -1, np.int64),
        np.zeros(len(k.layer), np.int64), np.zeros(2, np.int64), np.zeros(2, np.int64),
    )  # fmt: skip
    found, room = np.zeros((len(sets), 2), np.int64), np.zeros(len(k.layer), np.int64)
    for at in range(len(sets)):
        layers = room[: note_set(start, members, sets[at], room)]
        r.hashes[0], r.hashes[1], r.counts[0], r.counts[1] = 1, -7046029254386353131, 0, 0
        for layer in layers:
            r.inside[layer] = 1
        for layer in layers:
            _add_layer(g, a, k, layer, r)
        for layer in layers:
            _forget(g, a, k, layer, r)
        found[at, 0], found[at, 1] = r.hashes[0], r.hashes[1]
    return found


@borrowing
def _note(r: _Room, value: int) -> None:
    r.hashes[0], r.hashes[1] = mix(r.hashes[0], value), mix(r.hashes[1], value)


@borrowing
def _add_layer(g: GraphArrays, a: LayerArrays, k: _Kinds, layer: int, r: _Room) -> None:
    _note(r, k.layer[layer])
    _add_all(k, a.in_tensor[a.in_start[layer] : a.in_start[layer + 1]], r)
    _add_all(k, a.out_tensor[a.out_start[layer] : a.out_start[layer + 1]], r)
    for op in a.op[a.op_start[layer] : a.op_start[layer + 1]]:
        _note(r, k.operator[op])
        _add_all(k, g.in_tensor[g.in_start[op] : g.in_start[op + 1]], r)
        _add_all(k, g.out_tensor[g.out_start[op] : g.out_start[op + 1]], r)


@borrowing
def _add_all(k: _Kinds, tensors: Ints, r: _Room) -> None:
    for tensor in tensors:
        _add_tensor(k, tensor, r)
    _note(r, -1)


@borrowing
def _add_tensor(k: _Kinds, tensor: int, r: _Room) -> None:
    if r.tensor[tensor] < 0:
        r.tensor[tensor] = r.counts[0]
        r.counts[0] += 1
        _note(r, k.tensor[tensor])
        maker = k.maker[tensor]
        if maker < 0:
            _note(r, _GIVEN)
        elif r.inside[maker]:
            _note(r, _ESCAPING if _escapes(k, tensor, r) else _INNER)
        else:
            if r.maker[maker] < 0:
                r.maker[maker] = r.counts[1]
                r.counts[1] += 1
            _note(r, r.maker[maker])
            _note(r, k.alone[maker])
            _note(r, k.place[tensor])
    _note(r, r.tensor[tensor])


@borrowing
def _escapes(k: _Kinds, tensor: int, r: _Room) -> bool:
    """Whether a layer outside the set reads a tensor."""
    for reader in k.readers[k.read_start[tensor] : k.read_start[tensor + 1]]:
        if not r.inside[reader]:
            return True
    return False


@borrowing
def _forget(g: GraphArrays, a: LayerArrays, k: _Kinds, layer: int, r: _Room) -> None:
    """Clear what was noted of a layer and its tensors."""
    r.inside[layer] = 0
    for op in a.op[a.op_start[layer] : a.op_start[layer + 1]]:
        for tensor in g.in_tensor[g.in_start[op] : g.in_start[op + 1]]:
            _forget_tensor(k, tensor, r)
        for tensor in g.out_tensor[g.out_start[op] : g.out_start[op + 1]]:
            _forget_tensor(k, tensor, r)


@borrowing
def _forget_tensor(k: _Kinds, tensor: int, r: _Room) -> None:
    r.tensor[tensor] = -1
    if k.maker[tensor] >= 0:
        r.maker[k.maker[tensor]] = -1
