"""Measurers of schedules on this computer's GPU: with the L2 cache as it is left, or emptied."""

from __future__ import annotations

import csv
import os
import statistics
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from autoturbo.plugin import MeasurerInfo, Schedule
from autoturbo_gpu.card import obstacle
from autoturbo_gpu.plan import plan_of

LOG = "AUTOTURBO_GPU_LOG"
"""The environment variable that names a CSV file of conditions; none is written without."""


class Cuda:
    """Times a schedule's launches, recorded as a CUDA graph.

    Attributes:
        info: What AutoTurbo is told: one measurement at a time, the median of twenty runs.
    """

    info = MeasurerInfo(
        cost_s=6.0, repeats=20, warm_up=5, build_limit_s=300.0, run_limit_s=60.0, at_once=1
    )
    flushed = False

    def build(self, schedule: Schedule) -> Any:
        """Return the schedule's program; an exception is a failure of this schedule alone."""
        if found := obstacle():
            raise RuntimeError(found)
        from autoturbo_gpu.program import Program

        program = Program(plan_of(schedule), "cuda")
        program.record()
        return program

    def run(self, built: Any, repeats: int) -> Sequence[float]:
        """Return the seconds of each run of the whole batch."""
        from autoturbo_gpu import timing

        before = timing.Flush() if self.flushed else (lambda: None)
        taken = timing.seconds(built.run, repeats, before)
        if log := os.environ.get(LOG):
            note(Path(log), taken, timing.conditions())
        return taken


class CudaCold(Cuda):
    """Times a schedule's launches with nothing of the model left in the L2 cache."""

    flushed = True


def note(log: Path, taken: Sequence[float], found: Any) -> None:
    """Append what a measurement took, and the GPU's conditions after it, to a CSV file."""
    row = {"median_s": statistics.median(taken), "runs": len(taken), **asdict(found)}
    new = not log.exists()
    with log.open("a", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(row))
        if new:
            writer.writeheader()
        writer.writerow(row)
