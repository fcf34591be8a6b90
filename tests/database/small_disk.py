"""File systems of a test's own: small ones, and ones that cannot be written."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def mounted(place: Path, mebibytes: int) -> Iterator[Path]:
    """A file system in memory of a size; the test is skipped where none may be mounted."""
    mount = shutil.which("mount")
    if mount is None:
        pytest.skip("no file system can be mounted here")
    place.mkdir()
    command = [mount, "-t", "tmpfs", "-o", f"size={mebibytes}m", "tmpfs", str(place)]
    if subprocess.run(command, check=False, capture_output=True).returncode:
        pytest.skip("no file system may be mounted here")
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)  # noqa: S607


def make_read_only(place: Path) -> None:
    """Of a file system that :func:`mounted` has made."""
    command = ["mount", "-o", "remount,ro", str(place)]
    subprocess.run(command, check=True, capture_output=True)
