"""Level two: kernels and copies in order.

A cluster runs one kernel at a time and a kernel's boundary is a barrier, so a pass takes the sum of
its kernels and of the copies between them. Where clusters share out samples they work alike and
side by side, and loop over their shares.

Otherwise a kernel, its copies included, starts when its cluster is free and every kernel on
another cluster that it reads from has ended, one barrier later. Passes follow each other on every
cluster, but clusters may be in different passes: what they hand over has room for two passes, so a
kernel also waits for those on other clusters that still read what it made two passes before.

:func:`cluster_passes` has the seconds of every kernel and :func:`run_passes` says when each begins.
All else is made of these: the sums of :func:`simulate`, :func:`pass_intervals`, and the shares of
:mod:`autoturbo.simulator.breakdown`.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from autoturbo.caches import GrowingArray, remembered
from autoturbo.compiled import compiled
from autoturbo.graph.arrays import Ints
from autoturbo.graph.operators import Graph
from autoturbo.hardware.target import Target
from autoturbo.schedule.codegen.durations import rates_of
from autoturbo.schedule.codegen.instructions import ENGINES, Instructions
from autoturbo.schedule.codegen.loads import COPY, Loads
from autoturbo.schedule.memory.allocate import peak_use
from autoturbo.schedule.memory.timeline import KINDS
from autoturbo.schedule.place.bind import Scope
from autoturbo.schedule.schedule import Schedule
from autoturbo.schedule.work import Floats, in_integers
from autoturbo.simulator.bound import lower_bound
from autoturbo.simulator.kernels import (
    BUSY,
    OF_TIME,
    QUANTITIES,
    WAIT,
    Quantity,
    dma_bandwidth,
    issue,
    overlaps_of,
    run_kernel,
)
from autoturbo.simulator.measurement import Measurement
from autoturbo.simulator.whole_pass import (
    KernelInterval,
    PassRun,
    made_elsewhere,
    run_passes_whole,
)


@dataclass(eq=False)
class KernelMemory:
    """Kernels already simulated, by signature.

    Attributes:
        index: Row of :attr:`totals` by signature, 16 bytes.
        totals: Results of each kernel, by :class:`Quantity`.
    """

    index: dict[bytes, int] = field(default_factory=dict)
    totals: GrowingArray = field(default_factory=lambda: GrowingArray((QUANTITIES,), np.float64))

    def rows(self, schedule: Schedule, cluster: int = 0) -> tuple[list[bytes], Ints]:
        """Return the signatures and rows of a cluster's kernels; new kernels are simulated."""
        signatures, new = schedule.signatures(cluster), dict[bytes, int]()
        for kernel, signature in enumerate(signatures):
            if signature not in self.index:
                new.setdefault(signature, kernel)
        if new:
            rates = rates_of(schedule.context.target, schedule.context.dtype)
            programs = schedule.programs(new.values(), cluster)
            first = self.totals.add([run_kernel(program, rates).totals for program in programs])
            self.index.update(zip(new, itertools.count(first)))
        rows = [self.index[signature] for signature in signatures]
        return signatures, np.asarray(rows, np.int64)


def movement_times(copied: Ints, crossing: Ints, target: Target) -> Floats:
    """Return the time of each kernel's copies into LB and core-to-core traffic.

    Columns are seconds, to the barrier that ends them, DMA and transfer busy seconds, and bytes of
    GB. Bytes from DDR are written to GB, if there is one, and read again: both count there.
    """
    gb, link, has_gb = target.gb, target.transfer, target.gb.capacity > 0
    from_gb, from_ddr = copied[:, 1].astype(np.float64), copied[:, 2].astype(np.float64)
    # Without GB what comes from DDR goes straight to the cores.
    through = (from_gb + from_ddr) * has_gb
    dma = _seconds(from_ddr, dma_bandwidth(target))
    transfer = _seconds(through, gb.bandwidth) + _seconds(crossing, link.bandwidth)
    latency = (from_ddr > 0) * (target.dma.latency + target.ddr.latency)
    latency = latency + (through > 0) * (gb.latency + link.latency)
    seconds = dma + transfer + (latency + (crossing > 0) * link.latency)
    # The kernel begins when all cores have what was copied.
    seconds += (seconds > 0) * target.overheads.barrier
    return np.stack((seconds, dma, transfer, (from_gb + 2.0 * from_ddr) * has_gb), axis=1)


