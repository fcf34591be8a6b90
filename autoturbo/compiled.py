"""Compilation of hot functions.

Numba counts references to every array that a function reads from a named tuple, and each count is
an atomic operation. A function that allocates nothing can do without the counts: its caller holds
every array that it sees. Nor are arrays handed over as pointers: each is seven words, so that a
named tuple of a dozen is copied at every call that is not inlined. What borrows is therefore always
inlined. ``benchmarks/compiled_core.py`` measures what this buys: without it, a first trial of
ResNet-50, compiling included, takes 1.10 times the CPU seconds, and 64 trials later 1.05 times.

Whoever shows how far compiling is says so here before Numba is imported, which takes longer than
many a command: the first module that has something to compile imports it.

Compiled code is kept where Numba keeps it: in NUMBA_CACHE_DIR, beside the sources, or in the user's
cache folder, whichever can be written; that it is not in the first of these is said. Ours is also
read where it can only be read (an image that was warmed by another user), what is missing there is
kept in the next folder, and compiled without being kept where Numba would refuse to. Several
processes may share a folder.
"""

from __future__ import annotations

import functools
import hashlib
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from autoturbo.version import __version__

P = ParamSpec("P")
R = TypeVar("R")

PACKAGE = __name__.partition(".")[0]

SECONDS_EACH = 0.4
"""Seconds that a function takes to compile on a usual machine: all that is known at first."""

_DIGITS = 16
"""Of a hash that names a file."""

_BELIEVED = 20
"""Compiled functions whose own time counts as much as the usual one."""


