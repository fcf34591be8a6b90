"""Answers of runs on this computer: the plans that were compared, in tables and sentences.

Everything follows from what is recorded: nothing is measured to tell of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from autoturbo.database import RunInfo, TrialRecord
from autoturbo.host.compare import CONTROL, HostComparison
from autoturbo.host.cpu import Cpu
from autoturbo.host.files import HostSchedule
from autoturbo.report.units import capacity, counted, duration, many, percent, ratio
from autoturbo.report.views import View
from autoturbo.schedule.host_plan import LOOP, PLANS, TUNED, WHOLE, HostPlan
from autoturbo.schema import InvalidError, checked, form_of
from autoturbo.statistics import Gain

HEADERS: Final = ("plan", "samples at once", "a batch", "samples/s", "handed out is")
"""Columns of a comparison; the last one says how many times as fast that is."""

_WHY: Final = {
    WHOLE: "the whole batch: nothing is demonstrably faster",
    LOOP: "the best loop: no other plan is demonstrably faster",
    TUNED: "the tuned plan",
}


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
