"""Networks whose memory grows again: what up-sampling is, its rule, and slices of one output."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from autoturbo.datasets import workloads
from autoturbo.schedule.context import SchedulingContext, make_context
from autoturbo.schedule.knobs import Knobs
from autoturbo.schedule.partition.grouping import GroupRules, SubGraph, group, upsamples
from autoturbo.schedule.partition.split import best_split
from autoturbo.schedule.pipeline import ModelScheduler, build_schedule
from autoturbo.simulator.sequence import simulate
from tests.schedule.concats import concats
from tests.schedule.schedule_checks import check_schedule
from tests.schedule.schedule_samples import (
    STCP920,
    Net,
    capacity,
    scheduler_of,
    target,
    targets,
    volume_of,
)
from tests.schedule.steps import instance_of, instances_of, names_of, steps_of
from tests.schedule.test_schedule_properties import drawn

if TYPE_CHECKING:
    from autoturbo.graph.operators import Graph
    from autoturbo.hardware import Target
    from autoturbo.schedule.schedule import Schedule

PRINTED = Knobs(merged_factor_ratio=64.0)
"""So generous a bound that nothing keeps a decoder's factor from its bottleneck."""


def floats(net: Net, *numbers: float) -> str:
    return net.constant(np.asarray(numbers, np.float32))


def resize(net: Net, x: str, factor: float = 2, mode: str = "nearest") -> str:
    n, c, h, w = net.shapes[x]
    shape = (n, c, math.floor(h * factor), math.floor(w * factor))
    return net.add(
        "Resize", [x, "", floats(net, 1, 1, factor, factor)], shape, mode=mode,
        coordinate_transformation_mode="asymmetric", nearest_mode="floor",
    )  # fmt: skip


def transposed(net: Net, x: str, channels: int, stride: int = 2) -> str:
    n, c, h, w = net.shapes[x]
    shape = (n, channels, h * stride, w * stride)
    weight = net.weight(c, channels, stride, stride)
    return net.add(
        "ConvTranspose", [x, weight], shape, kernel_shape=[stride] * 2, strides=[stride] * 2
    )


def enlarged(net: Net, x: str, channels: int, kind: str) -> str:
    if kind == "transpose":
        return transposed(net, x, channels)
    return net.relu(net.conv(resize(net, x, mode=kind), channels))


def encoder_decoder(
    batch: int, size: int, width: int, depth: int, up: str = "nearest", skip: str = "concat"
) -> Graph:
    """A U-Net: two convolutions a level, each level half as large and twice as wide."""
    net = Net(x=(batch, 4, size, size))
    at, skips = "x", []
    for level in range(depth):
        at = net.relu(net.conv(net.relu(net.conv(at, width << level)), width << level))
        skips.append(at)
        at = net.pool(at)
    at = net.relu(net.conv(net.relu(net.conv(at, width << depth)), width << depth))
    for level in reversed(range(depth)):
        at = enlarged(net, at, width << level, up)
        at = net.concat(1, skips[level], at) if skip == "concat" else net.sum(skips[level], at)
        at = net.relu(net.conv(net.relu(net.conv(at, width << level)), width << level))
    net.conv(at, 4, 1)
    return net.graph()


def enlarging(net: Net) -> list[bool]:
    context = make_context(net.graph(), target(), "float16")
    return [upsamples(context, layer) for layer in context.layers]


@pytest.mark.parametrize(("factor", "mode"), [(2, "nearest"), (1.5, "linear")])
def test_a_resize_to_more_up_samples(factor: float, mode: str) -> None:
    net = Net(x=(2, 4, 8, 8))
    resize(net, "x", factor, mode)
    assert enlarging(net) == [True]


def test_a_resize_to_less_does_not() -> None:
    net = Net(x=(2, 4, 8, 8))
    resize(net, "x", 0.5)
    assert enlarging(net) == [False]


@pytest.mark.parametrize(("stride", "grows"), [(1, False), (2, True)])
def test_a_transposed_convolution_up_samples_by_its_stride(stride: int, *, grows: bool) -> None:
    """With a stride of one it has more elements only because it has more channels."""
    net = Net(x=(2, 4, 8, 8))
    transposed(net, "x", 8, stride)
    assert enlarging(net) == [grows]


