"""What one kernel of a sub-graph takes when the sub-graph is alone: the cost model's anchors.

A kernel's time depends on the rest of the schedule through little: how its output is bound, where
its boundary tensors live, and what else is in the buffers meanwhile. With these fixed it follows
from its layers, its split and its rules alone, and is found out once. The time of the same kernel
in a schedule is a small factor away from that; the factor is what is learned.

Sub-graphs are laid out as if each were alone, behind whole producers of what they read, with all
that crosses their boundary in DDR. Of each the most common class of parts, the first of several
such, is estimated twice (:mod:`autoturbo.simulate.estimate`): as it is, and with the boundary in
the local buffers. Layouts know nothing of rules, which are many: what spills is found with the
published ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from autoturbo.graph.arrays import Ints
from autoturbo.hardware.target import Target
from autoturbo.schedule.allocate import VICTIMS, Zones
from autoturbo.schedule.bind import Scope
from autoturbo.schedule.bound_parts import Bound, Known, bind_parts, bound_parts
from autoturbo.schedule.commonest import commonest_parts
from autoturbo.schedule.group import SubGraph
from autoturbo.schedule.instances import InstanceGraph
from autoturbo.schedule.movement import move
from autoturbo.schedule.pipeline import KernelRules
from autoturbo.schedule.problem import Problem
from autoturbo.schedule.side_by_side import side_by_side
from autoturbo.schedule.stitch import STAGE_COLUMNS, Stage
from autoturbo.schedule.stores import Store
from autoturbo.schedule.streams import STREAM_COLUMNS, without_outputs
from autoturbo.schedule.templates import Head
from autoturbo.schedule.tiling import Rule
from autoturbo.schedule.timeline import RESIDENCES, BufferRules
from autoturbo.schedule.work import Floats
from autoturbo.schedule.writer import Pins, Written, write
from autoturbo.simulate.estimate import BUSY, Estimate, estimates
from autoturbo.simulate.kernels import rates_of
from autoturbo.simulate.sequence import MovementRates, movement_times

ANCHORS: Final = (
    "far_s", "near_s", "copy_s", "copy_gb_s",
    "dma_in_s", "transfer_s", "matrix_s", "vector_s", "dma_out_s",
    "layers_s", "serial_s", "chain_s",
    "ddr_bytes", "gb_bytes", "near_ddr_bytes", "late_bytes", "exchanged_bytes", "core_weight_bytes",
    "weights_shared", "cores_used",
)  # fmt: skip
"""Columns of :func:`anchors`: seconds of a launch with the boundary in DDR and in the local
buffers, overheads included; seconds of the copies from DDR and from GB before it, which ``far_s``
has and ``near_s`` has not; busy seconds of the engines and bytes of DDR and GB with the boundary in
DDR; bytes of DDR without it; what the kernel spills; what one core gets from others; weights that a
core keeps, whether all parts share them, and cores that work."""


(_FAR, _NEAR, _COPY, _COPY_GB, _ENGINES, _LAYERS, _SERIAL, _CHAIN, _DDR, _GB, _NEAR_DDR, _LATE) = (
    ANCHORS.index(name)
    for name in (
        "far_s", "near_s", "copy_s", "copy_gb_s", "dma_in_s", "layers_s", "serial_s", "chain_s",
        "ddr_bytes", "gb_bytes", "near_ddr_bytes", "late_bytes",
    )
)  # fmt: skip

RESIDENCE: Final = 0
"""Where weights stay, in a row of :func:`rule_row`; a code of
:data:`autoturbo.schedule.timeline.RESIDENCES`, 0 for nowhere."""

RULE_COLUMNS: Final = 1 + len(Rule)
"""Numbers in a row of :func:`rule_row`."""

Flags = NDArray[np.bool_]


class Alone(NamedTuple):
    """A sub-graph with what its kernels depend on besides the rest of the schedule.

    Attributes:
        subgraph: its layers and split; the number does not matter.
        rules: of its buffers and instructions.
        cores: that its output is spread over.
        depth: the loop that spreading begins with; the outermost if None.
    """

    subgraph: SubGraph
    rules: KernelRules
    cores: int
    depth: int | None


_ONLY: Final = np.zeros(1, np.int64)


class _Fact(IntEnum):
    """What is known of a part besides its streams: columns of :attr:`_Book.facts`."""

    COPY = 0
    COPY_GB = 1
    COPIED_DDR = 2
    LATE = 3
    EXCHANGED = 4
    CORE_WEIGHTS = 5
    SHARED = 6
    CORES = 7
    STAYS = 8  # whether its weights can stay between its instances


@dataclass(eq=False)
class _Book:
    """Parts laid out alone, by number: what anchors depend on besides rules.

    ``start`` is the first row of each part, one per layer, in ``stages``, ``far`` and ``near``.
    """

    index: dict[tuple[object, ...], int] = field(default_factory=dict)
    start: Store = field(default_factory=Store)
    stages: Store = field(default_factory=lambda: Store((STAGE_COLUMNS,), np.float64))
    far: Store = field(default_factory=lambda: Store((STREAM_COLUMNS,)))
    near: Store = field(default_factory=lambda: Store((STREAM_COLUMNS,)))
    facts: Store = field(default_factory=lambda: Store((len(_Fact),), np.float64))


def anchors(problem: Problem, wanted: Sequence[Alone]) -> Floats:
    """One row of :data:`ANCHORS` per sub-graph, ``(len(wanted), len(ANCHORS))``."""
    rules: dict[KernelRules, int] = {}
    which = [rules.setdefault(one.rules, len(rules)) for one in wanted]
    numbers = part_numbers(problem, [(one.subgraph, one.cores, one.depth) for one in wanted])
    table = np.asarray([rule_row(own) for own in rules], np.int64).reshape(len(rules), -1)
    return anchor_rows(problem, numbers, table, np.asarray(which, np.int64))


def part_numbers(problem: Problem, parts: Sequence[tuple[SubGraph, int, int | None]]) -> Ints:
    """Numbers of sub-graphs' most common parts, given cores and the loop they spread from."""
    book = _book(problem)
    keys = [(s.layers, s.split.axes, cores, depth) for s, cores, depth in parts]
    new = {k: part for k, part in zip(keys, parts, strict=True) if k not in book.index}
    if new:
        _add(problem, book, list(new.values()))
        book.index.update(zip(new, range(len(book.index), len(book.index) + len(new)), strict=True))
    return np.asarray([book.index[key] for key in keys], np.int64)