def _seconds(size: Ints | Floats, rate: float) -> Floats:
    """Return the seconds of transfers; 0 without bytes, where the rate may be 0 too."""
    return np.divide(size, rate, out=np.zeros(len(size)), where=size > 0)


class ClusterPass(NamedTuple):
    """A pass of one cluster, kernel by kernel.

    Attributes:
        signatures: Signatures of the kernels, in order.
        kernels: What each takes by :class:`Quantity`, ``(kernels, quantities)``.
        copies: Results of :func:`movement_times` for the copies before each.
        around: Seconds of its launch, its ramp and the barrier after it.
        seconds: Seconds from the begin of its copies to the end of its barrier.
        whole: The pass run whole, where loads run over its kernels.
    """

    signatures: list[bytes]
    kernels: Floats
    copies: Floats
    around: Floats
    seconds: Floats
    whole: PassRun | None

    def totals(self, copied: Ints, target: Target) -> Floats:
        """Return the sums over the kernels and the copies before them, by :class:`Quantity`.

        Args:
            copied: Bytes of the copies, by scope.
            target: The target.
        """
        totals: Floats = self.kernels.sum(axis=0)
        if self.whole is not None:
            totals = totals - self.whole.left_out
            totals[OF_TIME] = self.whole.totals[OF_TIME]
        totals[Quantity.SECONDS] = self.seconds.sum()
        totals[Quantity.BUSY_DMA_IN] += self.copies[:, 1].sum()
        totals[Quantity.BUSY_TRANSFER] += self.copies[:, 2].sum()
        _count_movements(totals, copied, target)
        return totals


def cluster_passes(schedule: Schedule, memory: KernelMemory | None = None) -> list[ClusterPass]:
    """Return a pass of every cluster; it is run whole where loads run over its kernels.

    Args:
        schedule: The schedule.
        memory: Kernels that are simulated already.
    """
    memory = KernelMemory() if memory is None else memory
    whole = whole_passes(schedule)
    return [_cluster_pass(schedule, memory, cluster, one) for cluster, one in enumerate(whole)]


def whole_passes(schedule: Schedule) -> Sequence[PassRun | None]:
    """Return a pass of every cluster run whole; None of each where no loads run over kernels."""
    clusters = range(len(schedule.timelines))
    if not any(len(schedule.loads(cluster).step) for cluster in clusters):
        return [None for _ in clusters]
    target = schedule.context.target
    moves = [movement_times(t.copied, t.crossing, target) for t in schedule.timelines]
    return run_passes_whole(schedule, moves)


def _cluster_pass(
    schedule: Schedule, memory: KernelMemory, cluster: int, whole: PassRun | None = None
) -> ClusterPass:
    target, timeline = schedule.context.target, schedule.timelines[cluster]
    signatures, rows = memory.rows(schedule, cluster)
    copies = movement_times(timeline.copied, timeline.crossing, target)
    kernels: Floats = memory.totals.rows[rows]
    if whole is not None:
        kernels[:, Quantity.SECONDS] = [kernel.work for kernel in whole.kernels]
    work = kernels[:, Quantity.SECONDS]
    around = target.overheads.of_launches(work, schedule.opens(cluster))
    if whole is None:
        seconds = work + around + copies[:, 0]
    else:
        seconds = np.asarray([kernel.end - kernel.begin for kernel in whole.kernels])
    return ClusterPass(signatures, kernels, copies, around, seconds, whole)


def launched_seconds(schedule: Schedule, memory: KernelMemory, cluster: int = 0) -> Floats:
    """Return each kernel's seconds in order on a cluster, with its copies and its launch.

    Of kernels by themselves: what one fetches while another runs is left out.
    """
    return _cluster_pass(schedule, memory, cluster).seconds


def simulate(schedule: Schedule, memory: KernelMemory | None = None) -> Measurement:
    """Measure a schedule: latency of the whole batch on the whole chip, and its causes."""
    passes = cluster_passes(schedule, memory)
    return _measurement(schedule, passes, pass_latency(schedule, passes))


def pass_latency(schedule: Schedule, passes: Sequence[ClusterPass]) -> float:
    """Return the seconds of the whole batch, given a pass of every cluster."""
    loops = schedule.share.loops
    if len(passes) == 1:
        return float(passes[0].seconds.sum()) * loops
    return run_schedule(schedule, passes, loops)


