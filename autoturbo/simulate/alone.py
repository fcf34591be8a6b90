"""What one kernel of a sub-graph takes when the sub-graph is alone: the cost model's anchors.

A kernel's time depends on the rest of the schedule through little: how its output is bound, where
its boundary tensors live, and what else is in the buffers meanwhile. With these fixed it follows
from its layers, its split and its rules alone, and is found out once. The time of the same kernel
in a schedule is a small factor away from that; the factor is what is learned.

Sub-graphs are laid out as if each were alone, behind whole producers of what they read, with all
that crosses their boundary in DDR. Of each the most common class of parts is estimated twice
(:mod:`autoturbo.simulate.estimate`): as it is, and with the boundary in the local buffers. Layouts
know nothing of rules, which are many: what spills is found with the published ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, NamedTuple

import numpy as np

from autoturbo.graph.arrays import Ints
from autoturbo.hardware.target import Target
from autoturbo.schedule.bind import Binding, Placement, Scope, chosen_binding, cores_used
from autoturbo.schedule.group import SubGraph
from autoturbo.schedule.instances import InstanceGraph, Parts
from autoturbo.schedule.pipeline import KernelRules
from autoturbo.schedule.problem import Problem
from autoturbo.schedule.side_by_side import side_by_side
from autoturbo.schedule.stitch import STAGE_COLUMNS, Stage, Template
from autoturbo.schedule.stores import Store
from autoturbo.schedule.streams import OUT_DDR, STREAM_COLUMNS
from autoturbo.schedule.templates import template_book
from autoturbo.schedule.timeline import RESIDENCES, BufferRules, Timeline, build_timeline
from autoturbo.schedule.work import Floats
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


class Alone(NamedTuple):
    """A sub-graph with what its kernels depend on besides the rest of the schedule.

    Attributes:
        subgraph: its layers and split; the number does not matter.
        rules: of its buffers and instructions.
        cores: that its output is spread over.
        depth: the loop that is spread first; the outermost if None.
    """

    subgraph: SubGraph
    rules: KernelRules
    cores: int
    depth: int | None


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
    return anchor_rows(problem, numbers, list(rules), np.asarray(which, np.int64))


def part_numbers(problem: Problem, parts: Sequence[tuple[SubGraph, int, int | None]]) -> Ints:
    """Numbers of sub-graphs' most common parts, given cores and the loop that is spread first."""
    book = _book(problem)
    keys = [(s.layers, s.split.axes, cores, depth) for s, cores, depth in parts]
    new = {k: part for k, part in zip(keys, parts, strict=True) if k not in book.index}
    if new:
        _add(problem, book, list(new.values()))
        book.index.update(zip(new, range(len(book.index), len(book.index) + len(new)), strict=True))
    return np.asarray([book.index[key] for key in keys], np.int64)


def anchor_rows(problem: Problem, parts: Ints, rules: Sequence[KernelRules], which: Ints) -> Floats:
    """One row of :data:`ANCHORS` per part and rules, ``(len(parts), len(ANCHORS))``.

    Args:
        problem: where the parts come from.
        parts: of :func:`part_numbers`.
        rules: of buffers and instructions.
        which: per part, position in ``rules``.
    """
    book, target = _book(problem), problem.target
    table = [rule.instructions.as_array() for rule in rules]
    stay = np.asarray([RESIDENCES[rule.buffers.residence] for rule in rules], np.int64)
    facts: Floats = book.facts.rows[parts]
    resident = np.where(facts[:, _Fact.STAYS] > 0, stay[which], 0)
    starts = book.start.rows
    near, far = estimates(
        starts[parts], starts[parts + 1], book.stages.rows, book.near.rows, book.far.rows,
        np.asarray(table, np.int64).reshape(len(rules), -1), which, resident,
        rates_of(target, problem.dtype),
    )  # fmt: skip
    fixed = target.overheads.kernel_launch + target.overheads.barrier
    return np.column_stack((
        far[:, Estimate.SECONDS] + fixed + facts[:, _Fact.COPY], near[:, Estimate.SECONDS] + fixed,
        facts[:, _Fact.COPY], facts[:, _Fact.COPY_GB], far[:, BUSY],
        far[:, Estimate.LAYERS], far[:, Estimate.SERIAL], far[:, Estimate.CHAIN],
        far[:, Estimate.DDR_READ] + far[:, Estimate.DDR_WRITTEN] + facts[:, _Fact.COPIED_DDR],
        far[:, Estimate.GB], near[:, Estimate.DDR_READ] + near[:, Estimate.DDR_WRITTEN],
        facts[:, _Fact.LATE], facts[:, _Fact.EXCHANGED], facts[:, _Fact.CORE_WEIGHTS],
        facts[:, _Fact.SHARED], facts[:, _Fact.CORES],
    ))  # fmt: skip


