"""Kernels and movements in order: sums, loops, clusters, memory of kernels, determinism."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from autoturbo.schedule.by_name import candidates
from autoturbo.schedule.codegen.durations import rates_of
from autoturbo.schedule.context import Zones
from autoturbo.schedule.knobs import Knobs
from autoturbo.schedule.schedule import Schedule
from autoturbo.schedule.stitch.stages import Stage
from autoturbo.simulator.evaluator import Evaluator
from autoturbo.simulator.kernels import dma_bandwidth, run_kernel
from autoturbo.simulator.measurement import Measurement
from autoturbo.simulator.sequence import KernelMemory, simulate
from tests.schedule.steps import instance_of, movement_time, program_of, steps_of
from tests.simulator.simulate_samples import changed, evaluator, target_of, with_target


def schedule_of(workload: str, **knobs: int | str) -> Schedule:
    return evaluator(workload).schedule(Knobs(**knobs))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "workload", ["squeezenet1_1", pytest.param("bert_base_s128", marks=pytest.mark.full)]
)
def test_totals_are_sums_over_kernels_and_movements(workload: str) -> None:
    schedule = schedule_of(workload)
    found = simulate(schedule)
    target = schedule.context.target
    rates = rates_of(target, "float16")
    seconds = ddr = gb = 0.0
    for step in steps_of(schedule.timeline):
        kernel = run_kernel(program_of(schedule, step), rates)
        move = movement_time(step, target)
        seconds += kernel.seconds + move.seconds
        seconds += target.overheads.kernel_launch + target.overheads.barrier
        ddr += kernel.ddr_bytes + step.copied[1]
        gb += kernel.gb_bytes + step.copied[0] + 2 * step.copied[1]
    passes = schedule.share.loops * schedule.share.clusters
    assert found.latency == pytest.approx(seconds * schedule.share.loops)
    assert found.ddr_bytes == pytest.approx(ddr * passes, abs=1)
    assert found.gb_bytes == pytest.approx(gb * passes, abs=1)
    assert found.kernels == len(steps_of(schedule.timeline)) * schedule.share.loops


@pytest.mark.parametrize(
    "workload", ["squeezenet1_1", pytest.param("shufflenet_v2", marks=pytest.mark.full)]
)
def test_ddr_bytes_are_what_streams_and_weights_say(workload: str) -> None:
    """Streams once, weights once unless rows are around columns (they are not here)."""
    schedule = schedule_of(workload)
    expected = 0.0
    for step in steps_of(schedule.timeline):
        moved = step.streams.sum(axis=0)
        weights = step.template.stages[:, Stage.WEIGHTS].sum() * (not step.weights_resident)
        expected += weights + moved[1] + moved[3] + moved[5] + step.copied[1]
    passes = schedule.share.loops * schedule.share.clusters
    assert simulate(schedule).ddr_bytes == pytest.approx(expected * passes, rel=0.02)


def test_loops_and_clusters_multiply() -> None:
    schedule = schedule_of("resnet18", batches_per_cluster=2)
    once = simulate(schedule)
    more = dataclasses.replace(schedule.share, samples=schedule.share.samples * 3)
    thrice = simulate(dataclasses.replace(schedule, share=more))
    assert thrice.latency == pytest.approx(3 * once.latency)
    assert thrice.ddr_bytes == pytest.approx(3 * once.ddr_bytes)
    assert thrice.kernels == 3 * once.kernels
    assert thrice.busy["matrix"] == pytest.approx(3 * once.busy["matrix"])
    alone = dataclasses.replace(schedule.share, clusters=1)
    single = simulate(dataclasses.replace(schedule, share=alone))
    assert single.latency == once.latency
    assert 4 * single.ddr_bytes == pytest.approx(once.ddr_bytes, abs=4)
    assert 4 * single.gb_bytes == pytest.approx(once.gb_bytes, abs=4)


def test_launch_and_barrier_are_paid_per_kernel() -> None:
    schedule = schedule_of("resnet18")
    base = simulate(schedule)
    target = changed(schedule.context.target, "overheads.kernel_launch", 1e-3)
    slow = simulate(with_target(schedule, target))
    extra = 1e-3 - schedule.context.target.overheads.kernel_launch
    assert slow.latency - base.latency == pytest.approx(base.kernels * extra)


def test_movements_occupy_dma_and_transfer_engines() -> None:
    schedule = next(iter(candidates("tvm", evaluator("resnet18").model_scheduler)))
    target = schedule.context.target
    step = max(steps_of(schedule.timeline), key=lambda step: step.copied[1])
    move = movement_time(step, target)
    from_gb, from_ddr = step.copied
    assert move.dma == pytest.approx(from_ddr / dma_bandwidth(target))
    assert move.gb_bytes == from_gb + 2 * from_ddr
    assert move.seconds > move.dma + move.transfer > 0
    kernels = sum(
        run_kernel(program_of(schedule, s), rates_of(target, "float16")).busy[0]
        for s in steps_of(schedule.timeline)
    )
    copies = sum(movement_time(s, target).dma for s in steps_of(schedule.timeline))
    found = simulate(schedule)
    assert found.busy["dma_in"] == pytest.approx((kernels + copies) * schedule.share.loops)


def test_no_movement_takes_no_time() -> None:
    step = steps_of(schedule_of("squeezenet1_1").timeline)[0]
    assert step.copied == (0, 0)
    assert movement_time(step, target_of()).seconds == 0


@pytest.mark.parametrize(
    ("workload", "scheduler"),
    [
        ("shufflenet_v2", "graphturbo"),
        pytest.param("shufflenet_v2", "tvm", marks=pytest.mark.full),
        pytest.param("bert_base_s128", "O2", marks=pytest.mark.full),
    ],
)
def test_the_same_to_the_bit_with_warm_and_cold_memory(workload: str, scheduler: str) -> None:
    schedule = next(iter(candidates(scheduler, evaluator(workload).model_scheduler)))
    memory = KernelMemory()
    cold, warm = simulate(schedule, memory), simulate(schedule, memory)
    assert cold == warm == simulate(schedule)
    assert {signature.hex() for signature in memory.index} == cold.kernel_times.keys()


def test_the_same_to_the_bit_from_a_new_workbench() -> None:
    first = evaluator("resnet18")
    again = Evaluator(first.model_scheduler.model, first.model_scheduler.target, "float16")
    assert first.evaluate(Knobs()) == again.evaluate(Knobs())


@pytest.mark.parametrize(
    "workload", ["resnet18", pytest.param("llama_decode", marks=pytest.mark.full)]
)
def test_busy_times_overlaps_and_peaks_are_possible(workload: str) -> None:
    schedule = schedule_of(workload)
    found = simulate(schedule)
    assert all(0 <= busy <= found.latency for busy in found.busy.values())
    for engines, together in found.overlap.items():
        least = min(found.busy[engine] for engine in engines.split("+"))
        assert 0 <= together <= least * (1 + 1e-9)
    zones = Zones.of(schedule.context.target)
    assert 0 < found.peak_lb_bytes <= zones.lb
    assert found.peak_gb_bytes <= zones.gb


def test_kernel_counts_and_times_add_up() -> None:
    found = simulate(schedule_of("resnet18", batches_per_cluster=2))
    assert sum(found.kernel_counts.values()) == found.kernels
    assert found.kernel_times.keys() == found.kernel_counts.keys()


def test_sub_graph_times_add_up_to_the_latency() -> None:
    schedule = schedule_of("resnet18")
    found = simulate(schedule)
    counts = np.bincount([instance_of(schedule.instances, i).subgraph for i in schedule.order])
    total = float(np.dot(found.subgraph_times, counts)) * schedule.share.loops
    assert total == pytest.approx(found.latency)


def test_energy_counts_work_bytes_and_time() -> None:
    schedule = schedule_of("resnet18")
    found = simulate(schedule)
    energy = schedule.context.target.energy
    assert energy is not None
    assert found.energy is not None
    least = schedule.model.macs * dict(energy.mac)["float16"]
    least += found.gb_bytes * energy.gb + found.ddr_bytes * energy.ddr
    assert found.energy > least * 1e-12 + energy.static * found.latency
    silent = dataclasses.replace(schedule.context.target, energy=None)
    assert simulate(with_target(schedule, silent)).energy is None


def test_tensor_counts_are_buffers_by_scope() -> None:
    found = evaluator("resnet18").measure_scheduler("O0")
    assert isinstance(found, Measurement)
    assert found.tensors["LB"] == found.tensors["GB"] == 0
    assert found.tensors["DDR"] > 20
