"""Level two: kernels and movements in order.

A cluster runs one kernel at a time and a kernel's boundary is a barrier, so a pass takes the sum of
its kernels and of the movements between them; clusters work alike and side by side on their shares
of the batch, and loop over them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numba import njit

from autoturbo.graph.arrays import Ints
from autoturbo.hardware.target import Target
from autoturbo.schedule.allocate import peak_use
from autoturbo.schedule.bind import Scope
from autoturbo.schedule.instructions import ENGINES
from autoturbo.schedule.schedule import Schedule
from autoturbo.schedule.stores import Store
from autoturbo.schedule.templates import template_book
from autoturbo.schedule.timeline import KINDS, Step
from autoturbo.schedule.work import Floats
from autoturbo.simulate.bound import lower_bound
from autoturbo.simulate.kernels import (
    BUSY,
    QUANTITIES,
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
    """Kernels already simulated, by signature.

    Attributes:
        index: row of :attr:`totals` by signature, 16 bytes.
        totals: what each yields, by :class:`Quantity`.
    """

    index: dict[bytes, int] = field(default_factory=dict)
    totals: Store = field(default_factory=lambda: Store((QUANTITIES,), np.float64))

    def rows(self, schedule: Schedule) -> tuple[list[bytes], Ints]:
        """Signatures of a schedule's kernels and their rows; new kernels are simulated."""
        signatures = schedule.signatures()
        rows = [self.index.get(s, -1) for s in signatures]
        if -1 in rows:
            rates = rates_of(schedule.problem.target, schedule.problem.dtype)
            for kernel, signature in enumerate(signatures):
                if signature not in self.index:
                    time = run_kernel(schedule.program(kernel), rates)
                    self.index[signature] = self.totals.add([time.totals])
            rows = [self.index[s] for s in signatures]
        return signatures, np.asarray(rows, np.int64)


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


class MovementRates(NamedTuple):
    """What movements take, SI units."""

    dma: float
    dma_latency: float
    has_gb: bool
    gb: float
    gb_latency: float
    transfer: float
    transfer_latency: float
    barrier: float

    @staticmethod
    def of(target: Target) -> MovementRates:
        """Read a target's figures."""
        return MovementRates(
            dma_bandwidth(target), target.dma.latency + target.ddr.latency,
            target.gb.capacity > 0, target.gb.bandwidth,
            target.gb.latency + target.transfer.latency, target.transfer.bandwidth,
            target.transfer.latency, target.overheads.barrier,
        )  # fmt: skip


@njit(cache=True)
def _movement_times(copied: Ints, crossing: Ints, rates: MovementRates) -> Floats:
    """Per kernel: seconds, DMA and transfer busy seconds, bytes of GB.

    Bytes from DDR are written to GB, where there is one, and read again: both count there.
    """
    found = np.zeros((len(crossing), 4))
    for kernel in range(len(crossing)):
        from_gb, from_ddr = float(copied[kernel, 1]), float(copied[kernel, 2])
        dma = transfer = latency = moved = 0.0
        if from_ddr:
            dma = from_ddr / rates.dma
            latency += rates.dma_latency
        if from_gb + from_ddr and rates.has_gb:
            moved = from_gb + 2.0 * from_ddr
            transfer += (from_gb + from_ddr) / rates.gb
            latency += rates.gb_latency
        if crossing[kernel]:
            transfer += crossing[kernel] / rates.transfer
            latency += rates.transfer_latency
        seconds = dma + transfer + latency
        found[kernel, 0] = seconds + (rates.barrier if seconds else 0.0)
        found[kernel, 1], found[kernel, 2], found[kernel, 3] = dma, transfer, moved
    return found


def movement_time(step: Step, target: Target) -> MovementTime:
    """Copies into LB and core-to-core traffic before a kernel; a barrier ends them."""
    copied = np.asarray([[0, *step.copied]], np.int64)
    crossing = np.asarray([step.crossing], np.int64)
    return MovementTime(*_movement_times(copied, crossing, MovementRates.of(target))[0].tolist())


