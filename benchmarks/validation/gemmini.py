"""Gemmini's own programs on our engines, against Gemmini's RTL (DOSA's FireSim runs).

A row has a layer, a mapping that DOSA found and the tiling that Gemmini's library chooses, with the
cycles that the RTL took for each. Both are turned into the program that Gemmini runs - per tile:
load inputs and weights, compute block by block, store - and simulated on
``examples/targets/gemmini.yaml``. Beside them stand the cycles that Timeloop estimates.

How a mapping is run (DOSA's artefact, Gemmini's library and its loop unroller are public):

- levels from DRAM (L3) to the array (L0), loops from the outermost; ``X`` is spatial. L3 is the
  order of the tiles; all factors below make one tile, whose inner order the hardware fixes;
- P counts output columns, Q rows, R kernel columns, S rows; the image is padded by half a kernel;
- two tiles are in flight: a tile's loads wait until the tile two before it has been stored;
- a block of 16 x 16 weights stays while all rows of the tile's pixels pass, up to 16 columns at a
  time; loading it hides behind 16 cycles of the block before;
- a tile stores when its kernel positions and channels are the last;
- the library chooses its tiling on the host, inside the measured time.

What the sources leave open (:class:`Settled`) was settled on a seeded fifth of the rows, which are
printed apart. ``--settle`` settles it again, ``--sweep`` says how much each figure matters::

    python benchmarks/validation/gemmini.py [--reference FILE] [--settle] [--sweep]

``--convert FILE`` writes the layers that are matrix products, as the library runs them, as a table
for ``autoturbo targets calibrate`` (docs/calibration.md has what comes out).
"""

from __future__ import annotations

import csv
import dataclasses
import itertools
import random
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from gemmini_memory import BEAT, TILE_COLUMNS, Caches, Shape, Tile, Use
from mappers import REFERENCES, TARGETS, Errors, Program, Row, number, read_table, reference_option

from autoturbo.errors import AutoTurboError, Location, UsageError
from autoturbo.graph.arrays import Ints
from autoturbo.hardware import Target, load_target

COLUMNS = (
    "mapping.mapping", "dse.auto_tiling", "target.cycle", "target.gemmini_cycle",
    "target.gemmini_auto_cycle", "prob.C", "prob.K", "prob.P", "prob.Q", "prob.R", "prob.S",
    "prob.Wstride",
)  # fmt: skip

ARRAY = 16
"""Rows and columns of the array, and rows that one instruction streams."""

SHARE = 5
"""One row in this many settles what is open."""

SWEPT_CYCLES = 2e6
"""Layers that are swept: larger ones take minutes."""

STEPS = (("pair", 1), ("line", 1), ("far", 2), ("dirty", 5), ("start", 200), ("trial", 20))
"""By how much settling moves each figure at a time."""

DIMENSIONS = "QPKSRC"
"""Dimensions in the order of a table of tiles, which is also the library's loop order."""

HALF_SCRATCHPAD, HALF_ACCUMULATOR = 8192, 512
"""Rows of 16 elements that the library gives a tile: half of 256 KiB and of 64 KiB."""


@dataclass(frozen=True, slots=True)
class Settled:
    """What public sources leave open, cycles.

    Attributes:
        pair: Least time from one preload and compute to the next (issue of two instructions).
        line: A line that L2 has not, from the cache behind it.
        far: A line from memory.
        dirty: A dirty line that leaves L2 first.
        start: Of a layer: first requests, configuration, the fence at its end.
        trial: Of the host for every tiling that the library tries.
    """

    pair: int = 7
    line: float = 9.0
    far: float = 24.0
    dirty: float = 43.0
    start: float = 1300.0
    trial: float = 260.0


