"""Clusters that work on the same samples: shares of outputs, stages, and how passes overlap."""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx.parser
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from autoturbo.errors import KnobsError, ScheduleFileError
from autoturbo.graph.onnx_import import import_model
from autoturbo.graph.operators import Graph
from autoturbo.hardware import Target
from autoturbo.schedule.context import BATCH
from autoturbo.schedule.files import load_schedule
from autoturbo.schedule.knobs import Knobs, SubGraphKnobs
from autoturbo.schedule.memory.timeline import handed_over
from autoturbo.schedule.pipeline import ModelScheduler, build_schedule, plan
from autoturbo.schedule.place.bind import Scope
from autoturbo.schedule.place.homes import shortest_runs
from autoturbo.schedule.schedule import Schedule, Share
from autoturbo.schedule.streams import IN_DDR, OUT_DDR, ROOM
from autoturbo.simulator.evaluator import Evaluator
from autoturbo.simulator.measurement import Failure
from autoturbo.simulator.sequence import run_passes, simulate
from tests.schedule.cluster_checks import joint_ends
from tests.schedule.schedule_checks import check_schedule
from tests.schedule.schedule_samples import (
    STCP920,
    Net,
    block,
    capacity,
    chain,
    networks,
    target,
    targets,
    workload,
)
from tests.schedule.steps import instances_of, names_of, steps_of
from tests.schedule.test_schedule_properties import drawn

SPLITS = ("spatial", "channel", "pipeline", "either", "branches")
EXAMPLES = settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@st.composite
def several(draw: st.DrawFn) -> Target:
    """Targets of several clusters; launches that cost nothing keep more sub-graphs apart."""
    machine = dataclasses.replace(draw(targets()), clusters=draw(st.integers(2, 4)))
    cost = draw(st.sampled_from((0.0, 0.0, machine.overheads.kernel_launch)))
    overheads = dataclasses.replace(machine.overheads, kernel_launch=cost, barrier=cost / 6)
    return dataclasses.replace(machine, overheads=overheads)


def built(graph: Graph, machine: Target, **knobs: Any) -> Schedule:
    return build_schedule(ModelScheduler(graph, machine, "float16"), Knobs(**knobs))


@pytest.mark.parametrize("split", SPLITS)
@settings(EXAMPLES, max_examples=6)
@given(graph=networks(6), machine=several(), data=st.data())
def test_any_setting_gives_a_valid_schedule(
    split: str, graph: Graph, machine: Target, data: st.DataObject
) -> None:
    """Coverage, dependences, memory, streams, latency: all checks, clusters included."""
    check_schedule(drawn(data, graph, machine, split=split))


@pytest.mark.full
@pytest.mark.parametrize("split", SPLITS)
@EXAMPLES
@given(graph=networks(), machine=several(), data=st.data())
def test_any_setting_gives_a_valid_schedule_for_larger_networks(
    split: str, graph: Graph, machine: Target, data: st.DataObject
) -> None:
    check_schedule(drawn(data, graph, machine, split=split))


@settings(EXAMPLES, max_examples=9)
@given(split=st.sampled_from(SPLITS), graph=networks(), machine=several(), data=st.data())
def test_round_trip_of_any_schedule(
    tmp_path_factory: pytest.TempPathFactory,
    split: str,
    graph: Graph,
    machine: Target,
    data: st.DataObject,
) -> None:
    schedule = drawn(data, graph, machine, split=split)
    path = tmp_path_factory.mktemp("files") / "s.json"
    schedule.save(path)
    again = load_schedule(path, schedule.model, machine)
    assert again.text == schedule.text
    assert (again.cluster, again.share) == (schedule.cluster, schedule.share)
    assert simulate(again) == simulate(schedule)


@settings(EXAMPLES, max_examples=9)
@given(split=st.sampled_from(SPLITS), graph=networks(), machine=several())
def test_the_same_from_a_used_and_a_fresh_workbench(
    split: str, graph: Graph, machine: Target
) -> None:
    used = ModelScheduler(graph, machine, "float16")
    for other in ("auto", *SPLITS):
        build_schedule(used, Knobs(cluster_partitioning=other))
    knobs = Knobs(cluster_partitioning=split)
    again = build_schedule(used, knobs)
    fresh = build_schedule(ModelScheduler(graph, machine, "float16"), knobs)
    assert again.text == fresh.text
    assert simulate(again) == simulate(fresh)


