"""Comparisons of plans on this computer as commands print them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from autoturbo.commands.console import Console
from autoturbo.registry import HOST
from autoturbo.schedule.host_plan import PLANS
from autoturbo.schema import Choice, Natural, Seconds, TypedDict

if TYPE_CHECKING:
    from autoturbo.report.host import HostAnswer
    from autoturbo.statistics import Gain


class GainJson(TypedDict):
    """How many times as fast one plan is as another, with its interval."""

    ratio: float
    low: float
    high: float
    confidence: float


class HostPlanJson(TypedDict):
    """A plan, and the seconds of a batch."""

    plan: str
    seconds: Seconds


class Compared(TypedDict):
    """Plans on this computer that were measured in turn; each has a name of its own.

    'rounds' is 0, and there are neither gains nor noise, where there was no time for a comparison.
    """

    model: str
    target: Annotated[str, Choice((HOST,))]
    batch: Natural
    chosen: Annotated[str, Choice(PLANS)]
    plans: dict[str, HostPlanJson]
    rounds: Natural
    gains: dict[str, GainJson]
    noise: GainJson | None


class HostLine(Compared):
    """Plans that were measured in turn, and the schedule file."""

    schedule_file: str


def compared_json(answer: HostAnswer) -> Compared:
    """Return a comparison as commands print it."""
    comparison = answer.comparison
    return {
        "model": answer.model, "target": HOST, "batch": answer.batch,
        "chosen": answer.chosen, "rounds": comparison.rounds,
        "plans": {
            name: {"plan": plan.sentence, "seconds": answer.seconds(name)}
            for name, plan in answer.plans.items()
        },
        "gains": {n: gain_json(g) for n, g in comparison.gains(answer.chosen).items()},
        "noise": None if comparison.noise is None else gain_json(comparison.noise),
    }  # fmt: skip


def gain_json(gain: Gain) -> GainJson:
    """Return a gain as commands print it."""
    return {
        "ratio": gain.ratio, "low": gain.low, "high": gain.high, "confidence": gain.confidence,
    }  # fmt: skip


def print_answer(answer: HostAnswer, console: Console) -> None:
    """Print a comparison for people."""
    from autoturbo.report.host import HEADERS

    console.say()
    console.table(HEADERS, answer.rows, words=2, close=True)
    console.say()
    for name, value in answer.facts:
        console.say(f"{name:<13}{value}")
