"""Say which knobs mattered in a run, which ended at their border, how much was tried.

Knobs are judged by trials that the judging model has not seen; where it predicts little of them,
no importance is given.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from autoturbo.commands.loading import model_of_run
from autoturbo.commands.values import whole_number
from autoturbo.errors import RunError
from autoturbo.report.units import percent
from autoturbo.schedule.knob_specs import AUTO

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from autoturbo.commands.console import Console
    from autoturbo.commands.parser import Parser
    from autoturbo.database import RunInfo
    from autoturbo.search.importance import Importance, KnobReport
    from autoturbo.search.space import Space

USAGE = "RUN [options]"
EXAMPLE = "autoturbo explain 4f1c"
_SHOWN = 12
"""Knobs in the table, without --verbose."""


def add_arguments(parser: Parser) -> None:
    """The run."""
    parser.add_argument("run", metavar="RUN", help="id of a run, or the beginning of one")
    seed = "deals the trials into parts (default: 0)"
    parser.add_argument("--seed", metavar="N", type=whole_number("--seed", 0), default=0, help=seed)


def run(options: argparse.Namespace, console: Console) -> int:
    """Print the knobs, those that mattered most first."""
    from autoturbo.database import Database
    from autoturbo.search.importance import importance_of
    from autoturbo.search.objectives import find_objectives
    from autoturbo.search.progress import Trial

    with Database.open(options.db, create=False, read_only=True) as database:
        info = database.run(options.run)
        trials = [Trial(t.number, t.knobs, t.outcome) for t in database.trials(info.id)]
    objective = find_objectives(info.settings.get("objective", "latency"))[0]
    found = importance_of(_space(info), trials, objective, options.seed)
    console.emit({"run": info.id, "objective": objective.name, **as_json(found)})
    if not console.json:
        _print(info, objective.name, found, console)
    return 0


def _space(info: RunInfo) -> Space:
    """The space that a run's trials were proposed from.

    Raises:
        RunError: its model or its target has changed, or is not recorded.
    """
    from autoturbo.hardware import Target
    from autoturbo.search.settings import space_of_run

    graph = model_of_run(info)
    if graph.hash != info.key.graph_hash:
        raise RunError(f"run {info.id}: {info.model_file} has changed", hint="explain another run")
    description = info.settings.get("target_description")
    if description is None:
        raise RunError(f"run {info.id}: its target is not recorded", hint="explain another run")
    if "units" in description:
        message = f"run {info.id} is on {info.target}, a machine of several units"
        hint = f"'autoturbo show {info.id}' says how units shared out the work"
        raise RunError(message, hint=hint)
    return space_of_run(info.settings, graph, Target.from_dict(description))


def as_json(found: Importance) -> dict[str, Any]:
    """What is known of the knobs, in the order of the space."""
    knobs = [{**dataclasses.asdict(k), "layers": list(k.layers)} for k in found.knobs]
    return {**dataclasses.asdict(found), "knobs": knobs}


def _print(info: RunInfo, objective: str, found: Importance, console: Console) -> None:
    from autoturbo.report.tables import table

    console.answer(f"run {info.id}: {info.model} @ {info.target}, {objective}")
    console.answer(f"{found.measured} trials measured, {found.failed} failed")
    console.answer(_explained(found))
    shown = _shown(found, console.verbosity > 0)
    headers = ("knob", "of the layer", "best", "share", "tried")
    console.say()
    if shown:
        console.show(table(headers, map(_row, shown), words=3, close=True))
    if len(shown) < len(found.knobs):
        why = "are auto in the best trial" if found.obstacle else "matter less"
        console.say(f"{len(found.knobs) - len(shown)} more knobs {why}; -v shows them")
    console.say()
    for line in _advice(found.knobs):
        console.answer(line)


def _shown(found: Importance, everything: bool) -> list[KnobReport]:
    """Those that mattered most; where that is not known, what the best trial changes."""
    ordered = sorted(found.knobs, key=lambda k: -(k.share or 0.0))
    if everything:
        return ordered
    if found.obstacle:
        return [k for k in ordered if k.best not in (None, AUTO)]
    return ordered[:_SHOWN]


def _explained(found: Importance) -> str:
    if found.obstacle:
        return f"importance: {found.obstacle}"
    share = percent(max(found.explained or 0.0, 0.0))
    return f"importance: choices predict {share} of what differs between trials not seen"


def _row(knob: KnobReport) -> tuple[str, ...]:
    more = f" +{len(knob.layers) - 1}" if len(knob.layers) > 1 else ""
    share = "-" if knob.share is None else percent(round(max(knob.share, 0.0), 2))
    best = "-" if knob.best is None else str(knob.best)
    start = f", start {knob.start}" if knob.start else ""
    layer = f"{knob.layers[0]}{more}{start}" if knob.layers else ""
    return knob.knob, layer, best, share, f"{knob.tried}/{knob.offered}"


def _advice(knobs: Sequence[KnobReport]) -> list[str]:
    """What stands at a border, and how much was tried at all."""
    lines = [
        f"{k.knob}: the best value, {k.best}, is the {k.border} that was offered"
        for k in knobs
        if k.border
    ]
    model, own = ([k for k in knobs if bool(k.layers) == of_layers] for of_layers in (False, True))
    for name, some in (("the model's knobs", model), ("sub-graphs' own knobs", own)):
        if some:
            tried, offered = sum(k.tried for k in some), sum(k.offered for k in some)
            lines.append(f"values tried of {name}: {tried} of {offered}")
    return lines
