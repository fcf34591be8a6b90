"""What happens before what, the slots of rings, and the races that schedules once had."""

from __future__ import annotations

import dataclasses
import tracemalloc
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoturbo.schedule.codegen.instructions import (
    ENGINES,
    INSTRUCTION_COLUMNS,
    Column,
    instruct,
)
from autoturbo.schedule.codegen.tiling import Role
from autoturbo.schedule.knobs import Knobs
from autoturbo.schedule.pipeline import ModelScheduler, build_schedule
from autoturbo.schedule.schedule import Schedule
from autoturbo.schedule.stitch.stages import STAGE_COLUMNS, Stage
from autoturbo.schedule.stitch.templates import clearances, local_edges
from autoturbo.verifier import races
from autoturbo.verifier.memory import check_memory
from autoturbo.verifier.races import check_races, clocks_of, unordered_pairs
from autoturbo.verifier.replay import replay_of
from autoturbo.verifier.trace import Access, Event, RingBuffer, Trace, tiles_of
from tests.schedule.schedule_samples import block, chain, scheduler_of, target


def program(length: int, seed: int) -> np.ndarray:
    """Instructions on any engines that wait for any before them."""
    random = np.random.default_rng(seed)
    where = np.full((length, INSTRUCTION_COLUMNS), -1, np.int64)
    where[:, Column.ENGINE] = random.integers(0, len(ENGINES), length)
    for index in range(1, length):
        waits = random.integers(0, 3)
        where[index, Column.AFTER : Column.AFTER + waits] = random.integers(-1, index, waits)
    return where


@settings(max_examples=30, deadline=None)
@given(length=st.integers(1, 40), seed=st.integers(0, 1 << 16))
def test_clocks_are_what_can_be_reached(length: int, seed: int) -> None:
    """Before an instruction is what it waits for, the last on its engine, and all before those."""
    where = program(length, seed)
    before: list[set[int]] = []
    latest: dict[int, int] = {}
    for index, row in enumerate(where.tolist()):
        direct = {b for b in (*row[Column.AFTER :], latest.get(row[0], -1)) if b >= 0}
        before.append(direct.union(*(before[b] for b in direct)))
        latest[row[0]] = index
    clocks = clocks_of(where)
    for index, own in enumerate(before):
        for engine in range(len(ENGINES)):
            wanted = max((b for b in own if where[b, Column.ENGINE] == engine), default=-1)
            assert clocks[index, engine] == wanted


def stages(count: int, *, weights: bool = True) -> np.ndarray:
    table = np.zeros((count, STAGE_COLUMNS))
    table[:, Stage.WEIGHTS] = weights
    return table


def test_tiles_with_rows_inside_share_weights() -> None:
    """Two columns of three rows: a tile of weights serves three rows, inputs are fetched anew."""
    found = tiles_of(np.asarray([[1, 2, 1, 3, 0, 0]]), stages(1))
    assert found.weight.tolist() == [0, 0, 0, 1, 1, 1]
    assert found.source.tolist() == found.from_gb.tolist() == [0, 1, 2, 3, 4, 5]
    assert found.held.tolist() == [0, 1, 2, 3, 4, 5]


def test_inputs_that_stay_serve_all_columns() -> None:
    in_lb = tiles_of(np.asarray([[2, 2, 1, 2, 0, 2]]), stages(1))
    assert in_lb.source.tolist() == [0, 1, 0, 1, 4, 5, 4, 5]
    assert in_lb.held.tolist() == [0, 0, 0, 0, 4, 4, 4, 4]
    in_gb = tiles_of(np.asarray([[1, 2, 1, 2, 0, 1]]), stages(1))
    assert in_gb.source.tolist() == [0, 1, 2, 3]
    assert in_gb.from_gb.tolist() == [0, 1, 0, 1]
    assert in_gb.kept.all()


def test_rows_outside_load_weights_anew_and_inputs_once() -> None:
    """Two rows of two columns of two depths: a row keeps both depths for its second column."""
    found = tiles_of(np.asarray([[1, 2, 2, 2, 1, 2]]), stages(1))
    assert found.weight.tolist() == list(range(8))
    assert found.source.tolist() == [0, 1, 0, 1, 4, 5, 4, 5]
    assert found.held.tolist() == [0] * 4 + [4] * 4


def test_rows_outside_that_do_not_stay_are_read_for_every_column() -> None:
    found = tiles_of(np.asarray([[1, 2, 2, 2, 1, 0]]), stages(1))
    assert found.source.tolist() == found.from_gb.tolist() == found.held.tolist() == list(range(8))
    in_gb = tiles_of(np.asarray([[1, 2, 2, 2, 1, 1]]), stages(1))
    assert in_gb.source.tolist() == list(range(8))
    assert in_gb.from_gb.tolist() == [0, 1, 0, 1, 4, 5, 4, 5]
    assert in_gb.kept.all()


def test_layers_number_their_tiles_on() -> None:
    table = np.asarray([[1, 2, 1, 1, 0, 0], [1, 1, 1, 2, 0, 0]])
    found = tiles_of(table, stages(2))
    assert found.first.tolist() == [0, 2, 4]
    assert found.first_weight.tolist() == [0, 2, 3]
    assert found.weight.tolist() == [0, 1, 2, 2]
    assert tiles_of(table, stages(2, weights=False)).first_weight.tolist() == [0, 0, 0]


