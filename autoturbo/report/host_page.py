"""The report of a run on this computer: one self-contained HTML file."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from autoturbo.database import RunInfo, TrialRecord
from autoturbo.report.host import HEADERS, HostAnswer, cpu_of, described
from autoturbo.report.host_steps import steps
from autoturbo.schedule.host_plan import WHOLE
from autoturbo.simulator.measurement import Failure

if TYPE_CHECKING:
    from autoturbo.report.filling import Chart


def host_page(
    info: RunInfo, state: str, trials: Sequence[TrialRecord], answer: HostAnswer | None
) -> str:
    """Return the report of a run on this computer as one HTML document.

    Raises:
        UsageError: The plotting library is not installed.
    """
    from autoturbo.report.page import drawn

    timed = [(trial.number, trial.latency) for trial in trials]
    charts: dict[str, Any] = {"convergence": course_chart(timed, answer)}
    if answer is not None:
        charts["compared"] = compared_chart(answer)
    failed = sum(isinstance(trial.outcome, Failure) for trial in trials)
    cpu = cpu_of(info)
    shown = {
        "info": info, "state": state, "trials": trials, "answer": answer, "charts": charts,
        "failed": failed, "headers": HEADERS,
        "cpu": "not recorded" if cpu is None else described(cpu),
        "steps": [] if answer is None else [step.sentence for step in steps(answer)],
    }  # fmt: skip
    return drawn("host.html", shown)


def course_chart(timed: Sequence[tuple[int, float | None]], answer: HostAnswer | None) -> Chart:
    """Return a chart of the plans' gains over the whole batch, in the order of measuring.

    Of a run that has not come to its comparison, the first plan stands for the whole batch: it is
    that plan, measured once.

    Args:
        timed: Numbers of the plans, and their seconds; None where one failed.
        answer: What was compared in the end.
    """
    from autoturbo.report.filling import Chart, Columns
    from autoturbo.report.sparklines import Course

    taken = [(number, seconds) for number, seconds in timed if seconds is not None]
    base = taken[0][1] if taken else 1.0
    chosen: list[tuple[float]] = []
    if answer is not None:
        base = answer.seconds(WHOLE)
        chosen.append((base / answer.seconds(answer.chosen),))
    gains = [(number, base / seconds) for number, seconds in taken]
    best = [(number, base / seconds) for number, seconds in Course.of(timed).steps]
    if best:
        best.append((timed[-1][0], best[-1][1]))
    edge = statistics.median(gain for _, gain in gains) / 2 if gains else 0.0
    points = ((number, gain, max(gain, edge), gain, gain) for number, gain in gains)
    data = {
        "points": Columns.of("trial value at from to", points),
        "best": Columns.of("trial value", best),
        "bound": Columns.of("value", chosen),
    }  # fmt: skip
    return Chart("convergence", data, {"title": "times as fast as the whole batch"})


def compared_chart(answer: HostAnswer) -> Chart:
    """Return a chart of how many times as long each plan takes as the one handed out."""
    from autoturbo.report.filling import Chart, Columns

    comparison, rows = answer.comparison, []
    for name in comparison.seconds:
        seconds = answer.seconds(name)
        over = seconds / answer.seconds(answer.chosen)
        low = high = over
        if comparison.made and name != answer.chosen:
            gain = comparison.gain(name, answer.chosen)
            low, high = gain.low, gain.high
        kind = "chosen" if name == answer.chosen else "other"
        rows.append((name, over, low, high, seconds * 1e3, kind))
    return Chart("compared", {"rows": Columns.of("who over low high ms kind", rows)})