def run_schedule(
    schedule: Schedule,
    passes: Sequence[ClusterPass],
    loops: int,
    log: list[tuple[int, float, float]] | None = None,
) -> float:
    """Return the result of :func:`run_passes` for a schedule.

    Args:
        schedule: The schedule.
        passes: A pass of every cluster.
        loops: Number of passes.
        log: Takes instance, begin and end of every launch, pass by pass in order.
    """
    graph = schedule.instances
    instance_s = np.zeros(graph.count)
    instance_s[_launched(schedule)] = np.concatenate([one.seconds for one in passes])
    return run_passes(
        schedule.order, schedule.cluster or [0] * graph.count, instance_s.tolist(),
        graph.producers, loops, schedule.context.target.overheads.barrier, log,
    )  # fmt: skip


COPIES = 2
"""Passes for which there is room where clusters hand over to each other."""


def run_passes(
    order: Sequence[int],
    cluster: Sequence[int],
    seconds: Sequence[float],
    producers: Sequence[Sequence[int]],
    loops: int,
    barrier: float,
    log: list[tuple[int, float, float]] | None = None,
) -> float:
    """Return the seconds until all clusters have run all passes.

    Args:
        order: Instances, each after those that it reads from.
        cluster: Per instance, the cluster that runs it.
        seconds: Per instance, of its kernel and the copies before it.
        producers: Per instance, the instances that it reads from.
        loops: Number of passes.
        barrier: Seconds from the end of a kernel until another cluster knows of it.
        log: Takes instance, begin and end of every launch, pass by pass in order.
    """
    makers = made_elsewhere(producers, cluster)
    first = np.append(0, np.cumsum([len(made) for made in makers])).astype(np.int64)
    own, times = np.asarray(cluster, np.int64), np.asarray(seconds, np.float64)
    begins = np.empty((0 if log is None else loops, len(order)))
    latency = _run_passes(
        np.asarray(order, np.int64), own, times,
        (first, np.asarray([maker for made in makers for maker in made], np.int64)),
        loops, barrier, begins,
    )  # fmt: skip
    if log is not None:
        ends = begins + times[list(order)]
        for begun, ended in zip(begins.tolist(), ends.tolist(), strict=True):
            log.extend(zip(order, begun, ended, strict=True))
    return float(latency)


@compiled
def _run_passes(
    order: Ints, cluster: Ints, seconds: Floats, remote: tuple[Ints, Ints],
    loops: int, barrier: float, begins: Floats,
) -> float:  # fmt: skip
    """Return the seconds of all passes.

    Args:
        order: Of :func:`run_passes`, like ``cluster``, ``seconds``, ``loops`` and ``barrier``.
        cluster: Per instance, the cluster that runs it.
        seconds: Per instance, the seconds that it takes.
        remote: Where in the second array each instance's makers on other clusters begin, and they.
        loops: Number of passes.
        barrier: Seconds.
        begins: Takes the seconds at which launches begin, pass by pass, where it has rows.
    """
    first, makers = remote
    free = np.zeros(cluster.max() + 1)
    end, read = np.zeros(len(cluster)), np.zeros((COPIES, len(cluster)))
    for loop in range(loops):
        # When what the pass two before made was read last, which frees the room for this pass.
        seen = read[loop % COPIES]
        for place, instance in enumerate(order):
            own_cluster = cluster[instance]
            start = free[own_cluster]
            if seen[instance] > 0:
                start = max(start, seen[instance] + barrier)
                # Taken note of once; readers of this pass write it again.
                seen[instance] = 0.0
            waited = makers[first[instance] : first[instance + 1]]
            for maker in waited:
                start = max(start, end[maker] + barrier)
            end[instance] = free[own_cluster] = start + seconds[instance]
            for maker in waited:
                seen[maker] = max(seen[maker], end[instance])
            if len(begins):
                begins[loop, place] = start
    return float(free.max())


def pass_intervals(
    schedule: Schedule, memory: KernelMemory | None = None
) -> tuple[KernelInterval, ...]:
    """Return the intervals of the first pass's kernels, in the order of the schedule.

    Clusters that divide samples all do the same: the intervals are those of one cluster.
    """
    passes, log = cluster_passes(schedule, memory), list[tuple[int, float, float]]()
    run_schedule(schedule, passes, 1, log)
    times = {instance: (begin, end) for instance, begin, end in log}
    found = {
        kernel.instance: kernel
        for cluster, one in enumerate(passes)
        for kernel in (one.whole.kernels if one.whole else _timed(schedule, cluster, one, times))
    }
    return tuple(found[instance] for instance in schedule.order)


