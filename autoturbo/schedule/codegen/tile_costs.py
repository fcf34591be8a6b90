"""Choice of a product's tiles by cost: the seconds that its layer takes, in closed form.

Every tiling that fits is costed: parts over products, columns, the reduction and rows, either order
of the loops, and inputs that stay between column tiles or are read again. The seconds of each
instruction are the simulator's (:mod:`autoturbo.schedule.codegen.durations`), the last block of a
tile that does not fill the array included. How they overlap is known from how instructions wait for
each other:

- a layer takes as long as its busiest engine, and the matrix and the vector engine as a pipeline,
  which fills with the first result and drains with the last;
- a slot for tiles is free again once its tile was brought, multiplied and, where the reduction is
  complete, passed through the vector engine: few slots make short tiles wait for latencies;
- inputs from before the kernel and from other cores are waited for once, results that leave once,
  and the first weights of the next layer, taken to be like these, as far as the last tile does not
  cover them.

Weights that are fetched before their kernel (``fetch_ahead``) cost no time on the bus to DDR, which
whole passes share, but the repetitions of row tiles outside column tiles do.
"""

from __future__ import annotations

import functools
import math
from typing import Final, NamedTuple

import numpy as np

from autoturbo.compiled import arithmetic, borrowing, compiled
from autoturbo.graph.arrays import Ints
from autoturbo.schedule.codegen.durations import (
    Numbers,
    ddr_seconds,
    matrix_seconds,
    own_share,
    transfer_seconds,
    vector_seconds,
)
from autoturbo.schedule.stitch.stages import Stage
from autoturbo.schedule.streams import IN_DDR, IN_GB, LATE_DDR, LATE_GB, OUT_DDR, OUT_GB, ROOM
from autoturbo.schedule.work import Floats

SUMS_MOVED: Final = 4.0
"""Times its result's bytes that a tile of partial sums moves, in and out at twice the width."""

FEW_TILES: Final = 256
"""Most tiles of a layer that are chosen where others fit: finer ones cost simulation time."""

TILE_SECONDS: Final = 2e-8
"""What a tile costs beside all that is counted: of two tilings that take about as long, the coarser
one, since waits between layers are known only roughly."""

PARTS: Final = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
"""Parts of a reduction, and of a batch of products, that are tried."""

PLAIN: Final = (*PARTS, 48, 64)
"""Parts of a layer without products that are tried."""

_NOWHERE, _GB, _LB = range(3)
"""Where inputs stay between column tiles, and where weights are."""

_LATE_SLOTS: Final = 2
"""Tiles of inputs that the kernel itself made, or that other cores have, at a time."""


class Room(NamedTuple):
    """Memory that a kernel's tiles have, and how they move.

    Attributes:
        slots: Number of slots for tiles that are fetched or stored.
        divisor: Tiles per largest tile that fits.
        weights: Bytes of LB per core for weight tiles.
        staging: Bytes of LB per core for streams.
        results: Largest result of a product's tile per core.
        gb: Bytes of GB for streams and weights on their way; 0 where there is no GB.
        cores: Cores of a cluster.
        broadcast: One read of GB feeds all cores.
        rows: Rows of the matrix engine.
        columns: Columns of the matrix engine.
        least_depth: Least depth of a tile whose sums are partial.
        across: Fetch over layer boundaries.
        rereads: Every native block of a result reads its operands from LB anew.
        early: Weights are fetched before their kernel.
        alike: Clusters that fetch the same weights at once.
        resident: Place of the weights: 0 in DDR only, 1 in GB, 2 in LB.
    """

    slots: int
    divisor: int
    weights: int
    staging: int
    results: int
    gb: int
    cores: int
    broadcast: int
    rows: int
    columns: int
    least_depth: int
    across: int
    rereads: int
    early: int
    alike: int
    resident: int


class TileCut(NamedTuple):
    """A tiling: the columns of :class:`autoturbo.schedule.codegen.tiling.Tiling`."""

    products: int
    columns: int
    depths: int
    rows: int
    outside: int
    kept: int


@arithmetic
def product_bytes(
    read: Numbers,
    weights: Numbers,
    written: Numbers,
    down: Numbers,
    across: Numbers,
    moved: Numbers,
) -> Numbers:
    """Return the bytes of LB that the product of one tile accesses.

    Args:
        read: Bytes of the tile's inputs.
        weights: Bytes of the tile's weights.
        written: Bytes of the tile's results.
        down: Times that the weights are read.
        across: Times that the inputs are read.
        moved: Times that the results are moved.
    """
    return read * across + weights * down + written * moved


