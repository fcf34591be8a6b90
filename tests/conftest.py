"""Property tests draw the same examples in every run, so that a red run can be had again.

``--hypothesis-profile=fresh`` draws new ones; what it finds becomes a test of its own.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from autoturbo.graph.onnx_import import import_model

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from import_models import Load
    from onnx import ModelProto

    from autoturbo.graph.operators import Graph

settings.register_profile("fresh", deadline=None, print_blob=True)
settings.register_profile("repeatable", deadline=None, print_blob=True, derandomize=True)
settings.load_profile("repeatable")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave out what takes too long, unless it is asked for."""
    if os.environ.get("AUTOTURBO_LONG"):
        return
    for item in items:
        if item.get_closest_marker("long"):
            item.add_marker(pytest.mark.skip(reason="long; AUTOTURBO_LONG=1 runs it"))


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
