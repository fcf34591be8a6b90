"""Outputs of a call: their kinds, and what they may replace.

An output may replace an older one of its own kind, told by its content. It never replaces the
database in use, what is kept beside it (``-wal``, ``-shm``, locks), or an input; and a file of
another kind only if forced to.
"""

from __future__ import annotations

import enum
import os
import re
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Self

from autoturbo.errors import InputError, Location, UsageError
from autoturbo.files.inputs import STREAMS
from autoturbo.files.writing import atomic_write, atomic_writer, check_writable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_HEAD = 1 << 20
"""Bytes of a file that tell its kind: a record, the first line of an export, may be long."""

_SQLITE = b"SQLite format 3\0"

_BESIDE = ("-wal", "-shm", "-journal")
"""Ends of the names that SQLite gives to files beside a database."""

_ELSEWHERE = "give another name"


class Kind(enum.Enum):
    """A kind of output: its name for people, and how files of the kind begin."""

    pattern: bytes

    def __new__(cls, text: str, pattern: bytes) -> Self:
        """Make a kind whose value is its name for people."""
        kind = object.__new__(cls)
        kind._value_, kind.pattern = text, pattern
        return kind

    SCHEDULE = "a schedule file", rb'\s*\{\s*"format"\s*:\s*"autoturbo-(machine-)?schedule"'
    KERNELS = "a kernels file", rb'\s*\{\s*"format"\s*:\s*"autoturbo-kernels"'
    MODEL = "an ONNX model", rb"\x08[\x01-\x3f]"  # the version of the format, its first field
    WEIGHTS = "the data file of an ONNX model", rb"(?!)"  # raw numbers: told by their model
    REPORT = "a report", rb'<!DOCTYPE html>\s*<html lang="en">.{,60}Content-Security-Policy'
    TRACE = "a trace", rb'\s*\{"traceEvents"'
    RECORDS = "an export of records", rb'\{[^\n]*"kind"\s*:\s*"(run|trial|best)"'
    # ours, and without a write-ahead log: one that is tuned into has one
    DATABASE = "an exported database", _SQLITE + rb"..\x01\x01.{48}ATub"
    TABLE = (
        "a table of a sweep",
        (
            rb"[^\n]*latency_s[^\n]*,trials,(idle_trials,late_gain,)?(cost,)?front,(slower_than,)?run\n"
        ),
    )
    SVG = "a plot (SVG)", rb"\s*<(\?xml[^>]*>\s*(<!DOCTYPE svg[^>]*>\s*)?<)?svg"
    PNG = "a plot (PNG)", rb"\x89PNG"
    PDF = "a plot (PDF)", rb"%PDF"
    TARGET = "a target file", rb'\s*\{.*"(ddr|units)"\s*:|# A target calibrated with '
    TREES = "the trees of a cost model", rb"\{L"
    COST_MODEL_CARD = "the card of a cost model", rb'\s*\{.*"features_schema"\s*:'
    DATASET_CARD = "the card of a data set", rb'\s*\{.*"latency_over_default"\s*:'
    DATASET_README = "the description of a data set", rb"# Measurements\n"

    def begins(self, head: bytes) -> bool:
        """Return whether a file that begins so is of the kind."""
        return re.match(self.pattern, head, re.DOTALL) is not None


