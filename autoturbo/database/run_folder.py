"""The run folder ``runs/<model>-<target>-<id>/`` and the run's id.

``manifest.json`` says what was run (versions, hashes, settings, seed), ``schedule.json`` is the
best schedule so far, ``log.txt`` is for people. The database stays the truth: a lost folder loses
nothing.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from autoturbo.errors import Location, RunError
from autoturbo.files import LEFT, atomic_write, take_away_left

LOG = logging.getLogger("autoturbo")

MANIFEST_SCHEMA = 1
"""Version of ``manifest.json``, its field ``schema``."""

MANIFEST = "manifest.json"

_ID_DIGITS = 10  # 40 bits: a clash among 10,000 runs has a chance of 5 in 100,000
_NAME_BYTES = 80  # two names and the id stay below the 255 bytes of common file systems


def run_id(decisive: Mapping[str, Any]) -> str:
    """Return the stable id of a run: the same result, the same id, on every machine.

    First 10 hexadecimal digits of the SHA-256 of the canonical JSON. Where a run of that id exists
    already, see :meth:`autoturbo.database.Database.next_run_id`.

    Args:
        decisive: What affects the result, and nothing else, as JSON values. Absent and None are
            the same.
    """
    given = {name: value for name, value in decisive.items() if value is not None}
    text = json.dumps(given, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:_ID_DIGITS]


@dataclass(frozen=True, slots=True)
class RunFolder:
    """A run's folder; every file in it is whole at any moment.

    Attributes:
        path: The folder.
    """

    path: Path

    @staticmethod
    def named(root: str | Path, model: str, target: str, run_id: str) -> Path:
        """Return ``root/<model>-<target>-<run_id>``, with names made safe for a path."""
        names = (
            file_name_part(model, "model"),
            file_name_part(target, "target"),
            file_name_part(run_id, "run"),
        )
        return Path(root) / "-".join(names)

    @staticmethod
    def create(root: str | Path, model: str, target: str, run_id: str) -> RunFolder:
        """Make ``root/<model>-<target>-<run_id>``, or use the one that is there.

        Names are made safe for a path: whatever a model is called, the folder lies in ``root``.

        Args:
            root: The folder of all runs, made where it is missing.
            model: The model's name.
            target: The target's name.
            run_id: The run's id.

        Returns:
            The folder. What killed processes have left half written in folders of ``root`` is
            removed.

        Raises:
            RunError: The folder cannot be made.
        """
        path = RunFolder.named(root, model, target, run_id)
        try:
            path.mkdir(parents=True, exist_ok=True)
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            hint = "the folder for runs must be one that can be written"
            raise RunError(f"cannot make the run folder: {reason}", Location(path), hint) from None
        take_away_left(Path(root), f"*/{LEFT}")
        return RunFolder(path)

    @property
    def manifest_file(self) -> Path:
        """Return the path of ``manifest.json``."""
        return self.path / MANIFEST

    @property
    def schedule_file(self) -> Path:
        """Return the path of ``schedule.json``, the best schedule."""
        return self.path / "schedule.json"

    @property
    def unsaved_file(self) -> Path:
        """Return the path of ``unsaved.jsonl``: what the database could not take, as an export."""
        return self.path / "unsaved.jsonl"

    @property
    def log_file(self) -> Path:
        """Return the path of ``log.txt``."""
        return self.path / "log.txt"

    def write_manifest(self, manifest: Mapping[str, Any]) -> Path:
        """Write the manifest with its schema version.

        Returns:
            The file.

        Raises:
            RunError: The file cannot be written.
        """
        values = {"schema": MANIFEST_SCHEMA, **manifest}
        text = json.dumps(values, indent=2, sort_keys=True, allow_nan=False)
        atomic_write(self.manifest_file, text + "\n", RunError)
        return self.manifest_file

    def write_schedule(self, text: str) -> Path:
        """Write the best schedule, byte by byte as given.

        Returns:
            The file.

        Raises:
            RunError: The file cannot be written.
        """
        atomic_write(self.schedule_file, text, RunError)
        return self.schedule_file

    def log(self, line: str) -> None:
        """Append a line with its time, whole even beside other writers; the logger gets it too.

        Raises:
            RunError: The file cannot be written.
        """
        said = " ".join(line.split())
        LOG.info("%s: %s", self.path.name, said)
        text = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ} {said}\n"
        try:
            # One write in append mode, which the system does not interleave with another's.
            with self.log_file.open("ab", buffering=0) as file:
                file.write(text.encode("utf-8", "backslashreplace"))
        except OSError as error:
            message = f"cannot write: {error.strerror}"
            raise RunError(message, Location(self.log_file)) from None


def file_name_part(name: str, empty: str) -> str:
    """Return a name as part of a file name: letters, digits, ``. _ -``, short, never empty."""
    text = unicodedata.normalize("NFC", name)
    text = re.sub(r"[^\w.-]+", "_", text)
    start = re.sub(r"\.{2,}", ".", text).encode("utf-8", "replace")[:_NAME_BYTES]
    return start.decode("utf-8", "ignore").strip("._-") or empty
