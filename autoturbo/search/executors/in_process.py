"""Measures in this process, one setting after another."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from autoturbo.search.executors.base import Numbered, guarded
from autoturbo.simulate.contract import Evaluates
from autoturbo.simulate.measurement import Outcome


@dataclass
class InProcess:
    """The executor without workers.

    Attributes:
        evaluator: measures.
    """

    evaluator: Evaluates
    _cancelled: bool = False

    def submit(self, batch: Sequence[Numbered]) -> Iterator[tuple[int, Outcome]]:
        """Outcomes in the order of the batch."""
        for number, knobs in batch:
            if self._cancelled:
                return
            yield number, guarded(self.evaluator, knobs)

    def cancel(self) -> None:
        """Begin nothing new."""
        self._cancelled = True

    def close(self) -> None:
        """Nothing to give back."""
