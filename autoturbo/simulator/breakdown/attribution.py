"""Attribution of a kernel's seconds to the resources that limit it, layer by layer.

A kernel ends when its last instruction has completed. From there its critical path is followed
back: an instruction began when its engine was free or when something it waits for had completed,
and whichever it was lies on the path before it. The stretches of the path add up to the kernel's
time, and each is owed to what limits its instruction (:class:`Limit`). Where the shared memories
need longer than the path (:func:`autoturbo.simulator.kernels.run_kernel`), all of the kernel is
owed to them, each layer in proportion to what it moves.

Shortening anything off the path gains nothing; how much later it could be is its slack.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

import numpy as np

from autoturbo.graph.arrays import Ints
from autoturbo.schedule.codegen.durations import Rate
from autoturbo.schedule.codegen.instructions import (
    DMA_IN,
    DMA_OUT,
    ENGINES,
    MATRIX_ENGINE,
    TRANSFER,
    Column,
    Instructions,
)
from autoturbo.schedule.codegen.tiling import Amount
from autoturbo.schedule.work import Floats
from autoturbo.simulator.kernels import BUSY, Quantity, duration, issue, run_kernel
from autoturbo.simulator.whole_pass import KernelInterval


class Limit(StrEnum):
    """A resource or overhead that time is attributed to.

    ``MATRIX`` and ``VECTOR``: cycles of the engines. ``LB``: compute that waits for its local
    buffer's bandwidth. ``TRANSFER``: a core's link, to GB, to other cores, or to DDR where there is
    no GB between. ``GB``: the cluster's global buffer. ``DDR``: off-chip memory and its DMA.
    ``LATENCY``: from the issue of a transfer to its first byte, where nothing covers it.
    ``LAUNCH``: launches of kernels, their ramps and barriers.
    """

    MATRIX = "matrix"
    VECTOR = "vector"
    LB = "lb"
    TRANSFER = "transfer"
    GB = "gb"
    DDR = "ddr"
    LATENCY = "latency"
    LAUNCH = "launch"


LIMITS = tuple(Limit)
"""Columns of all tables of shares."""

_AT = {limit: column for column, limit in enumerate(LIMITS)}
_EQUAL = 1e-9
"""Share by which two times may differ that are the same but for rounding."""


@dataclass(frozen=True, slots=True, eq=False)
class KernelShares:
    """A kernel's time, attributed to layers and limits.

    Attributes:
        seconds: It takes.
        layers: Seconds by layer and limit, ``(layers, len(LIMITS))``; they add up to ``seconds``.
        slack: Per layer, seconds by which all of its work could be later without the kernel ending
            later; infinite for a layer without instructions.
        busiest: Seconds of its busiest engine or memory: what it would take if all others were
            hidden behind that one.
    """

    seconds: float
    layers: Floats
    slack: Floats
    busiest: float


class KernelTimes(NamedTuple):
    """When everything in a kernel happens, in seconds from its first instruction on.

    Attributes:
        seconds: Seconds of the kernel.
        begin: Per instruction; of a load that is fetched before its kernel, less than 0.
        end: When its engine is free again.
        done: When what waits for it may begin.
    """

    seconds: float
    begin: Floats
    end: Floats
    done: Floats

    @staticmethod
    def of(run: KernelInterval) -> KernelTimes:
        """Return the times of a kernel of a pass."""
        times = (times - run.body for times in (run.issued, run.freed, run.done))
        return KernelTimes(run.work, *times)


def kernel_shares(
    program: Instructions, rates: Floats, layers: int, times: KernelTimes | None = None
) -> KernelShares:
    """Return a kernel's time, attributed to limits and layers.

    Args:
        program: Program of the kernel.
        rates: Rates of :func:`autoturbo.simulator.kernels.rates_of`.
        layers: Layers of the kernel's sub-graph.
        times: Times in its pass; those of the kernel by itself if None.
    """
    totals = run_kernel(program, rates).totals
    if times is None:
        times = KernelTimes(float(totals[Quantity.SECONDS]), *issue(program, rates))
    seconds, begin, end, done = times
    path = float(done.max(initial=0.0))
    limits = _limits(program, end - begin, rates)
    moved = _memory(totals, rates)
    # A shared memory takes longer than the engines wait for each other.
    if seconds > path * (1 + _EQUAL):
        shares = _by_traffic(program, end - begin, moved, seconds, layers)
    else:
        shares = _along_path(program, begin, end, done, limits, layers)
    late = later(program.where, program.amounts, rates, begin, seconds)
    slack = np.full(layers, np.inf)
    np.minimum.at(slack, program.where[:, Column.LAYER], late)
    busiest = max(float(totals[BUSY].max()), moved[0], moved[1])
    return KernelShares(seconds, shares, slack, min(busiest, seconds))


def _limits(program: Instructions, length: Floats, rates: Floats) -> Ints:
    """Return each instruction's column of :data:`LIMITS`: what determines its length."""
    engine, amounts = program.where[:, Column.ENGINE], program.amounts
    stored = rates[Rate.STORED]
    link = amounts[:, Amount.CORE] * stored / rates[Rate.TRANSFER]
    local = amounts[:, Amount.LOCAL] * stored / rates[Rate.LB]
    shared = np.where(amounts[:, Amount.GB] > 0, amounts[:, Amount.GB] * stored, 0.0)
    if rates[Rate.GB] > 0:
        shared = shared / rates[Rate.GB]
    ends = (engine == DMA_IN) | (engine == DMA_OUT)
    compute = np.where(engine == MATRIX_ENGINE, _AT[Limit.MATRIX], _AT[Limit.VECTOR])
    # The longer of two times is an instruction's length: what is as long has determined it.
    by_link = (link > 0) & (link >= length * (1 - _EQUAL))
    by_buffer = (local > 0) & (local >= length * (1 - _EQUAL))
    limits: Ints = np.where(
        ends,
        np.where(by_link, _AT[Limit.TRANSFER], _AT[Limit.DDR]),
        np.where(
            engine == TRANSFER,
            np.where(shared >= link, _AT[Limit.GB], _AT[Limit.TRANSFER]),
            np.where(by_buffer, _AT[Limit.LB], compute),
        ),
    )
    return limits


