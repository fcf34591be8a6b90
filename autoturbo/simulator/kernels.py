"""Level one: a kernel, engine by engine.

Engines issue their instructions in list order, each as soon as the engine is free and everything it
waits for has ended; an engine's instructions also complete in order. All cores of a cluster run the
same program, so one core's engines stand for all; the global buffer and DDR are shared by rates: GB
bandwidth is the cluster's, DDR bandwidth is the chip's divided by its clusters, all of which run
alike.

A transfer occupies its engine for its bytes and completes one latency later, so latencies of
consecutive transfers overlap, as in hardware with a request queue. A transfer of DDR takes longer
where its runs are short (:mod:`autoturbo.hardware.dram`), and where there is no global buffer no
less than a core's share takes over the core's link.

Reading and writing share a memory: a kernel takes no less than its transfers of DDR one after
another, and no less than its bytes at the global buffer's bandwidth, however its engines overlap.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from autoturbo.compiled import arithmetic, borrowing, compiled
from autoturbo.graph.arrays import Ints
from autoturbo.hardware.dram import turnaround_seconds
from autoturbo.hardware.target import Target
from autoturbo.schedule.codegen.durations import (
    Rate,
    ddr_seconds,
    matrix_seconds,
    own_share,
    transfer_seconds,
    vector_seconds,
)
from autoturbo.schedule.codegen.instructions import (
    DMA_IN,
    DMA_OUT,
    ENGINES,
    MATRIX_ENGINE,
    TRANSFER,
    VECTOR_ENGINE,
    Column,
    Instructions,
)
from autoturbo.schedule.codegen.tiling import Amount
from autoturbo.schedule.work import Floats

PAIRS = tuple(itertools.combinations(range(len(ENGINES)), 2))
"""Pairs of engines whose overlap is reported."""


class Quantity(IntEnum):
    """Totals of a kernel's simulation: positions in :attr:`KernelTime.totals`.

    Each is a sum over one cluster, so that a schedule's totals are the sums of its kernels'.
    Seconds: the kernel's own, of each engine ``BUSY``, of each pair ``OVERLAP`` (and of matrix,
    vector and transfer all three), of each engine's ``WAIT``: idle between its first instruction
    and its last because what the next one needs was not there. Bytes: read from and written to DDR
    and the global buffer, moved between cores, and read or written in local buffers by compute and
    transfers. ``ISSUED`` counts the instructions of each engine on one core. Of engines and pairs
    those are named that are asked for by name; all are there, in the order of ENGINES and PAIRS.
    """

    SECONDS = 0
    BUSY_DMA_IN = 1
    BUSY_TRANSFER = 2
    BUSY_DMA_OUT = 5
    OVERLAP_DMA_IN_TRANSFER = 6
    OVERLAP_TRANSFER_MATRIX_VECTOR = 16
    WAIT_DMA_IN = 17
    ISSUED_DMA_IN = 22
    DDR_READ = 27
    DDR_WRITTEN = 28
    GB_READ = 29
    GB_WRITTEN = 30
    CORE_TO_CORE = 31
    LB = 32


QUANTITIES = Quantity.LB + 1

# Bytes come last, so that they are all from DDR_READ on.
BUSY = slice(Quantity.BUSY_DMA_IN, Quantity.BUSY_DMA_OUT + 1)
WAIT = slice(Quantity.WAIT_DMA_IN, Quantity.ISSUED_DMA_IN)

# What depends on when instructions begin, and not on which there are.
OF_TIME = slice(Quantity.OVERLAP_DMA_IN_TRANSFER, Quantity.ISSUED_DMA_IN)


@dataclass(frozen=True, slots=True, eq=False)
class KernelTime:
    """A kernel simulated.

    Attributes:
        totals: float64 array (:data:`QUANTITIES`,): seconds, bytes and counts by
            :class:`Quantity`.
    """

    totals: Floats

    @property
    def seconds(self) -> float:
        """Return the seconds from its first instruction to the end of its last."""
        return float(self.totals[Quantity.SECONDS])

    @property
    def busy(self) -> tuple[float, ...]:
        """Return the busy seconds per engine, in the order of ENGINES."""
        return tuple(self.totals[BUSY].tolist())

    @property
    def overlap(self) -> tuple[float, ...]:
        """Return the overlapping seconds per pair of engines, in the order of :data:`PAIRS`."""
        return tuple(overlaps_of(self.totals).values())[: len(PAIRS)]

    @property
    def ddr_bytes(self) -> float:
        """Return the bytes that one cluster moves to and from DDR."""
        return float(self.totals[Quantity.DDR_READ] + self.totals[Quantity.DDR_WRITTEN])

    @property
    def gb_bytes(self) -> float:
        """Return the bytes that one cluster moves to and from its global buffer."""
        return float(self.totals[Quantity.GB_READ] + self.totals[Quantity.GB_WRITTEN])


def overlaps_of(totals: Floats) -> dict[str, float]:
    """Return the overlaps in totals by the engines' names, ``"dma_in+matrix"``."""
    together = (*PAIRS, (TRANSFER, MATRIX_ENGINE, VECTOR_ENGINE))
    names = ["+".join(ENGINES[engine] for engine in engines) for engines in together]
    first = Quantity.OVERLAP_DMA_IN_TRANSFER
    return dict(zip(names, totals[first : first + len(names)].tolist(), strict=True))


