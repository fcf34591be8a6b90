"""Level two: kernels and movements in order.

A cluster runs one kernel at a time and a kernel's boundary is a barrier, so a pass takes the sum of
its kernels and of the movements between them; clusters work alike and side by side on their shares
of the batch, and loop over them.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from autoturbo.hardware.target import Target
from autoturbo.schedule.allocate import peak_use
from autoturbo.schedule.bind import Scope
from autoturbo.schedule.instructions import DMA_IN, ENGINES, TRANSFER
from autoturbo.schedule.schedule import Schedule
from autoturbo.schedule.stitch import Stage
from autoturbo.schedule.timeline import Step
from autoturbo.simulate.bound import lower_bound
from autoturbo.simulate.kernels import (
    QUANTITIES,
    KernelTime,
    Quantity,
    bytes_of,
    dma_bandwidth,
    overlaps_of,
    rates_of,
    run_kernel,
    waits_of,
)
from autoturbo.simulate.measurement import LowerBound, Measurement


@dataclass(eq=False)
class KernelMemory:
    """Kernels already simulated, by signature."""

    times: dict[str, KernelTime] = field(default_factory=dict)

    def time(self, schedule: Schedule, step: Step, rates: np.ndarray) -> tuple[str, KernelTime]:
        """A kernel's signature and time."""
        signature = schedule.signature(step)
        found = self.times.get(signature)
        if found is None:
            found = run_kernel(schedule.instructions(step), rates)
            self.times[signature] = found
        return signature, found


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


@dataclass
class _Totals:
    """Sums over one pass of one cluster."""

    seconds: float = 0.0
    ddr: float = 0.0
    gb: float = 0.0
    busy: np.ndarray = field(default_factory=lambda: np.zeros(len(ENGINES)))
    counters: np.ndarray = field(default_factory=lambda: np.zeros(QUANTITIES))


def simulate(schedule: Schedule, memory: KernelMemory | None = None) -> Measurement:
    """Measure a schedule: latency of the whole batch on the whole chip, and where it went."""
    memory = KernelMemory() if memory is None else memory
    target = schedule.problem.target
    rates = rates_of(target, schedule.problem.dtype)
    totals = _Totals()
    times: dict[str, float] = {}
    counts: Counter[str] = Counter()
    by_subgraph = np.zeros((len(schedule.instances.subgraphs), 2))
    fixed = target.overheads.kernel_launch + target.overheads.barrier
    for step in schedule.timeline.steps:
        signature, kernel = memory.time(schedule, step, rates)
        move = movement_time(step, target)
        seconds = kernel.seconds + fixed + move.seconds
        _add(totals, step, kernel, move, seconds)
        times[signature] = kernel.seconds
        counts[signature] += 1
        subgraph = schedule.instances.instances[step.instance].subgraph
        by_subgraph[subgraph] += (seconds, 1)
    return _measurement(schedule, totals, times, counts, by_subgraph)


def _add(
    totals: _Totals, step: Step, kernel: KernelTime, move: MovementTime, seconds: float
) -> None:
    totals.seconds += seconds
    totals.ddr += kernel.ddr_bytes + step.copied[1]
    totals.gb += kernel.gb_bytes + move.gb_bytes
    totals.busy += kernel.busy
    totals.busy[DMA_IN] += move.dma
    totals.busy[TRANSFER] += move.transfer
    totals.counters += kernel.totals
    from_gb, from_ddr = step.copied
    totals.counters[Quantity.DDR_READ] += from_ddr
    if move.gb_bytes:
        totals.counters[Quantity.GB_READ] += from_gb + from_ddr
        totals.counters[Quantity.GB_WRITTEN] += from_ddr
    totals.counters[Quantity.LB] += from_gb + from_ddr


