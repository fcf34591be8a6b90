"""Across-layer instruction scheduling: GraphTurbo, OSDI '23, section 4.4, Fig. 13.

A kernel becomes a list of instructions on five engines. Each tile of a layer is: fetch weights and
streamed inputs (DMA, DDR to GB; transfer, GB to LB), compute (matrix, vector), store streamed
outputs (transfer, LB to GB; DMA, GB to DDR). Engines issue in list order and wait for the
instructions that an instruction depends on.

With instruction scheduling, weights and inputs are fetched ``prefetch_depth`` tiles ahead of their
compute, over layer boundaries, and one more tile is on its way from DDR to GB; ``"layer"`` keeps
fetches inside their layer, which starts when the layer before it has ended. Without it (``"off"``)
there is no software pipeline: the steps of a tile have one buffer each and run one after another,
which is where Fig. 13 starts from (docs/paper-tables.md has the evidence for this reading). Kernel
boundaries are barriers in any case. Weights and inputs have slots of their own: a weight tile
serves all row tiles of its columns, so the next one is fetched while these are computed.

How many tiles a layer has is decided in :mod:`autoturbo.schedule.tiling`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numba import njit

from autoturbo.compiled import arithmetic, borrowing
from autoturbo.graph.arrays import Ints
from autoturbo.schedule.stitch import Stage
from autoturbo.schedule.tiling import (
    FROM_DDR,
    TO_CORES,
    InstructionRules,
    Rule,
    Tiling,
    tile_counts,
    weight_passes,
)
from autoturbo.schedule.timeline import IN_DDR, IN_GB, LATE_DDR, LATE_GB, OUT_DDR, OUT_GB
from autoturbo.schedule.work import Floats

DMA_IN, TRANSFER, MATRIX_ENGINE, VECTOR_ENGINE, DMA_OUT = range(5)
"""Engine codes of instructions."""

ENGINES = ("dma_in", "transfer", "matrix", "vector", "dma_out")
"""Names of the engines, by code."""


class Column(IntEnum):
    """Integer columns of an instruction.

    Engine, layer position, tile (of weights for those that bring weights), what it does (a
    :class:`Role`), and what it waits for.
    """

    ENGINE = 0
    LAYER = 1
    TILE = 2
    ROLE = 3
    AFTER = 4


INSTRUCTION_COLUMNS = 12
"""Engine, layer, tile, role and up to eight instructions to wait for (-1 for none): two fetches,
one exchange, one free slot, and the last instruction of earlier layers on each of four engines."""


class Role(IntEnum):
    """What an instruction does.

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
    ``SPECIAL`` operations; ``RUN`` the consecutive bytes in DDR of which ``DDR`` consists,
    ``GB_WRITTEN`` the part of ``GB`` that is written and not read, ``EXCHANGED`` the part of
    ``CORE`` that comes from other cores, ``STEPS`` those of a recurrence that it stands for (0: it
    is what it is).
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


AMOUNT_COLUMNS = len(Amount)


@dataclass(frozen=True, slots=True, eq=False)
class Instructions:
    """A kernel's program.

    Attributes:
        where: int64 array (instructions, :data:`INSTRUCTION_COLUMNS`).
        amounts: float64 array (instructions, :data:`AMOUNT_COLUMNS`).
    """

    where: Ints
    amounts: Floats


class _Plan(NamedTuple):
    """What is known before instructions are emitted.

    ``starts`` and ``befores`` are the edges between layers, ``clear_starts`` and ``clear`` those
    layers whose work has to be over; ``first`` and ``first_weight`` count
    tiles and weight tiles before each layer; ``weight_of`` is the weight tile of a tile (-1 for
    none), ``first_use`` and ``last_use`` the first and last tile of a weight tile.
    """

    stages: Floats
    streams: Ints
    starts: Ints
    befores: Ints
    clear_starts: Ints
    clear: Ints
    rules: Ints
    tiles: Ints
    resident: int
    first: Ints
    first_weight: Ints
    owner: Ints
    weight_of: Ints
    weight_owner: Ints
    first_use: Ints
    last_use: Ints


