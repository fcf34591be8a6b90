"""Models in which dimensions have no extent, and what ONNX Runtime makes of them.

ONNX Runtime dies of some: run as a program, this reads models and feeds from standard input, runs
each in a process of its own, and writes what they gave to standard output.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import ModelProto, helper, numpy_helper

from tests.graph.table.operator_harness import Array, Case

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
    program = [sys.executable, "-m", __name__]
    ran = subprocess.run(program, input=pickle.dumps(asked), capture_output=True, check=True)
    return pickle.loads(ran.stdout)  # type: ignore[no-any-return]  # noqa: S301 - our own


def _run(model: bytes, feeds: Feeds) -> dict[str, Any] | str:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    try:
        session = onnxruntime.InferenceSession(model, options, ["CPUExecutionProvider"])
        wanted = {value.name for value in session.get_inputs()}
        results = session.run(None, {name: v for name, v in feeds.items() if name in wanted})
    except Exception as error:  # noqa: BLE001 - its classes share no other base
        return str(error)
    return {value.name: v for value, v in zip(session.get_outputs(), results, strict=True)}


def _in_a_child(model: bytes, feeds: Feeds) -> object:
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        with os.fdopen(writing, "wb") as out:
            pickle.dump(_run(model, feeds), out)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as back:
        answer = back.read()
    os.waitpid(child, 0)
    return pickle.loads(answer) if answer else "it died"  # noqa: S301 - our own


if __name__ == "__main__":
    asked = pickle.loads(sys.stdin.buffer.read())  # noqa: S301 - our own
    import onnxruntime  # noqa: F401 - once, for all children

    sys.stdout.buffer.write(pickle.dumps([_in_a_child(*one) for one in asked]))
