"""Models are saved in a folder of their own, which is the working folder of the test."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from autoturbo.graph.onnx_import import import_model

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from import_models import Load
    from onnx import ModelProto

    from autoturbo.graph.operators import Graph


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def load(folder: Path) -> Load:
    def run(
        model: ModelProto,
        *,
        batch: int | None = None,
        shapes: Mapping[str, Sequence[int]] | None = None,
    ) -> Graph:
        (folder / "model.onnx").write_bytes(model.SerializeToString())
        return import_model("model.onnx", batch=batch, shapes=shapes)

    return run