class _Trace(NamedTuple):
    """What has been emitted: the program, and per tile or weight tile who to wait for.

    ``entered``, ``multiplied``, ``applied``, ``left`` and ``saved`` are the last instructions up to
    a tile that brought inputs, computed on the matrix and the vector engine, took results out of
    LB, and to DDR. ``end`` and ``worked`` are the last of a layer and the last that computes it.
    """

    where: Ints
    amounts: Floats
    size: Ints
    weight_dma: Ints
    weight: Ints
    input_dma: Ints
    input: Ints
    late: Ints
    computed: Ints
    stored: Ints
    entered: Ints
    multiplied: Ints
    applied: Ints
    left: Ints
    saved: Ints
    end: Ints
    worked: Ints


def instruct(
    stages: Floats,
    streams: Ints,
    edges: list[tuple[int, ...]],
    rules: InstructionRules,
    *,
    weights_resident: int,
    clear: Sequence[tuple[int, ...]] = (),
) -> Instructions:
    """The instructions of one kernel.

    Args:
        stages: its template's table.
        streams: bytes that its layers move from and to GB and DDR.
        edges: per layer, positions of the layers of the kernel that it waits for.
        rules: knobs and capacities.
        weights_resident: where the weights are already: 0 in DDR only, 1 in GB, 2 in LB.
        clear: per layer, positions of the layers whose work has to be over before it begins, though
            it reads nothing of them; none if empty.
    """
    starts, befores = _flat(edges)
    clear_starts, cleared = _flat(clear or [()] * len(edges))
    table = rules.as_array()
    tiles = tile_counts(stages, streams, table, int(weights_resident))
    plan = _plan(
        stages, streams, starts, befores, clear_starts, cleared, table, tiles,
        int(weights_resident),
    )  # fmt: skip
    where, amounts = _build(plan)
    if rules.serial:
        where[:, Column.AFTER :] = -1
        where[:, Column.AFTER] = np.arange(len(where)) - 1
    return Instructions(where, amounts)


def _flat(positions: Sequence[tuple[int, ...]]) -> tuple[Ints, Ints]:
    """Lists end to end, and where each begins."""
    starts = np.concatenate(([0], np.cumsum([len(p) for p in positions]))).astype(np.int64)
    return starts, np.asarray([p for own in positions for p in own], np.int64)


@arithmetic
def weight_tiles(row: Floats, tiles: Ints) -> Ints:
    """Return the weight tiles that a layer loads, repetitions included."""
    once = tiles[Tiling.PRODUCTS] * tiles[Tiling.COLUMNS] * tiles[Tiling.DEPTHS]
    times = 1 + tiles[Tiling.ROWS_OUTSIDE] * (tiles[Tiling.ROWS] - 1)
    count: Ints = (row[Stage.WEIGHTS] > 0) * once * times
    return count


