"""How hot functions are compiled.

Numba counts references to every array that a function reads from a named tuple, and each count is
an atomic operation. A function that allocates nothing can do without the counts: its caller holds
every array that it sees. Nor are arrays handed over as pointers: each is seven words, so that a
named tuple of a dozen is copied at every call that is not inlined. What borrows is therefore always
inlined. Without it a first trial of ResNet-50, compiling included, takes 1.10 times the CPU
seconds, and 64 trials later 1.05 times.

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

    Returns:
        The compiled function. Numba inlines it into compiled callers, and caches it on disk.
    """
    from numba import njit

    _prepare()
    options: dict[str, Any] = {"cache": True, "_nrt": False, "forceinline": True}
    compiled: Callable[P, R] = njit(**options)(function)
    return compiled


def arithmetic(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a function into compiled callers, borrowing; leave it Python for all others.

    It is for formulas without branches on their values, which hold for numbers (in compiled code)
    and for whole columns (in NumPy): there is one of each, and nothing is compiled for columns.

    Returns:
        The function itself, unchanged for Python and known to Numba.
    """
    from numba.extending import register_jitable

    _prepare()
    register_jitable(_nrt=False, forceinline=True)(function)
    return function


class CompileProgress:
    """Counter of our functions while they are compiled, without those read from the disk.

    Numba compiles more, of its own and what formulas are made of: that is in the time only.

    Args:
        on_change: Called when a function is begun and when it is compiled. What it raises comes
            when all is compiled that was begun: to Numba it would be a mistake in a function.
        clock: Tells the seconds.

    Attributes:
        functions: Compiled so far.
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
        """Return how many functions are compiled in the end, if all that is loaded is needed."""
        return len(self._done | (self._expected or set()))

    @property
    def left_s(self) -> float:
        """Return the estimated seconds that the other functions take to compile."""
        each = (_BELIEVED * SECONDS_EACH + self.seconds) / (_BELIEVED + self.functions)
        return each * (self.total - self.functions)

    def begin(self) -> None:
        """Record that compiling a function has begun, perhaps within one that calls it."""
        if self._expected is None:
            self._expected = {name for name, function in _loaded() if not _is_kept(function)}
        if not self.running:
            self._began = self._clock()
        self._depth += 1
        self._tell()

    def end(self, dispatcher: Any) -> None:
        """Record that a function is compiled."""
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
    """Report every function that is compiled in this context; yield ``progress``."""
    if "numba" in sys.modules:
        _prepare()
    _watching.append(progress)
    try:
        yield progress
    finally:
        _watching.remove(progress)


_watching: list[CompileProgress] = []


def kept_in() -> Path | None:
    """Return the folder of compiled code; None if none can be written."""
    locator = _keeper()
    return None if locator is None else Path(locator.get_cache_path()).parent


def _keeper() -> Any:
    """Return the locator of the folder of compiled code; None if none can be written."""
    tried = (locator.from_function(kept_in, __file__) for locator in _locators())
    return next((found for found in tried if found), None)


@functools.cache
def cannot_keep() -> bool:
    """Return whether compiled code cannot be kept."""
    return _keeper() is None


@functools.cache
def where_kept() -> str:
    """Return the line that says where compiled code is kept; empty for the usual folder."""
    given, beside, _ = _locators()
    asked = import_module("numba.core.config").CACHE_DIR
    locator, folder = _keeper(), asked or Path(__file__).parent
    if locator is None:
        return f"what is compiled cannot be kept: {folder} is read-only; set NUMBA_CACHE_DIR"
    if isinstance(locator, given if asked else beside):
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
    """Make Numba notify the observers, and cache our functions if possible."""
    _listen()
    _keep()


def _keep() -> None:
    """Make our functions load from read-only folders, and compile without a folder."""
    caching: Any = import_module("numba.core.caching")
    dispatcher: Any = import_module("numba.core.dispatcher").Dispatcher
    given, beside, users = _locators()

    class Impl(caching.CompileResultCacheImpl):  # type: ignore[misc]
        """Looks into more folders."""

        _locator_classes = (
            *(given, beside, users, caching.ZipCacheLocator),
            *(_readable(given), _readable(beside)),
        )

    class File(caching.IndexDataCacheFile):  # type: ignore[misc]
        """Cache file that names code by its key's hash: numbers of processes would collide.

        Attributes:
            others: Files that are read where this one lacks something.
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
        """Does without being kept: the disk may be full, or not ours."""

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
    """Yield a function's locators in folders that come before the one that is written."""
    for locator in _locators():
        if isinstance(written, locator):
            return
        if found := _readable(locator).from_function(function, function.__code__.co_filename):
            yield found


def _stamp(locator: Any) -> tuple[str, Any]:
    """Return the version of compiled code: an upgrade may change callees, not the file itself."""
    return __version__, locator.get_source_stamp()


@functools.cache
def _readable(locator: Any) -> Any:
    """Return the locator class limited to folders that have the function compiled already."""
    caching: Any = import_module("numba.core.caching")

    class Readable(locator):  # type: ignore[misc]
        """Where somebody else has compiled it, from this source for this processor."""

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
    """Make Numba notify the observers of compiling."""
    from numba.core import event

    register: Any = event.register

    class Listener(event.Listener):
        """Listener that passes Numba's events to the observers."""

        def on_start(self, _: event.Event) -> None:
            for progress in tuple(_watching):
                progress.begin()

        def on_end(self, told: event.Event) -> None:
            for progress in tuple(_watching):
                progress.end((told.data or {}).get("dispatcher"))

    register("numba:compile", Listener())


def _loaded() -> Iterator[tuple[str, Any]]:
    """Yield the functions of loaded modules that compile when they are called."""
    for name, module in tuple(sys.modules.items()):
        if name.partition(".")[0] == PACKAGE:
            for function in tuple(vars(module).values()):
                if (qualified := _name(function)) and qualified.startswith(f"{name}:"):
                    yield qualified, function


def _name(dispatcher: Any) -> str:
    """Return module and name of a function of ours that is compiled separately; else empty."""
    function = getattr(dispatcher, "py_func", None)
    if function is None:
        return ""
    module, name = function.__module__, function.__qualname__
    ours = getattr(sys.modules.get(module), name, None) is dispatcher
    return f"{module}:{name}" if ours and module.partition(".")[0] == PACKAGE else ""


def _is_kept(dispatcher: Any) -> bool:
    """Return whether a function is compiled for this source and processor, here or on disk."""
    if dispatcher.signatures:
        return True
    file = getattr(dispatcher._cache, "_cache_file", None)  # noqa: SLF001  nothing public tells
    return file is not None and any(map(_has_this_processor, (file, *getattr(file, "others", ()))))


def _has_this_processor(file: Any) -> bool:
    """Return whether a cache file of Numba has code of this source for this processor."""
    from numba.core.registry import cpu_target

    processor = cpu_target.target_context.codegen().magic_tuple()
    try:
        return any(key[1] == processor for key in file._load_index())  # noqa: SLF001
    except Exception:  # noqa: BLE001  whatever stands there: it is compiled anew
        return False
