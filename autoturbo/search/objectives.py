"""The objectives of a search, and its stopping rules."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from autoturbo.errors import UsageError, did_you_mean
from autoturbo.simulator.measurement import Measurement, Outcome


@dataclass(frozen=True, slots=True)
class Objective:
    """A figure of a measurement to minimise or maximise.

    Attributes:
        name: On the command line.
        direction: Which way is better.
        value: The figure, in SI units; None where the target or the measurer does not give it.
    """

    name: str
    direction: Literal["minimize", "maximize"]
    value: Callable[[Measurement], float | None]

    def score(self, outcome: Outcome) -> float | None:
        """Return the figure so that lower is better; None for a failure."""
        value = self.value(outcome) if isinstance(outcome, Measurement) else None
        if value is None:
            return None
        return value if self.direction == "minimize" else -value


OBJECTIVES = {
    objective.name: objective
    for objective in (
        Objective("latency", "minimize", lambda m: m.latency),
        Objective("throughput", "maximize", lambda m: m.throughput or 1 / m.latency),
        Objective("energy", "minimize", lambda m: m.energy),
        Objective("ddr-bytes", "minimize", lambda m: float(m.ddr_bytes) or None),
    )
}
"""Every objective by name."""

OF_KERNELS = ("latency", "throughput")
"""Objectives that a sum of kernel times predicts."""

REPORTED = {"energy": "energy", "ddr-bytes": "bytes"}
"""What a measurer has to report for the others (:data:`autoturbo.simulator.measurers.REPORTS`)."""


def figures(objectives: Iterable[Objective], outcome: Outcome) -> tuple[float, ...]:
    """Return an outcome's scores, lower is better; infinite where there is none."""
    scores = (objective.score(outcome) for objective in objectives)
    return tuple(float("inf") if score is None else score for score in scores)


def find_objectives(names: str | Sequence[str]) -> tuple[Objective, ...]:
    """Return objectives by name, one or several (``"latency,energy"`` or a sequence).

    Raises:
        UsageError: None, one that is not known, or the same twice.
    """
    parts = names.split(",") if isinstance(names, str) else list(names)
    objectives = tuple(_find(part.strip()) for part in parts)
    if len({o.name for o in objectives}) < len(objectives) or not objectives:
        raise UsageError("objectives must be given, each once", hint=f"one of {_known()}")
    return objectives


def _find(name: str) -> Objective:
    if name not in OBJECTIVES:
        hint = did_you_mean(name, OBJECTIVES)
        raise UsageError(f"no objective is called {name!r}", hint=hint)
    return OBJECTIVES[name]


def _known() -> str:
    return ", ".join(OBJECTIVES)


def pareto(scores: Sequence[Sequence[float]]) -> list[int]:
    """Return the indices of the Pareto front, of equal scores the first."""
    kept: list[int] = []
    for index, mine in enumerate(scores):
        beaten = any(
            all(o <= m for o, m in zip(other, mine, strict=True))
            and (any(o < m for o, m in zip(other, mine, strict=True)) or position < index)
            for position, other in enumerate(scores)
            if position != index
        )
        if not beaten:
            kept.append(index)
    return kept
