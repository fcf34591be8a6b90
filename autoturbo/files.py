"""Files: limits on inputs, protection of files from outputs, and atomic writes.

Inputs have limits, far above what models, runs and files of this field have. Each can be raised by
an environment variable, which every message about it names.

An output is the old file or the new one, whatever happens in between. Its text goes to a temporary
file in the same folder, is forced to the disk, and takes the name in one step; the folder is forced
to the disk after it. Who writes holds a lock of the system's on the temporary file. One that a
killed process has left is not locked: who writes to its folder next removes it.

An output may replace an older one of its own kind, told by its content. It never replaces the
database in use, what is kept beside it (``-wal``, ``-shm``, locks), or an input; and a file of
another kind only if forced to.
"""

from __future__ import annotations

import enum
import errno
import json
import os
import re
import select
import stat
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, Self
from urllib.parse import quote, quote_plus, unquote, unquote_plus

from autoturbo.errors import InputError, Location, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

# Limits of inputs


@dataclass(frozen=True, slots=True)
class Limit:
    """The most that is allowed of something.

    Attributes:
        variable: The environment variable that replaces it.
        usual: Where that is not set.
        unit: Of both, for messages.
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

_WRITER_S: Final = 5
"""Seconds for the first byte of a named pipe."""

_STREAMS: Final = ("/dev/", "/proc/")
"""Where names stand for what the shell has opened (``/dev/stdout``)."""


def is_bomb(unpacked: int, stored: int) -> bool:
    """Return whether so many bytes of a file unpack to far more than is plausible."""
    return unpacked > max(MEMORY.bytes, _RATIO * stored)


def open_input(path: Path) -> BinaryIO:
    """Return a file opened for reading; a named pipe once something has been written to it.

    Raises:
        OSError: It cannot be opened, or is a named pipe to which nobody writes.
    """
    try:
        if not stat.S_ISFIFO(path.stat().st_mode) or str(path).startswith(_STREAMS):
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
    """Return the text of a file of any kind, unless it is too long.

    Raises:
        OSError: It cannot be read, or it is larger than :data:`MEMORY` allows.
        UnicodeDecodeError: It is not UTF-8.
    """
    most = MEMORY.bytes
    with open_input(path) as file:
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


# Writing

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
        error: What to raise, located at ``path``.

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
        folder: Where they are.
        pattern: Their names, also in folders below it.
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
    if temporary.parent not in _swept:
        _swept.add(temporary.parent)
        take_away_left(temporary.parent)
    try:
        with temporary.open("xb") as file:
            with suppress(OSError):
                lock(file.fileno())
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(os.path.realpath(place))
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


# What an output may replace

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
        """Make one whose value is the text."""
        kind = object.__new__(cls)
        kind._value_, kind.pattern = text, pattern
        return kind

    SCHEDULE = "a schedule file", rb'\s*\{\s*"format"\s*:\s*"autoturbo-(machine-)?schedule"'
    KERNELS = "a kernels file", rb'\s*\{\s*"format"\s*:\s*"autoturbo-kernels"'
    MODEL = "an ONNX model", rb"\x08[\x01-\x3f]"  # the version of the format, its first field
    WEIGHTS = "the data file of an ONNX model", rb"(?!)"  # raw numbers: told by their model
    REPORT = "a report", rb'<!DOCTYPE html>\s*<html lang="en">.{,60}Content-Security-Policy'
    TRACE = "a trace", rb'\s*\{"traceEvents"'
    SIDE_CAR = "a side-car for Netron", rb'\s*\{\s*"signature"\s*:\s*"netron:attachment"'
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
        database: The one in use; None for none.
        force: Replace files of another kind.
    """

    inputs: tuple[Path, ...] = ()
    database: Path | None = None
    force: bool = False

    def reading(self, *inputs: str | Path | None) -> Outputs:
        """Return the same with more inputs; names that no file has are none."""
        # not Path.is_file, which raises for names that no file can have
        there = [Path(path) for path in inputs if path and os.path.isfile(path)]  # noqa: PTH113
        return Outputs((*self.inputs, *there), self.database, self.force)

    def check(self, path: str | Path, kind: Kind, error: type[InputError] = UsageError) -> None:
        """Refuse a place before the work whose result is to go there.

        Args:
            path: The file to write; links are followed.
            kind: Of what is to be written.
            error: What to raise, located at ``path``.

        Raises:
            InputError: As ``error``: it cannot be written, or would replace what is kept.
        """
        place, at = Path(path), Location(path)
        check_writable(place, error)
        if kept := self._kept(place):
            raise error(kept, at, _ELSEWHERE)
        if not place.is_file() or str(path).startswith(_STREAMS):
            return
        head = _head(place, _HEAD)
        if head is None:
            raise error("a file is there that cannot be read", at, _ELSEWHERE)
        if kind is Kind.WEIGHTS and place.suffix == ".data":
            ours = Kind.MODEL.begins(_head(place.with_suffix(""), 2) or b"")
        else:
            ours = kind.begins(head)
        if ours or not head:
            return
        if not self.force:
            message = f"{_described(head)} is there, which is not {kind.value}"
            raise error(message, at, f"{_ELSEWHERE}, or replace it with --force")
        if any(_is_data_of(place, model) for model in self.inputs):
            raise error("it would replace the weights of an input", at, _ELSEWHERE)

    def check_folder(
        self, folder: Path, files: Mapping[str, Kind], error: type[InputError] = UsageError
    ) -> None:
        """Refuse a folder for outputs before the work; a missing one is made later.

        Args:
            folder: May be missing.
            files: What is to be written there, by name.
            error: What to raise, located at the file.

        Raises:
            InputError: As ``error``: a file there may not be replaced, or the folder is a file.
        """
        if folder.is_file():
            raise error("a file, not a folder", Location(folder), _ELSEWHERE)
        for name, kind in files.items() if folder.is_dir() else ():
            self.check(folder / name, kind, error)

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


