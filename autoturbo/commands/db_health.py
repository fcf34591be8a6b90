"""``db stats`` and ``db check``: how much a database holds, and whether it is sound."""

from __future__ import annotations

import argparse
import dataclasses
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autoturbo.commands.console import Console
from autoturbo.commands.parser import Parser, Subcommand
from autoturbo.report.units import size

if TYPE_CHECKING:
    from autoturbo.database import Counts, RunInfo, Salvaged

_SHOWN = 5
"""Runs that are named one by one."""


def counted(counts: Counts) -> str:
    """How many records of each kind, for people."""
    parts = dataclasses.asdict(counts).items()
    names = {"runs": "run", "trials": "trial", "best": "best schedule", "kernels": "kernel"}
    return ", ".join(f"{n} {names[key]}{'' if n == 1 else 's'}" for key, n in parts)


def _stats(options: argparse.Namespace, console: Console) -> int:
    from autoturbo.database import Database
    from autoturbo.report.tables import table

    with Database.open(options.db, create=False, read_only=True) as database:
        counts, runs = database.counts(), database.runs()
        states = Counter(database.state(info) for info in runs)
        whole = database.path.stat().st_size
    records = sum(dataclasses.asdict(counts).values())
    pairs = _pairs(runs)
    console.emit({
        "counts": dataclasses.asdict(counts), "bytes": whole,
        "bytes_per_record": whole / records if records else None,
        "states": dict(states), "pairs": pairs,
    })  # fmt: skip
    if not console.json:
        console.answer(f"{options.db}: {counted(counts)}")
        mean = f", {size(whole / records)} a record" if records else ""
        console.answer(f"{size(whole)}{mean}")
        console.answer("runs " + (", ".join(f"{n} {s}" for s, n in states.items()) or "none"))
        headers = ("model", "target", "scheduler", "runs", "trials")
        rows = [tuple(pair.values()) for pair in pairs]
        console.show(table(headers, rows, words=3, close=True))
    return 0


def _pairs(runs: Sequence[RunInfo]) -> list[dict[str, Any]]:
    """Runs and trials by model, target and version of the scheduler."""
    numbers: Counter[tuple[str, str, str]] = Counter()
    trials: Counter[tuple[str, str, str]] = Counter()
    for info in runs:
        pair = (info.model, info.target, info.key.scheduler_version)
        numbers[pair] += 1
        trials[pair] += info.trials
    names = ("model", "target", "scheduler_version")
    return [
        {**dict(zip(names, pair, strict=True)), "runs": numbers[pair], "trials": trials[pair]}
        for pair in sorted(numbers)
    ]


def _check(options: argparse.Namespace, console: Console) -> int:
    """Status 1 where something is wrong and stays so."""
    from autoturbo.database import check, repair, salvage

    if options.salvage is not None:
        saved = salvage(options.db, options.salvage)
        console.emit({"salvaged": _as_json(saved), "file": str(options.salvage)})
        _tell(saved, options.salvage, console)
        return 0
    found = check(options.db)
    if found.sound or not options.repair:
        console.emit({"sound": found.sound, **dataclasses.asdict(found)})
        if found.sound:
            console.say(f"{options.db}: sound, {found.records} records read")
            if found.unchecked:
                what = "of other evaluators hold schedules that only these can read"
                console.say(f"{found.unchecked} records {what}: those texts are not checked")
        else:
            _complain(found.findings, found.more, options.db, console)
        return 0 if found.sound else 1
    saved, aside = repair(options.db)
    console.emit({"repaired": _as_json(saved), "file": options.db, "damaged": str(aside)})
    _tell(saved, options.db, console)
    console.say(f"the damaged file is kept: {aside}")
    return 0


def _complain(findings: Sequence[str], more: int, path: str, console: Console) -> None:
    for finding in findings:
        console.answer(f"{path}: {finding}")
    if more:
        console.answer(f"{path}: and {more} more")
    console.say(f"'autoturbo db check --repair --db {path}' saves what can be read")


def _tell(saved: Salvaged, path: str | Path, console: Console) -> None:
    """What was saved, and what is lost as far as that is known."""
    console.say(f"{path}: saved {counted(saved.saved)}")
    gone = sum(map(len, saved.missing.values()))
    if gone:
        runs = ", ".join(list(saved.missing)[:_SHOWN])
        more = ", ..." if saved.missing.keys() - list(saved.missing)[:_SHOWN] else ""
        console.say(f"lost: {gone} trials of {runs}{more}; 'autoturbo resume' measures them again")
    if saved.lost_best:
        runs = ", ".join(saved.lost_best[:_SHOWN])
        console.say(f"lost: best schedules of {runs}; 'autoturbo resume' writes them again")
    if saved.orphans:
        text = f"{saved.orphans} trials without their run are in {saved.orphans_file}"
        console.say(f"{text}:")
        console.say("'autoturbo db import' the run's manifest.json, then them")
    if not (gone or saved.lost_best or saved.orphans):
        console.say("nothing is known to be lost; what was written last may be")


def _as_json(saved: Salvaged) -> dict[str, Any]:
    file = saved.orphans_file
    return {**dataclasses.asdict(saved), "orphans_file": None if file is None else str(file)}


def _check_arguments(parser: Parser) -> None:
    what = parser.add_mutually_exclusive_group()
    text = "save what can be read of a damaged database into a new one"
    what.add_argument("--salvage", metavar="NEW.db", type=Path, help=text)
    text = "put what can be read in place of a damaged database, which is kept beside it"
    what.add_argument("--repair", action="store_true", help=text)


STATS = Subcommand("Say how much the database holds, and of what.", "autoturbo db stats", _stats)
CHECK = Subcommand(
    "Check the database, every record of it; save what a damaged one holds.",
    "autoturbo db check",
    _check,
    _check_arguments,
    "[--salvage NEW.db | --repair]",
)
