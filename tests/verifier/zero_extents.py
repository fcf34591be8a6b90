"""Models in which dimensions have no extent, and what ONNX Runtime makes of them."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from onnx import ModelProto, helper, numpy_helper

from tests.graph.operator_table.operator_harness import Array, Case

Cut = tuple[tuple[int, int], ...]
"""Inputs and dimensions of them that have no extent."""

Feeds = dict[str, Array]


@dataclass(frozen=True)
class Zeroed:
    """A case with nothing in some dimensions, beside a Relu that has something to do."""

    label: str
    model: ModelProto
    feeds: Feeds


def cuts(case: Case, values: dict[int, Array]) -> Iterator[Cut]:
    """Every dimension of every input that is no constant; then all those of one extent together."""
    varying = [place for place in values if not isinstance(case.inputs[place], np.ndarray)]
    dims = [(place, dim) for place in varying for dim in range(values[place].ndim)]
    yield from ((one,) for one in dims)
    for extent in sorted({values[place].shape[dim] for place, dim in dims}):
        together = tuple(one for one in dims if values[one[0]].shape[one[1]] == extent)
        if len(together) > 1:
            yield together


def zeroed(case: Case, values: dict[int, Array], cut: Cut) -> Zeroed:
    values = dict(values)
    for place, dim in cut:
        values[place] = np.take(values[place], [], axis=dim)
    model = case.model(values)
    fixed = {f"i{k}": v for k, v in values.items() if isinstance(case.inputs[k], np.ndarray)}
    given = [value for value in model.graph.input if value.name not in fixed]
    del model.graph.input[:]
    model.graph.input.extend([*given, helper.make_tensor_value_info("r", 1, [2, 3])])
    model.graph.initializer.extend(numpy_helper.from_array(v, n) for n, v in fixed.items())
    model.graph.node.append(helper.make_node("Relu", ["r"], ["live"]))
    model.graph.output.append(helper.make_tensor_value_info("live", 1, [2, 3]))
    feeds = {f"i{k}": v for k, v in values.items() if f"i{k}" not in fixed}
    return Zeroed(f"{case.label}{cut}", model, {**feeds, "r": np.ones((2, 3), np.float32)})


def run_apart(models: Sequence[tuple[ModelProto, Feeds]]) -> list[dict[str, Array] | str]:
    """Return the outputs of each model by name, or why ONNX Runtime does not give any."""
    asked = [(model.SerializeToString(), feeds) for model, feeds in models]
    program = [sys.executable, str(Path(__file__).with_name("runs_apart.py"))]
    ran = subprocess.run(program, input=pickle.dumps(asked), capture_output=True, check=False)
    assert ran.returncode == 0, ran.stderr.decode(errors="replace")[-2000:]
    return pickle.loads(ran.stdout)  # type: ignore[no-any-return]  # noqa: S301 - our own
