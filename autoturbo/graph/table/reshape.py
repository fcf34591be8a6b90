"""Reshapes: the same elements in the same order, under other dimensions.

Both shapes are factorised into common axes, outermost first: ``[B, S, H * D] -> [B, S, H, D]`` has
axes ``B, S, H, D``, and the third input dimension is addressed by ``H`` and ``D`` in mixed radix.
Where two dimensions have no common factor (``[6, 4] -> [4, 6]`` after the common 2), the rest of
that block, up to where both shapes agree again, is read and written whole; what is outside of the
block still splits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from autoturbo.graph.domain import WHOLE_DIM, AccessMap, DimAccess, merged
from autoturbo.graph.operators import Engine, Pattern
from autoturbo.graph.table.build import ONNX, Domain, Rows, agree
from autoturbo.graph.table.spec import NodeView, OperatorSpec, Row


@dataclass(slots=True)
class _Side:
    """One of the two shapes while it is consumed from the front.

    Attributes:
        shape: its extents.
        dim: the dimension being consumed.
        rest: what is left of that dimension's extent.
        axes: per dimension, the ``(axis, extent)`` factors found so far.
        whole: dimensions that are read in full.
    """

    shape: tuple[int, ...]
    dim: int = -1
    rest: int = 1
    axes: list[list[tuple[int, int]]] = field(default_factory=list)
    whole: set[int] = field(default_factory=set)

    def advance(self) -> bool:
        """Go on to the next dimension that has something left; False at the end."""
        while self.rest == 1:
            if self.dim + 1 == len(self.shape):
                return False
            self.dim += 1
            self.rest = self.shape[self.dim]
            self.axes.append([])
        return True

    def take(self, axis: int, extent: int) -> None:
        """Consume a factor of the present dimension."""
        self.axes[self.dim].append((axis, extent))
        self.rest //= extent

    def access(self) -> AccessMap:
        """How the shape is addressed by the factors found."""
        dims = range(len(self.shape))
        return AccessMap(tuple(WHOLE_DIM if d in self.whole else self._dim(d) for d in dims))

    def _dim(self, dim: int) -> DimAccess:
        return merged(*self.axes[dim]) if dim < len(self.axes) else DimAccess()


def factorise(
    source: Sequence[int], target: Sequence[int], domain: Domain
) -> tuple[AccessMap, AccessMap]:
    """Axes common to two shapes of equal volume, added to ``domain``.

    Returns:
        How the source and how the target is addressed.
    """
    agree(math.prod(source) == math.prod(target), f"{source} and {target} differ in volume")
    agree(all(extent > 0 for extent in (*source, *target)), "no elements")
    left, right = _Side(tuple(source)), _Side(tuple(target))
    while left.advance() and right.advance():
        common = math.gcd(left.rest, right.rest)
        if common == 1:
            _whole_block(left, right, domain)
            continue
        axis = domain.axis(f"r{len(domain.axes)}", common)
        left.take(axis, common)
        right.take(axis, common)
    return left.access(), right.access()


def _whole_block(left: _Side, right: _Side, domain: Domain) -> None:
    """Consume dimensions until both sides agree again, all of them needed in full.

    A dimension already divided is addressed, below its outer factors, by an axis that is never
    split; on the side that is read, such an axis appears nowhere else: it is a reduction.
    """
    read, written = 1, 1
    while read != written or read == 1:
        if read <= written:
            read *= _consume(left, domain, read=True)
        else:
            written *= _consume(right, domain, read=False)


def _consume(side: _Side, domain: Domain, *, read: bool) -> int:
    """Take all that is left of the present dimension; answers its extent."""
    side.advance()
    extent = side.rest
    if read and not side.axes[side.dim]:
        side.whole.add(side.dim)
        side.rest = 1
        return extent
    add = domain.reduction if read else domain.whole
    side.take(add(f"w{len(domain.axes)}", extent), extent)
    return extent


def _reshape(pattern: Pattern) -> Row:
    """The output's shape says it all: target shapes and axes are absorbed."""

    def row(node: NodeView) -> OperatorSpec:
        domain = Domain()
        read, written = factorise(node.shape_in(0), node.shape_out(), domain)
        return domain.answer(node, [read], [written], engine=Engine.NONE, pattern=pattern)

    return row


ROWS: Rows = {
    (ONNX, "Reshape"): _reshape(Pattern.INJECTIVE),
    (ONNX, "Flatten"): _reshape(Pattern.INJECTIVE),
    (ONNX, "Squeeze"): _reshape(Pattern.INJECTIVE),
    (ONNX, "Unsqueeze"): _reshape(Pattern.BROADCAST),  # TVM's expand_dims
}