def test_every_tile_of_weights_is_used_and_every_stored_tile_was_computed() -> None:
    schedule = build_schedule(scheduler_of("resnet18"), Knobs())
    for phase in replay_of(schedule).trace.clusters[0]:
        if phase.program is None:
            continue
        events, where = phase.program.events, phase.program.where
        for ring in (RingBuffer.WEIGHTS_IN_LB, RingBuffer.RESULTS_IN_LB):
            own = events[events[:, Event.RING] == ring]
            writes = own[:, Event.WRITES] == 1
            assert set(own[writes, Event.PIECE].tolist()) == set(own[~writes, Event.PIECE].tolist())
        passed = np.flatnonzero(where[:, Column.ROLE] == Role.PASS_WEIGHTS)
        assert np.isin(passed, events[:, Event.INSTRUCTION]).all()


def races_without_clearances(schedule: Schedule) -> list[str]:
    """Races of kernels whose layers wait only for those that they read from."""
    found: list[str] = []
    for kernel, phase in enumerate(p for p in replay_of(schedule).trace.clusters[0] if p.program):
        given = schedule.kernel(kernel)._replace(clear=())
        made = next(instruct([given]))
        assert phase.program
        without = dataclasses.replace(phase.program, where=made.where)
        trace = Trace(((dataclasses.replace(phase, program=without),),), frozenset(), ())
        found += [finding.message for finding in check_races(schedule, trace)]
    return found


def test_layers_of_two_branches_would_share_space_at_the_same_time() -> None:
    """The down-sampling branch of ResNet-18 runs on both engines, the main one on the first."""
    schedule = build_schedule(scheduler_of("resnet18"), Knobs())
    assert any("apply" in m and "of LB" in m for m in races_without_clearances(schedule))
    assert check_memory(schedule) == ()


def test_a_layer_clears_what_it_does_not_read() -> None:
    """The branch that adds to a sum waits for the other one where the space of both may be its."""
    schedule = build_schedule(scheduler_of("resnet18"), Knobs())
    context = schedule.context
    for subgraph in schedule.instances.subgraphs:
        edges = local_edges(context, subgraph.layers)
        found = clearances(context, subgraph.layers)
        assert all(set(own).isdisjoint(read) for own, read in zip(found, edges, strict=True))
        assert all(max(own, default=-1) < at for at, own in enumerate(found))
    assert any(own for s in schedule.instances.subgraphs
               for own in clearances(context, s.layers))  # fmt: skip


def test_a_straight_line_has_nothing_to_clear() -> None:
    graph = chain("conv", "relu", "conv", "pool", "conv", shape=(2, 64, 32, 32))
    schedule = build_schedule(ModelScheduler(graph, target(), "float16"), Knobs())
    for subgraph in schedule.instances.subgraphs:
        assert not any(clearances(schedule.context, subgraph.layers))


@pytest.mark.parametrize(
    ("gb", "depth", "scheduling"),
    [
        (0, 1, "auto"),
        (4096, 2, "layer"),
        (1 << 20, 4, "off"),
        *(
            pytest.param(*case, marks=pytest.mark.full)
            for case in (
                (0, 2, "off"), (4096, 4, "auto"), (1 << 20, 1, "layer"),
                (0, 4, "layer"), (4096, 1, "off"), (1 << 20, 2, "auto"),
            )
        ),
    ],
)  # fmt: skip
def test_no_races_with_and_without_a_global_buffer(gb: int, depth: int, scheduling: str) -> None:
    knobs = Knobs(prefetch_depth=depth, instruction_scheduling=scheduling, tile_subdivision=4)
    schedule = build_schedule(ModelScheduler(block(), target(gb=gb), "float16"), knobs)
    assert not [f for f in check_memory(schedule) if f.kind == "race"]


@given(st.integers(0, 60), st.integers(0, 2**32 - 1), st.sampled_from((1, 8, 256)))
@settings(max_examples=60, deadline=None)
def test_the_sweep_finds_what_all_pairs_have(count: int, seed: int, window: int) -> None:
    rng = np.random.default_rng(seed)
    table = np.zeros((count, len(Access)), np.int64)
    table[:, Access.SCOPE], table[:, Access.WRITES] = rng.integers(0, 2, (2, count))
    table[:, Access.LOW] = rng.integers(0, 20, count)
    table[:, Access.HIGH] = table[:, Access.LOW] + rng.integers(0, 8, count)
    table[:, Access.LAYER] = rng.integers(-1, 16, count)
    last, least = rng.integers(-3, 6, (2, count, 3)) + 2 * table[:, Access.LAYER][:, None]
    expected = [
        [one, two]
        for one in range(count)
        for two in range(one + 1, count)
        if table[one, Access.SCOPE] == table[two, Access.SCOPE]
        and max(table[one, Access.LOW], table[two, Access.LOW])
        < min(table[one, Access.HIGH], table[two, Access.HIGH])
        and table[[one, two], Access.WRITES].any()
        and not (least[two] >= last[one]).all()
        and not (least[one] >= last[two]).all()
    ]
    with mock.patch.object(races, "WINDOW", window):
        assert unordered_pairs(table, last, least).tolist() == expected


def test_the_sweep_takes_memory_for_what_it_finds_alone() -> None:
    table = np.zeros((4_000, len(Access)), np.int64)
    table[:, Access.LOW] = np.arange(4_000) * 2
    table[:, Access.HIGH], table[:, Access.WRITES] = table[:, Access.LOW] + 3, 1
    clock = np.arange(4_000, dtype=np.int64)[:, None]
    unordered_pairs(table[:9], clock[:9], clock[:9])
    tracemalloc.start()
    assert len(unordered_pairs(table, clock, clock)) == 0
    assert tracemalloc.get_traced_memory()[1] < 1 << 20
    tracemalloc.stop()
