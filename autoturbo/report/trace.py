"""Traces of a schedule for Perfetto (https://ui.perfetto.dev) or chrome://tracing.

The format is the trace event format of Chrome, which Perfetto reads: slices per engine, nested by
kernel, layer and instruction; counters for the buffers' occupancy and for off-chip traffic; flows
from the kernel that makes something to the kernels that read it. Times are microseconds.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from onnx import GraphProto, ModelProto

from autoturbo.files import NO_OTHERS, Kind, Outputs
from autoturbo.graph.arrays import Ints
from autoturbo.report.units import percent
from autoturbo.schedule.codegen.instructions import ENGINES, Column
from autoturbo.schedule.codegen.tiling import Amount, Role
from autoturbo.schedule.memory.timeline import KINDS
from autoturbo.schedule.place.bind import Scope
from autoturbo.schedule.schedule import Schedule
from autoturbo.simulator.breakdown.intervals import KernelInterval, pass_intervals
from autoturbo.simulator.breakdown.shares import LayerShare, schedule_shares
from autoturbo.verifier.findings import instance_name
from autoturbo.verifier.onnx_writer.calls import annotate, model_facts

DETAILS = ("kernels", "layers", "instructions")
"""How deep slices are nested."""

_KERNELS = 0
"""Thread of the kernels; engines follow in their order."""


def trace_events(schedule: Schedule, detail: str = "layers") -> list[dict[str, Any]]:
    """Return the trace events of one pass.

    Args:
        schedule: What is shown.
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
        death = np.minimum(buffers.death[here], len(times) - 1)
        held = held_bytes(buffers.birth[here], death, sizes[here], len(times))
        for step in range(len(times)):
            if step == 0 or held[step] != held[step - 1]:
                yield _counter(cluster, f"{scope.name} KiB", times[step], held[step] / 1024)


def held_bytes(birth: Ints, death: Ints, sizes: Ints, steps: int) -> Ints:
    """Return the bytes in use, step by step, of buffers needed from one step through another."""
    change = np.zeros(steps + 1, np.int64)
    np.add.at(change, birth, sizes)
    np.subtract.at(change, death + 1, sizes)
    return change.cumsum()[:steps]


def step_times(rows: np.ndarray, kernels: Sequence[KernelInterval]) -> list[float]:
    """Return the seconds at which each step of a timeline begins."""
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


# A schedule beside a model's nodes, for Netron (https://netron.app).
#
# A side-car is a JSON file of the kind that Netron reads when it is dropped on an open model (its
# signature is ``netron:attachment``): the sidebar of a node then shows where and when it runs. It
# names nodes, so what has no name in the model, or one that another node has too, cannot be shown.
# An annotated copy of the model holds the same in ``metadata_props`` of every node, which other
# viewers show as well; it has no weights, so that it stays small.
#
# Time is known by layer, the operators that are computed together tile by tile: the anchor of a
# layer has its time, the others name the anchor.

SIGNATURE = "netron:attachment"

_IR_WITH_METADATA = 10
"""Version of the file format from which nodes have ``metadata_props``."""


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """The facts of a schedule about one operator.

    Attributes:
        metadata: Where it runs, in words.
        metrics: When, as numbers: microseconds over the whole batch, percent of the latency.
    """

    metadata: dict[str, str]
    metrics: dict[str, float]


@dataclass(frozen=True, slots=True)
class Shown:
    """The contents of a written file.

    Attributes:
        nodes: Of the model that it says something of.
        unnamed: Nodes that it cannot say anything of, for want of a name of their own.
    """

    nodes: int
    unnamed: int


def facts_of(schedule: Schedule) -> tuple[NodeFacts, ...]:
    """Return the schedule's facts about each operator of its model."""
    shares, context = schedule_shares(schedule), schedule.context
    scopes = tensor_scopes(schedule)
    facts: dict[int, NodeFacts] = {}
    for one in shares.layers:
        layer = context.layers[one.layer]
        kept = ", ".join(_counted(scopes, layer.outputs)) or "no buffer"
        metadata = {**_place(schedule, one.subgraph), "layer's output in": kept}
        beside = NodeFacts({"computed with": layer.name, **metadata}, {})
        facts |= dict.fromkeys(layer.operators, beside)
        facts[layer.anchor] = NodeFacts(_bounded(metadata, one), _times(one, shares.latency))
    return tuple(facts[index] for index in range(len(context.graph.operators)))


def write_attachment(schedule: Schedule, path: Path, outputs: Outputs = NO_OTHERS) -> Shown:
    """Write a side-car, whole or not at all.

    Returns:
        How many nodes it says something of, and how many it cannot.

    Raises:
        UsageError: The path cannot be written, or what is there may not be replaced.
    """
    names = Counter(node.name for node in _read(schedule).graph.node)
    said = {"metadata": [_entry("model", "", key, value)
                         for key, value in model_facts(schedule).items() if "knobs" not in key],
            "metrics": []}  # fmt: skip
    operators, shown = schedule.context.graph.operators, 0
    for operator, facts in zip(operators, facts_of(schedule), strict=True):
        if names[operator.name] != 1 or not operator.name or "\n" in operator.name:
            continue
        shown += 1
        for kind, entries in (("metadata", facts.metadata), ("metrics", facts.metrics)):
            said[kind] += [_entry("node", operator.name, key, v) for key, v in entries.items()]
    text = json.dumps({"signature": SIGNATURE, **said}, indent=1, allow_nan=False) + "\n"
    outputs.reading(schedule.model.source).write(path, Kind.SIDE_CAR, text)
    return Shown(shown, len(operators) - shown)