@dataclass(frozen=True, slots=True)
class Outputs:
    """The outputs of one call, and the files that they may not replace.

    Attributes:
        inputs: Files and folders that the call reads.
        database: Path of the database in use; None for none.
        force: Whether files of another kind may be replaced.
    """

    inputs: tuple[Path, ...] = ()
    database: Path | None = None
    force: bool = False

    def reading(self, *inputs: str | Path | None) -> Outputs:
        """Return these outputs with more inputs; names that no file has are left out."""
        # not Path.is_file, which raises for names that no file can have
        there = [Path(path) for path in inputs if path and os.path.isfile(path)]  # noqa: PTH113
        return Outputs((*self.inputs, *there), self.database, self.force)

    def check(self, path: str | Path, kind: Kind, error: type[InputError] = UsageError) -> None:
        """Refuse a place before the work whose result is to go there.

        Args:
            path: The file to write; links are followed.
            kind: Kind of the file that is to be written.
            error: Class of the error to raise, located at ``path``.

        Raises:
            InputError: As ``error``: it cannot be written, or would replace what is kept.
        """
        place, at = Path(path), Location(path)
        check_writable(place, error)
        if kept := self._kept(place):
            raise error(kept, at, _ELSEWHERE)
        if not place.is_file() or str(path).startswith(STREAMS):
            return
        head = _head(place, _HEAD)
        if head is None:
            raise error("a file is there that cannot be read", at, _ELSEWHERE)
        # raw numbers have no head of their own: the model that they lie beside has one
        if kind is Kind.WEIGHTS and place.suffix == ".data":
            ours = Kind.MODEL.begins(_head(place.with_suffix(""), 2) or b"")
        else:
            ours = kind.begins(head)
        if ours or not head:  # an empty file holds nothing to lose
            return
        if not self.force:
            message = f"{_described(head)} is there, which is not {kind.value}"
            raise error(message, at, f"{_ELSEWHERE}, or replace it with --force")
        # --force is for files of another kind, not for what the call itself reads
        if any(_is_data_of(place, model) for model in self.inputs):
            raise error("it would replace the weights of an input", at, _ELSEWHERE)

    def check_folder(self, folder: Path, files: Mapping[str, Kind]) -> None:
        """Refuse a folder for outputs before the work; a missing one is made later.

        Args:
            folder: The folder, which may be missing.
            files: Kinds of the files that are to be written there, by name.

        Raises:
            UsageError: A file there may not be replaced, or the folder is a file.
        """
        if folder.is_file():
            raise UsageError("a file, not a folder", Location(folder), _ELSEWHERE)
        for name, kind in files.items() if folder.is_dir() else ():
            self.check(folder / name, kind)

    @contextmanager
    def open(
        self, path: str | Path, kind: Kind, error: type[InputError] = UsageError
    ) -> Iterator[BinaryIO]:
        """Open a file, which takes its name when the block ends without an exception.

        Yields:
            The file to write bytes to.

        Raises:
            InputError: As ``error``: see :meth:`check`.
        """
        self.check(path, kind, error)
        with atomic_writer(path, error) as file:
            yield file

    def write(
        self,
        path: str | Path,
        kind: Kind,
        content: str | bytes,
        error: type[InputError] = UsageError,
    ) -> None:
        """Write a whole file; text as UTF-8, line ends as they are.

        Raises:
            InputError: As ``error``: see :meth:`check`.
        """
        self.check(path, kind, error)
        atomic_write(path, content, error)

    def _kept(self, place: Path) -> str:
        """Return why nothing may be written to a place; empty where it may be.

        Names that belong to the database count also where no file is there yet, and whatever their
        case: some file systems ignore it, and the database may be made within the same call.
        """
        real = Path(os.path.realpath(place))
        if self.database is not None:
            kept = Path(os.path.realpath(self.database))
            name, base = real.name.casefold(), kept.name.casefold()
            near = name.startswith(base) and _same(real.parent, kept.parent)
            end = name.removeprefix(base)
            if _same(real, kept) or (near and not end):
                return "it would replace the database itself"
            beside = near and (end in _BESIDE or re.fullmatch(r"\..*\.lock", end))
            if beside or any(_same(real, Path(f"{kept}{end}")) for end in _BESIDE):
                return "it would replace what is kept beside the database"
        ends = [end for end in _BESIDE if str(real).endswith(end)]
        if any(_head(Path(str(real).removesuffix(end)), len(_SQLITE)) == _SQLITE for end in ends):
            return "it is for what SQLite keeps beside a database"
        for given in self.inputs:
            found = Path(os.path.realpath(given))
            if _same(real, found) or (given.is_dir() and found in real.parents):
                return "it would replace an input of the same call"
        return ""


NO_OTHERS = Outputs()
"""The outputs of a call that reads nothing else than what is written says."""


def _described(head: bytes) -> str:
    """Return the apparent kind of a file."""
    if head.startswith(_SQLITE):
        return "an SQLite database"
    known = (kind.value for kind in Kind if kind.begins(head))
    return next(known, "a JSON file" if head.lstrip()[:1] in (b"{", b"[") else "another file")


def _head(path: Path, size: int) -> bytes | None:
    """Return the first bytes of a file; None where it cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read(size)
    except (OSError, ValueError):
        return None


_LOCATION = re.compile(rb"\n\x08location\x12([\x80-\xff]*[\x00-\x7f])")
"""How protobuf writes that values of a tensor are in a file, up to the length of its name."""


def _is_data_of(place: Path, model: Path) -> bool:
    """Return whether a model keeps values in a file."""
    if not Kind.MODEL.begins(_head(model, 2) or b""):
        return False
    data = model.read_bytes()
    names = set[bytes]()
    for found in _LOCATION.finditer(data):
        size = sum((byte & 0x7F) << 7 * at for at, byte in enumerate(found[1]))
        names.add(data[found.end() : found.end() + size])
    return any(_same(place, model.parent / os.fsdecode(name)) for name in names)


def _same(one: Path, other: Path) -> bool:
    """Return whether two names are of one file: a hard link, or a system that ignores case."""
    try:
        return one == other or one.samefile(other)
    except (OSError, ValueError):
        return False