def cheapest(
    stage: Floats, stream: Ints, room: Room, rates: Floats, usual: tuple[int, ...]
) -> tuple[int, ...]:
    """Return the tiling of a layer that costs least, columns as in ``Tiling``; cached.

    Args:
        stage: Row of the layer, by :class:`Stage`.
        stream: Bytes that it moves from and to GB and DDR.
        room: Room of the layer's kernel.
        rates: Rates of :func:`autoturbo.schedule.codegen.durations.rates_of`.
        usual: The tiling that is kept unless another one costs less.
    """
    return _known(stage.tobytes(), stream.tobytes(), room, rates.tobytes(), usual)


@functools.lru_cache(maxsize=1 << 16)
def _known(
    stage: bytes, stream: bytes, room: Room, rates: bytes, usual: tuple[int, ...]
) -> tuple[int, ...]:
    row, moved = np.frombuffer(stage), np.frombuffer(stream, np.int64)
    if row[Stage.MACS] > 0:
        sizes = row[[Stage.COUNT, Stage.ROWS, Stage.COLUMNS, Stage.DEPTH]].tolist()
        cuts = _product_cuts(*sizes, room.rows, room.columns, room.least_depth)
    else:
        cuts = _plain_cuts(int(row[Stage.STEPS]))
    found = _cheapest(row, moved, room, np.frombuffer(rates), TileCut(*usual), cuts)
    return tuple(map(int, found))


