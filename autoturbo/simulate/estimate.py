"""What a kernel takes, in closed form: the simulator's sums without its order.

Tiles and the seconds of each instruction are the simulator's own; they are multiplied by how many
there are instead of being issued one by one. What engines wait for each other is left out: a kernel
takes at least as long as its busiest engine, and as its layers one after another where their
results are needed. Partial tiles count as their mean. A thousand kernels cost some milliseconds:
each step is taken for the layers of all kernels at once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from enum import IntEnum

import numpy as np

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
    weight_shares,
    weight_tiles,
)
from autoturbo.schedule.stitch import Stage
from autoturbo.schedule.streams import IN_DDR, IN_GB, LATE_DDR, LATE_GB, OUT_DDR, OUT_GB
from autoturbo.schedule.tiling import FROM_DDR, TO_CORES, Rule, Tiling, tile_counts
from autoturbo.schedule.work import Flags, Floats
from autoturbo.simulate.kernels import Rate, durations, memory_seconds


class Estimate(IntEnum):
    """What :func:`estimates` yields: columns of its result.

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

BUSY = slice(Estimate.BUSY_DMA_IN, Estimate.BUSY_DMA_OUT + 1)

_IN_LB = 2
"""Code of what stays in the local buffers: weights, and inputs between tiles of columns."""


def estimates(
    rows: Ints, stages: Floats, streams: Ints, rules: Ints, which: Ints, resident: Ints,
    rates: Floats,
) -> Floats:  # fmt: skip
    """Return seconds and bytes of kernels, ``(kernels, ESTIMATES)``.

    Args:
        rows: where the layers of each kernel begin in ``stages`` and ``streams``, and where the
            last one's end.
        stages: of templates.
        streams: bytes that layers move from and to GB and DDR.
        rules: a row for each set of rules of one target, of
            :meth:`autoturbo.schedule.tiling.InstructionRules.as_array`.
        which: per kernel, its row of rules.
        resident: per kernel, where its weights are already: 0 in DDR only, 1 in GB, 2 in LB.
        rates: of :func:`autoturbo.simulate.kernels.rates_of`.
    """
    own = zip(rows[:-1].tolist(), rows[1:].tolist(), rules[which], resident.tolist(), strict=True)
    tiles = np.concatenate([
        tile_counts(stages[first:end], streams[first:end], rule, kept)
        for first, end, rule, kept in own
    ])  # fmt: skip
    owner = np.repeat(np.arange(len(which)), np.diff(rows))
    layers = _Layers(stages, streams, tiles, rules, which[owner], rates)
    _work(layers)
    _weights(layers, resident[owner])
    _inputs(layers)
    fetching, layers.fill = layers.fill, np.zeros(len(owner))
    _outputs(layers)
    return _kernels(layers, fetching, owner, rules[which])


