"""Scheduled models as files: checked, written atomically, weights stored once.

Values kept in files beside the original stay where they are if the new file stands beside it too;
otherwise they go into one file beside the new one. What the original holds in itself, the new file
holds in itself as well, as long as the format allows (2 GiB).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import onnx
from onnx import ModelProto, TensorProto

from autoturbo.errors import VerifyError
from autoturbo.files import NO_OTHERS, Kind, Outputs, atomic_write
from autoturbo.graph.importer.external_data import put_outside
from autoturbo.graph.model_nodes import ModelNodes
from autoturbo.graph.source import one_line
from autoturbo.schedule.schedule import Schedule
from autoturbo.verify.onnx_writer.passes import nodes_at
from autoturbo.verify.onnx_writer.scheduled_model import scheduled_model

_MOST_INSIDE = 1 << 30
"""Bytes of values that a file holds in itself; beyond, they go into a file beside it."""

_FEW = 1024
"""Bytes of a value that always stays inside."""

_PIECE = 1 << 24


@dataclass(frozen=True, slots=True)
class Applied:
    """A scheduled model that was written.

    Attributes:
        file: the model.
        data_files: what was written beside it; empty where it holds its values itself or refers to
            the original's files.
        instances: calls of instances in it, of all passes.
        functions: model-local functions.
        nodes: nodes of the main graph.
        passes: over the batch.
        missing: data files that the original names and that are not there.
    """

    file: Path
    data_files: tuple[Path, ...]
    instances: int
    functions: int
    nodes: int
    passes: int
    missing: tuple[str, ...] = ()


def nodes_of(schedule: Schedule, path: Path) -> ModelNodes:
    """Return the model's nodes at the samples that a pass of the schedule processes.

    Raises:
        ModelError: the file is not usable.
        VerifyError: it cannot be written for so many samples.
    """
    return nodes_at(path, schedule.problem.graph, schedule.model)


def write_scheduled_model(
    schedule: Schedule, path: str | Path, out: str | Path, outputs: Outputs = NO_OTHERS
) -> Applied:
    """Write a schedule and its model as one ONNX file.

    Args:
        schedule: what to apply.
        path: the model's file.
        out: the file to write; another one than ``path``.
        outputs: what it may not replace besides the model and its data files.

    Raises:
        ModelError: the model's file is not usable.
        UsageError: ``out`` cannot be written, is the model itself, or may not be replaced.
        VerifyError: the schedule cannot be written as a model.
        BuildError: the schedule does not compute the model.
    """
    source, place = Path(path), Path(out)
    outputs = outputs.reading(source)
    outputs.check(place, Kind.MODEL)
    written = scheduled_model(schedule, nodes_of(schedule, source))
    data, missing = _keep_values(written.proto, source, place, outputs)
    _check_and_write(written.proto, place, complete=not missing)
    return Applied(
        place, data, len(written.calls), written.functions, len(written.proto.graph.node),
        len(written.passes), missing,
    )  # fmt: skip


def _check_and_write(proto: ModelProto, place: Path, *, complete: bool) -> None:
    """Write the file once ONNX's own checker has passed it.

    The checker looks for data files, so it reads the file where it will stand.
    """
    draft = place.with_name(f".{place.name}.draft")
    try:
        atomic_write(draft, proto.SerializeToString(deterministic=True))
        if complete:
            onnx.checker.check_model(str(draft), full_check=_all_known(proto))
        else:
            _check_without_values(proto)
        draft.replace(place)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        raise VerifyError(f"the scheduled model is not valid ONNX: {one_line(error)}") from None
    finally:
        with suppress(OSError):
            draft.unlink(missing_ok=True)


def _check_without_values(proto: ModelProto) -> None:
    """Check a model whose data files are not there: its weights stand as inputs."""
    copy = ModelProto()
    copy.CopyFrom(proto)
    gone = [t for t in copy.graph.initializer if t.data_location == TensorProto.EXTERNAL]
    for tensor in gone:
        info = onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims))
        copy.graph.input.append(info)
    kept = [t for t in copy.graph.initializer if t.data_location != TensorProto.EXTERNAL]
    del copy.graph.initializer[:]
    copy.graph.initializer.extend(kept)
    onnx.checker.check_model(copy, full_check=_all_known(proto))


def _all_known(proto: ModelProto) -> bool:
    """Return whether ONNX knows every operator: inference fails behind other libraries'."""
    versions = {entry.domain: entry.version for entry in proto.opset_import}
    nodes = [*proto.graph.node, *(node for one in proto.functions for node in one.node)]
    own = {one.domain for one in proto.functions}
    kinds = {(node.domain, node.op_type) for node in nodes if node.domain not in own}
    return all(
        onnx.defs.has(op_type, max_inclusive_version=versions.get(domain, 1), domain=domain)
        for domain, op_type in kinds
    )


# ----------------------------------------------------------------------------------------- values


def _keep_values(
    proto: ModelProto, source: Path, place: Path, outputs: Outputs
) -> tuple[tuple[Path, ...], tuple[str, ...]]:
    """Make references right for the new place; the data file written, and files not there."""
    outside = [t for t in proto.graph.initializer if t.data_location == TensorProto.EXTERNAL]
    folder = source.absolute().parent
    missing = sorted({_entry(t, "location") for t in outside if not _file(t, folder).is_file()})
    beside = place.absolute().parent.resolve() == folder.resolve()
    moved = [t for t in outside if not beside and _entry(t, "location") not in missing]
    moved += _too_large(proto)
    if not moved:
        return (), tuple(missing)
    data = place.with_name(f"{place.name}.data")
    own = {_file(tensor, folder) for tensor in outside}
    with outputs.reading(*own).open(data, Kind.WEIGHTS) as stream:
        for tensor in moved:
            put_outside(tensor, _values(tensor, folder), stream, data.name)
    return (data,), tuple(missing)


def _too_large(proto: ModelProto) -> list[TensorProto]:
    """Return values inside the file that would make it larger than the format allows."""
    inside = [t for t in proto.graph.initializer if len(t.raw_data) > _FEW]
    return inside if sum(len(t.raw_data) for t in inside) > _MOST_INSIDE else []


def _values(tensor: TensorProto, folder: Path) -> Iterator[bytes]:
    if tensor.data_location != TensorProto.EXTERNAL:
        yield tensor.raw_data
        return
    with _file(tensor, folder).open("rb") as stream:
        stream.seek(int(_entry(tensor, "offset") or 0))
        left = int(_entry(tensor, "length") or _file(tensor, folder).stat().st_size)
        while left > 0 and (piece := stream.read(min(left, _PIECE))):
            left -= len(piece)
            yield piece


def _file(tensor: TensorProto, folder: Path) -> Path:
    return folder / _entry(tensor, "location")


def _entry(tensor: TensorProto, key: str) -> str:
    return next((entry.value for entry in tensor.external_data if entry.key == key), "")
