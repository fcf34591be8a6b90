"""Only schedules that pass the checks are handed out."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from autoturbo.errors import RefusedError
from autoturbo.schedule.knobs import Knobs
from autoturbo.schedule.work import Floats
from autoturbo.search.objectives import find_objectives
from autoturbo.search.progress import Trial
from autoturbo.search.selection.verified_selection import (
    MOST_REFUSED,
    VerifiedSelection,
    passed,
    verifier_of,
)
from autoturbo.simulator.contract import Scheduled
from autoturbo.simulator.measurement import Failure, Measurement, Outcome
from autoturbo.simulator.outcomes import TIME_IS_UP
from autoturbo.verifier.findings import Check, Finding, Numbers, Verification
from tests.search.search_doubles import Landscape, ToySchedule

LATENCY = find_objectives("latency")
BOTH = find_objectives("latency,ddr-bytes")
RACE = Finding(Check.MEMORY, "race", "two kernels write x")


@dataclass
class Picky:
    """Finds fault with the schedules of some settings."""

    bad: set[str]
    asked: list[str] = field(default_factory=list)

    def __call__(self, schedule: Scheduled) -> Verification:
        text = schedule.text.strip()
        self.asked.append(text)
        return Verification((), (RACE,) if text in self.bad else ())


def trials(count: int = 24) -> list[Trial]:
    land = Landscape()
    choices = [Knobs(max_layers=n % 7 + 1, prefetch_depth=n % 4 + 2) for n in range(count)]
    distinct = list(dict.fromkeys(choices))
    return [Trial(n, knobs, land.evaluate(knobs)) for n, knobs in enumerate(distinct)]


def by_latency(found: list[Trial]) -> list[Trial]:
    measured = [(t.outcome.latency, t) for t in found if isinstance(t.outcome, Measurement)]
    return [trial for _, trial in sorted(measured, key=lambda pair: pair[0])]


def selection(
    found: list[Trial], verifier: Callable[[Scheduled], Verification | None]
) -> VerifiedSelection:
    return VerifiedSelection("toy on chip", found, Landscape(), verifier, lambda _line: None)


def texts(found: list[Trial]) -> set[str]:
    return {trial.knobs.canonical() for trial in found}


def test_the_best_is_checked_and_nothing_else() -> None:
    found = trials()
    picky = Picky(set())
    best = selection(found, picky).best(LATENCY)
    assert best.trial == by_latency(found)[0].number
    assert best.verified == (Check.REGIONS, Check.MEMORY)
    assert picky.asked == [best.knobs.canonical()]


def test_the_next_best_that_passes_takes_its_place() -> None:
    found = trials()
    first, second, third, *_ = by_latency(found)
    picky = Picky(texts([first, second]))
    handing = selection(found, picky)
    assert handing.best(LATENCY).trial == third.number
    assert handing.best(LATENCY).trial == third.number
    assert len(picky.asked) == 3  # each once
    assert [r.trial for r in handing.refused] == sorted([first.number, second.number])
    assert handing.refused[0].failures == ("memory: race: two kernels write x",)


def test_the_best_is_handed_out_as_recorded_where_time_is_up() -> None:
    class Late(Landscape):
        def evaluate(self, knobs: Knobs) -> Outcome:
            del knobs
            return TIME_IS_UP

    found, log = trials(), list[str]()
    handing = VerifiedSelection("toy on chip", found, Late(), Picky(set()), log.append)
    first = by_latency(found)[0]
    best = handing.best(LATENCY)
    assert (best.measurement, bool(best.doubt)) == (first.outcome, True)
    assert log == [f"trial {first.number}: there was no time to measure it again"]


def test_of_equals_the_one_that_is_preferred() -> None:
    land = Landscape()
    outcome = land.evaluate(Knobs())
    equals = [Trial(n, Knobs(max_layers=n + 1), outcome) for n in range(3)]
    equals = [Trial(t.number, t.knobs, land.evaluate(equals[0].knobs)) for t in equals]

    class Flat(Landscape):
        def evaluate(self, knobs: Knobs) -> Measurement | Failure:
            del knobs
            return super().evaluate(equals[0].knobs)

    handing = VerifiedSelection("toy on chip", equals, Flat(), Picky(set()), lambda _line: None)
    assert handing.best(LATENCY).trial == 0
    last = VerifiedSelection("", equals[2:], Flat(), Picky(set()), lambda _line: None).best(LATENCY)
    assert handing.best(LATENCY, last) is last


def test_a_front_has_only_members_that_pass() -> None:
    found = trials()
    whole = selection(found, Picky(set())).front(BOTH)
    refused = whole[0]
    handing = selection(found, Picky(texts([refused])))
    front = handing.front(BOTH)
    assert front
    assert refused not in front
    assert [r.trial for r in handing.refused] == [refused.number]
    left = [t for t in found if t.number != refused.number]
    assert front == selection(left, Picky(set())).front(BOTH)
    assert selection(found, Picky(set())).front(LATENCY) == ()


def test_where_nothing_passes_it_says_why_and_gives_up_soon() -> None:
    found = trials(28)
    measured = by_latency(found)
    assert len(measured) > MOST_REFUSED
    picky = Picky(texts(found))
    with pytest.raises(RefusedError) as caught:
        selection(found, picky).best(LATENCY)
    assert len(picky.asked) == MOST_REFUSED
    assert str(caught.value).startswith(
        f"toy on chip: each of the best 16 schedules fails a check: trial {measured[0].number}: "
        "memory: race: two kernels write x; "
    )
    with pytest.raises(RefusedError):
        selection(measured[:1], Picky(texts(found))).best(LATENCY)


def test_what_is_no_schedule_of_ours_is_not_said_to_be_verified() -> None:
    verifier = verifier_of("none.onnx", numbers=False)
    assert verifier(ToySchedule("{}")) is None
    assert selection(trials(), verifier).best(LATENCY).verified == ()


def test_the_checks_that_passed() -> None:
    ran = Numbers(1, whole=True, seed=0, max_abs_error=0.0)
    skipped = Numbers(1, whole=True, seed=0, max_abs_error=None, skipped="no ONNX Runtime")
    two = (Check.REGIONS, Check.MEMORY)
    assert passed(Verification((), ())) == passed(Verification((), (), skipped)) == two
    assert passed(Verification((), (), ran)) == tuple(Check)
    assert passed(Verification((), (RACE,), ran)) == (Check.REGIONS, Check.NUMBERS)


@dataclass
class Metered(Landscape):
    """The slower a setting is, the less energy it takes; both vary."""

    chance: random.Random = field(default_factory=lambda: random.Random(0))  # noqa: S311  no secret
    watch: Callable[[Knobs], None] = lambda _: None

    def evaluate(self, knobs: Knobs) -> Outcome:
        self.watch(knobs)
        outcome = super().evaluate(knobs)
        if not isinstance(outcome, Measurement):
            return outcome
        noise = math.exp(self.chance.gauss(0, 0.01))
        joules = noise * 1e-3 / outcome.latency
        return replace(outcome, latency=noise * outcome.latency, energy=joules, noise=0.01)


def noisy_trials(count: int) -> list[Trial]:
    """Trials of a noisy landscape, the fastest one first."""
    found, metered = by_latency(trials(count)), Metered()
    return [Trial(n, t.knobs, metered.evaluate(t.knobs)) for n, t in enumerate(found)]


def test_a_race_is_about_what_is_sought() -> None:
    """Trial 0 is the fastest, and takes most energy."""
    found = noisy_trials(24)
    handing = VerifiedSelection("toy on chip", found, Metered(), Picky(set()), lambda _line: None)
    best = handing.best(find_objectives("energy"))
    assert best.race is not None
    assert best.reference is not None
    assert best.race.demonstrated
    assert best.trial > len(found) - 4
    assert best.measurement.latency > 1.1 * best.reference.latency
    for trial, again in ((found[best.trial], best.measurement), (found[0], best.reference)):
        exact = Landscape().evaluate(trial.knobs)
        assert isinstance(exact, Measurement)
        assert again.latency == pytest.approx(exact.latency, rel=0.01)
        assert again.energy == pytest.approx(1e-3 / exact.latency, rel=0.01)
    ratio = (best.reference.energy or 0.0) / (best.measurement.energy or 1.0)
    assert best.race.gain == pytest.approx(ratio, rel=0.02)


def test_who_races_is_said_by_a_kernel_model_where_there_is_one() -> None:
    """Luck says that the slowest are the fastest; a model that knows better is believed."""
    found = noisy_trials(24)
    slow = found[-8:]
    lucky = [
        replace(t, outcome=replace(t.outcome, latency=t.outcome.latency / 1e3))
        if t in slow and isinstance(t.outcome, Measurement) else t
        for t in found
    ]  # fmt: skip
    exact = {t.number: Landscape().evaluate(t.knobs) for t in found}

    def expected(asked: Sequence[Trial]) -> Floats:
        known = [exact[trial.number] for trial in asked]
        return np.asarray([1e6 * o.latency for o in known if isinstance(o, Measurement)])

    def raced(model: Callable[[Sequence[Trial]], Floats | None]) -> set[int]:
        metered, tried = Metered(), set[int]()
        handing = VerifiedSelection("toy", lucky, metered, Picky(set()), lambda _: None, model)
        numbers = {trial.knobs: trial.number for trial in lucky}
        metered.watch = lambda knobs: tried.add(numbers[knobs])
        handing.best(LATENCY)
        return tried

    assert raced(lambda _: None) == {0, *(trial.number for trial in slow)}
    assert raced(expected) == set(range(8))
