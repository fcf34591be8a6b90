"""Tables that go into the page: columns of numbers, and of texts of which there are few."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from autoturbo.report.units import plain


@dataclass(frozen=True, slots=True)
class Columns:
    """Rows of a chart, column by column.

    Attributes:
        values: equally many per name; texts, numbers, or None.
        note: what was left out, a sentence; empty where nothing was.
    """

    values: Mapping[str, Sequence[Any]]
    note: str = ""

    def __len__(self) -> int:
        return len(next(iter(self.values.values()), ()))

    def as_json(self) -> dict[str, Any]:
        """For the page's script: a list per column; of texts each once, with a number per row."""
        return {name: _packed(column) for name, column in self.values.items()}


def _packed(column: Sequence[Any]) -> Any:
    if any(isinstance(value, str) for value in column):
        texts = {text: number for number, text in enumerate(dict.fromkeys(column))}
        words = [None if text is None else plain(text) for text in texts]
        return {"of": words, "at": [texts[value] for value in column]}
    return [_short(value) for value in column]


def _short(value: Any) -> Any:
    """Six digits of a number: more than a screen shows."""
    if not isinstance(value, float):
        return value
    if not math.isfinite(value):
        return None
    short = float(f"{value:.6g}")
    return int(short) if short.is_integer() and abs(short) < 2**53 else short


def evenly(count: int, most: int) -> list[int]:
    """At most so many positions of a list, the first and the last among them."""
    if count <= most:
        return list(range(count))
    return sorted({round(step * (count - 1) / (most - 1)) for step in range(most)})
