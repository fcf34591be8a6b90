"""Every decision the scheduler can be told, as fields of two frozen dataclasses.

``"auto"`` is what the published heuristic does (GraphTurbo, OSDI '23, sections 3 and 4);
``Knobs()`` is GraphTurbo as published. :class:`SubGraphKnobs` overrides the model's setting for one
sub-graph, named by a layer, since sub-graphs exist only once the cuts are known. Command-line help,
knob files, the search space and ``docs/knobs.md`` derive from the fields'
:class:`KnobSpec`.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import hashlib
import itertools
import json
import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from autoturbo.errors import KnobsError, Location, did_you_mean
from autoturbo.files import read_json
from autoturbo.schedule.host_plan import HostPlan
from autoturbo.schedule.unit_knobs import UnitKnobs
from autoturbo.schema import Real

SCHEDULER_VERSION = "5"
"""Raised whenever the same knobs would give another schedule; part of every database key."""

KNOBS_SCHEMA = 2
"""Version of the knob set, part of the scheduler version: a record of another one is not reused."""

MIDDLE_PRIORITY = 5
"""Priority of a sub-graph that has none of its own."""

AUTO: Final = "auto"
Value = str | int | float

_OLD_NAMES = {
    "cluster_split": "cluster_partitioning",
    "core_dim": "core_parallel_dim",
    "factor_scale": "instance_multiplier",
    "lb_fill": "lb_occupancy_limit",
    "tile_divisor": "tile_subdivision",
    "weight_share": "weight_buffer_fraction",
}
_OLD_VALUES = {
    "merge_order": {"s": "straight", "d": "diamond", "b": "branch"},
    "split_key": {"o": "operators", "f": "factor", "d": "depth"},
}
"""Names and letters of earlier states of version 0.1, which are read until version 0.2."""

KnobScope = Literal["model", "subgraph", "layer"]
"""What a knob is about: all sub-graphs, the one that a layer ends up in, or the layer alone."""

KnobGroup = Literal["outer", "inner"]
"""Knobs that mean something together: the axis that is cut first and its parts, and the second."""


class Stage(enum.IntEnum):
    """The passes, in their order."""

    SHARE = enum.auto()
    PARTITION = enum.auto()
    ORDER = enum.auto()
    BIND = enum.auto()
    PLACE = enum.auto()
    MEMORY = enum.auto()
    CODEGEN = enum.auto()


@dataclass(frozen=True, slots=True)
class KnobSpec:
    """Meaning of a knob and the values that it accepts.

    Attributes:
        stage: The first pass that reads it; nothing before depends on it.
        help: One line.
        choices: The values the search tries besides ``"auto"``; empty where they depend on model
            and target (filled in by the search space).
        published: What ``"auto"`` stands for, for people.
        low: Least value accepted from a file, for numbers; None for words.
        high: Greatest value accepted from a file; None for no limit.
        word: A further word that is accepted: the name of what ``"auto"`` stands for.
        scope: What it is about.
        group: What it belongs to, of the knobs that split a sub-graph.
        over: The model's knob that says what ``"auto"`` is, where its name is another one.
    """

    stage: Stage
    help: str
    choices: tuple[Value, ...]
    published: str
    low: float | None = None
    high: float | None = None
    word: str | None = None
    scope: KnobScope = "model"
    group: KnobGroup | None = None
    over: str | None = None

    @property
    def words(self) -> tuple[str, ...]:
        """Return the accepted words; for numbers only ``"auto"``."""
        if self.low is not None:
            return (AUTO,)
        return (AUTO, *map(str, self.choices), *((self.word,) if self.word else ()))

    @property
    def whole(self) -> bool:
        """Return whether its numbers are integers."""
        return not any(isinstance(choice, float) for choice in self.choices)


def knob(stage: Stage, text: str, choices: tuple[Value, ...], published: str, **others: Any) -> Any:
    """Return a dataclass field with a :class:`KnobSpec`, ``"auto"`` by default."""
    spec = KnobSpec(stage, text, choices, published, **others)
    return field(default=AUTO, metadata={"spec": spec})


_share, _partition, _order, _bind, _place, _memory, _codegen = (
    functools.partial(knob, stage) for stage in Stage
)


def _orders(*words: str) -> tuple[str, ...]:
    """Return the orders of some words but for the given one, each with hyphens between."""
    return tuple("-".join(order) for order in itertools.permutations(words))[1:]


@functools.cache
def specs_of(knobs: type) -> dict[str, KnobSpec]:
    """Return the knobs among the fields of a dataclass, in their order."""
    fields = dataclasses.fields(knobs)
    return {f.name: f.metadata["spec"] for f in fields if "spec" in f.metadata}


def _check_value(value: Any, spec: KnobSpec, at: Location, prefix: str = "") -> None:
    """Refuse a value that a knob does not take; ``prefix`` names the knob if ``at`` does not.

    Raises:
        KnobsError: The knob takes other words or numbers, or the number is out of its range.
    """
    if isinstance(value, str) and value in spec.words:
        return
    if spec.low is None:
        words = ", ".join(spec.words)
        raise KnobsError(f"{prefix}{value!r} is not a value of it", at, f"one of {words}")
    kinds, kind = ((int,), "a whole number") if spec.whole else ((int, float), "a number")
    if isinstance(value, bool) or not isinstance(value, kinds):
        raise KnobsError(f"{prefix}{value!r} is not {kind}", at)
    high = float("inf") if spec.high is None else spec.high
    if not spec.low <= value <= high:
        span = f"at least {spec.low}" if spec.high is None else f"from {spec.low} to {high}"
        raise KnobsError(f"{prefix}{value!r} is out of range", at, span)


@dataclass(frozen=True, slots=True)
class Knobs:
    """A candidate: a value for every knob of the scheduler."""

    batches_per_cluster: int | str = _share(
        "samples that a cluster processes at once; the loop count follows",
        (),
        "the cluster's whole share of the batch",
        low=1,
    )
    producer_factor_ratio: float | str = _partition(
        "merge rule (i): factor of the consumer >= this x that of the producer",
        (0.125, 0.25, 0.5, 2.0),
        "1",
        low=0,
        high=64,
    )
    merged_factor_ratio: float | str = _partition(
        "merge rules (i), (ii): factor of the merged <= this x that of the consumer",
        (0.5, 2.0, 4.0, 8.0),
        "1",
        low=0,
        high=64,
    )
    max_layers: int | str = _partition(
        "most layers in one sub-graph", (1, 2, 4, 8, 16, 32), "no limit", low=1
    )
    lb_occupancy_limit: float | str = _partition(
        "share of the local buffer that counts as full when splitting",
        (0.25, 0.5, 0.75, 0.9),
        "1",
        low=0.05,
        high=1,
    )
    recompute_limit: float | str = _partition(
        "most work of a split sub-graph over the work of the whole one",
        (1.0, 1.5, 2.0, 4.0),
        "1.25",
        low=1,
        high=16,
    )
    merge_order: str = _partition(
        "order of the merge patterns (straight, diamond, branch)",
        _orders("straight", "diamond", "branch"),
        "straight-diamond-branch",
        word="straight-diamond-branch",
    )
    split_key: str = _partition(
        "order of the keys that choose a split (operators cut, factor, depth)",
        _orders("operators", "factor", "depth"),
        "operators-factor-depth",
        word="operators-factor-depth",
    )
    split_dims: str = _partition(
        "which output dimensions may be split",
        ("batch", "spatial", "channel"),
        "all of them",
        word="all",
    )
    factor_policy: str = _partition(
        "factors tried: the paper's list, all divisors, or ragged parts too",
        ("divisors", "ragged"),
        "the paper's list 1, 2, 4, 8, 9, 10, ...",
        word="published",
    )
    instance_multiplier: int | str = _partition(
        "instances per sub-graph over the smallest number that fits", (2, 4, 8), "1", low=1, high=64
    )
    instance_order: str = _order(
        "order of the instances",
        ("bfs", "dfs", "footprint", "priority"),
        "breadth- or depth-first, whichever needs less memory",
    )
    binding: str = _bind(
        "how core bindings reach producers",
        ("always",),
        "as printed in Algorithm 4",
        word="printed",
    )
    output_scope: str = _place(
        "where the outputs of sub-graphs are kept",
        ("GB", "DDR"),
        "LB, GB where bindings differ",
        word="LB",
    )
    spill_victim: str = _memory(
        "which tensor leaves the local buffer first",
        ("largest", "size_times_lifetime"),
        "longest-lived",
        word="longest",
    )
    weight_residency: str = _memory(
        "where the weights of a sub-graph stay between its instances",
        ("GB", "LB"),
        "streamed each time",
        word="stream",
    )
    prefetch_depth: int | str = _codegen(
        "tiles loaded ahead of the one computed", (2, 3, 4), "1", low=1, high=16
    )
    tile_subdivision: int | str = _codegen(
        "anchor tiles per largest tile that fits", (2, 4, 8), "1", low=1, high=256
    )
    instruction_scheduling: str = _codegen(
        "overlap transfers and compute: across layers, inside a layer, not at all",
        ("layer", "off"),
        "on",
        word="on",
    )
    cluster_partitioning: str = _share(
        "what the clusters share out: samples, rows, channels or sub-graphs in a pipeline",
        ("spatial", "channel", "pipeline"),
        "samples",
        word="batch",
    )
    weight_buffer_fraction: float | str = _memory(
        "share of a core's local buffer for weight tiles",
        (0.1, 0.2, 0.3, 0.5),
        "the target's weight buffer",
        low=0.01,
        high=0.9,
    )
    overrides: tuple[SubGraphKnobs, ...] = field(default=(), metadata={})
    units: UnitKnobs | None = field(default=None, metadata={})
    """Who runs what, on a machine of several units; as PartitionTuner assigns it if None."""
    host: HostPlan | None = field(default=None, metadata={})
    """How a batch runs on this computer; None on every other target."""

    def __post_init__(self) -> None:
        """Bring equal candidates into one canonical form.

        1 for 1.0, "auto" for a published word; one override per layer, later choices over earlier
        ones, ordered by name, without empty overrides.
        """
        for name, spec in knob_specs().items():
            value = getattr(self, name)
            if value == spec.word:
                object.__setattr__(self, name, AUTO)
            elif isinstance(value, float) and value.is_integer():
                object.__setattr__(self, name, int(value))
        if self.overrides != ():
            object.__setattr__(self, "overrides", _one_per_layer(self.overrides))

    @property
    def id(self) -> str:
        """Return the first 16 hexadecimal digits of the SHA-256 of the canonical JSON."""
        return hashlib.sha256(self.canonical().encode()).hexdigest()[:16]

    def canonical(self) -> str:
        """Return the canonical JSON of the candidate: sorted keys, no value that is ``"auto"``."""
        return json.dumps(self.as_dict(), sort_keys=True, separators=(",", ":"))

    def as_dict(self) -> dict[str, Any]:
        """Return the plain values that differ from the published heuristic."""
        chosen = {name: v for name in knob_specs() if (v := getattr(self, name)) != AUTO}
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
        place, known = at or Location(), _respelled(values)
        items = known.pop("overrides", [])
        if not isinstance(items, list):
            raise KnobsError("expected a list", dataclasses.replace(place, field="overrides"))
        overrides = tuple(_override(item, place) for item in items)
        units = UnitKnobs.from_dict(known.pop("units"), place) if "units" in known else None
        host = HostPlan.from_dict(known.pop("host"), place) if "host" in known else None
        for name, value in known.items():
            knob_place, spec = dataclasses.replace(place, field=name), knob_specs().get(name)
            if spec is None:
                raise KnobsError("unknown knob", knob_place, did_you_mean(name, knob_specs()))
            _check_value(value, spec, knob_place)
        return Knobs(**known, overrides=overrides, units=units, host=host)


_own_partition, _own_order, _own_bind, _own_place = (
    functools.partial(knob, stage, scope="subgraph")
    for stage in (Stage.PARTITION, Stage.ORDER, Stage.BIND, Stage.PLACE)
)


def _overriding(name: str, *published: Value) -> Any:
    """Return a field that overrides the model's knob of the same name for one sub-graph.

    Its ``"auto"`` is the model's value, so the word behind the model's ``"auto"`` is a choice too.
    """
    spec = specs_of(Knobs)[name]
    limits, choices = {"low": spec.low, "high": spec.high}, (*published, *spec.choices)
    return knob(spec.stage, spec.help, choices, "as the model's", scope="subgraph", **limits)


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
        Stage.PARTITION,
        "cut or merge where the layer meets its consumers, whatever the rules say",
        ("cut", "merge"),
        "as the rules say",
        scope="layer",
    )
    dim: int | str = _own_partition(
        "output dimension to split, counted from the outermost loop",
        (),
        "the one that the split keys choose",
        low=0,
        group="outer",
    )
    factor: int | str = _own_partition(
        "instances along the split dimension",
        (),
        "the smallest number that fits",
        low=1,
        group="outer",
    )
    inner_dim: int | str = _own_partition(
        "second output dimension to split, inside the first",
        (),
        "none; with inner_factor the outermost other one",
        low=0,
        group="inner",
    )
    inner_factor: int | str = _own_partition(
        "instances along the second dimension; all are factor x inner_factor",
        (),
        "1",
        low=1,
        group="inner",
    )
    cores: int | str = _own_bind(
        "cores of the cluster that work on an instance; a divisor of their number",
        (),
        "all of them",
        low=1,
    )
    core_parallel_dim: int | str = _own_bind(
        "output dimension spread over cores first, then those inside it",
        (),
        "as Algorithm 4 binds it",
        low=0,
    )
    priority: int | str = _own_order(
        "which goes first where the instance order is by priority; 9 before 0",
        (1, 3, 7, 9),
        str(MIDDLE_PRIORITY),
        low=0,
        high=9,
    )
    scope: str = _own_place(
        "where the output is kept",
        ("LB", "GB", "DDR"),
        "as output_scope says",
        over="output_scope",
    )
    spill_victim: str = _overriding("spill_victim", "longest")
    weight_residency: str = _overriding("weight_residency", "stream")
    weight_buffer_fraction: float | str = _overriding("weight_buffer_fraction")
    prefetch_depth: int | str = _overriding("prefetch_depth", 1)
    tile_subdivision: int | str = _overriding("tile_subdivision", 1)
    instruction_scheduling: str = _overriding("instruction_scheduling", "on")

    def __post_init__(self) -> None:
        """Bring equal overrides into one canonical form.

        The middle priority is "auto"; so is a second axis in one part or along the first one, and a
        dimension that is not split. If only one axis is split, it is the first.
        """
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
        values = zip(subgraph_knob_specs(), _own_values(self), strict=True)
        return {"layer": self.layer, **{n: v for n, v in values if v != AUTO}}

    def over(self, other: SubGraphKnobs) -> SubGraphKnobs:
        """Return its choices, with those of ``other`` where it has none."""
        values: tuple[Any, ...] = _overlaid(_own_values(other), _own_values(self))
        return SubGraphKnobs(self.layer, *values)


_own_values: Callable[[SubGraphKnobs], tuple[Value, ...]]
_own_values = operator.attrgetter(*specs_of(SubGraphKnobs))
_UNSAID = _own_values(SubGraphKnobs(""))


@functools.lru_cache(maxsize=1 << 14)
def _overlaid(below: tuple[Value, ...], own: tuple[Value, ...]) -> tuple[Value, ...]:
    """Return the values of ``own``, with those of ``below`` where they are ``"auto"``."""
    return tuple(b if v == AUTO else v for v, b in zip(own, below, strict=True))


def knob_specs() -> dict[str, KnobSpec]:
    """Return the model's knobs and their specifications, in the order of the dataclass."""
    return specs_of(Knobs)


