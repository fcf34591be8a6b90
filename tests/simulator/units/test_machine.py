"""Assignments of a real network to CPU and NPU, measured."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoturbo.datasets import workloads
from autoturbo.graph.extract import extract
from autoturbo.graph.onnx_import import import_model
from autoturbo.hardware.machine_files import load_machine
from autoturbo.heterogeneous.measurement import MachineMeasurement, measure_assignment
from autoturbo.heterogeneous.parts import Assignment, Part, assign
from autoturbo.heterogeneous.profiles import Profile, Profiles, copy_seconds
from autoturbo.simulator.measurement import Failure


@pytest.fixture(scope="module")
def profiles() -> Profiles:
    graph = import_model(workloads.get("squeezenet1_1").file, batch=1)
    return Profiles(graph, load_machine("zcu102-vta4"), "int8")


def measured(profiles: Profiles, assignment: Assignment) -> MachineMeasurement:
    found = measure_assignment(profiles, assignment)
    assert isinstance(found, MachineMeasurement)
    return found


def test_the_npu_takes_convolutions_with_channels_in_sixteens(profiles: Profiles) -> None:
    taken = {
        layer.name: profiles.graph.operators[layer.anchor].kind
        for layer, units in zip(profiles.layers, profiles.units, strict=True)
        if len(units) > 1
    }
    assert set(taken.values()) == {"Conv"}
    first = profiles.layers[0]  # three input channels
    assert profiles.units[0] == (0,)
    assert profiles.graph.operators[first.anchor].kind == "Conv"
    with pytest.raises(ValueError, match="npu0"):
        profiles.of(1, [0])


def test_one_unit_alone_takes_what_its_parts_take(profiles: Profiles) -> None:
    count = len(profiles.layers)
    found = measured(profiles, assign(profiles.graph, profiles.layers, [0] * count, range(count)))
    alone = [profiles.of(0, [layer]) for layer in range(count)]
    seconds = [one.seconds for one in alone if isinstance(one, Profile)]
    assert found.latency == pytest.approx(sum(seconds))
    assert found.copied_bytes == 0
    assert found.busy["npu0"] == 0.0


def test_a_copy_pays_for_the_switch_the_link_and_the_bytes(profiles: Profiles) -> None:
    machine = profiles.machine
    assert copy_seconds(machine, 0, 1, 1_500_000) == pytest.approx(2e-3 + 5e-6 + 1e-3)
    units = [0] * len(profiles.layers)
    npu = next(i for i, found in enumerate(profiles.units) if len(found) > 1)
    units[npu] = 1
    found = measured(profiles, assign(profiles.graph, profiles.layers, units))
    copies = [job for job in found.jobs if job.copied]
    assert {job.unit for job in copies} == {0, 1}
    assert found.copying >= len(copies) * machine.switch
    kernels = sum(one.bytes for one in found.profiles)
    assert found.ddr_bytes == kernels + 2 * found.copied_bytes  # read there, and written there


UNITS = st.lists(st.integers(0, 4), min_size=26, max_size=26)


@settings(max_examples=25)
@given(UNITS, st.sets(st.integers(0, 25), max_size=4))
def test_any_assignment_keeps_the_rules(
    profiles: Profiles, wanted: list[int], cuts: set[int]
) -> None:
    units = [unit if unit in may else 0 for unit, may in zip(wanted, profiles.units, strict=True)]
    found = measured(profiles, assign(profiles.graph, profiles.layers, units, cuts))
    assert found.latency >= found.least * (1 - 1e-12)
    assert found.latency >= max(found.busy.values())
    ends = {
        (job.part, job.unit): end for job, end in zip(found.jobs, found.timetable.end, strict=True)
    }
    runs = [
        (job, begin) for job, begin in zip(found.jobs, found.timetable.begin, strict=True)
        if not job.copied
    ]  # fmt: skip
    owner = {
        o: i for i, part in enumerate(found.assignment.parts) for o in operators(profiles, part)
    }
    for job, begin in runs:
        for operator in operators(profiles, found.assignment.parts[job.part]):
            for tensor in profiles.graph.operators[operator].inputs:
                made = profiles.graph.producer[tensor]
                if made >= 0 and owner[made] != job.part:
                    assert ends[owner[made], job.unit] <= begin  # made here, or copied here
    whole = sum(
        t.elements for t in profiles.graph.tensors if t.constant
    )  # one byte each, and no tensor of the model is held more often than on every unit
    assert whole <= found.peak_bytes
    assert found.peak_bytes <= 5 * sum(t.elements * 4 for t in profiles.graph.tensors)


def operators(profiles: Profiles, part: Part) -> list[int]:
    return [o for layer in part.layers for o in profiles.layers[layer].operators]


def test_what_does_not_fit_the_memory_is_a_failure(profiles: Profiles) -> None:
    small = dataclasses.replace(profiles.machine.ddr, capacity=1000)
    machine = dataclasses.replace(profiles.machine, ddr=small)
    tight = Profiles(profiles.graph, machine, "int8")
    found = measure_assignment(tight, assign(tight.graph, tight.layers, [0] * len(tight.layers)))
    assert isinstance(found, Failure)
    assert found.reason == "DDR"


def test_a_part_of_a_graph_keeps_names_and_boundary(profiles: Profiles) -> None:
    graph = profiles.graph
    part = extract(graph, [3, 4, 5])
    assert [o.name for o in part.operators] == [graph.operators[i].name for i in (3, 4, 5)]
    made = {t for o in part.operators for t in o.outputs}
    assert set(part.outputs) <= made
    assert not set(part.inputs) & made
    assert extract(graph, range(len(graph.operators))).macs == graph.macs
