"""Files that a user names to be written: none of them replaces an input, or what is not ours.

Every command and every function that writes such a file opens it here. An output may replace an
older one of its own kind, told by its content. It never replaces the database in use, what is kept
beside it (``-wal``, ``-shm``, locks), or an input; and a file of another kind only if forced to.
"""

from __future__ import annotations

import enum
import os
import re
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from autoturbo.atomic import atomic_writer, check_writable
from autoturbo.errors import InputError, Location, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

_HEAD = 1 << 20
"""Bytes of a file that tell its kind: a record, the first line of an export, may be long."""

_SQLITE = b"SQLite format 3\0"
_BESIDE = ("-wal", "-shm", "-journal")
"""Ends of the names that SQLite gives to files beside a database."""

_STREAMS = ("/dev/", "/proc/")
"""Where names stand for what the shell has opened (``/dev/stdout``)."""


class Kind(enum.Enum):
    """What an output is; the value is for people."""

    SCHEDULE = "a schedule file"
    KERNELS = "a kernels file"
    MODEL = "an ONNX model"
    WEIGHTS = "the data file of an ONNX model"
    REPORT = "a report"
    TRACE = "a trace"
    SIDE_CAR = "a side-car for Netron"
    RECORDS = "an export of records"
    PARQUET = "a Parquet file"
    DATABASE = "an exported database"
    TABLE = "a table of a sweep"
    SVG = "a plot (SVG)"
    PNG = "a plot (PNG)"
    PDF = "a plot (PDF)"
    TARGET = "a target file"
    TREES = "the trees of a cost model"
    COST_MODEL_CARD = "the card of a cost model"
    DATASET_CARD = "the card of a data set"
    DATASET_README = "the description of a data set"


def _matches(pattern: bytes) -> Callable[[bytes], bool]:
    compiled = re.compile(pattern, re.DOTALL)
    return lambda head: compiled.match(head) is not None


def _is_exported_database(head: bytes) -> bool:
    """Ours, and without a write-ahead log: one that is tuned into has one."""
    return head.startswith(_SQLITE) and head[68:72] == b"ATub" and head[18:20] == b"\1\1"


_RECOGNISED: Mapping[Kind, Callable[[bytes], bool]] = {
    Kind.SCHEDULE: _matches(rb'\s*\{\s*"format"\s*:\s*"autoturbo-(machine-)?schedule"'),
    Kind.KERNELS: _matches(rb'\s*\{\s*"format"\s*:\s*"autoturbo-kernels"'),
    Kind.MODEL: _matches(rb"\x08[\x01-\x3f]"),  # the version of the format, its first field
    Kind.REPORT: _matches(rb'<!DOCTYPE html>\s*<html lang="en">.{,60}Content-Security-Policy'),
    Kind.TRACE: _matches(rb'\s*\{"traceEvents"'),
    Kind.SIDE_CAR: _matches(rb'\s*\{\s*"signature"\s*:\s*"netron:attachment"'),
    Kind.RECORDS: _matches(rb'\{[^\n]*"kind"\s*:\s*"(run|trial|best|kernel)"'),
    Kind.PARQUET: _matches(rb"PAR1"),
    Kind.DATABASE: _is_exported_database,
    Kind.TABLE: _matches(rb"[^\n]*latency_s[^\n]*,trials,front,(slower_than,)?run\n"),
    Kind.SVG: _matches(rb"\s*<(\?xml[^>]*>\s*(<!DOCTYPE svg[^>]*>\s*)?<)?svg"),
    Kind.PNG: _matches(rb"\x89PNG"),
    Kind.PDF: _matches(rb"%PDF"),
    Kind.TARGET: _matches(rb'\s*\{.*"(ddr|units)"\s*:'),
    Kind.TREES: _matches(rb"\{L"),
    Kind.COST_MODEL_CARD: _matches(rb'\s*\{.*"features_schema"\s*:'),
    Kind.DATASET_CARD: _matches(rb'\s*\{.*"latency_over_default"\s*:'),
    Kind.DATASET_README: _matches(rb"# Measurements\n"),
}


