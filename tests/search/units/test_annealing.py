"""Annealing over units and cuts, beside exhaustive search and what it starts from."""

from __future__ import annotations

from pathlib import Path

import pytest

from autoturbo.datasets import workloads
from autoturbo.graph.onnx_import import import_model
from autoturbo.graph.operators import Graph
from autoturbo.hardware.machine_file import load_machine
from autoturbo.schedule.baselines.partition_tuner import SCHEDULERS
from autoturbo.search.units import best_assignment, every_assignment, points
from autoturbo.simulate.units.machine import MachineMeasurement, measure_assignment
from autoturbo.simulate.units.profiles import Profiles


@pytest.fixture(scope="module")
def fork(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    """A convolution, two beside each other, and their sum; the channels suit the NPU."""
    import numpy as np
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    edges = [("x", "a"), ("a", "b"), ("a", "c")]
    weights = [
        numpy_helper.from_array(np.zeros((64, 64, 3, 3), np.float32), f"w{i}")
        for i in range(len(edges))
    ]
    nodes = [
        helper.make_node("Conv", [read, f"w{i}"], [made], made, pads=[1, 1, 1, 1])
        for i, (read, made) in enumerate(edges)
    ]
    nodes.append(helper.make_node("Add", ["b", "c"], ["y"], "y"))
    shape = [1, 64, 56, 56]
    ends = [helper.make_tensor_value_info(t, TensorProto.FLOAT, shape) for t in ("x", "y")]
    graph = helper.make_graph(nodes, "fork", ends[:1], ends[1:], weights)
    file: Path = tmp_path_factory.mktemp("fork") / "fork.onnx"
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=8), str(file))
    return import_model(file)


@pytest.mark.parametrize("machine", ["zcu102-vta", "zcu102-vta4"])
def test_it_finds_the_best_of_a_small_space(fork: Graph, machine: str) -> None:
    profiles = Profiles(fork, load_machine(machine), "int8")
    best = every_assignment(profiles, most=2000)
    found = best_assignment(profiles, trials=points(profiles), seed=0)
    assert best is not None
    assert found is not None
    assert found.best.latency == pytest.approx(best.latency)


def test_a_space_that_is_too_large_is_refused(fork: Graph) -> None:
    profiles = Profiles(fork, load_machine("zcu102-vta"), "int8")
    with pytest.raises(ValueError, match="more than 10"):
        every_assignment(profiles, most=10)


@pytest.mark.parametrize("machine", ["zcu102-vta", "zcu102-vta4", "kirin-970"])
def test_it_is_never_slower_than_what_it_starts_from(machine: str) -> None:
    graph = import_model(workloads.get("squeezenet1_1").file, batch=1)
    loaded = load_machine(machine)
    profiles = Profiles(graph, loaded, loaded.dtypes[0])
    starts = [scheduler(profiles) for scheduler in SCHEDULERS.values()]
    outcomes = [measure_assignment(profiles, start) for start in starts]
    seconds = [one.latency for one in outcomes if isinstance(one, MachineMeasurement)]
    found = best_assignment(profiles, trials=60, seed=1, starts=starts)
    assert found is not None
    assert len(seconds) == len(starts)
    assert found.best.latency <= min(seconds)
    assert len(found.latencies) <= 60
    again = best_assignment(profiles, trials=60, seed=1, starts=starts)
    assert again is not None
    assert again.latencies == found.latencies
