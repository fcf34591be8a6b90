"""Predictions of many settings at once, from settings and from the points of a search."""

from __future__ import annotations

import dataclasses
import functools

import numpy as np
import pytest

from autoturbo.cost_models.batch import BatchFeatures
from autoturbo.cost_models.contract import Example, Kernels
from autoturbo.cost_models.features import override_rows, portable_rows, target_vector
from autoturbo.cost_models.model import KernelTrees
from autoturbo.cost_models.predictions import Prediction
from autoturbo.cost_models.pretrained import Pretrained, train
from autoturbo.cost_models.ranker import Ranker
from autoturbo.cost_models.ratios import base_seconds
from autoturbo.datasets import workloads
from autoturbo.graph.onnx_import import import_model
from autoturbo.hardware import load_target
from autoturbo.schedule.knobs import Knobs, SubGraphKnobs
from autoturbo.search.constants import Starts
from autoturbo.search.encoding import START
from autoturbo.search.group_screening import changes_of
from autoturbo.search.space import Space
from autoturbo.search.warm_starts.starts import starts_of
from autoturbo.simulator import plan
from autoturbo.simulator.evaluator import Evaluator
from autoturbo.simulator.measurement import Measurement
from autoturbo.simulator.plan import COLUMNS, KernelStatistics
from tests.cost_models.test_evaluate import table

CANDIDATES = 24

STARTED = {"squeezenet1_1": "goya", "bert_base_s128": "ipu-mk2"}
"""Workloads whose spaces have several starts here; the last one's say what room weights have."""


@functools.cache
def model() -> Pretrained:
    return train(table(), {})


@functools.cache
def scheduler_of(workload: str, target: str) -> tuple[Evaluator, Space]:
    graph, machine = import_model(workloads.get(workload).file), load_target(target)
    evaluator = Evaluator(graph, machine, machine.default_dtype)
    starts = starts_of(evaluator, Starts(most=2) if workload in STARTED else None)
    return evaluator, Space.of(evaluator.model_scheduler, subgraphs=6, starts=starts)


def candidates(space: Space) -> np.ndarray:
    """Mutants of the starts, random points, and points where every sub-graph has a say."""
    rng = np.random.default_rng(0)
    start = np.zeros((CANDIDATES, len(space.dimensions)), np.int64)
    if len(space.starts) > 1:
        (column,) = (at for at, d in enumerate(space.dimensions) if d.name == START)
        start[:, column] = np.arange(CANDIDATES) % len(space.starts)
    near = space.normal(space.mutate(rng, start, 0.1))
    dense = space.random(rng, CANDIDATES, dense=True)
    return np.concatenate([start[:1], near, space.random(rng, CANDIDATES), dense])


PAIRS = pytest.mark.parametrize(
    ("workload", "target"),
    [
        ("dlrm", "ascend-910"),
        *(pytest.param(*case, marks=pytest.mark.full) for case in STARTED.items()),
    ],
)


def features(evaluator: Evaluator) -> BatchFeatures:
    """Of a workbench that was asked nothing before."""
    known = evaluator.model_scheduler
    fresh = Evaluator(known.model, known.target, known.dtype).model_scheduler
    vector = target_vector(known.target, known.dtype)
    return BatchFeatures(KernelStatistics(fresh), model(), vector, 4)


@PAIRS
def test_candidates_are_predicted_from_what_their_kernels_take_alone(
    workload: str, target: str
) -> None:
    evaluator, space = scheduler_of(workload, target)
    genes = candidates(space)
    known = features(evaluator)
    found = known.seconds(space.settings(genes))
    assert (len(space.starts) > 1) == (workload in STARTED)
    assert np.isfinite(found).sum() > CANDIDATES
    assert (known.seconds(space.settings(genes[::-1])) == found[::-1]).all()
    for row, seconds in zip(genes[::5], found[::5], strict=True):
        knobs = space.knobs_of(row)
        plan = evaluator.statistics(knobs)
        if plan is None:
            assert seconds == np.inf
            continue
        own = override_rows(knobs, plan.overrides, len(plan.values))
        factors = np.exp(model().factors.predict(portable_rows(plan.values, own)))
        assert seconds == pytest.approx((plan.launches * base_seconds(plan.values)) @ factors)


