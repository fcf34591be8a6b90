"""Random kills here, with two processes and on Ray: nothing acknowledged is lost, same results.

``local`` are the forked drivers of ``database_kills.py``, two at a time on one database, with the
simulator. In the other places a driver tunes with a slow measurer that raises, hangs, kills its
process or returns NaN, negative, infinite and other nonsense for some settings, while the clock on
the wall jumps back and forward by days. What is killed (``kill -9``) at a random moment is the
driver, a worker, and on Ray a node with all its processes or the head of the cluster; whoever was
killed is started again. After every death of a driver, and at the end,

- the database must be sound and have all trials that the log has acknowledged;
- trials that were there must be unchanged;

and a run that reaches its end must have the trials, the outcomes and, byte by byte, the schedule of
a run that nobody disturbed.

::

    python benchmarks/kills.py [--local 180] [--processes 70] [--ray 50] [--seed 0]
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from autoturbo.search import journal

sys.path.insert(0, str(Path(__file__).parent))

import database_kills
from ray_cluster import Cluster, Node, descendants
from ray_measurers import SIDES, lot, making, toy_graph, toy_target

from autoturbo.database import Database, TrialRecord, check
from autoturbo.schedule.knobs import Knobs
from autoturbo.search.executors.ray_session import connect
from autoturbo.simulator.measurement import Failure

TRIALS = 57
MEASURING_S = {"processes": 0.05, "ray": 0.2}
"""For one setting; on Ray longer, since most of what a driver does there is to start."""

TIMEOUT_S = 12.0
"""Long enough that only a setting that hangs reaches it, also where the machine is busy."""

SPOILT = {
    9: "raises", 12: "hangs", 11: "dies", 13: "NaN", 17: "negative", 8: "infinite", 19: "garbage",
}  # fmt: skip
"""What settings of which lot do instead of being measured; a run draws some of every lot."""

_DAY = 86400.0
_PAUSE_S = {"processes": 12.0, "ray": 16.0}
"""Seconds between kills, at most: a driver starts in some."""

_PATIENCE_S = 20.0
"""Seconds for workers to be there where one is to be killed."""

_UNREACHED = "no Ray cluster answers"

_VICTIMS = {
    "processes": {"driver": 2, "worker": 3},
    "ray": {"driver": 4, "worker": 6, "node": 3, "head": 1},
}
"""Who is killed how often, in proportion."""


# The driver


def drive(folder: Path, jobs: int, address: str | None) -> None:
    """Tune, or go on where an earlier driver was killed."""
    from autoturbo.commands.stored_runs import resume
    from autoturbo.tuning.tuner import tune

    if address is not None:
        connect(address)  # Ray itself measures with that clock how long it waits for a cluster
    make_the_clock_jump()
    path = folder / "tuned.db"
    measurer = making(MEASURING_S["processes" if address is None else "ray"], spoils=SPOILT)
    where: dict[str, Any] = {"jobs": jobs, "ray": address, "timeout": TIMEOUT_S}
    runs = Database.open(path).runs() if path.exists() else ()
    if runs:
        resume(
            runs[0].id, database=path, load_graph=lambda _: toy_graph(), evaluator=measurer, **where
        )
        return
    tune(
        toy_graph(), toy_target(), trials=TRIALS, sampler="random", baselines=(), database=path,
        runs_folder=folder / "runs", evaluator=measurer, **where,
    )  # fmt: skip


def make_the_clock_jump() -> None:
    """Have the clock on the wall say another day each time that it is asked, earlier or later."""
    chance, true = random.Random(os.getpid()), time.time  # noqa: S311

    class Jumping(dt.datetime):
        @classmethod
        def now(cls, tz: dt.tzinfo | None = None) -> Jumping:
            return cls.fromtimestamp(true() + chance.uniform(-_DAY, _DAY), tz)

    time.time = lambda: true() + chance.uniform(-_DAY, _DAY)
    journal.datetime = Jumping  # type: ignore[attr-defined]


# What kills it


@dataclass
class Ground:
    """Where drivers run.

    Attributes:
        name: ``"processes"`` or ``"ray"``.
        chance: Decides.
        cluster: Of Ray.
        killed: How often who was.
        lines: Trials acknowledged, over all checks.
        finished: Runs that reached their end.
    """

    name: str
    chance: random.Random
    cluster: Cluster | None = None
    killed: Counter[str] = field(default_factory=Counter)
    lines: int = 0
    finished: int = 0

    def start(self, folder: Path) -> subprocess.Popen[bytes]:
        """Start a driver, its errors in a file of the folder."""
        address = None if self.cluster is None else self.cluster.address
        what = json.dumps([str(folder), 2, address])
        command = [sys.executable, __file__, "--drive", what]
        with (folder / "driver.err").open("ab") as errors:
            return subprocess.Popen(command, stderr=errors, stdout=errors)  # noqa: S603

    def strike(self, driver: subprocess.Popen[bytes]) -> bool:
        """Kill somebody; whether the driver has to be started again."""
        victims = _VICTIMS[self.name]
        name = self.chance.choices([*victims], [*victims.values()])[0]
        kill: Callable[[subprocess.Popen[bytes]], bool] = getattr(self, f"_{name}")
        if not kill(driver):
            return False
        self.killed[name] += 1
        return name in ("driver", "head")

    def _driver(self, driver: subprocess.Popen[bytes]) -> bool:
        driver.kill()
        driver.wait()
        return True

    def _worker(self, driver: subprocess.Popen[bytes]) -> bool:
        """Kill a worker that is there, or that comes while the driver runs, a moment later."""
        end = time.monotonic() + _PATIENCE_S
        while not self._workers(driver):
            if time.monotonic() > end or driver.poll() is not None:
                return False
            time.sleep(0.01)
        time.sleep(self.chance.uniform(0, 2))
        found = self._workers(driver)
        if not found:
            return False
        try:
            os.kill(self.chance.choice(sorted(found)), 9)
        except ProcessLookupError:
            return False
        return True

    def _workers(self, driver: subprocess.Popen[bytes]) -> list[int]:
        if self.cluster is not None:
            return [pid for node in self.cluster.nodes for pid in node.workers()]
        return [p for p in descendants(driver.pid) if p != driver.pid and _is_worker(p)]

    def _node(self, driver: subprocess.Popen[bytes]) -> bool:
        del driver
        cluster = self._cluster
        cluster.remove(self.chance.choice(cluster.nodes))
        cluster.add()
        return True

    def _head(self, driver: subprocess.Popen[bytes]) -> bool:
        """Kill the head with its cluster; Ray would end the driver a minute later."""
        cluster = self._cluster
        cluster.head.kill()
        time.sleep(self.chance.uniform(0, 3))
        self._driver(driver)
        for node in list[Node](cluster.nodes):
            cluster.remove(node)
        cluster.restart_head()
        for _ in range(2):
            cluster.add()
        return True

    @property
    def _cluster(self) -> Cluster:
        if self.cluster is None:
            raise LookupError("no cluster here")
        return self.cluster

    def disturbed(self, folder: Path, kills: int) -> list[TrialRecord]:
        """Return the trials of a run that goes on until done, killed now and then before that."""
        folder.mkdir()
        driver, seen = self.start(folder), dict[int, TrialRecord]()
        while True:
            enough = self.killed.total() >= kills
            pause = 600.0 if enough else self.chance.uniform(0, _PAUSE_S[self.name])
            try:
                status = driver.wait(pause)
            except subprocess.TimeoutExpired:
                if enough:
                    driver.kill()
                    raise AssertionError(f"{folder}: no end within {pause:g} s") from None
                if self.strike(driver):
                    seen = self.checked(folder, seen)
                    driver = self.start(folder)
                continue
            errors = folder / "driver.err"
            if status and self.killed["head"] and _UNREACHED in errors.read_text():
                errors.write_text("")  # the new head is not there yet: as a user would, once more
                driver = self.start(folder)
                continue
            if status:
                raise AssertionError(f"{folder}: {(folder / 'driver.err').read_text()[-2000:]}")
            self.finished += 1
            return [*self.checked(folder, seen).values()]

    def checked(self, folder: Path, seen: dict[int, TrialRecord]) -> dict[int, TrialRecord]:
        """Return the trials in the database; check that everything acknowledged is there.

        Args:
            folder: Of the driver.
            seen: Trials that an earlier check found, by number.

        Returns:
            The trials by number; ``seen`` where there is no database yet.

        Raises:
            AssertionError: A trial is gone or has changed, or the database is damaged.
        """
        path = folder / "tuned.db"
        if not path.exists() or not path.stat().st_size:
            return seen
        found: dict[int, TrialRecord] = {}
        with Database.open(path) as database:
            for info in database.runs():
                found = {trial.number: trial for trial in database.trials(info.id)}
                said = database_kills.acknowledged(folder, info.id)
                self.lines += said
                if not set(range(said)) <= found.keys():
                    raise AssertionError(f"{path}: {said} acknowledged, {sorted(found)} are there")
        if wrong := check(path).findings:
            raise AssertionError(f"{path}: {wrong}")
        if any(found.get(number) != trial for number, trial in seen.items()):
            raise AssertionError(f"{path}: a trial has changed or is gone")
        return found


def _is_worker(pid: int) -> bool:
    try:
        return b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def story(trials: Sequence[TrialRecord]) -> list[tuple[int, Knobs, object]]:
    """Return number, knobs and outcome of each trial.

    Of failures there is their class alone, since how often one was tried may differ. A setting that
    hangs may also lose so many workers meanwhile that it fails for that.
    """
    return [(t.number, t.knobs, _ending(t)) for t in trials]


def _ending(trial: TrialRecord) -> object:
    if not isinstance(trial.outcome, Failure):
        return trial.outcome
    hangs = SPOILT.get(lot(trial.knobs, SIDES)) == "hangs"
    return "hangs" if hangs else trial.outcome.reason


def strike(ground: Ground, folder: Path, kills: int) -> None:
    """Kill until so many are killed.

    Raises:
        AssertionError: Something is lost, or a run ends otherwise than one that nobody disturbed.
    """
    folder.mkdir()
    calm = Ground("processes", ground.chance)
    expected, number = calm.disturbed(folder / "calm", 0), 0
    while ground.killed.total() < kills:
        place = folder / f"at-{number}"
        found = ground.disturbed(place, kills)
        others = [
            pair for pair in zip(story(found), story(expected), strict=True) if pair[0] != pair[1]
        ]
        if others:
            raise AssertionError(f"{place}: other trials than without kills: {others}")
        texts = [[*database_kills.schedules(f).values()] for f in (place, folder / "calm")]
        if texts[0] != texts[1]:
            raise AssertionError(f"{place}: another schedule than without kills")
        number += 1
        print(f"{ground.name}: {dict(ground.killed)}", file=sys.stderr, flush=True)


def _report(name: str, killed: str, finished: int, lines: int, began: float) -> None:
    seconds = time.monotonic() - began
    print(f"{name}: {killed} killed in {seconds:.0f} s, {finished} runs reached their end as if")
    print(f"  nothing had been, byte by byte; {lines} acknowledged trials, none lost", flush=True)


def kill_locally(kills: int, seed: int, folder: Path) -> None:
    """Kill drivers in one process each, forked."""
    began = time.monotonic()
    folder.mkdir()
    tally = database_kills.kill(kills, seed, database_kills.TRIALS, folder)
    _report("local", f"{tally.kills} drivers", tally.finished, tally.acknowledged, began)


def kill_in(name: str, kills: int, seed: int, folder: Path) -> Ground:
    """Kill drivers with workers, with processes or on a cluster of two nodes."""
    began, chance = time.monotonic(), random.Random(seed)  # noqa: S311
    if name == "processes":
        ground = Ground(name, chance)
        strike(ground, folder, kills)
    else:
        os.environ["RAY_AUTH_MODE"] = "disabled"  # as the cluster's
        with Cluster(networked=False) as cluster:
            cluster.wait()
            for _ in range(2):
                cluster.add()
            ground = Ground(name, chance, cluster)
            strike(ground, folder, kills)
    killed = ", ".join(f"{count} x {who}" for who, count in sorted(ground.killed.items()))
    _report(name, killed, ground.finished, ground.lines, began)
    return ground


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse, kill, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, count in (("local", 180), ("processes", 70), ("ray", 50)):
        parser.add_argument(f"--{name}", type=int, default=count, help="kills there")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--drive", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.drive:
        folder, jobs, address = json.loads(options.drive)
        drive(Path(folder), jobs, address)
        return
    with tempfile.TemporaryDirectory() as name:
        if options.local:
            kill_locally(options.local, options.seed, Path(name) / "local")
        for place in ("processes", "ray"):
            if getattr(options, place):
                kill_in(place, getattr(options, place), options.seed, Path(name) / place)


if __name__ == "__main__":
    main()