def dma_bandwidth(target: Target) -> float:
    """Return the DDR bytes per second of one cluster's DMA, in one direction on long runs.

    This is its share of the bandwidth that long transfers reach, at most what the channels move.
    """
    share = target.ddr_bandwidth_per_cluster * target.ddr.efficiency
    return min(share, target.dma.channels * target.dma.bandwidth)


def run_kernel(instructions: Instructions, rates: Floats) -> KernelTime:
    """Simulate one kernel."""
    out, begin, end = _timed(instructions, rates)
    engine = instructions.where[:, Column.ENGINE]
    by_engine = [np.flatnonzero(engine == code) for code in range(len(ENGINES))]
    add_overlaps(by_engine, begin, end, out)
    return KernelTime(out)


def add_overlaps(by_engine: Sequence[Ints], begin: Floats, end: Floats, totals: Floats) -> None:
    """Write the seconds in which engines are busy together into totals.

    Args:
        by_engine: Instructions of each engine as they begin.
        begin: Seconds at which each begins.
        end: Seconds at which it ends.
        totals: Totals by :class:`Quantity`.
    """
    # The compiled loop ends an engine's list at -1.
    ended = [np.append(of_engine, -1) for of_engine in by_engine]
    for position, (first, second) in enumerate(PAIRS, Quantity.OVERLAP_DMA_IN_TRANSFER):
        # Two engines as three, of which two are one: a single compiled function does both.
        totals[position] = _together(ended[first], ended[second], ended[second], begin, end)
    three = ended[TRANSFER], ended[MATRIX_ENGINE], ended[VECTOR_ENGINE]
    totals[Quantity.OVERLAP_TRANSFER_MATRIX_VECTOR] = _together(*three, begin, end)


def kernel_seconds(instructions: Instructions, rates: Floats) -> float:
    """Return the seconds of one kernel; all else that :func:`run_kernel` finds takes longer."""
    return float(_timed(instructions, rates)[0][Quantity.SECONDS])


def _timed(instructions: Instructions, rates: Floats) -> tuple[Floats, Floats, Floats]:
    """Return the totals but for overlaps, and every instruction's begin and end."""
    where, amounts = instructions.where, instructions.amounts
    out, begin, end, _ = _run(where, amounts, rates)
    for quantity, column in _moved(where[:, Column.ENGINE], amounts, rates).items():
        out[quantity] = np.append(0.0, np.cumsum(column))[-1]  # in the order of the program
    memory = memory_seconds(
        out[Quantity.BUSY_DMA_IN] + out[Quantity.BUSY_DMA_OUT],
        out[Quantity.DDR_READ], out[Quantity.DDR_WRITTEN],
        out[Quantity.GB_READ] + out[Quantity.GB_WRITTEN], rates,
    )  # fmt: skip
    # Engines overlap, but the memories that they share serve one after another.
    out[Quantity.SECONDS] = max(out[Quantity.SECONDS], memory)
    return out, begin, end


def issue(instructions: Instructions, rates: Floats) -> tuple[Floats, Floats, Floats]:
    """Return every instruction's begin, the end of its engine's work, and its completion."""
    _, begin, end, done = _run(instructions.where, instructions.amounts, rates)
    return begin, end, done


@borrowing
def duration(engine: int, q: Floats, r: Floats) -> tuple[float, float]:
    """Return the seconds that an instruction occupies its engine, and its latency on top."""
    if engine in (DMA_IN, DMA_OUT):
        own = own_share(q[Amount.ALIKE], r)
        return ddr_seconds(q[Amount.DDR], q[Amount.RUN], q[Amount.CORE], own, r)
    if engine == TRANSFER:
        return transfer_seconds(q[Amount.GB], q[Amount.CORE], q[Amount.STEPS], r)
    steps, local = max(q[Amount.STEPS], 1.0), q[Amount.LOCAL]
    if engine == MATRIX_ENGINE:
        return matrix_seconds(
            q[Amount.COUNT], q[Amount.ROWS], q[Amount.COLUMNS], q[Amount.DEPTH], local, steps, r
        ), 0.0
    return vector_seconds(q[Amount.VECTOR], q[Amount.SPECIAL], local, steps, r), 0.0