class _Layers:
    """Layers of kernels, a column of every array each, and what their instructions take.

    Attributes:
        row: columns of their stages; ``stream`` and ``tile`` those of the other tables.
        rules: a set of rules, for what is the target's and the same in all.
        results: tiles of results.
        slots: for tiles that are fetched or stored.
        cores: of a cluster.
        gb: 1 if there is a global buffer, else 0.
        busy: seconds of each engine, ``(ENGINES, layers)``.
        work: seconds of computing.
        least: that a layer takes because there are so few slots.
        fill: seconds until the first of its tiles is there.
        terms: by :class:`Estimate`, what is added up over kernels.
    """

    def __init__(
        self, stages: Floats, streams: Ints, tiles: Ints, rules: Ints, which: Ints, rates: Floats
    ) -> None:
        self._tables = stages, tiles, rules, which
        self.row, self.stream, self.tile = stages.T, streams.T, tiles.T
        self.rules, self.rates = rules[0], rates
        self.slots = rules[which, Rule.AHEAD] + 1.0
        self.cores, self.gb = int(self.rules[Rule.CORES]), int(self.rules[Rule.HAS_GB])
        self.busy = np.zeros((len(ENGINES), len(stages)))
        self.work, self.least, self.fill = np.zeros((3, len(stages)))
        self.results = tiles[:, [Tiling.PRODUCTS, Tiling.COLUMNS, Tiling.ROWS]].prod(axis=1)
        self.terms = defaultdict[int, list[Floats]](list)

    def weights(self, source: int) -> tuple[Floats, Floats, Floats]:
        """Return bytes of a weight tile: all of it, what all cores get, and what one core gets."""
        share = weight_shares(*self._tables, source)
        size, core = self.row[Stage.WEIGHTS] * share, self.row[Stage.CORE_WEIGHTS] * share
        return size, size if self.rules[Rule.BROADCAST] else core * self.row[Stage.CORES], core

    def issue(
        self, engine: int, at: Flags, count: Ints, amounts: Mapping[Amount, Floats],
        work: Floats | None = None, slots: Floats | float = 1.0,
    ) -> None:  # fmt: skip
        """Add ``count`` instructions of an engine to each of the layers that ``at`` says.

        ``work`` is what follows each before its slot, of so many, is free; None if it needs none.
        """
        where = np.flatnonzero(at)
        if not len(where):
            return
        values = np.zeros((len(where), AMOUNT_COLUMNS))
        for amount, value in amounts.items():
            values[:, amount] = value[where]
        length, latency = np.zeros((2, len(at)))
        length[where], latency[where] = durations(engine, values, self.rates)
        count = count * at
        self.busy[engine] += count * length
        self.terms[Estimate.SERIAL].append(count * latency)
        if work is not None:
            self.fill = self.fill + (length + latency)
            trip = (length + latency + work) / slots
            self.least = np.maximum(self.least, count * np.maximum(length, trip))
        stored = self.rates[Rate.STORED] * count
        if Amount.GB in amounts:
            self.terms[Estimate.GB].append(amounts[Amount.GB] * stored)
        if Amount.DDR in amounts:
            column = Estimate.DDR_READ if engine == DMA_IN else Estimate.DDR_WRITTEN
            self.terms[column].append(amounts[Amount.DDR] * stored)

    def transfer(self, count: Ints, size: Floats, work: Floats) -> None:
        """Add transfers of bytes between GB, if there is one, and all cores."""
        amounts = {Amount.GB: size, Amount.CORE: size / self.cores}
        self.issue(TRANSFER, size * self.gb > 0, count, amounts, work, self.slots)

    def ddr(self, size: Floats, run: Floats, core: Floats) -> dict[Amount, Floats]:
        """Return the amounts of moving bytes between DDR and GB, or the cores if there is none."""
        near, run = core * (1 - self.gb), np.minimum(run, size)
        return {Amount.DDR: size, Amount.RUN: run, Amount.GB: size * self.gb, Amount.CORE: near}


def _work(k: _Layers) -> None:
    """Add matrix and vector work."""
    row, results, matrix = k.row, k.results, k.row[Stage.MACS] > 0
    shape = dict[Amount, Floats]()
    tile_shape(row, k.tile, k.rules, shape)
    k.issue(MATRIX_ENGINE, matrix, results * k.tile[Tiling.DEPTHS], shape)
    work, moved = row[Stage.VECTOR] + row[Stage.SPECIAL], row[Stage.MOVED] / results
    read, written = row[Stage.READ] + weight_reads(row), row[Stage.WRITTEN] / results
    amounts = {
        Amount.VECTOR: row[Stage.VECTOR] / results,
        Amount.SPECIAL: row[Stage.SPECIAL] / results,
        Amount.STEPS: row[Stage.SEQUENCE] / results,
        Amount.LOCAL: np.where(
            matrix, np.where(work > 0, 2.0 * written, 0.0) + moved,
            np.maximum(read / results + written, 2.0 * moved),
        ),
    }  # fmt: skip
    k.issue(VECTOR_ENGINE, ~matrix | (work + moved > 0), results, amounts)
    both = k.busy[MATRIX_ENGINE] + k.busy[VECTOR_ENGINE]
    steps = row[Stage.SEQUENCE] > 0  # each ends before the next begins
    k.work = np.where(steps, both, np.maximum(k.busy[MATRIX_ENGINE], k.busy[VECTOR_ENGINE]))
    k.least = np.where(steps, both, 0.0)


def _weights(k: _Layers, resident: Ints) -> None:
    """Add weight tiles from DDR and to the cores."""
    count = weight_tiles(k.row, k.tile)
    some, work = count > 0, k.work / np.maximum(count, 1)
    size, each, core = k.weights(FROM_DDR)
    fetched = k.ddr(size if k.gb else each, k.row[Stage.RUN_WEIGHTS], core)
    k.issue(DMA_IN, some & (resident == 0), count, fetched, work * (1 - k.gb), k.slots)
    if k.gb:
        _, each, core = k.weights(TO_CORES)
        passed = {Amount.GB: each, Amount.CORE: core}
        k.issue(TRANSFER, some & (resident != _IN_LB), count, passed, work, k.slots)


