"""Tensors put together from the pieces that instances make of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from autoturbo.graph.domain import Region, volume
from autoturbo.verify.body import Body


class UncoveredError(Exception):
    """Pieces that do not make up the region wanted of them."""


@dataclass(frozen=True, slots=True)
class Held:
    """A value that holds a region of a tensor.

    Attributes:
        name: of the value.
        region: which part of the tensor it is.
    """

    name: str
    region: Region


def put_together(body: Body, pieces: Sequence[Held], want: Region) -> str:
    """The name of a region, concatenated from pieces that tile it.

    Raises:
        UncoveredError: they leave a gap, overlap or stick out.
    """
    if len(pieces) == 1 and pieces[0].region == want:
        return pieces[0].name
    for dim in range(len(want)):
        groups = _along(pieces, dim)
        if len(groups) > 1:
            return _joined(body, groups, dim, want)
    raise UncoveredError(f"{len(pieces)} pieces for {_spelt(want)}")


def _along(pieces: Sequence[Held], dim: int) -> list[list[Held]]:
    """Pieces in groups that follow each other along a dimension."""
    groups: list[list[Held]] = []
    end = None
    for piece in sorted(pieces, key=lambda p: p.region[dim]):
        low, high = piece.region[dim]
        if end is None or low >= end:
            groups.append([])
        groups[-1].append(piece)
        end = high if end is None else max(end, high)
    return groups


def _joined(body: Body, groups: list[list[Held]], dim: int, want: Region) -> str:
    names, at = [], want[dim][0]
    for group in groups:
        low, high = group[0].region[dim][0], max(piece.region[dim][1] for piece in group)
        if low != at:
            raise UncoveredError(f"nothing from {at} to {low} of dimension {dim}")
        names.append(put_together(body, group, (*want[:dim], (low, high), *want[dim + 1 :])))
        at = high
    if at != want[dim][1]:
        raise UncoveredError(f"nothing from {at} to {want[dim][1]} of dimension {dim}")
    return body.concat(names, dim)


def cut_out(body: Body, held: Held, want: Region) -> str:
    """The name of a part of what is held.

    Raises:
        UncoveredError: it is not all there.
    """
    inside = all(a[0] <= b[0] and b[1] <= a[1] for a, b in zip(held.region, want, strict=True))
    if volume(want) and not inside:
        raise UncoveredError(f"{_spelt(want)} of {_spelt(held.region)}")
    return held.name if held.region == want else body.slice(held.name, held.region, want)


def _spelt(region: Region) -> str:
    return "[" + ", ".join(f"{low}:{high}" for low, high in region) + "]"