def _memory(totals: Floats, rates: Floats) -> tuple[float, float]:
    """Return the seconds that DDR (both directions, without turning around) and GB are busy."""
    gb = float(totals[Quantity.GB_READ] + totals[Quantity.GB_WRITTEN])
    ddr = float(totals[Quantity.BUSY_DMA_IN] + totals[Quantity.BUSY_DMA_OUT])
    return ddr, gb / float(rates[Rate.GB]) if gb > 0 else 0.0


def _by_traffic(
    program: Instructions, length: Floats, moved: tuple[float, float], seconds: float, layers: int
) -> Floats:
    """Attribute all of the time to the limiting memory, by the bytes that each layer moves.

    Args:
        program: The kernel's instructions.
        length: Seconds of each instruction.
        moved: Seconds that DDR and GB are busy.
        seconds: Seconds of the kernel.
        layers: Number of layers of the kernel.

    Returns:
        Seconds by layer and limit, ``(layers, limits)``.
    """
    engine, ddr = program.where[:, Column.ENGINE], moved[0] >= moved[1]
    dma = (engine == DMA_IN) | (engine == DMA_OUT)
    weight = np.where(dma, length, 0.0) if ddr else program.amounts[:, Amount.GB]
    moved_by_layer: Floats = np.zeros(layers)
    np.add.at(moved_by_layer, program.where[:, Column.LAYER], weight)
    if not moved_by_layer.any():  # of what comes meanwhile for other kernels
        moved_by_layer = np.ones(layers)
    shares = np.zeros((layers, len(LIMITS)))
    shares[:, _AT[Limit.DDR if ddr else Limit.GB]] = seconds * moved_by_layer / moved_by_layer.sum()
    return shares


