"""The result of tuning."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import optuna

    from autoturbo.search.study import Mirror

from dataclasses import dataclass
from pathlib import Path

from autoturbo.database.records import Refused, RunState
from autoturbo.registry import SIMULATOR, Printer
from autoturbo.report.lines import View, comparison_view
from autoturbo.report.units import duration, percent, ratio
from autoturbo.search.handover import Best
from autoturbo.search.objectives import Stop
from autoturbo.search.progress import Trial
from autoturbo.simulate.measurement import Measurement, Outcome


@dataclass(frozen=True, slots=True, eq=False)
class TuneResult:
    """The result of a run.

    Attributes:
        run: its id, for :func:`resume`.
        model: name of the model.
        target: name of the target.
        trials: made so far.
        seed: of all chance.
        default: trial 0, the published heuristic at its own best batches per cluster; None where
            it does not fit.
        best: the best trial; trial 0 itself where nothing was better.
        baselines: other schedulers by name, those that fit.
        schedule_file: the best schedule.
        run_folder: manifest, schedule, log; a temporary folder that goes with this result where
            it was called without a database.
        mirror: what :attr:`study` is made of.
        state: ``"done"`` or ``"interrupted"``.
        on_machine: whether it is of a machine of several units.
        history: all trials by number.
        front: with several objectives the trials that none beats in all of them.
        refused: trials whose schedules failed a check: not ``best``, not in ``front``, not kept.
        stopped: why it ended.
        origins: where its warm starts came from.
        notes: what it could have begun with and did not, and why; what was left out at its end.
        objective: what was sought; several are parted by commas.
        measurer: name of what measured; ``"simulator"`` is ours.
        scratch: keeps the temporary folder.
    """

    run: str
    model: str
    target: str
    trials: int
    seed: int
    default: Measurement | None
    best: Best
    baselines: dict[str, Measurement]
    schedule_file: Path
    run_folder: Path
    mirror: Mirror
    state: RunState
    on_machine: bool = False
    history: tuple[Trial, ...] = ()
    front: tuple[Trial, ...] = ()
    refused: tuple[Refused, ...] = ()
    stopped: Stop = Stop.TRIALS
    origins: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    objective: str = "latency"
    measurer: str = SIMULATOR
    scratch: object = None

    @property
    def study(self) -> optuna.Study:
        """Return the study of every trial once, for Optuna's plots and dashboard."""
        return self.mirror.study

    def outcomes(self) -> dict[str, Outcome]:
        """Return the outcomes to compare, without a baseline that equals trial 0."""
        outcomes: dict[str, Outcome] = dict(self.baselines)
        if self.on_machine:  # what trial 0 is has a row of its own
            return {**outcomes, "best": self.best.measurement}
        if self.default is not None:
            ours = outcomes.get("graphturbo")
            if isinstance(ours, Measurement) and ours.latency == self.default.latency:
                del outcomes["graphturbo"]
            outcomes["default"] = self.default
        return {**outcomes, "best": self.best.measurement}

    def __repr__(self) -> str:
        of = f"{self.model!r} on {self.target!r}"
        return f"<TuneResult {self.run}: {of}, {self.best.measurement.latency!r} s>"

    def view(self) -> View:
        """Return the speedup, and where the files are."""
        best, faster = self.best.measurement, ""
        if self.default is not None:
            faster = f", {ratio(self.default.latency / best.latency)} the heuristic's speed"
        at = f"trial {self.best.trial} of {self.trials}"
        facts = (
            ("best", f"{duration(best.latency)} at {at}{faster}"),
            ("bound", f"{percent(best.bound_fraction)} of the lower bound's speed"),
            ("run", f"{self.run}, {self.state} ({self.stopped.value})"),
            ("verified", ", ".join(self.best.verified) or "no"),
            ("schedule", str(self.schedule_file)),
        )
        table = comparison_view("", self.outcomes())
        return View(f"{self.model} @ {self.target}", facts, table.headers, table.rows)

    def _repr_html_(self) -> str:
        return self.view().html()

    def _repr_pretty_(self, printer: Printer, cycle: bool) -> None:
        del cycle
        printer.text(self.view().text())
