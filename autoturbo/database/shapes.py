"""Shapes of JSON values: one description that both checks a value and publishes itself as a schema.

A shape's ``load`` gives the value back in its plain form (NumPy scalars become numbers, tuples
lists) or raises :class:`MismatchError` with the path to what is wrong. ``schema`` is the same as a
JSON schema. Checking is written out here because every record passes it, and a measurement has a
few hundred numbers: a general validator takes far longer (docs/decisions/0004-database.md).
"""

from __future__ import annotations

import dataclasses
import difflib
import math
import numbers
import re
import reprlib
import types
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, get_args, get_origin, get_type_hints

MOST = 2**63 - 1
"""The greatest whole number of a record: SQLite's integers have 64 bits."""


class MismatchError(Exception):
    """A value that its shape does not allow.

    Args:
        message: what is wrong, one line.
        path: dotted path to the value.
        hint: how to mend it.
    """

    def __init__(self, message: str, path: str = "", hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.path = path
        self.hint = hint

    def under(self, name: str) -> MismatchError:
        """The same, seen from the value that holds it under ``name``."""
        name = name if name.isprintable() else ascii(name)
        return MismatchError(self.message, f"{name}.{self.path}".rstrip("."), self.hint)


class Shape(Protocol):
    """What a value may be."""

    def load(self, value: Any) -> Any:
        """The value in plain form; raises MismatchError."""
        ...

    def schema(self) -> dict[str, Any]:
        """The same as JSON schema."""
        ...


@dataclass(frozen=True, slots=True)
class Text:
    """A string, all of whose characters may be bound by a regular expression."""

    pattern: str | None = None
    example: str = ""
    choices: tuple[str, ...] = ()

    def load(self, value: Any) -> str:
        """See :class:`Shape`."""
        if not isinstance(value, str):
            raise MismatchError(f"{_short(value)} is not text")
        if self.choices and value not in self.choices:
            known = ", ".join(self.choices)
            raise MismatchError(f"{_short(value)} is not a value of it", hint=f"one of {known}")
        if self.pattern and not re.fullmatch(self.pattern, value):
            hint = f"for example {self.example}"
            raise MismatchError(f"{_short(value)} is not of the right form", hint=hint)
        return value

    def schema(self) -> dict[str, Any]:
        """See :class:`Shape`."""
        bounds: dict[str, Any] = {"type": "string"}
        if self.pattern:
            bounds["pattern"] = f"^{self.pattern}$"
        if self.choices:
            bounds["enum"] = list(self.choices)
        return bounds


@dataclass(frozen=True, slots=True)
class Count:
    """A whole number, not negative."""

    least: int = 0

    def load(self, value: Any) -> int:
        """See :class:`Shape`; 3.0 is as good as 3, as in JSON schema."""
        whole = value if type(value) is int else _whole(value)
        if whole is None:
            raise MismatchError(f"{_short(value)} is not a whole number")
        if not self.least <= whole <= MOST:
            hint = f"from {self.least} to {MOST}"
            raise MismatchError(f"{_short(value)} is out of range", hint=hint)
        return whole

    def schema(self) -> dict[str, Any]:
        """See :class:`Shape`."""
        return {"type": "integer", "minimum": self.least, "maximum": MOST}


@dataclass(frozen=True, slots=True)
class Number:
    """A finite number; ``above`` bounds it from below, itself excluded."""

    above: float | None = None

    def load(self, value: Any) -> float:
        """See :class:`Shape`."""
        real = value if type(value) is float else _real(value)
        if real is None:
            raise MismatchError(f"{_short(value)} is not a number")
        if not math.isfinite(real):
            raise MismatchError(f"{_short(value)} is not finite")
        if self.above is not None and not real > self.above:
            raise MismatchError(f"{_short(value)} is not above {self.above:g}")
        return real

    def schema(self) -> dict[str, Any]:
        """See :class:`Shape`."""
        bound = {} if self.above is None else {"exclusiveMinimum": self.above}
        return {"type": "number", **bound}


@dataclass(frozen=True, slots=True)
class Maybe:
    """What ``shape`` allows, or null."""

    shape: Shape

    def load(self, value: Any) -> Any:
        """See :class:`Shape`."""
        return None if value is None else self.shape.load(value)

    def schema(self) -> dict[str, Any]:
        """See :class:`Shape`."""
        return {"anyOf": [{"type": "null"}, self.shape.schema()]}


@dataclass(frozen=True, slots=True)
class ListOf:
    """A list of what ``shape`` allows."""

    shape: Shape

    def load(self, value: Any) -> list[Any]:
        """See :class:`Shape`."""
        if not isinstance(value, list | tuple):
            raise MismatchError(f"{_short(value)} is not a list")
        return [_load_under(str(i), self.shape, item) for i, item in enumerate(value)]

    def schema(self) -> dict[str, Any]:
        """See :class:`Shape`."""
        return {"type": "array", "items": self.shape.schema()}


@dataclass(frozen=True, slots=True)
class MapOf:
    """An object with any names, and values that ``shape`` allows."""

    shape: Shape

    def load(self, value: Any) -> dict[str, Any]:
        """See :class:`Shape`."""
        values = _mapping(value)
        return {name: _load_under(name, self.shape, item) for name, item in values.items()}

    def schema(self) -> dict[str, Any]:
        """See :class:`Shape`."""
        return {"type": "object", "additionalProperties": self.shape.schema()}


@dataclass(frozen=True, slots=True)
class Free:
    """Any JSON value."""

    def load(self, value: Any) -> Any:
        """See :class:`Shape`."""
        if value is None or isinstance(value, bool | str):
            return value
        if isinstance(value, Mapping):
            return MapOf(self).load(value)
        if isinstance(value, Sequence):
            return ListOf(self).load(value)
        return _whole(value) if isinstance(value, numbers.Integral) else Number().load(value)

    def schema(self) -> dict[str, Any]:
        """See :class:`Shape`."""
        return {}


@dataclass(frozen=True, slots=True)
class Table:
    """An object with these fields and no others.

    Attributes:
        fields: name and shape of each.
        optional: names that may be absent.
        either: names of which exactly one is there.
    """

    fields: Mapping[str, Shape]
    optional: frozenset[str] = field(default=frozenset())
    either: tuple[str, ...] = ()

    def load(self, value: Any) -> dict[str, Any]:
        """See :class:`Shape`."""
        values = _mapping(value)
        self._check_names(values)
        shapes = self.fields
        return {name: _load_under(name, shapes[name], item) for name, item in values.items()}

    def _check_names(self, values: Mapping[str, Any]) -> None:
        for name in values:
            if name not in self.fields:
                raise MismatchError("unknown field", hint=self._suggestion(name)).under(name)
        for name in self.fields:
            if name not in values and name not in self.optional and name not in self.either:
                raise MismatchError("this field is missing").under(name)
        if self.either and sum(name in values for name in self.either) != 1:
            raise MismatchError(f"exactly one of the fields {' and '.join(self.either)} is needed")

    def _suggestion(self, name: str) -> str:
        close = difflib.get_close_matches(name, self.fields, 1)
        return f"did you mean {close[0]!r}?" if close else f"known are {', '.join(self.fields)}"

    def schema(self) -> dict[str, Any]:
        """See :class:`Shape`."""
        free = {*self.optional, *self.either}
        one = {"oneOf": [{"required": [name]} for name in self.either]} if self.either else {}
        return {
            "type": "object",
            "properties": {name: shape.schema() for name, shape in self.fields.items()},
            "required": [name for name in self.fields if name not in free],
            "additionalProperties": False,
            **one,
        }


def table_of(kind: type, **shapes: Shape) -> Table:
    """The table of a dataclass's fields, from their types; ``shapes`` says some more closely.

    A field with a default is optional, so that records from before it was added stay readable.
    """
    # Named here too: a module may import it for type checkers only.
    hints = get_type_hints(kind, localns={"Mapping": Mapping})
    fields = {f.name: shapes.get(f.name) or shape_of(hints[f.name]) for f in _fields(kind)}
    missing = dataclasses.MISSING
    optional = (
        f.name
        for f in _fields(kind)
        if f.default is not missing or f.default_factory is not missing
    )
    return Table(fields, frozenset(optional))


def shape_of(hint: Any) -> Shape:
    """The shape of a type: whole numbers count something, so they are not negative.

    Raises:
        TypeError: a type that has no shape.
    """
    simple: dict[Any, Shape] = {str: Text(), int: Count(), float: Number(), Any: Free()}
    if hint in simple:
        return simple[hint]
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return table_of(hint)
    return _shape_of_generic(get_origin(hint), get_args(hint))


def _shape_of_generic(origin: Any, arguments: tuple[Any, ...]) -> Shape:
    if origin is types.UnionType and arguments[1:] == (types.NoneType,):
        return Maybe(shape_of(arguments[0]))
    if origin is Mapping and arguments[0] is str:
        return MapOf(shape_of(arguments[1]))
    if origin is tuple and arguments[1:] == (...,):
        return ListOf(shape_of(arguments[0]))
    raise TypeError(f"no shape for {origin}{arguments}")


def _fields(kind: type) -> tuple[dataclasses.Field[Any], ...]:
    return dataclasses.fields(kind)


def _load_under(name: str, shape: Shape, value: Any) -> Any:
    try:
        return shape.load(value)
    except MismatchError as error:
        raise error.under(name) from None


def _mapping(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise MismatchError(f"{_short(value)} is not an object")
    for name in value:
        if not isinstance(name, str):
            raise MismatchError(f"the name {_short(name)} is not text")
    return value


def _whole(value: Any) -> int | None:
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        return None
    if isinstance(value, numbers.Integral):
        return int(value)
    real = float(value)
    return int(real) if real.is_integer() else None


def _real(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        return None
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _short(value: Any) -> str:
    """The value on one line, cut where it is long."""
    return reprlib.repr(value)
