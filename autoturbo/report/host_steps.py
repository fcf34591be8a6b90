"""Steps from the whole batch to the tuned plan of a run on this computer, and its sub-graphs."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from autoturbo.report.host import HostAnswer, interval
from autoturbo.report.units import counted, duration, ratio
from autoturbo.schedule.host_plan import LOOP, WHOLE, HostPlan, HostSubGraph
from autoturbo.statistics import Gain


@dataclass(frozen=True, slots=True)
class HostStep:
    """What one plan does otherwise than another, and what that is worth.

    Attributes:
        base: Name of the simpler plan.
        plan: Name of the other one.
        differs: What the plan does otherwise, in words.
        gain: How many times as fast it is; None where they were not compared.
    """

    base: str
    plan: str
    differs: tuple[str, ...]
    gain: Gain | None

    @property
    def sentence(self) -> str:
        """Return the step in words."""
        what = f"{self.plan} in place of {self.base}: {'; '.join(self.differs)}"
        if self.gain is None:
            return f"{what}: not compared"
        return f"{what}: {ratio(self.gain.ratio)} ({interval(self.gain)})"


def steps(answer: HostAnswer) -> list[HostStep]:
    """Return the steps from the whole batch to the tuned plan."""
    names, found = list(answer.plans), []
    for base, name in itertools.pairwise(names):
        gain = answer.comparison.gain(base, name) if answer.comparison.made else None
        differs = tuple(differences_of(answer.plans[base], answer.plans[name]))
        found.append(HostStep(base, name, differs, gain))
    return found


def differences_of(base: HostPlan, plan: HostPlan) -> Iterator[str]:
    """Yield in what a plan differs from a base, in words."""
    samples = [sorted({part.samples for part in one.subgraphs}) for one in (base, plan)]
    if samples[0] != samples[1]:
        before, after = (", ".join(map(str, one)) for one in samples)
        what = "sample" if samples[1] == [1] else "samples"
        yield f"{after} {what} at once, not {before}"
    if len(plan.subgraphs) != len(base.subgraphs):
        count = counted(len(plan.subgraphs), "sub-graph")
        yield f"{count}, not {len(base.subgraphs)}"
    if len(plan.subgraphs) > 1 and (len(base.subgraphs) == 1 or plan.order != base.order):
        yield plan.order
    if (plan.workers, plan.threads) != (base.workers, base.threads):
        yield f"{plan.workers} x {plan.threads} threads, not {base.workers} x {base.threads}"


def subgraph_rows(
    answer: HostAnswer,
    names: Sequence[str],
    parts: Sequence[range],
    part_seconds: Callable[[HostPlan], float | None],
) -> list[tuple[str, ...]]:
    """Return a row for each sub-graph of the last plan that was compared.

    Args:
        answer: The plans.
        names: Names of the operators; empty where the model is not there.
        parts: Parts of the model that were timed by themselves; empty likewise.
        part_seconds: Returns what a part takes alone; None where that is not known.
    """
    before, last = answer.plans.get(LOOP, answer.plans[WHOLE]), [*answer.plans.values()][-1]
    rows = []
    for part in last.subgraphs:
        inside = [p for p in parts if p.start in part.operators]
        alone = (_alone(plan, inside, part_seconds) for plan in (before, last))
        home = next(one for one in before.subgraphs if part.first in one.operators)
        shown = ["-" if seconds is None else duration(seconds) for seconds in alone]
        rows.append((_title(part, names), str(home.samples), str(part.samples), *shown))
    return rows


SUBGRAPH_HEADERS: Final = (
    "sub-graph", "samples, loop", "samples, here", "alone, loop", "alone, here",
)  # fmt: skip


def _title(part: HostSubGraph, names: Sequence[str]) -> str:
    """Return the operators of a sub-graph, by the names of the first and the last."""
    if part.stop > len(names):
        return f"operators {part.first} to {part.stop - 1}"
    first, last = names[part.first], names[part.stop - 1]
    return first if part.stop - part.first == 1 else f"{first} to {last}"


def _alone(
    plan: HostPlan, parts: Sequence[range], part_seconds: Callable[[HostPlan], float | None]
) -> float | None:
    """Return what parts take by themselves as a plan has them; None where one was not timed."""
    total = 0.0
    for part in parts:
        home = next(one for one in plan.subgraphs if part.start in one.operators)
        single = HostSubGraph(part.start, part.stop, home.samples)
        seconds = part_seconds(
            HostPlan((single,), home.samples, workers=plan.workers, threads=plan.threads)
        )
        if seconds is None:
            return None
        total += seconds
    return total if parts else None
