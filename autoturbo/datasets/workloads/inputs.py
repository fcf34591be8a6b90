"""Example inputs of a workload: random, of the right type, within what its tables hold."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx

if TYPE_CHECKING:
    from pathlib import Path

LIMITS_KEY = "autoturbo.input_limits"


def random_inputs(model: Path, seed: int) -> dict[str, np.ndarray[Any, Any]]:
    """Make one array per input of `model`.

    Integers are drawn from the half-open ranges that the file's metadata gives (below 2 where it
    gives none); floating-point inputs are standard normal.
    """
    proto = onnx.load(model, load_external_data=False)
    metadata = {entry.key: entry.value for entry in proto.metadata_props}
    limits: dict[str, list[int]] = json.loads(metadata.get(LIMITS_KEY, "{}"))
    generator = np.random.default_rng(seed)
    return {
        value.name: _random_array(generator, value, limits.get(value.name, [0, 2]))
        for value in proto.graph.input
    }


def _random_array(
    generator: np.random.Generator, value: onnx.ValueInfoProto, limits: list[int]
) -> np.ndarray[Any, Any]:
    tensor = value.type.tensor_type
    dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
    shape = tuple(d.dim_value for d in tensor.shape.dim)
    if dtype.kind == "f":
        return generator.standard_normal(shape, np.float32).astype(dtype)
    return generator.integers(limits[0], limits[1], shape).astype(dtype)
