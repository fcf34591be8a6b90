"""The simulator keeps the contract that we ask of others' measurers; broken ones are found out."""

from __future__ import annotations

import dataclasses
import os
import threading
from collections.abc import Callable, Sequence

import pytest

import autoturbo
from autoturbo.hardware import load_target
from autoturbo.schedule.knobs import Knobs
from autoturbo.schedule.pipeline import ModelScheduler, build_schedule
from autoturbo.schedule.schedule import Schedule
from autoturbo.simulator.evaluator import Simulator
from autoturbo.simulator.measurement import Failure, Measurement, Outcome
from autoturbo.testing import MEASURER_CHECKS, ContractError, MeasurerCase, check_measurer
from autoturbo.testing import measurers as checks
from autoturbo.testing.contract import small_networks

Check = Callable[[MeasurerCase], None]


@pytest.mark.parametrize("check", MEASURER_CHECKS, ids=lambda check: check.__name__)
def test_the_simulator_keeps_the_contract(check: Check) -> None:
    check(MeasurerCase(Simulator))


class Changed:
    """The simulator with one thing spoilt."""

    def __init__(self) -> None:
        self.simulator = Simulator()
        self.calls = 0

    def measure(self, schedules: Sequence[Schedule]) -> Sequence[Outcome]:
        return [self.spoilt(s, o) for s, o in zip(schedules, self.right(schedules), strict=True)]

    def right(self, schedules: Sequence[Schedule]) -> Sequence[Outcome]:
        return self.simulator.measure(schedules)

    def spoilt(self, schedule: Schedule, outcome: Outcome) -> Outcome:
        del schedule
        self.calls += 1
        assert isinstance(outcome, Measurement)
        return self.figures(outcome)

    def figures(self, measured: Measurement) -> Outcome:
        return measured


def times(measured: Measurement, factor: float) -> Measurement:
    return dataclasses.replace(measured, latency=factor * measured.latency)


class OnlyTheFirst(Changed):
    def measure(self, schedules: Sequence[Schedule]) -> Sequence[Outcome]:
        return self.right(schedules[:1])


class ByLatency(Changed):
    def measure(self, schedules: Sequence[Schedule]) -> Sequence[Outcome]:
        found = [o for o in self.right(schedules) if isinstance(o, Measurement)]
        return sorted(found, key=lambda m: m.latency)


class Chatty(Changed):
    def measure(self, schedules: Sequence[Schedule]) -> Sequence[Outcome]:
        return self.right(schedules) or [Failure("raised", "nothing to do")]


class NotANumber(Changed):
    def figures(self, measured: Measurement) -> Outcome:
        return times(measured, float("nan"))


class Wordless(Changed):
    def figures(self, measured: Measurement) -> Outcome:
        del measured
        return None  # type: ignore[return-value]


class Warming(Changed):
    """Slower at first, as a board is."""

    def figures(self, measured: Measurement) -> Outcome:
        return times(measured, 2.0 if self.calls < 3 else 1.0)


class Milliseconds(Changed):
    def figures(self, measured: Measurement) -> Outcome:
        return times(measured, 1000.0)


class OfOneSample(Changed):
    def figures(self, measured: Measurement) -> Outcome:
        return dataclasses.replace(times(measured, 1 / (measured.batch or 1)), batch=1)


class Impossible(Changed):
    def figures(self, measured: Measurement) -> Outcome:
        return dataclasses.replace(measured, latency=measured.bound.seconds / 2)


class Percent(Changed):
    def figures(self, measured: Measurement) -> Outcome:
        return dataclasses.replace(measured, matrix_utilization=55.0)


class Raising(Changed):
    def figures(self, measured: Measurement) -> Outcome:
        del measured
        raise RuntimeError("no board answers")


class Vague(Changed):
    def figures(self, measured: Measurement) -> Outcome:
        del measured
        return Failure("oops", "something")


