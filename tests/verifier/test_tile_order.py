"""Layers that take turns: tiles wait for the tiles that they read, and nothing is overwritten."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoturbo.graph.operators import Graph
from autoturbo.hardware import Target
from autoturbo.schedule.codegen.instructions import Column, Kernel, instruct
from autoturbo.schedule.codegen.tiling import BY_TILES, Role
from autoturbo.schedule.knobs import Knobs
from autoturbo.schedule.pipeline import ModelScheduler, build_schedule
from autoturbo.schedule.schedule import Schedule
from autoturbo.verifier.memory import check_memory
from autoturbo.verifier.races import check_races
from autoturbo.verifier.replay import replay_of
from autoturbo.verifier.tile_order import Lines
from autoturbo.verifier.trace import Trace
from tests.schedule.schedule_samples import networks, scheduler_of, targets

TURNS = Knobs(instruction_scheduling="tiles")


@pytest.fixture(scope="module")
def in_turn() -> Schedule:
    return build_schedule(scheduler_of("resnet18"), TURNS)


def layers_computed(schedule: Schedule, kernel: int) -> list[int]:
    where = schedule.program(kernel).where
    computes = np.isin(where[:, Column.ROLE], (Role.MULTIPLY, Role.APPLY))
    layers: list[int] = where[computes, Column.LAYER].tolist()
    return layers


@given(st.data())
def test_tiles_that_have_lines_of_a_region(data: st.DataObject) -> None:
    """Against lines counted one by one: a tile has those that its part begins or ends within."""

    def interval(low: int, high: int) -> tuple[int, int]:
        first = data.draw(st.integers(low, high - 1))
        return first, data.draw(st.integers(first + 1, high))

    dims = data.draw(st.sampled_from([(0,), (1, 0), (0, 1)]))
    own = (interval(0, 9), interval(2, 11))
    region = tuple(interval(*part) for part in own)
    extents = [own[dim][1] - own[dim][0] for dim in dims]
    count = int(np.prod(extents))
    units = data.draw(st.integers(1, count))
    unit = np.array(data.draw(st.lists(st.integers(0, units - 1), min_size=1, max_size=9)))
    lines = Lines(own, dims, units, unit)
    places = np.indices(extents).reshape(len(dims), count)

    def held_by(part: Sequence[tuple[int, int]]) -> list[int]:
        inside = np.ones(count, bool)
        for dim, place in zip(dims, places, strict=True):
            inside &= (place + own[dim][0] >= part[dim][0]) & (place + own[dim][0] < part[dim][1])
        return np.flatnonzero(inside).tolist()

    asked = held_by(region)
    parts = [
        set(range(one * count // units, -(-(one + 1) * count // units))) for one in range(units)
    ]
    between = set(range(asked[0], asked[-1] + 1))
    touched = [tile for tile, one in enumerate(unit) if parts[one] & between]
    assert lines.touching(region).tolist() == touched
    for one in range(units):
        held = {line for part in lines.regions(one) for line in held_by(part)}
        assert parts[one] <= held


def test_layers_take_turns(in_turn: Schedule) -> None:
    kernels = range(len(in_turn.timelines[0].order))
    computed = [layers_computed(in_turn, kernel) for kernel in kernels]
    assert any(one != sorted(one) for one in computed)
    assert check_memory(in_turn) == ()
    plain = build_schedule(scheduler_of("resnet18"), Knobs())
    for kernel in kernels:
        assert sorted(computed[kernel]) == layers_computed(plain, kernel)


def races(schedule: Schedule, **changed: object) -> list[str]:
    """Races of kernels that are generated from something else."""
    found: list[str] = []
    for place, phase in enumerate(p for p in replay_of(schedule).trace.clusters[0] if p.program):
        kernel = schedule.kernel(place)
        assert kernel.rules.across == BY_TILES
        fields = {name: change(kernel) for name, change in changed.items() if callable(change)}
        made = next(instruct([kernel._replace(**fields)]))
        assert phase.program
        other = dataclasses.replace(phase.program, where=made.where)
        trace = Trace(((dataclasses.replace(phase, program=other),),), frozenset(), ())
        found += [finding.message for finding in check_races(schedule, trace)]
    return found


def test_a_tile_that_begins_too_early_is_found(in_turn: Schedule) -> None:
    """Half of the lines that it needs are not enough."""

    def half(kernel: Kernel) -> object:
        needs = kernel.reads.needs
        return kernel.reads._replace(needs=np.where(needs > 1, needs // 2, needs))

    assert not races(in_turn)
    assert races(in_turn, reads=half)


def test_what_another_layer_still_reads_may_not_be_overwritten(in_turn: Schedule) -> None:
    assert races(in_turn, clear=lambda kernel: [()] * len(kernel.stages))


@settings(max_examples=25)
@given(networks(), targets(), st.sampled_from((1, 2, 4)), st.sampled_from(("auto", 1024)))
def test_random_networks(graph: Graph, machine: Target, depth: int, ahead: int | str) -> None:
    known = ahead if machine.gb.capacity else "auto"
    knobs = dataclasses.replace(TURNS, prefetch_depth=depth, fetch_ahead=known)
    schedule = build_schedule(ModelScheduler(graph, machine, "float16"), knobs)
    assert check_memory(schedule) == ()


@pytest.mark.full
@settings(max_examples=400)
@given(networks(), targets(), st.sampled_from((1, 2, 4)), st.sampled_from((1, 2, 4)))
def test_more_random_networks(graph: Graph, machine: Target, depth: int, parts: int) -> None:
    knobs = dataclasses.replace(TURNS, prefetch_depth=depth, tile_subdivision=parts)
    schedule = build_schedule(ModelScheduler(graph, machine, "float16"), knobs)
    assert check_memory(schedule) == ()