def _inputs(k: _Layers) -> None:
    """Add what tiles read from outside LB."""
    tile, outside = k.tile, k.tile[Tiling.ROWS_OUTSIDE] > 0
    count = tile[Tiling.PRODUCTS] * tile[Tiling.ROWS] * np.where(outside, 1, tile[Tiling.DEPTHS])
    once = outside | (tile[Tiling.KEPT] == _IN_LB)
    anew = count * np.where(once, 1, tile[Tiling.COLUMNS])
    fetched, work = np.where(tile[Tiling.KEPT] == 0, anew, count), k.work / anew
    ddr, gb = k.stream[IN_DDR] / count, k.stream[IN_GB] / count
    amounts = k.ddr(ddr, k.row[Stage.RUN_READ], ddr / k.cores)
    k.issue(DMA_IN, ddr > 0, fetched, amounts, work * (1 - k.gb), k.slots)
    k.transfer(anew, ddr + gb, work)
    _late(k, count, anew, work)


def _late(k: _Layers, count: Ints, anew: Ints, work: Floats) -> None:
    """Add what the kernel itself made, two tiles at a time, from the layer's begin on."""
    row, steps = k.row, k.row[Stage.SEQUENCE] > 0
    ddr, gb = k.stream[LATE_DDR] / count, k.stream[LATE_GB] / count
    amounts = k.ddr(ddr, row[Stage.RUN_READ], ddr / k.cores)
    k.issue(DMA_IN, ddr > 0, anew, amounts, work, 2.0)
    passed, fill = (gb + ddr) * k.gb, k.fill
    core = (row[Stage.EXCHANGED] + row[Stage.STATE]) / count + passed / k.cores
    amounts = {Amount.GB: passed, Amount.CORE: core, Amount.STEPS: exchanges(row) / count}
    k.issue(TRANSFER, core > 0, anew, amounts, work, np.where(steps, 1.0, 2.0))
    # Of steps the first is fetched beside what else is, and its seconds are in the least.
    beside = np.maximum(2.0 * fill - k.fill, 0.0)
    k.fill = np.where(steps & (core > 0), beside, k.fill)


def _outputs(k: _Layers) -> None:
    """Add results that leave LB."""
    results = k.results
    gb, ddr, work = k.stream[OUT_GB] / results, k.stream[OUT_DDR] / results, k.work / results
    k.transfer(results, gb + ddr, work)
    amounts = k.ddr(ddr, k.row[Stage.RUN_WRITTEN], ddr / k.cores)
    k.issue(DMA_OUT, ddr > 0, results, amounts, work * (1 - k.gb), k.slots)


def _kernels(k: _Layers, fetching: Floats, owner: Ints, rules: Ints) -> Floats:
    """Add up the layers of kernels, of which each has its rules.

    One after another, as the simulator would: sums in another order end in other digits.
    """
    computed = np.maximum(k.busy[[MATRIX_ENGINE, VECTOR_ENGINE]].max(axis=0), k.least)
    begins, ends = np.diff(owner, prepend=-1) > 0, np.diff(owner, append=len(rules)) > 0
    k.terms[Estimate.LAYERS] = [np.maximum(k.busy.max(axis=0), k.least) + fetching + k.fill]
    k.terms[Estimate.SERIAL].append(k.busy.sum(axis=0))
    k.terms[Estimate.CHAIN] = [computed, fetching * begins, k.fill * ends]
    k.terms |= {Estimate.BUSY_DMA_IN + engine: [busy] for engine, busy in enumerate(k.busy)}
    out = np.zeros((ESTIMATES, len(rules)))
    for column, terms in k.terms.items():
        kernel, values = np.repeat(owner, len(terms)), np.column_stack(terms).ravel()
        out[column] = np.bincount(kernel, values, len(rules))
    memory = memory_seconds(
        out[Estimate.BUSY_DMA_IN] + out[Estimate.BUSY_DMA_OUT],
        out[Estimate.DDR_READ], out[Estimate.DDR_WRITTEN], out[Estimate.GB], k.rates,
    )  # fmt: skip
    across = np.maximum(out[BUSY].max(axis=0), out[Estimate.CHAIN])
    seconds = np.where(rules[:, Rule.ACROSS], across, out[Estimate.LAYERS])
    seconds = np.where(rules[:, Rule.SERIAL], out[Estimate.SERIAL], seconds)
    out[Estimate.SECONDS] = np.maximum(seconds, memory)
    return out.T
