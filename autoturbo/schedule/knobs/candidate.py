"""Every decision the scheduler can be told, as fields of two frozen dataclasses.

``"auto"`` is what the published heuristic does (GraphTurbo, OSDI '23, sections 3 and 4);
``Knobs()`` is GraphTurbo as published. :class:`SubGraphKnobs` overrides the model's setting for one
sub-graph, named by a layer, since sub-graphs exist only once the cuts are known. What a field's
value means, its :class:`~autoturbo.schedule.knobs.kinds.Knob` knows.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import itertools
import json
import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from autoturbo.errors import KnobsError, Location, did_you_mean
from autoturbo.graph.ordering import AS_IN_FILE, BRANCHES, LEAST_BYTES, LONGEST_PATH
from autoturbo.schedule.host_plan import HostPlan
from autoturbo.schedule.knobs.kinds import (
    AUTO,
    FAR,
    GLOBAL_BUFFER,
    LOADS_OVER_KERNELS,
    MIDDLE_PRIORITY,
    SEVERAL_CLUSTERS,
    Boundary,
    Cores,
    Dimensions,
    FetchAhead,
    InnerParts,
    Knob,
    KnobGroup,
    KnobScope,
    LayerOrder,
    Layers,
    Numbers,
    Parts,
    Priority,
    Samples,
    SpreadDimensions,
    Stage,
    Value,
    WeightShare,
    WeightWords,
    Words,
    own_of,
)
from autoturbo.schedule.knobs.spelling import respelled
from autoturbo.schedule.unit_knobs import UnitKnobs

SCHEDULER_VERSION = "7"
"""Raised whenever the same knobs would give another schedule; part of every database key."""

KNOBS_SCHEMA = 3
"""Version of the knob set, part of the scheduler version: a record of another one is not reused."""


def knob(decision: Knob) -> Any:
    """Return a dataclass field for a knob, ``"auto"`` by default."""
    return field(default=AUTO, metadata={"knob": decision})


def _orders(*words: str) -> tuple[str, ...]:
    """Return the orders of some words, joined by hyphens, without the given one."""
    return tuple("-".join(order) for order in itertools.permutations(words))[1:]


@functools.cache
def knobs_of(candidate: type) -> dict[str, Knob]:
    """Return the knobs among the fields of a dataclass, in their order."""
    fields = dataclasses.fields(candidate)
    return {f.name: f.metadata["knob"] for f in fields if "knob" in f.metadata}


@dataclass(frozen=True, slots=True)
class Knobs:
    """A candidate: a value for every knob of the scheduler."""

    batches_per_cluster: int | str = knob(
        Samples(
            stage=Stage.SHARE,
            help="samples that a cluster processes at once; the loop count follows",
            published="the cluster's whole share of the batch",
            low=1,
        )
    )
    producer_factor_ratio: float | str = knob(
        Numbers(
            stage=Stage.PARTITION,
            help="merge rule (i): factor of the consumer >= this x that of the producer",
            choices=(0.125, 0.25, 0.5, 2.0),
            published="1",
            published_number=1,
            low=0,
            high=64,
        )
    )
    merged_factor_ratio: float | str = knob(
        Numbers(
            stage=Stage.PARTITION,
            help="merge rules (i), (ii): factor of the merged <= this x that of the consumer",
            choices=(0.5, 2.0, 4.0, 8.0),
            published="1",
            published_number=1,
            low=0,
            high=64,
        )
    )
    max_layers: int | str = knob(
        Layers(
            stage=Stage.PARTITION,
            help="most layers in one sub-graph",
            choices=(1, 2, 4, 8, 16, 32),
            published="no limit",
            low=1,
        )
    )
    lb_occupancy_limit: float | str = knob(
        Numbers(
            stage=Stage.PARTITION,
            help="share of the local buffer that counts as full when splitting",
            choices=(0.25, 0.5, 0.75, 0.9),
            published="1",
            published_number=1,
            low=0.05,
            high=1,
        )
    )
    part_memory: str = knob(
        Words(
            stage=Stage.PARTITION,
            help="memory that parts have to fit; what of those in GB has no room in LB passes it "
            "tile by tile",
            choices=("GB",),
            published="LB",
            needs=(("GB", GLOBAL_BUFFER),),
        )
    )
    recompute_limit: float | str = knob(
        Numbers(
            stage=Stage.PARTITION,
            help="most work of a split sub-graph over the work of the whole one",
            choices=(1.0, 1.5, 2.0, 4.0),
            published="1.25",
            published_number=1.25,
            low=1,
            high=16,
        )
    )
    merge_order: str = knob(
        Words(
            stage=Stage.PARTITION,
            help="order of the merge patterns (straight, diamond, branch)",
            choices=_orders("straight", "diamond", "branch"),
            published="straight-diamond-branch",
            word="straight-diamond-branch",
            searched=False,
        )
    )
    split_key: str = knob(
        Words(
            stage=Stage.PARTITION,
            help="order of the keys that choose a split (operators cut, factor, depth)",
            choices=_orders("operators", "factor", "depth"),
            published="operators-factor-depth",
            word="operators-factor-depth",
        )
    )
    split_dims: str = knob(
        Words(
            stage=Stage.PARTITION,
            help="which output dimensions may be split",
            choices=("batch", "spatial", "channel"),
            published="all of them",
            word="all",
        )
    )
    factor_policy: str = knob(
        Words(
            stage=Stage.PARTITION,
            help="factors tried: the paper's list, all divisors, or ragged parts too",
            choices=("divisors", "ragged"),
            published="the paper's list 1, 2, 4, 8, 9, 10, ...",
            word="published",
        )
    )
    instance_multiplier: int | str = knob(
        Numbers(
            stage=Stage.PARTITION,
            help="instances per sub-graph over the smallest number that fits",
            choices=(2, 4, 8),
            published="1",
            published_number=1,
            low=1,
            high=64,
        )
    )
    instance_order: str = knob(
        Words(
            stage=Stage.ORDER,
            help="order of the instances",
            choices=("bfs", "dfs", "footprint"),
            untried=("priority",),  # says nothing where no priority is tried
            published="breadth- or depth-first, whichever needs less memory",
        )
    )
    binding: str = knob(
        Words(
            stage=Stage.BIND,
            help="how core bindings reach producers",
            choices=("always",),
            published="as printed in Algorithm 4",
            word="printed",
        )
    )
    output_scope: str = knob(
        Words(
            stage=Stage.PLACE,
            help="where the outputs of sub-graphs are kept",
            choices=("GB", "DDR"),
            published="LB, GB where bindings differ",
            word="LB",
            needs=(("GB", GLOBAL_BUFFER),),
            opens=("GB",),
        )
    )
    spill_victim: str = knob(
        Words(
            stage=Stage.MEMORY,
            help="which tensor leaves the local buffer first",
            choices=("largest", "size_times_lifetime"),
            published="longest-lived",
            word="longest",
            unseen=True,
        )
    )
    weight_residency: str = knob(
        WeightWords(
            stage=Stage.MEMORY,
            help="where the weights of a sub-graph stay between its instances",
            choices=("GB", "LB"),
            published="streamed each time",
            word="stream",
            needs=(("GB", GLOBAL_BUFFER),),
            opens=("LB", "GB"),
        )
    )
    prefetch_depth: int | str = knob(
        Numbers(
            stage=Stage.CODEGEN,
            help="tiles loaded ahead of the one computed",
            choices=(2, 3, 4),
            published="1",
            published_number=1,
            low=1,
            high=16,
            unseen=True,
        )
    )
    tile_subdivision: int | str = knob(
        Numbers(
            stage=Stage.CODEGEN,
            help="anchor tiles per largest tile that fits",
            choices=(2, 4, 8),
            published="1",
            published_number=1,
            low=1,
            high=256,
        )
    )
    instruction_scheduling: str = knob(
        Words(
            stage=Stage.CODEGEN,
            help="overlap transfers and compute: across layers, with tiles of layers in turn, "
            "inside a layer, not at all",
            choices=("tiles", "layer", "off"),
            published="on",
            word="on",
            unseen=True,  # layers that take turns
        )
    )
    cluster_partitioning: str = knob(
        Words(
            stage=Stage.SHARE,
            help="what the clusters share out: samples, rows, channels, of each output either of "
            "these, sub-graphs in a pipeline, or sub-graphs that can run side by side",
            choices=("spatial", "channel", "pipeline", "either"),
            untried=("branches",),  # a start has it where it gains
            published="samples",
            word="batch",
            needs=tuple(
                (way, SEVERAL_CLUSTERS)
                for way in ("spatial", "channel", "pipeline", "either", "branches")
            ),
        )
    )
    weight_buffer_fraction: float | str = knob(
        WeightShare(
            stage=Stage.MEMORY,
            help="share of a core's local buffer for weight tiles",
            choices=(0.1, 0.2, 0.3, 0.5),
            published="the target's weight buffer",
            low=0.01,
            high=0.9,
        )
    )
    layer_order: str = knob(
        LayerOrder(
            stage=Stage.SHARE,
            help="which layer goes first of those that could, which decides what can be merged",
            choices=(BRANCHES, LONGEST_PATH),
            published="least live bytes first",
            word=LEAST_BYTES,
            untried=(AS_IN_FILE,),  # a search depends on the graph alone
        )
    )
    used_cores: int | str = knob(
        Numbers(
            stage=Stage.SHARE,
            help="cores of each cluster that work; the others stay idle",
            published="all of them",
            low=1,
        )
    )
    used_lb_kib: int | str = knob(
        Numbers(
            stage=Stage.SHARE,
            help="KiB of each core's local buffer that are used",
            published="all of it",
            low=1,
        )
    )
    used_weight_kib: int | str = knob(
        Numbers(
            stage=Stage.SHARE,
            help="KiB of each core's weight buffer that are used",
            published="all of it",
            low=1,
        )
    )
    used_gb_kib: int | str = knob(
        Numbers(
            stage=Stage.SHARE,
            help="KiB of each cluster's global buffer that are used; 0 takes the way past it",
            published="all of it",
            low=0,
        )
    )
    core_groups: int | str = knob(
        Numbers(
            stage=Stage.SHARE,
            help="groups into which the cores of each cluster are divided; each works as a cluster "
            "of its own",
            published="1",
            published_number=1,
            low=1,
        )
    )
    fetch_ahead: int | str = knob(
        FetchAhead(
            stage=Stage.MEMORY,
            help="layers before its own from which on what it reads may be fetched into free GB; "
            f"{FAR}: as far as there is room",
            choices=(FAR, 64, 8),
            published="0, inside its own kernel",
            published_number=0,
            low=0,
            needs=tuple((far, LOADS_OVER_KERNELS) for far in (FAR, 64, 8)),
            opens=(FAR,),
            unseen=True,
        )
    )
    tiling: str = knob(
        Words(
            stage=Stage.CODEGEN,
            help="how each layer is cut into tiles: as few as fit, or so that it takes least time",
            choices=("cost",),
            published="the largest tiles that fit",
            word="largest",
        )
    )
    launches: str = knob(
        Words(
            stage=Stage.CODEGEN,
            help="whether kernels share a launch, and its barrier, with those before them of which "
            "they read nothing",
            choices=("shared",),
            published="one for each kernel",
            word="own",
        )
    )
    overrides: tuple[SubGraphKnobs, ...] = field(default=(), metadata={})
    units: UnitKnobs | None = field(default=None, metadata={})
    """Who runs what, on a machine of several units; as PartitionTuner assigns it if None."""
    host: HostPlan | None = field(default=None, metadata={})
    """How a batch runs on this computer; None on every other target."""

    def __post_init__(self) -> None:
        """Refuse what a knob does not take, and bring equal candidates into one form.

        1 for 1.0, "auto" for a published word; one override per layer, later choices over earlier
        ones, ordered by name, without empty overrides.

        Raises:
            KnobsError: A knob does not take its value.
        """
        for name, decision in model_knobs().items():
            value = getattr(self, name)
            if value == AUTO:
                continue
            decision.check(value, Location(field=name))
            if isinstance(decision, Words) and value == decision.word:
                object.__setattr__(self, name, AUTO)
            # The id is a hash of JSON, which writes 1 and 1.0 differently.
            elif isinstance(value, float) and value.is_integer():
                object.__setattr__(self, name, int(value))
        if self.overrides != ():
            object.__setattr__(self, "overrides", _one_per_layer(self.overrides))

    def __repr__(self) -> str:
        """Return one line with what differs from the published heuristic."""
        chosen = [
            f"{name}={value!r}" for name, value in self.as_dict().items() if name != "overrides"
        ]
        own = [f"overrides: {len(self.overrides)}"] if self.overrides else []
        return f"Knobs({', '.join(chosen + own)})"

    @property
    def id(self) -> str:
        """Return the first 16 hexadecimal digits of the SHA-256 of the canonical JSON."""
        return hashlib.sha256(self.canonical().encode()).hexdigest()[:16]

    def canonical(self) -> str:
        """Return the canonical JSON of the candidate: sorted keys, no value that is ``"auto"``."""
        return json.dumps(self.as_dict(), sort_keys=True, separators=(",", ":"))

    def as_dict(self) -> dict[str, Any]:
        """Return the plain values that differ from the published heuristic."""
        chosen = {name: v for name in model_knobs() if (v := getattr(self, name)) != AUTO}
        if self.overrides:
            chosen["overrides"] = [o.as_dict() for o in self.overrides]
        if self.units is not None:
            chosen["units"] = self.units.as_dict()
        if self.host is not None:
            chosen["host"] = self.host.as_dict()
        return chosen

    @staticmethod
    def from_dict(values: Mapping[str, Any], at: Location | None = None) -> Knobs:
        """Return the checked knobs of plain values.

        Raises:
            KnobsError: An unknown knob, or a value that it does not take.
        """
        place, known = at or Location(), respelled(values)
        items = known.pop("overrides", [])
        if not isinstance(items, list):
            raise KnobsError("expected a list", dataclasses.replace(place, field="overrides"))
        overrides = tuple(_override(item, place) for item in items)
        units = UnitKnobs.from_dict(known.pop("units"), place) if "units" in known else None
        host = HostPlan.from_dict(known.pop("host"), place) if "host" in known else None
        for name, value in known.items():
            knob_place, decision = dataclasses.replace(place, field=name), model_knobs().get(name)
            if decision is None:
                raise KnobsError("unknown knob", knob_place, did_you_mean(name, model_knobs()))
            # The constructor checks it too, but cannot name the file.
            decision.check(value, knob_place)
        return Knobs(**known, overrides=overrides, units=units, host=host)


def _overriding(name: str, *, searched: bool = True) -> Any:
    """Return a field that overrides the model's knob of the same name for one sub-graph."""
    own = own_of(knobs_of(Knobs)[name], name)
    return knob(dataclasses.replace(own, searched=searched))


