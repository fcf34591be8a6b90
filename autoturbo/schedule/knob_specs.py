"""What a knob means and which values it takes.

The one place that help, checks, knob files, the search space and the documentation derive from.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any, Final

from autoturbo.errors import KnobsError, Location

AUTO: Final = "auto"
Value = str | int | float


@dataclass(frozen=True, slots=True)
class KnobSpec:
    """What a knob means and which values it takes.

    Attributes:
        help: one line.
        choices: the values the search tries besides ``"auto"``; empty where they depend on model
            and target (filled in by the search space).
        published: what ``"auto"`` stands for, for people.
        low: least value accepted from a file, for numbers; None for words.
        high: greatest value accepted from a file; None for no limit.
        word: a further word that is accepted: the name of what ``"auto"`` stands for.
    """

    help: str
    choices: tuple[Value, ...]
    published: str
    low: float | None = None
    high: float | None = None
    word: str | None = None

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


def knob(
    text: str,
    choices: tuple[Value, ...],
    published: str,
    low: float | None = None,
    high: float | None = None,
    word: str | None = None,
) -> Any:
    """A field of a dataclass of knobs with its specification, ``"auto"`` by default."""
    spec = KnobSpec(text, choices, published, low, high, word)
    return field(default=AUTO, metadata={"spec": spec})


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