@njit(cache=True)
def _plan(
    stages: Floats,
    streams: Ints,
    starts: Ints,
    befores: Ints,
    clear_starts: Ints,
    clear: Ints,
    rules: Ints,
    tiles: Ints,
    resident: int,
) -> _Plan:
    """Number the tiles and weight tiles of a kernel."""
    layers = len(stages)
    first, first_weight = np.zeros(layers + 1, np.int64), np.zeros(layers + 1, np.int64)
    for layer in range(layers):
        first[layer + 1] = first[layer] + tiles[layer, : Tiling.ROWS_OUTSIDE].prod()
        first_weight[layer + 1] = first_weight[layer] + weight_tiles(stages[layer], tiles[layer])
    owner = np.empty(first[layers], np.int64)
    weight_of = np.full(first[layers], -1, np.int64)
    weight_owner = np.empty(first_weight[layers], np.int64)
    first_use = np.full(first_weight[layers], first[layers], np.int64)
    last_use = np.empty(first_weight[layers], np.int64)
    for layer in range(layers):
        rows = 1 if tiles[layer, Tiling.ROWS_OUTSIDE] else tiles[layer, Tiling.ROWS]
        owner[first[layer] : first[layer + 1]] = layer
        weight_owner[first_weight[layer] : first_weight[layer + 1]] = layer
        for tile in range(first[layer], first[layer + 1]):
            if first_weight[layer + 1] > first_weight[layer]:
                weight = first_weight[layer] + (tile - first[layer]) // rows
                weight_of[tile], last_use[weight] = weight, tile
                first_use[weight] = min(first_use[weight], tile)
    return _Plan(
        stages, streams, starts, befores, clear_starts, clear, rules, tiles, resident, first,
        first_weight, owner, weight_of, weight_owner, first_use, last_use,
    )  # fmt: skip


@njit(cache=True)
def _new_trace(tiles: int, weights: int, layers: int) -> _Trace:
    most = tiles * 8 + weights * 2
    return _Trace(
        np.full((most, INSTRUCTION_COLUMNS), -1, np.int64), np.zeros((most, AMOUNT_COLUMNS)),
        np.zeros(1, np.int64), np.full(weights, -1, np.int64), np.full(weights, -1, np.int64),
        np.full(tiles, -1, np.int64), np.full(tiles, -1, np.int64), np.full(tiles, -1, np.int64),
        np.full(tiles, -1, np.int64), np.full(tiles, -1, np.int64), np.full(tiles, -1, np.int64),
        np.full(tiles, -1, np.int64), np.full(tiles, -1, np.int64), np.full(tiles, -1, np.int64),
        np.full(tiles, -1, np.int64), np.full(layers, -1, np.int64), np.full(layers, -1, np.int64),
    )  # fmt: skip


@njit(cache=True)
def _build(p: _Plan) -> tuple[Ints, Floats]:
    t = _new_trace(len(p.owner), len(p.weight_owner), len(p.stages))
    done = np.zeros(5, np.int64)  # weight DMA, input DMA, weight and input transfers, exchanges
    _emit_all(p, t, done)
    return t.where[: t.size[0]].copy(), t.amounts[: t.size[0]].copy()


@borrowing
def _emit_all(p: _Plan, t: _Trace, done: Ints) -> None:
    """Emit all tiles of all layers in issue order; ``done`` counts what is fetched by kind."""
    total = len(p.owner)
    ahead, across = p.rules[Rule.AHEAD], p.rules[Rule.ACROSS]
    far = ahead + 1 + p.rules[Rule.HAS_GB]  # without GB there is no room for one more on its way
    weight = 0
    for tile in range(total):
        layer = p.owner[tile]
        weight = max(weight, p.weight_of[tile])
        tiles = total if across else p.first[layer + 1]
        weights = len(p.weight_owner) if across else p.first_weight[layer + 1]
        while done[0] < min(weight + far, weights):
            _weight_dma(p, t, done[0])
            done[0] += 1
        while done[1] < min(tile + far, tiles) and _has_room(p, done[1], done[3]):
            _input_dma(p, t, done[1])
            done[1] += 1
        while done[2] < min(weight + ahead + 1, weights) and p.first_use[done[2]] <= tile + ahead:
            _weight_transfer(p, t, done[2])
            done[2] += 1
        while done[3] < min(tile + ahead + 1, tiles, done[1]):
            _input_transfer(p, t, done[3])
            done[3] += 1
        early = 1 if p.stages[layer, Stage.SEQUENCE] > 0 else 2  # steps exchange what tiles made
        while done[4] < min(tile + early, p.first[layer + 1]):
            _bring(p, t, done[4])
            done[4] += 1
        _compute(p, t, tile)
        _store(p, t, tile)
        if tile == p.first[layer + 1] - 1:
            t.end[layer] = max(t.computed[tile], t.stored[tile])
            t.worked[layer] = t.computed[tile]


