"""Which of several searches gets the next round: the one of which most is expected.

Every model counts the same, so what is compared is the logarithm of the best score: what a round
takes off it, per round. As in Ansor (Zheng et al., OSDI 2020, section 6, equation for the
gradient) the expectation mixes what the last rounds have brought with what is left at best: its
weight and its window are theirs. What is left is the distance to the lower bound, which we have
and they have to guess; taken over as many rounds as were spent, so that a search that has had
little is given the benefit of the doubt.

An expectation follows from a search's own outcomes, in the order of their trials, and from
nothing else: no clock, and not who measured.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from autoturbo.search.constants import SEARCH, Allocation


@dataclass(frozen=True, slots=True)
class SearchState:
    """The course of a search so far.

    Attributes:
        scores: The best score after each round, lower is better; None while nothing fits.
        floor: Lower bound of the score; None where it is not known.
    """

    scores: Sequence[float | None]
    floor: float | None = None


def expected_gain(course: SearchState, allocation: Allocation = SEARCH.allocation) -> float:
    """Return how much the next round is expected to reduce the logarithm of the best score.

    Infinite for a search that has had no round: each is tried before any goes on.
    """
    rounds = len(course.scores)
    if not rounds:
        return math.inf
    forward, weight = _left(course, allocation.unknown_gap) / rounds, allocation.recent_weight
    return weight * _recent(course.scores, allocation.recent_rounds) + (1 - weight) * forward


def _recent(scores: Sequence[float | None], rounds: int) -> float:
    """Return the mean gain per round over the last rounds."""
    window = [score for score in scores[-rounds - 1 :] if score is not None and score > 0]
    if len(window) < 2:  # noqa: PLR2004  a difference takes two
        return 0.0
    return math.log(window[0] / window[-1]) / (len(window) - 1)


def _left(course: SearchState, unknown: float) -> float:
    """Return the distance to the bound as a logarithm, or what stands for one that is unknown."""
    best, floor = course.scores[-1], course.floor
    if best is None or floor is None or best <= 0 or floor <= 0:
        return unknown
    return max(math.log(best / floor), 0.0)


def most_promising(
    courses: Sequence[SearchState], allocation: Allocation = SEARCH.allocation
) -> int:
    """Return the index of the search that gets the next round; of equals the first."""
    gains = [expected_gain(course, allocation) for course in courses]
    return gains.index(max(gains))
