"""Print the latency of each ``cluster_partitioning`` on ``stcp920`` in FP16.

``python benchmarks/cluster_partitioning.py [--batch N] [NAME ...]``: one row per model, the best of
all numbers of samples at once that are a power of two (for samples: those of one cluster; otherwise
the chip's), which is printed behind the latency, and how much faster than sharing out samples the
best is.
"""

from __future__ import annotations

import argparse

from bench_tools import print_table

from autoturbo.datasets import workloads
from autoturbo.graph.onnx_import import import_model
from autoturbo.hardware import load_target
from autoturbo.schedule.knobs import AUTO, Knobs
from autoturbo.simulator.evaluator import Evaluator
from autoturbo.simulator.measurement import Measurement

SPLITS = (AUTO, "spatial", "channel", "pipeline")

MODELS = (
    "resnet50", "resnet18", "mobilenet_v2", "densenet121", "yolov5s_like", "unet",
    "bert_base_s128", "vit_b16", "whisper_base_enc", "llama_prefill", "llama_decode", "dlrm",
)  # fmt: skip


def best(evaluator: Evaluator, split: str) -> tuple[float, int]:
    """Return seconds and samples at once of the best setting of a split."""
    share = evaluator.model_scheduler.share(split=split)
    whole = evaluator.model_scheduler.trace.obstacle
    sizes = [share.samples] if whole else [1 << n for n in range(share.samples.bit_length())]
    found = []
    for size in sizes:
        outcome = evaluator.evaluate(Knobs(cluster_partitioning=split, batches_per_cluster=size))
        if isinstance(outcome, Measurement):
            found.append((outcome.latency, size))
    return min(found)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=list(MODELS))
    parser.add_argument("--batch", type=int, default=1)
    options = parser.parse_args()
    target = load_target("stcp920")
    rows = []
    for name in options.names:
        model = import_model(workloads.get(name).file, batch=options.batch)
        evaluator = Evaluator(model, target, "float16")
        tried = [best(evaluator, split) for split in SPLITS]
        cells = [f"{seconds * 1e3:.3f} ms ({size})" for seconds, size in tried]
        rows.append([name, *cells, f"{tried[0][0] / min(tried)[0]:.2f}x"])
    print_table(["model", "samples", *SPLITS[1:], "best"], rows)


if __name__ == "__main__":
    main()
