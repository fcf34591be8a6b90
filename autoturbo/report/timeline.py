"""The timeline of a pass: engines, cores and buffers, in as many bars as a screen can show."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autoturbo.report.facts import Measured
from autoturbo.report.filling import Chart, Columns, evenly, group_colours
from autoturbo.report.names import kernel_label, layer_label
from autoturbo.report.trace import held_bytes
from autoturbo.report.units import duration, percent
from autoturbo.schedule.codegen.instructions import ENGINES, Column
from autoturbo.schedule.codegen.loads import COPY, NO_LOADS
from autoturbo.schedule.context import Zones
from autoturbo.schedule.memory.timeline import KINDS
from autoturbo.schedule.place.bind import Scope
from autoturbo.schedule.schedule import Schedule
from autoturbo.simulator.sequence import passed_times, step_times
from autoturbo.simulator.whole_pass import KernelInterval
from autoturbo.verifier.findings import tensor_name

MOST_BARS = 4000
"""Bars of a timeline: an SVG of more is slow, and a screen has no room for them."""

MOST_CORES = 16
"""Cores of a cluster that have a lane each; of more, neighbours that work alike share one."""

MOST_LANES = 16
"""Lanes of a chart: of more, those of the first cluster are shown, and the others folded away."""

MOST_PASSES = 100
"""Passes that are drawn one by one."""

FURTHER = -1
"""Stands in place of a sub-graph for passes after the first."""

MOST_LISTED = 2000
"""Rows of a table of kernels, layers or sub-graphs."""

MOST_KERNELS = 200
"""Kernels of a lane of cores that are drawn one by one."""

MOST_BOXES = 2000
"""Buffers that are drawn, those with most bytes times seconds first."""

MOST_STEPS = 2000
"""Points of the line that says how much is in use."""

_FINEST = 4000
"""Gaps of less than one part in so many of a pass are closed: half a pixel of a wide screen."""

_LISTED = 6
"""Tensors named that fill a buffer where it is fullest."""

_CROWDED = 0.4
"""A buffer that is never fuller than this is drawn up to its peak over this."""

_TOLD = {"timeline": ("layer", "engine"), "cores": ("kernel", "core")}
"""What a bar and its lane are, by kind of chart."""

_STEPS = {"timeline": (22, 16), "cores": (12, 9)}
"""Pixels of a lane, and of a bar in it."""

TITLES = {
    "dma_in": "DMA in",
    "transfer": "transfer",
    "matrix": "matrix",
    "vector": "vector",
    "dma_out": "DMA out",
}


def lane_names(schedule: Schedule) -> list[str]:
    """Return the rows of the timeline, from above: kernels, then engines, of each cluster."""
    names = ["kernel", *(TITLES[name] for name in ENGINES)]
    clusters = range(len(schedule.timelines))
    return [named(schedule, cluster, name) for cluster in clusters for name in names]


def named(schedule: Schedule, cluster: int, lane: str) -> str:
    """Return the name of a lane, with its cluster where there are several."""
    return f"{cluster}: {lane}" if len(schedule.timelines) > 1 else lane


def engine_bars(schedule: Schedule, kernels: Sequence[KernelInterval]) -> Columns:
    """Return bars in microseconds: ``lane``, ``begin``, ``end``, ``what``, ``busy``, ``group``.

    ``group`` is the sub-graph. Bars of one layer that nearly touch are drawn as one, as
    coarsely as :data:`MOST_BARS` asks for; the note says how coarsely.
    """
    span = max(kernel.end for kernel in kernels)
    gap = span / _FINEST
    while True:
        bars = list(_bars(schedule, kernels, gap))
        if len(bars) <= MOST_BARS or gap > span:
            break
        # coarser until the bars are few enough; beyond the pass nothing is left to join
        gap *= 2
    instructions = sum(len(kernel.program.where) for kernel in kernels)
    note = (
        f"{instructions} instructions in {len(bars)} bars: those of one layer that are less than"
        f" {duration(gap)} apart are drawn as one."
    )
    return Columns.of("lane begin end what busy group", bars, note)


def _bars(
    schedule: Schedule, kernels: Sequence[KernelInterval], gap: float
) -> Iterator[tuple[object, ...]]:
    labels = [layer_label(schedule, layer.index) for layer in schedule.context.layers]
    for kernel in kernels:
        subgraph = int(schedule.instances.subgraph[kernel.instance])
        layers, group = schedule.instances.subgraphs[subgraph].layers, subgraph
        name = kernel_label(schedule, kernel.instance)
        lane = named(schedule, kernel.cluster, "kernel")
        yield lane, kernel.begin * 1e6, kernel.end * 1e6, name, 1.0, group
        for engine, title in enumerate(ENGINES):
            lane = named(schedule, kernel.cluster, TITLES[title])
            for begin, end, layer, busy in _merged(kernel, engine, gap):
                what = labels[layers[layer]]
                yield lane, begin * 1e6, end * 1e6, what, busy / (end - begin), group


def _merged(
    kernel: KernelInterval, engine: int, gap: float
) -> Iterator[tuple[float, float, int, float]]:
    """Yield begin, end, layer and busy time of an engine's work in a kernel.

    Instructions of a layer less than ``gap`` seconds apart are one.
    """
    where = kernel.program.where
    issued = np.flatnonzero(where[:, Column.ENGINE] == engine)
    issued = issued[kernel.freed[issued] > kernel.issued[issued]]
    if not len(issued):
        return
    begin, end, layer = kernel.issued[issued], kernel.freed[issued], where[issued, Column.LAYER]
    new = (np.diff(layer) != 0) | (begin[1:] - end[:-1] >= gap)
    first = np.concatenate(([0], np.flatnonzero(new) + 1))
    last = np.concatenate((first[1:], [len(issued)])) - 1
    busy = np.add.reduceat(end - begin, first)
    parts = (begin[first], end[last], layer[first], busy)
    yield from zip(*(part.tolist() for part in parts), strict=True)


def kernel_rows(
    schedule: Schedule, kernels: Sequence[KernelInterval]
) -> list[tuple[str, int, float, float]]:
    """Return the kernels of a pass as they begin: name, cluster, first and last second."""
    first = sorted(kernels, key=lambda kernel: (kernel.begin, kernel.cluster))[:MOST_LISTED]
    return [(kernel_label(schedule, k.instance), k.cluster, k.begin, k.end) for k in first]


def core_lanes(schedule: Schedule, kernels: Sequence[KernelInterval]) -> tuple[list[str], Columns]:
    """Return lanes of cores from above, and the kernels in them as columns.

    All cores of a cluster issue a kernel's program at the same time, each on its part. Those of a
    large cluster that work alike are one lane. Columns are ``lane``, ``begin``, ``end``, ``what``,
    ``group`` (the sub-graph).
    """
    names: list[str] = []
    rows: list[tuple[object, ...]] = []
    for cluster in range(len(schedule.timelines)):
        cluster_kernels = [kernel for kernel in kernels if kernel.cluster == cluster]
        for first, last, chosen in _alike(schedule, cluster_kernels):
            core = f"core {first}" if first == last else f"cores {first}-{last}"
            names.append(named(schedule, cluster, core))
            rows += [
                (names[-1], *row)
                for row in _core_rows(schedule, [cluster_kernels[at] for at in chosen])
            ]
    return names, Columns.of("lane begin end what group", rows)


def _alike(
    schedule: Schedule, kernels: Sequence[KernelInterval]
) -> list[tuple[int, int, tuple[int, ...]]]:
    """Return lanes of a cluster: first and last core, and the kernels that they have parts of."""
    count = schedule.context.target.cores
    own: list[list[int]] = [[] for _ in range(count)]
    for number, kernel in enumerate(kernels):
        parts = math.prod(schedule.placement.bindings[kernel.instance])
        cores = schedule.placement.cores_of(kernel.instance, count)
        for core in cores[: max(1, min(parts, count))]:
            own[core].append(number)
    lanes: list[tuple[int, int, tuple[int, ...]]] = []
    for core, chosen in enumerate(map(tuple, own)):
        if count > MOST_CORES and lanes and lanes[-1][2] == chosen:
            lanes[-1] = (lanes[-1][0], core, chosen)
        else:
            lanes.append((core, core, chosen))
    return lanes


def _core_rows(
    schedule: Schedule, kernels: Sequence[KernelInterval]
) -> list[tuple[float, float, str, int]]:
    """Return bars of a lane; of many kernels those of a sub-graph in a row are one."""
    rows: list[tuple[float, float, str, int]] = []
    before = -1
    for kernel in kernels:
        subgraph = int(schedule.instances.subgraph[kernel.instance])
        name = kernel_label(schedule, kernel.instance)
        begin = kernel.body * 1e6
        if len(kernels) > MOST_KERNELS and before == subgraph:
            begin, name = rows.pop()[0], f"kernels up to {name}"
        rows.append((begin, kernel.end * 1e6, name, subgraph))
        before = subgraph
    return rows


def time_charts(best: Measured) -> dict[str, Chart]:
    """Return charts of a pass, engine by engine and core by core.

    Where there are more than :data:`MOST_LANES`, those of the first cluster are a chart, and those
    of the others one more, which the page folds away.
    """
    end = end_of(best)
    cores = _charts("cores", end, *core_lanes(best.schedule, best.kernels))
    return engine_charts(best, end) | cores


def engine_charts(best: Measured, end: float, *, whole: bool = False) -> dict[str, Chart]:
    """Return charts of a pass, engine by engine, on an axis of time up to ``end`` microseconds.

    Args:
        best: the schedule.
        end: where the axis ends.
        whole: add the passes after the first one, a bar each.
    """
    bars = engine_bars(best.schedule, best.kernels)
    if whole:
        rows = zip(*bars.values.values(), strict=True)
        bars = Columns.of(" ".join(bars.values), [*rows, *_further(best)], bars.note)
    return _charts("timeline", end, lane_names(best.schedule), bars)


def _further(best: Measured) -> Iterator[tuple[object, ...]]:
    """Yield a bar of kernels for each pass after the first, or one for all where they are many."""
    schedule, span, loops = best.schedule, end_of(best), best.schedule.share.loops
    firsts = range(1, loops) if loops <= MOST_PASSES else (1,)
    for cluster in range(len(schedule.timelines)):
        lane = named(schedule, cluster, "kernel")
        for first in firsts:
            last = first + 1 if loops <= MOST_PASSES else loops
            what = f"pass {last} of {loops}" if last == first + 1 else f"passes 2 to {loops}"
            yield lane, first * span, last * span, f"{what}, like the first", 1.0, FURTHER


def end_of(best: Measured) -> float:
    """Return when a pass ends, in microseconds."""
    return max(kernel.end for kernel in best.kernels) * 1e6


def end_of_all(best: Measured) -> float:
    """Return when the last pass of a batch ends, in microseconds."""
    return end_of(best) * best.schedule.share.loops


def _charts(kind: str, end: float, lanes: Sequence[str], bars: Columns) -> dict[str, Chart]:
    """Return one chart of all lanes, or two where they are many: of the first cluster, the rest."""
    own = [lane for lane in lanes if lane.startswith("0: ")]
    if len(lanes) <= MOST_LANES or not own:
        return {kind: _lanes_chart(kind, end, lanes, bars)}
    rest = lanes[len(own) :]
    return {
        kind: _lanes_chart(kind, end, own, bars.where("lane", own)),
        f"{kind}-rest": _lanes_chart(kind, end, rest, bars.where("lane", rest)),
    }


def _lanes_chart(kind: str, end: float, lanes: Sequence[str], bars: Columns) -> Chart:
    what, lane = _TOLD[kind]
    titles = {"what": what, "lane": lane, "begin": "from (us)", "end": "to (us)"}
    if "busy" in bars.values:
        titles["busy"] = "busy (share)"
    told = [
        {"field": name, "title": title, "type": "nominal"}
        if name in ("what", "lane")
        else {"field": name, "title": title, "type": "quantitative", "format": ",.4~g"}
        for name, title in titles.items()
    ]
    step, thick = _STEPS[kind]
    given = {"end": end, "lanes": list(lanes), "told": told, "step": step, "thick": thick}
    given |= _shades(bars)
    return Chart("timeline", {"bars": bars}, given)


def _shades(*several: Columns) -> dict[str, list[Any]]:
    """Return the sub-graphs of a chart's rows with their colours."""
    groups = sorted({group for rows in several for group in rows.values["group"]})
    colours = group_colours(max(groups, default=-1) + 1)
    shades = ["var(--quiet)" if group == FURTHER else colours[group] for group in groups]
    return {"groups": groups, "shades": shades}


