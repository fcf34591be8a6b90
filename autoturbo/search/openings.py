"""What a search tries before it has learned anything, and what it makes sure of soon after.

Chance alone leaves a search that draws badly far from one that draws well. So the first points
follow from the space only, and early batches probe the best point measured so far: one choice of
those that often matter is changed at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from autoturbo.schedule.knobs import Knobs, Value
from autoturbo.search.conditions import START, Genes, dimension_name
from autoturbo.search.space import Space

FREED: tuple[Mapping[str, Value], ...] = (
    {"weight_residency": "LB"},
    {"weight_residency": "GB"},
    {"output_scope": "GB"},
    {"output_scope": "GB", "weight_residency": "LB"},
)
"""Where outputs and weights may live, which the starts' costs leave out."""

PROBED: tuple[tuple[str, Value], ...] = (
    ("weight_residency", "LB"),
    ("weight_residency", "GB"),
    ("output_scope", "GB"),
    ("instance_order", "dfs"),
    ("prefetch_depth", 2),
    ("tile_divisor", 2),
    ("factor_scale", 2),
    ("recompute_limit", 2.0),
    ("lb_fill", 0.5),
    ("spill_victim", "largest"),
    ("factor_policy", "ragged"),
    ("merged_factor_ratio", 4.0),
    ("producer_factor_ratio", 0.25),
    ("instance_order", "footprint"),
    ("weight_share", 0.5),
    ("tile_divisor", 4),
    ("cluster_split", "spatial"),
    ("cluster_split", "channel"),
    ("output_scope", "DDR"),
)
"""Changes of the model's knobs, the first ones matter most often."""


def placed(space: Space) -> Genes:
    """Every start but the first as it is: what the dynamic programme or another model decided."""
    return _points(space, [*_each(space, START), *(_said(space, one) for one in space.given)])


def _said(space: Space, knobs: Knobs) -> dict[str, Any]:
    """Return the choices of a setting whose sub-graphs are the heuristic's."""
    said = {**knobs.as_dict()}
    for own in said.pop("overrides", ()):
        block = next(b for b in space.blocks if b.start == 0 and own["layer"] in b.layers)
        said |= {dimension_name(block, n): v for n, v in own.items() if n != "layer"}
    return said


def initial_settings(space: Space, *, every_batch: bool) -> tuple[Knobs, ...]:
    """Return the settings that every search tries first, whatever its sampler.

    Args:
        space: of the knobs.
        every_batch: also the heuristic at every number of samples, which was measured to find its
            best one: by another objective than latency another may be the best.
    """
    batches = [{}, *_each(space, "batches_per_cluster")] if every_batch else []
    points = np.concatenate([_points(space, batches), placed(space)])
    return tuple(dict.fromkeys(space.knobs_of(point) for point in points.tolist()))


def openings(space: Space) -> Genes:
    """Points to begin with: starts, the heuristic at every number of samples, cluster splits.

    A baseline scheduler may choose the number of samples as well, so the search starts no worse.
    """
    batches = _each(space, "batches_per_cluster")
    starts = _each(space, START)
    freed = [{**start, **more} for start in starts[:1] for more in FREED]
    splits = _each(space, "cluster_split")
    return _points(space, [*batches, *starts, *freed, *splits])


def probes(space: Space, best: Genes) -> Genes:
    """One point with one choice changed: what often matters, samples at once, start."""
    changes: list[dict[str, Any]] = [{name: value} for name, value in PROBED]
    changes += _each(space, "batches_per_cluster") + _each(space, START)
    return _points(space, changes, best)


def single_changes(space: Space, base: Genes) -> Genes:
    """A point with one choice of the model's changed, for every choice that there is."""
    owned = {dimension_name(block, field) for block in space.blocks for field in block.choices}
    names = [d.name for d in space.dimensions if d.name not in owned]
    return _points(space, [change for name in names for change in _each(space, name)], base)


def _each(space: Space, name: str) -> list[dict[str, Any]]:
    """Every choice of a dimension besides the first."""
    return [{name: c} for d in space.dimensions if d.name == name for c in d.choices[1:]]


def _points(
    space: Space, settings: Iterable[Mapping[str, Any]], base: Genes | None = None
) -> Genes:
    """A point with some choices changed, for each that a space has."""
    where = {d.name: (index, d.choices) for index, d in enumerate(space.dimensions)}
    start = np.zeros(len(where), np.int64) if base is None else base
    rows = []
    for setting in settings:
        if all(n in where and v in where[n][1] for n, v in setting.items()):
            row = start.copy()
            for name, value in setting.items():
                row[where[name][0]] = where[name][1].index(value)
            rows.append(row)
    found = np.asarray(rows, np.int64).reshape(len(rows), len(where))
    return space.normal(found)
