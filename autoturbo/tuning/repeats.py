"""A search repeated with other seeds: what it finds in the mean, and how sure that is."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from autoturbo.errors import AutoTurboError
from autoturbo.search.objectives import figures, find_objectives
from autoturbo.statistics import mean_interval

if TYPE_CHECKING:
    from autoturbo.tuning.result import TuneResult


class Spread(NamedTuple):
    """A geometric mean with its interval at 95 % confidence.

    Attributes:
        low: Lower end; 0 with fewer than three figures.
        mean: Of the figures.
        high: Upper end; infinite with fewer than three.
    """

    low: float
    mean: float
    high: float

    @staticmethod
    def of(values: Sequence[float]) -> Spread:
        """Return the spread of figures above 0: Student's interval of their logarithms."""
        return Spread(*map(math.exp, mean_interval([*map(math.log, values)])))


@dataclass(frozen=True, slots=True)
class Repeats:
    """The results of searches that differ in their seeds alone.

    Attributes:
        seeds: Of the searches that have a result.
        runs: Their ids.
        latencies: Seconds of what each would hand out.
        gains: How many times as fast as the heuristic each is; empty where some lack that.
    """

    seeds: tuple[int, ...]
    runs: tuple[str, ...]
    latencies: tuple[float, ...]
    gains: tuple[float, ...]

    @property
    def latency(self) -> Spread:
        """Return the mean latency."""
        return Spread.of(self.latencies)

    @property
    def gain(self) -> Spread | None:
        """Return the mean gain over the heuristic; None where it is not known of all."""
        return Spread.of(self.gains) if self.gains else None


def best_of(
    ended: Sequence[TuneResult | AutoTurboError],
) -> list[TuneResult | AutoTurboError]:
    """Return the best of searches that differ in their seeds, with what all of them found.

    Args:
        ended: What became of each search.

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
