"""Instances and kernels as objects, which tests may change; programs and signatures of kernels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from autoturbo.graph.arrays import Ints
from autoturbo.hardware.target import Target
from autoturbo.schedule.codegen.durations import rates_of
from autoturbo.schedule.codegen.instructions import Instructions, Kernel, instruct
from autoturbo.schedule.codegen.tiling import BY_TILES, InstructionRules, TilingRules
from autoturbo.schedule.memory.timeline import KINDS, Timeline
from autoturbo.schedule.place.instances import InstanceGraph
from autoturbo.schedule.schedule import Schedule, digest_of, hash_kernels
from autoturbo.schedule.stitch.templates import Template, clearances, local_edges
from autoturbo.simulator.sequence import movement_times


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """One kernel of the order with what comes before it.

    Attributes:
        instance: which instance.
        template: its kernel's template.
        streams: array (layers, STREAM_COLUMNS) of bytes.
        copied: bytes that movements bring into LB from GB and DDR before the kernel, as a pair.
        crossing: bytes that movements bring to the busiest core from other cores.
        weights_resident: where the weights are already: 0 in DDR only, 1 in GB, 2 in LB.
        spare: bytes of LB and of GB that are free for a recurrence's weights.
    """

    instance: int
    template: Template
    streams: Ints
    copied: tuple[int, int]
    crossing: int
    weights_resident: int
    spare: Ints


def steps_of(timeline: Timeline) -> tuple[Step, ...]:
    """One per kernel, in order."""
    return tuple(
        Step(
            index, timeline.templates[index],
            timeline.streams[timeline.rows[kernel] : timeline.rows[kernel + 1]],
            (int(timeline.copied[kernel, 1]), int(timeline.copied[kernel, 2])),
            int(timeline.crossing[kernel]), int(timeline.resident[kernel]),
            timeline.spare[kernel],
        )
        for kernel, index in enumerate(timeline.order.tolist())
    )  # fmt: skip


class BufferName(NamedTuple):
    """What a buffer holds, of which tensor (-1 for none), and for which instance."""

    kind: str
    tensor: int
    instance: int


def names_of(timeline: Timeline) -> tuple[BufferName, ...]:
    """What each buffer holds."""
    columns = (timeline.kind, timeline.tensor, timeline.owner)
    held = zip(*(column.tolist() for column in columns), strict=True)
    return tuple(BufferName(KINDS[kind], tensor, owner) for kind, tensor, owner in held)


@dataclass(frozen=True, slots=True)
class MovementTime:
    """The movements before a kernel.

    Attributes:
        seconds: from the end of the kernel before to the start of this one.
        dma: seconds that the DMA engine is busy.
        transfer: seconds that the transfer engines are busy.
        gb_bytes: moved from and to GB.
    """

    seconds: float
    dma: float
    transfer: float
    gb_bytes: float


def movement_time(step: Step, target: Target) -> MovementTime:
    """What copies into LB and core-to-core traffic before a kernel take."""
    copied, crossing = np.asarray([[0, *step.copied]]), np.asarray([step.crossing])
    return MovementTime(*movement_times(copied, crossing, target)[0].tolist())


def program_of(schedule: Schedule, step: Step) -> Instructions:
    """The program of one kernel."""
    layers, rules = step.template.layers, rules_at(schedule, step)
    edges, clear = local_edges(schedule.context, layers), clearances(schedule.context, layers)
    resident = step.weights_resident
    stages, streams = step.template.stages, step.streams
    rates = rates_of(schedule.context.target, schedule.context.dtype)
    if rules.across == BY_TILES:  # waits depend on where buffers lie (tests/verifier)
        return schedule.program(*place_of(schedule, step))
    return next(instruct([Kernel(stages, streams, edges, rules, resident, clear, rates)]))


def place_of(schedule: Schedule, step: Step) -> tuple[int, int]:
    """The place of a kernel in the order of its cluster, and that cluster."""
    orders = [timeline.order.tolist() for timeline in schedule.timelines]
    cluster = next(c for c, order in enumerate(orders) if step.instance in order)
    return orders[cluster].index(step.instance), cluster


def signature_of(schedule: Schedule, step: Step) -> str:
    """A stable hash of all that one kernel's time depends on, as in ``Schedule.signatures``."""
    context = schedule.context
    rules = schedule.rules_of(int(schedule.instances.subgraph[step.instance]))
    digest = digest_of(context.target.hash, context.dtype, rules)
    template = np.frombuffer(step.template.digest, np.int64)
    weights = np.asarray([[step.weights_resident, *step.spare]])
    rows = np.asarray([0, len(step.streams)])
    found = hash_kernels(digest[None], template[None], weights, rows, step.streams)
    return found.tobytes().hex()


def rules_at(schedule: Schedule, step: Step) -> InstructionRules:
    """How a kernel becomes instructions."""
    rules = schedule.rules_of(int(schedule.instances.subgraph[step.instance]))
    return TilingRules.with_spare(rules, step.spare)


@dataclass(frozen=True, slots=True, eq=False)
class Instance:
    """One part of a sub-graph, as in the arrays of an instance graph.

    Attributes:
        index: position in the list of instances (not in the order of execution).
        subgraph: index of its sub-graph.
        part: which part.
        shape: index of its class of equal extents.
        outputs: per output tensor of the sub-graph, the region made: array (rank, 2).
        inputs: per external input tensor, the region needed.
    """

    index: int
    subgraph: int
    part: int
    shape: int
    outputs: dict[int, Ints]
    inputs: dict[int, Ints]


def instance_of(graph: InstanceGraph, index: int) -> Instance:
    """One instance of a graph."""
    subgraph, part, shape = graph.subgraph[index], graph.part[index], graph.shape[index]
    return Instance(index, int(subgraph), int(part), int(shape), *graph.regions_of(index))


def instances_of(graph: InstanceGraph) -> tuple[Instance, ...]:
    """All instances of a graph, sub-graph by sub-graph."""
    return tuple(instance_of(graph, index) for index in range(graph.count))