@dataclass(frozen=True, slots=True, eq=False)
class Occupancy:
    """A buffer over one pass of one cluster; for LB, of its busiest core.

    Attributes:
        scope: LB or GB.
        cluster: Number of the cluster.
        capacity: Bytes of the buffer.
        zone: Bytes that tensors may have: the rest is for tiles on their way.
        boxes: ``begin``, ``end`` (microseconds), ``low``, ``high`` (KiB), ``what``, ``of``,
            ``group`` (the sub-graph).
        loads: The same of what is fetched ahead of its kernel, in GB.
        used: ``at`` (microseconds), ``KiB``.
        peak: Most bytes in use.
        peak_at: Second at which the peak is reached.
        fillers: What lies there then, for which instance, and its bytes; the largest first.
        more: How many more do.
    """

    scope: Scope
    cluster: int
    capacity: int
    zone: int
    boxes: Columns
    loads: Columns
    used: Columns
    peak: int
    peak_at: float
    fillers: tuple[tuple[str, str, int], ...]
    more: int

    @property
    def is_used(self) -> bool:
        """Return whether anything is ever in it."""
        return self.peak > 0 or len(self.loads) > 0


def occupancies(best: Measured) -> dict[str, Occupancy]:
    """Return the occupancy of LB and GB of each cluster over a pass, by the names of figures."""
    several = len(best.schedule.timelines) > 1
    occupied = {
        f"{scope.name.lower()}{cluster if several else ''}": occupancy(
            best.schedule, best.kernels, scope, cluster
        )
        for cluster in range(len(best.schedule.timelines))
        for scope in (Scope.LB, Scope.GB)
    }
    return {name: held for name, held in occupied.items() if held.capacity}


