"""The settings that a run begins with, kept with it so that it can be resumed.

Besides the published heuristic: what other schedules in the database decided, carried over
(:mod:`autoturbo.search.warm_starts.transfer`), and what a dynamic programme places
(:mod:`autoturbo.search.warm_starts.starts`). A setting that does not fit the model is left out,
and why is kept with the run: nothing that a database holds makes a run fail.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from autoturbo.database import Database, PairKey
from autoturbo.errors import KnobsError
from autoturbo.graph.operators import Graph
from autoturbo.registry import trial_name
from autoturbo.schedule.chip_part import WHOLE, ChipPart
from autoturbo.schedule.knobs import Knobs
from autoturbo.schedule.pipeline import build_schedule, plan
from autoturbo.schedule.schedule import Schedule
from autoturbo.search.constants import SEARCH, SearchConstants, Starts, Transfers
from autoturbo.search.warm_starts.starts import (
    GIVEN,
    WarmStart,
    _side_by_side,
    _with_policies,
    groups_that_gain,
    on_part,
    placed_starts,
    simulated_seconds,
)
from autoturbo.search.warm_starts.transfer import (
    Decisions,
    Transfer,
    decisions_of,
    nearest,
    transfer,
)
from autoturbo.simulator.evaluator import Evaluator
from autoturbo.simulator.fitted import FITTING, fitted_part, is_small


@dataclass(frozen=True, slots=True)
class WarmStarts:
    """The warm starts of a run, besides the heuristic.

    Attributes:
        settings: Each with its origin, what is carried over last.
        notes: What was left out, and why.
        fitted: The heuristic on the part of the chip that the search takes place on; None on the
            whole chip.
    """

    settings: tuple[WarmStart, ...] = ()
    notes: tuple[str, ...] = ()
    fitted: Knobs | None = None


def starting_point(
    evaluator: Evaluator,
    known: Sequence[Decisions] = (),
    progress: Callable[[float], None] | None = None,
    *,
    fit: bool = False,
    constants: SearchConstants = SEARCH,
) -> WarmStarts:
    """Return the warm starts that fit the model, and the ones left out.

    Args:
        evaluator: Of the model on the target.
        known: What schedules for the same target decided.
        progress: Is given the share of the dynamic programme that is done.
        fit: Look for a part of the chip on which the heuristic is faster, and start there.
        constants: Of the dynamic programme and of transfers.
    """
    part, placed = _placed(evaluator, constants.starts, progress, fit=fit)
    used, fitting, notes = on_part(evaluator, part), list[WarmStart](), list[str]()
    tried = list(placed)
    try:
        transferred = transfer(used.model_scheduler, known, constants.transfers)
        tried += [] if transferred is None else [WarmStart(transferred.knobs, _origin(transferred))]
    except KnobsError as error:
        notes.append(f"nothing is taken over from the database: {error.message}")
    for beginning in tried:
        knobs = part.on(beginning.knobs)
        try:
            plan(evaluator.model_scheduler, knobs)
            fitting.append(dataclasses.replace(beginning, knobs=knobs))
        except KnobsError as error:
            notes.append(f"not started from {beginning.origin}: {error.message}")
    fitted = None if part == WHOLE else part.on(used.heuristic())
    return WarmStarts(tuple(fitting), tuple(notes), fitted)


def _placed(
    evaluator: Evaluator,
    starts: Starts | None,
    progress: Callable[[float], None] | None,
    *,
    fit: bool,
) -> tuple[ChipPart, tuple[WarmStart, ...]]:
    """Return the part of the chip to search on, and what to start from there.

    A part has to be clearly faster with the best policies of the heuristic, on a small model with
    the best of all starts: rules that suffer from large buffers say little about what else these
    allow.
    """
    found = (fitted_part(evaluator), groups_that_gain(evaluator)) if fit else ()
    parts = list(dict.fromkeys((WHOLE, *found)))
    if len(parts) == 1:
        return WHOLE, placed_starts(evaluator, starts, progress=progress)
    small, on = is_small(evaluator.model_scheduler), dict[ChipPart, Evaluator]()
    begun, seconds = dict[ChipPart, tuple[WarmStart, ...]](), dict[ChipPart, float]()
    for one in parts:
        on[one] = on_part(evaluator, one)
        begun[one] = placed_starts(on[one], starts, progress=progress) if small else ()
        others = [start.knobs for start in begun[one]] if small else [_with_policies(on[one])]
        others += [] if small else _side_by_side(on[one])
        tried = (on[one].heuristic(), *others)
        least = min(simulated_seconds(on[one], knobs) for knobs in tried)
        seconds[one] = least * (1.0 if one == WHOLE else 1.0 + FITTING.gain_of(one))
    kept = min(parts, key=seconds.__getitem__)  # the whole chip is the first
    return kept, begun[kept] if small else placed_starts(on[kept], starts, progress=progress)


def begun_with(evaluator: Evaluator, given: Sequence[Knobs]) -> WarmStarts:
    """Return candidates that a user begins with.

    Raises:
        KnobsError: One does not fit the model or the target.
    """
    for knobs in given:
        build_schedule(evaluator.model_scheduler, knobs)
    return WarmStarts(tuple(WarmStart(knobs, GIVEN) for knobs in given))


def _origin(taken: Transfer) -> str:
    """Return a description of where a transferred candidate comes from."""
    share = f"{100 * taken.known:.0f} % of the MACs are in layers alike"
    fitted = ""
    if taken.changed:
        many = len(taken.changed)
        fitted = f"; {many} split{'s' if many > 1 else ''} made smaller to fit"
    return f"the schedule of {taken.source} ({share}{fitted})"


def decisions_for(
    store: Database,
    key: PairKey,
    graph: Graph,
    transfers: Transfers | None = SEARCH.transfers,
) -> tuple[tuple[Decisions, ...], tuple[str, ...]]:
    """Return the decisions of the best schedules nearest to a model, and notes on unreadable ones.

    They are of schedules for the same target and type, the nearest first, of equals those for the
    very model, at most ``known_schedules``.

    Args:
        store: The database.
        key: Of the model and the target.
        graph: The model.
        transfers: How many are wanted; None for none.

    Raises:
        DatabaseError: The database cannot be read.
    """
    if transfers is None:
        return (), ()
    found = store.decisions(
        target_hash=key.target_hash, dtype=key.dtype, scheduler_version=key.scheduler_version
    )
    known = sorted(found, key=lambda one: one.graph_hash != key.graph_hash)
    sources = {
        id(one.decisions): f"{one.model} in {store.path}, run {one.run}, {trial_name(one.trial)}"
        for one in known
    }
    read = dict[int, Decisions]()
    for one in known:
        with suppress(KnobsError, KeyError, TypeError, ValueError, AttributeError):
            read[id(one.decisions)] = Decisions.from_dict(one.decisions, sources[id(one.decisions)])
    near = nearest(
        graph,
        [one.decisions for one in known if id(one.decisions) in read],
        transfers.known_schedules,
    )
    unread = [source for kept, source in sources.items() if kept not in read]
    notes = [f"not read: what the schedule of {source} decided" for source in unread]
    return tuple(read[id(values)] for values in near), tuple(notes)


def start_of_run(
    evaluator: Evaluator,
    key: PairKey,
    store: Database | None,
    progress: Callable[[float], None] | None = None,
    *,
    fit: bool = False,
    constants: SearchConstants = SEARCH,
) -> WarmStarts:
    """Return the warm starts of a run, from a database where there is one.

    Args:
        evaluator: Of the model on the target.
        key: Of both, and the compute type.
        store: The database; None where nothing is to be taken over.
        progress: Is given the share of the dynamic programme that is done.
        fit: Look for a part of the chip on which the heuristic is faster, and start there.
        constants: Of the dynamic programme and of transfers.

    Raises:
        DatabaseError: The database cannot be read.
    """
    model = evaluator.model_scheduler.model
    known, unread = (
        ((), ()) if store is None else decisions_for(store, key, model, constants.transfers)
    )
    start = starting_point(evaluator, known, progress, fit=fit, constants=constants)
    return dataclasses.replace(start, notes=(*unread, *start.notes))


def kept_decisions(schedule: object) -> dict[str, Any]:
    """Return a schedule's decisions for the database; empty for a schedule of another measurer."""
    return decisions_of(schedule).as_dict() if isinstance(schedule, Schedule) else {}
