"""A scheduler that never groups layers, at every number of samples that a cluster may take."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from autoturbo.plugin import Knobs, ModelScheduler, Schedule, build_schedule


def ungrouped(model_scheduler: ModelScheduler) -> Iterator[Schedule]:
    """Yield GraphTurbo's schedules with one layer in every sub-graph."""
    for batches in model_scheduler.batch_choices():
        knobs = Knobs(batches_per_cluster=batches, max_layers=1)
        yield dataclasses.replace(build_schedule(model_scheduler, knobs), scheduler="ungrouped")