@borrowing
def _has_room(p: _Plan, index: int, passed: int) -> bool:
    """Whether inputs of a tile may be fetched now that those of so many tiles have left GB.

    The inputs of two layers are kept in GB at a time: those of the one before last must have left.
    """
    layer = p.owner[index]
    keeps = p.rules[Rule.HAS_GB] and p.tiles[layer, Tiling.KEPT] == 1
    return not keeps or layer < 2 or p.first[layer - 1] <= passed  # noqa: PLR2004


@borrowing
def _emit(where: Ints, size: Ints, engine: int, layer: int, tile: int, role: int) -> int:
    at = int(size[0])
    where[at, Column.ENGINE], where[at, Column.LAYER] = engine, layer
    where[at, Column.TILE], where[at, Column.ROLE] = tile, role
    size[0] = at + 1
    return at


@borrowing
def _wait(where: Ints, at: int, before: int) -> None:
    """Let an instruction wait for another (-1 for none).

    Engines issue in order, so of two on one engine the later is enough.
    """
    if before < 0:
        return
    for column in range(Column.AFTER, INSTRUCTION_COLUMNS):
        other = where[at, column]
        if other < 0:
            where[at, column] = before
            return
        if where[other, Column.ENGINE] == where[before, Column.ENGINE]:
            where[at, column] = max(other, before)
            return


@borrowing
def _wait_for_work(t: _Trace, at: int, tile: int) -> None:
    """Wait until a tile and all before it are computed, whatever engines they are on."""
    if tile >= 0:
        _wait(t.where, at, t.multiplied[tile])
        _wait(t.where, at, t.applied[tile])


@borrowing
def _wait_for_layer_before(p: _Plan, t: _Trace, at: int, layer: int) -> None:
    """Without overlap across layers, nothing of a layer starts before the one before it ended."""
    if layer and not p.rules[Rule.ACROSS]:
        _wait(t.where, at, t.end[layer - 1])


@borrowing
def _wait_for_layers(p: _Plan, t: _Trace, at: int, layer: int) -> None:
    """Wait for the layers whose results a layer reads, or for the one before it without overlap."""
    for position in range(p.starts[layer], p.starts[layer + 1]):
        _wait(t.where, at, t.end[p.befores[position]])
    _wait_for_layer_before(p, t, at, layer)


@borrowing
def _place(tiles: Ints, tile: int) -> tuple[int, int]:
    """Column and depth of a tile of a layer, by its number within the layer."""
    rows, depths = tiles[Tiling.ROWS], tiles[Tiling.DEPTHS]
    weights = tiles[Tiling.COLUMNS] * depths
    inner = tile % (weights * rows)
    weight = inner % weights if tiles[Tiling.ROWS_OUTSIDE] else inner // rows
    return weight // depths, weight % depths


@borrowing
def _inputs_share(tiles: Ints, tile: int) -> tuple[float, bool]:
    """Share of a layer's inputs that a tile reads anew, and whether DDR has to be asked."""
    column, depth = _place(tiles, tile)
    share = 1.0 / (tiles[Tiling.PRODUCTS] * tiles[Tiling.ROWS])
    if tiles[Tiling.ROWS_OUTSIDE]:
        return (share if column + depth == 0 else 0.0), True
    if column and tiles[Tiling.KEPT] == 2:  # noqa: PLR2004  kept in LB
        return 0.0, False
    return share / tiles[Tiling.DEPTHS], column == 0 or tiles[Tiling.KEPT] == 0


@borrowing
def _slot(p: _Plan, t: _Trace, weight: int) -> int:
    """The instruction after which a weight tile's slot in LB is free."""
    before = weight - p.rules[Rule.AHEAD] - 1
    return int(t.computed[p.last_use[before]]) if before >= 0 else -1