def _timed(
    schedule: Schedule, cluster: int, one: ClusterPass, times: Mapping[int, tuple[float, float]]
) -> Iterator[KernelInterval]:
    """Yield the intervals of kernels that need nothing of each other.

    Args:
        schedule: The schedule.
        cluster: The cluster that runs them.
        one: Its pass.
        times: Begin and end by instance.
    """
    context, work = schedule.context, one.kernels[:, Quantity.SECONDS]
    rates = rates_of(context.target, context.dtype)
    # The ramp counts as part of the launch (docs/decisions/kernel-ramp.md).
    ahead = context.target.overheads.before_work(work, schedule.opens(cluster))
    instances = schedule.timelines[cluster].order.tolist()
    known: dict[bytes, tuple[Instructions, tuple[Floats, Floats, Floats]]] = {}
    for kernel, (instance, signature) in enumerate(zip(instances, one.signatures, strict=True)):
        if signature not in known:
            program = schedule.program(kernel, cluster)
            known[signature] = program, issue(program, rates)
        program, (issued, freed, done) = known[signature]
        begin, end = times[instance]
        launch = begin + float(one.copies[kernel, 0])
        body = launch + float(ahead[kernel])
        yield KernelInterval(
            cluster, instance, begin, launch, body, float(work[kernel]), end,
            program, issued + body, freed + body, done + body,
        )  # fmt: skip


def step_times(rows: Ints, kernels: Sequence[KernelInterval]) -> list[float]:
    """Return the seconds at which each step of a timeline begins.

    Args:
        rows: The first row of each kernel's layers in the timeline, and one entry more.
        kernels: The intervals of the cluster's kernels, in order.
    """
    times = []
    for number, kernel in enumerate(kernels):
        times.append(kernel.begin)
        begins = kernel.layers()[:, 0]
        latest = kernel.body
        for layer in range(int(rows[number + 1] - rows[number])):
            known = layer < len(begins) and not np.isnan(begins[layer])
            latest = max(latest, float(begins[layer])) if known else latest
            times.append(latest)
    return times


def passed_times(loads: Loads, kernels: Sequence[KernelInterval]) -> Floats:
    """Return the seconds at which the cores have what each load of a cluster brings.

    Args:
        loads: Loads of the cluster.
        kernels: The intervals of its kernels, in order.
    """
    passed = zip(loads.kernel.tolist(), loads.passed.tolist(), strict=True)
    seconds = [kernels[k].body if at == COPY else kernels[k].done[at] for k, at in passed]
    return np.asarray(seconds, np.float64)


def _count_movements(totals: Floats, copied: Ints, target: Target) -> None:
    """Add the bytes that copies move to a schedule's totals."""
    from_gb, from_ddr = copied[:, 1].sum(), copied[:, 2].sum()
    totals[Quantity.DDR_READ] += from_ddr
    totals[Quantity.LB] += from_gb + from_ddr
    if target.gb.capacity:
        totals[Quantity.GB_READ] += from_gb + from_ddr
        totals[Quantity.GB_WRITTEN] += from_ddr


def _measurement(schedule: Schedule, passes: Sequence[ClusterPass], latency: float) -> Measurement:
    """Return the measurement of a schedule.

    Args:
        schedule: The measured schedule.
        passes: A pass of every cluster.
        latency: Seconds of the whole batch.
    """
    target, timelines = schedule.context.target, schedule.timelines
    copied = [timeline.copied for timeline in timelines]
    totals = np.sum([p.totals(c, target) for p, c in zip(passes, copied, strict=True)], axis=0)
    mean = totals / len(passes)
    # Clusters launch side by side: the one with most counts.
    launches = max(int(schedule.opens(c).sum()) for c in range(len(passes)))
    loops, copies = schedule.share.loops, schedule.share.copies
    bound = lower_bound(schedule.model, schedule.context.chip, schedule.context.dtype)
    moved = totals * (loops * copies)
    ddr, gb = (round(float(totals[at].sum()) * loops * copies) for at in (_DDR, _GB))
    placed = [timeline.buffers for timeline in timelines]
    signatures = [signature for one in passes for signature in one.signatures]
    times = _mean_times(signatures, np.concatenate([one.kernels for one in passes]))
    seconds = np.concatenate([one.seconds for one in passes])
    return Measurement(
        latency=bound.checked(latency, f"{schedule.model.name} on {schedule.context.target.name}"),
        batch=schedule.model.known_batch,
        ddr_bytes=ddr,
        gb_bytes=gb,
        matrix_utilization=bound.matrix_s / latency,
        vector_utilization=bound.vector_s / latency,
        peak_lb_bytes=max(peak_use(buffers, Scope.LB) for buffers in placed),
        peak_gb_bytes=max(peak_use(buffers, Scope.GB) for buffers in placed),
        kernels=launches * loops,
        bound=bound,
        busy=dict(zip(ENGINES, (mean[BUSY] * loops).tolist(), strict=True)),
        overlap=overlaps_of(mean * loops),
        waits=dict(zip(ENGINES, (mean[WAIT] * loops).tolist(), strict=True)),
        bytes={q.name.lower(): round(float(moved[q])) for q in Quantity if q >= Quantity.DDR_READ},
        energy=_energy(schedule, latency, ddr, gb),
        kernel_times={s.hex(): each for s, each in times.items()},
        kernel_counts={s.hex(): n * loops for s, n in Counter(signatures).items()},
        tensors=_tensor_counts(schedule),
        subgraph_times=subgraph_times(schedule, _launched(schedule), seconds),
        program=schedule.digest,
    )


