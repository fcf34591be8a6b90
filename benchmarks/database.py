"""The database at a million records: inserts, lookups, bytes, exports, imports and merges.

The records are those of two short searches, varied: every number is another one, and half of a
trial's kernels are new, as they are in a search (53 % of 64 trials). Runs have 400 trials each, and
every run its own best schedule.

::

    python benchmarks/database.py [--trials 1000000] [--folder FOLDER]

Seconds are the clock's, CPU seconds beside them; a container's disk may keep its promises faster
than yours.
"""

from __future__ import annotations

import argparse
import dataclasses
import random
import sqlite3
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path

from bench_tools import print_table

import autoturbo
from autoturbo.database import BestSchedule, Database, PairKey, RunInfo, TrialRecord
from autoturbo.database.formats import encode
from autoturbo.datasets import workloads
from autoturbo.simulator.measurement import Measurement

TEMPLATES = ("squeezenet1_1", "resnet50")
SEARCHED, PER_RUN, BATCH, TARGETS = 64, 400, 16, 5
LOOKUPS = 2000
OUR_TARGET = "f" * 64


@dataclasses.dataclass(frozen=True)
class Template:
    """A real search's records."""

    run: RunInfo
    trials: tuple[TrialRecord, ...]
    best: BestSchedule


def templates(folder: Path) -> list[Template]:
    """Return the records of short searches, a run of each."""
    found = []
    for name in TEMPLATES:
        path = folder / f"{name}.db"
        autoturbo.tune(
            autoturbo.load_model(workloads.get(name).file), autoturbo.load_target("stcp920"),
            trials=SEARCHED, database=path, runs_folder=folder / "runs",
        )  # fmt: skip
        with Database.open(path) as database:
            (run,), (best,) = database.runs(), database.best()
            found.append(Template(run, database.trials(run.id), best))
    return found


class Varied:
    """Records like those of the templates, none like another."""

    def __init__(self, known: list[Template]) -> None:
        self._known = known
        self._chance = random.Random(0)  # noqa: S311  records, not secrets
        self._pool = [self._signature() for _ in range(1000)]

    def run(self, number: int) -> RunInfo:
        """Return a run of its own model; runs take turns with the targets."""
        like = self._known[number % len(self._known)].run
        return dataclasses.replace(like, id=f"{number:010x}", key=self.key(number))

    @staticmethod
    def key(number: int) -> PairKey:
        """Return the key of the run of a number."""
        return PairKey(f"{number:064x}", f"{number % TARGETS:064x}", "float16", "3.2.2")

    def trials(self, number: int, count: int) -> list[TrialRecord]:
        """Return the trials of the run of a number."""
        like = self._known[number % len(self._known)].trials
        return [self._trial(f"{number:010x}", n, like[n % len(like)]) for n in range(count)]

    def best(self, number: int) -> BestSchedule:
        """Return the best schedule of the run of a number."""
        like = self._known[number % len(self._known)].best
        return dataclasses.replace(like, key=self.key(number), run=f"{number:010x}")

    def _trial(self, run: str, number: int, like: TrialRecord) -> TrialRecord:
        outcome = like.outcome
        if isinstance(outcome, Measurement):
            outcome = self._measurement(outcome)
        return TrialRecord(run, number, like.knobs, outcome, like.created)

    def _measurement(self, like: Measurement) -> Measurement:
        some = self._chance.random
        factor = 1.0 + 0.1 * some()

        def varied(table: Mapping[str, float]) -> dict[str, float]:
            return {key: value * factor * (1.0 + 1e-6 * some()) for key, value in table.items()}

        names = [
            self._signature() if some() < 0.5 else self._chance.choice(self._pool)  # noqa: PLR2004
            for _ in like.kernel_times
        ]
        seconds = (value * (1.0 + 1e-6 * some()) for value in like.kernel_times.values())
        parts = tuple(value * factor for value in like.subgraph_times)
        return dataclasses.replace(
            like, busy=varied(like.busy), overlap=varied(like.overlap), waits=varied(like.waits),
            latency=like.latency * factor,
            kernel_times=dict(zip(names, seconds, strict=True)),
            kernel_counts=dict(zip(names, like.kernel_counts.values(), strict=True)),
            subgraph_times=parts,
        )  # fmt: skip

    def _signature(self) -> str:
        return f"{self._chance.getrandbits(128):032x}"


class Clock:
    """Rows of the table: seconds, CPU seconds, and how many a second."""

    def __init__(self) -> None:
        self.rows: list[tuple[object, ...]] = []

    def time(self, name: str, count: int, work: Callable[[], object]) -> None:
        """Do it and note what it took."""
        wall, cpu = time.perf_counter(), time.process_time()
        work()
        self.note(name, count, time.perf_counter() - wall, time.process_time() - cpu)

    def note(self, name: str, count: int, wall: float, cpu: float) -> None:
        """Note what something took."""
        self.rows.append((name, f"{count:,}", wall, cpu, f"{count / wall:,.0f}"))
        print(*self.rows[-1], flush=True)


