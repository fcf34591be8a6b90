"""Query, export, import, merge and check the database of tuned schedules."""

from __future__ import annotations

import argparse
import dataclasses
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from autoturbo.commands.console import Console, Digest, Dtype, Moment, warn
from autoturbo.commands.flag_values import OneOf, whole_number, wrong
from autoturbo.commands.loading import add_extent_options
from autoturbo.commands.output_files import add_force_option, outputs_of
from autoturbo.commands.parser import Actions, Parser, takes
from autoturbo.commands.scheduling import VerifiedJson, verified_json
from autoturbo.commands.stored_runs import opened, origins_of
from autoturbo.files import Kind
from autoturbo.report.units import duration, percent, size
from autoturbo.schedule.knobs import KnobsJson
from autoturbo.schema import Described, JsonSchema, Natural, TypedDict
from autoturbo.signals import telling
from autoturbo.simulator.measurement import MeasurementJson

if TYPE_CHECKING:
    from autoturbo.database import BestFilter, BestSchedule, Counts, ImportResult, RunInfo

USAGE = "list|best|stats|export|import|merge|check|schema"
EXAMPLE = "autoturbo db best --model resnet50 --target stcp920"


CountsJson = TypedDict("CountsJson", {
    "runs": Natural, "trials": Natural, "best": Natural,
})  # fmt: skip
"""How many records of each kind."""

BestJson = TypedDict("BestJson", {
    "graph_hash": Digest, "target_hash": Digest, "dtype": Dtype, "scheduler_version": str,
    "model": str, "target": str, "batch": Natural, "run": str, "trial": Natural, "created": Moment,
    "knobs": KnobsJson, "best": MeasurementJson, "verified": VerifiedJson | None,
})  # fmt: skip
"""The best schedule of a model on a target, and what it holds for."""


class ListLine(TypedDict):
    """What a database holds."""

    counts: CountsJson
    best: list[BestJson]


class BestLine(TypedDict):
    """The schedules that match, or why none does; and those not believed."""

    best: list[BestJson]
    miss: str | None
    doubted: list[str]


PairJson = TypedDict("PairJson", {
    "model": str, "target": str, "scheduler_version": str, "runs": Natural, "trials": Natural,
})  # fmt: skip
"""Runs and trials of a model on a target, by the scheduler's version."""


class StatsLine(TypedDict):
    """How much a database holds, and of what."""

    counts: CountsJson
    bytes: Natural
    bytes_per_record: float | None
    states: dict[str, Natural]
    pairs: list[PairJson]


class ExportLine(TypedDict):
    """What was written."""

    file: str
    counts: CountsJson


class ImportLine(TypedDict):
    """What was read, and what of it was new or better."""

    file: str
    read: CountsJson
    changed: CountsJson
    left_out: CountsJson
    findings: list[str]
    renamed: dict[str, str]
    simulated: Natural
    not_simulated: Natural


class MergeLine(ImportLine):
    """A line for each file: what was read, and what of it was new or better."""


class CheckLine(TypedDict):
    """Whether a database is sound, and what was saved of it."""

    sound: bool
    records: Natural
    findings: list[str]
    more: Natural
    unchecked: Natural
    saved: str | None


SchemaLine = Annotated[JsonSchema, Described(about="A JSON schema.")]

_ACTION = Actions()
add_arguments, run, LINES = _ACTION.add_arguments, _ACTION.run, _ACTION.lines


@_ACTION("autoturbo db list", ListLine)
def _list(options: argparse.Namespace, console: Console) -> int:
    """List what the database holds."""
    with opened(options.db) as database:
        counts, best = database.counts(), database.best()
    console.emit(ListLine(counts=_counts(counts), best=[_as_json(b) for b in best]))
    console.answer(f"{options.db}: {counted(counts)}")
    _show(best, console)
    return 0


