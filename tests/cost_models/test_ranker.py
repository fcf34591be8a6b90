from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from autoturbo.cost_models.batch import BatchFeatures
from autoturbo.cost_models.contract import Kernels
from autoturbo.cost_models.model import FEWEST, KernelTrees
from autoturbo.cost_models.pretrained import standard
from autoturbo.cost_models.ranker import Ranker, prior_of
from autoturbo.datasets import workloads
from autoturbo.graph.onnx_import import import_model
from autoturbo.hardware import load_target
from autoturbo.schedule.knobs import Knobs, SubGraphKnobs
from autoturbo.schedule.work import Floats
from autoturbo.simulator.contract import PlanStatistics
from autoturbo.simulator.evaluator import Evaluator
from autoturbo.simulator.measurement import Failure, LowerBound, Measurement, Outcome
from autoturbo.simulator.plan import KernelStatistics

TARGET = np.zeros(3, np.float32)


@dataclass
class Plans:
    """Two kernels whose work grows with the tile divisor; depth 16 has no plan."""

    asked: list[str] = field(default_factory=list)
    telling: bool = True

    def evaluate(self, knobs: Knobs) -> Outcome:
        if knobs.prefetch_depth == 2:
            return Failure("LB", "full")
        times = self.times(knobs)
        bound = LowerBound(1e-9, 0, 0)
        told = times if self.telling else ()
        return Measurement(
            sum(times), 1, 1, 1, 0.1, 0.1, 1, 1, 2, bound, subgraph_times=tuple(told)
        )

    def times(self, knobs: Knobs) -> list[float]:
        depth = 1 if knobs.tile_subdivision == "auto" else int(knobs.tile_subdivision)
        return [1e-3 * depth, 2e-3 / depth**0.5]

    def statistics(self, knobs: Knobs) -> PlanStatistics | None:
        self.asked.append(knobs.canonical())
        if knobs.prefetch_depth == 16:
            return None
        return PlanStatistics(np.asarray([[1.0, 2.0], [3.0, 4.0]]), np.ones(2, np.int64))


def ranker(plans: Plans) -> Ranker:
    return Ranker(plans, TARGET, 1)


def settings(count: int) -> list[Knobs]:
    return [Knobs(tile_subdivision=n) for n in range(2, 2 + count)]


def taught(plans: Plans, tried: Sequence[Knobs]) -> Ranker:
    found = ranker(plans)
    for knobs in tried:
        found.observe(knobs, plans.evaluate(knobs))
    return found


def test_it_says_what_is_missing_until_it_knows_enough() -> None:
    plans = Plans()
    found = taught(plans, settings(FEWEST - 1))
    assert found.obstacle == f"{FEWEST - 1} of {FEWEST} measured settings that a cost model needs"
    assert found.rank(settings(2)) is None
    assert taught(plans, settings(FEWEST)).obstacle is None
    assert taught(plans, settings(FEWEST)).rank(settings(2)) is not None


def test_failures_do_not_count_as_measured() -> None:
    plans = Plans()
    failed = [Knobs(prefetch_depth=2, tile_subdivision=n) for n in range(2, 20)]
    assert taught(plans, failed).obstacle is not None


def test_it_ranks_as_the_truth_does() -> None:
    plans = Plans()
    found = taught(plans, settings(40))
    fresh = [Knobs(tile_subdivision=n, binding="always") for n in (3, 10, 20, 39)]
    scores = found.rank(fresh)
    assert scores is not None
    assert np.argsort(scores).tolist() == [0, 1, 2, 3]
    assert found.screened == 4


@pytest.mark.full
def test_seconds_are_what_it_ranks_by_without_the_chance_of_failing() -> None:
    plans = Plans()
    fresh = [Knobs(tile_subdivision=n, binding="always") for n in (3, 10)]
    assert taught(plans, settings(2)).seconds(fresh) is None
    found = taught(plans, settings(40))
    ranked, seconds = found.rank(fresh), found.seconds([*fresh, Knobs(prefetch_depth=16)])
    assert ranked is not None
    assert seconds is not None
    assert np.log(seconds[:2]) == pytest.approx(ranked)
    assert seconds[:2] == pytest.approx([sum(plans.times(k)) for k in fresh], rel=0.2)
    assert np.isinf(seconds[2])


