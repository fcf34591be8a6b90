"""A grid of targets: one target, some of its fields varied, each named as in a target file."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from autoturbo.errors import Location, TargetError, UsageError, did_you_mean
from autoturbo.hardware.fields import file_fields
from autoturbo.hardware.presets import numeric_fields, with_field
from autoturbo.hardware.target import ENGINES, PARTS, Target

Value = bool | int | float | str

MOST_POINTS: Final = 1000
"""Points of the largest grid: each is a tuning run of its own."""

_LONGEST_NAME: Final = 64  # as target files allow
_NUMBER: Final = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
_RANGE: Final = re.compile(rf"({_NUMBER})\.\.({_NUMBER})(?::(\d+))?")
_COST_HINT: Final = "write lb.capacity_kib=0.3,ddr.bandwidth_gb_s=1.2, or a column such as energy_j"
_HINT: Final = "write lb.capacity_kib=256..4096 (doublings), =256..1024:4 (evenly) or =256,384"

CHEAPER_HIGH: Final = ("_ns", "_us", "_cycles", "_pj", "_per_byte", "_w")
"""Ends of the names of fields of which more costs less: delays, and energy per piece of work."""

_MORE_HELPS: Final = (
    "capacity_kib", "capacity_gib", "bandwidth_gb_s", "clock_mhz", "efficiency", "rate", "lanes",
)  # fmt: skip
"""Ends of the names of fields of which more makes no schedule slower: it may leave it unused.

