from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import pytest

from autoturbo.cost_models.booster import Booster
from autoturbo.report.importance import FEWEST, Importance, importance_of
from autoturbo.schedule.knobs import AUTO, Here, Knobs, SubGraphKnobs
from autoturbo.search.encoding import START
from autoturbo.search.objectives import find_objectives
from autoturbo.search.points import Dimension
from autoturbo.search.progress import Trial
from autoturbo.search.space import Space
from autoturbo.simulator.measurement import Failure, Measurement
from tests.search.search_doubles import measurement
from tests.search.space_samples import block, space_of

(LATENCY,) = find_objectives("latency")
SPACE = space_of(
    {
        "instance_multiplier": (2, 4, 8), "prefetch_depth": (2, 3, 4), "tile_subdivision": (2, 4),
        "instance_order": ("bfs", "priority"), "batches_per_cluster": (4, 2, 1),
    },
    block(("conv1", "conv2"), priority=(1, 9), scope=("GB",)),
)  # fmt: skip


def trials_of(
    seconds: Callable[[Knobs], float], count: int = 100, space: Space = SPACE
) -> list[Trial]:
    points = np.unique(space.random(np.random.default_rng(0), 4 * count), axis=0)
    points = np.random.default_rng(1).permutation(points)[:count]
    settings = [space.knobs_of(point) for point in points]
    return [Trial(i, knobs, measurement(seconds(knobs))) for i, knobs in enumerate(settings)]


def shares(found: Importance) -> dict[str, float]:
    assert found.obstacle is None
    return {k.knob: k.share for k in found.knobs if k.share is not None}


def scale(knobs: Knobs) -> float:
    return 1.0 if knobs.instance_multiplier == AUTO else float(knobs.instance_multiplier)


def test_the_knob_that_matters_has_all_of_it() -> None:
    found = importance_of(SPACE, trials_of(scale), LATENCY)
    assert found.explained is not None
    assert found.explained > 0.95
    by_name = shares(found)
    assert by_name.pop("instance_multiplier") > 0.95
    assert max(map(abs, by_name.values())) < 0.02


def test_the_smaller_effect_has_the_smaller_share() -> None:
    """Logarithms of 1 to 8 vary nine times as much as those of 1 to 2."""

    def seconds(knobs: Knobs) -> float:
        return scale(knobs) * (2.0 if knobs.tile_subdivision == 4 else 1.0)

    by_name = shares(importance_of(SPACE, trials_of(seconds, 200), LATENCY))
    logs = np.log([1, 2, 4, 8]).var(), np.log([1, 1, 2]).var()
    assert by_name["instance_multiplier"] == pytest.approx(logs[0] / sum(logs), abs=0.06)
    assert by_name["tile_subdivision"] == pytest.approx(logs[1] / sum(logs), abs=0.06)


def test_an_even_share_of_many_trials_judges_and_all_are_counted() -> None:
    trials = trials_of(scale, 200)
    every, some = (importance_of(SPACE, trials, LATENCY, most=most) for most in (None, 60))
    assert shares(some)["instance_multiplier"] > 0.9
    assert shares(some) != shares(every)
    assert some.measured == every.measured == 200
    assert [k.tried for k in some.knobs] == [k.tried for k in every.knobs]
    assert [k.best for k in some.knobs] == [k.best for k in every.knobs]


def test_a_sub_graph_s_knob_that_matters_now_and_then_is_found() -> None:
    def seconds(knobs: Knobs) -> float:
        return 3.0 if any(o.scope == "GB" for o in knobs.overrides) else 1.0

    found = importance_of(SPACE, trials_of(seconds, 200), LATENCY)
    assert shares(found)["scope"] > 0.9
    assert next(k.layers for k in found.knobs if k.knob == "scope") == ("conv1", "conv2")


def test_chance_is_not_explained() -> None:
    rng = np.random.default_rng(3)
    found = importance_of(SPACE, trials_of(lambda _: float(rng.uniform(1, 2))), LATENCY)
    assert found.explained is not None
    assert found.explained < 0.2
    assert found.obstacle is not None
    assert found.obstacle.startswith("too few trials: they predict ")
    assert {k.share for k in found.knobs} == {None}


def test_noise_lowers_what_is_explained_and_not_the_order() -> None:
    rng = np.random.default_rng(3)
    found = importance_of(
        SPACE, trials_of(lambda k: scale(k) * float(rng.uniform(0.5, 2)), 200), LATENCY
    )
    assert found.explained is not None
    assert 0.3 < found.explained < 0.9
    by_name = shares(found)
    assert max(by_name, key=by_name.__getitem__) == "instance_multiplier"
    assert sum(by_name.values()) < 0.95


@pytest.mark.parametrize(
    ("trials", "obstacle"),
    [
        ([], f"too few trials: 0 measured, at least {FEWEST} are needed"),
        (trials_of(scale, 29), f"too few trials: 29 measured, at least {FEWEST} are needed"),
        (trials_of(lambda _: 2.0, 60), "all trials measured the same"),
    ],
)
def test_what_cannot_be_told(trials: list[Trial], obstacle: str) -> None:
    found = importance_of(SPACE, trials, LATENCY)
    assert found.obstacle == obstacle
    assert {k.share for k in found.knobs} == {None}


def test_it_follows_from_the_seed() -> None:
    trials = trials_of(scale)
    assert importance_of(SPACE, trials, LATENCY, 1) == importance_of(SPACE, trials, LATENCY, 1)
    assert importance_of(SPACE, trials, LATENCY, 1) != importance_of(SPACE, trials, LATENCY, 2)


