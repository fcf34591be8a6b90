"""How much one input may ask for: limits that are checked before the work, and how to raise them.

Each limit is far above what models, runs and files of this field have, and can be raised by an
environment variable, which every message about it names.
"""

from __future__ import annotations

import errno
import json
import os
import select
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from autoturbo.errors import Location, UsageError

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class Limit:
    """The most that is allowed of something.

    Attributes:
        variable: the environment variable that replaces it.
        usual: where that is not set.
        unit: of both, for messages.
    """

    variable: str
    usual: int
    unit: str = ""

    @property
    def most(self) -> int:
        """The limit that holds now.

        Raises:
            UsageError: the environment variable is not a positive whole number.
        """
        text = os.environ.get(self.variable, "")
        if text and not (text.isascii() and text.isdigit() and 0 < len(text) <= _DIGITS):
            at = Location(field=self.variable)
            raise UsageError(f"{text!r:.40} is not a whole number from 1 on", at)
        return int(text or self.usual)

    @property
    def bytes(self) -> int:
        """The same of a limit in MiB."""
        return self.most * _MIB

    @property
    def hint(self) -> str:
        """How to raise it."""
        unit = f" {self.unit}" if self.unit else ""
        return f"the limit is {self.most}{unit}; {self.variable}=N allows N{unit}"


_DIGITS: Final = 12

_MIB: Final = 2**20

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


_WRITER_S: Final = 5
"""Seconds for the first byte of a named pipe."""

_STREAMS: Final = ("/dev/", "/proc/")
"""Where pipes are that the shell has opened, whose writers are there."""


def open_input(path: Path) -> BinaryIO:
    """Return a file opened for reading; a named pipe once something has been written to it.

    Raises:
        OSError: it cannot be opened, or is a named pipe to which nobody writes.
    """
    try:
        named_pipe = stat.S_ISFIFO(path.stat().st_mode) and not str(path).startswith(_STREAMS)
        if not named_pipe:
            return path.open("rb")
    except ValueError as error:  # a name with a NUL
        raise OSError(errno.EINVAL, str(error)) from None
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # opened plainly, it would wait for ever
    waiting = select.poll()
    waiting.register(handle, select.POLLIN)
    if not waiting.poll(_WRITER_S * 1000):
        os.close(handle)
        message = f"a named pipe to which nobody has written within {_WRITER_S} s"
        raise OSError(errno.ETIMEDOUT, message)
    os.set_blocking(handle, True)
    return os.fdopen(handle, "rb")


def read_text(path: Path) -> str:
    """Return the text of a file, whatever kind of file it is, as long as it is not too long.

    Raises:
        OSError: it cannot be read, or it is larger than :data:`MEMORY` allows.
        UnicodeDecodeError: it is not UTF-8.
    """
    most = MEMORY.bytes
    with open_input(path) as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise OSError(errno.EFBIG, f"too large, {MEMORY.hint}")
    return content.decode("utf-8")


def parse_json(text: str) -> Any:
    """Return the value of a JSON text.

    Raises:
        json.JSONDecodeError: it is not JSON, nested too deeply, or has a number of too many digits.
    """
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        raise
    except RecursionError:
        raise json.JSONDecodeError("nested too deeply", text, 0) from None
    except ValueError:  # Python refuses to convert thousands of digits
        raise json.JSONDecodeError("a number has too many digits", text, 0) from None


def read_json(path: Path) -> Any:
    """Return the value in a JSON file; raises what :func:`read_text` and :func:`parse_json` do."""
    return parse_json(read_text(path))
