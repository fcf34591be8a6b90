"""Across-layer instruction scheduling: GraphTurbo, OSDI '23, section 4.4, Fig. 13.

A kernel becomes a list of instructions on five engines. Each tile of a layer is: fetch weights and
streamed inputs (DMA, DDR to GB; transfer, GB to LB), compute (matrix, vector), store streamed
outputs (transfer, LB to GB; DMA, GB to DDR). Engines issue in list order and wait for the
instructions that an instruction depends on.

With instruction scheduling, weights and inputs are fetched ``prefetch_depth`` tiles ahead of their
compute, over layer boundaries, and one more tile is on its way from DDR to GB. A layer starts when
the layers that it reads have ended; with ``"tiles"`` each of its tiles starts when the tiles that
it reads have, and tiles of several layers are computed in turn. ``"layer"`` keeps
fetches inside their layer, which starts when the layer before it has ended. Without it (``"off"``)
there is no software pipeline: the steps of a tile have one buffer each and run one after another,
which is where Fig. 13 starts from (docs/paper-tables.md has the evidence for this reading). Kernel
boundaries are barriers in any case. Weights and inputs have slots of their own: a weight tile
serves all row tiles of its columns, so the next one is fetched while these are computed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

import numpy as np

from autoturbo.compiled import borrowing, compiled
from autoturbo.graph.arrays import Ints
from autoturbo.schedule.codegen.sequence import in_turn, solid_layers, tile_read
from autoturbo.schedule.codegen.tiling import (
    BY_TILES,
    IN_LB,
    InstructionRules,
    Role,
    Roles,
    Tiling,
    TilingRules,
    tile_counts,
)
from autoturbo.schedule.stitch.lines import NOTHING_KNOWN, TileReads
from autoturbo.schedule.stitch.stages import Stage
from autoturbo.schedule.work import Flags, Floats

DMA_IN, TRANSFER, MATRIX_ENGINE, VECTOR_ENGINE, DMA_OUT = range(5)
"""Engine codes of instructions."""

ENGINES = ("dma_in", "transfer", "matrix", "vector", "dma_out")
"""Names of the engines, by code."""

ENGINE_OF = np.asarray((
    DMA_IN, TRANSFER, DMA_IN, TRANSFER, DMA_IN, TRANSFER, MATRIX_ENGINE, VECTOR_ENGINE, TRANSFER,
    DMA_OUT,
))  # fmt: skip
"""Which engine has the instructions of a :class:`Role`."""


class Column(IntEnum):
    """Integer columns of an instruction.

    Engine, layer position, tile (of weights for those that move weights), kind (a :class:`Role`),
    and the instructions that it waits for.
    """

    ENGINE = 0
    LAYER = 1
    TILE = 2
    ROLE = 3
    AFTER = 4


INSTRUCTION_COLUMNS = 12
"""Engine, layer, tile, role and up to eight instructions to wait for (-1 for none): two fetches,
one exchange, one free slot, and the last instruction of earlier layers on each of four engines."""

NO_ORDER = np.zeros(0, np.int64), np.zeros(0, np.int64)
"""Order of the tiles of a kernel that computes them layer by layer."""

TOGETHER = 64
"""Kernels whose tiles are numbered at once: few enough for memory."""


@dataclass(frozen=True, slots=True, eq=False)
class Instructions:
    """A kernel's program.

    Attributes:
        where: int64 array (instructions, :data:`INSTRUCTION_COLUMNS`).
        amounts: float64 array (instructions, :data:`AMOUNT_COLUMNS`).
    """

    where: Ints
    amounts: Floats


NO_RATES = np.zeros(0)
"""In place of the target's where the tiles of no kernel are chosen by cost."""


