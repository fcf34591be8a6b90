"""The trials of a run on this computer: every plan that was measured, kept in the database.

What parts of a model take by themselves is kept with the next trial, as the times of its kernels: a
run that goes on does not time them again.
"""

from __future__ import annotations

import hashlib
import json
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from autoturbo.database import Database, TrialRecord
from autoturbo.schedule.host_plan import HostPlan
from autoturbo.schedule.knobs import Knobs
from autoturbo.search.journal import now
from autoturbo.simulator.measurement import Failure, LowerBound, Measurement, Outcome
from autoturbo.statistics import ASSUMED_NOISE, pooled_deviation

_UNBOUND = LowerBound(0.0, 0.0, 0.0)
"""Nothing is known that no plan can beat: the rates of a processor are measured ones."""


@dataclass(eq=False)
class HostLedger:
    """The plans of a run that were measured, by number.

    Attributes:
        batch: Samples of the model; None where its inputs do not agree on them.
        samples: Samples by which plans divide the batch.
        store: The database; None keeps nothing.
        run: Id of the run.
    """

    batch: int | None
    samples: int
    store: Database | None = None
    run: str = ""
    _trials: dict[HostPlan, TrialRecord] = field(default_factory=dict)
    _parts: dict[str, float] = field(default_factory=dict)
    _unkept: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for trial in () if self.store is None else self.store.trials(self.run):
            if trial.knobs.host is not None:
                self._trials[trial.knobs.host] = trial
            if isinstance(trial.outcome, Measurement):
                self._parts.update(trial.outcome.kernel_times)

    @property
    def trials(self) -> tuple[TrialRecord, ...]:
        """Return the trials by number."""
        return tuple(self._trials.values())

    def number(self, plan: HostPlan) -> int:
        """Return the number of the trial that has measured a plan."""
        return self._trials[plan].number

    def figures(self, plan: HostPlan) -> tuple[float, ...]:
        """Return the figures by which a plan is known."""
        outcome = self._trials[plan].outcome
        return outcome.samples if isinstance(outcome, Measurement) else ()

    def seconds(self, plan: HostPlan) -> float | None:
        """Return the seconds of a plan; infinite for one that cannot be run, None for a new one."""
        trial = self._trials.get(plan)
        if trial is None:
            return None
        return math.inf if trial.latency is None else trial.latency

    def enter(self, plan: HostPlan, figures: Sequence[float]) -> float:
        """Record the figures of a plan, with the parts timed before it; return their median."""
        seconds = statistics.median(figures)
        measured = self.measurement(plan, seconds, figures)
        self._record(plan, replace(measured, kernel_times=self._unkept))
        self._unkept = {}
        return seconds

    def fail(self, plan: HostPlan, message: str) -> float:
        """Record why a plan cannot be run; return the seconds of such a plan."""
        self._record(plan, Failure("raised", " ".join(message.split())))
        return math.inf

    def measurement(
        self, plan: HostPlan, seconds: float, figures: Sequence[float], noise: float | None = None
    ) -> Measurement:
        """Return the measurement of a plan; what is not known is 0.

        Args:
            plan: The measured plan.
            seconds: Seconds of a batch.
            figures: Each of them.
            noise: Relative standard deviation of a figure; as all plans were found to have if None.
        """
        calls = sum(self.samples // part.samples for part in plan.subgraphs)
        return Measurement(
            seconds, self.batch, 0, 0, 0.0, 0.0, 0, 0, calls, _UNBOUND, samples=tuple(figures),
            noise=self._noise(figures) if noise is None else noise,
        )  # fmt: skip

    def _noise(self, figures: Sequence[float]) -> float:
        """Return the relative deviation of figures of one plan, pooled over all plans."""
        measured = (trial.outcome for trial in self._trials.values())
        groups = [one.samples for one in measured if isinstance(one, Measurement)]
        return pooled_deviation([*groups, figures]) or ASSUMED_NOISE

    def _record(self, plan: HostPlan, outcome: Outcome) -> None:
        trial = TrialRecord(self.run, len(self._trials), Knobs(host=plan), outcome, now())
        if self.store is not None:
            self.store.add_trials([trial])
        self._trials[plan] = trial

    # Parts by themselves

    def part_seconds(self, plan: HostPlan) -> float | None:
        """Return the seconds that a part takes for the whole batch; None where nobody knows."""
        return self._parts.get(_signature(plan))

    def enter_part(self, plan: HostPlan, seconds: float) -> None:
        """Keep what a part takes by itself, from the next trial on."""
        signature = _signature(plan)
        self._parts[signature] = self._unkept[signature] = seconds


def _signature(plan: HostPlan) -> str:
    text = json.dumps(plan.as_dict(), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()
