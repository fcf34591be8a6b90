"""List the runs: best latency, gain, budget used, state."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from autoturbo.commands.console import Console
from autoturbo.commands.loading import opened
from autoturbo.commands.parser import Parser
from autoturbo.report.units import duration, ratio

if TYPE_CHECKING:
    from autoturbo.database import RunInfo

USAGE = "[options]"
EXAMPLE = "autoturbo runs"


def add_arguments(_parser: Parser) -> None:
    """None of its own."""


def run(options: argparse.Namespace, console: Console) -> int:
    """Print one row a run, the oldest first."""
    with opened(options.db) as database:
        runs = database.runs()
        states = {info.id: database.state(info) for info in runs}
    console.emit({"runs": [{**as_json(info), "state": states[info.id]} for info in runs]})
    if not console.json:
        headers = ("run", "model", "target", "state", "trials", "best", "gain")
        rows = (_row(info, states[info.id]) for info in runs)
        console.table(headers, rows, words=4, whole=("run", "state"), close=True)
        for info in runs:
            console.detail(f"{info.id} was started at {info.created}")
    return 0


def as_json(info: RunInfo) -> dict[str, Any]:
    """A run, as it stands in the database."""
    return {
        "run": info.id, "model": info.model, "target": info.target, "batch": info.batch,
        "dtype": info.key.dtype, "state": info.state, "created": info.created,
        "trials": info.trials, "budget": info.asked.get("trials"),
        "seed": info.settings.get("seed"), "default_s": info.default_latency,
        "best_s": info.best_latency, "best_trial": info.best_trial,
        "refused": [trial.as_dict() for trial in info.refused],
    }  # fmt: skip


def gain(info: RunInfo) -> str:
    """How much faster the best is than the published heuristic."""
    if info.best_latency is None or info.default_latency is None:
        return "-"
    return ratio(info.default_latency / info.best_latency)


def budget(info: RunInfo) -> str:
    """Trials made of those asked for."""
    total = info.asked.get("trials")
    return str(info.trials) if total is None else f"{info.trials}/{total}"


def _row(info: RunInfo, state: str) -> tuple[str, ...]:
    best = "-" if info.best_latency is None else duration(info.best_latency)
    names = (info.id, info.model, info.target, state)
    return (*names, budget(info), best, gain(info))