def occupancy(
    schedule: Schedule, kernels: Sequence[KernelInterval], scope: Scope, cluster: int = 0
) -> Occupancy:
    """Return the occupancy of LB or GB of a cluster over a pass."""
    timeline, target = schedule.timelines[cluster], schedule.context.target
    cluster_kernels = [kernel for kernel in kernels if kernel.cluster == cluster]
    begins = step_times(timeline.rows, cluster_kernels)
    edges = np.append(begins, cluster_kernels[-1].end)
    buffers, steps = timeline.buffers, len(begins)
    sizes = buffers.core_bytes if scope is Scope.LB else buffers.cluster_bytes
    index = np.flatnonzero((buffers.scope == scope) & (sizes > 0) & (buffers.address >= 0))
    birth, death = buffers.birth[index], np.minimum(buffers.death[index], steps - 1)
    used = held_bytes(birth, death, sizes[index], steps)
    at = int(used.argmax()) if len(used) else 0
    there = np.flatnonzero((birth <= at) & (death >= at))
    there = index[there[np.argsort(-sizes[index][there], kind="stable")]]
    fillers = tuple(
        (*_names(schedule, cluster, i), int(sizes[i])) for i in there[:_LISTED].tolist()
    )
    zones = Zones.of(target)
    room, zone = (
        (target.lb.capacity, zones.lb) if scope is Scope.LB else (target.gb.capacity, zones.gb)
    )
    spans = edges[birth], edges[death + 1]
    return Occupancy(
        scope, cluster, room, zone, _boxes(schedule, cluster, index, sizes[index], spans),
        _loads(schedule, cluster_kernels, cluster if scope is Scope.GB else None),
        _line(used, edges), int(used.max(initial=0)), float(edges[at]), fillers,
        max(0, len(there) - _LISTED),
    )  # fmt: skip


