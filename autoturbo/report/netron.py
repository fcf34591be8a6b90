"""A schedule beside a model's nodes, for Netron (https://netron.app).

A side-car is a JSON file of the kind that Netron reads when it is dropped on an open model (its
signature is ``netron:attachment``): the sidebar of a node then shows where and when it runs. It
names nodes, so what has no name in the model, or one that another node has too, cannot be shown.
An annotated copy of the model holds the same in ``metadata_props`` of every node, which other
viewers show as well; it has no weights, so that it stays small.

Time is known by layer, the operators that are computed together tile by tile: the anchor of a
layer has its time, the others name the anchor.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from onnx import GraphProto, ModelProto

from autoturbo.files import NO_OTHERS, Kind, Outputs
from autoturbo.report.units import percent
from autoturbo.schedule.memory.timeline import KINDS
from autoturbo.schedule.place.bind import Scope
from autoturbo.schedule.schedule import Schedule
from autoturbo.simulator.breakdown.shares import LayerShare, schedule_shares
from autoturbo.verifier.onnx_writer.calls import annotate, model_facts

SIGNATURE = "netron:attachment"

_IR_WITH_METADATA = 10
"""Version of the file format from which nodes have ``metadata_props``."""


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """The facts of a schedule about one operator.

    Attributes:
        metadata: Where the operator runs, in words.
        metrics: Its time in numbers: microseconds over the whole batch, percent of the latency.
    """

    metadata: dict[str, str]
    metrics: dict[str, float]


@dataclass(frozen=True, slots=True)
class Shown:
    """The contents of a written file.

    Attributes:
        nodes: Number of the model's nodes that it says something of.
        unnamed: Number of nodes that it says nothing of, for want of a name of their own.
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
        # by what they make: nodes may lack names, tensors have one each
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
