"""The bottlenecks of a schedule, and remedies that are tried on a new schedule.

A bottleneck loses what it takes beyond what its work needs. A remedy changes one knob, the
model (channels padded to fill the matrix array), or one field of the target. The schedule is
built anew with the change and simulated; all else stays as it is, so a change of the target is not
tuned for (``autoturbo sweep`` does that).
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from autoturbo.errors import AutoTurboError
from autoturbo.graph.domain import AxisKind
from autoturbo.graph.extract import extract
from autoturbo.graph.operators import Engine, Graph
from autoturbo.graph.padding import Channels, channels_of, padded
from autoturbo.hardware import with_field
from autoturbo.hardware.parts import storage_ratio
from autoturbo.hardware.target import Target
from autoturbo.report.alike import added, alike, numbered, subgraph_kind
from autoturbo.schedule.knobs import AUTO, Knobs, SubGraphKnobs, Value, subgraph_knobs
from autoturbo.schedule.knobs.splits import FACTOR
from autoturbo.schedule.schedule import Schedule
from autoturbo.schedule.work import in_integers
from autoturbo.search.space import Space
from autoturbo.search.subgraphs import Block, blocks_of
from autoturbo.simulator.bound import lower_bound, weight_bytes
from autoturbo.simulator.breakdown.attribution import Limit
from autoturbo.simulator.breakdown.shares import ScheduleShares, Shares
from autoturbo.simulator.evaluator import Evaluator
from autoturbo.simulator.measurement import Measurement, Outcome

WORST = 5
"""Bottlenecks that are shown."""

Part = Literal["layer", "between"]


@dataclass(frozen=True, slots=True)
class Bottleneck:
    """Alike layers, as the blocks of a network have them, or what lies between kernels.

    Attributes:
        part: ``"layer"``; or ``"between"``: launches, barriers, and the movements before kernels,
            of the whole schedule.
        label: Operator and shape of its layers; where there are none, what it is.
        layers: Names of the layers; none between kernels.
        subgraphs: Numbers of the isomorphic sub-graphs that they belong to.
        anchors: The last layer of each of these, by which knobs name it.
        seconds: Seconds that they add to the latency together.
        shares: That time by what bounds it.
        needs: Seconds that their work needs whatever the schedule: the most of matrix work and
            vector work at peak and of reading their weights once from DDR; none between kernels.
    """

    part: Part
    label: str
    layers: tuple[str, ...]
    subgraphs: tuple[int, ...]
    anchors: tuple[str, ...]
    seconds: float
    shares: Shares
    needs: float

    @property
    def lost(self) -> float:
        """Return the seconds beyond what is needed, never negative."""
        return max(self.seconds - self.needs, 0.0)


def bottlenecks_of(
    schedule: Schedule, found: ScheduleShares, most: int = WORST
) -> tuple[Bottleneck, ...]:
    """Return the bottlenecks that lose most, the worst first.

    Args:
        schedule: The schedule that is asked about.
        found: The schedule's latency, attributed to limits and layers.
        most: Bottlenecks at most.
    """
    indices = range(len(schedule.instances.subgraphs))
    kinds = alike(indices, lambda index: subgraph_kind(schedule, index))
    bottlenecks = [s for kind in kinds for s in _of_kind(schedule, found, tuple(kind))]
    bottlenecks.append(_between(found))
    losing = [bottleneck for bottleneck in bottlenecks if bottleneck.lost > 0]
    return tuple(sorted(losing, key=lambda s: (-s.lost, s.subgraphs, s.layers)))[:most]


def _of_kind(
    schedule: Schedule, found: ScheduleShares, kind: tuple[int, ...]
) -> Iterator[Bottleneck]:
    """Yield one bottleneck for each place in isomorphic sub-graphs, of the layers there."""
    graph, names = schedule.instances, [layer.name for layer in schedule.context.layers]
    anchors = tuple(found.subgraphs[i].layer for i in kind)
    for layers in zip(*(graph.subgraphs[i].layers for i in kind), strict=True):
        shares = added(found.layers[layer].shares for layer in layers)
        yield Bottleneck(
            "layer", numbered(schedule, layers), tuple(names[layer] for layer in layers), kind,
            anchors, shares.total, shares, len(kind) * _needs(schedule, layers[0]),
        )  # fmt: skip


def _between(found: ScheduleShares) -> Bottleneck:
    """Return the time besides the work of layers, with waits for other clusters."""
    inside = added(layer.shares for layer in found.layers)
    around = np.maximum(np.asarray(found.shares.seconds) - np.asarray(inside.seconds), 0.0)
    every = tuple(one.subgraph for one in found.subgraphs)
    return Bottleneck(
        "between", "between kernels", (), every, (), float(around.sum()), Shares.of(around), 0.0
    )


def _needs(schedule: Schedule, layer: int) -> float:
    """Return the seconds that the whole chip needs for a layer of the whole batch."""
    context, share = schedule.context, schedule.share
    try:
        part = extract(context.graph, context.layers[layer].operators)
    except ValueError:  # nothing that it makes is used
        return 0.0
    bound = lower_bound(part, context.target, context.dtype)
    integers = in_integers(context.target, context.dtype)
    read = weight_bytes(part, context.dtype, integers=integers) * storage_ratio(context.dtype)
    passes = share.loops * share.copies
    return max(
        bound.matrix_s * passes, bound.vector_s * passes, read / context.target.ddr.bandwidth
    )


Kind = Literal["knob", "model", "target"]

FIELDS: Mapping[Limit, tuple[tuple[str, float], ...]] = {
    Limit.MATRIX: (("engines[matrix].columns", 2), ("engines[matrix].rows", 2)),
    Limit.VECTOR: (("engines[vector].lanes", 2), ("engines[vector].special_lanes", 2)),
    Limit.LB: (("lb.bandwidth_gb_s", 2),),
    Limit.TRANSFER: (("engines[transfer].bandwidth_gb_s", 2),),
    Limit.GB: (("gb.bandwidth_gb_s", 2), ("lb.capacity_kib", 2)),
    Limit.DDR: (
        ("ddr.bandwidth_gb_s", 2), ("engines[dma].bandwidth_gb_s", 2), ("lb.capacity_kib", 2),
        ("gb.capacity_kib", 2),
    ),
    Limit.LATENCY: (
        ("engines[dma].latency_ns", 0.5), ("engines[transfer].latency_ns", 0.5),
        ("lb.weight_capacity_kib", 2),
    ),
    Limit.LAUNCH: (("overheads.kernel_launch_us", 0.5), ("lb.capacity_kib", 2)),
}  # fmt: skip
"""Fields of the target that are tried, with the factor, by what a bottleneck is bound by."""

MOST_PADDING = 1.5
"""Channels are padded to at most so many times as many."""

_MINOR = 0.2
"""Share of a bottleneck's time from which its second limit is looked at too."""