def _line(used: NDArray[np.int64], edges: NDArray[np.float64]) -> Columns:
    """Return the use as a line of steps: each value holds until the next."""
    new = np.flatnonzero(np.diff(used, prepend=-1))
    chosen = new[evenly(len(new), MOST_STEPS)]
    last = float(used[-1]) if len(used) else 0.0
    times_us = np.append(edges[chosen], edges[-1]) * 1e6
    kib = np.append(used[chosen], last) / 1024
    left = f"{len(chosen)} of {len(new)} changes are drawn." if len(chosen) < len(new) else ""
    return Columns({"at": times_us.tolist(), "KiB": kib.tolist()}, left)


def _boxes(
    schedule: Schedule,
    cluster: int,
    index: NDArray[np.int64],
    sizes: NDArray[np.int64],
    spans: tuple[NDArray[np.float64], NDArray[np.float64]],
) -> Columns:
    """Return buffers as boxes of time and address."""
    timeline = schedule.timelines[cluster]
    weight = (spans[1] - spans[0]) * sizes
    order = np.sort(np.argsort(-weight, kind="stable")[:MOST_BOXES])
    chosen, low = index[order], timeline.buffers.address[index[order]]
    note = ""
    if len(order) < len(index):
        share = percent(float(weight[order].sum() / weight.sum()))
        note = (
            f"{len(order)} of {len(index)} buffers are drawn, those with the most bytes times"
            f" time: {share} of all."
        )
    names = [_names(schedule, cluster, buffer) for buffer in chosen.tolist()]
    columns = {
        "begin": (spans[0][order] * 1e6).tolist(),
        "end": (spans[1][order] * 1e6).tolist(),
        "low": (low / 1024).tolist(),
        "high": ((low + sizes[order]) / 1024).tolist(),
        "what": [what for what, _ in names],
        "of": [instance for _, instance in names],
        "group": schedule.instances.subgraph[timeline.owner[chosen]].tolist(),
    }
    return Columns(columns, note)


