"""Makes the shards of a data set, each once, in any number of processes."""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
import multiprocessing
import os
import re
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Final

import numpy as np

from autoturbo.datasets.measurements.sampling import CandidateSource, Sample, read_setting
from autoturbo.datasets.measurements.shards import (
    DATASET_SCHEMA,
    VERSIONS,
    Seal,
    is_there,
    other_version,
    read_seal,
    require_parquet,
    write_shard,
)
from autoturbo.errors import ExecutorError, InputError, Location, UsageError
from autoturbo.files import JOBS, atomic_write, read_json
from autoturbo.graph.onnx_import import import_model
from autoturbo.graph.operators import Graph
from autoturbo.hardware.target import Target
from autoturbo.json_lines import JsonLines
from autoturbo.registry import SIMULATOR
from autoturbo.schedule.schedule import Schedule
from autoturbo.schema import Described, InvalidError, Name, Natural, TypedDict, checked
from autoturbo.simulator.evaluator import Evaluator
from autoturbo.simulator.measurement import Measurement, Outcome
from autoturbo.simulator.measurers import Measurer, asked, find_measurer

COLLECTION: Final = "collection.json"

MakeSource = Callable[[Graph, Target, str], CandidateSource]
"""Gives the settings of a model on a target in a data type; sent to workers."""


