"""Property tests draw the same examples in every run, so that a red run can be had again.

``--hypothesis-profile=fresh`` draws new ones; what it finds becomes a test of its own.
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import warm_up
from hypothesis import settings

import autoturbo
from autoturbo.graph.onnx_import import import_model
from autoturbo.verifier.numbers import check_numbers

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from onnx import ModelProto

    from autoturbo.graph.operators import Graph
    from tests.graph.onnx_import.import_models import Load

ROOT = Path(__file__).parents[1]

# what is tested is what pip installed, not the sources beside the tests: they come last, so that
# processes that tests start find the helpers, and no working folder comes before
sys.path.append(str(ROOT))
os.environ["PYTHONSAFEPATH"] = "1"

_WAIT_S, _STEP_S = 1200.0, 0.2
"""How long tests wait for compiled code at most, and for how long at a time."""

_FIRST = ("test_house.py", "onnx_import", "operator_table", "test_package.py")
_LAST = ("database", "test_site.py", "test_documents.py", "test_racing.py", "test_gaussian.py")
_UNCOMPILED = dict.fromkeys(_FIRST, 0) | dict.fromkeys(_LAST, -1)
"""Files and folders of tests that need no compiled code, and the worker that begins with them."""

settings.register_profile("fresh", deadline=None, print_blob=True)
settings.register_profile("repeatable", deadline=None, print_blob=True, derandomize=True)
settings.load_profile("repeatable")


def pytest_configure(config: pytest.Config) -> None:
    """Compile beside the first tests where nothing is compiled yet, once for all workers."""
    if hasattr(config, "workerinput") or config.option.collectonly or _is_compiled():
        return
    folder = tempfile.TemporaryDirectory(prefix="autoturbo-warm-up-")
    config.add_cleanup(folder.cleanup)
    os.environ[warm_up.REPORT] = str(Path(folder.name) / "report.json")
    command = [sys.executable, str(warm_up.__file__), os.environ[warm_up.REPORT]]
    silent = subprocess.DEVNULL  # whatever fails is in the report, or fails in the tests
    process = subprocess.Popen(command, stdout=silent, stderr=silent)
    config.add_cleanup(lambda: _end(process))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what does not wait for compiled code, in the first worker and in the last."""
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    heads: list[list[pytest.Item]] = [[] for _ in range(workers)]
    rest = list[pytest.Item]()
    for item in items:
        place = _worker(item)
        (rest if place is None else heads[place]).append(item)
    each, ordered = -(-len(items) // workers), list[pytest.Item]()
    for head in heads:  # a worker begins with a part of the list of its own
        more = max(each - len(head), 0)
        ordered += [*head, *rest[:more]]
        rest = rest[more:]
    items[:] = [*ordered, *rest]


def _worker(item: pytest.Item) -> int | None:
    """Return the worker that begins with a test; None where the test needs compiled code."""
    parts = item.nodeid.partition("::")[0].split("/")
    return next((_UNCOMPILED[part] for part in parts if part in _UNCOMPILED), None)


@pytest.fixture(autouse=True)
def _compiled_code(request: pytest.FixtureRequest) -> None:
    """Wait until code is compiled: else every worker of the tests compiles it for itself."""
    report = os.environ.get(warm_up.REPORT)
    if report is None or _worker(request.node) is not None:
        return
    waited = 0.0
    while not Path(report).exists() and waited < _WAIT_S:
        time.sleep(_STEP_S)
        waited += _STEP_S


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


def _is_compiled() -> bool:
    folder = os.environ.get("NUMBA_CACHE_DIR") or Path(autoturbo.__file__).parent
    return any(Path(folder).rglob("*.nbi"))


@pytest.fixture(autouse=True)
def _garbage() -> Iterator[None]:
    """Free what ``tune`` froze: its process ends with the run, the tests' does not."""
    yield
    gc.unfreeze()


@pytest.fixture(autouse=True, scope="session")
def _one_thread_a_session() -> Iterator[None]:
    """Tests run side by side, as many as there are cores: further threads only wait, busily."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("autoturbo.verifier.execution.THREADS", 1)
        yield


@pytest.fixture(autouse=True, scope="session")
def _numbers_in_this_process() -> Iterator[None]:
    """A process for each comparison takes seconds to begin; ``test_apart.py`` has its tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("autoturbo.verifier.apart.check_numbers_apart", check_numbers)
        yield


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of its own, which is the working folder of the test."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def load(folder: Path) -> Load:
    """Imports a model that is saved there."""

    def run(
        model: ModelProto,
        *,
        batch: int | None = None,
        batch_dim: str | Sequence[str] = (),
        shapes: Mapping[str, Sequence[int]] | None = None,
        dims: Mapping[str, int] | None = None,
        values: Mapping[str, Sequence[float]] | None = None,
    ) -> Graph:
        (folder / "model.onnx").write_bytes(model.SerializeToString())
        return import_model(
            "model.onnx", batch=batch, batch_dim=batch_dim, shapes=shapes, dims=dims, values=values
        )

    return run