# Passwords in URLs: shown as ``***``, and never written anywhere

HIDDEN = "***"

_WITH_PASSWORD = re.compile(
    r"(?!sqlite[+:])(?P<user>[a-z][\w+.-]*:/+[^:/@?]*|[^:/@?]*(?=:[^/])):(?P<password>.+)@",
    re.DOTALL | re.IGNORECASE,
)
"""Up to the last ``@``: a password that holds one itself is hidden whole.

What begins with ``sqlite`` names a file, whose path may hold any character.
"""

_PARAMETER = re.compile(r"(?<=[?&;])(?P<name>[^=&;]+)=(?P<value>[^&;]+)")
_SECRET_NAME = re.compile("pass|pwd|secret|token|key|credential|auth", re.IGNORECASE)


def masked(url: str) -> str:
    """Return a URL with ``***`` for its password and for parameters whose names say secret."""
    if found := _WITH_PASSWORD.match(url):
        url = f"{found['user']}:{HIDDEN}@{url[found.end() :]}"
    return _PARAMETER.sub(
        lambda m: f"{m['name']}={HIDDEN}" if _SECRET_NAME.search(m["name"]) else m[0], url
    )


def is_masked(url: str) -> bool:
    """Return whether a URL is one of :func:`masked` that lacks something."""
    return f":{HIDDEN}@" in url or f"={HIDDEN}" in url


def without_secrets(text: str, url: str) -> str:
    """Return a text, such as another library's error, without the secrets of a URL."""
    text = text.replace(url, masked(url))
    secrets = [m["value"] for m in _PARAMETER.finditer(url) if _SECRET_NAME.search(m["name"])]
    if found := _WITH_PASSWORD.match(url):  # also up to its first "@"
        secrets += [found["password"], found["password"].partition("@")[0]]
    for secret in sorted(filter(None, secrets), key=len, reverse=True):
        for form in (secret, unquote(secret), unquote_plus(secret), quote(secret, safe=""),
                     quote_plus(unquote(secret)), repr(unquote(secret))[1:-1]):  # fmt: skip
            text = text.replace(form, HIDDEN)
    return text