def test_more_channels_are_not_up_sampling() -> None:
    net = Net(x=(2, 4, 8, 8))
    net.conv(net.conv("x", 16), 64, 3, group=16)
    assert enlarging(net) == [False, False]


@pytest.mark.full
def test_as_many_elements_are_not_up_sampling() -> None:
    """A pixel shuffle and a reshape spread out what is there."""
    net = Net(x=(2, 16, 8, 8))
    shuffled = net.add("DepthToSpace", ["x"], (2, 4, 16, 16), blocksize=2)
    net.reshape(net.relu(shuffled), 2 * 4, 16 * 16)
    assert not any(enlarging(net))


@pytest.mark.full
def test_scores_broadcasts_and_concatenations_are_not_up_sampling() -> None:
    net = Net(x=(2, 6, 4))
    scores = net.softmax(net.matmul("x", net.transpose("x", 0, 2, 1)))
    net.concat(1, net.sum(scores, net.mean(scores), "Sub"), scores)
    assert not any(enlarging(net))


@pytest.mark.full
def test_no_network_of_the_paper_up_samples() -> None:
    """So they are grouped as published."""
    for name in workloads.PAPER_TEN:
        context = scheduler_of(name).context(1)
        assert not any(upsamples(context, layer) for layer in context.layers)


@pytest.mark.full
def test_the_bundled_networks_that_do() -> None:
    for name, count in (("unet", 3), ("yolov5s_like", 2)):
        context = scheduler_of(name).context(1)
        assert sum(upsamples(context, layer) for layer in context.layers) == count


def factors(context: SchedulingContext, knobs: Knobs) -> dict[str, float]:
    """The factor of the sub-graph that each layer ends up in, by the layer's anchor."""
    found = group(context, GroupRules.of(knobs))
    return {context.layers[x].name: s.split.factor for s in found for x in s.layers}


@pytest.mark.parametrize(
    ("up", "skip"),
    [
        ("nearest", "concat"),
        pytest.param("linear", "add", marks=pytest.mark.full),
        pytest.param("transpose", "add", marks=pytest.mark.full),
    ],
)
def test_a_decoders_factor_does_not_leak_back_to_the_bottleneck(up: str, skip: str) -> None:
    """Two levels of 16 images, each level with half of the memory of the one above it."""
    graph = encoder_decoder(16, 32, 16, 2, up, skip)
    context = make_context(graph, target(cores=8, lb=1 << 16), "float16")
    apart, leaked = factors(context, Knobs()), factors(context, PRINTED)
    assert apart["conv4"] <= 2 < max(apart.values())
    assert leaked["conv4"] == max(leaked.values()) > 2


def part_of_the_way(context: SchedulingContext, subgraph: SubGraph, layer: int) -> tuple[int, ...]:
    """The layers of a sub-graph that a layer's inputs depend on."""
    needed: set[int] = set()
    waiting = [context.producer[t] for t in context.layers[layer].inputs]
    while waiting:
        index = waiting.pop()
        if index in subgraph.layers and index not in needed:
            needed.add(index)
            waiting += [context.producer[t] for t in context.layers[index].inputs]
    return tuple(sorted(needed))


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_what_is_up_sampled_is_not_split_more_than_it_needs(data: st.DataObject) -> None:
    """Where a sub-graph holds an up-sampling, what precedes would not do with fewer parts."""
    graph = data.draw(encoder_decoders())
    context = make_context(graph, data.draw(targets()), "float16")
    rules = GroupRules.of(Knobs())
    for subgraph in group(context, rules):
        for layer in subgraph.layers:
            before = part_of_the_way(context, subgraph, layer)
            if before and upsamples(context, context.layers[layer]):
                least = [best_split(context, (x,), rules).factor for x in before]
                whole = best_split(context, before, rules).factor
                assert subgraph.split.factor <= max(*least, whole)


@pytest.mark.full
def test_the_bottlenecks_weights_are_read_once() -> None:
    """Wide at the bottom: most weights are there, and splitting it would read them again."""
    model_scheduler = ModelScheduler(encoder_decoder(64, 64, 128, 3), STCP920, "float16")
    apart = simulate(build_schedule(model_scheduler, Knobs()))
    leaked = simulate(build_schedule(model_scheduler, PRINTED))
    assert apart.ddr_bytes < leaked.ddr_bytes
    assert apart.latency < leaked.latency


