"""Schedule files: the one canonical text of a schedule, and reading it back.

A file holds decisions, not code: how operators are cut into layers, layers into sub-graphs, how
each is split, the order of the parts, their cores and scopes, and where buffers ended up. Reading
one rebuilds the schedule from those decisions with the same passes that follow binding, so a
schedule from elsewhere (a vendor's, another tuner's) is measured on equal terms. Operators are
named by their position in the model, which does not change when a file is exported again under
other names.

``most_cores`` limits what the other layers of a kernel are spread over. ``cores`` are factors, a
binding; ``core_ids`` may name the cores of its parts, row-major over the
factors (a vendor's nested list ``[[0, 1], [2, 3]]`` written flat), where they are not 0, 1, 2, ....
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NotRequired

import numpy as np
from annotated_types import Ge, Le
from typing_extensions import TypedDict

from autoturbo import files
from autoturbo.errors import KnobsError, Location, ScheduleFileError
from autoturbo.graph.layers import layers_from
from autoturbo.graph.operators import Graph
from autoturbo.hardware.target import Target
from autoturbo.hardware.tuning_target import TuningTarget
from autoturbo.schedule.chip_part import ChipPart
from autoturbo.schedule.context import BATCH, SPLITS, SchedulingContext, make_context
from autoturbo.schedule.knobs import SCHEDULER_VERSION, Knobs
from autoturbo.schedule.partition.grouping import SubGraph
from autoturbo.schedule.partition.split import Split, sink, split_axes
from autoturbo.schedule.pipeline import ModelScheduler, assemble
from autoturbo.schedule.place.bind import Placement, Scope, cores_used
from autoturbo.schedule.place.instances import InstanceGraph, PartBook, make_instances
from autoturbo.schedule.schedule import (
    FORMAT,
    MACHINE_FORMAT,
    SCHEDULE_SCHEMA,
    Schedule,
    Share,
    buffers_of,
)
from autoturbo.schedule.simplify import simplified
from autoturbo.schedule.work import MATRIX
from autoturbo.schema import (
    MOST,
    Bytes,
    Choice,
    Described,
    Index,
    InvalidError,
    Positive,
    WithoutFraction,
    checked,
    dotted,
    json_schema,
)

_OTHERS = {
    FORMAT: "a schedule of a target, not of a machine of several units",
    MACHINE_FORMAT: "a schedule of a machine of several units, not of a target",
}

# What stands in a file: the schema that is published and the checks of what is read follow from
# these declarations. Indices name operators, layers, sub-graphs
# and parts. Steps count from 0.
InScope = Annotated[str, Choice(tuple(scope.name for scope in Scope))]


class MadeFor(TypedDict):
    """The model or the target that a file is made for."""

    name: str
    hash: str
    batch: NotRequired[Positive]


class LayerEntry(TypedDict):
    """A layer: its operators."""

    name: str
    operators: list[Index]


class SubGraphEntry(TypedDict):
    """A sub-graph and how it is split, perhaps along a second axis inside a part of the first."""

    layers: list[Index]
    axis: Annotated[int, Ge(-MOST), Le(MOST), WithoutFraction()]
    depth: Index
    instances: Index
    inner_axis: NotRequired[Index]
    inner_factor: NotRequired[Positive]


class InstanceEntry(TypedDict):
    """A part of a sub-graph: its cores and the scope of its output."""

    subgraph: Index
    part: Index
    cores: list[Index]
    scope: InScope
    core_ids: NotRequired[list[Index]]
    most_cores: NotRequired[Positive]
    cluster: NotRequired[Index]


class BufferEntry(TypedDict):
    """Where a buffer lies, and from which step to which."""

    kind: str
    tensor: str
    subgraph: Index
    part: Index
    scope: InScope
    address: Annotated[int, Ge(-MOST), Le(MOST), WithoutFraction(), Described(unit="bytes")]
    bytes: Bytes
    first_step: Index
    last_step: Index
    cluster: NotRequired[Index]


class ShareEntry(TypedDict):
    """How clusters share the batch, or the model, out."""

    clusters: Index
    samples: Index
    batches: Index
    split: NotRequired[Annotated[str, Choice(SPLITS[1:])]]


class ScheduleDocument(TypedDict):
    """A schedule file."""

    format: Annotated[str, Choice((FORMAT,))]
    schema_version: Annotated[int, Choice((SCHEDULE_SCHEMA,))]
    scheduler_version: str
    scheduler: str
    model: MadeFor
    target: MadeFor
    dtype: str
    knobs: dict[str, Any]
    share: ShareEntry
    layers: list[LayerEntry]
    subgraphs: list[SubGraphEntry]
    order: list[InstanceEntry]
    buffers: NotRequired[list[BufferEntry]]
    expected: NotRequired[dict[str, Any] | None]


def schedule_schema() -> dict[str, Any]:
    """Return the JSON schema of schedule files (draft 2020-12)."""
    return json_schema(ScheduleDocument, "AutoTurbo schedule")


def load_schedule(path: str | Path, graph: Graph, target: Target) -> Schedule:
    """Return the schedule of a file, rebuilt for a model and a target.

    Raises:
        ScheduleFileError: The file cannot be read, is of another version, was made for something
            else, or describes no valid schedule.
    """
    return schedule_of(read_text(Path(path)), graph, target, path)


def schedule_of(text: str, graph: Graph, target: Target, place: str | Path) -> Schedule:
    """Return the schedule of a file's text.

    Args:
        text: The file's.
        graph: The model that it is for.
        target: The target that it is for.
        place: The file, named in errors.

    Raises:
        ScheduleFileError: The text is of another version, was made for something else, or describes
            no valid schedule.
    """
    with located(Path(place)):
        document = read_document(text, ScheduleDocument, FORMAT, SCHEDULE_SCHEMA, graph, target)
        model_scheduler = ModelScheduler(graph, target, document["dtype"])
        knobs, scheduler = Knobs.from_dict(document["knobs"]), document["scheduler"]
        share = _share(model_scheduler, document["share"], ChipPart.of(knobs))
        context = _problem(model_scheduler, share, knobs, document["layers"])
        subgraphs = _subgraphs(context, document["subgraphs"])
        instances = make_instances(PartBook(context), subgraphs)
        order, placement, cluster = _order(instances, share, document["order"])
        schedule = assemble(
            graph, context, scheduler, knobs, share, instances, order, placement, cluster
        )
        schedule = dataclasses.replace(schedule, expected=document.get("expected"))
        same = "buffers" not in document or _same_buffers(schedule, document)
        require(same, "buffers", "buffers are not where these decisions put them")
        return schedule


@contextlib.contextmanager
def located(path: Path) -> Iterator[None]:
    """Add the file's name to errors of its content, and the field to errors of knobs."""
    try:
        yield
    except KnobsError as error:
        field = ".".join(part for part in ("knobs", error.at.field) if part)
        raise ScheduleFileError(error.message, Location(path, field=field), error.hint) from None
    except ScheduleFileError as error:
        place = dataclasses.replace(error.at, file=path)
        raise ScheduleFileError(error.message, place, error.hint) from None