class Kernel(NamedTuple):
    """Inputs of a kernel's code generation.

    Attributes:
        stages: Stage table of its template.
        streams: Bytes that its layers move from and to GB and DDR.
        edges: Per layer, positions of the layers of the kernel that it waits for.
        rules: Knobs and capacities.
        weights_resident: Place of the weights: 0 in DDR only, 1 in GB, 2 in LB.
        clear: Per layer, positions of the layers whose work has to be over before it begins, though
            it reads nothing of them; none if empty.
        rates: Rates of the target, which matter where tiles are chosen by cost.
        reads: Reads of other layers by tiles, where they wait for tiles.
    """

    stages: Floats
    streams: Ints
    edges: Sequence[tuple[int, ...]]
    rules: InstructionRules
    weights_resident: int
    clear: Sequence[tuple[int, ...]] = ()
    rates: Floats = NO_RATES
    reads: TileReads = NOTHING_KNOWN

    @property
    def tiles(self) -> Ints:
        """Return the tile counts of its layers, ``(layers, len(Tiling))``."""
        return tile_counts(self.stages, self.streams, self.rules, self.weights_resident, self.rates)


def instruct(kernels: Sequence[Kernel]) -> Iterator[Instructions]:
    """Yield the instructions of kernels of one target, computed in batches of kernels."""
    for start in range(0, len(kernels), TOGETHER):
        batch = kernels[start : start + TOGETHER]
        layers, end = [len(kernel.stages) for kernel in batch], 0
        rules = np.repeat(np.asarray([kernel.rules for kernel in batch], np.int64), layers, axis=0)
        resident = np.repeat([int(kernel.weights_resident) for kernel in batch], layers)
        stages = np.concatenate([kernel.stages for kernel in batch])
        streams = np.concatenate([kernel.streams for kernel in batch])
        known = Roles(stages, streams, TilingRules(*rules.T), resident, batch[0].rates)
        tiles, weights = np.ascontiguousarray(known.tiles.T), known.weight_tiles()
        emits, steps = np.ascontiguousarray(known.emits.T), stages[:, Stage.SEQUENCE] > 0
        for kernel, count in zip(batch, layers, strict=True):
            span, end = slice(end, end + count), end + count
            edges, clear = _flat(kernel.edges), _flat(kernel.clear or [()] * count)
            own = TilingRules(*map(int, kernel.rules))
            order, apart = NO_ORDER, np.zeros(count, np.bool_)
            if own.across == BY_TILES and len(kernel.reads.lines):
                apart = solid_layers(tiles[span], kernel.stages, kernel.streams)
                order = in_turn(
                    tiles[span], weights[span], apart, edges, clear, kernel.reads, own.ahead + 1
                )
            where = _program(
                own, tiles[span], weights[span], emits[span], steps[span], apart, edges, clear,
                kernel.reads, order,
            )  # fmt: skip
            amounts = known.amounts[where[:, Column.ROLE], span.start + where[:, Column.LAYER]]
            if kernel.rules.serial:
                # Each instruction waits for the one before it, and so for all.
                where[:, Column.AFTER :] = -1
                where[:, Column.AFTER] = np.arange(len(where)) - 1
            yield Instructions(where, amounts)


def _flat(positions: Sequence[tuple[int, ...]]) -> tuple[Ints, Ints]:
    """Return lists concatenated, and the offset of each."""
    starts = np.cumsum([0, *map(len, positions)])
    return starts, np.asarray([p for entries in positions for p in entries], np.int64)


