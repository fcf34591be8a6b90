"""The workbench, shares of the batch, overrides, and the pipeline as a whole."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoturbo.errors import KnobsError
from autoturbo.graph.batch import rebatch, trace_batch
from autoturbo.graph.operators import Graph
from autoturbo.schedule.knobs import Knobs, SubGraphKnobs
from autoturbo.schedule.pipeline import ModelScheduler, build_schedule, plan
from autoturbo.schedule.place.bind import Scope
from autoturbo.schedule.schedule import Share
from autoturbo.simulator.sequence import simulate
from tests.schedule.schedule_checks import check_schedule
from tests.schedule.schedule_samples import STCP920, Net, block, chain, scheduler_of, target
from tests.schedule.steps import instance_of, signature_of, steps_of


def forced(**override: object) -> Knobs:
    return Knobs(overrides=(SubGraphKnobs("conv0", **override),))  # type: ignore[arg-type]


def splits(knobs: Knobs, shape: tuple[int, ...] = (4, 4, 8, 8)) -> list[tuple[int, int]]:
    """Axis and number of instances of every sub-graph of one convolution."""
    model_scheduler = ModelScheduler(chain("conv", shape=shape), target(lb=1 << 16), "float16")
    return [(s.split.axis, s.split.instances) for s in plan(model_scheduler, knobs).subgraphs]


@pytest.mark.parametrize(
    ("batch", "clusters", "share"),
    [
        (64, 4, Share(4, 16, 16)),
        (3, 4, Share(3, 1, 1)),
        (5, 4, Share(3, 2, 2)),
        (1, 4, Share(1, 1, 1)),
        (7, 2, Share(2, 4, 4)),
    ],
)
def test_shares(batch: int, clusters: int, share: Share) -> None:
    model_scheduler = ModelScheduler(
        chain("relu", shape=(batch, 4)), target(clusters=clusters), "float16"
    )
    assert model_scheduler.share() == share


@given(batch=st.integers(1, 40), clusters=st.integers(1, 8))
def test_clusters_at_work_share_out_the_whole_batch(batch: int, clusters: int) -> None:
    """No cluster is counted that has nothing to do."""
    share = ModelScheduler(_with_batch(batch), target(clusters=clusters), "float16").share()
    assert share.clusters <= clusters
    assert (share.clusters - 1) * share.samples < batch <= share.clusters * share.samples


_RELU = chain("relu", shape=(120, 4))


def _with_batch(batch: int) -> Graph:
    return rebatch(_RELU, batch, trace_batch(_RELU))


def test_samples_at_once_and_loops() -> None:
    model_scheduler = scheduler_of("resnet50")
    assert model_scheduler.share(4) == Share(4, 16, 4)
    assert model_scheduler.share(4).loops == 4
    assert model_scheduler.share(5).loops == 4
    assert model_scheduler.batch_choices() == (16, 8, 4, 2, 1)


def test_more_samples_than_a_cluster_has() -> None:
    with pytest.raises(KnobsError) as caught:
        build_schedule(scheduler_of("resnet50"), Knobs(batches_per_cluster=17))
    assert str(caught.value) == "batches_per_cluster: 17 is more than a cluster's 16 samples"


def test_a_model_that_mixes_samples_runs_whole_on_one_cluster() -> None:
    net = Net(x=(4, 8))
    net.softmax("x", 0)
    model_scheduler = ModelScheduler(net.graph(), target(clusters=4), "float16")
    assert model_scheduler.share() == Share(1, 4, 4)
    assert model_scheduler.share(2) == Share(1, 4, 4)
    assert model_scheduler.batch_choices() == (4,)
    check_schedule(build_schedule(model_scheduler, Knobs()))


@pytest.mark.full
def test_problems_are_made_once_per_batch() -> None:
    model_scheduler = ModelScheduler(chain("conv"), target(), "float16")
    assert model_scheduler.context(1) is model_scheduler.context(1)
    assert model_scheduler.context(2).graph is model_scheduler.model


def test_instance_multiplier_multiplies() -> None:
    assert splits(Knobs()) == [(-1, 1)]
    assert [n for _, n in splits(Knobs(instance_multiplier=2))] == [2]
    assert [n for _, n in splits(Knobs(instance_multiplier=4))] == [4]


@pytest.mark.full
def test_instance_multiplier_that_does_not_divide_changes_nothing() -> None:
    assert [n for _, n in splits(Knobs(instance_multiplier=8))] == [1]
    assert [n for _, n in splits(Knobs(instance_multiplier=2), (3, 4, 8, 8))] == [1]


@pytest.mark.full
def test_instance_multiplier_on_resnet_doubles_every_stage() -> None:
    schedule = build_schedule(scheduler_of("resnet50"), Knobs(instance_multiplier=2))
    assert [s.split.instances for s in schedule.instances.subgraphs] == [16, 8, 4, 2]


@pytest.mark.full
@pytest.mark.parametrize("factor", [1, 3])
def test_a_forced_factor(factor: int) -> None:
    assert [n for _, n in splits(forced(dim=0, factor=factor))] == [factor]


def test_dimensions_are_counted_in_loop_order() -> None:
    """0 samples, 1 rows, 2 columns, 3 channels, also of an NCHW tensor."""
    model_scheduler = ModelScheduler(
        chain("conv", shape=(4, 4, 8, 8)), target(lb=1 << 16), "float16"
    )
    for dim, axis in enumerate((0, 2, 3, 1)):
        schedule = build_schedule(model_scheduler, forced(dim=dim, factor=2))
        (tensor,) = schedule.context.graph.outputs
        first = instance_of(schedule.instances, 0).outputs[tensor]
        lengths = (first[:, 1] - first[:, 0]).tolist()
        whole = list(schedule.context.graph.tensors[tensor].shape)
        assert [d for d in range(4) if lengths[d] != whole[d]] == [axis]
        check_schedule(schedule)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ({"dim": 0, "factor": 5}, "overrides: conv0 cannot be split into 5 along dimension 0"),
        ({"dim": 4, "factor": 2}, "overrides: conv0 cannot be split into 2 along dimension 4"),
    ],
)
def test_impossible_splits(override: dict[str, int], message: str) -> None:
    with pytest.raises(KnobsError) as caught:
        splits(forced(**override))
    assert str(caught.value) == message


def test_an_override_for_a_layer_that_is_not_there() -> None:
    with pytest.raises(KnobsError) as caught:
        splits(Knobs(overrides=(SubGraphKnobs("conv9", factor=2),)))
    assert str(caught.value) == "overrides: the model has no layer 'conv9'"


def test_later_overrides_win() -> None:
    both = Knobs(
        overrides=(SubGraphKnobs("conv0", dim=0, factor=2), SubGraphKnobs("conv0", dim=0, factor=4))
    )
    assert [n for _, n in splits(both)] == [4]


@pytest.mark.full
@pytest.mark.parametrize(("scope", "least"), [("GB", Scope.GB), ("DDR", Scope.DDR)])
def test_output_scope_moves_everything_down(scope: str, least: Scope) -> None:
    schedule = build_schedule(scheduler_of("resnet50"), Knobs(output_scope=scope))
    assert min(schedule.placement.scopes) is least


def test_dtype_changes_sizes() -> None:
    """INT8 tensors are half as large, so the first stage needs half as many parts."""
    model_scheduler = ModelScheduler(scheduler_of("resnet50").model, STCP920, "int8")
    schedule = build_schedule(model_scheduler, Knobs())
    assert schedule.instances.subgraphs[0].split.instances == 4
    check_schedule(schedule)


@pytest.mark.parametrize("batches", [4, pytest.param(1, marks=pytest.mark.full)])
def test_every_batch_of_resnet(batches: int) -> None:
    schedule = build_schedule(scheduler_of("resnet50"), Knobs(batches_per_cluster=batches))
    check_schedule(schedule)
    assert schedule.share.loops * batches == 16
    assert schedule.context.graph.batch == batches


@pytest.mark.full
def test_a_schedule_knows_its_decisions() -> None:
    knobs = Knobs(instance_order="bfs")
    schedule = build_schedule(ModelScheduler(block(), target(), "float16"), knobs)
    assert (schedule.scheduler, schedule.knobs, schedule.expected) == ("graphturbo", knobs, None)
    assert schedule.text is schedule.text


@pytest.mark.full
def test_signatures_depend_on_target_type_and_rules() -> None:
    model = block()
    steps = []
    for machine, dtype, knobs in (
        (target(lb=1 << 16), "float16", Knobs()),
        (target(lb=1 << 17), "float16", Knobs()),
        (target(lb=1 << 16), "int8", Knobs()),
        (target(lb=1 << 16), "float16", Knobs(prefetch_depth=2)),
    ):
        schedule = build_schedule(ModelScheduler(model, machine, dtype), knobs)
        steps.append(signature_of(schedule, steps_of(schedule.timeline)[0]))
    assert len(set(steps)) == 4
    assert all(len(s) == 32 for s in steps)


@pytest.mark.full
def test_the_published_heuristic_beats_layer_by_layer_on_resnet() -> None:
    model_scheduler = scheduler_of("resnet50")
    best = simulate(build_schedule(model_scheduler, Knobs()))
    single = simulate(build_schedule(model_scheduler, Knobs(max_layers=1)))
    assert best.latency < single.latency
    assert best.ddr_bytes < single.ddr_bytes / 2
