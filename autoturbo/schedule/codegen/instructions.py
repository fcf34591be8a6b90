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

How many tiles a layer has is decided in :mod:`autoturbo.schedule.codegen.tiling`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numba import njit

from autoturbo.compiled import borrowing
from autoturbo.graph.arrays import Ints
from autoturbo.schedule.codegen.amounts import Columns, Role, Roles, weight_tiles
from autoturbo.schedule.codegen.stages import Stage
from autoturbo.schedule.codegen.tiling import (
    IN_LB,
    InstructionRules,
    Rule,
    Tiling,
    tile_counts,
)
from autoturbo.schedule.codegen.work import Flags, Floats
from autoturbo.schedule.memory.timeline import OUT_DDR, OUT_GB

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


class _Plan(NamedTuple):
    """What is known before instructions are emitted.

    ``starts`` and ``befores`` are the edges between layers, ``clear_starts`` and ``clear`` those
    layers whose work has to be over; ``emits`` says per layer which roles its tiles have,
    ``leaves`` whether its results leave LB, ``steps`` whether it is a recurrence's; ``first`` and
    ``first_weight`` count tiles and weight tiles before each layer; ``weight_of`` is the weight
    tile of a tile (-1 for none), ``first_use`` and ``last_use`` the first and last tile of a
    weight tile; ``reads`` says of each tile whether it reads its share of the inputs, ``asks``
    whether DDR has to be asked for it, ``ends`` whether its reduction is complete, and ``follows``
    whether it is steps of a recurrence that need what the tile before made.
    """

    rules: Ints
    tiles: Ints
    starts: Ints
    befores: Ints
    clear_starts: Ints
    clear: Ints
    emits: Flags
    leaves: Flags
    steps: Flags
    reads: Flags
    asks: Flags
    ends: Flags
    follows: Flags
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


class Kernel(NamedTuple):
    """What the program of a kernel follows from: the arguments of :func:`instruct`."""

    stages: Floats
    streams: Ints
    edges: Sequence[tuple[int, ...]]
    rules: InstructionRules
    weights_resident: int
    clear: Sequence[tuple[int, ...]] = ()


def instruct(
    stages: Floats,
    streams: Ints,
    edges: Sequence[tuple[int, ...]],
    rules: InstructionRules,
    weights_resident: int,
    clear: Sequence[tuple[int, ...]] = (),
) -> Instructions:
    """Return the instructions of one kernel.

    Args:
        stages: its template's table.
        streams: bytes that its layers move from and to GB and DDR.
        edges: per layer, positions of the layers of the kernel that it waits for.
        rules: knobs and capacities.
        weights_resident: where the weights are already: 0 in DDR only, 1 in GB, 2 in LB.
        clear: per layer, positions of the layers whose work has to be over before it begins, though
            it reads nothing of them; none if empty.
    """
    kernel = Kernel(stages, streams, edges, rules, weights_resident, clear)
    return next(instruct_all([kernel]))


def instruct_all(kernels: Sequence[Kernel]) -> Iterator[Instructions]:
    """Yield the instructions of kernels of one target, some at a time: each step for all layers."""
    for at in range(0, len(kernels), TOGETHER):
        yield from _instruct(kernels[at : at + TOGETHER])


def _instruct(kernels: Sequence[Kernel]) -> Iterator[Instructions]:
    layers = [len(kernel.stages) for kernel in kernels]
    rules = np.stack([kernel.rules.as_array() for kernel in kernels])
    resident = np.repeat([int(kernel.weights_resident) for kernel in kernels], layers)
    stages = np.concatenate([kernel.stages for kernel in kernels])
    streams, each = np.concatenate([k.streams for k in kernels]), np.repeat(rules, layers, axis=0)
    tiles = tile_counts(stages, streams, each, resident)
    known = Roles(Columns(stages.T, streams.T, tiles.T, each.T), resident)
    plans = _plans(kernels, stages, streams, tiles, known.emits)
    for plan, begin in zip(plans, np.cumsum([0, *layers]).tolist(), strict=False):
        trace = _new_trace(len(plan.owner), len(plan.weight_owner), len(plan.tiles))
        _emit_all(plan, trace, np.zeros(5, np.int64))
        where = trace.where[: trace.size[0]].copy()
        amounts = known.amounts[where[:, Column.ROLE], begin + where[:, Column.LAYER]]
        if plan.rules[Rule.SERIAL]:
            where[:, Column.AFTER :] = -1
            where[:, Column.AFTER] = np.arange(len(where)) - 1
        yield Instructions(where, amounts)


def _flat(positions: Sequence[tuple[int, ...]]) -> tuple[Ints, Ints]:
    """Lists end to end, and where each begins."""
    starts = [0, *itertools.accumulate(map(len, positions))]
    return np.asarray(starts, np.int64), np.asarray([p for own in positions for p in own], np.int64)


