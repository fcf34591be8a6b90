"""Attribution of a schedule's latency to the resources that limit it.

Kernels run one after another on a cluster, so the latency is the sum of theirs, each with the
copies before it, its launch and its barrier. Where clusters hand over to each other it is the
sum over the critical path through the clusters, and what lies off the path adds nothing. Shares of
a part always add up to its time, and the parts' times to the latency.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from autoturbo.graph.arrays import Ints
from autoturbo.hardware.target import Target
from autoturbo.schedule.codegen.durations import rates_of
from autoturbo.schedule.schedule import Schedule
from autoturbo.schedule.work import Floats
from autoturbo.simulator.breakdown.attribution import (
    LIMITS,
    KernelShares,
    KernelTimes,
    Limit,
    kernel_shares,
)
from autoturbo.simulator.sequence import (
    COPIES,
    ClusterPass,
    KernelMemory,
    cluster_passes,
    pass_latency,
    run_schedule,
)
from autoturbo.simulator.whole_pass import made_elsewhere


@dataclass(frozen=True, slots=True)
class Shares:
    """Seconds per limit.

    Attributes:
        seconds: Per limit, ordered as :data:`autoturbo.simulator.breakdown.attribution.LIMITS`.
    """

    seconds: tuple[float, ...]

    @staticmethod
    def of(row: Floats) -> Shares:
        """Return the shares in the columns of an array."""
        return Shares(tuple(row.tolist()))

    @property
    def total(self) -> float:
        """Return their sum."""
        return sum(self.seconds)

    @property
    def limit(self) -> Limit:
        """Return the limit with the largest share; of equal ones the first."""
        return LIMITS[self.seconds.index(max(self.seconds))]

    def part(self, limit: Limit) -> float:
        """Return the share of one limit, of 1; 0 if nothing takes any time."""
        return self.seconds[LIMITS.index(limit)] / self.total if self.total else 0.0

    def as_dict(self) -> dict[str, float]:
        """Return the seconds by name."""
        return {limit.value: s for limit, s in zip(LIMITS, self.seconds, strict=True)}


@dataclass(frozen=True, slots=True)
class KernelShare:
    """One kernel of a pass.

    Attributes:
        instance: Whose it is.
        cluster: The cluster that runs it.
        seconds: Seconds with the copies before it, its launch and its barrier.
        shares: Shares of that time by limit.
        slack: Seconds that it takes beyond its busiest engine or memory: what hiding everything
            else behind that one would gain.
        critical: Passes in which it is on the critical path; all of them on a single cluster.
    """

    instance: int
    cluster: int
    seconds: float
    shares: Shares
    slack: float
    critical: int


@dataclass(frozen=True, slots=True)
class LayerShare:
    """One layer, over the whole batch.

    Attributes:
        layer: Index in the context's layers.
        subgraph: The sub-graph that it belongs to.
        seconds: Seconds that it adds to the latency, launches and copies of its kernels apart.
        shares: Shares of that time by limit.
        slack: Seconds by which all its work in any kernel could be later; 0 on the critical path.
    """

    layer: int
    subgraph: int
    seconds: float
    shares: Shares
    slack: float


@dataclass(frozen=True, slots=True)
class SubGraphShare:
    """All kernels of a sub-graph, over the whole batch.

    Attributes:
        subgraph: Number of the sub-graph.
        layer: Name of its last layer, by which knobs name it.
        layers: Number of its layers.
        launches: Launches of its kernels by one cluster.
        seconds: Seconds that its kernels add to the latency.
        shares: Shares of that time by limit.
        slack: Slack of its kernels, as :attr:`KernelShare.slack`.
    """

    subgraph: int
    layer: str
    layers: int
    launches: int
    seconds: float
    shares: Shares
    slack: float


@dataclass(frozen=True, slots=True)
class ScheduleShares:
    """A schedule's latency, attributed to limits, kernels and layers.

    Attributes:
        latency: Seconds of the whole batch, as measured.
        shares: Shares of it; the waits of clusters for each other are in ``launch``.
        kernels: Kernels of one pass, cluster by cluster, in order.
        subgraphs: Shares of the sub-graphs, by number.
        layers: Shares of the layers, by number.
    """

    latency: float
    shares: Shares
    kernels: tuple[KernelShare, ...]
    subgraphs: tuple[SubGraphShare, ...]
    layers: tuple[LayerShare, ...]


def schedule_shares(schedule: Schedule, memory: KernelMemory | None = None) -> ScheduleShares:
    """Return a schedule's latency, attributed to limits.

    Args:
        schedule: The schedule.
        memory: Kernels that are simulated already.
    """
    passes = cluster_passes(schedule, memory)
    clusters = [_cluster(schedule, cluster, one) for cluster, one in enumerate(passes)]
    counts, handover = _critical(schedule, passes)
    kernels = tuple(
        KernelShare(int(instance), index, *_spent(row), part.seconds - part.busiest, int(count))
        for index, (timeline, one) in enumerate(zip(schedule.timelines, clusters, strict=True))
        for instance, row, part, count in zip(
            timeline.order, one.shares, one.parts, counts[timeline.order], strict=True
        )
    )
    whole = np.zeros(len(LIMITS))
    for timeline, one in zip(schedule.timelines, clusters, strict=True):
        whole += one.shares.T @ counts[timeline.order]
    whole[LIMITS.index(Limit.LAUNCH)] += handover
    return ScheduleShares(
        pass_latency(schedule, passes), Shares.of(whole), kernels, _subgraphs(schedule, kernels),
        _layers(schedule, clusters, counts),
    )  # fmt: skip


def _spent(row: Floats) -> tuple[float, Shares]:
    """Return the attributed seconds, and their shares."""
    return float(row.sum()), Shares.of(row)


class _Cluster(NamedTuple):
    """Shares of one cluster's kernels in order, and the parts of each."""

    shares: Floats
    parts: list[KernelShares]


