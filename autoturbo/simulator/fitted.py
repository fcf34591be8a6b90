"""The part of a chip that suits a model best under the published rules.

The rules take all that a chip has, and more is not always faster: a core more is a reader more of
shared memory, and tiles grow with the buffers until nothing is left to overlap. Here they are tried
on smaller chips that the chip contains (:mod:`autoturbo.schedule.chip_part`), and the fastest is
taken. The values tried are halvings: a chip with twice the cores, or twice a buffer, tries all that
the smaller chip does and what that chip is whole, so that it is hardly ever behind.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from autoturbo.graph.layers import layers_of
from autoturbo.hardware.target import Target
from autoturbo.schedule.chip_part import ChipPart, extents_of
from autoturbo.schedule.knobs import AUTO, FAR, SAMPLES, Knobs, Value, fitting
from autoturbo.schedule.pipeline import ModelScheduler
from autoturbo.simulator.evaluator import Evaluator
from autoturbo.simulator.measurement import (
    seconds_of,
)


@dataclass(frozen=True, slots=True)
class Fitting:
    """The constants of fitting.

    Attributes:
        least: By knob, the amount where halving ends: less holds no tile of any array.
        rounds: Times that every knob is looked at from one beginning, at most.
        near: A beginning in which one knob is halved is followed if it takes at most so many times
            the best seconds so far.
        layers: Layers of a model above which only the whole chip is a beginning, every knob is
            looked at once, and a knob is left after :attr:`patience` amounts that gain nothing.
        patience: Amounts along a knob that may gain nothing before it is left.
        clear_gain: Share of the seconds that a part has to gain for a search to take place there:
            what larger buffers and more cores allow, a search finds that may use them. On ResNet-18
            at batch 4 half the LB gains 0.6 % with the heuristic, and a search of 64 trials loses
            20 %.
        bypass_gain: The same share for the way past GB, which no other knob takes.
    """

    least: tuple[tuple[str, int], ...] = (
        ("used_cores", 1),
        ("used_lb_kib", 16),
        ("used_weight_kib", 4),
    )
    rounds: int = 3
    near: float = 1.1
    layers: int = 64
    patience: int = 1
    clear_gain: float = 0.02
    bypass_gain: float = 0.005

    def gain_of(self, part: ChipPart) -> float:
        """Return the share of the seconds that a part has to gain."""
        return self.clear_gain if part.used_gb_kib == AUTO else self.bypass_gain


FITTING: Final = Fitting()
"""What every fit goes by."""


def halvings(target: Target, constants: Fitting = FITTING) -> dict[str, tuple[Value, ...]]:
    """Return the smaller amounts of a chip's resources that are tried, the largest first, by knob.

    Args:
        target: The chip; its global buffer is used whole or, with a way past it, not at all.
        constants: Limits at which halving ends.
    """
    extents, found = extents_of(target), dict[str, tuple[Value, ...]]()
    for name, least in constants.least:
        amount = extents[name][1]
        found[name] = tuple(_halved(int(amount), least)) if amount == int(amount) else ()
    past = target.gb.capacity and target.dma.bypasses_gb
    return {**found, "used_gb_kib": (0,) if past else ()}


def _halved(amount: int, least: int) -> Iterator[int]:
    # Whole halves only: a chip with twice as much then tries all that this one has.
    while amount % 2 == 0 and amount // 2 >= least:
        amount //= 2
        yield amount


def is_small(model_scheduler: ModelScheduler, constants: Fitting = FITTING) -> bool:
    """Return whether a model is small enough for all that fitting can do."""
    return len(layers_of(model_scheduler.model)) <= constants.layers


class _Fit:
    """A descent over whole-model settings: every evaluated one is remembered."""

    def __init__(self, evaluator: Evaluator, constants: Fitting) -> None:
        target, model_scheduler = evaluator.model_scheduler.target, evaluator.model_scheduler
        self.evaluator, self.constants = evaluator, constants
        self.smaller = halvings(target, constants)
        self.choices = {**self.smaller, SAMPLES: model_scheduler.batch_choices()}
        self.thorough = is_small(model_scheduler, constants)
        self.rounds = constants.rounds if self.thorough else min(constants.rounds, 1)
        self.patience = math.inf if self.thorough else constants.patience
        self.known: dict[Knobs, float] = {}

    def seconds(self, values: dict[str, Value]) -> float:
        knobs = _knobs(values)
        if knobs not in self.known:
            outcome = self.evaluator.evaluate(knobs)
            self.known[knobs] = seconds_of(outcome)
        return self.known[knobs]

    def descend(self, values: dict[str, Value]) -> dict[str, Value]:
        """Return the setting reached by changing one knob after the other while that helps."""
        for _ in range(self.rounds):
            before = values
            for name, choices in self.choices.items():
                values = self.along(values, name, choices)
            if values == before:
                break
        return values

    def along(
        self, values: dict[str, Value], name: str, choices: Sequence[Value]
    ) -> dict[str, Value]:
        """Return the fastest setting along one knob, from all of it to less."""
        in_vain = 0
        # From all of it down, so that on a tie the larger amount stays.
        for value in (AUTO, *choices):
            tried = {**values, name: value}
            if self.seconds(tried) < self.seconds(values):
                values, in_vain = tried, 0
            elif tried != values:
                in_vain += 1
            if in_vain > self.patience:
                break
        return values

    def best(self, whole: dict[str, Value]) -> dict[str, Value]:
        """Return the fastest setting found from the whole chip, and from halves of it."""
        found = self.descend(whole)
        # Other beginnings, for knobs that only help together and not one by one.
        halves = [{**whole, name: of[0]} for name, of in self.smaller.items() if of]
        for half in halves if self.thorough else ():
            if self.seconds(half) <= self.constants.near * self.seconds(found):
                found = min(found, self.descend(half), key=self.seconds)
        return found

    def fuller(self, values: dict[str, Value]) -> dict[str, Value]:
        """Return a setting with all of what it may have more of at next to no loss."""
        least = self.with_loads(values)
        for name, value in tuple(values.items()):
            if name in self.smaller:
                more = {n: v for n, v in values.items() if n != name}
                gain = self.constants.gain_of(ChipPart.of(_knobs({name: value})))
                values = more if self.with_loads(more) <= least * (1.0 + gain) else values
        return values

    def with_loads(self, values: dict[str, Value]) -> float:
        """Return the seconds of a setting, with loads that run ahead where that is faster.

        Past GB there are none: a search would miss them there.
        """
        target = self.evaluator.model_scheduler.target
        ahead = fitting(Knobs(fetch_ahead=FAR), target).fetch_ahead
        past = values.get("used_gb_kib", AUTO) != AUTO
        tried = [values] if past else [values, {**values, "fetch_ahead": ahead}]
        return min(map(self.seconds, tried))


def _knobs(values: dict[str, Any]) -> Knobs:
    return Knobs(**values)


def fitted(evaluator: Evaluator, constants: Fitting = FITTING) -> Knobs:
    """Return the published rules on the part of the chip on which they are fastest.

    It is never slower than they are on the whole chip, and the same where no part is faster.

    Args:
        evaluator: Evaluator of the model on the target, by the simulator.
        constants: Limits of the descent.
    """
    return _knobs(_descended(evaluator, constants)[1])


def _descended(evaluator: Evaluator, constants: Fitting) -> tuple[_Fit, dict[str, Value]]:
    heuristic = evaluator.heuristic()
    fit = _Fit(evaluator, constants)
    return fit, fit.best({SAMPLES: heuristic.batches_per_cluster})


def fitted_part(evaluator: Evaluator, constants: Fitting = FITTING) -> ChipPart:
    """Return the largest part of the chip that is about as fast as the fastest: all if no gain."""
    fit, values = _descended(evaluator, constants)
    return ChipPart.of(_knobs(fit.fuller(values)))


def settings_of(model_scheduler: ModelScheduler) -> Knobs:
    """Return :func:`fitted` of a model on a target."""
    of = model_scheduler.model, model_scheduler.target, model_scheduler.dtype
    return fitted(Evaluator(*of))
