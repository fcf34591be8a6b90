"""Runs models in ONNX Runtime as they are written: no optimisation, the same numbers each time."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import ModelProto, ValueInfoProto

from autoturbo.errors import Location, UnrunnableError
from autoturbo.graph.weight_values import Array

if TYPE_CHECKING:
    import onnxruntime

THREADS = 4
"""Threads at most: more gain little, and the memory that a run needs grows with them."""

_FATAL = 4
"""ONNX Runtime's log level: errors reach the caller as exceptions, so nothing else is printed."""

_CONTEXT = re.compile(r"^\[ONNXRuntimeError\] : \d+ : \w+ : ")


def open_session(path: Path) -> onnxruntime.InferenceSession:
    """A session for the model in a file, its nodes run as written.

    Raises:
        UnrunnableError: ONNX Runtime is not installed, or has no implementation of an operator.
    """
    runtime = _runtime()
    try:
        return runtime.InferenceSession(path, _options(runtime), providers=["CPUExecutionProvider"])
    except Exception as error:  # noqa: BLE001 - its classes share no other base
        raise _unrunnable(error, path) from None


def run(
    session: onnxruntime.InferenceSession,
    feeds: Mapping[str, Array],
    outputs: Sequence[str] | None = None,
) -> dict[str, Array]:
    """The values of a model's outputs by name.

    Args:
        session: of the model.
        feeds: an array per input.
        outputs: which to compute; None for all.

    Raises:
        UnrunnableError: a node fails; the message names it.
    """
    names = [value.name for value in session.get_outputs()] if outputs is None else list(outputs)
    try:
        values = session.run(names, dict(feeds))
    except Exception as error:  # noqa: BLE001 - its classes share no other base
        raise _unrunnable(error, None) from None
    return dict(zip(names, map(np.asarray, values), strict=True))


def with_outputs(model: ModelProto, names: Sequence[str]) -> ModelProto:
    """A copy of a model that has the named values as outputs too, in front of its own.

    ONNX Runtime finds out their types and extents itself; names that are outputs already stay.
    """
    copy = ModelProto()
    copy.CopyFrom(model)
    present = {value.name for value in copy.graph.output}
    added = [ValueInfoProto(name=name) for name in dict.fromkeys(names) if name not in present]
    own = list(copy.graph.output)
    del copy.graph.output[:]
    copy.graph.output.extend([*added, *own])
    return copy


def _runtime() -> Any:
    try:
        import onnxruntime
    except ImportError as error:
        raise UnrunnableError(
            f"ONNX Runtime is not usable: {error}", hint="pip install 'autoturbo[verify]'"
        ) from None
    return onnxruntime


def _options(runtime: Any) -> Any:
    """Settings under which nodes run one after the other, in the file's order, and repeatably."""
    options = runtime.SessionOptions()
    options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.execution_mode = runtime.ExecutionMode.ORT_SEQUENTIAL
    options.intra_op_num_threads = min(THREADS, os.cpu_count() or 1)
    options.use_deterministic_compute = True
    options.log_severity_level = _FATAL
    # The arena keeps the peak of every size class and a pattern the peak of every run.
    options.enable_cpu_mem_arena = False
    options.enable_mem_pattern = False
    return options


def _unrunnable(error: Exception, path: Path | None) -> UnrunnableError:
    text = " ".join(_CONTEXT.sub("", str(error)).split()).rstrip(".")
    return UnrunnableError(f"ONNX Runtime cannot run the model: {text}", Location(path))
