"""What a kernel takes, in closed form: the simulator's sums without its order.

Tiles and the seconds of each instruction are the simulator's own; they are multiplied by how many
there are instead of being issued one by one. What engines wait for each other is left out: a kernel
takes at least as long as its busiest engine, and as its layers one after another where their
results are needed. Partial tiles count as their mean. A thousand kernels cost a few milliseconds.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np
from numba import njit

from autoturbo.compiled import borrowing
from autoturbo.graph.arrays import Ints
from autoturbo.schedule.instructions import (
    AMOUNT_COLUMNS,
    DMA_IN,
    DMA_OUT,
    ENGINES,
    MATRIX_ENGINE,
    TRANSFER,
    VECTOR_ENGINE,
    Amount,
    exchanges,
    tile_shape,
    weight_reads,
    weight_share,
    weight_tiles,
)
from autoturbo.schedule.stitch import Stage
from autoturbo.schedule.streams import IN_DDR, IN_GB, LATE_DDR, LATE_GB, OUT_DDR, OUT_GB
from autoturbo.schedule.tiling import FROM_DDR, TILING_COLUMNS, TO_CORES, Rule, Tiling, cut_tiles
from autoturbo.schedule.work import Floats
from autoturbo.simulate.dram import turnaround_seconds
from autoturbo.simulate.kernels import Rate, duration


class Estimate(IntEnum):
    """What :func:`estimate` yields: positions in its result.

    ``SECONDS`` of the kernel; ``LAYERS`` if its layers ran one after another, engines side by side,
    and ``SERIAL`` if all instructions did; ``CHAIN`` of what has to follow each other.
    Of each engine ``BUSY`` seconds; bytes read from and written to DDR and moved at GB.
    """

    SECONDS = 0
    LAYERS = 1
    SERIAL = 2
    CHAIN = 3
    BUSY_DMA_IN = 4
    BUSY_TRANSFER = 5
    BUSY_MATRIX = 6
    BUSY_VECTOR = 7
    BUSY_DMA_OUT = 8
    DDR_READ = 9
    DDR_WRITTEN = 10
    GB = 11


ESTIMATES = len(Estimate)


class Pace(IntEnum):
    """How fast a layer can go: positions of a layer's notes.

    Seconds of its work, the least that it takes since there are so many ``SLOTS`` for tiles that
    are fetched or stored, and seconds until the first of them is there.
    """

    WORK = 0
    LEAST = 1
    SLOTS = 2
    FILL = 3


PACES = len(Pace)


BUSY = slice(Estimate.BUSY_DMA_IN, Estimate.BUSY_DMA_OUT + 1)

_IN_LB = 2
"""Code of what stays in the local buffers: weights, and inputs between tiles of columns."""


@njit(cache=True)
def estimate(stages: Floats, streams: Ints, rules: Ints, resident: int, rates: Floats) -> Floats:
    """Seconds and bytes of one kernel, ``(ESTIMATES,)``.

    Args:
        stages: its template's table.
        streams: bytes that its layers move from and to GB and DDR.
        rules: of :meth:`autoturbo.schedule.tiling.InstructionRules.as_array`.
        resident: where the weights are already: 0 in DDR only, 1 in GB, 2 in LB.
        rates: of :func:`autoturbo.simulate.kernels.rates_of`.
    """
    out, notes = np.zeros(ESTIMATES), np.zeros((3, AMOUNT_COLUMNS))
    tiles = np.empty((len(stages), TILING_COLUMNS), np.int64)
    _estimate(stages, streams, rules, resident, rates, tiles, notes, out)
    return out


@borrowing
def _estimate(
    stages: Floats,
    streams: Ints,
    rules: Ints,
    resident: int,
    rates: Floats,
    tiles: Ints,
    notes: Floats,
    out: Floats,
) -> None:
    """:func:`estimate` into ``out``, which is 0; ``tiles`` and ``notes`` are room."""
    cut_tiles(stages, streams, rules, resident, tiles)
    busy, q, pace = notes[0, : len(ENGINES)], notes[1], notes[2, :PACES]
    q[:] = 0.0
    last = 0.0
    for layer in range(len(stages)):
        busy[:], pace[:] = 0.0, 0.0
        row, stream, tile = stages[layer], streams[layer], tiles[layer]
        pace[Pace.SLOTS] = rules[Rule.AHEAD] + 1
        _work(row, tile, rules, rates, q, busy, pace, out)
        count = weight_tiles(stages, tiles, layer)
        _weights(row, tile, count, rules, resident, rates, q, busy, pace, out)
        _inputs(row, stream, tile, rules, rates, q, busy, pace, out)
        fill, pace[Pace.FILL] = pace[Pace.FILL], 0.0
        _outputs(row, stream, tile, rules, rates, q, busy, pace, out)
        for engine in range(len(ENGINES)):
            out[Estimate.BUSY_DMA_IN + engine] += busy[engine]
        out[Estimate.LAYERS] += max(_largest(busy), pace[Pace.LEAST]) + fill + pace[Pace.FILL]
        out[Estimate.SERIAL] += busy.sum()
        out[Estimate.CHAIN] += max(busy[MATRIX_ENGINE], busy[VECTOR_ENGINE], pace[Pace.LEAST])
        out[Estimate.CHAIN] += fill if layer == 0 else 0.0
        last = pace[Pace.FILL]
    out[Estimate.CHAIN] += last
    _finish(out, rules, rates)


@njit(cache=True)
def estimates(
    first: Ints,
    end: Ints,
    stages: Floats,
    streams: Ints,
    rules: Ints,
    which: Ints,
    resident: Ints,
    rates: Floats,
) -> Floats:
    """:func:`estimate` of many kernels, ``(kernels, ESTIMATES)``.

    Args:
        first: per kernel, the row of its first layer in ``stages`` and ``streams``.
        end: one past its last.
        stages: of templates.
        streams: bytes that layers move from and to GB and DDR.
        rules: a row for each set of rules.
        which: per kernel, its row of rules.
        resident: per kernel, where its weights are.
        rates: of :func:`autoturbo.simulate.kernels.rates_of`.
    """
    count = len(first)
    found = np.zeros((count, ESTIMATES))
    longest = 0
    for kernel in range(count):
        longest = max(longest, end[kernel] - first[kernel])
    tiles, notes = np.empty((longest, TILING_COLUMNS), np.int64), np.zeros((3, AMOUNT_COLUMNS))
    _estimates(first, end, stages, streams, rules, which, resident, rates, tiles, notes, found)
    return found


@borrowing
def _estimates(
    first: Ints,
    end: Ints,
    stages: Floats,
    streams: Ints,
    rules: Ints,
    which: Ints,
    resident: Ints,
    rates: Floats,
    tiles: Ints,
    notes: Floats,
    out: Floats,
) -> None:
    for kernel in range(len(first)):
        own = slice(first[kernel], end[kernel])
        rule, kept = rules[which[kernel]], resident[kernel]
        _estimate(stages[own], streams[own], rule, kept, rates, tiles, notes, out[kernel])


@borrowing
def _largest(values: Floats) -> float:
    largest = values[0]
    for value in values:
        largest = max(largest, value)
    return float(largest)


@borrowing
def _finish(out: Floats, rules: Ints, rates: Floats) -> None:
    """The kernel's seconds from those of its engines and layers."""
    clusters = rates[Rate.CLUSTERS]
    read, written = out[Estimate.DDR_READ] * clusters, out[Estimate.DDR_WRITTEN] * clusters
    memory = out[Estimate.BUSY_DMA_IN] + out[Estimate.BUSY_DMA_OUT]
    memory += turnaround_seconds(read, written, rates[Rate.MEMORY :])
    if out[Estimate.GB] > 0:
        memory = max(memory, out[Estimate.GB] / rates[Rate.GB])
    if rules[Rule.SERIAL]:
        seconds = out[Estimate.SERIAL]
    elif rules[Rule.ACROSS]:
        busiest = _largest(out[Estimate.BUSY_DMA_IN : Estimate.BUSY_DMA_OUT + 1])
        seconds = max(busiest, out[Estimate.CHAIN])
    else:
        seconds = out[Estimate.LAYERS]
    out[Estimate.SECONDS] = max(seconds, memory)


