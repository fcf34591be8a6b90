"""The part of a chip that a schedule uses: fewer cores, less of its buffers, or groups of cores.

More hardware is not always faster by the published rules: a core more is a reader more of shared
memory, and tiles grow with the buffers until nothing is left to overlap. A schedule that uses a
part of the chip is planned as for a smaller chip, and is the very schedule that the smaller chip
gets: whatever a chip has more, it can do what the smaller one does.

Groups of cores work side by side as clusters of their own, each with its share of what a cluster's
cores have in common: a layer that cannot use all cores leaves the others to another sample, or to a
branch beside it.
"""

from __future__ import annotations

import dataclasses
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from autoturbo.errors import KnobsError, Location
from autoturbo.hardware.parts import FIXED, NO_GLOBAL_BUFFER
from autoturbo.schedule.knobs import AUTO, Knobs, Value

if TYPE_CHECKING:
    from autoturbo.hardware.target import Target

KIB = 1024


class ChipPart(NamedTuple):
    """What a schedule uses of every cluster; ``"auto"`` is all.

    Attributes:
        used_cores: Cores that work.
        used_lb_kib: Of each core's local buffer.
        used_weight_kib: Of each core's weight buffer.
        used_gb_kib: Of the global buffer; 0 for the way past it.
        core_groups: Into which the cores of each cluster are divided.
    """

    used_cores: Value = AUTO
    used_lb_kib: Value = AUTO
    used_weight_kib: Value = AUTO
    used_gb_kib: Value = AUTO
    core_groups: Value = AUTO

    @staticmethod
    def of(knobs: Knobs) -> ChipPart:
        """Return the part that a candidate uses."""
        return ChipPart(*(getattr(knobs, name) for name in ChipPart._fields))

    def on(self, knobs: Knobs) -> Knobs:
        """Return a candidate that uses this part."""
        return knobs if self == ChipPart.of(knobs) else dataclasses.replace(knobs, **self._asdict())


WHOLE = ChipPart()
"""All of the chip."""


def extents_of(target: Target) -> dict[str, tuple[str, float]]:
    """Return, by knob, the field of a target that limits it and how much there is of it."""
    return {
        "used_cores": ("cores_per_cluster", target.cores),
        "used_lb_kib": ("lb.capacity_kib", target.lb.capacity / KIB),
        "used_weight_kib": ("lb.weight_capacity_kib", target.lb.weight_capacity / KIB),
        "used_gb_kib": ("gb.capacity_kib", target.gb.capacity / KIB),
    }


@lru_cache(maxsize=1024)
def used_target(chip: Target, part: ChipPart) -> Target:
    """Return the smaller chip that a part of a chip is.

    Raises:
        KnobsError: The chip has less, or no way past its global buffer.
    """
    if part == WHOLE:
        return chip
    for name, (field, most) in extents_of(chip).items():
        asked = getattr(part, name)
        if asked != AUTO and asked > most:
            message = f"{asked} is more than the target has: {field} is {most:.12g}"
            raise KnobsError(message, Location(field=name))
    cores, lb_kib, weight_kib, gb_kib, groups = part
    lb, gb, ranges = chip.lb, chip.gb, chip.ranges
    if lb_kib != AUTO:
        lb = dataclasses.replace(lb, capacity=int(lb_kib) * KIB)
    if weight_kib != AUTO:
        lb = dataclasses.replace(lb, weight_capacity=int(weight_kib) * KIB)
    if gb_kib == 0 and gb.capacity:
        if not chip.dma.bypasses_gb:
            message = "there is no way past the global buffer: dma.bypasses_gb is false"
            raise KnobsError(message, Location(field="used_gb_kib"), "use at least 1 of it")
        gb = NO_GLOBAL_BUFFER
        ranges = tuple(one for one in ranges if not one[0].startswith("gb."))
    elif gb_kib != AUTO:
        gb = dataclasses.replace(gb, capacity=int(gb_kib) * KIB)
    used = chip.cores if cores == AUTO else int(cores)
    made = dataclasses.replace(chip, cores=used, lb=lb, gb=gb, ranges=ranges)
    return in_groups(made, 1 if groups == AUTO else int(groups))


def in_groups(chip: Target, groups: int) -> Target:
    """Return the chip whose clusters are groups of the cores of a chip's clusters.

    Each has its share of the cluster's global buffer, its DMA, and its part of the memory.

    Raises:
        KnobsError: They do not divide the cores.
    """
    if groups == 1:
        return chip
    if chip.cores % groups:
        message = f"{groups} groups do not divide the {chip.cores} cores of a cluster"
        raise KnobsError(message, Location(field="core_groups"))
    gb, dma, ddr = chip.gb, chip.dma, chip.ddr
    return dataclasses.replace(
        chip, clusters=chip.clusters * groups, cores=chip.cores // groups,
        gb=dataclasses.replace(
            gb, capacity=gb.capacity // groups, bandwidth=gb.bandwidth / groups
        ),
        dma=dataclasses.replace(dma, bandwidth=dma.bandwidth / groups),
        ddr=dataclasses.replace(ddr, capacity=ddr.capacity // groups),
    )  # fmt: skip


def seen_by(chip: Target, working: int) -> Target:
    """Return the chip as those of its clusters see it that work, where the others never do.

    They share the off-chip memory among themselves alone where the chip lets them, so that the
    chip is one of fewer clusters with the same memory.
    """
    if chip.ddr.share == FIXED or working == chip.clusters:
        return chip
    return dataclasses.replace(chip, clusters=working)


def held(part: ChipPart, chip: Target) -> ChipPart:
    """Return as much of a part as a chip has: all of it where that is not so much."""
    extents = extents_of(chip)
    asked = {name: getattr(part, name) for name in extents}
    kept = {n: v for n, v in asked.items() if v != AUTO and v < extents[n][1]}
    if kept.get("used_gb_kib") == 0 and not chip.dma.bypasses_gb:
        del kept["used_gb_kib"]
    cores, groups = int(kept.get("used_cores", chip.cores)), part.core_groups
    if groups != AUTO and cores % int(groups) == 0:
        kept["core_groups"] = groups
    return ChipPart(**kept)


def carried(part: ChipPart, source: Target, onto: Target) -> ChipPart:
    """Return the part of another chip that is like a part of one, as far as the other has it.

    Args:
        part: Of ``source``.
        source: The chip that a schedule was made for.
        onto: The chip that it is to run on.
    """
    amounts = {name: amount for name, (_, amount) in extents_of(source).items()}
    amounts |= {name: value for name, value in part._asdict().items() if value != AUTO}
    whole = {name: int(amount) for name, amount in amounts.items() if amount == int(amount)}
    return held(ChipPart(**whole), onto)
