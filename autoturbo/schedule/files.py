"""Schedule files: the one canonical text of a schedule, and reading it back.

A file holds decisions, not code: how operators are cut into layers, layers into sub-graphs, how
each is split, the order of the parts, their cores and scopes, and where buffers ended up. Reading
one rebuilds the schedule from those decisions with the same passes that follow binding, so a
schedule from elsewhere (a vendor's, another tuner's) is measured on equal terms. Operators are
named by their position in the model, which does not change when a file is exported again under
other names.

``cores`` are factors, a binding; ``core_ids`` may name the cores of its parts, row-major over the
factors (a vendor's nested list ``[[0, 1], [2, 3]]`` written flat), where they are not 0, 1, 2, ....
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from autoturbo import limits
from autoturbo.errors import KnobsError, Location, ScheduleFileError
from autoturbo.graph.layers import Layer, layers_from
from autoturbo.graph.operators import Graph
from autoturbo.hardware.machine import AnyTarget
from autoturbo.hardware.target import Target
from autoturbo.outputs import Kind, Outputs
from autoturbo.schedule.baselines.simplify import simplified
from autoturbo.schedule.codegen.work import MATRIX
from autoturbo.schedule.documents import (
    FORMAT,
    MACHINE_FORMAT,
    SCHEDULE_SCHEMA,
    ScheduleDocument,
)
from autoturbo.schedule.knobs import Knobs
from autoturbo.schedule.memory.timeline import Timeline
from autoturbo.schedule.partition.clusters import readers_elsewhere
from autoturbo.schedule.partition.grouping import SubGraph
from autoturbo.schedule.partition.split import Split, sink, split_axes
from autoturbo.schedule.pipeline import Workbench, assemble
from autoturbo.schedule.place.bind import Binding, Placement, Scope, cores_used
from autoturbo.schedule.place.instances import InstanceGraph, PartBook, make_instances
from autoturbo.schedule.problem import Problem, make_problem
from autoturbo.schedule.schedule import BATCH, SCHEDULER_VERSION, Schedule, Share
from autoturbo.schema import InvalidError, checked, dotted, json_schema

_OTHERS = {
    FORMAT: "a schedule of a target, not of a machine of several units",
    MACHINE_FORMAT: "a schedule of a machine of several units, not of a target",
}


def schedule_text(schedule: Schedule) -> str:
    """The canonical text of a schedule."""
    return document_text(_document(schedule))


def document_text(document: Mapping[str, Any]) -> str:
    """The canonical text: one top-level field a line, one element of a list a line."""
    lines = [f"{json.dumps(name)}: {_value(value)}" for name, value in document.items()]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _value(value: object) -> str:
    if isinstance(value, list) and value:
        return "[\n " + ",\n ".join(json.dumps(item) for item in value) + "\n]"
    return json.dumps(value)


def _document(schedule: Schedule) -> dict[str, Any]:
    problem = schedule.problem
    return {
        "format": FORMAT,
        "schema_version": SCHEDULE_SCHEMA,
        "scheduler_version": SCHEDULER_VERSION,
        "scheduler": schedule.scheduler,
        "model": {
            "name": schedule.model.name,
            "hash": schedule.model.hash,
            "batch": schedule.model.batch,
        },
        "target": {"name": problem.target.name, "hash": problem.target.hash},
        "dtype": problem.dtype,
        "knobs": schedule.knobs.as_dict(),
        "share": _share_entry(schedule.share),
        "layers": [{"name": x.name, "operators": list(x.operators)} for x in problem.layers],
        "subgraphs": [_subgraph(s) for s in schedule.instances.subgraphs],
        "order": [_instance(schedule, index) for index in schedule.order],
        "buffers": _all_buffers(schedule),
        "expected": None if schedule.expected is None else dict(schedule.expected),
    }


def _share_entry(share: Share) -> dict[str, Any]:
    """What clusters share out is named where it is not samples."""
    entry = dataclasses.asdict(share)
    if share.split == BATCH:
        del entry["split"]
    return entry


def _subgraph(subgraph: SubGraph) -> dict[str, Any]:
    """All instances, and how many of them lie along a second axis inside a part of the first."""
    split = subgraph.split
    entry = {
        "layers": list(subgraph.layers),
        "axis": split.axis,
        "depth": split.depth,
        "instances": split.instances,
    }
    if split.inner_axis >= 0:
        entry |= {"inner_axis": split.inner_axis, "inner_factor": split.inner_factor}
    return entry


def _instance(schedule: Schedule, index: int) -> dict[str, Any]:
    instance, placement = schedule.instances.instances[index], schedule.placement
    named = placement.core_ids[index] if placement.core_ids else ()
    entry = {
        "subgraph": instance.subgraph,
        "part": instance.part,
        "cores": list(placement.bindings[index]),
        **({"core_ids": list(named)} if named else {}),
        "scope": placement.scopes[index].name,
    }
    return {**entry, "cluster": schedule.cluster[index]} if schedule.cluster else entry


def _all_buffers(schedule: Schedule) -> list[dict[str, Any]]:
    """Of every cluster in turn, where they do not work alike; steps are each cluster's own."""
    if not schedule.cluster:
        return buffer_entries(schedule, schedule.timeline)
    return [
        {**entry, "cluster": cluster}
        for cluster, timeline in enumerate(schedule.timelines)
        for entry in buffer_entries(schedule, timeline)
    ]