def _along_path(
    program: Instructions, begin: Floats, end: Floats, done: Floats, limits: Ints, layers: int
) -> Floats:
    """Attribute the time along the critical path, back from the instruction that completes last.

    Args:
        program: The kernel's instructions.
        begin: Seconds at which each instruction begins.
        end: Seconds at which its engine is free again.
        done: Seconds at which it completes.
        limits: Limit of each instruction.
        layers: Number of layers of the kernel.

    Returns:
        Seconds by layer and limit, ``(layers, limits)``.
    """
    shares = np.zeros((layers, len(LIMITS)))
    if not len(done):
        return shares
    before = _before(program.where[:, Column.ENGINE])
    current, waits = int(done.argmax()), True
    while True:
        layer = program.where[current, Column.LAYER]
        if waits:
            earlier = before[current]
            if earlier >= 0 and done[earlier] == done[current]:
                current = int(earlier)  # it completes when the one before it on its engine has
                continue
            shares[layer, _AT[Limit.LATENCY]] += done[current] - end[current]
        shares[layer, limits[current]] += end[current] - max(begin[current], 0.0)
        if begin[current] <= 0:
            return shares
        cause = _cause(program.where, before, begin, end, done, current)
        if cause is None:  # the bus had loads of other kernels, or one had to wait for its step
            shares[layer, _AT[Limit.DDR]] += begin[current]
            return shares
        current, waits = cause


def _before(engine: Ints) -> Ints:
    """Return, per instruction, the one before it on its engine; -1 for the first."""
    previous = np.full(len(engine), -1, np.int64)
    for code in range(len(ENGINES)):
        of_engine = np.flatnonzero(engine == code)
        previous[of_engine[1:]] = of_engine[:-1]
    return previous


def _cause(
    where: Ints, before: Ints, begin: Floats, end: Floats, done: Floats, at: int
) -> tuple[int, bool] | None:
    """Return the instruction that another waited for, and whether for its completion.

    If both its engine and another instruction delayed it, the engine comes first. In a pass it may
    have been the bus or nothing of its kernel at all, which is None.

    Args:
        where: Rows of the program, one per instruction.
        before: Per instruction, the one before it on its engine, -1 for none.
        begin: Seconds at which each begins.
        end: Seconds at which its engine is free again.
        done: Seconds at which it completes.
        at: The instruction that waited.
    """
    earlier = int(before[at])
    # Equal to the bit: a begin is the largest of the times that it waits for.
    if earlier >= 0 and end[earlier] == begin[at]:
        return earlier, False
    needed = [int(n) for n in where[at, Column.AFTER :] if n >= 0 and done[n] == begin[at]]
    if needed:
        # Of several that end at once the first, so that a program has one path.
        return min(needed), True
    bus = np.flatnonzero((end == begin[at]) & np.isin(where[:, Column.ENGINE], (DMA_IN, DMA_OUT)))
    return (int(bus[-1]), False) if len(bus) else None


def later(where: Ints, amounts: Floats, rates: Floats, begin: Floats, deadline: float) -> Floats:
    """Return each instruction's slack in seconds, all others being as late as possible.

    Args:
        where: Integer columns of the program.
        amounts: Amounts of the program.
        rates: Rates of the target.
        begin: Begin of every instruction.
        deadline: When the kernel ends.
    """
    latest = [deadline] * len(where)  # of completion
    next_begin, next_done = [np.inf] * len(ENGINES), [deadline] * len(ENGINES)
    starts = np.zeros(len(where))
    # Back from the end: an instruction waits only for earlier ones of the program.
    for index, row in reversed(list(enumerate(where.tolist()))):
        engine = row[Column.ENGINE]
        length, latency = duration(engine, amounts[index], rates)
        done = min(latest[index], next_done[engine])
        start = min(done - latency, next_begin[engine]) - length
        next_begin[engine], next_done[engine], starts[index] = start, done, start
        for needed in row[Column.AFTER :]:
            if needed >= 0:
                latest[needed] = min(latest[needed], start)
    return np.maximum(starts - begin, 0.0)