def _plans(
    kernels: Sequence[Kernel], stages: Floats, streams: Ints, tiles: Ints, emits: Flags
) -> Iterator[_Plan]:
    """Number the tiles and weight tiles of kernels, whose layers come one after another."""
    counts = tiles[:, : Tiling.ROWS_OUTSIDE].prod(axis=1)
    weights = weight_tiles(stages.T, tiles.T)
    first, first_weight = np.append(0, np.cumsum(counts)), np.append(0, np.cumsum(weights))
    layers = np.arange(len(tiles))
    owner, weight_owner = np.repeat(layers, counts), np.repeat(layers, weights)
    place, steps = np.arange(first[-1]) - first[owner], stages[:, Stage.SEQUENCE] > 0
    rows = np.where(tiles[:, Tiling.ROWS_OUTSIDE] > 0, 1, tiles[:, Tiling.ROWS])
    weight_of = first_weight[owner] + place // rows[owner]
    weight_of = np.where(weights[owner] > 0, weight_of, -1)
    with_weights = np.flatnonzero(weight_of >= 0)
    used, numbers = weight_of[with_weights], np.arange(first_weight[-1])  # ascending, both
    first_use = with_weights[np.searchsorted(used, numbers)]
    last_use = with_weights[np.searchsorted(used, numbers, side="right") - 1]
    by_tile = *_reads(tiles[owner].T, place), steps[owner] & (place > 0)
    by_layer = np.ascontiguousarray(emits.T), streams[:, _OUT].sum(axis=1) > 0, steps
    end = 0
    for kernel in kernels:  # each counts from 0
        begin, end = end, end + len(kernel.stages)
        own, bounds = slice(begin, end), slice(begin, end + 1)
        tile, weight = int(first[begin]), int(first_weight[begin])
        of, of_weights = slice(tile, first[end]), slice(weight, first_weight[end])
        yield _Plan._make((
            kernel.rules.as_array(), tiles[own], *_flat(kernel.edges),
            *_flat(kernel.clear or [()] * len(kernel.stages)), *(a[own] for a in by_layer),
            *(a[of] for a in by_tile), first[bounds] - tile, first_weight[bounds] - weight,
            owner[of] - begin, np.maximum(weight_of[of] - weight, -1),
            weight_owner[of_weights] - begin, first_use[of_weights] - tile,
            last_use[of_weights] - tile,
        ))  # fmt: skip


_OUT = [OUT_GB, OUT_DDR]