@dataclass(frozen=True, slots=True)
class SubGraphKnobs:
    """Decisions for the sub-graph that holds one layer, overriding the model's.

    ``"auto"`` is what the model's knob of the same name says or, where there is none, the
    heuristic. Where several layers with overrides end up in one sub-graph, each field is that of
    the last such layer in topological order
    (:func:`autoturbo.schedule.partition.overrides.resolve`); ``boundary`` is about the layer
    itself. Dimensions are counted from the outermost loop (samples 0, then rows and columns,
    channels last, whatever the file's layout).

    Attributes:
        layer: Name of a layer; the override holds for the sub-graph that it ends up in.
    """

    layer: str
    boundary: str = knob(
        Boundary(
            stage=Stage.PARTITION,
            help="cut or merge where the layer meets its consumers, whatever the rules say",
            choices=("cut", "merge"),
            published="as the rules say",
            scope="layer",
        )
    )
    dim: int | str = knob(
        Dimensions(
            stage=Stage.PARTITION,
            help="output dimension to split, counted from the outermost loop",
            published="the one that the split keys choose",
            scope="subgraph",
            low=0,
            group="outer",
            unseen=True,
        )
    )
    factor: int | str = knob(
        Parts(
            stage=Stage.PARTITION,
            help="instances along the split dimension",
            published="the smallest number that fits",
            scope="subgraph",
            low=1,
            group="outer",
        )
    )
    inner_dim: int | str = knob(
        Dimensions(
            stage=Stage.PARTITION,
            help="second output dimension to split, inside the first",
            published="none; with inner_factor the outermost other one",
            scope="subgraph",
            low=0,
            group="inner",
            unseen=True,
            searched=False,
        )
    )
    inner_factor: int | str = knob(
        InnerParts(
            stage=Stage.PARTITION,
            help="instances along the second dimension; all are factor x inner_factor",
            published="1",
            published_number=1,
            scope="subgraph",
            low=1,
            group="inner",
            searched=False,
        )
    )
    cores: int | str = knob(
        Cores(
            stage=Stage.BIND,
            help="cores of the cluster that work on an instance; a divisor of their number",
            published="all of them",
            scope="subgraph",
            low=1,
            unseen=True,
        )
    )
    core_parallel_dim: int | str = knob(
        SpreadDimensions(
            stage=Stage.BIND,
            help="output dimension spread over cores first, then those inside it",
            published="as Algorithm 4 binds it",
            scope="subgraph",
            low=0,
            unseen=True,
        )
    )
    priority: int | str = knob(
        Priority(
            stage=Stage.ORDER,
            help="which goes first where the instance order is by priority; 9 before 0",
            choices=(1, 3, 7, 9),
            published=str(MIDDLE_PRIORITY),
            published_number=MIDDLE_PRIORITY,
            scope="subgraph",
            upon="instance_order",
            low=0,
            high=9,
            searched=False,
        )
    )
    scope: str = knob(
        Words(
            stage=Stage.PLACE,
            help="where the output is kept",
            choices=("LB", "GB", "DDR"),
            published="as output_scope says",
            scope="subgraph",
            over="output_scope",
            unseen=True,
            needs=(("GB", GLOBAL_BUFFER),),
        )
    )
    spill_victim: str = _overriding("spill_victim")
    weight_residency: str = _overriding("weight_residency")
    weight_buffer_fraction: float | str = _overriding("weight_buffer_fraction")
    prefetch_depth: int | str = _overriding("prefetch_depth")
    tile_subdivision: int | str = _overriding("tile_subdivision")
    instruction_scheduling: str = _overriding("instruction_scheduling")
    fetch_ahead: int | str = _overriding("fetch_ahead")
    tiling: str = _overriding("tiling", searched=False)  # the model's suits nearly all

    def __post_init__(self) -> None:
        """Refuse what a knob does not take, and bring equal overrides into one form.

        The middle priority is "auto"; so is a second axis in one part or along the first one, and a
        dimension that is not split. If only one axis is split, it is the first.

        Raises:
            KnobsError: A knob does not take its value.
        """
        if (values := _own_values(self)) == _UNSAID:
            return
        for name, value in zip(subgraph_knobs(), values, strict=True):
            if value != AUTO:
                subgraph_knobs()[name].check(value, Location(field="overrides"), f"{name}: ")
        chosen: dict[str, Value] = {}  # what is to change: mostly nothing, and a search makes many
        if self.priority == MIDDLE_PRIORITY:
            chosen["priority"] = AUTO
        factor, inner_factor = self.factor, self.inner_factor
        if factor == 1 and AUTO not in (self.inner_dim, inner_factor):
            chosen |= {"dim": self.inner_dim, "factor": inner_factor}
            factor, inner_factor = inner_factor, AUTO
        if inner_factor in (1, AUTO) or self.inner_dim == self.dim != AUTO:
            chosen |= {"inner_dim": AUTO, "inner_factor": AUTO}
        if factor == 1:
            chosen["dim"] = AUTO
        for name, value in chosen.items():
            object.__setattr__(self, name, value)

    def as_dict(self) -> dict[str, Any]:
        """Return the layer and the plain values that differ from ``"auto"``."""
        values = zip(subgraph_knobs(), _own_values(self), strict=True)
        return {"layer": self.layer, **{n: v for n, v in values if v != AUTO}}

    def over(self, other: SubGraphKnobs) -> SubGraphKnobs:
        """Return its choices, with those of ``other`` where it has none."""
        values: tuple[Any, ...] = _overlaid(_own_values(other), _own_values(self))
        return SubGraphKnobs(self.layer, *values)


