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

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from numba import njit

P = ParamSpec("P")
R = TypeVar("R")


def borrowing(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a function that allocates no array, without counting references, into its callers.

    Slices of arrays are fine, they borrow as well; a function that allocates fails to compile.
    """
    options: dict[str, Any] = {"cache": True, "_nrt": False, "forceinline": True}
    compiled: Callable[P, R] = njit(**options)(function)
    return compiled
