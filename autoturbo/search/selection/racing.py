"""Races: which of a few candidates is the fastest, and whether it beats a reference.

Where the same schedule takes another time at each measurement, the lowest of many figures is mostly
luck. A race measures the best few candidates again, in turn, each round in the reverse order of the
last, and compares logarithms within a round: drift cancels. From round to round fewer go on, and
whoever is slower than the leader at the stated confidence drops out, so repeats are spent where the
decision is (Maron and Moore, "Hoeffding Races", NIPS '93; with Student's t in place of Hoeffding's
bound, as in Birattari's F-Race). Then the leader and the reference are measured anew, and these
figures alone say what was gained: the ones that made it the leader are the luckiest. How often is
fixed beforehand, but for up to two more looks where a gain is nearly shown: a group-sequential test
(Pocock, "Group sequential methods in the design and analysis of clinical trials", Biometrika 64,
1977), whose intervals are wider, so that all looks together err as rarely as one would.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from autoturbo.search.constants import SEARCH
from autoturbo.statistics import differences, mean_interval

_SHARES = (1.0, 0.588, 0.442)
"""Share of the stated probability of error that each look has, for one look, two and three: all of
them together then err as rarely as one (Pocock, table 1, at 95 % confidence)."""


@dataclass(frozen=True, slots=True)
class Race:
    """The result of a race.

    Attributes:
        winner: The entrant handed out: the leader, or the reference where no gain is shown.
        gain: How many times as much the reference takes as the leader.
        low: Lower end of the interval of that gain.
        high: Upper end of it.
        confidence: That the interval holds the gain.
        measurements: Made for the race.
        rounds: The last of them, in which leader and reference alone were measured.
    """

    winner: int
    gain: float
    low: float
    high: float
    confidence: float
    measurements: int
    rounds: int

    @property
    def demonstrated(self) -> bool:
        """Return whether the leader is better than the reference at the stated confidence."""
        return self.low > 1


def race(
    measure: Callable[[int], float | None],
    entrants: Mapping[int, float],
    reference: int,
    trials: int = 0,
) -> Race | None:
    """Return the result of a race; None where the reference cannot be measured.

    Args:
        measure: Returns what an entrant takes, measured anew, in seconds or another figure above
            zero of which less is better; None where that fails.
        entrants: Candidates by number with the figure that made them enter, the most promising
            first; may hold the reference.
        reference: What the winner has to beat.
        trials: Of the run; more allow to confirm more often.
    """
    others = {entrant: taken for entrant, taken in entrants.items() if entrant != reference}
    leader, count = lead(measure, others) if others else (reference, 0)
    # what chose the leader flatters it
    logarithms: dict[int, list[float]] = {reference: [], leader: []}
    part, looks = _looks(trials)
    for rounds in range(part, part * looks + 1, part):
        for turn in range(rounds - part, rounds):
            count += _round(measure, [*logarithms], logarithms, turn)
        longer = differences(logarithms[reference], logarithms[leader])
        low, gain, high = mean_interval(longer, _SHARES[looks - 1] * (1 - SEARCH.confidence))
        if low > 0 or gain <= 0:
            break
    if not any(map(math.isfinite, logarithms[reference])):
        return None
    ends = math.exp(gain), math.exp(low), math.exp(high)
    return Race(leader if low > 0 else reference, *ends, SEARCH.confidence, count, rounds)


def _looks(trials: int) -> tuple[int, int]:
    """Return the rounds before each look at a gain, and the looks at most.

    A race does not measure more often than its run did, but for the first look.
    """
    part = max(SEARCH.confirm_rounds, trials // SEARCH.confirm_trials)
    looks = (trials - sum(SEARCH.race_rounds)) // (2 * part)
    return part, min(max(looks, 1), len(_SHARES))


def lead(measure: Callable[[int], float | None], entrants: Mapping[int, float]) -> tuple[int, int]:
    """Return who is the fastest of several, and how often was measured.

    Fewer go on from round to round: whoever is slower than the leader at the stated confidence, or
    behind too many others, drops out. The figure that made a candidate enter counts as one more
    measurement: it flatters, but less than it says.

    Args:
        measure: Returns what an entrant takes, measured anew; None where that fails.
        entrants: By number with the figure known before, the most promising first.
    """
    alive = [*entrants]
    logarithms = {entrant: [math.log(taken)] for entrant, taken in entrants.items()}
    count = 0
    for turn, most in enumerate(SEARCH.race_rounds):
        alive = sorted(alive, key=lambda entrant: _mean(logarithms[entrant]))[:most]
        if len(alive) <= 1:
            break
        count += _round(measure, alive, logarithms, turn)
        alive = _remaining(alive, logarithms)
    first = next(iter(entrants))
    return min(alive, key=lambda entrant: _mean(logarithms[entrant]), default=first), count


def _round(
    measure: Callable[[int], float | None],
    entrants: Sequence[int],
    logarithms: dict[int, list[float]],
    turn: int,
) -> int:
    """Measure entrants in turn, the other way round in every second round; return how many."""
    for entrant in entrants if turn % 2 == 0 else entrants[::-1]:
        taken = measure(entrant)
        logarithms[entrant].append(math.nan if taken is None else math.log(taken))
    return len(entrants)


def _remaining(alive: Sequence[int], logarithms: dict[int, list[float]]) -> list[int]:
    """Return the entrants that are not slower than the leader, and that can be measured."""
    able = [entrant for entrant in alive if not math.isinf(_mean(logarithms[entrant]))]
    if not able:
        return []
    leader = min(able, key=lambda entrant: _mean(logarithms[entrant]))
    return [
        entrant for entrant in able
        if mean_interval(differences(logarithms[entrant][1:], logarithms[leader][1:]))[0] <= 0
    ]  # fmt: skip


def _mean(logarithms: Sequence[float]) -> float:
    """Return the mean of what was measured; infinite where half of it failed."""
    taken = [value for value in logarithms if math.isfinite(value)]
    return statistics.fmean(taken) if 2 * len(taken) > len(logarithms) else math.inf
