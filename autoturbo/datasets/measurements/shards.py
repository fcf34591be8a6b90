"""Shards on the disk: written whole or not at all, checked when read.

Two Parquet files and, last, a small JSON file with their checksums: where that one is missing the
shard is not there, whatever else is.
"""

from __future__ import annotations

import hashlib
import importlib
import io
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Final

from autoturbo.datasets.measurements.columns import DATASET_SCHEMA, KERNELS, LIST, SETTINGS, WORD
from autoturbo.datasets.measurements.rows import Columns
from autoturbo.errors import InputError, Location, UsageError
from autoturbo.files import atomic_write, is_bomb, read_json

TABLES: Final[dict[str, dict[str, str]]] = {"settings": SETTINGS, "kernels": KERNELS}
"""Folders of Parquet files, and the columns of each."""

_SEALS: Final = "shards"


@dataclass(frozen=True, slots=True)
class Seal:
    """What a shard must be.

    Attributes:
        schema: version of the columns.
        settings: rows of its table of settings.
        kernels: rows of its table of kernels.
        repeats: settings left out because their schedule was there already.
        settings_sha256: of the file.
        kernels_sha256: of the file.
    """

    schema: int
    settings: int
    kernels: int
    repeats: int
    settings_sha256: str
    kernels_sha256: str


def require_parquet() -> None:
    """Find out whether Parquet files can be read and written here.

    Raises:
        UsageError: pyarrow is not installed.
    """
    _arrow("pyarrow")


def _arrow(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        hint = "pip install 'autoturbo[parquet]'"
        raise UsageError("data sets are Parquet files, which need pyarrow", hint=hint) from None


def write_shard(folder: Path, name: str, tables: Mapping[str, Columns], repeats: int) -> Seal:
    """Write the tables, then the seal.

    Raises:
        UsageError: a file cannot be written, or pyarrow is missing.
    """
    sums = {}
    for table, columns in TABLES.items():
        data = _parquet(tables[table], columns)
        path = _table_path(folder, table, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        atomic_write(path, data)
        sums[table] = hashlib.sha256(data).hexdigest()
    rows = {table: len(next(iter(tables[table].values()))) for table in TABLES}
    seal = Seal(
        DATASET_SCHEMA, rows["settings"], rows["kernels"], repeats, sums["settings"],
        sums["kernels"],
    )  # fmt: skip
    path = _seal_path(folder, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    atomic_write(path, json.dumps(asdict(seal), indent=2) + "\n")
    return seal


def is_there(folder: Path, name: str) -> bool:
    """Whether a shard is complete; what is missing of it is made again."""
    paths = [_table_path(folder, table, name) for table in TABLES]
    return all(path.exists() for path in [_seal_path(folder, name), *paths])


def read_shard(folder: Path, name: str) -> tuple[Seal, dict[str, Any]]:
    """The seal of a shard, and its tables as pyarrow has them.

    Raises:
        InputError: a file is missing or damaged, or of another version; it is named.
        UsageError: pyarrow is missing.
    """
    seal = read_seal(folder, name)
    sums = {"settings": seal.settings_sha256, "kernels": seal.kernels_sha256}
    rows = {"settings": seal.settings, "kernels": seal.kernels}
    found = {}
    for table, columns in TABLES.items():
        path = _table_path(folder, table, name)
        found[table] = _table(path, sums[table])
        if list(found[table].column_names) != list(columns) or len(found[table]) != rows[table]:
            raise damaged(path, "other columns or rows than its shard is said to have")
        if list(found[table].schema.types) != _types(columns):
            raise damaged(path, "columns of other types than a shard's")
    return seal, found


def read_seal(folder: Path, name: str) -> Seal:
    """Counts and checksums of a shard.

    Raises:
        InputError: the file is missing or damaged, or of another version.
    """
    path = _seal_path(folder, name)
    try:
        values = read_json(path)
        seal = Seal(**{f.name: values[f.name] for f in fields(Seal)})
        numbers = (seal.schema, seal.settings, seal.kernels, seal.repeats)
        if any(type(one) is not int or one < 0 for one in numbers):
            raise damaged(path, "its counts are no whole numbers")
    except (OSError, ValueError, KeyError, TypeError):
        raise damaged(path, "cannot be read") from None
    if seal.schema != DATASET_SCHEMA:
        raise other_version(path, seal.schema)
    return seal


def damaged(path: Path, what: str) -> InputError:
    """The error for a file of a data set that is not as it was written."""
    hint = "delete it, and 'autoturbo dataset collect' makes the shard again"
    return InputError(f"a damaged shard: {what}", Location(path), hint)


def other_version(path: Path, found: object) -> InputError:
    """The error for a data set of another schema."""
    message = f"a data set of version {found!r:.40}, this release reads {DATASET_SCHEMA}"
    return InputError(message, Location(path), "collect it again")


def _table_path(folder: Path, table: str, name: str) -> Path:
    return folder / table / f"{name}.parquet"


def _seal_path(folder: Path, name: str) -> Path:
    return folder / _SEALS / f"{name}.json"


def _parquet(values: Columns, columns: Mapping[str, str]) -> bytes:
    """A file's content: the same bytes for the same values."""
    arrow, parquet = _arrow("pyarrow"), _arrow("pyarrow.parquet")
    fields = [(name, _type(arrow, kind)) for name, kind in columns.items()]
    table = arrow.table(values, schema=arrow.schema(fields))
    buffer = io.BytesIO()
    parquet.write_table(table, buffer, compression="zstd")
    return buffer.getvalue()


def _types(columns: Mapping[str, str]) -> list[Any]:
    """Return the types of columns, as pyarrow has them."""
    arrow = _arrow("pyarrow")
    return [_type(arrow, kind) for kind in columns.values()]


def _type(arrow: Any, kind: str) -> Any:
    if kind == WORD:
        return arrow.dictionary(arrow.int32(), arrow.string())
    if kind == LIST:
        return arrow.list_(arrow.int32())
    return arrow.bool_() if kind == "bool" else getattr(arrow, kind)()


def _table(path: Path, checksum: str) -> Any:
    try:
        data = path.read_bytes()
    except OSError:
        raise damaged(path, "cannot be read") from None
    if hashlib.sha256(data).hexdigest() != checksum:
        raise damaged(path, "its checksum is not the one it was written with")
    # Neither threads nor reading ahead pay for files of some kilobytes that are in memory.
    source = _arrow("pyarrow").BufferReader(data)
    arrow = _arrow("pyarrow")
    try:
        file = _arrow("pyarrow.parquet").ParquetFile(source, pre_buffer=False)
        if is_bomb(_unpacked(file.metadata), len(data)):
            raise damaged(path, f"unpacks to far more than its {len(data)} bytes")
        return file.read(use_threads=False)
    except (arrow.ArrowException, OSError) as error:
        raise damaged(path, " ".join(str(error).split())[:200]) from None


def _unpacked(metadata: Any) -> int:
    """Bytes that a Parquet file's values take in memory, 8 each where they are shorter on disk."""
    groups = (metadata.row_group(at) for at in range(metadata.num_row_groups))
    columns = (group.column(at) for group in groups for at in range(group.num_columns))
    return sum(max(8 * one.num_values, one.total_uncompressed_size) for one in columns)
