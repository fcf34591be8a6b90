"""What a search does when it no longer gains: it takes in immigrants.

Children of the best points stay near them. After :data:`PATIENCE` trials without a gain, part of
what is taken for its prediction descends from points drawn at random. Starts and numbers of samples
at once need none of it: they take turns anyway (:func:`autoturbo.search.blocks.bases_of`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from autoturbo.search.conditions import Genes
    from autoturbo.search.quick_model import Tried
    from autoturbo.search.space import Space

PATIENCE = 48
"""Trials without a gain before immigrants come: three rounds."""

AWAY = 0.25
"""Share of the predicted part of a batch that descends from them. In 200 trials half cost 15 % in
one of twelve runs; a quarter differed by 0.2 % at most in nine, no better than none.
"""

IMMIGRANTS = 96
"""Points drawn at random; the quick model picks parents among them."""


def idle_trials(history: Sequence[Tried], small: float = 0.0) -> int:
    """Trials since the best one; all of them where nothing was measured.

    Args:
        history: what was tried.
        small: share of the best score by which one may be worse and count as the best.
    """
    scores = np.asarray([np.inf if tried.score is None else tried.score for tried in history])
    if not np.isfinite(scores).any():
        return len(scores)
    best = scores.min()
    return len(scores) - 1 - int(np.argmax(scores <= best + small * abs(best)))


def immigrants(space: Space, rng: np.random.Generator, history: Sequence[Tried]) -> Genes | None:
    """Parents from elsewhere, ``(points, dimensions)``; None while there are gains."""
    return space.random(rng, IMMIGRANTS) if idle_trials(history) >= PATIENCE else None