class _Program(NamedTuple):
    """State of code generation: a kernel, its tiles and weight tiles, and the emitted instructions.

    ``edges`` says where the layers begin that each layer waits for, and these, ``clear`` likewise
    those whose work has to be over, ``known`` what tiles read of other layers; ``emits`` says per
    layer which roles its tiles have, ``steps`` whether it is a recurrence's and ``solid`` whether
    it takes no turns with others that do; ``first`` and
    ``first_weight`` count tiles and weight tiles of the layers before each. Tiles and weight tiles
    are numbered as they are computed and used: ``number`` is that of every tile of every layer in
    turn, ``number_weight`` likewise; ``begin`` and ``last`` are the first and the last tile of a
    layer, ``over`` the tiles up to the last of it and of all layers before. ``owner`` is the layer
    of a tile, ``place`` its place there, and ``weight_of`` its weight tile (-1 for none),
    ``weight_place`` that one's place in its layer, ``first_use`` and ``last_use`` the first and
    last tile of a weight tile; ``reads`` says of each tile whether it reads its share of the
    inputs, ``asks`` whether DDR has to be asked for it, and ``ends`` whether its reduction is
    complete.

    ``where`` is the program and ``size`` its length. Of each tile or weight tile there is the
    instruction to wait for: ``weight`` and ``input`` that brought it nearest, ``late`` likewise of
    what the kernel made, ``computed`` and ``stored``; ``entered``, ``multiplied``, ``applied``,
    ``left`` and ``saved`` are the last instructions up to a tile that brought inputs, computed on
    the matrix and the vector engine, took results out of LB, and to DDR.
    """

    rules: InstructionRules
    tiles: Ints
    emits: Flags
    steps: Flags
    solid: Flags
    edges: tuple[Ints, Ints]
    clear: tuple[Ints, Ints]
    known: TileReads
    first: Ints
    first_weight: Ints
    begin: Ints
    last: Ints
    over: Ints
    number: Ints
    number_weight: Ints
    owner: Ints
    place: Ints
    weight_of: Ints
    reads: Ints
    asks: Ints
    ends: Ints
    weight_owner: Ints
    weight_place: Ints
    first_use: Ints
    last_use: Ints
    where: Ints
    size: Ints
    weight: Ints
    input: Ints
    late: Ints
    computed: Ints
    stored: Ints
    entered: Ints
    multiplied: Ints
    applied: Ints
    left: Ints
    saved: Ints


@compiled
def _program(  # noqa: PLR0913  compiled: arrays by position
    rules: InstructionRules,
    tiles: Ints,
    weights: Ints,
    emits: Flags,
    steps: Flags,
    solid: Flags,
    edges: tuple[Ints, Ints],
    clear: tuple[Ints, Ints],
    known: TileReads,
    order: tuple[Ints, Ints],
) -> Ints:
    """Return the instructions of a kernel, ``(instructions, INSTRUCTION_COLUMNS)``.

    Args:
        rules: Rules of all layers of the kernel.
        tiles: Tile counts, ``(layers, columns)``, the columns of :class:`Tiling`.
        weights: Weight tiles that each layer loads, ``(layers,)``.
        emits: Whether tiles of a layer have instructions of a role, ``(layers, roles)``.
        steps: Whether a layer is a recurrence's, ``(layers,)``.
        solid: Whether a layer takes no turns with others that do, ``(layers,)``.
        edges: Per layer, where the layers begin that it waits for, and these.
        clear: Per layer, where the layers begin whose work has to be over, and these.
        known: Reads of other layers by tiles.
        order: Layer of each tile and its place there, as they are computed; layer by layer if
            empty.
    """
    first, first_weight = np.zeros(len(tiles) + 1, np.int64), np.zeros(len(tiles) + 1, np.int64)
    for layer in range(len(tiles)):
        first[layer + 1] = first[layer] + tiles[layer, : Tiling.ROWS_OUTSIDE].prod()
        first_weight[layer + 1] = first_weight[layer] + weights[layer]
    count, loads, layers = first[-1], first_weight[-1], len(tiles)
    a, b = np.full((16, count), -1, np.int64), np.full((6, loads), -1, np.int64)
    spans = np.zeros((3, layers), np.int64)
    # At most eight instructions a tile: fetch and pass inputs, those of the kernel's own making
    # too, multiply, apply, store, save. A tile of weights is fetched and passed.
    where = np.full((count * 8 + loads * 2, INSTRUCTION_COLUMNS), -1, np.int64)
    p = _Program(
        rules=rules, tiles=tiles, emits=emits, steps=steps, solid=solid, edges=edges, clear=clear,
        known=known, first=first, first_weight=first_weight, where=where,
        size=np.zeros(1, np.int64),
        # per layer
        begin=spans[0], last=spans[1], over=spans[2],
        # per tile
        owner=a[0], weight_of=a[1], reads=a[2], asks=a[3], ends=a[4], input=a[5], late=a[6],
        computed=a[7], stored=a[8], entered=a[9], multiplied=a[10], applied=a[11], left=a[12],
        saved=a[13], place=a[14], number=a[15],
        # per weight tile
        weight_owner=b[0], first_use=b[1], last_use=b[2], weight=b[3], weight_place=b[4],
        number_weight=b[5],
    )  # fmt: skip
    used, at = 0, 0
    if len(order[0]):
        for tile in range(count):
            used = _number_tile(p, tile, order[0][tile], order[1][tile], used)
    else:
        for layer in range(layers):
            for place in range(first[layer + 1] - first[layer]):
                used = _number_tile(p, at, layer, place, used)
                at += 1
    for layer in range(layers):
        p.over[layer] = max(p.last[layer] + 1, p.over[layer - 1] if layer else 0)
    _emit_all(p, np.zeros(5, np.int64))
    return where[: p.size[0]].copy()


