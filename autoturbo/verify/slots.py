"""Placeholder."""
from autoturbo.schedule.schedule import Schedule
from autoturbo.verify.findings import Finding


def check_slots(schedule: Schedule) -> tuple[Finding, ...]:
    """Nothing yet."""
    return ()