def require(valid: bool, field: str, reason: str, hint: str | None = None) -> None:
    """Raise an error at a field unless it is valid.

    Args:
        valid: Whether there is nothing to raise.
        field: Of the file, with dots.
        reason: What is wrong with it.
        hint: What to do about it.

    Raises:
        ScheduleFileError: It is not valid.
    """
    if not valid:
        raise ScheduleFileError(reason, Location(field=field), hint)


def read_text(path: Path) -> str:
    """Return the text of a schedule file; raise ScheduleFileError if it cannot be read."""
    try:
        return files.read_text(path)
    except OSError as error:
        raise ScheduleFileError(f"cannot read: {error.strerror}", Location(path)) from None
    except UnicodeDecodeError:
        raise ScheduleFileError("not a schedule file", Location(path)) from None


def read_document(
    text: str, declared: Any, form: str, newest: int, graph: Graph, target: TuningTarget
) -> dict[str, Any]:
    """Return the document of a file of a given format, for this model and target.

    Args:
        text: The file's.
        declared: The type that the document is checked against.
        form: The format that it has to state.
        newest: The one version that can be read.
        graph: The model that it has to be for.
        target: The target, or the machine, that it has to be for.

    Raises:
        ScheduleFileError: It is something else, of another version or made for something else.
    """
    try:
        document = files.parse_json(text)
    except json.JSONDecodeError as error:
        place_in_text = Location(None, error.lineno, error.colno)
        hint = "is it the file that 'autoturbo tune' wrote, whole?"
        raise ScheduleFileError(f"not JSON: {error.msg}", place_in_text, hint) from None
    found_format = document.get("format") if isinstance(document, dict) else None
    other = "" if found_format == form else _OTHERS.get(str(found_format), "")
    require(not other, "format", other, "give its own target with --target")
    require(found_format == form, "format", "not a schedule file", f"it says {form!r} in ours")
    version = document.get("schema_version")
    readable = version == newest and not isinstance(version, bool)
    hint = f"this release reads version {newest}; tune again or use the other release"
    require(readable, "schema_version", f"format version {version!r:.40}", hint)
    try:
        document = checked(declared, document)
    except InvalidError as error:
        place_in_text = Location(field=dotted(error.first.path) or None)
        raise ScheduleFileError(error.first.message, place_in_text, error.first.hint) from None
    _check_identity(document, graph, target)
    return dict(document)