def buffer_entries(schedule: Schedule, timeline: Timeline) -> list[dict[str, Any]]:
    """What a schedule file says of the buffers of a cluster, in their order."""
    buffers = timeline.buffers
    tensors = schedule.problem.graph.tensors
    instances = schedule.instances.instances
    columns = (buffers.scope, buffers.address, buffers.core_bytes, buffers.cluster_bytes)
    rows = zip(*(column.tolist() for column in columns), strict=True)
    lives = zip(buffers.birth.tolist(), buffers.death.tolist(), strict=True)
    return [
        {
            "kind": name.kind,
            "tensor": tensors[name.tensor].name if name.tensor >= 0 else "weights",
            "subgraph": instances[name.instance].subgraph,
            "part": instances[name.instance].part,
            "scope": Scope(scope).name,
            "address": address,
            "bytes": core if scope == Scope.LB else cluster,
            "first_step": first,
            "last_step": last,
        }
        for name, (scope, address, core, cluster), (first, last) in zip(
            timeline.names, rows, lives, strict=True
        )
    ]


def write_schedule(schedule: Schedule, path: Path, *, force: bool = False) -> None:
    """Write a schedule file; the old one stays until the new one is whole.

    Raises:
        ScheduleFileError: the path cannot be written, or a file of another kind is there and
            ``force`` is not given, or it is the model's.
    """
    outputs = Outputs(force=force).reading(schedule.model.source)
    outputs.write(path, Kind.SCHEDULE, schedule_text(schedule), ScheduleFileError)


def schedule_schema() -> dict[str, Any]:
    """Return the JSON schema of schedule files (draft 2020-12)."""
    return json_schema(ScheduleDocument, "AutoTurbo schedule")


def load_schedule(path: str | Path, graph: Graph, target: Target) -> Schedule:
    """Read a schedule file for a model and a target and rebuild the schedule.

    Raises:
        ScheduleFileError: the file cannot be read, is of another version, was made for something
            else, or describes no valid schedule.
    """
    place = Path(path)
    return schedule_of(read_text(place), graph, target, place)


def schedule_of(text: str, graph: Graph, target: Target, place: str | Path) -> Schedule:
    """Rebuild a schedule from the text of its file.

    Args:
        text: as :func:`schedule_text` writes it.
        graph: the model.
        target: the accelerator.
        place: where the text is from, for errors.

    Raises:
        ScheduleFileError: the text is of another version, was made for something else, or describes
            no valid schedule.
    """
    place = Path(place)
    document = validated(parsed(text, place), place, ScheduleDocument, FORMAT, SCHEDULE_SCHEMA)
    check_identity(document, graph, target, place)
    try:
        return _rebuild(document, graph, target)
    except KnobsError as error:
        raise wrong_knobs(error, place) from None
    except _InvalidError as invalid:
        raise ScheduleFileError(invalid.reason, Location(place, field=invalid.field)) from None


class _InvalidError(Exception):
    """A field that describes no valid schedule."""

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(reason)
        self.field, self.reason = field, reason


def read_text(path: Path) -> str:
    """What is in a schedule file; raises ScheduleFileError."""
    try:
        return limits.read_text(path)
    except OSError as error:
        raise ScheduleFileError(f"cannot read: {error.strerror}", Location(path)) from None
    except UnicodeDecodeError:
        raise ScheduleFileError("not a schedule file", Location(path)) from None


