"""What contested figures of STCP920 are worth: latency when each is swept alone.

``python benchmarks/validation/sensitivity.py``. ResNet-50 at batch 64 and BERT-base (128 tokens) at
batch 32, in FP16, by the published heuristic and by the TVM-like baseline. Sources differ on the
bandwidths of DDR and of the global buffer; launch cost, the efficiency of DDR, how it turns from
reading to writing, and how the array fills are estimates.
"""

from __future__ import annotations

import math

from validation_tools import print_table

from autoturbo.datasets import workloads
from autoturbo.graph.onnx_import import import_model
from autoturbo.hardware import Target, load_target, with_field
from autoturbo.simulator.evaluator import Evaluator
from autoturbo.simulator.measurement import Measurement

MODELS = (("resnet50", 64), ("bert_base_s128", 32))
SCHEDULERS = ("graphturbo", "tvm")

SWEPT: tuple[tuple[tuple[str, ...], tuple[float, ...]], ...] = (
    (("ddr.bandwidth_gb_s",), (108, 119.4, 136)),
    (("gb.bandwidth_gb_s",), (128, 256, 512, 4250)),
    (("gb.bandwidth_gb_s", "engines[transfer].bandwidth_gb_s"), (4250,)),
    (("ddr.efficiency",), (0.8, 0.9, 1.0)),
    (("overheads.kernel_launch_us",), (1, 3, 10)),
    (("engines[matrix].startup_cycles",), (0, 96, 192)),
    (("engines[vector].special_lanes",), (8, 16, 64)),
    (("engines[matrix].folds_overlap",), (False,)),
    (("dram.turnaround_ns",), (0, 28, 56)),
)
"""Fields swept together, with their values; 17 TB/s of the chip are 4250 GB/s of a cluster, which
only matter if each core's link carries its eighth."""


def machines() -> list[tuple[str, Target]]:
    """Return the preset and its variants of one figure changed, each with what was changed."""
    base = load_target("stcp920")
    found = [("as in the preset", base)]
    for fields, values in SWEPT:
        for value in values:
            target = base
            for field in fields:
                share = value / base.cores if field.startswith("engines[transfer]") else value
                target = with_field(target, field, share)
            found.append((f"{' and '.join(fields)}: {value:g}", target))
    return found


def latencies(target: Target) -> list[float]:
    """Return the milliseconds of each model by each scheduler."""
    found = []
    for name, batch in MODELS:
        model_scheduler = Evaluator(
            import_model(workloads.get(name).file, batch=batch), target, "float16"
        )
        for scheduler in SCHEDULERS:
            outcome = model_scheduler.measure_scheduler(scheduler)
            found.append(outcome.latency * 1e3 if isinstance(outcome, Measurement) else math.nan)
    return found


def main() -> None:
    """Print milliseconds and, against the preset, their ratios."""
    rows = [(name, latencies(target)) for name, target in machines()]
    base = rows[0][1]
    print_table(
        ("swept", *(f"{model} {scheduler}" for model, _ in MODELS for scheduler in SCHEDULERS)),
        (
            (name, *(f"{t:.2f} ({t / b:.2f})" for t, b in zip(found, base, strict=True)))
            for name, found in rows
        ),
    )


if __name__ == "__main__":
    main()
