"""Screening by number says of every candidate what the predictor says of its setting."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from test_evaluate import table

from autoturbo.cost_models.pretrained import Predictor, Pretrained, train
from autoturbo.cost_models.screening import Screen
from autoturbo.cost_models.ways import Choice
from autoturbo.datasets import workloads
from autoturbo.graph.onnx_import import import_model
from autoturbo.hardware import load_target
from autoturbo.search.space import Space
from autoturbo.simulate.evaluator import Evaluator

CANDIDATES = 40


@functools.cache
def model() -> Pretrained:
    return train(table(), {})


@functools.cache
def bench(workload: str, target: str) -> tuple[Evaluator, Space]:
    graph, machine = import_model(workloads.get(workload).file), load_target(target)
    dtype = machine.default_dtype
    return Evaluator(graph, machine, dtype), Space.of(graph, machine, dtype=dtype, subgraphs=6)


def choices(space: Space) -> list[Choice]:
    found = []
    for dimension in space.dimensions:
        layers: tuple[str, ...] = ()
        knob = dimension.name
        if knob.startswith("subgraph:"):
            _, layer, knob = knob.split(":")
            layers = next(b.layers for b in space.blocks if b.layers[0] == layer)
        found.append(Choice(knob, dimension.choices, layers))
    return found


def candidates(space: Space) -> np.ndarray:
    """Mutants of the default, random points, and points where every sub-graph has a say."""
    rng = np.random.default_rng(0)
    start = np.zeros((CANDIDATES, len(space.dimensions)), np.int64)
    near = space.normal(space.mutate(rng, start, 0.1))
    dense = space.random(rng, CANDIDATES, dense=True)
    return np.concatenate([start[:1], near, space.random(rng, CANDIDATES), dense])


@pytest.mark.parametrize(
    ("workload", "target"),
    [("resnet18", "stcp920"), ("squeezenet1_1", "goya"), ("dlrm", "ascend-910")],
)
def test_candidates_get_what_the_predictor_says(workload: str, target: str) -> None:
    evaluator, space = bench(workload, target)
    genes = candidates(space)
    screen = Screen(evaluator.bench, model(), choices(space))
    found = screen.seconds(genes)
    expected = Predictor(evaluator, model()).seconds([space.knobs_of(row) for row in genes])
    assert found == pytest.approx(expected, rel=1e-4)
    assert np.isfinite(found).sum() > CANDIDATES
    assert (screen.seconds(genes[::-1]) == found[::-1]).all()


def test_the_order_in_which_candidates_come_does_not_matter() -> None:
    evaluator, space = bench("resnet18", "stcp920")
    genes = candidates(space)
    whole = Screen(evaluator.bench, model(), choices(space)).seconds(genes)
    piecewise = Screen(evaluator.bench, model(), choices(space))
    parts = [piecewise.seconds(genes[at : at + 7]) for at in range(0, len(genes), 7)]
    found = np.concatenate(parts)
    assert found == pytest.approx(whole, rel=1e-6)


def test_no_candidates() -> None:
    evaluator, space = bench("resnet18", "stcp920")
    screen = Screen(evaluator.bench, model(), choices(space))
    assert screen.seconds(np.zeros((0, len(space.dimensions)), np.int64)).shape == (0,)


def test_an_impossible_split_is_infinite() -> None:
    evaluator, _ = bench("resnet18", "stcp920")
    problem = evaluator.bench.problem(evaluator.bench.share().batches)
    layer = problem.layers[-1].name
    own = [Choice("dim", ("auto", 1), (layer,)), Choice("factor", ("auto", 1 << 20), (layer,))]
    found = Screen(evaluator.bench, model(), own).seconds(np.asarray([[0, 0], [1, 1]]))
    assert np.isfinite(found).tolist() == [True, False]
