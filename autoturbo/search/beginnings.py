"""The settings that a run begins with, kept with it so that it can be resumed.

Besides the published heuristic: what other schedules in the database decided, carried over
(:mod:`autoturbo.search.transfer`), and what a dynamic programme places
(:mod:`autoturbo.search.starts`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from autoturbo.schedule.schedule import Schedule
from autoturbo.search.starts import starts_of
from autoturbo.search.transfer import Decisions, decisions_of, nearest, transfer

if TYPE_CHECKING:
    from collections.abc import Callable

    from autoturbo.database import Database, PairKey
    from autoturbo.graph.operators import Graph
    from autoturbo.hardware.target import Target
    from autoturbo.schedule.knobs import Knobs

PLACED = "cuts that a dynamic programme places"
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


def beginnings(
    graph: Graph,
    target: Target,
    dtype: str,
    known: tuple[Decisions, ...] = (),
    progress: Callable[[float], None] | None = None,
) -> tuple[Beginning, ...]:
    """Settings worth starting from, what is carried over last.

    Args:
        graph: the model.
        target: the accelerator.
        dtype: the compute type.
        known: what schedules for the same target decided.
        progress: is given the share of the work of placing cuts that is done.
    """
    taken = transfer(graph, target, known)
    starts = starts_of(graph, target, dtype=dtype, progress=progress)
    placed = [Beginning(knobs, PLACED) for knobs in starts]
    if taken is None:
        return tuple(placed)
    origin = f"the schedule of {taken.source} ({taken.known:.0%} of the MACs in layers like its)"
    return (*placed, Beginning(taken.knobs, origin))


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
    known = sorted(found, key=lambda one: one.graph_hash != key.graph_hash)
    near = nearest(graph, [one.decisions for one in known], MOST_KNOWN)
    sources = {id(one.decisions): one.model for one in known}
    return tuple(Decisions.from_dict(values, sources[id(values)]) for values in near)


def kept_decisions(schedule: object) -> dict[str, Any]:
    """What a schedule of ours decided, for the database; other measurers have their own kinds."""
    return decisions_of(schedule).as_dict() if isinstance(schedule, Schedule) else {}
