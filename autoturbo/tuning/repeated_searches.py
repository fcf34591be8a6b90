"""A search repeated with other seeds: what it finds in the mean, and how sure that is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from autoturbo.statistics import mean_interval


class Spread(NamedTuple):
    """A geometric mean with its interval at 95 % confidence.

    Attributes:
        low: Lower end; 0 with fewer than three figures.
        mean: Geometric mean of the figures.
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
        seeds: Seeds of the searches that have a result.
        runs: Ids of the runs.
        latencies: Seconds of what each would hand out.
        gains: Gain of each over the heuristic; empty where some lack that.
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
