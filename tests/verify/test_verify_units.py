"""Assignments to several units compute the model: regions, memory of every part, numbers."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from autoturbo.datasets import workloads
from autoturbo.errors import VerifyError
from autoturbo.graph.onnx_import import import_model
from autoturbo.hardware.machine_file import load_machine
from autoturbo.schedule.schedule import Schedule
from autoturbo.schedule.units.parts import Assignment, assign
from autoturbo.schedule.units.whole import whole_schedule
from autoturbo.simulate.units.profiles import Profiles
from autoturbo.verify.memory import check_memory
from autoturbo.verify.numbers import check_numbers
from autoturbo.verify.regions import check_regions

FILE = workloads.get("squeezenet1_1").file


@pytest.fixture(scope="module")
def profiles() -> Profiles:
    return Profiles(import_model(FILE, batch=1), load_machine("zcu102-vta4"), "int8")


def scheduled(profiles: Profiles, assignment: Assignment) -> tuple[Schedule, list[Schedule]]:
    parts = [profiles.schedule(part.unit, part.layers) for part in assignment.parts]
    whole = whole_schedule(
        profiles.graph, profiles.machine, profiles.dtype, assignment.parts, parts
    )
    return whole, parts


def drawn(profiles: Profiles, seed: int) -> Assignment:
    rng = np.random.default_rng(seed)
    units = [int(rng.choice(may)) for may in profiles.units]
    cuts = set(rng.integers(0, len(units), 3).tolist())
    return assign(profiles.graph, profiles.layers, units, cuts)


@pytest.mark.parametrize("seed", [0, 1])
def test_a_random_assignment_computes_the_model(profiles: Profiles, seed: int) -> None:
    whole, parts = scheduled(profiles, drawn(profiles, seed))
    assert not check_regions(whole)
    for part in parts:
        assert not check_regions(part)
        assert not check_memory(part)
    ran = check_numbers(whole, FILE)
    assert ran.skipped is None
    assert not ran.findings


def test_parts_in_the_wrong_order_are_found(profiles: Profiles) -> None:
    assignment = drawn(profiles, 0)
    turned = dataclasses.replace(assignment, parts=assignment.parts[::-1])
    whole, _ = scheduled(profiles, turned)
    assert "order" in {finding.kind for finding in check_regions(whole)}


def test_several_passes_are_refused(profiles: Profiles) -> None:
    assignment = drawn(profiles, 0)
    _, parts = scheduled(profiles, assignment)
    share = dataclasses.replace(parts[0].share, samples=2)
    parts[0] = dataclasses.replace(parts[0], share=share)
    with pytest.raises(VerifyError, match="several passes or on several clusters"):
        whole_schedule(profiles.graph, profiles.machine, "int8", assignment.parts, parts)
