"""The search space of a run, from what its record keeps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from autoturbo.search.names import OURS

if TYPE_CHECKING:
    from autoturbo.schedule.pipeline import Workbench
    from autoturbo.search.space import Space

SUBGRAPHS = 8
"""Kinds of sub-graphs whose own knobs our sampler searches by default."""


def searched_subgraphs(asked: int | None, sampler: str) -> int:
    """Kinds of sub-graphs whose own knobs are searched: unless asked, only by our sampler.

    Others know neither conditions nor that most of these choices are best left alone.

    Args:
        asked: by the user; None leaves it to the sampler.
        sampler: name of it.
    """
    if asked is not None:
        return asked
    return SUBGRAPHS if sampler == OURS else 0


def space_of_run(stored: Mapping[str, Any], bench: Workbench) -> Space:
    """The space of a run.

    Args:
        stored: its settings, as its record has them.
        bench: its model on its target.
    """
    from autoturbo.schedule.knobs import Knobs
    from autoturbo.search.space import Space

    starts = [Knobs.from_dict(kept) for kept in stored.get("starts", ())]
    own = stored.get("subgraphs", 0)
    return Space.of(bench, subgraphs=own, starts=starts)