def ranker(evaluator: Evaluator) -> Ranker:
    vector = target_vector(evaluator.model_scheduler.target, evaluator.model_scheduler.dtype)
    return Ranker(evaluator, vector, 4, prior=model())


@pytest.mark.full
@PAIRS
def test_examples_are_those_of_the_settings(workload: str, target: str) -> None:
    evaluator, space = scheduler_of(workload, target)
    points, known = space.settings(candidates(space)), features(evaluator)
    by_setting = features(evaluator)
    there = 0
    each = known.examples(known.of(points))
    for found, knobs in zip(each, points, strict=True):
        (expected,) = by_setting.examples(by_setting.of([knobs]))
        assert (found is None) == (expected is None)
        if found is not None and expected is not None:
            there += 1
            for name in ("rows", "launches", "setting", "base"):
                one, other = getattr(found, name), getattr(expected, name)
                assert one.dtype == other.dtype
                assert one.tolist() == other.tolist(), name
    assert there > CANDIDATES


@pytest.mark.full
@pytest.mark.parametrize(("column", "most"), [("near_s", 0.024), ("far_s", 0.01)])
def test_new_kernels_that_take_what_they_take_alone_are_told_well(column: str, most: float) -> None:
    """Trees of times over the estimate, which is another one here, are twice as far off."""
    evaluator, space = scheduler_of("dlrm", "ascend-910")
    known, examples = features(evaluator), list[Example]()
    for knobs in space.settings(candidates(space)):
        (example,), plan = known.examples(known.of([knobs])), evaluator.statistics(knobs)
        if example is not None and plan is not None:
            times = plan.values[:, COLUMNS.index(column)]
            examples.append(dataclasses.replace(example, times=times))
    model = KernelTrees()
    model.fit(examples[::2])
    errors = list[float]()
    for example in examples[1::2]:
        said, deviations = model.predict(Kernels(example.rows, example.base))
        assert example.times is not None
        new = np.isnan(deviations)
        errors += np.abs(said - np.log(example.times / example.base))[new].tolist()
    assert len(errors) > CANDIDATES
    assert np.mean(errors) < most


@pytest.mark.full
def test_a_look_hopes_for_the_least_of_what_nobody_measured() -> None:
    evaluator, space = scheduler_of("squeezenet1_1", "goya")
    genes = candidates(space)
    points, made, near = space.settings(genes), ranker(evaluator), COLUMNS.index("near_s")
    assert made.look(points) is None  # there is no model of the run yet
    for row in genes[:24:2]:
        made.observe(space.knobs_of(row), evaluator.evaluate(space.knobs_of(row)))
    looks, scores = made.look(points), made.rank(points)
    known = features(evaluator)
    each = known.examples(known.of(points))
    assert looks is not None
    assert scores is not None
    assert looks.expected.tolist() == scores.tolist()
    seen = {row.tobytes() for example in made.examples for row in example.rows}
    all_seen = none_seen = 0
    for knobs, example, score, hope in zip(points, each, scores, looks.optimistic, strict=True):
        anchored = evaluator.statistics(knobs)
        if example is None or anchored is None:
            assert hope == np.inf
            continue
        measured = [row.tobytes() in seen for row in example.rows]
        if all(measured):
            all_seen += 1
            assert hope == pytest.approx(score)
        elif not any(measured):
            none_seen += 1
            assert np.exp(hope) == pytest.approx(anchored.launches @ anchored.values[:, near])
    assert all_seen >= 12
    assert none_seen > 0