@borrowing
def _issue(
    engine: int, count: float, work: float, rates: Floats, q: Floats, busy: Floats, pace: Floats,
    out: Floats,
) -> None:  # fmt: skip
    """Add ``count`` instructions of some amounts to an engine.

    ``work`` is what follows each before its slot is free, negative where it needs none.
    """
    length, latency = duration(engine, q, rates)
    busy[engine] += count * length
    out[Estimate.SERIAL] += count * latency
    pace[Pace.FILL] += length + latency if work >= 0 else 0.0
    if work >= 0:
        trip = (length + latency + work) / pace[Pace.SLOTS]
        pace[Pace.LEAST] = max(pace[Pace.LEAST], count * max(length, trip))
    stored = rates[Rate.STORED] * count
    out[Estimate.GB] += q[Amount.GB] * stored
    if engine == DMA_IN:
        out[Estimate.DDR_READ] += q[Amount.DDR] * stored
    if engine == DMA_OUT:
        out[Estimate.DDR_WRITTEN] += q[Amount.DDR] * stored
    q[:] = 0.0


@borrowing
def _weights(
    row: Floats,
    tile: Ints,
    count: int,
    rules: Ints,
    resident: int,
    rates: Floats,
    q: Floats,
    busy: Floats,
    pace: Floats,
    out: Floats,
) -> None:
    """Weight tiles from DDR and to the cores."""
    if count == 0:
        return
    share = weight_share(row, tile, rules, FROM_DDR)
    size, core = row[Stage.WEIGHTS] * share, row[Stage.CORE_WEIGHTS] * share
    each = size if rules[Rule.BROADCAST] else core * row[Stage.CORES]
    has_gb, work = rules[Rule.HAS_GB], pace[Pace.WORK] / count
    if not resident:
        q[Amount.DDR] = size if has_gb else each
        q[Amount.RUN] = min(row[Stage.RUN_WEIGHTS], q[Amount.DDR])
        q[Amount.GB] = size if has_gb else 0.0
        q[Amount.CORE] = 0.0 if has_gb else core
        _issue(DMA_IN, count, 0.0 if has_gb else work, rates, q, busy, pace, out)
    if has_gb and resident != _IN_LB:
        share = weight_share(row, tile, rules, TO_CORES)
        size, core = row[Stage.WEIGHTS] * share, row[Stage.CORE_WEIGHTS] * share
        each = size if rules[Rule.BROADCAST] else core * row[Stage.CORES]
        q[Amount.GB], q[Amount.CORE] = each, core
        _issue(TRANSFER, count, work, rates, q, busy, pace, out)


