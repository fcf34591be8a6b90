"""Simulated times over what nobody has published of a target: its ranges.

A target says of some fields only between which ends they lie (:attr:`Target.ranges`): how clusters
share DDR, a bandwidth on which sources differ. Only times depend on such fields, so the schedule
stays what it is, and its programs are timed again on other chips: with each field at each end, then
with all of them at the faster ends and at the slower ones.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from autoturbo.hardware.target import Target, timed_with
from autoturbo.registry import SIMULATOR
from autoturbo.schedule.chip_part import ChipPart, seen_by, used_target
from autoturbo.schedule.context import BATCH
from autoturbo.schedule.schedule import Schedule
from autoturbo.simulator.measurement import LatencyRange
from autoturbo.simulator.sequence import simulate


def simulated_range(schedule: object, measurer: str, latency: float) -> LatencyRange | None:
    """Return the range of a latency; None where it was measured, or not of one accelerator."""
    if measurer != SIMULATOR or not isinstance(schedule, Schedule):
        return None
    return latency_range(schedule, latency)


def latency_range(schedule: Schedule, latency: float) -> LatencyRange | None:
    """Return the range of a schedule's latency; None where nothing unpublished changes it.

    Args:
        schedule: The schedule; it is timed twice for each field, and twice more.
        latency: Its seconds with the fields as the target has them.
    """
    found, fast, slow = [latency], dict[str, Any](), dict[str, Any]()
    for path, ends in schedule.context.target.ranges:
        times = {end: timed_again(schedule, {path: end}) for end in ends}
        if any(seconds != latency for seconds in times.values()):
            fast[path], slow[path] = (
                min(ends, key=times.__getitem__),
                max(ends, key=times.__getitem__),
            )
            found += times.values()
    if len(fast) > 1:
        # Fields add up: all at their fast ends, and all at their slow ones.
        found += [timed_again(schedule, fast), timed_again(schedule, slow)]
    return LatencyRange(min(found), max(found), tuple(fast)) if fast else None


def timed_again(schedule: Schedule, values: Mapping[str, Any]) -> float:
    """Return the seconds of a schedule's programs with other values of some fields."""
    context = schedule.context
    chip = _changed(context.chip, values)
    whole = used_target(chip, ChipPart.of(schedule.knobs))
    working = schedule.share.clusters if schedule.share.split == BATCH else whole.clusters
    timed = dataclasses.replace(context, target=seen_by(whole, working), chip=chip)
    return simulate(dataclasses.replace(schedule, context=timed)).latency


def _changed(target: Target, values: Mapping[str, Any]) -> Target:
    for path, value in values.items():
        target = timed_with(target, path, value)
    return target
