"""Standard output and standard error as outputs: one that takes nothing is an error of its own.

A stream that is full (``/dev/full``) or closed (``>&-``) is told by the other one, with status 1.
A reader that has left (``| head``) is no error to speak of.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Iterator
from typing import TextIO

from autoturbo.errors import OutputStreamError

_FIRST_FREE = 3
"""The least number of a file that is none of the three standard ones."""


class StreamError(OSError):
    """A standard stream does not take what is written to it.

    Args:
        name: of the stream, for people.
        reason: the system's.
    """

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"{name}: {reason}")
        self.name, self.reason = name, reason

    def explained(self) -> OutputStreamError:
        """The error to report; raises nothing."""
        message = f"cannot write to {self.name}: {self.reason}"
        return OutputStreamError(message, hint="files and the database are whole")


class CheckedStream(io.TextIOBase):
    """A standard stream whose errors are told from those of files.

    Args:
        inner: the stream; None where it was closed when the program began.
        name: for people.
    """

    def __init__(self, inner: TextIO | None, name: str) -> None:
        self._inner, self._name = inner, name

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """The encoding of the stream."""
        return getattr(self._inner, "encoding", None) or "utf-8"

    @property
    def is_closed(self) -> bool:
        """Whether nothing can be written to it."""
        return self._inner is None

    def write(self, text: str) -> int:
        """Write, or raise StreamError."""
        with self._checked() as inner:
            return inner.write(text)

    def flush(self) -> None:
        """Flush, or raise StreamError."""
        if self._inner is not None:  # io calls it once more when the object goes
            with self._checked() as inner:
                inner.flush()

    def isatty(self) -> bool:
        """Whether a terminal shows it."""
        return self._inner is not None and self._inner.isatty()

    def writable(self) -> bool:
        """Always."""
        return True

    def fileno(self) -> int:
        """The system's number of the stream."""
        if self._inner is None:
            raise io.UnsupportedOperation("fileno")
        return self._inner.fileno()

    def drop(self) -> None:
        """Throw away what cannot be written, so that the end of the process does not try again."""
        if self._inner is None:
            return
        try:
            self._inner.flush()
        except (OSError, ValueError):
            with contextlib.suppress(OSError, ValueError):
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, self._inner.fileno())
                os.close(nowhere)

    @contextlib.contextmanager
    def _checked(self) -> Iterator[TextIO]:
        if self._inner is None:
            raise StreamError(self._name, "it is closed")
        try:
            yield self._inner
        except BrokenPipeError:
            raise
        except OSError as error:
            raise StreamError(self._name, (error.strerror or str(error)).lower()) from None


@contextlib.contextmanager
def checked_streams() -> Iterator[None]:
    """Put checked streams in the place of ``sys.stdout`` and ``sys.stderr`` for a command."""
    _occupy()
    before = sys.stdout, sys.stderr
    out, err = _checked(before[0], "standard output"), _checked(before[1], "standard error")
    sys.stdout, sys.stderr = out, err
    try:
        yield
    finally:
        out.drop()
        err.drop()
        sys.stdout, sys.stderr = before


def _checked(stream: TextIO | None, name: str) -> CheckedStream:
    """The stream, checked; names that its encoding lacks are shown as escapes."""
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(errors="backslashreplace")
    return CheckedStream(stream, name)


def _occupy() -> None:
    """Open the null device as every standard stream that is closed.

    Otherwise the next file that is opened, a database for one, has the number of the stream, and
    what a library prints goes into it.
    """
    with contextlib.suppress(OSError):
        while (handle := os.open(os.devnull, os.O_RDWR)) < _FIRST_FREE:
            os.set_inheritable(handle, True)  # noqa: FBT003  it takes no name
        os.close(handle)


def refuse_closed() -> None:
    """Refuse to begin work whose answer nobody can be given.

    Raises:
        OutputStreamError: standard output is closed.
    """
    out = sys.stdout
    if isinstance(out, CheckedStream) and out.is_closed:
        raise OutputStreamError("standard output is closed", hint="send it to /dev/null instead")


def show_error(text: str, *, on_output: bool) -> None:
    """Print a line that tells of an error; where its stream takes nothing, on the other one.

    Args:
        text: the line.
        on_output: whether it belongs on standard output.
    """
    streams = (sys.stdout, sys.stderr) if on_output else (sys.stderr, sys.stdout)
    for stream in streams:
        with contextlib.suppress(BrokenPipeError, StreamError):
            print(text, file=stream, flush=True)
            return