_own_values: Callable[[SubGraphKnobs], tuple[Value, ...]]
_own_values = operator.attrgetter(*knobs_of(SubGraphKnobs))
_UNSAID: Final = (AUTO,) * len(knobs_of(SubGraphKnobs))


@functools.lru_cache(maxsize=1 << 14)
def _overlaid(below: tuple[Value, ...], own: tuple[Value, ...]) -> tuple[Value, ...]:
    """Return the values of ``own``, with those of ``below`` where they are ``"auto"``."""
    return tuple(b if v == AUTO else v for v, b in zip(own, below, strict=True))


def model_knobs() -> dict[str, Knob]:
    """Return the model's knobs by name, in the order of the dataclass."""
    return knobs_of(Knobs)


def subgraph_knobs() -> dict[str, Knob]:
    """Return the knobs of one sub-graph by name, in the order of the dataclass."""
    return knobs_of(SubGraphKnobs)


@functools.cache
def knob_names(
    *scopes: KnobScope,
    upto: Stage = Stage.CODEGEN,
    after: Stage | None = None,
    group: KnobGroup | None = None,
) -> tuple[str, ...]:
    """Return the knobs of some scopes, in the order of the dataclasses.

    Args:
        scopes: ``"model"`` for those of :class:`Knobs`; ``"subgraph"`` and ``"layer"`` for those of
            :class:`SubGraphKnobs`.
        upto: The last pass whose knobs count.
        after: The pass after which they begin to count; from the first one if None.
        group: Only those of a group.
    """
    return tuple(
        name
        for name, decision in (*model_knobs().items(), *subgraph_knobs().items())
        if decision.scope in scopes
        and (after or 0) < decision.stage <= upto
        and group in (None, decision.group)
    )