_ALONE_NOTHING = tuple(
    name
    for name, decision in subgraph_knobs().items()
    if decision.group == "inner" or decision.upon not in (None, name)
)
"""Knobs that mean something only together with others."""


@dataclass(frozen=True, slots=True)
class Remedy:
    """A change, and its measured effect.

    Attributes:
        kind: What is changed.
        text: The change, for people.
        change: The same for scripts: ``{"layers", "knob", "value"}`` (without layers a knob of the
            model), ``{"tensor", "dimension",
            "extent", "padded"}`` or ``{"field", "value", "was"}``, named as in their files.
        latency: With it, in seconds; None where nothing fits any more.
        failure: Why, then.
        gain: Seconds less than without it, negative where it is slower; None likewise.
    """

    kind: Kind
    text: str
    change: Mapping[str, Any]
    latency: float | None
    failure: str | None
    gain: float | None


@dataclass(eq=False)
class Trials:
    """Trials of changes of one schedule; each is built once.

    Attributes:
        schedule: The schedule, made from its knobs.
        latency: Latency of the schedule, in seconds.
    """

    schedule: Schedule
    latency: float
    _known: dict[object, Outcome] = field(default_factory=dict)

    @functools.cached_property
    def _evaluator(self) -> Evaluator:
        context = self.schedule.context
        return Evaluator(self.schedule.model, context.chip, context.dtype)

    @functools.cached_property
    def _blocks(self) -> tuple[Block, ...]:
        """Return the knobs and values that the search would try, sub-graph by sub-graph."""
        knobs, most = self.schedule.knobs, len(self.schedule.instances.subgraphs)
        return blocks_of(self._evaluator.model_scheduler, most, [knobs.batches_per_cluster], knobs)

    @property
    def target(self) -> Target:
        """Return the target of the schedule."""
        return self.schedule.context.chip

    def remedies(self, bottleneck: Bottleneck) -> tuple[Remedy, ...]:
        """Return all remedies tried for a bottleneck: most gained first, infeasible ones last."""
        limits = limits_of(bottleneck)
        remedies = [
            *(self._of_knobs(bottleneck) if bottleneck.anchors else self.model_knobs()),
            *self._of_model(bottleneck, limits), *self._of_target(limits),
        ]  # fmt: skip
        return _ordered(remedies)

    def model_knobs(self) -> tuple[Remedy, ...]:
        """Try every value of every knob of the model alone; most gained first."""
        knobs, space = self.schedule.knobs, Space.of(self._evaluator.model_scheduler)
        return _ordered(
            self.knob((), dimension.name, value)
            for dimension in space.dimensions
            for value in dimension.choices
            if value != getattr(knobs, dimension.name)
        )

    def knob(self, layers: tuple[str, ...], name: str, value: Value) -> Remedy:
        """Try one knob of isomorphic sub-graphs, named by layers; without any, of the model."""
        knobs = with_knob(self.schedule.knobs, layers, name, value)
        outcome = self._asked(knobs, lambda: self._evaluator.evaluate(knobs))
        alike = f" and {len(layers) - 1} alike" if len(layers) > 1 else ""
        where = f" of {layers[0]}{alike}" if layers else ""
        change = {"layers": list(layers), "knob": name, "value": value}
        return self._remedy("knob", f"{name}={value}{where}", change, outcome)

    def field(self, path: str, value: object) -> Remedy:
        """Try one field of the target, named and measured as in its file.

        Returns:
            The change, and the latency with it or why nothing fits; measured once per field and
            value.

        Raises:
            TargetError: There is no such field, or the target would not be valid.
        """
        target, was = with_field(self.target, path, value), field_of(self.target, path)
        outcome = self._asked((path, str(value)), lambda: self._elsewhere(target=target))
        change = {"field": path, "value": value, "was": was}
        return self._remedy("target", f"{path} {_changed(was, value)}", change, outcome)

    def _padding(self, channels: Channels, tensor: int, dim: int, extent: int) -> Remedy:
        """Try wider channels of a tensor of the model."""
        graph, was = self.schedule.model, channels.extent
        key = (channels, extent)
        outcome = self._asked(key, lambda: self._elsewhere(graph=padded(graph, channels, extent)))
        name, alike = graph.tensors[tensor].name, len({t for t, _ in channels.tensors})
        text = f"channels of {name} {was} -> {extent} ({alike} tensors)"
        change = {"tensor": name, "dimension": dim, "extent": was, "padded": extent}
        return self._remedy("model", text, change, outcome)

    def _remedy(self, kind: Kind, text: str, change: Mapping[str, Any], outcome: Outcome) -> Remedy:
        if not isinstance(outcome, Measurement):
            return Remedy(kind, text, change, None, outcome.message, None)
        return Remedy(kind, text, change, outcome.latency, None, self.latency - outcome.latency)

    def _asked(self, key: object, make: Callable[[], Outcome]) -> Outcome:
        if key not in self._known:
            self._known[key] = make()
        return self._known[key]

    def _elsewhere(self, *, graph: Graph | None = None, target: Target | None = None) -> Outcome:
        """Evaluate the same knobs on another model or target."""
        graph, target = graph or self.schedule.model, target or self.target
        return Evaluator(graph, target, self.schedule.context.dtype).evaluate(self.schedule.knobs)

    def _of_knobs(self, bottleneck: Bottleneck) -> Iterator[Remedy]:
        block = next((b for b in self._blocks if bottleneck.anchors[0] in b.layers), None)
        override = {own.layer: own for own in self.schedule.knobs.overrides}.get(
            bottleneck.anchors[0]
        )
        instances = self.schedule.instances.subgraphs[bottleneck.subgraphs[0]].split.instances
        for name, offered in block.choices.items() if block else ():
            said = getattr(override, name) if override else AUTO
            here = instances if name == FACTOR else said  # auto has a number of parts too
            for value in subgraph_knobs()[name].neighbours(here, offered):
                if value != said and name not in _ALONE_NOTHING:
                    yield self.knob(bottleneck.anchors, name, value)

    def _of_model(self, bottleneck: Bottleneck, limits: Iterable[Limit]) -> Iterator[Remedy]:
        if Limit.MATRIX not in limits or not bottleneck.layers:
            return
        seen = set()
        for tensor, dim in _channel_dims(self.schedule, bottleneck):
            channels = channels_of(self.schedule.model, tensor, dim)
            if channels is not None and channels not in seen:
                seen.add(channels)
                for extent in paddings(channels.extent, self.target):
                    yield self._padding(channels, tensor, dim, extent)

    def _of_target(self, limits: Iterable[Limit]) -> Iterator[Remedy]:
        tried = dict.fromkeys(entry for limit in limits for entry in FIELDS[limit])
        for path, factor in tried:
            was = field_of(self.target, path)
            if was is None:
                continue
            try:
                yield self.field(path, _times(was, factor))
            except AutoTurboError:  # past what a target may have
                continue


