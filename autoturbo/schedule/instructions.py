"""Across-layer instruction scheduling: GraphTurbo, OSDI '23, section 4.4, Fig. 13.

A kernel becomes a list of instructions on five engines. Each tile of a layer is: fetch weights and
streamed inputs (DMA, DDR to GB; transfer, GB to LB), compute (matrix, vector), store streamed
outputs (transfer, LB to GB; DMA, GB to DDR). Engines issue in list order and wait for the
instructions that an instruction depends on.

With instruction scheduling, fetches of a tile stand ``prefetch_depth`` tiles ahead of its compute,
over layer boundaries; without it they stay inside their layer, which starts when the layer before it
has ended. Kernel boundaries are barriers either way.

How many tiles a layer has follows from the buffers: a weight tile is the largest that leaves room for
``prefetch_depth`` more in the weight share of LB, an activation tile the largest whose streams fit
the staging zone and whose result is at most a sixteenth of LB (the paper tiles the two outermost
loops of the anchor with the largest divisor that fits; these are its rows and columns).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numba import njit

from autoturbo.graph.arrays import Ints
from autoturbo.schedule.allocate import STAGING_SHARE, Zones
from autoturbo.schedule.knobs import AUTO, Knobs
from autoturbo.schedule.problem import Problem
from autoturbo.schedule.stitch import Stage
from autoturbo.schedule.timeline import (
    IN_DDR,
    IN_GB,
    LATE_DDR,
    LATE_GB,
    OUT_DDR,
    OUT_GB,
)
from autoturbo.schedule.work import Floats

DMA_IN, TRANSFER, MATRIX_ENGINE, VECTOR_ENGINE, DMA_OUT = range(5)
"""Engine codes of instructions."""

ENGINES = ("dma_in", "transfer", "matrix", "vector", "dma_out")
"""Names of the engines, by code."""

MAX_TILES = 64
"""Most row tiles of a layer: finer ones change little and cost simulation time."""


class Column(IntEnum):
    """Integer columns of an instruction: engine, layer position, tile, and what it waits for."""

    ENGINE = 0
    LAYER = 1
    TILE = 2
    AFTER = 3


INSTRUCTION_COLUMNS = 8
"""Engine, layer, tile and up to five instructions to wait for (-1 for none)."""


class Amount(IntEnum):
    """Quantities of an instruction.

    ``DDR`` and ``GB`` bytes of the cluster, ``CORE`` bytes of one core over its transfer engine,
    ``LOCAL`` bytes of LB that a compute instruction touches, the product ``COUNT`` x ``ROWS`` x
    ``COLUMNS`` x ``DEPTH``, ``VECTOR`` and ``SPECIAL`` operations.
    """

    DDR = 0
    GB = 1
    CORE = 2
    LOCAL = 3
    COUNT = 4
    ROWS = 5
    COLUMNS = 6
    DEPTH = 7
    VECTOR = 8
    SPECIAL = 9


AMOUNT_COLUMNS = len(Amount)


@dataclass(frozen=True, slots=True)
class InstructionRules:
    """Knobs and capacities that instructions depend on.

    Attributes:
        ahead: tiles fetched ahead of the one computed.
        divisor: tiles per largest tile that fits.
        across: fetch over layer boundaries.
        weight_room: bytes of LB per core for weights.
        staging: bytes of LB per core for streams.
        tile_bytes: largest result of a tile per core.
        cores: cores of a cluster.
        has_gb: DDR traffic passes a global buffer.
        broadcast: one read of GB feeds all cores.
        native_rows: rows of the matrix engine.
        native_columns: its columns.
    """

    ahead: int
    divisor: int
    across: bool
    weight_room: int
    staging: int
    tile_bytes: int
    cores: int
    has_gb: bool
    broadcast: bool
    native_rows: int
    native_columns: int

    @staticmethod
    def of(problem: Problem, knobs: Knobs) -> InstructionRules:
        """Read them from a setting and a target."""
        target = problem.target
        zones = Zones.of(target)
        return InstructionRules(
            ahead=1 if knobs.prefetch_depth == AUTO else int(knobs.prefetch_depth),
            divisor=1 if knobs.tile_divisor == AUTO else int(knobs.tile_divisor),
            across=knobs.instruction_scheduling != "off",
            weight_room=max(target.lb.weight_capacity, zones.lb_staging),
            staging=zones.lb_staging,
            tile_bytes=max(target.lb.capacity // STAGING_SHARE, 1),
            cores=target.cores,
            has_gb=target.gb.capacity > 0,
            broadcast=target.transfer.broadcast,
            native_rows=target.matrix.rows,
            native_columns=target.matrix.columns,
        )

    def as_array(self) -> Ints:
        """For compiled code, in the order of the fields."""
        values = (
            self.ahead, self.divisor, self.across, self.weight_room, self.staging,
            self.tile_bytes, self.cores, self.has_gb, self.broadcast, self.native_rows,
            self.native_columns,
        )  # fmt: skip
        return np.asarray([int(v) for v in values], np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class Instructions:
    """A kernel's program.

    Attributes:
        where: int64 array (instructions, :data:`INSTRUCTION_COLUMNS`).
        amounts: float64 array (instructions, :data:`AMOUNT_COLUMNS`).
    """

    where: Ints
    amounts: Floats


def instruct(
    stages: Floats,
    streams: Ints,
    edges: list[tuple[int, ...]],
    rules: InstructionRules,
    *,
    weights_resident: bool,
) -> Instructions:
    """The instructions of one kernel.

    Args:
        stages: its template's table.
        streams: bytes that its layers move from and to GB and DDR.
        edges: per layer, positions of the layers of the kernel that it waits for.
        rules: knobs and capacities.
        weights_resident: the weights are in GB already.
    """
    starts = np.concatenate(([0], np.cumsum([len(e) for e in edges]))).astype(np.int64)
    befores = np.asarray([p for e in edges for p in e], np.int64)
    table = rules.as_array()
    tiles = _tile_counts(stages, streams, table)
    where, amounts = _build(stages, streams, starts, befores, table, tiles, int(weights_resident))
    return Instructions(where, amounts)


@njit(cache=True)
def _ceil(a: float, b: float) -> int:
    return int(np.ceil(a / b)) if b > 0 else 1


@njit(cache=True)
def _best_cut(extent: float, native: int, least: int) -> int:
    """Tiles of an extent, at least ``least`` and at most twice that, that waste least of the array."""
    most = max(min(2 * least, int(extent // native)), 1)
    best = min(least, most)
    best_cost = np.inf
    for tiles in range(best, most + 1):
        cost = tiles * np.ceil(np.ceil(extent / tiles) / native)
        if cost < best_cost:
            best, best_cost = tiles, cost
    return best


@njit(cache=True)
def _product_tiles(row: Floats, weight_tiles: int, tiles: int, rules: Ints) -> tuple[int, int]:
    """Column and row tiles of a matrix layer.

    Columns are cut for the weights; rows, then columns again, and products for the rest. A tile
    never falls below the engine's native one while another way to cut is left.
    """
    by_columns = max(_ceil(row[Stage.COLUMNS], rules[10]), 1) * max(int(row[Stage.COUNT]), 1)
    columns = min(max(weight_tiles, 1), int(max(row[Stage.COLUMNS] * row[Stage.COUNT], 1.0)))
    if columns <= by_columns and row[Stage.COUNT] <= 1:
        columns = _best_cut(row[Stage.COLUMNS], rules[10], columns)
    rows = _best_cut(row[Stage.ROWS], rules[9], max(_ceil(tiles, columns), 1))
    left = _ceil(tiles, rows)
    return max(columns, min(left, by_columns)), rows


@njit(cache=True)
def _tile_counts(stages: Floats, streams: Ints, rules: Ints) -> Ints:
    """Per layer: column tiles (weights), row tiles, and 1 if rows are the outer loop."""
    counts = np.ones((len(stages), 3), np.int64)
    ahead, divisor, weight_room, staging = rules[0], rules[1], rules[3], rules[4]
    tile_bytes, cores = rules[5], rules[6]
    for layer in range(len(stages)):
        row = stages[layer]
        columns = _ceil(row[Stage.CORE_WEIGHTS] * (ahead + 1), weight_room)
        streamed = 0.0
        for column in range(streams.shape[1]):
            streamed += streams[layer, column] / cores
        tiles = max(_ceil(streamed * (ahead + 1), staging), _ceil(row[Stage.WRITTEN], tile_bytes))
        tiles = min(tiles * divisor, MAX_TILES)
        if row[Stage.MACS] > 0:
            columns, rows = _product_tiles(row, columns, tiles, rules)
        else:
            columns, rows = 1, min(max(tiles, min(columns, MAX_TILES)), int(row[Stage.STEPS]))
        counts[layer, 0], counts[layer, 1] = max(columns, 1), max(rows, 1)
        read = streams[layer, IN_GB] + streams[layer, IN_DDR]
        read += streams[layer, LATE_GB] + streams[layer, LATE_DDR]
        again_rows = row[Stage.WEIGHTS] * (counts[layer, 1] - 1)
        again_columns = (read + row[Stage.EXCHANGED] * cores) * (counts[layer, 0] - 1)
        counts[layer, 2] = int(again_rows < again_columns)
    return counts


@njit(cache=True)
def _emit(
    where: Ints, amounts: Floats, at: int, engine: int, layer: int, tile: int, after: Ints
) -> int:
    where[at, Column.ENGINE], where[at, Column.LAYER] = engine, layer
    where[at, Column.TILE] = tile
    for index in range(len(after)):
        where[at, Column.AFTER + index] = after[index]
    return at + 1


@njit(cache=True)
def _build(
    stages: Floats, streams: Ints, starts: Ints, befores: Ints, rules: Ints, tiles: Ints,
    resident: int,
) -> tuple[Ints, Floats]:
    """Emit all tiles of all layers in issue order.

    ``fetched``, ``computed``, ``stored`` hold, per tile of the kernel, the instruction that a
    later one has to wait for.
    """  # fmt: skip
    ahead, across = rules[0], rules[2]
    layers = len(stages)
    first = np.zeros(layers + 1, np.int64)
    for layer in range(layers):
        first[layer + 1] = first[layer] + tiles[layer, 0] * tiles[layer, 1]
    total = first[layers]
    owner = np.empty(total, np.int64)
    for layer in range(layers):
        owner[first[layer] : first[layer + 1]] = layer
    where = np.full((total * 9, INSTRUCTION_COLUMNS), -1, np.int64)
    amounts = np.zeros((total * 9, AMOUNT_COLUMNS))
    fetched, late = np.full(total, -1, np.int64), np.full(total, -1, np.int64)
    computed, stored = np.full(total, -1, np.int64), np.full(total, -1, np.int64)
    matrix = np.full(total, -1, np.int64)
    end = np.full(layers, -1, np.int64)
    at, prepared, brought = 0, 0, 0
    for tile in range(total):
        layer = owner[tile]
        limit = min(tile + ahead + 1, total if across else first[layer + 1])
        while prepared < limit:
            target = owner[prepared]
            barrier = end[target - 1] if target and not across else -1
            free = computed[prepared - ahead - 1] if prepared > ahead else -1
            at = _fetch(
                where, amounts, at, stages, streams, rules, tiles, target,
                prepared - first[target], prepared, free, barrier, resident, fetched,
            )  # fmt: skip
            prepared += 1
        while brought <= min(tile + 1, first[layer + 1] - 1):
            at = _bring(
                where, amounts, at, stages, streams, rules, tiles, layer,
                brought - first[layer], brought, starts, befores, end, computed, late,
            )  # fmt: skip
            brought += 1
        at = _compute(
            where, amounts, at, stages, tiles, layer, tile - first[layer], tile, starts, befores,
            end, fetched, late, matrix, computed,
        )  # fmt: skip
        at = _store(
            where, amounts, at, streams, rules, tiles, layer, tile - first[layer], computed[tile],
            stored, tile,
        )  # fmt: skip
        if tile == first[layer + 1] - 1:
            end[layer] = max(computed[tile], stored[tile])
    return where[:at].copy(), amounts[:at].copy()


@njit(cache=True)
def _is_first_use(tiles: Ints, layer: int, tile: int) -> tuple[bool, bool]:
    """Whether a tile loads its weights, and whether it loads its inputs.

    The loop nest is columns around rows, or rows around columns; weights belong to a column tile,
    inputs to a row tile.
    """
    columns, rows, rows_outside = tiles[layer, 0], tiles[layer, 1], tiles[layer, 2]
    if rows_outside:
        return True, tile % columns == 0
    return tile % rows == 0, True


@njit(cache=True)
def _waits(a: int, b: int, c: int) -> Ints:
    out = np.full(5, -1, np.int64)
    out[0], out[1], out[2] = a, b, c
    return out


@njit(cache=True)
def _fetch(
    where: Ints, amounts: Floats, at: int, stages: Floats, streams: Ints, rules: Ints, tiles: Ints,
    layer: int, tile: int, index: int, free: int, barrier: int, resident: int, fetched: Ints,
) -> int:
    """Weights of a tile, and inputs that are in GB or DDR before the kernel starts."""  # fmt: skip
    cores, has_gb, broadcast = rules[6], rules[7], rules[8]
    columns, rows = tiles[layer, 0], tiles[layer, 1]
    weights_now, inputs_now = _is_first_use(tiles, layer, tile)
    weight = stages[layer, Stage.WEIGHTS] / columns if weights_now else 0.0
    core_weight = stages[layer, Stage.CORE_WEIGHTS] / columns if weights_now else 0.0
    again = not tiles[layer, 2] and tile >= rows and has_gb
    part = 1.0 / rows if inputs_now else 0.0
    from_ddr = streams[layer, IN_DDR] * part
    from_gb = streams[layer, IN_GB] * part
    ddr = (0.0 if resident else weight) + (0.0 if again else from_ddr)
    dma = -1
    if ddr > 0:
        amounts[at, Amount.DDR] = ddr
        amounts[at, Amount.GB] = ddr if has_gb else 0.0
        dma, at = at, _emit(where, amounts, at, DMA_IN, layer, tile, _waits(free, barrier, -1))
    fetched[index] = dma
    if has_gb and weight + from_gb + from_ddr > 0:
        shared = weight if broadcast else core_weight * cores
        amounts[at, Amount.GB] = shared + from_gb + from_ddr
        amounts[at, Amount.CORE] = core_weight + (from_gb + from_ddr) / cores
        fetched[index] = at
        at = _emit(where, amounts, at, TRANSFER, layer, tile, _waits(dma, free, barrier))
    return at


@njit(cache=True)
def _bring(
    where: Ints, amounts: Floats, at: int, stages: Floats, streams: Ints, rules: Ints, tiles: Ints,
    layer: int, tile: int, index: int, starts: Ints, befores: Ints, end: Ints, computed: Ints,
    late: Ints,
) -> int:
    """What a tile needs from other cores, and inputs that this kernel itself spilled."""  # fmt: skip
    cores, has_gb = rules[6], rules[7]
    inputs_now = _is_first_use(tiles, layer, tile)[1]
    if not inputs_now:
        return at
    part = 1.0 / tiles[layer, 1]
    ddr, gb = streams[layer, LATE_DDR] * part, streams[layer, LATE_GB] * part
    core = stages[layer, Stage.EXCHANGED] * part
    after = np.full(5, -1, np.int64)
    count = 0
    for position in range(starts[layer], min(starts[layer + 1], starts[layer] + 3)):
        after[count] = end[befores[position]]
        count += 1
    if starts[layer + 1] - starts[layer] > 3:
        for position in range(starts[layer] + 3, starts[layer + 1]):
            after[2] = max(after[2], end[befores[position]])
    after[3] = computed[index - 2] if tile > 1 else -1
    if ddr > 0:
        amounts[at, Amount.DDR] = ddr
        amounts[at, Amount.GB] = ddr if has_gb else 0.0
        late[index] = at
        at = _emit(where, amounts, at, DMA_IN, layer, tile, after)
        after[4] = late[index]
    if core > 0 or (has_gb and gb + ddr > 0):
        amounts[at, Amount.GB] = gb + ddr if has_gb else 0.0
        amounts[at, Amount.CORE] = core + ((gb + ddr) / cores if has_gb else 0.0)
        late[index] = at
        at = _emit(where, amounts, at, TRANSFER, layer, tile, after)
    return at


@njit(cache=True)
def _compute(
    where: Ints, amounts: Floats, at: int, stages: Floats, tiles: Ints, layer: int, tile: int,
    index: int, starts: Ints, befores: Ints, end: Ints, fetched: Ints, late: Ints, matrix: Ints,
    computed: Ints,
) -> int:
    """Matrix work of a tile, then its vector work."""  # fmt: skip
    columns, rows = tiles[layer, 0], tiles[layer, 1]
    row = stages[layer]
    share = 1.0 / (columns * rows)
    after = np.full(5, -1, np.int64)
    after[0], after[1] = fetched[index], late[index]
    for position in range(starts[layer], starts[layer + 1]):
        after[2] = max(after[2], end[befores[position]])
    read = row[Stage.READ] / rows + row[Stage.CORE_WEIGHTS] / columns
    written = row[Stage.WRITTEN] * share
    last = -1
    if row[Stage.MACS] > 0:
        after[3] = computed[index - 2] if tile > 1 else -1
        amounts[at, Amount.LOCAL] = read + written
        _tile_shape(amounts, at, row, columns, rows)
        last = matrix[index] = at
        at = _emit(where, amounts, at, MATRIX_ENGINE, layer, tile, after)
        after[:] = -1
        after[0] = last
        read = written
    moved = row[Stage.MOVED] * share
    if row[Stage.VECTOR] + row[Stage.SPECIAL] + moved > 0 or last < 0:
        amounts[at, Amount.LOCAL] = max(read + written, 2.0 * moved) if last < 0 else (
            (2.0 * written if row[Stage.VECTOR] + row[Stage.SPECIAL] > 0 else 0.0) + moved
        )
        amounts[at, Amount.VECTOR] = row[Stage.VECTOR] * share
        amounts[at, Amount.SPECIAL] = row[Stage.SPECIAL] * share
        last = at
        at = _emit(where, amounts, at, VECTOR_ENGINE, layer, tile, after)
    computed[index] = last
    return at


@njit(cache=True)
def _tile_shape(amounts: Floats, at: int, row: Floats, columns: int, rows: int) -> None:
    """Cut a layer's product: column tiles over N (then over products), row tiles over M."""
    count, m, n = row[Stage.COUNT], row[Stage.ROWS], row[Stage.COLUMNS]
    by_columns = min(columns, max(n, 1.0))
    n, left = n / by_columns, columns / by_columns
    over_count = min(rows * left, max(count, 1.0))
    count, left = count / over_count, rows * left / over_count
    amounts[at, Amount.COUNT], amounts[at, Amount.ROWS] = count, m / left
    amounts[at, Amount.COLUMNS], amounts[at, Amount.DEPTH] = n, row[Stage.DEPTH]


@njit(cache=True)
def _store(
    where: Ints, amounts: Floats, at: int, streams: Ints, rules: Ints, tiles: Ints, layer: int,
    tile: int, done: int, stored: Ints, index: int,
) -> int:
    """Outputs of a tile that are kept in GB or DDR."""  # fmt: skip
    cores, has_gb = rules[6], rules[7]
    share = 1.0 / (tiles[layer, 0] * tiles[layer, 1])
    gb, ddr = streams[layer, OUT_GB] * share, streams[layer, OUT_DDR] * share
    if has_gb and gb + ddr > 0:
        amounts[at, Amount.GB] = gb + ddr
        amounts[at, Amount.CORE] = (gb + ddr) / cores
        stored[index] = at
        at = _emit(where, amounts, at, TRANSFER, layer, tile, _waits(done, -1, -1))
        done = stored[index]
    if ddr > 0:
        amounts[at, Amount.DDR] = ddr
        amounts[at, Amount.GB] = ddr if has_gb else 0.0
        stored[index] = at
        at = _emit(where, amounts, at, DMA_OUT, layer, tile, _waits(done, -1, -1))
    return at
