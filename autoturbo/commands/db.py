"""Look into the tuned-schedule database, export it and import into it."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autoturbo.commands.parser import Subcommand, add_subcommands
from autoturbo.commands.values import whole_number

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable

    from rich.table import Table

    from autoturbo.commands.console import Console
    from autoturbo.commands.parser import Parser
    from autoturbo.database import BestFilter, BestSchedule, Counts

USAGE = "list|best|export|import"
EXAMPLE = "autoturbo db best --model resnet50 --target stcp920"


def add_arguments(parser: Parser) -> None:
    """The actions."""
    add_subcommands(parser, _ACTIONS)


def run(options: argparse.Namespace, console: Console) -> int:
    """Do one of them."""
    return _ACTIONS[options.action].run(options, console)


def _list(options: argparse.Namespace, console: Console) -> int:
    from autoturbo.database import Database

    with Database.open(options.db, create=False, read_only=True) as database:
        counts, best = database.counts(), database.best()
    console.emit({"counts": dataclasses.asdict(counts), "best": [_as_json(b) for b in best]})
    if not console.json:
        console.answer(f"{options.db}: {_counted(counts)}")
        console.show(_table(best))
    return 0


def _best(options: argparse.Namespace, console: Console) -> int:
    from autoturbo.database import Database

    asked = _filter(options)
    with Database.open(options.db, create=False, read_only=True) as database:
        best = database.best(**asked)
        why = database.explain_miss(**asked) if options.explain_miss and not best else None
    if options.output is not None:
        _write(options.output, best)
    console.emit({"best": [_as_json(b) for b in best], "miss": why})
    if best and not console.json:
        console.show(_table(best))
    elif not best:
        console.say(why or "nothing matches; --explain-miss says why")
    return 0


def _filter(options: argparse.Namespace) -> BestFilter:
    """Files and presets are looked up by what is in them, everything else by its name."""
    asked: BestFilter = {"dtype": options.dtype, "batch": options.batch}
    if options.model and Path(options.model).is_file():
        from autoturbo.commands.loading import load_model

        asked["graph_hash"] = load_model(options.model, batch=options.batch).hash
    else:
        asked["model"] = options.model
    if options.target and _is_known_target(options.target):
        from autoturbo.hardware import load_target

        asked["target_hash"] = load_target(options.target).hash
    else:
        asked["target"] = options.target
    return asked


def _is_known_target(name: str) -> bool:
    from autoturbo.hardware import preset_names

    return Path(name).is_file() or name in preset_names()


def _write(path: Path, best: tuple[BestSchedule, ...]) -> None:
    from autoturbo.atomic import atomic_write
    from autoturbo.commands.values import wrong

    if len(best) != 1:
        hint = "ask for one with --model, --target, --batch and --dtype"
        raise wrong("-o", f"{len(best)} schedules match; one can be written", hint)
    atomic_write(path, best[0].schedule)


def _export(options: argparse.Namespace, console: Console) -> int:
    from autoturbo.database import Database

    with Database.open(options.db, create=False, read_only=True) as database:
        counts = database.export(options.file)
    console.emit({"file": str(options.file), "counts": dataclasses.asdict(counts)})
    console.say(f"{options.file}: {_counted(counts)}")
    return 0


def _import(options: argparse.Namespace, console: Console) -> int:
    from autoturbo.database import Database

    with Database.open(options.db) as database:
        result = database.take_in(options.file)
    console.emit({"file": str(options.file), **dataclasses.asdict(result)})
    console.say(f"read {_counted(result.read)}; new or better {_counted(result.changed)}")
    return 0


def _as_json(best: BestSchedule) -> dict[str, Any]:
    return {
        "model": best.model,
        "target": best.target,
        "batch": best.batch,
        "dtype": best.key.dtype,
        "run": best.run,
        "trial": best.trial,
        "created": best.created,
        "knobs": best.knobs.as_dict(),
        "best": best.measurement.as_json(),
        "verified": None if best.verified is None else best.verified.as_dict(),
    }


def _table(best: Iterable[BestSchedule]) -> Table:
    from autoturbo.report.tables import table
    from autoturbo.report.units import duration, percent

    what = ("model", "target", "dtype", "run", "checks")
    headers = (*what, "batch", "trial", "latency", "bound")
    rows = (
        (
            *(b.model, b.target, b.key.dtype, b.run, _checks(b), b.batch, b.trial),
            *(duration(b.measurement.latency), percent(b.measurement.bound_fraction)),
        )
        for b in best
    )
    return table(headers, rows, words=len(what), whole=what[2:], close=True)


def _checks(best: BestSchedule) -> str:
    """How many of the checks it passed."""
    from autoturbo.verify.findings import Check

    return f"{len(best.verified.checks) if best.verified else 0}/{len(Check)}"


def _counted(counts: Counts) -> str:
    parts = dataclasses.asdict(counts).items()
    names = {"runs": "run", "trials": "trial", "best": "best schedule", "kernels": "kernel"}
    return ", ".join(f"{n} {names[key]}{'' if n == 1 else 's'}" for key, n in parts)


def _best_arguments(parser: Parser) -> None:
    add = parser.add_argument
    add("--model", metavar="MODEL", help="name, or a file: then by what is in it")
    add("--target", metavar="T", help="name, or a file")
    add("--batch", metavar="N", type=whole_number("--batch", 1), help="samples processed at once")
    add("--dtype", metavar="TYPE", help="data type")
    add("--explain-miss", action="store_true", help="say why nothing matches")
    text = "write the schedule that matches"
    add("-o", "--output", metavar="FILE", type=Path, help=text)


def _file_argument(parser: Parser) -> None:
    parser.add_argument("file", metavar="FILE", type=Path, help="records as JSON lines")


_ACTIONS = {
    "list": Subcommand("List what the database holds.", "autoturbo db list", _list),
    "best": Subcommand(
        "Show the best schedules that match.", EXAMPLE, _best, _best_arguments, "[options]"
    ),
    "export": Subcommand(
        "Write every record as JSON lines.",
        "autoturbo db export records.jsonl",
        _export,
        _file_argument,
        "FILE",
    ),
    "import": Subcommand(
        "Merge an export, keeping the better of two records.",
        "autoturbo db import records.jsonl",
        _import,
        _file_argument,
        "FILE",
    ),
}
