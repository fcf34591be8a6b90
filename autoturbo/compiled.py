"""How hot functions are compiled.

Numba counts references to every array that a function reads from a named tuple, and each count is
an atomic operation: in functions of a few dozen instructions over a dozen arrays that is nearly all
of their time (the instruction builder was 16 times slower). A function that allocates nothing can
do without the counts: its caller holds every array that it sees.

Nor are arrays handed over as pointers: each is seven words, so that a named tuple of a dozen is
copied at every call that is not inlined, and LLVM gives up on functions of any size. Grouping spent
three quarters of its time that way; what borrows is therefore always inlined.

Whoever shows how far compiling is says so here before Numba is imported, which takes longer than
many a command: the first module that has something to compile imports it.
"""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

PACKAGE = __name__.partition(".")[0]

SECONDS_EACH = 0.4
"""Seconds that a function takes to compile on a usual machine: all that is known at first."""

_BELIEVED = 20
"""Compiled functions whose own time counts as much as the usual one."""


def borrowing(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a function that allocates no array, without counting references, into its callers.

    Slices of arrays are fine, they borrow as well; a function that allocates fails to compile.
    """
    from numba import njit

    _listen()
    options: dict[str, Any] = {"cache": True, "_nrt": False, "forceinline": True}
    compiled: Callable[P, R] = njit(**options)(function)
    return compiled


def arithmetic(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a function into compiled callers, borrowing, and leave it Python for all others.

    For formulas without branches on their values, which hold of numbers (in compiled code) and of
    whole columns (in NumPy) alike: there is one of each, and nothing is compiled for columns.
    """
    from numba.extending import register_jitable

    _listen()
    register_jitable(_nrt=False, forceinline=True)(function)
    return function


class CompileProgress:
    """Counts our functions while they are compiled; what is read from the disk is not compiled.

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
        """Whether a function is being compiled now."""
        return self._depth > 0

    @property
    def seconds(self) -> float:
        """Seconds that compiling has taken so far."""
        return self._seconds + (self._clock() - self._began if self.running else 0.0)

    @property
    def total(self) -> int:
        """How many functions are compiled in the end, if all that is loaded is needed."""
        return len(self._done | (self._expected or set()))

    @property
    def left_s(self) -> float:
        """Seconds that the others take, by what these took."""
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
    """Tell of every function that is compiled meanwhile; yields the same."""
    if "numba" in sys.modules:
        _listen()
    _watching.append(progress)
    try:
        yield progress
    finally:
        _watching.remove(progress)


_watching: list[CompileProgress] = []


@functools.cache
def _listen() -> None:
    """Have Numba tell all who watch."""
    from numba.core import event

    register: Any = event.register

    class Listener(event.Listener):
        """Hands on what Numba tells."""

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
    """Module and name of a function of ours that is compiled for itself; else empty."""
    function = getattr(dispatcher, "py_func", None)
    if function is None:
        return ""
    module, name = function.__module__, function.__qualname__
    ours = getattr(sys.modules.get(module), name, None) is dispatcher
    return f"{module}:{name}" if ours and module.partition(".")[0] == PACKAGE else ""


def _is_kept(dispatcher: Any) -> bool:
    """Whether a function is compiled, here or on the disk, from this source for this processor."""
    if dispatcher.signatures:
        return True
    file = getattr(dispatcher._cache, "_cache_file", None)  # noqa: SLF001  nothing public tells
    processor = dispatcher.targetctx.codegen().magic_tuple()
    try:
        return file is not None and any(k[1] == processor for k in file._load_index())  # noqa: SLF001
    except Exception:  # noqa: BLE001  a file that cannot be read: compiled anew
        return False