def _ordered(remedies: Iterable[Remedy]) -> tuple[Remedy, ...]:
    return tuple(sorted(remedies, key=lambda r: float("inf") if r.gain is None else -r.gain))


def limits_of(bottleneck: Bottleneck) -> tuple[Limit, ...]:
    """Return what bounds a bottleneck: its largest share of time, and a second that matters."""
    ordered = sorted(Limit, key=lambda limit: -bottleneck.shares.part(limit))
    return tuple(limit for limit in ordered[:2] if bottleneck.shares.part(limit) >= _MINOR) or (
        ordered[0],
    )


def with_knob(knobs: Knobs, layers: tuple[str, ...], name: str, value: Value) -> Knobs:
    """Return knobs with one changed: of sub-graphs, named by layers, or without any the model's."""
    overrides = {override.layer: override for override in knobs.overrides}
    change: dict[str, Any] = {name: value}
    if not layers:
        return dataclasses.replace(knobs, **change)
    for layer in layers:
        overrides[layer] = dataclasses.replace(overrides.get(layer, SubGraphKnobs(layer)), **change)
    return dataclasses.replace(knobs, overrides=tuple(overrides.values()))


def field_of(target: Target, path: str) -> Any:
    """Return a field of a target as its file has it; None where it lacks the field.

    ``path`` is as for :func:`autoturbo.hardware.with_field`, with engines by kind.
    """
    section, _, name = path.rpartition(".")
    document = target.as_dict()
    owner: dict[str, Any]
    if section.startswith("engines["):
        kind = section.removeprefix("engines[").removesuffix("]")
        owner = next((e for e in document["engines"] if e["kind"] == kind), {})
    else:
        owner = document.get(section, {}) if section else document
    return owner.get(name)


