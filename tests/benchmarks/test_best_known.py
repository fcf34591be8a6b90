"""The yardstick of searches: descents with the simulator, and the schedules that are kept."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from best_known import best_of, checked, keep
from search_quality import (
    KNOWN,
    Pair,
    known_schedules,
)

from autoturbo.datasets import workloads
from autoturbo.schedule.knobs import Knobs
from tests.tiers import tiered

PAIR = "squeezenet1_1@stcp920"


@pytest.fixture(scope="module")
def pair() -> Pair:
    return Pair.of(*PAIR.split("@"))


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
