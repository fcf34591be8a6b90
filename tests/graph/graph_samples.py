"""Small models in ONNX's own text, and the bundled ones."""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import onnx
import onnx.parser

from autoturbo.datasets.workloads import get
from autoturbo.graph.onnx_import import import_model

if TYPE_CHECKING:
    from autoturbo.graph.operators import Graph


def model(signature: str, body: str, batch: int | None = None) -> Graph:
    """A model from its signature and nodes: ``model("(float[2,4] x) => (float[2,4] y)", ...)``.

    Values in angle brackets after the signature are weights.
    """
    text = f'<ir_version: 8, opset_import: ["": 17]> net {signature} {{ {body} }}'
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "net.onnx"
        onnx.save(onnx.parser.parse_model(text), path)
        return import_model(path, batch=batch)


@functools.cache
def workload(name: str, batch: int | None = None) -> Graph:
    """A bundled workload."""
    return import_model(get(name).file, batch=batch)
