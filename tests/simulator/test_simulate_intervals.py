"""When everything happens in a pass, held to the sums that the simulator keeps."""

from __future__ import annotations

import pytest

from autoturbo.datasets import workloads
from autoturbo.graph.onnx_import import import_model
from autoturbo.hardware import load_target
from autoturbo.schedule.knobs import Knobs
from autoturbo.schedule.pipeline import build_schedule
from autoturbo.schedule.schedule import Schedule
from autoturbo.simulator.evaluator import Evaluator
from autoturbo.simulator.kernels import Quantity
from autoturbo.simulator.sequence import KernelMemory, pass_intervals, simulate

SETTINGS = (
    Knobs(),
    Knobs(cluster_partitioning="channel"),
    pytest.param(
        Knobs(batches_per_cluster=2, instruction_scheduling="layer"), marks=pytest.mark.full
    ),
    pytest.param(Knobs(output_scope="DDR", max_layers=2), marks=pytest.mark.full),
)


@pytest.fixture(scope="module")
def evaluator() -> Evaluator:
    graph = import_model(workloads.get("squeezenet1_1").file, batch=16)
    return Evaluator(graph, load_target("stcp920"), "float16")


@pytest.fixture(params=SETTINGS, ids=lambda knobs: knobs.canonical()[:40])
def schedule(request: pytest.FixtureRequest, evaluator: Evaluator) -> Schedule:
    return build_schedule(evaluator.model_scheduler, request.param)


def test_the_last_kernel_ends_when_the_measurement_says(schedule: Schedule) -> None:
    found = pass_intervals(schedule)
    latency = simulate(schedule).latency
    if schedule.share.loops == 1 or not schedule.cluster:
        end = max(kernel.end for kernel in found) * schedule.share.loops
        assert end == pytest.approx(latency, rel=1e-12)


def test_kernels_of_a_cluster_follow_each_other(schedule: Schedule) -> None:
    free = [0.0] * len(schedule.timelines)
    for kernel in pass_intervals(schedule):
        assert kernel.begin >= free[kernel.cluster]
        assert kernel.begin <= kernel.launch <= kernel.body <= kernel.end
        free[kernel.cluster] = kernel.end


def test_instructions_lie_in_their_kernel_and_take_what_was_summed(schedule: Schedule) -> None:
    memory = KernelMemory()
    _, rows = memory.rows(schedule)
    kernels = [k for k in pass_intervals(schedule, memory) if k.cluster == 0]
    for kernel, row in zip(kernels, rows.tolist(), strict=True):
        totals = memory.totals.rows[row]
        assert kernel.issued.min() >= kernel.body
        assert kernel.done.max() <= kernel.end
        assert kernel.done.max() - kernel.body <= totals[Quantity.SECONDS] * (1 + 1e-9)
        busy = float((kernel.freed - kernel.issued).sum())
        whole = totals[Quantity.BUSY_DMA_IN : Quantity.BUSY_DMA_OUT + 1].sum()
        assert busy == pytest.approx(float(whole))