def subgraph_knob_specs() -> dict[str, KnobSpec]:
    """Return the knobs of one sub-graph and their specifications, in the order of the dataclass."""
    return specs_of(SubGraphKnobs)


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
        for name, spec in (*knob_specs().items(), *subgraph_knob_specs().items())
        if spec.scope in scopes
        and (after or 0) < spec.stage <= upto
        and group in (None, spec.group)
    )


KnobsJson = dict[str, str | Real | list[dict[str, str | Real]]]
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
    if (name := subgraph_knob_specs()[own].over or own) in knob_specs()
]  # fmt: skip
_NO_VALUES = (AUTO,) * (len(_KERNEL_NAMES) - len(_MODEL_NAMES))
"""Of those that the model has no knob for, which come first."""
_kernel_values: Callable[[SubGraphKnobs], KernelKnobs] = operator.attrgetter(*_KERNEL_NAMES)
_model_values: Callable[[Knobs], KernelKnobs] = operator.attrgetter(*_MODEL_NAMES)


def load_knobs(path: Path) -> Knobs:
    """Return the knobs of a file (JSON object of knob names and values).

    Raises:
        KnobsError: The file cannot be read or holds something else.
    """
    try:
        values = read_json(path)
    except json.JSONDecodeError as error:
        place = Location(path, error.lineno, error.colno)
        raise KnobsError("not JSON", place, f"the parser says: {error.msg}") from None
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8 text"
        raise KnobsError(f"cannot read: {reason}", Location(path)) from None
    if not isinstance(values, dict):
        raise KnobsError("expected an object of knobs", Location(path), "for example {}")
    return Knobs.from_dict(values, Location(path))


