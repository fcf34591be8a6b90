"""How large a report of a long run is, and how long it takes: ``python benchmarks/report_size.py``.

Fills a database with a run of many trials and writes its report with the command. A few hundred
settings are really measured; the others get the figures of one of them, changed a little: what a
report draws and leaves out does not depend on which.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from autoturbo.cli import main as autoturbo
from autoturbo.commands.loading import load_model
from autoturbo.database import Database, RunInfo, TrialRecord
from autoturbo.hardware import load_target
from autoturbo.report.page import LARGEST
from autoturbo.schedule.knobs import Knobs
from autoturbo.schedule.pipeline import ModelScheduler
from autoturbo.search.space import Space
from autoturbo.simulator.evaluator import Evaluator
from autoturbo.simulator.measurement import Failure, Measurement, Outcome
from autoturbo.tuning.keys import pair_key

MEASURED = 300
"""Settings that are simulated; the others follow from them."""


def main() -> int:
    """Fill, report, say what it took."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=10_000)
    parser.add_argument("--model", default="squeezenet1_1")
    options = parser.parse_args()
    with TemporaryDirectory() as folder:
        store, page = Path(folder) / "long.db", Path(folder) / "report.html"
        with Database.open(store) as database:
            info, trials = made(options.model, options.trials)
            database.add_run(info)
            database.add_trials(trials)
            database.set_state(info.id, "done")
        began = time.process_time()
        status = autoturbo(["--db", str(store), "report", info.id, "-o", str(page)])
        spent = time.process_time() - began
        size = page.stat().st_size
        made_of = f"{options.trials} trials of {options.model}"
        print(f"{made_of}: {size / 1e6:.2f} MB in {spent:.1f} CPU seconds")
    return status or int(size >= LARGEST)


def made(model: str, count: int) -> tuple[RunInfo, list[TrialRecord]]:
    """Return a run of a workload and its trials."""
    graph, target = load_model(model), load_target("stcp920")
    dtype = target.default_dtype
    evaluator = Evaluator(graph, target, dtype)
    space = Space.of(ModelScheduler(graph, target, dtype), subgraphs=8)
    rng = np.random.default_rng(0)
    points = rng.permutation(np.unique(space.random(rng, 2 * count), axis=0))[: count - 1]
    knobs = [Knobs(), *(space.knobs_of(point) for point in points)]
    outcomes = [evaluator.evaluate(one) for one in knobs[:MEASURED]]
    slowest = max((o for o in outcomes if isinstance(o, Measurement)), key=lambda m: m.latency)
    outcomes += [_slower(slowest, number, rng) for number in range(len(outcomes), len(knobs))]
    run = "long"
    trials = [
        TrialRecord(run, number, one, outcome, f"2026-01-01T{number // 3600:02d}:00:00.000Z")
        for number, (one, outcome) in enumerate(zip(knobs, outcomes, strict=True))
    ]
    settings = {
        "target_description": target.as_dict(), "dtype": dtype, "subgraphs": 8, "seed": 0,
        "trials": count, "effort": "thorough", "sampler": "cost-model", "objective": "latency",
    }  # fmt: skip
    key = pair_key(graph, target, dtype)
    info = RunInfo(run, key, graph.name, model, graph.batch, target.name, settings, {},
                   trials[0].created)  # fmt: skip
    return info, trials


def _slower(base: Measurement, number: int, rng: np.random.Generator) -> Outcome:
    if number % 37 == 0:
        return Failure("LB", "too full")
    return dataclasses.replace(base, latency=base.latency * (1.0 + float(rng.exponential(0.3))))


if __name__ == "__main__":
    sys.exit(main())
