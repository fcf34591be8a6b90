"""What 'show', 'report' and 'explain' say of a run on this computer."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autoturbo.commands.loading import model_of_run
from autoturbo.commands.stored_runs import StoredRun, opened
from autoturbo.commands.tuning.host_answers import (
    Compared,
    GainJson,
    compared_json,
    gain_json,
    print_answer,
)
from autoturbo.commands.tuning.runs import RunJson, as_json, budget
from autoturbo.errors import AutoTurboError, RunError
from autoturbo.report.units import duration
from autoturbo.schema import Natural, TypedDict
from autoturbo.simulator.measurement import Failure

if TYPE_CHECKING:
    import argparse

    from autoturbo.commands.console import Console
    from autoturbo.report.host import HostAnswer
    from autoturbo.schedule.host_plan import HostPlan


class ShownHost(RunJson):
    """One run on this computer: what it was asked for, what it compared, what failed."""

    settings: dict[str, Any]
    versions: dict[str, str]
    failures: dict[str, Natural]
    knobs: dict[str, Any] | None
    compared: Compared | None


class StepJson(TypedDict):
    """What one plan does otherwise than a simpler one, and what that is worth."""

    base: str
    plan: str
    differs: list[str]
    gain: GainJson | None


class ExplainedHost(TypedDict):
    """In what the plans of a run on this computer differ, from the whole batch to the tuned one."""

    run: str
    compared: Compared
    steps: list[StepJson]


def show(run: StoredRun, console: Console) -> int:
    """Print what the database knows of a run."""
    info, answer, best = run.info, _answer(run), run.trial(run.info.best_trial)
    failures = Counter(t.outcome.reason for t in run.trials if isinstance(t.outcome, Failure))
    line: ShownHost = {
        **as_json(info, run.state), "settings": dict(info.settings),
        "versions": dict(info.versions), "failures": dict(failures),
        "knobs": None if best is None else best.knobs.as_dict(),
        "compared": None if answer is None else compared_json(answer),
    }  # fmt: skip
    console.emit(line)
    if console.json:
        return 0
    console.answer(f"run {info.id}: {info.model} @ {info.target}, batch {info.batch}")
    console.answer(f"{_processor(run)}; {', '.join(_runtime(run))}")
    reasons = ", ".join(f"{reason} {number}" for reason, number in failures.most_common())
    failed = f"{failures.total()} failed ({reasons})" if failures else "none failed"
    console.answer(f"{run.state}, {budget(info)} plans measured on this computer, {failed}")
    if answer is not None:
        print_answer(answer, console)
    if best is not None and best.knobs.host is not None and info.best_latency is not None:
        what = "handed out" if answer else "fastest so far, not compared yet"
        took = f"{duration(info.best_latency)}, {best.knobs.host.sentence}"
        console.answer(f"trial {best.number}, {what}: {took}")
    return 0


def _processor(run: StoredRun) -> str:
    from autoturbo.report.host import cpu_of, described

    cpu = cpu_of(run.info)
    return "a processor that is not recorded" if cpu is None else described(cpu)


def _runtime(run: StoredRun) -> list[str]:
    versions = run.info.versions
    return [f"{name} {versions[name]}" for name in ("onnxruntime",) if name in versions]


def _answer(run: StoredRun) -> HostAnswer | None:
    """Return what a run has handed out; None before it has."""
    from autoturbo.report.host import HostAnswer

    return HostAnswer.of_run(run.info, run.trials)


def page(run: StoredRun) -> str:
    """Return the report of a run."""
    from autoturbo.report.host_page import host_page

    return host_page(run.info, run.state, run.trials, _answer(run))


def explain(run: StoredRun, options: argparse.Namespace, console: Console) -> int:
    """Say in what the plans of a run differ, and what that is worth as far as it is known.

    Returns:
        The exit status.

    Raises:
        RunError: The run has compared nothing yet.
    """
    from autoturbo.report.host_steps import SUBGRAPH_HEADERS, steps

    info, answer = run.info, _answer(run)
    if answer is None:
        hint = f"'autoturbo resume {info.id}' goes on with it"
        raise RunError(f"run {info.id} has not come to its comparison", hint=hint)
    found = steps(answer)
    line: ExplainedHost = {
        "run": info.id, "compared": compared_json(answer),
        "steps": [
            {"base": s.base, "plan": s.plan, "differs": [*s.differs],
             "gain": None if s.gain is None else gain_json(s.gain)}
            for s in found
        ],
    }  # fmt: skip
    console.emit(line)
    if console.json:
        return 0
    console.answer(f"run {info.id}: {info.model} @ {info.target}, batch {info.batch}")
    console.answer(f"handed out: {answer.why}")
    for step in found:
        console.answer(step.sentence)
    console.answer("")
    rows = _subgraphs(run, answer, options)
    console.table(SUBGRAPH_HEADERS, rows, words=1, close=True)
    console.say("alone: a part timed by itself for the whole batch, not within it")
    return 0


def _subgraphs(
    run: StoredRun, answer: HostAnswer, options: argparse.Namespace
) -> list[tuple[str, ...]]:
    """Return a row for each sub-graph; operators without names where the model is gone."""
    from autoturbo.host.divided import DividedModel
    from autoturbo.host.ledger import HostLedger
    from autoturbo.report.host import cpu_of
    from autoturbo.report.host_steps import subgraph_rows
    from autoturbo.report.names import operator_label

    info, names, parts = run.info, list[str](), list[range]()
    try:
        graph = model_of_run(info)
    except AutoTurboError:
        graph = None
    if graph is not None and graph.hash == info.key.graph_hash:
        names = [operator_label(graph, operator) for operator in graph.operators]
        if (cpu := cpu_of(info)) is not None:
            parts = [*DividedModel.of(Path(graph.source), graph, cpu.bytes_per_mac).parts]
    with opened(options.db) as database:
        ledger = HostLedger(info.batch, info.batch, database, info.id)

        def alone(plan: HostPlan) -> float | None:
            return ledger.part_seconds(plan)

        return subgraph_rows(answer, names, parts, alone)
