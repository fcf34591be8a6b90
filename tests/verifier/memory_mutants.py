"""Defects planted in honest schedules, each with the words that whoever finds it must say."""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pytest

from autoturbo.schedule.context import Zones
from autoturbo.schedule.knobs import Knobs
from autoturbo.schedule.memory.timeline import KINDS
from autoturbo.schedule.pipeline import ModelScheduler, build_schedule
from autoturbo.schedule.place.bind import Scope
from autoturbo.verifier.findings import buffer_name, instance_name, tensor_name
from autoturbo.verifier.replay import replay_of
from tests.schedule.schedule_samples import block, scheduler_of, target

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autoturbo.schedule.schedule import Schedule


class Planted(NamedTuple):
    """A schedule with a defect, and what a finding of it names."""

    schedule: Schedule
    words: tuple[str, ...]


@functools.cache
def honest(name: str) -> Schedule:
    """A schedule without defects."""
    if name == "block":
        machine = target(cores=4, lb=4096, gb=1 << 13)
        return build_schedule(
            ModelScheduler(block(), machine, "float16"), Knobs(max_layers=3, instance_multiplier=2)
        )
    workload, _, setting = name.partition(" ")
    return build_schedule(scheduler_of(workload), SETTINGS[setting])


SETTINGS = {
    "": Knobs(),
    "finer": Knobs(instance_multiplier=2),
    "spatial": Knobs(cluster_partitioning="spatial"),
    "pipeline": Knobs(cluster_partitioning="pipeline", max_layers=4),
    "GB": Knobs(output_scope="GB", weight_residency="LB", weight_buffer_fraction=0.3),
}

ALL = (
    "block",
    *(
        pytest.param(name, marks=pytest.mark.full)
        for name in ("resnet50", "bert_base_s128 finer", "mobilenet_v2 GB", "densenet121")
    ),
)

CLUSTERED = (
    "squeezenet1_1 spatial",
    "squeezenet1_1 pipeline",
    *(
        pytest.param(name, marks=pytest.mark.full)
        for name in ("resnet50 spatial", "densenet121 pipeline")
    ),
)


# --- parts of schedules, changed


def with_instances(schedule: Schedule, **changes: Any) -> Schedule:
    """A schedule with other instances, in its timelines too."""
    instances = dataclasses.replace(schedule.instances, **changes)
    lines = tuple(dataclasses.replace(t, graph=instances) for t in schedule.timelines)
    return dataclasses.replace(schedule, instances=instances, timelines=lines)


def with_timeline(schedule: Schedule, **changes: Any) -> Schedule:
    """A schedule whose first cluster has another timeline."""
    timeline = dataclasses.replace(schedule.timeline, **changes)
    return dataclasses.replace(schedule, timelines=(timeline, *schedule.timelines[1:]))


def with_buffer(schedule: Schedule, buffer: int, **values: int) -> Schedule:
    """A schedule with one buffer of the first cluster changed."""
    buffers = schedule.timeline.buffers
    changed = {}
    for column, value in values.items():
        changed[column] = getattr(buffers, column).copy()
        changed[column][buffer] = value
    return with_timeline(schedule, buffers=dataclasses.replace(buffers, **changed))


def _moved_region(
    schedule: Schedule, instance: int, position: int, *, outputs: bool, dim: int, by: int
) -> Schedule:
    """An instance with one region of its outputs, or inputs, moved along a dimension."""
    graph = schedule.instances
    store = schedule.instances.book.regions
    parts = graph.parts[int(graph.subgraph[instance])]
    column = "out_region" if outputs else "in_region"
    rows = getattr(graph, column).copy()
    count = len(parts.outputs if outputs else parts.inputs)
    own = store.rows[rows[instance] : rows[instance] + count].copy()
    own[position, dim] += by
    rows[instance] = store.add(own)
    return with_instances(schedule, **{column: rows})


# --- regions


def _split(schedule: Schedule) -> tuple[int, int]:
    """The second part of a sub-graph that is cut, and the dimension that it is cut along."""
    graph = schedule.instances
    for subgraph, parts in enumerate(graph.parts):
        if parts.count > 1:
            first = int(graph.first[subgraph])
            rows = schedule.instances.book.regions.rows
            one, two = (rows[int(graph.out_region[first + p])] for p in (0, 1))
            return first + 1, int(np.flatnonzero((one != two).any(axis=1))[0])
    raise LookupError


def shifted_halo(schedule: Schedule) -> Planted:
    """A part reads one row, or sample, later than it needs."""
    instance, dim = _split(schedule)
    parts = schedule.instances.parts[int(schedule.instances.subgraph[instance])]
    mutant = _moved_region(schedule, instance, 0, outputs=False, dim=dim, by=1)
    words = instance_name(schedule, instance), tensor_name(schedule, parts.inputs[0])
    return Planted(mutant, words)


def shifted_part(schedule: Schedule) -> Planted:
    """A part makes one row, or sample, earlier than its own."""
    instance, dim = _split(schedule)
    mutant = _moved_region(schedule, instance, 0, outputs=True, dim=dim, by=-1)
    return Planted(mutant, (instance_name(schedule, instance),))