class Wordy(Changed):
    def figures(self, measured: Measurement) -> Outcome:
        del measured
        return Failure("timeout", "it took\ntoo long")


class Unreasoned(Changed):
    def figures(self, measured: Measurement) -> Outcome:
        del measured
        return Failure("LB", "too full", 10, 20)


class Meddling(Changed):
    def spoilt(self, schedule: Schedule, outcome: Outcome) -> Outcome:
        object.__setattr__(schedule, "expected", outcome.as_dict())
        return outcome


class RemoteEvaluator(Changed):
    """Measures otherwise in another process."""

    home = os.getpid()

    def figures(self, measured: Measurement) -> Outcome:
        return times(measured, 1.0 if os.environ.get("HOME_PROCESS") == str(os.getpid()) else 2.0)


class Hanging(Changed):
    stop = threading.Event()

    def figures(self, measured: Measurement) -> Outcome:
        self.stop.wait(20)
        return measured


@pytest.mark.parametrize(
    ("make", "check", "found"),
    [
        (OnlyTheFirst, checks.every_schedule_gets_its_outcome, "1 outcomes"),
        (ByLatency, checks.every_schedule_gets_its_outcome, "one by one"),
        (Chatty, checks.every_schedule_gets_its_outcome, "no schedules"),
        (NotANumber, checks.outcomes_are_sound, "residual by graphturbo: .* nan"),
        (Wordless, checks.outcomes_are_sound, "NoneType"),
        (Warming, checks.the_same_schedule_measures_the_same, ", then "),
        (Milliseconds, checks.figures_are_in_their_units, r"1e\+03"),
        (OfOneSample, checks.figures_are_in_their_units, "4 samples"),
        (Impossible, checks.figures_are_in_their_units, "lower bound"),
        (Percent, checks.figures_are_in_their_units, "matrix_utilization"),
        (Raising, checks.failures_are_values, "RuntimeError: no board answers"),
        (Vague, checks.failures_are_values, "'oops'"),
        (Wordy, checks.failures_are_values, "2 lines"),
        (Unreasoned, checks.failures_are_values, "LB overflows"),
        (Meddling, checks.schedules_are_left_alone, "a schedule: expected"),
    ],
)
def test_what_is_broken_is_found(make: Callable[[], Changed], check: Check, found: str) -> None:
    with pytest.raises(ContractError, match=found):
        check(MeasurerCase(make))
    with pytest.raises(ContractError):
        check_measurer(make)


@pytest.mark.full
def test_another_process_measures_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME_PROCESS", str(os.getpid()))
    with pytest.raises(ContractError, match=r"s here, .* s there"):
        checks.workers_measure_the_same(MeasurerCase(RemoteEvaluator))


def test_a_measurer_that_no_worker_can_build() -> None:
    with pytest.raises(ContractError, match="make "):
        checks.workers_measure_the_same(MeasurerCase(lambda: Simulator()))  # noqa: PLW0108


def test_what_never_ends_is_found() -> None:
    try:
        with pytest.raises(ContractError, match=r"0\.2 s"):
            checks.outcomes_are_sound(MeasurerCase(Hanging, deadline_s=0.2))
    finally:
        Hanging.stop.set()


def test_what_is_said_not_to_be_measurable() -> None:
    def hard() -> Schedule:
        graph, target = small_networks()[0], load_target("stcp920")
        return build_schedule(ModelScheduler(graph, target, target.default_dtype), Knobs())

    with pytest.raises(ContractError):
        checks.failures_are_values(MeasurerCase(Simulator, unmeasurable=hard))
    checks.failures_are_values(MeasurerCase(Timid, unmeasurable=hard))


class Timid(Changed):
    def figures(self, measured: Measurement) -> Outcome:
        return Failure("timeout", f"not within {measured.latency:.1g} s")


def test_it_is_reached_from_the_package() -> None:
    assert autoturbo.testing.check_measurer is check_measurer