def _check_identity(document: Mapping[str, Any], graph: Graph, target: TuningTarget) -> None:
    """Refuse a file of another model, target or scheduler version."""
    model = document["model"]
    origin = f"{model['name']} at batch {model.get('batch', '?')}"
    reason = f"made for {origin}, not for {graph.name} at batch {graph.batch}"
    hint = "give the model, batch and shapes that it was tuned with"
    require(model["hash"] == graph.hash, "model.hash", reason, hint)
    origin = document["target"]["name"]
    reason = f"made for target {origin} as it was described then, not for {target.name}"
    hint = "give the target file that it was tuned with"
    require(document["target"]["hash"] == target.hash, "target.hash", reason, hint)
    version, current = document["scheduler_version"], SCHEDULER_VERSION
    reason, hint = f"made by scheduler {version}, this is {current}", "tune again with this release"
    require(version == current, "scheduler_version", reason, hint)
    dtype, hint = document["dtype"], f"it has {', '.join(target.dtypes)}"
    computes = target.supports(dtype)
    require(computes, "dtype", f"{target.name} does not compute in {dtype}", hint)


def _same_buffers(schedule: Schedule, document: Mapping[str, Any]) -> bool:
    """Return whether rebuilding from a file's decisions gives the buffers that it lists.

    Another export of the same network has other names, which its buffers then have as well.
    """
    buffers, stored = buffers_of(schedule), document["buffers"]
    names = [layer.name for layer in schedule.context.layers]
    if names != [entry["name"] for entry in document["layers"]]:
        buffers, stored = (
            [{**entry, "tensor": ""} for entry in entries] for entries in (buffers, stored)
        )
    return bool(buffers == stored)


def _share(model_scheduler: ModelScheduler, values: Mapping[str, Any], part: ChipPart) -> Share:
    share = Share(**values)
    whole, batch = model_scheduler.share(split=share.split, part=part), share.split == BATCH
    fewer = not batch and 1 <= share.clusters <= whole.clusters
    fits = share.samples == whole.samples and (share.clusters == whole.clusters or fewer)
    each = "each" if batch else "in all, or fewer clusters"
    reason = f"{whole.clusters} clusters share out the batch, {whole.samples} samples {each}"
    require(fits, "share", reason)
    one = "the target has one cluster, nothing is shared out"
    require(share.split == whole.split, "share.split", one)
    owner = "a cluster has" if batch else "there are"
    possible = 1 <= share.batches <= share.samples
    require(possible, "share.batches", f"{owner} {share.samples} samples")
    stays = bool(model_scheduler.trace.obstacle) and share.batches != share.samples
    require(not stays, "share.batches", f"the batch stays whole: {model_scheduler.trace.obstacle}")
    return share


def _problem(
    model_scheduler: ModelScheduler,
    share: Share,
    knobs: Knobs,
    entries: Sequence[Mapping[str, Any]],
) -> SchedulingContext:
    """Return the context with the layers of a file.

    A layer is computed tile by tile: one product, and one operator whose output is kept. A compiler
    that expands normalisations names more operators.
    """
    context = model_scheduler.context_for(share.batches, knobs)
    chains = [tuple(entry["operators"]) for entry in entries]
    graph, named = context.graph, sorted(itertools.chain(*chains))
    if len(named) > len(graph.operators):
        graph = simplified(graph)
    all_once = named == list(range(len(graph.operators)))
    require(all_once, "layers", "every operator must be in exactly one layer")
    for index, chain in enumerate(chains):
        require(bool(chain), f"layers[{index}].operators", "a layer has an operator")
    if chains == [layer.operators for layer in context.layers]:
        return context
    place = {operator: index for index, chain in enumerate(chains) for operator in chain}
    layers = layers_from(graph, chains, [place[index] for index in range(len(place))])
    sorted_ = [layer.operators for layer in layers] == chains
    require(sorted_, "layers", "layers are not in topological order")
    context = make_context(
        graph, context.target, context.dtype, layers, context.chip, context.alike
    )
    for layer in layers:
        field, operators = f"layers[{layer.index}].operators", layer.operators
        matrix = context.work.engine[list(operators)].tolist().count(MATRIX)
        several = f"{matrix} operators of the matrix engine; a layer has at most one"
        require(matrix <= 1, field, several)
        closed = set(layer.outputs).issubset(graph.operators[operators[-1]].outputs)
        require(closed, field, "only the last operator of a layer may be read from outside")
    return context


