"""How many tiles a layer has, and the knobs and capacities that decide it.

A weight tile is the largest that leaves room for ``prefetch_depth`` more in the weight share of
LB, an activation tile the largest whose streams fit the staging zone and whose result is at most a
sixteenth of LB. The paper tiles the two outermost loops of the anchor with the largest divisor that
fits (section 4.1); here a matrix layer is cut over products, columns and rows, and where a weight
tile would become narrower than the array, over the reduction (partial sums stay in LB), because a
narrow tile leaves most of the array idle.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numba import njit

from autoturbo.compiled import borrowing
from autoturbo.graph.arrays import Ints
from autoturbo.hardware.target import Target
from autoturbo.schedule.allocate import Zones
from autoturbo.schedule.knobs import AUTO, Knobs
from autoturbo.schedule.problem import STAGING_SHARE, Problem
from autoturbo.schedule.stitch import Stage
from autoturbo.schedule.timeline import IN_DDR, IN_GB, LATE_DDR, LATE_GB, OUT_DDR, OUT_GB
from autoturbo.schedule.work import Floats

MAX_TILES = 64
"""Most row tiles of a layer: finer ones change little and cost simulation time."""


FROM_DDR, TO_CORES = range(2)
"""Ways on which weights are loaded."""


class Tiling(IntEnum):
    """Columns of the table of tiles: one row per layer.

    Parts over ``PRODUCTS`` (or the rows of a layer without matrix work), ``COLUMNS``, ``DEPTHS``
    and ``ROWS``; ``ROWS_OUTSIDE`` is 1 if row tiles are around column tiles; ``KEPT`` says where
    inputs stay between column tiles: 0 nowhere, 1 in GB, 2 in LB.
    """

    PRODUCTS = 0
    COLUMNS = 1
    DEPTHS = 2
    ROWS = 3
    ROWS_OUTSIDE = 4
    KEPT = 5


TILING_COLUMNS = len(Tiling)


class Rule(IntEnum):
    """Entries of :meth:`InstructionRules.as_array`."""

    AHEAD = 0
    DIVISOR = 1
    ACROSS = 2
    WEIGHT_ROOM = 3
    STAGING = 4
    TILE_BYTES = 5
    CORES = 6
    HAS_GB = 7
    BROADCAST = 8
    NATIVE_ROWS = 9
    NATIVE_COLUMNS = 10
    GB_STAGING = 11
    DDR_COST = 12
    SERIAL = 13
    REREADS = 14


@dataclass(frozen=True, slots=True)
class InstructionRules:
    """Knobs and capacities that instructions depend on.

    Attributes:
        ahead: tiles fetched ahead of the one computed.
        divisor: tiles per largest tile that fits.
        across: fetch over layer boundaries.
        serial: no software pipeline at all: one instruction after another.
        weight_room: bytes of LB per core for weights.
        staging: bytes of LB per core for streams.
        tile_bytes: largest result of a tile per core.
        cores: cores of a cluster.
        has_gb: DDR traffic passes a global buffer.
        broadcast: one read of GB feeds all cores.
        native_rows: rows of the matrix engine.
        native_columns: its columns.
        gb_staging: bytes of GB for streams and weights on their way.
        ddr_cost: how many times slower a byte of DDR is than one of GB.
        rereads: every native block of a result reads its operands from LB anew.
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
    gb_staging: int = 0
    ddr_cost: int = 1
    serial: bool = False
    rereads: bool = False

    @staticmethod
    def of(problem: Problem, knobs: Knobs) -> InstructionRules:
        """Read them from a setting and a target."""
        target = problem.target
        zones = Zones.of(target)
        serial = knobs.instruction_scheduling == "off"
        ahead = 1 if knobs.prefetch_depth == AUTO else int(knobs.prefetch_depth)
        return InstructionRules(
            ahead=0 if serial else ahead,
            divisor=1 if knobs.tile_divisor == AUTO else int(knobs.tile_divisor),
            across=knobs.instruction_scheduling == AUTO,
            serial=serial,
            weight_room=_weight_room(target, zones, knobs),
            staging=zones.lb_staging,
            tile_bytes=max(target.lb.capacity // STAGING_SHARE, 1),
            cores=target.cores,
            has_gb=target.gb.capacity > 0,
            broadcast=target.transfer.broadcast,
            native_rows=target.matrix.rows,
            native_columns=target.matrix.columns,
            gb_staging=zones.gb_staging,
            ddr_cost=max(round(target.gb.bandwidth / target.ddr_bandwidth_per_cluster), 1),
            rereads=target.matrix.rereads_operands,
        )

    def as_array(self) -> Ints:
        """For compiled code, in the order of the fields (:class:`Rule`)."""
        values = (
            self.ahead, self.divisor, self.across, self.weight_room, self.staging,
            self.tile_bytes, self.cores, self.has_gb, self.broadcast, self.native_rows,
            self.native_columns, self.gb_staging, self.ddr_cost, self.serial, self.rereads,
        )  # fmt: skip
        return np.asarray([int(v) for v in values], np.int64)


def _weight_room(target: Target, zones: Zones, knobs: Knobs) -> int:
    """Bytes of LB per core for weight tiles.

    The target's weight buffer (or the staging zone, where it has none); a share asked for that is
    larger is taken from the room for tensors.
    """
    own = max(target.lb.weight_capacity, zones.lb_staging)
    if knobs.weight_share == AUTO:
        return own
    return max(int(float(knobs.weight_share) * target.lb.capacity), own)


@borrowing
def _ceil(a: float, b: float) -> int:
    return int(np.ceil(a / b)) if b > 0 else 1


@borrowing
def _best_cut(extent: float, native: int, least: int) -> int:
    """Tiles of an extent, at least ``least`` and at most twice that, that waste least of an array.

    Never more than leave whole native tiles.
    """
    most = max(min(2 * least, int(extent // native)), 1)
    best = min(least, most)
    best_cost = np.inf
    for tiles in range(best, most + 1):
        cost = tiles * np.ceil(np.ceil(extent / tiles) / native)
        if cost < best_cost:
            best, best_cost = tiles, cost
    return best


@borrowing
def _product_tiles(row: Floats, parts: int, tiles: int, rules: Ints, out: Ints) -> None:
    """Cut a matrix layer into at least ``parts`` weight tiles and ``tiles`` results.

    Products first, then columns, then the reduction for the weights; rows, then columns again for
    the results. A tile falls below the native width only when no other way to cut is left.
    """
    count, m, n = int(max(row[Stage.COUNT], 1.0)), row[Stage.ROWS], row[Stage.COLUMNS]
    rows, columns = rules[Rule.NATIVE_ROWS], rules[Rule.NATIVE_COLUMNS]
    wide = rows if m <= columns else columns
    products = min(max(parts, tiles), count)
    parts, tiles = _ceil(parts, products), _ceil(tiles, products)
    widest = max(_ceil(n, wide), 1)
    across = _best_cut(n, wide, min(parts, widest))
    depths = min(_ceil(parts, across), max(int(row[Stage.DEPTH] // rows), 1))
    across = max(across, min(_ceil(parts, depths), int(max(n, 1.0))))
    down = _best_cut(m, rows, max(_ceil(tiles, across), 1))
    across = max(across, min(_ceil(tiles, down), widest))
    out[Tiling.PRODUCTS], out[Tiling.COLUMNS] = products, across
    out[Tiling.DEPTHS], out[Tiling.ROWS] = depths, down


@njit(cache=True)
def tile_counts(stages: Floats, streams: Ints, rules: Ints, resident: int) -> Ints:
    """Return the table of tiles of a kernel, ``(layers, TILING_COLUMNS)``."""
    counts = np.empty((len(stages), TILING_COLUMNS), np.int64)
    slots, cores = rules[Rule.AHEAD] + 1, rules[Rule.CORES]
    for layer in range(len(stages)):
        row, out = stages[layer], counts[layer]
        out[:] = 1
        parts = max(_ceil(row[Stage.CORE_WEIGHTS] * slots, rules[Rule.WEIGHT_ROOM]), 1)
        parts = 1 if resident == 2 else parts * rules[Rule.DIVISOR]  # noqa: PLR2004  in LB
        read = _read_bytes(streams[layer]) / cores + row[Stage.EXCHANGED]
        written = (streams[layer, OUT_GB] + streams[layer, OUT_DDR]) / cores
        tiles = _ceil((read + written) * slots, rules[Rule.STAGING])
        tiles = max(tiles, _ceil(row[Stage.WRITTEN], rules[Rule.TILE_BYTES]), 1)
        tiles = min(tiles * rules[Rule.DIVISOR], MAX_TILES)
        if row[Stage.SEQUENCE] > 0:
            out[Tiling.PRODUCTS] = min(tiles, int(row[Stage.SEQUENCE]))
        elif row[Stage.MACS] > 0:
            _product_tiles(row, parts, tiles, rules, out)
        else:
            steps = max(int(row[Stage.STEPS]), 1)
            out[Tiling.PRODUCTS] = min(max(tiles, min(parts, MAX_TILES)), steps)
        in_lb = read / out[Tiling.PRODUCTS] * slots <= rules[Rule.STAGING]
        in_gb = streams[layer, IN_DDR] * 2 <= rules[Rule.GB_STAGING] and rules[Rule.HAS_GB]
        out[Tiling.KEPT] = 2 if in_lb else int(in_gb)
        out[Tiling.ROWS_OUTSIDE] = _rows_outside(row, streams[layer], rules, out, resident)
    return counts


@borrowing
def _rows_outside(row: Floats, streams: Ints, rules: Ints, tiles: Ints, resident: int) -> int:
    """1 if weights that are loaded again for every row tile cost less than inputs for every column.

    A byte of DDR counts as many bytes of GB as it is slower; other cores are as near as GB.
    """
    if tiles[Tiling.KEPT] == 2:  # noqa: PLR2004  kept in LB
        return 0
    far = rules[Rule.DDR_COST]
    weights = row[Stage.WEIGHTS] * (1 if resident else far)
    inputs = streams[IN_GB] + streams[LATE_GB] + row[Stage.EXCHANGED] * rules[Rule.CORES]
    inputs += streams[IN_DDR] * (1 if tiles[Tiling.KEPT] else far) + streams[LATE_DDR] * far
    again = weights * (tiles[Tiling.ROWS] - 1) < inputs * (tiles[Tiling.COLUMNS] - 1)
    return int(again)


def weight_passes(stages: Floats, tiles: Ints, rules: Ints, source: int) -> Floats:
    """Return how many times the weights of layers are loaded, to the cores or from DDR.

    Once, but for those of a recurrence that do not stay in the cores' room for weights: what the
    state is multiplied by at every step, the rest with every tile of steps. What finds room in GB
    beside one tile of every core's streams comes from DDR once.

    Args:
        stages: columns of the layers.
        tiles: likewise.
        rules: likewise, or one column for all.
        source: :data:`FROM_DDR` or :data:`TO_CORES`.
    """
    core, again = stages[Stage.CORE_WEIGHTS], stages[Stage.STEP_WEIGHTS]
    often = (stages[Stage.SEQUENCE] > 0) & (core > rules[Rule.WEIGHT_ROOM])
    if not often.any():
        return np.ones_like(core)
    core = np.where(often, core, 1.0)  # the others are 1 in the end
    steps = np.where(again <= rules[Rule.WEIGHT_ROOM], 1.0, stages[Stage.SEQUENCE])
    tiled = tiles[Tiling.PRODUCTS].astype(np.float64)
    if source == FROM_DDR:
        has_gb = rules[Rule.HAS_GB] > 0
        room = rules[Rule.GB_STAGING] - rules[Rule.CORES] * rules[Rule.STAGING] / 2
        room = room * (core / np.where(often, stages[Stage.WEIGHTS], 1.0))  # of a core's part
        kept = has_gb & (steps > 1.0) & (again <= room)
        steps, room = np.where(kept, 1.0, steps), np.where(kept, room - again, room)
        tiled = np.where(has_gb & (core - again <= room), 1.0, tiled)
    return np.where(often, (again * steps + (core - again) * tiled) / core, 1.0)


@borrowing
def _read_bytes(streams: Ints) -> float:
    return float(streams[IN_GB] + streams[IN_DDR] + streams[LATE_GB] + streams[LATE_DDR])
