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
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numba import njit

from autoturbo.compiled import borrowing
from autoturbo.graph.arrays import Ints
from autoturbo.schedule.codegen.stages import Stage
from autoturbo.schedule.codegen.tiling import (
    IN_LB,
    InstructionRules,
    Role,
    Roles,
    Tiling,
    TilingRules,
)
from autoturbo.schedule.codegen.work import Flags, Floats

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


class Kernel(NamedTuple):
    """Inputs of a kernel's code generation.

    Attributes:
        stages: Its template's table.
        streams: Bytes that its layers move from and to GB and DDR.
        edges: Per layer, positions of the layers of the kernel that it waits for.
        rules: Knobs and capacities.
        weights_resident: Where the weights are already: 0 in DDR only, 1 in GB, 2 in LB.
        clear: Per layer, positions of the layers whose work has to be over before it begins, though
            it reads nothing of them; none if empty.
    """

    stages: Floats
    streams: Ints
    edges: Sequence[tuple[int, ...]]
    rules: InstructionRules
    weights_resident: int
    clear: Sequence[tuple[int, ...]] = ()


def instruct(kernels: Sequence[Kernel]) -> Iterator[Instructions]:
    """Yield the instructions of kernels of one target, computed in batches of kernels."""
    for start in range(0, len(kernels), TOGETHER):
        batch = kernels[start : start + TOGETHER]
        layers, end = [len(kernel.stages) for kernel in batch], 0
        rules = np.repeat(np.asarray([kernel.rules for kernel in batch], np.int64), layers, axis=0)
        resident = np.repeat([int(kernel.weights_resident) for kernel in batch], layers)
        stages = np.concatenate([kernel.stages for kernel in batch])
        streams = np.concatenate([kernel.streams for kernel in batch])
        known = Roles(stages, streams, TilingRules(*rules.T), resident)
        tiles, weights = np.ascontiguousarray(known.tiles.T), known.weight_tiles()
        emits, steps = np.ascontiguousarray(known.emits.T), stages[:, Stage.SEQUENCE] > 0
        for kernel, count in zip(batch, layers, strict=True):
            span, end = slice(end, end + count), end + count
            where = _program(
                TilingRules(*map(int, kernel.rules)), tiles[span], weights[span], emits[span],
                steps[span], _flat(kernel.edges), _flat(kernel.clear or [()] * count),
            )  # fmt: skip
            amounts = known.amounts[where[:, Column.ROLE], span.start + where[:, Column.LAYER]]
            if kernel.rules.serial:
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
    those whose work has to be over; ``emits`` says per layer which roles its tiles have and
    ``steps`` whether it is a recurrence's; ``first`` and ``first_weight`` count tiles and weight
    tiles before each layer. ``owner`` is the layer and ``weight_of`` the weight tile of a tile (-1
    for none), ``first_use`` and ``last_use`` the first and last tile of a weight tile; ``reads``
    says of each tile whether it reads its share of the inputs, ``asks`` whether DDR has to be asked
    for it, and ``ends`` whether its reduction is complete.

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
    edges: tuple[Ints, Ints]
    clear: tuple[Ints, Ints]
    first: Ints
    first_weight: Ints
    owner: Ints
    weight_of: Ints
    reads: Ints
    asks: Ints
    ends: Ints
    weight_owner: Ints
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


@njit(cache=True)
def _program(
    rules: InstructionRules,
    tiles: Ints,
    weights: Ints,
    emits: Flags,
    steps: Flags,
    edges: tuple[Ints, Ints],
    clear: tuple[Ints, Ints],
) -> Ints:
    """Return the instructions of a kernel, ``(instructions, INSTRUCTION_COLUMNS)``.

    Args:
        rules: Of all layers of the kernel.
        tiles: Tile counts, ``(layers, columns)``, the columns of :class:`Tiling`.
        weights: Weight tiles that each layer loads, ``(layers,)``.
        emits: Whether tiles of a layer have instructions of a role, ``(layers, roles)``.
        steps: Whether a layer is a recurrence's, ``(layers,)``.
        edges: Per layer, where the layers begin that it waits for, and these.
        clear: Likewise those whose work has to be over.
    """
    first, first_weight = np.zeros(len(tiles) + 1, np.int64), np.zeros(len(tiles) + 1, np.int64)
    for layer in range(len(tiles)):
        first[layer + 1] = first[layer] + tiles[layer, : Tiling.ROWS_OUTSIDE].prod()
        first_weight[layer + 1] = first_weight[layer] + weights[layer]
    count, loads = first[-1], first_weight[-1]
    a, b = np.full((14, count), -1, np.int64), np.full((4, loads), -1, np.int64)
    where = np.full((count * 8 + loads * 2, INSTRUCTION_COLUMNS), -1, np.int64)
    p = _Program(
        rules, tiles, emits, steps, edges, clear, first, first_weight,
        a[0], a[1], a[2], a[3], a[4], b[0], b[1], b[2], where, np.zeros(1, np.int64), b[3],
        a[5], a[6], a[7], a[8], a[9], a[10], a[11], a[12], a[13],
    )  # fmt: skip
    for layer in range(len(tiles)):
        _number_tiles(p, layer)
    _emit_all(p, np.zeros(5, np.int64))
    return where[: p.size[0]].copy()