def parsed(text: str, path: Path) -> Any:
    """The JSON value of a schedule file; raises ScheduleFileError."""
    try:
        return limits.parse_json(text)
    except json.JSONDecodeError as error:
        at = Location(path, error.lineno, error.colno)
        hint = "is it the file that 'autoturbo tune' wrote, whole?"
        raise ScheduleFileError(f"not JSON: {error.msg}", at, hint) from None


def validated(document: Any, path: Path, kind: Any, form: str, newest: int) -> Any:
    """Return a document as it is declared.

    Args:
        document: of the file.
        path: where it is from, for errors.
        kind: its declaration.
        form: what it says of its format.
        newest: the version that is read.

    Raises:
        ScheduleFileError: it is something else, or of another version.
    """
    at = Location(path, field="format")
    if not isinstance(document, dict) or document.get("format") != form:
        found = document.get("format") if isinstance(document, dict) else None
        if isinstance(found, str) and found in _OTHERS:
            raise ScheduleFileError(_OTHERS[found], at, "give its own target with --target")
        raise ScheduleFileError("not a schedule file", at, f"it says {form!r} in ours")
    version = document.get("schema_version")
    if version != newest or isinstance(version, bool):
        at = Location(path, field="schema_version")
        hint = f"this release reads version {newest}; tune again or use the other release"
        raise ScheduleFileError(f"format version {version!r:.40}", at, hint)
    try:
        return checked(kind, document)
    except InvalidError as error:
        at = Location(path, field=dotted(error.first.path) or None)
        raise ScheduleFileError(error.first.message, at, error.first.hint) from None


def wrong_knobs(error: KnobsError, path: Path) -> ScheduleFileError:
    """What is wrong with a file whose knobs are wrong."""
    field = ".".join(part for part in ("knobs", error.at.field) if part)
    return ScheduleFileError(error.message, Location(path, field=field), error.hint)


def check_identity(
    document: Mapping[str, Any], graph: Graph, target: AnyTarget, path: Path
) -> None:
    """The file must be for this model, target and scheduler version.

    Raises:
        ScheduleFileError: it is not.
    """
    model = document["model"]
    if model["hash"] != graph.hash:
        at = Location(path, field="model.hash")
        made = f"{model['name']} at batch {model.get('batch', '?')}"
        hint = "give the model, batch and shapes that it was tuned with"
        message = f"made for {made}, not for {graph.name} at batch {graph.batch}"
        raise ScheduleFileError(message, at, hint)
    if document["target"]["hash"] != target.hash:
        at = Location(path, field="target.hash")
        made = document["target"]["name"]
        message = f"made for target {made} as it was described then, not for {target.name}"
        raise ScheduleFileError(message, at, "give the target file that it was tuned with")
    if document["scheduler_version"] != SCHEDULER_VERSION:
        at = Location(path, field="scheduler_version")
        made = document["scheduler_version"]
        hint = "tune again with this release"
        raise ScheduleFileError(f"made by scheduler {made}, this is {SCHEDULER_VERSION}", at, hint)
    if not target.supports(document["dtype"]):
        at = Location(path, field="dtype")
        hint = f"it has {', '.join(target.dtypes)}"
        raise ScheduleFileError(f"{target.name} does not compute in {document['dtype']}", at, hint)


def _same_buffers(schedule: Schedule, document: Mapping[str, Any]) -> bool:
    """Whether the decisions of a file put buffers where it says.

    Another export of the same network has other names, which its buffers then have as well.
    """
    layers = [layer.name for layer in schedule.problem.layers]
    found, stored = _all_buffers(schedule), document["buffers"]
    if layers == [entry["name"] for entry in document["layers"]]:
        return bool(found == stored)
    return _nameless(found) == _nameless(stored)


