"""Look into the tuned-schedule database, export it and import into it."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autoturbo.commands.console import Console
from autoturbo.commands.db_health import CHECK, STATS, counted
from autoturbo.commands.loading import add_force_option, outputs_of
from autoturbo.commands.parser import (
    OneOf,
    Parser,
    Subcommand,
    add_subcommands,
    whole_number,
    wrong,
)
from autoturbo.files import Kind
from autoturbo.report.units import duration, percent

if TYPE_CHECKING:
    from rich.table import Table

    from autoturbo.database import BestFilter, BestSchedule, ImportResult

USAGE = "list|best|stats|export|import|merge|check|schema"
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
        console.answer(f"{options.db}: {counted(counts)}")
        console.show(_table(best))
    return 0


def _best(options: argparse.Namespace, console: Console) -> int:
    from autoturbo.database import Database

    asked = _filter(options)
    with Database.open(options.db, create=False, read_only=True) as database:
        best = database.best(**asked)
        why = database.explain_miss(**asked) if options.explain_miss and not best else None
    if options.output is not None:
        _write(options, best)
    console.emit({"best": [_as_json(b) for b in best], "miss": why})
    if best and not console.json:
        console.show(_table(best))
    elif not best:
        console.say(why or "nothing matches; --explain-miss says why")
    return 0


def _filter(options: argparse.Namespace) -> BestFilter:
    """Files and presets are looked up by what is in them, everything else by its name."""
    asked: BestFilter = {
        "dtype": options.dtype, "batch": options.batch,
        "scheduler_version": options.scheduler_version,
    }  # fmt: skip
    if options.graph_hash:
        asked["graph_hash"] = options.graph_hash
    if options.model and Path(options.model).is_file():
        from autoturbo.commands.loading import asked_inputs, load_model

        asked["graph_hash"] = load_model(options.model, **asked_inputs(options)).hash
    elif options.model:
        asked["model"] = options.model
    if options.target and _is_known_target(options.target):
        from autoturbo.hardware.machine_file import find_target

        asked["target_hash"] = find_target(options.target).hash
    elif options.target:
        asked["target"] = options.target
    return asked


def _is_known_target(name: str) -> bool:
    from autoturbo.hardware import preset_names
    from autoturbo.hardware.machine_file import machine_names

    return Path(name).is_file() or name in (*preset_names(), *machine_names())


def _write(options: argparse.Namespace, best: tuple[BestSchedule, ...]) -> None:
    if len(best) != 1:
        hint = "ask for one with --model, --target, --batch and --dtype"
        raise wrong("-o", f"{len(best)} schedules match; one can be written", hint)
    outputs_of(options).write(options.output, Kind.SCHEDULE, best[0].schedule)


def _export(options: argparse.Namespace, console: Console) -> int:
    from autoturbo.database import Database

    to_stream = str(options.file) == "-"
    file = Path("/dev/stdout") if to_stream else options.file
    with Database.open(options.db, create=False, read_only=True) as database:
        counts = database.export(file, best_only=options.best, force=options.force)
    if to_stream:  # nothing but records
        return 0
    console.emit({"file": str(options.file), "counts": dataclasses.asdict(counts)})
    console.say(f"{options.file}: {counted(counts)}")
    return 0


def _take_in(options: argparse.Namespace, console: Console) -> int:
    from autoturbo.database import Database

    with Database.open(options.db) as database:
        for file in options.files:
            result = database.take_in(file)
            console.emit({"file": str(file), **dataclasses.asdict(result)})
            name = f"{file}: " if options.files[1:] else ""
            read, changed = counted(result.read), counted(result.changed)
            console.say(f"{name}read {read}; new or better {changed}")
            _tell_left_out(result, file, console)
    return 0


def _tell_left_out(result: ImportResult, file: Path, console: Console) -> None:
    """Name the rows of another database that were not believed."""
    count = sum(dataclasses.astuple(result.left_out))
    if not count:
        return
    console.say(f"{file}: left out {counted(result.left_out)}")
    for finding in result.findings:
        console.say(f"{file}: {finding}")
    if count > len(result.findings):
        console.say(f"{file}: and {count - len(result.findings)} more")


def _schema(options: argparse.Namespace, console: Console) -> int:
    import json

    schema = published_schemas()[options.of]
    console.emit(schema)
    console.document(json.dumps(schema, indent=2))
    return 0


def published_schemas() -> dict[str, dict[str, Any]]:
    """The JSON schemas of what leaves AutoTurbo for other programs, by name."""
    from autoturbo.config import config_schema
    from autoturbo.database import record_schema
    from autoturbo.schedule.files import schedule_schema
    from autoturbo.schedule.kernels_file import kernels_schema
    from autoturbo.schedule.units.files import machine_schedule_schema

    return {
        "record": record_schema(),
        "config": config_schema(),
        "schedule": schedule_schema(),
        "kernels": kernels_schema(),
        "machine-schedule": machine_schedule_schema(),
    }


def _as_json(best: BestSchedule) -> dict[str, Any]:
    return {
        **dataclasses.asdict(best.key),
        "model": best.model,
        "target": best.target,
        "batch": best.batch,
        "run": best.run,
        "trial": best.trial,
        "created": best.created,
        "knobs": best.knobs.as_dict(),
        "best": best.measurement.as_json(),
        "verified": None if best.verified is None else best.verified.as_dict(),
    }


def _table(best: Iterable[BestSchedule]) -> Table:
    from autoturbo.report.tables import table

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


def _best_arguments(parser: Parser) -> None:
    from autoturbo.commands.loading import add_extent_options

    add = parser.add_argument
    add("--model", metavar="MODEL", help="name, or a file: then by what is in it")
    add("--target", metavar="T", help="name, or a file")
    add("--batch", metavar="N", type=whole_number("--batch", 1), help="samples processed at once")
    add_extent_options(parser)
    add("--dtype", metavar="TYPE", help="data type")
    add("--graph-hash", metavar="HASH", help="of the model, as --json shows it")
    text = "of the scheduler that made it, as --json shows it"
    add("--scheduler-version", metavar="V", help=text)
    add("--explain-miss", action="store_true", help="say why nothing matches")
    text = "write the schedule that matches"
    add("-o", "--output", metavar="FILE", type=Path, help=text)
    add_force_option(parser)


def _export_arguments(parser: Parser) -> None:
    text = (
        "ends in .parquet (Parquet), .db or .sqlite (a database to read), else JSON lines; "
        "- for standard output"
    )
    parser.add_argument("file", metavar="FILE", type=Path, help=text)
    text = "only the best schedules: no runs, trials and kernel times"
    parser.add_argument("--best", action="store_true", help=text)
    add_force_option(parser)


def _import_arguments(parser: Parser) -> None:
    text = "JSON lines, Parquet, or another database"
    parser.add_argument("files", metavar="FILE", type=Path, nargs=1, help=text)


def _merge_arguments(parser: Parser) -> None:
    text = "another database, or an export"
    parser.add_argument("files", metavar="FILE", type=Path, nargs="+", help=text)


def _schema_arguments(parser: Parser) -> None:
    text = "record, schedule, kernels or machine-schedule (default: record)"
    choose = OneOf("OF", lambda: ("record", "schedule", "kernels", "machine-schedule"))
    parser.add_argument("of", metavar="OF", nargs="?", type=choose, default="record", help=text)


_ACTIONS = {
    "list": Subcommand("List what the database holds.", "autoturbo db list", _list),
    "best": Subcommand(
        "Show the best schedules that match.", EXAMPLE, _best, _best_arguments, "[options]"
    ),
    "stats": STATS,
    "export": Subcommand(
        "Write every record: JSON lines, Parquet, or a database to be read only.",
        "autoturbo db export records.jsonl",
        _export,
        _export_arguments,
        "FILE [--best] [--force]",
    ),
    "import": Subcommand(
        "Merge an export, keeping the better of two records.",
        "autoturbo db import records.jsonl",
        _take_in,
        _import_arguments,
        "FILE",
    ),
    "merge": Subcommand(
        "Merge other databases, keeping the better of two records.",
        "autoturbo db merge theirs.db",
        _take_in,
        _merge_arguments,
        "FILE...",
    ),
    "check": CHECK,
    "schema": Subcommand(
        "Print a JSON schema: of a line of an export, of schedule or of kernels files.",
        "autoturbo db schema",
        _schema,
        _schema_arguments,
        "[record|schedule|kernels|machine-schedule]",
    ),
}
