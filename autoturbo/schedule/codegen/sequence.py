"""Order in which the tiles of a kernel are computed.

Layer by layer, or in turn: the last layer goes first that has a tile whose operands are made, so
that one layer's products run beside another's vector work. What layers read of each other is told
in units: the tiles of a layer divide its products or its rows, and a unit is all tiles of one
division. A tile waits for the last unit that has something that it reads.

A layer takes no turns with others (it is solid) while what it reads or adds up stays in LB from one
tile to the next beside its tensors: that room is counted for one layer at a time. A tile of weights
needs a slot, so a layer with weights begins early only if none before it still has to load some.
"""

from __future__ import annotations

import numpy as np

from autoturbo.compiled import borrowing, compiled
from autoturbo.graph.arrays import Ints
from autoturbo.schedule.codegen.tiling import IN_LB, Tiling
from autoturbo.schedule.stitch.lines import PARTS, TileReads
from autoturbo.schedule.stitch.stages import Stage
from autoturbo.schedule.streams import IN_DDR, READ
from autoturbo.schedule.work import Flags, Floats

WINDOW = 6
"""Layers after the first unfinished one that may take turns with it."""

LAG = 1
"""Tiles that a layer makes meanwhile before one that it has made is read: their products run beside
the vector work of that one."""


@borrowing
def space(tiles: Ints, layer: int) -> int:
    """Return what a layer's tiles divide: 0 for products, or rows without one, 1 for rows."""
    return 0 if tiles[layer, Tiling.PRODUCTS] > 1 else 1


@borrowing
def units(tiles: Ints, layer: int) -> int:
    """Return how many units a layer has."""
    return int(tiles[layer, Tiling.PRODUCTS if space(tiles, layer) == 0 else Tiling.ROWS])