@borrowing
def _number_tile(p: _Program, tile: int, layer: int, place: int, used: int) -> int:
    """Record the properties of a tile.

    Args:
        p: The program.
        tile: Number of the tile in the program.
        layer: Layer that the tile belongs to.
        place: Place of the tile in its layer.
        used: Weight tiles that are used so far.

    Returns:
        Weight tiles that are used with it.
    """
    columns, depths = p.tiles[layer, Tiling.COLUMNS], p.tiles[layer, Tiling.DEPTHS]
    rows, kept = p.tiles[layer, Tiling.ROWS], p.tiles[layer, Tiling.KEPT]
    outside = p.tiles[layer, Tiling.ROWS_OUTSIDE] > 0
    weight = place if outside else place // rows
    column, depth = weight // depths % columns, weight % depths
    p.owner[tile], p.place[tile], p.number[p.first[layer] + place] = layer, place, tile
    if place == 0:
        p.begin[layer] = tile
    p.last[layer] = tile
    p.reads[tile] = column == 0 or kept != IN_LB
    p.asks[tile] = p.reads[tile] and (column == 0 or kept == 0)
    p.ends[tile] = depth == depths - 1
    if p.first_weight[layer + 1] == p.first_weight[layer]:
        return used
    # Row tiles of one column share a tile of weights, which gets its number from the first of them.
    known = p.first_weight[layer] + weight
    if p.number_weight[known] < 0:
        p.number_weight[known], p.first_use[used] = used, tile
        p.weight_owner[used], p.weight_place[used] = layer, weight
        used += 1
    number = p.number_weight[known]
    p.weight_of[tile], p.last_use[number] = number, tile
    return used


@borrowing
def _emit_all(p: _Program, done: Ints) -> None:
    """Emit all tiles of all layers in issue order.

    Args:
        p: The program, which grows.
        done: Tiles so far whose weights (0) and inputs (1) are fetched, whose weights (2) and
            inputs (3) are passed to the cores, and whose other inputs are brought (4).
    """
    total = len(p.owner)
    ahead, across = p.rules.ahead, p.rules.across
    # Engines issue in list order, so what is fetched ahead stands before the tile that is computed.
    far = ahead + 1 + p.rules.has_gb  # without GB there is no room for one more on its way
    turns = (
        across == BY_TILES
    )  # slots in LB become free later: one in GB is when its tile is passed
    weight = 0
    for tile in range(total):
        layer = p.owner[tile]
        weight = max(weight, p.weight_of[tile])
        tiles = total if across else p.over[layer]
        weights = len(p.weight_owner) if across else p.first_weight[layer + 1]
        while done[0] < min(weight + far, weights) and (
            not turns or done[0] <= done[2] + ahead + 1
        ):
            _load(p, Role.FETCH_WEIGHTS, done[0])
            done[0] += 1
        while (
            done[1] < min(tile + far, tiles)
            and _has_room(p, done[1], done[3])
            and (p.rules.has_gb or _may_stay(p, done[1], tile))
        ):
            _input_dma(p, done[1])
            done[1] += 1
        while done[2] < min(weight + ahead + 1, weights) and _has_slot(p, done[2], tile):
            _load(p, Role.PASS_WEIGHTS, done[2])
            done[2] += 1
        # No pass before its fetch is emitted (``done[1]``): it waits for the number of that.
        while done[3] < min(tile + ahead + 1, tiles, done[1]) and _may_stay(p, done[3], tile):
            _input_transfer(p, done[3])
            done[3] += 1
        early = 1 if p.steps[layer] else 2  # steps exchange what tiles made
        # what of other layers is brought has to be made
        while done[4] < min(tile + early, total) and _is_made(p, done[4], tile):
            _bring(p, done[4])
            done[4] += 1
        _compute(p, tile)
        _store(p, tile)