@compiled
def durations(engine: int, amounts: Floats, rates: Floats) -> Floats:
    """Return :func:`duration` of instructions of one engine, ``(2, instructions)``."""
    found = np.empty((2, len(amounts)))
    for index in range(len(amounts)):
        found[0, index], found[1, index] = duration(engine, amounts[index], rates)
    return found


@arithmetic
def memory_seconds(dma: Floats, read: Floats, written: Floats, gb: Floats, r: Floats) -> Floats:
    """Return the least time that the shared memories need for a kernel's bytes.

    Args:
        dma: Seconds of its transfers of DDR, one after another.
        read: Bytes that one cluster reads from DDR.
        written: Bytes that the kernel writes to DDR.
        gb: Bytes that it moves from and to GB.
        r: Rates of :func:`rates_of`.
    """
    clusters = r[Rate.CLUSTERS]
    ddr = dma + turnaround_seconds(read * clusters, written * clusters, r[Rate.MEMORY :])
    seconds: Floats = np.maximum(ddr, gb / r[Rate.GB] if r[Rate.GB] > 0 else 0.0 * gb)
    return seconds


def _moved(engine: Ints, q: Floats, r: Floats) -> dict[Quantity, Floats]:
    """Return the bytes that each instruction moves, as they are stored."""
    stored, cores = r[Rate.STORED], r[Rate.STORED] * r[Rate.CORES]
    ddr = q[:, Amount.DDR] * stored * own_share(q[:, Amount.ALIKE], r)
    return {
        Quantity.GB_WRITTEN: q[:, Amount.GB_WRITTEN] * stored,
        Quantity.GB_READ: (q[:, Amount.GB] - q[:, Amount.GB_WRITTEN]) * stored,
        Quantity.CORE_TO_CORE: q[:, Amount.EXCHANGED] * cores,
        Quantity.LB: (q[:, Amount.LOCAL] + q[:, Amount.CORE]) * cores,
        Quantity.DDR_READ: np.where(engine == DMA_IN, ddr, 0.0),
        Quantity.DDR_WRITTEN: np.where(engine == DMA_OUT, ddr, 0.0),
    }


@compiled
def _run(where: Ints, amounts: Floats, rates: Floats) -> tuple[Floats, Floats, Floats, Floats]:
    """Issue all instructions; return the engines' totals and the result of :func:`issue`."""
    total = len(where)
    begin, end, done = np.zeros(total), np.zeros(total), np.zeros(total)
    free, completed = np.zeros(len(ENGINES)), np.zeros(len(ENGINES))
    out = np.zeros(QUANTITIES)
    for index in range(total):
        engine = where[index, Column.ENGINE]
        start = free[engine]
        for position in range(Column.AFTER, where.shape[1]):
            before = where[index, position]
            if before >= 0:
                start = max(start, done[before])
        length, latency = duration(engine, amounts[index], rates)
        # Before its first instruction an engine is not waiting: its work has not come.
        if out[Quantity.ISSUED_DMA_IN + engine] > 0:
            out[Quantity.WAIT_DMA_IN + engine] += start - free[engine]
        out[Quantity.ISSUED_DMA_IN + engine] += 1
        out[Quantity.BUSY_DMA_IN + engine] += length
        begin[index], end[index] = start, start + length
        # A short latency does not overtake: an engine completes in order.
        done[index] = completed[engine] = max(end[index] + latency, completed[engine])
        free[engine] = end[index]
        out[Quantity.SECONDS] = max(out[Quantity.SECONDS], done[index])
    return out, begin, end, done


@compiled
def _together(first: Ints, second: Ints, third: Ints, begin: Floats, end: Floats) -> float:
    """Return the seconds in which three engines are all busy.

    Args:
        first: Instructions of an engine in order; -1 ends them.
        second: Those of another engine; -1 ends them.
        third: Those of a third one, or of the second again; -1 ends them.
        begin: Seconds at which each instruction of the program begins.
        end: Seconds at which it ends.
    """
    total = 0.0
    i = j = k = 0
    while first[i] >= 0 and second[j] >= 0 and third[k] >= 0:
        a, b, c = first[i], second[j], third[k]
        least = min(end[a], end[b], end[c])
        total += max(least - max(begin[a], begin[b], begin[c]), 0.0)
        if end[a] == least:
            i += 1
        elif end[b] == least:
            j += 1
            # Where the third engine is the second again, both go on together.
            k += int(b == c)
        else:
            k += 1
    return total