def _one_per_layer(overrides: Iterable[SubGraphKnobs]) -> tuple[SubGraphKnobs, ...]:
    merged: dict[str, SubGraphKnobs] = {}
    for o in overrides:
        merged[o.layer] = o.over(merged[o.layer]) if o.layer in merged else o
    nonempty = (o for o in merged.values() if _own_values(o) != _UNSAID)
    return tuple(sorted(nonempty, key=lambda o: o.layer))


def current_name(name: str) -> str:
    """Return today's name of a knob; a name that is not an earlier one stays as it is."""
    return _OLD_NAMES.get(name, name)


def _respelled(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return knobs with earlier names and values in today's spelling."""
    spelled = {}
    for old, value in values.items():
        name = old if current_name(old) in values else current_name(old)
        letters = _OLD_VALUES.get(name, {})
        if isinstance(value, str) and len(value) == len(letters) and set(value) == set(letters):
            value = "-".join(letters[letter] for letter in value)  # noqa: PLW2901
        spelled[name] = "size_times_lifetime" if value == "size_x_life" else value
    return spelled


def _override(item: Any, at: Location) -> SubGraphKnobs:
    at = dataclasses.replace(at, field="overrides")
    if not isinstance(item, dict) or not isinstance(item.get("layer"), str):
        raise KnobsError("an override needs the name of a layer", at, '{"layer": "conv1", ...}')
    item, specs = _respelled(item), subgraph_knob_specs()
    for name in (name for name in item if name != "layer"):
        if name not in specs:
            raise KnobsError(f"unknown field {name!r}", at, did_you_mean(name, ("layer", *specs)))
        _check_value(item[name], specs[name], at, f"{name}: ")
    inner = item.get("inner_dim", AUTO)
    if inner != AUTO and inner == item.get("dim"):
        message = f"inner_dim: {inner} is the dimension that dim splits already"
        raise KnobsError(message, at, "take another one, or a larger factor")
    return SubGraphKnobs(**item)


LAYERWISE: Final = Knobs(instruction_scheduling="off")
"""Of a compiler that schedules layer by layer: no software pipeline in any kernel."""
