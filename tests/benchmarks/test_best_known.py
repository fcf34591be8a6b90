"""The yardstick of searches: descents with the simulator, and the schedules that are kept."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from best_known import AT_ONCE, Measured, best_of, checked, climbed, keep, places
from search_quality import (
    KNOWN,
    Pair,
    best_known,
    known_schedules,
)

from autoturbo.datasets import workloads
from autoturbo.schedule.knobs import Knobs
from autoturbo.search.encoding import Genes
from autoturbo.search.space import Space
from tests.tiers import tiered

PAIR = "squeezenet1_1@stcp920"


@pytest.fixture(scope="module")
def pair() -> Pair:
    return Pair.of(*PAIR.split("@"))


def hilly(space: Space) -> Measured:
    """A landscape on which dimensions depend on each other."""
    rng = np.random.default_rng(0)
    own = rng.normal(size=(len(space.dimensions), int(space.widths.max())))
    two = rng.normal(size=len(space.dimensions))

    def seconds(point: Genes) -> float:
        alone = own[np.arange(len(point)), point].sum()
        return float(1e3 + alone + np.sin(3.0 * point @ two))

    return Measured(seconds)


def test_a_climb_gains_and_measures_around_its_end(pair: Pair) -> None:
    space = pair.space("cost-model")
    measured, base = hilly(space), np.zeros(len(space.dimensions), np.int64)
    end = climbed(space, [base], measured, 2000)
    least = measured(end[None])[0]
    assert least < measured(base[None])[0]
    assert least == min(measured.known.values())


def test_nothing_is_measured_twice_and_a_climb_stops_at_its_limit(pair: Pair) -> None:
    space = pair.space("cost-model")
    asked: list[bytes] = []
    landscape = hilly(space)

    def seconds(point: Genes) -> float:
        asked.append(point.tobytes())
        return landscape.seconds(point)

    climbed(space, [np.zeros(len(space.dimensions), np.int64)], Measured(seconds), 100)
    assert len(asked) == len(set(asked))
    assert 100 <= len(asked) <= 100 + AT_ONCE  # a round that was begun is ended


def test_places_are_every_start_at_every_number_of_samples_the_fastest_first(pair: Pair) -> None:
    space = pair.space("cost-model")
    measured = hilly(space)
    found = places(space, measured, 100)
    batches = len(next(d for d in space.dimensions if d.name == "batches_per_cluster").choices)
    starts = [len(d.choices) for d in space.dimensions if d.name == "start"]
    assert len(found) == batches * (starts or [1])[0]
    assert measured(np.asarray(found)).tolist() == sorted(measured(np.asarray(found)).tolist())


@pytest.mark.full
def test_what_is_kept_is_the_fastest_and_its_setting_gives_it(pair: Pair, tmp_path: Path) -> None:
    file = tmp_path / "known.json"
    keep(file, PAIR, 1.0, Knobs())
    seconds, knobs = best_of(pair, None, [], 1, 300)
    keep(file, PAIR, seconds, knobs)
    assert known_schedules(file) == {PAIR: {"seconds": seconds, "knobs": knobs.as_dict()}}
    assert list(checked(file, [PAIR])) == [(PAIR, seconds, seconds)]
    heuristic = pair.evaluator.evaluate(Knobs())
    assert seconds < heuristic.latency  # type: ignore[union-attr]
    assert best_of(pair, knobs, [], 1, 1)[0] <= seconds  # goes on from there


def test_gaps_are_to_what_is_known(tmp_path: Path) -> None:
    results = {"runs": {PAIR: {"random/0": [2.0, 1.0]}}, "exact": {}, "notes": {}}
    assert best_known(results, PAIR) == 1.0
    assert best_known(results | {"known": {PAIR: {"seconds": 0.5}}}, PAIR) == 0.5
    assert known_schedules(tmp_path / "none.json") == {}


def test_the_repository_keeps_a_schedule_of_each_of_the_papers_pairs() -> None:
    found = json.loads(KNOWN.read_text())
    targets = ("stcp920", "ipu-mk2", "mlu100")
    assert set(found) == {f"{m}@{t}" for m in workloads.PAPER_TEN for t in targets}


@pytest.mark.parametrize(
    "name",
    tiered(["dlrm@stcp920"], ["bert_base_s128@stcp920", "vit_b16@mlu100", "mobilenet_v2@ipu-mk2"]),
)
def test_settings_of_the_repository_give_what_it_says(name: str) -> None:
    (_, said, took), *_ = checked(KNOWN, [name])
    assert took == pytest.approx(said, rel=1e-12)