def test_what_fails_comes_after_what_does_not() -> None:
    plans = Plans()
    failed = [Knobs(prefetch_depth=2, tile_subdivision=n) for n in range(2, 20)]
    found = taught(plans, [*settings(18), *failed])
    scores = found.rank([Knobs(tile_subdivision=30, prefetch_depth=2), Knobs(tile_subdivision=30)])
    assert scores is not None
    assert scores[0] > scores[1]


def test_a_setting_without_a_plan_comes_last() -> None:
    plans = Plans()
    found = taught(plans, settings(10))
    scores = found.rank([Knobs(prefetch_depth=16), Knobs()])
    assert scores is not None
    assert np.isinf(scores[0])
    assert np.isfinite(scores[1])


@pytest.mark.parametrize("reason", ["worker", "invalid"])
def test_broken_machinery_teaches_nothing(reason: str) -> None:
    found = ranker(Plans())
    found.observe(Knobs(), Failure(reason, "gone"))
    assert found.examples == []


def test_an_evaluator_without_plans_is_told_so() -> None:
    text = "the evaluator gives no statistics of kernels"
    assert taught(Plans(), [Knobs(prefetch_depth=16)]).obstacle == text


def test_latencies_alone_are_enough_to_rank() -> None:
    plans = Plans(telling=False)
    ranked = taught(plans, settings(40)).rank(settings(60))
    assert ranked is not None
    outcomes = [plans.evaluate(knobs) for knobs in settings(60)]
    truth = [o.latency if isinstance(o, Measurement) else np.inf for o in outcomes]
    fits = np.flatnonzero(np.isfinite(truth))
    assert np.corrcoef(ranked[fits], np.log(np.asarray(truth)[fits]))[0, 1] > 0.95


@pytest.mark.parametrize("unit", [1.0, 1e12])
def test_other_figures_are_learned_from_their_sums(unit: float) -> None:
    """Energy that grows where the latency falls: no model of the latency ranks it."""
    plans = Plans()

    def energy(outcome: Measurement) -> float | None:
        return unit / outcome.subgraph_times[0]

    by_energy = ranker(plans).by(energy)
    for knobs in settings(40):
        by_energy.observe(knobs, plans.evaluate(knobs))
    ranked, told = by_energy.rank(settings(60)), taught(plans, settings(40)).rank(settings(60))
    assert ranked is not None
    assert told is not None
    truth = [
        np.log(energy(o) or 1.0) if isinstance(o := plans.evaluate(k), Measurement) else np.inf
        for k in settings(60)
    ]
    fits = np.flatnonzero(np.isfinite(truth))
    assert np.corrcoef(ranked[fits], np.asarray(truth)[fits])[0, 1] > 0.9
    assert np.corrcoef(told[fits], np.asarray(truth)[fits])[0, 1] < 0
    assert by_energy.least == pytest.approx(
        float(np.log([e.total for e in by_energy.examples]).min())
    )


def test_a_figure_that_nothing_says_teaches_nothing() -> None:
    plans = Plans()
    silent = ranker(plans).by(lambda outcome: outcome.energy)
    for knobs in settings(20):
        silent.observe(knobs, plans.evaluate(knobs))
    assert silent.examples == []
    assert silent.least == 0
    assert silent.rank(settings(2)) is None


def test_noise_is_averaged_over_what_candidates_share() -> None:
    chance, plans = np.random.default_rng(0), Plans(telling=False)
    found = ranker(plans)
    tried = settings(5) * 8
    noisy = []
    for knobs in tried:
        outcome = plans.evaluate(knobs)
        assert isinstance(outcome, Measurement)
        noisy.append(outcome.latency * float(np.exp(chance.normal(0, 0.05))))
        found.observe(knobs, dataclasses.replace(outcome, latency=noisy[-1], noise=0.05))
    smoothed, truth = found.smoothed(tried), np.log([sum(plans.times(knobs)) for knobs in tried])
    assert smoothed is not None
    assert np.std(np.log(smoothed) - truth) < 0.6 * np.std(np.log(noisy) - truth)
    assert taught(plans, tried).smoothed(tried) is None  # these do not vary


def test_answers_depend_on_outcomes_and_not_on_questions() -> None:
    plans = Plans()
    curious, quiet = ranker(plans), ranker(plans)
    for knobs in settings(40):
        curious.rank(settings(3))
        curious.observe(knobs, plans.evaluate(knobs))
        quiet.observe(knobs, plans.evaluate(knobs))
    first, second = curious.rank(settings(60)), quiet.rank(settings(60))
    assert first is not None
    assert second is not None
    assert first.tobytes() == second.tobytes()


