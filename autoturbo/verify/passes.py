"""Passes: which samples the clusters process in which turn."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from autoturbo.schedule.schedule import BATCH, Schedule


@dataclass(frozen=True, slots=True)
class Pass:
    """One run through the schedule.

    A last pass that would have too few samples starts earlier, so that it is full like all others;
    what it makes of samples that an earlier pass made is not used.

    Attributes:
        index: which.
        cluster: the cluster that runs it; -1 where all clusters work on it together.
        start: first sample that it processes.
        samples: how many.
        used: samples whose results leave the model, first and one past the last.
    """

    index: int
    cluster: int
    start: int
    samples: int
    used: tuple[int, int]


def passes_of(schedule: Schedule) -> tuple[Pass, ...]:
    """All passes over the batch, in the order of their samples."""
    full = schedule.share.batches
    return tuple(
        Pass(index, cluster, max(high - full, 0), full, (low, high))
        for index, (cluster, low, high) in enumerate(_turns(schedule))
    )


def _turns(schedule: Schedule) -> Iterator[tuple[int, int, int]]:
    """Cluster, and first and one past the last sample that a pass is for."""
    share, batch = schedule.share, schedule.model.batch
    alike = share.split == BATCH
    for copy in range(share.copies):
        first = copy * share.samples
        end = min(first + share.samples, batch)
        for low in range(first, end, share.batches):
            yield copy if alike else -1, low, min(low + share.batches, end)


def one_pass(schedule: Schedule) -> Pass:
    """A single pass, as if the batch had no more samples than that."""
    samples = schedule.share.batches
    cluster = 0 if schedule.share.split == BATCH else -1
    return Pass(0, cluster, 0, samples, (0, samples))
