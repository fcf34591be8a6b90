"""The settings that a run begins with, kept with it so that it can be resumed.

Besides the published heuristic: what other schedules in the database decided, carried over
(:mod:`autoturbo.search.transfer`), and what a dynamic programme places
(:mod:`autoturbo.search.starts`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from autoturbo.schedule.schedule import Schedule
from autoturbo.search.starts import starts_of
from autoturbo.search.transfer import Decisions, decisions_of, nearest, transfer

if TYPE_CHECKING:
    from autoturbo.database import Database, PairKey
    from autoturbo.graph.operators import Graph
    from autoturbo.hardware.target import Target
    from autoturbo.schedule.knobs import Knobs

MOST_KNOWN = 8
"""Schedules whose decisions are looked at closely; one of them is taken over."""


def beginnings(
    graph: Graph, target: Target, dtype: str, known: tuple[Decisions, ...] = ()
) -> tuple[Knobs, ...]:
    """Settings worth starting from, what is carried over last.

    Args:
        graph: the model.
        target: the accelerator.
        dtype: the compute type.
        known: what schedules for the same target decided.
    """
    taken = transfer(graph, target, known)
    placed = starts_of(graph, target, dtype=dtype)
    return placed if taken is None else (*placed, taken.knobs)


def decisions_for(store: Database, key: PairKey, graph: Graph) -> tuple[Decisions, ...]:
    """Decisions of the best schedules for a target and type that are nearest to a model.

    The nearest first, of equals those for the very model, at most :data:`MOST_KNOWN`.

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
    known = sorted(found, key=lambda one: one[0] != key.graph_hash)
    near = nearest(graph, [decisions for _, decisions in known], MOST_KNOWN)
    return tuple(map(Decisions.from_dict, near))


def kept_decisions(schedule: object) -> dict[str, Any]:
    """What a schedule of ours decided, for the database; other measurers have their own kinds."""
    return decisions_of(schedule).as_dict() if isinstance(schedule, Schedule) else {}