@functools.lru_cache(maxsize=1 << 12)
def _product_cuts(
    count: float, m: float, n: float, k: float, rows: int, columns: int, least_depth: int
) -> Ints:
    """Return the tilings of a product to try, as columns of a :class:`TileCut` but the last.

    Args:
        count: Number of products.
        m: Rows of the result.
        n: Columns of the result.
        k: Length of the sums.
        rows: Rows of the array.
        columns: Columns of the array.
        least_depth: Least depth of a tile whose sums are partial.
    """
    parts = [
        _some(max(int(count), 1)), _blocks(n, (rows, columns)),
        _some(max(int(k // max(least_depth, 1)), 1)), _blocks(m, (rows, columns)), [0, 1],
    ]  # fmt: skip
    cuts = np.stack([axis.ravel() for axis in np.meshgrid(*parts, indexing="ij")], axis=1)
    # Before anything is costed: a large product has hundreds of thousands of cuts otherwise.
    few = cuts[:, :4].prod(axis=1) <= FEW_TILES
    # rows outside what else is cut: there is something else
    around = (cuts[:, 4] == 0) | ((cuts[:, 3] > 1) & (cuts[:, 1] * cuts[:, 2] > 1))
    return np.ascontiguousarray(cuts[few & around])


def _plain_cuts(steps: int) -> Ints:
    """Return the tilings of a layer without products that are tried."""
    cuts = np.ones((sum(n <= steps for n in PLAIN), 5), np.int64)
    cuts[:, 0] = PLAIN[: len(cuts)]
    return cuts


def _some(most: int) -> list[int]:
    """Return numbers of parts up to a number: small ones, and all of them."""
    return sorted({n for n in (*PARTS, most) if n <= most})


def _blocks(extent: float, sides: tuple[int, int]) -> list[int]:
    """Return the numbers of parts of whole blocks of an array, but for the last of each.

    Operands may be swapped, so a block is as long as either side of the array. 1,000 columns on 32
    are 1, 2, 3, ... or 32 parts, and never 31 of 33 that take two blocks each.
    """
    found = {1}
    for side in sides:
        blocks = math.ceil(extent / side)
        found |= {-(-blocks // each) for each in range(1, blocks + 1)}
    return sorted(n for n in found if n <= FEW_TILES)


@compiled
def _cheapest(
    stage: Floats, stream: Ints, room: Room, rates: Floats, usual: TileCut, cuts: Ints
) -> TileCut:
    """Return the tiling of a layer that costs least.

    Args:
        stage: Stage of the layer.
        stream: Bytes that it moves from and to GB and DDR.
        room: Room of the layer's kernel.
        rates: Rates of :func:`autoturbo.schedule.codegen.durations.rates_of`.
        usual: The tiling that is kept unless another one costs less.
        cuts: The others, without where inputs stay: as near as they fit.
    """
    best, least = usual, _seconds(stage, stream, room, rates, usual)
    for at in range(len(cuts)):
        products, columns, depths, rows, outside = cuts[at]
        cut = TileCut(products, columns, depths, rows, outside, _LB)
        kept = _nearest(stage, stream, room, cut)
        # Where nothing fits the usual tiling stays: its rule always has an answer.
        if kept < 0 or not _weights_fit(stage, room, cut):
            continue
        cut = TileCut(products, columns, depths, rows, outside, kept)
        seconds = _seconds(stage, stream, room, rates, cut)
        if seconds < least:
            best, least = cut, seconds
    return best


@borrowing
def _weights_fit(stage: Floats, room: Room, cut: TileCut) -> bool:
    """Return whether tiles of a layer's weights have slots in LB."""
    if room.resident == _LB or stage[Stage.WEIGHTS] <= 0:
        return True
    parts = cut.products * cut.columns * cut.depths
    return bool(stage[Stage.CORE_WEIGHTS] * room.slots * room.divisor <= room.weights * parts)


@borrowing
def _nearest(stage: Floats, stream: Ints, room: Room, cut: TileCut) -> int:
    """Return the nearest place in which a layer's inputs can stay; -1 if its tiles do not fit.

    Tiles of streams have slots in the staging zone. What stays between tiles, inputs that are read
    for several column tiles and partial sums, has the staging zone and the room beside it.
    """
    results = cut.products * cut.columns * cut.rows
    if stage[Stage.MACS] > 0 and stage[Stage.WRITTEN] > room.results * results:
        return -1
    slots = room.slots * room.divisor
    read = (stream[IN_GB] + stream[IN_DDR] + stream[LATE_GB] + stream[LATE_DDR]) / room.cores
    read += stage[Stage.EXCHANGED]
    written = (stream[OUT_GB] + stream[OUT_DDR]) / room.cores / results * slots
    alone = cut.products * (cut.rows if cut.outside and stage[Stage.MACS] > 0 else 1)
    sums = 0.0
    if cut.depths > 1 and alone * cut.columns < stage[Stage.STEPS]:
        sums = 2.0 * stage[Stage.WRITTEN] / alone / cut.columns
    free = room.staging + stream[ROOM]
    if cut.columns > 1:
        # Inputs of the only tile need no second slot.
        stay = read / alone * (room.slots if alone > 1 else 1)
        if stay + sums + written <= free and written <= room.staging:
            return _LB
    streams = written + read / (cut.products * cut.rows * cut.depths) * slots
    if streams > room.staging or sums > free:
        return -1
    if cut.columns == 1:
        return _LB
    # Twice: GB keeps the inputs of two layers at a time.
    return _GB if stream[IN_DDR] * 2 <= room.gb else _NOWHERE


class _Step(NamedTuple):
    """Seconds that a role of a layer's instructions takes.

    Attributes:
        many: Number of instructions.
        length: Seconds for which each occupies its engine.
        latency: Seconds until its data is there, on top.
    """

    many: float
    length: float
    latency: float


@compiled
def cut_seconds(stage: Floats, stream: Ints, room: Room, rates: Floats, cut: TileCut) -> float:
    """Return the seconds that a layer takes in the tiles of a cut."""
    return float(_seconds(stage, stream, room, rates, cut))


@borrowing
def _moved(count: float, shared: float, core: float, rates: Floats) -> _Step:
    """Return a role that moves bytes between GB or other cores and a core.

    Args:
        count: Number of instructions.
        shared: Bytes that the cluster moves at GB.
        core: Bytes that go over the link of one core.
        rates: Rates of :func:`autoturbo.schedule.codegen.durations.rates_of`.
    """
    if shared <= 0 and core <= 0:
        return _Step(0.0, 0.0, 0.0)
    length, latency = transfer_seconds(shared, core, 0.0, rates)
    return _Step(count, length, latency)


@borrowing
def _fetched(
    count: float, size: float, run: float, core: float, own: Floats | float, rates: Floats
) -> _Step:
    """Return a role that moves bytes between DDR and GB, or a core where there is no GB.

    Args:
        count: Number of instructions.
        size: Bytes that the cluster moves.
        run: Bytes of them that are consecutive.
        core: Bytes of one core, where there is no GB.
        own: Share of the bytes that is read for this cluster alone.
        rates: Rates of :func:`autoturbo.schedule.codegen.durations.rates_of`.
    """
    if size <= 0:
        return _Step(0.0, 0.0, 0.0)
    length, latency = ddr_seconds(size, min(run, size), core, own, rates)
    return _Step(count, length, latency)


@borrowing
def _ring(step: _Step, matrix: float, after: float, depths: float, slots: float) -> float:
    """Return the least seconds of tiles that come one by one, each in a slot that others free.

    A slot is free once its tile is multiplied and, at the end of a reduction, what comes after is
    done too: meanwhile the tiles in the other slots are multiplied.

    Args:
        step: Brings the tiles.
        matrix: Seconds for which each of them is multiplied.
        after: Seconds of what follows at the end of a reduction.
        depths: Tiles of a reduction.
        slots: Number of slots for the tiles.
    """
    trip = step.length + step.latency
    alone = max(step.length, (trip + matrix) / slots)
    waits = max(trip + after - (slots - 1.0) * matrix, 0.0)
    return step.many * max(alone, matrix + waits / max(depths, slots))


@borrowing
def _gaps(step: _Step, loads: _Step, matrix: float, slots: float) -> float:
    """Return the seconds for which inputs keep the array waiting, behind weights on their link.

    Args:
        step: Brings tiles of inputs.
        loads: Brings tiles of weights.
        matrix: Seconds for which each tile is multiplied.
        slots: Number of slots for tiles of inputs.
    """
    gap = loads.length + step.length + step.latency - (slots - 1.0) * matrix
    return max(min(step.many, loads.many) - 1.0, 0.0) * max(gap, 0.0)


@borrowing
def _once(step: _Step) -> float:
    """Return the seconds of a single instruction of a role; 0 if it has none."""
    return step.length + step.latency if step.many > 0 else 0.0


@borrowing
def _multiplied(stage: Floats, room: Room, rates: Floats, cut: TileCut) -> float:
    """Return the seconds of the product of one tile; 0 where there is none."""
    if stage[Stage.MACS] <= 0:
        return 0.0
    high, wide = stage[Stage.ROWS] / cut.rows, stage[Stage.COLUMNS] / cut.columns
    local = product_bytes(
        stage[Stage.READ] / (cut.products * cut.rows * cut.depths),
        stage[Stage.CORE_WEIGHTS] / (cut.products * cut.columns * cut.depths),
        stage[Stage.WRITTEN] / (cut.products * cut.rows * cut.columns),
        np.ceil(high / room.rows) if room.rereads else 1.0,
        np.ceil(wide / room.columns) if room.rereads else 1.0,
        1.0 if cut.depths == 1 else SUMS_MOVED,
    )
    count = stage[Stage.COUNT] if stage[Stage.COUNT] > 0 else 1.0
    depth = stage[Stage.DEPTH] / cut.depths
    return matrix_seconds(count / cut.products, high, wide, depth, local, 1.0, rates)


@borrowing
def _applied(stage: Floats, rates: Floats, results: float) -> float:
    """Return the seconds of the vector work of one of a layer's results; 0 where there is none."""
    work = stage[Stage.VECTOR] + stage[Stage.SPECIAL]
    moved, written = stage[Stage.MOVED] / results, stage[Stage.WRITTEN] / results
    if stage[Stage.MACS] > 0:
        if work + moved <= 0:
            return 0.0
        local = (2.0 * written if work > 0 else 0.0) + moved
    else:
        read = (stage[Stage.READ] + stage[Stage.CORE_WEIGHTS]) / results
        local = max(read + written, 2.0 * moved)
    return vector_seconds(
        stage[Stage.VECTOR] / results, stage[Stage.SPECIAL] / results, local, 1.0, rates
    )


@borrowing
def _weight_roles(
    stage: Floats, room: Room, rates: Floats, parts: float, count: float
) -> tuple[_Step, _Step]:
    """Return the roles that fetch a layer's weights and pass them to the cores.

    Args:
        stage: Stage of the layer.
        room: Room of the layer's kernel.
        rates: Rates of :func:`autoturbo.schedule.codegen.durations.rates_of`.
        parts: Tiles of the weights.
        count: Tiles that are loaded, repetitions included.
    """
    none = _Step(0.0, 0.0, 0.0)
    if stage[Stage.WEIGHTS] <= 0 or room.resident == _LB:
        return none, none
    core = stage[Stage.CORE_WEIGHTS] / parts
    whole = stage[Stage.WEIGHTS] / parts
    spread = whole if room.broadcast else core * stage[Stage.CORES]
    passes = _moved(count, spread, core, rates) if room.gb > 0 else none
    if room.resident == _GB:
        return none, passes
    size = whole if room.gb > 0 else spread
    run = size if room.early else stage[Stage.RUN_WEIGHTS]
    own = own_share(float(room.alike), rates)
    return _fetched(count, size, run, 0.0 if room.gb > 0 else core, own, rates), passes


class _Roles(NamedTuple):
    """Instructions of a layer, by role (:class:`autoturbo.schedule.codegen.tiling.Role`).

    Attributes:
        matrix: Seconds of the product of one tile.
        vector: Seconds of the vector work of one result.
        fetch_weights: Fetches of weights from DDR.
        pass_weights: Passes of weights from GB to the cores.
        fetch_input: Fetches from DDR of inputs that were there before the kernel.
        pass_input: Passes of the same from GB to the cores.
        fetch_late: Fetches from DDR of inputs that the kernel itself made.
        pass_late: Passes of the same from GB, and of what comes from other cores.
        store: Stores of results to GB.
        save: Saves of results to DDR.
    """

    matrix: float
    vector: float
    fetch_weights: _Step
    pass_weights: _Step
    fetch_input: _Step
    pass_input: _Step
    fetch_late: _Step
    pass_late: _Step
    store: _Step
    save: _Step


@borrowing
def _roles(stage: Floats, stream: Ints, room: Room, rates: Floats, cut: TileCut) -> _Roles:
    """Return the instructions of a layer with a tiling.

    Args:
        stage: Stage of the layer.
        stream: Bytes that it moves from and to GB and DDR.
        room: Room of the layer's kernel.
        rates: Rates of :func:`autoturbo.schedule.codegen.durations.rates_of`.
        cut: The tiling.
    """
    results = float(cut.products * cut.columns * cut.rows)
    row_tiles = float(cut.products * cut.rows * cut.depths)
    parts = float(cut.products * cut.columns * cut.depths)
    # Without GB a fetch brings bytes straight over the link of each core.
    at_gb, link = (1.0, 0.0) if room.gb > 0 else (0.0, 1.0 / room.cores)
    fetch, passes = _weight_roles(stage, room, rates, parts, parts * _rounds(stage, cut))
    anew = row_tiles * (1.0 if cut.kept == _LB else cut.columns)
    asked = anew if cut.kept == _NOWHERE else row_tiles
    before, late = stream[IN_DDR] / row_tiles, stream[LATE_DDR] / row_tiles
    near = (before + stream[IN_GB] / row_tiles) * at_gb
    near_late = (late + stream[LATE_GB] / row_tiles) * at_gb
    other = (stage[Stage.EXCHANGED] + stage[Stage.STATE]) / row_tiles
    saved = stream[OUT_DDR] / results
    leaving = (saved + stream[OUT_GB] / results) * at_gb
    run, run_out = stage[Stage.RUN_READ], stage[Stage.RUN_WRITTEN]
    return _Roles(
        _multiplied(stage, room, rates, cut),
        _applied(stage, rates, results),
        fetch,
        passes,
        _fetched(asked, before, run, before * link, 1.0, rates),
        _moved(anew, near, near / room.cores, rates),
        _fetched(anew, late, run, late * link, 1.0, rates),
        _moved(anew, near_late, other + near_late / room.cores, rates),
        _moved(results, leaving, leaving / room.cores, rates),
        _fetched(results, saved, run_out, saved * link, 1.0, rates),
    )


@borrowing
def _rounds(stage: Floats, cut: TileCut) -> float:
    """Return how many times a layer's weights are loaded."""
    return float(cut.rows) if cut.outside > 0 and stage[Stage.MACS] > 0 else 1.0


@borrowing
def _busy(step: _Step) -> float:
    """Return the seconds for which a role's instructions occupy their engine."""
    return step.many * step.length


@borrowing
def _seconds(stage: Floats, stream: Ints, room: Room, rates: Floats, cut: TileCut) -> float:
    """Return the seconds that a layer costs with a tiling.

    Args:
        stage: Stage of the layer.
        stream: Bytes that it moves from and to GB and DDR.
        room: Room of the layer's kernel.
        rates: Rates of :func:`autoturbo.schedule.codegen.durations.rates_of`.
        cut: The tiling.
    """
    r = _roles(stage, stream, room, rates, cut)
    results, depths = float(cut.products * cut.columns * cut.rows), float(cut.depths)
    bus = _busy(r.fetch_input) + _busy(r.fetch_late) + _busy(r.save)
    bus += 0.0 if room.early else _busy(r.fetch_weights)
    link = _busy(r.pass_weights) + _busy(r.pass_input) + _busy(r.pass_late) + _busy(r.store)
    matrix, vector = results * depths * r.matrix, results * r.vector
    # A pipeline of two stages: the longer one, and the other once, to drain or to fill.
    seconds = max(matrix + r.vector, depths * r.matrix + vector, bus, link)
    rounds = _rounds(stage, cut)
    seconds = max(seconds, _waiting(r, room, results, depths, cut.rows / rounds))
    # what is waited for once
    seconds += _once(r.fetch_input) + _once(r.pass_input) + _once(r.fetch_late)
    seconds += _once(r.pass_late) + _once(r.store) + _once(r.save)
    first = _once(r.pass_weights) + (0.0 if room.early else _once(r.fetch_weights))
    # Fetched beside the layer before where fetches go over layer boundaries.
    seconds += 0.0 if room.across else first
    if room.early:  # what the bus brings once more is no other kernel's
        seconds += _busy(r.fetch_weights) * (1.0 - 1.0 / rounds)
    return seconds + _uncovered(stage, room, rates, r) + TILE_SECONDS * results * depths


@borrowing
def _waiting(r: _Roles, room: Room, results: float, depths: float, rows: float) -> float:
    """Return the least seconds of a layer because it has so few slots.

    Args:
        r: Instructions of the layer.
        room: Room of the layer's kernel.
        results: Tiles of its result.
        depths: Tiles of a reduction.
        rows: Tiles that a tile of weights is multiplied with.
    """
    slots, late = float(room.slots), float(_LATE_SLOTS)
    # the link stores a result before it brings what comes into its slot
    after = r.vector + r.store.length
    over = rows * r.matrix
    if room.gb > 0:
        seconds = _ring(r.fetch_input, 0.0, _once(r.pass_input), 1.0, slots)
        if not room.early:
            passes = _once(r.pass_weights)
            seconds = max(seconds, _ring(r.fetch_weights, 0.0, passes, 1.0, slots))
        seconds = max(seconds, _ring(r.pass_weights, over, after, depths, slots))
        seconds = max(seconds, _ring(r.pass_input, r.matrix, after, depths, slots))
    else:
        seconds = _ring(r.fetch_input, r.matrix, after, depths, slots)
        seconds = max(seconds, _ring(r.fetch_weights, over, after, depths, slots))
    seconds = max(seconds, _ring(r.pass_late, r.matrix, after, depths, late))
    after = r.vector + _once(r.pass_late)
    seconds = max(seconds, _ring(r.fetch_late, r.matrix, after, depths, late))
    if room.gb > 0:  # a slot in GB is saved before the next result is stored there
        seconds = max(seconds, _ring(r.save, 0.0, _once(r.store), 1.0, slots))
    # while a tile of weights has the link, the tiles of inputs that are there are multiplied
    gaps = max(
        _gaps(r.pass_input, r.pass_weights, r.matrix, slots),
        _gaps(r.pass_late, r.pass_weights, r.matrix, late),
    )
    seconds = max(seconds, results * depths * r.matrix + gaps)
    leaves = _once(r.store) if room.gb > 0 else _once(r.save)
    if leaves > 0:
        tiles = _Step(results * depths, 0.0, 0.0)
        seconds = max(seconds, _ring(tiles, r.matrix, r.vector + leaves, depths, slots))
    return seconds


@borrowing
def _uncovered(stage: Floats, room: Room, rates: Floats, r: _Roles) -> float:
    """Return the seconds for which the next layer waits for its first weights.

    They are taken to be as large a part of as many weights as this layer's as has room; its last
    tiles cover them.

    Args:
        stage: Stage of the layer.
        room: Room of the layer's kernel.
        rates: Rates of :func:`autoturbo.schedule.codegen.durations.rates_of`.
        r: Instructions of the layer.
    """
    parts = max(np.ceil(stage[Stage.CORE_WEIGHTS] * room.slots / max(room.weights, 1)), 1.0)
    fetch, passes = _weight_roles(stage, room, rates, parts, 1.0)
    coming = _once(passes) + (0.0 if room.early else _once(fetch))
    return max(coming - (room.slots - 1.0) * max(r.matrix, r.vector), 0.0)
