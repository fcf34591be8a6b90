"""Measurers that misbehave, installed as a package would be: found by name, also by workers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.command_line import Cli, cli_in

LAST = 14
"""The call from which on the measurer that fails at last does."""

MODULE = '''\
import dataclasses
import math
import os
import random
import sys
import time

import numpy as np

from autoturbo.plugin import MeasurerInfo, Reading
from autoturbo.simulator.evaluator import Simulator


class Faulty:
    def measure(self, schedules):
        return [self.spoilt(outcome) for outcome in Simulator().measure(schedules)]


class Raising(Faulty):
    def spoilt(self, outcome):
        raise RuntimeError("no board answers\\nat /dev/board0")


class NotANumber(Faulty):
    def spoilt(self, outcome):
        return dataclasses.replace(outcome, latency=float("nan"))


class Hanging(Faulty):
    def spoilt(self, outcome):
        time.sleep(30)


class Waiting(Faulty):
    """A board that takes its time; right otherwise."""

    seconds = 0.4

    def spoilt(self, outcome):
        time.sleep(self.seconds)
        return outcome


class Right(Waiting):
    seconds = 0.0


class WaitingLong(Waiting):
    seconds = 2.0


class Stuck(Waiting):
    seconds = 600.0


class Dying(Faulty):
    def spoilt(self, outcome):
        os._exit(3)


class Fragile(Faulty):
    """Ends its process on some settings, and writes to its standard output by itself."""

    def measure(self, schedules):
        return [self.one(schedule) for schedule in schedules]

    def one(self, schedule):
        os.write(1, b"hello from the board\\n")
        print("hello from Python")
        if schedule.scheduler == "tvm" or schedule.knobs.as_dict().get("prefetch_depth", 0) == 2:
            os._exit(0)
        return Simulator().measure([schedule])[0]


class Leaving(Faulty):
    def __init__(self):
        sys.exit(0)


class Moody(Faulty):
    """Fails on settings of one kind."""

    def measure(self, schedules):
        return [self.one(schedule) for schedule in schedules]

    def one(self, schedule):
        if schedule.knobs.as_dict().get("tile_subdivision", 0) > 2:
            raise OSError("the board is too hot")
        return Simulator().measure([schedule])[0]


class Noisy:
    """A board with 5 % of noise, 1 % of failures, and a drift of 10 % over 600 runs."""

    info = MeasurerInfo(repeats=5, warm_up=1)

    def __init__(self):
        self.chance, self.runs = random.Random(7), 0

    def build(self, schedule):
        return Simulator().measure([schedule])[0].latency

    def run(self, built, repeats):
        if self.chance.random() < 0.01:
            raise OSError("the board does not answer")
        self.runs += repeats
        slower = 1 + 0.1 * min(self.runs / 600, 1)
        return [built * slower * math.exp(self.chance.gauss(0, 0.05)) for _ in range(repeats)]


class Metered(Noisy):
    """A board with a power meter and counters of bytes; it says what a measurement takes."""

    info = MeasurerInfo(
        reports=("latency", "bytes", "energy"), cost_s=2.5, repeats=3, warm_up=0, at_once=1
    )

    def build(self, schedule):
        return Simulator().measure([schedule])[0]

    def run(self, built, repeats):
        seconds = super().run(built.latency, repeats)
        return [Reading(s, ddr_bytes=built.ddr_bytes, energy_j=40 * s) for s in seconds]


class Alike(Noisy):
    """As if all schedules took the same time."""

    def build(self, schedule):
        return 1.0


class Leased(Noisy):
    """A board that is there as long as the file that stands for its lease."""

    def build(self, schedule):
        if not os.path.exists("lease"):
            raise ConnectionRefusedError("nobody answers at 127.0.0.1:47123")
        return super().build(schedule)


class Counter(Noisy):
    """A cycle counter: exact, and says nothing of it."""

    def run(self, built, repeats):
        return [built] * repeats


class Single(Counter):
    """Figures of single precision."""

    def run(self, built, repeats):
        return [np.float32(built)] * repeats


class Constant(Counter):
    def build(self, schedule):
        return 1.0


class Drifting(Noisy):
    """Ever slower, by a tenth of a percent a run, with little noise."""

    def run(self, built, repeats):
        self.runs += repeats
        return [built * (1 + self.runs / 5000) * math.exp(self.chance.gauss(0, 0.002))
                for _ in range(repeats)]


class Outlying(Noisy):
    """Once a third of what it takes."""

    def run(self, built, repeats):
        self.runs += 1
        third = 3 if self.runs == 6 else 1
        return [built / third * math.exp(self.chance.gauss(0, 0.02)) for _ in range(repeats)]


class Unsteady(Faulty):
    """Of version 1, with 2 % of noise."""

    def __init__(self):
        self.chance = random.Random(3)

    def spoilt(self, outcome):
        latency = outcome.latency * (1 + abs(self.chance.gauss(0, 0.02)))
        return dataclasses.replace(outcome, latency=latency)


class Failing(Faulty):
    """Raises at some calls."""

    calls = (1,)

    def __init__(self):
        self.asked = 0

    def spoilt(self, outcome):
        self.asked += 1
        if self.asked in self.calls:
            raise OSError("the board does not answer")
        return outcome


class FailingTwice(Failing):
    calls = (2, 4)


class FailingThird(Failing):
    calls = (3, 4)


class FailingAtLast(Failing):
    calls = range(LAST, 1000)


class HalfFailing(Failing):
    calls = range(1, 4000, 2)
'''
NAMES = {
    "right": "Right",
    "moody": "Moody",
    "raising": "Raising",
    "nan": "NotANumber",
    "hanging": "Hanging",
    "dying": "Dying",
    "waiting-0.4": "Waiting",
    "waiting-2": "WaitingLong",
    "waiting-600": "Stuck",
    "fragile": "Fragile",
    "leaving": "Leaving",
    "noisy": "Noisy",
    "alike": "Alike",
    "metered": "Metered",
    "leased": "Leased",
    "counter": "Counter",
    "single": "Single",
    "constant": "Constant",
    "drifting": "Drifting",
    "outlying": "Outlying",
    "unsteady": "Unsteady",
    "failing-1": "Failing",
    "failing-1-twice": "FailingTwice",
    "failing-3": "FailingThird",
    "failing-last": "FailingAtLast",
    "failing-half": "HalfFailing",
}


def cli_with_boards(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """The command line in an empty folder, with the measurers."""
    made = cli_in(folder, monkeypatch)
    (folder / "site").mkdir()
    install(folder / "site", monkeypatch)
    return made


def install(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put the package where this process and its workers find it."""
    (folder / "faulty_boards.py").write_text(f"LAST = {LAST}\n{MODULE}")
    facts = folder / "faulty_boards-1.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: faulty-boards\nVersion: 1.0\n")
    lines = "".join(f"{name} = faulty_boards:{made}\n" for name, made in NAMES.items())
    lines += "absent = faulty_boards:Absent\n"
    (facts / "entry_points.txt").write_text(f"[autoturbo.measurers]\n{lines}")
    monkeypatch.syspath_prepend(folder)
