"""Compares plans on this computer: measured in turn, so that drift hits all of them alike.

The whole batch is measured twice in each round, as if it were two plans, and what seems to be
between these two is noise (A/A): a gain inside its interval is none.
"""

from __future__ import annotations

import math
import statistics
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from autoturbo.host.divided import DividedModel
from autoturbo.host.runner import Array, Runner, SessionCache
from autoturbo.schedule.host_plan import LOOP, TUNED, WHOLE, HostPlan
from autoturbo.statistics import FEWEST_RANKS, Gain, pooled_deviation

CONTROL: Final = "whole batch again"
"""What the whole batch is compared with as if it were another plan."""

LEAST_ROUNDS: Final = 8
MOST_ROUNDS: Final = 20
"""Rounds of a comparison that has the time."""

COMPARED_S: Final = 90.0
"""Seconds that a comparison takes, about: runs that take long have few rounds."""

SHORT_S = 0.05
"""Seconds that one figure takes: of runs that are shorter, the median of several counts."""

_LONG_S = 0.5
"""Seconds of a run that is timed at once; before a shorter one there is one that is not."""

_MARGIN = 1.1
"""Times as long as expected that a round is given, where time is short."""

_KEPT = 6
"""Runners that are kept: each has the memory of a batch."""


@dataclass(eq=False)
class Stopwatch:
    """Times plans of one model.

    Attributes:
        model: The model that runs.
        feeds: An array for each input.
        clock: Tells the time in seconds.
    """

    model: DividedModel
    feeds: Mapping[str, Array]
    clock: Callable[[], float] = time.monotonic
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
        # The first run behind another plan has cold caches: a short one is not counted.
        if length < _LONG_S:
            length = timed(runner)
        taken = statistics.median(timed(runner) for _ in range(_repeats(length)))
        self._lengths[plan] = taken
        return taken

    def runner(self, plan: HostPlan) -> Runner:
        """Return the runner of a plan, its inputs filled.

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


def figure_s(length: float) -> float:
    """Return the seconds that one figure of a plan takes whose batch takes so many."""
    return (length if length < _LONG_S else 0.0) + _repeats(length) * length


def _repeats(length: float) -> int:
    """Return how many runs one figure is the median of."""
    return max(1, math.ceil(SHORT_S / max(length, 1e-9)))


@dataclass(frozen=True, slots=True)
class HostComparison:
    """Plans that were measured in turn.

    Attributes:
        seconds: Seconds of every round, by plan; without the control where there was no time
            for rounds, and each plan has the figures by which it was found.
    """

    seconds: Mapping[str, tuple[float, ...]]

    @property
    def made(self) -> bool:
        """Return whether there were rounds: without any, nothing is stated."""
        return CONTROL in self.seconds

    @property
    def is_sound(self) -> bool:
        """Return whether each plan has figures, in as many rounds as the others."""
        counts = {len(taken) for taken in self.seconds.values()}
        whole = WHOLE in self.seconds and all(min(s, default=0) > 0 for s in self.seconds.values())
        return whole and (not self.made or len(counts) == 1)

    @property
    def rounds(self) -> int:
        """Return how many rounds there were."""
        return len(self.seconds[CONTROL]) if self.made else 0

    def typical(self, name: str, chosen: str) -> float:
        """Return the seconds of a plan.

        Those of the chosen plan are the median of its rounds. Any other takes so many times as
        long as it did in the same rounds, so that what is printed of two plans and the gain that
        is stated of them are one thing.

        Args:
            name: The plan.
            chosen: The plan that is handed out.
        """
        if not self.made:
            return statistics.median(self.seconds[name])
        over = 1.0 if name == chosen else self.gain(name, chosen).ratio
        return statistics.median(self.seconds[chosen]) * over

    def gain(self, base: str, name: str = TUNED) -> Gain:
        """Return the ratio of two plans' speeds with its interval."""
        return Gain.of(self.seconds[base], self.seconds[name])

    def gains(self, chosen: str) -> dict[str, Gain]:
        """Return the gains of the chosen plan over each other plan; none without rounds."""
        others = (name for name in self.seconds if name not in (chosen, CONTROL))
        return {name: self.gain(name, chosen) for name in others} if self.made else {}

    @property
    def noise(self) -> Gain | None:
        """Return the ratio of the whole batch's speed to itself, as noise; None without rounds."""
        return self.gain(WHOLE, CONTROL) if self.made else None

    @property
    def deviation(self) -> float | None:
        """Return the relative standard deviation of a figure, by the control; None without."""
        if not self.made:
            return None
        pairs = zip(self.seconds[WHOLE], self.seconds[CONTROL], strict=True)
        return pooled_deviation(pairs)

    @property
    def baseline(self) -> str:
        """Return the faster one of the baselines, as far as can be seen."""
        if LOOP not in self.seconds:
            return WHOLE
        if self.made:
            return LOOP if self.gain(WHOLE, LOOP).ratio > 1 else WHOLE
        return min((WHOLE, LOOP), key=lambda name: statistics.median(self.seconds[name]))

    @property
    def winner(self) -> str:
        """Return the name of the plan that is handed out.

        That is the tuned plan if it is demonstrably faster than the faster one of the baselines,
        by more than the whole batch seems to be faster than itself; else that baseline.
        """
        noise = self.noise
        if noise is None or TUNED not in self.seconds:
            return self.baseline
        gain = self.gain(self.baseline)
        # By more than the control gains over itself: as much may be the machine's.
        shown = gain.demonstrated and gain.ratio > noise.high
        return TUNED if shown else self.baseline