@borrowing
def _inputs(
    row: Floats,
    stream: Ints,
    tile: Ints,
    rules: Ints,
    rates: Floats,
    q: Floats,
    busy: Floats,
    pace: Floats,
    out: Floats,
) -> None:
    """What tiles read from outside LB; late ones two tiles at a time, from the layer's begin on."""
    count = float(tile[Tiling.PRODUCTS] * tile[Tiling.ROWS])
    anew = 1.0
    if not tile[Tiling.ROWS_OUTSIDE]:
        count *= tile[Tiling.DEPTHS]
        anew = 1.0 if tile[Tiling.KEPT] == _IN_LB else float(tile[Tiling.COLUMNS])
    fetched = anew if tile[Tiling.KEPT] == 0 else 1.0
    cores, has_gb = rules[Rule.CORES], rules[Rule.HAS_GB]
    work = pace[Pace.WORK] / (count * anew)
    ddr, gb = stream[IN_DDR] / count, stream[IN_GB] / count
    if ddr > 0:
        q[Amount.DDR], q[Amount.RUN] = ddr, min(row[Stage.RUN_READ], ddr)
        q[Amount.GB], q[Amount.CORE] = (ddr, 0.0) if has_gb else (0.0, ddr / cores)
        _issue(DMA_IN, count * fetched, 0.0 if has_gb else work, rates, q, busy, pace, out)
    if has_gb and ddr + gb > 0:
        q[Amount.GB], q[Amount.CORE] = ddr + gb, (ddr + gb) / cores
        _issue(TRANSFER, count * anew, work, rates, q, busy, pace, out)
    pace[Pace.SLOTS] = 2.0
    ddr, gb = stream[LATE_DDR] / count, stream[LATE_GB] / count
    core = (row[Stage.EXCHANGED] + row[Stage.STATE]) / count
    if ddr > 0:
        q[Amount.DDR], q[Amount.RUN] = ddr, min(row[Stage.RUN_READ], ddr)
        q[Amount.GB], q[Amount.CORE] = (ddr, 0.0) if has_gb else (0.0, ddr / cores)
        _issue(DMA_IN, count * anew, work, rates, q, busy, pace, out)
    if core > 0 or (has_gb and gb + ddr > 0):
        q[Amount.GB] = gb + ddr if has_gb else 0.0
        q[Amount.CORE] = core + ((gb + ddr) / cores if has_gb else 0.0)
        q[Amount.STEPS] = exchanges(row) / count
        pace[Pace.SLOTS] = 1.0 if row[Stage.SEQUENCE] > 0 else 2.0
        fill = pace[Pace.FILL]
        _issue(TRANSFER, count * anew, work, rates, q, busy, pace, out)
        if row[Stage.SEQUENCE] > 0:  # the first beside what else is fetched, and it is in the least
            pace[Pace.FILL] = max(2.0 * fill - pace[Pace.FILL], 0.0)


