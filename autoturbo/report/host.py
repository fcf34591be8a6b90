"""What is told of runs on this computer: tables, sentences, the explanation and the report's page.

Everything follows from what is recorded: nothing is measured to tell of it.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from autoturbo.database import RunInfo, TrialRecord
from autoturbo.host.compare import CONTROL, HostComparison
from autoturbo.host.cpu import Cpu
from autoturbo.host.files import HostSchedule
from autoturbo.report.units import capacity, counted, duration, many, percent, ratio
from autoturbo.report.views import View
from autoturbo.schedule.host_plan import LOOP, PLANS, TUNED, WHOLE, HostPlan, HostSubGraph
from autoturbo.schema import InvalidError, checked, form_of
from autoturbo.simulator.measurement import Failure
from autoturbo.statistics import Gain

if TYPE_CHECKING:
    from autoturbo.report.filling import Chart

HEADERS: Final = ("plan", "samples at once", "a batch", "samples/s", "handed out is")
"""Columns of a comparison; the last one says how many times as fast that is."""

_WHY: Final = {
    WHOLE: "the whole batch: nothing is demonstrably faster",
    LOOP: "the best loop: no other plan is demonstrably faster",
    TUNED: "the tuned plan",
}

_WIDE: Final = 12
"""Sub-graphs that are told one by one."""


@dataclass(frozen=True, slots=True)
class HostAnswer:
    """The plans that a run on this computer compared, and the one that it handed out.

    Attributes:
        model: Name of the model.
        batch: Samples of a batch.
        agreed: Whether the model's inputs agree on the batch.
        chosen: Name of the plan that is handed out.
        plans: Plans that were compared, by name, each once.
        comparison: Comparison of the plans.
    """

    model: str
    batch: int
    agreed: bool
    chosen: str
    plans: Mapping[str, HostPlan]
    comparison: HostComparison

    @staticmethod
    def of_schedule(schedule: HostSchedule, again: HostComparison | None = None) -> HostAnswer:
        """Return what a schedule holds, perhaps with another comparison of its plans."""
        about = schedule.model
        comparison = again or schedule.comparison
        return HostAnswer(
            about.name, about.batch, about.agreed, schedule.chosen, schedule.plans, comparison
        )

    @staticmethod
    def of_run(info: RunInfo, trials: Sequence[TrialRecord]) -> HostAnswer | None:
        """Return what a run has handed out; None before it has, or where the record is no good."""
        handed = info.handed_out
        if handed is None:
            return None
        known = {trial.number: trial.knobs.host for trial in trials}
        numbers = {name: handed.entrants[name] for name in PLANS if name in handed.entrants}
        plans = {n: plan for n, number in numbers.items() if (plan := known.get(number))}
        chosen = next((n for n, number in numbers.items() if number == handed.trial), "")
        if chosen not in plans or not _fit(plans.values(), info.batch):
            return None
        measured = {chosen: handed.measurement, **handed.baselines}
        order = [name for name in (*PLANS, CONTROL) if name in measured]
        comparison = HostComparison({name: measured[name].samples for name in order})
        if not comparison.is_sound or not set(plans) <= set(comparison.seconds):
            return None
        agreed = handed.measurement.batch is not None
        return HostAnswer(info.model, info.batch, agreed, chosen, plans, comparison)

    def seconds(self, name: str) -> float:
        """Return the seconds of a plan, by one estimate for all that is told."""
        return self.comparison.typical(name, self.chosen)

    def is_shown(self, gain: Gain) -> bool:
        """Return whether a gain is one: beyond its interval, and beyond that of the control."""
        noise = self.comparison.noise
        return noise is not None and gain.demonstrated and gain.ratio > noise.high

    @property
    def headline(self) -> Gain | None:
        """Return the gain of what is handed out over the whole batch; None where none is shown."""
        if not self.comparison.made or self.chosen == WHOLE:
            return None
        gain = self.comparison.gain(WHOLE, self.chosen)
        return gain if self.is_shown(gain) else None

    @property
    def rows(self) -> list[tuple[str, ...]]:
        """Return a row of :data:`HEADERS` for each plan."""
        gains = self.comparison.gains(self.chosen)
        return [
            (
                name, self.plans[name].sentence, duration(self.seconds(name)),
                many(round(self.batch / self.seconds(name))) if self.agreed else "-",
                ratio(gains[name].ratio) if name in gains else "-",
            )
            for name in self.plans
        ]  # fmt: skip

    @property
    def facts(self) -> list[tuple[str, str]]:
        """Return what is stated of the plans, in sentences with names."""
        facts = [("gain", line) for line in self._gains]
        noise = self.comparison.noise
        if noise is not None:
            facts.append(("noise", f"the whole batch against itself: {interval(noise)}"))
            rounds = f"{counted(self.comparison.rounds, 'round')} in turn"
            facts.append(("figures", f"measured on this computer, medians of {rounds}"))
        facts.append(("handed out", self.why))
        return [(name if i == 0 or name != "gain" else "", text) for i, (name, text) in
                enumerate(facts)]  # fmt: skip

    @property
    def why(self) -> str:
        """Return which plan is handed out, and why."""
        if not self.comparison.made:
            return f"the {self.chosen}: there was no time for a comparison"
        return _WHY[self.chosen]

    @property
    def _gains(self) -> list[str]:
        """Return the gains over simpler plans; what was not shown of the tuned one."""
        if not self.comparison.made:
            return ["not stated: there was no time for a comparison"]
        shown = [
            f"{ratio(gain.ratio)} over the {name} ({interval(gain)})"
            for name, gain in self.comparison.gains(self.chosen).items()
            if PLANS.index(name) < PLANS.index(self.chosen) and self.is_shown(gain)
        ]
        if self.chosen != TUNED and TUNED in self.plans:
            gain = self.comparison.gain(self.chosen, TUNED)
            shown.append(
                f"none demonstrated of the tuned plan: {interval(gain)}, over the {self.chosen}"
            )
        none = "none on this computer: nothing is demonstrably faster than the whole batch"
        return shown or [none]


def _fit(plans: Iterable[HostPlan], batch: int) -> bool:
    """Return whether plans are of one model with a batch."""
    ends = {plan.subgraphs[-1].stop if plan.subgraphs else 0 for plan in plans}
    return len(ends) == 1 and not any(plan.fault(max(ends), batch) for plan in plans)


def cpu_of(info: RunInfo) -> Cpu | None:
    """Return the processor of a run; None where its record has none."""
    try:
        form: dict[str, Any] = checked(form_of(Cpu), info.settings.get("target_description"))
    except InvalidError:
        return None
    return Cpu(**form)


def interval(gain: Gain) -> str:
    """Return the interval of a gain in words."""
    return f"{ratio(gain.low)} to {ratio(gain.high)} at {percent(gain.confidence)} confidence"


def described(cpu: Cpu) -> str:
    """Return a processor's description, for people."""
    caches = ", ".join(
        f"{name} {capacity(size)}"
        for name, size in (("L2", cpu.l2_bytes), ("L3", cpu.l3_bytes))
        if size
    )
    rates = f"{cpu.macs_per_s / 1e9:.0f} GMAC/s, {cpu.bandwidth / 1e9:.0f} GB/s"
    cores = counted(cpu.cores, "core")
    return ", ".join(part for part in (cpu.name, cores, caches, rates) if part)


