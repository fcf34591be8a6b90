"""Which process works on a run: an advisory lock that ends with the process, however it ends.

The lock is one of the system's (``flock``) on a small file beside the database, which holds the
number of the process. A process that is killed leaves the file and loses the lock. Where the system
or the file system has no such locks, runs are not held.
"""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path

from autoturbo.errors import Location, RunError
from autoturbo.files import lock

_HAS_LOCKS = find_spec("fcntl") is not None  # Windows has none of the kind
_TRIES, _PAUSE_S = 5, 0.05  # someone who only looks whether a run is held has it for an instant


@contextmanager
def hold(database: Path, run: str) -> Iterator[None]:
    """Hold a run: this process alone works on it until the block ends.

    Raises:
        RunError: Another process holds it, and which one.
    """
    path = lock_file(database, run)
    handle = _taken(path, database, run)
    try:
        yield
    finally:
        if handle is not None:
            with suppress(OSError):
                path.unlink()
            os.close(handle)


def is_held(database: Path, run: str) -> bool | None:
    """Return whether some process works on a run; None where the system cannot say."""
    if not _HAS_LOCKS:
        return None
    try:
        with lock_file(database, run).open("rb") as file:
            lock(file.fileno(), shared=True)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    except OSError:
        return None
    return False


def lock_file(database: Path, run: str) -> Path:
    """Return the file whose lock stands for a run, beside the database itself, not a link to it."""
    name = run if re.fullmatch(r"[\w.-]{1,40}", run) else hashlib.sha256(run.encode()).hexdigest()
    place = Path(os.path.realpath(database))
    return place.with_name(f"{place.name}.{name}.lock")


def _taken(path: Path, database: Path, run: str) -> int | None:
    """Return the handle of the locked file; None where there are no locks."""
    if not _HAS_LOCKS:
        return None
    for _ in range(_TRIES):
        try:
            handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError:
            return None
        try:
            lock(handle, shared=False)
            if _same(handle, path):
                os.truncate(handle, 0)
                os.write(handle, f"{os.getpid()}\n".encode())
                return handle
        except BlockingIOError:
            time.sleep(_PAUSE_S)
        except OSError:
            os.close(handle)
            return None
        os.close(handle)
    with suppress(OSError, ValueError):
        process = int(path.read_text(encoding="ascii"))
        message = f"run {run!r} is going on in process {process}"
        raise RunError(message, Location(database), "wait for it, or end it and resume")
    raise RunError(f"run {run!r} is going on in another process", Location(database))


def _same(handle: int, path: Path) -> bool:
    """Return whether the file still has its name: the last holder may have removed it."""
    try:
        return os.path.samestat(os.fstat(handle), path.stat())
    except FileNotFoundError:
        return False
