"""The result of tuning."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from autoturbo.database.records import RefusedTrial, RunInfo, RunState
from autoturbo.errors import AutoTurboError, UsageError
from autoturbo.registry import SIMULATOR
from autoturbo.report.gains import compared, unsure
from autoturbo.report.trials import TrialTable
from autoturbo.report.units import duration, ratio, schedules
from autoturbo.report.views import View, Viewed, bound_shares, comparison_view
from autoturbo.schedule.pipeline import ModelScheduler, build_schedule
from autoturbo.search.objectives import figures, find_objectives
from autoturbo.search.progress import Trial
from autoturbo.search.selection.verified_selection import Best
from autoturbo.search.stopping import Stop
from autoturbo.simulator.measurement import Failure, LatencyRange, Measurement, Outcome
from autoturbo.tuning.repeated_searches import Repeats

if TYPE_CHECKING:
    import optuna

    from autoturbo.report.plots import Plot
    from autoturbo.search.study import StudyMirror, WrittenStudy


@dataclass(frozen=True, slots=True, eq=False)
class TuneResult(Viewed):
    """The result of a run.

    Attributes:
        run: Id of the run, for :func:`resume`.
        model: Name of the model.
        target: Name of the target.
        measured: Schedules measured so far, and those that failed.
        seed: Seed of all chance in the run.
        default: Trial 0, the published heuristic at its own best batches per cluster; None where
            it does not fit, fails a check or was not measured in full.
        best: The best trial; trial 0 itself where nothing was better.
        baselines: Other schedulers by name, those that fit and were measured in full.
        info: What the database keeps of it: :meth:`~autoturbo.database.RunInfo.gain` is its gain,
            ``lacking`` says what was not measured.
        schedule_file: The best schedule.
        run_folder: Manifest, schedule, log; a temporary folder that goes with this result where
            it was called without a database.
        mirror: Trials that :attr:`study` is made of.
        state: ``"done"`` or ``"interrupted"``.
        on_machine: Whether it is of a machine of several units.
        trials: All trials by number, as a table with ``rows()`` and ``to_frame()``.
        front: Trials that none beats in all objectives, where there are several.
        refused: Trials whose schedules failed a check: not ``best``, not in ``front``, not kept.
        stopped: Why it ended.
        origins: Origins of its warm starts.
        notes: What it could have begun with and did not, and why; what was left out at its end.
        objective: Names of the objectives, parted by commas.
        measurer: Name of what measured; ``"simulator"`` is ours.
        known_error: Relative error of the target's simulated times, as its file says of kernels as
            long as those of the best schedule in the mean; None where nobody compared them with
            measured ones.
        latency_range: Range of the best latency, where it depends on what is not published of
            the target; None where it does not, or was measured.
        scratch: Keeps the temporary folder.
        unsaved: Why the database has not got all of it, and the command that stores the rest.
        repeats: What searches with several seeds found, of which this is the best; None for one.
    """

    run: str
    model: str
    target: str
    measured: int
    seed: int
    default: Measurement | None
    best: Best
    baselines: dict[str, Measurement]
    info: RunInfo
    schedule_file: Path
    run_folder: Path
    mirror: StudyMirror | WrittenStudy
    state: RunState
    on_machine: bool = False
    trials: TrialTable = field(default_factory=TrialTable)
    front: tuple[Trial, ...] = ()
    refused: tuple[RefusedTrial, ...] = ()
    stopped: Stop = Stop.TRIALS
    origins: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    objective: str = "latency"
    measurer: str = SIMULATOR
    known_error: float | None = None
    latency_range: LatencyRange | None = None
    scratch: object = None
    unsaved: str = ""
    repeats: Repeats | None = None

    @property
    def settings(self) -> int:
        """Return how many settings were proposed: some gave a schedule that was known."""
        return len(self.trials)

    @property
    def study(self) -> optuna.Study:
        """Return the study of every trial once, for Optuna's plots and dashboard."""
        return self.mirror.study

    def outcomes(self) -> dict[str, Outcome]:
        """Return the entries to compare: bases, why one has no figure, and the best."""
        return compared(self.info, self.info.handed_out)

    def failures(self) -> Counter[str]:
        """Return how many trials failed, by the class of the failure."""
        return Counter(t.outcome.reason for t in self.trials if isinstance(t.outcome, Failure))

    def plot(self, kind: str = "convergence") -> Plot:
        """Return a chart of the report; a notebook shows it, ``save(path)`` writes it.

        Args:
            kind: ``"convergence"`` (trials in order), ``"speed"`` (beside other schedulers),
                ``"timeline"`` (engines in time), ``"breakdown"`` (where the time goes) or
                ``"roofline"``.

        Raises:
            UsageError: There is no such plot, or not of such a run.
        """
        from autoturbo.report import plots

        plots.check_kind(kind, plots.RUN_PLOTS)
        if kind == "convergence":
            objective = find_objectives(self.objective.split(",")[0])[0]
            return plots.convergence_plot(self._of, self.trials, objective, self.default)
        if kind == "speed":
            return plots.speed_plot(self._of, self._measured())
        best = plots.measured_of(self.best.schedule, self.best.measurement)
        rows = {}
        if self.default is not None:
            heuristic = build_schedule(ModelScheduler.of(best.schedule), self.trials[0].knobs)
            rows["default"] = plots.measured_of(heuristic, self.default)
        return plots.schedule_plot(kind, self._of, {**rows, "tuned": best})

    @property
    def _of(self) -> str:
        return f"{self.model} @ {self.target}, run {self.run}"

    def _measured(self) -> dict[str, Measurement]:
        """Return the schedules that were measured, by the names of schedulers, the best last."""
        bases = {n: one for n, one in self.outcomes().items() if n != "best"}
        measured = {n: one for n, one in bases.items() if isinstance(one, Measurement)}
        return {**measured, "tuned": self.best.measurement}

    def picture(self) -> str:
        """Return the first picture of the report; empty where it cannot be drawn."""
        from autoturbo.report import plots

        with suppress(UsageError):
            return plots.speed_plot(self._of, self._measured()).svg()
        return ""

    def __repr__(self) -> str:
        of = f"{self.model!r} on {self.target!r}"
        return f"<TuneResult {self.run}: {of}, {self.best.measurement.latency!r} s>"

    def view(self) -> View:
        """Return the speedup, and where the files are."""
        best, gain = self.best.measurement, self.info.gain()
        faster = "" if gain is None else f", {ratio(gain)} the heuristic's speed"
        at = f"trial {self.best.trial} of {schedules(self.measured, self.settings)}"
        facts = (
            ("best", f"{duration(best.latency)} at {at}{faster}"),
            ("bound", bound_shares(best)),
            ("run", f"{self.run}, {self.state} ({self.stopped.value})"),
            ("verified", ", ".join(self.best.verified) or "no"),
            ("schedule", str(self.schedule_file)),
        )
        table = comparison_view("", self.outcomes(), unsure(self.info))
        return View(f"{self.model} @ {self.target}", facts, table.headers, table.rows)


def best_of(
    ended: Sequence[TuneResult | AutoTurboError],
) -> list[TuneResult | AutoTurboError]:
    """Return the best of searches that differ in their seeds, with what all of them found.

    Args:
        ended: Result of each search, or why there is none.

    Returns:
        One result, or why the first search has none where all lack one; all of them where one was
        interrupted, as they are to be resumed.
    """
    results = [one for one in ended if not isinstance(one, AutoTurboError)]
    if len(ended) == 1 or any(result.state == "interrupted" for result in results):
        return list(ended)
    if not results:
        return list(ended[:1])
    gains = [gain for result in results if (gain := result.info.gain()) is not None]
    repeats = Repeats(
        tuple(result.seed for result in results),
        tuple(result.run for result in results),
        tuple(result.best.measurement.latency for result in results),
        tuple(gains) if len(gains) == len(results) else (),
    )
    (first, *_) = find_objectives(results[0].objective)
    best = min(results, key=lambda result: figures([first], result.best.measurement))
    return [dataclasses.replace(best, repeats=repeats)]
