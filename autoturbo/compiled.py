"""How hot functions are compiled.

Numba counts references to every array that a function reads from a named tuple, and each count is
an atomic operation: in functions of a few dozen instructions over a dozen arrays that is nearly all
of their time (the instruction builder was 16 times slower). A function that allocates nothing can
do without the counts: its caller holds every array that it sees.

Nor are arrays handed over as pointers: each is seven words, so that a named tuple of a dozen is
copied at every call that is not inlined, and LLVM gives up on functions of any size. Grouping spent
three quarters of its time that way; what borrows is therefore always inlined.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ParamSpec, TypeVar

from numba import njit
from numba.core import event
from numba.extending import register_jitable

P = ParamSpec("P")
R = TypeVar("R")


def borrowing(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a function that allocates no array, without counting references, into its callers.

    Slices of arrays are fine, they borrow as well; a function that allocates fails to compile.
    """
    options: dict[str, Any] = {"cache": True, "_nrt": False, "forceinline": True}
    compiled: Callable[P, R] = njit(**options)(function)
    return compiled


def arithmetic(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a function into compiled callers, borrowing, and leave it Python for all others.

    For formulas without branches on their values, which hold of numbers (in compiled code) and of
    whole columns (in NumPy) alike: there is one of each, and nothing is compiled for columns.
    """
    register_jitable(_nrt=False, forceinline=True)(function)
    return function


class CompileProgress(event.Listener):
    """Counts functions while they are compiled; what is read from the disk is not compiled.

    Attributes:
        functions: compiled so far.
    """

    def __init__(
        self, on_change: Callable[[], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.functions = 0
        self._on_change, self._clock = on_change, clock
        self._seconds = 0.0
        self._depth, self._began = 0, 0.0

    @property
    def running(self) -> bool:
        """Whether a function is being compiled now."""
        return self._depth > 0

    @property
    def seconds(self) -> float:
        """Seconds that compiling has taken so far."""
        return self._seconds + (self._clock() - self._began if self.running else 0.0)

    def on_start(self, _: object) -> None:
        """Note that a function is begun, perhaps within one that calls it."""
        if not self.running:
            self._began = self._clock()
        self._depth += 1
        self._on_change()

    def on_end(self, _: object) -> None:
        """Note that a function is compiled."""
        if self._depth == 1:
            self._seconds = self.seconds
        self._depth -= 1
        self.functions += 1
        self._on_change()


@contextmanager
def watched_compiling(progress: CompileProgress) -> Iterator[None]:
    """Tell a listener of every function that is compiled meanwhile."""
    with event.install_listener("numba:compile", progress):
        yield
