"""Show one run: settings, default and best schedule, what failed."""

from __future__ import annotations

import argparse
import dataclasses
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from autoturbo.commands.console import Console
from autoturbo.commands.of_run import add_run_argument
from autoturbo.commands.parser import Parser
from autoturbo.commands.runs import as_json, budget

if TYPE_CHECKING:
    from autoturbo.database import Database, RunInfo, TrialRecord, Verified

USAGE = "RUN [options]"
EXAMPLE = "autoturbo show 4f1c"


def add_arguments(parser: Parser) -> None:
    """The run."""
    add_run_argument(parser)


def run(options: argparse.Namespace, console: Console) -> int:
    """Print what the database knows of it."""
    from autoturbo.database import Database

    with Database.open(options.db, create=False, read_only=True) as database:
        info = database.run(options.run)
        state = database.state(info)
        trials = database.trials(info.id)
        verified = verified_of(info, database)
    known = None if verified is None else verified.as_dict()
    console.emit({**_as_json(info, trials), "state": state, "verified": known})
    if not console.json:
        _print(info, state, trials, verified, console)
    return 0


def _as_json(info: RunInfo, trials: Sequence[TrialRecord]) -> dict[str, Any]:
    best = _trial(trials, info.best_trial)
    return {
        **as_json(info),
        "settings": dict(info.settings),
        "versions": dict(info.versions),
        "failures": dict(_failures(trials)),
        "default": _measured(_trial(trials, 0)),
        "best": _measured(best),
        "knobs": None if best is None else best.knobs.as_dict(),
    }


def _trial(trials: Sequence[TrialRecord], number: int | None) -> TrialRecord | None:
    return next((trial for trial in trials if trial.number == number), None)


def _measured(trial: TrialRecord | None) -> dict[str, Any] | None:
    from autoturbo.simulate.measurement import Measurement

    if trial is None or not isinstance(trial.outcome, Measurement):
        return None
    return trial.outcome.as_json()


def _failures(trials: Sequence[TrialRecord]) -> Counter[str]:
    from autoturbo.simulate.measurement import Failure

    return Counter(t.outcome.reason for t in trials if isinstance(t.outcome, Failure))


def verified_of(info: RunInfo, database: Database) -> Verified | None:
    """The checks that the run's best schedule passed, where the database has it as the best."""
    found = database.best(**dataclasses.asdict(info.key))
    best = next((b for b in found if (b.run, b.trial) == (info.id, info.best_trial)), None)
    return None if best is None else best.verified


def _print(
    info: RunInfo,
    state: str,
    trials: Sequence[TrialRecord],
    verified: Verified | None,
    console: Console,
) -> None:
    from autoturbo.report.lines import held, sharing
    from autoturbo.report.tables import comparison
    from autoturbo.simulate.measurement import Measurement

    name = f"run {info.id}: {info.model} @ {info.target}, batch {info.batch}, {info.key.dtype}"
    console.answer(name)
    failed = ", ".join(f"{reason} {number}" for reason, number in _failures(trials).most_common())
    console.answer(f"{state}, {budget(info)} trials, failed: {failed or 'none'}")
    chosen = {"default": _trial(trials, 0), "best": _trial(trials, info.best_trial)}
    outcomes = {name: trial.outcome for name, trial in chosen.items() if trial is not None}
    units = "units" in (info.settings.get("target_description") or {})
    console.show(comparison(outcomes, "default", "partition_tuner" if units else "graphturbo"))
    for refused in info.refused:
        console.answer(f"trial {refused.trial} is refused: {'; '.join(refused.failures)}")
    if verified is not None:
        console.answer(f"verified: {', '.join(verified.checks)}")
    best = chosen["best"]
    if best is not None and isinstance(best.outcome, Measurement):
        shared = sharing(best.knobs, best.outcome, ((t.knobs, t.outcome) for t in trials))
        lines = {"units" if units else "clusters": shared, "memory held": held(best.outcome)}
        for what, line in lines.items():
            if line:
                console.answer(f"{what}: {line}")
    if best is not None:
        console.answer(f"knobs of trial {best.number}: {best.knobs.canonical()}")
    for key in ("settings", "versions"):
        values = getattr(info, key).items()
        console.detail(f"{key}: {', '.join(f'{k} {v}' for k, v in values)}")