def annotated(schedule: Schedule) -> tuple[ModelProto, Shown]:
    """Return a copy of the model without weights, with facts beside its nodes, and their count."""
    model = _read(schedule)
    graph = schedule.context.graph
    by_output = {
        graph.tensors[operator.outputs[0]].name: facts
        for operator, facts in zip(graph.operators, facts_of(schedule), strict=True)
        if operator.outputs
    }
    shown = 0
    for node in model.graph.node:
        facts = next((by_output[name] for name in node.output if name in by_output), None)
        if facts is not None:
            annotate(node, {**facts.metadata, **facts.metrics})
            shown += 1
    for key, value in model_facts(schedule).items():
        entry = model.metadata_props.add()
        entry.key, entry.value = key, value
    _drop_weights(model.graph)
    model.ir_version = max(model.ir_version, _IR_WITH_METADATA)
    return model, Shown(shown, len(graph.operators) - shown)


def write_annotated(schedule: Schedule, path: Path, outputs: Outputs = NO_OTHERS) -> Shown:
    """Write an annotated copy of the model, whole or not at all.

    Returns:
        How many nodes it says something of, and how many it cannot.

    Raises:
        UsageError: The path cannot be written, or what is there may not be replaced.
    """
    model, shown = annotated(schedule)
    data = model.SerializeToString()
    outputs.reading(schedule.model.source).write(path, Kind.MODEL, data)
    return shown


def _read(schedule: Schedule) -> ModelProto:
    import onnx

    return onnx.load(schedule.model.source, load_external_data=False)


def _entry(kind: str, target: str, name: str, value: object) -> dict[str, object]:
    return {"kind": kind, "target": target, "name": name, "value": value}


def _place(schedule: Schedule, subgraph: int) -> dict[str, str]:
    """Return where the kernels of a sub-graph run."""
    graph, placement = schedule.instances, schedule.placement
    instances = range(int(graph.first[subgraph]), int(graph.first[subgraph + 1]))
    if schedule.cluster:
        clusters = ", ".join(map(str, sorted({schedule.cluster[i] for i in instances})))
    else:
        clusters = f"each of {schedule.share.copies}" if schedule.share.copies > 1 else "0"
    bindings = dict.fromkeys("x".join(map(str, placement.bindings[i])) or "1" for i in instances)
    layers = graph.subgraphs[subgraph].layers
    return {
        "sub-graph": f"{subgraph} ({len(layers)} layers)",
        "parts": str(len(instances)),
        "cluster": clusters,
        "cores": ", ".join(bindings),
    }  # fmt: skip


def tensor_scopes(schedule: Schedule) -> dict[int, Counter[Scope]]:
    """Return, per tensor, how many of its buffers lie in each scope over one pass."""
    counts: dict[int, Counter[Scope]] = {}
    for timeline in schedule.timelines:
        made = np.flatnonzero(timeline.kind == KINDS.index("tensor"))
        scopes = timeline.buffers.scope[made].tolist()
        for tensor, scope in zip(timeline.tensor[made].tolist(), scopes, strict=True):
            counts.setdefault(tensor, Counter())[Scope(scope)] += 1
    return counts


def _counted(scopes: dict[int, Counter[Scope]], tensors: tuple[int, ...]) -> list[str]:
    """Return ``LB``, or ``LB 7`` and ``DDR 1`` where not all buffers lie in one scope."""
    total = sum((scopes.get(tensor, Counter()) for tensor in tensors), Counter[Scope]())
    if len(total) <= 1:
        return [scope.name for scope in total]
    return [f"{scope.name} {total[scope]}" for scope in sorted(total)]


def _bounded(metadata: dict[str, str], one: LayerShare) -> dict[str, str]:
    if not one.seconds:
        return {**metadata, "bound by": "nothing: it is off the critical path"}
    share = percent(one.shares.part(one.shares.limit))
    return {**metadata, "bound by": f"{one.shares.limit} ({share})"}


def _times(one: LayerShare, latency: float) -> dict[str, float]:
    times = {
        "time_us": round(one.seconds * 1e6, 4),
        "percent_of_latency": round(100 * one.seconds / latency, 3),
    }
    return times | ({"slack_us": round(one.slack * 1e6, 4)} if math.isfinite(one.slack) else {})


def _drop_weights(graph: GraphProto) -> None:
    """Turn stored tensors into inputs of the same type: the graph stays whole and valid."""
    from onnx import helper

    given = {value.name for value in graph.input}
    dense = ((tensor, tensor.dims) for tensor in graph.initializer)
    sparse = ((tensor.values, tensor.dims) for tensor in graph.sparse_initializer)
    for tensor, dims in (*dense, *sparse):
        if tensor.name not in given:
            graph.input.append(
                helper.make_tensor_value_info(tensor.name, tensor.data_type, list(dims))
            )
    del graph.initializer[:], graph.sparse_initializer[:]
