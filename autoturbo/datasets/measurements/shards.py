"""The two tables of a data set, and shards of them on the disk.

A shard is two Parquet files and, last, a small JSON file with their rows and checksums, its seal:
where that one is missing the shard is not there, whatever else is.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from autoturbo.errors import InputError, Location, UsageError
from autoturbo.extras import how_to_install
from autoturbo.files import atomic_write, is_bomb, read_json
from autoturbo.schedule.knobs import KNOBS_SCHEMA, SCHEDULER_VERSION
from autoturbo.schema import InvalidError, checked, form_of
from autoturbo.simulator.measurement import SIMULATOR_VERSION
from autoturbo.simulator.plan import COLUMNS as PLAN_COLUMNS

DATASET_SCHEMA: Final = 4
"""Raised whenever a column changes its name, meaning or type; others are refused."""

VERSIONS: Final = {
    "scheduler": SCHEDULER_VERSION,
    "simulator": SIMULATOR_VERSION,
    "knobs": str(KNOBS_SCHEMA),
}
"""What the same setting may measure differently under."""

MEASURED: Final = "measured"
"""The outcome of a setting that could be measured."""

WORD: Final = "dictionary"
"""Text that repeats: a number and a table of words."""

LIST: Final = "list"
"""Whole numbers, any number of them."""

MEASURES: Final = {
    "latency_s": "float64",
    "ddr_bytes": "int64",
    "gb_bytes": "int64",
    "matrix_utilization": "float64",
    "vector_utilization": "float64",
    "peak_lb_bytes": "int64",
    "peak_gb_bytes": "int64",
    "kernels": "int64",
    "lower_bound_s": "float64",
    "energy_j": "float64",
}
"""Measures of a setting, as :class:`autoturbo.simulator.measurement.Measurement` writes them."""

SETTINGS: Final = {
    "model": WORD,
    "graph_hash": WORD,
    "batch": "int64",
    "target": WORD,
    "target_hash": WORD,
    "target_figures": WORD,  # the target file's content, so that features need nothing else
    "dtype": WORD,
    "scheduler_version": WORD,
    "simulator_version": WORD,
    "knobs_version": WORD,
    "seed": "int64",  # of this shard
    "number": "int32",  # place in the sample, 0 for the default schedule
    "origin": WORD,
    "parent": "int32",  # place of what it is a mutant of, -1 for none
    "knobs": "string",  # canonical JSON
    "outcome": WORD,  # "measured", or the failure's reason
    "message": "string",
    "demand_bytes": "int64",
    "capacity_bytes": "int64",
    **MEASURES,  # null where the outcome is a failure
    "loops": "int64",  # passes
    "clusters": "int32",  # that work
    "alike": "bool",  # whether clusters work alike: then launches x time_s sum up to the latency
}
"""Columns of the table of settings, and their types as pyarrow names them."""

KERNELS: Final = {
    "setting": "int32",  # place in the sample
    "subgraph": "int32",  # row of the plan
    **dict.fromkeys(PLAN_COLUMNS, "float64"),
    "launches": "int64",  # by one cluster over the whole batch
    "first_cluster": "int32",
    "clusters": "int32",  # that launch it: these many from the first on
    "reads": LIST,  # sub-graphs that it reads from
    "own": "string",  # knobs of its own as JSON, null for none
    "time_s": "float64",  # mean of a launch, with the movements and overheads before it
    "kernel_s": "float64",  # of these the kernels alone
    "signature": "binary",  # of its first kernel
    "signatures": "int32",  # different ones among its kernels
}
"""Columns of the table of kernels; times and signatures are null where nothing was measured."""

TABLES: Final = {"settings": SETTINGS, "kernels": KERNELS}
"""Folders of Parquet files, and the columns of each."""

Row = dict[str, Any]
"""Values by the column's name; one that is missing is null."""


@dataclass(frozen=True, slots=True)
class Seal:
    """The row counts and digests of a complete shard.

    Attributes:
        schema: Version of the columns.
        settings: Rows of its table of settings.
        kernels: Rows of its table of kernels.
        repeats: Settings left out because their schedule was there already.
        settings_sha256: Of the file.
        kernels_sha256: Of the file.
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
        UsageError: PyArrow is not installed.
    """
    try:
        import pyarrow.parquet  # noqa: F401
    except ImportError:
        message = "data sets are Parquet files, which need pyarrow, which is not installed"
        raise UsageError(message, hint=how_to_install("parquet")) from None