def _loads(schedule: Schedule, kernels: Sequence[KernelInterval], cluster: int | None) -> Columns:
    """Return what a cluster fetches ahead, as boxes of time and address, largest ones first.

    A box lasts from the fetch until the last kernel that reads it has it in its cores. Copies
    before kernels have no instructions, and no boxes.
    """
    loads = NO_LOADS if cluster is None else schedule.loads(cluster)
    owner = np.where(loads.kept < 0, np.arange(len(loads.kept)), loads.kept)
    last = np.zeros(len(owner))
    np.maximum.at(last, owner, passed_times(loads, kernels))
    rows = []
    for load in np.flatnonzero(loads.fetched & (loads.instruction != COPY)).tolist():
        kernel, instruction = kernels[int(loads.kernel[load])], int(loads.instruction[load])
        low, size = int(loads.address[load]) / 1024, int(loads.size[load]) / 1024
        subgraph = int(schedule.instances.subgraph[kernel.instance])
        layers = schedule.instances.subgraphs[subgraph].layers
        layer = layers[int(kernel.program.where[instruction, Column.LAYER])]
        what = "inputs" if loads.inputs[load] else "weights"
        rows.append((
            float(kernel.issued[instruction]) * 1e6, float(last[load]) * 1e6, low, low + size,
            f"{what} fetched ahead for {layer_label(schedule, layer)}",
            kernel_label(schedule, kernel.instance), subgraph,
        ))  # fmt: skip
    drawn = sorted(rows, key=lambda row: -(row[1] - row[0]) * (row[3] - row[2]))[:MOST_BOXES]
    note = f"{len(drawn)} of {len(rows)} loads are drawn, the largest and longest ones."
    left_out = note if len(drawn) < len(rows) else ""
    return Columns.of("begin end low high what of group", drawn, left_out)


def _names(schedule: Schedule, cluster: int, buffer: int) -> tuple[str, str]:
    """Return the content of a buffer, and its instance."""
    timeline = schedule.timelines[cluster]
    kind, tensor = KINDS[int(timeline.kind[buffer])], int(timeline.tensor[buffer])
    instance = kernel_label(schedule, int(timeline.owner[buffer]))
    what = tensor_name(schedule, tensor) if tensor >= 0 else kind
    return (what if kind in ("tensor", what) else f"{what} ({kind})"), instance


def _pale_first(loads: Columns, boxes: Columns) -> Columns:
    """Return loads, which are drawn pale, and the boxes of tensors over them."""
    both = {name: [*column, *boxes.values[name]] for name, column in loads.values.items()}
    pale = [True] * len(loads) + [False] * len(boxes)
    return Columns({**both, "pale": pale}, " ".join(filter(None, (boxes.note, loads.note))))


def memory_chart(best: Measured, found: Occupancy) -> Chart:
    """Return a chart of a buffer over a pass: boxes by address, a line of how much is in use."""
    top = found.capacity / 1024
    highest = max(found.loads.values["high"], default=0.0)
    if found.peak < _CROWDED * found.capacity:
        top = min(top, max(found.peak / 1024 / _CROWDED, highest))
    step = 2.0 ** math.ceil(math.log2(top / 8))  # about eight sizes, a power of two apart
    zone = found.zone / 1024
    data = {
        "boxes": _pale_first(found.loads, found.boxes),
        "used": found.used,
        "zone": Columns({"KiB": [zone] if zone <= top else []}),
    }
    ticks = [step * at for at in range(int(top / step) + 1)]
    given = {"end": end_of(best), "top": top, "ticks": ticks, **_shades(found.boxes, found.loads)}
    return Chart("memory", data, given)
