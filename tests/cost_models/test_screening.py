"""Screening by number says of every candidate what is said of its setting, to the last bit."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from test_evaluate import table

from autoturbo.cost_models import screened_examples
from autoturbo.cost_models.advisor import KernelAdvisor, Prior
from autoturbo.cost_models.choices import Candidates, Choice, Choices
from autoturbo.cost_models.features import target_vector
from autoturbo.cost_models.looks import Look
from autoturbo.cost_models.pretrained import Predictor, Pretrained, train
from autoturbo.cost_models.screened_examples import ScreenedExamples
from autoturbo.cost_models.screening import Screen
from autoturbo.datasets import workloads
from autoturbo.graph.onnx_import import import_model
from autoturbo.hardware import load_target
from autoturbo.schedule.knobs import Knobs, SubGraphKnobs
from autoturbo.schedule.pipeline import plan
from autoturbo.schedule.statistics import STATISTICS
from autoturbo.search.changes import changes_of
from autoturbo.search.space import Space
from autoturbo.search.starts import starts_of
from autoturbo.simulate.evaluator import Evaluator
from autoturbo.simulate.measurement import Failure, Measurement
from autoturbo.simulate.plan import COLUMNS

CANDIDATES = 24

STARTED = {"squeezenet1_1": "goya", "bert_base_s128": "ipu-mk2"}
"""Workloads whose spaces have several starts here; the last one's say what room weights have."""


@functools.cache
def model() -> Pretrained:
    return train(table(), {})


@functools.cache
def bench(workload: str, target: str) -> tuple[Evaluator, Space]:
    graph, machine = import_model(workloads.get(workload).file), load_target(target)
    dtype = machine.default_dtype
    starts = starts_of(graph, machine, dtype=dtype, most=2 if workload in STARTED else 0)
    space = Space.of(graph, machine, dtype=dtype, subgraphs=6, starts=starts)
    return Evaluator(graph, machine, dtype), space


def candidates(space: Space) -> np.ndarray:
    """Mutants of the starts, random points, and points where every sub-graph has a say."""
    rng = np.random.default_rng(0)
    start = np.zeros((CANDIDATES, len(space.dimensions)), np.int64)
    start[:, space.choices.column] = np.arange(CANDIDATES) % len(space.starts)
    near = space.normal(space.mutate(rng, start, 0.1))
    dense = space.random(rng, CANDIDATES, dense=True)
    return np.concatenate([start[:1], near, space.random(rng, CANDIDATES), dense])


PAIRS = pytest.mark.parametrize(
    ("workload", "target"),
    [("resnet18", "stcp920"), ("dlrm", "ascend-910"), *STARTED.items()],
)


@PAIRS
def test_candidates_get_what_the_predictor_says(workload: str, target: str) -> None:
    evaluator, space = bench(workload, target)
    genes = candidates(space)
    screen = Screen(evaluator.bench, model(), space.choices)
    found = screen.seconds(genes)
    expected = Predictor(evaluator, model()).seconds([space.knobs_of(row) for row in genes])
    assert (len(space.starts) > 1) == (workload in STARTED)
    assert found.tolist() == expected.tolist()
    assert np.isfinite(found).sum() > CANDIDATES
    assert (screen.seconds(genes[::-1]) == found[::-1]).all()


def advisor(evaluator: Evaluator) -> KernelAdvisor:
    prior = Prior(evaluator.anchored, model(), evaluator.bench)
    vector = target_vector(evaluator.bench.target, evaluator.bench.dtype)
    return KernelAdvisor(evaluator, vector, 4, STATISTICS, prior=prior)


@PAIRS
def test_examples_are_those_of_the_settings(workload: str, target: str) -> None:
    evaluator, space = bench(workload, target)
    points = space.candidates(candidates(space))
    screen = Screen(evaluator.bench, model(), space.choices)
    made = advisor(evaluator)
    examples = ScreenedExamples(screen, space.choices, made.target, made.share)
    there = 0
    for found, knobs in zip(examples.of(points.genes), points.settings, strict=True):
        expected = made._example(knobs)
        assert (found is None) == (expected is None)
        if found is not None and expected is not None:
            there += 1
            for name in ("rows", "launches", "setting", "base"):
                one, other = getattr(found, name), getattr(expected, name)
                assert one.dtype == other.dtype
                assert one.tolist() == other.tolist(), name
    assert there > CANDIDATES