def write_shard(folder: Path, name: str, rows: Mapping[str, Sequence[Row]], repeats: int) -> Seal:
    """Write the tables, then the seal.

    Returns:
        The seal: rows and checksum of each table.

    Raises:
        UsageError: A file cannot be written.
    """
    facts: dict[str, Any] = {}
    for table in TABLES:
        data = _parquet(rows[table], table)
        _write(_place(folder, table, name), data)
        facts |= {table: len(rows[table]), f"{table}_sha256": hashlib.sha256(data).hexdigest()}
    seal = Seal(schema=DATASET_SCHEMA, repeats=repeats, **facts)
    _write(_place(folder, "shards", name), json.dumps(asdict(seal), indent=2) + "\n")
    return seal


def _write(path: Path, content: str | bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    atomic_write(path, content)


def is_there(folder: Path, name: str) -> bool:
    """Return whether a shard is complete; missing files are made again."""
    return all(_place(folder, kind, name).exists() for kind in ("shards", *TABLES))


def read_shard(folder: Path, name: str) -> tuple[Seal, dict[str, Any]]:
    """Return the seal of a shard, and its tables as pyarrow has them.

    Raises:
        InputError: A file is missing or damaged, or of another version; it is named.
    """  # noqa: DOC501  damaged() makes the error
    seal = read_seal(folder, name)
    told, found = asdict(seal), {}
    for table in TABLES:
        path = _place(folder, table, name)
        found[table] = _table(path, told[f"{table}_sha256"])
        if not found[table].schema.equals(_schema(table)) or len(found[table]) != told[table]:
            raise damaged(path, "other columns or rows than its shard is said to have")
    return seal, found


def read_seal(folder: Path, name: str) -> Seal:
    """Return counts and checksums of a shard.

    Raises:
        InputError: The file is missing or damaged, or of another version.
    """  # noqa: DOC501  damaged() and other_version() make the errors
    path = _place(folder, "shards", name)
    try:
        seal = Seal(**checked(form_of(Seal), read_json(path)))
    except (OSError, ValueError, InvalidError):
        raise damaged(path, "cannot be read") from None
    if seal.schema != DATASET_SCHEMA:
        raise other_version(path, seal.schema)
    return seal


def damaged(path: Path, what: str) -> InputError:
    """Return the error for a damaged file of a data set."""
    hint = "delete it, and 'autoturbo dataset collect' makes the shard again"
    return InputError(f"a damaged shard: {what}", Location(path), hint)


def other_version(path: Path, found: object) -> InputError:
    """Return the error for a data set of another schema."""
    message = f"a data set of version {found!r:.40}, this release reads {DATASET_SCHEMA}"
    return InputError(message, Location(path), "collect it again")


def _place(folder: Path, kind: str, name: str) -> Path:
    return folder / kind / f"{name}.{'parquet' if kind in TABLES else 'json'}"


def _parquet(rows: Sequence[Row], table: str) -> bytes:
    """Return a file's content: the same bytes for the same values."""
    import pyarrow as pa
    from pyarrow import parquet

    buffer = io.BytesIO()
    values = pa.Table.from_pylist(rows, schema=_schema(table))
    parquet.write_table(values, buffer, compression="zstd")
    return buffer.getvalue()


def _schema(table: str) -> Any:
    import pyarrow as pa

    own = {WORD: pa.dictionary(pa.int32(), pa.string()), LIST: pa.list_(pa.int32())}
    return pa.schema([(name, own.get(kind, kind)) for name, kind in TABLES[table].items()])


def _table(path: Path, checksum: str) -> Any:
    import pyarrow as pa
    from pyarrow import parquet

    try:
        data = path.read_bytes()
        if hashlib.sha256(data).hexdigest() != checksum:
            raise damaged(path, "its checksum is not the one it was written with")
        # Neither threads nor reading ahead pay for files of some kilobytes that are in memory.
        file = parquet.ParquetFile(pa.BufferReader(data), pre_buffer=False)
        # Damaged metadata of a column are an error where it is read, and a crash where it is asked.
        for group in range(file.num_row_groups):
            next(file.iter_batches(1, [group], use_threads=False), None)
        if is_bomb(_unpacked(file.metadata), len(data)):
            raise damaged(path, f"unpacks to far more than its {len(data)} bytes")
        return file.read(use_threads=False)
    except (pa.ArrowException, OSError) as error:
        raise damaged(path, " ".join(str(error).split())[:200]) from None


def _unpacked(metadata: Any) -> int:
    """Return bytes that a file's values take in memory, 8 each where they are shorter on disk."""
    groups = (metadata.row_group(at) for at in range(metadata.num_row_groups))
    columns = (group.column(at) for group in groups for at in range(group.num_columns))
    return sum(max(8 * one.num_values, one.total_uncompressed_size) for one in columns)
