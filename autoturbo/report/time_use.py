"""Where the time of a schedule goes, and what bounds it.

Time is dealt out so that the parts add up to the latency: first what the busiest engine works, then
what each other engine adds while those before it stand idle, then latencies nobody works in, and
what comes between kernels. What is hidden behind a busier engine costs nothing and counts nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from autoturbo.schedule.codegen.instructions import (
    DMA_IN,
    DMA_OUT,
    MATRIX_ENGINE,
    TRANSFER,
    VECTOR_ENGINE,
    Column,
)
from autoturbo.schedule.schedule import Schedule
from autoturbo.simulate.intervals import KernelInterval
from autoturbo.simulate.measurement import LowerBound

Floats = NDArray[np.float64]

WORKERS: Final = {
    "matrix": (MATRIX_ENGINE,),
    "vector": (VECTOR_ENGINE,),
    "DDR": (DMA_IN, DMA_OUT),
    "transfer": (TRANSFER,),
}
"""What may bound a kernel, and the engines that do it."""

OVERHEADS: Final = ("latency", "movements", "launch", "other clusters")
"""Time in which no engine works: latencies of memories and of dependences, movements between
kernels, launches and barriers, and waiting for other clusters."""

PARTS: Final = (*WORKERS, *OVERHEADS)

LEAST: Final = 0.005
"""Share of the time below which a part is not worth a word."""


@dataclass(frozen=True, slots=True)
class TimeUse:
    """How the time of one pass is used; shares of it, which add up to 1.

    Attributes:
        order: keys of :data:`WORKERS`: those before hide those behind; the busiest is the first.
        busy: share of the time that each works, hidden or not.
        exposed: share that each part costs, by :data:`PARTS`.
        least: share that the first of the order cannot be without, by the lower bound.
    """

    order: tuple[str, ...]
    busy: Mapping[str, float]
    exposed: Mapping[str, float]
    least: float

    @property
    def busiest(self) -> str:
        """What works most of the time, where :attr:`order` is its own."""
        return self.order[0]

    @property
    def parts(self) -> tuple[str, ...]:
        """All of :data:`PARTS`, those that hide others first."""
        return (*self.order, *OVERHEADS)

    @property
    def unhidden(self) -> list[str]:
        """What nothing hides, beside the busiest, the largest first; four at most."""
        others = [part for part in PARTS if part != self.busiest and self.exposed[part] > LEAST]
        return sorted(others, key=lambda part: -self.exposed[part])[:4]


@dataclass(frozen=True, slots=True, eq=False)
class KernelUse:
    """One kernel.

    Attributes:
        busy: seconds that each of :data:`WORKERS` works.
        exposed: seconds of each of :data:`PARTS`, for some order of the workers.
    """

    busy: Mapping[str, float]
    exposed: Mapping[str, float]


def time_use(
    schedule: Schedule,
    kernels: Sequence[KernelInterval],
    bound: LowerBound,
    latency: float,
    order: Sequence[str] = (),
) -> TimeUse:
    """Return how a schedule uses its time.

    Args:
        schedule: of which
        kernels: are the intervals of a pass.
        bound: of the whole batch.
        latency: likewise, seconds.
        order: what hides what, to compare with another schedule; the busiest first if empty.
    """
    busy = {name: sum(_busy(kernel, name) for kernel in kernels) for name in WORKERS}
    order = tuple(order) or tuple(sorted(WORKERS, key=lambda name: -busy[name]))
    exposed = dict.fromkeys(PARTS, 0.0)
    for kernel in kernels:
        for name, seconds in _exposed(schedule, kernel, order).items():
            exposed[name] += seconds
    clusters = len(schedule.timelines)
    total = clusters * max(kernel.end for kernel in kernels)
    exposed["other clusters"] = max(0.0, total - sum(exposed.values()))
    floor = {"matrix": bound.matrix_s, "vector": bound.vector_s, "DDR": bound.ddr_s}
    least = min(floor.get(order[0], 0.0) / latency, exposed[order[0]] / total)
    return TimeUse(
        order,
        {name: seconds / total for name, seconds in busy.items()},
        {name: seconds / total for name, seconds in exposed.items()},
        least,
    )


def kernel_use(schedule: Schedule, kernel: KernelInterval) -> KernelUse:
    """Return how one kernel uses its time."""
    busy = {name: _busy(kernel, name) for name in WORKERS}
    order = sorted(WORKERS, key=lambda name: -busy[name])
    return KernelUse(busy, _exposed(schedule, kernel, order))


def _busy(kernel: KernelInterval, name: str) -> float:
    own = np.isin(kernel.program.where[:, Column.ENGINE], WORKERS[name])
    if len(WORKERS[name]) == 1:
        return float((kernel.freed[own] - kernel.issued[own]).sum())
    return _covered(kernel.issued[own], kernel.freed[own])


def _covered(begin: Floats, end: Floats) -> float:
    """Return the length of the union of intervals."""
    order = np.argsort(begin, kind="stable")
    begin, reach = begin[order], np.maximum.accumulate(end[order])
    before = np.concatenate(([-np.inf], reach[:-1]))
    return float(np.maximum(reach - np.maximum(begin, before), 0.0).sum())


def _exposed(schedule: Schedule, kernel: KernelInterval, order: Sequence[str]) -> dict[str, float]:
    """Return seconds of a kernel by :data:`PARTS`; earlier workers hide later ones."""
    overheads = schedule.problem.target.overheads
    found = dict.fromkeys(PARTS, 0.0)
    found["movements"] = kernel.launch - kernel.begin
    found["launch"] = overheads.per_kernel
    ended = kernel.end - overheads.barrier
    begin, covered = kernel.issued, 0.0
    engines = kernel.program.where[:, Column.ENGINE]
    chosen = np.zeros(len(engines), np.bool_)
    for name in order:
        chosen |= np.isin(engines, WORKERS[name])
        now = _covered(begin[chosen], kernel.freed[chosen])
        found[name], covered = now - covered, now
    done = float(kernel.done.max(initial=kernel.body))
    # what is left of the body after its last instruction: rows of DDR that were opened too often
    found["DDR"] += max(0.0, ended - done)
    found["latency"] = max(0.0, min(done, ended) - kernel.body - covered)
    return found


ENGINE_TITLES = {
    "matrix": "the matrix engines",
    "vector": "the vector engines",
    "DDR": "DDR",
    "transfer": "transfers between GB and LB",
}


PART_TITLES = {
    **ENGINE_TITLES,
    "latency": "latencies",
    "movements": "movements between kernels",
    "launch": "launches and barriers",
    "other clusters": "waiting for other clusters",
}


PART_COLOURS = {
    "matrix": "g0", "vector": "g2", "DDR": "g1", "transfer": "g3", "latency": "g5",
    "movements": "g4", "launch": "g6", "other clusters": "g7",
}  # fmt: skip
"""Of the parts of the time."""