def _cluster(schedule: Schedule, cluster: int, one: ClusterPass) -> _Cluster:
    """Attribute the time of every kernel of a pass; those of one signature once.

    Where loads run over kernels, equal kernels may take different times.

    Returns:
        The shares.
    """
    target, timeline = schedule.context.target, schedule.timelines[cluster]
    rates = rates_of(target, schedule.context.dtype)
    known: dict[bytes, KernelShares] = {}
    parts = []
    for kernel, signature in enumerate(one.signatures):
        layers = len(timeline.templates[int(timeline.order[kernel])].layers)
        if one.whole is not None:
            run = one.whole.kernels[kernel]
            parts.append(kernel_shares(run.program, rates, layers, KernelTimes.of(run)))
            continue
        if signature not in known:
            known[signature] = kernel_shares(schedule.program(kernel, cluster), rates, layers)
        parts.append(known[signature])
    shares = np.asarray([part.layers.sum(axis=0) for part in parts]).reshape(-1, len(LIMITS))
    shares += _movements(one, timeline.crossing, target)
    shares[:, LIMITS.index(Limit.LAUNCH)] += one.around
    return _Cluster(shares, parts)


def _movements(one: ClusterPass, crossing: Ints, target: Target) -> Floats:
    """Return the shares of the copies before kernels.

    Where a pass is run whole, copies that came early leave only what passes them on.
    """
    seconds = one.copies
    shares = np.zeros((len(seconds), len(LIMITS)))
    by = {limit: shares[:, column] for column, limit in enumerate(LIMITS)}
    by[Limit.DDR][:] = seconds[:, 1]
    by[Limit.TRANSFER][:] = crossing / target.transfer.bandwidth
    by[Limit.GB][:] = np.maximum(seconds[:, 2] - by[Limit.TRANSFER], 0.0)
    by[Limit.LAUNCH][:] = np.where(seconds[:, 0] > 0, target.overheads.barrier, 0.0)
    # What is left over once all others are there.
    by[Limit.LATENCY][:] = np.maximum(seconds[:, 0] - shares.sum(axis=1), 0.0)
    if one.whole is not None:
        took = np.asarray([run.launch - run.begin for run in one.whole.kernels])
        by[Limit.DDR][:] += took - shares.sum(axis=1)
        # Copies that came early took less than their transfer of DDR: what is below 0 was latency.
        by[Limit.LATENCY][:] += np.minimum(by[Limit.DDR], 0.0)
    return np.maximum(shares, 0.0)  # sums in another order differ by less


