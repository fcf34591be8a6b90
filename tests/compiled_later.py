"""Functions of the package that nobody has compiled yet, for tests of how compiling is shown."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from numba import njit

if TYPE_CHECKING:
    import pytest


def compiled_later(count: int, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return functions that give what they take, in a module that goes with the test."""
    module = ModuleType("autoturbo.compiled_later")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    for number in range(count):
        exec(f"def f{number}(value): return value", vars(module))  # noqa: S102
        setattr(module, f"f{number}", njit(getattr(module, f"f{number}")))
    return [getattr(module, f"f{number}") for number in range(count)]
