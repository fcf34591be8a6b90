"""Tuned pairs as JSON: what a run gave, how sure it is, and what several seeds gave."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, NotRequired

from autoturbo.commands.scheduling import CheckName, RefusedJson, refused_json
from autoturbo.report.sharing import MixedSamples, mixed_samples
from autoturbo.schedule.knobs import KnobsJson
from autoturbo.schema import Choice, Natural, TypedDict
from autoturbo.simulator.measurement import Measurement, MeasurementJson, RangeJson

if TYPE_CHECKING:
    from autoturbo.database import RunInfo
    from autoturbo.tuning.repeated_searches import Repeats, Spread
    from autoturbo.tuning.result import TuneResult


_STOPS = ("trials", "time", "space", "no-progress", "bound", "hopeless", "interrupted")
"""Why a search may stop (:class:`autoturbo.search.stopping.Stop`)."""


class FrontPoint(MeasurementJson):
    """A trial that no other one beats in all that was sought."""

    trial: Natural
    knobs: KnobsJson


class ConfidenceJson(TypedDict):
    """How sure the gain over the published heuristic is, where measurements vary.

    Only gains that show are stated, so a small one is too high in the mean: ``gain_corrected`` is
    what it is likeliest to be (null where none is demonstrated, and on this computer).
    """

    demonstrated: bool
    gain: float
    gain_corrected: float | None
    gain_low: float | None
    gain_high: float | None
    confidence: float
    noise: float


def confidence_json(info: RunInfo) -> ConfidenceJson | None:
    """Return how sure a run's gain is; None where measurements repeat, or nothing is known."""
    from autoturbo.search.selection.racing import corrected_gain

    handed = info.handed_out
    race = None if handed is None or info.gain() is None else handed.race
    if handed is None or race is None:
        return None
    return {
        "demonstrated": race.demonstrated, "gain": race.gain,
        "gain_corrected": corrected_gain(handed), "gain_low": race.low or None,
        "gain_high": race.high, "confidence": race.confidence, "noise": race.noise,
    }  # fmt: skip


class SpreadJson(TypedDict):
    """A geometric mean with its interval at 95 % confidence; null without three figures."""

    mean: float
    low: float | None
    high: float | None


class RepeatsJson(TypedDict):
    """What searches with several seeds found, of which this is the best."""

    seeds: list[Natural]
    runs: list[str]
    latencies_s: list[float]
    latency_s: SpreadJson
    gain: SpreadJson | None


def _spread_json(spread: Spread) -> SpreadJson:
    low, high = (end if math.isfinite(spread.high) else None for end in (spread.low, spread.high))
    return {"mean": spread.mean, "low": low, "high": high}


def _repeats_json(repeats: Repeats) -> RepeatsJson:
    return {
        "seeds": list(repeats.seeds), "runs": list(repeats.runs),
        "latencies_s": list(repeats.latencies), "latency_s": _spread_json(repeats.latency),
        "gain": None if repeats.gain is None else _spread_json(repeats.gain),
    }  # fmt: skip


class TunedPair(TypedDict):
    """An object for each model on each target, in the order in which they were given.

    A pair that has no schedule has none, and the first of these is the error.
    """

    model: str
    target: str
    run: str
    trials: Natural
    settings: Natural
    seed: Natural
    default: MeasurementJson | None
    best: MeasurementJson
    best_trial: Natural
    baselines: dict[str, MeasurementJson]
    schedule_file: str
    state: Annotated[str, Choice(("done", "interrupted"))]
    stopped: Annotated[str, Choice(_STOPS)]
    warm_starts: list[str]
    mixed_samples: MixedSamples | None
    verified: list[CheckName]
    refused: list[RefusedJson]
    known_error: float | None
    latency_range: RangeJson | None
    confidence: NotRequired[ConfidenceJson]
    lacking: NotRequired[dict[str, str]]
    failures: NotRequired[dict[str, Natural]]
    numbers_skipped: NotRequired[str]
    notes: NotRequired[list[str]]
    front: NotRequired[list[FrontPoint]]
    repeats: NotRequired[RepeatsJson]


def numbers_skipped(result: TuneResult) -> str | None:
    """Return why the best schedule was not run, where it was to be."""
    verification = result.best.verification
    numbers = None if verification is None else verification.numbers
    return None if numbers is None else numbers.skipped


def as_json(result: TuneResult) -> TunedPair:
    """Return the line of ``tune --json``."""
    best, default = result.best, result.default
    line: TunedPair = {
        "model": result.model, "target": result.target, "run": result.run,
        "trials": result.measured, "settings": result.settings, "seed": result.seed,
        "default": None if default is None else default.as_json(),
        "best": best.measurement.as_json(), "best_trial": best.trial,
        "baselines": {name: m.as_json() for name, m in result.baselines.items()},
        "schedule_file": str(result.schedule_file), "state": result.state,
        "stopped": result.stopped.value, "warm_starts": ["the heuristic", *result.origins],
        "mixed_samples": _mixed_samples(result), "known_error": result.known_error,
        "latency_range": None if result.latency_range is None else result.latency_range.as_json(),
        "verified": [check.value for check in best.verified],
        "refused": refused_json(result.refused),
    }  # fmt: skip
    if notes := [*result.best.schedule.model.notes, *result.notes]:
        line["notes"] = notes
    if (confidence := confidence_json(result.info)) is not None:
        line["confidence"] = confidence
    if lacking := result.info.lacking:
        line["lacking"] = dict(lacking)
    if failures := result.failures():
        line["failures"] = dict(failures)
    if skipped := numbers_skipped(result):
        line["numbers_skipped"] = skipped
    if result.repeats is not None:
        line["repeats"] = _repeats_json(result.repeats)
    if result.front:
        line["front"] = [
            {"trial": t.number, "knobs": t.knobs.as_dict(), **t.outcome.as_json()}
            for t in result.front
            if isinstance(t.outcome, Measurement)
        ]
    return line


def _mixed_samples(result: TuneResult) -> MixedSamples | None:
    """Return why samples cannot be told apart; None on a machine, whose units do not share them."""
    from autoturbo.schedule.schedule import Schedule

    best = result.best.schedule
    if not isinstance(best, Schedule):
        return None
    return mixed_samples(best.model, {result.target: best.context.target.clusters})