def fill(database: Database, varied: Varied, runs: int, trials: int, clock: Clock) -> None:
    """Insert as a search does: sixteen trials a transaction, each forced to the disk."""
    wall = cpu = 0.0
    left = trials
    for number in range(runs):
        database.add_run(varied.run(number))
        made = varied.trials(number, min(PER_RUN, left))
        left -= len(made)
        best = varied.best(number)
        began, used = time.perf_counter(), time.process_time()
        for at in range(0, len(made), BATCH):
            database.add_trials(made[at : at + BATCH])
        database.put_best(best)
        wall, cpu = wall + time.perf_counter() - began, cpu + time.process_time() - used
    clock.note(f"insert, {BATCH} a transaction", trials, wall, cpu)


def look_up(database: Database, varied: Varied, runs: int, clock: Clock) -> None:
    """Time everything that commands look for."""
    chance = random.Random(1)  # noqa: S311
    numbers = [chance.randrange(runs) for _ in range(LOOKUPS)]
    few = numbers[: LOOKUPS // 20]
    keys = [dataclasses.asdict(varied.key(number)) for number in numbers]
    clock.time("best schedule by its key", LOOKUPS, lambda: [database.best(**k) for k in keys])
    ids = [f"{number:010x}" for number in numbers]
    clock.time("run by its id", LOOKUPS, lambda: [database.run(run) for run in ids])
    some = ids[: len(few)]
    clock.time("trials of a run", len(few) * PER_RUN, lambda: [database.trials(r) for r in some])
    missing = {**keys[0], "graph_hash": "none"}
    clock.time(
        "why nothing matched", 10, lambda: [database.explain_miss(**missing) for _ in range(10)]
    )
    target = {name: keys[0][name] for name in ("target_hash", "dtype", "scheduler_version")}
    count = len(database.decisions(**target))
    clock.time("decisions for a target", count, lambda: database.decisions(**target))
    clock.time("list of all runs", runs, database.runs)


def move(database: Database, folder: Path, clock: Clock) -> None:
    """Time exports in every form, and taking each of them in again."""
    files = [folder / f"all.{ending}" for ending in ("jsonl", "db")]
    counts = dataclasses.asdict(database.counts())
    records = sum(counts.values())
    for file in files:
        clock.time(f"export as {file.suffix}", records, lambda file=file: database.export(file))  # type: ignore[misc]
        print(f"  {file.suffix}: {file.stat().st_size / records:,.0f} bytes a record")
    for file in reversed(files):
        with Database.open(folder / f"copy-of{file.suffix}.db") as copy:
            clock.time(f"take in {file.suffix}", records, lambda file=file: copy.take_in(file))  # type: ignore[misc]
            if file.suffix == ".db":
                clock.time("take in .db again", records, lambda file=file: copy.take_in(file))  # type: ignore[misc]
        (folder / f"copy-of{file.suffix}.db").unlink()


def main() -> None:
    """Parse, fill, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=1_000_000)
    parser.add_argument("--folder", type=Path, help="where to work (default: a temporary one)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = Path(name)
        varied = Varied(templates(folder))
        measure(folder, varied, options.trials)


def measure(folder: Path, varied: Varied, trials: int) -> None:
    """Fill one database, use it and print what that took."""
    runs, clock, path = -(-trials // PER_RUN), Clock(), folder / "large.db"
    with Database.open(path) as database:
        fill(database, varied, runs, trials, clock)
        look_up(database, varied, runs, clock)
        clock.time("integrity check", trials, database.health)
        move(database, folder, clock)
    print()
    print_table(("what", "records", "seconds", "CPU s", "a second"), clock.rows)
    print_sizes(path, varied)


def print_sizes(path: Path, varied: Varied) -> None:
    """Print the bytes a record in the file, as packed, and as text."""
    with closing(sqlite3.connect(path)) as connection:
        query = "SELECT count(*), sum(length(record)) FROM "
        tables = ("runs", "trials", "best")
        sizes = {table: connection.execute(query + table).fetchone() for table in tables}
    texts: Mapping[str, list[str]] = {
        "runs": [encode(varied.run(n)) for n in range(4)],
        "trials": [encode(trial) for n in range(4) for trial in varied.trials(n, 64)],
        "best": [encode(varied.best(n)) for n in range(4)],
    }
    mean = {table: sum(map(len, known)) / len(known) for table, known in texts.items()}
    rows = [(t, f"{n:,}", round(total / n), round(mean[t])) for t, (n, total) in sizes.items()]
    print()
    print_table(("kind", "records", "bytes packed", "bytes of text"), rows)
    whole = sum(count for count, _ in sizes.values())
    size = path.stat().st_size
    print(
        f"the file: {size / 2**20:,.0f} MiB, {size / whole:,.0f} bytes a record, indexes included"
    )


if __name__ == "__main__":
    main()
