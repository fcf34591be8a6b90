"""Finds the plan under which batches of a model run fastest on this computer, and checks it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from autoturbo.errors import RefusedError
from autoturbo.host.compare import HostComparison, Stopwatch, compare_plans
from autoturbo.host.cpu import Cpu
from autoturbo.host.divided import DividedModel
from autoturbo.host.files import HostSchedule
from autoturbo.host.ledger import HostLedger
from autoturbo.host.runner import Array, reference_outputs
from autoturbo.host.search import HOPELESS, HostSearch, Timed
from autoturbo.registry import HOST
from autoturbo.schedule.host_plan import LOOP, TUNED, WHOLE, HostPlan, distinct
from autoturbo.search.progress import Progress
from autoturbo.verifier.comparison import arithmetic_of, compare, described, longest_sum
from autoturbo.verifier.random_values import random_inputs

TRIALS: Final = 48
"""Plans that are measured by default, besides the baselines."""

PATIENCE: Final = 16
"""Trials without a better plan that end a search by default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostBudget:
    """Limits of a search on this computer.

    Attributes:
        trials: Plans that are measured, besides the baselines.
        patience: Trials without a better plan that end the search.
        time_budget: Seconds of all that is done, with the comparison and the check at the end;
            None for as long as it takes.
        seed: Seed of the search.
        began: When the time began, by the monotonic clock.
    """

    trials: int = TRIALS
    patience: int = PATIENCE
    time_budget: float | None = None
    seed: int = 0
    began: float = 0.0

    @property
    def deadline(self) -> float:
        """Return when the time is up, by the monotonic clock."""
        return self.began + (self.time_budget or math.inf)


@dataclass(frozen=True, slots=True)
class HostFound:
    """The plans that a search ends with.

    Attributes:
        plans: Plans that were compared, each once: the whole batch, the best loop unless it is the
            whole batch, the tuned plan unless none was about as fast.
        comparison: Result of measuring the plans in turn.
    """

    plans: Mapping[str, HostPlan]
    comparison: HostComparison

    @property
    def chosen(self) -> str:
        """Return the name of the plan that is handed out."""
        return self.comparison.winner


def find_plan(
    stopwatch: Stopwatch,
    cpu: Cpu,
    ledger: HostLedger,
    budget: HostBudget,
    told: Callable[[str, int, Timed | None], object],
) -> HostFound:
    """Return the plans that a search ends with; the chosen one computes what the model computes.

    Args:
        stopwatch: Measures.
        cpu: The processor that runs the model.
        ledger: Keeps what is measured, and knows what was measured before.
        budget: Limits of the search.
        told: Is told what goes on, trials made, and the best so far.

    Raises:
        UnrunnableError: ONNX Runtime does not run the model.
        RefusedError: The plan computes something else than the model.
    """
    wanted = reference_outputs(stopwatch.model, stopwatch.feeds)  # before all that has to be timed
    search = HostSearch(
        stopwatch, cpu, ledger, budget.trials, budget.seed, budget.patience, budget.time_budget,
        budget.began, told,
    )  # fmt: skip
    baselines = {WHOLE: search.whole_batch(), LOOP: search.best_loop()}
    best = search.run()
    plans = distinct(baselines)
    lengths = {name: ledger.seconds(plan) or 0.0 for name, plan in plans.items()}
    if best and (taken := ledger.seconds(best[0]) or 0.0) < HOPELESS * min(lengths.values()):
        plans[TUNED], lengths[TUNED] = best[0], taken  # no baseline: these are not tried again

    def compared(turn: int, rounds: int) -> None:
        told(f"comparing {turn + 1}/{rounds}", len(ledger.trials), search.fastest())

    deadline = budget.deadline - max(lengths.values())  # the check of outputs is one more run
    found = compare_plans(stopwatch, plans, compared, lengths, deadline)
    if found is None:
        figures = {name: ledger.figures(plan) for name, plan in plans.items()}
        found = HostComparison(figures)
    check_outputs(stopwatch, plans[found.winner], wanted)
    return HostFound(plans, found)


def bench_host(
    schedule: HostSchedule, model: DividedModel, on_progress: Callable[[Progress], None]
) -> HostComparison:
    """Return the comparison of a schedule with its baselines, measured once more.

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
    check_outputs(stopwatch, schedule.plan, reference_outputs(model, stopwatch.feeds))
    stopwatch.close()
    return comparison or schedule.comparison


def feeds_of(model: DividedModel, seed: int = 0) -> dict[str, Array]:
    """Return a random array for each input of a model."""
    nodes = model.nodes(model.graph.batch)
    shapes = {name: place.shape for name, place in model.inputs.items()}
    known = {tensor.name: tensor.shape for tensor in model.graph.tensors}
    drawn = random_inputs(model.proto, seed, known | shapes, [one.name for one in nodes.given],
                          dict(model.graph.given))  # fmt: skip
    return {name: array for name, array in drawn.items() if name in model.inputs}


def check_outputs(stopwatch: Stopwatch, plan: HostPlan, wanted: Mapping[str, Array]) -> None:
    """Check that a plan computes what the model computes, within the tolerances of ``verify``.

    Args:
        stopwatch: Runs the plan.
        plan: The plan.
        wanted: Outputs of the model, its nodes run as they are written.

    Raises:
        RefusedError: It does not.
    """
    model = stopwatch.model
    outputs = stopwatch.runner(plan).run(stopwatch.feeds)
    arithmetic = arithmetic_of(model.proto, longest_sum(model.graph))
    for one in compare(wanted, outputs, arithmetic):
        if not one.ok:
            hint = "this is a defect of the scheduler or of ONNX Runtime; please report it"
            raise RefusedError(f"{model.graph.name}: {described(one)}", hint=hint)