def one_to_many() -> Schedule:
    """A bottleneck of one part whose output four later parts read, a slice each."""
    net = Net(x=(8, 16, 8, 8))
    low = net.conv(net.conv("x", 16), 16)
    net.conv(net.conv(resize(net, net.relu(low)), 16), 16)
    model_scheduler = ModelScheduler(net.graph(), target(cores=8, lb=capacity(4096)), "float16")
    return build_schedule(model_scheduler, Knobs())


def test_several_parts_read_slices_of_one() -> None:
    """The paper's further ``split`` operation: each takes its own samples, together all."""
    schedule = one_to_many()
    assert [s.split.instances for s in schedule.instances.subgraphs] == [1, 4]
    graph = schedule.instances
    for instance in instances_of(graph):
        for tensor, region in instance.outputs.items():
            readers = [instance_of(graph, c) for c in graph.consumers[instance.index]]
            taken = [volume_of(_common(r.inputs[tensor], region)) for r in readers]
            assert not readers or sum(taken) == volume_of(region)
    check_schedule(schedule)


def _common(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    low = np.maximum(first[:, 0], second[:, 0])
    return np.stack((low, np.minimum(first[:, 1], second[:, 1])), axis=1)


def test_what_is_sliced_stays_until_its_last_reader() -> None:
    schedule = one_to_many()
    names, buffers = names_of(schedule.timeline), schedule.timeline.buffers
    order = {instance: at for at, instance in enumerate(schedule.order)}
    for index, name in enumerate(names):
        readers = schedule.instances.consumers[name.instance]
        if name.kind != "tensor" or not readers:
            continue
        last = steps_of(schedule.timeline)[max(order[r] for r in readers)]
        if any(name.tensor == c.tensor for c in concats(schedule.timeline, last.instance)):
            assert buffers.death[index] >= buffers.birth[index] + len(readers) - 1


@st.composite
def encoder_decoders(draw: st.DrawFn) -> Graph:
    """Random encoders and decoders: levels, widths, kinds of up-sampling, skips or none."""
    depth = draw(st.integers(1, 3))
    size = draw(st.sampled_from((4, 6, 8))) << (depth - 1)
    net = Net(x=(draw(st.integers(1, 8)), 2, size, size))
    at, skips = "x", []
    for _ in range(depth):
        for _ in range(draw(st.integers(1, 2))):
            at = net.relu(net.conv(at, draw(st.sampled_from((2, 4, 8)))))
        skips.append(at)
        at = net.pool(at) if draw(st.booleans()) else net.conv(at, net.shapes[at][1], 3, 2)
    at = net.relu(net.conv(at, draw(st.sampled_from((4, 8, 16)))))
    for kept in reversed(skips):
        kind = draw(st.sampled_from(("nearest", "linear", "transpose")))
        at = enlarged(net, at, net.shapes[kept][1], kind)
        join = draw(st.sampled_from(("concat", "add", "none")))
        if join != "none":
            at = net.concat(1, kept, at) if join == "concat" else net.sum(kept, at)
        at = net.relu(net.conv(at, draw(st.sampled_from((2, 4)))))
    return net.graph()


@pytest.mark.full
@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(graph=encoder_decoders(), machine=targets(), data=st.data())
def test_any_encoder_and_decoder_gets_a_valid_schedule(
    graph: Graph, machine: Target, data: st.DataObject
) -> None:
    """Coverage, dependences, bindings, buffers and programs, by an independent replay."""
    check_schedule(drawn(data, graph, machine))


@pytest.mark.full
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(graph=encoder_decoders(), machine=targets(), data=st.data())
def test_many_encoders_and_decoders_get_valid_schedules(
    graph: Graph, machine: Target, data: st.DataObject
) -> None:
    check_schedule(drawn(data, graph, machine))


@pytest.mark.full
@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(graph=encoder_decoders(), machine=targets())
def test_the_published_setting_too(graph: Graph, machine: Target) -> None:
    check_schedule(build_schedule(ModelScheduler(graph, machine, "float16"), Knobs()))


@pytest.mark.full
def test_the_bundled_u_net() -> None:
    from tests.schedule.schedule_samples import workload

    check_schedule(build_schedule(ModelScheduler(workload("unet", 8), STCP920, "float16"), Knobs()))
