"""Whether kernels measured earlier should be read back from a database: what it saves and costs.

Models are searched one after another on one target. For each: how many distinct kernels the search
meets, what simulating them takes, how many of them a search of the models before has met already,
and what reading the quantities of those (all that a measurement needs of a kernel, not its time
alone) from an SQLite table by signature takes.

::

    python benchmarks/kernel_reuse.py [NAME ...] [--trials N]
"""

from __future__ import annotations

import argparse
import sqlite3
import tempfile
import time
from contextlib import closing
from pathlib import Path

from bench_tools import cpu_seconds, print_table

import autoturbo
from autoturbo.database import Database
from autoturbo.datasets import workloads
from autoturbo.graph.arrays import Ints
from autoturbo.schedule.knobs import Knobs
from autoturbo.schedule.schedule import Schedule
from autoturbo.simulator.evaluator import Evaluator, Simulator
from autoturbo.simulator.sequence import KernelMemory

MODELS = ("resnet18", "resnet50", "densenet121", "bert_base_s128", "bert_base_s256")
TARGET = "stcp920"


def searched(name: str, trials: int, folder: Path) -> tuple[list[Knobs], float]:
    """Return the settings of a search and its CPU seconds."""
    path = folder / f"{name}.db"
    began = time.process_time()
    autoturbo.tune(
        autoturbo.load_model(workloads.get(name).file), autoturbo.load_target(TARGET),
        trials=trials, database=path, runs_folder=folder / "runs",
    )  # fmt: skip
    took = time.process_time() - began
    with Database.open(path) as database:
        return [trial.knobs for trial in database.trials(database.runs()[0].id)], took


class TimedMemory(KernelMemory):
    """Counts the seconds that simulating kernels takes, programs included."""

    seconds = 0.0

    def rows(self, schedule: Schedule, cluster: int = 0) -> tuple[list[bytes], Ints]:
        """Return what the memory does without the clock."""
        new = any(one not in self.index for one in schedule.signatures(cluster))
        began = time.process_time()
        found = super().rows(schedule, cluster)
        self.seconds += time.process_time() - began if new else 0.0
        return found


def simulated(name: str, settings: list[Knobs]) -> tuple[KernelMemory, float]:
    """Return the kernels of a search, simulated anew, and the seconds of that alone."""
    model, target = autoturbo.load_model(workloads.get(name).file), autoturbo.load_target(TARGET)
    memory = TimedMemory()
    model_scheduler = Evaluator(model, target, target.default_dtype, Simulator(memory))
    for knobs in settings:
        model_scheduler.evaluate(knobs)
    return memory, memory.seconds


def read_back(memory: KernelMemory, folder: Path) -> float:
    """Return the seconds to read all kernels by signature from a table of their quantities."""
    with closing(sqlite3.connect(folder / "kernels.db", isolation_level=None)) as connection:
        connection.execute("DROP TABLE IF EXISTS kernels")
        connection.execute("CREATE TABLE kernels (signature BLOB PRIMARY KEY, totals BLOB)")
        rows = [(s, memory.totals.rows[at].tobytes()) for s, at in memory.index.items()]
        connection.execute("BEGIN")
        connection.executemany("INSERT INTO kernels VALUES (?, ?)", rows)
        connection.execute("COMMIT")
        query = "SELECT totals FROM kernels WHERE signature = ?"
        return cpu_seconds(lambda: [connection.execute(query, (s,)).fetchone() for s, _ in rows])


def main() -> None:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", default=[])
    parser.add_argument("--trials", type=int, default=64)
    options = parser.parse_args()
    rows, known = [], set[bytes]()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for model in options.names or MODELS:
            settings, took = searched(model, options.trials, folder)
            memory, seconds = simulated(model, settings)
            count, shared = len(memory.index), len(known & memory.index.keys())
            read = read_back(memory, folder)
            rows.append(
                (model, f"{took:.2f}", count, f"{seconds * 1e6 / count:.0f}",
                 f"{read * 1e6 / count:.1f}", f"{shared / count:.0%}",
                 f"{shared / count * (seconds - read) / took:.2%}")
            )  # fmt: skip
            known |= memory.index.keys()
    print(f"CPU seconds of searches of {options.trials} trials on {TARGET}, one after another;")
    print("microseconds per kernel; saved: of the search's seconds, had those kernels been read")
    header = ("model", "search s", "kernels", "simulate us", "read us", "known before", "saved")
    print_table(header, rows)


if __name__ == "__main__":
    main()
