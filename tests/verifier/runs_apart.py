"""A program that runs models in ONNX Runtime, each in a process of its own: it dies of some.

It reads models and feeds from standard input and writes what they gave to standard output. Nothing
of the tests is imported: a child finds only what is installed.
"""

from __future__ import annotations

import os
import pickle
import sys
from typing import Any

import numpy.typing as npt

Feeds = dict[str, npt.NDArray[Any]]


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
