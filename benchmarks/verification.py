"""Every workload, with the heuristic's schedule and random ones, verified.

``python benchmarks/verification.py [--settings N] [--batch N] [--seed N] [--jobs N] [NAME ...]``:
one row per workload: schedules that passed the region check, the memory check and the comparison of
numbers in ONNX Runtime (outputs and the results of every instance), the instances they had, how
near the outputs came to their tolerance, and the time. Settings are drawn from the space that
``tune`` searches, sub-graphs' own knobs included; half of them on ``stcp920``, half on one with an
eighth of its local buffers, so that a small batch is cut as a large one would be. Settings that do
not fit are drawn again, and so are those of more than :data:`INSTANCES` instances. A last table
says how many values of each knob were tried.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from bench_tools import print_table

from autoturbo.datasets import workloads
from autoturbo.graph.onnx_import import import_model
from autoturbo.graph.operators import Graph
from autoturbo.hardware import Target, load_target
from autoturbo.schedule.knobs import Knobs
from autoturbo.schedule.pipeline import build_schedule
from autoturbo.schedule.schedule import Schedule
from autoturbo.search.space import Space
from autoturbo.simulator.evaluator import Evaluator
from autoturbo.simulator.measurement import Measurement
from autoturbo.verifier import verify_schedule
from autoturbo.verifier.findings import Numbers
from autoturbo.verifier.numbers import check_numbers

SHRINK = 8
"""The small target's local buffers are smaller by this factor."""

SUBGRAPHS = 6
"""Sub-graphs whose own knobs are drawn too."""

DRAWS = 50
"""Settings drawn for one that is tried."""

INSTANCES = 800
"""Of a schedule at most: ONNX Runtime takes minutes to load a model of several thousand calls."""

SMALLER = {"unet": 1, "bert_large_s384": 4, "llama_prefill": None}
"""Batches of workloads that would take minutes a schedule; None is the file's own."""


@dataclass
class Row:
    """What one workload gave.

    Attributes:
        name: Of the workload.
        passed: Schedules without a finding.
        failed: What was found, one line each.
        skipped: Why numbers were not compared, one line each.
        instances: Of each schedule.
        nearest: Largest share of its tolerance that any output used.
        seconds: In all.
        values: Values tried by knob.
    """

    name: str
    passed: int = 0
    failed: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    instances: list[int] = field(default_factory=list)
    nearest: float = 0.0
    seconds: float = 0.0
    values: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))


def small(target: Target) -> Target:
    """Return a target with smaller local buffers."""
    lb = dataclasses.replace(target.lb, capacity=target.lb.capacity // SHRINK)
    return dataclasses.replace(target, name=f"{target.name}-small", lb=lb)


def settings(evaluator: Evaluator, count: int, seed: int) -> Iterator[tuple[Knobs, Schedule]]:
    """Yield the default and random settings that fit, each with its schedule."""
    space = Space.of(evaluator.model_scheduler, subgraphs=SUBGRAPHS)
    rng = np.random.default_rng(seed)
    yield Knobs(), build_schedule(evaluator.model_scheduler, Knobs())
    for _ in range(count):
        for genes in space.random(rng, DRAWS, dense=True):
            knobs = space.knobs_of(genes.tolist())
            if isinstance(evaluator.evaluate(knobs), Measurement):
                schedule = build_schedule(evaluator.model_scheduler, knobs)
                if schedule.instances.count * schedule.share.loops <= INSTANCES:
                    yield knobs, schedule
                    break


def verified(name: str, count: int, batch: int, seed: int) -> Row:
    """Verify a workload's schedules."""
    row, started = Row(name), time.perf_counter()
    path = workloads.get(name).file
    graph: Graph = import_model(path, batch=SMALLER.get(name, batch))
    target = load_target("stcp920")
    with TemporaryDirectory() as folder:
        for on, share in ((target, count // 2), (small(target), count - count // 2)):
            evaluator = Evaluator(graph, on, "float16")
            for knobs, schedule in settings(evaluator, share, seed):
                _note(row, knobs, schedule)
                checked = verify_schedule(schedule)
                ran = check_numbers(schedule, path, seed=seed, whole=False, folder=Path(folder))
                findings = (*checked.findings, *ran.findings)
                row.passed += not findings
                row.failed += [f"{on.name}: {knobs.as_dict()}: {f.message}" for f in findings]
                row.nearest = max(row.nearest, _nearest(ran))
                row.skipped += [ran.skipped] if ran.skipped else []
    row.seconds = time.perf_counter() - started
    return row


def _note(row: Row, knobs: Knobs, schedule: Schedule) -> None:
    row.instances.append(schedule.instances.count)
    document = knobs.as_dict()
    for override in document.pop("overrides", []):
        for knob, value in override.items():
            if knob != "layer":
                row.values[f"sub-graph {knob}"].add(str(value))
    for knob, value in document.items():
        row.values[knob].add(str(value))


def _nearest(numbers: Numbers) -> float:
    shares = (error / bound for _, error, bound in numbers.outputs if bound > 0)
    return max(shares, default=0.0)


def run(names: Sequence[str], count: int, batch: int, seed: int, jobs: int) -> list[Row]:
    """Return one row per workload."""
    with ProcessPoolExecutor(jobs, get_context("spawn")) as pool:
        futures = {pool.submit(verified, name, count, batch, seed): name for name in names}
        for future in as_completed(futures):
            row = future.result()
            print(f"{row.name}: {row.passed} of {len(row.instances)}", file=sys.stderr, flush=True)
            print(*row.failed, *row.skipped, sep="\n", file=sys.stderr, flush=True)
        return [future.result() for future in futures]


def main() -> int:
    """Print the tables; 1 if anything failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=list(workloads.names()))
    parser.add_argument("--settings", type=int, default=20)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()
    rows = run(options.names, options.settings, options.batch, options.seed, options.jobs)
    head = ["workload", "passed", "instances", "numbers skipped", "of tolerance", "seconds"]
    print_table(head, [
        [r.name, f"{r.passed} of {len(r.instances)}", f"{min(r.instances)}-{max(r.instances)}",
         str(len(r.skipped)), f"{r.nearest:.2g}", f"{r.seconds:.0f}"]
        for r in rows
    ])  # fmt: skip
    values: dict[str, set[str]] = defaultdict(set)
    for row in rows:
        for knob, tried in row.values.items():
            values[knob] |= tried
    print()
    print_table(["knob", "values tried"], [[k, str(len(v))] for k, v in sorted(values.items())])
    return 1 if any(row.failed or row.skipped for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
