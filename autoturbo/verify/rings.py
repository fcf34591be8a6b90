"""Slots of the staging zones and weight buffers: which instruction fills one, which reads it.

Streams and weights pass a few slots in turn (a ring). What is brought in is a piece; a slot holds a
unit of one or more pieces, and is filled anew when as many units have come after it as the ring has
slots. Which tile uses what is worked out from the table of tiles, not from the program.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from autoturbo.graph.arrays import Ints
from autoturbo.schedule.instructions import Column, Role
from autoturbo.schedule.stitch import Stage
from autoturbo.schedule.tiling import InstructionRules
from autoturbo.schedule.work import Floats

Bools = NDArray[np.bool_]


class Ring(IntEnum):
    """Rings of slots, in LB of every core and in GB."""

    WEIGHTS_IN_LB = 0
    WEIGHTS_IN_GB = 1
    INPUTS_IN_LB = 2
    INPUTS_IN_GB = 3
    KEPT_INPUTS_IN_GB = 4
    LATE_INPUTS_IN_LB = 5
    LATE_INPUTS_IN_GB = 6
    RESULTS_IN_LB = 7
    RESULTS_IN_GB = 8
    SUMS_IN_LB = 9


class Event(IntEnum):
    """Columns of a table of events: instruction, ring, piece, unit, 1 for writing."""

    INSTRUCTION = 0
    RING = 1
    PIECE = 2
    UNIT = 3
    WRITES = 4


def ring_slots(rules: InstructionRules) -> Ints:
    """How many slots each ring has.

    One is computed from while ``ahead`` are fetched, and one more is on its way from DDR to GB.
    What tiles exchange is fetched one tile ahead; inputs that stay in GB are those of two layers;
    the matrix engine makes one tile's sums while the vector engine works on another's.
    """
    here = rules.ahead + 1
    return np.asarray([here, here + 1, here, here + 1, 2, 2, 2, here, here, 2], np.int64)


class Tiles(NamedTuple):
    """The tiles of a kernel in order; all entries but the last two count over the whole kernel.

    ``weight`` is the tile of weights that a tile reads; ``source`` the tile whose inputs it reads
    in LB, ``from_gb`` the one whose inputs in GB; ``held`` the first tile of those whose inputs
    share a slot; ``final`` is True where a reduction is complete; ``kept`` where inputs stay in GB.
    """

    first: Ints
    weight: Ints
    source: Ints
    from_gb: Ints
    held: Ints
    final: Bools
    kept: Bools
    first_weight: Ints


def tiles_of(counts: Ints, stages: Floats) -> Tiles:
    """What the tiles of a kernel share, from its table of tiles."""
    first, first_weight = [0], [0]
    columns: list[list[NDArray[np.int64]]] = [[] for _ in range(6)]
    for row, stage in zip(counts, stages, strict=True):
        own = _layer_tiles(row)
        for column, values, base in zip(
            columns, own, (first_weight[-1], *(first[-1],) * 3, 0, 0), strict=True
        ):
            column.append(values + base)
        has = stage[Stage.WEIGHTS] > 0
        first_weight.append(first_weight[-1] + (int(own[0].max()) + 1 if has else 0))
        first.append(first[-1] + len(own[0]))
    weight, source, from_gb, held, final, kept = (np.concatenate(c) for c in columns)
    return Tiles(
        np.asarray(first), weight, source, from_gb, held, final > 0, kept > 0,
        np.asarray(first_weight),
    )  # fmt: skip


def _layer_tiles(row: Ints) -> tuple[Ints, ...]:
    """Per tile of a layer: weight tile, source, source in GB, slot, final and kept."""
    products, columns, depths, rows, outside, keeps = row.tolist()
    weights = columns * depths
    tile = np.arange(products * weights * rows)
    base, inner = tile // (weights * rows) * (weights * rows), tile % (weights * rows)
    weight, line = (inner % weights, inner // weights) if outside else (inner // rows, inner % rows)
    depth = weight % depths
    begin = base + depth * rows + line
    source = base + line * weights if outside else begin if keeps == 2 else tile  # noqa: PLR2004
    from_gb = tile if outside or not keeps else begin
    held = source if outside or columns == 1 or keeps != 2 else base  # noqa: PLR2004
    return (
        tile if outside else tile // rows, source, from_gb, held,
        (depth == depths - 1).astype(np.int64), np.full(len(tile), keeps == 1 and not outside),
    )  # fmt: skip


def events_of(where: Ints, tiles: Tiles, rules: InstructionRules, resident: int) -> Ints:
    """All fillings and readings of slots by a program: a row per :class:`Event`."""
    kernel = _Kernel(where, tiles, rules)
    found = [*_weights(kernel, resident), *_inputs(kernel), *_late(kernel), *_results(kernel)]
    return np.concatenate(found) if found else np.zeros((0, len(Event)), np.int64)


class _Kernel:
    """A program by roles: instructions and the tiles, over the whole kernel, that they are for."""

    def __init__(self, where: Ints, tiles: Tiles, rules: InstructionRules) -> None:
        role, layer = where[:, Column.ROLE], where[:, Column.LAYER]
        self.tiles, self.rules = tiles, rules
        self.role, self.layer = role, layer
        brings = (role == Role.FETCH_WEIGHTS) | (role == Role.PASS_WEIGHTS)
        base = np.where(brings, tiles.first_weight[layer], tiles.first[layer])
        self.tile = base + where[:, Column.TILE]

    def of(self, *roles: Role) -> Ints:
        """Instructions with some roles."""
        return np.flatnonzero(np.isin(self.role, roles))

    @property
    def computes(self) -> Ints:
        """Instructions that compute."""
        return self.of(Role.MULTIPLY, Role.APPLY)


def _rows(ring: Ring, instructions: Ints, pieces: Ints, units: Ints, *, writes: bool) -> Ints:
    table = np.empty((len(instructions), len(Event)), np.int64)
    table[:, Event.INSTRUCTION], table[:, Event.RING] = instructions, ring
    table[:, Event.PIECE], table[:, Event.UNIT] = pieces, units
    table[:, Event.WRITES] = writes
    return table


def _ring(
    ring: Ring, writers: Ints, written: Ints, readers: Ints, read: Ints, held: Ints | None = None
) -> list[Ints]:
    """Events of one ring: who writes and reads which pieces, and the unit of each piece.

    Units are numbered as they come; readers of what is not brought in do not take part.
    """
    if not len(writers):
        return []
    kept = np.isin(read, written)
    readers, read = readers[kept], read[kept]
    unit_of = written if held is None else held[written]
    order = np.unique(unit_of)
    reads = np.searchsorted(order, read if held is None else held[read])
    return [
        _rows(ring, writers, written, np.searchsorted(order, unit_of), writes=True),
        _rows(ring, readers, read, reads, writes=False),
    ]


def _weights(kernel: _Kernel, resident: int) -> list[Ints]:
    """Weights: from DDR to GB and on to LB, or straight to LB where there is no GB."""
    fetched, passed = kernel.of(Role.FETCH_WEIGHTS), kernel.of(Role.PASS_WEIGHTS)
    arriving = passed if kernel.rules.has_gb else fetched
    computes = kernel.computes
    has = np.diff(kernel.tiles.first_weight) > 0
    computes = computes[has[kernel.layer[computes]]] if resident != 2 else computes[:0]  # noqa: PLR2004
    weight = kernel.tiles.weight[kernel.tile[computes]]
    found = _ring(Ring.WEIGHTS_IN_LB, arriving, kernel.tile[arriving], computes, weight)
    if kernel.rules.has_gb:
        tile = kernel.tile
        found += _ring(Ring.WEIGHTS_IN_GB, fetched, tile[fetched], passed, tile[passed])
    return found


def _inputs(kernel: _Kernel) -> list[Ints]:
    """Inputs that were there before the kernel."""
    fetched, passed = kernel.of(Role.FETCH_INPUT), kernel.of(Role.PASS_INPUT)
    found = _arriving(kernel, Ring.INPUTS_IN_LB, passed if kernel.rules.has_gb else fetched)
    if not kernel.rules.has_gb:
        return found
    kept, tile = kernel.tiles.kept, kernel.tile
    for ring, stays in ((Ring.INPUTS_IN_GB, False), (Ring.KEPT_INPUTS_IN_GB, True)):
        put = fetched[kept[tile[fetched]] == stays]
        taken = passed[kept[tile[passed]] == stays]
        held = _first_of_layer(kernel.tiles) if stays else None
        source = kernel.tiles.from_gb[tile[taken]]
        found += _ring(ring, put, tile[put], taken, source, held)
    return found


def _first_of_layer(tiles: Tiles) -> Ints:
    return np.repeat(tiles.first[:-1], np.diff(tiles.first))


def _arriving(kernel: _Kernel, ring: Ring, arriving: Ints) -> list[Ints]:
    """What arrives in LB for tiles."""
    computes, tiles = kernel.computes, kernel.tiles
    source = tiles.source[kernel.tile[computes]]
    return _ring(ring, arriving, kernel.tile[arriving], computes, source, tiles.held)


def _late(kernel: _Kernel) -> list[Ints]:
    """What comes from other cores, and what the kernel itself spilled."""
    fetched, passed = kernel.of(Role.FETCH_LATE), kernel.of(Role.PASS_LATE)
    if not kernel.rules.has_gb:
        return _arriving(kernel, Ring.LATE_INPUTS_IN_LB, np.sort(np.append(fetched, passed)))
    tile = kernel.tile
    found = _arriving(kernel, Ring.LATE_INPUTS_IN_LB, passed)
    return found + _ring(Ring.LATE_INPUTS_IN_GB, fetched, tile[fetched], passed, tile[passed])


def _results(kernel: _Kernel) -> list[Ints]:
    """Results on their way to GB and DDR, once their reductions are complete."""
    stored, saved, tile = kernel.of(Role.STORE), kernel.of(Role.SAVE), kernel.tile
    leaving = stored if kernel.rules.has_gb else saved
    computes = kernel.computes
    made = computes[np.isin(tile[computes], tile[leaving])]
    found = _sums(kernel) + _ring(Ring.RESULTS_IN_LB, made, tile[made], leaving, tile[leaving])
    if kernel.rules.has_gb:
        put = stored[np.isin(tile[stored], tile[saved])]
        found += _ring(Ring.RESULTS_IN_GB, put, tile[put], saved, tile[saved])
    return found


def _sums(kernel: _Kernel) -> list[Ints]:
    """Products that vector work follows."""
    multiplied, applied, tile = kernel.of(Role.MULTIPLY), kernel.of(Role.APPLY), kernel.tile
    multiplied = multiplied[np.isin(tile[multiplied], tile[applied])]
    return _ring(Ring.SUMS_IN_LB, multiplied, tile[multiplied], applied, tile[applied])
