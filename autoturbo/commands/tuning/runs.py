"""List the runs: best latency, gain, budget used, state."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Annotated

from autoturbo.commands.console import Console, Dtype, Moment, warn
from autoturbo.commands.parser import Parser
from autoturbo.commands.scheduling import RefusedJson, refused_json
from autoturbo.commands.stored_runs import opened, origins_of
from autoturbo.report.units import duration, ratio, versus
from autoturbo.schema import Choice, Natural, TypedDict

if TYPE_CHECKING:
    from autoturbo.database import RunInfo

USAGE = "[options]"
EXAMPLE = "autoturbo runs"


RunJson = TypedDict("RunJson", {
    "run": str, "model": str, "target": str, "batch": Natural, "dtype": Dtype,
    "state": Annotated[str, Choice(("running", "killed", "done", "interrupted", "failed"))],
    "created": Moment, "trials": Natural, "settings_tried": Natural,
    "budget": Natural | None, "seed": Natural | None,
    "default_s": float | None, "best_s": float | None, "best_trial": Natural | None,
    "refused": list[RefusedJson],
})  # fmt: skip
"""One run, without what its trials found besides the best."""


class RunsLine(TypedDict):
    """The runs of a database, the oldest first."""

    runs: list[RunJson]


LINES = {"": RunsLine}


def add_arguments(_parser: Parser) -> None:
    """Add nothing."""


def run(options: argparse.Namespace, console: Console) -> int:
    """Print one row a run, the oldest first."""
    left_out: list[str] = []
    with opened(options.db) as database:
        runs = database.runs(left_out.append)
        states = {info.id: database.state(info) for info in runs}
    shown: RunsLine = {"runs": [as_json(info, states[info.id]) for info in runs]}
    console.emit(shown)
    if not console.json:
        headers = ("run", "model", "target", "state", "trials", "best", versus("default"))
        rows = (_row(info, states[info.id]) for info in runs)
        console.table(headers, rows, words=4, whole=("run", "state"), close=True)
        if runs:
            console.say(origins_of(info.key.scheduler_version for info in runs))
        for info in runs:
            console.detail(f"{info.id} began at {info.created}")
    for line in left_out:
        warn(f"left out: {line}")
    return 2 if left_out else 0


def as_json(info: RunInfo, state: str) -> RunJson:
    """Return a run as it stands in the database, with its state now, for ``--json``."""
    return {
        "run": info.id, "model": info.model, "target": info.target, "batch": info.batch,
        "dtype": info.key.dtype, "state": state, "created": info.created,
        "trials": info.schedules, "settings_tried": info.trials, "budget": info.asked.get("trials"),
        "seed": info.settings.get("seed"), "default_s": info.default_latency,
        "best_s": info.best_latency, "best_trial": info.best_trial,
        "refused": refused_json(info.refused),
    }  # fmt: skip


def budget(info: RunInfo) -> str:
    """Return the schedules measured, of those asked for; until the end the settings."""
    total, made = info.asked.get("trials"), info.schedules
    return str(made) if total is None else f"{made}/{total}"


def _row(info: RunInfo, state: str) -> tuple[str, ...]:
    best = "-" if info.best_latency is None else duration(info.best_latency)
    names = (info.id, info.model, info.target, state)
    gain = info.gain()
    return (*names, budget(info), best, "-" if gain is None else ratio(gain))