def test_failures_count_as_tried_and_not_as_measured() -> None:
    trials = trials_of(scale, 60)
    failed = [
        Trial(t.number, t.knobs, Failure("LB", "full")) if t.knobs.instance_multiplier == 8 else t
        for t in trials
    ]
    found = importance_of(SPACE, failed, LATENCY)
    assert found.failed == sum(t.knobs.instance_multiplier == 8 for t in trials) > 0
    assert found.measured + found.failed == 60
    assert next((k.tried, k.offered) for k in found.knobs if k.knob == "instance_multiplier") == (
        4,
        4,
    )


def test_what_is_maximised_is_the_other_way_round() -> None:
    (throughput,) = find_objectives("throughput")
    trials = trials_of(scale)
    one, other = (importance_of(SPACE, trials, o) for o in (LATENCY, throughput))
    assert shares(one) == pytest.approx(shares(other), abs=1e-4)
    best = [k.best for k in one.knobs]
    assert best == [k.best for k in other.knobs]


def test_coverage() -> None:
    trials = [
        Trial(0, Knobs(), measurement(1.0)),
        Trial(1, Knobs(instance_multiplier=2, tile_subdivision=2), measurement(2.0)),
        Trial(2, Knobs(instance_multiplier=4), measurement(2.0)),
    ]
    tried = {k.knob: (k.tried, k.offered) for k in importance_of(SPACE, trials, LATENCY).knobs}
    assert tried["instance_multiplier"] == (3, 4)
    assert tried["tile_subdivision"] == (2, 3)
    assert tried["prefetch_depth"] == (1, 4)


@pytest.mark.parametrize(
    ("best", "expected"),
    [
        (Knobs(instance_multiplier=8), {"instance_multiplier": "greatest"}),
        (Knobs(instance_multiplier=4), {}),
        (Knobs(batches_per_cluster=1), {}),  # there is nothing below
        (Knobs(prefetch_depth=4), {"prefetch_depth": "greatest"}),
        (Knobs(instance_order="bfs"), {}),  # words have no border
    ],
    ids=str,
)
def test_borders(best: Knobs, expected: dict[str, str]) -> None:
    trials = [Trial(0, best, measurement(1.0))]
    found = importance_of(SPACE, trials, LATENCY)
    assert {k.knob: k.border for k in found.knobs if k.border} == expected


def test_auto_is_what_the_start_says() -> None:
    elsewhere = Knobs(prefetch_depth=4, overrides=(SubGraphKnobs("conv9", boundary="cut"),))
    dimensions = space_of({"prefetch_depth": (2, 3, 4), "instance_multiplier": (2, 4)}).dimensions
    starts = (Knobs(), elsewhere)
    space = Space((*dimensions, Dimension(START, (AUTO, 1))), Here(8, 50), (), starts)
    found = importance_of(space, [Trial(0, elsewhere, measurement(1.0))], LATENCY)
    _, depth, start = found.knobs
    assert (start.best, depth.best, depth.border) == (1, AUTO, "greatest")
    assert (start.told, depth.told) == ("1", "as start 1")
    assert found.knobs[0].told == found.knobs[0].best  # the start leaves it as published


def test_contributions_add_up_to_the_prediction() -> None:
    rng = np.random.default_rng(0)
    rows = rng.random((200, 3)).astype(np.float32)
    trees = Booster.of(rows, np.asarray(2.0 * rows[:, 0] + rows[:, 1], np.float64))
    rest = trees.predict(rows) - trees.contributions(rows).sum(axis=1)
    assert np.ptp(rest) < 1e-5


def test_what_is_no_point_of_the_space_tells_nothing_of_it() -> None:
    """A sweep measures settings of other targets, with cuts of their own."""
    trials = trials_of(scale)
    odd = Knobs(lb_occupancy_limit=0.125, overrides=(SubGraphKnobs("elsewhere", factor=3),))
    more = [*trials, Trial(len(trials), odd, measurement(1e-9))]
    assert importance_of(SPACE, more, LATENCY) == importance_of(SPACE, trials, LATENCY)
    assert importance_of(SPACE, more[-1:], LATENCY).measured == 0


def noisy_trials(
    noise: float, effect: Callable[[Knobs], float], told: float | None = 0.0
) -> list[Trial]:
    """Trials whose measurements say how noisy they are, or do not."""
    rng = np.random.default_rng(2)
    trials = []
    for trial in trials_of(effect, 200):
        outcome = trial.outcome
        assert isinstance(outcome, Measurement)
        seconds = outcome.latency * float(np.exp(noise * rng.standard_normal()))
        known = noise if told is not None else None
        noisy = dataclasses.replace(outcome, latency=seconds, noise=known)
        trials.append(Trial(trial.number, trial.knobs, noisy))
    return trials


def test_what_is_noise_is_no_part_of_the_variance() -> None:
    """A knob that decides everything has nearly all of it, noise or not."""
    found = importance_of(SPACE, noisy_trials(0.3, scale), LATENCY)
    assert shares(found)["instance_multiplier"] == pytest.approx(1.0, abs=0.12)
    untold = noisy_trials(0.3, scale, told=None)
    ignorant = importance_of(SPACE, untold, LATENCY)
    assert shares(ignorant)["instance_multiplier"] < shares(found)["instance_multiplier"]


def test_nothing_is_said_where_trials_differ_by_noise_alone() -> None:
    found = importance_of(SPACE, noisy_trials(0.02, lambda _: 1.0), LATENCY)
    assert found.obstacle == "the trials differ by little more than the noise of 2 %"
    assert {knob.share for knob in found.knobs} == {None}