@borrowing
def _number_tiles(p: _Program, layer: int) -> None:
    """Record the properties of a layer's tiles, in the order in which they are computed."""
    columns, depths = p.tiles[layer, Tiling.COLUMNS], p.tiles[layer, Tiling.DEPTHS]
    rows, kept = p.tiles[layer, Tiling.ROWS], p.tiles[layer, Tiling.KEPT]
    outside = p.tiles[layer, Tiling.ROWS_OUTSIDE] > 0
    loads, each = p.first_weight[layer + 1] > p.first_weight[layer], 1 if outside else rows
    for index in range(p.first[layer], p.first[layer + 1]):
        place = index - p.first[layer]
        weight = place // each
        column, depth = weight // depths % columns, weight % depths
        p.owner[index] = layer
        p.reads[index] = column == 0 or kept != IN_LB
        p.asks[index] = p.reads[index] and (column == 0 or kept == 0)
        p.ends[index] = depth == depths - 1
        p.weight_of[index] = number = p.first_weight[layer] + weight if loads else -1
        if loads:
            p.weight_owner[number], p.last_use[number] = layer, index
            if place % each == 0:
                p.first_use[number] = index


@borrowing
def _emit_all(p: _Program, done: Ints) -> None:
    """Emit all tiles of all layers in issue order; ``done`` counts the fetches of each kind."""
    total = len(p.owner)
    ahead, across = p.rules.ahead, p.rules.across
    far = ahead + 1 + p.rules.has_gb  # without GB there is no room for one more on its way
    weight = 0
    for tile in range(total):
        layer = p.owner[tile]
        weight = max(weight, p.weight_of[tile])
        tiles = total if across else p.first[layer + 1]
        weights = len(p.weight_owner) if across else p.first_weight[layer + 1]
        while done[0] < min(weight + far, weights):
            _load(p, Role.FETCH_WEIGHTS, done[0])
            done[0] += 1
        while done[1] < min(tile + far, tiles) and _has_room(p, done[1], done[3]):
            _input_dma(p, done[1])
            done[1] += 1
        while done[2] < min(weight + ahead + 1, weights) and p.first_use[done[2]] <= tile + ahead:
            _load(p, Role.PASS_WEIGHTS, done[2])
            done[2] += 1
        while done[3] < min(tile + ahead + 1, tiles, done[1]):
            _input_transfer(p, done[3])
            done[3] += 1
        early = 1 if p.steps[layer] else 2  # steps exchange what tiles made
        while done[4] < min(tile + early, p.first[layer + 1]):
            _bring(p, done[4])
            done[4] += 1
        _compute(p, tile)
        _store(p, tile)


@borrowing
def _has_room(p: _Program, index: int, passed: int) -> bool:
    """Return whether a tile's inputs may be fetched once the tiles of ``passed`` have left GB.

    GB keeps the inputs of two layers at a time: those of the layer before the last must have left.
    """
    layer = p.owner[index]
    keeps = p.rules.has_gb and p.tiles[layer, Tiling.KEPT] == 1
    return not keeps or layer < 2 or p.first[layer - 1] <= passed  # noqa: PLR2004


@borrowing
def _emit(p: _Program, role: int, layer: int, index: int) -> int:
    """Emit an instruction.

    Args:
        p: The program, which grows by one instruction.
        role: What the instruction does.
        layer: Its layer.
        index: Its tile, or its weight tile where the role brings weights, counted over all layers.

    Returns:
        Its number in the program.
    """
    at = int(p.size[0])
    loads = role in (Role.FETCH_WEIGHTS, Role.PASS_WEIGHTS)
    p.where[at, Column.ENGINE], p.where[at, Column.ROLE] = ENGINE_OF[role], role
    p.where[at, Column.LAYER] = layer
    p.where[at, Column.TILE] = index - (p.first_weight[layer] if loads else p.first[layer])
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
    last = p.first[layer + 1] - 1
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
            _wait(p, at, _entered(p, p.first[layer - 1] - 1))
    else:
        _wait_for_work(p, at, before)
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
            step = role == Role.PASS_LATE and p.steps[layer] and index > p.first[layer]
            _wait_for_work(p, at, index - (1 if step else 2))
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
    _wait_for_layers(p, at, layer)
    starts, over = p.clear
    for position in range(starts[layer], starts[layer + 1]):
        _wait(p, at, p.computed[p.first[over[position] + 1] - 1])
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
        _wait_for_work(p, last, index - (1 if (p.steps[layer] and index > p.first[layer]) else 2))
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
        if saves and before >= 0:
            _wait(p, at, p.saved[before])
        p.stored[index] = p.left[index] = done = at
    if saves:
        at = _emit(p, Role.SAVE, layer, index)
        _wait(p, at, done)
        p.stored[index] = p.saved[index] = at
        if not p.rules.has_gb:
            p.left[index] = at