@pytest.mark.parametrize(
    ("name", "split"),
    [
        ("squeezenet1_1", "spatial"),
        *(
            pytest.param(name, split, marks=pytest.mark.full)
            for name, split in (
                ("resnet50", "spatial"), ("resnet50", "pipeline"), ("bert_base_s128", "channel"),
                ("dlrm", "pipeline"),
            )
        ),
    ],
)  # fmt: skip
def test_real_networks(name: str, split: str) -> None:
    check_schedule(built(workload(name, 4), STCP920, cluster_partitioning=split))


def test_one_cluster_has_nothing_to_share_out() -> None:
    machine = target(clusters=1)
    assert built(block(), machine).share == Share(1, 4, 4)
    for split in SPLITS:
        if split != BATCH:
            with pytest.raises(KnobsError) as caught:
                built(block(), machine, cluster_partitioning=split)
            assert caught.value.at.field == "cluster_partitioning"


def test_what_cannot_be_shared_out_runs_on_one_cluster() -> None:
    """A product of vectors has no rows; one layer has no stages."""
    net = Net(x=(3, 8))
    net.linear("x", 8)
    for split in ("spatial", "pipeline"):
        schedule = built(net.graph(), target(clusters=4), cluster_partitioning=split)
        assert schedule.share == Share(1, 3, 3, split)
        assert len(schedule.timelines) == 1
        assert set(simulate(schedule).kernel_counts.values()) == {1}


def test_samples_at_once_are_the_chip_s() -> None:
    machine = target(lb=1 << 16, clusters=2)
    schedule = built(
        block(),
        machine,
        cluster_partitioning="spatial",
        batches_per_cluster=3,
        max_layers=1,
        instance_order="bfs",
    )
    assert schedule.share == Share(2, 4, 3, "spatial")
    assert schedule.share.loops == 2
    with pytest.raises(KnobsError) as caught:
        built(block(), machine, cluster_partitioning="spatial", batches_per_cluster=5)
    assert str(caught.value) == "batches_per_cluster: 5 is more than the batch's 4 samples"


def test_halves_of_an_image_with_a_halo() -> None:
    """Two convolutions over two clusters: each reads a row of the other's half, from DDR.

    Its own half stays where it is, unless it is asked to leave; then that is read there too.
    """
    machine = target(lb=1 << 16, clusters=2)
    halves = functools.partial(
        built, chain("conv", "conv", shape=(1, 4, 8, 8)), machine,
        cluster_partitioning="spatial", max_layers=1,
    )  # fmt: skip
    schedule, leaving = halves(), halves(output_scope="DDR")
    first, second = schedule.instances.subgraphs
    assert (first.split.instances, second.split.instances) == (2, 2)
    assert schedule.cluster == (0, 1, 0, 1)
    rows = [i.outputs[next(iter(i.outputs))][2].tolist() for i in instances_of(schedule.instances)]
    assert rows == [[0, 4], [4, 8]] * 2
    needs = [
        i.inputs[next(iter(i.inputs))][2].tolist() for i in instances_of(schedule.instances)[2:]
    ]
    assert needs == [[0, 5], [3, 8]]
    row = 4 * 8 * 2
    for read, one in ((1, schedule), (5, leaving)):
        for timeline in one.timelines:
            own, other = steps_of(timeline)
            assert own.streams[0, :ROOM].tolist() == [0, 5 * row, 0, 4 * row, 0, 0]
            assert int(other.streams[0, IN_DDR]) >= row
            assert other.copied[1] + int(other.streams[0, IN_DDR]) == read * row
            kinds = [name.kind for name in names_of(timeline)]
            assert kinds.count("shared") == (one is schedule)
        check_schedule(one)


def test_what_only_others_read_takes_no_room_on_the_chip() -> None:
    machine = target(lb=1 << 16, clusters=2)
    schedule = built(
        chain("conv", "conv", shape=(2, 4, 8, 8)), machine,
        cluster_partitioning="pipeline", max_layers=1,
    )  # fmt: skip
    first = schedule.timelines[0]
    assert schedule.placement.scopes[0] is Scope.LB
    assert [Scope(scope) for scope in first.buffers.scope.tolist()] == [Scope.DDR]


