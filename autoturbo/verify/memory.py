"""The memory check: allocations replayed in time, as a sanitizer does.

Buffers of a cluster are looked at in space (:mod:`autoturbo.verify.buffers`), the order is replayed
with what every buffer holds (:mod:`autoturbo.verify.replay`), and what happens at the same time is
looked at in :mod:`autoturbo.verify.races`.
"""

from __future__ import annotations

from autoturbo.schedule.schedule import Schedule
from autoturbo.verify.buffers import check_buffers
from autoturbo.verify.findings import Finding
from autoturbo.verify.races import check_races
from autoturbo.verify.replay import check_replay
from autoturbo.verify.slots import check_slots
from autoturbo.verify.trace import trace_of


def check_memory(schedule: Schedule) -> tuple[Finding, ...]:
    """What is wrong with a schedule's buffers; empty if nothing is.

    Kinds: ``"overlap"``, ``"capacity"``, ``"alignment"``, ``"lifetime"``, ``"freed buffer"``,
    ``"foreign buffer"``, ``"too small"``, ``"handed over"``, ``"output"``, ``"stream"``,
    ``"residence"``, ``"race"``.
    """
    found = check_buffers(schedule) + check_replay(schedule)
    trace = trace_of(schedule)
    return found + check_slots(schedule, trace) + check_races(schedule, trace)