def test_an_advisor_says_the_same_by_number_and_by_setting() -> None:
    evaluator, space = bench("squeezenet1_1", "goya")
    genes = candidates(space)
    by_number, by_setting = advisor(evaluator), advisor(evaluator)
    for learned, fails in ((0, False), (12, False), (12, True)):
        for row in genes[: 2 * learned : 2]:
            knobs = space.knobs_of(row)
            outcome = Failure("LB", "full") if fails else evaluator.evaluate(knobs)
            by_number.observe_candidates(space.candidates(row[None]), [outcome])
            by_setting.observe(knobs, outcome)
        one = by_number.rank_candidates(space.candidates(genes))
        other = by_setting.rank(space.candidates(genes).settings)
        assert one is not None
        assert other is not None
        assert one.tolist() == other.tolist()
    assert by_number.screened == by_setting.screened
    assert not by_number._memory


def test_a_look_hopes_for_the_least_of_what_nobody_measured() -> None:
    evaluator, space = bench("squeezenet1_1", "goya")
    genes = candidates(space)
    points, made, near = space.candidates(genes), advisor(evaluator), COLUMNS.index("near_s")
    assert made.look_candidates(points) is None  # there is no model of the run yet
    for row in genes[:24:2]:
        outcome = evaluator.evaluate(space.knobs_of(row))
        made.observe_candidates(space.candidates(row[None]), [outcome])
    looks, scores = made.look_candidates(points), made.rank_candidates(points)
    assert looks is not None
    assert scores is not None
    assert looks.expected.tolist() == scores.tolist()
    seen = {row.tobytes() for example in made.examples for row in example.rows}
    all_seen = none_seen = 0
    for knobs, score, hope in zip(points.settings, scores, looks.hoped, strict=True):
        example, anchored = made._example(knobs), evaluator.anchored(knobs)
        if example is None or anchored is None:
            assert hope == np.inf
            continue
        known = [row.tobytes() in seen for row in example.rows]
        if all(known):
            all_seen += 1
            assert hope == pytest.approx(score)
        elif not any(known):
            none_seen += 1
            assert np.exp(hope) == pytest.approx(anchored.launches @ anchored.values[:, near])
    assert all_seen >= 12
    assert none_seen > 0


@PAIRS
def test_settings_of_one_kind_take_the_same_time_or_are_no_better(
    workload: str, target: str
) -> None:
    evaluator, space = bench(workload, target)
    screen = Screen(evaluator.bench, model(), space.choices)
    made = advisor(evaluator)
    examples = ScreenedExamples(screen, space.choices, made.target, made.share)
    base = np.zeros(len(space.dimensions), np.int64)
    changes = changes_of(space, base, base[None])
    genes = np.concatenate([base[None], changes.points[changes.blocks > 0]])
    kinds = examples.kinds(examples.numbered(genes), len(genes))
    share = np.asarray([d.name.endswith(":weight_share") for d in space.dimensions])
    took: dict[int, list[tuple[bool, float]]] = {}
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


def _looked(made: KernelAdvisor, evaluator: Evaluator, points: Candidates) -> Look:
    """A look after some measurements, which are made where there are none."""
    for row in points.genes[::4] if not made.examples else ():
        one = Candidates(points.choices, row[None], points.knobs_of)
        made.observe_candidates(one, [evaluator.evaluate(points.knobs_of(row))])
    found = made.look_candidates(points)
    assert found is not None
    return found