More rows of an array, or more cores, may: work is dealt out to all of them.
"""

_RATES: Final = {"10^9 bytes/s": "GB/s"}
_LESS_HELPS: Final = ("_ns", "_us", "_cycles")


@dataclass(frozen=True, slots=True)
class Axis:
    """A field and the values that it takes.

    Attributes:
        path: Path of the field, as :func:`autoturbo.hardware.with_field` takes it.
        values: Values in the unit of the field, each once.
    """

    path: str
    values: tuple[Value, ...]

    @property
    def short(self) -> str:
        """Return the path with engines by kind alone: ``matrix.rows``."""
        return _short(self.path)

    @property
    def words(self) -> str:
        """Return the field in words with its unit: ``"local buffer per core, KiB"``."""
        return field_in_words(self.path)

    @property
    def is_numeric(self) -> bool:
        """Return whether its values can be ordered."""
        return all(isinstance(v, int | float) and not isinstance(v, bool) for v in self.values)

    def cost(self, value: Value) -> float:
        """Return a number that is larger for a more expensive value, which must be numeric."""
        return -float(value) if self.path.endswith(CHEAPER_HIGH) else float(value)

    @property
    def only_helps(self) -> int:
        """Return 1 if more never slows a target, -1 if less never does, 0 if either may."""
        words = re.findall(r"\w+", self.path)[-2:] if self.is_numeric else []
        more, less = (
            any(word.endswith(ends) for word in words) for ends in (_MORE_HELPS, _LESS_HELPS)
        )
        return int(more) - int(less)


@dataclass(frozen=True, slots=True)
class GridPoint:
    """A target of a grid.

    Attributes:
        values: Value on each axis.
        target: The target with these values.
    """

    values: tuple[Value, ...]
    target: Target


@dataclass(frozen=True, slots=True)
class Cost:
    """What a target costs, as its user states it.

    Attributes:
        weights: Cost of a unit of each field, by its short name; empty where a column is the cost.
        column: Column of a sweep's table that is the cost; empty where weights are given.
    """

    weights: Mapping[str, float]
    column: str = ""

    def __str__(self) -> str:
        """Return it as a sum, or the name of the column."""
        terms = (f"{weight:g} * {name}" for name, weight in self.weights.items())
        return self.column or " + ".join(terms)

    def of(self, target: Target) -> float:
        """Return the sum of weight times value; what a target has not costs nothing."""
        values = numeric_fields(target)
        return math.fsum(weight * values.get(name, 0.0) for name, weight in self.weights.items())


def cost_of(
    stated: Mapping[str, float] | str, targets: Iterable[Target], columns: Sequence[str] = ()
) -> Cost:
    """Return the cost of ``FIELD=WEIGHT,...`` (or weights by field), or of a column's name.

    Args:
        stated: Cost as the user states it.
        targets: Targets whose fields may be named.
        columns: Names that a sweep's table has besides its fields.

    Raises:
        UsageError: There is no such field or column, or a weight is not a number.
    """  # noqa: DOC501  _no_cost() makes the error
    known = list(dict.fromkeys(name for target in targets for name in numeric_fields(target)))
    if isinstance(stated, str) and "=" not in stated:
        if stated in columns:
            return Cost({}, stated)
        if _short(stated) in known:
            return Cost({_short(stated): 1.0})
        hint = did_you_mean(stated, (*columns, *known), _COST_HINT)
        raise _no_cost(f"{stated!r} is neither a column nor a number of the target", hint)
    given = [_weight(item) for item in stated.split(",")] if isinstance(stated, str) else [
        (_short(path), float(weight)) for path, weight in stated.items()
    ]  # fmt: skip
    weights: dict[str, float] = {}
    for name, weight in given:
        if name not in known:
            hint = did_you_mean(name, known, _COST_HINT)
            raise _no_cost(f"{name!r} is not a number of the target", hint)
        if name in weights:
            raise _no_cost(f"{name!r} has two weights", "give the sum of both")
        if not math.isfinite(weight):
            raise _no_cost(f"{weight} is not a weight", "give a finite number")
        weights[name] = weight
    if not weights:
        raise _no_cost("no weights", _COST_HINT)
    return Cost(weights)


def _weight(item: str) -> tuple[str, float]:
    name, _, text = (part.strip() for part in item.partition("="))
    if not re.fullmatch(_NUMBER, text):
        raise _no_cost(f"{item.strip()!r} is not a field with its weight", _COST_HINT)
    return _short(name), float(text)


def _no_cost(message: str, hint: str) -> UsageError:
    return UsageError(message, Location(field="--cost"), hint)


def _short(path: str) -> str:
    return path.replace("engines[", "").replace("]", "")


def field_in_words(path: str) -> str:
    """Return what a field of a target is, in words and with its unit; a name not known as it is.

    >>> field_in_words("lb.capacity_kib")
    'local buffer per core, KiB'
    """
    section, *names = _short(path).split(".")
    kind, about = {**ENGINES, **PARTS}.get(section, (Target, None))
    name, *of = names or [section]
    field = next((f for f in file_fields(kind) if f.name == name), None)
    if field is None:
        return path
    last = _RATES.get(field.rule.unit, field.rule.unit)
    unit = "".join(f", {part}" for part in (*of, last) if part)
    if about is None:
        return f"{field.rule.about}{unit}"
    owner = re.split("[:;,]", about.about)[0].removeprefix("the ")
    each = re.search(" ?per (core|cluster)", field.rule.about)
    what = field.attribute.replace("_", " ")
    named = owner if what == "capacity" else f"{owner}: {what}"
    return f"{named}{' ' + each[0].strip() if each else ''}{unit}"


def parse_axis(text: str) -> Axis:
    """Return the axis of ``PATH=VALUES``.

    ``a..b`` doubles from ``a`` up to ``b``, ``a..b:n`` are ``n`` evenly spaced values from ``a`` to
    ``b``, ``a,b,c`` are themselves. Engines may be named by their kind alone, ``matrix.rows`` for
    ``engines[matrix].rows``.

    Raises:
        UsageError: It does not look like that.
    """
    path, equals, values = (part.strip() for part in text.partition("="))
    if not equals or not path or not values:
        raise UsageError(f"{text!r} is not a field with values", Location(field="--vary"), _HINT)
    return make_axis(path, [v for item in values.split(",") for v in _values(item.strip(), text)])


def make_axis(path: str, values: Iterable[Value]) -> Axis:
    """Return the axis of a field and its values; the first of equal values is kept.

    Raises:
        UsageError: There are none.
    """
    section, dot, name = path.partition(".")
    whole = f"engines[{section}].{name}" if dot and section in ENGINES else path
    distinct = tuple(dict.fromkeys(values))
    if not distinct:
        raise UsageError("no values", Location(field=whole), _HINT)
    return Axis(whole, distinct)


def axes_of(vary: Mapping[str, Iterable[Value]] | Sequence[str]) -> tuple[Axis, ...]:
    """Return axes from texts as :func:`parse_axis` takes them, or from values by field.

    Raises:
        UsageError: A text is none, there are no axes, or a field has two.
    """
    if isinstance(vary, Mapping):
        axes = tuple(make_axis(path, values) for path, values in vary.items())
    else:
        axes = tuple(parse_axis(text) for text in vary)
    if not axes:
        raise UsageError("nothing is varied", Location(field="--vary"), _HINT)
    paths = [axis.path for axis in axes]
    twice = next((path for path in paths if paths.count(path) > 1), None)
    if twice is not None:
        hint = "give all its values at once, with commas"
        raise UsageError(f"{twice!r} is varied twice", Location(field="--vary"), hint)
    return axes


def grid_of(target: Target, axes: Sequence[Axis]) -> tuple[GridPoint, ...]:
    """Return all targets of a grid, the last axis fastest, each checked like a file.

    Raises:
        UsageError: There are too many.
        TargetError: There is no such field, or a value is not valid for it.
    """
    count = math.prod(len(axis.values) for axis in axes)
    if count > MOST_POINTS:
        hint = f"a grid has at most {MOST_POINTS} points"
        raise UsageError(f"{count} points are too many", Location(field="--vary"), hint)
    for axis in axes:
        for value in axis.values:
            _with(target, axis.path, value)
    return tuple(
        GridPoint(values, _named(target, axes, values))
        for values in itertools.product(*(axis.values for axis in axes))
    )


def neighbours(axes: Sequence[Axis], values: tuple[Value, ...]) -> Iterator[tuple[Value, ...]]:
    """Yield the values of the neighbouring points, one step along each ordered field."""
    for place, axis in enumerate(axes):
        order = sorted(axis.values, key=float) if axis.is_numeric else []
        position = order.index(values[place]) if order else 0
        for value in (*order[max(position - 1, 0) : position], *order[position + 1 : position + 2]):
            yield (*values[:place], value, *values[place + 1 :])


def _with(target: Target, path: str, value: Value) -> Target:
    """Return the target with one field changed; errors name the field as it was written."""
    try:
        return with_field(target, path, value)
    except TargetError as error:
        place = error.at if error.at.field and "." in error.at.field else Location(field=path)
        raise TargetError(error.message, place, error.hint) from None


def _named(target: Target, axes: Sequence[Axis], values: tuple[Value, ...]) -> Target:
    named = target
    for axis, value in zip(axes, values, strict=True):
        named = _with(named, axis.path, value)
    suffix = "-".join(f"{axis.short}-{value}" for axis, value in zip(axes, values, strict=True))
    name = re.sub(r"[^a-z0-9._-]+", "-", f"{target.name}-{suffix}".lower())
    if len(name) > _LONGEST_NAME:
        digest = hashlib.sha256(json.dumps(suffix).encode()).hexdigest()[:10]
        name = f"{target.name[: _LONGEST_NAME - len(digest) - 1]}-{digest}"
    return dataclasses.replace(named, name=name)


def _values(item: str, text: str) -> list[Value]:
    match = _RANGE.fullmatch(item)
    if match is None:
        return [_value(item, text)]
    first, last = _number(match[1]), _number(match[2])
    if not last > first:
        raise _wrong(text, f"{item!r} does not go up")
    return _evenly(first, last, int(match[3]), text) if match[3] else _doubled(first, last, text)


def _doubled(first: float, last: float, text: str) -> list[Value]:
    if first <= 0:
        raise _wrong(text, f"{first:g} cannot be doubled")
    # the logarithm of an exact power may come out a little below it
    steps = math.floor(math.log2(last / first) + 1e-9)
    if steps >= MOST_POINTS:
        raise _wrong(text, f"{steps + 1} values are too many")
    return [_whole(first * 2**step) for step in range(steps + 1)]


def _evenly(first: float, last: float, count: int, text: str) -> list[Value]:
    if not 2 <= count <= MOST_POINTS:  # noqa: PLR2004  both ends
        raise _wrong(text, f"{count} values from {first:g} to {last:g} cannot be")
    steps = [first + (last - first) * step / (count - 1) for step in range(count)]
    # as many digits as target files have, so that 0.3 is not 0.30000000000000004
    return [_whole(float(f"{value:.12g}")) for value in steps]


def _value(item: str, text: str) -> Value:
    if not item:
        raise _wrong(text, "a value is missing")
    if re.fullmatch(_NUMBER, item):
        return _number(item)
    return {"true": True, "false": False}.get(item, item)


def _number(text: str) -> int | float:
    return _whole(float(text))


def _whole(value: float) -> int | float:
    """Return an integral float as an integer, which integer fields require."""
    return int(value) if math.isfinite(value) and value == int(value) else value


def _wrong(text: str, message: str) -> UsageError:
    return UsageError(message, Location(field=f"--vary {text}"), _HINT)


__all__ = [
    "Axis",
    "Cost",
    "GridPoint",
    "Value",
    "axes_of",
    "cost_of",
    "field_in_words",
    "grid_of",
    "make_axis",
    "neighbours",
    "parse_axis",
]
