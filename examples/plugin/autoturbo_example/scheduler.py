"""A scheduler that never groups layers, at every number of samples that a cluster may take."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from autoturbo.plugin import Knobs, Schedule, Workbench, build_schedule


def ungrouped(bench: Workbench) -> Iterator[Schedule]:
    """Yield GraphTurbo's schedules with one layer in every sub-graph."""
    for batches in bench.batch_choices():
        knobs = Knobs(batches_per_cluster=batches, max_layers=1)
        yield dataclasses.replace(build_schedule(bench, knobs), scheduler="ungrouped")
