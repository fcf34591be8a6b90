"""When everything happens in one pass of a schedule: kernels, layers, instructions, buffers.

The same rules as :mod:`autoturbo.simulator.sequence`, which keeps sums only; a test holds both to
each other.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from autoturbo.schedule.codegen.durations import rates_of
from autoturbo.schedule.codegen.instructions import Column, Instructions
from autoturbo.schedule.schedule import Schedule
from autoturbo.schedule.work import Floats
from autoturbo.simulator.kernels import Quantity, issue
from autoturbo.simulator.sequence import KernelMemory, movement_times, whole_passes


@dataclass(frozen=True, slots=True, eq=False)
class KernelInterval:
    """One kernel of a pass. Seconds from the pass's start.

    Attributes:
        cluster: The cluster that runs it.
        instance: Whose kernel it is.
        begin: Begin of the copies before it.
        launch: End of the copies; the launch begins.
        body: Its first instruction may begin, at rate: the ramp counts as before it.
        end: After the barrier.
        ramp: Seconds of the ramp.
        program: Instructions of the kernel.
        issued: Per instruction its begin, ``(instructions,)``.
        freed: When its engine is free again.
        done: When what waits for it may begin.
    """

    cluster: int
    instance: int
    begin: float
    launch: float
    body: float
    end: float
    ramp: float
    program: Instructions
    issued: Floats
    freed: Floats
    done: Floats

    def layers(self) -> Floats:
        """Return begin and end of every layer, ``(layers, 2)``; NaN for one without instructions.

        A layer runs from the begin of its first instruction, prefetches in the kernel included, to
        the end of its last.
        """
        where = self.program.where[:, Column.LAYER]
        count = int(where.max()) + 1 if len(where) else 0
        bounds = np.full((count, 2), np.nan)
        for layer in range(count):
            of_layer = (where == layer) & (self.issued >= self.body)
            if of_layer.any():
                bounds[layer] = self.issued[of_layer].min(), self.done[of_layer].max()
        return bounds


def pass_intervals(
    schedule: Schedule, memory: KernelMemory | None = None
) -> tuple[KernelInterval, ...]:
    """Return the intervals of the first pass's kernels, in the order of the schedule.

    Clusters that divide samples all do the same: the intervals are those of one cluster.
    """
    memory = KernelMemory() if memory is None else memory
    target = schedule.context.target
    whole = [one for one in whole_passes(schedule) if one is not None]
    if whole:
        places = _places(schedule)
        return tuple(
            KernelInterval(
                cluster, instance, run.begin, run.launch, run.body, run.end,
                0.0, run.program, run.issued, run.freed, run.done,
            )
            for instance in schedule.order
            for cluster, kernel in [places[instance]]
            for run in [whole[cluster].kernels[kernel]]
        )  # fmt: skip
    rates = rates_of(target, schedule.context.dtype)
    overheads = target.overheads
    known: dict[bytes, tuple[Instructions, Floats, Floats, Floats]] = {}
    free = [0.0] * len(schedule.timelines)
    ends: dict[int, float] = {}
    places = _places(schedule)
    moves = [movement_times(t.copied, t.crossing, target)[:, 0] for t in schedule.timelines]
    rows = [memory.rows(schedule, cluster) for cluster in range(len(schedule.timelines))]
    opens = [schedule.opens(cluster) for cluster in range(len(schedule.timelines))]
    around = [
        overheads.of_launches(memory.totals.rows[row_of, Quantity.SECONDS], own)
        for (_, row_of), own in zip(rows, opens, strict=True)
    ]
    intervals = []
    for instance in schedule.order:
        cluster, kernel = places[instance]
        signatures, row_of = rows[cluster]
        signature = signatures[kernel]
        if signature not in known:
            program = schedule.program(kernel, cluster)
            known[signature] = (program, *issue(program, rates))
        begin = max(free[cluster], _ready(schedule, instance, cluster, ends))
        seconds = float(memory.totals.rows[row_of[kernel], Quantity.SECONDS])
        launch_s = begin + float(moves[cluster][kernel])
        own = bool(opens[cluster][kernel])
        ramp = overheads.ramp(seconds) if own else 0.0
        # The ramp counts as part of the launch (docs/decisions/kernel-ramp.md).
        body = launch_s + (overheads.kernel_launch if own else 0.0) + ramp
        end = launch_s + seconds + float(around[cluster][kernel])
        program, issued, freed, done = known[signature]
        intervals.append(
            KernelInterval(
                cluster, instance, begin, launch_s, body, end, ramp,
                program, issued + body, freed + body, done + body,
            )
        )  # fmt: skip
        free[cluster] = ends[instance] = end
    return tuple(intervals)


def _places(schedule: Schedule) -> dict[int, tuple[int, int]]:
    """Return the cluster of every instance and its place in the cluster's order."""
    return {
        int(instance): (cluster, kernel)
        for cluster, timeline in enumerate(schedule.timelines)
        for kernel, instance in enumerate(timeline.order)
    }


def _ready(schedule: Schedule, instance: int, cluster: int, ends: dict[int, float]) -> float:
    """Return when an instance knows that its inputs from other clusters are there, in seconds.

    Args:
        schedule: The schedule.
        instance: The reader.
        cluster: The cluster that runs it.
        ends: Seconds at which instances end.
    """
    if not schedule.cluster:
        return 0.0
    producers = schedule.instances.producers[instance]
    remote = [p for p in producers if schedule.cluster[p] != cluster]
    barrier = schedule.context.target.overheads.barrier
    return max((ends[p] + barrier for p in remote), default=0.0)
