"""Functions compiled without reference counts."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Callable
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from numba import njit
from numba.core import caching
from numba.core.errors import NumbaError

from autoturbo import compiled
from autoturbo.compiled import CompileProgress, arithmetic, borrowing, watched_compiling
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
    assert f"{first.__module__}:f0" not in (progress._expected or ())
    first(2.0)
    assert progress.functions == 2


def test_what_is_left_is_told_by_what_was_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    progress = CompileProgress(clock=lambda: now)
    monkeypatch.setattr(compiled, "_loaded", lambda: ((f"autoturbo:{n}", None) for n in range(30)))
    monkeypatch.setattr(compiled, "_is_kept", lambda _: False)
    monkeypatch.setattr(compiled, "_name", str)
    progress.begin()
    assert progress.left_s == 30 * compiled.SECONDS_EACH
    for number in range(20):
        now += 3 * compiled.SECONDS_EACH
        progress.end(f"autoturbo:{number}")
        progress.begin()
    assert progress.left_s == pytest.approx(10 * 2 * compiled.SECONDS_EACH)


def test_what_is_on_the_disk_is_compiled(tmp_path: Path) -> None:
    """From this source, for this processor: checked in functions of the package itself."""
    program = """
import sys
import autoturbo.compiled as compiled
from autoturbo.graph import arrays
one = next(f for name, f in compiled._loaded())
print(compiled._is_kept(one))
index = one._cache._cache_file
index._save_index({("(int64,)", one.targetctx.codegen().magic_tuple(), ("", "")): "one.nbc"})
print(compiled._is_kept(one))
index._save_index({("(int64,)", ("another",), ("", "")): "one.nbc"})
print(compiled._is_kept(one))
open(index._index_path, "wb").write(b"rubbish")
print(compiled._is_kept(one))
"""
    variables = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, env=variables
    )
    assert done.stdout.split() == ["False", "True", "False", "False"]


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Any]:
    """Read a module anew that keeps a compiled function in a folder; the function."""
    monkeypatch.setattr("numba.core.config.CACHE_DIR", str(tmp_path / "kept"))
    path = tmp_path / "later.py"
    lines = "from numba import njit", "@njit(cache=True)", "def twice(value): return 2 * value"
    path.write_text("\n".join(lines))

    def read(name: str) -> Any:
        spec = spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        module = module_from_spec(spec)
        spec.loader.exec_module(module)
        return module.twice

    compiled._prepare()
    return read


def read_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """No folder takes compiled code; root may write anywhere, so Numba is told."""

    def refuse(_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(caching._CacheLocator, "ensure_cache_path", refuse)


def test_what_cannot_be_kept_is_compiled_all_the_same(
    make: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    read_only(monkeypatch)
    function = make("autoturbo.later")
    assert (function(3), function.stats.cache_path) == (6, None)
    with pytest.raises(RuntimeError, match="cannot cache"):
        make("another")
    said = told(compiled.where_kept)
    folder = Path(function.py_func.__code__.co_filename).parent / "kept"
    assert said == f"what is compiled cannot be kept: {folder} is read-only; set NUMBA_CACHE_DIR"
    assert told(compiled.cannot_keep)
    assert compiled.kept_in() is None


def told(asked: Any) -> Any:
    """What a function says that is asked once per process."""
    asked.cache_clear()
    try:
        return asked()
    finally:
        asked.cache_clear()


@pytest.fixture
def users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder that can be written from now on, the user's."""
    usual: Any = caching._CacheLocator.ensure_cache_path

    def refuse(locator: Any) -> None:
        if not isinstance(locator, caching.UserWideCacheLocator):
            raise PermissionError
        usual(locator)

    monkeypatch.setattr(caching._CacheLocator, "ensure_cache_path", refuse)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user"))
    return tmp_path / "user" / "numba"


def test_a_read_only_installation_compiles_once_for_the_user_and_says_so(
    make: Callable[[str], Any], users: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("numba.core.config.CACHE_DIR", "")
    first = make("autoturbo.later")
    assert (first(3), Path(first.stats.cache_path).parent) == (6, users)
    second = make("autoturbo.later")
    assert (second(3), sum(second.stats.cache_hits.values())) == (6, 1)
    package = Path(compiled.__file__).parent
    said = f"{package} is read-only: what is compiled is kept in {users}"
    assert (told(compiled.where_kept), told(compiled.cannot_keep)) == (said, False)


def test_what_a_read_only_installation_lacks_is_compiled_once_for_the_user(
    make: Callable[[str], Any], request: pytest.FixtureRequest
) -> None:
    """One that was warmed by somebody who needed less: it was compiled anew every time."""
    assert make("autoturbo.later")(3) == 6
    users = request.getfixturevalue("users")
    second = make("autoturbo.later")
    assert (second(3), second(1.5)) == (6, 3.0)
    assert sum(second.stats.cache_hits.values()) == 1
    assert Path(second.stats.cache_path).parent == users
    third = make("autoturbo.later")
    assert compiled._is_kept(third)
    assert (third(3), third(1.5), sum(third.stats.cache_hits.values())) == (6, 3.0, 2)


def test_what_somebody_else_compiled_is_read(
    make: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the folder is not ours, from the same source: an image that was warmed."""
    first = make("autoturbo.later")
    assert first(3) == 6
    assert compiled.kept_in() == Path(first.stats.cache_path).parent
    read_only(monkeypatch)
    again = make("autoturbo.later")
    assert again(4) == 8
    assert sum(again.stats.cache_hits.values()) == 1
    path = Path(again.py_func.__code__.co_filename)
    path.write_text(path.read_text() + "\n# changed")
    changed = make("autoturbo.later")
    assert (changed(4), changed.stats.cache_path) == (8, None)


def test_a_full_disk_is_no_reason_not_to_compile(
    make: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(caching.IndexDataCacheFile, "_save_data", full)
    assert make("autoturbo.later")(5) == 10


def test_processes_that_compile_at_once_keep_all_that_they_need(
    make: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither knows of the other's code, so both would number theirs alike."""
    with monkeypatch.context() as patch:
        patch.setattr(caching.IndexDataCacheFile, "_load_index", lambda _: {})
        first, second = make("autoturbo.later"), make("autoturbo.later")
        assert (first(3), second(1.5)) == (6, 3.0)
    assert len(list(Path(first.stats.cache_path).glob("*.nbc"))) == 2
    third = make("autoturbo.later")
    assert (third(1.5), sum(third.stats.cache_hits.values())) == (3.0, 1)
    assert (third(3), sum(third.stats.cache_hits.values())) == (6, 1)
    fourth = make("autoturbo.later")
    assert (fourth(1.5), fourth(3), sum(fourth.stats.cache_hits.values())) == (3.0, 6, 2)


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


def test_another_version_is_compiled_anew(
    make: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Functions that it calls may be others, in files that Numba does not look at."""
    assert make("autoturbo.later")(3) == 6
    monkeypatch.setattr(compiled, "__version__", "another")
    function = make("autoturbo.later")
    assert (function(3), sum(function.stats.cache_hits.values())) == (6, 0)