def comparison_s(lengths: Mapping[str, float], rounds: int = FEWEST_RANKS) -> float:
    """Return the seconds of so many rounds.

    Args:
        lengths: Seconds of a batch by plan, the whole batch among them.
        rounds: Number of rounds; by default the fewest of which something can be said.
    """
    each = sum(map(figure_s, lengths.values())) + figure_s(lengths[WHOLE])
    return rounds * each * _MARGIN


def compare_plans(
    stopwatch: Stopwatch,
    plans: Mapping[str, HostPlan],
    told: Callable[[int, int], None],
    lengths: Mapping[str, float] | None = None,
    deadline: float = math.inf,
) -> HostComparison | None:
    """Return the seconds of plans and of a control, measured in turn.

    Each round has the reverse order of the last.

    Args:
        stopwatch: Times them.
        plans: Plans by their names, each once, without the control.
        told: Is told of the rounds made, and of all of them.
        lengths: Seconds of a batch of each, about; each is measured once where this is None.
        deadline: Time on the stopwatch's clock at which measuring stops.

    Returns:
        None where there is no time for as many rounds as a statement takes.

    Raises:
        UnrunnableError: ONNX Runtime does not run the model.
    """
    entrants = {**plans, CONTROL: plans[WHOLE]}
    lengths = lengths or {name: stopwatch.seconds(plan) for name, plan in plans.items()}
    round_s = comparison_s(lengths, 1)
    rounds = min(max(round(COMPARED_S / round_s), LEAST_ROUNDS), MOST_ROUNDS)
    rounds = int(min(rounds, (deadline - stopwatch.clock()) / round_s))
    if rounds < FEWEST_RANKS:
        return None
    seconds: dict[str, list[float]] = {name: [] for name in entrants}
    for turn in range(rounds):
        if stopwatch.clock() + round_s > deadline and turn >= FEWEST_RANKS:
            break
        told(turn, rounds)
        # There and back, so that a machine that grows slower or faster favours nobody.
        for name in entrants if turn % 2 == 0 else reversed(entrants):
            if stopwatch.clock() >= deadline and turn < FEWEST_RANKS:
                return None
            seconds[name].append(stopwatch.seconds(entrants[name]))
    return HostComparison({name: tuple(taken) for name, taken in seconds.items()})
