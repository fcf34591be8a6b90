"""Knobs files: a JSON object of knob names and values."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from autoturbo.errors import KnobsError, Location
from autoturbo.files import read_json
from autoturbo.registry import PUBLISHED
from autoturbo.schedule.knobs.candidate import Knobs


def candidate_of(given: Any) -> Knobs:
    """Return the knobs of a candidate.

    Args:
        given: Knobs, a mapping of them, a schedule (anything with ``knobs``), or a file of either.

    Raises:
        KnobsError: It is none of these, or a schedule that no knobs of ours made.
    """
    if isinstance(given, Knobs):
        return given
    if isinstance(given, Mapping):
        return Knobs.from_dict(given)
    if (knobs := getattr(given, "knobs", None)) is not None:
        return _ours(knobs, given.scheduler, Location())
    if isinstance(given, str | Path):
        return _of_file(Path(given))
    raise KnobsError("not knobs, a schedule or a file", hint="give Knobs, a mapping or a path")


def _of_file(path: Path) -> Knobs:
    """Return the knobs of a knobs file, or of a schedule file."""
    values, place = _read(path), Location(path)
    if not _is_schedule(values):
        return Knobs.from_dict(values, place)
    knobs = values.get("knobs")
    if not isinstance(knobs, dict):
        raise KnobsError("it has no knobs", place, "give a schedule of this package")
    return _ours(Knobs.from_dict(knobs, place), values.get("scheduler"), place)


def _ours(knobs: Knobs, scheduler: object, place: Location) -> Knobs:
    if scheduler != PUBLISHED:
        hint = "give a knobs file, or a schedule that 'tune' made"
        raise KnobsError(f"no knobs give a schedule of {scheduler!r}", place, hint)
    return knobs


def _is_schedule(values: Mapping[str, Any]) -> bool:
    """Return whether a JSON object is that of a schedule file."""
    return str(values.get("format", "")).startswith("autoturbo-")


def knobs_of_file(path: Path) -> Knobs | None:
    """Return the knobs of a knobs file; None where it is a schedule file.

    Raises:
        KnobsError: The file cannot be read or holds something else.
    """
    values = _read(path)
    return None if _is_schedule(values) else Knobs.from_dict(values, Location(path))


def load_knobs(path: Path) -> Knobs:
    """Return the knobs of a file (JSON object of knob names and values).

    Raises:
        KnobsError: The file cannot be read or holds something else.
    """
    return Knobs.from_dict(_read(path), Location(path))


def _read(path: Path) -> dict[str, Any]:
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
    return values
