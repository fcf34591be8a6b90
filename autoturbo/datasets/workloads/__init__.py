"""The workloads: real networks as small ONNX files, and the weights to run them.

The files hold the graph and every small tensor. Large weights are external data in
``NAME.weights.bin``, which is not shipped: scheduling needs shapes only, and whoever wants to
run a model calls `materialize`, which makes the weights from the seed in the file's metadata.
How the files were made: ``PYTHONPATH=tools python -m workload_export``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from autoturbo.datasets.workloads.registry import (
    MODELS_FOLDER,
    PAPER_TEN,
    Workload,
    get,
    names,
)

__all__ = [
    "MODELS_FOLDER",
    "PAPER_TEN",
    "Workload",
    "example_inputs",
    "get",
    "materialize",
    "names",
]


def materialize(name: str, folder: str | Path) -> Path:
    """Write the workload's ONNX file and its weights into `folder`; return the file's path."""
    from autoturbo.datasets.workloads.weights import materialize_file

    return materialize_file(get(name).file, folder)


def example_inputs(name: str, seed: int = 0) -> dict[str, Any]:
    """Random arrays that the workload accepts, by input name (indices stay within tables)."""
    import onnx

    from autoturbo.verify.inputs import random_inputs

    return random_inputs(onnx.load(get(name).file, load_external_data=False), seed)