@dataclass(frozen=True, slots=True)
class Case:
    """A row.

    Attributes:
        shape: The layer.
        mapping: DOSA's: extents of a tile by dimension, and the order of the tiles from the
            outermost dimension.
        tiling: The library's, likewise.
        mapped: RTL cycles of the mapping.
        automatic: RTL cycles of the library's tiling.
        timeloop: Timeloop's estimate for the mapping.
    """

    shape: Shape
    mapping: tuple[dict[str, int], str]
    tiling: tuple[dict[str, int], str]
    mapped: float
    automatic: float
    timeloop: float

    @property
    def name(self) -> str:
        """Return channels, pixels and kernel."""
        s = self.shape
        return f"{s.c}x{s.q}x{s.p} -> {s.k}, {s.s}x{s.r}/{s.stride}"

    @property
    def is_product(self) -> bool:
        """Run as a matrix product: the library's rule is one row of pixels and no kernel."""
        return self.shape.q == self.shape.r == self.shape.s == 1


def case_of(row: Row) -> Case:
    """Return a row of the table as a case.

    Raises:
        UsageError: A figure, its mapping or its tiling cannot be read.
    """
    extents = {d: int(number(row, f"prob.{d}")) for d in DIMENSIONS}
    k, c, p, q, r, s = (extents[d] for d in "KCPQRS")
    shape = Shape(k, c, p, q, r, s, int(number(row, "prob.Wstride")))
    return Case(
        shape, parse_mapping(row["mapping.mapping"], extents),
        parse_tiling(row["dse.auto_tiling"], extents), number(row, "target.gemmini_cycle"),
        number(row, "target.gemmini_auto_cycle"), number(row, "target.cycle"),
    )  # fmt: skip


def parse_mapping(text: str, extents: dict[str, int]) -> tuple[dict[str, int], str]:
    """Read a mapping such as ``L3[WIO] K2 Q7 - L2[WI] K16X - L1[O] C4 P8 C16X - L0[W] P4``.

    Returns:
        The extents of a tile by dimension, and the loops over tiles, the outermost first.

    Raises:
        UsageError: It is written in another way.
    """
    tile, order = dict.fromkeys(DIMENSIONS, 1), ""
    try:
        for level in text.split(" - "):
            name, _, loops = level.partition("] ")
            for loop in loops.split():
                dimension, factor = loop[0], int(loop[1:].rstrip("X"))
                if name.startswith("L3"):
                    order += dimension
                elif dimension != "N":
                    tile[dimension] *= factor
    except (KeyError, ValueError, IndexError):
        raise UsageError(f"cannot read {text!r}", Location(field="mapping.mapping")) from None
    order = order.replace("N", "")
    rest = "".join(d for d in DIMENSIONS if d not in order)
    return {d: min(tile[d], extents[d]) for d in DIMENSIONS}, rest + order


def parse_tiling(text: str, extents: dict[str, int]) -> tuple[dict[str, int], str]:
    """Read a tiling such as ``R_S_P_Q_C_K_N``.

    Returns:
        The extents of a tile by dimension, and the loops over tiles: :data:`DIMENSIONS`.

    Raises:
        UsageError: It is written in another way.
    """
    try:
        found = dict(zip("RSPQCKN", map(int, text.split("_")), strict=True))
    except ValueError:
        raise UsageError(f"cannot read {text!r}", Location(field="dse.auto_tiling")) from None
    return {d: min(found[d], extents[d]) for d in DIMENSIONS}, DIMENSIONS


def tiles_of(shape: Shape, tile: dict[str, int], order: str) -> Ints:
    """Return begin and end of every tile in every dimension, in the order of execution."""
    dims = (shape.q, shape.p, shape.k, shape.s, shape.r, shape.c)
    extents = dict(zip(DIMENSIONS, dims, strict=True))
    begins = itertools.product(*(range(0, extents[d], tile[d]) for d in order))
    table = np.asarray(list(begins), np.int64).reshape(-1, len(order))
    found = np.empty((len(table), TILE_COLUMNS), np.int64)
    for position, dimension in enumerate(DIMENSIONS):
        begin = table[:, order.index(dimension)]
        found[:, 2 * position] = begin
        found[:, 2 * position + 1] = np.minimum(begin + tile[dimension], extents[dimension])
    return found


