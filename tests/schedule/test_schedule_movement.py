"""Concatenations, copies and redistributions before kernels."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoturbo.schedule.context import make_context
from autoturbo.schedule.knobs import Knobs
from autoturbo.schedule.memory.movement import Pieces, most_crossing
from autoturbo.schedule.partition.boxes import box_regions
from autoturbo.schedule.partition.grouping import SubGraph
from autoturbo.schedule.partition.split import Split
from autoturbo.schedule.pipeline import build_schedule
from autoturbo.schedule.place.bind import Binding, Placement, Scope
from autoturbo.schedule.place.instances import PartBook, make_instances
from autoturbo.schedule.stitch.templates import stitch
from tests.schedule.concats import Concat, MovementKind, concatenations, concats
from tests.schedule.schedule_samples import STCP920, Net, scheduler_of
from tests.schedule.steps import instance_of, steps_of


def pieces(
    bindings: tuple[Binding, Binding], scopes: tuple[Scope, Scope], wanted: Binding,
    shape: tuple[int, ...] = (4, 28, 28, 512),
) -> Concat:  # fmt: skip
    """A consumer of the whole batch reads two halves, bound and kept as given."""
    net = Net(x=shape)
    net.conv(net.conv("x", shape[1], 1), shape[1], 1)
    context = make_context(net.graph(), STCP920, "float16")
    subgraphs = (SubGraph(0, (0,), Split(0, 2, 0, 0, 0)), SubGraph(1, (1,), Split(-1, 1, 0, 0, 0)))
    graph = make_instances(PartBook(context), subgraphs)
    template = stitch(context, (1,), box_regions(context, (1,)), wanted)
    placement = Placement((*bindings, wanted), (*scopes, Scope.LB))
    (concat,) = concatenations(graph, placement, 2, template)
    return concat


def test_figure_9_copies_from_gb_and_redistributes_between_cores() -> None:
    """[2,28,28,512] in GB bound 2 x 2 is copied, its twin in LB bound 2 x 4 redistributed."""
    concat = pieces(((2, 2, 1, 1), (2, 4, 1, 1)), (Scope.GB, Scope.LB), (4, 2, 1, 1))
    assert [p.producer for p in concat.pieces] == [0, 1]
    assert [p.movement for p in concat.pieces] == [MovementKind.COPY, MovementKind.REDISTRIBUTE]
    half = 2 * 28 * 28 * 512 * 2
    assert [p.cluster_bytes for p in concat.pieces] == [half, half]
    assert concat.pieces[0].crossing_bytes == 0
    assert 0 < concat.pieces[1].crossing_bytes <= half // 2


@pytest.mark.full
def test_equal_factors_on_more_samples_are_not_the_same_place() -> None:
    """Four samples over four cores; of eight over four a core wants two, and holds at most one."""
    concat = pieces(((4, 1, 2, 1), (4, 1, 2, 1)), (Scope.LB, Scope.LB), (4, 1, 2, 1), (8, 4, 4, 8))
    sample = 4 * 4 * 8 * 2
    assert [p.crossing_bytes for p in concat.pieces] == [sample, sample]


def test_what_lies_where_it_is_wanted_costs_nothing() -> None:
    concat = pieces(((1, 1, 4, 2),) * 2, (Scope.LB, Scope.LB), (1, 1, 4, 2), (8, 4, 4, 8))
    assert concat.moved == ()
    assert concat.core_bytes == 0


def test_copies_come_from_wherever_is_not_lb() -> None:
    concat = pieces(((2, 1, 1, 1),) * 2, (Scope.DDR, Scope.GB), (2, 1, 1, 1), (4, 2, 2, 8))
    assert [p.movement for p in concat.pieces] == [MovementKind.COPY] * 2


def test_one_core_has_nothing_to_redistribute() -> None:
    concat = pieces(((1, 1, 1, 1),) * 2, (Scope.LB, Scope.LB), (1, 1, 1, 1), (4, 2, 2, 8))
    assert concat.moved == ()
    assert concat.core_bytes == 0


def boxes(region: np.ndarray, factors: Binding) -> list[set[tuple[int, ...]]]:
    """Points of each core, row-major over the factors."""
    spans = []
    for (low, high), factor in zip(region.tolist(), factors, strict=True):
        size = -(-(high - low) // factor)
        spans.append(
            [
                range(min(low + i * size, high), min(low + (i + 1) * size, high))
                for i in range(factor)
            ]
        )
    return [set(itertools.product(*part)) for part in itertools.product(*spans)]


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_crossing_against_sets_of_points(data: st.DataObject) -> None:
    rank = data.draw(st.integers(1, 3))
    low = [data.draw(st.integers(0, 3)) for _ in range(rank)]
    made = np.asarray([(b, b + data.draw(st.integers(1, 5))) for b in low], np.int64)
    need = np.asarray(
        [(max(b - data.draw(st.integers(0, 2)), 0), b + data.draw(st.integers(1, 6))) for b in low],
        np.int64,
    )
    held = tuple(data.draw(st.integers(1, 3)) for _ in range(rank))
    wanted = tuple(data.draw(st.integers(1, 3)) for _ in range(rank))
    mine_of, theirs_of = (data.draw(st.permutations(range(27))) for _ in range(2))
    same = [theirs_of[mine_of[core]] for core in range(27)]
    common = set(itertools.product(*[range(a, b) for a, b in made.tolist()]))
    mine, theirs = boxes(need, wanted), boxes(made, held)
    expected = max(
        len((box & common) - (theirs[same[core]] if same[core] < len(theirs) else set()))
        for core, box in enumerate(mine)
    )
    pieces = Pieces(made[None], need[None], np.asarray([wanted], np.int64))
    found = most_crossing(pieces, np.asarray([held], np.int64), np.asarray([same], np.int64))
    assert found.tolist() == [expected]
    shared = [len(box & common) for box in mine]
    cores = np.arange(len(mine))
    assert pieces.shares(np.zeros_like(cores), cores).tolist() == shared


def test_seven_inputs_are_put_together_in_the_resnet_example() -> None:
    """Four before b, two before c, one before d (section 3.5)."""
    schedule = build_schedule(scheduler_of("resnet50"), Knobs())
    joined: dict[int, int] = {}
    for step in steps_of(schedule.timeline):
        subgraph = instance_of(schedule.instances, step.instance).subgraph
        several = sum(len(c.pieces) > 1 for c in concats(schedule.timeline, step.instance))
        joined[subgraph] = joined.get(subgraph, 0) + several
    assert joined == {0: 0, 1: 4, 2: 2, 3: 1}


@pytest.mark.full
def test_what_movements_copy_is_the_whole_input() -> None:
    schedule = build_schedule(scheduler_of("resnet50"), Knobs(output_scope="GB"))
    for step in steps_of(schedule.timeline):
        for concat in concats(schedule.timeline, step.instance):
            assert all(p.movement is MovementKind.COPY for p in concat.pieces)
            need = instance_of(schedule.instances, step.instance).inputs[concat.tensor]
            size = int((need[:, 1] - need[:, 0]).prod()) * 2
            assert sum(p.cluster_bytes for p in concat.pieces) == size
        assert step.crossing == 0


@pytest.mark.parametrize("order", ["dfs"])
def test_crossing_never_exceeds_what_a_core_reads(order: str) -> None:
    schedule = build_schedule(scheduler_of("resnet50"), Knobs(instance_order=order))
    for step in steps_of(schedule.timeline):
        for concat in concats(schedule.timeline, step.instance):
            for piece in concat.moved:
                assert 0 <= piece.crossing_bytes <= concat.core_bytes
            assert concat.core_bytes <= sum(p.cluster_bytes for p in concat.moved)


@pytest.mark.full
def test_pieces_for_different_cores_share_an_address() -> None:
    """Two halves of a batch: a core wants one sample with all channels, of one half only."""
    concat = pieces(((2, 4, 1, 1), (2, 4, 1, 1)), (Scope.LB, Scope.LB), (4, 2, 1, 1))
    half = 2 * 28 * 28 * 512 * 2
    assert concat.core_bytes == half // 2