def weights_stay(problem: Problem, parts: Ints) -> Flags:
    """Whether weights can stay between instances, ``(parts,)``, if rules say so.

    Args:
        problem: where the parts come from.
        parts: of :func:`part_numbers`.
    """
    found: Flags = _book(problem).facts.rows[parts, _Fact.STAYS] > 0
    return found


def rule_row(rules: KernelRules) -> list[int]:
    """Rules of buffers and instructions for :func:`anchor_rows`, ``(RULE_COLUMNS,)``."""
    return [RESIDENCES[rules.buffers.residence], *rules.instructions.as_array().tolist()]


def anchor_rows(problem: Problem, parts: Ints, rules: Ints, which: Ints) -> Floats:
    """One row of :data:`ANCHORS` per part and rules, ``(len(parts), len(ANCHORS))``.

    Args:
        problem: where the parts come from.
        parts: of :func:`part_numbers`.
        rules: rows of :func:`rule_row`.
        which: per part, its row of rules.
    """
    book, target = _book(problem), problem.target
    stay, table = rules[:, RESIDENCE], np.ascontiguousarray(rules[:, 1:])
    resident = np.where(weights_stay(problem, parts), stay[which], 0)
    starts, rates = book.start.rows, rates_of(target, problem.dtype)
    near, far = (
        estimates(
            starts[parts], starts[parts + 1], book.stages.rows, streams.rows, table, which,
            resident, rates,
        )
        for streams in (book.near, book.far)
    )  # fmt: skip
    found = np.empty((len(parts), len(ANCHORS)))
    _assemble(far, near, book.facts.rows, parts, target.overheads.per_kernel, found)
    return found


@njit(cache=True)
def _assemble(
    far: Floats, near: Floats, facts: Floats, parts: Ints, fixed: float, found: Floats
) -> None:
    """Rows of :data:`ANCHORS` from estimates and facts."""
    for at in range(len(parts)):
        own, row, copy = facts[parts[at]], found[at], facts[parts[at], _Fact.COPY]
        row[_FAR] = far[at, Estimate.SECONDS] + fixed + copy
        row[_NEAR] = near[at, Estimate.SECONDS] + fixed
        row[_COPY], row[_COPY_GB] = copy, own[_Fact.COPY_GB]
        row[_ENGINES:_LAYERS] = far[at, BUSY]
        row[_LAYERS] = far[at, Estimate.LAYERS]
        row[_SERIAL], row[_CHAIN] = far[at, Estimate.SERIAL], far[at, Estimate.CHAIN]
        moved = far[at, Estimate.DDR_READ] + far[at, Estimate.DDR_WRITTEN]
        row[_DDR], row[_GB] = moved + own[_Fact.COPIED_DDR], far[at, Estimate.GB]
        row[_NEAR_DDR] = near[at, Estimate.DDR_READ] + near[at, Estimate.DDR_WRITTEN]
        row[_LATE:] = own[_Fact.LATE : _Fact.STAYS]


