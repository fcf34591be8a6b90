"""How many workers one tuner can feed: throughput, overhead, and the tuner's time per result.

::

    python benchmarks/ray_scaling.py                  # all tables
    python benchmarks/ray_scaling.py --quick          # one of each

Four tables:

1. **Pools.** Results a second by a measurer that sleeps, for 1 and 2 workers, with local processes
   and with Ray, and the efficiency: beside as many measurers that nobody has to feed. Workers have
   started before; of twelve bursts the best, on both sides.
2. **Overhead.** Microseconds of a round of 16 that are not measuring, and CPU of the tuner for one
   result, by an empty measurement.
3. **The tuner.** CPU milliseconds of the tuner for one result (proposing, learning, recording,
   handing out), by sampler, with rounds of 16 and of 256; two processes measure, whose time is not
   the tuner's.
4. **What one tuner can feed.** Workers that wait for nothing, for measurements of 1 ms, 100 ms and
   10 s: the seconds of a measurement over the tuner's for one result, with Ray's added. Beyond that
   the tuner is busy all the time and further workers wait: the rate stays what it is.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from bench_tools import print_table
from ray_measurers import Sleeper, toy_graph, toy_target

from autoturbo.config import ExecutionConfig, TuneConfig
from autoturbo.schedule.knobs import Knobs
from autoturbo.schedule.pipeline import ModelScheduler
from autoturbo.search.executors import Executor, ProcessExecutor, RayExecutor, Task, measured
from autoturbo.search.progress import Progress
from autoturbo.search.space import Space
from autoturbo.simulator.evaluator import Evaluator
from autoturbo.tuning.result import TuneResult
from autoturbo.tuning.tuner import Pair, tune_all

MODEL = "squeezenet1_1"
_BURSTS = 12
SECONDS = (1e-3, 1e-1, 10.0)


def pools(seconds: Sequence[float], workers: Sequence[int], settings: int) -> list[list[object]]:
    """Return the rows of the first table."""
    rows: list[list[object]] = []
    for kind in ("processes", "Ray"):
        for count in workers:
            executor = pool(kind, count)
            try:
                for each in seconds:
                    burst = min(settings, max(int(count / each), 20))
                    rate = throughput(executor, f"sleep {each}", each, burst)
                    ideal = count * bare(each, max(burst // count, 5))
                    rows.append([f"{kind}, {1e3 * each:g} ms", count, rate, f"{rate / ideal:.0%}"])
            finally:
                executor.close()
    return rows


def pool(kind: str, count: int) -> Executor:
    """Start some workers, of Ray or of this machine."""
    return RayExecutor("local", count) if kind == "Ray" else ProcessExecutor(count)


def throughput(
    executor: Executor, pair: str, seconds: float, settings: int, bursts: int = _BURSTS
) -> float:
    """Return results a second: the best of some bursts, once workers have started.

    Whatever else the machine does takes from the others, and nothing makes one too good.
    """
    executor.introduce(pair, Recipe(seconds))
    knobs = some_settings(settings)
    warm = [Task(pair, -1 - n, k) for n, k in enumerate(knobs[: 8 * executor.width])]
    list(measured(executor, warm))
    best = 0.0
    for burst in range(bursts):
        tasks = [Task(pair, settings * burst + n, k) for n, k in enumerate(knobs)]
        start = time.perf_counter()
        answers = list(measured(executor, tasks))
        best = max(best, len(answers) / (time.perf_counter() - start))
    return best


def bare(seconds: float, settings: int) -> float:
    """Return results a second of one measurer without any pool: also the best of some bursts.

    A busy machine lets nobody sleep for ten milliseconds only.
    """
    measurer, knobs = Sleeper(seconds), Knobs()
    best = 0.0
    for _ in range(_BURSTS):
        start = time.perf_counter()
        for _ in range(settings):
            measurer.evaluate(knobs)
        best = max(best, settings / (time.perf_counter() - start))
    return best


class Recipe:
    """A recipe without arguments that can be sent to another process."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def __call__(self) -> Sleeper:
        """Return a measurer that sleeps."""
        return Sleeper(self.seconds)