def _reads(tiles: Ints, place: Ints) -> tuple[Flags, Flags, Flags]:
    """Return which tiles read their share of inputs, which ask DDR, and which end a reduction.

    Args:
        tiles: per tile, how its layer is cut, by column.
        place: of each tile in its layer.
    """
    outside, kept, depths = tiles[Tiling.ROWS_OUTSIDE] > 0, tiles[Tiling.KEPT], tiles[Tiling.DEPTHS]
    weights = tiles[Tiling.COLUMNS] * depths
    inner = place % (weights * tiles[Tiling.ROWS])
    weight = np.where(outside, inner % weights, inner // tiles[Tiling.ROWS])
    column, depth = np.divmod(weight, depths)
    reads = np.where(outside, weight == 0, (column == 0) | (kept != IN_LB))
    asks = reads & (outside | (column == 0) | (kept == 0))
    return reads, asks, depth == depths - 1


def _new_trace(tiles: int, weights: int, layers: int) -> _Trace:
    def none(shape: tuple[int, int]) -> Ints:
        return np.full(shape, -1, np.int64)

    return _Trace._make((
        none((tiles * 8 + weights * 2, INSTRUCTION_COLUMNS)), np.zeros(1, np.int64),
        *none((2, weights)), *none((10, tiles)), *none((2, layers)),
    ))  # fmt: skip


@njit(cache=True)
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
        early = 1 if p.steps[layer] else 2  # steps exchange what tiles made
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
def _slot(p: _Plan, t: _Trace, weight: int) -> int:
    """The instruction after which a weight tile's slot in LB is free."""
    before = weight - p.rules[Rule.AHEAD] - 1
    return int(t.computed[p.last_use[before]]) if before >= 0 else -1


@borrowing
def _weight_dma(p: _Plan, t: _Trace, weight: int) -> None:
    """Emit a weight tile from DDR; its slot in GB is free once an earlier one has left.

    Without GB it goes straight to the cores that work on the layer, once for all where the target
    broadcasts.
    """
    layer = p.weight_owner[weight]
    if not p.emits[layer, Role.FETCH_WEIGHTS]:
        return
    at = _emit(t.where, t.size, DMA_IN, layer, weight - p.first_weight[layer], Role.FETCH_WEIGHTS)
    before = weight - p.rules[Rule.AHEAD] - 1
    if p.rules[Rule.HAS_GB]:
        _wait(t.where, at, t.weight[before] if before >= 0 else -1)
    else:
        _wait(t.where, at, _slot(p, t, weight))
    _wait_for_layer_before(p, t, at, layer)
    t.weight_dma[weight] = t.weight[weight] = at


@borrowing
def _weight_transfer(p: _Plan, t: _Trace, weight: int) -> None:
    """Emit a weight tile from GB to the cores, unless weights stay in LB."""
    layer = p.weight_owner[weight]
    if not p.emits[layer, Role.PASS_WEIGHTS]:
        return
    at = _emit(t.where, t.size, TRANSFER, layer, weight - p.first_weight[layer], Role.PASS_WEIGHTS)
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
    """Emit inputs of a tile that are in DDR before the kernel starts."""
    layer = p.owner[index]
    tile = index - p.first[layer]
    if not (p.emits[layer, Role.FETCH_INPUT] and p.asks[index]):
        return
    at = _emit(t.where, t.size, DMA_IN, layer, tile, Role.FETCH_INPUT)
    before = index - p.rules[Rule.AHEAD] - 1
    if p.rules[Rule.HAS_GB]:
        _wait(t.where, at, _entered(t, before))
        if p.tiles[layer, Tiling.KEPT] == 1 and layer > 1:
            _wait(t.where, at, _entered(t, p.first[layer - 1] - 1))
    else:
        _wait_for_work(t, at, before)
    _wait_for_layer_before(p, t, at, layer)
    t.input_dma[index] = t.input[index] = at


@borrowing
def _input_transfer(p: _Plan, t: _Trace, index: int) -> None:
    """Emit inputs of a tile from GB to the cores."""
    layer = p.owner[index]
    tile = index - p.first[layer]
    t.entered[index] = t.entered[index - 1] if index else -1
    if not (p.emits[layer, Role.PASS_INPUT] and p.reads[index]):
        return
    at = _emit(t.where, t.size, TRANSFER, layer, tile, Role.PASS_INPUT)
    _wait(t.where, at, t.input_dma[index])
    _wait_for_work(t, at, index - p.rules[Rule.AHEAD] - 1)
    _wait_for_layer_before(p, t, at, layer)
    t.input[index] = t.entered[index] = at


@borrowing
def _bring(p: _Plan, t: _Trace, index: int) -> None:
    """Emit what a tile needs from other cores, and inputs that this kernel itself spilled."""
    layer = p.owner[index]
    tile = index - p.first[layer]
    if not p.reads[index]:
        return
    if p.emits[layer, Role.FETCH_LATE]:
        at = _emit(t.where, t.size, DMA_IN, layer, tile, Role.FETCH_LATE)
        _wait_for_layers(p, t, at, layer)
        _wait_for_work(t, at, index - 2)
        t.late[index] = at
    if p.emits[layer, Role.PASS_LATE]:
        at = _emit(t.where, t.size, TRANSFER, layer, tile, Role.PASS_LATE)
        _wait_for_layers(p, t, at, layer)
        _wait_for_work(t, at, index - (1 if p.follows[index] else 2))
        _wait(t.where, at, t.late[index])
        t.late[index] = at


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
    if before >= 0 and p.leaves[layer]:
        _wait(t.where, at, t.left[before])


@borrowing
def _compute(p: _Plan, t: _Trace, index: int) -> None:
    """Emit matrix work of a tile, then, once its reduction is complete, its vector work."""
    layer = p.owner[index]
    tile = index - p.first[layer]
    if index:
        t.multiplied[index], t.applied[index] = t.multiplied[index - 1], t.applied[index - 1]
    last = -1
    if p.emits[layer, Role.MULTIPLY]:
        last = _emit(t.where, t.size, MATRIX_ENGINE, layer, tile, Role.MULTIPLY)
        _wait_for_inputs(p, t, last, index)
        _wait_for_work(t, last, index - (1 if p.follows[index] else 2))
        t.computed[index] = t.multiplied[index] = last
        if not p.ends[index]:
            return
    if p.emits[layer, Role.APPLY]:
        at = _emit(t.where, t.size, VECTOR_ENGINE, layer, tile, Role.APPLY)
        if last < 0:
            _wait_for_inputs(p, t, at, index)
        else:
            _wait(t.where, at, last)
        t.computed[index] = t.applied[index] = at


@borrowing
def _store(p: _Plan, t: _Trace, index: int) -> None:
    """Emit outputs of a tile that are kept in GB or DDR, once its reduction is complete."""
    layer = p.owner[index]
    tile = index - p.first[layer]
    if index:
        t.left[index], t.saved[index] = t.left[index - 1], t.saved[index - 1]
    if not p.ends[index]:
        return
    done, saves = t.computed[index], p.emits[layer, Role.SAVE]
    if p.emits[layer, Role.STORE]:
        at = _emit(t.where, t.size, TRANSFER, layer, tile, Role.STORE)
        _wait(t.where, at, done)
        before = index - p.rules[Rule.AHEAD] - 1
        if saves and before >= 0:
            _wait(t.where, at, t.saved[before])
        t.stored[index] = t.left[index] = done = at
    if saves:
        at = _emit(t.where, t.size, DMA_OUT, layer, tile, Role.SAVE)
        _wait(t.where, at, done)
        t.stored[index] = t.saved[index] = at
        if not p.rules[Rule.HAS_GB]:
            t.left[index] = at