def _mean_times(signatures: Sequence[bytes], kernels: Floats) -> dict[bytes, float]:
    """Return the seconds of each kernel, in the mean where loads make equal ones differ."""
    seconds = defaultdict[bytes, list[float]](list)
    for signature, own in zip(signatures, kernels[:, Quantity.SECONDS], strict=True):
        seconds[signature].append(float(own))
    # The sum of equal times over their number may differ from them in the last bit.
    return {s: own[0] if len({*own}) == 1 else sum(own) / len(own) for s, own in seconds.items()}


_DDR = [Quantity.DDR_READ, Quantity.DDR_WRITTEN]
_GB = [Quantity.GB_READ, Quantity.GB_WRITTEN]


def subgraph_times(schedule: Schedule, order: Ints, seconds: Floats) -> tuple[float, ...]:
    """Return the mean seconds of one launch of each sub-graph's kernels.

    Args:
        schedule: The measured schedule.
        order: The instances whose kernels were launched.
        seconds: Seconds of one launch of each of these.
    """
    owner = schedule.instances.subgraph[order]
    count = len(schedule.instances.subgraphs)
    sums = np.bincount(owner, seconds, count)
    return tuple((sums / np.maximum(np.bincount(owner, minlength=count), 1)).tolist())


def _launched(schedule: Schedule) -> Ints:
    """Return the instances in order, cluster by cluster."""
    return np.concatenate([timeline.order for timeline in schedule.timelines])


def _energy(schedule: Schedule, latency: float, ddr: int, gb: int) -> float | None:
    """Return the joules of multiply-accumulates, of bytes per level, and of static power.

    Args:
        schedule: The measured schedule.
        latency: Seconds, for the static power.
        ddr: Bytes to and from DDR.
        gb: Bytes to and from GB.

    Returns:
        None where the target does not say what they take.
    """
    energy = schedule.context.target.energy
    if energy is None:
        return None
    passes = schedule.share.loops * schedule.share.copies
    templates = schedule.timeline.templates
    local = float(np.asarray([templates[i].local_bytes for i in _launched(schedule)]).sum())
    picojoules = (
        _mac_energy(schedule, dict(energy.mac))
        + local * schedule.context.target.cores * passes * energy.lb
        + gb * energy.gb
        + ddr * energy.ddr
    )
    return picojoules * 1e-12 + energy.static * latency


def _mac_energy(schedule: Schedule, per_mac: Mapping[str, float]) -> float:
    """Return the picojoules of a model's multiply-accumulates, each in its operator's type."""
    model, context = schedule.model, schedule.context
    real = per_mac.get(context.dtype, 0.0)
    quantised_macs = _quantised_macs(model) if in_integers(context.target, context.dtype) else 0
    return (model.macs - quantised_macs) * real + quantised_macs * per_mac.get("int8", real)


@remembered(1)
def _quantised_macs(model: Graph) -> int:
    return sum(o.macs for o in model.operators if o.integer is not None)


def _tensor_counts(schedule: Schedule) -> dict[str, int]:
    """Return the buffers per scope over one pass (the paper's Table 3 counts tensors)."""
    counts = np.zeros(len(Scope), np.int64)
    for timeline in schedule.timelines:
        tensors = timeline.kind == KINDS.index("tensor")
        counts += np.bincount(timeline.buffers.scope[tensors], minlength=len(Scope))
    return {scope.name: int(counts[scope]) for scope in Scope}
