"""Which of several searches gets the next round: the one of which most is expected.

Every model counts the same, so what is compared is the logarithm of the best score: what a round
takes off it, per round. As in Ansor (Zheng et al., OSDI 2020, section 6, equation for the gradient)
the expectation mixes what the last rounds have brought with what is left at best: its weights
:data:`_BACKWARD` and its window :data:`_WINDOW` are theirs. What is left is the distance to the
lower bound, which we have and they have to guess; taken over as many rounds as were spent, so that
a search that has had little is given the benefit of the doubt.

An expectation follows from a search's own outcomes, in the order of their trials, and from nothing
else: no clock, and not who measured.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

_BACKWARD = 0.2
"""Weight of what the last rounds have brought: Ansor's alpha."""

_WINDOW = 3
"""Rounds looked back: Ansor's delta t."""

_UNKNOWN = 1.0
"""Distance to the bound, as a logarithm, where no bound is known or nothing fits yet: a factor of
2.7, the largest that tuning has given on the bundled workloads over the heuristic."""


@dataclass(frozen=True, slots=True)
class Course:
    """How a search has gone so far.

    Attributes:
        scores: the best after each round, lower is better; None while nothing fits.
        floor: what no score can be below, None where that is not known.
    """

    scores: Sequence[float | None]
    floor: float | None = None


def expected_gain(course: Course) -> float:
    """What the next round is expected to take off the logarithm of the best score.

    Infinite for a search that has had no round: each is tried before any goes on.
    """
    rounds = len(course.scores)
    if not rounds:
        return math.inf
    forward = _left(course) / rounds
    return _BACKWARD * _recent(course.scores) + (1 - _BACKWARD) * forward


def _recent(scores: Sequence[float | None]) -> float:
    """What a round has brought of late, in the mean."""
    window = [score for score in scores[-_WINDOW - 1 :] if score is not None and score > 0]
    if len(window) < 2:  # noqa: PLR2004  a difference takes two
        return 0.0
    return math.log(window[0] / window[-1]) / (len(window) - 1)


def _left(course: Course) -> float:
    best, floor = course.scores[-1], course.floor
    if best is None or floor is None or best <= 0 or floor <= 0:
        return _UNKNOWN
    return max(math.log(best / floor), 0.0)


def most_promising(courses: Sequence[Course]) -> int:
    """The search that gets the next round; of equals the first."""
    gains = [expected_gain(course) for course in courses]
    return gains.index(max(gains))
