"""Parameters of both tiers: those of the fast one, and those that only the full one runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterable

FAST = ("squeezenet1_1", "llama_decode")
"""Small workloads: samples first in a network of convolutions, products of a transformer."""

FULL = ("shufflenet_v2", "yolov5s_like", "bert_base_s128", "swin_t", "conformer", "dlrm", "unet")
"""Others that differ in kind: grouped and merged layouts, several outputs, attention, tables."""


def tiered(fast: Iterable[Any], full: Iterable[Any]) -> list[Any]:
    """Parameters for ``parametrize``; those of `full` are marked."""
    return [*fast, *(pytest.param(value, marks=pytest.mark.full) for value in full)]


def spread(rows: Iterable[Any], every: int) -> list[Any]:
    """All rows of a table that goes from kind to kind; one of `every` is of the fast tier."""
    return [row if i % every == 0 else _marked(row) for i, row in enumerate(rows)]


def _marked(row: Any) -> Any:
    if isinstance(row, type(pytest.param())):
        return pytest.param(*row.values, marks=[*row.marks, pytest.mark.full], id=row.id)
    values = row if type(row) is tuple else (row,)
    return pytest.param(*values, marks=pytest.mark.full)


def workloads(*, without: Iterable[str] = ()) -> list[Any]:
    """Names of bundled workloads that stand for all."""
    left = set(without)
    return tiered([n for n in FAST if n not in left], [n for n in FULL if n not in left])
