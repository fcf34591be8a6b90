"""The decisions of a tuned schedule layer by layer, and their transfer to another model.

Networks share blocks: a deeper one repeats them, another resolution only changes their extents. So
the decisions of a schedule are kept by what a layer computes and what lies around it, and another
model's layers take those of the layer that is most like them. What comes out is one more start of
the search: it is measured like every other, and nothing is lost where it is bad.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from collections.abc import Container, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from autoturbo.errors import KnobsError
from autoturbo.graph.layers import Layer, layers_of
from autoturbo.graph.operators import Graph
from autoturbo.schedule.chip_part import WHOLE
from autoturbo.schedule.context import BATCH
from autoturbo.schedule.knobs import AUTO, Knobs, SubGraphKnobs, fitting, knob_names
from autoturbo.schedule.partition.clusters import group_for
from autoturbo.schedule.partition.grouping import GroupRules
from autoturbo.schedule.partition.overrides import UNSPLIT, possible_split, resolve, split_fields
from autoturbo.schedule.partition.split import SplitRules, split_axes
from autoturbo.search.constants import SEARCH, Transfers
from autoturbo.search.space import batch_share

if TYPE_CHECKING:
    from autoturbo.hardware.target import Target
    from autoturbo.schedule.partition.grouping import SubGraph
    from autoturbo.schedule.pipeline import ModelScheduler
    from autoturbo.schedule.schedule import Schedule

RADII = 4
"""Labels are made up to this radius; a residual block is about as long."""

_WEIGHTS = 1024
"""Elements from which a constant says what a layer is, whatever the shape of what it reads."""


def layer_contexts(graph: Graph, layers: Sequence[Layer]) -> tuple[tuple[str, ...], ...]:
    """Return the labels of every layer, the most specific first.

    The first :data:`RADII` + 1 count shapes, from the largest radius to 0; the last is of radius 1
    and counts only kinds of operators and shapes of weights: it is the same for a longer sequence
    or a larger image.

    Args:
        graph: The model.
        layers: Of the model, in topological order.
    """
    around = _neighbours(layers)
    exact = [[_hash(_work(graph, layer)) for layer in layers]]
    for _ in range(RADII):
        exact.append(_wider(exact[-1], around))
    loose = _wider([_hash(_kinds(graph, layer)) for layer in layers], around)
    return tuple(zip(*reversed(exact), loose, strict=True))


def _neighbours(layers: Sequence[Layer]) -> list[tuple[list[int], list[int]]]:
    """Return, per layer, the layers that it reads, in order of its inputs, and its readers."""
    maker = {tensor: layer.index for layer in layers for tensor in layer.outputs}
    before = [[maker[t] for t in layer.inputs if t in maker] for layer in layers]
    after: list[list[int]] = [[] for _ in layers]
    for layer, makers in zip(layers, before, strict=True):
        for index in dict.fromkeys(makers):
            after[index].append(layer.index)
    return list(zip(before, after, strict=True))


def _wider(labels: Sequence[str], around: Sequence[tuple[list[int], list[int]]]) -> list[str]:
    return [
        _hash([own, [labels[i] for i in before], sorted(labels[i] for i in after)])
        for own, (before, after) in zip(labels, around, strict=True)
    ]


def _work(graph: Graph, layer: Layer) -> list[object]:
    """Return a layer's computation: kinds, attributes, shapes without samples, MACs per sample."""
    work: list[object] = []
    for index in layer.operators:
        operator = graph.operators[index]
        shapes = [_sampled(graph, t) for t in (*operator.inputs, *operator.outputs)]
        work.append([operator.kind, [list(pair) for pair in operator.attributes], shapes])
    return work


def _sampled(graph: Graph, tensor: int) -> list[int]:
    """Return the shape of a tensor, for one sample where its leading extent counts samples."""
    shape = list(graph.tensors[tensor].shape)
    if shape and not graph.tensors[tensor].constant and shape[0] % graph.batch == 0:
        shape[0] //= graph.batch
    return shape


