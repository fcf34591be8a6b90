"""Values of flags: what they look like, and the error for one that does not."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pkgutil import resolve_name
from typing import TypeVar

from autoturbo.errors import Location, UsageError, did_you_mean
from autoturbo.schema import MOST

_LARGEST = 2**31 - 1

_DURATION = re.compile(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d+)?)s?)?")

_T = TypeVar("_T")


def wrong(flag: str, message: str, hint: str | None = None) -> UsageError:
    """Return the error for a flag's value."""
    return UsageError(message, Location(field=flag), hint)


def whole_number(flag: str, low: int) -> Callable[[str], int]:
    """Return a reader of a whole number of at least ``low``."""

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
    """Return a reader that makes seconds of ``90``, ``90s``, ``10m`` or ``1h30m``."""

    def convert(text: str) -> float:
        match = _DURATION.fullmatch(text)
        hours, minutes, seconds = match.groups() if match and text else (None, None, None)
        total = 3600 * int(hours or 0) + 60 * int(minutes or 0) + float(seconds or 0)
        if not 0 < total <= _LARGEST:
            raise wrong(flag, f"{text!r} is not a duration", "for example 90s, 10m or 1h30m")
        return total

    return convert


def percentage(flag: str) -> Callable[[str], float]:
    """Return a reader that makes a share of one of ``5%`` or ``0.5 %``."""

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
        flag: The flag that takes the value.
        choices: Themselves, or where they are found (``"module:name"``, a function or names):
            looked up only when the flag is given, or completed.
    """

    flag: str
    choices: tuple[str, ...] | str

    def names(self) -> tuple[str, ...]:
        """Look up the names now."""
        if isinstance(self.choices, tuple):
            return self.choices
        found = resolve_name(self.choices)
        return tuple(found() if callable(found) else found)

    def __call__(self, text: str) -> str:
        """Return the name, if it is one of those known."""
        known = self.names()
        if text not in known:
            raise wrong(self.flag, f"{text!r} is not known", did_you_mean(text, known))
        return text


@dataclass(frozen=True, slots=True)
class ManyOf:
    """Takes some of some names, with commas between them.

    Attributes:
        each: Takes one of them.
        empty: Whether an empty text stands for none of them.
    """

    each: OneOf
    empty: bool = False

    def __call__(self, text: str) -> list[str]:
        """Return the names, if all are known."""
        if self.empty and not text:
            return []
        return [self.each(name.strip()) for name in text.split(",")]


def _named(
    flag: str, what: str, example: str, read: Callable[[str], _T]
) -> Callable[[str], tuple[str, _T]]:
    """Return a reader of a name, an equals sign and what ``read`` makes of the rest.

    ``read`` raises ValueError for what it does not take.
    """

    def convert(text: str) -> tuple[str, _T]:
        # the last sign: names of inputs may hold one
        name, _, rest = text.rpartition("=")
        try:
            if name:
                return name, read(rest)
        except OverflowError as error:
            raise wrong(flag, f"{text!r} is out of range; {error}") from None
        except ValueError:
            pass
        raise wrong(flag, f"{text!r} is not a name with {what}", f"write NAME={example}")

    return convert


def _extents(text: str) -> tuple[int, ...]:
    values = tuple(int(extent) for extent in text.split(",")) if text else ()
    if min(values, default=1) < 0:
        raise ValueError
    if max(values, default=1) > MOST:
        raise OverflowError(f"extents go from 0 to {MOST}")
    return values


def _extent(text: str) -> int:
    if not re.fullmatch(r"[0-9]+", text):
        raise ValueError
    return whole_number("--dim", 0)(text)


def _number(text: str) -> float:
    """Return the number in a text; a whole one stays whole."""
    text = text.strip().lower()
    if text in ("true", "false"):
        return int(text == "true")
    return int(text) if re.fullmatch(r"[+-]?\d+", text) else float(text)


shape = _named("--shape", "whole numbers from 0 on", "1,3,224,224", _extents)
"""An input's name and extents: ``data=1,3,224,224``; ``scalar=`` for no dimension at all."""

dimension = _named("--dim", "a whole number from 0 on", "64", _extent)
"""The name of a dimension and its extent: ``batch_size=64``."""

value = _named("--value", "numbers", "16000", lambda text: tuple(map(_number, text.split(","))))
"""An input's name and elements: ``sr=16000``, ``sizes=640,480``, ``on=true``."""


def merged(flag: str, given: Iterable[tuple[str, _T]]) -> dict[str, _T]:
    """Return what is given by name: extents by input or dimension, elements by input.

    Raises:
        UsageError: A name is given twice.
    """  # noqa: DOC501  wrong() makes the error
    values: dict[str, _T] = {}
    for name, value in given:
        if name in values:
            raise wrong(flag, f"{name!r} is given twice")
        values[name] = value
    return values
