"""Fewest bytes that products move to and from a buffer of some size, without AccelForge.

``python benchmarks/peers/product_traffic.py`` prints the optima of ``traffic.csv`` that are of
products. For one product, a nest of three loops over tiles surrounds the buffer, which holds a tile
of each operand; the last tile of a loop may be smaller. A tile stays while the loops inside do not
move it, and a tile of sums that the loop over the depth leaves is written and read again. Elements
have a byte.
"""

from __future__ import annotations

from itertools import permutations

import numpy as np
from numpy.typing import NDArray

Counts = NDArray[np.int64]

OPERANDS = (frozenset("mk"), frozenset("kn"), frozenset("mn"))
"""Loops that move the left operand, the right one, the result."""

PRODUCT = (4096, 512, 2048)
"""Rows, depth and columns of the product of the table."""


def fewest_bytes(rows: int, depth: int, columns: int, capacity: int) -> int:
    """Return the bytes that the best nest moves with a buffer of `capacity` bytes."""
    extents = {"m": rows, "k": depth, "n": columns}
    grid = np.meshgrid(*(_trips(extent) for extent in extents.values()), indexing="ij")
    trips = dict(zip(extents, (axis.ravel() for axis in grid), strict=True))
    tiles = {loop: -(-extents[loop] // count) for loop, count in trips.items()}
    held = sum(_product(tiles, operand) for operand in OPERANDS)
    fits = {loop: count[held <= capacity] for loop, count in trips.items()}
    return min(int(_moved(extents, fits, order).min()) for order in permutations("mkn"))


def fused_bytes(rows: int, width: int, inner: int, pairs: int, capacity: int) -> int:
    """Return the bytes of products to `inner` columns and back, whose results never leave.

    The buffer holds some rows of a pair's input and of its sums, one column between them and a
    slice of each weight. All weights pass once for every such group of rows.
    """
    held = (capacity - 2 * width) // (2 * width + 1)
    passes = -(-rows // held)
    return 2 * rows * width + passes * pairs * 2 * width * inner


def _trips(extent: int) -> Counts:
    """Return the least trips of a loop for every size of its tiles."""
    return np.unique(-(-extent // np.arange(1, extent + 1)))


def _product(sizes: dict[str, Counts], loops: frozenset[str]) -> Counts:
    first, second = (sizes[loop] for loop in loops)
    return first * second


def _moved(extents: dict[str, int], trips: dict[str, Counts], order: tuple[str, ...]) -> Counts:
    """Return the bytes moved by each nest of an order, outermost loop first."""
    left, right, result = (_passes(trips, order, operand) for operand in OPERANDS)
    m, k, n = extents.values()
    return m * k * left + k * n * right + m * n * (2 * result - 1)


def _passes(trips: dict[str, Counts], order: tuple[str, ...], operand: frozenset[str]) -> Counts:
    """Return how often an operand passes: the trips of the loop that is not its own.

    Where that loop is inside of all that move the operand, tiles stay and it passes once.
    """
    (other,) = set(order) - operand
    inside = order[order.index(other) + 1 :]
    moves = np.zeros_like(trips[other], bool)
    for loop in inside:
        moves |= trips[loop] > 1
    return np.where(moves, trips[other], 1)


def main() -> None:
    """Print the optima of one product by size of the buffer, and of the chain of four."""
    for kib in (16, 64, 256, 512, 1024, 2048):
        _print("one product", kib, fewest_bytes(*PRODUCT, kib * 1024))
    rows, width, inner = PRODUCT
    buffer = 512 * 1024
    there, back = (fewest_bytes(rows, *sides, buffer) for sides in ((width, inner), (inner, width)))
    _print("four, unfused", 512, 2 * (there + back))
    _print("four, fused", 512, fused_bytes(rows, width, inner, 2, buffer))


def _print(what: str, kib: int, moved: int) -> None:
    print(f"{what:13} {kib:>5} KiB {moved / 2**20:6.1f} MiB")


if __name__ == "__main__":
    main()
