"""Small accelerators whose matrix tiles fit their local buffers."""

from __future__ import annotations

import dataclasses
from typing import Any

from hypothesis import strategies as st

from autoturbo.hardware.target import Target
from tests.schedule.schedule_samples import target, targets


def machine(**sizes: Any) -> Target:
    """STCP920 with other sizes and a matrix engine of 4 x 4."""
    return _small(target(**sizes))


def machines() -> st.SearchStrategy[Target]:
    """Random small accelerators with the same engine."""
    return targets().map(_small)


def _small(whole: Target) -> Target:
    matrix = dataclasses.replace(whole.matrix, rows=4, columns=4, depth=4)
    return dataclasses.replace(whole, matrix=matrix)