@borrowing
def _has_slot(p: _Program, weight: int, tile: int) -> bool:
    """Return whether a weight tile is passed to the cores before a tile is computed.

    It is needed soon, and what was in its slot has been used.
    """
    before = weight - p.rules.ahead - 1
    over = before < 0 or p.last_use[before] < tile
    return bool(over and p.first_use[weight] <= tile + p.rules.ahead)


@borrowing
def _has_room(p: _Program, index: int, passed: int) -> bool:
    """Return whether a tile's inputs may be fetched once the tiles of ``passed`` have left GB.

    GB keeps the inputs of two layers at a time: those of the layer before the last must have left.
    """
    layer = p.owner[index]
    keeps = p.rules.has_gb and p.tiles[layer, Tiling.KEPT] == 1
    return not keeps or layer < 2 or p.over[layer - 2] <= passed  # noqa: PLR2004


@borrowing
def _is_made(p: _Program, index: int, tile: int) -> bool:
    """Return whether what a tile reads is computed before another tile, in a program's order."""
    layer = p.owner[index]
    if layer == p.owner[tile] or index <= tile:
        return True
    if p.rules.across != BY_TILES:
        return False
    starts, befores = p.edges
    for position in range(starts[layer], starts[layer + 1]):
        if p.last[befores[position]] >= tile:
            return False
    return not p.solid[layer] or _may_stay(p, index, tile)


@borrowing
def _may_stay(p: _Program, index: int, tile: int) -> bool:
    """Return whether inputs may come that stay in LB: all is computed but the layer before."""
    layer = p.owner[index]
    return not p.solid[layer] or layer < 2 or p.over[layer - 2] <= tile  # noqa: PLR2004


@borrowing
def _wait_to_stay(p: _Program, at: int, layer: int) -> None:
    """Wait until inputs that stay in LB have their room: tensors of earlier layers had it."""
    if p.solid[layer] and layer > 1:
        _wait_for_work(p, at, p.over[layer - 2] - 1)


@borrowing
def _emit(p: _Program, role: int, layer: int, index: int) -> int:
    """Emit an instruction.

    Args:
        p: The program, which grows by one instruction.
        role: Role of the instruction.
        layer: Layer that it works for.
        index: Its tile, or its weight tile where the role brings weights, counted over all layers.

    Returns:
        Its number in the program.
    """
    at = int(p.size[0])
    loads = role in (Role.FETCH_WEIGHTS, Role.PASS_WEIGHTS)
    p.where[at, Column.ENGINE], p.where[at, Column.ROLE] = ENGINE_OF[role], role
    p.where[at, Column.LAYER] = layer
    p.where[at, Column.TILE] = p.weight_place[index] if loads else p.place[index]
    p.size[0] = at + 1
    return at


@borrowing
def _wait(p: _Program, at: int, before: int) -> None:
    """Add a dependence of one instruction on another (-1 for none).

    Engines issue in order, so of two on one engine the later is enough.
    """
    if before < 0:
        return
    where = p.where
    # Columns cannot run out: there is one for each kind of wait (:data:`INSTRUCTION_COLUMNS`).
    for column in range(Column.AFTER, INSTRUCTION_COLUMNS):
        other = where[at, column]
        if other < 0:
            where[at, column] = before
            return
        if where[other, Column.ENGINE] == where[before, Column.ENGINE]:
            where[at, column] = max(other, before)
            return


