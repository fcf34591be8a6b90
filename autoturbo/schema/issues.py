"""Issues: what is wrong with a value, where, and how to mend it."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

Steps = tuple[str | int, ...]
"""Keys and indices from the top of a document to a value in it."""

_LONGEST_SHOWN: Final = 40  # characters of an offending value in a message


@dataclass(frozen=True, slots=True)
class ValidationIssue:
    """One thing that is wrong with a document.

    Attributes:
        path: Path to the value that is wrong.
        message: What is wrong.
        hint: How to mend it.
        at: Whose position counts: the "value" at the path, the "key" that leads there, or the
            "parent" mapping where the path itself does not exist.
        position: Line and column where ``at`` cannot say.
        suggests: The path that was probably meant.
    """

    path: Steps
    message: str
    hint: str | None = None
    at: str = "value"
    position: tuple[int, int] | None = None
    suggests: Steps | None = None

    def under(self, path: Steps) -> ValidationIssue:
        """Return the same issue, seen from a document that holds this one at a path."""
        suggests = None if self.suggests is None else (*path, *self.suggests)
        return replace(self, path=(*path, *self.path), suggests=suggests)


class InvalidError(Exception):
    """A value that its declaration does not allow.

    Args:
        issues: All that is wrong, without a missing field that is there under a misspelt name.
    """

    def __init__(self, *issues: ValidationIssue) -> None:
        super().__init__(issues[0].message)
        suggested = {issue.suggests for issue in issues}
        kept = (i for i in issues if i.at != "parent" or i.path not in suggested)
        self.issues = tuple({(issue.path, issue.message): issue for issue in kept}.values())

    @property
    def first(self) -> ValidationIssue:
        """Return the issue that is told where a message has room for one."""
        return self.issues[0]


def dotted(path: Steps) -> str:
    """Return a path as messages show it: ``("engines", 0, "rows")`` is ``engines[0].rows``."""
    parts = [f"[{part}]" if isinstance(part, int) else f".{_key(part)}" for part in path]
    return "".join(parts).removeprefix(".")


def _key(name: str) -> str:
    """Return a field's name from a file, fit for a terminal."""
    return _short(name if name.isprintable() else ascii(name))


def shown(value: Any) -> str:
    """Return an offending value as messages show it: short, on one line."""
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, list | tuple):
        return "a list"
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return str(value).lower()
    # Python may refuse to write so many digits
    if isinstance(value, int) and value.bit_length() > sys.int_info.default_max_str_digits:
        return "a number of thousands of digits"
    return _short(repr(value))


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST_SHOWN else text[: _LONGEST_SHOWN - 3] + "..."