def movement_time(step: Step, target: Target) -> MovementTime:
    """Copies into LB and core-to-core traffic before a kernel; a barrier ends them.

    Bytes from DDR are written to GB, where there is one, and read again: both count there.
    """
    from_gb, from_ddr = step.copied
    dma = transfer = latency = gb_bytes = 0.0
    if from_ddr:
        dma = from_ddr / dma_bandwidth(target)
        latency += target.dma.latency + target.ddr.latency
    if from_gb + from_ddr and target.gb.capacity:
        gb_bytes = from_gb + 2.0 * from_ddr
        transfer += (from_gb + from_ddr) / target.gb.bandwidth
        latency += target.gb.latency + target.transfer.latency
    if step.crossing:
        transfer += step.crossing / target.transfer.bandwidth
        latency += target.transfer.latency
    seconds = dma + transfer + latency
    return MovementTime(
        seconds + (target.overheads.barrier if seconds else 0.0), dma, transfer, gb_bytes
    )


def _measurement(
    schedule: Schedule,
    totals: _Totals,
    times: dict[str, float],
    counts: Counter[str],
    by_subgraph: np.ndarray,
) -> Measurement:
    loops, clusters = schedule.share.loops, schedule.share.clusters
    bound = _bound(schedule)
    latency = totals.seconds * loops
    ddr = round(totals.ddr * loops * clusters)
    gb = round(totals.gb * loops * clusters)
    buffers = schedule.timeline.buffers
    return Measurement(
        latency=latency,
        batch=schedule.model.batch,
        ddr_bytes=ddr,
        gb_bytes=gb,
        matrix_utilization=bound.matrix_s / latency,
        vector_utilization=bound.vector_s / latency,
        peak_lb_bytes=peak_use(buffers, Scope.LB),
        peak_gb_bytes=peak_use(buffers, Scope.GB),
        kernels=len(schedule.timeline.steps) * loops,
        bound=bound,
        busy=dict(zip(ENGINES, (totals.busy * loops).tolist(), strict=True)),
        overlap=overlaps_of(totals.counters * loops),
        waits=waits_of(totals.counters * loops),
        bytes=bytes_of(totals.counters * (loops * clusters)),
        energy=_energy(schedule, latency, ddr, gb),
        kernel_times=times,
        kernel_counts={signature: count * loops for signature, count in counts.items()},
        tensors=_tensor_counts(schedule),
        subgraph_times=tuple((by_subgraph[:, 0] / np.maximum(by_subgraph[:, 1], 1)).tolist()),
    )


def _bound(schedule: Schedule) -> LowerBound:
    """The model's lower bound, remembered with the problem (it outlives the model's identity)."""
    problem, model = schedule.problem, schedule.model
    key = ("bound", id(model), problem.target.hash)
    found = problem.memory.get(key)
    if not isinstance(found, tuple):
        found = (model, lower_bound(model, problem.target, problem.dtype))
        problem.memory[key] = found
    bound: LowerBound = found[1]
    return bound


def _energy(schedule: Schedule, latency: float, ddr: int, gb: int) -> float | None:
    """Joules: multiply-accumulates, bytes per level, and what is drawn all the time."""
    energy = schedule.problem.target.energy
    if energy is None:
        return None
    passes = schedule.share.loops * schedule.share.clusters
    local = sum(
        float(step.template.stages[:, [Stage.READ, Stage.WRITTEN, Stage.CORE_WEIGHTS]].sum())
        for step in schedule.timeline.steps
    )
    per_mac = dict(energy.mac).get(schedule.problem.dtype, 0.0)
    picojoules = (
        schedule.model.macs * per_mac
        + local * schedule.problem.target.cores * passes * energy.lb
        + gb * energy.gb
        + ddr * energy.ddr
    )
    return picojoules * 1e-12 + energy.static * latency


def _tensor_counts(schedule: Schedule) -> dict[str, int]:
    """Buffers per scope over one pass (the paper's Table 3 counts tensors)."""
    scopes = schedule.timeline.buffers.scope
    tensors = np.asarray([name.kind == "tensor" for name in schedule.timeline.names], bool)
    return {scope.name: int(((scopes == scope) & tensors).sum()) for scope in Scope}
