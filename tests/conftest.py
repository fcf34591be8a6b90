"""Property tests draw the same examples in every run, so that a red run can be had again.

``--hypothesis-profile=fresh`` draws new ones; what it finds becomes a test of its own.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from autoturbo.graph.onnx_import import import_model

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from onnx import ModelProto

    from autoturbo.graph.operators import Graph
    from tests.graph.onnx_import.import_models import Load

# processes that tests start find the helpers too; the last place, since what is tested is what pip
# installed, not the sources beside the tests
sys.path.append(str(Path(__file__).parents[1]))

settings.register_profile("fresh", deadline=None, print_blob=True)
settings.register_profile("repeatable", deadline=None, print_blob=True, derandomize=True)
settings.load_profile("repeatable")


@pytest.fixture(autouse=True, scope="session")
def _one_thread_a_session() -> Iterator[None]:
    """Tests run side by side, as many as there are cores: further threads only wait, busily."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("autoturbo.verify.execution.THREADS", 1)
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
        shapes: Mapping[str, Sequence[int]] | None = None,
        dims: Mapping[str, int] | None = None,
    ) -> Graph:
        (folder / "model.onnx").write_bytes(model.SerializeToString())
        return import_model("model.onnx", batch=batch, shapes=shapes, dims=dims)

    return run