def part_outside(schedule: Schedule) -> Planted:
    """A part makes what its tensor has not."""
    instance, dim = _split(schedule)
    mutant = _moved_region(schedule, instance, 0, outputs=True, dim=dim, by=1 << 20)
    return Planted(mutant, (instance_name(schedule, instance),))


def dropped_operand(schedule: Schedule) -> Planted:
    """A concatenation without one of its pieces."""
    links = schedule.instances.links
    slots = list(zip(links.reader.tolist(), links.slot.tolist(), strict=True))
    several = [at for at, slot in enumerate(slots) if slots.count(slot) > 1]
    link = several[len(several) // 2] if several else len(slots) // 2
    start = links.start - (links.start > link)
    names = ("reader", "slot", "maker", "output", "size")
    columns = {name: np.delete(getattr(links, name), link) for name in names}
    mutant = with_instances(schedule, links=dataclasses.replace(links, start=start, **columns))
    one, two = int(links.reader[link]), int(links.maker[link])
    return Planted(mutant, (instance_name(schedule, one), instance_name(schedule, two)))


def swapped(schedule: Schedule) -> Planted:
    """Two instances in each other's place, one of which reads from the other."""
    order = list(schedule.order)
    at = {instance: place for place, instance in enumerate(order)}
    reader = next(i for i in order[::-1] if schedule.instances.producers[i])
    maker = schedule.instances.producers[reader][0]
    order[at[reader]], order[at[maker]] = maker, reader
    mutant = dataclasses.replace(schedule, order=tuple(order))
    return Planted(mutant, (instance_name(schedule, reader), instance_name(schedule, maker)))


def left_out(schedule: Schedule) -> Planted:
    """An instance that nobody runs."""
    name = instance_name(schedule, schedule.order[-1])
    return Planted(dataclasses.replace(schedule, order=schedule.order[:-1]), (name,))


def run_twice(schedule: Schedule) -> Planted:
    """An instance that is run again at the end."""
    order = (*schedule.order, schedule.order[0])
    name = instance_name(schedule, schedule.order[0])
    return Planted(dataclasses.replace(schedule, order=order), (name,))


REGION_MUTANTS = {
    "a halo shifted by one": (shifted_halo, ("halo",)),
    "a part shifted by one": (shifted_part, ("gap", "overlap")),
    "a part outside": (part_outside, ("outside",)),
    "an operand of a concatenation dropped": (dropped_operand, ("unlinked",)),
    "two instances swapped": (swapped, ("order",)),
    "an instance left out": (left_out, ("missing instance",)),
    "an instance run twice": (run_twice, ("repeated instance",)),
}
"""By name: what plants it, and the kinds of which each must be found."""


# --- buffers


def _tensors(schedule: Schedule, scope: Scope = Scope.LB, *, life: int = 1) -> Iterator[int]:
    """Buffers of tensors of the first cluster that live some steps at a level."""
    line = schedule.timeline
    lives = line.buffers.death - line.buffers.birth
    here = (line.kind == KINDS.index("tensor")) & (line.buffers.scope == scope) & (lives >= life)
    yield from np.flatnonzero(here & (line.buffers.core_bytes > 0)).tolist()


def _named(schedule: Schedule, mutant: Schedule, *buffers: int) -> Planted:
    return Planted(mutant, tuple(buffer_name(schedule, schedule.timeline, b) for b in buffers))


def shrunk(schedule: Schedule) -> Planted:
    """A buffer with one byte less than what is written to it."""
    buffer = next(_tensors(schedule))
    size = int(schedule.timeline.buffers.core_bytes[buffer]) - 1
    return _named(schedule, with_buffer(schedule, buffer, core_bytes=size), buffer)


def _together(schedule: Schedule) -> tuple[int, int]:
    """Two buffers of LB that live at the same time."""
    buffers = schedule.timeline.buffers
    here = list(_tensors(schedule))
    return next(
        (a, b) for at, a in enumerate(here) for b in here[at + 1 :]
        if buffers.birth[b] <= buffers.death[a] and buffers.birth[a] <= buffers.death[b]
    )  # fmt: skip


def overlapping(schedule: Schedule) -> Planted:
    """Two live buffers at one address."""
    one, two = _together(schedule)
    address = int(schedule.timeline.buffers.address[one])
    return _named(schedule, with_buffer(schedule, two, address=address), one, two)


def past_capacity(schedule: Schedule) -> Planted:
    """A buffer that begins where its zone ends."""
    buffer = next(_tensors(schedule))
    room = Zones.of(schedule.context.target).lb
    return _named(schedule, with_buffer(schedule, buffer, address=room), buffer)


def freed_early(schedule: Schedule) -> Planted:
    """A buffer that is given back one step before it is read for the last time."""
    buffer = next(_tensors(schedule))
    death = int(schedule.timeline.buffers.death[buffer]) - 1
    return _named(schedule, with_buffer(schedule, buffer, death=death), buffer)


def taken_over(schedule: Schedule) -> Planted:
    """Two tensors that are given one buffer, though the first is still to be read."""
    one, two = _together(schedule)
    line = schedule.timeline
    tensor, owner = line.tensor.copy(), line.owner.copy()
    tensor[two], owner[two] = tensor[one], owner[one]
    name = tensor_name(schedule, int(line.tensor[two]))
    return Planted(with_timeline(schedule, tensor=tensor, owner=owner), (name,))


def spilled(schedule: Schedule) -> Planted:
    """A buffer that is said to be in DDR; nobody streams what it holds."""
    buffer = next(_tensors(schedule))
    mutant = with_buffer(schedule, buffer, scope=Scope.DDR, address=-1)
    return Planted(mutant, (instance_name(schedule, int(schedule.timeline.owner[buffer])),))


def unstreamed(schedule: Schedule) -> Planted:
    """A kernel that does not count what it streams."""
    line = schedule.timeline
    row = int(np.flatnonzero(line.streams.sum(axis=1))[0])
    streams = line.streams.copy()
    streams[row] = 0
    kernel = int(np.searchsorted(line.rows, row, side="right")) - 1
    name = instance_name(schedule, int(line.order[kernel]))
    return Planted(with_timeline(schedule, streams=streams), (name,))


def output_kept(schedule: Schedule) -> Planted:
    """An output of the model that stays in GB."""
    line, graph = schedule.timeline, schedule.context.graph
    held = np.isin(line.tensor, graph.outputs) & (line.buffers.scope == Scope.DDR)
    buffer = int(np.flatnonzero(held)[0])
    return _named(schedule, with_buffer(schedule, buffer, scope=Scope.GB, address=0), buffer)


def resident_at_once(schedule: Schedule) -> Planted:
    """A kernel that takes weights to be in LB that nobody has brought there."""
    resident = schedule.timeline.resident.copy()
    resident[0] = 2
    name = instance_name(schedule, int(schedule.timeline.order[0]))
    return Planted(with_timeline(schedule, resident=resident), (name,))


def no_room_for_weights(schedule: Schedule) -> Planted:
    """A target with less room for weights than their tiles were cut for."""
    context = schedule.context
    lb = dataclasses.replace(context.target.lb, weight_capacity=0, capacity=1 << 8)
    machine = dataclasses.replace(context.target, lb=lb)
    small = dataclasses.replace(context, target=machine)
    return Planted(dataclasses.replace(schedule, context=small), ("slots for its weights",))


MEMORY_MUTANTS = {
    "a buffer shrunk": (shrunk, "too small"),
    "two live buffers overlap": (overlapping, "overlap"),
    "a buffer past the capacity": (past_capacity, "capacity"),
    "a buffer freed too early": (freed_early, "freed buffer"),
    "another's buffer": (taken_over, "foreign buffer"),
    "a wrong scope": (spilled, "stream"),
    "streams left out": (unstreamed, "stream"),
    "an output that stays": (output_kept, "output"),
    "weights that are not there": (resident_at_once, "residence"),
    "no room for weights": (no_room_for_weights, "capacity"),
}


# --- clusters


def _handed(schedule: Schedule) -> int:
    """A buffer of the first cluster that another one reads."""
    here = {int(i) for i in schedule.timeline.order}
    read = {
        (instance, tensor) for wait, tensor, instance in replay_of(schedule).trace.handed
        if wait.cluster > 0 and instance in here
    }  # fmt: skip
    line = schedule.timeline
    held = zip(line.owner.tolist(), line.tensor.tolist(), strict=True)
    there = (line.buffers.birth < line.buffers.birth.max()) & (line.buffers.scope == Scope.DDR)
    return next(b for b, content in enumerate(held) if content in read and there[b])


def handed_over_and_freed(schedule: Schedule) -> Planted:
    """What another cluster reads is given back right away."""
    buffer = _handed(schedule)
    birth = int(schedule.timeline.buffers.birth[buffer])
    return _named(schedule, with_buffer(schedule, buffer, death=birth), buffer)


def handed_over_in_gb(schedule: Schedule) -> Planted:
    """What another cluster reads is where it cannot reach."""
    buffer = _handed(schedule)
    return _named(schedule, with_buffer(schedule, buffer, scope=Scope.GB, address=0), buffer)


def shared_and_late(schedule: Schedule) -> Planted:
    """The copy that another cluster reads is there a step after it was written."""
    buffer = _handed(schedule)
    birth = int(schedule.timeline.buffers.birth[buffer])
    return _named(schedule, with_buffer(schedule, buffer, birth=birth + 1), buffer)


def shared_in_too_few_bytes(schedule: Schedule) -> Planted:
    """The copy that another cluster reads has room for a byte."""
    buffer = _handed(schedule)
    return _named(schedule, with_buffer(schedule, buffer, cluster_bytes=1), buffer)


CLUSTER_MUTANTS = {
    "shared and late": (shared_and_late, "lifetime"),
    "shared in too few bytes": (shared_in_too_few_bytes, "too small"),
    "handed over and freed": (handed_over_and_freed, "handed over"),
    "handed over in GB": (handed_over_in_gb, "handed over"),
}