@borrowing
def unit_of(tiles: Ints, layer: int, place: int) -> int:
    """Return the unit of a layer's tile."""
    rows = tiles[layer, Tiling.ROWS]
    across = tiles[layer, Tiling.COLUMNS] * tiles[layer, Tiling.DEPTHS]
    if space(tiles, layer) == 0:
        return int(place // (across * rows))
    return int(place // across if tiles[layer, Tiling.ROWS_OUTSIDE] else place % rows)


@borrowing
def unit_end(tiles: Ints, layer: int, unit: int) -> int:
    """Return the last tile of a layer's unit."""
    rows = tiles[layer, Tiling.ROWS]
    across = tiles[layer, Tiling.COLUMNS] * tiles[layer, Tiling.DEPTHS]
    if space(tiles, layer) == 0:
        return int((unit + 1) * across * rows - 1)
    return int((unit + 1) * across - 1 if tiles[layer, Tiling.ROWS_OUTSIDE]
               else (across - 1) * rows + unit)  # fmt: skip


@borrowing
def tile_read(reads: TileReads, tiles: Ints, edge: int, maker: int, layer: int, place: int) -> int:
    """Return the last tile of another layer that a tile reads.

    Args:
        reads: What tiles of the kernel read of other layers.
        tiles: Tile counts of the kernel's layers.
        edge: Number of the edge between the two layers.
        maker: The layer that is read.
        layer: The layer that reads it.
        place: The tile of that one.

    Returns:
        The last of all its tiles where which of them are read is not known.
    """
    made, count = units(tiles, maker), units(tiles, layer)
    here, there = space(tiles, layer), space(tiles, maker)
    lines = reads.lines[maker, there]
    if made == 1 or lines <= 0:
        return unit_end(tiles, maker, made - 1)
    # Rounded up to a part that is known: a tile may wait for more than it reads, never for less.
    part = -(-(unit_of(tiles, layer, place) + 1) * PARTS // count) - 1
    need = reads.needs[edge, here, there, part]
    if need < 0:
        return unit_end(tiles, maker, made - 1)
    unit = max(-(-need * made // lines) - 1, 0)
    return unit_end(tiles, maker, min(unit, made - 1))


def solid_layers(tiles: Ints, stages: Floats, streams: Ints) -> Flags:
    """Return which layers take no turns with others, ``(layers,)``.

    Recurrences, and those that keep streams or sums in LB from one tile to the next.

    Args:
        tiles: Tile counts, ``(layers, columns)``.
        stages: Stages of the layers.
        streams: Bytes that they move from and to GB and DDR.
    """
    reads = streams[:, READ].any(axis=1) | (stages[:, Stage.EXCHANGED] > 0)
    again = tiles[:, Tiling.COLUMNS] * tiles[:, Tiling.DEPTHS] > 1
    in_gb = (tiles[:, Tiling.KEPT] != IN_LB) & (streams[:, IN_DDR] > 0)
    found: Flags = reads & (again | in_gb)
    return found | (tiles[:, Tiling.DEPTHS] > 1) | (stages[:, Stage.SEQUENCE] > 0)


@compiled
def in_turn(
    tiles: Ints,
    loads: Ints,
    solid: Flags,
    edges: tuple[Ints, Ints],
    clear: tuple[Ints, Ints],
    reads: TileReads,
    slots: int,
) -> tuple[Ints, Ints]:
    """Return the layer of every tile of a kernel, in turn, and its place in that layer.

    Args:
        tiles: Tile counts, ``(layers, columns)``, the columns of :class:`.tiling.Tiling`.
        loads: Weight tiles that each layer loads, ``(layers,)``.
        solid: Per layer, whether it takes no turns, ``(layers,)``.
        edges: Per layer, where the layers begin that it waits for, and these.
        clear: Per layer, where the layers begin whose work has to be over, and these.
        reads: Reads of other layers by tiles.
        slots: Number of slots for tiles of weights.
    """
    layers = len(tiles)
    count = np.ones(layers, np.int64)
    for layer in range(layers):
        count[layer] = tiles[layer, : Tiling.ROWS_OUTSIDE].prod()
    total = count.sum()
    owner, places = np.empty(total, np.int64), np.empty(total, np.int64)
    done, opened = np.zeros(layers, np.int64), np.zeros(layers, np.int64)
    left = np.zeros(loads.sum() + 1, np.int64)  # tiles that still use each tile of weights
    current = np.full(layers, -1)  # of them, which a layer uses
    number, lowest, emitted = 0, 0, 0
    while emitted < total:
        while done[lowest] == count[lowest]:
            lowest += 1
        chosen = lowest
        # Bounded, since every tile looks at all layers of the window.
        top = min(lowest + WINDOW, layers - 1)
        # A solid layer that has begun ends first: the room of its streams is counted for it alone.
        alone = solid[lowest] and done[lowest] > 0
        # From the back, so that products of one layer run beside vector work of another.
        for layer in range(top, lowest if not alone else top, -1):
            if done[layer] == count[layer]:
                continue
            if _ready(layer, lowest, count, done, tiles, loads, opened, solid, edges, clear, reads):
                # Tiles later in this order may use its slot: they would wait for each other.
                fresh = loads[layer] > 0 and _opens(tiles, layer, done[layer], opened[layer])
                if fresh and number >= slots and left[number - slots] > 0:
                    continue
                chosen = layer
                break
        place = done[chosen]
        if loads[chosen] > 0:
            if _opens(tiles, chosen, place, opened[chosen]):
                each = 1 if tiles[chosen, Tiling.ROWS_OUTSIDE] else tiles[chosen, Tiling.ROWS]
                current[chosen], left[number] = number, each
                opened[chosen] += 1
                number += 1
            left[current[chosen]] -= 1
        owner[emitted], places[emitted] = chosen, place
        done[chosen] += 1
        emitted += 1
    return owner, places


@borrowing
def _opens(tiles: Ints, layer: int, place: int, opened: int) -> bool:
    """Return whether a tile is the first that reads its tile of weights."""
    each = 1 if tiles[layer, Tiling.ROWS_OUTSIDE] else tiles[layer, Tiling.ROWS]
    return bool(place // each >= opened)


@borrowing
def _ready(  # noqa: PLR0913  compiled: arrays by position
    layer: int,
    lowest: int,
    count: Ints,
    done: Ints,
    tiles: Ints,
    loads: Ints,
    opened: Ints,
    solid: Flags,
    edges: tuple[Ints, Ints],
    clear: tuple[Ints, Ints],
    reads: TileReads,
) -> bool:
    """Return whether a layer's next tile may go before the rest of earlier layers."""
    if solid[layer]:
        return False
    place = done[layer]
    fresh = loads[layer] > 0 and _opens(tiles, layer, place, opened[layer])
    for other in range(lowest, layer):
        if done[other] < count[other] and (
            solid[other] or (fresh and opened[other] < loads[other])
        ):
            return False
    starts, over = clear
    for position in range(starts[layer], starts[layer + 1]):
        if done[over[position]] < count[over[position]]:
            return False
    starts, makers = edges
    for edge in range(starts[layer], starts[layer + 1]):
        maker = makers[edge]
        if done[maker] < count[maker]:
            last = tile_read(reads, tiles, edge, maker, layer, place)
            if done[maker] < min(last + 1 + LAG, count[maker]):
                return False
    return True
