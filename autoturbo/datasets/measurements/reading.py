"""One setting measured, with all that a data set keeps of it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np

from autoturbo.errors import KnobsError
from autoturbo.graph.arrays import Ints
from autoturbo.schedule.codegen.work import Floats
from autoturbo.schedule.knobs import Knobs
from autoturbo.schedule.pipeline import build_schedule, plan
from autoturbo.schedule.place.instances import InstanceGraph
from autoturbo.schedule.schedule import Schedule, Share
from autoturbo.simulate.contract import PlanStatistics
from autoturbo.simulate.evaluator import Evaluator
from autoturbo.simulate.measurement import Failure, Measurement, Outcome


@dataclass(frozen=True, slots=True, eq=False)
class KernelParts:
    """What a measurement says of each sub-graph besides the time of a launch.

    Attributes:
        seconds: mean of a launch of its kernels, without what comes before them.
        signatures: of the first kernel of each, 16 bytes.
        different: different signatures among the kernels of each.
    """

    seconds: Floats
    signatures: list[bytes]
    different: Ints


@dataclass(frozen=True, slots=True, eq=False)
class Reading:
    """A setting and what came of it.

    Attributes:
        knobs: the setting.
        outcome: measurement or failure.
        plan: statistics of its sub-graphs; None where it does not fit the model.
        share: how clusters share out the work; None likewise.
        homes: first cluster and number of clusters of every sub-graph, ``(sub-graphs, 2)``.
        reads: sub-graphs that each sub-graph reads from.
        alike: whether one cluster's kernels in a row are the latency: no other does otherwise.
        parts: None where nothing was measured.
        schedule: equal for settings whose schedules measure the same in every respect.
    """

    knobs: Knobs
    outcome: Outcome
    plan: PlanStatistics | None
    share: Share | None
    homes: Ints
    reads: list[list[int]]
    alike: bool
    parts: KernelParts | None
    schedule: bytes

    @property
    def measured(self) -> bool:
        """Whether it is a measurement."""
        return isinstance(self.outcome, Measurement)

    @property
    def latency(self) -> float:
        """Seconds; infinite for a failure."""
        return self.outcome.latency if isinstance(self.outcome, Measurement) else float("inf")


def read_setting(evaluator: Evaluator, knobs: Knobs) -> Reading:
    """Build the schedule of a setting and measure it; a failure is a value."""
    try:
        return _measured(evaluator, build_schedule(evaluator.bench, knobs))
    except KnobsError as error:
        return _unfit(knobs, error)


def _unfit(knobs: Knobs, error: KnobsError) -> Reading:
    """What is known of a setting that has no plan."""
    return Reading(
        knobs=knobs,
        outcome=Failure("invalid", str(error)),
        plan=None,
        share=None,
        homes=np.zeros((0, 2), np.int64),
        reads=[],
        alike=False,
        parts=None,
        schedule=b"",
    )


def _measured(evaluator: Evaluator, schedule: Schedule) -> Reading:
    outcome = evaluator.measure(schedule)
    return Reading(
        knobs=schedule.knobs,
        outcome=outcome,
        plan=evaluator.statistics(schedule.knobs),
        share=schedule.share,
        homes=_homes(evaluator, schedule),
        reads=_reads(schedule.instances),
        alike=len(schedule.timelines) == 1,
        parts=_parts(schedule, outcome) if isinstance(outcome, Measurement) else None,
        schedule=_identity(outcome) if isinstance(outcome, Measurement) else b"",
    )


def _homes(evaluator: Evaluator, schedule: Schedule) -> Ints:
    """All clusters that work, where they work alike or there is only one."""
    found = plan(evaluator.bench, schedule.knobs).homes
    if found:
        return np.asarray(found, np.int64)
    own = np.asarray([0, schedule.share.clusters], np.int64)
    return np.tile(own, (len(schedule.instances.subgraphs), 1))


def _reads(instances: InstanceGraph) -> list[list[int]]:
    """From the edges between instances, those between sub-graphs."""
    owner = instances.subgraph.tolist()
    found: list[set[int]] = [set() for _ in instances.subgraphs]
    for reader, makers in zip(owner, instances.producers, strict=True):
        found[reader].update(owner[maker] for maker in makers)
    return [sorted(makers - {reader}) for reader, makers in enumerate(found)]


def _parts(schedule: Schedule, outcome: Measurement) -> KernelParts:
    """Sort the kernels of all clusters by sub-graph."""
    order = np.concatenate([timeline.order for timeline in schedule.timelines])
    owner = schedule.instances.subgraph[order]
    found = [s for at in range(len(schedule.timelines)) for s in schedule.signatures(at)]
    seconds = np.asarray([outcome.kernel_times[s.hex()] for s in found], np.float64)
    count = len(schedule.instances.subgraphs)
    kernels = np.maximum(np.bincount(owner, minlength=count), 1)
    own: list[dict[bytes, None]] = [{} for _ in range(count)]
    for subgraph, signature in zip(owner.tolist(), found, strict=True):
        own[subgraph][signature] = None
    return KernelParts(
        np.bincount(owner, seconds, count) / kernels,
        [next(iter(signatures), b"") for signatures in own],
        np.asarray([len(signatures) for signatures in own], np.int64),
    )


def _identity(outcome: Measurement) -> bytes:
    """A hash of all measures, every kernel's signature among them.

    Schedules that differ in nothing that can be measured are one here, whatever led to them.
    """
    text = repr(sorted(outcome.as_dict().items()))
    return hashlib.blake2b(text.encode(), digest_size=16).digest()
