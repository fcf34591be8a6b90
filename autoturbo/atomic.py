"""Files that are either the old one or the new one, whatever happens in between.

The text goes to a temporary file in the same folder, is forced to the disk, and takes the name in
one step; the folder is forced to the disk after it, so that the new name outlives a power loss.

Whoever writes holds a lock of the system's on the temporary file. One that a killed process has
left is not locked: who writes to its folder next takes it away.
"""

from __future__ import annotations

import errno
import os
import secrets
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

_MENDED = {
    errno.ENOSPC: "free some space, or write it to another disk",
    errno.EROFS: "choose a folder that can be written",
    errno.EACCES: "choose a folder that can be written",
    errno.EPERM: "choose a folder that can be written",
}
"""What helps, by the system's number of the error."""


def atomic_write(
    path: str | Path, content: str | bytes, error: type[InputError] = UsageError
) -> None:
    """Write the whole file, or leave what was there.

    Args:
        path: the file; a symbolic link is followed.
        content: text is written as UTF-8, line ends as they are.
        error: what to raise, located at ``path``.

    Raises:
        InputError: as ``error``: the file cannot be written.
    """
    data = content.encode("utf-8") if isinstance(content, str) else content
    with atomic_writer(path, error) as file:
        file.write(data)


@contextmanager
def atomic_writer(path: str | Path, error: type[InputError] = UsageError) -> Iterator[BinaryIO]:
    """The same piece by piece: the file takes its name when the block ends without an exception.

    A device or a pipe (``/dev/stdout``) has no old content to keep and is written directly.

    Raises:
        InputError: as ``error``: the file cannot be written.
    """
    try:
        place = Path(path)
        # A device is opened by the given name: /dev/stdout may lead to a pipe, which has no other.
        direct = _is_device(place)
        opened = _direct(place) if direct else _replacing(Path(os.path.realpath(place)))
        with opened as file:
            yield file
    except (OSError, ValueError) as problem:
        raise _explained(problem, Path(path), error) from problem


def check_writable(path: str | Path, error: type[InputError] = UsageError) -> None:
    """Find out before hours of work whether a file can be written; leaves what is there.

    Raises:
        InputError: as ``error``: it cannot.
    """
    place = Path(path)
    try:
        if place.is_dir():
            raise IsADirectoryError
        if _is_device(place):
            return
        probe = Path(os.path.realpath(place)).with_name(f".autoturbo-{secrets.token_hex(8)}.tmp")
        probe.touch()
        probe.unlink()
    except (OSError, ValueError) as problem:
        raise _explained(problem, place, error) from problem


@contextmanager
def _direct(target: Path) -> Iterator[BinaryIO]:
    with target.open("wb") as file:
        yield file


@contextmanager
def _replacing(target: Path) -> Iterator[BinaryIO]:
    if target.is_dir():
        raise IsADirectoryError
    if target.parent not in _swept:
        _swept.add(target.parent)
        take_away_left(target.parent)
    # A name of its own: the target's name with an ending could be too long for the file system.
    temporary = target.with_name(f".autoturbo-{secrets.token_hex(8)}.tmp")
    try:
        with temporary.open("xb") as file:
            with suppress(OSError):
                lock(file.fileno())
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)
    except BaseException:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    _sync_folder(target.parent)


def take_away_left(folder: Path, pattern: str = LEFT) -> None:
    """Remove temporary files that killed processes have left.

    Args:
        folder: where they are.
        pattern: their names, also in folders below it.
    """
    with suppress(OSError):
        for file in folder.glob(pattern):
            with suppress(OSError):
                if time.time() - file.stat().st_mtime > _YOUNG_S and _is_left(file):
                    file.unlink()


def _is_left(file: Path) -> bool:
    """Whether nobody is writing a temporary file; unknown, and so False, where nobody can say."""
    with file.open("rb") as opened:
        lock(opened.fileno())
    return _HAS_LOCKS


def lock(handle: int, *, shared: bool = False) -> None:
    """Lock an open file until it is closed; nothing where the system has no such locks.

    Raises:
        BlockingIOError: another process has it.
    """
    if _HAS_LOCKS:
        import fcntl

        fcntl.flock(handle, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)


def _is_device(path: Path) -> bool:
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def _sync_folder(folder: Path) -> None:
    """Force the folder's entries to the disk where the system can (Windows cannot)."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _explained(problem: OSError | ValueError, path: Path, error: type[InputError]) -> InputError:
    at = Location(path)
    if isinstance(problem, IsADirectoryError):
        return error("a folder, not a file", at, f"for example {path / 'out.json'}")
    if isinstance(problem, FileNotFoundError):
        return error(f"no folder {str(path.parent)!r}", at, "create it first")
    reason = getattr(problem, "strerror", None) or str(problem)
    return error(f"cannot write: {reason}", at, _MENDED.get(getattr(problem, "errno", None) or 0))
