"""Drivers killed at random moments (``kill -9``): what was acknowledged is there afterwards.

Two runs at once tune into one database, each in a driver process of its own: real ``tune`` and
``resume``, forked from a process that has everything loaded, so that the kill and not the loading
is what takes place at a random moment. After a while both are killed. Then

- SQLite's integrity check must pass, and every record must be whole;
- every run must have all trials that its log has acknowledged (the line ``32/64 trials`` is written
  when they are in the database), and those that were there before, unchanged;
- the next driver resumes at once: what a dead driver held is free.

A run that reaches its end must have written the schedule of a run that was never killed, byte by
byte. Then two new runs begin in a new database.

::

    python benchmarks/database_kills.py [--kills 1000] [--seed 0] [--trials 32]
"""

from __future__ import annotations

import argparse
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx

import autoturbo
from autoturbo.database import Database, TrialRecord, check
from autoturbo.search.constants import SEARCH

TARGET = "stcp920"
LAYERS, WIDTH, ROWS = 4, 16, 8  # a network whose settings take milliseconds, so that kills meet all
SEEDS = (0, 1)
RANDOM = "random"  # the sampler of drivers: how settings are proposed does not matter here
TRIALS = 32


@dataclass
class Tally:
    """What happened.

    Attributes:
        kills: Drivers that were killed while they ran.
        finished: Runs that reached their end.
        acknowledged: Trials that logs acknowledged, over all checks.
        beyond: Trials found that were not acknowledged yet, over all checks.
        before: Kills before the run was in the database.
    """

    kills: int = 0
    finished: int = 0
    acknowledged: int = 0
    beyond: int = 0
    before: int = 0
    seen: dict[str, tuple[TrialRecord, ...]] = field(default_factory=dict)


def write_model(path: Path) -> None:
    """Write a small network of products as ONNX."""
    nodes, weights, at = [], [], "x"
    for layer in range(LAYERS):
        ones = np.ones((WIDTH, WIDTH), np.float32)
        weights.append(onnx.numpy_helper.from_array(ones, f"w{layer}"))
        nodes.append(onnx.helper.make_node("MatMul", [at, f"w{layer}"], [f"m{layer}"]))
        nodes.append(onnx.helper.make_node("Relu", [f"m{layer}"], [f"y{layer}"]))
        at = f"y{layer}"
    ends = [
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [ROWS, WIDTH])
        for name in ("x", at)
    ]
    graph = onnx.helper.make_graph(nodes, "small", ends[:1], ends[1:], weights)
    opset = onnx.helper.make_opsetid("", 17)
    onnx.save(onnx.helper.make_model(graph, opset_imports=[opset]), path)


def warm(folder: Path) -> None:
    """Load and compile all that drivers need, without threads, which would not outlive a fork."""
    os.environ["OMP_NUM_THREADS"] = "1"
    folder.mkdir()
    drive(folder, 0, 2 * SEARCH.rounds.round_trials)
    if threading.active_count() > 1:
        raise AssertionError("threads are running; a fork of this process could hang")


def drive(folder: Path, seed: int, trials: int) -> None:
    """Tune, or go on where an earlier driver was killed."""
    path = folder / "tuned.db"
    run = _run_of(path, seed)
    if run is not None:
        autoturbo.resume(run, database=path)
        return
    file = folder.parent / "small.onnx"
    autoturbo.tune(
        file, TARGET, trials=trials, seed=seed, sampler=RANDOM, database=path,
        runs_folder=folder / "runs", baselines=(), transfer=False,
    )  # fmt: skip


def forked(folder: Path, seed: int, trials: int) -> int:
    """Fork a driver process; return its number."""
    process = os.fork()
    if process:
        return process
    status = 1
    try:
        drive(folder, seed, trials)
        status = 0
    except Exception:  # noqa: BLE001  said before the process ends
        traceback.print_exc()
    finally:
        os._exit(status)
    raise AssertionError


def killed_in(
    folder: Path, chance: random.Random, tally: Tally, trials: int, most_s: float
) -> bool:
    """Start the drivers, kill them at a random moment each; True where all runs are done."""
    drivers = [forked(folder, seed, trials) for seed in SEEDS if not _is_done(folder, seed)]
    if not drivers:
        return True
    # Early moments more often than late ones: a run is killed several times before it ends.
    moments = sorted((most_s * chance.random() ** 2, driver) for driver in drivers)
    began = time.monotonic()
    for moment, driver in moments:
        time.sleep(max(0.0, began + moment - time.monotonic()))
        os.kill(driver, signal.SIGKILL)
        _, status = os.waitpid(driver, 0)
        if os.WIFSIGNALED(status):
            tally.kills += 1
        elif os.WEXITSTATUS(status):
            raise AssertionError(f"a driver failed by itself, status {os.WEXITSTATUS(status)}")
    _check(folder, tally)
    return False


