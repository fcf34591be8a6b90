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

import dataclasses
import math
import statistics
from collections.abc import Callable, Mapping, Sequence

from autoturbo.database import HandedOut, Race
from autoturbo.search.constants import SEARCH, Racing
from autoturbo.statistics import (
    FEWEST_PAIRS,
    differences,
    likeliest_shown,
    mean_interval,
    pooled_deviation,
    student,
)

ERROR_SHARES = (1.0, 0.588, 0.442)
"""Share of the stated probability of error that each look has, for one look, two and three: all of
them together then err as rarely as one (Pocock, table 1, at 95 % confidence)."""


def race(
    measure: Callable[[int], float | None],
    entrants: Mapping[int, float],
    reference: int,
    *,
    trials: int = 0,
    objective: str = "latency",
    most: float = math.inf,
    racing: Racing = SEARCH.racing,
) -> Race | None:
    """Return the result of a race; None where the reference cannot be measured.

    Args:
        measure: Returns what an entrant takes, measured anew, in seconds or another figure above
            zero of which less is better; None where that fails.
        entrants: Candidates by number with the figure that made them enter, the most promising
            first; may hold the reference.
        reference: What the leader has to beat.
        trials: Of the run; more allow to confirm more often.
        objective: What the figures are of.
        most: Measurements that there is time for, about; half of them confirm.
        racing: How many go on, and how often the winner is measured.
    """
    others = {entrant: taken for entrant, taken in entrants.items() if entrant != reference}
    part, looks = _looks(trials, most, racing)
    leader, count = reference, 0
    if others:
        leader, count = lead(measure, others, most - 2 * part, racing)
    # what chose the leader flatters it
    logarithms: dict[int, list[float]] = {reference: [], leader: []}
    for rounds in range(part, part * looks + 1, part):
        for turn in range(rounds - part, rounds):
            count += _round(measure, [*logarithms], logarithms, turn)
        longer = differences(logarithms[reference], logarithms[leader])
        low, gain, high = mean_interval(longer, ERROR_SHARES[looks - 1] * (1 - racing.confidence))
        if low > 0 or gain <= 0:
            break
    if not any(map(math.isfinite, logarithms[reference])):
        return None
    found = Race(
        objective, reference, leader, math.exp(gain), math.exp(low),
        math.exp(high) if math.isfinite(high) else None, racing.confidence,
        pooled_deviation(_taken(one) for one in logarithms.values()), count, rounds,
    )  # fmt: skip
    return dataclasses.replace(found, refuted=_refuted(entrants, found.winner))


def corrected_gain(handed: HandedOut, racing: Racing = SEARCH.racing) -> float | None:
    """Return the likeliest gain of a race, given that only gains that show are stated.

    The looks follow from the settings that the run had tried.

    Args:
        handed: What the run handed out.
        racing: How it was confirmed.

    Returns:
        At least 1 and at most the gain as it was measured; None where no race shows one, and on
        this computer, where plans are not compared by a race.
    """
    race = handed.race
    if race is None or not race.demonstrated or handed.entrants:
        return None
    if not (race.low <= race.gain and 0 < race.confidence < 1):  # recorded by something else
        return None
    part, looks = _looks(handed.covers, math.inf, racing)
    look, rest = divmod(race.rounds, part)
    if rest or not 0 < look <= looks:  # time was short
        look = looks = 1
    level = student(ERROR_SHARES[looks - 1] * (1 - race.confidence) / 2, max(race.rounds, 2) - 1)
    error = math.log(race.gain / race.low) / level
    return math.exp(likeliest_shown(math.log(race.gain), error, level, look, looks))


def _refuted(entrants: Mapping[int, float], winner: int) -> tuple[int, ...]:
    """Return the entrants whose figures were better than the winner's when they entered."""
    least = entrants.get(winner, math.inf)
    return tuple(entrant for entrant, taken in entrants.items() if taken < least)


def _taken(logarithms: Sequence[float]) -> list[float]:
    """Return the figures of an entrant that could be measured."""
    return [math.exp(value) for value in logarithms if math.isfinite(value)]


def race_measurements(trials: int, racing: Racing = SEARCH.racing) -> int:
    """Return how often a race measures that is confirmed once, where nothing limits it."""
    return sum(racing.rounds) + 2 * _looks(trials, math.inf, racing)[0]


def _looks(trials: int, most: float, racing: Racing) -> tuple[int, int]:
    """Return the rounds before each look at a gain, and the looks at most.

    A race does not measure more often than its run did, but for the first look; nor more often than
    there is time for, but for the fewest rounds that say anything.
    """
    part = max(racing.confirm_rounds, trials // racing.confirm_trials)
    if most < sum(racing.rounds) + 2 * part:
        return max(int(min(most / 4, part)), FEWEST_PAIRS), 1
    looks = (min(trials, most) - sum(racing.rounds)) // (2 * part)
    return part, int(min(max(looks, 1), len(ERROR_SHARES)))


def lead(
    measure: Callable[[int], float | None],
    entrants: Mapping[int, float],
    most: float = math.inf,
    racing: Racing = SEARCH.racing,
) -> tuple[int, int]:
    """Return who is the fastest of several, and how often was measured.

    Fewer go on from round to round: whoever is slower than the leader at the stated confidence, or
    behind too many others, drops out. The figure that made a candidate enter counts as one more
    measurement: it flatters, but less than it says.

    Args:
        measure: Returns what an entrant takes, measured anew; None where that fails.
        entrants: By number with the figure known before, the most promising first.
        most: Measurements that there is time for; fewer candidates enter where they are few.
        racing: How many are measured in each round.
    """
    alive = [*entrants]
    logarithms = {entrant: [math.log(taken)] for entrant, taken in entrants.items()}
    count = 0
    for turn, places in enumerate(racing.rounds):
        alive = sorted(alive, key=lambda entrant: _mean(logarithms[entrant]))[:places]
        if len(alive) <= 1 or count + len(alive) > most:
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