def host_view(answer: HostAnswer, more: Mapping[str, str]) -> View:
    """Return what a notebook shows of a comparison."""
    facts = (*answer.facts, *more.items())
    return View(f"{answer.model} @ host", facts, HEADERS, tuple(answer.rows))


# ------------------------------------------------------------------------------- the explanation


@dataclass(frozen=True, slots=True)
class HostStep:
    """What one plan does otherwise than another, and what that is worth.

    Attributes:
        base: Name of the simpler plan.
        plan: Name of the other one.
        differs: What the plan does otherwise, in words.
        gain: How many times as fast it is; None where they were not compared.
    """

    base: str
    plan: str
    differs: tuple[str, ...]
    gain: Gain | None

    @property
    def sentence(self) -> str:
        """Return the step in words."""
        what = f"{self.plan} in place of {self.base}: {'; '.join(self.differs)}"
        if self.gain is None:
            return f"{what}: not compared"
        return f"{what}: {ratio(self.gain.ratio)} ({interval(self.gain)})"


def steps(answer: HostAnswer) -> list[HostStep]:
    """Return the steps from the whole batch to the tuned plan."""
    names, found = list(answer.plans), []
    for base, name in itertools.pairwise(names):
        gain = answer.comparison.gain(base, name) if answer.comparison.made else None
        differs = tuple(differences_of(answer.plans[base], answer.plans[name]))
        found.append(HostStep(base, name, differs, gain))
    return found


