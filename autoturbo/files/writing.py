"""Atomic writes: an output is the old file or the new one, whatever happens in between.

Its text goes to a temporary file in the same folder, is forced to the disk, and takes the name in
one step; the folder is forced to the disk after it. Who writes holds a lock of the system's on the
temporary file. One that a killed process has left is not locked: who writes to its folder next
removes it.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from autoturbo.errors import InputError, Location, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

_HAS_LOCKS = find_spec("fcntl") is not None  # Windows has none of the kind

LEFT = ".autoturbo-*.tmp"
"""What temporary files are called."""

_YOUNG_S = 10.0
"""Seconds in which one that is not locked may be one that is about to be."""

_swept: set[Path] = set()
"""Folders in which this process has looked."""

_OTHER_FOLDER = "choose a folder that can be written"

_MENDED = {
    errno.ENOSPC: "free some space, or write it to another disk",
    **dict.fromkeys((errno.EROFS, errno.EACCES, errno.EPERM), _OTHER_FOLDER),
}
"""What helps, by the system's number of the error."""


def atomic_write(
    path: str | Path, content: str | bytes, error: type[InputError] = UsageError
) -> None:
    """Write a whole file, or leave the old one.

    Args:
        path: The file; a symbolic link is followed.
        content: Text is written as UTF-8, line ends as they are.
        error: Class of the error to raise, located at ``path``.

    Raises:
        InputError: As ``error``: the file cannot be written.
    """
    with atomic_writer(path, error) as file:
        file.write(content.encode("utf-8") if isinstance(content, str) else content)


@contextmanager
def atomic_writer(path: str | Path, error: type[InputError] = UsageError) -> Iterator[BinaryIO]:
    """Write a file atomically: it takes its name when the block ends without an exception.

    A device or a pipe (``/dev/stdout``) has no old content to keep and is written directly.

    Yields:
        The file to write bytes to.

    Raises:
        InputError: As ``error``: the file cannot be written.
    """  # noqa: DOC501  _explained() makes the error
    place = Path(path)
    try:
        # A device is opened by the given name: /dev/stdout may lead to a pipe, which has no other.
        with place.open("wb") if _is_device(place) else _replacing(place) as file:
            yield file
    except (OSError, ValueError) as context:
        raise _explained(context, place, error) from context


def check_writable(path: str | Path, error: type[InputError] = UsageError) -> None:
    """Check before hours of work that a file can be written; leave it as it is.

    Raises:
        InputError: As ``error``: it cannot.
    """  # noqa: DOC501  _explained() makes the error
    place = Path(path)
    try:
        if not _is_device(place):
            probe = _temporary(place)
            probe.touch()
            probe.unlink()
    except (OSError, ValueError) as context:
        raise _explained(context, place, error) from context


def take_away_left(folder: Path, pattern: str = LEFT) -> None:
    """Remove temporary files that killed processes have left.

    Args:
        folder: The folder in which they lie.
        pattern: Pattern of their names, also in folders below it.
    """
    with suppress(OSError):
        for file in folder.glob(pattern) if _HAS_LOCKS else ():
            with suppress(OSError):
                if time.time() - file.stat().st_mtime > _YOUNG_S:
                    with file.open("rb") as opened:
                        lock(opened.fileno())
                    file.unlink()


def lock(handle: int, *, shared: bool = False) -> None:
    """Lock an open file until it is closed; do nothing where the system has no such locks.

    Raises:
        BlockingIOError: Another process has it.
    """
    if _HAS_LOCKS:
        import fcntl

        fcntl.flock(handle, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)


@contextmanager
def _replacing(place: Path) -> Iterator[BinaryIO]:
    temporary = _temporary(place)
    # once a process: listing a folder of many files takes long
    if temporary.parent not in _swept:
        _swept.add(temporary.parent)
        take_away_left(temporary.parent)
    try:
        # never into a file that is there, whoever made it
        with temporary.open("xb") as file:
            # without locks nobody else takes the file away either: see take_away_left
            with suppress(OSError):
                lock(file.fileno())
            yield file
            file.flush()
            os.fsync(file.fileno())
        # a link stays one: what it leads to is replaced
        temporary.replace(os.path.realpath(place))
    # Ctrl-C leaves no temporary file either
    except BaseException:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    with suppress(OSError):  # Windows cannot
        folder = os.open(temporary.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _temporary(place: Path) -> Path:
    """Return a new name: the place's with a suffix could be too long for the file system."""
    if place.is_dir():
        raise IsADirectoryError
    name = LEFT.replace("*", os.urandom(8).hex())
    return Path(os.path.realpath(place)).with_name(name)


def _is_device(path: Path) -> bool:
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def _explained(context: OSError | ValueError, path: Path, error: type[InputError]) -> InputError:
    at = Location(path)
    if isinstance(context, IsADirectoryError):
        return error("a folder, not a file", at, f"for example {path / 'out.json'}")
    if isinstance(context, FileNotFoundError):
        return error(f"no folder {str(path.parent)!r}", at, "create it first")
    reason = getattr(context, "strerror", None) or str(context)
    return error(f"cannot write: {reason}", at, _MENDED.get(getattr(context, "errno", None) or 0))
