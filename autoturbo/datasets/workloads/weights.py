"""Weights on demand: the external data of a workload, made from its seed.

Each tensor has a random stream of its own, keyed by the SHA-256 of seed and tensor name, so its
values depend neither on the other tensors nor on their order. Values are written in pieces of a
few MiB: a model of several GiB needs no more memory than a small one.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING

import numpy as np
import onnx

from autoturbo.datasets.workloads.fills import Fill, fills
from autoturbo.errors import Location, ModelError

if TYPE_CHECKING:
    from collections.abc import Iterator

SEED_KEY = "autoturbo.weights_seed"
_PIECE = 1 << 20
"""Values per piece: 4 MiB of float32."""


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
        for piece in _pieces(tensor, chosen[tensor.name], seed):
            stream.write(piece)


def _pieces(tensor: onnx.TensorProto, fill: Fill, seed: str) -> Iterator[bytes]:
    """Yield the tensor's values as little-endian bytes, piece by piece."""
    dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type).newbyteorder("<")
    digest = hashlib.sha256(f"{seed}:{tensor.name}".encode()).digest()
    generator = np.random.Generator(np.random.PCG64(int.from_bytes(digest[:16], "little")))
    left = int(np.prod(tensor.dims, dtype=np.int64))
    while left > 0:
        count = min(left, _PIECE)
        yield _values(generator, fill, count).astype(dtype).tobytes()
        left -= count


def _values(generator: np.random.Generator, fill: Fill, count: int) -> np.ndarray:
    if fill.positive:
        width = np.float32(2 * fill.spread)
        return generator.random(count, np.float32) * width + np.float32(fill.mean - fill.spread)
    deviates = generator.standard_normal(count, np.float32)
    return deviates * np.float32(fill.spread) + np.float32(fill.mean)
