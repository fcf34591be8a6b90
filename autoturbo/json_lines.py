"""Files of JSON lines that grow while something goes on, and outlive a kill at any moment."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from autoturbo.errors import Location, UsageError


@dataclass(eq=False)
class JsonLines:
    """A file with a JSON value a line, each written whole before anything else goes on.

    Attributes:
        path: The file, which need not be there.
    """

    path: Path
    _ended: bool | None = field(default=None, init=False)

    def read(self) -> list[Any]:
        """Return the values that are there, without the rest of a line that a kill has cut."""
        try:
            lines = self.path.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            return []
        return [value for line in lines if (value := _value(line)) is not None]

    def append(self, value: Any) -> None:
        """Write a value at the end.

        Raises:
            UsageError: The file cannot be written.
        """
        line = json.dumps(value, allow_nan=False).encode() + b"\n"
        try:
            if self._ended is None:
                self._ended = not self.path.exists() or self.path.read_bytes()[-1:] in (b"", b"\n")
                line = line if self._ended else b"\n" + line  # what is cut spoils no other line
            # One write in append mode, which the system does not interleave with another's.
            with self.path.open("ab", buffering=0) as stream:
                stream.write(line)
        except OSError as error:
            message = f"cannot write: {error.strerror}"
            raise UsageError(message, Location(self.path)) from None


def _value(line: str) -> Any:
    """Return the value of a line; None where it is none."""
    try:
        return json.loads(line)
    except ValueError:
        return None
