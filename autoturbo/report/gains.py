"""Sentences on what a run gained over other schedulers, how sure that is, and what failed."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from autoturbo.registry import HEURISTIC, HEURISTICS
from autoturbo.report.units import percent, ratio
from autoturbo.schedule.knobs.pins import Pins
from autoturbo.simulator.measurement import Failure, Outcome

if TYPE_CHECKING:
    from autoturbo.database.records import HandedOut, Race, RunInfo


REFERENCE = "tvm"
"""The scheduler that speed-ups refer to."""

TVM_LIKE = "TVM-like (not TVM's own kernels)"
"""What people read of the scheduler that gains are stated over besides."""


def compared(info: RunInfo, handed: HandedOut | None) -> dict[str, Outcome]:
    """Return what a run's best schedule is compared with, by name, then ``"best"`` itself.

    The published heuristic is ``"default"``; whatever has no figure is a failure that says why.

    Args:
        info: The run.
        handed: What it handed out, or would; None where it has no schedule.
    """
    outcomes: dict[str, Outcome] = {}
    if handed is not None:
        outcomes |= {n: m for n, m in handed.baselines.items() if n not in HEURISTICS}
    absent = {name: Failure("raised", reason) for name, reason in info.lacking.items()}
    outcomes |= {name: failure for name, failure in absent.items() if name != HEURISTIC}
    if handed is not None and handed.heuristic is not None:
        outcomes["default"] = handed.heuristic
    elif HEURISTIC in absent:
        outcomes["default"] = absent[HEURISTIC]
    return outcomes if handed is None else {**outcomes, "best": handed.measurement}


def gain_sentence(info: RunInfo) -> str:
    """Return how much faster than its bases a run's best schedule is; empty without a base."""
    from autoturbo.search.objectives import OF_KERNELS

    handed, gain = info.handed_out, info.gain()
    if reason := info.lacking.get(HEURISTIC):
        return f"not known: the heuristic was not measured in full: {reason}"
    if handed is None or handed.heuristic is None:
        return ""
    if gain is None:
        return f"not known, measurements vary: {handed.doubt}"
    race = handed.race
    interval = interval_sentence(handed)
    if race is not None and not race.demonstrated:
        text = f"none demonstrated: {interval}, over the heuristic"
    elif race is not None and race.objective not in OF_KERNELS:
        gained = f"{_raced_ratio(race.gain, race)} in {race.objective}"
        text = f"{gained} over the heuristic ({interval})"
    elif gain <= 1:
        text = "none: no trial is faster than the heuristic"
    else:
        base = info.gain(REFERENCE)
        text = (
            f"{_raced_ratio(gain, race)} over the heuristic{f' ({interval})' if interval else ''}"
            f"{'' if base is None else f', {ratio(base)} over {TVM_LIKE}'}"
        )
    return text


def refuted_sentence(race: Race | None) -> str:
    """Return the trials that looked better than what a race handed out; empty for none."""
    if race is None or not race.refuted:
        return ""
    return f"trial{'s' if race.refuted[1:] else ''} {', '.join(map(str, race.refuted))}"


def interval_sentence(handed: HandedOut) -> str:
    """Return the interval of a race's gain: ``1.37x to 1.40x at 95 % confidence``.

    Of a gain that is much likelier to be smaller, as it would not be stated if it did not show, it
    also says how large it then is.
    """
    if (race := handed.race) is None:
        return ""
    low = _raced_ratio(race.low, race)
    high = "any" if race.high is None else _raced_ratio(race.high, race)
    text = f"{low} to {high} at {percent(race.confidence)} confidence"
    return "; ".join(filter(None, (text, _correction_sentence(handed, race))))


_WORTH_SAYING = 0.1
"""Share of a gain, as a logarithm, that has to be luck for it to be said."""

_SMALL = 1.1
"""Gain below which a percent matters."""


def _correction_sentence(handed: HandedOut, race: Race) -> str:
    """Return what a gain is likely to be, given that it is stated; empty where that is as much."""
    from autoturbo.search.selection.racing import corrected_gain

    gain = corrected_gain(handed)
    if gain is None or math.log(gain) > (1 - _WORTH_SAYING) * math.log(race.gain):
        return ""
    return f"{_raced_ratio(gain, race)} once allowed for that only gains that show are stated"


def _raced_ratio(value: float, race: Race | None) -> str:
    """Return a factor as text, with a digit more where the gain of a race is small."""
    small = race is not None and 1 / _SMALL < race.gain < _SMALL
    return f"{value:.3f}x" if small else ratio(value)


def failed_sentence(outcomes: Iterable[Outcome]) -> str:
    """Return how many trials failed for which reason, and what the first says; empty for none.

    Those that do not fit a memory are no failures of measuring.
    """
    outcomes = list(outcomes)
    failed = [o for o in outcomes if isinstance(o, Failure) and not o.infeasible]
    if not failed:
        return ""
    counts = Counter(failure.reason for failure in failed).most_common()
    reasons = ", ".join(f"{reason} {number}" for reason, number in counts)
    return f"{len(failed)} of {len(outcomes)} trials ({reasons}); the first: {failed[0].message}"


def unsure(info: RunInfo) -> frozenset[str]:
    """Return the names of outcomes whose gain is not stated, as :func:`compared` calls them."""
    handed = info.handed_out
    return frozenset({"best"} if handed is not None and handed.is_single else ())


def pinned_by_you(settings: Mapping[str, Any]) -> str:
    """Return what people have fixed in a run, by its settings; empty for nothing."""
    pins = Pins(settings.get("fixed") or {}, settings.get("allowed") or {})
    kept = [f"{' and '.join(group)} in one sub-graph" for group in settings.get("keep") or ()]
    words = [*pins.words(), *kept, *(f"{name} cut" for name in settings.get("cut") or ())]
    return f"by you: {', '.join(words)}" if words else ""