def _subgraphs(
    context: SchedulingContext, entries: Sequence[Mapping[str, Any]]
) -> tuple[SubGraph, ...]:
    groups = [tuple(entry["layers"]) for entry in entries]
    all_once = sorted(itertools.chain(*groups)) == list(range(len(context.layers)))
    require(all_once, "subgraphs", "every layer must be in exactly one sub-graph")
    for index, group in enumerate(groups):
        field = f"subgraphs[{index}].layers"
        require(bool(group), field, "a sub-graph has a layer")
        inner_tensors = {tensor for layer in group[:-1] for tensor in context.layers[layer].outputs}
        readers = {reader for tensor in inner_tensors for reader in context.consumers[tensor]}
        inside = readers.issubset(group) and inner_tensors.isdisjoint(context.graph.outputs)
        closed = inside and list(group) == sorted(group)
        require(closed, field, "only the last layer of a sub-graph may be read from outside")
    ends = [group[-1] for group in groups]
    require(ends == sorted(ends), "subgraphs", "sub-graphs are not in topological order")
    return tuple(
        SubGraph(index, group, _split(context, index, group, entry))
        for index, (group, entry) in enumerate(zip(groups, entries, strict=True))
    )


def _split(
    context: SchedulingContext, index: int, group: tuple[int, ...], entry: Mapping[str, Any]
) -> Split:
    axis, instances = entry["axis"], entry["instances"]
    inner_axis, inner = entry.get("inner_axis", -1), entry.get("inner_factor", 1)
    parts, rest = divmod(max(instances, 1), inner)
    field = f"subgraphs[{index}].instances"
    inside = inner_axis not in (-1, axis) if inner > 1 else inner_axis == -1
    require(not rest and inside, field, f"{instances} are not {inner} along a second axis")
    allowed = {axis for _, axis in split_axes(context, group)}
    for along, number in ((axis, parts), (inner_axis, inner)):
        fits = along in allowed and number <= sink(context, group).axes[along].extent
        reason = f"cannot be split into {number} along axis {along}"
        require(number <= 1 or fits, field, reason)
    return Split(axis if parts > 1 else -1, parts, entry["depth"], 0, 0, inner_axis, inner)


def _order(
    instances: InstanceGraph, share: Share, entries: Sequence[Mapping[str, Any]]
) -> tuple[tuple[int, ...], Placement, tuple[int, ...]]:
    """Return the order, placement and clusters of instances; no clusters where these work alike."""
    pairs = zip(instances.subgraph.tolist(), instances.part.tolist(), strict=True)
    known = {pair: index for index, pair in enumerate(pairs)}
    asked = [(entry["subgraph"], entry["part"]) for entry in entries]
    require(sorted(asked) == sorted(known), "order", "every instance must run exactly once")
    order = tuple(known[pair] for pair in asked)
    position = {instance: at for at, instance in enumerate(order)}
    for at, instance in enumerate(order):
        ready = all(position[p] <= at for p in instances.producers[instance])
        require(ready, f"order[{at}]", "runs before an instance whose output it reads")
    apart, cores = share.split != BATCH and share.clusters > 1, instances.context.target.cores
    placed, cluster = [((), Scope.LB, (), 0)] * len(order), np.zeros(len(order), np.int64)
    for at, (instance, entry) in enumerate(zip(order, entries, strict=True)):
        output = instances.parts[entry["subgraph"]].outputs[0]
        rank = len(instances.context.graph.tensors[output].shape)
        factors, field = tuple(entry["cores"]), f"order[{at}].cores"
        each = f"needs one factor of at least 1 for each of {rank} dimensions"
        require(len(factors) == rank and min(factors, default=1) >= 1, field, each)
        wide = f"spreads over {math.prod(factors)} cores, a cluster has {cores}"
        require(math.prod(factors) <= cores, field, wide)
        ids, parts = tuple(entry.get("core_ids", ())), cores_used(factors)
        different = set(ids) <= set(range(cores)) and len(ids) == len(set(ids)) == parts
        reason = f"needs {parts} different cores of 0 to {cores - 1}"
        require(not ids or different, f"order[{at}].core_ids", reason)
        named = () if ids == tuple(range(parts)) else ids
        limit = entry.get("most_cores", 0)
        within = not limit or parts <= limit
        require(within, f"order[{at}].most_cores", f"fewer than the {parts} that the output has")
        placed[instance] = factors, Scope[entry["scope"]], named, limit
        chosen, field = entry.get("cluster", -1), f"order[{at}].cluster"
        require(apart or "cluster" not in entry, field, "all instances are on every cluster")
        reason = f"one of the {share.clusters} clusters of share, counted from 0"
        require(not apart or 0 <= chosen < share.clusters, field, reason)
        cluster[instance] = chosen
    bindings, scopes, core_ids, limits = zip(*placed, strict=True)
    named_cores, limited = core_ids if any(core_ids) else (), limits if any(limits) else ()
    placement = Placement(bindings, scopes, named_cores, limited)
    if not apart:
        return order, placement, ()
    working = len(set(cluster.tolist()))
    require(working == share.clusters, "share.clusters", f"{working} clusters have instances")
    return order, placement, tuple(cluster.tolist())