@borrowing
def _work(
    row: Floats,
    tile: Ints,
    rules: Ints,
    rates: Floats,
    q: Floats,
    busy: Floats,
    pace: Floats,
    out: Floats,
) -> None:
    """Matrix and vector work."""
    results = float(tile[Tiling.PRODUCTS] * tile[Tiling.COLUMNS] * tile[Tiling.ROWS])
    matrix = row[Stage.MACS] > 0
    if matrix:
        tile_shape(row, tile, rules, q)
        _issue(MATRIX_ENGINE, results * tile[Tiling.DEPTHS], -1.0, rates, q, busy, pace, out)
    work, moved = row[Stage.VECTOR] + row[Stage.SPECIAL], row[Stage.MOVED] / results
    if work + moved > 0 or not matrix:
        q[Amount.VECTOR], q[Amount.SPECIAL] = (
            row[Stage.VECTOR] / results,
            row[Stage.SPECIAL] / results,
        )
        written = row[Stage.WRITTEN] / results
        q[Amount.STEPS] = row[Stage.SEQUENCE] / results
        if matrix:
            q[Amount.LOCAL] = (2.0 * written if work > 0 else 0.0) + moved
        else:
            read = row[Stage.READ] + weight_reads(row)
            q[Amount.LOCAL] = max(read / results + written, 2.0 * moved)
        _issue(VECTOR_ENGINE, results, -1.0, rates, q, busy, pace, out)
    pace[Pace.WORK] = max(busy[MATRIX_ENGINE], busy[VECTOR_ENGINE])
    if row[Stage.SEQUENCE] > 0:  # each step ends before the next begins
        pace[Pace.WORK] = pace[Pace.LEAST] = busy[MATRIX_ENGINE] + busy[VECTOR_ENGINE]


@borrowing
def _outputs(
    row: Floats,
    stream: Ints,
    tile: Ints,
    rules: Ints,
    rates: Floats,
    q: Floats,
    busy: Floats,
    pace: Floats,
    out: Floats,
) -> None:
    """Results that leave LB."""
    results = float(tile[Tiling.PRODUCTS] * tile[Tiling.COLUMNS] * tile[Tiling.ROWS])
    gb, ddr = stream[OUT_GB] / results, stream[OUT_DDR] / results
    cores, has_gb = rules[Rule.CORES], rules[Rule.HAS_GB]
    pace[Pace.SLOTS] = rules[Rule.AHEAD] + 1
    work = pace[Pace.WORK] / results
    if has_gb and gb + ddr > 0:
        q[Amount.GB], q[Amount.CORE] = gb + ddr, (gb + ddr) / cores
        _issue(TRANSFER, results, work, rates, q, busy, pace, out)
    if ddr > 0:
        q[Amount.DDR], q[Amount.RUN] = ddr, min(row[Stage.RUN_WRITTEN], ddr)
        q[Amount.GB], q[Amount.CORE] = (ddr, 0.0) if has_gb else (0.0, ddr / cores)
        _issue(DMA_OUT, results, 0.0 if has_gb else work, rates, q, busy, pace, out)
