"""How many tiles a layer has, and the knobs and capacities that decide it.

A weight tile is the largest that leaves room for ``prefetch_depth`` more in the weight share of
LB, an activation tile the largest whose streams fit the staging zone and whose result is at most a
sixteenth of LB. The paper tiles the two outermost loops of the anchor with the largest divisor that
fits (section 4.1); here a matrix layer is cut over products, columns and rows, and where a weight
tile would become narrower than the array, over the reduction (partial sums stay in LB), because a
narrow tile leaves most of the array idle.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from autoturbo.graph.arrays import Ints
from autoturbo.schedule.codegen.stages import Stage
from autoturbo.schedule.codegen.work import Floats
from autoturbo.schedule.knobs import AUTO, Knobs
from autoturbo.schedule.memory.allocate import Zones
from autoturbo.schedule.memory.timeline import IN_DDR, IN_GB, LATE_DDR, LATE_GB, OUT_DDR, OUT_GB
from autoturbo.schedule.problem import STAGING_SHARE, Problem

MAX_TILES = 64
"""Most row tiles of a layer: finer ones change little and cost simulation time."""


IN_LB = 2
"""Code of what stays in the local buffers: weights, and inputs between tiles of columns."""

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
        weight_room: bytes of LB per core for weight tiles.
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
        # of LB for weight tiles: what is more than the target's buffer for them is taken from the
        # room for tensors
        asked = 0.0 if knobs.weight_share == AUTO else float(knobs.weight_share)
        share = int(asked * target.lb.capacity)
        ahead = 1 if knobs.prefetch_depth == AUTO else int(knobs.prefetch_depth)
        return InstructionRules(
            ahead=0 if serial else ahead,
            divisor=1 if knobs.tile_divisor == AUTO else int(knobs.tile_divisor),
            across=knobs.instruction_scheduling == AUTO,
            serial=serial,
            weight_room=max(share, target.lb.weight_capacity, zones.lb_staging),
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
        return np.asarray([getattr(self, name) for name in self.__slots__], np.int64)


def _best_cut(extent: float, native: int, least: int) -> int:
    """Return tiles of an extent, from ``least`` to twice that, that waste least of an array.

    Never more than leave whole native tiles.
    """
    most = max(min(2 * least, int(extent // native)), 1)

    def cost(tiles: int) -> int:
        return tiles * math.ceil(math.ceil(extent / tiles) / native)

    return min(range(min(least, most), most + 1), key=cost)


@functools.lru_cache(maxsize=1 << 16)
def _product_tiles(
    count: float, m: float, n: float, depth: float, parts: int, tiles: int, rows: int, columns: int
) -> tuple[int, int, int, int]:
    """Cut a matrix layer into at least ``parts`` weight tiles and ``tiles`` results.

    Products first, then columns, then the reduction for the weights; rows, then columns again for
    the results. A tile falls below the native width only when no other way to cut is left.

    Args:
        count: of products.
        m: their rows.
        n: their columns.
        depth: of their reduction.
        parts: weight tiles at least.
        tiles: of results at least.
        rows: of the matrix engine.
        columns: of it.

    Returns:
        Parts over products, columns, depths and rows.
    """
    wide = rows if m <= columns else columns
    products = min(max(parts, tiles), int(max(count, 1.0)))
    parts, tiles = -(-parts // products), -(-tiles // products)
    widest = max(math.ceil(n / wide), 1)
    across = _best_cut(n, wide, min(parts, widest))
    depths = min(-(-parts // across), max(int(depth // rows), 1))
    across = max(across, min(-(-parts // depths), int(max(n, 1.0))))
    down = _best_cut(m, rows, max(-(-tiles // across), 1))
    across = max(across, min(-(-tiles // down), widest))
    return products, across, depths, down


def tile_counts(stages: Floats, streams: Ints, rules: Ints, resident: Ints | int) -> Ints:
    """Return how layers are cut into tiles, ``(layers, TILING_COLUMNS)``.

    Args:
        stages: of templates.
        streams: bytes that the layers move from and to GB and DDR.
        rules: of :meth:`InstructionRules.as_array`, for all layers or a row each.
        resident: where the weights are already, for all layers or of each: 0 in DDR only, 1 in GB,
            2 in LB.
    """
    row, stream, rule = stages.T, streams.T, np.atleast_2d(rules).T
    slots, divisor = rule[Rule.AHEAD] + 1, rule[Rule.DIVISOR]
    parts = np.maximum(_ceil(row[Stage.CORE_WEIGHTS] * slots, rule[Rule.WEIGHT_ROOM]), 1)
    parts = np.where(np.asarray(resident) == IN_LB, 1, parts * divisor)
    read = stream[[IN_GB, IN_DDR, LATE_GB, LATE_DDR]].sum(axis=0).astype(np.float64)
    read = read / rule[Rule.CORES] + row[Stage.EXCHANGED]
    written = (stream[OUT_GB] + stream[OUT_DDR]) / rule[Rule.CORES]
    tiles = _ceil((read + written) * slots, rule[Rule.STAGING])
    tiles = np.maximum(np.maximum(tiles, _ceil(row[Stage.WRITTEN], rule[Rule.TILE_BYTES])), 1)
    tiles = np.minimum(tiles * divisor, MAX_TILES)
    counts = np.ones((TILING_COLUMNS, len(stages)), np.int64)
    plain = np.minimum(np.maximum(tiles, np.minimum(parts, MAX_TILES)), row[Stage.STEPS])
    steps = np.minimum(tiles, row[Stage.SEQUENCE])
    recurrent = row[Stage.SEQUENCE] > 0
    counts[Tiling.PRODUCTS] = np.where(recurrent, steps, np.maximum(plain, 1))
    products = np.flatnonzero(~recurrent & (row[Stage.MACS] > 0))
    if len(products):
        shape = row[[Stage.COUNT, Stage.ROWS, Stage.COLUMNS, Stage.DEPTH]][:, products].tolist()
        least = parts[products].tolist(), tiles[products].tolist()
        native = rule[[Rule.NATIVE_ROWS, Rule.NATIVE_COLUMNS], 0].tolist()
        cuts = [_product_tiles(*own, *native) for own in zip(*shape, *least, strict=True)]
        counts[: Tiling.ROWS + 1, products] = np.transpose(cuts)
    in_lb = read / counts[Tiling.PRODUCTS] * slots <= rule[Rule.STAGING]
    in_gb = (stream[IN_DDR] * 2 <= rule[Rule.GB_STAGING]) & (rule[Rule.HAS_GB] > 0)
    counts[Tiling.KEPT] = np.where(in_lb, IN_LB, in_gb)
    counts[Tiling.ROWS_OUTSIDE] = _rows_outside(row, stream, rule, counts, np.asarray(resident))
    return np.ascontiguousarray(counts.T)


def _ceil(a: Floats, b: Ints) -> Ints:
    """Return quotients, rounded up; 1 where there is nothing to divide by."""
    return np.where(b > 0, np.ceil(a / np.maximum(b, 1)), 1).astype(np.int64)


def _rows_outside(
    row: Floats, stream: Ints, rules: Ints, tiles: Ints, resident: Ints
) -> NDArray[np.bool_]:
    """Return whether weights loaded again for every row tile cost less than inputs for columns.

    A byte of DDR counts as many bytes of GB as it is slower; other cores are as near as GB.
    """
    far, kept = rules[Rule.DDR_COST], tiles[Tiling.KEPT]
    weights = row[Stage.WEIGHTS] * np.where(resident > 0, 1, far)
    inputs = stream[IN_GB] + stream[LATE_GB] + row[Stage.EXCHANGED] * rules[Rule.CORES]
    ddr = stream[IN_DDR] * np.where(kept > 0, 1, far) + stream[LATE_DDR] * far
    cheaper = weights * (tiles[Tiling.ROWS] - 1) < (inputs + ddr) * (tiles[Tiling.COLUMNS] - 1)
    return np.asarray(cheaper & (kept != IN_LB))


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