@pytest.mark.full
@PAIRS
def test_settings_of_one_kind_take_the_same_time_or_are_no_better(
    workload: str, target: str
) -> None:
    evaluator, space = scheduler_of(workload, target)
    known = features(evaluator)
    base = np.zeros(len(space.dimensions), np.int64)
    changes = changes_of(space, base, base[None])
    genes = np.concatenate([base[None], changes.points[changes.blocks > 0]])
    kinds = known.kinds(known.of(space.settings(genes)))
    share = np.asarray([d.name.endswith(":weight_buffer_fraction") for d in space.dimensions])
    took: dict[bytes, list[tuple[bool, float]]] = {}
    for kind, row in zip(kinds, genes, strict=True):
        outcome = evaluator.evaluate(space.knobs_of(row))
        seconds = outcome.latency if isinstance(outcome, Measurement) else np.inf
        took.setdefault(kind, []).append((bool(row[share].any()), seconds))
    assert len(genes) > 1.1 * len(took)  # many choices change nothing
    for each in took.values():
        same = {seconds for shared, seconds in each if not shared}
        assert len(same) <= 1
        # where the statistics are the same, a larger share only takes room from tensors
        assert all(seconds >= min(same) for _, seconds in each if same)
    assert len({seconds for each in took.values() for _, seconds in each}) > len(took) / 4


def _looked(made: Ranker, evaluator: Evaluator, points: list[Knobs]) -> Prediction:
    """A look after some measurements, which are made where there are none."""
    for knobs in points[::4] if not made.examples else ():
        made.observe(knobs, evaluator.evaluate(knobs))
    found = made.look(points)
    assert found is not None
    return found


@pytest.mark.full
def test_what_was_forgotten_is_found_out_again(monkeypatch: pytest.MonkeyPatch) -> None:
    evaluator, space = scheduler_of("squeezenet1_1", "goya")
    points = space.settings(candidates(space))
    remembering, forgetful = ranker(evaluator), ranker(evaluator)
    first = [remembering.rank(points) for _ in range(2)]
    looks = [_looked(remembering, evaluator, points) for _ in range(2)]
    monkeypatch.setattr(plan, "MOST", 8)
    second = [forgetful.rank(points) for _ in range(2)]
    assert np.asarray(first).tolist() == np.asarray(second).tolist()
    # also what things are, whatever was known when it was said
    for each, step in ((points, 1), (points[::-1], -1)):
        look = _looked(forgetful, evaluator, each)
        assert look.kinds[::step] == looks[0].kinds == looks[1].kinds


# twelve samples in eight parts are as many of two as of one
@pytest.mark.full
@pytest.mark.parametrize(
    ("workload", "target"),
    [
        ("dlrm", "ascend-910"),
        pytest.param("squeezenet1_1", "goya", marks=pytest.mark.full),
        pytest.param("conformer", "ipu-mk2", marks=pytest.mark.full),
    ],
)
def test_the_order_in_which_candidates_come_does_not_matter(workload: str, target: str) -> None:
    evaluator, space = scheduler_of(workload, target)
    base = np.zeros(len(space.dimensions), np.int64)
    (policy,) = (at for at, d in enumerate(space.dimensions) if d.name == "factor_policy")
    base[policy] = space.dimensions[policy].choices.index("ragged")
    genes = np.concatenate([changes_of(space, base, base[None][:0]).points, candidates(space)])
    each, piecewise = space.settings(genes), features(evaluator)
    whole = features(evaluator).seconds(each)
    pieces = [each[at::50] for at in range(49, -1, -1)]
    found = [piecewise.seconds(some[::-1])[::-1] for some in pieces]
    parts = np.empty(len(each))
    for at, seconds in zip(range(49, -1, -1), found, strict=True):
        parts[at::50] = seconds
    assert parts.tolist() == whole.tolist()


def test_no_candidates() -> None:
    evaluator, _ = scheduler_of("dlrm", "ascend-910")
    assert features(evaluator).seconds([]).shape == (0,)


def test_an_impossible_setting_is_infinite() -> None:
    evaluator, _ = scheduler_of("dlrm", "ascend-910")
    context = evaluator.model_scheduler.context(evaluator.model_scheduler.share().batches)
    layer = context.layers[-1].name
    impossible = Knobs(overrides=(SubGraphKnobs(layer, dim=1, factor=1 << 20),))
    each = [Knobs(), impossible, Knobs(batches_per_cluster=1 << 20)]
    assert np.isfinite(features(evaluator).seconds(each)).tolist() == [True, False, False]
