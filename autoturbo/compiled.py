"""How hot functions are compiled, and how compiling is told.

Numba counts references to every array that a function reads from a named tuple, and each count is
an atomic operation. A function that allocates nothing can do without the counts: its caller holds
every array that it sees. Nor are arrays handed over as pointers: each is seven words, so that a
named tuple of a dozen is copied at every call that is not inlined. What borrows is therefore always
inlined. Without it a first search of ResNet-50, compiling included, takes 1.6 times the CPU
seconds, and a later one 1.7 times.

Numba keeps compiled code in NUMBA_CACHE_DIR, beside the sources, or in the user's cache folder,
whichever can be written.

Whoever shows how far compiling is says so here before Numba is imported, which takes longer than
many a command: the first module that has something to compile imports it.
"""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from autoturbo.version import __version__

P = ParamSpec("P")
R = TypeVar("R")

PACKAGE = __name__.partition(".")[0]

SECONDS_EACH = 0.4
"""Seconds that a function takes to compile on a usual machine: all that is known at first."""

_BELIEVED = 20
"""Compiled functions whose own time counts as much as the usual one."""


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """Return a function that is compiled when it is first called, and kept on disk."""
    return _compiled(function)


def borrowing(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a function that allocates no array into its callers, without counting references.

    Slices of arrays are fine, they borrow as well; a function that allocates fails to compile.

    Returns:
        The compiled function, which Numba inlines into compiled callers.
    """
    return _compiled(function, _nrt=False, forceinline=True)


def _compiled(function: Callable[P, R], **options: Any) -> Callable[P, R]:
    numba: Any = import_module("numba")
    _listen()
    usual = numba.config.CACHE_DIR
    # Numba unpickles what is kept before it compares versions: a type of another version that has
    # been moved since would end the run, so each version has a folder of its own
    numba.config.CACHE_DIR = usual or str(Path(__file__).parent / "__pycache__" / __version__)
    try:
        kept: Callable[P, R] = numba.njit(cache=True, **options)(function)
    except RuntimeError:  # Numba refuses to keep it where it can write no folder
        kept = numba.njit(**options)(function)
    finally:
        numba.config.CACHE_DIR = usual
    return kept


def arithmetic(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a function into compiled callers, borrowing; leave it Python for all others.

    It is for formulas without branches on their values, which hold for numbers (in compiled code)
    and for whole columns (in NumPy): there is one of each, and nothing is compiled for columns.

    Returns:
        The function itself, unchanged for Python and known to Numba.
    """
    from numba.extending import register_jitable

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
        self._expected: dict[str, Any] | None = None
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
        """Return how many functions are compiled in the end, if all that is loaded is needed.

        What can be read from the disk is among them until it has been called.
        """
        expected = self._expected or {}
        return len(self._done | {name for name, found in expected.items() if not found.signatures})

    @functools.cached_property
    def kept(self) -> bool:
        """Return whether what is compiled is kept for the next process."""
        return kept_in() is not None

    @property
    def left_s(self) -> float:
        """Return the estimated seconds that the other functions take to compile."""
        each = (_BELIEVED * SECONDS_EACH + self.seconds) / (_BELIEVED + self.functions)
        return each * (self.total - self.functions)

    def begin(self) -> None:
        """Record that compiling a function has begun, perhaps within one that calls it."""
        if self._expected is None:  # once: it looks through all that is loaded
            self._expected = dict(loaded_functions())
        if not self.running:
            self._began = self._clock()
        self._depth += 1
        self._tell()

    def end(self, dispatcher: Any) -> None:
        """Record that a function is compiled."""
        if self._depth == 1:
            self._seconds = self.seconds
        self._depth -= 1
        if name := qualified_name(dispatcher):
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
        _listen()
    _watching.append(progress)
    try:
        yield progress
    finally:
        _watching.remove(progress)


_watching: list[CompileProgress] = []


def kept_in() -> Path | None:
    """Return the folder of compiled code; None if Numba can write none."""

    def nothing() -> None:
        """Is never called."""

    keeps: Any = compiled(nothing)
    folder = keeps.stats.cache_path
    return None if folder is None else Path(folder).parent


@functools.cache
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


def loaded_functions() -> Iterator[tuple[str, Any]]:
    """Yield the functions of loaded modules that compile when they are called.

    Yields:
        Each under its :func:`qualified_name`.
    """
    for name, module in tuple(sys.modules.items()):
        if name.partition(".")[0] == PACKAGE:
            for function in tuple(vars(module).values()):
                if (qualified := qualified_name(function)) and qualified.startswith(f"{name}:"):
                    yield qualified, function


def qualified_name(dispatcher: Any) -> str:
    """Return module and name of a function of ours that is compiled separately; else empty.

    Args:
        dispatcher: What Numba has made of a function, or any other object.

    Returns:
        Both with a colon between; empty for a function that its module does not have under its
        name, or that is another package's.
    """
    function = getattr(dispatcher, "py_func", None)
    if function is None:
        return ""
    module, name = function.__module__, function.__qualname__
    ours = getattr(sys.modules.get(module), name, None) is dispatcher
    return f"{module}:{name}" if ours and module.partition(".")[0] == PACKAGE else ""
