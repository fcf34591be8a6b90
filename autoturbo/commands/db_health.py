"""``db stats`` and ``db check``: how much a database holds, and whether it is sound."""

from __future__ import annotations

import argparse
import dataclasses
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autoturbo.commands.console import Console
from autoturbo.commands.outputs import add_force_option
from autoturbo.commands.parser import Parser, Subcommand
from autoturbo.report.units import size

if TYPE_CHECKING:
    from autoturbo.database import Counts, RunInfo


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
    """Status 1 where something is wrong."""
    from autoturbo.database import check

    found = check(options.db, options.save, force=options.force)
    saved = str(options.save) if options.save is not None and found.records else None
    console.emit({"sound": found.sound, **dataclasses.asdict(found), "saved": saved})
    for finding in found.findings:
        console.answer(f"{options.db}: {finding}")
    if found.more:
        console.answer(f"{options.db}: and {found.more} more")
    if found.sound:
        console.say(f"{options.db}: sound, {found.records} records read")
        if found.unchecked:
            what = "of other evaluators hold schedules that only these can read"
            console.say(f"{found.unchecked} records {what}: those texts are not checked")
    elif not found.records:
        console.say("nothing of it can be read: restore it from a copy, or import the last export")
    elif saved is None:
        what = f"writes the {found.records} records that can be read"
        console.say(f"'autoturbo db check --db {options.db} --save FILE.jsonl' {what}")
    if saved is not None:
        console.say(f"{saved}: {found.records} records")
        console.say(f"'autoturbo db import {saved} --db NEW.db' takes them into a new database")
    return 0 if found.sound else 1


def _check_arguments(parser: Parser) -> None:
    text = "write every record that can be read, as JSON lines, whatever is damaged"
    parser.add_argument("--save", metavar="FILE", type=Path, help=text)
    add_force_option(parser)


STATS = Subcommand("Say how much the database holds, and of what.", "autoturbo db stats", _stats)
CHECK = Subcommand(
    "Check the database, every record of it; save what a damaged one holds.",
    "autoturbo db check",
    _check,
    _check_arguments,
    "[--save FILE] [--force]",
)
