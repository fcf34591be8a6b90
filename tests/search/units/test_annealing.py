"""Annealing over units and cuts, beside exhaustive search and what it starts from."""

from __future__ import annotations

import pytest

from autoturbo.datasets import workloads
from autoturbo.graph.onnx_import import import_model
from autoturbo.graph.operators import Graph
from autoturbo.hardware.machine_files import load_machine
from autoturbo.heterogeneous.annealing import best_assignment
from autoturbo.heterogeneous.measurement import MachineMeasurement, measure_assignment
from autoturbo.heterogeneous.profiles import Profiles
from autoturbo.registry import MACHINE_SCHEDULERS
from tests.search.fork_model import save_fork
from tests.search.units.exhaustive import every_assignment, points


@pytest.fixture(scope="module")
def fork(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    return import_model(save_fork(tmp_path_factory.mktemp("fork")))


@pytest.mark.parametrize(
    "machine", ["zcu102-vta", pytest.param("zcu102-vta4", marks=pytest.mark.full)]
)
def test_it_finds_the_best_of_a_small_space(fork: Graph, machine: str) -> None:
    profiles = Profiles(fork, load_machine(machine), "int8")
    best = every_assignment(profiles, most=2000)
    found = best_assignment(profiles, trials=points(profiles), seed=0)
    assert best is not None
    assert found is not None
    assert found.best.latency == pytest.approx(best.latency)


def test_a_space_that_is_too_large_is_refused(fork: Graph) -> None:
    profiles = Profiles(fork, load_machine("zcu102-vta"), "int8")
    with pytest.raises(ValueError, match="10"):
        every_assignment(profiles, most=10)


@pytest.mark.parametrize(
    "machine", ["kirin-970", pytest.param("zcu102-vta4", marks=pytest.mark.full)]
)
def test_it_is_never_slower_than_what_it_starts_from(machine: str) -> None:
    graph = import_model(workloads.get("squeezenet1_1").file, batch=1)
    loaded = load_machine(machine)
    profiles = Profiles(graph, loaded, loaded.dtypes[0])
    starts = [MACHINE_SCHEDULERS.make(name, profiles) for name in MACHINE_SCHEDULERS.names()]
    outcomes = [measure_assignment(profiles, start) for start in starts]
    seconds = [one.latency for one in outcomes if isinstance(one, MachineMeasurement)]
    found = best_assignment(profiles, trials=60, seed=1, starts=starts)
    assert found is not None
    assert len(seconds) == len(starts)
    assert found.best.latency <= min(seconds)
    assert len(found.latencies) <= 60
    shorter = best_assignment(profiles, trials=40, seed=1, starts=starts)
    assert shorter is not None
    assert shorter.latencies == found.latencies[:40]  # a longer search begins as a shorter one
