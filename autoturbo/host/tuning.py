"""Tunes how batches of a model run on this computer, from the model to the file of a schedule."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from autoturbo.database import RunFolder, run_id
from autoturbo.errors import RefusedError
from autoturbo.graph.operators import Graph
from autoturbo.host.compare import (
    HostComparison,
    HostJournal,
    Stopwatch,
    compare_plans,
)
from autoturbo.host.cpu import this_cpu
from autoturbo.host.divided import DividedModel, with_weights_drawn
from autoturbo.host.files import HostModel, HostSchedule
from autoturbo.host.plan import LOOP, TUNED, WHOLE, HostPlan
from autoturbo.host.runner import Array, reference_outputs, runtime_version
from autoturbo.host.search import HostSearch, Timed
from autoturbo.json_lines import JsonLines
from autoturbo.registry import HOST
from autoturbo.search.progress import Progress
from autoturbo.verify.comparison import arithmetic_of, compare, described, longest_sum
from autoturbo.verify.random_values import random_inputs

TRIALS: Final = 48
"""Plans that are measured by default, besides the baselines."""

PATIENCE: Final = 16
"""Trials without a better plan that end a search by default."""

MEASUREMENTS: Final = "measurements.jsonl"
"""The file of a run with every figure."""


@dataclass(frozen=True, slots=True)
class HostResult:
    """The result of tuning for this computer.

    Attributes:
        schedule: What is handed out, and what it was compared with.
        run: Its id.
        folder: Of the run.
        trials: Plans that were measured, besides the baselines.
        obstacle: Why samples cannot run apart; empty where they can.
        weights_drawn: Whether weights were drawn at random: their file is not there.
    """

    schedule: HostSchedule
    run: str
    folder: RunFolder
    trials: int
    obstacle: str = ""
    weights_drawn: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class HostBudget:
    """How long is searched.

    Attributes:
        trials: Plans that are measured, besides the baselines.
        patience: Trials without a better plan that end the search.
        time_budget: Seconds after which nothing is proposed; None for as long as it takes.
        seed: Of the search.
    """

    trials: int = TRIALS
    patience: int = PATIENCE
    time_budget: float | None = None
    seed: int = 0


def tune_host(
    graph: Graph,
    read: Mapping[str, Any],
    budget: HostBudget,
    runs: str | Path,
    on_progress: Callable[[Progress], None],
) -> HostResult:
    """Return the plan under which batches of a model run fastest on this computer.

    A run of the same model, with the same budget and versions, goes on where it stopped: what was
    measured is read again.

    Args:
        graph: The model with its batch.
        read: How its file was read: ``batch_dim``, ``shapes``, ``dims`` and ``values``, where they
            were given.
        budget: How long is searched.
        runs: Folder of run folders.
        on_progress: Is told how it goes.

    Raises:
        UnrunnableError: ONNX Runtime is not installed, or does not run the model.
        RefusedError: The plan computes something else than the model.
    """
    began = time.monotonic()
    cpu, runtime = this_cpu(), runtime_version()
    given = {name: value for name, value in read.items() if value}
    decisive = {**asdict(budget), **given, "hash": graph.hash, "cpu": asdict(cpu), "with": runtime}
    run = run_id(decisive)
    folder = RunFolder.create(runs, graph.name, HOST, run)
    file = Path(graph.source)
    path = with_weights_drawn(file, folder.path)
    model = DividedModel.of(path, graph, cpu.bytes_per_mac)
    stopwatch = Stopwatch(
        model, feeds_of(model), HostJournal(JsonLines(folder.path / MEASUREMENTS))
    )

    def told(phase: str, done: int, best: Timed | None) -> None:
        standing = Progress(
            graph.name, HOST, done, budget.trials, None if best is None else best.seconds,
            best_trial=None if best is None else best.number,
            elapsed_s=time.monotonic() - began, phase=phase,
        )  # fmt: skip
        on_progress(standing)

    def compared(turn: int, rounds: int) -> None:
        told(f"comparing {turn + 1}/{rounds}", budget.trials, search.best())

    deadline = began + (budget.time_budget or math.inf)
    search = HostSearch(stopwatch, cpu, budget.trials, budget.seed, budget.patience, deadline, told)
    baselines = {WHOLE: search.whole_batch(), LOOP: search.best_loop()}
    found = search.run()
    plans = {**baselines, TUNED: found[0] if found else baselines[LOOP]}
    comparison = compare_plans(stopwatch, plans, compared)
    winner = plans[comparison.winner]
    chosen = next(name for name, plan in plans.items() if plan == winner)  # where two are equal
    place = str(file.absolute())
    about = HostModel(graph.name, place, graph.hash, graph.batch, agreed=graph.agreed, **given)
    schedule = HostSchedule(about, cpu, runtime, chosen, plans, comparison.seconds)
    check_outputs(stopwatch, schedule.plan)
    stopwatch.close()
    folder.write_schedule(schedule.text)
    return HostResult(
        schedule, run, folder, len(search.history), model.obstacle, weights_drawn=path != file
    )


def bench_host(
    schedule: HostSchedule, model: DividedModel, on_progress: Callable[[Progress], None]
) -> HostComparison:
    """Return how a schedule compares with its baselines, measured once more.

    Args:
        schedule: The schedule.
        model: Read again.
        on_progress: Is told how it goes.

    Raises:
        UnrunnableError: ONNX Runtime does not run the model.
        RefusedError: The plan computes something else than the model.
    """
    began, stopwatch = time.monotonic(), Stopwatch(model, feeds_of(model))

    def told(turn: int, rounds: int) -> None:
        elapsed = time.monotonic() - began
        phase = f"comparing {turn + 1}/{rounds}"
        on_progress(Progress(schedule.model.name, HOST, 0, 0, elapsed_s=elapsed, phase=phase))

    comparison = compare_plans(stopwatch, schedule.plans, told)
    check_outputs(stopwatch, schedule.plan)
    stopwatch.close()
    return comparison


def feeds_of(model: DividedModel, seed: int = 0) -> dict[str, Array]:
    """Return a random array for each input of a model."""
    nodes = model.nodes(model.graph.batch)
    shapes = {name: place.shape for name, place in model.inputs.items()}
    known = {tensor.name: tensor.shape for tensor in model.graph.tensors}
    drawn = random_inputs(model.proto, seed, known | shapes, [one.name for one in nodes.given],
                          dict(model.graph.given))  # fmt: skip
    return {name: array for name, array in drawn.items() if name in model.inputs}


def check_outputs(stopwatch: Stopwatch, plan: HostPlan) -> None:
    """Check that a plan computes what the model computes, within the tolerances of ``verify``.

    Raises:
        RefusedError: It does not.
    """
    model = stopwatch.model
    outputs = stopwatch.runner(plan).run(stopwatch.feeds)
    wanted = reference_outputs(model, stopwatch.feeds)
    arithmetic = arithmetic_of(model.proto, longest_sum(model.graph))
    for one in compare(wanted, outputs, arithmetic):
        if not one.ok:
            hint = "this is a defect of the scheduler or of ONNX Runtime; please report it"
            raise RefusedError(f"{model.graph.name}: {described(one)}", hint=hint)
