"""Rules that fall into the bounds of others group as if nothing were known."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from autoturbo.schedule.group import GroupRules, group, group_rows, rules_table, subgraph_of
from autoturbo.schedule.knobs import Knobs, SubGraphKnobs
from autoturbo.schedule.layer_sets import Bound, ask, ask_anew, asked_of
from autoturbo.schedule.merging import Merger
from autoturbo.schedule.pipeline import Workbench
from autoturbo.schedule.problem import Problem
from tests.schedule.plain_merging import plainly_grouped
from tests.schedule.schedule_samples import STCP920, workload

VALUES: dict[str, tuple[Any, ...]] = {
    "producer_factor_ratio": (0, 0.25, 0.5, 1, 2, 0.7),
    "merged_factor_ratio": (0, 0.5, 1, 2, 4, 1.3),
    "recompute_limit": (1, 1.25, 1.5, 4, 1.7),
    "max_layers": (1, 2, 4, 7, 16, 500),
    "lb_fill": (0.25, 1),
    "split_key": ("ofd", "fod", "dof", "odf"),
    "factor_policy": ("published", "divisors", "ragged"),
    "merge_order": ("sdb", "dbs"),
    "split_dims": ("all", "spatial"),
}


def rules_near_each_other(names: list[str], count: int) -> list[GroupRules]:
    """Each differs from one before it in a knob or a boundary or two."""
    rng = np.random.default_rng(0)
    found = [Knobs()]
    while len(found) < count:
        knobs = found[rng.integers(len(found))]
        for _ in range(rng.integers(1, 3)):
            if rng.random() < 0.4:
                layer, said = str(rng.choice(names)), str(rng.choice(["cut", "merge"]))
                kept = [own for own in knobs.overrides if own.layer != layer][-4:]
                overrides = (*kept, SubGraphKnobs(layer, boundary=said))
                knobs = dataclasses.replace(knobs, overrides=overrides)
            else:
                name = str(rng.choice(list(VALUES)))
                value = VALUES[name][rng.integers(len(VALUES[name]))]
                knobs = dataclasses.replace(knobs, **{name: value})
        found.append(knobs)
    return [GroupRules.of(knobs) for knobs in found]


def fresh(name: str) -> Problem:
    """Two samples of a bundled workload; nothing is known of it."""
    return Workbench(workload(name), STCP920, "float16").problem(2)


def merger_of(problem: Problem) -> Merger:
    """What groups a problem's layers."""
    found = problem.memory["merger"]
    assert isinstance(found, Merger)
    return found


@pytest.mark.full
def test_rules_near_each_other_group_as_printed() -> None:
    problem = fresh("resnet50")
    every = rules_near_each_other([layer.name for layer in problem.layers], 400)
    rows, counts = group_rows(problem, rules_table(problem, every))
    ends = np.cumsum(counts).tolist()
    for at in range(0, len(every), 16):
        own = rows[ends[at] - counts[at] : ends[at]].tolist()
        found = tuple(subgraph_of(problem, index, row) for index, row in enumerate(own))
        assert found == plainly_grouped(problem, every[at])


@pytest.mark.full
def test_all_are_forgotten_where_there_is_no_more_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autoturbo.schedule.known_groupings.GROUPINGS", 8)
    problem, other = fresh("resnet50"), fresh("resnet50")
    every = rules_near_each_other([layer.name for layer in problem.layers], 100)
    rows, counts = group_rows(problem, rules_table(problem, every))
    assert 1 <= merger_of(problem)._groupings.known[0] <= 8
    subgraphs = [group(other, rules) for rules in every]
    assert counts.tolist() == [len(own) for own in subgraphs]
    expected = [(own.layers, own.split.axes) for each in subgraphs for own in each]
    found = [subgraph_of(problem, 0, row) for row in rows.tolist()]
    assert [(own.layers, own.split.axes) for own in found] == expected


@pytest.mark.full
@pytest.mark.parametrize(("value", "low", "high"), [(1, -np.inf, 2), (2 + 1e-12, 2, 2)])
def test_bounds_are_on_the_side_of_the_threshold_where_the_number_is(
    value: float, low: float, high: float
) -> None:
    asked = asked_of(1)
    ask_anew(asked)
    ask(asked, Bound.MERGED, value, 2)
    found = asked.lows[Bound.MERGED], asked.highs[Bound.MERGED]
    assert found == pytest.approx((low, high), rel=1e-8)
    assert found[0] <= value <= found[1]
    assert np.isinf(asked.lows[Bound.LIMIT]), "nothing else was asked"
