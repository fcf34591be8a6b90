"""Every decision the scheduler can be told, as fields of one frozen dataclass.

``"auto"`` is what the published heuristic does (GraphTurbo, OSDI '23, sections 3 and 4);
``Knobs()`` is GraphTurbo as published. Command-line help, knob files, the search space and the
documentation derive from the fields' :class:`KnobSpec`.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from autoturbo.errors import KnobsError, Location

AUTO: Final = "auto"
Value = str | int | float

KNOBS_SCHEMA = 1
"""Version of the knob set, part of the scheduler version: a record of another one is not reused."""


@dataclass(frozen=True, slots=True)
class KnobSpec:
    """What a knob means and which values it takes.

    Attributes:
        help: one line.
        choices: the values the search tries besides ``"auto"``; empty where they depend on model
            and target (filled in by the search space).
        published: what ``"auto"`` stands for, for people.
        low: least value accepted from a file, for numbers.
        high: greatest value accepted from a file.
    """

    help: str
    choices: tuple[Value, ...]
    published: str
    low: float | None = None
    high: float | None = None


def knob(
    text: str,
    choices: tuple[Value, ...],
    published: str,
    low: float | None = None,
    high: float | None = None,
) -> Any:
    """A field of :class:`Knobs` with its specification, ``"auto"`` by default."""
    spec = KnobSpec(text, choices, published, low, high)
    return field(default=AUTO, metadata={"spec": spec})


@dataclass(frozen=True, slots=True)
class SubGraphKnobs:
    """Decisions for the sub-graph that holds one layer, overriding the model's.

    Attributes:
        layer: name of a layer; the override holds for the sub-graph that it ends up in.
        boundary: ``"cut"`` keeps the layer from merging with its consumers, ``"merge"`` lets it
            merge whatever the rules say, ``"auto"`` leaves it to the rules.
        dim: output dimension to split, counted from the outermost loop (samples 0, then rows and
            columns, channels last, whatever the file's layout), or ``"auto"``.
        factor: number of instances, or ``"auto"``.
        scope: where the output is kept (``"LB"``, ``"GB"``, ``"DDR"``), or ``"auto"``.
    """

    layer: str
    boundary: str = AUTO
    dim: int | str = AUTO
    factor: int | str = AUTO
    scope: str = AUTO
    inner_dim: int | str = AUTO
    inner_factor: int | str = AUTO
    cores: int | str = AUTO
    core_dim: int | str = AUTO
    priority: int | str = AUTO
    spill_victim: str = AUTO
    weight_residency: str = AUTO
    weight_share: float | str = AUTO
    prefetch_depth: int | str = AUTO
    tile_divisor: int | str = AUTO
    instruction_scheduling: str = AUTO


@dataclass(frozen=True, slots=True)
class Knobs:
    """A complete setting of the scheduler."""

    cluster_split: str = knob(
        "what the clusters share out",
        ("spatial", "channel", "pipeline"),
        "samples",
    )
    batches_per_cluster: int | str = knob(
        "samples that a cluster processes at once; the loop count follows",
        (),
        "the cluster's whole share of the batch",
        low=1,
    )
    producer_factor_ratio: float | str = knob(
        "rule (i): f(consumer) >= this x f(producer)",
        (0.125, 0.25, 0.5, 2.0),
        "1",
        low=0,
        high=64,
    )
    merged_factor_ratio: float | str = knob(
        "rules (i) and (ii): f(merged) <= this x f(consumer)",
        (0.5, 2.0, 4.0, 8.0),
        "1",
        low=0,
        high=64,
    )
    max_layers: int | str = knob(
        "most layers in one sub-graph",
        (1, 2, 4, 8, 16, 32),
        "no limit",
        low=1,
    )
    lb_fill: float | str = knob(
        "share of the local buffer that counts as full when splitting",
        (0.25, 0.5, 0.75, 0.9),
        "1",
        low=0.05,
        high=1,
    )
    recompute_limit: float | str = knob(
        "most work of a split sub-graph over the work of the whole one",
        (1.0, 1.5, 2.0, 4.0),
        "1.25",
        low=1,
        high=16,
    )
    merge_order: str = knob(
        "order of the merge patterns (straight, diamond, branch)",
        ("sbd", "dsb", "dbs", "bsd", "bds"),
        "sdb",
    )
    split_key: str = knob(
        "order of the keys that choose a split (operators cut, factor, depth)",
        ("odf", "fod", "fdo", "dof", "dfo"),
        "ofd",
    )
    split_dims: str = knob(
        "which output dimensions may be split",
        ("batch", "spatial", "channel"),
        "all of them",
    )
    factor_policy: str = knob(
        "factors tried: the paper's list, all divisors, or ragged parts too",
        ("divisors", "ragged"),
        "the paper's list 1, 2, 4, 8, 9, 10, ...",
    )
    factor_scale: int | str = knob(
        "instances per sub-graph over the smallest number that fits",
        (2, 4, 8),
        "1",
        low=1,
        high=64,
    )
    instance_order: str = knob(
        "order of the instances",
        ("bfs", "dfs", "footprint", "priority"),
        "breadth- or depth-first, whichever needs less memory",
    )
    binding: str = knob(
        "how core bindings reach producers",
        ("always",),
        "as printed in Algorithm 4",
    )
    output_scope: str = knob(
        "where the outputs of sub-graphs are kept",
        ("GB", "DDR"),
        "LB, GB where bindings differ",
    )
    spill_victim: str = knob(
        "which tensor leaves the local buffer first",
        ("largest", "size_x_life"),
        "longest-lived",
    )
    weight_residency: str = knob(
        "where the weights of a sub-graph stay between its instances",
        ("GB", "LB"),
        "streamed each time",
    )
    weight_share: float | str = knob(
        "share of LB for weight tiles",
        (0.1, 0.2, 0.3, 0.5),
        "the target's weight buffer",
        low=0.01,
        high=0.9,
    )
    prefetch_depth: int | str = knob(
        "tiles loaded ahead of the one computed",
        (2, 3, 4),
        "1",
        low=1,
        high=16,
    )
    tile_divisor: int | str = knob(
        "anchor tiles per largest tile that fits",
        (2, 4, 8),
        "1",
        low=1,
        high=256,
    )
    instruction_scheduling: str = knob(
        "overlap transfers and compute: across layers, inside a layer, not at all",
        ("layer", "off"),
        "on",
    )
    overrides: tuple[SubGraphKnobs, ...] = field(default=(), metadata={})

    def __post_init__(self) -> None:
        """Bring equal settings into one form.

        1 for 1.0, "auto" for a published word, overrides in the order of their layers.
        """
        for name in knob_specs():
            object.__setattr__(self, name, _normal(name, getattr(self, name)))
        ordered = sorted(self.overrides, key=lambda o: (o.layer, repr(o)))
        object.__setattr__(self, "overrides", tuple(ordered))

    @property
    def id(self) -> str:
        """First 16 hexadecimal digits of the SHA-256 of the canonical JSON."""
        return hashlib.sha256(self.canonical().encode()).hexdigest()[:16]

    def canonical(self) -> str:
        """The one JSON text of this setting: sorted keys, only what differs from ``"auto"``."""
        return json.dumps(self.as_dict(), sort_keys=True, separators=(",", ":"))

    def as_dict(self) -> dict[str, Any]:
        """Plain values that differ from the published heuristic."""
        values = {name: getattr(self, name) for name in knob_specs()}
        chosen: dict[str, Any] = {n: value for n, value in values.items() if value != AUTO}
        if self.overrides:
            chosen["overrides"] = [dataclasses.asdict(o) for o in self.overrides]
        return chosen

    @staticmethod
    def from_dict(values: Mapping[str, Any], at: Location | None = None) -> Knobs:
        """Check and build.

        Raises:
            KnobsError: an unknown knob, or a value that it does not take.
        """
        place = at or Location()
        known = dict(values)
        overrides = tuple(_override(item, place) for item in _items(known, place))
        for name, value in known.items():
            _check(name, value, place)
        return Knobs(**known, overrides=overrides)


@functools.cache
def knob_specs() -> dict[str, KnobSpec]:
    """The searchable knobs and their specifications, in the order of the dataclass."""
    return {f.name: f.metadata["spec"] for f in dataclasses.fields(Knobs) if f.metadata}


def load_knobs(path: Path) -> Knobs:
    """Read a knobs file (JSON object of knob names and values).

    Raises:
        KnobsError: the file cannot be read or holds something else.
    """
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        at = Location(path, error.lineno, error.colno)
        raise KnobsError("not JSON", at, f"the parser says: {error.msg}") from None
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8 text"
        raise KnobsError(f"cannot read: {reason}", Location(path)) from None
    if not isinstance(values, dict):
        raise KnobsError("expected an object of knobs", Location(path), "for example {}")
    return Knobs.from_dict(values, Location(path))


def _items(values: dict[str, Any], at: Location) -> list[Any]:
    items = values.pop("overrides", [])
    if not isinstance(items, list):
        raise KnobsError("expected a list", dataclasses.replace(at, field="overrides"))
    return items


def _check(name: str, value: Any, at: Location) -> None:
    """Raise unless ``value`` is one that knob ``name`` takes."""
    at = dataclasses.replace(at, field=name)
    spec = knob_specs().get(name)
    if spec is None:
        raise KnobsError("unknown knob", at, _suggestion(name, tuple(knob_specs())))
    if value == AUTO:
        return
    if spec.low is None:
        _check_word(value, spec, name, at)
    else:
        _check_number(value, spec, at)


def _check_word(value: Any, spec: KnobSpec, name: str, at: Location) -> None:
    words = (AUTO, *spec.choices, *_PUBLISHED_WORDS.get(name, ()))
    if value not in words:
        raise KnobsError(
            f"{value!r} is not a value of it", at, f"one of {', '.join(map(str, words))}"
        )


def _check_number(value: Any, spec: KnobSpec, at: Location) -> None:
    whole = not any(isinstance(choice, float) for choice in spec.choices)
    kinds = (int,) if whole else (int, float)
    if isinstance(value, bool) or not isinstance(value, kinds):
        raise KnobsError(f"{value!r} is not {'a whole number' if whole else 'a number'}", at)
    high = float("inf") if spec.high is None else spec.high
    if spec.low is None or not spec.low <= value <= high:
        raise KnobsError(f"{value!r} is out of range", at, f"from {spec.low} to {high}")


_PUBLISHED_WORDS = {
    "merge_order": ("sdb",),
    "split_key": ("ofd",),
    "split_dims": ("all",),
    "factor_policy": ("published",),
    "binding": ("printed",),
    "output_scope": ("LB",),
    "spill_victim": ("longest",),
    "weight_residency": ("stream",),
    "instruction_scheduling": ("on",),
}
"""Names under which the published behaviour can be asked for outright."""

_OVERRIDE_WORDS = {"boundary": (AUTO, "cut", "merge"), "scope": (AUTO, "LB", "GB", "DDR")}


def _normal(name: str, value: Value) -> Value:
    """The one way to write a value."""
    if value in _PUBLISHED_WORDS.get(name, ()):
        return AUTO
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _override(item: Any, at: Location) -> SubGraphKnobs:
    at = dataclasses.replace(at, field="overrides")
    names = tuple(f.name for f in dataclasses.fields(SubGraphKnobs))
    if not isinstance(item, dict) or not isinstance(item.get("layer"), str):
        raise KnobsError("an override needs the name of a layer", at, '{"layer": "conv1", ...}')
    for name, value in item.items():
        if name not in names:
            raise KnobsError(f"unknown field {name!r}", at, _suggestion(name, names))
        _check_override(name, value, at)
    return SubGraphKnobs(**item)


def _check_override(name: str, value: Any, at: Location) -> None:
    words = _OVERRIDE_WORDS.get(name)
    if words and value not in words:
        raise KnobsError(
            f"{name}: {value!r} is not a value of it", at, f"one of {', '.join(words)}"
        )
    number = isinstance(value, int) and not isinstance(value, bool) and value >= 0
    if name in ("dim", "factor") and value != AUTO and not number:
        raise KnobsError(f"{name}: {value!r} is not a whole number", at)


def _suggestion(name: str, known: tuple[str, ...]) -> str:
    import difflib

    close = difflib.get_close_matches(name, known, 1)
    return f"did you mean {close[0]!r}?" if close else f"known are {', '.join(known)}"