@borrowing
def weight_share(row: Floats, tiles: Ints, rules: Ints, source: int) -> float:
    """Return the share of a layer's weights that a weight tile brings, to the cores or from DDR."""
    count = tiles[Tiling.PRODUCTS] * tiles[Tiling.COLUMNS] * tiles[Tiling.DEPTHS]
    return float(weight_passes(row, tiles, rules, source) / count)


@njit(cache=True)
def weight_shares(stages: Floats, tiles: Ints, rules: Ints, which: Ints, source: int) -> Floats:
    """Return :func:`weight_share` of layers, each of which has a row of rules."""
    shares = np.empty(len(stages))
    for layer in range(len(stages)):
        shares[layer] = weight_share(stages[layer], tiles[layer], rules[which[layer]], source)
    return shares


@borrowing
def _load(amounts: Floats, at: int, size: float, run: float, has_gb: int) -> None:
    """Let an instruction load bytes from DDR, through GB where there is one."""
    amounts[at, Amount.DDR] = size
    amounts[at, Amount.RUN] = min(run, size)
    amounts[at, Amount.GB] = amounts[at, Amount.GB_WRITTEN] = size if has_gb else 0.0


@borrowing
def _weight_dma(p: _Plan, t: _Trace, weight: int) -> None:
    """A weight tile from DDR; its slot in GB is free once an earlier one has left.

    Without GB it goes straight to the cores that work on the layer, once for all where the target
    broadcasts.
    """
    layer, has_gb = p.weight_owner[weight], p.rules[Rule.HAS_GB]
    if p.resident:
        return
    at = _emit(t.where, t.size, DMA_IN, layer, weight - p.first_weight[layer], Role.FETCH_WEIGHTS)
    share = weight_share(p.stages[layer], p.tiles[layer], p.rules, FROM_DDR)
    size, core = p.stages[layer, Stage.WEIGHTS] * share, p.stages[layer, Stage.CORE_WEIGHTS] * share
    if not has_gb:
        t.amounts[at, Amount.CORE] = core
        size = size if p.rules[Rule.BROADCAST] else core * p.stages[layer, Stage.CORES]
    _load(t.amounts, at, size, p.stages[layer, Stage.RUN_WEIGHTS], has_gb)
    before = weight - p.rules[Rule.AHEAD] - 1
    if has_gb:
        _wait(t.where, at, t.weight[before] if before >= 0 else -1)
    else:
        _wait(t.where, at, _slot(p, t, weight))
    _wait_for_layer_before(p, t, at, layer)
    t.weight_dma[weight] = t.weight[weight] = at


@borrowing
def _weight_transfer(p: _Plan, t: _Trace, weight: int) -> None:
    """A weight tile from GB to the cores, unless weights stay in LB."""
    layer = p.weight_owner[weight]
    if not p.rules[Rule.HAS_GB] or p.resident == 2:  # noqa: PLR2004
        return
    at = _emit(t.where, t.size, TRANSFER, layer, weight - p.first_weight[layer], Role.PASS_WEIGHTS)
    share = weight_share(p.stages[layer], p.tiles[layer], p.rules, TO_CORES)
    core = p.stages[layer, Stage.CORE_WEIGHTS] * share
    once, each = p.stages[layer, Stage.WEIGHTS] * share, core * p.stages[layer, Stage.CORES]
    t.amounts[at, Amount.GB] = once if p.rules[Rule.BROADCAST] else each
    t.amounts[at, Amount.CORE] = core
    _wait(t.where, at, t.weight_dma[weight])
    _wait(t.where, at, _slot(p, t, weight))
    _wait_for_layer_before(p, t, at, layer)
    t.weight[weight] = at


@borrowing
def _entered(t: _Trace, tile: int) -> int:
    """The last instruction that brought inputs of a tile, or of one before it, from GB to LB.

    The tile itself may be yet to come where fetching begins; its slot in GB is another one then.
    """
    found = int(t.entered[tile]) if tile >= 0 else -1
    return int(t.entered[tile - 1]) if found < 0 < tile else found


