"""A data set in memory: flat arrays, kernels with offsets by setting."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autoturbo.datasets.measurements.collect import COLLECTION, read_collection
from autoturbo.datasets.measurements.shards import (
    MEASURED,
    TABLES,
    is_there,
    read_shard,
    require_parquet,
)
from autoturbo.errors import InputError, Location
from autoturbo.graph.arrays import Ints
from autoturbo.hardware.target import Target
from autoturbo.schedule.knobs import Knobs
from autoturbo.schedule.work import Floats
from autoturbo.simulator.contract import PlanStatistics
from autoturbo.simulator.plan import COLUMNS as PLAN_COLUMNS
from autoturbo.simulator.sequence import run_passes

Columns = Mapping[str, NDArray[Any]]
"""Columns of a table by name: numbers as floats, not a number where there is none; texts, None
where there is none; lists as arrays."""


@dataclass(frozen=True, eq=False)
class Measurements:
    """Settings and their kernels; rows of ``offsets[i]:offsets[i + 1]`` are setting ``i``'s.

    Attributes:
        settings: Columns of :data:`autoturbo.datasets.measurements.shards.SETTINGS`.
        kernels: Columns of :data:`autoturbo.datasets.measurements.shards.KERNELS`.
        offsets: ``(settings + 1,)``.
        pairs: Per setting, the number of its shard: model, batch size, target and data type.
        collection: What the data set is made of.
        repeats: Settings left out because their schedule was there already, by shard.
    """

    settings: Columns
    kernels: Columns
    offsets: Ints
    pairs: Ints
    collection: Mapping[str, Any]
    repeats: Mapping[str, int]

    def __len__(self) -> int:
        return len(self.pairs)

    @property
    def latency(self) -> Floats:
        """Return seconds; not a number for failures, ``(settings,)``."""
        return self.settings["latency_s"]

    @property
    def times(self) -> Floats:
        """Return seconds of a launch with its copies before; not a number where not measured."""
        return self.kernels["time_s"]

    @cached_property
    def statistics(self) -> Floats:
        """Return columns :data:`autoturbo.simulator.plan.COLUMNS`, ``(kernels, statistics)``."""
        return np.stack([self.kernels[name] for name in PLAN_COLUMNS], axis=1)

    @cached_property
    def launches(self) -> Ints:
        """Return launches by one cluster over the whole batch, ``(kernels,)``."""
        return self.kernels["launches"].astype(np.int64)

    @cached_property
    def relative(self) -> Floats:
        """Return latency over that of the shard's default schedule; not a number for failures."""
        first = self.settings["number"] == 0
        default = np.full(len(self.repeats), np.nan)
        default[self.pairs[first]] = self.latency[first]
        relative: Floats = self.latency / default[self.pairs]
        return relative

    @cached_property
    def measured(self) -> NDArray[np.bool_]:
        """Return a mask of the settings that are no failures."""
        measured: NDArray[np.bool_] = self.settings["outcome"] == MEASURED
        return measured

    @cached_property
    def timed(self) -> NDArray[np.bool_]:
        """Return a mask of the settings whose kernels have times of their own."""
        without = np.bincount(self.owner, np.isnan(self.times), len(self)) > 0
        return self.measured & ~without

    @cached_property
    def owner(self) -> Ints:
        """Return the setting of every kernel row."""
        return np.repeat(np.arange(len(self)), np.diff(self.offsets))

    @cached_property
    def sums(self) -> Floats:
        """Return launches times seconds per setting: the latency where clusters work alike."""
        return np.bincount(self.owner, self.launches * self.times, len(self)).astype(np.float64)

    @cached_property
    def replayed(self) -> Floats:
        """Return latencies where clusters hand over to each other, which they do in parallel.

        See :func:`replay`, also for what is lost.
        """
        latency_s = self.sums.copy()
        for row in np.flatnonzero(self.measured & (self.settings["alike"] == 0)).tolist():
            kernels = slice(int(self.offsets[row]), int(self.offsets[row + 1]))
            loops = int(self.settings["loops"][row])
            first, clusters = (
                self.kernels[name][kernels].astype(np.int64)
                for name in ("first_cluster", "clusters")
            )
            latency_s[row] = replay(
                self.launches[kernels] * self.times[kernels] / loops, first, clusters,
                self.kernels["reads"][kernels].tolist(), loops, self.target(row).overheads.barrier,
            )  # fmt: skip
        return latency_s

    @cached_property
    def targets(self) -> Mapping[str, Target]:
        """Return the targets, by their figures as text."""
        texts = dict.fromkeys(self.settings["target_figures"].tolist())
        return {text: Target.from_dict(json.loads(text)) for text in texts}

    def target(self, setting: int) -> Target:
        """Return the target of a setting, figures and all."""
        return self.targets[self.settings["target_figures"][setting]]

    def setting(self, setting: int) -> Knobs:
        """Return the knobs of a setting."""
        return Knobs.from_dict(json.loads(self.settings["knobs"][setting]))

    def plan(self, setting: int) -> PlanStatistics | None:
        """Return the statistics of a setting's kernels from its plan; None without a plan."""
        kernels = slice(int(self.offsets[setting]), int(self.offsets[setting + 1]))
        if kernels.start == kernels.stop:
            return None
        overrides = {
            kernel: Knobs.from_dict({"overrides": [json.loads(text)]}).overrides[0]
            for kernel, text in enumerate(self.kernels["own"][kernels])
            if text
        }
        return PlanStatistics(self.statistics[kernels], self.launches[kernels], overrides)


