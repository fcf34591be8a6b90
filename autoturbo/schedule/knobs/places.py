"""Values that a target has no place for: they are refused, or left to the heuristic."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from autoturbo.errors import KnobsError, Location
from autoturbo.schedule.knobs.candidate import Knobs, SubGraphKnobs, model_knobs, subgraph_knobs
from autoturbo.schedule.knobs.kinds import AUTO, Knob, Need, Value

if TYPE_CHECKING:
    from autoturbo.hardware.target import Target

_MODEL = {name: decision for name, decision in model_knobs().items() if decision.needs}
_OWN = {name: decision for name, decision in subgraph_knobs().items() if decision.needs}


def refuse_misplaced(knobs: Knobs, target: Target) -> None:
    """Refuse a candidate with a value that a target has no place for.

    Raises:
        KnobsError: There is one; it names the field of the target that decides.
    """
    for name, value, need in _misplaced(knobs, _MODEL, target):
        raise KnobsError(f"{value!r} {_lacking(need, target)}", Location(field=name), _HINT)
    for own in knobs.overrides:
        for name, value, need in _misplaced(own, _OWN, target):
            message = f"{own.layer}: {name}: {value!r} {_lacking(need, target)}"
            raise KnobsError(message, Location(field="overrides"), _HINT)


def fitting(knobs: Knobs, target: Target) -> Knobs:
    """Return a candidate with ``"auto"`` in place of what a target has no place for."""
    overrides = tuple(_fitting(own, _OWN, target) for own in knobs.overrides)
    return dataclasses.replace(_fitting(knobs, _MODEL, target), overrides=overrides)


_Candidate = TypeVar("_Candidate", Knobs, SubGraphKnobs)

_HINT = "take it out, or choose another value"


def _lacking(need: Need, target: Target) -> str:
    return f"has no place on {target.name}: {need.lacking} ({need.field})"


def _misplaced(
    candidate: Knobs | SubGraphKnobs, decisions: dict[str, Knob], target: Target
) -> Iterator[tuple[str, Value, Need]]:
    for name, decision in decisions.items():
        value = getattr(candidate, name)
        if value != AUTO and (need := decision.missing(value, target)) is not None:
            yield name, value, need


def _fitting(candidate: _Candidate, decisions: dict[str, Knob], target: Target) -> _Candidate:
    gone: dict[str, Any] = {name: AUTO for name, _, _ in _misplaced(candidate, decisions, target)}
    return dataclasses.replace(candidate, **gone) if gone else candidate
