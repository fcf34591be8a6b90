"""Tiling of layers: the number of tiles, and the amounts that their instructions move and compute.

A weight tile is the largest that leaves room for ``prefetch_depth`` more in the weight share of
LB, an activation tile the largest whose streams fit the staging zone and whose result is at most a
sixteenth of LB. The paper tiles the two outermost loops of the anchor with the largest divisor that
fits (section 4.1); here a matrix layer is cut over products, columns and rows, and where a weight
tile would become narrower than the array, over the reduction (partial sums stay in LB), because a
narrow tile leaves most of the array idle.

Amounts are the same for all tiles of a layer: they follow from its stage, its streams, how it is
cut and the rules, whatever an instruction waits for. The instruction builder takes them from here,
and so does the estimate (:mod:`autoturbo.simulator.estimate`).
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Mapping
from enum import IntEnum
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from autoturbo.graph.arrays import Ints
from autoturbo.graph.operators import element_bytes
from autoturbo.schedule.codegen.tile_costs import SUMS_MOVED, Room, cheapest, product_bytes
from autoturbo.schedule.context import STAGING_SHARE, SchedulingContext, Zones
from autoturbo.schedule.knobs import AUTO, Knobs
from autoturbo.schedule.stitch.stages import Stage
from autoturbo.schedule.streams import IN_DDR, IN_GB, LATE_DDR, LATE_GB, OUT_DDR, OUT_GB, READ, ROOM
from autoturbo.schedule.work import Flags, Floats

BY_TILES = 2
"""Code of :attr:`TilingRules.across` where tiles wait for tiles, not for layers."""

MAX_TILES = 64
"""Most row tiles of a layer: finer ones change little and cost simulation time."""

IN_LB = 2
"""Code of data that stays in the local buffers: weights, and inputs between column tiles."""

SUMS_SHARE = 1 / 8
"""Most of the array's time that adding partial sums takes LB, where tiles may as well be deeper."""

N = TypeVar("N")


class Tiling(IntEnum):
    """Columns of the table of tiles: one row per layer.

    Parts over ``PRODUCTS`` (or the rows of a layer without matrix work), ``COLUMNS``, ``DEPTHS``
    and ``ROWS``; ``ROWS_OUTSIDE`` is 1 if row tiles are around column tiles; ``KEPT`` says where
    inputs stay between column tiles, those of a row tile or, where rows are inside, of all: 0
    nowhere, they are read again, 1 in GB, 2 in LB.
    """

    PRODUCTS = 0
    COLUMNS = 1
    DEPTHS = 2
    ROWS = 3
    ROWS_OUTSIDE = 4
    KEPT = 5


class Role(IntEnum):
    """Kind of an instruction: a fetch, a product, vector work, or a store.

    ``FETCH`` brings from DDR, to GB where there is one and else to LB, ``PASS`` from GB to LB:
    weights, inputs that were there before the kernel, and inputs that the kernel itself made and
    spilled (``LATE``; what comes from other cores too). ``MULTIPLY`` and ``APPLY`` compute on the
    matrix and the vector engine. ``STORE`` takes results from LB to GB, ``SAVE`` to DDR.
    """

    FETCH_WEIGHTS = 0
    PASS_WEIGHTS = 1
    FETCH_INPUT = 2
    PASS_INPUT = 3
    FETCH_LATE = 4
    PASS_LATE = 5
    MULTIPLY = 6
    APPLY = 7
    STORE = 8
    SAVE = 9