def some_settings(count: int) -> list[Knobs]:
    """Return settings, the same ones each time."""
    import numpy as np

    space = Space.of(ModelScheduler(toy_graph(), toy_target()))
    points = space.random(np.random.default_rng(0), count).tolist()
    return [space.knobs_of(point) for point in points]


def overhead(rounds: int) -> list[list[object]]:
    """Return the rows of the second table: two workers, measurements that take no time."""
    rows: list[list[object]] = []
    knobs = some_settings(16)
    for kind in ("processes", "Ray"):
        executor = pool(kind, 2)
        try:
            throughput(executor, "warm", 0.0, 64)
            start, busy = time.perf_counter(), time.process_time()
            for number in range(rounds):
                tasks = [Task("warm", 16 * number + n, k) for n, k in enumerate(knobs)]
                list(measured(executor, tasks))
            wall, cpu = time.perf_counter() - start, time.process_time() - busy
            rows.append([kind, 1e6 * wall / rounds, 1e6 * cpu / rounds / 16])
        finally:
            executor.close()
    return rows


@dataclass(frozen=True)
class Load:
    """CPU seconds of the tuner for one result, of a sampler with rounds of some size."""

    sampler: str
    size: int
    seconds: float


def tuner(samplers: Sequence[str], sizes: Sequence[int], trials: int, pairs: int) -> list[Load]:
    """Measure the loads of the third table."""
    import autoturbo
    from autoturbo.datasets import workloads

    graph = autoturbo.load_model(workloads.get(MODEL).file, batch=1)
    found = []
    for sampler in samplers:
        for size in sizes:
            chosen = [Pair(graph, toy_target())] * pairs
            with tempfile.TemporaryDirectory() as folder:
                config = TuneConfig(
                    trials=1 + max(trials, size), sampler=sampler, round=size, baselines=(),
                    transfer=False,
                )  # fmt: skip
                execution = ExecutionConfig(
                    database=Path(folder) / "a.db", runs_folder=folder, jobs=2, evaluator=Evaluator
                )
                found.append(load(config, chosen, execution))
    return found


def load(config: TuneConfig, pairs: Sequence[Pair], execution: ExecutionConfig) -> Load:
    """Tune; from the first result to the last, what the beginning takes is left out."""
    marks: list[float] = []

    def look(progress: Progress) -> None:
        if progress.done:
            marks.append(time.process_time())

    for result in tune_all(pairs, config, dataclasses.replace(execution, on_progress=look)):
        if not isinstance(result, TuneResult):
            raise result
    return Load(config.sampler, config.round or 0, (marks[-1] - marks[0]) / (len(marks) - 1))


def main() -> None:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="less of everything")
    options = parser.parse_args()
    quick = options.quick
    print("1. pools: results a second, beside measurers that nobody has to feed")
    rows = pools(
        [1e-2] if quick else [1e-3, 1e-2, 1e-1], [2] if quick else [1, 2], 100 if quick else 200
    )
    print_table(["measurer", "workers", "results/s", "efficiency"], rows)
    print("\n2. overhead: two workers, measurements that take no time")
    costs = overhead(20 if quick else 200)
    print_table(["pool", "us a round of 16", "us CPU a result"], costs)
    print(f"\n3. the tuner: CPU for one result ({MODEL}, two processes measure)")
    loads = tuner(["cost-model"], [16], 64, 1) if quick else tuner(
        ["cost-model", "random"], [16, 256, 1024], 512, 2
    )  # fmt: skip
    ray = float(str(costs[-1][2])) * 1e-6
    print_table(
        ["sampler", "round", "ms a result"],
        [[each.sampler, each.size, 1e3 * each.seconds] for each in loads],
    )
    print("\n4. workers that one tuner feeds: seconds of a measurement over the tuner's (with Ray)")
    print_table(
        ["sampler", "round", *(f"{s:g} s each" for s in SECONDS), "saturates at, results/s"],
        [
            [each.sampler, each.size,
             *(f"{int(s / (each.seconds + ray)):,}" for s in SECONDS),
             f"{1 / (each.seconds + ray):.0f}"]
            for each in loads
        ],
    )  # fmt: skip


if __name__ == "__main__":
    main()