def _book(problem: Problem) -> _Book:
    found = problem.books.get("alone")
    if not isinstance(found, _Book):
        found = _Book()
        found.start.add([0])
        problem.books["alone"] = found
    return found


def _add(problem: Problem, book: _Book, wanted: Sequence[tuple[SubGraph, int, int | None]]) -> None:
    """Lay out parts that are not in the book yet."""
    subgraphs = [subgraph for subgraph, _, _ in wanted]
    own = commonest_parts(problem, subgraphs)
    graph, first = side_by_side(problem, subgraphs, own, lambda _: _ONLY)
    spread = [(problem.target.cores, None)] * first + [(own, depth) for _, own, depth in wanted]
    bound = [
        Bound(shape, graph.parts[own].inputs, cores, -1 if depth is None else depth)
        for shape, own, (cores, depth) in zip(
            graph.shape.tolist(), graph.subgraph.tolist(), spread, strict=True
        )
    ]
    numbers = bind_parts(problem, bound)
    cut = np.asarray([subgraph.split.instances > 1 for subgraph, _, _ in wanted])
    _note(problem, book, numbers[first:], _streams(graph, numbers), first, cut)


def _streams(graph: InstanceGraph, numbers: Ints) -> Written:
    """What kernels stream one after another, with all that instances hand over in DDR.

    Args:
        graph: instances, in order.
        numbers: of the bound parts.
    """
    problem, tables = graph.problem, bound_parts(graph.problem).tables()
    zones, cores = Zones.of(problem.target), problem.target.cores
    order, subgraphs = np.arange(graph.count), len(graph.subgraphs)
    nowhere, ddr = np.zeros(graph.count, np.int64), np.full(graph.count, int(Scope.DDR))
    movements = move(graph, order, nowhere, ddr, numbers, tables, np.zeros((0, cores), np.int64))
    pins = Pins(np.full((subgraphs, 4), -1, np.int64), np.zeros((subgraphs, 2), np.int64))
    victims = np.full(subgraphs, VICTIMS[BufferRules().victim])
    return write(
        order, graph.subgraph, graph.links, ddr, numbers, tables, movements, victims, pins,
        zones.lb, zones.gb,
    )  # fmt: skip


def _note(
    problem: Problem, book: _Book, numbers: Ints, written: Written, first: int, cut: Flags
) -> None:
    """Enter the kernels from ``first`` on; ``cut`` says which have several instances."""
    bound = bound_parts(problem)
    heads, known = bound.heads.rows[numbers], bound.facts.rows[numbers]
    starts = written.rows[first:] - written.rows[first]
    owner = np.repeat(np.arange(len(numbers)), np.diff(starts))
    layer = np.arange(starts[-1]) - starts[owner]
    stages = bound.stages.rows[heads[owner, Head.ROW] + layer]
    far = written.streams[written.rows[first] :]
    near = without_outputs(far, starts[1:] - 1, known[:, Known.OUTPUTS])
    copied = written.copied[first:]
    shared = (heads[:, Head.WHOLE] > 0) & (known[:, Known.WEIGHTS] > 0)
    facts = np.column_stack((
        *_copy_seconds(problem.target, copied.sum(axis=1)), copied[:, Scope.DDR],
        _sums(near.sum(axis=1), starts),
        _sums(stages[:, Stage.EXCHANGED] + stages[:, Stage.STATE], starts),
        _sums(stages[:, Stage.CORE_WEIGHTS], starts), shared, known[:, Known.CORES],
        shared & cut,
    ))  # fmt: skip
    book.start.add(book.far.count + starts[1:])
    book.stages.add(stages)
    book.far.add(far)
    book.near.add(near)
    book.facts.add(facts)


def _sums(values: Ints | Floats, starts: Ints) -> Floats:
    """Per kernel, the sum over its layers: whole numbers of bytes, exact in any order."""
    found: Floats = np.add.reduceat(values, starts[:-1])
    return found


def _copy_seconds(target: Target, sizes: Ints) -> tuple[Floats, Floats]:
    """Seconds of the copies before kernels, from DDR as they are and if they came from GB."""
    none, count = np.zeros(len(sizes), np.int64), len(sizes)
    table = np.concatenate((
        np.column_stack((none, none, sizes)), np.column_stack((none, sizes, none))
    ))  # fmt: skip
    seconds: Floats = movement_times(table, np.zeros(2 * count, np.int64), MovementRates.of(target))
    return seconds[:count, 0], seconds[count:, 0]
