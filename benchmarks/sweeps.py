"""What measuring neighbours' settings brings a sweep: no larger target that is slower by chance.

``python benchmarks/sweeps.py [NAME ...] [--trials N] [--vary FIELD=VALUES ...] [--target T]``: each
model over a grid, a row a target: what its own search found, what it runs after every target has
measured the best settings of its neighbours, whose setting that is, and how much slower than a
lesser target each of the two is (0 where it is not).
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

from bench_tools import print_table

from autoturbo.datasets import workloads
from autoturbo.graph.onnx_import import import_model
from autoturbo.hardware import load_target
from autoturbo.report.sweep import Sweep, SweepPoint, shown
from autoturbo.tuning import sweeping

NAMES = ("mobilenet_v2", "resnet50", "bert_base_s128", "densenet121")
VARY = ("lb.capacity_kib=64,128,256,512,1024",)


def swept(name: str, target: str, vary: Sequence[str], trials: int) -> tuple[Sweep, Sweep]:
    """Return a sweep of one sample without what neighbours found, and with it."""
    model = import_model(workloads.get(name).file, batch=1)
    with TemporaryDirectory() as folder:
        asked: dict[str, Any] = {
            "trials": trials, "database": Path(folder) / "a.db", "runs_folder": folder,
        }  # fmt: skip
        with mock.patch.object(sweeping, "_borrow"):
            alone = sweeping.sweep(model, load_target(target), vary, **asked)
        return alone, sweeping.sweep(model, load_target(target), vary, **asked)


def slower(found: Sweep) -> list[float]:
    """Return by how much each point is slower than the fastest lesser target, as a share of it."""
    lesser = found.faster_lesser
    return [
        point.best.latency / other.best.latency - 1.0
        if (other := lesser.get(id(point))) and point.best and other.best
        else 0.0
        for point in found.points
    ]


def _us(point: SweepPoint) -> str:
    return "-" if point.best is None else f"{1e6 * point.best.latency:.1f}"


def main() -> None:
    """Print a table for each model."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", default=NAMES, metavar="NAME")
    parser.add_argument("--trials", type=int, default=16)
    parser.add_argument("--vary", action="append", metavar="FIELD=VALUES")
    parser.add_argument("--target", default="stcp920")
    options = parser.parse_args()
    for name in options.names:
        alone, found = swept(name, options.target, options.vary or VARY, options.trials)
        rows = [
            (
                ", ".join(map(shown, new.values)), _us(old),
                _us(new), f"{before:.1%}", f"{after:.1%}",
                new.trials - old.trials, new.source or "-",
            )
            for old, new, before, after in zip(
                alone.points, found.points, slower(alone), slower(found), strict=True
            )
        ]  # fmt: skip
        print(f"{name} @ {options.target}, {options.trials} trials each")
        header = (
            ", ".join(axis.short for axis in found.axes), "alone us", "us", "slower alone",
            "slower", "measured", "setting of",
        )  # fmt: skip
        print_table(header, rows)
        print(flush=True)


if __name__ == "__main__":
    main()