LAYER_ORDERS: Final = (AUTO, BRANCHES, LONGEST_PATH)
"""Values of the order of layers that may differ."""

SAMPLES: Final = next(n for n, d in model_knobs().items() if isinstance(d, Samples))
"""The knob of the samples that a cluster processes at once."""

KnobsJson = dict[str, str | float | list[dict[str, str | float]]]
"""Knobs that are not "auto", by name, as commands print them; overrides are a list."""

KernelKnobs = tuple[Value, ...]
"""Values of the knobs that hold for a whole sub-graph: how its kernel is cut and run."""


def kernel_knobs(knobs: Knobs, own: SubGraphKnobs | None = None) -> KernelKnobs:
    """Return the kernel knobs of a sub-graph: its own, else the model's."""
    model = (*_NO_VALUES, *_model_values(knobs))
    return model if own is None else _overlaid(model, _kernel_values(own))


_KERNEL_NAMES = knob_names("subgraph")
_MODEL_NAMES = [
    name for own in _KERNEL_NAMES
    if (name := subgraph_knobs()[own].over or own) in model_knobs()
]  # fmt: skip
_NO_VALUES = (AUTO,) * (len(_KERNEL_NAMES) - len(_MODEL_NAMES))
"""Of those that the model has no knob for, which come first."""
_kernel_values: Callable[[SubGraphKnobs], KernelKnobs] = operator.attrgetter(*_KERNEL_NAMES)
_model_values: Callable[[Knobs], KernelKnobs] = operator.attrgetter(*_MODEL_NAMES)


