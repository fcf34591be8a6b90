"""Measured products for ``autoturbo targets calibrate``: ``python -m autoturbo_gpu.products``.

Each row is a product with a weight in FP16 that ran alone on this computer's card, with the L2
cache emptied before each run, since a calibrated target has operands in DDR.
"""

from __future__ import annotations

import argparse
import csv
import io
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import onnx

from autoturbo.api import load_model, load_target
from autoturbo.plugin import ModelScheduler
from autoturbo_gpu import models, targets
from autoturbo_gpu.card import obstacle

SHAPES = (
    (8192, 8192, 8192), (8192, 4096, 4096), (4096, 4096, 4096), (4096, 2048, 4096),
    (2048, 2048, 2048), (2048, 768, 768), (4096, 768, 3072), (4096, 3072, 768), (1024, 1024, 1024),
    (512, 4096, 4096), (256, 4096, 4096), (128, 4096, 4096), (64, 4096, 4096), (16, 4096, 4096),
    (16, 8192, 8192), (16, 1024, 1024), (64, 768, 768), (128, 512, 512), (256, 256, 256),
    (32, 32, 32),
)  # fmt: skip
"""Rows, depth and columns: what the tensor cores bound, the memory (few rows), and the launch."""

REPEATS = 20


def table(
    seconds_of: Callable[[int, int, int], float],
    shapes: Sequence[tuple[int, int, int]] = SHAPES,
) -> str:
    """Return the CSV of measured products.

    Args:
        seconds_of: Measures a product of rows by depth times depth by columns.
        shapes: Of the products.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["m", "k", "n", "dtype", "latency_s"])
    for shape in shapes:
        writer.writerow([*shape, "float16", f"{seconds_of(*shape):.4g}"])
    return text.getvalue()


def on_gpu(rows: int, depth: int, columns: int) -> float:
    """Return the median seconds of a product on this computer's card."""
    from autoturbo_gpu import timing
    from autoturbo_gpu.plan import plan_of_model
    from autoturbo_gpu.program import Program

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "product.onnx"
        onnx.save(models.product(rows, depth, columns), path)
        scheduler = ModelScheduler(load_model(path), load_target(targets.h100()), "float16")
        program = Program(plan_of_model(scheduler, most_chained=1), "cuda")
    program.record()
    timing.seconds(program.run, 3)
    return statistics.median(timing.seconds(program.run, REPEATS, timing.Flush()))


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the table of this computer's card; return 2 where there is none."""
    parser = argparse.ArgumentParser(prog="autoturbo_gpu.products", description=__doc__)
    parser.add_argument("-o", "--out", type=Path, required=True, help="the CSV file")
    options = parser.parse_args(arguments)
    if found := obstacle():
        print(f"error: {found}", file=sys.stderr)
        return 2
    options.out.write_text(table(on_gpu), "utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