def _critical(schedule: Schedule, passes: Sequence[ClusterPass]) -> tuple[Ints, float]:
    """Return each instance's passes on the critical path, and the seconds of handing over.

    The path goes back from the launch that ends last, each time to the launch that delayed it: the
    one before it on its cluster, or else the last that it waited for on another cluster.
    """
    graph, cluster, loops = schedule.instances, schedule.cluster, schedule.share.loops
    if not cluster:
        return np.full(graph.count, loops, np.int64), 0.0
    barrier = schedule.context.target.overheads.barrier
    log: list[tuple[int, float, float]] = []
    run_schedule(schedule, passes, loops, log)
    begin, end = dict[_Launch, float](), dict[_Launch, float]()
    before, free = dict[_Launch, _Launch | None](), dict[int, _Launch]()
    for entry, (instance, start, stop) in enumerate(log):
        launch = entry // graph.count, instance
        begin[launch], end[launch], before[launch] = start, stop, free.get(cluster[instance])
        free[cluster[instance]] = launch
    makers = made_elsewhere(graph.producers, cluster)
    readers: list[list[int]] = [[] for _ in cluster]
    for reader in schedule.order:
        for maker in makers[reader]:
            readers[maker].append(reader)
    counts, handover = np.zeros(graph.count, np.int64), 0.0
    held: _Launch | None = max(free.values(), key=end.__getitem__)
    while held is not None:
        loop, instance = held
        counts[instance] += 1
        earlier = before[held]
        # It began later than its cluster was free: another cluster made it wait.
        if begin[held] > (0.0 if earlier is None else end[earlier]):
            waits = [(loop, m) for m in makers[instance]]
            if loop >= COPIES:  # for what is read of the pass whose room it takes
                waits += [(loop - COPIES, reader) for reader in readers[instance]]
            earlier, handover = max(waits, key=end.__getitem__), handover + barrier
        held = earlier
    return counts, handover


_Launch = tuple[int, int]
"""Pass and instance."""


def _subgraphs(schedule: Schedule, kernels: tuple[KernelShare, ...]) -> tuple[SubGraphShare, ...]:
    subgraphs, layers = schedule.instances.subgraphs, schedule.context.layers
    rows = np.zeros((len(subgraphs), len(LIMITS)))
    slack, launches = np.zeros(len(subgraphs)), np.zeros(len(subgraphs), np.int64)
    for kernel in kernels:
        index = int(schedule.instances.subgraph[kernel.instance])
        rows[index] += np.asarray(kernel.shares.seconds) * kernel.critical
        slack[index] += kernel.slack * kernel.critical
        launches[index] += schedule.share.loops
    return tuple(
        SubGraphShare(
            s.index, layers[s.layers[-1]].name, len(s.layers), int(launches[s.index]),
            *_spent(rows[s.index]), float(slack[s.index]),
        )
        for s in subgraphs
    )  # fmt: skip


def _layers(schedule: Schedule, clusters: list[_Cluster], counts: Ints) -> tuple[LayerShare, ...]:
    graph, total = schedule.instances, len(schedule.context.layers)
    rows, slack = np.zeros((total, len(LIMITS))), np.full(total, np.inf)
    owner = np.zeros(total, np.int64)
    for timeline, cluster in zip(schedule.timelines, clusters, strict=True):
        for instance, part in zip(timeline.order.tolist(), cluster.parts, strict=True):
            subgraph = graph.subgraphs[int(graph.subgraph[instance])]
            layers = list(subgraph.layers)
            rows[layers] += part.layers * counts[instance]
            slack[layers] = np.minimum(slack[layers], part.slack)
            owner[layers] = subgraph.index
    each = enumerate(zip(owner.tolist(), rows, slack.tolist(), strict=True))
    return tuple(LayerShare(i, mine, *_spent(row), late) for i, (mine, row, late) in each)