def replay(
    seconds: Floats,
    first: Ints,
    clusters: Ints,
    reads: Sequence[Sequence[int]],
    loops: int,
    barrier: float,
) -> float:
    """Return seconds until all clusters have run all passes, from the times of sub-graphs.

    The simulator puts a latency together from kernels (:mod:`autoturbo.simulator.sequence`), here
    the same is done with whole sub-graphs: on each of its clusters one takes its launches times the
    mean time of one, and starts when the cluster is free and the sub-graphs that it reads from are
    done on all other clusters. What is lost is that a consumer's first kernels may begin before the
    producer's last have ended, and that kernels of several sub-graphs may take turns.

    Args:
        seconds: Of each sub-graph on each of its clusters in one pass, ``(sub-graphs,)``.
        first: First cluster of each.
        clusters: How many clusters each has, from the first on.
        reads: Sub-graphs that each reads from, which come before it.
        loops: Number of passes.
        barrier: Seconds until another cluster knows of a kernel's end.
    """
    owner = np.repeat(np.arange(len(seconds)), clusters)
    begin = np.concatenate([[0], np.cumsum(clusters)])
    cluster = first[owner] + np.arange(len(owner)) - begin[owner]
    makers = [[part for m in made for part in range(begin[m], begin[m + 1])] for made in reads]
    return run_passes(
        range(len(owner)), cluster.tolist(), seconds[owner].tolist(),
        [makers[s] for s in owner.tolist()], loops, barrier,
    )  # fmt: skip


def load_measurements(folder: str | Path, *, partial: bool = False) -> Measurements:
    """Read a data set and check it: versions, counts and checksums.

    Args:
        folder: As 'autoturbo dataset collect' has made it.
        partial: Whether shards may be missing, as of a collection that was interrupted.

    Returns:
        All rows of the shards that are there, in the order of the collection.

    Raises:
        InputError: No data set, another version, an incomplete one, or a damaged file (named).
        UsageError: PyArrow is missing.
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
    seals, shards = zip(*(read_shard(place, name) for name in there), strict=True)
    with forged(place):
        settings, kernels = (_joined(kind, [one[kind] for one in shards]) for kind in TABLES)
        sizes = [seal.settings for seal in seals]
        return Measurements(
            settings, kernels,
            _offsets(kernels["setting"], sizes, [seal.kernels for seal in seals]),
            np.repeat(np.arange(len(sizes)), sizes),
            collection, {name: seal.repeats for name, seal in zip(there, seals, strict=True)},
        )  # fmt: skip


@contextmanager
def forged(place: Path) -> Iterator[None]:
    """Let values that no collection has written end in one line, whatever they break.

    Checksums find damage; who makes them right again over other values is found here.

    Raises:
        InputError: Naming the data set.
    """
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        message = f"its values are not those of a data set: {' '.join(str(error).split())[:200]}"
        raise InputError(message, Location(place), "collect it again") from None


def _joined(kind: str, tables: Sequence[Any]) -> Columns:
    return {name: np.concatenate([_array(t[name]) for t in tables]) for name in TABLES[kind]}


def _array(column: Any) -> NDArray[Any]:
    import pyarrow as pa

    one = column.combine_chunks()
    found: NDArray[Any] = (
        one.cast("float64") if pa.types.is_primitive(one.type) else one
    ).to_numpy(zero_copy_only=False)
    return found


def _offsets(setting: Floats, settings: Sequence[int], kernels: Sequence[int]) -> Ints:
    """Return where each setting's kernels begin; settings are numbered anew in every shard.

    Raises:
        ValueError: A kernel is of no setting.
    """
    begin = np.cumsum([0, *settings])
    owner = np.repeat(begin[:-1], kernels) + setting.astype(np.int64)
    if (owner >= begin[-1]).any():
        raise ValueError("a kernel of a setting that is not there")
    return np.concatenate([[0], np.cumsum(np.bincount(owner, minlength=begin[-1]))])