def _book(problem: Problem) -> _Book:
    found = problem.memory.get("alone")
    if not isinstance(found, _Book):
        found = _Book()
        found.start.add([0])
        problem.memory["alone"] = found
    return found


def _add(problem: Problem, book: _Book, wanted: Sequence[tuple[SubGraph, int, int | None]]) -> None:
    """Lay out parts that are not in the book yet."""
    layout = _lay_out(problem, [subgraph for subgraph, _, _ in wanted])
    graph, first = layout.graph, layout.first
    cores = problem.target.cores
    spread = [(cores, None)] * first + [(own, depth) for _, own, depth in wanted]
    bindings = [
        chosen_binding(problem, shape, *how)
        for shape, how in zip(graph.shape.tolist(), spread, strict=True)
    ]
    placement = Placement(tuple(bindings), (Scope.DDR,) * graph.count)
    rules = [BufferRules()] * graph.count
    timeline = build_timeline(problem, graph, list(range(graph.count)), placement, rules)
    for at, (subgraph, _, _) in enumerate(wanted, first):
        _note(problem, book, timeline, at, subgraph, bindings[at])


def _note(
    problem: Problem, book: _Book, timeline: Timeline, at: int, subgraph: SubGraph, binding: Binding
) -> None:
    template = template_book(problem).templates[int(timeline.templates[at])]
    far = timeline.streams[timeline.rows[at] : timeline.rows[at + 1]]
    near = far.copy()
    outputs = sum(size for _, size, _ in template.writes[-1])
    near[-1, OUT_DDR] = max(int(near[-1, OUT_DDR]) - outputs, 0)
    shared, stages = _weights_shared(problem, template), template.stages
    copied = timeline.copied[at]
    book.stages.add(stages)
    book.far.add(far)
    book.near.add(near)
    book.start.add([book.far.count])
    book.facts.add([
        *_copy_seconds(problem.target, copied), copied[Scope.DDR], near.sum(),
        stages[:, Stage.EXCHANGED].sum(), stages[:, Stage.CORE_WEIGHTS].sum(), shared,
        cores_used(binding), shared and subgraph.split.instances > 1,
    ])  # fmt: skip


def _copy_seconds(target: Target, copied: Ints) -> tuple[float, float]:
    """Seconds of the copies before a kernel, from DDR as they are and if they came from GB."""
    total = int(copied.sum())
    table = np.asarray([[0, 0, total], [0, total, 0]], np.int64)
    times = movement_times(table, np.zeros(2, np.int64), MovementRates.of(target))
    return float(times[0, 0]), float(times[1, 0])


def _weights_shared(problem: Problem, template: Template) -> bool:
    """Whether a part reads all weights of its sub-graph, so that further parts can use them."""
    weights = int(template.stages[:, Stage.WEIGHTS].sum())
    whole = sum(
        problem.graph.tensors[t].elements * int(problem.arrays.element[t])
        for layer in template.layers
        for index in problem.layers[layer].operators
        for t in problem.graph.operators[index].inputs
        if problem.graph.tensors[t].constant
    )
    return weights == whole > 0


class _Layout(NamedTuple):
    """Sub-graphs as instances of one graph; ``first`` are whole producers of what they read."""

    graph: InstanceGraph
    first: int


def _lay_out(problem: Problem, subgraphs: Sequence[SubGraph]) -> _Layout:
    return _Layout(*side_by_side(problem, subgraphs, _commonest))


def _commonest(parts: Parts) -> Ints:
    """A part of the class that has most."""
    if len(parts.shapes) == 1:
        return np.zeros(1, np.int64)
    _, first, counts = np.unique(parts.shapes, return_index=True, return_counts=True)
    return first[counts.argmax() :][:1]