def paddings(extent: int, target: Target) -> tuple[int, ...]:
    """Return numbers of channels that fill the matrix array or spread evenly over cores."""
    matrix, cores = target.matrix, target.cores
    units = {matrix.columns, matrix.rows, matrix.columns * cores, cores}
    widths = {-(-extent // unit) * unit for unit in units}
    return tuple(n for n in sorted(widths) if extent < n <= MOST_PADDING * extent)


def _channel_dims(schedule: Schedule, bottleneck: Bottleneck) -> Iterator[tuple[int, int]]:
    """Yield dimensions of activations that a bottleneck's product with weights reads or makes."""
    graph = schedule.model
    layer = next(one for one in schedule.context.layers if one.name == bottleneck.layers[0])
    operator = graph.operators[layer.anchor]
    if operator.engine is not Engine.MATRIX or operator.opaque:
        return
    weights = [p for p, t in enumerate(operator.inputs) if graph.tensors[t].constant]
    shared = {axis for position in weights for axis in operator.input_axes(position)}
    own = {a for a in shared if operator.axes[a].kind is not AxisKind.WINDOW}
    held = [
        *zip(operator.inputs, operator.input_maps, strict=True),
        *zip(operator.outputs, operator.output_maps, strict=True),
    ]
    for tensor, access in held:
        for dim, one in enumerate(access.dims):
            if not graph.tensors[tensor].constant and own & {a for a, _ in one.terms}:
                yield tensor, dim


def _times(value: Any, factor: float) -> Any:
    """Return a number, or one per data type, multiplied; whole numbers stay whole."""
    if isinstance(value, dict):
        return {name: _times(number, factor) for name, number in value.items()}
    product = value * factor
    return int(product) if isinstance(value, int) and product == int(product) else product


def _changed(was: Any, value: Any) -> str:
    """Return ``64 -> 128``; for figures per data type the factor alone."""
    if isinstance(was, dict) and isinstance(value, dict):
        ratios = {f"x{value[name] / was[name]:g}" for name in was if was[name] and name in value}
        return ", ".join(sorted(ratios))
    shown = [f"{v:g}" if isinstance(v, int | float) else str(v) for v in (was, value)]
    return " -> ".join(shown)
