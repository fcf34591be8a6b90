"""Decisions of a schedule, taken over by the same model, a deeper one, and one that shares none."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from autoturbo.database import Database
from autoturbo.errors import KnobsError
from autoturbo.graph.batch import rebatch, trace_batch
from autoturbo.graph.operators import Graph
from autoturbo.hardware.target import Target
from autoturbo.schedule.knobs import Knobs, SubGraphKnobs
from autoturbo.schedule.pipeline import ModelScheduler, build_schedule, plan
from autoturbo.schedule.schedule import Schedule
from autoturbo.search.openings import initial_settings
from autoturbo.search.space import Space
from autoturbo.search.warm_starts.beginning import decisions_for, kept_decisions, starting_point
from autoturbo.search.warm_starts.transfer import (
    Decisions,
    decisions_of,
    moved,
    nearest,
    rebatched,
    transfer,
)
from autoturbo.simulator.evaluator import Evaluator
from autoturbo.tuning.tuner import tune
from autoturbo.verifier import verify_schedule
from tests.schedule.schedule_samples import STCP920, Net, chain, networks, target, workload
from tests.schedule.test_schedule_properties import drawn

FP16 = "float16"


def machine() -> Target:
    """A target whose local buffers hold some layers of the networks here."""
    return target(lb=1 << 16)


def residual(blocks: int, batch: int = 4) -> Graph:
    """A stem and residual blocks of one kind."""
    net = Net(x=(batch, 16, 16, 16))
    at = net.relu(net.conv("x", 32))
    for _ in range(blocks):
        at = net.relu(net.sum(net.conv(net.relu(net.conv(at, 32)), 32), at))
    return net.graph()


def cuts(schedule: Schedule) -> list[object]:
    """Layers and parts of all sub-graphs."""
    return [(s.layers, s.split.axes) for s in schedule.instances.subgraphs]


def built(graph: Graph, knobs: Knobs | None = None) -> Schedule:
    return build_schedule(ModelScheduler(graph, machine(), FP16), knobs or Knobs())


def groups(graph: Graph, knobs: Knobs) -> list[tuple[int, ...]]:
    return [s.layers for s in plan(ModelScheduler(graph, machine(), FP16), knobs).subgraphs]


@pytest.mark.parametrize(
    "name", ["resnet18", pytest.param("bert_base_s128", marks=pytest.mark.full)]
)
def test_a_model_that_takes_over_its_own_decisions_is_scheduled_the_same(name: str) -> None:
    model_scheduler = ModelScheduler(workload(name), STCP920, FP16)
    schedule = build_schedule(model_scheduler, Knobs())
    taken = transfer(model_scheduler, [decisions_of(schedule)])
    assert taken is not None
    assert taken.known == pytest.approx(1.0)
    again = build_schedule(model_scheduler, taken.knobs)
    assert cuts(again) == cuts(schedule)


def test_a_deeper_network_takes_over_the_blocks_of_a_shallow_one() -> None:
    shallow, deep = residual(6), residual(12)
    knobs = Knobs(max_layers=3, prefetch_depth=2)
    schedule = built(shallow, knobs)
    taken = transfer(ModelScheduler(deep, machine()), [decisions_of(schedule)])
    assert taken is not None
    assert taken.known == pytest.approx(1.0)
    assert taken.knobs.prefetch_depth == 2
    sizes = {len(layers) for layers in groups(shallow, knobs)}
    assert {len(layers) for layers in groups(deep, taken.knobs)} <= sizes
    assert groups(deep, taken.knobs) != groups(deep, Knobs())


def test_own_knobs_of_a_sub_graph_are_taken_over() -> None:
    graph = residual(2)
    name = graph.operators[0].name
    schedule = built(graph, Knobs(overrides=(SubGraphKnobs(name, boundary="cut", scope="GB"),)))
    taken = transfer(ModelScheduler(graph, machine()), [decisions_of(schedule)])
    assert taken is not None
    own = next(o for o in taken.knobs.overrides if o.layer == name)
    assert (own.boundary, own.scope) == ("cut", "GB")


def test_a_model_with_other_layers_takes_over_nothing() -> None:
    decisions = decisions_of(built(chain("conv", "relu", "conv")))
    assert transfer(ModelScheduler(residual(2), machine()), [decisions]) is None
    assert transfer(ModelScheduler(residual(2), machine()), []) is None


def test_the_decisions_that_know_most_are_taken_over() -> None:
    strange = decisions_of(built(chain("conv", "relu", "conv")))
    half = decisions_of(built(residual(1), Knobs(tile_subdivision=2)))
    whole = decisions_of(built(residual(4), Knobs(tile_subdivision=4)))
    taken = transfer(ModelScheduler(residual(4), machine()), [strange, half, whole])
    assert taken is not None
    assert taken.knobs.tile_subdivision == 4


def test_a_number_of_samples_that_the_clusters_cannot_have_is_left_out() -> None:
    decisions = decisions_of(built(residual(2, batch=8), Knobs(batches_per_cluster=4)))
    for batch, wanted in ((8, 4), (3, "auto")):
        taken = transfer(ModelScheduler(residual(2, batch=batch), machine()), [decisions])
        assert taken is not None
        assert taken.knobs.batches_per_cluster == wanted


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(networks(), st.data())
def test_any_schedule_s_decisions_survive_a_file_and_give_a_setting(
    graph: Graph, data: st.DataObject
) -> None:
    schedule = drawn(data, graph, machine())
    decisions = decisions_of(schedule)
    assert Decisions.from_dict(json.loads(json.dumps(decisions.as_dict()))) == decisions
    taken = transfer(ModelScheduler(schedule.model, schedule.context.target), [decisions])
    if taken is None:  # nothing to multiply
        assert schedule.model.macs == 0
        return
    names = {layer.name for layer in schedule.context.layers}
    assert {override.layer for override in taken.knobs.overrides} == names
    build_schedule(ModelScheduler(schedule.model, schedule.context.target, FP16), taken.knobs)


@pytest.mark.full
@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data(), batch=st.integers(1, 6), dtype=st.sampled_from(["float16", "int8"]))
def test_nothing_that_a_database_holds_makes_a_run_fail(
    data: st.DataObject, batch: int, dtype: str
) -> None:
    """Another batch, target, type and model than those that the schedules were made for."""
    first, other = data.draw(networks()), data.draw(networks())
    schedule = drawn(data, first, machine(), split="spatial" if data.draw(st.booleans()) else None)
    known = [decisions_of(schedule), decisions_of(built(residual(2, batch)))]
    small = data.draw(st.sampled_from([machine(), target(lb=4096, clusters=2), target(cores=1)]))
    fewer = rebatch(first, min(batch, first.batch), trace_batch(first))
    for graph in (fewer, other, residual(1, data.draw(st.integers(1, 8)))):
        found = starting_point(Evaluator(graph, small, dtype), known)
        model_scheduler = ModelScheduler(graph, small, dtype)
        space = Space.of(model_scheduler, subgraphs=2, starts=[one.knobs for one in found.settings])
        for knobs in initial_settings(space, every_batch=True):
            build_schedule(model_scheduler, knobs)
        assert all("not started from" in note or "nothing is taken" in note for note in found.notes)


def test_a_split_into_more_parts_than_there_are_samples_is_made_to_fit() -> None:
    model_scheduler = ModelScheduler(residual(2, batch=8), machine(), FP16)
    name = model_scheduler.context(8).layers[1].name
    own = SubGraphKnobs(name, boundary="cut", dim=0, factor=8, inner_dim=1, inner_factor=2)
    decisions = decisions_of(build_schedule(model_scheduler, Knobs(overrides=(own,))))
    few = residual(2, batch=2)
    with pytest.raises(KnobsError) as caught:
        plan(ModelScheduler(few, machine(), FP16), Knobs(overrides=(own,)))
    assert caught.value.at.field == "overrides"
    taken = transfer(ModelScheduler(few, machine(), FP16), [decisions])
    assert taken is not None
    assert name in taken.changed
    fitted = next(o for o in taken.knobs.overrides if o.layer == name)
    assert (fitted.dim, fitted.factor, fitted.inner_dim, fitted.inner_factor) == (0, 2, 1, 2)
    (found,) = starting_point(Evaluator(few, machine(), FP16), [decisions]).settings[-1:]
    assert "made smaller to fit" in found.origin


@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data(), batch=st.integers(1, 12), blocks=st.integers(1, 2))
def test_any_setting_of_another_batch_gives_a_sound_schedule(
    data: st.DataObject, batch: int, blocks: int
) -> None:
    knobs = drawn(data, residual(blocks, batch=8), machine()).knobs
    model_scheduler = ModelScheduler(residual(blocks, batch=batch), machine(), FP16)
    schedule = build_schedule(model_scheduler, rebatched(model_scheduler, knobs))
    assert schedule.model.batch == batch
    assert verify_schedule(schedule, numbers=False).findings == ()


def test_a_setting_of_another_batch_keeps_what_fits() -> None:
    few = ModelScheduler(residual(2, batch=2), machine(), FP16)
    name = few.context(2).layers[1].name
    own = SubGraphKnobs(name, boundary="cut", dim=0, factor=8)
    found = rebatched(few, Knobs(batches_per_cluster=4, tile_subdivision=4, overrides=(own,)))
    assert (found.batches_per_cluster, found.tile_subdivision) == ("auto", 4)
    (fitted,) = found.overrides
    assert (fitted.layer, fitted.boundary, fitted.dim, fitted.factor) == (name, "cut", 0, 2)
    kept = Knobs(tile_subdivision=4)
    assert rebatched(few, kept) == kept


@pytest.mark.full
def test_decisions_that_cannot_be_read_are_left_out_with_a_note(tmp_path: Path) -> None:
    graph = residual(2)
    tune(
        graph, machine(), dtype=FP16, trials=1, database=tmp_path / "a.db",
        runs_folder=tmp_path / "runs", baselines=(),
    )  # fmt: skip
    with Database.open(tmp_path / "a.db") as store:
        (best,) = store.best()
        for broken in ({"layers": 3}, {**best.decisions, "knobs": {"no_such_knob": 1}}):
            store.withdraw_best(best.key, best.knobs)
            store.put_best(dataclasses.replace(best, decisions=broken))
            known, notes = decisions_for(store, best.key, graph)
            assert known == ()
            of = f"{best.model} in {store.path}, run {best.run}, the heuristic"
            assert notes == (f"not read: what the schedule of {of} decided",)
    again = tune(
        graph, machine(), dtype=FP16, trials=2, database=tmp_path / "a.db",
        runs_folder=tmp_path / "runs", baselines=(),
    )  # fmt: skip
    assert again.notes == notes


@pytest.mark.full
def test_tuning_keeps_decisions_and_another_model_begins_with_them(tmp_path: Path) -> None:
    def run(graph: Graph, *, transfer: bool = True) -> list[Knobs]:
        result = tune(
            graph, machine(), dtype=FP16, trials=40, subgraphs=2, database=tmp_path / "a.db",
            runs_folder=tmp_path / "runs", baselines=(), transfer=transfer,
        )  # fmt: skip
        return [trial.knobs for trial in result.trials]

    run(residual(3))
    deep = residual(5)
    with Database.open(tmp_path / "a.db") as store:
        (best,) = store.best()
        known = decisions_for(store, best.key, deep)
    source = f"{best.model} in {tmp_path / 'a.db'}, run {best.run}, trial {best.trial}"
    assert known == ((Decisions.from_dict(best.decisions, source),), ())
    begun = starting_point(Evaluator(deep, machine(), FP16), known[0])
    assert begun.settings[-1].origin.startswith(f"the schedule of {source} (")
    assert begun.notes == ()
    start = begun.settings[-1].knobs
    placed = starting_point(Evaluator(deep, machine(), FP16)).settings
    assert start not in [one.knobs for one in placed]
    cold = run(deep, transfer=False)
    with Database.open(tmp_path / "a.db") as store:
        settings_of = [run.settings["starts"] for run in store.runs()]
    assert start.as_dict() not in settings_of[-1]
    warm = run(deep)
    assert warm != cold


@pytest.mark.parametrize(
    "name", ["resnet18", pytest.param("bert_base_s128", marks=pytest.mark.full)]
)
def test_the_nearest_decisions_are_those_that_are_taken_over(name: str) -> None:
    """From all that is known, and from the nearest alone, the same."""
    graph = workload(name)
    models = [workload(n) for n in ("resnet50", "squeezenet1_1", "bert_base_s256", "resnet18")]
    known = [
        decisions_of(build_schedule(ModelScheduler(m, STCP920, FP16), Knobs())) for m in models
    ]
    found = nearest(graph, [decisions.as_dict() for decisions in known], 1)
    model_scheduler = ModelScheduler(graph, STCP920)
    assert transfer(model_scheduler, map(Decisions.from_dict, found)) == transfer(
        model_scheduler, known
    )
    kept = [decisions.as_dict() for decisions in known]
    assert sorted(map(str, nearest(graph, kept, 9))) == sorted(map(str, kept))
    assert nearest(graph, [], 9) == []


def test_schedules_of_other_measurers_decide_nothing_that_is_kept() -> None:
    assert kept_decisions(object()) == {}


def test_a_setting_can_be_moved_to_a_larger_buffer_with_its_cuts() -> None:
    """By itself it cuts into fewer parts there."""
    graph, small, large = residual(3), target(lb=1 << 12), target(lb=1 << 13)
    schedule = build_schedule(ModelScheduler(graph, small, FP16), Knobs())
    model_scheduler = ModelScheduler(graph, large, FP16)
    ways = moved(model_scheduler, Knobs(), decisions_of(schedule), 0.5)
    kept = [cuts(build_schedule(model_scheduler, knobs)) == cuts(schedule) for knobs in ways]
    assert kept == [False, False, True, True, True]
    assert ways[0] == Knobs()
    assert [way.lb_occupancy_limit for way in ways] == ["auto", "auto", 0.5, 0.5, 0.5]
    assert [way.tile_subdivision for way in ways] == ["auto", "auto", "auto", "auto", 2]


def test_a_setting_that_is_moved_keeps_to_what_knobs_may_be() -> None:
    """A smaller buffer is not filled over its brim, nor a much larger one by next to nothing."""
    graph = residual(3)
    model_scheduler = ModelScheduler(graph, machine(), FP16)
    made = decisions_of(
        build_schedule(model_scheduler, Knobs(lb_occupancy_limit=0.1, tile_subdivision=128))
    )
    for share in (0.25, 1.0, 2.0):
        ways = moved(
            model_scheduler, Knobs(lb_occupancy_limit=0.1, tile_subdivision=128), made, share
        )
        assert {(way.lb_occupancy_limit, way.tile_subdivision) for way in ways} == {(0.1, 128)}
    made = decisions_of(build_schedule(model_scheduler, Knobs(tile_subdivision=128)))
    ways = moved(model_scheduler, Knobs(tile_subdivision=128), made, 0.25)
    assert {(way.lb_occupancy_limit, way.tile_subdivision) for way in ways} == {
        ("auto", 128),
        (0.25, 128),
    }
