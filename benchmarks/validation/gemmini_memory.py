"""What a Gemmini program asks of the caches behind its DMA, tile by tile.

Gemmini has a scratchpad, but its DMA reads and writes through a cached system. How many lines come
from L2, from the cache behind it or from memory depends on addresses, so the program's requests are
walked in order: inputs (row, column, channel), weights (kernel row, kernel column, input channel,
output channel) and outputs (row, column, channel), each array on its own, as Gemmini's library lays
them out.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numba import njit

from autoturbo.graph.arrays import Ints

LINE = 64
"""Bytes of a cache line, and the longest request of the DMA."""

BEAT = 16
"""Bytes of the bus a cycle."""

L2_SETS, BEHIND_SETS, WAYS = 1024, 8192, 8
"""512 KiB of L2 (Chipyard's default) and 4 MiB of last-level cache (FireSim's memory model)."""

_WEIGHTS, _OUTPUTS = 1 << 32, 1 << 33


class Tile(IntEnum):
    """Columns of a table of tiles: begin and end in each dimension of the layer.

    Output rows (Q) and columns (P), output channels (K), kernel rows (S) and columns (R), input
    channels (C).
    """

    Q = 0
    P = 2
    K = 4
    S = 6
    R = 8
    C = 10


TILE_COLUMNS = 12


class Use(IntEnum):
    """Columns of what tiles ask for, for reading, then for writing.

    ``BEATS`` on the bus, ``LINES`` missed in L2, how many of these were missed behind it too
    (``FAR``), and ``DIRTY`` lines that left L2 to make room.
    """

    READ_BEATS = 0
    READ_LINES = 1
    READ_FAR = 2
    READ_DIRTY = 3
    WRITE_BEATS = 4
    WRITE_LINES = 5
    WRITE_FAR = 6
    WRITE_DIRTY = 7


@dataclass(frozen=True, slots=True)
class Shape:
    """A layer.

    Attributes:
        k: Output channels.
        c: Input channels.
        p: Output columns.
        q: Output rows.
        r: Kernel columns.
        s: Kernel rows.
        stride: Of the kernel.
    """

    k: int
    c: int
    p: int
    q: int
    r: int
    s: int
    stride: int

    def as_array(self) -> Ints:
        """Return it for compiled code; the image's extents are the output's times the stride."""
        return np.asarray([self.k, self.c, self.p, self.q, self.r, self.s, self.stride], np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class Caches:
    """L2 and the cache behind it: tag and dirty flag per set and way. Changed by every walk."""

    tags: Ints
    dirty: Ints
    tags_behind: Ints
    dirty_behind: Ints
    chance: Ints

    @staticmethod
    def empty() -> Caches:
        """Return caches that are both empty."""
        return Caches(
            np.full((L2_SETS, WAYS), -1, np.int64), np.zeros((L2_SETS, WAYS), np.int64),
            np.full((BEHIND_SETS, WAYS), -1, np.int64), np.zeros((BEHIND_SETS, WAYS), np.int64),
            np.ones(1, np.int64),
        )  # fmt: skip

    def walk(self, shape: Shape, tiles: Ints) -> Ints:
        """Return what each tile asks for: array (tiles, :class:`Use`).

        The next tile's loads come before a tile's stores.
        """
        used = np.zeros((len(tiles), len(Use)), np.int64)
        state = (self.tags, self.dirty, self.tags_behind, self.dirty_behind, self.chance)
        layer = shape.as_array()
        for step in range(len(tiles) + 1):
            if step < len(tiles):
                _read_inputs(state, layer, tiles[step], used[step])
                _read_weights(state, layer, tiles[step], used[step])
            if step:
                _write_outputs(state, layer, tiles[step - 1], used[step - 1])
        return used


State = tuple[Ints, Ints, Ints, Ints, Ints]


@njit(cache=True)
def _touch(tags: Ints, dirty: Ints, line: int, write: int, chance: Ints) -> int:
    """Use a line.

    Replacement is at random (SiFive's inclusive cache), by a generator with a fixed start.

    Returns:
        0 if it is there, 1 if it comes in, 2 if a dirty one leaves for it.
    """
    row = line % len(tags)
    way = -1
    for candidate in range(WAYS):
        if tags[row, candidate] == line:
            dirty[row, candidate] |= write
            return 0
        if way < 0 and tags[row, candidate] < 0:
            way = candidate
    if way < 0:
        chance[0] = (chance[0] * 1103515245 + 12345) % (1 << 31)
        way = (chance[0] >> 16) % WAYS
    leaving = tags[row, way] >= 0 and dirty[row, way] == 1
    tags[row, way], dirty[row, way] = line, write
    return 2 if leaving else 1


@njit(cache=True)
def _lines(state: State, start: int, size: int, used: Ints, first: int) -> None:
    """Use the lines of some bytes; ``first`` is the column of lines missed."""
    tags, dirty, tags_behind, dirty_behind, chance = state
    write = int(first == Use.WRITE_LINES)
    for line in range(start // LINE, (start + size - 1) // LINE + 1):
        found = _touch(tags, dirty, line, write, chance)
        if found:
            used[first] += 1
            used[first + 1] += min(_touch(tags_behind, dirty_behind, line, write, chance), 1)
            used[first + 2] += found - 1


@njit(cache=True)
def _beats(start: int, size: int) -> int:
    """Count beats to read some bytes: the smallest aligned blocks that cover each chunk of 64."""
    beats, at, end = 0, start, start + size
    while at < end:
        stop = min((at // LINE + 1) * LINE, end, start + ((at - start) // LINE + 1) * LINE)
        block = BEAT
        while at // block * block + block < stop:
            block *= 2
        beats += block // BEAT
        at = stop
    return beats


@njit(cache=True)
def _read(state: State, start: int, size: int, used: Ints) -> None:
    used[Use.READ_BEATS] += _beats(start, size)
    _lines(state, start, size, used, Use.READ_LINES)


@njit(cache=True)
def _read_inputs(state: State, layer: Ints, tile: Ints, used: Ints) -> None:
    """Read the pixels that a tile's kernel positions reach, padding left out."""
    channels, wide, high, stride = layer[1], layer[2] * layer[6], layer[3] * layer[6], layer[6]
    pad_columns, pad_rows = layer[4] // 2, layer[5] // 2
    top = tile[Tile.Q] * stride + tile[Tile.S] - pad_rows
    bottom = (tile[Tile.Q + 1] - 1) * stride + tile[Tile.S + 1] - pad_rows
    left = tile[Tile.P] * stride + tile[Tile.R] - pad_columns
    right = (tile[Tile.P + 1] - 1) * stride + tile[Tile.R + 1] - pad_columns
    size = tile[Tile.C + 1] - tile[Tile.C]
    for row in range(max(top, 0), min(bottom, high)):
        for column in range(max(left, 0), min(right, wide)):
            _read(state, (row * wide + column) * channels + tile[Tile.C], size, used)


@njit(cache=True)
def _read_weights(state: State, layer: Ints, tile: Ints, used: Ints) -> None:
    size = tile[Tile.K + 1] - tile[Tile.K]
    for row in range(tile[Tile.S], tile[Tile.S + 1]):
        for column in range(tile[Tile.R], tile[Tile.R + 1]):
            position = (row * layer[4] + column) * layer[1]
            for channel in range(tile[Tile.C], tile[Tile.C + 1]):
                start = _WEIGHTS + (position + channel) * layer[0] + tile[Tile.K]
                _read(state, start, size, used)


@njit(cache=True)
def _write_outputs(state: State, layer: Ints, tile: Ints, used: Ints) -> None:
    """Write sixteen channels of a pixel at a time, once the reduction is complete."""
    complete = tile[Tile.S + 1] == layer[5] and tile[Tile.R + 1] == layer[4]
    if not complete or tile[Tile.C + 1] != layer[1]:
        return
    for row in range(tile[Tile.Q], tile[Tile.Q + 1]):
        for column in range(tile[Tile.P], tile[Tile.P + 1]):
            pixel = _OUTPUTS + (row * layer[2] + column) * layer[0]
            for channel in range(tile[Tile.K], tile[Tile.K + 1], BEAT):
                size = min(BEAT, tile[Tile.K + 1] - channel)
                used[Use.WRITE_BEATS] += 1
                _lines(state, pixel + channel, size, used, Use.WRITE_LINES)
