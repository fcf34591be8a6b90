"""Weights on demand: the external data of a workload, made from its seed."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import onnx

from autoturbo.errors import Location, ModelError
from autoturbo.graph.weight_fills import Fill, fills
from autoturbo.graph.weight_values import pieces

SEED_KEY = "autoturbo.weights_seed"


def materialize_file(model: Path, folder: str | Path) -> Path:
    """Copy `model` into `folder` and write its external data beside it, each file atomically.

    The copy appears last, so a reader that sees it finds its weights complete.

    Raises:
        ModelError: the file does not say from which seed its weights come.
    """
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    proto = onnx.load(model, load_external_data=False)
    for location, tensors in _external(proto).items():
        with _atomic(target / location) as stream:
            _write(stream, tensors, fills(proto.graph), _seed(proto, model))
    with _atomic(target / model.name) as stream, model.open("rb") as original:
        shutil.copyfileobj(original, stream)
    return target / model.name


def _seed(proto: onnx.ModelProto, model: Path) -> str:
    found: str | None = {entry.key: entry.value for entry in proto.metadata_props}.get(SEED_KEY)
    if found is None:
        at = Location(model, field=f"metadata_props[{SEED_KEY}]")
        raise ModelError("the seed of the weights is missing", at)
    return found


def _external(proto: onnx.ModelProto) -> dict[str, list[tuple[int, onnx.TensorProto]]]:
    """External tensors by file, each with its offset in bytes, ascending."""
    files: dict[str, list[tuple[int, onnx.TensorProto]]] = {}
    for tensor in proto.graph.initializer:
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            entries = {entry.key: entry.value for entry in tensor.external_data}
            place = (int(entries.get("offset", "0")), tensor)
            files.setdefault(entries["location"], []).append(place)
    return {location: sorted(found, key=lambda p: p[0]) for location, found in files.items()}


@contextmanager
def _atomic(path: Path) -> Iterator[IO[bytes]]:
    """Open a file beside `path` for writing and move it there once it is complete."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as stream:
            yield stream
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _write(
    stream: IO[bytes],
    tensors: list[tuple[int, onnx.TensorProto]],
    chosen: dict[str, Fill],
    seed: str,
) -> None:
    for offset, tensor in tensors:
        stream.seek(offset)
        for piece in pieces(tensor, chosen[tensor.name], seed):
            stream.write(piece)
