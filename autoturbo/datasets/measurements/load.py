"""A data set in memory: flat arrays, kernels with offsets by setting."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autoturbo.datasets.measurements.collect import COLLECTION, read_collection
from autoturbo.datasets.measurements.columns import MEASURED, SETTINGS, WORD
from autoturbo.datasets.measurements.replay import replay
from autoturbo.datasets.measurements.shards import Seal, is_there, read_shard, require_parquet
from autoturbo.errors import InputError, Location
from autoturbo.graph.arrays import Ints
from autoturbo.hardware.target import Target
from autoturbo.schedule.codegen.work import Floats
from autoturbo.schedule.knobs import Knobs, SubGraphKnobs
from autoturbo.simulate.contract import PlanStatistics
from autoturbo.simulate.plan import COLUMNS as PLAN_COLUMNS

Texts = NDArray[np.object_]
"""Texts, or None where there is none."""


@dataclass(frozen=True)
class Words:
    """A column of texts that repeat.

    Attributes:
        table: each text once, in the order of its first row.
        codes: per row, the place in the table.
    """

    table: tuple[str, ...]
    codes: Ints

    def __getitem__(self, row: int) -> str:
        return self.table[int(self.codes[row])]

    def rows(self, text: str) -> NDArray[np.bool_]:
        """Where the column is that text."""
        code = self.table.index(text) if text in self.table else -1
        found: NDArray[np.bool_] = self.codes == code
        return found


@dataclass(frozen=True, eq=False)
class Measurements:
    """Settings and their kernels; rows of ``offsets[i]:offsets[i + 1]`` are setting ``i``'s.

    Attributes:
        words: columns of texts that repeat, by name: ``"model"``, ``"target"``, ``"outcome"``, ...
        numbers: the other columns of settings, ``(settings,)``; not a number where there is none.
        knobs: canonical JSON, ``(settings,)``.
        messages: of failures, ``(settings,)``, None for the others.
        offsets: ``(settings + 1,)``.
        statistics: :data:`autoturbo.simulate.plan.COLUMNS`, ``(kernels, statistics)``.
        launches: by one cluster over the whole batch, ``(kernels,)``.
        first_cluster: ``(kernels,)``.
        clusters: ``(kernels,)``, these many from the first on.
        reads: sub-graphs that a sub-graph reads from, row after row, counted within the setting.
        reads_start: ``(kernels + 1,)``: row ``k`` has ``reads[reads_start[k]:reads_start[k + 1]]``.
        times: seconds of a launch with what comes before it; not a number where not measured.
        kernel_times: of these the kernels alone.
        signatures: different ones among the kernels of a sub-graph; 0 where not measured.
        own: knobs of its own as JSON, by kernel row, for those that have some.
        collection: what the data set is made of.
        repeats: settings left out because their schedule was there already, by shard.
    """

    words: Mapping[str, Words]
    numbers: Mapping[str, Floats]
    knobs: Texts
    messages: Texts
    offsets: Ints
    statistics: Floats
    launches: Ints
    first_cluster: Ints
    clusters: Ints
    reads: Ints
    reads_start: Ints
    times: Floats
    kernel_times: Floats
    signatures: Ints
    own: Mapping[int, str]
    collection: Mapping[str, Any]
    repeats: Mapping[str, int]

    def __len__(self) -> int:
        return len(self.knobs)

    @property
    def latency(self) -> Floats:
        """Seconds; not a number for failures, ``(settings,)``."""
        return self.numbers["latency_s"]

    @cached_property
    def measured(self) -> NDArray[np.bool_]:
        """Which settings are no failures."""
        return self.words["outcome"].rows(MEASURED)

    @cached_property
    def owner(self) -> Ints:
        """The setting of every kernel row."""
        return np.repeat(np.arange(len(self)), np.diff(self.offsets))

    @cached_property
    def sums(self) -> Floats:
        """Launches times seconds, summed up by setting: the latency where clusters work alike."""
        totals = self.launches * self.times
        return np.bincount(self.owner, totals, len(self)).astype(np.float64)

    @cached_property
    def replayed(self) -> Floats:
        """The same where clusters hand over to each other, which they do side by side.

        See :mod:`autoturbo.datasets.measurements.replay`, also for what is lost.
        """
        found = self.sums.copy()
        for row in np.flatnonzero(self.measured & (self.numbers["alike"] == 0)).tolist():
            found[row] = self._replayed(row)
        return found

    def _replayed(self, row: int) -> float:
        own = slice(int(self.offsets[row]), int(self.offsets[row + 1]))
        start = self.reads_start[own.start : own.stop + 1]
        loops = int(self.numbers["loops"][row])
        return replay(
            self.launches[own] * self.times[own] / loops, self.first_cluster[own],
            self.clusters[own], start - start[0], self.reads[start[0] : start[-1]], loops,
            self.target(row).overheads.barrier,
        )  # fmt: skip

    @cached_property
    def pairs(self) -> Ints:
        """Per setting, the number of its shard: model, batch size, target and data type."""
        names = ("graph_hash", "target_hash", "dtype")
        keys = np.stack([self.words[name].codes for name in names], axis=1)
        _, first, found = np.unique(keys, axis=0, return_index=True, return_inverse=True)
        rank = np.empty(len(first), np.int64)
        rank[np.argsort(first)] = np.arange(len(first))
        return rank[found.reshape(-1)]

    @cached_property
    def targets(self) -> tuple[Target, ...]:
        """The targets, as ``words["target_figures"]`` numbers them."""
        return tuple(Target.from_dict(json.loads(t)) for t in self.words["target_figures"].table)

    def target(self, setting: int) -> Target:
        """The target of a setting, figures and all."""
        return self.targets[int(self.words["target_figures"].codes[setting])]

    def setting(self, setting: int) -> Knobs:
        """The knobs of a setting."""
        return Knobs.from_dict(json.loads(self.knobs[setting]))

    def plan(self, setting: int) -> PlanStatistics | None:
        """What was known of a setting's kernels before it was scheduled; None without a plan."""
        low, high = int(self.offsets[setting]), int(self.offsets[setting + 1])
        if low == high:
            return None
        rows = (row for row in range(low, high) if row in self.own)
        own = {row - low: SubGraphKnobs(**json.loads(self.own[row])) for row in rows}
        return PlanStatistics(self.statistics[low:high], self.launches[low:high], own)


