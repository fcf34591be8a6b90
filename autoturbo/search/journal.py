"""Where a run's outcomes are kept: in the database, many at a time where they come fast."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from autoturbo.database import Database, RunFolder, TrialRecord
from autoturbo.search.progress import Trial

SAVE_EVERY_S = 0.1
"""Seconds of measurements that a kill in the middle of a round may lose."""


@dataclass(eq=False)
class Journal:
    """The journal of a run: outcomes in the database and lines in its folder.

    Attributes:
        store: The database.
        run: Id of the run.
        folder: Of the run.
        recorded: What an earlier part of the run has left, by number.
    """

    store: Database
    run: str
    folder: RunFolder
    recorded: Mapping[int, Trial]
    _waiting: list[TrialRecord] = field(default_factory=list)
    _saved: float = field(default_factory=time.monotonic)

    def add(self, trial: Trial) -> None:
        """Record a trial; durable within :data:`SAVE_EVERY_S` or at :meth:`flush`."""
        record = TrialRecord(self.run, trial.number, trial.knobs, trial.outcome, now())
        self._waiting.append(record)
        if time.monotonic() - self._saved > SAVE_EVERY_S:
            self.flush()

    def flush(self) -> None:
        """Make all recorded trials durable."""
        if self._waiting:
            self.store.add_trials(self._waiting)
        self._waiting, self._saved = [], time.monotonic()

    def log(self, line: str) -> None:
        """Write a line to the run's log."""
        self.folder.log(line)


def now() -> str:
    """Return the current time in the format of records."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
