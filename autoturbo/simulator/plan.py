"""Statistics of a plan's kernels, known before a schedule is built: the cost model's raw material.

A kernel of a plan is a sub-graph's representative tile with the knobs that hold for it. What is
known of it follows from that alone, so that it is computed once for all plans that have it.
"""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from autoturbo.caches import BoundedCache, GrowingArray
from autoturbo.errors import KnobsError
from autoturbo.graph.arrays import Ints
from autoturbo.schedule.context import SchedulingContext, Zones
from autoturbo.schedule.knobs import (
    KernelKnobs,
    Knobs,
    SubGraphKnobs,
    kernel_knobs,
    knob_names,
)
from autoturbo.schedule.partition.boxes import external_inputs
from autoturbo.schedule.partition.grouping import SubGraph
from autoturbo.schedule.partition.isomorphism import first_alike
from autoturbo.schedule.partition.part_work import PartWork, middle_part_work
from autoturbo.schedule.pipeline import (
    RULE_KNOBS,
    KernelRules,
    ModelScheduler,
    Plan,
    plan,
    rules_of,
)
from autoturbo.schedule.place.instances import PartBook
from autoturbo.schedule.work import Floats
from autoturbo.simulator.contract import PlanStatistics
from autoturbo.simulator.isolated import (
    ISOLATED,
    Bound,
    Layout,
    cores_of,
    isolated_kernels,
    lay_out,
)

CAPACITIES: Final = (
    "whole_input_bytes", "whole_output_bytes", "lb_bytes", "weight_room_bytes", "gb_room_bytes",
    "ddr_bandwidth", "gb_bandwidth", "overhead_s",
)  # fmt: skip
"""Columns of :func:`capacities`."""

PASSES: Final = ("instances", "loops", "samples")
"""Columns that follow from the rest of a setting: instances per pass of the cluster that has most
of them, passes, samples per pass."""

COLUMNS: Final = (*PartWork._fields, *CAPACITIES, *PASSES, *ISOLATED)
"""Columns of :attr:`autoturbo.simulator.contract.PlanStatistics.values`: of the middle part of a
sub-graph its work and bytes, then what its tensors can be kept in, passes, and what the kernel
takes in isolation."""

MOST: Final = 1 << 16
"""Kernels that are kept: 100 MB or so."""

LAYOUTS: Final = 48 << 20
"""Bytes of layouts that are kept for further rules of the same parts."""

TOGETHER: Final = 1 << 14
"""Layers of kernels that are computed together: a kilobyte each."""

_KernelKey = tuple[int, int, int | None, KernelRules]
"""Key of a kernel in isolation: its part, its cores, the loop spread from, its rules."""

_OWN: Final = len(PartWork._fields) + len(CAPACITIES)
_PASSES: Final = slice(_OWN, _OWN + len(PASSES))


def capacities(context: SchedulingContext, layers: tuple[int, ...]) -> tuple[float, ...]:
    """Return the sizes and rates of the buffers that a sub-graph's tensors compete for.

    They are in the order of :data:`CAPACITIES`. A part is laid out alone; whether its inputs and
    outputs can stay on the chip until the next reader is a matter of whole tensors and buffer
    sizes.

    Returns:
        Bytes of all that a sub-graph reads from others and writes, in a pass; bytes of a cluster's
        local buffers, of what weight tiles have of them anyway, and of GB without its staging zone;
        bytes a second of DDR and GB for one cluster; seconds of launch and barrier.
    """
    target, zones = context.target, Zones.of(context.target)
    inner_inputs = [t for t in external_inputs(context, layers) if context.producer[t] >= 0]
    weights = max(target.lb.weight_capacity, zones.lb_staging)
    return (
        _bytes(context, inner_inputs), _bytes(context, context.layers[layers[-1]].outputs),
        target.cores * target.lb.capacity, target.cores * weights, zones.gb,
        target.ddr_bandwidth_per_cluster, target.gb.bandwidth, target.overheads.per_kernel,
    )  # fmt: skip