@_ACTION(
    EXAMPLE,
    BestLine,
    takes("--model", metavar="MODEL", help="name of the model, or a file, matched by its content"),
    takes("--target", metavar="T", help="name of the target, or a file, matched by its content"),
    takes(
        "--batch", metavar="N", type=whole_number("--batch", 1), help="samples processed at once"
    ),
    add_extent_options,
    takes("--dtype", metavar="TYPE", help="data type"),
    takes("--graph-hash", metavar="HASH", help="hash of the model's graph, as --json shows it"),
    takes(
        "--scheduler-version", metavar="V",
        help="version of the scheduler that made it, as --json shows it",
    ),
    takes(
        "--explain-miss", action="store_true",
        help="accepted for older scripts: a miss is always explained",
    ),
    takes(
        "-o", "--output", metavar="FILE", type=Path, help="write the schedule that matches"
    ),
    add_force_option,
    usage="[options]",
)  # fmt: skip
def _best(options: argparse.Namespace, console: Console) -> int:
    """Show the best schedules that match.

    Returns:
        The exit status: 0, or 1 where nothing matches or one is not believed.
    """
    asked, named = _filter(options)
    with opened(options.db) as database:
        best, doubted = database.best(**asked), database.doubted(**asked)
        miss = None if best else database.explain_miss(named, **asked).text
    if best and options.output is not None:
        _write(options, best)
    console.emit(BestLine(best=[_as_json(b) for b in best], miss=miss, doubted=list(doubted)))
    if miss is not None:
        warn(f"error: {options.db}: {miss}")
        return 1
    if not console.json:
        _show(best, console)
    for reason in doubted:
        warn(f"{options.db}: left out: {reason}; a new 'tune' replaces it")
    return 1 if doubted else 0


def _filter(options: argparse.Namespace) -> tuple[BestFilter, BestFilter]:
    """Return what a lookup asks for, files and presets by content, and what people call it."""
    asked: BestFilter = {
        "dtype": options.dtype, "batch": options.batch,
        "scheduler_version": options.scheduler_version,
    }  # fmt: skip
    if options.graph_hash:
        asked["graph_hash"] = options.graph_hash
    named: BestFilter = {**asked, "model": options.model, "target": options.target}
    if options.model and Path(options.model).is_file():
        from autoturbo.commands.loading import asked_inputs, load_model

        graph = load_model(options.model, **asked_inputs(options))
        asked["graph_hash"] = graph.hash
        named |= {"graph_hash": None, "model": graph.name, "batch": graph.batch}
    elif options.model:
        asked["model"] = options.model
    if options.target and _is_known_target(options.target):
        from autoturbo.hardware.machine_files import find_target

        target = find_target(options.target)
        asked["target_hash"] = target.hash
        named["target"] = target.name
    elif options.target:
        asked["target"] = options.target
    return asked, named


def _is_known_target(name: str) -> bool:
    from autoturbo.hardware import preset_names
    from autoturbo.hardware.machine_files import machine_names

    return Path(name).is_file() or name in (*preset_names(), *machine_names())


def _write(options: argparse.Namespace, best: tuple[BestSchedule, ...]) -> None:
    if len(best) != 1:
        hint = "ask for one with --model, --target, --batch and --dtype"
        raise wrong("-o", f"{len(best)} schedules match; one can be written", hint)
    outputs_of(options).write(options.output, Kind.SCHEDULE, best[0].schedule)


@_ACTION("autoturbo db stats", StatsLine)
def _stats(options: argparse.Namespace, console: Console) -> int:
    """Say how much the database holds, and of what."""
    with opened(options.db) as database:
        counts, runs = database.counts(), database.runs()
        states = Counter(database.state(info) for info in runs)
        whole = database.path.stat().st_size
    records = sum(dataclasses.asdict(counts).values())
    pairs = _pairs(runs)
    line: StatsLine = {
        "counts": _counts(counts), "bytes": whole,
        "bytes_per_record": whole / records if records else None,
        "states": dict(states), "pairs": pairs,
    }  # fmt: skip
    console.emit(line)
    console.answer(f"{options.db}: {counted(counts)}")
    mean = f", {size(whole / records)} per record" if records else ""
    console.answer(f"{size(whole)} on disk{mean}")
    console.answer("runs: " + (", ".join(f"{n} {s}" for s, n in states.items()) or "none"))
    headers = ("model", "target", "scheduler version", "runs", "trials")
    rows = [tuple(map(str, pair.values())) for pair in pairs]
    console.table(headers, rows, words=3, close=True)
    return 0


