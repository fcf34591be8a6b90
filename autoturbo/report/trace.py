"""Traces of a schedule for Perfetto (https://ui.perfetto.dev) or chrome://tracing.

The format is the trace event format of Chrome, which Perfetto reads: slices per engine, nested by
kernel, layer and instruction; counters for the buffers' occupancy and for off-chip traffic; flows
from the kernel that makes something to the kernels that read it. Times are microseconds.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from autoturbo.files import NO_OTHERS, Kind, Outputs
from autoturbo.graph.arrays import Ints
from autoturbo.schedule.codegen.instructions import ENGINES, Column
from autoturbo.schedule.codegen.tiling import Amount, Role
from autoturbo.schedule.place.bind import Scope
from autoturbo.schedule.schedule import Schedule
from autoturbo.simulator.sequence import pass_intervals, step_times
from autoturbo.simulator.whole_pass import KernelInterval
from autoturbo.verifier.findings import instance_name

DETAILS = ("kernels", "layers", "instructions")
"""How deep slices are nested."""

_KERNELS = 0
"""Thread of the kernels; engines follow in their order."""


def trace_events(schedule: Schedule, detail: str = "layers") -> list[dict[str, Any]]:
    """Return the trace events of one pass.

    Args:
        schedule: The schedule that is shown.
        detail: One of :data:`DETAILS`.
    """
    kernels = pass_intervals(schedule)
    events = list(_names(schedule))
    for number, kernel in enumerate(kernels):
        events += _kernel(schedule, kernel, number)
        if detail != DETAILS[0]:
            events += _engines(schedule, kernel, deep=detail == DETAILS[2])
        events += _traffic(kernel)
    events += _flows(schedule, kernels)
    for cluster in range(len(schedule.timelines)):
        events += _occupancy(schedule, kernels, cluster)
    return events


def write_trace(
    schedule: Schedule, path: Path, detail: str = "layers", outputs: Outputs = NO_OTHERS
) -> int:
    """Write a trace file, whole or not at all.

    Returns:
        The number of events.

    Raises:
        UsageError: The path cannot be written, or what is there may not be replaced.
    """
    events = trace_events(schedule, detail)
    share = schedule.share
    about = {
        "model": schedule.model.name,
        "target": schedule.context.target.name,
        "dtype": schedule.context.dtype,
        "passes": share.loops,
        "clusters alike": share.copies,
        "shown": "the first pass" + ("" if share.copies == 1 else " of one cluster"),
    }
    text = json.dumps({"traceEvents": events, "displayTimeUnit": "ns", "otherData": about})
    outputs.reading(schedule.model.source).write(path, Kind.TRACE, text)
    return len(events)


def _us(seconds: float) -> float:
    """Return microseconds, rounded to a tenth of a nanosecond."""
    return round(seconds * 1e6, 4)


def _slice(
    cluster: int, thread: int, name: str, begin: float, end: float, **arguments: object
) -> dict[str, Any]:
    return {
        "ph": "X", "pid": cluster, "tid": thread, "name": name,
        "ts": _us(begin), "dur": _us(end - begin), "args": arguments,
    }  # fmt: skip


def _names(schedule: Schedule) -> Iterator[dict[str, Any]]:
    """Yield names: clusters are processes, the kernels and each engine a thread."""
    alike = schedule.share.copies
    for cluster in range(len(schedule.timelines)):
        title = f"cluster {cluster}" if alike == 1 else f"cluster (all {alike} alike)"
        yield _meta(cluster, 0, "process_name", title)
        for thread, name in enumerate(("kernels", *ENGINES)):
            yield _meta(cluster, thread, "thread_name", name)
            yield {
                "ph": "M", "pid": cluster, "tid": thread, "name": "thread_sort_index",
                "args": {"sort_index": thread},
            }  # fmt: skip


def _meta(cluster: int, thread: int, what: str, name: str) -> dict[str, Any]:
    return {"ph": "M", "pid": cluster, "tid": thread, "name": what, "args": {"name": name}}


def _kernel(schedule: Schedule, kernel: KernelInterval, number: int) -> Iterator[dict[str, Any]]:
    """Yield a kernel with its movements, launch and barrier inside."""
    instances = schedule.instances
    subgraph = int(instances.subgraph[kernel.instance])
    layers = instances.subgraphs[subgraph].layers
    yield _slice(
        kernel.cluster, _KERNELS, instance_name(schedule, kernel.instance), kernel.begin,
        kernel.end, number=number, subgraph=subgraph, layers=len(layers),
        cores=list(schedule.placement.bindings[kernel.instance]),
        output=schedule.placement.scopes[kernel.instance].name,
    )  # fmt: skip
    if kernel.launch > kernel.begin:
        yield _slice(kernel.cluster, _KERNELS, "copies", kernel.begin, kernel.launch)
    if kernel.body > kernel.launch:
        yield _slice(kernel.cluster, _KERNELS, "launch", kernel.launch, kernel.body)


def _engines(schedule: Schedule, kernel: KernelInterval, *, deep: bool) -> Iterator[dict[str, Any]]:
    """Yield per engine a slice for every layer, and inside it one for each instruction."""
    where = kernel.program.where
    subgraph = int(schedule.instances.subgraph[kernel.instance])
    layers = schedule.instances.subgraphs[subgraph].layers
    for engine in range(len(ENGINES)):
        issued = np.flatnonzero(where[:, Column.ENGINE] == engine)
        cuts = np.flatnonzero(np.diff(where[issued, Column.LAYER])) + 1
        for indices in np.split(issued, cuts) if len(issued) else ():
            layer = layers[int(where[indices[0], Column.LAYER])]
            name = schedule.context.layers[layer].name
            begin, end = float(kernel.issued[indices[0]]), float(kernel.freed[indices[-1]])
            busy = float((kernel.freed[indices] - kernel.issued[indices]).sum())
            yield _slice(
                kernel.cluster, 1 + engine, name, begin, end,
                instructions=len(indices), busy_us=_us(busy),
            )  # fmt: skip
            for index in indices.tolist() if deep else ():
                role = Role(int(where[index, Column.ROLE])).name.lower()
                yield _slice(
                    kernel.cluster, 1 + engine, role, float(kernel.issued[index]),
                    float(kernel.freed[index]), tile=int(where[index, Column.TILE]),
                )  # fmt: skip


def _traffic(kernel: KernelInterval) -> Iterator[dict[str, Any]]:
    """Yield the off-chip gigabytes per second of a cluster, mean over the kernel."""
    seconds = kernel.end - kernel.begin
    moved = float(kernel.program.amounts[:, Amount.DDR].sum())
    yield _counter(kernel.cluster, "DDR GB/s", kernel.begin, moved / seconds / 1e9)


def _counter(cluster: int, name: str, at: float, value: float) -> dict[str, Any]:
    return {
        "ph": "C", "pid": cluster, "tid": 0, "name": name, "ts": _us(at),
        "args": {"value": round(value, 4)},
    }  # fmt: skip


def _flows(schedule: Schedule, kernels: Sequence[KernelInterval]) -> Iterator[dict[str, Any]]:
    """Yield flows from the end of a kernel to the begin of its readers."""
    kernel_of = {kernel.instance: kernel for kernel in kernels}
    graph = schedule.instances
    number = 0
    for reader in kernels:
        for maker in graph.producers[reader.instance]:
            number += 1
            source = kernel_of[maker]
            common = {"cat": "data", "name": "reads", "id": number, "tid": _KERNELS}
            yield {
                **common, "ph": "s", "pid": source.cluster,
                # viewers tie a flow to the slice that is open then: a moment before its end
                "ts": _us(max(source.body, source.end - 1e-9)),
            }  # fmt: skip
            yield {**common, "ph": "f", "bp": "e", "pid": reader.cluster, "ts": _us(reader.body)}


def _occupancy(
    schedule: Schedule, kernels: Sequence[KernelInterval], cluster: int
) -> Iterator[dict[str, Any]]:
    """Yield kibibytes of LB (the busiest core's) and of GB, step by step."""
    timeline = schedule.timelines[cluster]
    times = step_times(timeline.rows, [k for k in kernels if k.cluster == cluster])
    buffers = timeline.buffers
    for scope, sizes in ((Scope.LB, buffers.core_bytes), (Scope.GB, buffers.cluster_bytes)):
        here = buffers.scope == scope
        # what outlives the pass is held to its last step
        death = np.minimum(buffers.death[here], len(times) - 1)
        held = held_bytes(buffers.birth[here], death, sizes[here], len(times))
        for step in range(len(times)):
            if step == 0 or held[step] != held[step - 1]:  # a counter holds until its next value
                yield _counter(cluster, f"{scope.name} KiB", times[step], held[step] / 1024)


def held_bytes(birth: Ints, death: Ints, sizes: Ints, steps: int) -> Ints:
    """Return the bytes in use, step by step, of buffers needed from one step through another."""
    change = np.zeros(steps + 1, np.int64)
    np.add.at(change, birth, sizes)
    np.subtract.at(change, death + 1, sizes)
    return change.cumsum()[:steps]