def simulate(schedule: Schedule, memory: KernelMemory | None = None) -> Measurement:
    """Measure a schedule: latency of the whole batch on the whole chip, and where it went."""
    memory = KernelMemory() if memory is None else memory
    target, timeline = schedule.problem.target, schedule.timeline
    signatures, rows = memory.rows(schedule)
    moves = _movement_times(timeline.copied, timeline.crossing, MovementRates.of(target))
    kernels: Floats = memory.totals.rows[rows]
    totals = kernels.sum(axis=0)
    fixed = target.overheads.kernel_launch + target.overheads.barrier
    seconds = kernels[:, Quantity.SECONDS] + fixed + moves[:, 0]
    totals[Quantity.SECONDS] = seconds.sum()
    totals[Quantity.BUSY_DMA_IN] += moves[:, 1].sum()
    totals[Quantity.BUSY_TRANSFER] += moves[:, 2].sum()
    _count_movements(totals, timeline.copied, target)
    return _measurement(schedule, totals, seconds, signatures, kernels)


def _count_movements(totals: Floats, copied: Ints, target: Target) -> None:
    """Add the bytes that movements copy to a schedule's totals."""
    from_gb, from_ddr = copied[:, 1].sum(), copied[:, 2].sum()
    totals[Quantity.DDR_READ] += from_ddr
    totals[Quantity.LB] += from_gb + from_ddr
    if target.gb.capacity:
        totals[Quantity.GB_READ] += from_gb + from_ddr
        totals[Quantity.GB_WRITTEN] += from_ddr


def _measurement(
    schedule: Schedule, totals: Floats, seconds: Floats, signatures: list[bytes], kernels: Floats
) -> Measurement:
    loops, clusters = schedule.share.loops, schedule.share.clusters
    bound = _bound(schedule)
    latency = float(totals[Quantity.SECONDS]) * loops
    ddr, gb = (round(float(totals[at].sum()) * loops * clusters) for at in (_DDR, _GB))
    buffers = schedule.timeline.buffers
    times, counts = _by_signature(signatures, kernels[:, Quantity.SECONDS].tolist(), loops)
    return Measurement(
        latency=latency,
        batch=schedule.model.batch,
        ddr_bytes=ddr,
        gb_bytes=gb,
        matrix_utilization=bound.matrix_s / latency,
        vector_utilization=bound.vector_s / latency,
        peak_lb_bytes=peak_use(buffers, Scope.LB),
        peak_gb_bytes=peak_use(buffers, Scope.GB),
        kernels=len(signatures) * loops,
        bound=bound,
        busy=dict(zip(ENGINES, (totals[BUSY] * loops).tolist(), strict=True)),
        overlap=overlaps_of(totals * loops),
        waits=waits_of(totals * loops),
        bytes=bytes_of(totals * (loops * clusters)),
        energy=_energy(schedule, latency, ddr, gb),
        kernel_times=times,
        kernel_counts=counts,
        tensors=_tensor_counts(schedule),
        subgraph_times=_subgraph_times(schedule, seconds),
    )


_DDR = [Quantity.DDR_READ, Quantity.DDR_WRITTEN]
_GB = [Quantity.GB_READ, Quantity.GB_WRITTEN]


def _by_signature(
    signatures: list[bytes], seconds: list[float], loops: int
) -> tuple[dict[str, float], dict[str, int]]:
    times = dict(zip(signatures, seconds, strict=True))
    counts = dict.fromkeys(signatures, 0)
    for signature in signatures:
        counts[signature] += loops
    return {s.hex(): t for s, t in times.items()}, {s.hex(): n for s, n in counts.items()}


def _subgraph_times(schedule: Schedule, seconds: Floats) -> tuple[float, ...]:
    """Mean seconds of one launch of each sub-graph's kernels."""
    owner = schedule.instances.subgraph[schedule.timeline.order]
    count = len(schedule.instances.subgraphs)
    sums = np.bincount(owner, seconds, count)
    return tuple((sums / np.maximum(np.bincount(owner, minlength=count), 1)).tolist())


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
    local_bytes = template_book(schedule.problem).local_bytes.rows
    local = float(local_bytes[schedule.timeline.templates[schedule.timeline.order]].sum())
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
    timeline = schedule.timeline
    tensors = timeline.kind == KINDS.index("tensor")
    counts = np.bincount(timeline.buffers.scope[tensors], minlength=len(Scope)).tolist()
    return {scope.name: counts[scope] for scope in Scope}
