"""Compares plans on this computer: measured in turn, so that drift hits all of them alike.

Every statement has a unit: the whole batch is measured twice in each round, as if it were two
plans, and what seems to be between these two is noise (A/A).
"""

from __future__ import annotations

import json
import math
import statistics
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Final

from autoturbo.host.divided import DividedModel
from autoturbo.host.plan import LOOP, TUNED, WHOLE, HostPlan
from autoturbo.host.runner import Array, Runner, SessionCache
from autoturbo.json_lines import JsonLines
from autoturbo.search.progress import now
from autoturbo.statistics import Gain

CONTROL: Final = "whole batch again"
"""What the whole batch is compared with as if it were another plan."""

LEAST_ROUNDS: Final = 8
MOST_ROUNDS: Final = 20
"""Rounds of a comparison."""

COMPARED_S: Final = 90.0
"""Seconds that a comparison takes, about: runs that take long have few rounds."""

_SHORT_S = 0.05
"""Seconds that one figure takes: of runs that are shorter, the median of several counts."""

_LONG_S = 0.5
"""Seconds of a run that is timed at once; before a shorter one there is one that is not."""

_KEPT = 6
"""Runners that are kept: each has the memory of a batch."""


@dataclass(eq=False)
class HostJournal:
    """Every figure of a run, in a file.

    Attributes:
        lines: The file; None keeps nothing.
    """

    lines: JsonLines | None = None
    _known: dict[str, list[float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for entry in self.lines.read() if self.lines else ():
            with suppress(KeyError, TypeError, ValueError):
                self._known.setdefault(_text(entry["plan"]), []).append(float(entry["seconds"]))

    def add(self, plan: HostPlan, seconds: float) -> None:
        """Write a figure down."""
        if self.lines is not None:
            self.lines.append({"plan": asdict(plan), "seconds": seconds, "at": now()})

    def known(self, plan: HostPlan) -> float | None:
        """Return the median of what an earlier part of the run has measured; None for nothing."""
        taken = self._known.get(_text(asdict(plan)))
        return statistics.median(taken) if taken else None


def _text(plan: object) -> str:
    """Return a plan as text that does not depend on how it was written."""
    return json.dumps(plan, sort_keys=True)


@dataclass(eq=False)
class Stopwatch:
    """Times plans of one model.

    Attributes:
        model: What runs.
        feeds: An array for each input.
        journal: Keeps every figure.
    """

    model: DividedModel
    feeds: Mapping[str, Array]
    journal: HostJournal = field(default_factory=HostJournal)
    _runners: OrderedDict[HostPlan, Runner] = field(default_factory=OrderedDict)
    _lengths: dict[HostPlan, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.sessions = SessionCache(self.model)

    def seconds(self, plan: HostPlan) -> float:
        """Return the seconds of one batch.

        Raises:
            UnrunnableError: ONNX Runtime does not run the model.
        """
        runner = self.runner(plan)
        length = self._lengths.get(plan, 0.0)
        if length < _LONG_S:
            length = timed(runner)
        repeats = max(1, math.ceil(_SHORT_S / length))
        taken = statistics.median(timed(runner) for _ in range(repeats))
        self._lengths[plan] = taken
        self.journal.add(plan, taken)
        return taken

    def runner(self, plan: HostPlan) -> Runner:
        """Return what runs a plan, its inputs filled.

        Raises:
            UnrunnableError: ONNX Runtime does not run the model.
        """
        if plan not in self._runners:
            runner = Runner(self.model, plan, self.sessions)
            for name, memory in runner.inputs.items():
                if name in self.feeds:
                    memory[...] = self.feeds[name]
            runner.run()  # what the first run prepares is no part of any figure
            self._runners[plan] = runner
        self._runners.move_to_end(plan)
        while len(self._runners) > _KEPT:
            self._runners.popitem(last=False)[1].close()
        return self._runners[plan]

    def close(self) -> None:
        """End all runners."""
        for runner in self._runners.values():
            runner.close()
        self._runners.clear()


def timed(runner: Runner) -> float:
    """Return the seconds of a run."""
    began = time.perf_counter()
    runner.run()
    return time.perf_counter() - began


@dataclass(frozen=True, slots=True)
class HostComparison:
    """Plans that were measured in turn.

    Attributes:
        seconds: Of every round, by what was compared.
    """

    seconds: Mapping[str, tuple[float, ...]]

    def median(self, name: str) -> float:
        """Return the median seconds of a plan."""
        return statistics.median(self.seconds[name])

    def gain(self, base: str, name: str = TUNED) -> Gain:
        """Return how many times as fast a plan is as another."""
        return Gain.of(self.seconds[base], self.seconds[name])

    @property
    def noise(self) -> Gain:
        """Return how many times as fast the whole batch is as itself."""
        return self.gain(WHOLE, CONTROL)

    @property
    def baseline(self) -> str:
        """Return the faster one of the baselines, as far as can be seen."""
        return LOOP if self.gain(WHOLE, LOOP).ratio > 1 else WHOLE

    @property
    def winner(self) -> str:
        """Return what is handed out.

        That is the tuned plan if it is demonstrably faster than the faster one of the baselines,
        else that baseline.
        """
        return TUNED if self.gain(self.baseline).demonstrated else self.baseline


def compare_plans(
    stopwatch: Stopwatch, plans: Mapping[str, HostPlan], told: Callable[[int, int], None]
) -> HostComparison:
    """Return the seconds of the whole batch, the best loop, the tuned plan and a control.

    They are measured in turn, each round in the reverse order of the last.

    Args:
        stopwatch: Times them.
        plans: By what they are called, without the control.
        told: Is told of the rounds made, and of all of them.

    Raises:
        UnrunnableError: ONNX Runtime does not run the model.
    """
    entrants = {**plans, CONTROL: plans[WHOLE]}
    lengths = [stopwatch.seconds(plan) for plan in plans.values()]
    round_s = 2 * (sum(lengths) + lengths[0])
    rounds = min(max(round(COMPARED_S / round_s), LEAST_ROUNDS), MOST_ROUNDS)
    seconds: dict[str, list[float]] = {name: [] for name in entrants}
    for turn in range(rounds):
        told(turn, rounds)
        for name in entrants if turn % 2 == 0 else reversed(entrants):
            seconds[name].append(stopwatch.seconds(entrants[name]))
    return HostComparison({name: tuple(taken) for name, taken in seconds.items()})
