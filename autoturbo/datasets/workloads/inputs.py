"""Example inputs of a workload: random, of the right type, within what its tables hold."""

from __future__ import annotations

from pathlib import Path

import onnx

from autoturbo.graph.weight_values import Array
from autoturbo.verify import inputs


def random_inputs(model: Path, seed: int) -> dict[str, Array]:
    """Make one array per input of `model`."""
    return inputs.random_inputs(onnx.load(model, load_external_data=False), seed)