def test_a_copy_of_what_found_no_room_is_not_saved_twice() -> None:
    """Parts of which few stay in the local buffers: what is in DDR is there once."""
    schedule = built(
        chain("conv", "conv", shape=(1, 16, 16, 16)), target(lb=1 << 10, gb=0, clusters=2),
        cluster_partitioning="spatial", max_layers=1,
    )  # fmt: skip
    for timeline in schedule.timelines:
        names, in_ddr = names_of(timeline), timeline.buffers.scope == Scope.DDR
        assert {"tensor", "shared"} == {names[at].kind for at in np.flatnonzero(in_ddr)}
        held = [names[at][1:] for at in np.flatnonzero(in_ddr)]
        assert len(held) == len(set(held))
        assert timeline.streams[:, OUT_DDR].sum() == timeline.buffers.cluster_bytes[in_ddr].sum()
    check_schedule(schedule)


@pytest.mark.full
def test_halves_without_a_halo_stay_in_local_buffers() -> None:
    """Products of single pixels read nothing of the other half, but all of its channels."""
    machine = target(lb=1 << 16, clusters=2)
    net = Net(x=(1, 4, 8, 8))
    net.conv(net.conv("x", 4, 1), 4, 1)
    spatial = built(
        net.graph(), machine, cluster_partitioning="spatial", max_layers=1, instance_order="bfs"
    )
    assert spatial.cluster == (0, 1, 0, 1)
    assert spatial.placement.scopes[:2] == (Scope.LB, Scope.LB)
    assert all(not steps_of(t)[1].streams[0, :2].any() for t in spatial.timelines)
    channel = built(
        net.graph(), machine, cluster_partitioning="channel", max_layers=1, instance_order="bfs"
    )
    assert channel.cluster == (0, 1, 0, 1)
    half = 2 * 8 * 8 * 2
    assert all(int(steps_of(t)[1].streams[0, IN_DDR]) == half for t in channel.timelines)


def test_channels_are_shared_out_with_their_weights() -> None:
    """Each cluster reads half of the weights; all of the input."""
    net = Net(x=(1, 8, 16))
    net.linear("x", 32)
    machine = target(lb=1 << 16, clusters=2)
    schedule = built(net.graph(), machine, cluster_partitioning="channel")
    whole = built(net.graph(), target(lb=1 << 16))
    assert simulate(whole).ddr_bytes == (16 * 32 + 8 * 16 + 8 * 32) * 2
    assert simulate(schedule).ddr_bytes == (16 * 32 + 2 * 8 * 16 + 8 * 32) * 2