@_ACTION(
    "autoturbo db export records.jsonl",
    ExportLine,
    takes(
        "file", metavar="FILE", type=Path,
        help="ends in .jsonl (JSON lines), .db or .sqlite (a database to read); "
        "- for standard output",
    ),
    takes(
        "--best", action="store_true",
        help="only the best schedules: no runs and trials",
    ),
    add_force_option,
    usage="FILE [--best] [--force]",
)  # fmt: skip
def _export(options: argparse.Namespace, console: Console) -> int:
    """Write every record: JSON lines, or a database to be read only."""
    to_stream = str(options.file) == "-"
    file = Path("/dev/stdout") if to_stream else options.file
    with opened(options.db) as database:
        counts = database.export(file, best_only=options.best, force=options.force)
    if to_stream:  # nothing but records
        return 0
    console.emit(ExportLine(file=str(options.file), counts=_counts(counts)))
    console.say(f"{options.file}: {counted(counts)}")
    return 0


_trust_option = takes(
    "--trust", action="store_true", help="do not simulate again what the simulator measured"
)


@_ACTION(
    "autoturbo db import records.jsonl",
    ImportLine,
    takes("files", metavar="FILE", type=Path, nargs=1, help="JSON lines, or another database"),
    _trust_option,
    usage="FILE [--trust]",
)
def _take_in(options: argparse.Namespace, console: Console) -> int:
    """Merge an export, keeping the better of two records.

    Returns:
        The exit status: 0, or 1 where something was left out.
    """
    from autoturbo.commands.again import Again
    from autoturbo.database import Database

    complete = True
    with Database.open(options.db) as database:
        for file in options.files:
            again = None if options.trust else Again()
            left = f"interrupted; nothing of {file} is taken in"
            with telling(left, "the same command takes it in"):
                result = database.take_in(file, again)
            simulated, unknown = (again.simulated, again.unknown) if again else (0, 0)
            line: ImportLine = {
                "file": str(file), "read": _counts(result.read),
                "changed": _counts(result.changed), "left_out": _counts(result.left_out),
                "findings": list(result.findings), "renamed": dict(result.renamed),
                "simulated": simulated, "not_simulated": unknown,
            }  # fmt: skip
            console.emit(line)
            name = f"{file}: " if options.files[1:] else ""
            read, changed = counted(result.read), counted(result.changed)
            console.say(f"{name}read {read}; of these new or better: {changed}")
            _tell_left_out(result, file, console)
            if unknown:
                what = f"{unknown} of its schedules" if simulated else "its schedules"
                console.say(f"{file}: {what} cannot be simulated again: their models are not here")
            complete = complete and not result.findings
    return 0 if complete else 1


@_ACTION(
    "autoturbo db merge theirs.db",
    MergeLine,
    takes("files", metavar="FILE", type=Path, nargs="+", help="another database, or an export"),
    _trust_option,
    usage="FILE... [--trust]",
)
def _merge(options: argparse.Namespace, console: Console) -> int:
    """Merge other databases, keeping the better of two records.

    Returns:
        The exit status: 0, or 1 where something was left out.
    """
    return _take_in(options, console)


def _tell_left_out(result: ImportResult, file: Path, console: Console) -> None:
    """Name what was not believed, and the runs that are called something else here."""
    for theirs, ours in result.renamed.items():
        console.say(f"{file}: run {theirs} is another one than ours, and is run {ours} here")
    count = sum(dataclasses.astuple(result.left_out))
    if count:
        console.say(f"{file}: left out {counted(result.left_out)}")
    for finding in result.findings:
        console.say(f"{file}: {finding}")
    if count > len(result.findings):
        console.say(f"{file}: and {count - len(result.findings)} more")


def _check_arguments(parser: Parser) -> None:
    text = "write every record that can be read, as JSON lines, whatever is damaged"
    parser.group("what is kept").add_argument("--save", metavar="FILE", type=Path, help=text)
    add_force_option(parser)


@_ACTION("autoturbo db check", CheckLine, _check_arguments, usage="[--save FILE] [--force]")
def _check(options: argparse.Namespace, console: Console) -> int:
    """Check every record of the database, and save what a damaged one holds.

    Returns:
        The exit status: 0 for a sound database, 1 where something is wrong.
    """
    from autoturbo.database import check

    found = check(options.db, options.save, force=options.force)
    saved = str(options.save) if options.save is not None and found.records else None
    line: CheckLine = {
        "sound": found.sound, "records": found.records, "findings": list(found.findings),
        "more": found.more, "unchecked": found.unchecked, "saved": saved,
    }  # fmt: skip
    console.emit(line)
    more = (f"and {found.more} more",) if found.more else ()
    for finding in (*found.findings, *more):
        console.answer(f"{options.db}: {finding}")
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


