"""DLFusion and PartitionTuner, published figures beside ours: what ``paper_tables.py`` prints.

``search/dlfusion.py`` and ``benchmarks/units.py`` add brute force, our search and its cost.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bench_tools import print_table

from autoturbo.baselines.dlfusion import STRATEGIES, total
from autoturbo.baselines.dlfusion_blocks import BlockProfiles, core_model
from autoturbo.datasets import workloads
from autoturbo.graph.onnx_import import import_model
from autoturbo.hardware import load_target
from autoturbo.hardware.machine_files import load_machine
from autoturbo.heterogeneous.evaluator import MachineEvaluator, scheduler_names
from autoturbo.simulator.measurement import Measurement

DLFUSION_NETWORKS = ("resnet18", "resnet50", "vgg19", "alexnet", "mobilenet_v2")

DLFUSION_PUBLISHED = (3.6, 7.9)
"""Speed-up over no optimisation, worst network to best (arXiv 2011.05630, abstract)."""

DLFUSION_TARGET, DLFUSION_DTYPE = "mlu100", "float16"

PARTITION_TUNER_NETWORKS = (
    "zfnet", "alexnet", "googlenet", "resnet18", "resnet50", "resnext50", "squeezenet1_1",
)  # fmt: skip

PARTITION_TUNER_PUBLISHED = {
    ("static", "squeezenet1_1"): 5.03,
    ("profiled", "resnet50"): 7.18,
    ("profiled", "resnet18"): 5.36,
    ("profiled", "squeezenet1_1"): 2.73,
}
"""Gains of PartitionTuner in percent, over what, on what (ETRI Journal 45(2), abstract)."""

PARTITION_TUNER_MACHINE = "zcu102-vta"


def dlfusion_rows(networks: Sequence[str] = DLFUSION_NETWORKS) -> list[dict[str, Any]]:
    """Measure the speed-up of every strategy over no optimisation, at batch 1."""
    target = load_target(DLFUSION_TARGET)
    model, rows = core_model(target, DLFUSION_DTYPE), []
    for name in networks:
        graph = import_model(workloads.get(name).file, batch=1)
        costs = BlockProfiles(graph, target, DLFUSION_DTYPE)
        seconds = {kind: total(costs, decide(costs, model)) for kind, decide in STRATEGIES.items()}
        speed_ups = {kind: seconds["none"] / s for kind, s in seconds.items() if kind != "none"}
        rows.append({"model": name, "published": DLFUSION_PUBLISHED, **speed_ups})
    return rows


def partition_tuner_rows(
    networks: Sequence[str] = PARTITION_TUNER_NETWORKS, machine: str = PARTITION_TUNER_MACHINE
) -> list[dict[str, Any]]:
    """Measure milliseconds by scheduler at batch 1, and gains of PartitionTuner in percent."""
    loaded, rows = load_machine(machine), []
    for name in networks:
        graph = import_model(workloads.get(name).file, batch=1)
        evaluator = MachineEvaluator(graph, loaded, loaded.default_dtype)
        ms = {s: _milliseconds(evaluator, s) for s in scheduler_names(loaded)}
        rows.append({"model": name, **ms, **gains_of(name, ms)})
    return rows


def gains_of(model: str, ms: dict[str, float]) -> dict[str, Any]:
    """Return gains of PartitionTuner over others in percent, each beside what is published."""
    theirs = ms["partition_tuner"]
    return {
        f"over_{other}": {
            "ours": 100 * (ms[other] / theirs - 1),
            "published": PARTITION_TUNER_PUBLISHED.get((other, model)),
        }
        for other in ("static", "profiled")
    }


def _milliseconds(evaluator: MachineEvaluator, scheduler: str) -> float:
    outcome = evaluator.measure_scheduler(scheduler)
    return outcome.latency * 1e3 if isinstance(outcome, Measurement) else float("inf")


def print_dlfusion(rows: Sequence[dict[str, Any]]) -> None:
    """Print the rows of :func:`dlfusion_rows`."""
    kinds = [kind for kind in STRATEGIES if kind != "none"]
    low, high = DLFUSION_PUBLISHED
    print(f"\nDLFusion @ {DLFUSION_TARGET}: speed-up over no optimisation (p. {low} to {high})")
    head = ("model", "p. dlfusion", *kinds)
    lines = [(r["model"], f"{low}-{high}", *(f"{r[kind]:.2f}" for kind in kinds)) for r in rows]
    print_table(head, lines)


def print_partition_tuner(rows: Sequence[dict[str, Any]]) -> None:
    """Print the rows of :func:`partition_tuner_rows`."""
    names = scheduler_names(load_machine(PARTITION_TUNER_MACHINE))
    print(f"\nPartitionTuner @ {PARTITION_TUNER_MACHINE}: ms at batch 1, its gains in per cent")
    head = ("model", *names, "p. over static", "ours", "p. over profiled", "ours")
    lines = [
        (r["model"], *(f"{r[name]:.2f}" for name in names), *_pair(r["over_static"]),
         *_pair(r["over_profiled"]))
        for r in rows
    ]  # fmt: skip
    print_table(head, lines)


def _pair(gain: dict[str, Any]) -> tuple[str, str]:
    published = gain["published"]
    return "-" if published is None else f"{published:+.2f}", f"{gain['ours']:+.2f}"
