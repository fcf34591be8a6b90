"""What tuning asks of whatever a model is scheduled on: a target, or a machine of several units."""

from __future__ import annotations

from typing import Any, Protocol


class TuningTarget(Protocol):
    """A target or a machine, as far as runs, files and commands need to know it.

    What differs is behind the name of its type: its task (:data:`autoturbo.registry.TASKS`) and its
    evaluator (:func:`autoturbo.heterogeneous.evaluator.evaluator_of`).
    """

    @property
    def name(self) -> str:
        """Return its short name, for people and file names."""

    @property
    def description(self) -> str:
        """Return a line for people; it affects nothing."""

    @property
    def hash(self) -> str:
        """Return the hash of all that affects results."""

    @property
    def dtypes(self) -> tuple[str, ...]:
        """Return the data types that it computes in."""

    @property
    def default_dtype(self) -> str:
        """Return the compute type that is used if none is given."""

    def supports(self, dtype: str) -> bool:
        """Return whether it computes in a type."""

    def as_dict(self) -> dict[str, Any]:
        """Return it as a file holds it, ready for JSON."""
