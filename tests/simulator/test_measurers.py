"""Measurers that give seconds: repeats, noise, drift, what is suspicious, and what fails."""

from __future__ import annotations

import dataclasses
import functools
import math
import statistics
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from autoturbo.errors import UsageError
from autoturbo.schedule.by_name import candidates
from autoturbo.schedule.schedule import Schedule
from autoturbo.simulator.evaluator import Evaluator, Simulator
from autoturbo.simulator.measurement import Failure, Measurement
from autoturbo.simulator.measurers import AT_START, MeasurerInfo, Reading, Timed, declared
from autoturbo.simulator.noise import Drift
from autoturbo.simulator.outcomes import checked
from tests.schedule.schedule_samples import STCP920, chain


def schedules() -> list[Schedule]:
    """Two schedules of one small network, the slower one first."""
    evaluator = Evaluator(chain("conv", "relu", "conv", "relu"), STCP920, "float16")
    return [next(candidates(name, evaluator.model_scheduler)) for name in ("tvm", "graphturbo")]


def seconds_of(schedule: Schedule) -> float:
    (outcome,) = Simulator().measure([schedule])
    assert isinstance(outcome, Measurement)
    return outcome.latency


@dataclass
class Board:
    """A simulated board: what it is, how it varies, and how it fails."""

    info: MeasurerInfo = field(default_factory=MeasurerInfo)
    noise: float = 0.0
    drift: float = 0.0
    spoil: Callable[[int, list[float]], list[float]] | None = None
    runs: int = 0
    calls: int = 0
    chance: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))

    def build(self, schedule: Schedule) -> float:
        return seconds_of(schedule)

    def run(self, built: Any, repeats: int) -> Sequence[float | Reading]:
        self.runs, self.calls = self.runs + repeats, self.calls + 1
        slower = 1 + self.drift * self.runs
        seconds = [
            built * slower * math.exp(self.chance.normal(0, self.noise)) for _ in range(repeats)
        ]
        return self.spoil(self.calls, seconds) if self.spoil else seconds


def measured(board: Timed, schedule: Schedule) -> Measurement:
    (outcome,) = board.measure([schedule])
    assert isinstance(outcome, Measurement), outcome
    return outcome


def test_a_measurement_keeps_every_sample_and_its_noise() -> None:
    slow, fast = schedules()
    made = Board(MeasurerInfo(repeats=7, warm_up=2), noise=0.02)
    board = Timed(made)
    first, second = measured(board, fast), measured(board, slow)
    for one, schedule in ((first, fast), (second, slow)):
        assert len(one.samples) == 7
        assert one.latency == statistics.median(one.samples)
        assert one.latency == pytest.approx(seconds_of(schedule), rel=0.05)
        assert Measurement.from_dict(one.as_dict()) == one
        assert checked(one) is one
    assert first.noise == second.noise
    assert 0.002 < (first.noise or 0) < 0.03
    assert made.runs == 9 * (AT_START + 2)


def test_a_deterministic_one_is_run_once_without_noise() -> None:
    info = MeasurerInfo(deterministic=True, repeats=1, warm_up=0)
    made = Board(info)
    board = Timed(made)
    one = measured(board, schedules()[0])
    assert (one.noise, one.samples) == (None, (one.latency,))
    assert made.calls == 1
    assert "noise" not in one.as_dict()


def test_drift_is_taken_out() -> None:
    slow, fast = schedules()
    made = Board(MeasurerInfo(repeats=1, warm_up=0), noise=1e-4, drift=1e-3)
    board = Timed(made)
    latencies = [measured(board, fast).latency for _ in range(200)]
    assert made.drift * made.runs > 0.2
    assert latencies[-1] == pytest.approx(latencies[0], rel=0.03)
    assert measured(board, slow).samples[0] > 1.2 * seconds_of(slow)  # as it came


@pytest.mark.parametrize(("noise", "drift"), [(0.02, 0.0), (0.05, 0.0), (0.05, 0.1), (0.002, 0.1)])
def test_the_noise_of_the_reference_is_no_drift(noise: float, drift: float) -> None:
    off, of_three, noises = [], [], []
    for seed in range(20):
        chance, followed = np.random.default_rng(seed), Drift()
        first = [float(value) for value in chance.normal(0, noise, AT_START)]
        followed.begin(first)
        taken = [statistics.median(first)]
        for step in range(1, 26):
            true = drift * step / 25
            taken.append(true + float(chance.normal(0, noise)))
            followed.note(functools.partial(taken.__getitem__, -1))
            off.append(followed.slower - true)
            of_three.append(statistics.median(taken[-3:]) - taken[0] - true)
        noises.append(followed.noise)
    assert np.mean(noises) == pytest.approx(noise, rel=0.3)
    share = np.sqrt(np.mean(np.square(off)) / np.mean(np.square(of_three)))
    assert share < (0.5 if drift == 0 else 0.9)


def test_an_outlier_of_the_reference_is_measured_again() -> None:
    followed, taken = Drift(), iter([1.0, 0.001, 1.0, 1.0])
    followed.begin([0.0, 0.002, -0.002, 0.001, -0.001])
    followed.note(lambda: next(taken))
    assert abs(followed.slower) < 0.01
    followed.note(lambda: next(taken))  # it stays so
    assert followed.slower > 0.5
    assert next(taken, None) is None
    followed.note(lambda: None)