@pytest.mark.full
def test_plans_are_asked_for_once() -> None:
    plans = Plans()
    found = taught(plans, settings(10))
    found.rank(settings(10))
    assert len(plans.asked) == 10


@dataclass
class OwnPlans(Plans):
    """The first kernel takes as long as the tiles of its own sub-graph say."""

    def times(self, knobs: Knobs) -> list[float]:
        own = [o.tile_subdivision for o in knobs.overrides if o.layer == "a"]
        return [1e-3 * float(own[0] if own else 1), 2e-3]

    def statistics(self, knobs: Knobs) -> PlanStatistics | None:
        plan = super().statistics(knobs)
        return plan and dataclasses.replace(plan, overrides=dict(enumerate(knobs.overrides)))


def test_it_learns_what_the_knobs_of_one_sub_graph_do() -> None:
    def own(divisor: int, **more: Any) -> Knobs:
        return Knobs(overrides=(SubGraphKnobs("a", tile_subdivision=divisor),), **more)

    found = taught(OwnPlans(), [own(n) for n in range(2, 42)])
    scores = found.rank([own(n, prefetch_depth=3) for n in (40, 3, 20, 10)])
    assert scores is not None
    assert np.argsort(scores).tolist() == [1, 3, 2, 0]


def with_prior(evaluator: Evaluator) -> Ranker:
    return Ranker(evaluator, TARGET, 1, prior=prior_of(evaluator))


def squeezenet() -> Evaluator:
    target = load_target("mlu100")  # no target of the data set
    return Evaluator(import_model(workloads.get("squeezenet1_1").file), target, "float16")


class Unsure(KernelTrees):
    """It expects what ours does, and says that it may be off by a half."""

    def predict(self, kernels: Kernels) -> tuple[Floats, Floats]:
        logarithms, _ = super().predict(kernels)
        return logarithms, np.full(len(logarithms), 0.5)


def test_how_sure_a_model_is_says_how_low_a_candidate_may_be() -> None:
    evaluator = squeezenet()
    ours, unsure = with_prior(evaluator), dataclasses.replace(with_prior(evaluator), make=Unsure)
    for found in (ours, unsure):
        for knobs in DEPTHS[:FEWEST]:
            found.observe(knobs, evaluator.evaluate(knobs))
    expected, seen = ours.look(DEPTHS), unsure.look(DEPTHS)
    assert expected is not None
    assert seen is not None
    assert seen.expected == pytest.approx(expected.expected)
    assert seen.optimistic == pytest.approx(seen.expected - 0.5)
    assert expected.optimistic[0] == pytest.approx(expected.expected[0])  # it was measured


DEPTHS = [Knobs(prefetch_depth=n, max_layers=m) for n in (2, 4, 8) for m in (1, 2, 4, 8)]


def test_with_a_prior_it_ranks_at_once_as_the_pretrained_model_does() -> None:
    evaluator = squeezenet()
    found = with_prior(evaluator)
    scores = found.rank(DEPTHS)
    assert found.obstacle is None
    assert scores is not None
    known = BatchFeatures(KernelStatistics(evaluator.model_scheduler), standard(), TARGET, 1)
    said = known.seconds(DEPTHS)
    assert scores == pytest.approx(np.log(said))


def test_with_a_prior_it_learns_what_the_prior_does_not_know() -> None:
    evaluator = squeezenet()
    found = with_prior(evaluator)
    real = [evaluator.evaluate(knobs) for knobs in DEPTHS]
    before = found.rank(DEPTHS)
    for knobs, outcome in zip(DEPTHS, real, strict=True):
        found.observe(knobs, outcome)
    after = found.rank(DEPTHS)
    assert before is not None
    assert after is not None
    there = [at for at, outcome in enumerate(real) if isinstance(outcome, Measurement)]
    truth = np.log([o.latency for o in real if isinstance(o, Measurement)])
    assert len(there) >= FEWEST
    assert np.abs(after[there] - truth).mean() < 0.5 * np.abs(before[there] - truth).mean()


@pytest.mark.full
def test_an_evaluator_that_tells_nothing_of_kernels_alone_has_no_prior() -> None:
    assert prior_of(Plans()) is None