def borrowing(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a function that allocates no array into its callers, without counting references.

    Slices of arrays are fine, they borrow as well; a function that allocates fails to compile.
    """
    from numba import njit

    _prepare()
    options: dict[str, Any] = {"cache": True, "_nrt": False, "forceinline": True}
    compiled: Callable[P, R] = njit(**options)(function)
    return compiled


def arithmetic(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a function into compiled callers, borrowing, and leave it Python for all others.

    For formulas without branches on their values, which hold of numbers (in compiled code) and of
    whole columns (in NumPy) alike: there is one of each, and nothing is compiled for columns.
    """
    from numba.extending import register_jitable

    _prepare()
    register_jitable(_nrt=False, forceinline=True)(function)
    return function


class CompileProgress:
    """A count of our functions while they are compiled, without those read from the disk.

    Numba compiles more, of its own and what formulas are made of: that is in the time only.

    Args:
        on_change: called when a function is begun and when it is compiled. What it raises comes
            when all is compiled that was begun: to Numba it would be a mistake in a function.
        clock: tells the seconds.

    Attributes:
        functions: compiled so far.
    """

    def __init__(
        self,
        on_change: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.functions = 0
        self._on_change, self._clock = on_change, clock
        self._seconds = 0.0
        self._depth, self._began = 0, 0.0
        self._expected: set[str] | None = None
        self._done: set[str] = set()
        self._raised: Exception | None = None

    @property
    def running(self) -> bool:
        """Return whether a function is being compiled now."""
        return self._depth > 0

    @property
    def seconds(self) -> float:
        """Return the seconds that compiling has taken so far."""
        return self._seconds + (self._clock() - self._began if self.running else 0.0)

    @property
    def total(self) -> int:
        """Return the number of functions compiled in the end, if all loaded ones are needed."""
        return len(self._done | (self._expected or set()))

    @property
    def left_s(self) -> float:
        """Return the estimated seconds of the functions left."""
        each = (_BELIEVED * SECONDS_EACH + self.seconds) / (_BELIEVED + self.functions)
        return each * (self.total - self.functions)

    def begin(self) -> None:
        """Note that a function is begun, perhaps within one that calls it."""
        if self._expected is None:
            self._expected = {name for name, one in _loaded() if not _is_kept(one)}
        if not self.running:
            self._began = self._clock()
        self._depth += 1
        self._tell()

    def end(self, dispatcher: Any) -> None:
        """Note that a function is compiled."""
        if self._depth == 1:
            self._seconds = self.seconds
        self._depth -= 1
        if name := _name(dispatcher):
            self._done.add(name)
            self.functions = len(self._done)
        self._tell()

    def _tell(self) -> None:
        try:
            if self._raised is None:
                self._on_change()
        except Exception as error:  # noqa: BLE001  whatever it is, it is for the caller
            self._raised = error
        if self._raised is not None and not self.running:
            raised, self._raised = self._raised, None
            raise raised


@contextmanager
def watched_compiling(progress: CompileProgress) -> Iterator[CompileProgress]:
    """Report every function that is compiled within the block."""
    if "numba" in sys.modules:
        _prepare()
    _watching.append(progress)
    try:
        yield progress
    finally:
        _watching.remove(progress)


_watching: list[CompileProgress] = []


def kept_in() -> Path | None:
    """Return the folder of compiled code; None where none can be written."""
    found = _keeper()
    return None if found is None else Path(found.get_cache_path()).parent


def _keeper() -> Any:
    """Return the locator of the cache folder; None where none can be written."""
    tried = (locator.from_function(kept_in, __file__) for locator in _locators())
    return next((found for found in tried if found), None)


@functools.cache
def cannot_keep() -> bool:
    """Return whether compiled code cannot be kept."""
    return _keeper() is None


@functools.cache
def where_kept() -> str:
    """Return a line on the folder of compiled code; empty where it is the usual one."""
    given, beside, _ = _locators()
    asked = import_module("numba.core.config").CACHE_DIR
    found, folder = _keeper(), asked or Path(__file__).parent
    if found is None:
        return f"what is compiled cannot be kept: {folder} is read-only; set NUMBA_CACHE_DIR"
    if isinstance(found, given if asked else beside):
        return ""
    return f"{folder} is read-only: what is compiled is kept in {kept_in()}"


def _locators() -> tuple[Any, ...]:
    """Return Numba's cache locators, best first."""
    caching = import_module("numba.core.caching")
    return (
        caching.UserProvidedCacheLocator,
        caching.InTreeCacheLocator,
        caching.UserWideCacheLocator,
    )


@functools.cache
def _prepare() -> None:
    """Make Numba notify all watchers, and cache our functions where that is possible."""
    _listen()
    _keep()


def _keep() -> None:
    """Make Numba read our functions from read-only folders too, and compile without a cache."""
    caching: Any = import_module("numba.core.caching")
    dispatcher: Any = import_module("numba.core.dispatcher").Dispatcher
    given, beside, users = _locators()

    class Impl(caching.CompileResultCacheImpl):  # type: ignore[misc]
        """A cache that reads more folders."""

        _locator_classes = (
            *(given, beside, users, caching.ZipCacheLocator),
            *(_readable(given), _readable(beside)),
        )

    class File(caching.IndexDataCacheFile):  # type: ignore[misc]
        """Names code by what it is of: Numba counts, and processes count alike at the same time.

        Attributes:
            others: files that are read where this one lacks something.
        """

        others: tuple[Any, ...] = ()

        def load(self, key: Any) -> Any:
            found = super().load(key)
            more = (other.load(key) for other in self.others)
            return found or next((data for data in more if data), None)

        def save(self, key: Any, data: Any) -> None:
            name = hashlib.sha256(self._dump(key)).hexdigest()[:_DIGITS]
            name = self._data_name_pattern.replace("{number:d}", name)
            self._save_data(name, data)
            self._save_index(self._load_index() | {key: name})

    class Cache(caching.FunctionCache):  # type: ignore[misc]
        """A cache that tolerates a full or foreign disk."""

        _impl_class = Impl

        def __init__(self, function: Any) -> None:
            super().__init__(function)
            locators = (self._impl.locator, *_read_only(function, self._impl.locator))
            base = self._impl.filename_base
            files = (File(one.get_cache_path(), base, _stamp(one)) for one in locators)
            self._cache_file, *others = files
            self._cache_file.others = tuple(others)

        def save_overload(self, sig: Any, data: Any) -> None:
            with suppress(OSError):
                super().save_overload(sig, data)

    usual = dispatcher.enable_caching

    def enable_caching(self: Any) -> None:
        if self.py_func.__module__.partition(".")[0] != PACKAGE:
            usual(self)
            return
        with suppress(RuntimeError):  # it can be kept nowhere
            self._cache = Cache(self.py_func)

    dispatcher.enable_caching = enable_caching


def _read_only(function: Any, written: Any) -> Iterator[Any]:
    """Yield locators of folders that come before the one that is written."""
    for locator in _locators():
        if isinstance(written, locator):
            return
        if found := _readable(locator).from_function(function, function.__code__.co_filename):
            yield found


def _stamp(locator: Any) -> tuple[str, Any]:
    """Return the cache's version: an upgrade may change what a file calls, and not the file."""
    return __version__, locator.get_source_stamp()


@functools.cache
def _readable(locator: Any) -> Any:
    """Return a class of locators for read-only folders that have a function compiled."""
    caching: Any = import_module("numba.core.caching")

    class Readable(locator):  # type: ignore[misc]
        """A locator of code that was compiled from this source for this processor."""

        def ensure_cache_path(self) -> None:
            stem, version = Path(self._py_file).stem, "{}{}".format(*sys.version_info)
            pattern = f"{stem}.*-{self._lineno}.py{version}*.nbi"
            for path in Path(self._cache_path).glob(pattern):
                file = caching.IndexDataCacheFile(self._cache_path, path.stem, _stamp(self))
                if _has_this_processor(file):
                    return
            raise FileNotFoundError(self._cache_path)

    return Readable


def _listen() -> None:
    """Make Numba notify all watchers."""
    from numba.core import event

    register: Any = event.register

    class Listener(event.Listener):
        """A listener that forwards Numba's notices."""

        def on_start(self, _: event.Event) -> None:
            for progress in tuple(_watching):
                progress.begin()

        def on_end(self, told: event.Event) -> None:
            for progress in tuple(_watching):
                progress.end((told.data or {}).get("dispatcher"))

    register("numba:compile", Listener())


def _loaded() -> Iterator[tuple[str, Any]]:
    """Yield the functions that are compiled when they are called, of modules that are loaded."""
    for name, module in tuple(sys.modules.items()):
        if name.partition(".")[0] == PACKAGE:
            for one in tuple(vars(module).values()):
                if (found := _name(one)) and found.startswith(f"{name}:"):
                    yield found, one


def _name(dispatcher: Any) -> str:
    """Return the module and name of our function that is compiled for itself; else empty."""
    function = getattr(dispatcher, "py_func", None)
    if function is None:
        return ""
    module, name = function.__module__, function.__qualname__
    ours = getattr(sys.modules.get(module), name, None) is dispatcher
    return f"{module}:{name}" if ours and module.partition(".")[0] == PACKAGE else ""


def _is_kept(dispatcher: Any) -> bool:
    """Return whether a function is compiled, here or on disk, for this source and processor."""
    if dispatcher.signatures:
        return True
    file = getattr(dispatcher._cache, "_cache_file", None)  # noqa: SLF001  nothing public tells
    return file is not None and any(map(_has_this_processor, (file, *getattr(file, "others", ()))))


def _has_this_processor(file: Any) -> bool:
    """Return whether a file of Numba's has code of this source for this processor."""
    from numba.core.registry import cpu_target

    processor = cpu_target.target_context.codegen().magic_tuple()
    try:
        return any(key[1] == processor for key in file._load_index())  # noqa: SLF001
    except Exception:  # noqa: BLE001  whatever stands there: it is compiled anew
        return False
