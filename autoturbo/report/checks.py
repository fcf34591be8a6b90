"""Tables of what checking a schedule gave."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autoturbo.report.tables import table
from autoturbo.report.units import many
from autoturbo.verify.findings import Check

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.table import Table

    from autoturbo.schedule.schedule import Schedule
    from autoturbo.schedule.units.machine_schedule import MachineSchedule
    from autoturbo.verify.findings import Finding, Numbers, Verification


def sizes(schedule: Schedule | MachineSchedule) -> dict[str, int]:
    """How many things the checks of a schedule look at; on a machine, those of all parts."""
    from autoturbo.schedule.units.machine_schedule import MachineSchedule

    if isinstance(schedule, MachineSchedule):
        counts = [sizes(part) for part in schedule.schedules]
        return {name: sum(one[name] for one in counts) for name in counts[0]}
    return {
        "subgraphs": len(schedule.instances.subgraphs),
        "instances": len(schedule.instances.instances),
        "kernels": sum(len(timeline.order) for timeline in schedule.timelines),
        "buffers": sum(len(timeline.names) for timeline in schedule.timelines),
    }


def verdicts(verification: Verification, counted: Mapping[str, int]) -> Table:
    """One row a check: its verdict, and what it looked at."""
    counts = {name: _counted(number, name) for name, number in counted.items()}
    numbers = verification.numbers
    rows = (
        (Check.REGIONS, _verdict(verification.regions), _listed(counts, "instances", "subgraphs")),
        (Check.MEMORY, _verdict(verification.memory), _listed(counts, "buffers", "kernels")),
        (Check.NUMBERS, *_of_numbers(numbers)),
    )
    return table(("check", "verdict", "what was checked"), rows, words=3)


def outputs(numbers: Numbers) -> Table:
    """One row an output: how far it is off where that is worst, and how far it may be there."""
    rows = ((name, f"{error:.3g}", f"{limit:.3g}") for name, error, limit in numbers.outputs)
    return table(("output", "difference", "tolerance"), rows)


def _counted(number: int, name: str) -> str:
    name = name.replace("subgraph", "sub-graph")
    return f"{many(number)} {name.removesuffix('s') if number == 1 else name}"


def _listed(counts: Mapping[str, str], *names: str) -> str:
    return ", ".join(counts[name] for name in names)


def _verdict(findings: tuple[Finding, ...]) -> str:
    return f"failed: {len(findings)}" if findings else "ok"


def _of_numbers(numbers: Numbers | None) -> tuple[str, str]:
    if numbers is None:
        return "not checked", "--no-numbers"
    if numbers.skipped is not None:
        return "not checked", numbers.skipped
    share = "the whole model" if numbers.whole else "one pass with the same decisions"
    error = "-" if numbers.max_abs_error is None else f"{numbers.max_abs_error:.3g}"
    what = f"batch {numbers.batch}, {share}, seed {numbers.seed}, max error {error}"
    return _verdict(numbers.findings), what