def test_what_was_forgotten_is_found_out_again(monkeypatch: pytest.MonkeyPatch) -> None:
    evaluator, space = bench("squeezenet1_1", "goya")
    points = space.candidates(candidates(space))
    remembering, forgetful = advisor(evaluator), advisor(evaluator)
    first = [remembering.rank_candidates(points) for _ in range(2)]
    looks = [_looked(remembering, evaluator, points) for _ in range(2)]
    monkeypatch.setattr(screened_examples, "MOST", 8)
    second = [forgetful.rank_candidates(points) for _ in range(2)]
    assert np.asarray(first).tolist() == np.asarray(second).tolist()
    # also what things are, whatever was known when it was said
    back = Candidates(points.choices, points.genes[::-1], points.knobs_of)
    for each, step in ((points, 1), (back, -1)):
        look = _looked(forgetful, evaluator, each)
        assert look.kinds[::step] == looks[0].kinds == looks[1].kinds


def test_without_a_workbench_settings_are_asked_for() -> None:
    evaluator, space = bench("squeezenet1_1", "goya")
    points = space.candidates(candidates(space)[:8])
    old = advisor(evaluator)
    old.prior = Prior(evaluator.anchored, model())
    found, expected = old.rank_candidates(points), advisor(evaluator).rank_candidates(points)
    assert found is not None
    assert expected is not None
    assert found.tolist() == expected.tolist()
    assert len(old._memory) == len(points.genes)


# twelve samples in eight parts are as many of two as of one
@pytest.mark.parametrize(("workload", "target"), [*STARTED.items(), ("conformer", "ipu-mk2")])
def test_the_order_in_which_candidates_come_does_not_matter(workload: str, target: str) -> None:
    evaluator, space = bench(workload, target)
    base = np.zeros(len(space.dimensions), np.int64)
    (policy,) = (at for at, d in enumerate(space.dimensions) if d.name == "factor_policy")
    base[policy] = space.dimensions[policy].choices.index("ragged")
    genes = np.concatenate([changes_of(space, base, base[None][:0]).points, candidates(space)])

    def screen() -> Screen:  # which nothing was asked before
        known = evaluator.bench
        fresh = Evaluator(known.model, known.target, known.dtype)
        return Screen(fresh.bench, model(), space.choices)

    whole, piecewise = screen().seconds(genes), screen()
    parts = [piecewise.seconds(some[::-1])[::-1] for some in np.array_split(genes, 50)[::-1]]
    assert np.concatenate(parts[::-1]).tolist() == whole.tolist()


def test_no_candidates() -> None:
    evaluator, space = bench("resnet18", "stcp920")
    screen = Screen(evaluator.bench, model(), space.choices)
    assert screen.seconds(np.zeros((0, len(space.dimensions)), np.int64)).shape == (0,)


def test_an_impossible_split_is_infinite() -> None:
    evaluator, _ = bench("resnet18", "stcp920")
    problem = evaluator.bench.problem(evaluator.bench.share().batches)
    layer = problem.layers[-1].name
    own = [Choice("dim", ("auto", 1), (layer,)), Choice("factor", ("auto", 1 << 20), (layer,))]
    found = Screen(evaluator.bench, model(), Choices(tuple(own))).seconds(
        np.asarray([[0, 0], [1, 1]])
    )
    assert np.isfinite(found).tolist() == [True, False]


def test_an_impossible_split_is_left_to_the_heuristic_where_another_layer_is_named_last() -> None:
    evaluator, _ = bench("squeezenet1_1", "goya")
    problem, _, subgraphs = plan(evaluator.bench, Knobs())
    inside, last = next(
        (problem.layers[s.layers[0]].name, problem.layers[s.layers[-1]].name)
        for s in subgraphs
        if len(s.layers) > 1
    )
    choices = Choices((
        Choice("factor", ("auto", 1 << 20), (inside,)),
        Choice("boundary", ("auto", "cut"), (last,)),
    ))  # fmt: skip
    found = Screen(evaluator.bench, model(), choices).seconds(np.asarray([[0, 0], [1, 0], [1, 1]]))
    knobs = [
        Knobs(),
        Knobs(overrides=(SubGraphKnobs(inside, factor=1 << 20),)),
        Knobs(overrides=(SubGraphKnobs(inside, factor=1 << 20), SubGraphKnobs(last, "cut"))),
    ]
    assert found.tolist() == Predictor(evaluator, model()).seconds(knobs).tolist()