def _check(folder: Path, tally: Tally) -> None:
    """Check that everything acknowledged is there, and all of it sound."""
    path = folder / "tuned.db"
    if not path.exists():
        tally.before += 1
        return
    with Database.open(path) as database:
        runs = database.runs()
        found = {run.id: database.trials(run.id) for run in runs}
        states = {run.id: database.state(run) for run in runs}
    checked = check(path)
    if not checked.sound:
        raise AssertionError(f"{path}: {checked.findings}")
    for run, trials in found.items():
        said = acknowledged(folder, run)
        numbers = [trial.number for trial in trials]
        if len(trials) < said or numbers != list(range(len(trials))):
            raise AssertionError(f"{path}: run {run}: {said} acknowledged, {numbers} are there")
        before = tally.seen.get(run, ())
        if trials[: len(before)] != before:
            raise AssertionError(f"{path}: run {run}: a trial has changed")
        if states[run] not in ("killed", "done"):
            raise AssertionError(f"{path}: run {run} is {states[run]!r}")
        tally.seen[run] = trials
        tally.acknowledged += said
        tally.beyond += len(trials) - said


def acknowledged(folder: Path, run: str) -> int:
    """Return the most trials that a log says are in the database; a last line may be cut."""
    logs = [file.read_text() for file in (folder / "runs").glob(f"*-{run}/log.txt")]
    return max((int(n) for log in logs for n in re.findall(r" (\d+)/\d+ trials,", log)), default=0)


def _run_of(path: Path, seed: int) -> str | None:
    """Return the run of a seed; None if the database does not have it."""
    if not path.exists():
        return None
    with Database.open(path) as database:
        return next((run.id for run in database.runs() if run.settings["seed"] == seed), None)


def _is_done(folder: Path, seed: int) -> bool:
    path = folder / "tuned.db"
    if not path.exists():
        return False
    with Database.open(path) as database:
        return any(r.settings["seed"] == seed and r.state == "done" for r in database.runs())


def schedules(folder: Path) -> dict[str, bytes]:
    """Return the text of the best schedule by run."""
    files = sorted((folder / "runs").glob("*/schedule.json"))
    return {file.parent.name: file.read_bytes() for file in files}


def undisturbed(folder: Path, trials: int) -> tuple[dict[str, bytes], float]:
    """Return schedules of the same runs, never killed, and the seconds that one takes."""
    folder.mkdir()
    began = time.monotonic()
    for seed in SEEDS:
        _, status = os.waitpid(forked(folder, seed, trials), 0)
        if status:
            raise AssertionError(f"a driver failed by itself, status {status}")
    return schedules(folder), (time.monotonic() - began) / len(SEEDS)


def kill(kills: int, seed: int, trials: int, folder: Path) -> Tally:
    """Kill drivers until so many are killed and some told of a trial; AssertionError for a loss."""
    write_model(folder / "small.onnx")
    warm(folder / "warm")
    expected, most_s = undisturbed(folder / "undisturbed", trials)
    tally, chance, number = Tally(), random.Random(seed), 0  # noqa: S311
    while tally.kills < kills or not tally.acknowledged:  # else nothing could have been lost
        place = folder / f"at-{number}"
        place.mkdir(exist_ok=True)
        # At most a little longer than a run takes: less, and it would never reach its end.
        if killed_in(place, chance, tally, trials, 1.2 * most_s):
            if schedules(place) != expected:
                raise AssertionError(f"{place}: other schedules than without kills")
            tally.finished += len(SEEDS)
            tally.seen.clear()
            shutil.rmtree(place)
            number += 1
            print(f"{tally.kills} kills, {tally.finished} runs", file=sys.stderr, flush=True)
    return tally


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse, kill, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--trials", type=int, default=TRIALS, help="of each run")
    options = parser.parse_args(arguments)
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        tally = kill(options.kills, options.seed, options.trials, Path(name))
    print(f"{tally.kills} drivers killed in {time.monotonic() - began:.0f} s,")
    print(
        f"{tally.before} times before there was a database; {tally.finished} runs reached their end"
    )
    print(f"with the schedules of runs that were never killed. Checks counted {tally.acknowledged}")
    print(f"acknowledged trials, none lost, and {tally.beyond} more that were durable before their")
    print("line was logged. Every database was sound after every kill.")


if __name__ == "__main__":
    main()