@dataclass(frozen=True, slots=True)
class Part:
    """One shard to be: a model at a batch size on a target in a data type.

    Attributes:
        file: The model's ONNX file.
        graph: The model at that batch size.
        target: The accelerator.
        dtype: The compute type.
    """

    file: Path
    graph: Graph
    target: Target
    dtype: str

    @property
    def name(self) -> str:
        """Return the shard's name, that of its files."""
        text = f"{self.graph.name}-b{self.graph.batch}-{self.target.name}-{self.dtype}"
        return re.sub(r"[^A-Za-z0-9._-]", "_", text)

    def seed(self, seed: int) -> int:
        """Return a seed of 48 bits, which does not depend on the other parts."""
        text = f"{seed} {self.graph.hash} {self.target.hash} {self.dtype}"
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:6], "little")

    def described(self) -> dict[str, Any]:
        """Return the part's entry in the collection's file."""
        return {
            "shard": self.name, "model": self.graph.name, "graph_hash": self.graph.hash,
            "batch": self.graph.batch, "target": self.target.name, "target_hash": self.target.hash,
            "dtype": self.dtype,
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Collection:
    """The parts of a data set.

    Attributes:
        parts: The shards.
        settings: Of each shard at most.
        seed: Of the sample.
        draws: Gives settings; its name and parameters are in ``recipe``.
        recipe: What describes ``draws``, and the command.
        measurer: What measures; its name and version are in ``recipe`` where it is not ours.
    """

    parts: tuple[Part, ...]
    settings: int
    seed: int
    draws: MakeSource
    recipe: Mapping[str, Any]
    measurer: str = SIMULATOR

    def described(self) -> dict[str, Any]:
        """Return the content of the collection's file."""
        return {
            "schema": DATASET_SCHEMA, "versions": VERSIONS, "seed": self.seed,
            "settings": self.settings, "recipe": dict(self.recipe),
            "parts": [part.described() for part in self.parts],
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a collection.

    Attributes:
        done: Shards that are there.
        total: Shards in all.
        name: Of the latest.
        seal: Its counts.
        made: Whether it was made now.
    """

    done: int
    total: int
    name: str
    seal: Seal
    made: bool


def parts_of(
    files: Iterable[Path],
    batches: Sequence[int | None],
    targets: Sequence[tuple[Target, str]],
    dims: Mapping[str, int] | None = None,
    batch_dim: Sequence[str] = (),
) -> tuple[Part, ...]:
    """Return every model at every batch size on every target, without duplicates.

    Args:
        files: ONNX files.
        batches: Batch sizes; None for the model's own.
        targets: Targets, each with the compute type.
        dims: Extents of named dimensions, of all models.
        batch_dim: What counts samples, in all models.

    Raises:
        ModelError: A model is not usable.
        UsageError: Two different ones would have the same name.
    """
    parts: dict[str, Part] = {}
    for file, batch in itertools.product(files, batches):
        graph = import_model(file, batch=batch, batch_dim=batch_dim, dims=dims or {})
        for target, dtype in targets:
            part = Part(file, graph, target, dtype)
            if parts.setdefault(part.name, part).described() != part.described():
                message = f"two different models or targets are called {part.name!r}"
                raise UsageError(message, hint="rename one of them")
    return tuple(parts.values())


def collect(
    collection: Collection,
    folder: Path,
    *,
    jobs: int = 1,
    on_shard: Callable[[Progress], None] = lambda _progress: None,
) -> None:
    """Make the shards that are not there.

    Args:
        collection: What to measure.
        folder: Made where it is missing.
        jobs: Processes; 1 for this one alone.
        on_shard: Called for each shard, those that are there first.

    Raises:
        InputError: The folder holds something else, or a file cannot be written.
        ExecutorError: A process died.
        UsageError: PyArrow is missing, or there are too many jobs.
    """
    require_parquet()
    if jobs > JOBS.most:
        raise UsageError(f"jobs: {jobs} processes are too many", hint=JOBS.hint)
    begin(collection, folder)
    present = [part.name for part in collection.parts if is_there(folder, part.name)]
    missing = [part for part in collection.parts if part.name not in present]
    seals = itertools.chain(
        ((name, read_seal(folder, name), False) for name in present),
        ((name, seal, True) for name, seal in _made(collection, missing, folder, jobs)),
    )
    for done, (name, seal, new) in enumerate(seals, 1):
        on_shard(Progress(done, len(collection.parts), name, seal, new))


def begin(collection: Collection, folder: Path) -> None:
    """Write the description of a data set, or check that it is the one that was begun.

    Raises:
        InputError: Another data set was begun here.
        UsageError: The folder or the file cannot be made.
    """
    path, text = folder / COLLECTION, json.dumps(collection.described(), indent=2, sort_keys=True)
    if path.exists():
        begun, wanted = read_collection(folder), json.loads(text)
        if different := [name for name in collection.described() if begun[name] != wanted[name]]:
            message = f"another data set was begun here: {', '.join(different)} differ"
            hint = "give the same arguments to go on with it, or another folder"
            raise InputError(message, Location(path), hint)
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot make the folder: {error.strerror}", Location(folder)) from None
    atomic_write(path, text + "\n")


class _PartEntry(TypedDict):
    """A part in a collection's file; its shard is a name of files in the folder."""

    shard: Annotated[str, Described(pattern="[A-Za-z0-9._-]{1,240}")]
    model: Name
    graph_hash: str
    batch: Natural | None
    target: str
    target_hash: str
    dtype: str


class _CollectionFile(TypedDict):
    """A collection's file."""

    schema: Natural
    versions: dict[str, str]
    seed: Natural
    settings: Natural
    recipe: dict[str, Any]
    parts: list[_PartEntry]


def read_collection(folder: Path) -> dict[str, Any]:
    """Return the parts of a data set.

    Raises:
        InputError: The folder holds no data set, or one of another version.
    """  # noqa: DOC501  other_version() makes the error
    path = folder / COLLECTION
    try:
        document = read_json(path)
        version = document.get("schema") if isinstance(document, dict) else None
        if version == DATASET_SCHEMA:
            document = checked(_CollectionFile, document)
    except (OSError, ValueError, InvalidError):
        hint = "make one with 'autoturbo dataset collect'"
        raise InputError("no data set that can be read", Location(path), hint) from None
    if version != DATASET_SCHEMA:
        raise other_version(path, version)
    return dict(document)


def _made(
    collection: Collection, missing: Sequence[Part], folder: Path, jobs: int
) -> Iterator[tuple[str, Seal]]:
    """Yield the shards as they are made, here or in processes.

    These are started afresh: forking one that has threads may hang.

    Raises:
        ExecutorError: A process died; shards that are done stay.
    """
    if jobs <= 1 or not missing:
        yield from ((part.name, make_shard(collection, part, folder)) for part in missing)
        return
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(min(jobs, len(missing)), context, initializer=_begin_worker)
    try:
        names = {
            pool.submit(make_shard, replace(collection, parts=()), part, folder): part.name
            for part in missing
        }
        yield from ((names[future], future.result()) for future in as_completed(names))
    except BrokenProcessPool:
        hint = "the shards that are done are kept: collect again to go on"
        raise ExecutorError("a process that measures has died", hint=hint) from None
    finally:
        pool.shutdown(cancel_futures=True)


def _begin_worker() -> None:
    """End silently on Ctrl-C, which all processes of a terminal get, and with the parent.

    Shards are whole or not there, so nothing is lost.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
    os._exit(1)


def make_shard(collection: Collection, part: Part, folder: Path) -> Seal:
    """Measure one part and write its shard."""
    context, seed = (part.graph, part.target, part.dtype), part.seed(collection.seed)
    measurer, kept = find_measurer(collection.measurer), folder / f"{part.name}.measured.jsonl"
    if collection.measurer != SIMULATOR:
        measurer = RememberingMeasurer(measurer, JsonLines(kept))
    measure = functools.partial(read_setting, Evaluator(*context, measurer))
    sample = Sample(collection.draws(*context), measure, np.random.default_rng(seed))
    drawn = list(sample.take(collection.settings))
    same = {
        **part.described(),
        **{f"{name}_version": version for name, version in VERSIONS.items()},
        "target_figures": json.dumps(part.target.as_dict(), sort_keys=True, separators=(",", ":")),
        "seed": seed,
    }
    rows = {
        "settings": [{**same, **drawn_setting.row} for drawn_setting in drawn],
        "kernels": [
            {"setting": drawn_setting.number, **row}
            for drawn_setting in drawn
            for row in drawn_setting.reading.kernels
        ],
    }
    seal = write_shard(folder, part.name, rows, sample.repeats)
    kept.unlink(missing_ok=True)
    return seal


@dataclass(eq=False)
class RememberingMeasurer:
    """Measures what was not measured before: a shard that a kill has cut short loses nothing.

    Attributes:
        measurer: Measures.
        lines: The file of what was measured.
    """

    measurer: Measurer
    lines: JsonLines

    def __post_init__(self) -> None:
        self._known: dict[str, Measurement] = {}
        for entry in self.lines.read():
            with suppress(ValueError, KeyError, TypeError):
                key, values = entry
                self._known[key] = Measurement.from_dict(values)

    def measure(self, schedules: Sequence[Schedule]) -> Sequence[Outcome]:
        """Return one outcome per schedule; failures are not remembered."""
        return [self._one(schedule) for schedule in schedules]

    def _one(self, schedule: Schedule) -> Outcome:
        key = hashlib.sha256(schedule.text.encode()).hexdigest()
        if key in self._known:
            return self._known[key]
        outcome = asked(self.measurer, schedule)
        if isinstance(outcome, Measurement):
            self.lines.append([key, outcome.as_dict()])
        return outcome