def differences_of(base: HostPlan, plan: HostPlan) -> Iterator[str]:
    """Yield in what a plan differs from a base, in words."""
    samples = [sorted({part.samples for part in one.subgraphs}) for one in (base, plan)]
    if samples[0] != samples[1]:
        before, after = (", ".join(map(str, one)) for one in samples)
        what = "sample" if samples[1] == [1] else "samples"
        yield f"{after} {what} at once, not {before}"
    if len(plan.subgraphs) != len(base.subgraphs):
        count = counted(len(plan.subgraphs), "sub-graph")
        yield f"{count}, not {len(base.subgraphs)}"
    if len(plan.subgraphs) > 1 and (len(base.subgraphs) == 1 or plan.order != base.order):
        yield plan.order
    if (plan.workers, plan.threads) != (base.workers, base.threads):
        yield f"{plan.workers} x {plan.threads} threads, not {base.workers} x {base.threads}"


def subgraph_rows(
    answer: HostAnswer,
    names: Sequence[str],
    parts: Sequence[range],
    part_seconds: Callable[[HostPlan], float | None],
) -> list[tuple[str, ...]]:
    """Return a row for each sub-graph of the last plan that was compared.

    Args:
        answer: The plans.
        names: Names of the operators; empty where the model is not there.
        parts: Parts of the model that were timed by themselves; empty likewise.
        part_seconds: Returns what a part takes alone; None where that is not known.
    """
    before, last = answer.plans.get(LOOP, answer.plans[WHOLE]), [*answer.plans.values()][-1]
    rows = []
    for part in last.subgraphs:
        inside = [p for p in parts if p.start in part.operators]
        alone = (_alone(plan, inside, part_seconds) for plan in (before, last))
        home = next(one for one in before.subgraphs if part.first in one.operators)
        shown = ["-" if seconds is None else duration(seconds) for seconds in alone]
        rows.append((_title(part, names), str(home.samples), str(part.samples), *shown))
    return rows


SUBGRAPH_HEADERS: Final = (
    "sub-graph", "samples, loop", "samples, here", "alone, loop", "alone, here",
)  # fmt: skip


def _title(part: HostSubGraph, names: Sequence[str]) -> str:
    """Return the operators of a sub-graph, by the names of the first and the last."""
    if part.stop > len(names):
        return f"operators {part.first} to {part.stop - 1}"
    first, last = names[part.first], names[part.stop - 1]
    return first if part.stop - part.first == 1 else f"{first} to {last}"


def _alone(
    plan: HostPlan, parts: Sequence[range], part_seconds: Callable[[HostPlan], float | None]
) -> float | None:
    """Return what parts take by themselves as a plan has them; None where one was not timed."""
    total = 0.0
    for part in parts:
        home = next(one for one in plan.subgraphs if part.start in one.operators)
        single = HostSubGraph(part.start, part.stop, home.samples)
        seconds = part_seconds(
            HostPlan((single,), home.samples, workers=plan.workers, threads=plan.threads)
        )
        if seconds is None:
            return None
        total += seconds
    return total if parts else None


# ------------------------------------------------------------------------------------- the page


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
    from autoturbo.report.course import Course
    from autoturbo.report.filling import Chart, Columns

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