@dataclass(frozen=True, slots=True)
class Outputs:
    """What the outputs of one call may not replace.

    Attributes:
        inputs: files and folders that the call reads.
        database: the one in use; None for none.
        force: replace files of another kind.
    """

    inputs: tuple[Path, ...] = ()
    database: Path | None = None
    force: bool = False

    def reading(self, *inputs: str | Path | None) -> Outputs:
        """Return the same with more inputs; names that no file has are none."""
        more = (Path(path) for path in inputs if path is not None)
        there = tuple(path for path in more if path.is_file())
        return Outputs((*self.inputs, *there), self.database, self.force)

    def check(self, path: str | Path, kind: Kind, error: type[InputError] = UsageError) -> None:
        """Refuse a place before the work whose result is to go there.

        Args:
            path: the file to write; links are followed.
            kind: of what is to be written.
            error: what to raise, located at ``path``.

        Raises:
            InputError: as ``error``: it cannot be written, or would replace what is kept.
        """
        place, at = Path(path), Location(path)
        check_writable(place, error)
        if self.database is not None and (what := _of_database(place, self.database)):
            raise error(f"it would replace {what}", at, "give another name")
        if _belongs_to_another(place):
            raise error("it is for what SQLite keeps beside a database", at, "give another name")
        if any(map(_place_within(place), self.inputs)):
            raise error("it would replace an input of the same call", at, "give another name")
        if not place.is_file() or str(path).startswith(_STREAMS):
            return
        found = _other_kind(place, kind, error)
        if found is None:
            return
        if not self.force:
            message = f"{found} is there, which is not {kind.value}"
            raise error(message, at, "give another name, or replace it with --force")
        if any(_is_data_of(place, model) for model in self.inputs):
            raise error("it would replace the weights of an input", at, "give another name")

    def check_folder(
        self, folder: Path, files: Mapping[str, Kind], error: type[InputError] = UsageError
    ) -> None:
        """Refuse a folder before the work whose files go there; one that is missing is made later.

        Args:
            folder: may be missing.
            files: what is to be written there, by name.
            error: what to raise, located at the file.

        Raises:
            InputError: as ``error``: a file there may not be replaced, or the folder is a file.
        """
        if folder.is_file():
            raise error("a file, not a folder", Location(folder), "give another name")
        if folder.is_dir():
            for name, kind in files.items():
                self.check(folder / name, kind, error)

    @contextmanager
    def open(
        self, path: str | Path, kind: Kind, error: type[InputError] = UsageError
    ) -> Iterator[BinaryIO]:
        """Open a file, which takes its name when the block ends without an exception.

        Raises:
            InputError: as ``error``: see :meth:`check`.
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
            InputError: as ``error``: see :meth:`check`.
        """
        with self.open(path, kind, error) as file:
            file.write(content.encode() if isinstance(content, str) else content)


NO_OTHERS = Outputs()
"""The outputs of a call that reads nothing else than what is written says."""


def _place_within(place: Path) -> Callable[[Path], bool]:
    """Return what says whether a file or folder is the place, or holds it."""
    real = Path(os.path.realpath(place))

    def within(given: Path) -> bool:
        found = Path(os.path.realpath(given))
        return (
            real == found or _same_file(place, given) or (given.is_dir() and found in real.parents)
        )

    return within


def _of_database(place: Path, database: Path) -> str:
    """What of a database a place is, in words; empty where it is nothing of it.

    Names count also where no file is there yet, and whatever their case: some file systems ignore
    it, and the database may be made within the same call.
    """
    real, kept = Path(os.path.realpath(place)), Path(os.path.realpath(database))
    if _same_file(place, database):
        return "the database itself"
    if any(_same_file(place, Path(f"{kept}{end}")) for end in _BESIDE):
        return "what is kept beside the database"
    name, base = real.name.casefold(), kept.name.casefold()
    if not name.startswith(base) or not _same_folder(real.parent, kept.parent):
        return ""
    end = name[len(base) :]
    if not end:
        return "the database itself"
    beside = end in _BESIDE or re.fullmatch(r"\..*\.lock", end)
    return "what is kept beside the database" if beside else ""


def _belongs_to_another(place: Path) -> bool:
    """Whether the name is one that SQLite uses beside a database that is there."""
    real = os.path.realpath(place)
    ends = [end for end in _BESIDE if real.endswith(end)]
    return any(_head(Path(real.removesuffix(end)), len(_SQLITE)) == _SQLITE for end in ends)


def _other_kind(place: Path, kind: Kind, error: type[InputError]) -> str | None:
    """What a file is, in words, where it is not of the kind that replaces it; else None."""
    head = _head(place, _HEAD)
    if head is None:
        raise error("a file is there that cannot be read", Location(place), "give another name")
    if kind is Kind.WEIGHTS:  # raw numbers: told by the model that they stand beside
        model = _head(place.with_suffix(""), 2)
        ours = place.suffix == ".data" and model is not None
        ours = ours and _RECOGNISED[Kind.MODEL](model or b"")
    else:
        ours = _RECOGNISED[kind](head)
    if not head or ours:
        return None
    return _described(head)


def _described(head: bytes) -> str:
    """What a file seems to be."""
    if head.startswith(_SQLITE):
        return "an SQLite database"
    known = (kind.value for kind, matches in _RECOGNISED.items() if matches(head))
    return next(known, "a JSON file" if head.lstrip()[:1] in (b"{", b"[") else "another file")


def _head(path: Path, size: int) -> bytes | None:
    """The first bytes of a file; None where it cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read(size)
    except (OSError, ValueError):
        return None


def _is_data_of(place: Path, model: Path) -> bool:
    """Whether a model keeps values in a file."""
    head = _head(model, 2)
    if head is None or not _RECOGNISED[Kind.MODEL](head):
        return False
    import onnx

    from autoturbo.graph.external_data import tensors_of

    try:
        graph = onnx.load(model, load_external_data=False).graph
    except Exception:  # noqa: BLE001  protobuf's error, whose module has no types
        return False
    names = {e.value for t in tensors_of(graph) for e in t.external_data if e.key == "location"}
    return any(_same_file(place, model.parent / name) for name in names)


def _same_file(one: Path, other: Path) -> bool:
    """Also under two names: a hard link, or a file system that ignores case."""
    try:
        return one.samefile(other)
    except (OSError, ValueError):
        return False


def _same_folder(one: Path, other: Path) -> bool:
    return one == other or _same_file(one, other)