def _bytes(context: SchedulingContext, tensors: Sequence[int]) -> int:
    element = context.arrays.element
    return sum(context.graph.tensors[t].elements * int(element[t]) for t in tensors)


@dataclass(frozen=True, slots=True, eq=False)
class PlannedKernels:
    """The kernels of one candidate, by the numbers of a :class:`KernelStatistics`.

    Attributes:
        kernels: Number of each sub-graph's kernel.
        passes: Values of :data:`PASSES`, ``(sub-graphs, 3)``.
        overrides: Knobs of their own that sub-graphs have, by index.
    """

    kernels: list[int]
    passes: Ints
    overrides: Mapping[int, SubGraphKnobs]


@dataclass(eq=False)
class KernelStatistics:
    """Statistics of kernels by number; those of equal kernels are computed once.

    Attributes:
        model_scheduler: The model on the target.
        kernels: Per number, the part and the knobs.
        knobs: Numbers of kernel knobs.
    """

    model_scheduler: ModelScheduler
    kernels: dict[tuple[int, int], int] = field(default_factory=dict)
    knobs: dict[KernelKnobs, int] = field(default_factory=dict)
    _parts: dict[tuple[object, ...], int] = field(default_factory=dict)
    _subgraphs: list[tuple[SchedulingContext, SubGraph]] = field(default_factory=list)
    _of_plan: dict[int, list[int]] = field(default_factory=dict)
    _layouts: BoundedCache[tuple[int, int, int | None], Layout] = field(
        default_factory=lambda: BoundedCache(MOST, LAYOUTS, operator.attrgetter("size"))
    )
    _known: dict[tuple[object, ...], int] = field(default_factory=dict)
    _row_of: GrowingArray = field(default_factory=GrowingArray)
    _part_rows: list[tuple[float, ...]] = field(default_factory=list)
    _rows: GrowingArray = field(default_factory=lambda: GrowingArray((len(COLUMNS),), np.float64))

    @property
    def full(self) -> bool:
        """Return whether the cache holds so many kernels that it should be emptied."""
        return len(self.kernels) > MOST

    def kernels_of(self, settings: Sequence[Knobs]) -> list[PlannedKernels | None]:
        """Return the kernels of candidates; None for one that does not fit the model."""
        planned = [self._planned(knobs) for knobs in settings]
        self._learn()
        return planned

    def values(self, kernels: Sequence[int] | Ints, passes: Ints | int = 0) -> Floats:
        """Return rows of :data:`COLUMNS` of kernels, given values of :data:`PASSES`."""
        rows: Floats = self._rows.rows[self._row_of.rows[kernels]]
        rows[:, _PASSES] = passes
        return rows

    def knobs_from(self, first: int) -> list[KernelKnobs]:
        """Return the knobs of all kernels from number ``first`` on."""
        known = list(self.knobs)
        return [known[number] for _, number in itertools.islice(self.kernels, first, None)]

    def _planned(self, knobs: Knobs) -> PlannedKernels | None:
        try:
            decided = plan(self.model_scheduler, knobs)
        except KnobsError:
            return None
        share, overrides = decided.share, decided.overrides
        parts = self._parts_of(decided)
        knobs_numbers = [self._knobs_number(kernel_knobs(knobs))] * len(parts)
        for index, override in overrides.items():
            knobs_numbers[index] = self._knobs_number(kernel_knobs(knobs, override))
        numbers = self.kernels
        kernels = [
            numbers.setdefault(pair, len(numbers))
            for pair in zip(parts, knobs_numbers, strict=True)
        ]
        passes = np.empty((len(parts), len(PASSES)), np.int64)
        passes[:, 0], passes[:, 1:] = decided.instances, (share.loops, share.batches)
        return PlannedKernels(kernels, passes, overrides)

    def _knobs_number(self, values: KernelKnobs) -> int:
        return self.knobs.setdefault(values, len(self.knobs))

    def _parts_of(self, plan: Plan) -> list[int]:
        """Return the number of each sub-graph's parts; isomorphic ones split alike share it."""
        parts = self._of_plan.get(plan.number)
        if parts is None:
            parts = self._of_plan[plan.number] = [
                self._part(plan.context, s) for s in plan.subgraphs
            ]
        return parts

    def _part(self, context: SchedulingContext, subgraph: SubGraph) -> int:
        key = (context, first_alike(context, subgraph.layers), subgraph.split.axes)
        if key not in self._parts:
            self._parts[key] = len(self._subgraphs)
            self._subgraphs.append((context, subgraph))
            self._part_rows.append(part_row(context, subgraph))
        return self._parts[key]

    def _learn(self) -> None:
        """Compute the statistics of the kernels that are new."""
        first = self._row_of.count
        parts = [part for part, _ in itertools.islice(self.kernels, first, None)]
        keys = list(map(self._key, parts, self.knobs_from(first)))
        unknown = list(dict.fromkeys(key for key in keys if key not in self._known))
        by_context: dict[SchedulingContext, list[_KernelKey]] = {}
        for key in unknown:
            by_context.setdefault(self._subgraphs[key[0]][0], []).append(key)
        for context, context_keys in by_context.items():
            layers = itertools.accumulate(
                len(self._subgraphs[key[0]][1].layers) for key in context_keys
            )
            sized = zip(context_keys, layers, strict=True)
            for _, batch in itertools.groupby(sized, lambda pair: pair[1] // TOGETHER):
                batch_keys = [key for key, _ in batch]
                self.model_scheduler.cache.forget_when_full()
                row = self._rows.add(
                    self._computed(self.model_scheduler.parts(context), batch_keys)
                )
                self._known.update(zip(batch_keys, itertools.count(row), strict=False))
        self._row_of.add([self._known[key] for key in keys])

    def _key(self, part: int, knobs: KernelKnobs) -> _KernelKey:
        """Return the key of a kernel in isolation: its part, its cores and its rules."""
        values: dict[str, Any] = dict(zip(knob_names("subgraph"), knobs, strict=True))
        context = self._subgraphs[part][0]
        cores, depth = cores_of(context, values["cores"], values["core_parallel_dim"])
        # what spills of a part alone is found with the published victim
        rules = {name: values[name] for name in RULE_KNOBS if name != "spill_victim"}
        return part, cores, depth, rules_of(context, Knobs(**rules))

    def _computed(self, book: PartBook, keys: Sequence[_KernelKey]) -> Floats:
        """Return the rows of kernels of one context."""
        context = book.context
        wanted = list(dict.fromkeys(key[:3] for key in keys))
        new = [key for key in wanted if key not in self._layouts]
        bound = [Bound(self._subgraphs[part][1], cores, depth) for part, cores, depth in new]
        new_layouts = dict(zip(new, lay_out(book, bound) if new else (), strict=True))
        laid = {
            key: self._layouts.get(key, functools.partial(new_layouts.__getitem__, key))
            for key in wanted
        }
        layouts = [laid[key[:3]] for key in keys]
        rows = np.zeros((len(keys), len(COLUMNS)))
        rows[:, :_OWN] = [self._part_rows[key[0]] for key in keys]
        rows[:, _PASSES.stop :] = isolated_kernels(context, layouts, [key[3] for key in keys])
        return rows

    def of_plan(self, knobs: Knobs) -> PlanStatistics | None:
        """Return the statistics of a candidate's plan; None if it does not fit the model."""
        (planned,) = self.kernels_of([knobs])
        if planned is None:
            return None
        values = self.values(planned.kernels, planned.passes)
        return PlanStatistics(
            values, planned.passes[:, 0] * planned.passes[:, 1], planned.overrides
        )


def part_row(context: SchedulingContext, subgraph: SubGraph) -> tuple[float, ...]:
    """Return the columns of :data:`COLUMNS` before :data:`PASSES` of a sub-graph."""
    work = middle_part_work(context, subgraph.layers, subgraph.split)
    return (*work, *capacities(context, subgraph.layers))