@_ACTION(
    "autoturbo db schema",
    SchemaLine,
    takes(
        "of", metavar="OF", nargs="?", default="record",
        type=OneOf("OF", ("record", "schedule", "kernels", "machine-schedule")),
        help="record, schedule, kernels or machine-schedule (default: record)",
    ),
    usage="[record|schedule|kernels|machine-schedule]",
)  # fmt: skip
def _schema(options: argparse.Namespace, console: Console) -> int:
    """Print a JSON schema: of a line of an export, of schedule or of kernels files."""
    import json

    schema = published_schemas()[options.of]
    console.emit(schema)
    console.document(json.dumps(schema, indent=2))
    return 0


def published_schemas() -> dict[str, dict[str, Any]]:
    """Return the JSON schemas of what leaves AutoTurbo for other programs, by name."""
    from autoturbo.config import config_schema
    from autoturbo.database import record_schema
    from autoturbo.heterogeneous.files import machine_schedule_schema
    from autoturbo.host.files import host_schedule_schema
    from autoturbo.schedule.files import schedule_schema
    from autoturbo.schedule.kernels_file import kernels_schema

    return {
        "record": record_schema(),
        "config": config_schema(),
        "schedule": schedule_schema(),
        "kernels": kernels_schema(),
        "machine-schedule": machine_schedule_schema(),
        "host-schedule": host_schedule_schema(),
    }


def _counts(of: Counts) -> CountsJson:
    return {"runs": of.runs, "trials": of.trials, "best": of.best}


def _as_json(best: BestSchedule) -> BestJson:
    key = best.key
    return {
        "graph_hash": key.graph_hash, "target_hash": key.target_hash, "dtype": key.dtype,
        "scheduler_version": key.scheduler_version, "model": best.model, "target": best.target,
        "batch": best.batch, "run": best.run, "trial": best.trial, "created": best.created,
        "knobs": best.knobs.as_dict(), "best": best.measurement.as_json(),
        "verified": verified_json(best.verified),
    }  # fmt: skip


def _show(best: Sequence[BestSchedule], console: Console) -> None:
    from autoturbo.verifier.findings import Check

    what = ("model", "target", "dtype", "run")
    headers = (*what, "batch", "latency", "% of bound")
    rows = (
        (
            *(b.model, b.target, b.key.dtype, _run(b), b.batch),
            *(duration(b.measurement.latency), percent(b.measurement.bound_fraction)),
        )
        for b in best
    )
    console.table(headers, rows, words=len(what), whole=what[2:], close=True)
    checked = Counter(check for b in best if b.verified for check in b.verified.checks)
    passed = ", ".join(f"{check.value} {checked[check]}/{len(best)}" for check in Check)
    if best:
        console.answer(f"verified schedules: {passed}")
        console.answer(origins_of(b.key.scheduler_version for b in best))


def _run(best: BestSchedule) -> str:
    """Return the run of a schedule, and whether people had fixed something in it."""
    return best.run if best.key == best.key.free else f"{best.run} (pinned)"


def counted(counts: Counts) -> str:
    """Say how many records of each kind there are."""
    parts = dataclasses.asdict(counts).items()
    names = {"runs": "run", "trials": "trial", "best": "best schedule"}
    return ", ".join(f"{n} {names[key]}{'' if n == 1 else 's'}" for key, n in parts)


def _pairs(runs: Sequence[RunInfo]) -> list[PairJson]:
    """Count runs and trials by model, target and version of the scheduler."""
    numbers: Counter[tuple[str, str, str]] = Counter()
    trials: Counter[tuple[str, str, str]] = Counter()
    for info in runs:
        pair = (info.model, info.target, info.key.scheduler_version)
        numbers[pair] += 1
        trials[pair] += info.trials
    return [
        {"model": model, "target": target, "scheduler_version": version,
         "runs": numbers[model, target, version], "trials": trials[model, target, version]}
        for model, target, version in sorted(numbers)
    ]  # fmt: skip