@borrowing
def _wait_for_work(p: _Program, at: int, tile: int) -> None:
    """Wait until a tile and all before it are computed, on both engines."""
    if tile >= 0:
        _wait(p, at, p.multiplied[tile])
        _wait(p, at, p.applied[tile])


@borrowing
def _wait_for_layer(p: _Program, at: int, layer: int) -> None:
    """Wait until a layer has ended: its last tile is computed, and stored if it leaves LB."""
    last = p.last[layer]
    # Numbers in a program ascend: the later of the two ends the tile.
    _wait(p, at, max(p.computed[last], p.stored[last]))


@borrowing
def _wait_for_layer_before(p: _Program, at: int, layer: int) -> None:
    """Start no instruction of a layer before the previous one ended, without overlap of layers."""
    if layer and not p.rules.across:
        _wait_for_layer(p, at, layer - 1)


@borrowing
def _wait_for_layers(p: _Program, at: int, layer: int) -> None:
    """Wait for the layers whose results a layer reads, or for the one before it without overlap."""
    starts, befores = p.edges
    for position in range(starts[layer], starts[layer + 1]):
        _wait_for_layer(p, at, befores[position])
    _wait_for_layer_before(p, at, layer)


@borrowing
def _wait_for_tiles(p: _Program, at: int, index: int) -> None:
    """Wait for what a tile reads of other layers: these, or their tiles where that is known."""
    layer = p.owner[index]
    if not len(p.known.lines):
        _wait_for_layers(p, at, layer)
        return
    starts, befores = p.edges
    for edge in range(starts[layer], starts[layer + 1]):
        maker = befores[edge]
        place = tile_read(p.known, p.tiles, edge, maker, layer, p.place[index])
        read = p.number[p.first[maker] + place]
        if read == p.last[maker]:
            _wait_for_layer(p, at, maker)
        else:
            _wait(p, at, p.computed[read])


@borrowing
def _load(p: _Program, role: int, weight: int) -> None:
    """Emit a weight tile from DDR, or from GB to the cores, once it has a free slot.

    Without GB it goes from DDR straight to the cores that work on the layer, once for all where the
    target broadcasts.
    """
    layer = p.weight_owner[weight]
    if not p.emits[layer, role]:
        return
    at = _emit(p, role, layer, weight)
    _wait(p, at, p.weight[weight])
    before = weight - p.rules.ahead - 1
    if before >= 0:
        to_gb = role == Role.FETCH_WEIGHTS and p.rules.has_gb
        _wait(p, at, p.weight[before] if to_gb else p.computed[p.last_use[before]])
        if to_gb and before and p.rules.across == BY_TILES:  # the tile after it may have to wait
            _wait(p, at, p.weight[before - 1])
    _wait_for_layer_before(p, at, layer)
    p.weight[weight] = at


@borrowing
def _entered(p: _Program, tile: int) -> int:
    """Return the last instruction that moved inputs of a tile, or of one before it, from GB to LB.

    The tile itself may not be fetched yet when fetching begins; its slot in GB is another one then.
    """
    found = int(p.entered[tile]) if tile >= 0 else -1
    return int(p.entered[tile - 1]) if found < 0 < tile else found


@borrowing
def _input_dma(p: _Program, index: int) -> None:
    """Emit the inputs of a tile that are in DDR before the kernel starts."""
    layer = p.owner[index]
    if not (p.emits[layer, Role.FETCH_INPUT] and p.asks[index]):
        return
    at = _emit(p, Role.FETCH_INPUT, layer, index)
    before = index - p.rules.ahead - 1
    if p.rules.has_gb:
        _wait(p, at, _entered(p, before))
        if p.tiles[layer, Tiling.KEPT] == 1 and layer > 1:
            _wait(p, at, _entered(p, p.over[layer - 2] - 1))
    else:
        _wait_for_work(p, at, before)
        _wait_to_stay(p, at, layer)
    _wait_for_layer_before(p, at, layer)
    p.input[index] = at


