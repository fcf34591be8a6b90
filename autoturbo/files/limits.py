"""Limits on inputs and on what is done at a time.

They are far above what models, runs and files of this field have. Each can be raised by an
environment variable, which every message about it names.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Final

from autoturbo.errors import Location, UsageError


@dataclass(frozen=True, slots=True)
class Limit:
    """A limit that an environment variable can replace.

    Attributes:
        variable: Environment variable that replaces the limit.
        usual: The limit where that variable is not set.
        unit: Unit of the limit, for messages.
    """

    variable: str
    usual: int
    unit: str = ""

    @property
    def most(self) -> int:
        """Return the limit that holds now.

        Raises:
            UsageError: The environment variable is not a positive whole number.
        """
        text = os.environ.get(self.variable) or str(self.usual)
        # few digits, since int() refuses thousands of them in words of its own
        if not re.fullmatch("[0-9]{1,12}", text):
            at = Location(field=self.variable)
            raise UsageError(f"{text!r:.40} is not a whole number from 1 on", at)
        return int(text)

    @property
    def hint(self) -> str:
        """Return how to raise the limit."""
        unit = f" {self.unit}" if self.unit else ""
        return f"the limit is {self.most}{unit}; {self.variable}=N allows N{unit}"

    @property
    def bytes(self) -> int:
        """Return a limit in MiB as bytes."""
        return self.most << 20


NODES: Final = Limit("AUTOTURBO_MOST_NODES", 2**16)
"""Nodes that a model may have once its functions are inlined."""

MEMORY: Final = Limit("AUTOTURBO_MOST_MIB", 256, "MiB")
"""What a text file may hold, and what an input may unpack to that is much smaller on disk."""

JOBS: Final = Limit("AUTOTURBO_MOST_JOBS", max(64, 4 * (os.cpu_count() or 1)))
"""Processes that measure."""

ROUND: Final = Limit("AUTOTURBO_MOST_ROUND", 2**12)
"""Trials that a sampler proposes at a time."""

_RATIO: Final = 1000
"""Bytes that a byte of a file may unpack to, however many they are: records compress 20 to 50."""


def is_bomb(unpacked: int, stored: int) -> bool:
    """Return whether so many bytes of a file unpack to far more than is plausible."""
    return unpacked > max(MEMORY.bytes, _RATIO * stored)
