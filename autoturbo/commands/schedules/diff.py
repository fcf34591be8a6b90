"""Compare two schedules or runs: what they measured and which knobs differ.

``--fail-if-slower`` makes it a check: the status is 1 where the second one is slower than allowed.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from autoturbo.commands.console import Console
from autoturbo.commands.loading import origin_of, stored_run
from autoturbo.commands.parser import Parser, percentage
from autoturbo.commands.scheduling import required
from autoturbo.errors import Location, ScheduleFileError
from autoturbo.files import read_json
from autoturbo.report.units import count, duration, percent, ratio, size
from autoturbo.schema import Bool, Entries, Real, TypedDict
from autoturbo.simulate.measurement import MeasurementJson

USAGE = "A B [options]"
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
    "kernels": ("kernels", str),
    "bound_fraction": ("% of lower bound", percent),
}
"""Figures of a measurement, as people read them."""


class Side(NamedTuple):
    """One of the two.

    Attributes:
        name: the run or the file, and where its figures come from.
        of: model, batch, target, data type, scheduler.
        measured: the object M of ``--json``.
        knobs: plain values.
    """

    name: str
    of: dict[str, Any]
    measured: MeasurementJson
    knobs: dict[str, Any]


_Both = Annotated[list[Any], Entries(least=2, most=2)]


class DiffLine(TypedDict):
    """Two schedules or runs; 'of' has what makes a comparison doubtful, each as [A, B]."""

    a: MeasurementJson
    b: MeasurementJson
    latency_ratio: Real
    of: dict[str, _Both]
    knobs: dict[str, _Both]
    slower_than_allowed: Bool


def add_arguments(parser: Parser) -> None:
    """Add the two schedules, and by how much B may be slower."""
    for name in ("a", "b"):
        text = "schedule file, or id of a run (its best trial)"
        parser.add_argument(name, metavar=name.upper(), help=text)
    text = "status 1 if the latency of B is more than this above A's"
    slower = percentage("--fail-if-slower")
    parser.add_argument("--fail-if-slower", metavar="P%", type=slower, help=text)


def run(options: argparse.Namespace, console: Console) -> int:
    """Compare and print."""
    first, second = (
        _of_file(Path(name))
        if name.endswith(".json") or Path(name).is_file()
        else _of_run(name, options.db)
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
    console.emit(line)
    if not console.json:
        _print(first, second, unlike, knobs, console)
    if failed:
        console.say(f"B is {percent(slower)} slower than A; {percent(allowed)} is allowed")
    return 1 if failed else 0


def _of_file(path: Path) -> Side:
    """Read a side from a schedule file, by the measurement that the file states.

    Raises:
        ScheduleFileError: it cannot be read, is no schedule, or says nothing.
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
    return Side(f"{path} (figures of the file)", of, document["expected"], knobs)


def _of_run(name: str, path: str) -> Side:
    """Read a side from the best trial of a run.

    Raises:
        RunError: no such run, or no trial of it fits.
    """
    from autoturbo.heterogeneous.evaluator import PUBLISHED, TUNED
    from autoturbo.tuning.keys import measurer_of

    run = stored_run(name, path)
    info, best = run.info, run.best()
    scheduler = "graphturbo"
    if "units" in (info.settings.get("target_description") or {}):
        scheduler = PUBLISHED if best.knobs.units is None else TUNED
    of = {
        "model": info.model, "batch": info.batch, "target": info.target, "dtype": info.key.dtype,
        "scheduler": scheduler,
    }  # fmt: skip
    measured = required(best.outcome, f"run {info.id}").as_json()
    name = f"run {info.id} ({origin_of(measurer_of(info))})"
    return Side(name, of, measured, best.knobs.as_dict())


def _flat(knobs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the model's knobs by name, and sub-graphs' by layer and name."""
    found = {name: value for name, value in knobs.items() if name != "overrides"}
    for override in knobs.get("overrides", ()):
        for name, value in override.items():
            if name != "layer":
                found[f"{override['layer']}: {name}"] = value
    return found


def _print(
    first: Side,
    second: Side,
    unlike: Sequence[str],
    knobs: Mapping[str, Sequence[Any]],
    console: Console,
) -> None:
    for letter, side in (("A", first), ("B", second)):
        of = side.of
        what = f"{of['model']} @ {of['target']}, batch {of['batch']}, {of['dtype']}"
        console.answer(f"{letter}: {side.name}: {what}, {of['scheduler']}")
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


def _figures(first: Side, second: Side) -> Iterator[tuple[str, str, str, str]]:
    for key, (title, shown) in _FIGURES.items():
        one, two = (dict[str, Any](side.measured).get(key) for side in (first, second))
        if one is None or two is None:
            continue
        over = ratio(two / one) if one else "-"
        yield title, shown(one), shown(two), over
