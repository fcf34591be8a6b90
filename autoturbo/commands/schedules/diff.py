"""Compare two schedules or runs: what they measured and which knobs differ.

``--fail-if-slower`` makes it a check: the status is 1 where the second one is slower than allowed.
``--html`` lays the two timelines side by side on one page that needs no network.
"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, NotRequired

from annotated_types import Len

from autoturbo.commands.console import Console
from autoturbo.commands.flag_values import percentage
from autoturbo.commands.loading import model_path_of_run
from autoturbo.commands.output_files import add_force_option, outputs_of
from autoturbo.commands.parser import Parser
from autoturbo.commands.scheduling import required
from autoturbo.commands.stored_runs import StoredRun, opened, stored_run
from autoturbo.errors import Location, ScheduleFileError
from autoturbo.files import Kind, read_json
from autoturbo.report.units import count, duration, origin_of, percent, ratio, size
from autoturbo.schema import Natural, TypedDict
from autoturbo.simulator.measurement import MeasurementJson

if TYPE_CHECKING:
    from autoturbo.report.diff_page import Compared

USAGE = "A B [--html FILE] [options]"
EXAMPLE = "autoturbo diff before.json after.json --fail-if-slower 2%"

_FIGURES: dict[str, tuple[str, Callable[[Any], str]]] = {
    "latency_s": ("latency", duration),
    "throughput_per_s": ("samples/s", count),
    "ddr_bytes": ("DDR traffic", size),
    "gb_bytes": ("GB traffic", size),
    "matrix_utilization": ("matrix engines in use", percent),
    "vector_utilization": ("vector engines in use", percent),
    "peak_lb_bytes": ("peak use of LB", size),
    "peak_gb_bytes": ("peak use of GB", size),
    "kernels": ("kernels of a cluster", str),
    "bound_fraction": ("% of lower bound", percent),
}
"""Figures of a measurement, as people read them."""


class DiffSide(NamedTuple):
    """One of the two.

    Attributes:
        name: The run or the file, and where its figures come from.
        of: Model, batch, target, data type, scheduler.
        measured: The object M of ``--json``.
        knobs: Knobs as plain values.
    """

    name: str
    of: dict[str, Any]
    measured: MeasurementJson
    knobs: dict[str, Any]


_Both = Annotated[list[Any], Len(2, 2)]


DiffPage = TypedDict("DiffPage", {"file": str, "bytes": Natural})
"""The page of both, and how large it is."""


class DiffLine(TypedDict):
    """Two schedules or runs; 'of' has what makes a comparison doubtful, each as [A, B].

    With --html the page as well.
    """

    a: MeasurementJson
    b: MeasurementJson
    latency_ratio: float
    of: dict[str, _Both]
    knobs: dict[str, _Both]
    slower_than_allowed: bool
    html: NotRequired[DiffPage]


LINES = {"": DiffLine}


def add_arguments(parser: Parser) -> None:
    """Add the two schedules, and by how much B may be slower."""
    for name in ("a", "b"):
        text = "schedule file, or id of a run (its best trial)"
        parser.add_argument(name, metavar=name.upper(), help=text)
    text = "status 1 if the latency of B is more than this above A's"
    slower = percentage("--fail-if-slower")
    parser.add_argument("--fail-if-slower", metavar="P%", type=slower, help=text)
    text = "also write a page with both timelines on one axis of time"
    parser.group("what is kept").add_argument("--html", metavar="FILE", type=Path, help=text)
    add_force_option(parser)


def run(options: argparse.Namespace, console: Console) -> int:
    """Compare and print."""
    first, second = (
        _of_file(Path(name)) if _is_file(name) else _of_run(name, options.db)
        for name in (options.a, options.b)
    )
    slower = second.measured["latency_s"] / first.measured["latency_s"] - 1
    allowed = options.fail_if_slower
    failed = allowed is not None and slower > allowed
    unlike = [key for key in first.of if first.of[key] != second.of[key]]
    one, two = _flat(first.knobs), _flat(second.knobs)
    pairs = {name: [one.get(name, "auto"), two.get(name, "auto")] for name in {**one, **two}}
    knobs = {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}
    line: DiffLine = {
        "a": first.measured, "b": second.measured, "latency_ratio": slower + 1,
        "of": {key: [first.of[key], second.of[key]] for key in unlike}, "knobs": knobs,
        "slower_than_allowed": failed,
    }  # fmt: skip
    if options.html:
        line["html"] = _write_page(options, (first, second), unlike, knobs)
    console.emit(line)
    if not console.json:
        _print(first, second, unlike, knobs, console)
        if "html" in line:
            console.answer(f"wrote {options.html}; open it in a browser")
    if failed:
        console.say(f"B is {percent(slower)} slower than A; {percent(allowed)} is allowed")
    return 1 if failed else 0


def _is_file(name: str) -> bool:
    """Return whether a name is that of a schedule file, and not of a run."""
    return name.endswith(".json") or Path(name).is_file()


def _of_file(path: Path) -> DiffSide:
    """Return a side as a schedule file states it; nothing is measured again.

    Raises:
        ScheduleFileError: It cannot be read, is no schedule, or says nothing.
    """
    try:
        document = read_json(path)
        model, target = document["model"], document["target"]
        of = {
            "model": model["name"], "batch": model["batch"], "target": target["name"],
            "dtype": document["dtype"], "scheduler": document["scheduler"],
        }  # fmt: skip
        knobs, measured = dict(document["knobs"]), document["expected"]
    except OSError as error:
        raise ScheduleFileError(f"cannot read: {error.strerror}", Location(path)) from None
    except (ValueError, KeyError, TypeError):
        hint = "'autoturbo tune' writes them"
        raise ScheduleFileError("not a schedule file", Location(path), hint) from None
    if not isinstance(measured, dict) or "latency_s" not in measured:
        message = "the file does not say what the schedule measures"
        hint = "'autoturbo simulate MODEL --schedule FILE' measures it"
        raise ScheduleFileError(message, Location(path, field="expected"), hint)
    return DiffSide(f"{path} (figures of the file)", of, document["expected"], knobs)


def _of_run(name: str, path: str) -> DiffSide:
    """Return a side from the best trial of a run.

    Raises:
        RunError: No such run, or no trial of it fits.
    """
    from autoturbo.heterogeneous.evaluator import PUBLISHED, TUNED
    from autoturbo.tuning.keys import measurer_of

    run = stored_run(name, path)
    info, best, handed = run.info, run.best(), run.handed_out
    scheduler = "graphturbo"
    if "units" in (info.settings.get("target_description") or {}):
        scheduler = PUBLISHED if best.knobs.units is None else TUNED
    of = {
        "model": info.model, "batch": info.batch, "target": info.target, "dtype": info.key.dtype,
        "scheduler": scheduler,
    }  # fmt: skip
    measured = required(handed.measurement if handed else best.outcome, info.id).as_json()
    name = f"run {info.id} ({origin_of(measurer_of(info))})"
    return DiffSide(name, of, measured, best.knobs.as_dict())


def _flat(knobs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the model's knobs by name, and sub-graphs' by layer and name."""
    found = {name: value for name, value in knobs.items() if name != "overrides"}
    for override in knobs.get("overrides", ()):
        for name, value in override.items():
            if name != "layer":
                found[f"{override['layer']}: {name}"] = value
    return found


