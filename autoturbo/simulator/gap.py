"""The gap between a schedule's latency and the lower bound, one cause after the other.

The schedule's programs are timed again on machines that lack one obstacle more each: without waits
and launches, with a DDR that is beside all else, with on-chip transfers that take no time. Then
come figures that need no timing: both engines beside each other, no padding, DDR at its full
bandwidth, and no byte beyond the compulsory ones. The differences add up to the gap. A cause is
told by what it still costs once those before it are gone, so their order matters.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np

from autoturbo.hardware.target import timed_value
from autoturbo.schedule.codegen.instructions import DMA_IN, DMA_OUT, ENGINES, Column
from autoturbo.schedule.knobs.kinds import FAR
from autoturbo.schedule.schedule import Schedule
from autoturbo.simulator.measurement import Measurement
from autoturbo.simulator.sequence import (
    KernelMemory,
    pass_intervals,
    passed_times,
    step_times,
)
from autoturbo.simulator.unpublished import timed_again
from autoturbo.simulator.whole_pass import KernelInterval

WAITS: Final = (
    "overheads.kernel_launch_us", "overheads.barrier_us", "overheads.kernel_ramp_us",
    "transfer.latency_ns", "dma.latency_ns", "gb.latency_ns", "ddr.latency_ns",
)  # fmt: skip
"""Fields that are nothing but waiting."""

DDR: Final = ("ddr.bandwidth_gb_s", "dma.bandwidth_gb_s")
ON_CHIP: Final = ("gb.bandwidth_gb_s", "transfer.bandwidth_gb_s")

_AT_ONCE: Final = 1e6
"""Times the bandwidth that stands for a transfer without time."""


def gap_parts(schedule: Schedule, measured: Measurement) -> dict[str, float]:
    """Return the seconds of each cause of the gap, in order; they add up to it.

    Args:
        schedule: The schedule.
        measured: The schedule's measurement by simulation.
    """
    bound = measured.bound
    ends = dict(_without_obstacles(schedule, measured))
    ends["traffic"] = bound.seconds
    left, parts = measured.latency, dict[str, float]()
    for cause, seconds in ends.items():
        # Without an obstacle engines may meet elsewhere, and it takes longer: then 0.
        reached = max(min(left, seconds), bound.seconds)
        parts[cause], left = left - reached, reached
    return parts


def _without_obstacles(schedule: Schedule, measured: Measurement) -> Iterator[tuple[str, float]]:
    """Yield each cause, and the seconds that are left once it is gone as well.

    Args:
        schedule: The schedule.
        measured: The schedule's measurement.
    """
    chip, bound = schedule.context.chip, measured.bound
    busy = dict.fromkeys(ENGINES, 0.0) | dict(measured.busy)
    ddr_s = busy["dma_in"] + busy["dma_out"]
    # Changes add up: each cause has what is left once all before it are gone too.
    changes: dict[str, Any] = dict.fromkeys(WAITS, 0)
    yield "waits", timed_again(schedule, changes)
    changes |= _faster(schedule, DDR)
    # Never below DDR's busy seconds, which are told apart further down, as traffic and efficiency.
    yield "ddr", max(timed_again(schedule, changes), ddr_s)
    changes |= _faster(schedule, ON_CHIP)
    yield "gb", max(timed_again(schedule, changes), ddr_s)
    yield "engines", max(busy["matrix"], busy["vector"], bound.steps_s, ddr_s)
    work_s = max(bound.matrix_s, bound.vector_s, bound.steps_s)
    yield "padding", max(work_s, ddr_s)
    yield "efficiency", max(work_s, measured.ddr_bytes / chip.ddr.bandwidth)


def _faster(schedule: Schedule, paths: tuple[str, ...]) -> Mapping[str, float]:
    target = schedule.context.target
    return {path: _AT_ONCE * timed_value(target, path) for path in paths}


def idle_ddr_seconds(schedule: Schedule, memory: KernelMemory | None = None) -> float:
    """Return the seconds in which DDR stood idle though weights could have been fetched.

    These are weights that are fetched later, have room in GB by then, and would be loads if the
    model's loads ran as far ahead as they can. 0 where the target cannot fetch over kernels.

    Args:
        schedule: The schedule, of whose first cluster is told.
        memory: Kernels that are simulated already.
    """
    target = schedule.context.target
    if not target.gb.capacity or not target.dma.prefetch_over_kernels or not schedule.order:
        return 0.0
    ahead = tuple(
        dataclasses.replace(t, ahead=np.full_like(t.ahead, FAR)) for t in schedule.timelines
    )
    loads = dataclasses.replace(schedule, timelines=ahead).loads()
    kernels = [one for one in pass_intervals(schedule, memory) if one.cluster == 0]
    starts = step_times(schedule.timelines[0].rows, kernels)
    passed = passed_times(loads, kernels)
    waiting = []
    for load in np.flatnonzero(loads.fetched & (loads.inputs == 0)).tolist():
        after, kernel = loads.after[load], kernels[int(loads.kernel[load])]
        free = 0.0 if after < 0 else float(passed[after])
        begin = max(starts[int(loads.birth[load])], free)
        waiting.append((begin, float(kernel.issued[loads.instruction[load]])))
    idle = _covered(waiting) - _covered_both(waiting, list(_busy(kernels)))
    return max(idle, 0.0) * schedule.share.loops


def _busy(kernels: list[KernelInterval]) -> Iterator[tuple[float, float]]:
    """Yield the stretches in which DDR is busy."""
    for kernel in kernels:
        if kernel.launch > kernel.begin:
            yield kernel.begin, kernel.launch
        engine = kernel.program.where[:, Column.ENGINE]
        for at in np.flatnonzero((engine == DMA_IN) | (engine == DMA_OUT)).tolist():
            yield float(kernel.issued[at]), float(kernel.freed[at])


def _merged(stretches: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return stretches that do not overlap and cover the same, in order."""
    found: list[tuple[float, float]] = []
    for begin, end in sorted(s for s in stretches if s[1] > s[0]):
        if found and begin <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], end)
        else:
            found.append((begin, end))
    return found


def _covered(stretches: list[tuple[float, float]]) -> float:
    return sum(end - begin for begin, end in _merged(stretches))


def _covered_both(one: list[tuple[float, float]], two: list[tuple[float, float]]) -> float:
    """Return the seconds that both cover."""
    either = _covered([*one, *two])
    return _covered(one) + _covered(two) - either
