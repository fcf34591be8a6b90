"""What a knob means and which values it takes.

The one place that help, checks, knob files, the search space and the documentation derive from.
"""

from __future__ import annotations

import dataclasses
import enum
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from autoturbo.errors import KnobsError, Location

AUTO: Final = "auto"
Value = str | int | float

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
    """What a knob means and which values it takes.

    Attributes:
        stage: the first pass that reads it; nothing before depends on it.
        help: one line.
        choices: the values the search tries besides ``"auto"``; empty where they depend on model
            and target (filled in by the search space).
        published: what ``"auto"`` stands for, for people.
        low: least value accepted from a file, for numbers; None for words.
        high: greatest value accepted from a file; None for no limit.
        word: a further word that is accepted: the name of what ``"auto"`` stands for.
        scope: what it is about.
        group: what it belongs to, of the knobs that split a sub-graph.
        over: the model's knob that says what ``"auto"`` is, where its name is another one.
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
        """The words that are accepted; for numbers only ``"auto"``."""
        if self.low is not None:
            return (AUTO,)
        return (AUTO, *map(str, self.choices), *((self.word,) if self.word else ()))

    @property
    def whole(self) -> bool:
        """Whether its numbers have no fractions."""
        return not any(isinstance(choice, float) for choice in self.choices)


def knob(stage: Stage, text: str, choices: tuple[Value, ...], published: str, **others: Any) -> Any:
    """A field of a dataclass of knobs with its specification, ``"auto"`` by default."""
    return field(
        default=AUTO, metadata={"spec": KnobSpec(stage, text, choices, published, **others)}
    )


def specs_of(knobs: type) -> dict[str, KnobSpec]:
    """The knobs among the fields of a dataclass, in their order."""
    fields = dataclasses.fields(knobs)
    return {f.name: f.metadata["spec"] for f in fields if "spec" in f.metadata}


def check_value(value: Any, spec: KnobSpec, at: Location, prefix: str = "") -> None:
    """Refuse a value that a knob does not take.

    Args:
        value: as a file has it.
        spec: of the knob.
        at: where it stands.
        prefix: of the message, where the location does not name the knob.

    Raises:
        KnobsError: with the values or the range that it takes.
    """
    if isinstance(value, str) and value == AUTO:
        return
    if spec.low is not None:
        _check_number(value, spec, at, prefix)
    elif value not in spec.words:
        words = ", ".join(spec.words)
        raise KnobsError(f"{prefix}{value!r} is not a value of it", at, f"one of {words}")


def _check_number(value: Any, spec: KnobSpec, at: Location, prefix: str) -> None:
    kinds = (int,) if spec.whole else (int, float)
    if isinstance(value, bool) or not isinstance(value, kinds):
        kind = "a whole number" if spec.whole else "a number"
        raise KnobsError(f"{prefix}{value!r} is not {kind}", at)
    high = float("inf") if spec.high is None else spec.high
    if spec.low is None or not spec.low <= value <= high:
        raise KnobsError(f"{prefix}{value!r} is out of range", at, f"from {spec.low} to {high}")