@borrowing
def _input_dma(p: _Plan, t: _Trace, index: int) -> None:
    """Inputs of a tile that are in DDR before the kernel starts."""
    layer, has_gb = p.owner[index], p.rules[Rule.HAS_GB]
    tile = index - p.first[layer]
    share, from_ddr = _inputs_share(p.tiles[layer], tile)
    size = p.streams[layer, IN_DDR] * share
    if size <= 0 or not from_ddr:
        return
    at = _emit(t.where, t.size, DMA_IN, layer, tile, Role.FETCH_INPUT)
    _load(t.amounts, at, size, p.stages[layer, Stage.RUN_READ], has_gb)
    t.amounts[at, Amount.CORE] = 0.0 if has_gb else size / p.rules[Rule.CORES]
    before = index - p.rules[Rule.AHEAD] - 1
    if has_gb:
        _wait(t.where, at, _entered(t, before))
        if p.tiles[layer, Tiling.KEPT] == 1 and layer > 1:
            _wait(t.where, at, _entered(t, p.first[layer - 1] - 1))
    else:
        _wait_for_work(t, at, before)
    _wait_for_layer_before(p, t, at, layer)
    t.input_dma[index] = t.input[index] = at


@borrowing
def _input_transfer(p: _Plan, t: _Trace, index: int) -> None:
    """Inputs of a tile from GB to the cores."""
    layer = p.owner[index]
    tile = index - p.first[layer]
    share = _inputs_share(p.tiles[layer], tile)[0]
    size = (p.streams[layer, IN_DDR] + p.streams[layer, IN_GB]) * share
    t.entered[index] = t.entered[index - 1] if index else -1
    if size <= 0 or not p.rules[Rule.HAS_GB]:
        return
    at = _emit(t.where, t.size, TRANSFER, layer, tile, Role.PASS_INPUT)
    t.amounts[at, Amount.GB] = size
    t.amounts[at, Amount.CORE] = size / p.rules[Rule.CORES]
    before = index - p.rules[Rule.AHEAD] - 1
    _wait(t.where, at, t.input_dma[index])
    _wait_for_work(t, at, before)
    _wait_for_layer_before(p, t, at, layer)
    t.input[index] = t.entered[index] = at


@borrowing
def _bring(p: _Plan, t: _Trace, index: int) -> None:
    """What a tile needs from other cores, and inputs that this kernel itself spilled."""
    layer, has_gb = p.owner[index], p.rules[Rule.HAS_GB]
    tile = index - p.first[layer]
    share = _inputs_share(p.tiles[layer], tile)[0]
    ddr, gb = p.streams[layer, LATE_DDR] * share, p.streams[layer, LATE_GB] * share
    core = (p.stages[layer, Stage.EXCHANGED] + p.stages[layer, Stage.STATE]) * share
    if ddr > 0:
        at = _emit(t.where, t.size, DMA_IN, layer, tile, Role.FETCH_LATE)
        _load(t.amounts, at, ddr, p.stages[layer, Stage.RUN_READ], has_gb)
        t.amounts[at, Amount.CORE] = 0.0 if has_gb else ddr / p.rules[Rule.CORES]
        _wait_for_layers(p, t, at, layer)
        _wait_for_work(t, at, index - 2)
        t.late[index] = at
    if core > 0 or (has_gb and gb + ddr > 0):
        at = _emit(t.where, t.size, TRANSFER, layer, tile, Role.PASS_LATE)
        t.amounts[at, Amount.GB] = gb + ddr if has_gb else 0.0
        t.amounts[at, Amount.CORE] = core + ((gb + ddr) / p.rules[Rule.CORES] if has_gb else 0.0)
        t.amounts[at, Amount.EXCHANGED] = core
        t.amounts[at, Amount.STEPS] = exchanges(p.stages[layer]) * share
        _wait_for_layers(p, t, at, layer)
        _wait_for_work(t, at, index - (1 if _follows(p, index) else 2))
        _wait(t.where, at, t.late[index])
        t.late[index] = at