def test_a_suspiciously_fast_one_is_confirmed() -> None:
    def lucky(call: int, seconds: list[float]) -> list[float]:
        return [0.5 * value for value in seconds] if call == AT_START + 2 else seconds

    slow, _ = schedules()
    board = Timed(Board(MeasurerInfo(repeats=3, warm_up=0), noise=0.01, spoil=lucky))
    first, second = measured(board, slow), measured(board, slow)
    assert len(second.samples) == 6
    assert second.latency > 0.7 * first.latency
    assert len(measured(board, slow).samples) == 3


@dataclass
class Metered(Board):
    """Reads more than seconds: what the simulator says, for each launch and in the whole."""

    info: MeasurerInfo = field(
        default_factory=lambda: MeasurerInfo(
            reports=("latency", "kernels", "bytes", "energy"), repeats=3, warm_up=0
        )
    )
    leave_out: str = ""
    more: int = 0

    def build(self, schedule: Schedule) -> Any:
        (one,) = Simulator().measure([schedule])
        assert isinstance(one, Measurement)
        of = schedule.instances.subgraph[np.asarray(schedule.order)]
        return one, tuple(np.asarray(one.subgraph_times)[of].tolist())

    def run(self, built: Any, repeats: int) -> Sequence[Reading]:
        one, kernels = built
        read = Reading(one.latency, kernels + (1.0,) * self.more, one.ddr_bytes, 7.0)
        empty: dict[str, Any] = {"kernels": (), "ddr_bytes": None, "energy_j": None}
        left = {name: value for name, value in empty.items() if name == self.leave_out}
        return [dataclasses.replace(read, **left) for _ in range(repeats)]


def test_readings_become_measurements() -> None:
    schedule = schedules()[1]
    one = measured(Timed(Metered()), schedule)
    (exact,) = Simulator().measure([schedule])
    assert isinstance(exact, Measurement)
    assert one.subgraph_times == pytest.approx(exact.subgraph_times)
    assert (one.ddr_bytes, one.energy) == (exact.ddr_bytes, 7.0)
    assert one.samples == (exact.latency,) * 3


@pytest.mark.parametrize(
    ("board", "text"),
    [
        (Metered(leave_out="kernels"), "says that it reports kernels, and does not"),
        (Metered(leave_out="ddr_bytes"), "says that it reports bytes, and does not"),
        (Metered(leave_out="energy_j"), "says that it reports energy, and does not"),
        (Metered(more=1), "kernels, the schedule has"),
    ],
)
def test_what_is_promised_is_held(board: Metered, text: str) -> None:
    (outcome,) = Timed(board).measure([schedules()[0]])
    assert isinstance(outcome, Failure)
    assert text in outcome.message


def test_nobody_reports_what_there_is_no_word_for() -> None:
    with pytest.raises(ValueError, match="'watts'"):
        MeasurerInfo(reports=("watts",))


def test_a_measurer_is_asked_what_it_is_without_being_imported() -> None:
    assert declared("simulator") is None
    with pytest.raises(UsageError):
        declared("ghost")


class Broken(Board):
    def build(self, schedule: Schedule) -> float:
        assert schedule.text
        raise OSError("no compiler\nfor this")


class Slow(Board):
    def run(self, built: float, repeats: int) -> Sequence[float]:
        time.sleep(5)
        return [built] * repeats


@pytest.mark.parametrize(
    ("board", "reason", "message"),
    [
        (Broken(), "build", "the measurer raised OSError: no compiler for this"),
        (
            Slow(MeasurerInfo(deterministic=True, run_limit_s=0.05)),
            "timeout", "the run took more than 0.05 s",
        ),
        (
            Board(MeasurerInfo(deterministic=True), spoil=lambda _, s: [math.nan for _ in s]),
            "invalid", "the measurer returned [nan",
        ),
        (Board(MeasurerInfo(deterministic=True), spoil=lambda *_: []), "invalid", "returned []"),
    ],
)  # fmt: skip
def test_what_goes_wrong_is_a_value(board: Board, reason: str, message: str) -> None:
    (outcome,) = Timed(board).measure(schedules()[:1])
    assert isinstance(outcome, Failure)
    assert outcome.reason == reason
    assert message in outcome.message
    assert "\n" not in outcome.message


@dataclass
class Shared(Board):
    """Counts who runs at the same time; runs meet where so many are let in."""

    meeting: threading.Barrier = field(default_factory=lambda: threading.Barrier(1))
    running: list[int] = field(default_factory=list)
    most: int = 0

    def run(self, built: float, repeats: int) -> Sequence[float]:
        self.running.append(1)
        self.most = max(self.most, len(self.running))
        self.meeting.wait(timeout=30)
        time.sleep(0.02)
        self.running.pop()
        return [built] * repeats


@pytest.mark.parametrize(("at_once", "most"), [(1, 1), (2, 2), (None, 4)])
def test_runs_take_turns_where_the_measurer_says_so(at_once: int | None, most: int) -> None:
    """Locks are of open files, so that threads take turns as processes do."""
    info = MeasurerInfo(deterministic=True, repeats=1, warm_up=0, at_once=at_once)
    board, schedule = Shared(info, meeting=threading.Barrier(most)), schedules()[0]
    threads = [threading.Thread(target=Timed(board).measure, args=([schedule],)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert board.most == most
    assert not board.running