def load_measurements(folder: str | Path, *, partial: bool = False) -> Measurements:
    """Read a data set and check it: versions, counts and checksums.

    Args:
        folder: as 'autoturbo dataset collect' has made it.
        partial: whether shards may be missing, as of a collection that was interrupted.

    Raises:
        InputError: no data set, another version, an incomplete one, or a damaged file (named).
        UsageError: pyarrow is missing.
    """
    require_parquet()
    place = Path(folder)
    collection = read_collection(place)
    names = [part["shard"] for part in collection["parts"]]
    there = [name for name in names if is_there(place, name)]
    if not there or (len(there) < len(names) and not partial):
        message = f"{len(there)} of {len(names)} shards are there"
        hint = "run the same 'autoturbo dataset collect' again to go on"
        raise InputError(message, Location(place / COLLECTION), hint)
    shards = [(name, *read_shard(place, name)) for name in there]
    seals = {name: seal for name, seal, _ in shards}
    with forged(place):
        settings = _joined(tables["settings"] for _, _, tables in shards)
        kernels = _joined(tables["kernels"] for _, _, tables in shards)
        return _measurements(settings, kernels, seals, collection)


@contextmanager
def forged(place: Path) -> Iterator[None]:
    """Let values that no collection has written end in one line, whatever they break.

    Checksums find damage; who makes them right again over other values is found here.

    Raises:
        InputError: naming the data set.
    """
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        message = f"its values are not those of a data set: {' '.join(str(error).split())[:200]}"
        raise InputError(message, Location(place), "collect it again") from None


def _joined(tables: Iterable[Any]) -> Any:
    import pyarrow as pa

    return pa.concat_tables(list(tables)).unify_dictionaries().combine_chunks()


def _measurements(
    settings: Any, kernels: Any, seals: Mapping[str, Seal], collection: Mapping[str, Any]
) -> Measurements:
    texts = ("knobs", "message")
    words = {n: _words(settings[n]) for n, kind in SETTINGS.items() if kind == WORD}
    rest = [n for n in SETTINGS if n not in words and n not in texts]
    own, reads = kernels["own"].combine_chunks(), kernels["reads"].combine_chunks()
    rows = np.flatnonzero(own.is_valid().to_numpy(zero_copy_only=False))
    return Measurements(
        words=words,
        numbers={n: _floats(settings[n]) for n in rest},
        knobs=_texts(settings["knobs"]),
        messages=_texts(settings["message"]),
        offsets=_offsets(kernels, list(seals.values())),
        statistics=np.stack([_floats(kernels[n]) for n in PLAN_COLUMNS], axis=1),
        launches=_ints(kernels["launches"]),
        first_cluster=_ints(kernels["first_cluster"]),
        clusters=_ints(kernels["clusters"]),
        reads=_ints(reads.flatten()),
        reads_start=_ints(reads.offsets),
        times=_floats(kernels["time_s"]),
        kernel_times=_floats(kernels["kernel_s"]),
        signatures=_ints(kernels["signatures"]),
        own=dict(zip(rows.tolist(), own.take(rows).to_pylist(), strict=True)),
        collection=collection,
        repeats={name: seal.repeats for name, seal in seals.items()},
    )


def _offsets(kernels: Any, seals: Sequence[Seal]) -> Ints:
    """Where each setting's kernels begin; settings are numbered anew in every shard."""
    begin = np.cumsum([0, *(seal.settings for seal in seals)])
    owner = np.repeat(begin[:-1], [seal.kernels for seal in seals]) + _ints(kernels["setting"])
    return np.concatenate([[0], np.cumsum(np.bincount(owner, minlength=begin[-1]))])


def _words(column: Any) -> Words:
    joined = column.combine_chunks()
    return Words(tuple(joined.dictionary.to_pylist()), _ints(joined.indices))


def _floats(column: Any) -> Floats:
    found: Floats = np.asarray(column.cast("float64").to_numpy(), np.float64)
    return found


def _ints(column: Any) -> Ints:
    found: Ints = np.asarray(column.fill_null(0).to_numpy(), np.int64)
    return found


def _texts(column: Any) -> Texts:
    found: Texts = np.asarray(column.to_pylist(), object)
    return found


__all__ = ["Measurements", "Words", "forged", "load_measurements"]
