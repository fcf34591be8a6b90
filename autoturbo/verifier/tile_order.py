"""Whether tiles of a layer wait for the tiles of another that make what they read.

Where layers of a kernel take turns, a layer begins before one that it reads has ended. What each
tile reads is worked out anew from the operators' access maps; which lines of an output a tile has
follows from the table of tiles.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from autoturbo.graph.arrays import Ints
from autoturbo.graph.domain import Interval, Region
from autoturbo.schedule.codegen.instructions import ENGINES, Column
from autoturbo.schedule.codegen.tiling import Role, Tiling
from autoturbo.schedule.place.bind import Binding
from autoturbo.schedule.place.instances import part_shape
from autoturbo.schedule.schedule import Schedule
from autoturbo.schedule.stitch.lines import line_spaces
from autoturbo.verifier.regions import equal_part, needs_of, part_needs, within


def core_part(region: Region, binding: Binding, core: int) -> Region:
    """Return the part of a region that a core has; cores count row-major over the factors."""
    found = list[Interval]()
    for interval, parts in reversed(list(zip(region, binding, strict=True))):
        core, place = divmod(core, parts)
        found.append(equal_part(interval, parts, place))
    return tuple(reversed(found)) if not core else tuple((low, low) for low, _ in region)


@dataclass(frozen=True, slots=True)
class Lines:
    """Lines of a layer's output on a core, and its tiles.

    Attributes:
        own: The core's region of the output.
        dims: The dimensions that its tiles divide, outermost first.
        units: Number of parts that they divide these into.
        unit: Per tile, the part that it belongs to.
    """

    own: Region
    dims: tuple[int, ...]
    units: int
    unit: Ints

    @property
    def inner(self) -> int:
        """Return the lines of each element of the outermost dimension."""
        low, high = self.own[self.dims[1]] if len(self.dims) > 1 else (0, 1)
        return high - low

    @property
    def count(self) -> int:
        """Return the number of lines."""
        low, high = self.own[self.dims[0]]
        return (high - low) * self.inner

    def regions(self, unit: int) -> Iterator[Region]:
        """Yield regions that together hold all lines of which a part has anything."""
        first = unit * self.count // self.units
        end = -(-(unit + 1) * self.count // self.units)
        while first < end:  # the rest of a line of the outermost dimension, or whole ones
            outer, inner = divmod(first, self.inner)
            whole = end // self.inner if not inner else outer
            stop = min(end, max(whole, outer + 1) * self.inner)
            region = list(self.own)
            low = self.own[self.dims[0]][0]
            region[self.dims[0]] = low + outer, low + -(-stop // self.inner)
            if len(self.dims) > 1 and stop - first < self.inner:
                low = self.own[self.dims[1]][0]
                region[self.dims[1]] = low + inner, low + inner + stop - first
            yield tuple(region)
            first = stop

    def touching(self, region: Region) -> Ints:
        """Return the tiles of the parts that have a line of a region."""
        outer = [bound - self.own[self.dims[0]][0] for bound in region[self.dims[0]]]
        within_line = [0, 1]
        if len(self.dims) > 1:
            within_line = [bound - self.own[self.dims[1]][0] for bound in region[self.dims[1]]]
        first = outer[0] * self.inner + within_line[0]
        end = (outer[1] - 1) * self.inner + within_line[1]
        units = np.arange(self.units)
        low = units * self.count // self.units
        high = -(-(units + 1) * self.count // self.units)
        return np.flatnonzero(((low < end) & (high > first))[self.unit])


class TileWaits:
    """Tiles of one kernel and what orders them.

    Args:
        schedule: The schedule.
        instance: Whose kernel it is.
        cluster: The cluster that runs the kernel.
        where: Instructions of the kernel.
        clocks: Per instruction and engine, the last instruction that has ended before it begins.
    """

    def __init__(
        self, schedule: Schedule, instance: int, cluster: int, where: Ints, clocks: Ints
    ) -> None:
        place = schedule.timelines[cluster].order.tolist().index(instance)
        self.schedule, self.where, self.clocks = schedule, where, clocks
        self.template = schedule.timelines[cluster].templates[instance]
        self.tiles = schedule.kernel(place, cluster).tiles
        self.regions = needs_of(schedule)[instance]
        shape = part_shape(schedule.instances.book, int(schedule.instances.shape[instance]))
        self.spaces = line_spaces(
            schedule.context, self.template.layers, shape, self.template.bindings
        )

    def hold(self, maker: int, reader: int) -> bool:
        """Return whether every tile of a layer waits for what it reads of another.

        Args:
            maker: Position of the layer that is read.
            reader: Position of the layer that reads it.
        """
        context, layers = self.schedule.context, self.template.layers
        tensors = set(context.layers[layers[reader]].inputs)
        (made,) = context.layers[layers[maker]].outputs[:1]
        output = context.layers[layers[reader]].outputs[0]
        if made not in tensors or output not in self.regions or made not in self.regions:
            return False
        last, begun = self._ends(maker), self._begins(reader)
        # Every core: the schedule looks at one, and says that it speaks for all.
        for core in range(int(np.prod(self.template.bindings[reader]))):
            one, other = self._lines(reader, output, core), self._lines(maker, made, core)
            if one is None or other is None:
                return False
            for unit in range(one.units):
                for region in one.regions(unit):
                    found = part_needs(context, [layers[reader]], {output: region})
                    needs = found.regions.get(made)
                    if needs is None:
                        continue
                    # What other cores have is exchanged: tiles of this core do not show when.
                    if not within(needs, other.own):
                        return False
                    wanted = last[other.touching(needs)].max(axis=0, initial=-1)
                    if (begun[one.unit == unit] < wanted).any():
                        return False
        return True

    def _lines(self, layer: int, tensor: int, core: int) -> Lines | None:
        """Return the lines of a layer's output on a core; None where tiles divide none."""
        products, columns, depths, rows, outside = self.tiles[layer, : Tiling.KEPT].tolist()
        tile = np.arange(products * columns * depths * rows)
        each, rest = tile // (columns * depths * rows), tile % (columns * depths * rows)
        row = rest // (columns * depths) if outside else rest % rows
        of_products = products > 1
        own = core_part(self.regions[tensor], self.template.bindings[layer], core)
        dims = tuple(d for d in self.spaces[layer][0 if of_products else 1].dims if d >= 0)
        units = products if of_products else rows
        if not dims and units == 1:  # all of it
            dims = (0,)
        if not dims or not all(high > low for low, high in own):
            return None
        return Lines(own, dims, units, each if of_products else row)

    def _ends(self, layer: int) -> Ints:
        """Return, per tile of a layer and engine, the last instruction that computes it."""
        found = np.full((int(self.tiles[layer, : Tiling.ROWS_OUTSIDE].prod()), len(ENGINES)), -1)
        at = self._computes(layer)
        np.maximum.at(found, (self.where[at, Column.TILE], self.where[at, Column.ENGINE]), at)
        return found

    def _begins(self, layer: int) -> Ints:
        """Return, per tile of a layer and engine, what has ended when it begins."""
        count = int(self.tiles[layer, : Tiling.ROWS_OUTSIDE].prod())
        found = np.full((count, len(ENGINES)), np.iinfo(np.int64).max)
        at = self._computes(layer)
        np.minimum.at(found, self.where[at, Column.TILE], self.clocks[at])
        return found

    def _computes(self, layer: int) -> Ints:
        role = self.where[:, Column.ROLE]
        computes = (role == Role.MULTIPLY) | (role == Role.APPLY)
        return np.flatnonzero(computes & (self.where[:, Column.LAYER] == layer))
