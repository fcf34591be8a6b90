"""Inputs: opened and read within limits, and JSON that all readers understand alike."""

from __future__ import annotations

import errno
import json
import os
import select
import stat
from pathlib import Path
from typing import Any, BinaryIO, Final

from autoturbo.files.limits import MEMORY

WRITER_S: Final = 5
"""Seconds for the first byte of a named pipe."""

STREAMS: Final = ("/dev/", "/proc/")
"""Where names stand for what the shell has opened (``/dev/stdout``)."""


def open_input(path: Path) -> BinaryIO:
    """Return a file opened for reading; a named pipe once something has been written to it.

    Raises:
        OSError: It cannot be opened, or is a named pipe to which nobody writes.
    """
    try:
        if not stat.S_ISFIFO(path.stat().st_mode) or str(path).startswith(STREAMS):
            return path.open("rb")
    except ValueError as error:  # a name with a NUL
        raise OSError(errno.EINVAL, str(error)) from None
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # opened plainly, it would wait for ever
    waiting = select.poll()
    waiting.register(handle, select.POLLIN)
    if not waiting.poll(WRITER_S * 1000):
        os.close(handle)
        message = f"a named pipe to which nobody has written within {WRITER_S} s"
        raise OSError(errno.ETIMEDOUT, message)
    # only for the first byte is there a limit of time
    os.set_blocking(handle, True)
    return os.fdopen(handle, "rb")


def read_text(path: Path) -> str:
    """Return the text of a file of any kind, unless it is too long.

    Raises:
        OSError: It cannot be read, or it is larger than :data:`MEMORY` allows.
        UnicodeDecodeError: It is not UTF-8.
    """
    most = MEMORY.bytes
    with open_input(path) as file:
        # one byte too many tells a file that is too long; a pipe has no size to ask for
        content = file.read(most + 1)
    if len(content) > most:
        raise OSError(errno.EFBIG, f"too large, {MEMORY.hint}")
    return content.decode("utf-8")


class RepeatedFieldError(ValueError):
    """A JSON object has a field twice: readers differ in which of the two they take."""


def distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the fields of a JSON object.

    Raises:
        RepeatedFieldError: One is there twice.
    """
    values = dict(pairs)
    if len(values) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise RepeatedFieldError(f"the field {twice!r:.60} is there twice")
    return values


def parse_json(text: str) -> Any:
    """Return the value of a JSON text.

    Raises:
        json.JSONDecodeError: It is not JSON, nested too deeply, has a number of too many digits, or
            a field twice.
    """
    try:
        return json.loads(text, object_pairs_hook=distinct)
    except json.JSONDecodeError:
        raise
    except RepeatedFieldError as error:
        raise json.JSONDecodeError(str(error), text, 0) from None
    except RecursionError:
        raise json.JSONDecodeError("nested too deeply", text, 0) from None
    except ValueError:  # Python refuses to convert thousands of digits
        raise json.JSONDecodeError("a number has too many digits", text, 0) from None


def read_json(path: Path) -> Any:
    """Return the value in a JSON file; raises what :func:`read_text` and :func:`parse_json` do."""
    return parse_json(read_text(path))
