"""Where the CPU time of a standard tuning run goes: measuring, and what the loop does around it.

A run of ``autoturbo.tune`` in this process, records kept, every second counted once:

* *measure*: scheduling and simulating what was proposed, baselines included;
* *propose*: sampler and space, without what they ask of the cost model;
* *predict*: the cost model's statistics, features and predictions of candidates;
* *learn*: training the cost model, and entering outcomes;
* *record*: database, log and the study that the user sees;
* *rest*: starts placed by the dynamic programme, checks of what is handed out, all else.

*overhead* is propose, predict, learn and record over the whole, *screened/s* the candidates that
the cost model ranked over the seconds of *predict*. With ``--command``, *command* is
what ``autoturbo tune`` takes in a process of its own, loading included and compiling not, and *of
it* the same four over that.

::

    python benchmarks/loop_overhead.py [--command] [--trials N] [--target NAME] [NAME ...]
"""

from __future__ import annotations

import argparse
import functools
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench_tools import print_table

import autoturbo
from autoturbo.config import EFFORTS
from autoturbo.cost_models.model import CostModel
from autoturbo.cost_models.pretrained import standard
from autoturbo.cost_models.ranker import Ranker
from autoturbo.datasets import workloads
from autoturbo.search.journal import Journal
from autoturbo.search.loop import SearchLoop
from autoturbo.search.proposer import CostModelProposer
from autoturbo.simulator.evaluator import Evaluator

NAMES = ("resnet50", "bert_base_s128", "mobilenet_v2")

WHERE: tuple[tuple[str, type, tuple[str, ...]], ...] = (
    ("measure", Evaluator, ("evaluate", "measure_scheduler")),
    ("propose", CostModelProposer, ("ask",)),
    ("predict", Ranker, ("rank", "look")),
    ("learn", CostModel, ("of",)),
    ("learn", CostModelProposer, ("tell", "_teach")),
    ("record", Journal, ("add", "flush", "log")),
    ("record", SearchLoop, ("_fill_mirror",)),
)
"""Methods by what they count as; the innermost of those under way has the time."""

PARTS = tuple(dict.fromkeys(part for part, _, _ in WHERE))


class Shares:
    """CPU seconds by what they are spent on."""

    def __init__(self) -> None:
        self.seconds = dict.fromkeys((*PARTS, "rest"), 0.0)
        self.advisors: dict[int, Ranker] = {}
        self._under_way = ["rest"]
        self._since = time.process_time()

    def switch(self) -> None:
        """Give the time since the last switch to what is under way."""
        now = time.process_time()
        self.seconds[self._under_way[-1]] += now - self._since
        self._since = now

    def counting(self, part: str, method: Callable[..., Any]) -> Callable[..., Any]:
        """Return a method whose time counts as a part."""

        @functools.wraps(method)
        def counted(*args: Any, **named: Any) -> Any:
            if args and isinstance(args[0], Ranker):
                self.advisors[id(args[0])] = args[0]
            self.switch()
            self._under_way.append(part)
            try:
                return method(*args, **named)
            finally:
                self.switch()
                self._under_way.pop()

        return counted

    @property
    def rate(self) -> float:
        """Return the candidates screened per second of prediction."""
        return sum(a.screened for a in self.advisors.values()) / self.seconds["predict"]


def shares(name: str, target: str, trials: int) -> Shares:
    """Return where one run's time goes."""
    graph, machine = autoturbo.load_model(workloads.get(name).file), autoturbo.load_target(target)
    found = Shares()
    originals = [(own, method, getattr(own, method)) for _, own, ms in WHERE for method in ms]
    try:
        for part, own, methods in WHERE:
            for method in methods:
                setattr(own, method, found.counting(part, getattr(own, method)))
        with tempfile.TemporaryDirectory() as folder:
            autoturbo.tune(
                graph, machine, trials=trials, database=Path(folder) / "autoturbo.db",
                runs_folder=folder,
            )  # fmt: skip
        found.switch()
    finally:
        for own, method, original in originals:
            setattr(own, method, original)
    return found


def command(name: str, target: str, trials: int) -> float:
    """Return the CPU seconds of the whole command, its children included."""
    before = os.times()
    with tempfile.TemporaryDirectory() as folder:
        arguments = ["tune", name, "--target", target, "--trials", str(trials), "--quiet"]
        where = ["--db", f"{folder}/autoturbo.db", "--runs-folder", folder]
        whole = [sys.executable, "-m", "autoturbo", *arguments, *where]
        subprocess.run(whole, check=True, stdout=subprocess.DEVNULL)  # noqa: S603  our own words
    after = os.times()
    return after.children_user + after.children_system - sum(before[2:4])


def main() -> None:
    """Print one row per workload."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("workload", nargs="*", default=None)
    parser.add_argument("--target", default="stcp920")
    parser.add_argument("--trials", type=int, default=EFFORTS["standard"])
    parser.add_argument("--command", action="store_true", help="the whole command as well")
    options = parser.parse_args()
    standard()  # what is loaded and compiled once belongs to no run
    shares("squeezenet1_1", options.target, 20)
    rows = []
    for name in options.workload or NAMES:
        found = shares(name, options.target, options.trials)
        seconds = found.seconds
        total = sum(seconds.values())
        around = sum(seconds[part] for part in PARTS if part != "measure")
        row = (name, *seconds.values(), total, f"{around / total:.0%}", round(found.rate, -2))
        if options.command:
            whole = command(name, options.target, options.trials)
            row = (*row, whole, f"{around / whole:.0%}")
        rows.append(row)
    print(f"{options.target}, {options.trials} trials; CPU seconds")
    last = ("command", "of it") if options.command else ()
    print_table(("workload", *PARTS, "rest", "total", "overhead", "screened/s", *last), rows)


if __name__ == "__main__":
    main()