@borrowing
def _input_transfer(p: _Program, index: int) -> None:
    """Emit the inputs of a tile from GB to the cores."""
    layer = p.owner[index]
    p.entered[index] = p.entered[index - 1] if index else -1
    if not (p.emits[layer, Role.PASS_INPUT] and p.reads[index]):
        return
    at = _emit(p, Role.PASS_INPUT, layer, index)
    _wait(p, at, p.input[index])
    _wait_for_work(p, at, index - p.rules.ahead - 1)
    _wait_to_stay(p, at, layer)
    _wait_for_layer_before(p, at, layer)
    p.input[index] = p.entered[index] = at


@borrowing
def _bring(p: _Program, index: int) -> None:
    """Emit the inputs of a tile from other cores, and those that this kernel spilled."""
    layer = p.owner[index]
    for role in (Role.FETCH_LATE, Role.PASS_LATE):
        if p.reads[index] and p.emits[layer, role]:
            at = _emit(p, role, layer, index)
            _wait_for_layers(p, at, layer)
            # The state comes from the step before, so the tile before has to be computed. Else two
            # tiles have room at a time.
            step = role == Role.PASS_LATE and p.steps[layer] and index > p.begin[layer]
            _wait_for_work(p, at, index - (1 if step else 2))
            _wait_to_stay(p, at, layer)
            _wait(p, at, p.late[index])
            p.late[index] = at


@borrowing
def _wait_for_inputs(p: _Program, at: int, index: int) -> None:
    """Add the dependences of a tile's first compute instruction.

    They are its operands, the layers that these come from, the layers whose space it may overwrite,
    and room for its result if that leaves LB.
    """
    weight = p.weight_of[index]
    _wait(p, at, p.weight[weight] if weight >= 0 else -1)
    _wait(p, at, p.input[index])
    _wait(p, at, p.late[index])
    layer = p.owner[index]
    _wait_for_tiles(p, at, index)
    starts, over = p.clear
    for position in range(starts[layer], starts[layer + 1]):
        _wait(p, at, p.computed[p.last[over[position]]])
    before = index - p.rules.ahead - 1
    if before >= 0 and (p.emits[layer, Role.STORE] or p.emits[layer, Role.SAVE]):
        _wait(p, at, p.left[before])


@borrowing
def _compute(p: _Program, index: int) -> None:
    """Emit the matrix work of a tile and, once its reduction is complete, its vector work."""
    layer = p.owner[index]
    if index:
        p.multiplied[index], p.applied[index] = p.multiplied[index - 1], p.applied[index - 1]
    last = -1
    if p.emits[layer, Role.MULTIPLY]:
        last = _emit(p, Role.MULTIPLY, layer, index)
        _wait_for_inputs(p, last, index)
        # Two tiles have room at a time, one on each compute engine. A recurrence's step reads what
        # the one before has made, and has one.
        _wait_for_work(p, last, index - (1 if (p.steps[layer] and index > p.begin[layer]) else 2))
        p.computed[index] = p.multiplied[index] = last
        if not p.ends[index]:
            return
    if p.emits[layer, Role.APPLY]:
        at = _emit(p, Role.APPLY, layer, index)
        if last < 0:
            _wait_for_inputs(p, at, index)
        else:
            _wait(p, at, last)
        p.computed[index] = p.applied[index] = at


@borrowing
def _store(p: _Program, index: int) -> None:
    """Emit the outputs of a tile that are kept in GB or DDR, once its reduction is complete."""
    layer = p.owner[index]
    if index:
        p.left[index], p.saved[index] = p.left[index - 1], p.saved[index - 1]
    if not p.ends[index]:
        return
    done, saves = p.computed[index], p.emits[layer, Role.SAVE]
    if p.emits[layer, Role.STORE]:
        at = _emit(p, Role.STORE, layer, index)
        _wait(p, at, done)
        before = index - p.rules.ahead - 1
        # A slot in GB is free again once its tile is in DDR.
        if saves and before >= 0:
            _wait(p, at, p.saved[before])
        p.stored[index] = p.left[index] = done = at
    if saves:
        at = _emit(p, Role.SAVE, layer, index)
        _wait(p, at, done)
        p.stored[index] = p.saved[index] = at
        if not p.rules.has_gb:
            p.left[index] = at