@pytest.mark.full
@pytest.mark.parametrize(("kernel", "inner"), [(1, 2), (3, 4)])
def test_own_splits_are_divided_among_clusters(kernel: int, inner: int) -> None:
    """Four parts by samples become two on each of two clusters; with a halo four, or none fits."""
    net = Net(x=(8, 4, 8, 8))
    net.conv("x", 4, kernel)
    single = ModelScheduler(net.graph(), target(lb=capacity(512)), "float16")
    alone = plan(single, Knobs()).subgraphs[0].split
    model_scheduler = ModelScheduler(net.graph(), target(lb=capacity(512), clusters=2), "float16")
    shared = plan(model_scheduler, Knobs(cluster_partitioning="spatial")).subgraphs[0].split
    assert alone.instances == 4
    assert (shared.instances // shared.inner_factor, shared.inner_factor) == (2, inner)
    assert shared.inner_axis == alone.axis
    assert shared.footprint <= 4 * 512


@pytest.mark.full
@pytest.mark.parametrize(
    ("dim", "factor", "parts"), [(1, 2, (4, 1)), (0, 4, (2, 4)), (1, 1, (2, 1))]
)
def test_overrides_count_the_parts_of_a_cluster(
    dim: int, factor: int, parts: tuple[int, int]
) -> None:
    graph = chain("conv", shape=(4, 4, 8, 8))
    model_scheduler = ModelScheduler(graph, target(lb=1 << 16, clusters=2), "float16")
    name = model_scheduler.context(4).layers[0].name
    knobs = Knobs(
        cluster_partitioning="spatial", overrides=(SubGraphKnobs(name, dim=dim, factor=factor),)
    )
    split = plan(model_scheduler, knobs).subgraphs[0].split
    assert (split.instances // split.inner_factor, split.inner_factor) == parts


def test_overrides_that_are_too_many() -> None:
    graph = chain("conv", shape=(4, 4, 8, 8))
    model_scheduler = ModelScheduler(graph, target(lb=1 << 16, clusters=2), "float16")
    name = model_scheduler.context(4).layers[0].name
    many = Knobs(cluster_partitioning="spatial", overrides=(SubGraphKnobs(name, dim=1, factor=5),))
    with pytest.raises(KnobsError) as caught:
        plan(model_scheduler, many)
    assert str(caught.value) == f"overrides: {name} cannot be split into 5 on each of its clusters"
    three = SubGraphKnobs(name, dim=0, factor=2, inner_dim=3, inner_factor=2)
    with pytest.raises(KnobsError) as caught:
        plan(model_scheduler, Knobs(cluster_partitioning="spatial", overrides=(three,)))
    assert caught.value.at.field == "overrides"


@given(work=st.lists(st.integers(0, 9), min_size=1, max_size=9), clusters=st.integers(1, 5))
def test_stages_are_the_shortest_that_there_are(work: list[int], clusters: int) -> None:
    """Against all ways to cut, and no stage more than needed for that."""
    runs = shortest_runs(work, clusters)
    assert runs == sorted(runs)
    assert set(runs) == set(range(runs[-1] + 1))
    longest = max(sum(w for w, r in zip(work, runs, strict=True) if r == run) for run in set(runs))

    def best(rest: list[int], parts: int) -> int:
        if parts == 1 or len(rest) < 2:
            return sum(rest)
        cuts = range(1, len(rest) + 1)
        return min(max(sum(rest[:at]), best(rest[at:], parts - 1)) for at in cuts)

    assert longest == best(work, clusters)
    assert runs[-1] + 1 <= clusters
    fewer = runs[-1]
    assert not fewer or best(work, fewer) > longest


def passes(
    queues: list[list[int]], producers: list[list[int]], seconds: list[float], loops: int,
    barrier: float = 0.0,
) -> float:  # fmt: skip
    """The timing of some kernels on some clusters, in ascending order of instances."""
    cluster = [next(c for c, q in enumerate(queues) if i in q) for i in range(len(seconds))]
    return run_passes(range(len(seconds)), cluster, seconds, producers, loops, barrier)


def test_a_pipeline_of_two_stages_over_three_passes() -> None:
    """Stages of 2 and 3 seconds: 2 + 3 x 3.

    With a barrier of 1 the second stage first ends at 2 + 1 + 3 = 6; the third pass of the first
    waits for its room until 6 + 1, ends at 9, and the second's ends at 9 + 1 + 3.
    """
    assert passes([[0], [1]], [[], [0]], [2.0, 3.0], 3) == 11
    assert passes([[0], [1]], [[], [0]], [2.0, 3.0], 3, barrier=1.0) == 13
    assert passes([[0], [1]], [[], [0]], [3.0, 2.0], 3) == 11
    assert passes([[0], [1]], [[], [0]], [3.0, 2.0], 1) == 5


@pytest.mark.full
def test_a_stage_waits_for_room() -> None:
    """A stage of 1 s feeds one of 5 s that feeds another: it is at most two passes ahead.

    Without a limit the first cluster would be done after 6 seconds. Pass p of it starts when pass
    p - 2 of the second has ended, at 6, 11, ...: its last one, the sixth, starts at 1 + 4 * 5.
    """
    seconds, loops = {0: 1.0, 1: 5.0}, 6
    ends = joint_ends([[0], [1]], [[], [0]], seconds, loops, 0.0)
    assert [ends[p, 0] for p in range(loops)] == [1, 2, 7, 12, 17, 22]
    assert ends[5, 1] == 31 == passes([[0], [1]], [[], [0]], [1.0, 5.0], loops)


def test_parts_of_a_pass_overlap() -> None:
    """Two parts through two stages: the second stage starts when the first part is there."""
    producers = [[], [], [0], [1]]
    assert passes([[0, 1], [2, 3]], producers, [2.0, 2.0, 2.0, 2.0], 1) == 6
    assert passes([[0, 1], [2, 3]], producers, [2.0, 2.0, 2.0, 2.0], 2) == 10


@pytest.mark.full
def test_spatial_halves_wait_for_each_other_s_halo() -> None:
    """Both second layers need both first ones: the slower half counts, then a barrier."""
    producers = [[], [], [0, 1], [0, 1]]
    assert passes([[0, 2], [1, 3]], producers, [2.0, 3.0, 4.0, 1.0], 1, barrier=0.5) == 7.5
    assert passes([[0, 2], [1, 3]], [[], [], [0], [1]], [2.0, 3.0, 4.0, 1.0], 1) == 6


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_passes_against_an_event_loop(data: st.DataObject) -> None:
    count, clusters = data.draw(st.integers(1, 8)), data.draw(st.integers(1, 4))
    home = [data.draw(st.integers(0, clusters - 1)) for _ in range(count)]
    home = [sorted(set(home)).index(h) for h in home]
    producers = [
        sorted(data.draw(st.sets(st.integers(0, i - 1)))) if i else [] for i in range(count)
    ]
    seconds = [float(data.draw(st.integers(1, 9))) for _ in range(count)]
    loops = data.draw(st.integers(1, 6))
    queues = [[i for i in range(count) if home[i] == c] for c in range(max(home) + 1)]
    ends = joint_ends(queues, producers, dict(enumerate(seconds)), loops, 0.25)
    assert passes(queues, producers, seconds, loops, 0.25) == max(ends.values())


def latency(name: str, batch: int, **knobs: Any) -> float:
    return simulate(built(workload(name, batch), STCP920, **knobs)).latency


@pytest.mark.full
def test_one_sample_of_large_images_is_faster_by_rows() -> None:
    """More than twice: four clusters, all of which read all weights."""
    assert latency("unet", 1) > 2 * latency("unet", 1, cluster_partitioning="spatial")


@pytest.mark.full
def test_one_sample_with_many_weights_is_faster_by_channels() -> None:
    assert latency("resnet18", 1) > 1.5 * latency("resnet18", 1, cluster_partitioning="channel")


def test_a_pipeline_needs_several_passes() -> None:
    """One pass of ResNet-50 gains nothing from stages; sixteen are faster than on one cluster."""
    assert latency("resnet50", 1, cluster_partitioning="pipeline") >= latency("resnet50", 1)
    alone = latency("resnet50", 16, batches_per_cluster=4)
    stages = latency("resnet50", 64, batches_per_cluster=4, cluster_partitioning="pipeline")
    assert stages < 16 * alone


@pytest.mark.full
def test_what_repeats_too_much_is_kept_apart() -> None:
    """Halves of channels of a second convolution each need all of the first, which then pays.

    Unless a launch costs more than the work.
    """
    net = Net(x=(1, 64, 8, 8))
    net.conv(net.conv("x", 64, 3), 64, 3)
    machine = target(lb=1 << 20, clusters=2)
    free = dataclasses.replace(machine.overheads, kernel_launch=0.0, barrier=0.0)
    dear = dataclasses.replace(free, kernel_launch=1e-3)
    counts = [
        len(
            built(
                net.graph(),
                dataclasses.replace(machine, overheads=o),
                cluster_partitioning="channel",
            ).instances.subgraphs
        )
        for o in (free, dear)
    ]
    assert counts == [2, 1]


@pytest.mark.full
def test_a_pipeline_cuts_what_is_more_than_a_stage() -> None:
    """Four like convolutions that would be one sub-graph are two stages of two."""
    graph = chain(*["conv"] * 4, shape=(2, 4, 8, 8))
    alone = built(graph, target(lb=1 << 16))
    assert len(alone.instances.subgraphs) == 1
    schedule = built(graph, target(lb=1 << 16, clusters=2), cluster_partitioning="pipeline")
    assert [len(s.layers) for s in schedule.instances.subgraphs] == [2, 2]
    assert schedule.cluster == (0, 1)


def test_a_later_stage_streams_the_second_output_of_an_earlier_one(tmp_path: Path) -> None:
    """The stage that reads it has no kernel with two outputs of its own."""
    ones = ", ".join(["1"] * 128)
    text = f"""<ir_version: 10, opset_import: ["" : 17]>
    g (float[5,3,2] x, float[2,3,4] state, float[6,3] keys) => (float[5,2,6,4] y, float[2,3,4] end)
       <float[2,16,2] w = {{{ones[:190]}}}, float[2,16,4] r = {{{ones}}}> {{
       [lstm] made, last = LSTM <direction: string = "bidirectional", hidden_size: int = 4>
           (x, w, r, , , state)
       [mid] mid = Softmax (made)
       [y] y = MatMul (keys, mid)
       [end] end = Neg (last)
    }}"""
    onnx.save(onnx.parser.parse_model(text), tmp_path / "net.onnx")
    graph = import_model(tmp_path / "net.onnx")
    machine = target(lb=512, gb=0, clusters=2, weights=0)
    schedule = built(
        graph, machine, cluster_partitioning="pipeline", max_layers=1, instance_order="bfs"
    )
    assert schedule.cluster == (0, 1, 1, 1)
    second = schedule.timelines[1]
    assert sorted(second.streams[:, IN_DDR].tolist()) == [
        2 * 6 * 3,
        2 * 2 * 3 * 4,
        2 * 5 * 2 * 3 * 4,
    ]


@pytest.mark.full
def test_bytes_and_busy_times_are_those_of_all_clusters() -> None:
    schedule = built(block(), target(lb=2048, clusters=2), cluster_partitioning="pipeline")
    found = simulate(schedule)
    assert schedule.share.clusters == 2
    alone = [
        simulate(dataclasses.replace(schedule, timelines=(t,), cluster=()))
        for t in schedule.timelines
    ]
    assert found.ddr_bytes == pytest.approx(sum(a.ddr_bytes for a in alone), abs=1)
    assert found.busy["matrix"] == pytest.approx(sum(a.busy["matrix"] for a in alone) / 2)
    assert found.peak_lb_bytes == max(a.peak_lb_bytes for a in alone)
    assert max(a.latency for a in alone) < found.latency <= sum(a.latency for a in alone) + 1e-3


def test_what_is_handed_over_needs_room_for_two_passes() -> None:
    machine = target(lb=1 << 16, clusters=2)
    tiny = dataclasses.replace(machine, ddr=dataclasses.replace(machine.ddr, capacity=1))
    evaluator = Evaluator(block(), tiny, "float16")
    knobs = Knobs(cluster_partitioning="pipeline", batches_per_cluster=1)
    many = build_schedule(evaluator.model_scheduler, knobs)
    once = dataclasses.replace(many, share=dataclasses.replace(many.share, samples=1))
    demands = []
    for schedule in (once, many):
        failure = evaluator.measure(schedule)
        assert isinstance(failure, Failure)
        demands.append(failure.demand or 0)
    handed = many.timeline.buffers.cluster_bytes[handed_over(many.timeline)]
    assert len(handed)
    assert demands[1] - demands[0] == handed.sum() > 0


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    """Two blocks as a pipeline of two stages."""
    text = built(block(), target(lb=2048, clusters=2), cluster_partitioning="pipeline").text
    found: dict[str, Any] = json.loads(text)
    return found


def everything_on_one(d: dict[str, Any]) -> None:
    for entry in d["order"]:
        entry["cluster"] = 0


def swap_clusters(d: dict[str, Any]) -> None:
    for entry in d["order"]:
        entry["cluster"] = 1 - entry["cluster"]


REFUSED: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "a cluster too many": (lambda d: d["order"][0].update(cluster=2), "order[0].cluster"),
    "an idle cluster": (everything_on_one, "share.clusters"),
    "stages the other way round": (swap_clusters, "buffers"),
    "another split": (lambda d: d["share"].update(split="rows"), "share.split"),
    "samples of one cluster": (lambda d: d["share"].pop("split"), "share"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_files_that_were_tampered_with(name: str, document: dict[str, Any], tmp_path: Path) -> None:
    edit, field = REFUSED[name]
    changed = json.loads(json.dumps(document))
    edit(changed)
    path = tmp_path / "s.json"
    path.write_text(json.dumps(changed))
    with pytest.raises(ScheduleFileError) as caught:
        load_schedule(path, block(), target(lb=2048, clusters=2))
    assert field in str(caught.value)


def test_a_file_may_decide_clusters_itself(document: dict[str, Any], tmp_path: Path) -> None:
    """Without buffers to compare with, other clusters are another schedule, and a valid one."""
    changed = {k: v for k, v in json.loads(json.dumps(document)).items() if k != "buffers"}
    swap_clusters(changed)
    path = tmp_path / "s.json"
    path.write_text(json.dumps(changed))
    schedule = load_schedule(path, block(), target(lb=2048, clusters=2))
    assert schedule.cluster[0] == 1
    assert simulate(schedule).latency > 0