def _nameless(entries: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [{k: v for k, v in entry.items() if k != "tensor"} for entry in entries]


def _rebuild(document: dict[str, Any], graph: Graph, target: Target) -> Schedule:
    bench = Workbench(graph, target, document["dtype"])
    share = _share(bench, document["share"])
    problem = _problem(bench, share, document["layers"])
    subgraphs = _subgraphs(problem, document["subgraphs"])
    instances = make_instances(PartBook(problem), subgraphs)
    order, placement = _order(instances, document["order"], target.cores)
    cluster = _clusters(instances, share, order, placement, document["order"])
    knobs = Knobs.from_dict(document["knobs"])
    schedule = assemble(
        graph, problem, document["scheduler"], knobs, share, instances, order, placement, cluster
    )
    schedule = dataclasses.replace(schedule, expected=document.get("expected"))
    if "buffers" in document and not _same_buffers(schedule, document):
        raise _InvalidError("buffers", "buffers are not where these decisions put them")
    return schedule


def _share(bench: Workbench, values: Mapping[str, Any]) -> Share:
    share = Share(**values)
    whole = bench.share(split=share.split)
    fewer = share.split != BATCH and 1 <= share.clusters <= whole.clusters
    if share.samples != whole.samples or not (share.clusters == whole.clusters or fewer):
        each = "each" if share.split == BATCH else "in all, or fewer clusters"
        reason = f"{whole.clusters} clusters share out the batch, {whole.samples} samples {each}"
        raise _InvalidError("share", reason)
    if share.split != whole.split:
        raise _InvalidError("share.split", "the target has one cluster, nothing is shared out")
    if not 1 <= share.batches <= share.samples:
        owner = "a cluster has" if share.split == BATCH else "there are"
        raise _InvalidError("share.batches", f"{owner} {share.samples} samples")
    if bench.trace.obstacle and share.batches != share.samples:
        raise _InvalidError("share.batches", f"the batch stays whole: {bench.trace.obstacle}")
    return share


def _problem(bench: Workbench, share: Share, entries: Sequence[Mapping[str, Any]]) -> Problem:
    """Layers as the file cuts them; a compiler that writes normalisations out names more operators.

    Raises:
        _InvalidError: the layers are not a cut of the model.
    """
    problem = bench.problem(share.batches)
    chains = [tuple(entry["operators"]) for entry in entries]
    graph, named = problem.graph, sorted(x for chain in chains for x in chain)
    if len(named) > len(graph.operators):
        graph = simplified(graph)
    if named != list(range(len(graph.operators))):
        raise _InvalidError("layers", "every operator must be in exactly one layer")
    if not all(chains):
        raise _InvalidError(f"layers[{chains.index(())}].operators", "a layer has an operator")
    if chains == [layer.operators for layer in problem.layers]:
        return problem
    layers = layers_from(graph, chains)
    if [layer.operators for layer in layers] != chains:
        raise _InvalidError("layers", "layers are not in topological order")
    problem = make_problem(graph, bench.target, bench.dtype, layers)
    for layer in layers:
        _check_layer(problem, layer)
    return problem


def _check_layer(problem: Problem, layer: Layer) -> None:
    """A layer is computed tile by tile: one product, and one operator whose output is kept."""
    matrix = sum(int(problem.work.engine[op] == MATRIX) for op in layer.operators)
    if matrix > 1:
        reason = f"{matrix} operators of the matrix engine; a layer has at most one"
        raise _InvalidError(f"layers[{layer.index}].operators", reason)
    if set(layer.outputs) - set(problem.graph.operators[layer.operators[-1]].outputs):
        reason = "only the last operator of a layer may be read from outside"
        raise _InvalidError(f"layers[{layer.index}].operators", reason)


def _subgraphs(problem: Problem, entries: Sequence[Mapping[str, Any]]) -> tuple[SubGraph, ...]:
    groups = [tuple(entry["layers"]) for entry in entries]
    if sorted(x for group in groups for x in group) != list(range(len(problem.layers))):
        raise _InvalidError("subgraphs", "every layer must be in exactly one sub-graph")
    for index, group in enumerate(groups):
        if not group:
            raise _InvalidError(f"subgraphs[{index}].layers", "a sub-graph has a layer")
        if list(group) != sorted(group) or not _is_closed(problem, group):
            reason = "only the last layer of a sub-graph may be read from outside"
            raise _InvalidError(f"subgraphs[{index}].layers", reason)
    if [g[-1] for g in groups] != sorted(g[-1] for g in groups):
        raise _InvalidError("subgraphs", "sub-graphs are not in topological order")
    return tuple(
        SubGraph(index, group, _split(problem, index, group, entry))
        for index, (group, entry) in enumerate(zip(groups, entries, strict=True))
    )


def _is_closed(problem: Problem, group: tuple[int, ...]) -> bool:
    inside = set(group)
    outputs = set(problem.graph.outputs)

    def leaves(layer: Layer) -> bool:
        readers = {r for t in layer.outputs for r in problem.consumers[t]}
        return bool(readers - inside) or bool(outputs & set(layer.outputs))

    return not any(leaves(problem.layers[x]) for x in group[:-1])


def _split(problem: Problem, index: int, group: tuple[int, ...], entry: Mapping[str, Any]) -> Split:
    inner_axis, inner = entry.get("inner_axis", -1), entry.get("inner_factor", 1)
    parts, rest = divmod(max(entry["instances"], 1), inner)
    field = f"subgraphs[{index}].instances"
    if rest or (inner > 1) != (inner_axis >= 0) or (inner > 1 and inner_axis == entry["axis"]):
        raise _InvalidError(field, f"{entry['instances']} are not {inner} along a second axis")
    allowed = {axis for _, axis in split_axes(problem, group)}
    for axis, number in ((entry["axis"], parts), (inner_axis, inner)):
        fits = axis in allowed and number <= sink(problem, group).axes[axis].extent
        if number > 1 and not fits:
            raise _InvalidError(field, f"cannot be split into {number} along axis {axis}")
    axis = entry["axis"] if parts > 1 else -1
    return Split(axis, parts, entry["depth"], 0, 0, inner_axis, inner)


def _order(
    instances: InstanceGraph, entries: Sequence[Mapping[str, Any]], cores: int
) -> tuple[tuple[int, ...], Placement]:
    known = {(i.subgraph, i.part): i.index for i in instances.instances}
    asked = [(entry["subgraph"], entry["part"]) for entry in entries]
    if sorted(asked) != sorted(known):
        raise _InvalidError("order", "every instance must run exactly once")
    order = tuple(known[pair] for pair in asked)
    position = {instance: at for at, instance in enumerate(order)}
    for at, instance in enumerate(order):
        if any(position[p] > at for p in instances.producers[instance]):
            raise _InvalidError(f"order[{at}]", "runs before an instance whose output it reads")
    bindings: list[tuple[int, ...]] = [()] * len(order)
    scopes = [Scope.LB] * len(order)
    named: list[tuple[int, ...]] = [()] * len(order)
    for at, (instance, entry) in enumerate(zip(order, entries, strict=True)):
        bindings[instance] = _cores(instances, instance, at, entry["cores"], cores)
        named[instance] = _core_ids(bindings[instance], at, entry.get("core_ids", ()), cores)
        scopes[instance] = Scope[entry["scope"]]
    return order, Placement(tuple(bindings), tuple(scopes), tuple(named) if any(named) else ())


def _core_ids(binding: Binding, at: int, ids: Sequence[int], cores: int) -> tuple[int, ...]:
    parts = cores_used(binding)
    known = set(ids) <= set(range(cores))
    if ids and not (known and len(ids) == len(set(ids)) == parts):
        field = f"order[{at}].core_ids"
        raise _InvalidError(field, f"needs {parts} different cores of 0 to {cores - 1}")
    return () if list(ids) == list(range(parts)) else tuple(ids)


def _clusters(
    instances: InstanceGraph,
    share: Share,
    order: Sequence[int],
    placement: Placement,
    entries: Sequence[Mapping[str, Any]],
) -> tuple[int, ...]:
    """Per instance, its cluster; nothing where clusters work alike or one has it all."""
    if share.split == BATCH or share.clusters == 1:
        named = next((at for at, entry in enumerate(entries) if "cluster" in entry), None)
        if named is not None:
            raise _InvalidError(f"order[{named}].cluster", "all instances are on every cluster")
        return ()
    found = [-1] * len(order)
    for at, (instance, entry) in enumerate(zip(order, entries, strict=True)):
        found[instance] = entry.get("cluster", -1)
        if not 0 <= found[instance] < share.clusters:
            reason = f"one of the {share.clusters} clusters of share, counted from 0"
            raise _InvalidError(f"order[{at}].cluster", reason)
    if len(set(found)) != share.clusters:
        raise _InvalidError("share.clusters", f"{len(set(found))} clusters have instances")
    away = readers_elsewhere(instances, np.asarray(found, np.int64))
    for at, instance in enumerate(order):
        if away[instance] and placement.scopes[instance] != Scope.DDR:
            reason = "another cluster reads it, so it is kept in DDR"
            raise _InvalidError(f"order[{at}].scope", reason)
    return tuple(found)


def _cores(
    instances: InstanceGraph, instance: int, at: int, factors: Sequence[int], cores: int
) -> tuple[int, ...]:
    region = next(iter(instances.instances[instance].outputs.values()))
    if len(factors) != len(region) or min(factors, default=1) < 1:
        field = f"order[{at}].cores"
        raise _InvalidError(
            field, f"needs one factor of at least 1 for each of {len(region)} dimensions"
        )
    if math.prod(factors) > cores:
        field = f"order[{at}].cores"
        raise _InvalidError(
            field, f"spreads over {math.prod(factors)} cores, a cluster has {cores}"
        )
    return tuple(factors)
