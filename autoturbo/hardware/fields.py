"""How target files spell the attributes of a target: annotations with unit, bounds and meaning.

An attribute of a target is declared once, in :mod:`autoturbo.hardware.target`, in SI units; its
annotation says the unit of the file. The file's name is the attribute's with that unit behind.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Context, Decimal
from functools import cache
from types import GenericAlias
from typing import Annotated, Any, Final, get_args

from annotated_types import Ge, Le, Len, MinLen

from autoturbo.schema import Choice, Described, WithoutFraction, fields_of

DTYPES = ("float32", "float16", "bfloat16", "int8", "bfloat8", "bfloat4")
"""Data types that an engine may compute in; the last two share an exponent among 16 elements."""

Dtype = Annotated[str, Choice(DTYPES)]

_BLOCKS: Final = {"kib": 1024, "mib": 1024**2, "gib": 1024**3}
_EXPONENTS: Final = {"gb_s": 9, "mhz": 6, "us": -6, "ns": -9, "percent": -2}
_UNITS: Final = {
    "kib": "KiB", "mib": "MiB", "gib": "GiB", "gb_s": "10^9 bytes/s", "mhz": "MHz", "us": "us",
    "ns": "ns", "percent": "%",
    "cycles": "cycles", "bytes": "bytes", "pj": "pJ", "pj_per_byte": "pJ/byte",
    "w": "W",
}  # fmt: skip

# No figure of a data sheet has more significant digits than this, and with so few of them a
# conversion between decimal units and back is exact in binary floating point.
_DIGITS: Final = Context(prec=12)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileValue(Described):
    """A value that a file spells as it is held, but for lists.

    Attributes:
        suffix: End of the name in the file, its unit.
        name: Name in the file, where it is not the attribute's with the suffix.
        default: The value of a file that leaves the field out; None if it may not.
        timed: Whether only times depend on it: a schedule made for one value runs with any other.
        in_file: Type of the value in the file; None where it is the attribute's.
    """

    suffix: str = ""
    name: str = ""
    default: Any = None
    timed: bool = False
    in_file: Any = None

    def type_in_file(self, held: Any) -> Any:
        """Return the type of the value in the file for the type of the attribute."""
        return held if self.in_file is None else self.in_file

    def to_si(self, value: Any) -> Any:
        """Return the attribute's value for a value of the file, a tuple for a list."""
        # targets and machines are hashed, so nothing in them may be a list
        return tuple(value) if isinstance(value, list) else value

    def from_si(self, value: Any) -> Any:
        """Return the file's value for an attribute's value, a list for a tuple."""
        return list(value) if isinstance(value, tuple) else value


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure(FileValue):
    """A number.

    Attributes:
        low: Smallest value allowed, in the file's unit.
        high: Largest value allowed, in the file's unit.
        whole: Whether it is a whole number.
    """

    low: float = 0.0
    high: float = 1e9
    whole: bool = False

    def type_in_file(self, held: Any) -> Any:
        """Return the type of a number within its bounds, in the file's unit."""
        del held
        if self.whole:
            return Annotated[int, Ge(int(self.low)), Le(int(self.high)), WithoutFraction()]
        return Annotated[float, Ge(self.low), Le(self.high)]

    def to_si(self, value: Any) -> Any:
        """Return the attribute's value for a value of the file."""
        if self.whole:
            return int(value)
        if self.suffix in _BLOCKS:
            return round(value * _BLOCKS[self.suffix])
        return _scaled(value, _EXPONENTS.get(self.suffix, 0))

    def from_si(self, value: Any) -> Any:
        """Return the file's value for an attribute's value."""
        if self.whole:
            return value
        if block := _BLOCKS.get(self.suffix):
            return value // block if value % block == 0 else value / block
        return _scaled(value, -_EXPONENTS.get(self.suffix, 0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Product(Figure):
    """A number that is converted in binary floating point: hashes of machines hold the results."""

    def to_si(self, value: Any) -> Any:
        """Return the attribute's value for a value of the file."""
        return float(value) * float(f"1e{_EXPONENTS[self.suffix]}")

    def from_si(self, value: Any) -> Any:
        """Return the file's value with 12 significant digits."""
        exponent = _EXPONENTS[self.suffix]
        inverse = value / 10**exponent if exponent > 0 else value * 10**-exponent
        return float(f"{inverse:.12g}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates(Figure):
    """A number for each data type, in the order of :data:`DTYPES`."""

    def type_in_file(self, held: Any) -> Any:
        """Return the type of a mapping of data types to numbers within bounds."""
        figure = Figure.type_in_file(self, held)
        return Annotated[GenericAlias(dict, (Dtype, figure)), MinLen(1)]

    def to_si(self, value: Any) -> Any:
        """Return pairs of data type and figure."""
        return tuple((dtype, _scaled(value[dtype], 0)) for dtype in DTYPES if dtype in value)

    def from_si(self, value: Any) -> Any:
        """Return the figures by data type."""
        figures = dict(value)
        return {dtype: _scaled(figures[dtype], 0) for dtype in DTYPES if dtype in figures}


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranges(FileValue):
    """Two values for each of some fields, by the path of the field: what is not published."""

    def type_in_file(self, held: Any) -> Any:
        """Return the type of a mapping to lists of two values; the fields are checked later."""
        del held
        return dict[str, Annotated[list[Any], Len(2, 2)]]

    def to_si(self, value: Any) -> Any:
        """Return pairs of path and values, each in the unit of its field."""
        return tuple((path, tuple(ends)) for path, ends in value.items())

    def from_si(self, value: Any) -> Any:
        """Return the values by path."""
        return {path: list(ends) for path, ends in value}


@dataclass(frozen=True, slots=True, kw_only=True)
class Section(Described):
    """A mapping of a target file.

    Attributes:
        optional: Whether a target may lack it.
        engine: Whether it is an entry of the list of engines, by its kind.
    """

    optional: bool = False
    engine: bool = False


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a file.

    Attributes:
        name: Name in the file, with its unit.
        attribute: Name of the attribute that holds it, in SI units.
        type: Type of the value in the file.
        rule: Annotation of the attribute.
    """

    name: str
    attribute: str
    type: Any
    rule: FileValue


def _scaled(value: float, exponent: int) -> float:
    rounded = _DIGITS.create_decimal(Decimal(repr(float(value))))
    return float(rounded.scaleb(exponent)) + 0.0  # + 0.0 turns -0.0 into 0.0


@cache
def file_fields(kind: type) -> tuple[Field, ...]:
    """Return the fields of a section's class, or those at the top of a target's file."""
    return tuple(
        Field(rule.name or f"{name}_{rule.suffix}".rstrip("_"), name, rule.type_in_file(hint), rule)
        for name, hint, rule in fields_of(kind)
        if isinstance(rule, FileValue)
    )


@cache
def sections_of(kind: type, *, engines: bool) -> Mapping[str, tuple[type, Section]]:
    """Return class and annotation of the engines, or of the other sections, by attribute."""
    return {
        name: ((get_args(hint) or (hint,))[0], rule)
        for name, hint, rule in fields_of(kind)
        if isinstance(rule, Section) and rule.engine == engines
    }


def built(kind: type, document: Mapping[str, Any]) -> Any:
    """Return a section's value from its mapping in a checked file."""
    return kind(**values_of(kind, document))


def values_of(kind: type, document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attributes that the fields of a checked mapping give."""
    return {
        f.attribute: f.rule.to_si(document.get(f.name, f.rule.default)) for f in file_fields(kind)
    }


def written(kind: type, owner: object) -> dict[str, Any]:
    """Return the fields of a file from a value's attributes."""
    return {f.name: f.rule.from_si(getattr(owner, f.attribute)) for f in file_fields(kind)}


def number(about: str, example: float, low: float = 0.0, high: float = 1e9, **more: Any) -> Figure:
    """Return the annotation of a number."""
    unit = _UNITS.get(more.get("suffix", ""), "")
    return Figure(about=about, example=example, unit=unit, low=low, high=high, **more)


def whole(about: str, example: int, low: int = 1, high: float = 65536, **more: Any) -> Figure:
    """Return the annotation of a whole number."""
    return number(about, example, low, high, whole=True, **more)


def bandwidth(about: str, example: float) -> Figure:
    """Return the annotation of bytes per second."""
    return number(f"{about}, in 10^9 bytes/s", example, 1e-3, suffix="gb_s", timed=True)


def latency(about: str, example: float, high: float = 1e9) -> Figure:
    """Return the annotation of a time that a file gives in nanoseconds."""
    return number(about, example, high=high, suffix="ns", timed=True)


def capacity(about: str, example: float) -> Figure:
    """Return the annotation of bytes that a file gives in KiB."""
    return number(f"{about}, in KiB", example, 1, suffix="kib")


def size(about: str, example: int) -> Figure:
    """Return the annotation of bytes."""
    return whole(about, example, high=1e9, suffix="bytes")


def rates(about: str, example: dict[str, float], low: float, high: float, **more: Any) -> Rates:
    """Return the annotation of a number for each data type."""
    return Rates(about=about, example=example, low=low, high=high, **more)