def _kinds(graph: Graph, layer: Layer) -> list[object]:
    weights = [list(graph.tensors[t].shape) for t in layer.weights]
    large = [shape for shape in weights if math.prod(shape) >= _WEIGHTS]
    return [[graph.operators[index].kind for index in layer.operators], large]


def _hash(value: object) -> str:
    """Return twelve hexadecimal digits: a million layers collide once in five hundred cases."""
    text = json.dumps(value, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


ANY = "*"
"""What stands for the layer's name in decisions: they are taken over by layers of other names."""


@dataclass(frozen=True, slots=True)
class LayerDecision:
    """The decisions for one layer.

    Attributes:
        contexts: Its labels, the most telling first.
        boundary: ``"merge"`` where it shares a sub-graph with a layer that reads it, else
            ``"cut"``.
        own: Of the sub-graph that it ends; None for other layers.
    """

    contexts: tuple[str, ...]
    boundary: str
    own: SubGraphKnobs | None = None


@dataclass(frozen=True, slots=True)
class Decisions:
    """The decisions of a schedule.

    Attributes:
        knobs: Of the model, without overrides.
        layers: In topological order.
        source: The model that it was made for, where that is known.
    """

    knobs: Knobs
    layers: tuple[LayerDecision, ...]
    source: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Return JSON values."""
        return {"knobs": self.knobs.as_dict(), "layers": [_as_dict(layer) for layer in self.layers]}

    @staticmethod
    def from_dict(values: Mapping[str, Any], source: str = "") -> Decisions:
        """Return what :meth:`as_dict` wrote as decisions.

        Raises:
            KnobsError: Knobs that this version does not know.
        """
        return Decisions(
            Knobs.from_dict(values["knobs"]),
            tuple(_from_dict(layer) for layer in values["layers"]),
            source,
        )


@dataclass(frozen=True, slots=True)
class Transfer:
    """A candidate carried over from the schedule of another model.

    Attributes:
        knobs: The candidate.
        known: Share of the model's arithmetic in layers whose decisions it takes over.
        alike: Likewise, a layer counting the more the more of what lies around it is alike.
        source: The model whose decisions they are.
        changed: Layers whose splits had to be made smaller, or left to the rules, to fit.
    """

    knobs: Knobs
    known: float
    alike: float
    source: str = ""
    changed: tuple[str, ...] = ()


def decisions_of(schedule: Schedule) -> Decisions:
    """Return the decisions of a schedule for each of its layers, made by rule or by knob."""
    context = schedule.context
    resolved = resolve(context, schedule.instances.subgraphs, schedule.knobs)
    own = {
        subgraph.layers[-1]: _in_effect(schedule, subgraph, resolved.get(subgraph.index))
        for subgraph in schedule.instances.subgraphs
    }
    return Decisions(
        dataclasses.replace(schedule.knobs, overrides=()),
        tuple(
            LayerDecision(labels, "cut" if index in own else "merge", own.get(index))
            for index, labels in enumerate(layer_contexts(context.graph, context.layers))
        ),
    )


def _in_effect(schedule: Schedule, subgraph: SubGraph, said: SubGraphKnobs | None) -> SubGraphKnobs:
    """Return a sub-graph's own knobs, with the split that rules chose where no knob did.

    Parts of clusters that share samples are left to the rules: they depend on how many clusters
    there are.
    """
    asked = dataclasses.replace(said or SubGraphKnobs(""), layer=ANY, boundary="cut")
    if schedule.share.split != BATCH:
        return asked
    depths = {axis: depth for depth, axis in split_axes(schedule.context, subgraph.layers)}
    cuts = (knob_names("subgraph", group="outer"), knob_names("subgraph", group="inner"))
    for (axis, parts), names in zip(subgraph.split.axes, cuts, strict=False):
        if parts > 1:
            values: dict[str, Any] = dict(zip(names, (depths[axis], parts), strict=True))
            asked = dataclasses.replace(asked, **values)
    return asked


def transfer(
    model_scheduler: ModelScheduler,
    known: Iterable[Decisions],
    transfers: Transfers | None = SEARCH.transfers,
) -> Transfer | None:
    """Return a candidate transferred from the decisions of the most similar model.

    None where none knows ``known_share``. Splits that this model's extents do not take (another
    batch, another resolution, another export) are made to fit.

    Args:
        model_scheduler: The model on the target for which the decisions were made.
        known: Of other models, or of this one; of equals the first counts.
        transfers: How much has to be known; None for no transfer.

    Raises:
        KnobsError: The candidate does not fit the model in another way than by its splits.
    """
    if transfers is None:
        return None
    receiver = _receivers(model_scheduler.model)
    taken = [_taken_over(receiver, decisions) for decisions in known]
    best = max(taken, key=lambda one: one.alike, default=None)
    if best is None or best.known < transfers.known_share:
        return None
    own = WHOLE.on(_of_model(model_scheduler.model, model_scheduler.target, best.knobs))
    knobs, changed = with_possible_splits(model_scheduler, own)
    return dataclasses.replace(best, knobs=knobs, changed=changed)


def rebatched(model_scheduler: ModelScheduler, knobs: Knobs) -> Knobs:
    """Return a candidate for the same model at another batch: what this one does not take is left.

    Samples at once that the batch has not are left to the rules, and splits are made to fit.

    Args:
        model_scheduler: The model at its new batch, on the same target.
        knobs: A candidate for another batch.

    Raises:
        KnobsError: The candidate does not fit the model in another way.
    """
    own = _of_model(model_scheduler.model, model_scheduler.target, knobs)
    return with_possible_splits(model_scheduler, own)[0]


def moved(
    model_scheduler: ModelScheduler, knobs: Knobs, made: Decisions, lb_share: float
) -> list[Knobs]:
    """Return candidates that may keep their partition and tiles when moved to another target.

    Rules read a target's capacities, so that the same candidate may cut the model in another way
    where there is more room. What was decided there is one way to have the same cuts, a buffer that
    is full as early as the other target's is another. Tiles grow with the buffer too, unless they
    are divided.

    Args:
        model_scheduler: The model on the target.
        knobs: A candidate of the same model on another target.
        made: What its schedule decided there.
        lb_share: Capacity of the other target's local buffer over this one's.
    """
    candidates = [knobs]
    with suppress(KnobsError):
        transferred = transfer(model_scheduler, [made])
        candidates += [] if transferred is None else [transferred.knobs]
    fill = lb_share * (1.0 if knobs.lb_occupancy_limit == AUTO else float(knobs.lb_occupancy_limit))
    divided = 1 if knobs.tile_subdivision == AUTO else int(knobs.tile_subdivision)
    with suppress(KnobsError):  # a share or a division that the knobs do not take
        if lb_share < 1.0:
            candidates += [dataclasses.replace(one, lb_occupancy_limit=fill) for one in candidates]
            tiles = round(divided / lb_share)
            candidates.append(dataclasses.replace(candidates[-1], tile_subdivision=tiles))
    return list(dict.fromkeys(candidates))


def with_possible_splits(
    model_scheduler: ModelScheduler, knobs: Knobs
) -> tuple[Knobs, tuple[str, ...]]:
    """Return a candidate with splits that the model takes, and the layers that it changed.

    A sub-graph that cannot be cut into as many parts is cut into as many as divide its extent; one
    that cannot be cut along the dimension at all is left to the rules.

    Args:
        model_scheduler: The model on the target.
        knobs: A candidate that may have been made for another model.

    Raises:
        KnobsError: It names a layer or a number of samples that the model has not.
    """
    share = model_scheduler.share_of(knobs)
    context = model_scheduler.context_for(share.batches, knobs)
    subgraphs = group_for(context, GroupRules.of(knobs), share.split)
    scale = 1 if knobs.instance_multiplier == AUTO else int(knobs.instance_multiplier)
    room = SplitRules.of(knobs).room(context)
    splits: dict[str, SubGraphKnobs] = {}
    for index, asked in sorted(resolve(context, subgraphs, knobs).items()):
        subgraph = subgraphs[index]
        possible = possible_split(context, subgraph, scale, asked, share.split, room)
        if possible != asked:
            splits |= {context.layers[x].name: UNSPLIT for x in subgraph.layers}
            splits[possible.layer] = possible
    overrides = tuple(
        dataclasses.replace(o, **split_fields(splits[o.layer])) if o.layer in splits else o
        for o in knobs.overrides
    )
    changed = tuple(o.layer for o in splits.values() if o.layer)
    return dataclasses.replace(knobs, overrides=overrides), changed


def nearest(graph: Graph, known: Iterable[Mapping[str, Any]], most: int) -> list[Mapping[str, Any]]:
    """Return the stored decisions of the models most similar to a graph, the nearest first.

    It is the measure by which :func:`transfer` chooses, without building what it does not.

    Args:
        graph: The model.
        known: :meth:`Decisions.as_dict` of schedules; of equals the first goes first.
        most: How many to give.
    """
    receiver = _receivers(graph)

    def alike(values: Mapping[str, Any]) -> float:
        labels = {label for layer in values["layers"] for label in layer["contexts"]}
        return sum(_alike(layer, _first(layer.labels, labels)) for layer in receiver)

    return sorted(known, key=alike, reverse=True)[:most]


@dataclass(frozen=True, slots=True)
class _Receiver:
    """A layer that may take over a decision: its name, its labels, its MACs."""

    name: str
    labels: tuple[str, ...]
    macs: int


def _receivers(graph: Graph) -> list[_Receiver]:
    layers = layers_of(graph)
    work = [sum(graph.operators[i].macs for i in layer.operators) for layer in layers]
    return [
        _Receiver(layer.name, labels, macs)
        for layer, labels, macs in zip(layers, layer_contexts(graph, layers), work, strict=True)
    ]


def _first(labels: Sequence[str], known: Container[str]) -> int:
    """Return the index of the most specific label that is known; -1 where none is."""
    return next((index for index, label in enumerate(labels) if label in known), -1)


def _alike(layer: _Receiver, at: int) -> float:
    """Return the layer's arithmetic, less where only a less specific label is known."""
    return layer.macs * (1 - at / len(layer.labels)) if at >= 0 else 0.0


