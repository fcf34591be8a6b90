"""What must hold where clusters work on the same samples: who runs what, and when."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from autoturbo.schedule.codegen.durations import rates_of
from autoturbo.simulator.kernels import run_kernel
from autoturbo.simulator.sequence import simulate
from tests.schedule.pass_checks import check_whole_pass
from tests.schedule.steps import Step, instances_of, movement_time, program_of, steps_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from autoturbo.schedule.schedule import Schedule


def all_steps(schedule: Schedule) -> list[Step]:
    """Kernels of all clusters, cluster by cluster."""
    return [step for timeline in schedule.timelines for step in steps_of(timeline)]


def close(got: float, wanted: float) -> None:
    assert abs(got - wanted) <= 1e-6 * max(abs(wanted), 1.0)


def check_clusters(schedule: Schedule) -> None:
    """Every cluster runs its instances in the common order; shares are what the split says."""
    share, context = schedule.share, schedule.context
    clusters = context.target.clusters
    if share.split == "batch":
        assert (schedule.cluster, len(schedule.timelines)) == ((), 1)
        return
    assert (share.samples, share.copies) == (schedule.model.batch, 1)
    assert share.batches * (share.loops - 1) < share.samples <= share.batches * share.loops
    if share.clusters == 1:
        assert (schedule.cluster, len(schedule.timelines)) == ((), 1)
        return
    assert clusters > 1
    assert set(schedule.cluster) == set(range(share.clusters))
    for cluster, timeline in enumerate(schedule.timelines):
        own = [i for i in schedule.order if schedule.cluster[i] == cluster]
        assert timeline.order.tolist() == own
    _check_assignment(schedule)


def _check_assignment(schedule: Schedule) -> None:
    """A pipeline's stages are runs of sub-graphs, and branches have whole sub-graphs.

    Otherwise clusters have parts along one axis, in equal shares.

    Along that axis no two clusters have a part of the same rows, or channels.
    """
    at: list[list[int]] = [[] for _ in schedule.instances.subgraphs]
    for instance, cluster in zip(instances_of(schedule.instances), schedule.cluster, strict=True):
        at[instance.subgraph].append(cluster)
    if schedule.share.split in ("pipeline", "branches"):
        stages = [set(own) for own in at]
        assert all(len(own) == 1 for own in stages)
        flat = [own.pop() for own in stages]
        assert schedule.share.split == "branches" or flat == sorted(flat)
        return
    clusters = schedule.context.target.clusters
    for subgraph, own in zip(schedule.instances.subgraphs, at, strict=True):
        assert own == sorted(own)
        if len(set(own)) == 1:
            assert set(own) == {0}
        else:
            assert [own.count(c) for c in range(clusters)] == [len(own) // clusters] * clusters
            _check_axis(schedule, subgraph.layers[-1], subgraph.index)


def _check_axis(schedule: Schedule, layer: int, subgraph: int) -> None:
    """Some dimension of the wanted kind separates the clusters."""
    context, split = schedule.context, schedule.share.split
    tensor = context.layers[layer].outputs[0]
    loops = context.loop_order[tensor]
    dims = {"channel": loops[-1:], "spatial": loops[1:-1], "either": loops[1:]}[split]
    parts = [i for i in instances_of(schedule.instances) if i.subgraph == subgraph]

    def separates(dim: int) -> bool:
        spans = [
            (
                min(p.outputs[tensor][dim, 0] for p in own),
                max(p.outputs[tensor][dim, 1] for p in own),
            )
            for c in range(context.target.clusters)
            for own in [[p for p in parts if schedule.cluster[p.index] == c]]
        ]
        return all(a[1] <= b[0] for a, b in itertools.pairwise(spans))

    assert any(separates(dim) for dim in dims)


def check_latency(schedule: Schedule) -> None:
    """The latency is what clusters need that wait for each other, event by event."""
    if any(len(schedule.loads(c).step) for c in range(len(schedule.timelines))):
        check_whole_pass(schedule)
        return
    target, loops = schedule.context.target, schedule.share.loops
    rates = rates_of(target, schedule.context.dtype)
    fixed = around_kernels(schedule)
    seconds = {
        s.instance: run_kernel(program_of(schedule, s), rates).seconds
        + movement_time(s, target).seconds + fixed[s.instance]
        for s in all_steps(schedule)
    }  # fmt: skip
    queues = [t.order.tolist() for t in schedule.timelines]
    graph = schedule.instances
    ends = joint_ends(queues, graph.producers, seconds, loops, target.overheads.barrier)
    close(simulate(schedule).latency * 1e6, max(ends.values()) * 1e6)


def around_kernels(schedule: Schedule) -> dict[int, float]:
    """Seconds of launches and barriers around each kernel: some share both with those before."""
    overheads, fixed = schedule.context.target.overheads, dict[int, float]()
    graph = schedule.instances
    links = set(zip(graph.links.reader.tolist(), graph.links.maker.tolist(), strict=True))
    for timeline in schedule.timelines:
        launch, own = list[int](), timeline.order.tolist()
        others = set(range(graph.count)) - set(own)
        for place, one in enumerate(own):
            brought = timeline.copied[place].any() or timeline.crossing[place] > 0
            meets = any((one, x) in links for x in launch)
            meets |= any((one, x) in links or (x, one) in links for x in others)
            goes_on = launch and not brought and not meets and schedule.knobs.launches == "shared"
            launch = [*launch, one] if goes_on else [one]
            fixed[one] = overheads.barrier + (0.0 if goes_on else overheads.kernel_launch)
            if goes_on:
                fixed[launch[-2]] -= overheads.barrier
    return fixed


def joint_ends(
    queues: Sequence[Sequence[int]],
    producers: Sequence[Sequence[int]],
    seconds: Mapping[int, float],
    loops: int,
    barrier: float,
) -> dict[tuple[int, int], float]:
    """End of every kernel by pass and instance, found by starting whatever can start.

    A cluster works off its queue pass by pass. The next kernel starts once all it reads of this
    pass is there, and once nobody on another cluster still reads what it made two passes before.
    """
    home = {i: c for c, queue in enumerate(queues) for i in queue}
    readers: dict[int, list[int]] = {i: [] for i in home}
    for reader in home:
        for maker in producers[reader]:
            readers[maker].append(reader)
    left = [[(p, i) for p in range(loops) for i in queue][::-1] for queue in queues]
    free = [0.0] * len(queues)
    ends: dict[tuple[int, int], float] = {}
    while any(left):
        started = False
        for cluster, queue in enumerate(left):
            if not queue:
                continue
            loop, instance = queue[-1]
            waits = [(loop, m) for m in producers[instance] if home[m] != cluster]
            waits += [(loop - 2, r) for r in readers[instance] if home[r] != cluster and loop > 1]
            if any(wait not in ends for wait in waits):
                continue
            assert all((loop, m) in ends for m in producers[instance])
            start = max([free[cluster], *(ends[wait] + barrier for wait in waits)])
            free[cluster] = ends[loop, instance] = start + seconds[instance]
            queue.pop()
            started = True
        assert started, "clusters wait for each other"
    return ends
