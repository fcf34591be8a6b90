"""The trials of a run as a table: for people, for pandas, for programs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from autoturbo.errors import UsageError
from autoturbo.report.units import duration, size
from autoturbo.report.views import View, Viewed
from autoturbo.schedule.schedule import Schedule
from autoturbo.search.constants import SEARCH
from autoturbo.search.progress import Trial
from autoturbo.simulator.measurement import Failure, Measurement, seconds_of

if TYPE_CHECKING:
    from pandas import DataFrame

SHOWN = 20
"""Rows that a prompt or a notebook shows, the fastest."""


@dataclass(frozen=True, slots=True)
class Predictor:
    """Asks the cost model again what it said of a run's trials before they were measured.

    Attributes:
        schedule: Any schedule of the run's model on its target.
        seed: Seed of the run.
        round_trials: Trials of a round of the search.
    """

    schedule: Schedule
    seed: int
    round_trials: int

    @staticmethod
    def of(schedule: object, seed: int, round_trials: int | None) -> Predictor | None:
        """Return the predictor of a run; None for what is no schedule of a target."""
        size = round_trials or SEARCH.rounds.round_trials
        return Predictor(schedule, seed, size) if isinstance(schedule, Schedule) else None

    def __call__(self, trials: Sequence[Trial]) -> list[float]:
        """Return the predicted seconds of each trial; NaN where the model could not say any."""
        from autoturbo.report.search_course import predicted_seconds
        from autoturbo.search.openings import make_ranker
        from autoturbo.simulator.evaluator import Evaluator

        model, context = self.schedule.model, self.schedule.context
        evaluator = Evaluator(model, context.chip, context.dtype)
        ranker = make_ranker(
            evaluator, model, context.chip, context.dtype, self.seed, lambda _: None
        )
        return predicted_seconds(trials, ranker, self.round_trials)


class TrialTable(tuple[Trial, ...], Viewed):  # noqa: SLOT001  the predictor is its own
    """All trials of a run by number, as a tuple that shows itself as a table.

    Attributes:
        predictor: Tells what the cost model predicted; None where no model says anything.
    """

    predictor: Callable[[Sequence[Trial]], Sequence[float]] | None = None

    @staticmethod
    def of(
        trials: Iterable[Trial],
        predictor: Callable[[Sequence[Trial]], Sequence[float]] | None = None,
    ) -> TrialTable:
        """Return a table of trials.

        Args:
            trials: Trials of the run by number.
            predictor: Tells their predicted seconds.
        """
        made = TrialTable(trials)
        made.predictor = predictor
        return made

    def predicted(self) -> list[float | None]:
        """Return the seconds that the cost model predicted of each trial before it was measured.

        A run does not keep them: the model is asked again, which takes about as long as it took
        the search. None where it could not say any.
        """
        if self.predictor is None:
            return [None] * len(self)
        return [seconds if math.isfinite(seconds) else None for seconds in self.predictor(self)]

    def rows(self, *, predicted: bool = True) -> list[dict[str, Any]]:
        """Return a row for each trial: its measures, or why it failed, and its knobs.

        Args:
            predicted: Whether the cost model is asked what it predicted; None stands there if not.

        Returns:
            Names end in their units. Bytes are those of DDR; ``energy_j`` is None where the target
            states no energies; ``knobs`` are :class:`autoturbo.Knobs`.
        """
        guesses = self.predicted() if predicted else [None] * len(self)
        return [_row(trial, guess) for trial, guess in zip(self, guesses, strict=True)]

    def to_frame(self, *, predicted: bool = True) -> DataFrame:
        """Return the rows as a :class:`pandas.DataFrame`, by number.

        Args:
            predicted: Whether the cost model is asked, as for :meth:`rows`.

        Raises:
            UsageError: pandas is not installed.
        """
        try:
            import pandas as pd
        except ImportError:
            message, hint = "to_frame() needs pandas, which is not installed", "pip install pandas"
            raise UsageError(message, hint=f"{hint}; rows() needs nothing") from None
        return pd.DataFrame(self.rows(predicted=predicted)).set_index("trial")

    def view(self) -> View:
        """Return the fastest trials, and how many there are."""
        measured = [trial for trial in self if isinstance(trial.outcome, Measurement)]
        fastest = sorted(measured, key=lambda trial: (seconds_of(trial.outcome), trial.number))[
            :SHOWN
        ]
        shown = f", the fastest {len(fastest)}" if len(fastest) < len(self) else ""
        rows = [
            (str(row["trial"]), duration(row["latency_s"]), size(row["ddr_bytes"]),
             repr(row["knobs"]))
            for row in (_row(trial, None) for trial in fastest)
        ]  # fmt: skip
        title = f"{len(self)} trials, {len(self) - len(measured)} failed{shown}"
        return View(title, (), ("trial", "latency", "DDR traffic", "knobs"), tuple(rows))

    def __repr__(self) -> str:
        failed = sum(not isinstance(trial.outcome, Measurement) for trial in self)
        return f"<TrialTable: {len(self)} trials, {failed} failed>"


def _row(trial: Trial, predicted: float | None) -> dict[str, Any]:
    outcome = trial.outcome
    known, why = (None, outcome.message) if isinstance(outcome, Failure) else (outcome, None)
    return {
        "trial": trial.number,
        "latency_s": known and known.latency,
        "ddr_bytes": known and known.moved["ddr_bytes"],
        "energy_j": known and known.energy,
        "predicted_s": predicted,
        "failure": why,
        "knobs": trial.knobs,
    }
