"""What must hold of a pass whose loads run over its kernels, instruction by instruction."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np

from autoturbo.hardware.dram import Memory
from autoturbo.schedule.codegen.durations import Rate, rates_of
from autoturbo.schedule.codegen.instructions import DMA_IN, DMA_OUT, ENGINES, Column
from autoturbo.schedule.codegen.loads import COPY
from autoturbo.schedule.codegen.tiling import Amount
from autoturbo.simulator.kernels import durations
from autoturbo.simulator.sequence import simulate, whole_passes

if TYPE_CHECKING:
    from autoturbo.schedule.codegen.loads import Loads
    from autoturbo.schedule.schedule import Schedule
    from autoturbo.simulator.whole_pass import KernelInterval

NEARLY = 1e-12
"""Seconds: sums in another order differ by less."""


def check_whole_pass(schedule: Schedule) -> None:
    """Engines, the bus and the kernels of every cluster keep their rules, and the times add up."""
    runs = [one.kernels for one in whole_passes(schedule) if one is not None]
    assert len(runs) == len(schedule.timelines)
    for cluster, kernels in enumerate(runs):
        _check_engines(schedule, schedule.loads(cluster), kernels)
        _check_bus(schedule, schedule.loads(cluster), kernels)
        _check_loads(schedule, cluster, kernels)
        _check_ends(schedule, kernels)
        for one, two in itertools.pairwise(kernels):
            assert one.end <= two.begin + NEARLY
    _check_handing_over(schedule, runs)
    if schedule.share.loops == 1:
        last = max(kernels[-1].end for kernels in runs if kernels)
        assert abs(simulate(schedule).latency - last) <= NEARLY


def _check_engines(schedule: Schedule, loads: Loads, kernels: tuple[KernelInterval, ...]) -> None:
    """Instructions take their time, on their engine one by one, and after what they wait for."""
    rates = rates_of(schedule.context.target, schedule.context.dtype)
    for place, run in enumerate(kernels):
        where, own = run.program.where, run.issued >= run.body
        left_out = loads.instruction[(loads.kernel == place) & ~loads.fetched]
        engine = where[:, Column.ENGINE]
        for code in range(len(ENGINES)):
            at = np.flatnonzero(engine == code)
            length, latency = durations(code, run.program.amounts[at], rates)
            taken = run.freed[at] - run.issued[at]
            assert (taken >= (length - NEARLY) * ~np.isin(at, left_out)).all()
            if code not in (DMA_IN, DMA_OUT):
                assert own[at].all()
                assert (taken <= length + NEARLY).all()
                assert (run.issued[at][1:] >= run.freed[at][:-1] - NEARLY).all()
            late = run.done[at] >= run.freed[at] + latency - NEARLY
            assert (late | np.isin(at, left_out)).all()
        for index, row in enumerate(where.tolist()):
            needed = [n for n in row[Column.AFTER :] if n >= 0] if own[index] else []
            # a load has its room, whatever waited for a slot of the ring
            if engine[index] != DMA_IN:
                assert all(run.done[n] <= run.issued[index] + NEARLY for n in needed)
        assert run.body + run.work >= run.done.max(initial=0.0) - NEARLY


def _check_bus(schedule: Schedule, loads: Loads, kernels: tuple[KernelInterval, ...]) -> None:
    """At no time both directions together have had more seconds of the bus than there were."""
    rates = rates_of(schedule.context.target, schedule.context.dtype)
    served = []
    for place, run in enumerate(kernels):
        left_out = loads.instruction[(loads.kernel == place) & ~loads.fetched]
        for code in (DMA_IN, DMA_OUT):
            at = np.flatnonzero(run.program.where[:, Column.ENGINE] == code)
            at = np.setdiff1d(at, left_out)
            length, _ = durations(code, run.program.amounts[at], rates)
            served += list(zip(run.issued[at], run.freed[at], length, strict=True))
    for begin, end, _ in served:
        inside = sum(length for b, e, length in served if b >= begin and e <= end)
        assert inside <= end - begin + NEARLY


def _check_loads(schedule: Schedule, cluster: int, kernels: tuple[KernelInterval, ...]) -> None:
    """Every load comes in its turn, once the steps before it is born and what it waits for end."""
    loads, timeline = schedule.loads(cluster), schedule.timelines[cluster]
    begins = timeline.rows[:-1] + np.arange(len(kernels))
    keys = zip(loads.kernel.tolist(), loads.instruction.tolist(), strict=True)
    passes = dict(zip(keys, loads.passed.tolist(), strict=True))
    place = {instance: k for k, instance in enumerate(timeline.order.tolist())}
    before = [-np.inf, -np.inf]
    columns = loads.kernel, loads.instruction, loads.birth, loads.after, loads.kept, loads.inputs
    for kernel, instruction, birth, after, kept, inputs in np.column_stack(columns).tolist():
        run = kernels[kernel]
        if instruction == COPY:
            assert run.copied is not None
            issued, done = run.copied
            assert done <= run.body + NEARLY
            freed = issued
        else:
            issued, freed = run.issued[instruction], run.freed[instruction]
        if kept >= 0:  # what has brought it came before it is passed
            source = kernels[loads.kernel[kept]]
            assert source.done[loads.instruction[kept]] <= run.issued[passes[kernel, instruction]]
            continue
        assert issued >= before[inputs] - NEARLY
        before[inputs] = freed
        if inputs:
            makers = schedule.instances.producers[timeline.order[kernel]]
            assert all(kernels[place[m]].end <= issued + NEARLY for m in makers)
        if after >= 0:
            other, at = kernels[loads.kernel[after]], loads.passed[after]
            assert (other.body if at == COPY else other.done[at]) <= issued + NEARLY
        born_in = int(np.searchsorted(begins, birth, side="right")) - 1
        other, layer = kernels[born_in], birth - begins[born_in] - 1
        own = loads.instruction[(loads.kernel == born_in) & (loads.instruction != COPY)]
        earlier = other.program.where[:, Column.LAYER] < layer
        earlier[own] = False
        ended = max(other.done[earlier].max(initial=-np.inf), other.body if layer >= 0 else 0.0)
        if born_in and layer < 0:
            ended = max(ended, kernels[born_in - 1].end)
        assert issued >= ended - NEARLY


def _check_ends(schedule: Schedule, kernels: tuple[KernelInterval, ...]) -> None:
    """A kernel ends with its last instruction, but for what shared memories add to its own."""
    rates = rates_of(schedule.context.target, schedule.context.dtype)
    stored = rates[Rate.STORED]
    turn = rates[Rate.CLUSTERS] * rates[Rate.MEMORY + Memory.TURNAROUND]
    turn /= rates[Rate.MEMORY + Memory.WRITE_BATCH]
    of_loads = sum(  # of other kernels, that come meanwhile
        run.program.amounts[run.issued < run.body, Amount.GB].sum() for run in kernels
    )
    for run in kernels:
        out = run.program.where[:, Column.ENGINE] == DMA_OUT
        turns = run.program.amounts[out, Amount.DDR].sum() * stored * turn
        shared = (run.program.amounts[:, Amount.GB].sum() + of_loads) * stored
        floor = run.body + (shared / rates[Rate.GB] if shared else 0.0)
        last = run.done.max(initial=0.0)
        assert run.body + run.work <= max(last, floor) + turns + NEARLY


def _check_handing_over(schedule: Schedule, runs: list[tuple[KernelInterval, ...]]) -> None:
    """A kernel begins after those on other clusters that make what it reads, in a single pass."""
    if schedule.share.loops > 1 or not schedule.cluster:
        return
    run_of = {
        instance: run
        for timeline, kernels in zip(schedule.timelines, runs, strict=True)
        for instance, run in zip(timeline.order.tolist(), kernels, strict=True)
    }
    barrier = schedule.context.target.overheads.barrier
    for instance, run in run_of.items():
        for maker in schedule.instances.producers[instance]:
            if schedule.cluster[maker] != schedule.cluster[instance]:
                assert run_of[maker].end + barrier <= run.begin + NEARLY