def _taken_over(layers: Sequence[_Receiver], decisions: Decisions) -> Transfer:
    by_label: dict[str, LayerDecision] = {}
    for layer_decision in decisions.layers:
        for label in layer_decision.contexts:
            by_label.setdefault(label, layer_decision)
    overrides, known, alike = [], 0.0, 0.0
    for layer in layers:
        index, decision = _nearest(layer.labels, by_label)
        if decision is None:
            continue
        override = (
            decision.own if decision.own is not None and index <= RADII else SubGraphKnobs("")
        )
        overrides.append(
            dataclasses.replace(override, layer=layer.name, boundary=decision.boundary)
        )
        known += layer.macs
        alike += _alike(layer, index)
    total = max(sum(layer.macs for layer in layers), 1)
    transferred = dataclasses.replace(decisions.knobs, overrides=tuple(overrides))
    return Transfer(transferred, known / total, alike / total, decisions.source)


def _nearest(
    labels: Sequence[str], by_label: Mapping[str, LayerDecision]
) -> tuple[int, LayerDecision | None]:
    """Return the index and the decision of the most specific label that is known."""
    index = _first(labels, by_label)
    return index, by_label[labels[index]] if index >= 0 else None


def _of_model(graph: Graph, target: Target, knobs: Knobs) -> Knobs:
    """Return knobs that this target has a place for, with samples that its clusters can have."""
    knobs = fitting(knobs, target)
    at_once = knobs.batches_per_cluster
    if at_once == AUTO or batch_share(graph, target) % int(at_once) == 0:
        return knobs
    return dataclasses.replace(knobs, batches_per_cluster=AUTO)


def _as_dict(one: LayerDecision) -> dict[str, Any]:
    own = {} if one.own is None else {"own": one.own.as_dict()}
    return {"contexts": list(one.contexts), "boundary": one.boundary, **own}


def _from_dict(values: Mapping[str, Any]) -> LayerDecision:
    own = None
    if "own" in values:
        (own,) = Knobs.from_dict({"overrides": [values["own"]]}).overrides
    return LayerDecision(tuple(values["contexts"]), values["boundary"], own)
