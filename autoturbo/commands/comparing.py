"""Every scheduler and the best tuned schedule of a model side by side."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autoturbo.errors import PluginError
from autoturbo.graph.operators import Graph
from autoturbo.report.lines import mixed_samples
from autoturbo.report.notebook import Printer, View, comparison_view
from autoturbo.simulate.measurement import Failure, Measurement, Outcome

if TYPE_CHECKING:
    from autoturbo.hardware import Target
    from autoturbo.simulate.evaluator import Evaluator


@dataclass(frozen=True, slots=True, repr=False)
class Comparison:
    """What schedulers get out of a model on a target.

    Attributes:
        model: its name.
        target: its name.
        dtype: what it computes in.
        outcomes: by scheduler, what does not fit first, then the slowest; ``"tuned"`` is the best
            schedule of the database.
        mixed_samples: why samples cannot be told apart, or None.
    """

    model: str
    target: str
    dtype: str
    outcomes: Mapping[str, Outcome]
    mixed_samples: Mapping[str, Any] | None = None

    def as_json(self) -> dict[str, Any]:
        """The object of ``compare --json``."""
        schedulers = {
            name: outcome.as_json()
            if isinstance(outcome, Measurement)
            else {"failure": outcome.as_dict()}
            for name, outcome in self.outcomes.items()
        }
        return {
            "model": self.model,
            "target": self.target,
            "mixed_samples": self.mixed_samples,
            "schedulers": schedulers,
        }

    def view(self) -> View:
        """What there is to see of it."""
        return comparison_view(f"{self.model} @ {self.target}, {self.dtype}", self.outcomes)

    def __repr__(self) -> str:
        return f"<Comparison of {', '.join(self.outcomes)} for {self.model!r} on {self.target!r}>"

    def _repr_html_(self) -> str:
        return self.view().html()

    def _repr_pretty_(self, printer: Printer, cycle: bool) -> None:
        del cycle
        printer.text(self.view().text())


def compare(
    model: Graph,
    target: Target,
    *,
    dtype: str | None = None,
    database: str | Path | None = None,
    measurer: str = "simulator",
) -> Comparison:
    """Measure every scheduler's best schedule of a model on a target.

    Args:
        model: the graph with its batch.
        target: the accelerator.
        dtype: compute type; the target's default if None.
        database: where tuned schedules are looked up; None, as in :func:`autoturbo.tune`, or a
            file that is not there: none are.
        measurer: what measures, by name.

    Raises:
        UsageError: the target does not compute in the type, or there is no such measurer.
    """
    from autoturbo.schedule.baselines import scheduler_names
    from autoturbo.search.executors.processes import evaluator_by
    from autoturbo.simulate.blocks import dlfusion_outcome
    from autoturbo.simulate.contract import SIMULATOR

    chosen = dtype or target.default_dtype
    evaluator = evaluator_by(measurer, model, target, chosen)
    outcomes = {name: _measured(evaluator, name) for name in scheduler_names()}
    if measurer == SIMULATOR and target.clusters == 1 and target.cores > 1:
        outcomes["dlfusion"] = dlfusion_outcome(model, target, chosen)  # the chip that it is for
    tuned = None
    if database is not None and Path(database).exists():
        tuned = _tuned(model, target, chosen, measurer, database)
    if tuned is not None:
        outcomes["tuned"] = tuned
    ordered = dict(sorted(outcomes.items(), key=lambda item: -_latency(item[1])))
    mixed = mixed_samples(model, {target.name: target.clusters})
    return Comparison(model.name, target.name, chosen, ordered, mixed)


def _measured(evaluator: Evaluator, name: str) -> Outcome:
    """What a scheduler gets; a plug-in that is broken fails alone."""
    try:
        return evaluator.measure_scheduler(name)
    except PluginError as error:
        return Failure("raised", str(error))


def _tuned(
    model: Graph, target: Target, dtype: str, measurer: str, database: str | Path
) -> Measurement | None:
    """What the best schedule that a database holds for the pair measured."""
    import dataclasses

    from autoturbo.database import Database
    from autoturbo.tuner import pair_key

    with Database.open(database, create=False, read_only=True) as opened:
        found = opened.best(**dataclasses.asdict(pair_key(model, target, dtype, measurer)))
    return min((best.measurement for best in found), key=lambda m: m.latency, default=None)


def _latency(outcome: Outcome) -> float:
    return outcome.latency if isinstance(outcome, Measurement) else float("inf")
