"""Physical sense on real networks: who is bound by what on the paper's chip."""

from __future__ import annotations

import pytest

from autoturbo.datasets.workloads import PAPER_TEN
from autoturbo.registry import SCHEDULERS
from autoturbo.schedule.knobs import Knobs
from autoturbo.simulator.measurement import Measurement
from tests.simulator.simulate_samples import PRESETS, evaluator, target_of

NAMES = SCHEDULERS.names()


def measure(workload: str, scheduler: str, preset: str = "stcp920") -> Measurement:
    dtype = target_of(preset).default_dtype
    found = evaluator(workload, preset, dtype).measure_scheduler(scheduler)
    assert isinstance(found, Measurement)
    return found


def ddr_share(found: Measurement) -> float:
    """Part of the latency in which DDR moves bytes."""
    return (found.busy["dma_in"] + found.busy["dma_out"]) / found.latency


FULL = pytest.mark.full
PAIR = pytest.mark.parametrize("workload", ["resnet50", pytest.param("bert_base_s128", marks=FULL)])


@PAIR
def test_tvm_is_bound_by_ddr(workload: str) -> None:
    found = measure(workload, "tvm")
    assert ddr_share(found) > 0.65
    assert found.busy["matrix"] < 0.3 * found.latency


@PAIR
def test_graphturbo_moves_a_fifth_of_the_bytes(workload: str) -> None:
    assert measure(workload, "tvm").ddr_bytes > 5 * measure(workload, "graphturbo").ddr_bytes


@pytest.mark.full
def test_graphturbo_is_bound_by_compute_on_resnet() -> None:
    found = measure("resnet50", "graphturbo")
    assert max(found.busy, key=lambda engine: found.busy[engine]) == "matrix"
    assert found.busy["matrix"] > 0.65 * found.latency


@pytest.mark.full
def test_graphturbo_keeps_the_array_busy_on_bert() -> None:
    """Every cluster reads all weights: DDR alone takes 80 % of the time, the array 70 %."""
    found = measure("bert_base_s128", "graphturbo")
    assert found.busy["matrix"] > 0.65 * found.latency
    weights = 4 * 2 * 85e6  # clusters x bytes x parameters of the encoder
    assert found.ddr_bytes == pytest.approx(weights, rel=0.05)


@pytest.mark.parametrize(
    ("workload", "scheduler", "paper", "within"),
    [
        ("resnet50", "graphturbo", 8475, 0.20),
        ("resnet50", "tvm", 1064, 0.35),
        pytest.param("bert_base_s128", "graphturbo", 4052, 0.20, marks=FULL),
        pytest.param("bert_base_s128", "tvm", 512, 0.35, marks=FULL),
    ],
)
def test_throughput_is_near_the_papers(
    workload: str, scheduler: str, paper: float, within: float
) -> None:
    """GraphTurbo, OSDI '23, table 2 and figure 14; nothing is fitted to them."""
    assert measure(workload, scheduler).throughput == pytest.approx(paper, rel=within)


@pytest.mark.full
def test_graphturbo_beats_tvm_on_most_of_the_papers_ten() -> None:
    faster = [
        name
        for name in PAPER_TEN
        if measure(name, "graphturbo").latency < measure(name, "tvm").latency
    ]
    assert len(faster) >= 8


@pytest.mark.parametrize(
    ("workload", "preset"),
    [
        ("squeezenet1_1", "stcp920"),
        pytest.param("llama_decode", "goya", marks=FULL),
        *(
            pytest.param("resnet18" if at % 2 else "squeezenet1_1", preset, marks=FULL)
            for at, preset in enumerate(PRESETS[1:])
        ),
    ],
)
def test_every_scheduler_measures_on_every_preset(workload: str, preset: str) -> None:
    for scheduler in NAMES:
        found = measure(workload, scheduler, preset)
        assert found.is_valid()
        assert found.bound_fraction <= 1


@pytest.mark.full
@pytest.mark.parametrize(
    "workload",
    ["unet", "swin_t", "conformer", "bert_base_s256", "densenet121", "yolov5s_like", "dlrm"],
)
def test_every_workload_measures_on_the_papers_chip(workload: str) -> None:
    for scheduler in NAMES:
        assert measure(workload, scheduler).bound_fraction <= 1


@pytest.mark.parametrize("workload", ["squeezenet1_1", pytest.param("googlenet", marks=FULL)])
def test_each_step_of_the_ladder_is_faster(workload: str) -> None:
    latencies = [measure(workload, name).latency for name in ("O0", "O1", "O2", "graphturbo")]
    assert latencies == sorted(latencies, reverse=True)


@pytest.mark.parametrize(
    "workload", ["resnet18", *(pytest.param(w, marks=FULL) for w in ("resnet50", "bert_base_s128"))]
)
def test_overlap_is_worth_something(workload: str) -> None:
    model_scheduler = evaluator(workload)
    on, off = (
        model_scheduler.evaluate(Knobs()),
        model_scheduler.evaluate(Knobs(instruction_scheduling="off")),
    )
    assert isinstance(on, Measurement)
    assert isinstance(off, Measurement)
    assert 1.05 < off.latency / on.latency < 3