class Amount(IntEnum):
    """Quantities of an instruction.

    ``DDR`` and ``GB`` bytes of the cluster, ``CORE`` bytes of one core over its link (its transfer
    engine, or DDR's DMA where there is no GB between), ``LOCAL`` bytes of LB that a compute
    instruction touches, the product ``COUNT`` x ``ROWS`` x ``COLUMNS`` x ``DEPTH``, ``VECTOR`` and
    ``SPECIAL`` operations; ``RUN`` the contiguous bytes in DDR that ``DDR`` consists of,
    ``GB_WRITTEN`` the part of ``GB`` that is written and not read, ``EXCHANGED`` the part of
    ``CORE`` that comes from other cores, ``STEPS`` those of a recurrence that it stands for (0: it
    is what it is), ``ALIKE`` the clusters that need the same bytes at once (0: this one alone).
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
    RUN = 10
    GB_WRITTEN = 11
    EXCHANGED = 12
    STEPS = 13
    ALIKE = 14


AMOUNT_COLUMNS = len(Amount)


class TilingRules(NamedTuple, Generic[N]):
    """Knobs and capacities that instructions depend on, of one kernel or a column per layer.

    Attributes:
        ahead: Tiles fetched ahead of the one computed.
        divisor: Tiles per largest tile that fits.
        across: Fetch over layer boundaries; :data:`BY_TILES` where tiles of layers take turns too.
        weight_room: Bytes of LB per core for weight tiles.
        staging: Bytes of LB per core for streams.
        tile_bytes: Largest result of a tile per core.
        cores: Cores of a cluster.
        has_gb: DDR traffic passes a global buffer.
        broadcast: One read of GB feeds all cores.
        native_rows: Rows of the matrix engine.
        native_columns: Columns of the matrix engine.
        least_depth: Least depth of a tile, if columns may be split instead: adding sums takes LB at
            most :data:`SUMS_SHARE` of what the product takes the array.
        gb_staging: Bytes of GB for streams and weights on their way.
        ddr_cost: How many times slower a byte of DDR is than one of GB.
        link_cost: How many times slower a byte between cores is than one of GB, or of DDR where
            there is no GB.
        serial: No software pipeline at all: one instruction after another.
        rereads: Every native block of a result reads its operands from LB anew.
        alike: Clusters that fetch the same weights at once.
        packed: Weights lie in DDR as tiles of them are fetched, and not as in the file.
        spare: Bytes of LB per core, beside ``weight_room``, for the weights of one recurrence.
        gb_spare: Bytes of GB, beside ``gb_staging``, for the same.
        by_cost: Tiles are those that cost least among all that fit.
    """

    ahead: N
    divisor: N
    across: N
    weight_room: N
    staging: N
    tile_bytes: N
    cores: N
    has_gb: N
    broadcast: N
    native_rows: N
    native_columns: N
    least_depth: N
    gb_staging: N
    ddr_cost: N
    link_cost: N
    serial: N
    rereads: N
    alike: N
    packed: N
    spare: N
    gb_spare: N
    by_cost: N

    @staticmethod
    def with_spare(rules: InstructionRules, spare: Ints) -> InstructionRules:
        """Return the rules of a kernel whose recurrences have bytes of LB and of GB to spare.

        Its other layers have the room of any layer: their weight tiles pass while that of the
        recurrences is taken.
        """
        lb, gb = spare.tolist()
        return rules._replace(spare=lb, gb_spare=gb)

    @staticmethod
    def of(context: SchedulingContext, knobs: Knobs) -> InstructionRules:
        """Return the rules of a candidate on a target."""
        target, zones = context.target, Zones.of(context.target)
        serial = knobs.instruction_scheduling == "off"
        # of LB for weight tiles: what is more than the target's buffer for them is taken from the
        # room for tensors
        asked = 0.0 if knobs.weight_buffer_fraction == AUTO else float(knobs.weight_buffer_fraction)
        share = int(asked * target.lb.capacity)
        ahead = 1 if knobs.prefetch_depth == AUTO else int(knobs.prefetch_depth)
        has_gb = target.gb.capacity > 0
        shared = target.gb.bandwidth if has_gb else target.ddr_bandwidth_per_cluster
        return InstructionRules(
            ahead=0 if serial else ahead,
            divisor=1 if knobs.tile_subdivision == AUTO else int(knobs.tile_subdivision),
            across={AUTO: 1, "tiles": BY_TILES}.get(knobs.instruction_scheduling, 0),
            weight_room=max(share, target.lb.weight_capacity, zones.lb_staging),
            staging=zones.lb_staging,
            tile_bytes=max(target.lb.capacity // STAGING_SHARE, 1),
            cores=target.cores,
            has_gb=has_gb,
            broadcast=target.transfer.broadcast,
            native_rows=target.matrix.rows,
            native_columns=target.matrix.columns,
            least_depth=_least_depth(context),
            gb_staging=zones.gb_staging,
            # Whole numbers: the rules of many kernels are one array of integers.
            ddr_cost=max(round(target.gb.bandwidth / target.ddr_bandwidth_per_cluster), 1),
            link_cost=max(round(shared / target.transfer.bandwidth), 1),
            serial=serial,
            rereads=target.matrix.rereads_operands,
            alike=context.alike,
            packed=knobs.fetch_ahead not in (AUTO, 0),
            spare=0,  # a kernel's own: with_spare
            gb_spare=0,
            by_cost=knobs.tiling == "cost",
        )


InstructionRules = TilingRules[int]


def _least_depth(context: SchedulingContext) -> int:
    """Return the least depth of a tile at which moving partial sums is hidden by its products.

    The sums then take LB a small part of the time that the products take the array.
    """
    target, dtype = context.target, context.dtype
    bytes_per_cycle = target.lb.bandwidth / target.clock
    sums = SUMS_MOVED * element_bytes("float32", dtype) * target.matrix.macs_per_cycle(dtype)
    return max(math.ceil(sums / bytes_per_cycle / SUMS_SHARE), target.matrix.rows)


def best_cut(extent: float, native: int, least: int) -> int:
    """Return the number of tiles, from ``least`` to twice that, that wastes least of an array.

    It is never more than leaves whole native tiles.
    """
    # Up to twice the least: a little finer may fit whole native tiles, much finer only costs.
    most = max(min(2 * least, int(extent // native)), 1)

    def cost(tiles: int) -> int:
        return tiles * math.ceil(math.ceil(extent / tiles) / native)

    return min(range(min(least, most), most + 1), key=cost)


_Cut = tuple[float, tuple[int, int, int, int, int, int]]
"""Cost and the columns of :class:`Tiling`."""


class _Product(NamedTuple):
    """Size of a matrix layer on one core, and the costs that its tiling depends on.

    Attributes:
        products: Number of products of ``m`` x ``n`` x ``depth``.
        parts: Weight tiles, at least.
        tiles: Tiles of rows, at least, where the reduction is not split.
        results: Tiles of rows that the results alone need, at least.
        read: Bytes of inputs that are not in LB.
        slots: Number of slots for tiles of inputs, where more than one stays.
        sums: Bytes of partial sums.
        weights: Cost of loading its weights once more.
        inputs: Cost of reading its inputs once more, where they do not stay on the chip.
        near: Cost of reading its inputs once more, where they stay in GB.
        gb: Bytes of inputs that would stay in GB.
        least_depth: Least depth of a tile, where columns may be split instead.
    """

    products: float
    m: float
    n: float
    depth: float
    parts: int
    tiles: int
    results: float
    read: float
    slots: int
    sums: float
    weights: float
    inputs: float
    near: float
    gb: float
    least_depth: int


@functools.lru_cache(maxsize=1 << 16)
def _product_tiles(
    own: _Product, rows: int, columns: int, kept: int, gb_kept: int
) -> tuple[int, int, int, int, int, int]:
    """Return the tile counts of a matrix layer and their order, the columns of :class:`Tiling`.

    Its products are split into at least ``parts`` weight tiles and ``tiles`` results, on an array
    of ``rows`` x ``columns``. For the weights, products are split first, then columns, then the
    reduction; for the results, rows, then columns again. A tile falls below the native width only
    when no other split is left.

    Either column tiles are outside, and inputs are read again for each if they do not all stay. Or
    row tiles are, small enough to stay in LB through all columns, and weights are loaded again for
    each. The cheaper order is taken. Partial sums of several row tiles stay in LB or there are
    none.
    """
    # Operands may be swapped (``matrix_cycles``): a product with no more rows than the array has
    # columns may have its columns along the rows of the array.
    wide = rows if own.m <= columns else columns
    products = min(max(own.parts, own.tiles), int(max(own.products, 1.0)))
    parts = -(-own.parts // products)
    widest, highest = max(math.ceil(own.n / wide), 1), int(max(own.m, 1.0))
    deepest = max(int(own.depth // own.least_depth), 1)
    least = max(kept * products, 1)

    def order(outside: int, row_tiles: int, column_tiles: int, depths: int) -> list[_Cut]:
        """Return a tiling and its cost, row tiles around column tiles; empty if it does not fit."""
        alone, held = products * outside, own.sums / column_tiles if depths > 1 else 0.0
        room = kept - held / alone
        if room < 0:
            return []
        # A single tile of inputs needs no second slot: nothing is fetched into it meanwhile.
        read = own.read * (own.slots if alone > 1 else 1)
        where = IN_LB if read <= room * alone else int(own.gb <= gb_kept)
        reread_cost = 0.0 if where == IN_LB else own.near if where else own.inputs
        cost = own.weights * (outside - 1) + reread_cost * (column_tiles - 1)
        cut = products, column_tiles, depths, row_tiles, int(outside > 1), where
        return [(cost, cut)]

    def orders(across: int, depths: int) -> list[_Cut]:
        """Return tilings with ``across`` column tiles, or more where these cost nothing."""
        of_inputs = -(-(own.tiles - own.results) // depths)
        tiles = math.ceil((own.results + of_inputs) / products)
        down = best_cut(own.m, rows, max(-(-tiles // across), 1))
        tilings = order(1, down, max(across, min(-(-tiles // down), widest)), depths)
        if not tilings or tilings[0][1][-1] != IN_LB:
            tilings = order(1, min(max(down, -(-tiles // across)), highest), across, depths)
        held = own.sums / across if depths > 1 else 0.0
        for fit in sorted(
            {math.ceil((own.read * own.slots + held) / least), math.ceil(held / least), down}
        ):
            high = own.m / max(fit, 1)
            outside = min(math.ceil(own.m / max(high - high % rows, min(high, rows), 1.0)), highest)
            # The narrower columns first: of equal costs the first tiling is taken.
            for cut in sorted({across, max(across, min(-(-tiles // outside), widest))})[::-1]:
                tilings += order(outside, outside, cut, depths)
        return tilings

    across, limit = best_cut(own.n, wide, min(parts, widest)), max(int(own.depth // rows), 1)
    depths = min(-(-parts // across), limit)
    tilings = orders(max(across, min(-(-parts // depths), int(max(own.n, 1.0)))), depths)
    across = widest
    while across:  # what a smaller buffer allows, a larger one does
        if -(-parts // across) <= deepest:
            tilings += orders(across, -(-parts // across))
        across = best_cut(own.n, wide, across // 2) if across > 1 else 0
    # The finest tiles there are, where none keeps its sums in the room: no kernel is refused here.
    tilings = tilings or order(highest, highest, int(max(own.n, 1.0)), deepest)
    # Of equal costs the first: row tiles inside column tiles, which load the weights once.
    return min(tilings, key=operator.itemgetter(0))[1]


def tile_counts(
    stages: Floats,
    streams: Ints,
    rules: InstructionRules | TilingRules[Ints],
    resident: Ints | int,
    rates: Floats,
) -> Ints:
    """Return the tile counts of layers, ``(layers, len(Tiling))``.

    Args:
        stages: Stages of the layers, by column.
        streams: Bytes that the layers move from and to GB and DDR.
        rules: Rules of all layers, or a value per layer.
        resident: Where the weights are already, for all layers or of each: 0 in DDR only, 1 in GB,
            2 in LB.
        rates: Of :func:`autoturbo.schedule.codegen.durations.rates_of`, by which tiles are chosen
            where the rules say so.
    """
    usual = _usual_counts(stages, streams, rules, resident)
    by_cost = np.flatnonzero(np.broadcast_to(rules.by_cost, len(stages)))
    if len(by_cost):
        layers = np.asarray([np.broadcast_to(column, len(stages)) for column in rules])
        places = np.broadcast_to(resident, len(stages)).tolist()
        for layer in by_cost.tolist():
            if stages[layer, Stage.SEQUENCE] > 0 or layers[_SERIAL, layer]:
                continue
            room = room_of(TilingRules(*layers[:, layer].tolist()), places[layer])
            usual[layer] = cheapest(
                stages[layer], streams[layer], room, rates, tuple(usual[layer].tolist())
            )
    return usual


_SERIAL = TilingRules._fields.index("serial")


def room_of(rules: InstructionRules, resident: int) -> Room:
    """Return the room and the rules that the cost of a kernel's tiles depends on.

    Args:
        rules: Rules of the kernel.
        resident: Place of its weights.
    """
    return Room(
        slots=rules.ahead + 1, divisor=rules.divisor, weights=rules.weight_room,
        staging=rules.staging, results=rules.tile_bytes,
        gb=rules.gb_staging if rules.has_gb else 0, cores=rules.cores, broadcast=rules.broadcast,
        rows=rules.native_rows, columns=rules.native_columns, least_depth=rules.least_depth,
        across=rules.across, rereads=rules.rereads, early=rules.packed, alike=rules.alike,
        resident=resident,
    )  # fmt: skip


def _usual_counts(
    stages: Floats, streams: Ints, rules: InstructionRules | TilingRules[Ints], resident: Ints | int
) -> Ints:
    """Return the tile counts of layers by the rule of the largest tile that fits."""
    row, stream, slots = stages.T, streams.T, rules.ahead + 1
    parts = np.maximum(_ceil(row[Stage.CORE_WEIGHTS] * slots, rules.weight_room), 1)
    parts = np.where(np.asarray(resident) == IN_LB, 1, parts * rules.divisor)
    read = stream[READ].sum(axis=0).astype(np.float64)
    read = read / rules.cores + row[Stage.EXCHANGED]
    written = (stream[OUT_GB] + stream[OUT_DDR]) / rules.cores
    results = np.maximum(_ceil(row[Stage.WRITTEN], rules.tile_bytes), 1)
    tiles = np.maximum(_ceil((read + written) * slots, rules.staging), results) * rules.divisor
    results = np.maximum(_ceil(written * slots, rules.staging), results) * rules.divisor
    tiles, results = np.minimum(tiles, MAX_TILES), np.minimum(results, MAX_TILES)
    counts = np.ones((len(Tiling), len(stages)), np.int64)
    plain = np.minimum(np.maximum(tiles, np.minimum(parts, MAX_TILES)), row[Stage.STEPS])
    steps = np.minimum(tiles, row[Stage.SEQUENCE])
    recurrent = row[Stage.SEQUENCE] > 0
    counts[Tiling.PRODUCTS] = np.where(recurrent, steps, np.maximum(plain, 1))
    has_gb = np.asarray(rules.has_gb) > 0
    counts[Tiling.KEPT] = np.where(
        read / counts[Tiling.PRODUCTS] * slots <= rules.staging, IN_LB,
        # Twice, since GB keeps the inputs of two layers at a time (``_has_room`` of instructions).
        (stream[IN_DDR] * 2 <= rules.gb_staging) & has_gb,
    )  # fmt: skip
    products = np.flatnonzero(~recurrent & (row[Stage.MACS] > 0))
    if not len(products):
        return np.ascontiguousarray(counts.T)
    # A byte of DDR, or of another core, counts as many bytes of GB as it is slower.
    weights = row[Stage.WEIGHTS] * np.where(np.asarray(resident) > 0, 1, rules.ddr_cost)
    near = stream[IN_GB] + stream[LATE_GB] + row[Stage.EXCHANGED] * rules.link_cost
    near = near + stream[LATE_DDR] * rules.ddr_cost
    columns = (
        row[Stage.COUNT], row[Stage.ROWS], row[Stage.COLUMNS], row[Stage.DEPTH], parts, tiles,
        results, read, slots, 2.0 * row[Stage.WRITTEN], weights,
        # Inputs are read again from where they are; those that stay in GB take twice their bytes.
        near + stream[IN_DDR] * rules.ddr_cost, near + stream[IN_DDR], stream[IN_DDR] * 2.0,
        rules.least_depth,
    )  # fmt: skip
    shape = [np.broadcast_to(column, len(stages))[products].tolist() for column in columns]
    native = int(np.max(rules.native_rows)), int(np.max(rules.native_columns))  # of one target
    kept = (rules.staging + stream[ROOM])[products].tolist()
    gb_kept = np.broadcast_to(rules.gb_staging * has_gb, len(stages))[products].tolist()
    cuts = [
        _product_tiles(_Product(*product), *native, *rooms)
        for product, *rooms in zip(zip(*shape, strict=True), kept, gb_kept, strict=True)
    ]
    counts[:, products] = np.transpose(cuts)
    return np.ascontiguousarray(counts.T)


def _ceil(a: Floats, b: Ints | int) -> Ints:
    """Return quotients, rounded up; 1 where the divisor is 0."""
    return np.where(np.asarray(b) > 0, np.ceil(a / np.maximum(b, 1)), 1).astype(np.int64)


def weight_passes(
    stages: Floats, tiles: Ints, rules: InstructionRules | TilingRules[Ints]
) -> tuple[Floats, Floats]:
    """Return how many times the weights of layers are loaded, from DDR and to the cores.

    Most are loaded once. Weights of a recurrence that do not stay in the cores' room for weights
    are loaded again: those of the state at every step, the rest with every tile of steps. Weights
    that fit in GB beside one tile of every core's streams come from DDR once.

    Args:
        stages: Columns of the layers.
        tiles: Columns of the layers' tile counts.
        rules: Rules of the layers, or one for all of them.
    """
    core, step_bytes = stages[Stage.CORE_WEIGHTS], stages[Stage.STEP_WEIGHTS]
    own = rules.weight_room + rules.spare  # a core's room for the weights of a recurrence
    # Only a recurrence reads a tile of weights again once others have had its room.
    often = (stages[Stage.SEQUENCE] > 0) & (core > own)
    core = np.where(often, core, 1.0)  # the others are 1 in the end
    steps = np.where(step_bytes <= own, 1.0, stages[Stage.SEQUENCE])
    tiled = tiles[Tiling.PRODUCTS].astype(np.float64)

    def passes(steps: Floats, tiled: Floats) -> Floats:
        return np.where(often, (step_bytes * steps + (core - step_bytes) * tiled) / core, 1.0)

    has_gb = np.asarray(rules.has_gb) > 0
    room = rules.gb_staging + rules.gb_spare - rules.cores * rules.staging / 2
    room = room * (core / np.where(often, stages[Stage.WEIGHTS], 1.0))  # of a core's part
    kept = has_gb & (steps > 1.0) & (step_bytes <= room)
    room = np.where(kept, room - step_bytes, room)
    once = has_gb & (core - step_bytes <= room)
    return passes(np.where(kept, 1.0, steps), np.where(once, 1.0, tiled)), passes(steps, tiled)


class Roles:
    """Amounts that each kind of instruction moves and computes, the same for all tiles of a layer.

    Attributes:
        stages: Stages of the layers, by column.
        streams: Bytes that they move from and to GB and DDR, by column.
        rules: Rules of the layers.
        tiles: Tile counts of the layers, by column.
        has_gb: Whether there is a global buffer, per layer.
        slots: Slots for tiles that are fetched or stored, per layer.
        amounts: ``(roles, layers, AMOUNT_COLUMNS)``.
        emits: Whether tiles of a layer have instructions of a role, ``(roles, layers)``.
    """

    def __init__(
        self,
        stages: Floats,
        streams: Ints,
        rules: TilingRules[Ints],
        resident: Ints,
        rates: Floats,
    ) -> None:
        """Compute the amounts of all roles.

        Args:
            stages: Stages of templates.
            streams: Bytes that the layers move from and to GB and DDR.
            rules: Rules of each layer.
            resident: Per layer, where the weights are already: 0 in DDR only, 1 in GB, 2 in LB.
            rates: Rates of the target, as for :func:`tile_counts`.
        """
        self.stages, self.streams, self.rules = stages.T, streams.T, rules
        self.tiles = tile_counts(stages, streams, rules, resident, rates).T
        self.has_gb: Flags = rules.has_gb > 0
        self.slots = (rules.ahead + 1).astype(np.float64)
        self.amounts = np.zeros((len(Role), len(stages), AMOUNT_COLUMNS))
        self.emits = np.zeros((len(Role), len(stages)), np.bool_)
        cut = self.tiles[[Tiling.PRODUCTS, Tiling.COLUMNS, Tiling.ROWS]]
        share: Floats = 1.0 / cut.prod(axis=0)  # of a layer's results, that one tile is
        # of the weights that a core reads from LB: those of a recurrence at every step
        weights = self.stages[Stage.CORE_WEIGHTS] * np.maximum(self.stages[Stage.SEQUENCE], 1.0)
        self._load_weights(resident)
        self._bring_inputs()
        self._multiply(weights)
        self._apply(share, weights)
        self._take_out(share)

    def _note(self, role: Role, emitted: Flags, amounts: Mapping[Amount, Floats]) -> None:
        self.emits[role] = emitted
        for amount, values in amounts.items():
            self.amounts[role, :, amount] = values

    def _move(self, role: Role, emitted: Flags, size: Floats, run: Floats, core: Floats) -> None:
        """Record moves of bytes between DDR and GB, or the cores if there is no GB.

        Args:
            role: The kind of instruction that moves them.
            emitted: Whether the layer has such instructions, ``(layers,)``.
            size: Bytes of a tile, ``(layers,)``.
            run: Bytes that are consecutive in DDR, ``(layers,)``.
            core: Bytes that one core takes of them, where there is no GB.
        """
        far = np.where(self.has_gb, size, 0.0)
        self._note(role, emitted, {
            Amount.DDR: size, Amount.RUN: np.minimum(run, size), Amount.GB: far,
            Amount.GB_WRITTEN: far if role != Role.SAVE else np.zeros(len(far)),
            Amount.CORE: np.where(self.has_gb, 0.0, core),
        })  # fmt: skip

    def _load_weights(self, resident: Ints) -> None:
        """Record weight tiles: without GB straight to the cores, once for all if broadcast."""
        stages, has_gb, once = self.stages, self.has_gb, self.rules.broadcast > 0
        count = self.tiles[[Tiling.PRODUCTS, Tiling.COLUMNS, Tiling.DEPTHS]].prod(axis=0)

        def tile(passes: Floats, whole: Flags) -> tuple[Floats, Floats]:
            share = passes / count
            core = stages[Stage.CORE_WEIGHTS] * share
            return np.where(whole, stages[Stage.WEIGHTS] * share, core * stages[Stage.CORES]), core

        weighty = stages[Stage.WEIGHTS] > 0
        fetched, passed = weight_passes(stages, self.tiles, self.rules)
        size, core = tile(fetched, has_gb | once)
        run = np.where(self.rules.packed > 0, size, stages[Stage.RUN_WEIGHTS])
        self._move(Role.FETCH_WEIGHTS, weighty & (resident == 0), size, run, core)
        self.amounts[Role.FETCH_WEIGHTS, :, Amount.ALIKE] = self.rules.alike
        size, core = tile(passed, once)
        emitted = weighty & has_gb & (resident != IN_LB)
        self._note(Role.PASS_WEIGHTS, emitted, {Amount.GB: size, Amount.CORE: core})

    def _bring_inputs(self) -> None:
        """Record inputs from before the kernel, from its spills and from other cores."""
        stages, streams, tiles, cores = self.stages, self.streams, self.tiles, self.rules.cores
        share = 1.0 / tiles[[Tiling.PRODUCTS, Tiling.ROWS, Tiling.DEPTHS]].prod(axis=0)
        for role, column in ((Role.FETCH_INPUT, IN_DDR), (Role.FETCH_LATE, LATE_DDR)):
            size = streams[column] * share
            self._move(role, size > 0, size, stages[Stage.RUN_READ], size / cores)
        size = (streams[IN_DDR] + streams[IN_GB]) * share
        amounts = {Amount.GB: size, Amount.CORE: size / cores}
        self._note(Role.PASS_INPUT, self.has_gb & (size > 0), amounts)
        size = np.where(self.has_gb, streams[LATE_GB] * share + streams[LATE_DDR] * share, 0.0)
        core = (stages[Stage.EXCHANGED] + stages[Stage.STATE]) * share
        steps = np.where(stages[Stage.STATE] > 0, stages[Stage.SEQUENCE], 0.0) * share
        self._note(Role.PASS_LATE, (core > 0) | (size > 0), {
            Amount.GB: size, Amount.CORE: core + size / cores, Amount.EXCHANGED: core,
            Amount.STEPS: steps,
        })  # fmt: skip

    def _multiply(self, weights: Floats) -> None:
        """Record the product of one tile and the bytes of LB that it accesses.

        Partial sums are read and written at twice the width of the result. Where nothing between LB
        and the array holds operands, each block of rows reads the weights and each block of columns
        the inputs.
        """
        stages, rules = self.stages, self.rules
        products, columns, depths, rows = self.tiles[: Tiling.ROWS + 1]
        count = stages[Stage.COUNT]
        count = np.where(count > 0, count, 1.0)  # a fraction of fast types
        high, wide = stages[Stage.ROWS] / rows, stages[Stage.COLUMNS] / columns
        rereads = rules.rereads > 0
        down = np.where(rereads, np.ceil(high / rules.native_rows), 1.0)
        across = np.where(rereads, np.ceil(wide / rules.native_columns), 1.0)
        local = product_bytes(
            stages[Stage.READ] / (products * rows * depths),
            weights / (products * columns * depths),
            stages[Stage.WRITTEN] / (products * rows * columns),
            down, across, np.where(depths == 1, 1.0, SUMS_MOVED),
        )  # fmt: skip
        self._note(Role.MULTIPLY, stages[Stage.MACS] > 0, {
            Amount.COUNT: count / products, Amount.ROWS: high, Amount.COLUMNS: wide,
            Amount.DEPTH: stages[Stage.DEPTH] / depths, Amount.LOCAL: local,
            Amount.STEPS: stages[Stage.SEQUENCE] / products,
        })  # fmt: skip

    def _apply(self, share: Floats, weights: Floats) -> None:
        """Record vector work, after a product or alone."""
        stages, matrix = self.stages, self.stages[Stage.MACS] > 0
        moved, written = stages[Stage.MOVED] * share, stages[Stage.WRITTEN] * share
        work = stages[Stage.VECTOR] + stages[Stage.SPECIAL]
        # Behind a product the vector engine reads what the array has written, and writes it again.
        after = np.where(work > 0, 2.0 * written, 0.0) + moved
        read = (stages[Stage.READ] + weights) * share
        self._note(Role.APPLY, ~matrix | (work + moved > 0), {
            Amount.VECTOR: stages[Stage.VECTOR] * share,
            Amount.SPECIAL: stages[Stage.SPECIAL] * share,
            Amount.STEPS: stages[Stage.SEQUENCE] * share,
            Amount.LOCAL: np.where(matrix, after, np.maximum(read + written, 2.0 * moved)),
        })  # fmt: skip

    def _take_out(self, share: Floats) -> None:
        """Record results that leave LB."""
        cores, ddr = self.rules.cores, self.streams[OUT_DDR] * share
        # What goes to DDR passes GB too, where there is one.
        size = self.streams[OUT_GB] * share + ddr
        amounts = {Amount.GB: size, Amount.GB_WRITTEN: size, Amount.CORE: size / cores}
        self._note(Role.STORE, self.has_gb & (size > 0), amounts)
        self._move(Role.SAVE, ddr > 0, ddr, self.stages[Stage.RUN_WRITTEN], ddr / cores)

    def weight_tiles(self) -> Ints:
        """Return the number of weight tiles that each layer loads, repetitions included."""
        cut = self.tiles[[Tiling.PRODUCTS, Tiling.COLUMNS, Tiling.DEPTHS]]
        times = np.where(self.tiles[Tiling.ROWS_OUTSIDE] > 0, self.tiles[Tiling.ROWS], 1)
        return np.where(self.stages[Stage.WEIGHTS] > 0, cut.prod(axis=0) * times, 0)
