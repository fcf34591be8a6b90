"""Constants that are handed in are the ones that count, and None leaves a mechanism out."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import optuna
import pytest

from autoturbo.cost_models.predictions import Prediction
from autoturbo.registry import COST_MODEL
from autoturbo.search.constants import SEARCH, PlainStudies, SearchConstants
from autoturbo.search.encoding import Genes
from autoturbo.search.evolution import Advice, fresh_points, propose
from autoturbo.search.executors import InProcessExecutor
from autoturbo.search.loop import SearchLoop
from autoturbo.search.samplers import CostModelSampler
from autoturbo.search.selection.racing import race
from autoturbo.search.surrogates.surrogate import ScoredCandidate
from autoturbo.search.warm_starts.beginning import decisions_for
from autoturbo.search.warm_starts.starts import placing_seconds, starts_of
from autoturbo.search.warm_starts.transfer import transfer
from autoturbo.simulator.evaluator import Evaluator
from autoturbo.tuning.campaign import Campaign
from tests.schedule.schedule_samples import block as residual_block
from tests.search.search_doubles import Landscape
from tests.search.space_samples import started_space
from tests.search.test_campaign import Memory, search_of
from tests.search.test_starts import machine


def watched(read: set[str]) -> SearchConstants:
    """Constants with the usual values that note which of them are read."""

    def noting(mechanism: str, record: Any) -> Any:
        names = {field.name for field in dataclasses.fields(record)}

        def read_one(self: object, name: str) -> object:
            if name in names:
                read.add(f"{mechanism}.{name}")
            return object.__getattribute__(self, name)

        kind: Any = type("Noting", (type(record),), {"__getattribute__": read_one})
        return kind(**dataclasses.asdict(record))

    records = {field.name: getattr(SEARCH, field.name) for field in dataclasses.fields(SEARCH)}
    return SearchConstants(**{name: noting(name, record) for name, record in records.items()})


def names_of(*mechanisms: str) -> set[str]:
    return {
        f"{mechanism}.{field.name}"
        for mechanism in mechanisms
        for field in dataclasses.fields(getattr(SEARCH, mechanism))
    }


def proposed(
    constants: SearchConstants, tried: int, *, advised: bool = True
) -> list[tuple[int, ...]]:
    """A round in a space of sub-graphs and starts, after some trials."""
    space = started_space()
    points = space.distinct(space.random(np.random.default_rng(1), 400))[:tried]
    history = [ScoredCandidate(tuple(p), 1.0 + sum(p) / 100) for p in points.tolist()]
    history += [ScoredCandidate(tuple(p), None) for p in points[:1].tolist()]

    def rank(genes: Genes) -> np.ndarray[Any, np.dtype[np.float64]]:
        return np.asarray(genes.sum(axis=1) / 100.0, np.float64)

    advice = Advice(rank, lambda genes: Prediction.plain(genes, rank(genes))) if advised else None
    return propose(
        space, np.random.default_rng(2), history, set(), count=16, advice=advice,
        constants=constants,
    )  # fmt: skip


def test_a_round_goes_by_the_constants_that_it_is_handed() -> None:
    read = set[str]()
    for tried, advised in ((0, True), (40, True), (40, False)):
        mine, ours = (proposed(c, tried, advised=advised) for c in (watched(read), SEARCH))
        assert mine == ours
    space, draws = started_space(), watched(read).draws
    points = fresh_points(space, np.random.default_rng(0), set(), 8, draws)
    assert points == fresh_points(space, np.random.default_rng(0), set(), 8)
    assert read == names_of("evolution", "screening", "choice_model", "draws")


def test_searches_go_by_the_constants_that_they_are_handed() -> None:
    read = set[str]()
    executor, loops = InProcessExecutor(), list[SearchLoop]()
    for seed, climbs in enumerate((32, 0)):
        search = dataclasses.replace(
            search_of(seed, 32), sampler=COST_MODEL, climbs=climbs, constants=watched(read)
        )
        executor.introduce(search.run, Landscape, Landscape(seed))
        loops.append(SearchLoop(search, Memory()))
    Campaign(loops, executor).run()
    unread = {"rounds.round_trials", "climbing.climbs", "climbing.climbing_trials"}
    unread |= {"rounds.objective_weights_trials", "rounds.hopeless_trials"}
    known = names_of("rounds", "allocation", "climbing", "reversions") - unread
    assert known <= read


def test_a_plain_study_goes_by_the_constants_that_it_is_handed() -> None:
    read = set[str]()

    def ran(constants: SearchConstants) -> list[dict[str, Any]]:
        study = optuna.create_study(sampler=CostModelSampler(0, constants=constants))
        study.optimize(lambda trial: trial.suggest_float("x", -1, 1) ** 2, 12)
        return [trial.params for trial in study.trials]

    assert ran(watched(read)) == ran(SEARCH)
    assert names_of("plain_studies") <= read
    fewer = dataclasses.replace(SEARCH, plain_studies=PlainStudies(float_levels=2))
    assert ran(fewer) != ran(SEARCH)


def test_a_race_goes_by_the_constants_that_it_is_handed() -> None:
    read, seconds = set[str](), {0: 2.0, 1: 1.5, 2: 1.6}
    entrants = {1: 1.5, 2: 1.6}
    assert race(seconds.get, entrants, 0, racing=watched(read).racing) == race(
        seconds.get, entrants, 0
    )
    assert read == names_of("racing")


def test_starts_go_by_the_constants_that_they_are_handed() -> None:
    read = set[str]()
    evaluator = Evaluator(residual_block(), machine(), "float16")
    constants = watched(read)
    assert starts_of(evaluator, constants.starts) == starts_of(evaluator)
    assert {"starts.most", "starts.sets", "starts.slack", "starts.waiting_parts"} <= read


def test_without_its_record_a_mechanism_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object, **__: object) -> None:
        pytest.fail("it was left out")

    for name in ("together", "begun"):
        monkeypatch.setattr(f"autoturbo.search.evolution.{name}", refused)
    without = dataclasses.replace(SEARCH, screening=None)
    assert all(len(set(proposed(without, tried))) == 16 for tried in (0, 40))
    model_scheduler = Evaluator(residual_block(), machine(), "float16").model_scheduler
    assert placing_seconds(model_scheduler, None) == 0
    known: Any = [refused]
    assert transfer(model_scheduler, known, None) is None
    nothing: Any = None
    assert decisions_for(nothing, nothing, nothing, None) == ((), ())