def _print(
    first: DiffSide,
    second: DiffSide,
    unlike: Sequence[str],
    knobs: Mapping[str, Sequence[Any]],
    console: Console,
) -> None:
    for letter, side in (("A", first), ("B", second)):
        console.answer(f"{letter}: {_titled(side)}")
    if unlike:  # another model, batch, target
        console.answer(
            f"A and B differ in {', '.join(unlike)}: their figures are of different problems"
        )
    console.table(("figure", "A", "B", "B / A"), list(_figures(first, second)))
    if knobs:
        rows = [(name, str(a), str(b)) for name, (a, b) in knobs.items()]
        console.table(("knob", "A", "B"), rows, words=3, close=True)
    else:
        console.answer("A and B have the same knobs")


def _titled(side: DiffSide) -> str:
    """Return a side's name, and what it is a schedule of."""
    of = side.of
    what = f"{of['model']} @ {of['target']}, batch {of['batch']}, {of['dtype']}"
    return f"{side.name}: {what}, {of['scheduler']}"


def _write_page(
    options: argparse.Namespace,
    sides: tuple[DiffSide, DiffSide],
    unlike: Sequence[str],
    knobs: Mapping[str, Sequence[Any]],
) -> DiffPage:
    """Build both schedules again and write them side by side."""
    from autoturbo.report.diff_page import difference
    from autoturbo.report.filling import library

    library()  # before anything long is done
    names = (options.a, options.b)
    runs = [_run_behind(name, options.db) for name in names]
    outputs = outputs_of(options).reading(*(model_path_of_run(run.info) for run in runs))
    outputs.check(options.html, Kind.REPORT)
    first, second = (
        _built(name, side, run) for name, side, run in zip(names, sides, runs, strict=True)
    )
    page = difference(first, second, unlike, _figures(*sides), knobs).encode()
    outputs.write(options.html, Kind.REPORT, page)
    return {"file": str(options.html), "bytes": len(page)}


def _built(name: str, side: DiffSide, run: StoredRun) -> Compared:
    """Return a side built and measured again.

    Raises:
        RunError: it is of a machine, or of another version.
        ScheduleFileError: the file does not describe a schedule.
    """
    from autoturbo.report.diff_page import Compared
    from autoturbo.report.facts import Measured
    from autoturbo.report.side_by_side import how_known
    from autoturbo.schedule.files import load_schedule

    evaluator = run.simulating("diff")
    model_scheduler = evaluator.model_scheduler
    schedule = (
        load_schedule(name, model_scheduler.model, model_scheduler.target)
        if _is_file(name)
        else evaluator.schedule(run.best().knobs)
    )
    simulated = required(evaluator.measure(schedule), side.name)
    measured = Measured.of(
        schedule, dataclasses.replace(simulated, latency=side.measured["latency_s"])
    )
    return Compared(_titled(side), str(side.of["model"]), measured, how_known(run.info))


def _run_behind(name: str, path: str) -> StoredRun:
    """Return a run by its name; for a schedule file, one of its model, target and data type.

    Raises:
        ScheduleFileError: the database has none.
    """
    if not _is_file(name):
        return stored_run(name, path)
    document = read_json(Path(name))
    wanted = (document["model"]["hash"], document["target"]["hash"], document["dtype"])
    with opened(path) as database:
        for info in reversed(database.runs()):
            if (info.key.graph_hash, info.key.target_hash, info.key.dtype) == wanted:
                return stored_run(info.id, path)
    message = f"no run of {path} has its model and target, which a timeline needs"
    raise ScheduleFileError(message, Location(name), "leave --html out, or tune the model first")


def _figures(first: DiffSide, second: DiffSide) -> Iterator[tuple[str, str, str, str]]:
    for key, (title, shown) in _FIGURES.items():
        one, two = (dict[str, Any](side.measured).get(key) for side in (first, second))
        if one is None and two is None and shown is not size:
            continue
        over = ratio(two / one) if one and two is not None else "-"
        texts = ["-" if value is None else shown(value) for value in (one, two)]
        yield title, texts[0], texts[1], over
