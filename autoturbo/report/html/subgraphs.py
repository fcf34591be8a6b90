"""Sub-graphs of a schedule: what they hold, how they are cut, where tensors lie, their time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from autoturbo.hardware.target import storage_ratio
from autoturbo.report.html.time_use import KernelUse, kernel_use
from autoturbo.schedule.codegen.tiling import Amount
from autoturbo.schedule.memory.timeline import KINDS
from autoturbo.schedule.partition.split import sink
from autoturbo.schedule.place.bind import Scope
from autoturbo.schedule.schedule import Schedule
from autoturbo.simulate.intervals import KernelInterval


@dataclass(frozen=True, slots=True)
class SubGraphFacts:
    """One sub-graph over a pass of the chip.

    Attributes:
        index: its number.
        name: its last layer's.
        layers: their indices.
        parts: instances that it is cut into.
        cut: how, in words: ``"n (16) in 8"`` is an axis of 16 steps in 8 parts.
        cores: how its first instance is spread over cores, factors per dimension of its output.
        scope: where its output is declared.
        seconds: of all its kernels in a pass, summed over clusters.
        share: of the time of all kernels.
        macs: multiply-accumulates in a pass of all clusters together.
        ddr_bytes: likewise, moved from and to DDR.
        bound: what bounds its kernels, by most of their time.
        bound_share: of their time that this takes.
    """

    index: int
    name: str
    layers: tuple[int, ...]
    parts: int
    cut: str
    cores: tuple[int, ...]
    scope: Scope
    seconds: float
    share: float
    macs: float
    ddr_bytes: float
    bound: str
    bound_share: float


def subgraph_facts(
    schedule: Schedule, kernels: Sequence[KernelInterval]
) -> tuple[SubGraphFacts, ...]:
    """Return the facts of all sub-graphs, in topological order."""
    total = sum(kernel.end - kernel.begin for kernel in kernels)
    owner = schedule.instances.subgraph
    own: dict[int, list[KernelInterval]] = {}
    for kernel in kernels:
        own.setdefault(int(owner[kernel.instance]), []).append(kernel)
    copied = _copied(schedule)
    return tuple(
        _facts(schedule, index, own.get(index, []), copied, total)
        for index in range(len(schedule.instances.subgraphs))
    )


def _facts(
    schedule: Schedule,
    index: int,
    kernels: Sequence[KernelInterval],
    copied: Mapping[int, float],
    total: float,
) -> SubGraphFacts:
    subgraph, graph = schedule.instances.subgraphs[index], schedule.problem.graph
    layers = [schedule.problem.layers[layer] for layer in subgraph.layers]
    first = int(schedule.instances.first[index])
    seconds = sum(kernel.end - kernel.begin for kernel in kernels)
    moved = sum(float(kernel.program.amounts[:, Amount.DDR].sum()) for kernel in kernels)
    moved += sum(copied.get(kernel.instance, 0.0) for kernel in kernels)
    copies = schedule.share.copies
    bound, share = _bound([kernel_use(schedule, kernel) for kernel in kernels], seconds)
    return SubGraphFacts(
        index, layers[-1].name, subgraph.layers, schedule.instances.parts[index].count,
        _cut(schedule, index), schedule.placement.bindings[first],
        schedule.placement.scopes[first], seconds, seconds / total if total else 0.0,
        float(sum(graph.operators[o].macs for layer in layers for o in layer.operators)) * copies,
        moved * storage_ratio(schedule.problem.dtype) * copies, bound, share,
    )  # fmt: skip


def _copied(schedule: Schedule) -> dict[int, float]:
    """Return the bytes that movements bring from DDR before each instance's kernel."""
    return {
        int(instance): float(timeline.copied[kernel, 2])
        for timeline in schedule.timelines
        for kernel, instance in enumerate(timeline.order)
    }


def _bound(uses: Sequence[KernelUse], seconds: float) -> tuple[str, float]:
    """Return what takes most of the time of kernels, and its share of that time."""
    sums: dict[str, float] = {}
    for use in uses:
        for name, busy in use.busy.items():
            sums[name] = sums.get(name, 0.0) + busy
        for name in ("latency", "movements", "launch"):
            sums[name] = sums.get(name, 0.0) + use.exposed[name]
    if not sums or not seconds:
        return "nothing", 0.0
    bound = max(sums, key=lambda name: sums[name])
    return bound, sums[bound] / seconds


def _cut(schedule: Schedule, index: int) -> str:
    """Return the axes of the last operator that are cut, with their factors, in words."""
    subgraph = schedule.instances.subgraphs[index]
    if not subgraph.split.axes:
        return "whole"
    axes = sink(schedule.problem, subgraph.layers).axes
    return " x ".join(
        f"{axes[axis].name} ({axes[axis].extent}) in {f}" for axis, f in subgraph.split.axes
    )


def layer_scopes(schedule: Schedule) -> dict[int, Scope]:
    """Return where the output of each layer is kept: the farthest scope of any of its parts."""
    farthest: dict[int, int] = {}
    made = KINDS.index("tensor")
    for timeline in schedule.timelines:
        own = timeline.kind == made
        pairs = np.stack((timeline.tensor[own], timeline.buffers.scope[own]), axis=1)
        for tensor, scope in np.unique(pairs, axis=0).tolist():
            layer = schedule.problem.producer[tensor]
            farthest[layer] = max(farthest.get(layer, 0), scope)
    return {layer: Scope(scope) for layer, scope in farthest.items()}
