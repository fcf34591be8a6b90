"""What one kernel of a sub-graph takes when the sub-graph is alone: the cost model's anchors.

A kernel's time depends on the rest of the schedule through little: how its output is bound, where
its boundary tensors live, and what else is in the buffers meanwhile. With these fixed it can be
simulated from its layers, its split and its rules alone, once, and looked up ever after. The time
of the same kernel in a schedule is a small factor away from that; the factor is what is learned.

Sub-graphs are laid out as if each were alone, behind whole producers of what they read, with all
that crosses their boundary in DDR. Of each the most common class of parts is simulated twice: as it
is, and with the boundary in the local buffers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np

from autoturbo.graph.arrays import Ints
from autoturbo.hardware.target import Target
from autoturbo.schedule.bind import Binding, Placement, Scope, chosen_binding, cores_used
from autoturbo.schedule.group import SubGraph
from autoturbo.schedule.hazards import clearances
from autoturbo.schedule.instances import InstanceGraph, Links, Parts, part_book, parts_of
from autoturbo.schedule.instructions import instruct
from autoturbo.schedule.pipeline import KernelRules
from autoturbo.schedule.problem import Problem
from autoturbo.schedule.split import Split
from autoturbo.schedule.stitch import Stage, Template, local_edges
from autoturbo.schedule.streams import IN_DDR, IN_GB, LATE_DDR, LATE_GB, OUT_DDR, OUT_GB
from autoturbo.schedule.templates import template_book
from autoturbo.schedule.tiling import InstructionRules
from autoturbo.schedule.timeline import RESIDENCES, BufferRules, Timeline, build_timeline
from autoturbo.schedule.work import Floats
from autoturbo.simulate.kernels import BUSY, Quantity, rates_of, run_kernel
from autoturbo.simulate.sequence import MovementRates, movement_times

ANCHORS: Final = (
    "far_s", "near_s", "copy_s", "copy_gb_s",
    "dma_in_s", "transfer_s", "matrix_s", "vector_s", "dma_out_s",
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

    @property
    def key(self) -> tuple[object, ...]:
        """Equal for those with equal anchors."""
        buffers, instructions = self.rules.buffers, self.rules.instructions
        return (
            "alone", self.subgraph.layers, self.subgraph.split.axes, buffers, instructions,
            self.cores, self.depth,
        )  # fmt: skip


@dataclass(eq=False)
class AnchorMemory:
    """What a problem remembers: anchors by key, kernels by all that their time depends on.

    Layers that repeat, as a transformer's do, have kernels in common.
    """

    rows: dict[tuple[object, ...], Floats] = field(default_factory=dict)
    kernels: dict[tuple[object, ...], Floats] = field(default_factory=dict)


def anchors(problem: Problem, wanted: Sequence[Alone]) -> Floats:
    """One row of :data:`ANCHORS` per sub-graph, ``(len(wanted), len(ANCHORS))``."""
    known = _memory(problem).rows
    keys = [one.key for one in wanted]
    new = {k: one for k, one in zip(keys, wanted, strict=True) if k not in known}
    if new:
        known.update(zip(new, _simulated(problem, list(new.values())), strict=True))
    found: Floats = np.empty((len(keys), len(ANCHORS)))
    for row, key in enumerate(keys):
        found[row] = known[key]
    return found


def _memory(problem: Problem) -> AnchorMemory:
    found = problem.memory.get("anchors")
    if not isinstance(found, AnchorMemory):
        found = AnchorMemory()
        problem.memory["anchors"] = found
    return found


def _simulated(problem: Problem, wanted: Sequence[Alone]) -> list[Floats]:
    layout = _lay_out(problem, [one.subgraph for one in wanted])
    graph, first = layout.graph, layout.first
    bindings: list[Binding] = [
        chosen_binding(problem, shape, problem.target.cores, None)
        for shape in graph.shape[:first].tolist()
    ]
    bindings += [
        chosen_binding(problem, shape, one.cores, one.depth)
        for shape, one in zip(graph.shape[first:].tolist(), wanted, strict=True)
    ]
    plain = BufferRules()
    rules = [plain] * first + [
        BufferRules(one.rules.buffers.victim, "stream", one.rules.buffers.tiles) for one in wanted
    ]
    placement = Placement(tuple(bindings), (Scope.DDR,) * graph.count)
    timeline = build_timeline(problem, graph, list(range(graph.count)), placement, rules)
    rates = rates_of(problem.target, problem.dtype)
    return [
        _row(problem, timeline, at, one, bindings[at], rates)
        for at, one in enumerate(wanted, first)
    ]


def _row(
    problem: Problem, timeline: Timeline, at: int, one: Alone, binding: Binding, rates: Floats
) -> Floats:
    target = problem.target
    template = template_book(problem).templates[int(timeline.templates[at])]
    far = timeline.streams[timeline.rows[at] : timeline.rows[at + 1]]
    near = far.copy()
    outputs = sum(size for _, size, _ in template.writes[-1])
    near[-1, OUT_DDR] = max(int(near[-1, OUT_DDR]) - outputs, 0)
    shared = _weights_shared(problem, template)
    resident = RESIDENCES[one.rules.buffers.residence]
    if not shared or one.subgraph.split.instances == 1:
        resident = 0
    rule = one.rules.instructions
    slow = _run(problem, template, far, rule, resident, rates)
    fast = _run(problem, template, near, rule, resident, rates)
    fixed = target.overheads.kernel_launch + target.overheads.barrier
    copied = timeline.copied[at]
    copies = _copy_seconds(target, copied)
    stages = template.stages
    return np.asarray([
        slow[Quantity.SECONDS] + fixed + copies[0], fast[Quantity.SECONDS] + fixed, *copies,
        *slow[BUSY].tolist(),
        slow[Quantity.DDR_READ] + slow[Quantity.DDR_WRITTEN] + copied[Scope.DDR],
        slow[Quantity.GB_READ] + slow[Quantity.GB_WRITTEN],
        fast[Quantity.DDR_READ] + fast[Quantity.DDR_WRITTEN],
        near[:, [IN_DDR, IN_GB, LATE_DDR, LATE_GB, OUT_DDR, OUT_GB]].sum(),
        stages[:, Stage.EXCHANGED].sum(), stages[:, Stage.CORE_WEIGHTS].sum(), shared,
        cores_used(binding),
    ], np.float64)  # fmt: skip


def _run(
    problem: Problem,
    template: Template,
    streams: Ints,
    rules: InstructionRules,
    resident: int,
    rates: Floats,
) -> Floats:
    known = _memory(problem).kernels
    key = (template.digest, streams.tobytes(), rules, resident)
    if key not in known:
        program = instruct(
            template.stages, streams, local_edges(problem, template.layers), rules,
            weights_resident=resident, clear=clearances(problem, template.layers),
        )  # fmt: skip
        known[key] = run_kernel(program, rates).totals
    return known[key]


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
    parts = [parts_of(problem, s) for s in subgraphs]
    layers = sorted({m for p in parts for t in p.inputs if (m := problem.producer[t]) >= 0})
    whole = [SubGraph(0, (layer,), Split(-1, 1, 0, 0, 0)) for layer in layers]
    every = (*(parts_of(problem, s) for s in whole), *parts)
    part = np.asarray([_commonest(p) for p in every], np.int64)
    owner = np.arange(len(every))
    links = _links(problem, every, part, {layer: at for at, layer in enumerate(layers)})
    none = np.zeros(len(owner) + 1, np.int64)
    graph = InstanceGraph(
        problem, (*whole, *subgraphs), every, np.arange(len(every) + 1), owner,
        np.asarray([p.shapes[at] for p, at in zip(every, part.tolist(), strict=True)], np.int64),
        np.asarray([p.out_base + at * len(p.outputs) for p, at in _with(every, part)], np.int64),
        np.asarray([p.in_base + at * len(p.inputs) for p, at in _with(every, part)], np.int64),
        np.zeros(len(owner), np.int64), links, none, none[:0], none, none[:0],
    )  # fmt: skip
    return _Layout(graph, len(layers))


def _with(parts: Sequence[Parts], chosen: Ints) -> list[tuple[Parts, int]]:
    return list(zip(parts, chosen.tolist(), strict=True))


def _commonest(parts: Parts) -> int:
    """A part of the class that has most."""
    if len(parts.shapes) == 1:
        return 0
    _, first, counts = np.unique(parts.shapes, return_index=True, return_counts=True)
    return int(first[counts.argmax()])


def _links(problem: Problem, parts: Sequence[Parts], chosen: Ints, makers: dict[int, int]) -> Links:
    """What every instance reads of whole producers, which are the first instances."""
    rows: list[tuple[int, int, int, int]] = []
    start = [0]
    for at, (own, part) in enumerate(_with(parts, chosen)):
        if at >= len(makers):
            rows += _reads(problem, own, part, makers)
        start.append(len(rows))
    table = np.asarray(rows, np.int64).reshape(-1, 4)
    columns = (np.ascontiguousarray(column) for column in table.T)
    return Links(np.asarray(start, np.int64), *columns)


def _reads(
    problem: Problem, parts: Parts, part: int, makers: dict[int, int]
) -> list[tuple[int, int, int, int]]:
    """Slot, maker, its output and bytes of every input that a part has of another layer."""
    base, regions = parts.in_base + part * len(parts.inputs), part_book(problem).regions.rows
    found = []
    for slot, tensor in enumerate(parts.inputs):
        layer = problem.producer[tensor]
        size = int((regions[base + slot, :, 1] - regions[base + slot, :, 0]).prod())
        if layer >= 0 and size:
            output = problem.layers[layer].outputs.index(tensor)
            found.append((slot, makers[layer], output, size * int(problem.arrays.element[tensor])))
    return found
