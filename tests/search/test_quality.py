"""How good searches are, on landscapes whose best is known or that cost nothing."""

from __future__ import annotations

import dataclasses
import functools
from typing import Protocol

import numpy as np
import pytest

from autoturbo.cost_models.features import target_vector
from autoturbo.cost_models.ranker import Ranker
from autoturbo.graph.operators import Graph
from autoturbo.hardware.target import Target
from autoturbo.schedule.knobs import Knobs
from autoturbo.schedule.pipeline import ModelScheduler
from autoturbo.search import make_sampler
from autoturbo.search.objectives import find_objectives
from autoturbo.search.space import Space, batch_share
from autoturbo.search.study import StudyProposer
from autoturbo.simulator.evaluator import Evaluator
from autoturbo.simulator.measurement import Measurement, Outcome
from tests.schedule.schedule_samples import chain
from tests.schedule.schedule_samples import target as machine_of
from tests.search.exhaustive_search import ExactAnswer, restricted, search_all
from tests.search.search_doubles import Landscape, measurement, toy_space

pytestmark = pytest.mark.full

LATENCY = find_objectives("latency")
ROUND = 16
SEEDS = range(4)


class Measures(Protocol):
    def evaluate(self, knobs: Knobs) -> Outcome: ...


def searched(
    name: str,
    seed: int,
    space: Space,
    measurer: Measures,
    trials: int,
    ranker: Ranker | None = None,
) -> list[tuple[Knobs, float]]:
    """A search as a tuning run makes it: what was measured, the published heuristic first."""
    choice = make_sampler(
        name, seed, space, batch=ROUND, rankers=() if ranker is None else (ranker,)
    )
    proposer, found = StudyProposer(choice, space, LATENCY, seed), list[tuple[Knobs, float]]()
    batch = [Knobs()]
    for _ in range(-(-(trials - 1) // ROUND) + 1):
        for knobs in batch:
            outcome = measurer.evaluate(knobs)
            proposer.tell(knobs, outcome)
            seconds = outcome.latency if isinstance(outcome, Measurement) else np.inf
            found.append((knobs, seconds))
        batch = proposer.ask(ROUND)
    return found[:trials]


def least(found: list[tuple[Knobs, float]]) -> float:
    return min(seconds for _, seconds in found)


# A chain of six layers, eight dimensions, 11,664 points of which 1,368 are different schedules.


@functools.cache
def small_chain() -> tuple[Graph, Target, Space]:
    graph = chain("conv", "relu", "conv", "pool", "conv", "relu", shape=(8, 8, 16, 16))
    target = _with_small_tiles(machine_of(clusters=2))
    names = [
        "batches_per_cluster", "max_layers", "instance_multiplier", "output_scope",
        "tile_subdivision",
        "instruction_scheduling", "subgraph:conv0:boundary", "subgraph:conv0:factor",
    ]  # fmt: skip
    space = Space.of(ModelScheduler(graph, target, "float16"), subgraphs=2)
    return graph, target, restricted(space, dict.fromkeys(names))


def _with_small_tiles(whole: Target) -> Target:
    matrix = dataclasses.replace(whole.matrix, rows=4, columns=4, depth=4)
    return dataclasses.replace(whole, matrix=matrix)


@functools.cache
def optimum() -> ExactAnswer:
    graph, target, space = small_chain()
    return search_all(Evaluator(graph, target, "float16"), space)


@functools.cache
def gap(name: str, seed: int, trials: int) -> float:
    """How far above the optimum a search ends, of it."""
    graph, target, space = small_chain()
    evaluator, ranker = Evaluator(graph, target, "float16"), None
    if name == "cost-model":
        vector, share = target_vector(target, "float16"), batch_share(graph, target)
        ranker = Ranker(evaluator, vector, share, seed)
    best = optimum().measurement
    assert best is not None
    return least(searched(name, seed, space, evaluator, trials, ranker)) / best.latency - 1


def test_it_ends_near_the_exact_optimum_of_a_chain() -> None:
    assert optimum().exact
    assert 10_000 < optimum().points <= small_chain()[2].size
    gaps = sorted(gap("cost-model", seed, 64) for seed in SEEDS)
    assert gaps[0] >= 0
    assert sum(found < 0.01 for found in gaps) >= 2
    assert gaps[-1] < 0.2


def test_it_beats_random_search_with_twice_the_trials_on_a_chain() -> None:
    ours = np.median([gap("cost-model", seed, 64) for seed in SEEDS])
    assert ours < np.median([gap("random", seed, 128) for seed in SEEDS]) / 2


class Noisy(Landscape):
    """Every figure is off by some percent, always the same for a setting."""

    def evaluate(self, knobs: Knobs) -> Outcome:
        outcome = super().evaluate(knobs)
        if not isinstance(outcome, Measurement):
            return outcome
        rng = np.random.default_rng(int(knobs.id[:8], 16))
        return measurement(outcome.latency * float(rng.normal(1.0, 0.03)))


def test_noise_and_walls_do_not_mislead_it() -> None:
    """Judged by what the setting that it takes for the best is without the noise."""

    def truth(name: str, seed: int, trials: int) -> float:
        found = searched(name, seed, toy_space(), Noisy(seed % 3), trials)
        outcome = Landscape(seed % 3).evaluate(min(found, key=lambda pair: pair[1])[0])
        assert isinstance(outcome, Measurement)
        return outcome.latency

    ours = [truth("cost-model", seed, 96) for seed in SEEDS]
    theirs = [truth("random", seed, 192) for seed in SEEDS]
    assert np.median(ours) < np.median(theirs)
    assert sum(a < b for a, b in zip(ours, theirs, strict=True)) >= 3
