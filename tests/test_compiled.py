"""Functions compiled without reference counts."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest
from numba import njit
from numba.core import caching
from numba.core.errors import NumbaError

from autoturbo import compiled
from autoturbo.compiled import CompileProgress, arithmetic, borrowing, watched_compiling
from autoturbo.version import __version__
from tests.compiled_later import compiled_later


class Pair(NamedTuple):
    """Arrays as the passes hand them on."""

    first: np.ndarray
    second: np.ndarray


def add_rows(pair: Pair, out: np.ndarray) -> int:
    """Reads slices of both and writes into a third."""
    for row in range(len(out)):
        left, right = pair.first[row], pair.second[row]
        for column in range(len(left)):
            out[row] += left[column] * right[column]
    return len(out)


@pytest.fixture
def pair() -> Pair:
    values = np.arange(12.0).reshape(4, 3)
    return Pair(values, values + 1)


def test_slices_of_borrowed_arrays_are_read_and_written(pair: Pair) -> None:
    out = np.zeros(4)
    assert borrowing(add_rows)(pair, out) == 4
    np.testing.assert_array_equal(out, (pair.first * pair.second).sum(axis=1))


def test_arrays_outlive_the_functions_that_borrow_them(pair: Pair) -> None:
    """A thousand calls neither free an array that is in use nor keep one for ever."""
    compiled, out = borrowing(add_rows), np.zeros(4)
    compiled(pair, out)
    before = sys.getrefcount(pair.first)
    for _ in range(1000):
        compiled(pair, out)
    after = sys.getrefcount(pair.first)  # outside of the assertion, which holds one itself
    assert after == before
    np.testing.assert_array_equal(pair.first, np.arange(12.0).reshape(4, 3))


def test_a_function_that_allocates_is_refused() -> None:
    """Nobody would free what it makes."""

    def allocates(size: int) -> float:
        return float(np.zeros(size).sum())

    with pytest.raises(NumbaError, match="np_empty"):
        borrowing(allocates)(3)


def test_arithmetic_is_one_formula_for_numbers_and_columns() -> None:
    """To the last bit, in functions that borrow as well."""

    @arithmetic
    def formula(row: np.ndarray) -> np.ndarray:
        found: np.ndarray = np.maximum(row[0], 1.0) / 3.0 * (row[1] > 0)
        return found

    @borrowing
    def number_by_number(rows: np.ndarray, out: np.ndarray) -> None:
        for row in range(len(rows)):
            out[row] = formula(rows[row])

    rows, out = np.random.default_rng(0).normal(0.5, 1, (50, 2)), np.zeros(50)
    number_by_number(rows, out)
    np.testing.assert_array_equal(out, formula(rows.T))


def test_callers_that_allocate_may_call_it(pair: Pair) -> None:
    inner = borrowing(add_rows)

    @njit
    def outer(both: Pair) -> np.ndarray:
        out = np.zeros(len(both.first))
        inner(both, out)
        return out

    np.testing.assert_array_equal(outer(pair), (pair.first * pair.second).sum(axis=1))


def test_functions_are_counted_while_they_are_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ours alone, each once, of those of loaded modules that are not compiled."""
    first, second, third = compiled_later(3, monkeypatch)
    first(1)
    another: Any = njit(lambda: 1)
    now, seen = 0.0, []
    progress = CompileProgress(lambda: seen.append(progress.functions), lambda: now)
    with watched_compiling(progress):
        another()
        before = progress.total
        for value in (1, 2.0):
            second(value)
        now += 10
        third(1)
    assert (progress.functions, progress.total, progress.running) == (2, before, False)
    assert seen[0] == 0
    assert seen[-1] == 2
    first(2.0)
    assert progress.functions == 2


def test_what_is_left_is_told_by_what_was_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    now, done = 0.0, set[str]()
    progress = CompileProgress(clock=lambda: now)

    def left() -> list[tuple[str, Any]]:
        return [(f"autoturbo:{n}", SimpleNamespace(signatures=[])) for n in range(30)]

    monkeypatch.setattr(compiled, "loaded_functions", left)
    monkeypatch.setattr(compiled, "qualified_name", str)
    progress.begin()
    assert progress.left_s == 30 * compiled.SECONDS_EACH
    for number in range(20):
        now += 3 * compiled.SECONDS_EACH
        progress.end(f"autoturbo:{number}")
        done.add(f"autoturbo:{number}")
        progress.begin()
    assert progress.functions == len(done)
    assert progress.left_s == pytest.approx(10 * 2 * compiled.SECONDS_EACH)


@pytest.fixture
def make(tmp_path: Path) -> Callable[[], Any]:
    """Read a module anew that keeps a compiled function; the function."""
    path = tmp_path / "later.py"
    path.write_text("def twice(value): return 2 * value")

    def read() -> Any:
        spec = spec_from_file_location("autoturbo.later", path)
        assert spec is not None
        assert spec.loader is not None
        module = module_from_spec(spec)
        spec.loader.exec_module(module)
        function: Any = compiled.compiled(module.twice)
        return function

    return read


def test_what_cannot_be_kept_is_compiled_all_the_same(
    make: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root may write anywhere, so Numba is told that no folder takes compiled code."""

    def refuse(_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(caching._CacheLocator, "ensure_cache_path", refuse)
    function = make()
    assert (function(3), function.stats.cache_path) == (6, None)
    assert compiled.kept_in() is None


def test_what_is_compiled_is_kept_where_the_user_says(
    make: Callable[[], Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("numba.core.config.CACHE_DIR", str(tmp_path / "kept"))
    first = make()
    assert (first(3), compiled.kept_in()) == (6, tmp_path / "kept")
    second = make()
    assert (second(3), sum(second.stats.cache_hits.values())) == (6, 1)


def test_each_version_keeps_its_own(
    make: Callable[[], Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """What an earlier version kept is not even read: types in it may have moved since."""
    monkeypatch.setattr("numba.core.config.CACHE_DIR", "")
    monkeypatch.setattr(compiled, "__file__", str(tmp_path / "compiled.py"))
    first = make()
    assert first(3) == 6
    (index,) = (tmp_path / "__pycache__" / __version__).rglob("*.nbi")
    index.write_bytes(index.read_bytes()[:-20])
    monkeypatch.setattr(compiled, "__version__", "another")
    second = make()
    assert (second(3), sum(second.stats.cache_hits.values())) == (6, 0)


@pytest.mark.full
def test_all_of_it_runs_without_the_compiler() -> None:
    """One schedule, built and simulated: the same figures, and no warning."""
    command = [sys.executable, "-W", "error", "-m", "autoturbo", "--json", "simulate", "dlrm"]
    outputs = [
        subprocess.run(
            command, capture_output=True, text=True, check=True, timeout=300,
            env={**os.environ, "NUMBA_DISABLE_JIT": off},
        ).stdout
        for off in ("0", "1")
    ]  # fmt: skip
    assert outputs[0] == outputs[1]
