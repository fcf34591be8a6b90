"""Where a search goes when it no longer gains: around other starts, and to immigrants.

Children of the best points stay near them. After :data:`PATIENCE` trials without a gain, part of
every batch comes from elsewhere, one place after the other: points of each start that the best one
does not have, with the best of them as parents, then immigrants drawn at random. Where to go
follows from the history only, so a search that is resumed goes the same way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from autoturbo.search.conditions import START, Genes

if TYPE_CHECKING:
    from autoturbo.search.quick_model import Tried
    from autoturbo.search.space import Space

PATIENCE = 48
"""Trials without a gain before a part of each batch goes elsewhere: three rounds."""

AWAY = 0.25
"""Share of the predicted part of a batch that comes from elsewhere then. In 200 trials half cost
15 % in one of twelve runs; a quarter differed by 0.2 % at most in nine, no better than none.
"""

TURN = 16
"""Trials after which it is the next place's turn."""

IMMIGRANTS = 96
"""Points drawn at random where it is their turn; the quick model picks parents among them."""


@dataclass(frozen=True, slots=True)
class Place:
    """Part of a space.

    Attributes:
        parents: points to begin with, ``(points, dimensions)``.
        start: choice of :data:`autoturbo.search.conditions.START` that all have; None for any.
        position: of that dimension.
    """

    parents: Genes
    start: int | None = None
    position: int = 0

    def keep(self, genes: Genes) -> Genes:
        """The points that lie there."""
        return genes if self.start is None else genes[genes[:, self.position] == self.start]


def idle_trials(history: Sequence[Tried]) -> int:
    """Trials since the best one; all of them where nothing was measured."""
    scores = [np.inf if tried.score is None else tried.score for tried in history]
    return len(scores) - 1 - int(np.argmin(scores)) if np.isfinite(scores).any() else len(scores)


def place_to_go(
    space: Space, rng: np.random.Generator, history: Sequence[Tried], most: int
) -> Place | None:
    """Where the next batch goes besides the best points; None while there are gains.

    Args:
        space: where to look.
        rng: where chance comes from.
        history: what was tried, in order.
        most: parents at most.
    """
    idle = idle_trials(history)
    if idle < PATIENCE:
        return None
    names = [dimension.name for dimension in space.dimensions]
    position = names.index(START) if START in names else None
    others = [] if position is None else _other_starts(space, history, position)
    turn = (idle - PATIENCE) // TURN % (len(others) + 1)
    if position is None or turn == len(others):
        return Place(space.random(rng, IMMIGRANTS))
    return _around(space, history, others[turn], position, most)


def _other_starts(space: Space, history: Sequence[Tried], position: int) -> list[int]:
    """Starts that the best point does not have."""
    measured = [tried for tried in history if tried.score is not None]
    best = min(measured, key=lambda tried: tried.score or 0.0, default=None)
    own = 0 if best is None else best.genes[position]
    return [start for start in range(len(space.starts)) if start != own]


def _around(space: Space, history: Sequence[Tried], start: int, position: int, most: int) -> Place:
    """Points with one start, its best measured ones as parents, or the start itself."""
    found = [t for t in history if t.score is not None and t.genes[position] == start]
    best = sorted(found, key=lambda tried: tried.score or 0.0)[:most]
    itself = np.zeros((1, len(space.dimensions)), np.int64)
    itself[0, position] = start
    parents = np.asarray([tried.genes for tried in best], np.int64) if best else itself
    return Place(parents, start, position)