@borrowing
def _follows(p: _Plan, index: int) -> bool:
    """Whether a tile is steps of a recurrence and needs what the tile before made."""
    layer = p.owner[index]
    return bool(p.stages[layer, Stage.SEQUENCE] > 0 and index > p.first[layer])


@borrowing
def _wait_for_inputs(p: _Plan, t: _Trace, at: int, index: int) -> None:
    """What a tile's first compute instruction waits for.

    Operands, the layers that they come from and those whose space it may write to, and, where its
    result leaves LB, room for it.
    """
    weight = p.weight_of[index]
    _wait(t.where, at, t.weight[weight] if weight >= 0 else -1)
    _wait(t.where, at, t.input[index])
    _wait(t.where, at, t.late[index])
    layer = p.owner[index]
    _wait_for_layers(p, t, at, layer)
    for position in range(p.clear_starts[layer], p.clear_starts[layer + 1]):
        _wait(t.where, at, t.worked[p.clear[position]])
    before = index - p.rules[Rule.AHEAD] - 1
    if before >= 0 and p.streams[layer, OUT_GB] + p.streams[layer, OUT_DDR] > 0:
        _wait(t.where, at, t.left[before])


@borrowing
def _compute(p: _Plan, t: _Trace, index: int) -> None:
    """Matrix work of a tile, then, once its reduction is complete, its vector work."""
    layer = p.owner[index]
    row, tile = p.stages[layer], index - p.first[layer]
    tiles = p.tiles[layer]
    depth = _place(tiles, tile)[1]
    share = 1.0 / (tiles[Tiling.PRODUCTS] * tiles[Tiling.COLUMNS] * tiles[Tiling.ROWS])
    written = row[Stage.WRITTEN] * share
    if index:
        t.multiplied[index], t.applied[index] = t.multiplied[index - 1], t.applied[index - 1]
    last = -1
    if row[Stage.MACS] > 0:
        last = _emit(t.where, t.size, MATRIX_ENGINE, layer, tile, Role.MULTIPLY)
        tile_shape(row, tiles, p.rules, t.amounts[last])
        _wait_for_inputs(p, t, last, index)
        _wait_for_work(t, last, index - (1 if _follows(p, index) else 2))
        t.computed[index] = t.multiplied[index] = last
        if depth < tiles[Tiling.DEPTHS] - 1:
            return
    moved = row[Stage.MOVED] * share
    work = row[Stage.VECTOR] + row[Stage.SPECIAL]
    if work + moved > 0 or last < 0:
        at = _emit(t.where, t.size, VECTOR_ENGINE, layer, tile, Role.APPLY)
        t.amounts[at, Amount.VECTOR] = row[Stage.VECTOR] * share
        t.amounts[at, Amount.SPECIAL] = row[Stage.SPECIAL] * share
        t.amounts[at, Amount.STEPS] = row[Stage.SEQUENCE] * share
        if last < 0:
            read = row[Stage.READ] + weight_reads(row)
            t.amounts[at, Amount.LOCAL] = max(read * share + written, 2.0 * moved)
            _wait_for_inputs(p, t, at, index)
        else:
            t.amounts[at, Amount.LOCAL] = (2.0 * written if work > 0 else 0.0) + moved
            _wait(t.where, at, last)
        t.computed[index] = t.applied[index] = at


@arithmetic
def exchanges(row: Floats) -> Floats:
    """Return the steps of a recurrence after which cores exchange what they made."""
    steps: Floats = row[Stage.SEQUENCE] * (row[Stage.STATE] > 0)
    return steps