def streamed_rows(tiles: Ints, settled: Settled) -> Ints:
    """Return the cycles that each tile takes per block of weights.

    Every instruction streams the pixels of one output row, up to 16, and one cycle passes between
    two; the first of a block takes no less than the load of the next block's weights.
    """
    rows = tiles[:, Tile.Q + 1] - tiles[:, Tile.Q]
    whole, rest = np.divmod(tiles[:, Tile.P + 1] - tiles[:, Tile.P], ARRAY)
    full = max(ARRAY + 1, settled.pair)
    last = np.where(rest > 0, np.maximum(rest + 1, settled.pair), 0)
    first = np.where(whole > 0, full, last)
    return np.asarray(rows * (whole * full + last) + np.maximum(ARRAY - first, 0), np.int64)


def program_of(tiles: Ints, used: Ints, settled: Settled) -> Program:
    """Return the program of a layer: two tiles in flight, everything else in order."""
    program = Program()
    rows = streamed_rows(tiles, settled).tolist()
    width = tiles[:, 1::2] - tiles[:, ::2]
    columns = width[:, Tile.K // 2].tolist()
    depth = (-(-width[:, Tile.C // 2] // ARRAY) * ARRAY * width[:, 3] * width[:, 4]).tolist()
    reads, writes = (_memory_cycles(used, first, settled) for first in (0, int(Use.WRITE_BEATS)))
    beats = used[:, [Use.READ_BEATS, Use.WRITE_BEATS]].tolist()
    loaded, stored = [], [-1, -1]

    def load(tile: int) -> int:
        line = program.load(reads[tile] * BEAT, stored[tile])
        return program.transfer(beats[tile][0] * BEAT, line)

    loaded.append(load(0))
    for tile in range(len(tiles)):
        if tile + 1 < len(tiles):
            loaded.append(load(tile + 1))
        done = program.product(rows[tile], columns[tile], depth[tile], loaded[tile])
        if beats[tile][1]:
            done = program.transfer(beats[tile][1] * BEAT, done)
            program.store(writes[tile] * BEAT, done)
        stored.append(done)
    return program


def _memory_cycles(used: Ints, first: int, settled: Settled) -> list[float]:
    """Return the cycles behind L2 of each tile, reading or writing."""
    lines, far, dirty = (used[:, first + column] for column in (1, 2, 3))
    cycles = lines * settled.line + far * (settled.far - settled.line) + dirty * settled.dirty
    found: list[float] = cycles.tolist()
    return found


def library_tiling(shape: Shape) -> tuple[dict[str, int], int]:
    """Tile a convolution as Gemmini's library does.

    While a tile does not fit, its largest extent shrinks, channels by 16 and the rest by 1 (columns
    no further than 16 while there are rows). Then columns grow while they fit, then every extent
    in turn.

    Returns:
        The extents of a tile by dimension, and how many tiles the library tries.
    """
    dims = (shape.q, shape.p, shape.k, shape.s, shape.r, shape.c)
    tile, tried = list(dims), 1
    while not _fits(tile, shape.stride):
        _shrink(tile)
        tried += 1
    for turn in ((1,), range(6)):
        grown = True
        while grown:
            grown, more = _grow(tile, dims, turn, shape.stride)
            tried += more
    return dict(zip(DIMENSIONS, tile, strict=True)), tried


def _fits(tile: Sequence[int], stride: int) -> bool:
    q, p, k, s, r, c = tile
    blocks_k, blocks_c = -(-k // ARRAY), -(-c // ARRAY)
    inputs = blocks_c * (q * stride + s - 1) * (p * stride + r - 1)
    fits = inputs + blocks_k * s * r * c <= HALF_SCRATCHPAD
    return fits and blocks_k * q * p <= HALF_ACCUMULATOR


def _shrink(tile: list[int]) -> None:
    """Take from the largest extent, the first of equals."""
    held = {1} if tile[1] <= ARRAY and tile[0] > 1 else set()
    largest = max((i for i in range(6) if i not in held), key=lambda i: (tile[i], -i))
    if largest in (2, 5):  # channels
        tile[largest] -= tile[largest] % ARRAY or ARRAY
        tile[largest] = max(tile[largest], 1)
    else:
        tile[largest] -= 1


def _grow(
    tile: list[int], dims: Sequence[int], turn: Sequence[int], stride: int
) -> tuple[bool, int]:
    """Add 1 to each extent of a turn where it fits; whether any grew, and how many were tried."""
    grown, tried = False, 0
    for position in turn:
        if tile[position] >= dims[position]:
            continue
        tried += 1
        tile[position] += 1
        if _fits(tile, stride):
            grown = True
        else:
            tile[position] -= 1
    return grown, tried


@dataclass(frozen=True, slots=True, eq=False)
class Traced:
    """A row with what its two programs ask of the caches.

    Attributes:
        case: The row.
        automatic: Tiles and use of the library's tiling.
        mapped: Tiles and use of the mapping, run after it.
        tried: Tilings that the library tries on the host.
    """

    case: Case
    automatic: tuple[Ints, Ints]
    mapped: tuple[Ints, Ints]
    tried: int


def trace(case: Case) -> Traced:
    """Walk the caches as DOSA's test does: the library's tiling, then the mapping.

    Layers run one after another on the same arrays, so the caches are not empty before: they are
    taken as a run of the same layer leaves them.

    Returns:
        The tiles of both, with what each asks of the caches, and how many tilings the library
        tries.
    """
    caches = Caches.empty()
    automatic, mapped = (tiles_of(case.shape, *plan) for plan in (case.tiling, case.mapping))
    caches.walk(case.shape, automatic)
    used = caches.walk(case.shape, automatic)
    tried = 0 if case.is_product else library_tiling(case.shape)[1]
    return Traced(case, (automatic, used), (mapped, caches.walk(case.shape, mapped)), tried)


def cycles(traced: Traced, settled: Settled) -> tuple[float, float]:
    """Return our cycles of the library's tiling and of the mapping."""
    target = gemmini()
    found = [
        program_of(*plan, settled).run(target, "int8").seconds * target.clock + settled.start
        for plan in (traced.automatic, traced.mapped)
    ]
    return found[0] + settled.trial * traced.tried, found[1]


@lru_cache
def gemmini() -> Target:
    """Return the machine."""
    return load_target(str(TARGETS / "gemmini.yaml"))


def settling(rows: int) -> set[int]:
    """Return the positions of the rows on which :class:`Settled` was settled."""
    return set(random.Random(0).sample(range(rows), rows // SHARE))  # noqa: S311  no secret


def settle(traced: Sequence[Traced]) -> Settled:
    """Settle by coordinate descent on the mean absolute error of both programs over some rows."""
    best = Settled()
    least = _error(traced, best)
    for name, step in STEPS * 2:
        for sign in (-1, 1):
            candidate = dataclasses.replace(best, **{name: getattr(best, name) + sign * step})
            error = _error(traced, candidate)
            if error < least:
                best, least = candidate, error
                print(f"{error:.2%} {best}", flush=True)
    return best


def _error(traced: Sequence[Traced], settled: Settled) -> float:
    pairs = [(t.case, cycles(t, settled)) for t in traced]
    return statistics.fmean(
        (abs(a / case.automatic - 1) + abs(m / case.mapped - 1)) / 2 for case, (a, m) in pairs
    )


def sweep(traced: Sequence[Traced]) -> None:
    """Print the mean errors with each figure a quarter less and a quarter more."""
    for field in dataclasses.fields(Settled):
        for factor in (0.75, 1.25):
            value = getattr(Settled(), field.name) * factor
            changed = dataclasses.replace(Settled(), **{field.name: value})
            found = summary([(t.case, *cycles(t, changed)) for t in traced])
            mapped, library = found["mapping"].mean, found["library's tiling"].mean
            print(f"{field.name} = {value:g}: mapping {mapped:.1%}, library's tiling {library:.1%}")


def convert(cases: Sequence[Case], to: Path) -> None:
    """Write layers of one kernel position as products: pixels x channels x filters."""
    with to.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(("m", "k", "n", "dtype", "latency_s"))
        for case in cases:
            s = case.shape
            if s.r == s.s == s.stride == 1:
                writer.writerow((s.p * s.q, s.c, s.k, "int8", case.automatic / gemmini().clock))


def main() -> None:
    """Print a line per row and the summary; rows that settled something apart."""
    parser = reference_option("gemmini_rtl.csv", __doc__)
    parser.add_argument("--settle", action="store_true", help="settle what is open again")
    parser.add_argument("--sweep", action="store_true", help="change what was settled")
    parser.add_argument("--convert", type=Path, help="write a table to calibrate with")
    options = parser.parse_args()
    cases = [case_of(row) for row in read_table(options.reference, COLUMNS)]
    ours = options.reference.resolve() == (REFERENCES / "gemmini_rtl.csv").resolve()
    used = settling(len(cases)) if ours else set()
    if options.convert:
        convert(cases, options.convert)
    elif options.settle:
        print(settle([trace(cases[index]) for index in sorted(used)]))
    elif options.sweep:
        fresh = [case for index, case in enumerate(cases) if index not in used]
        sweep([trace(case) for case in fresh if case.timeloop < SWEPT_CYCLES])
    else:
        compare(cases, used)


def compare(cases: Sequence[Case], used: set[int]) -> None:
    """Print all rows and the errors of those that settled nothing, then of those that did."""
    print(f"settled on rows {sorted(used)}: {Settled()}")
    print(f"{'layer':34}{'library':>12}{'RTL':>12}{'mapping':>12}{'RTL':>12}  errors (Timeloop)")
    found = [_report(case) for case in cases]
    fresh = [figures for index, figures in enumerate(found) if index not in used]
    for name, errors in summary(fresh).items():
        print(f"{name}: {errors}")
    for name, errors in summary([found[index] for index in sorted(used)]).items() if used else ():
        print(f"rows that settled: {name}: {errors}")


def _report(case: Case) -> tuple[Case, float, float]:
    """Print a row with our figures.

    Returns:
        The row, and the cycles of the library's tiling and of the mapping.
    """
    automatic, mapped = cycles(trace(case), Settled())
    pairs = ((automatic, case.automatic), (mapped, case.mapped), (case.timeloop, case.mapped))
    first, second, theirs = (f"{a / b - 1:+.1%}" for a, b in pairs)
    figures = f"{automatic:12,.0f}{case.automatic:12,.0f}{mapped:12,.0f}{case.mapped:12,.0f}"
    print(f"{case.name:34}{figures}  {first} {second} ({theirs})", flush=True)
    return case, automatic, mapped


def summary(found: Sequence[tuple[Case, float, float]]) -> dict[str, Errors]:
    """Return errors of our figures and of Timeloop's, for both programs."""
    mapped, automatic = [c.mapped for c, _, _ in found], [c.automatic for c, _, _ in found]
    timeloop = [c.timeloop for c, _, _ in found]
    return {
        "mapping": Errors.of([m for _, _, m in found], mapped),
        "mapping, Timeloop": Errors.of(timeloop, mapped),
        "library's tiling": Errors.of([a for _, a, _ in found], automatic),
        "library's tiling, Timeloop": Errors.of(timeloop, automatic),
    }


if __name__ == "__main__":
    try:
        main()
    except AutoTurboError as error:
        sys.exit(f"error: {error}")
