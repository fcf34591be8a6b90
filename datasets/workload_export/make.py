"""One workload from recipe to file."""

from __future__ import annotations

import json
from importlib.metadata import version
from typing import TYPE_CHECKING

import onnx

from autoturbo.datasets.workloads import get
from autoturbo.graph.source import SEED_KEY
from autoturbo.verifier.random_values import LIMITS_KEY
from workload_export.exporters import export
from workload_export.pack import drop_unused, load_small, pack
from workload_export.recipes import RECIPES, Recipe
from workload_export.simplify import fold, free_batch, strip

if TYPE_CHECKING:
    from pathlib import Path

WEIGHTS_SEED = 20231
FILE_LIMIT = 1_000_000
"""Bytes: what a workload file may have at most."""


def make(name: str, folder: Path, scratch: Path) -> Path:
    """Export the workload `name` into `folder`, using `scratch` for large files."""
    recipe = RECIPES[name]
    model = export(recipe, get(name).batch, WEIGHTS_SEED, scratch)
    model = fold(model, scratch)
    load_small(model, scratch)
    strip(model)
    pack(model, f"{name}.weights.bin")
    free_batch(model)
    drop_unused(model.graph)
    _label(model, name, recipe)
    return _save(model, folder / f"{name}.onnx")


def _label(model: onnx.ModelProto, name: str, recipe: Recipe) -> None:
    limits = {key: value.limits for key, value in recipe.inputs.items() if value.limits}
    labels = {
        "autoturbo.workload": name,
        SEED_KEY: str(WEIGHTS_SEED),
        "autoturbo.source": f"{recipe.library} {version(recipe.library)}",
        "autoturbo.exporter": "torch.onnx dynamo=" + str(not recipe.legacy),
        LIMITS_KEY: json.dumps(limits),
    }
    onnx.helper.set_model_props(model, labels)


def _save(model: onnx.ModelProto, path: Path) -> Path:
    data = model.SerializeToString(deterministic=True)
    if len(data) > FILE_LIMIT:
        raise ValueError(f"{path.name} has {len(data)} bytes, limit {FILE_LIMIT}")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path