def _one_per_layer(overrides: Iterable[SubGraphKnobs]) -> tuple[SubGraphKnobs, ...]:
    merged: dict[str, SubGraphKnobs] = {}
    for o in overrides:
        merged[o.layer] = o.over(merged[o.layer]) if o.layer in merged else o
    nonempty = (o for o in merged.values() if _own_values(o) != _UNSAID)
    return tuple(sorted(nonempty, key=lambda o: o.layer))


def _override(item: Any, at: Location) -> SubGraphKnobs:
    at = dataclasses.replace(at, field="overrides")
    if not isinstance(item, dict) or not isinstance(item.get("layer"), str):
        raise KnobsError("an override needs the name of a layer", at, '{"layer": "conv1", ...}')
    item, decisions = respelled(item), subgraph_knobs()
    for name in (name for name in item if name != "layer"):
        if name not in decisions:
            hint = did_you_mean(name, ("layer", *decisions))
            raise KnobsError(f"unknown field {name!r}", at, hint)
        decisions[name].check(item[name], at, f"{name}: ")
    inner = item.get("inner_dim", AUTO)
    if inner != AUTO and inner == item.get("dim"):
        message = f"inner_dim: {inner} is the dimension that dim splits already"
        raise KnobsError(message, at, "take another one, or a larger factor")
    return SubGraphKnobs(**item)


LAYERWISE: Final = Knobs(instruction_scheduling="off")
"""Of a compiler that schedules layer by layer: no software pipeline in any kernel."""