@arithmetic
def weight_reads(row: Floats) -> Floats:
    """Return the bytes of weights that a core reads from LB: of a recurrence, at every step."""
    size: Floats = row[Stage.CORE_WEIGHTS] * np.maximum(row[Stage.SEQUENCE], 1.0)
    return size


@arithmetic
def tile_shape(
    row: Floats, tiles: Ints, rules: Ints, amounts: Floats | dict[Amount, Floats]
) -> None:
    """Note the product of one tile and the bytes of LB that it touches.

    Partial sums are read and written at twice the width of the result. Where nothing between LB and
    the array holds operands, each block of rows reads the weights and each block of columns the
    inputs.
    """
    products, columns = tiles[Tiling.PRODUCTS], tiles[Tiling.COLUMNS]
    depths, rows = tiles[Tiling.DEPTHS], tiles[Tiling.ROWS]
    count = row[Stage.COUNT] + (row[Stage.COUNT] <= 0)  # a fraction of faster types, 0 without
    amounts[Amount.STEPS] = row[Stage.SEQUENCE] / products
    amounts[Amount.COUNT] = count / products
    amounts[Amount.ROWS] = row[Stage.ROWS] / rows
    amounts[Amount.COLUMNS] = row[Stage.COLUMNS] / columns
    amounts[Amount.DEPTH] = row[Stage.DEPTH] / depths
    sums = 1.0 + 3.0 * (depths > 1)
    down = across = 1.0
    if rules[Rule.REREADS]:
        down = np.ceil(row[Stage.ROWS] / rows / rules[Rule.NATIVE_ROWS])
        across = np.ceil(row[Stage.COLUMNS] / columns / rules[Rule.NATIVE_COLUMNS])
    amounts[Amount.LOCAL] = (
        row[Stage.READ] / (products * rows * depths) * across
        + weight_reads(row) / (products * columns * depths) * down
        + row[Stage.WRITTEN] / (products * rows * columns) * sums
    )


@borrowing
def _store(p: _Plan, t: _Trace, index: int) -> None:
    """Outputs of a tile that are kept in GB or DDR, once its reduction is complete."""
    layer, has_gb = p.owner[index], p.rules[Rule.HAS_GB]
    tiles, tile = p.tiles[layer], index - p.first[layer]
    if index:
        t.left[index], t.saved[index] = t.left[index - 1], t.saved[index - 1]
    if _place(tiles, tile)[1] < tiles[Tiling.DEPTHS] - 1:
        return
    share = 1.0 / (tiles[Tiling.PRODUCTS] * tiles[Tiling.COLUMNS] * tiles[Tiling.ROWS])
    gb, ddr = p.streams[layer, OUT_GB] * share, p.streams[layer, OUT_DDR] * share
    done = t.computed[index]
    if has_gb and gb + ddr > 0:
        at = _emit(t.where, t.size, TRANSFER, layer, tile, Role.STORE)
        t.amounts[at, Amount.GB] = t.amounts[at, Amount.GB_WRITTEN] = gb + ddr
        t.amounts[at, Amount.CORE] = (gb + ddr) / p.rules[Rule.CORES]
        _wait(t.where, at, done)
        before = index - p.rules[Rule.AHEAD] - 1
        if ddr > 0 and before >= 0:
            _wait(t.where, at, t.saved[before])
        t.stored[index] = t.left[index] = done = at
    if ddr > 0:
        at = _emit(t.where, t.size, DMA_OUT, layer, tile, Role.SAVE)
        t.amounts[at, Amount.DDR] = ddr
        t.amounts[at, Amount.RUN] = min(p.stages[layer, Stage.RUN_WRITTEN], ddr)
        t.amounts[at, Amount.CORE] = 0.0 if has_gb else ddr / p.rules[Rule.CORES]
        t.amounts[at, Amount.GB] = ddr if has_gb else 0.0
        _wait(t.where, at, done)
        t.stored[index] = t.saved[index] = at
        if not has_gb:
            t.left[index] = at
