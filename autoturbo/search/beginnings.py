"""The settings that a run begins with, kept with it so that it can be resumed.

Besides the published heuristic: what other schedules in the database decided, carried over
(:mod:`autoturbo.search.transfer`), and what a dynamic programme places
(:mod:`autoturbo.search.starts`). A setting that does not fit the model is left out, and why is kept
with the run: nothing that a database holds makes a run fail.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from autoturbo.errors import KnobsError
from autoturbo.schedule.pipeline import plan
from autoturbo.schedule.schedule import Schedule
from autoturbo.search.starts import starts_of
from autoturbo.search.transfer import Decisions, Transfer, decisions_of, nearest, transfer

if TYPE_CHECKING:
    from collections.abc import Callable

    from autoturbo.database import Database, PairKey
    from autoturbo.graph.operators import Graph
    from autoturbo.schedule.knobs import Knobs
    from autoturbo.simulate.evaluator import Evaluator

PLACED = "cuts placed beforehand"
"""Origin of a beginning."""

MOST_KNOWN = 8
"""Schedules whose decisions are looked at closely; one of them is taken over."""


@dataclass(frozen=True, slots=True)
class Beginning:
    """A setting to start from.

    Attributes:
        knobs: the setting.
        origin: where it comes from, in words.
    """

    knobs: Knobs
    origin: str


@dataclass(frozen=True, slots=True)
class StartingPoint:
    """What a run starts from besides the heuristic.

    Attributes:
        settings: each with its origin, what is carried over last.
        notes: what was left out, and why.
    """

    settings: tuple[Beginning, ...] = ()
    notes: tuple[str, ...] = ()


def starting_point(
    evaluator: Evaluator,
    known: Sequence[Decisions] = (),
    progress: Callable[[float], None] | None = None,
) -> StartingPoint:
    """Return the settings worth starting from that fit the model, and what was left out.

    Args:
        evaluator: of the model on the target.
        known: what schedules for the same target decided.
        progress: is given the share of the work of placing cuts that is done.
    """
    bench, found, notes = evaluator.bench, list[Beginning](), list[str]()
    tried = [Beginning(knobs, PLACED) for knobs in starts_of(evaluator, progress=progress)]
    try:
        taken = transfer(bench, known)
        tried += [] if taken is None else [Beginning(taken.knobs, _origin(taken))]
    except KnobsError as error:
        notes.append(f"nothing is taken over from the database: {error.message}")
    for one in tried:
        try:
            plan(bench, one.knobs)
            found.append(one)
        except KnobsError as error:
            notes.append(f"not started from {one.origin}: {error.message}")
    return StartingPoint(tuple(found), tuple(notes))


def _origin(taken: Transfer) -> str:
    """In words, where a setting that is carried over comes from."""
    share = f"{taken.known:.0%} of the MACs in layers like its"
    fitted = ""
    if taken.changed:
        many = len(taken.changed)
        fitted = f"; {many} split{'s' if many > 1 else ''} made smaller to fit"
    return f"the schedule of {taken.source} ({share}{fitted})"


def decisions_for(
    store: Database, key: PairKey, graph: Graph
) -> tuple[tuple[Decisions, ...], tuple[str, ...]]:
    """Return the decisions of the best schedules that are nearest to a model, and what is unread.

    They are of schedules for the same target and type, the nearest first, of equals those for the
    very model, at most :data:`MOST_KNOWN`.

    Args:
        store: the database.
        key: of the model and the target.
        graph: the model.

    Raises:
        DatabaseError: the database cannot be read.
    """
    found = store.decisions(
        target_hash=key.target_hash, dtype=key.dtype, scheduler_version=key.scheduler_version
    )
    known = sorted(found, key=lambda one: one.graph_hash != key.graph_hash)
    sources = {
        id(one.decisions): f"{one.model} in {store.path}, run {one.run}, trial {one.trial}"
        for one in known
    }
    read = dict[int, Decisions]()
    for one in known:
        with suppress(KnobsError, KeyError, TypeError, ValueError, AttributeError):
            read[id(one.decisions)] = Decisions.from_dict(one.decisions, sources[id(one.decisions)])
    near = nearest(graph, [one.decisions for one in known if id(one.decisions) in read], MOST_KNOWN)
    unread = [source for kept, source in sources.items() if kept not in read]
    notes = [f"not read: what the schedule of {source} decided" for source in unread]
    return tuple(read[id(values)] for values in near), tuple(notes)


def start_of_run(
    evaluator: Evaluator,
    key: PairKey,
    store: Database | None,
    progress: Callable[[float], None] | None = None,
) -> StartingPoint:
    """Return what a run starts from, with what a database holds where there is one.

    Args:
        evaluator: of the model on the target.
        key: of both, and the compute type.
        store: the database; None where nothing is to be taken over.
        progress: is given the share of the work of placing cuts that is done.

    Raises:
        DatabaseError: the database cannot be read.
    """
    model = evaluator.bench.model
    known, unread = decisions_for(store, key, model) if store is not None else ((), ())
    found = starting_point(evaluator, known, progress)
    return dataclasses.replace(found, notes=(*unread, *found.notes))


def kept_decisions(schedule: object) -> dict[str, Any]:
    """What a schedule of ours decided, for the database; other measurers have their own kinds."""
    return decisions_of(schedule).as_dict() if isinstance(schedule, Schedule) else {}
