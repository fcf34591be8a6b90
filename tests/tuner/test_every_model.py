"""Every bundled and every shared model tunes, and on every preset; heuristic and best pass checks.

The partition by dynamic programming is left out: it takes most of the time of such short runs, and
other tests check what it gives.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from autoturbo import tune
from autoturbo.datasets import workloads
from autoturbo.graph.onnx_import import import_model
from autoturbo.hardware import load_target, preset_names

TRIALS = 3

SHARED = Path(__file__).parents[3] / "shared" / "models"

APART = 4
"""Of the presets every fourth is a model's, the next ones the next model's."""

FILES = [*(workloads.get(name).file for name in workloads.names()), *sorted(SHARED.glob("*.onnx"))]


@pytest.mark.full
@pytest.mark.parametrize("path", FILES, ids=[f"{path.parent.name}-{path.stem}" for path in FILES])
def test_every_model_tunes(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autoturbo.search.warm_starts.beginning.placed_starts", lambda *_, **__: ())
    graph = import_model(path)
    for name in preset_names()[FILES.index(path) % APART :: APART]:
        target = load_target(name)
        result = tune(graph, target, trials=TRIALS, sampler="random", baselines=())
        assert result.refused == (), name
        assert result.default is not None, name
        assert result.best.verified, name
        assert result.best.measurement.latency <= result.default.latency, name
        assert result.best.measurement.bound_fraction <= 1, name
