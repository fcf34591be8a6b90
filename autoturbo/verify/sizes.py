"""Bytes of an instance's tensors, worked out from regions and bindings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product, zip_longest

from autoturbo.graph.domain import Interval, Region, meet, volume
from autoturbo.schedule.bind import Binding
from autoturbo.schedule.problem import Problem
from autoturbo.schedule.stitch import Template


@dataclass(frozen=True, slots=True, eq=False)
class Sizes:
    """What an instance's regions take.

    Attributes:
        problem: where the tensors come from.
        regions: of all tensors that the instance touches.
        held: bindings of the tensors that it makes; a layer's outputs are all bound alike.
    """

    problem: Problem
    regions: Mapping[int, Region]
    held: Mapping[int, Binding]

    @staticmethod
    def of(problem: Problem, template: Template, regions: Mapping[int, Region]) -> Sizes:
        """Of an instance with a template."""
        bound = zip(template.layers, template.bindings, strict=True)
        held = {tensor: b for layer, b in bound for tensor in problem.layers[layer].outputs}
        return Sizes(problem, regions, held)

    def cluster(self, tensor: int) -> int:
        """Bytes of the region of a tensor; 0 if it is not touched."""
        region = self.regions.get(tensor)
        return 0 if region is None else volume(region) * self.element(tensor)

    def core(self, tensor: int) -> int:
        """Bytes that the core with most of a tensor has."""
        region = self.regions.get(tensor)
        if region is None:
            return 0
        part = self.element(tensor)
        for (low, high), factor in zip_longest(region, self.held[tensor][: len(region)]):
            part *= -(-max(high - low, 0) // (factor or 1))
        return part

    def element(self, tensor: int) -> int:
        """Bytes of one element."""
        return int(self.problem.arrays.element[tensor])


def moved_core_bytes(
    need: Region, pieces: Sequence[Region], wanted: Binding | None, element: int
) -> int:
    """Bytes that the core with most of some pieces of an input has, once it is bound as wanted.

    Args:
        need: what the kernel reads of the tensor.
        pieces: what is brought in of it, each within ``need``.
        wanted: the binding; a core may have to hold all of it where there is none.
        element: bytes of one element.
    """
    if wanted is None or len(wanted) != len(need):
        return element * sum(map(volume, pieces))
    shares = (
        tuple(_cut(interval, factor, place)
              for interval, factor, place in zip(need, wanted, places, strict=True))
        for places in product(*map(range, wanted))
    )  # fmt: skip
    return element * max(sum(volume(meet(share, p)) for p in pieces) for share in shares)


def _cut(interval: Interval, factor: int, place: int) -> Interval:
    """One of the equal parts of an interval; the last ones may be short or empty."""
    low, high = interval
    size = -(-(high - low) // factor)
    begin = min(low + place * size, high)
    return begin, min(begin + size, high)
