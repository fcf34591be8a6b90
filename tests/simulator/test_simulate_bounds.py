"""Whatever is asked for: no latency below its bound, no buffer over its capacity."""

from __future__ import annotations

import dataclasses
import functools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoturbo.graph.operators import Graph
from autoturbo.hardware import Target
from autoturbo.schedule.context import Zones
from autoturbo.schedule.knobs import Knobs, fitting
from autoturbo.simulator.bound import compulsory_bytes, lower_bound, weight_bytes
from autoturbo.simulator.evaluator import Evaluator
from autoturbo.simulator.measurement import Failure, Measurement
from tests.simulator.simulate_samples import (
    PRESETS,
    SMALL,
    changed,
    evaluator,
    settings_of_knobs,
    target_of,
)

PAIRS = [(preset, dtype) for preset in PRESETS for dtype in target_of(preset).dtypes]


def sound(found: Measurement, target: Target) -> None:
    """The laws that every measurement obeys."""
    assert found.is_valid()
    assert found.bound.tight is not None
    assert found.bound.seconds <= found.bound.tight <= found.latency * (1 + 1e-9)
    assert 0 <= found.matrix_utilization <= 1 + 1e-9
    assert 0 <= found.vector_utilization <= 1 + 1e-9
    assert found.ddr_bytes / target.ddr.bandwidth <= found.latency * (1 + 1e-9)
    zones = Zones.of(target)
    assert 0 <= found.peak_lb_bytes <= zones.lb
    assert 0 <= found.peak_gb_bytes <= max(zones.gb, 0)
    assert all(busy <= found.latency * (1 + 1e-9) for busy in found.busy.values())


def judge(model_scheduler: Evaluator, knobs: Knobs) -> None:
    """A measurement is sound, a failure is an overflow of DDR."""
    found = model_scheduler.evaluate(fitting(knobs, model_scheduler.model_scheduler.target))
    if isinstance(found, Failure):
        assert found.reason == "DDR"
        assert found.demand is not None
        assert found.capacity is not None
        assert found.demand > found.capacity
    else:
        sound(found, model_scheduler.model_scheduler.target)
        assert found.ddr_bytes >= compulsory_bytes(
            model_scheduler.model_scheduler.model, model_scheduler.model_scheduler.dtype
        )


@settings(max_examples=15, deadline=None)
@given(pair=st.sampled_from(PAIRS), knobs=settings_of_knobs())
def test_settings_of_one_network_on_presets(pair: tuple[str, str], knobs: Knobs) -> None:
    judge(evaluator("squeezenet1_1", *pair), knobs)


@pytest.mark.full
@settings(max_examples=150, deadline=None)
@given(workload=st.sampled_from(SMALL), pair=st.sampled_from(PAIRS), knobs=settings_of_knobs())
def test_random_settings_on_presets(workload: str, pair: tuple[str, str], knobs: Knobs) -> None:
    judge(evaluator(workload, *pair), knobs)


@functools.cache
def model_of(workload: str) -> Graph:
    return evaluator(workload).model_scheduler.model


@st.composite
def targets(draw: st.DrawFn) -> Target:
    """A preset with some figures multiplied."""
    target = target_of(draw(st.sampled_from(["stcp920", "ascend-910", "mlu100"])))
    scale = st.sampled_from([0.1, 0.5, 2.0, 10.0, 100.0])
    for path in ("ddr.bandwidth", "gb.bandwidth", "lb.bandwidth", "transfer.bandwidth"):
        owner, name = path.split(".")
        target = changed(target, path, getattr(getattr(target, owner), name) * draw(scale))
    capacity = draw(st.sampled_from([0.25, 1.0, 4.0]))
    target = changed(target, "lb.capacity", int(target.lb.capacity * capacity))
    target = changed(
        target, "gb.capacity", int(target.gb.capacity * draw(st.sampled_from([0, 1, 4])))
    )
    target = changed(target, "matrix.dataflow", draw(st.sampled_from(
        ["output_stationary", "weight_stationary", "input_stationary", "ideal"]
    )))  # fmt: skip
    target = changed(target, "transfer.broadcast", draw(st.booleans()))
    target = changed(target, "matrix.startup_cycles", draw(st.sampled_from([0, 100])))
    return dataclasses.replace(target, cores=draw(st.sampled_from([1, 3, 8])))


@settings(max_examples=12, deadline=None)
@given(target=targets(), knobs=settings_of_knobs())
def test_settings_of_one_network_on_odd_targets(target: Target, knobs: Knobs) -> None:
    judge(Evaluator(model_of("dlrm"), target, "float16"), knobs)


@pytest.mark.full
@settings(max_examples=80, deadline=None)
@given(
    workload=st.sampled_from(["squeezenet1_1", "resnet18", "dlrm", "shufflenet_v2"]),
    target=targets(), knobs=settings_of_knobs(),
)  # fmt: skip
def test_random_settings_on_odd_targets(workload: str, target: Target, knobs: Knobs) -> None:
    judge(Evaluator(model_of(workload), target, "float16"), knobs)


@pytest.mark.parametrize("workload", ["dlrm", pytest.param("resnet18", marks=pytest.mark.full)])
def test_the_bound_is_work_and_traffic_at_peak(workload: str) -> None:
    graph, target = model_of(workload), target_of()
    bound = lower_bound(graph, target, "float16")
    assert bound.matrix_s == pytest.approx(graph.macs / (2048 * 32 * 1e9), rel=0.05)
    assert bound.ddr_s == pytest.approx(compulsory_bytes(graph, "float16") / 119.4e9)
    assert bound.seconds == max(bound.matrix_s, bound.vector_s, bound.ddr_s)


def test_compulsory_traffic_is_weights_inputs_and_outputs() -> None:
    graph = model_of("resnet18")
    ends = sum(graph.tensors[t].elements for t in (*graph.inputs, *graph.outputs)) * 2
    assert compulsory_bytes(graph, "float16") == weight_bytes(graph, "float16") + ends
    assert weight_bytes(graph, "float16") == pytest.approx(11.7e6 * 2, rel=0.01)


@pytest.mark.full
def test_a_table_that_is_looked_up_counts_what_is_picked() -> None:
    graph = model_of("bert_base_s128")  # 4,096 words of a table of 30,522
    whole = sum(t.elements for t in graph.tensors if t.constant) * 2
    assert weight_bytes(graph, "float16") < whole - 2 * 20_000 * 768
