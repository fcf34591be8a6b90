"""The space of a machine's settings, and annealing asked as any sampler is."""

from __future__ import annotations

import math

import numpy as np
import pytest

from autoturbo.errors import KnobsError
from autoturbo.graph.onnx_import import import_model
from autoturbo.hardware.machine_files import load_machine
from autoturbo.heterogeneous.evaluator import MachineEvaluator
from autoturbo.heterogeneous.space import AnnealingProposer, UnitSpace
from autoturbo.schedule.knobs import Knobs
from autoturbo.schedule.unit_knobs import UnitKnobs
from autoturbo.search.objectives import OBJECTIVES
from autoturbo.simulator.measurement import Measurement
from tests.search.fork_model import save_fork
from tests.search.units.exhaustive import every_assignment


@pytest.fixture(scope="module")
def evaluator(tmp_path_factory: pytest.TempPathFactory) -> MachineEvaluator:
    graph = import_model(save_fork(tmp_path_factory.mktemp("fork")))
    return MachineEvaluator(graph, load_machine("zcu102-vta"), "int8")


@pytest.fixture(scope="module")
def space(evaluator: MachineEvaluator) -> UnitSpace:
    return UnitSpace.on(evaluator)


def test_only_what_can_be_chosen_is_a_dimension(space: UnitSpace) -> None:
    names = [d.name for d in space.dimensions]
    assert names == [
        "unit of a", "unit of b", "unit of c", "cut before b", "cut before c", "cut before y",
    ]  # fmt: skip
    assert space.size == 2**6


def test_every_point_is_a_setting_and_back(space: UnitSpace) -> None:
    seen = set()
    for genes in space.everything().tolist():
        knobs = space.knobs_of(genes)
        assert space.genes_of(space.from_knobs(knobs)) == tuple(genes)
        assert space.canonical(knobs) == knobs
        assert Knobs.from_dict(knobs.as_dict()) == knobs
        assert space.knobs(space.said(space.decided(knobs))) == knobs
        seen.add(knobs)
    assert len(seen) == space.size
    assert Knobs() in seen


@pytest.mark.parametrize(
    "said",
    [
        UnitKnobs((("y", "npu"),)),
        UnitKnobs((("z", "npu"),)),
        UnitKnobs(cuts=("a",)),
        UnitKnobs(branches="in_turn"),
    ],
)
def test_what_is_no_point_is_refused(space: UnitSpace, said: UnitKnobs) -> None:
    with pytest.raises(KnobsError) as caught:
        space.from_knobs(Knobs(units=said))
    assert caught.value.at.field == "units"


def test_annealing_asks_every_setting_once_and_finds_the_best(
    evaluator: MachineEvaluator, space: UnitSpace
) -> None:
    proposer = AnnealingProposer(evaluator, space, OBJECTIVES["latency"], 0)
    asked: list[Knobs] = [Knobs()]
    proposer.tell(Knobs(), evaluator.evaluate(Knobs()))
    best = math.inf
    while knobs := proposer.ask(5):
        for one in knobs:
            outcome = evaluator.evaluate(one)
            assert isinstance(outcome, Measurement)
            best = min(best, outcome.latency)
            proposer.tell(one, outcome)
        asked += knobs
    assert len(asked) == len(set(asked)) == space.size
    exact = every_assignment(evaluator.profiles, most=5000)
    assert exact is not None
    assert best == pytest.approx(exact.latency)


def test_what_is_asked_follows_from_what_was_told(
    evaluator: MachineEvaluator, space: UnitSpace
) -> None:
    first, second = (
        AnnealingProposer(evaluator, space, OBJECTIVES["latency"], 3) for _ in range(2)
    )
    rng = np.random.default_rng(0)
    for genes in space.random(rng, 6).tolist():
        knobs = space.knobs_of(genes)
        for proposer in (first, second):
            proposer.tell(knobs, evaluator.evaluate(knobs))
    first.ask(4)  # asking changes nothing
    assert first.ask(8) == second.ask(8)
