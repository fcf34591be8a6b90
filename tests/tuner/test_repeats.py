"""Searches repeated with other seeds."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

import pytest

from autoturbo.config import ExecutionConfig, TuneConfig
from autoturbo.database import Database
from autoturbo.errors import AutoTurboError, InfeasibleError, UsageError
from autoturbo.graph.operators import Graph
from autoturbo.hardware import load_target
from autoturbo.hardware.target import Target
from autoturbo.statistics import mean_interval
from autoturbo.tuning.repeated_searches import Spread
from autoturbo.tuning.result import TuneResult, best_of
from autoturbo.tuning.tuner import Pair, tune, tune_all, tune_repeatedly
from tests.search.search_doubles import Landscape, WalledIn, toy_graph


def land_of(graph: Graph, target: Target, dtype: str) -> Landscape:
    """Nothing fits the last target."""
    del graph, dtype
    return WalledIn() if target.name == "tpu-v4i" else Landscape()


def execution(folder: Path, name: str = "a") -> ExecutionConfig:
    return ExecutionConfig(
        evaluator=land_of, database=folder / f"{name}.db", runs_folder=folder / f"{name}-runs"
    )


CONFIG = TuneConfig(trials=12, baselines=(), sampler="random", seed=4)


def pair(target: str = "stcp920") -> Pair:
    return Pair(toy_graph(), load_target(target))


def results(ended: list[TuneResult | AutoTurboError]) -> list[TuneResult]:
    return [one for one in ended if isinstance(one, TuneResult)]


def test_each_seed_is_a_run_of_its_own_as_if_it_were_alone(tmp_path: Path) -> None:
    (best,) = results(tune_repeatedly([pair()], CONFIG, execution(tmp_path), seeds=3))
    alone = [
        results(
            tune_all(
                [pair()], dataclasses.replace(CONFIG, seed=seed), execution(tmp_path, f"{seed}")
            )
        )[0]
        for seed in (4, 5, 6)
    ]
    assert best.repeats is not None
    assert best.repeats.seeds == (4, 5, 6)
    assert best.repeats.runs == tuple(one.run for one in alone)
    latencies = [one.best.measurement.latency for one in alone]
    assert best.repeats.latencies == tuple(latencies)
    assert len(set(latencies)) > 1
    assert best.best.measurement.latency == min(latencies)
    assert best.run == alone[latencies.index(min(latencies))].run
    assert best.repeats.gains == tuple(one.info.gain() for one in alone)
    with Database.open(tmp_path / "a.db") as store:
        assert {info.id for info in store.runs()} == {one.run for one in alone}


def test_the_best_is_that_of_the_objective(tmp_path: Path) -> None:
    config = dataclasses.replace(CONFIG, objective="ddr-bytes")
    (best,) = results(tune_repeatedly([pair()], config, execution(tmp_path), seeds=3))
    alone = results(
        tune_all(
            [dataclasses.replace(pair(), seed=seed) for seed in (4, 5, 6)],
            config,
            execution(tmp_path, "b"),
        )
    )
    assert best.best.measurement.ddr_bytes == min(o.best.measurement.ddr_bytes for o in alone)


def test_several_pairs_have_a_best_each_or_a_reason(tmp_path: Path) -> None:
    pairs = [pair("goya"), pair("tpu-v4i")]
    found, reason = tune_repeatedly(pairs, CONFIG, execution(tmp_path), seeds=2)
    assert isinstance(found, TuneResult)
    assert found.repeats is not None
    assert found.repeats.seeds == (4, 5)
    assert isinstance(reason, InfeasibleError)


def test_one_seed_is_no_repetition(tmp_path: Path) -> None:
    (one,) = results(tune_repeatedly([pair()], CONFIG, execution(tmp_path), seeds=1))
    assert one.repeats is None


def test_what_was_interrupted_is_handed_on_to_be_resumed(tmp_path: Path) -> None:
    ended = tune_all(
        [dataclasses.replace(pair(), seed=s) for s in (0, 1)], CONFIG, execution(tmp_path)
    )
    first, second = results(ended)
    stopped = dataclasses.replace(second, state="interrupted")
    assert best_of([first, stopped]) == [first, stopped]


def test_python_gets_the_best_and_what_all_found(tmp_path: Path) -> None:
    asked: dict[str, Any] = {
        "trials": 8, "baselines": (), "sampler": "random", "evaluator": land_of,
        "database": tmp_path / "a.db", "runs_folder": tmp_path / "runs",
    }  # fmt: skip
    best = tune(toy_graph(), load_target("stcp920"), seeds=3, **asked)
    assert best.repeats is not None
    assert best.best.measurement.latency == min(best.repeats.latencies)
    with pytest.raises(UsageError, match="seeds: 0"):
        tune(toy_graph(), load_target("stcp920"), seeds=0, **asked)
    with pytest.raises(UsageError, match="seeds"):
        tune(toy_graph(), "host", seeds=2)


def test_a_spread_is_a_mean_of_ratios_with_students_interval() -> None:
    found = Spread.of([1.0, 2.0, 4.0])
    assert found.mean == pytest.approx(2.0)
    assert found.low * found.high == pytest.approx(4.0)
    assert math.log(found.low) == pytest.approx(mean_interval([0.0, math.log(2), math.log(4)])[0])
    two = Spread.of([1.0, 4.0])
    assert (two.low, two.high) == (0.0, math.inf)
    assert two.mean == pytest.approx(2.0)
