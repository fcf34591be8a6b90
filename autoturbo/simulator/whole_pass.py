"""A pass whose loads run over its kernels, engine by engine.

Between kernels, :mod:`autoturbo.simulator.kernels` needs nothing of one for the next. Loads that
run ahead (:mod:`autoturbo.schedule.codegen.loads`) do: here all kernels of a pass are issued in one
run. The rules of engines are the same. Both directions of DDR share one bus: it takes the fetches
and saves of the kernel that runs as they become ready, of several the first in the program, and
while none is ready the next load of weights or of inputs, whichever is needed first, once the step
has begun that it is born at and the load is passed to the cores whose bytes it takes. A load gives
way at once and goes on later. A step begins when all layers before it have ended, or the kernel
before.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from autoturbo.compiled import borrowing, compiled
from autoturbo.graph.arrays import Ints
from autoturbo.hardware.dram import Memory
from autoturbo.schedule.codegen.durations import Rate, own_share, rates_of
from autoturbo.schedule.codegen.instructions import (
    DMA_IN,
    DMA_OUT,
    ENGINES,
    MATRIX_ENGINE,
    TRANSFER,
    VECTOR_ENGINE,
    Column,
    Instructions,
)
from autoturbo.schedule.codegen.loads import COPY, Loads
from autoturbo.schedule.codegen.tiling import Amount
from autoturbo.schedule.place.bind import Scope
from autoturbo.schedule.schedule import Schedule
from autoturbo.schedule.work import Flags, Floats
from autoturbo.simulator.kernels import (
    QUANTITIES,
    WAIT,
    Quantity,
    add_overlaps,
    duration,
    durations,
)

QUEUES: Final = 2
"""Of loads of a cluster: weights, and inputs."""


class KernelInterval(NamedTuple):
    """A kernel of a pass. Seconds from the begin of the pass.

    Attributes:
        cluster: The cluster that runs it.
        instance: Whose kernel it is.
        begin: Begin of the copies before it.
        launch: They have ended and its launch begins, where it has one of its own.
        body: Its first instruction may begin, at rate, but for loads: a ramp counts as before it.
        work: Seconds from there to the end of its last instruction.
        end: After the barrier.
        program: Instructions of the kernel.
        issued: Per instruction, its begin.
        freed: When its engine is free again.
        done: When what waits for it may begin.
        copied: Begin and end of the fetch of what is copied before it, where that is a load.
    """

    cluster: int
    instance: int
    begin: float
    launch: float
    body: float
    work: float
    end: float
    program: Instructions
    issued: Floats
    freed: Floats
    done: Floats
    copied: tuple[float, float] | None = None

    def layers(self) -> Floats:
        """Return begin and end of every layer, ``(layers, 2)``; NaN for one without instructions.

        A layer runs from the begin of its first instruction, prefetches in the kernel included, to
        the end of its last.
        """
        where = self.program.where[:, Column.LAYER]
        count = int(where.max()) + 1 if len(where) else 0
        bounds = np.full((count, 2), np.nan)
        for layer in range(count):
            of_layer = (where == layer) & (self.issued >= self.body)
            if of_layer.any():
                bounds[layer] = self.issued[of_layer].min(), self.done[of_layer].max()
        return bounds


class PassRun(NamedTuple):
    """A pass of one cluster.

    Attributes:
        kernels: Kernels of the pass, in order.
        totals: Overlaps and waits by :class:`Quantity`: what depends on when instructions begin.
        left_out: Seconds and bytes, by :class:`Quantity`, of fetches of what is there already.
    """

    kernels: tuple[KernelInterval, ...]
    totals: Floats
    left_out: Floats


def run_passes_whole(schedule: Schedule, moves: Sequence[Floats]) -> tuple[PassRun, ...]:
    """Simulate a pass of every cluster whole.

    Where clusters hand over to each other, a kernel begins once all that it reads from others is
    made. Of several passes that is not waited for: what a cluster waits for is mostly over when it
    has run one pass, and loads have the less time.

    Args:
        schedule: The schedule.
        moves: Per cluster, a result of :func:`autoturbo.simulator.sequence.movement_times`.

    Returns:
        Of every cluster.

    Raises:
        RuntimeError: A load was placed so that something waits for itself.
    """
    clusters = range(len(schedule.timelines))
    rates = rates_of(schedule.context.target, schedule.context.dtype)
    around = schedule.context.target.overheads
    loads = [schedule.loads(cluster) for cluster in clusters]
    opens = [schedule.opens(cluster) for cluster in clusters]
    programs = [
        schedule.known_program(kernel, cluster)
        for cluster in clusters
        for kernel in range(len(schedule.timelines[cluster].order))
    ]
    first = np.cumsum([0, *(len(program.where) for program in programs)])
    where, amounts = _instructions(schedule, programs, rates)
    kernels = np.cumsum([0, *(len(timeline.order) for timeline in schedule.timelines)])
    steps = [len(t.streams) + len(t.order) for t in schedule.timelines]
    step0 = np.cumsum([0, *steps])
    moved = np.concatenate(moves)
    queued = [
        (c, one.fetched & (one.inputs == queue))
        for c, one in enumerate(loads) for queue in range(QUEUES)
    ]  # fmt: skip
    queue = np.concatenate([_fetches(loads[c], first, kernels[c], which) for c, which in queued])
    copy = np.full(kernels[-1], -1)
    copies = np.flatnonzero(queue >= first[-1])
    copy[_kernel_of(queue[copies], first)] = copies
    plan = _Plan(
        first, where, amounts, rates,
        np.concatenate([step0[c] + t.first_steps for c, t in enumerate(schedule.timelines)]),
        np.concatenate([np.diff(t.rows) for t in schedule.timelines]),
        np.repeat(np.arange(len(steps)), np.diff(kernels)),
        np.cumsum([0, *(np.count_nonzero(which) for _, which in queued)]),
        queue,
        np.concatenate([step0[c] + loads[c].birth[which] for c, which in queued]),
        np.concatenate([_waits(loads[c], first, kernels[c], which) for c, which in queued]),
        np.concatenate([np.flatnonzero(which) for _, which in queued]),
        np.concatenate([_fetches(one, first, kernels[c], ~one.fetched)
                        for c, one in enumerate(loads)]),
        np.ascontiguousarray(moved[:, 0]), np.ascontiguousarray(moved[:, 1]),
        # What is copied early has had its latency of DDR too.
        moved[:, 0] - moved[:, 1] - rates[Rate.DMA_LATENCY] * (moved[:, 1] > 0), copy,
        np.asarray([around.kernel_launch, around.barrier, around.kernel_ramp]),
        np.concatenate(opens), np.concatenate([np.append(own[1:], True) for own in opens]),
    )  # fmt: skip
    state = _beginning(plan, int(step0[-1]))
    if not _issue(plan, state, *_order(schedule, kernels)):
        message = f"{schedule!r}: nothing can begin in a kernel; please report it"
        raise RuntimeError(message)
    orders = [timeline.order.tolist() for timeline in schedule.timelines]
    return tuple(_pass_of(plan, state, programs, cluster, orders[cluster]) for cluster in clusters)


def _pass_of(
    p: _Plan, s: _State, programs: Sequence[Instructions], cluster: int, order: Sequence[int]
) -> PassRun:
    """Return the pass of a cluster, once all are issued.

    Args:
        p: The pass.
        s: State of the pass.
        programs: Programs of all kernels.
        cluster: The cluster.
        order: Instances of its kernels.
    """
    own = np.flatnonzero(p.cluster == cluster)
    at = np.flatnonzero((p.cluster == cluster)[_kernel_of(np.arange(len(p.where)), p.first)])
    # Loads are served in stretches, which are added below: their begin and end span the gaps.
    at = at[~s.is_load[at]]
    stretches = s.stretches[:, : s.served[0]]
    of_loads = stretches[1:, p.cluster[_kernel_of(stretches[0], p.first)] == cluster]
    totals = np.zeros(QUANTITIES)
    totals[WAIT] = s.waits[cluster]
    _add_overlaps(
        np.append(p.where[at, Column.ENGINE], np.full(of_loads.shape[1], DMA_IN)),
        np.append(s.begin[at], of_loads[0]), np.append(s.end[at], of_loads[1]), totals,
    )  # fmt: skip
    runs = []
    for instance, kernel in zip(order, own.tolist(), strict=True):
        begin, body, work, end = s.times[kernel].tolist()
        span = slice(p.first[kernel], p.first[kernel + 1])
        times = s.begin[span], s.end[span], s.done[span]
        early = p.queue[p.copy[kernel]] if p.copy[kernel] >= 0 else None
        copied = None if early is None else (float(s.begin[early]), float(s.done[early]))
        launch = body - p.overheads[0] * p.opens[kernel]
        seconds = begin, launch, body, work, end
        runs.append(KernelInterval(cluster, instance, *seconds, programs[kernel], *times, copied))
    left_out = p.left_out[p.cluster[_kernel_of(p.left_out, p.first)] == cluster]
    return PassRun(tuple(runs), totals, _sums(p.amounts[left_out], p.rates))


def _instructions(
    schedule: Schedule, programs: Sequence[Instructions], rates: Floats
) -> tuple[Ints, Floats]:
    """Return all instructions, behind them two for what is copied from DDR before each kernel.

    The first of the two fetches it and the second passes it to the cores, where it is a load.
    """
    copied = np.concatenate([t.copied[:, Scope.DDR] for t in schedule.timelines])
    where = np.full((2 * len(copied), programs[0].where.shape[1]), -1)
    where[:, Column.ENGINE] = np.tile([DMA_IN, TRANSFER], len(copied))
    amounts = np.zeros((len(where), programs[0].amounts.shape[1]))
    amounts[::2, Amount.DDR] = copied / rates[Rate.STORED]
    return (
        np.concatenate([*(program.where for program in programs), where]),
        np.concatenate([*(program.amounts for program in programs), amounts]),
    )


def _kernel_of(instructions: Ints | Floats, first: Ints) -> Ints:
    """Return the kernels that instructions are of; ``first`` is the first of each."""
    known = np.searchsorted(first, instructions, side="right") - 1
    copies = (np.asarray(instructions, np.int64) - first[-1]) // 2
    return np.where(copies < 0, known, copies)


def _position(kernel: Ints, instruction: Ints, first: Ints, *, passes: bool) -> Ints:
    """Return the positions of kernels' instructions among all of a pass.

    Args:
        kernel: Kernel of each instruction.
        instruction: Instruction of that kernel, or :data:`.loads.COPY`.
        first: The first instruction of each kernel.
        passes: Whether what passes a copy to the cores is meant, not what fetches it.
    """
    copies = first[-1] + 2 * kernel + passes
    return np.where(instruction == COPY, copies, first[kernel] + instruction)


def _sums(amounts: Floats, rates: Floats) -> Floats:
    """Return the seconds and bytes of fetches, by :class:`Quantity`."""
    found, stored = np.zeros(QUANTITIES), rates[Rate.STORED]
    found[Quantity.BUSY_DMA_IN] = durations(DMA_IN, amounts, rates)[0].sum()
    found[Quantity.ISSUED_DMA_IN] = len(amounts)
    own = own_share(amounts[:, Amount.ALIKE], rates)
    found[Quantity.DDR_READ] = (amounts[:, Amount.DDR] * own).sum() * stored
    found[Quantity.GB_WRITTEN] = amounts[:, Amount.GB_WRITTEN].sum() * stored
    return found


def _fetches(loads: Loads, first: Ints, begin: int, which: Flags) -> Ints:
    """Return the instructions that fetch some of a cluster's loads.

    Args:
        loads: Loads of the cluster.
        first: The first instruction of all kernels.
        begin: The first of its kernels.
        which: Numbers of the loads that are asked about.
    """
    return _position(begin + loads.kernel[which], loads.instruction[which], first, passes=False)


def _waits(loads: Loads, first: Ints, begin: int, which: Flags) -> Ints:
    """Return the instructions that have to be over before loads are fetched, -1 for none.

    Args:
        loads: Loads of a cluster.
        first: The first instruction of all kernels.
        begin: The first of its kernels.
        which: Numbers of the loads that are asked about.
    """
    after = loads.after[which]
    at = _position(begin + loads.kernel[after], loads.passed[after], first, passes=True)
    return np.where(after < 0, -1, at)


def _add_overlaps(engine: Ints, issued: Floats, freed: Floats, totals: Floats) -> None:
    by_engine = []
    for code in range(len(ENGINES)):
        of_engine = np.flatnonzero(engine == code)
        by_engine.append(of_engine[np.argsort(issued[of_engine], kind="stable")])
    add_overlaps(by_engine, issued, freed, totals)


def _order(schedule: Schedule, kernels: Ints) -> tuple[Ints, Ints, Ints]:
    """Return the kernels in order over all clusters, and those that each waits for.

    They are counted cluster by cluster.

    Returns:
        The order; where the kernels begin that each kernel waits for; these.
    """
    makers: list[list[int]] = [[] for _ in range(int(kernels[-1]))]
    if not schedule.cluster:
        order = list(range(int(kernels[-1])))
    else:
        place = {
            instance: int(kernels[cluster]) + number
            for cluster, timeline in enumerate(schedule.timelines)
            for number, instance in enumerate(timeline.order.tolist())
        }
        order = [place[instance] for instance in schedule.order]
        if schedule.share.loops == 1:
            elsewhere = made_elsewhere(schedule.instances.producers, schedule.cluster)
            for instance in schedule.order:
                makers[place[instance]] = [place[maker] for maker in elsewhere[instance]]
    return (
        np.asarray(order, np.int64), np.cumsum([0, *map(len, makers)]),
        np.asarray([maker for made in makers for maker in made], np.int64),
    )  # fmt: skip


def made_elsewhere(producers: Sequence[Sequence[int]], cluster: Sequence[int]) -> list[list[int]]:
    """Return the instances on other clusters that each instance reads from, and so waits for.

    Args:
        producers: Per instance, the instances that it reads from.
        cluster: Per instance, the cluster that runs it.

    Returns:
        A list for each instance.
    """
    return [
        [maker for maker in made if cluster[maker] != own]
        for own, made in zip(cluster, producers, strict=True)
    ]


class _Plan(NamedTuple):
    """Instructions, loads and copies of a pass, cluster by cluster.

    Attributes:
        first: First instruction of each kernel, and one entry more.
        where: Columns of all instructions; what they wait for is counted within their kernel.
        amounts: Amounts of all instructions.
        rates: Rates of :func:`rates_of`.
        step: Step of the copies before each kernel.
        layers: Number of layers of each kernel.
        cluster: Cluster of each kernel.
        queues: First load of weights and of inputs of each cluster, and one entry more.
        queue: The instruction of each load, of its kind in the order in which they are fetched.
        birth: The step from which each may be fetched.
        after: The instruction that has to be over by then; negative for none.
        turn: Position among the loads of its cluster in the order in which they are needed.
        left_out: Fetches of what is there already.
        moves: Seconds of the copies before each kernel.
        bus: Seconds of these copies in which they have the bus.
        passing: Seconds that they take where what they bring from DDR is there already.
        copy: The load that brings it; -1 where the copies do.
        overheads: Seconds of a launch, a barrier and a ramp.
        opens: Per kernel, whether it has a launch of its own.
        closes: Per kernel, whether it is the last in its launch.
    """

    first: Ints
    where: Ints
    amounts: Floats
    rates: Floats
    step: Ints
    layers: Ints
    cluster: Ints
    queues: Ints
    queue: Ints
    birth: Ints
    after: Ints
    turn: Ints
    left_out: Ints
    moves: Floats
    bus: Floats
    passing: Floats
    copy: Ints
    overheads: Floats
    opens: Flags
    closes: Flags


class _State(NamedTuple):
    """A pass while it is issued.

    Attributes:
        issued: Per instruction, whether it has been issued.
        is_load: Per instruction, whether it is a load.
        begin: Begin of every instruction.
        end: When its engine is free again.
        done: When it completes.
        free: When each cluster's engines are free, ``(clusters, engines)``.
        completed: When the last instruction of each completes.
        waits: Seconds that each waited.
        over: When each cluster has ended its last kernel.
        bus: When its bus is free.
        busy: Seconds that its bus has been busy.
        head: Its next load of weights, and of inputs.
        rest: Seconds that a load still takes, -1 before it begins.
        stretches: Instruction, begin and end of every stretch in which a bus serves a load.
        served: Number of loads that have been served.
        step: When each step begins.
        times: The columns of :class:`KernelInterval` that follow from these, ``(kernels, 4)``:
            begin, body, work, end.
        moved: Bytes read from DDR, written to it and moved at GB while the kernel runs.
    """

    issued: Flags
    is_load: Flags
    begin: Floats
    end: Floats
    done: Floats
    free: Floats
    completed: Floats
    waits: Floats
    over: Floats
    bus: Floats
    busy: Floats
    head: Ints
    rest: Floats
    stretches: Floats
    served: Ints
    step: Floats
    times: Floats
    moved: Floats


def _beginning(p: _Plan, steps: int) -> _State:
    """Return the state before a pass.

    Args:
        p: The pass.
        steps: Number of steps of all clusters.
    """
    total, clusters, kernels = len(p.where), (len(p.queues) - 1) // QUEUES, len(p.cluster)
    is_load, issued = np.zeros((2, total), np.bool_)
    # What another load has brought counts as issued at 0: nothing waits for it.
    is_load[p.queue] = is_load[p.left_out] = issued[p.left_out] = True
    is_load[p.first[-1] :] = True  # copies
    begin, end, done = np.zeros((3, total))
    free, completed, waits = np.zeros((3, clusters, len(ENGINES)))
    over, bus, busy = np.zeros((3, clusters))
    return _State(
        issued, is_load, begin, end, done, free, completed, waits,
        over, bus, busy, p.queues[:-1].copy(), np.full(len(p.queue), -1.0),
        # Each instruction can interrupt a load once, and so can a kernel's copies and ends.
        np.zeros((3, total + 3 * kernels)), np.zeros(1, np.int64),
        # A step that has not begun yet is infinitely late: what waits for it is not ready.
        np.full(steps + 1, np.inf), np.zeros((kernels, 4)), np.zeros(3),
    )  # fmt: skip


@compiled
def _issue(p: _Plan, s: _State, order: Ints, starts: Ints, makers: Ints) -> bool:
    """Issue all instructions of a pass, kernel by kernel; each cluster has a bus of its own.

    Args:
        p: The pass.
        s: State of the pass.
        order: Kernels in order, each after those that it waits for.
        starts: Per kernel, where the kernels begin that it waits for, and one entry more.
        makers: The kernels that are waited for.

    Returns:
        Whether something could always begin.
    """
    barrier, ramp = p.overheads[1], p.overheads[2]
    for kernel in order:
        cluster = p.cluster[kernel]
        before = began = s.over[cluster]
        _serve_until(p, s, cluster, before)  # what comes by then is not this kernel's
        s.step[p.step[kernel]] = before
        for at in range(starts[kernel], starts[kernel + 1]):
            began = max(began, s.times[makers[at], 3] + barrier)
        # A load may hold the bus beyond this moment; that part counts when it is over.
        busy_before = s.busy[cluster] - max(s.bus[cluster] - before, 0.0)
        s.moved[:] = 0.0
        body = _move(p, s, kernel, began)
        work_end = _run(p, s, kernel, body) if body >= 0 else -1.0
        if work_end < 0:
            return False
        _serve_until(p, s, cluster, work_end)
        # shared memories, as for a kernel alone
        read, written, shared = s.moved * p.rates[Rate.STORED]
        turns = min(read, written) * p.rates[Rate.CLUSTERS]
        turns *= p.rates[Rate.MEMORY + Memory.TURNAROUND]
        turns /= p.rates[Rate.MEMORY + Memory.WRITE_BATCH]
        on_bus = s.busy[cluster] - max(s.bus[cluster] - work_end, 0.0) - busy_before
        work_end = max(work_end, before + on_bus + turns)
        if shared > 0:
            work_end = max(work_end, body + shared / p.rates[Rate.GB])
        work = work_end - body
        ramped = ramp * (1.0 - np.exp(-work / ramp)) if ramp > 0 and p.opens[kernel] else 0.0
        s.over[cluster] = work_end + ramped + (barrier if p.closes[kernel] else 0.0)
        s.times[kernel, 0], s.times[kernel, 1] = began, body
        s.times[kernel, 2], s.times[kernel, 3] = work, s.over[cluster]
    return True


@borrowing
def _move(p: _Plan, s: _State, kernel: int, now: float) -> float:
    """Run the copies before a kernel and launch it; return when its body begins.

    Loads are served until the copies ask for the bus, or until what they bring has come.

    Returns:
        Seconds; -1 if what they wait for never comes.
    """
    cluster, moving = p.cluster[kernel], p.moves[kernel]
    if p.copy[kernel] >= 0:
        copy = p.queue[p.copy[kernel]]
        while not s.issued[copy]:
            queue, ready = _next_load(p, s, cluster)
            if ready == np.inf:
                return -1.0
            _serve(p, s, queue, np.inf)
        now, moving = max(now, s.done[copy]), p.passing[kernel]
    elif p.bus[kernel] > 0:
        _serve_until(p, s, cluster, now)
        now = max(s.bus[cluster], now)
        s.bus[cluster] = now + p.bus[kernel]
        s.busy[cluster] += p.bus[kernel]
    body = now + moving + (p.overheads[0] if p.opens[kernel] else 0.0)
    if p.copy[kernel] >= 0:
        at = p.queue[p.copy[kernel]] + 1  # which passes it
        s.issued[at], s.done[at] = True, body
    s.step[p.step[kernel] + 1] = body
    return float(body)


@compiled
def _run(p: _Plan, s: _State, kernel: int, body: float) -> float:
    """Issue a kernel, and the loads for which it leaves the bus.

    Returns:
        When its last instruction has ended; -1 if none can begin though some are left.
    """
    cluster, low, high = p.cluster[kernel], p.first[kernel], p.first[kernel + 1]
    step, layers = p.step[kernel] + 1, p.layers[kernel]
    left, ends = np.zeros(layers, np.int64), np.zeros(layers)
    for at in range(low, high):
        left[p.where[at, Column.LAYER]] += not s.is_load[at]
    remaining, layer, work_end = left.sum(), 0, body
    # Engines issue in list order, so each has one candidate at a time.
    nexts, begun = np.full(len(ENGINES), low), np.zeros(len(ENGINES), np.bool_)
    while remaining > 0:
        at, start = _next(p, s, kernel, body, nexts)
        engine = p.where[at, Column.ENGINE] if at >= 0 else DMA_IN
        if engine in (DMA_IN, DMA_OUT):
            queue, ready = _next_load(p, s, cluster)
            # of two that are ready the first in the program goes first
            first = ready == start and ready < np.inf and p.queue[s.head[queue]] < at
            # A load goes on until the kernel's own transfer is ready, and then gives way at once.
            if ready < start or first:
                _serve(p, s, queue, np.inf if first else start)
                continue
        if at < 0:
            return -1.0
        if begun[engine]:
            s.waits[cluster, engine] += max(start - s.free[cluster, engine], 0.0)
        _begin(p, s, at, cluster, start)
        begun[engine], nexts[engine] = True, at + 1
        remaining -= 1
        work_end = max(work_end, s.done[at])
        own = p.where[at, Column.LAYER]
        left[own] -= 1
        ends[own] = max(ends[own], s.done[at])
        # Steps begin in order: where layers take turns, one may end before those ahead of it.
        while layer + 1 < layers and left[layer] == 0:
            s.step[step + layer + 1] = max(s.step[step + layer], ends[layer])
            layer += 1
    return work_end


@borrowing
def _next(p: _Plan, s: _State, kernel: int, body: float, nexts: Ints) -> tuple[int, float]:
    """Return the instruction that begins next, loads apart, and when; -1 if none is known to.

    Only the bus has several to choose from, so what it takes is known once nothing else can be
    issued: whatever else there is waits for it.
    """
    cluster, low, high = p.cluster[kernel], p.first[kernel], p.first[kernel + 1]
    best, best_start = -1, np.inf
    # Engines with a single asker first: what begins on them is known, and may free the bus's next.
    for engine in (TRANSFER, MATRIX_ENGINE, VECTOR_ENGINE, DMA_IN, DMA_OUT):
        at = nexts[engine]
        while at < high and (p.where[at, Column.ENGINE] != engine or s.is_load[at]):
            at += 1
        nexts[engine] = at
        if at == high:
            continue
        on_bus = engine in (DMA_IN, DMA_OUT)
        start = max(s.bus[cluster] if on_bus else s.free[cluster, engine], body)
        for column in range(Column.AFTER, p.where.shape[1]):
            before = p.where[at, column]
            if before >= 0:
                start = max(start, s.done[low + before] if s.issued[low + before] else np.inf)
        if start < best_start or (start == best_start < np.inf and at < best):
            best, best_start = at, start
        if not on_bus and start < np.inf:  # nothing else asks for this engine
            break
    return best, best_start


@borrowing
def _next_load(p: _Plan, s: _State, cluster: int) -> tuple[int, float]:
    """Return the queue of the load that a cluster's bus takes next, and when.

    It takes the one that is ready first; of two that wait for it, the one that is needed first.
    """
    weights, inputs = QUEUES * cluster, QUEUES * cluster + 1
    ready, other = _load_ready(p, s, weights), _load_ready(p, s, inputs)
    both = ready == other < np.inf
    if other < ready or (both and p.turn[s.head[inputs]] < p.turn[s.head[weights]]):
        return inputs, other
    return weights, ready


@borrowing
def _load_ready(p: _Plan, s: _State, queue: int) -> float:
    """Return when the next load of a queue may go on; infinite if none or not known yet."""
    load = s.head[queue]
    if load == p.queues[queue + 1]:
        return float(np.inf)
    ready = max(s.bus[queue // QUEUES], s.step[p.birth[load]])
    before = p.after[load]
    if before >= 0:
        ready = max(ready, s.done[before] if s.issued[before] else np.inf)
    return float(ready)


@borrowing
def _serve_until(p: _Plan, s: _State, cluster: int, until: float) -> None:
    """Serve loads that can begin before the bus is asked for."""
    queue, ready = _next_load(p, s, cluster)
    while ready < until:
        _serve(p, s, queue, until)
        queue, ready = _next_load(p, s, cluster)


@borrowing
def _serve(p: _Plan, s: _State, queue: int, until: float) -> None:
    """Serve the next load of a queue until it has come or has to give way."""
    load, start, cluster = s.head[queue], _load_ready(p, s, queue), queue // QUEUES
    at = p.queue[load]
    length, latency = duration(DMA_IN, p.amounts[at], p.rates)
    if s.rest[load] < 0:
        s.begin[at], s.rest[load] = start, length
    end, all_of_it = start + s.rest[load], start + s.rest[load] <= until
    if not all_of_it:
        end = until
    share = (end - start) / length if length > 0 else 1.0
    s.rest[load] -= end - start
    _note(p, s, at, cluster, end, latency)
    own = own_share(p.amounts[at, Amount.ALIKE], p.rates)
    s.moved[0] += p.amounts[at, Amount.DDR] * own * share
    s.moved[2] += p.amounts[at, Amount.GB] * share
    s.bus[cluster] = end
    s.busy[cluster] += end - start
    served = s.served[0]
    s.stretches[0, served], s.stretches[1, served], s.stretches[2, served] = at, start, end
    s.served[0] = served + 1
    if all_of_it:
        s.issued[at] = True
        s.head[queue] = load + 1


@borrowing
def _begin(p: _Plan, s: _State, at: int, cluster: int, start: float) -> None:
    """Issue an instruction of the kernel that runs."""
    engine = p.where[at, Column.ENGINE]
    length, latency = duration(engine, p.amounts[at], p.rates)
    s.begin[at], s.issued[at] = start, True
    _note(p, s, at, cluster, start + length, latency)
    s.moved[2] += p.amounts[at, Amount.GB]
    if engine in (DMA_IN, DMA_OUT):
        own = own_share(p.amounts[at, Amount.ALIKE], p.rates)
        s.moved[0 if engine == DMA_IN else 1] += p.amounts[at, Amount.DDR] * own
        s.bus[cluster] = start + length
        s.busy[cluster] += length


@borrowing
def _note(p: _Plan, s: _State, at: int, cluster: int, end: float, latency: float) -> None:
    """Note when an instruction frees its engine, and when it completes after a latency."""
    engine = p.where[at, Column.ENGINE]
    s.end[at] = s.free[cluster, engine] = end
    s.done[at] = s.completed[cluster, engine] = max(end + latency, s.completed[cluster, engine])
