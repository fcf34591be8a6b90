"""What the values of flags look like, and one sentence for those that don't.

Each function turns a flag's text into its value for :mod:`argparse`. They raise
:class:`~autoturbo.errors.UsageError` themselves, so that the words do not change with Python's
version.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

from autoturbo.errors import Location, UsageError, did_you_mean

_T = TypeVar("_T")

_DURATION = re.compile(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d+)?)s?)?")
_LARGEST = 2**31 - 1
_LARGEST_EXTENT = 2**63 - 1


def wrong(flag: str, message: str, hint: str | None = None) -> UsageError:
    """The error for a flag's value."""
    return UsageError(message, Location(field=flag), hint)


def whole_number(flag: str, low: int) -> Callable[[str], int]:
    """A whole number of at least ``low``."""

    def convert(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise wrong(flag, f"{text!r} is not a whole number") from None
        if not low <= value <= _LARGEST:
            raise wrong(flag, f"{text!r} is out of range", f"from {low} to {_LARGEST}")
        return value

    return convert


def duration(flag: str) -> Callable[[str], float]:
    """Seconds of ``90``, ``90s``, ``10m`` or ``1h30m``."""

    def convert(text: str) -> float:
        match = _DURATION.fullmatch(text)
        hours, minutes, seconds = match.groups() if match and text else (None, None, None)
        total = 3600 * int(hours or 0) + 60 * int(minutes or 0) + float(seconds or 0)
        if not 0 < total <= _LARGEST:
            raise wrong(flag, f"{text!r} is not a duration", "for example 90s, 10m or 1h30m")
        return total

    return convert


def percentage(flag: str) -> Callable[[str], float]:
    """A share of one, of ``5%`` or ``0.5 %``."""

    def convert(text: str) -> float:
        match = re.fullmatch(r"(\d+(?:\.\d+)?) ?%", text)
        if not match:
            raise wrong(flag, f"{text!r} is not a percentage", "for example 5%")
        return float(match[1]) / 100

    return convert


@dataclass(frozen=True, slots=True)
class OneOf:
    """Takes one of some names.

    Attributes:
        flag: whose value it is.
        names: looked up only when the flag is given, or completed.
    """

    flag: str
    names: Callable[[], Iterable[str]]

    def __call__(self, text: str) -> str:
        """The name, if it is one of them."""
        known = tuple(self.names())
        if text not in known:
            raise wrong(self.flag, f"{text!r} is not known", did_you_mean(text, known))
        return text


@dataclass(frozen=True, slots=True)
class ManyOf:
    """Takes some of some names, with commas between them.

    Attributes:
        each: takes one of them.
        empty: whether an empty text stands for none of them.
    """

    each: OneOf
    empty: bool = False

    def __call__(self, text: str) -> list[str]:
        """The names, if all are known."""
        if self.empty and not text:
            return []
        return [self.each(name.strip()) for name in text.split(",")]


def shape(text: str) -> tuple[str, tuple[int, ...]]:
    """An input's name and extents: ``data=1,3,224,224``; ``scalar=`` for no dimension at all."""
    name, equals, extents = text.rpartition("=")
    try:
        values = tuple(int(extent) for extent in extents.split(",")) if extents else ()
    except ValueError:
        values = (0,)
    if not equals or not name or any(value < 1 for value in values):
        hint = "write NAME=1,3,224,224"
        raise wrong("--shape", f"{text!r} is not a name with whole numbers from 1 on", hint)
    if max(values, default=1) > _LARGEST_EXTENT:
        raise wrong("--shape", f"{text!r} is out of range; extents go from 1 to {_LARGEST_EXTENT}")
    return name, values


def dimension(text: str) -> tuple[str, int]:
    """The name of a dimension and its extent: ``batch_size=64``."""
    name, equals, extent = text.rpartition("=")
    if not equals or not name or not re.fullmatch(r"0*[1-9][0-9]*", extent):
        message = f"{text!r} is not a name with a whole number from 1 on"
        raise wrong("--dim", message, "write NAME=64")
    return name, whole_number("--dim", 1)(extent)


def value(text: str) -> tuple[str, tuple[float, ...]]:
    """An input's name and elements: ``sr=16000``, ``sizes=640,480``, ``on=true``."""
    name, equals, numbers = text.rpartition("=")
    try:
        elements = tuple(map(_number, numbers.split(",")))
    except ValueError:
        elements = ()
    if not equals or not name or not elements:
        raise wrong("--value", f"{text!r} is not a name with numbers", "write NAME=16000")
    return name, elements


def _number(text: str) -> float:
    """A number; a whole one stays whole."""
    words = {"true": 1, "false": 0}
    text = text.strip().lower()
    if text in words:
        return words[text]
    return int(text) if re.fullmatch(r"[+-]?\d+", text) else float(text)


def merged(flag: str, given: Iterable[tuple[str, _T]]) -> dict[str, _T]:
    """What is given under each name: extents by input or dimension, elements by input.

    Raises:
        UsageError: a name is given twice.
    """
    values: dict[str, _T] = {}
    for name, value in given:
        if name in values:
            raise wrong(flag, f"{name!r} is given twice")
        values[name] = value
    return values
