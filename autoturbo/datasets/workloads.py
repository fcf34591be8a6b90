"""The workloads: real networks at the batch sizes that the experiments use.

The first ten are the paper's (GraphTurbo, Table 2, rows A to J); the others are older and newer
networks that a scheduler meets in the field. ``workloads.csv`` beside their files lists them, which
is read without ONNX and NumPy.

Their files hold the graph and every small tensor. Large weights are external data in
``NAME.weights.bin``, which is not shipped: scheduling needs shapes only, and whoever wants to
run a model calls :func:`materialize`, which makes the weights from the seed in the file's metadata.
How the files were made: ``datasets/README.md`` at the repository's root.
"""

from __future__ import annotations

import csv
import functools
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autoturbo.datasets import data_folder
from autoturbo.errors import Location, ModelError, UsageError, did_you_mean
from autoturbo.files import atomic_writer
from autoturbo.graph.source import SEED_KEY

if TYPE_CHECKING:
    from onnx import ModelProto, TensorProto

MODELS_FOLDER = data_folder("datasets") / "workloads"


@dataclass(frozen=True, slots=True)
class Workload:
    """A network at a batch size.

    Attributes:
        name: How commands call it, and the stem of its file.
        batch: Samples per inference, baked into the file's shapes.
        family: What kind of network it is (``convolutional``, ``transformer``, ...).
        source: The library class or function that the file was exported from.
        paper_row: Letter of the row in the paper's Table 2, or None.
        macs_reference: Stem of the reference table of multiply-accumulates per operator for one
            sample (``benchmarks/validation/references/macs``), or None.
    """

    name: str
    batch: int
    family: str
    source: str
    paper_row: str | None
    macs_reference: str | None

    @property
    def file(self) -> Path:
        """Return the ONNX file; its large weights are external data that `materialize` makes."""
        return MODELS_FOLDER / f"{self.name}.onnx"


PAPER_TEN = (
    "resnet50", "bert_base_s128", "bert_base_s256", "bert_large_s384", "bert_base_s512", "dlrm",
    "mobilenet_v2", "vit_b16", "densenet121", "conformer",
)  # fmt: skip
"""Names of the paper's ten workloads, rows A to J."""


@functools.cache
def _table() -> dict[str, Workload]:
    """Return all workloads by name.

    Raises:
        UsageError: This copy of the package has none.
    """
    try:
        with (MODELS_FOLDER / "workloads.csv").open(encoding="utf-8", newline="") as file:
            _titles, *rows = csv.reader(file)
    except OSError:
        raise UsageError("no workloads are in the package", hint="install it again") from None
    return {
        name: Workload(name, int(batch), family, source, paper_row or None, macs_reference or None)
        for name, batch, family, source, paper_row, macs_reference in rows
    }


def names() -> tuple[str, ...]:
    """Return the names of all workloads: the paper's ten first, in its order."""
    return tuple(_table())


def get(name: str) -> Workload:
    """Return the workload called `name`.

    Raises:
        UsageError: There is none; the hint offers the nearest name.
    """
    found = _table().get(name)
    if found is None:
        raise UsageError(f"no workload is called '{name}'", hint=did_you_mean(name, _table()))
    return found


def example_inputs(name: str, seed: int = 0) -> dict[str, Any]:
    """Return random arrays that the workload accepts, by input (indices stay within tables)."""
    import onnx

    from autoturbo.verifier.random_values import random_inputs

    return random_inputs(onnx.load(get(name).file, load_external_data=False), seed)


def materialize(name: str, folder: str | Path) -> Path:
    """Write the workload's ONNX file and its weights into `folder`; return the file's path."""
    return materialize_file(get(name).file, folder)


def materialize_file(model: Path, folder: str | Path) -> Path:
    """Copy `model` into `folder` and write its external data beside it, each file atomically.

    The copy appears last, so a reader that sees it finds its weights complete.

    Returns:
        The copy of the model in ``folder``.

    Raises:
        ModelError: The file does not say from which seed its weights come.
        UsageError: A file cannot be written.
    """
    import onnx
    from onnx.external_data_helper import ExternalDataInfo, uses_external_data

    from autoturbo.verifier.weight_values import fills, pieces

    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    proto = onnx.load(model, load_external_data=False)
    chosen = fills(proto.graph)
    files: dict[str, list[tuple[int, TensorProto]]] = {}
    for tensor in filter(uses_external_data, proto.graph.initializer):
        place = ExternalDataInfo(tensor)
        files.setdefault(place.location, []).append((place.offset or 0, tensor))
    for location, tensors in files.items():
        seed = _seed(proto, model)
        with atomic_writer(target / location) as stream:
            for offset, tensor in tensors:
                stream.seek(offset)
                for piece in pieces(tensor, chosen[tensor.name], seed):
                    stream.write(piece)
    with atomic_writer(target / model.name) as stream, model.open("rb") as original:
        shutil.copyfileobj(original, stream)
    return target / model.name


def _seed(proto: ModelProto, model: Path) -> str:
    found: str | None = {entry.key: entry.value for entry in proto.metadata_props}.get(SEED_KEY)
    if found is None:
        at = Location(model, field=f"metadata_props[{SEED_KEY}]")
        raise ModelError("the seed of the weights is missing", at)
    return found
