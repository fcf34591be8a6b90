"""What must hold for every schedule whatever the model, the target and the knobs.

Everything here is recomputed from the graph's access maps and the decisions that the schedule file
holds, on Python objects and without the scheduler's compiled code.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from cluster_checks import check_clusters, check_latency, close, steps_of

from autoturbo.graph.domain import Interval, Region, hull, volume
from autoturbo.schedule.allocate import ALIGNMENT, Zones
from autoturbo.schedule.bind import Scope, cores_used
from autoturbo.schedule.instructions import (
    DMA_IN,
    DMA_OUT,
    ENGINES,
    MATRIX_ENGINE,
    TRANSFER,
    VECTOR_ENGINE,
    Amount,
    Column,
    Instructions,
)
from autoturbo.schedule.stitch import Stage
from autoturbo.schedule.timeline import (
    IN_DDR,
    IN_GB,
    LATE_DDR,
    LATE_GB,
    OUT_DDR,
    OUT_GB,
    STREAM_COLUMNS,
    Step,
)
from autoturbo.schedule.work import MATRIX, VECTOR
from autoturbo.simulate.sequence import simulate

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from autoturbo.schedule.instances import Instance
    from autoturbo.schedule.problem import Problem
    from autoturbo.schedule.schedule import Schedule
    from autoturbo.schedule.timeline import Timeline

Regions = dict[int, Region]


def check_schedule(schedule: Schedule) -> None:
    """Every check of this module."""
    check_subgraphs(schedule)
    check_coverage(schedule)
    check_inputs(schedule)
    check_order(schedule)
    check_bindings(schedule)
    check_buffers(schedule)
    check_clusters(schedule)
    check_replay(schedule)
    for step in steps_of(schedule):
        check_work(schedule, step)
        check_instructions(schedule, step)
    check_bound(schedule)
    check_latency(schedule)


def as_region(array: np.ndarray) -> Region:
    return tuple((int(low), int(high)) for low, high in array)


def meet(first: Region, second: Region) -> Region:
    return tuple((max(a[0], b[0]), min(a[1], b[1])) for a, b in zip(first, second, strict=True))


def needed_regions(
    problem: Problem, layers: Sequence[int], outputs: Mapping[int, Region]
) -> tuple[Regions, dict[int, tuple[Interval, ...]]]:
    """Regions of all tensors and steps of all loops that some outputs of a sub-graph need."""
    regions = {t: r for t, r in outputs.items() if volume(r)}
    boxes: dict[int, tuple[Interval, ...]] = {}
    for index in reversed([op for x in layers for op in problem.layers[x].operators]):
        operator = problem.graph.operators[index]
        wanted = {p: regions[t] for p, t in enumerate(operator.outputs) if t in regions}
        if not wanted:
            continue
        boxes[index] = operator.axis_region(wanted)
        for position, tensor in enumerate(operator.inputs):
            shape = problem.graph.tensors[tensor].shape
            region = operator.input_region(position, boxes[index], shape)
            if volume(region):
                regions[tensor] = hull(regions.get(tensor, region), region)
    return regions, boxes


def check_subgraphs(schedule: Schedule) -> None:
    """Every operator in one layer, every layer in one sub-graph, only the last one read outside."""
    problem = schedule.problem
    operators = [op for layer in problem.layers for op in layer.operators]
    assert sorted(operators) == list(range(len(problem.graph.operators)))
    layers = [x for s in schedule.instances.subgraphs for x in s.layers]
    assert sorted(layers) == list(range(len(problem.layers)))
    for subgraph in schedule.instances.subgraphs:
        assert list(subgraph.layers) == sorted(subgraph.layers)
        inside = set(subgraph.layers)
        for layer in subgraph.layers[:-1]:
            outputs = problem.layers[layer].outputs
            assert not set(outputs) & set(problem.graph.outputs)
            assert all(set(problem.consumers[t]) <= inside for t in outputs)
        opaque = [
            op for x in subgraph.layers for op in problem.layers[x].operators
            if problem.graph.operators[op].opaque
        ]  # fmt: skip
        assert not opaque or len(subgraph.layers) == 1


def check_coverage(schedule: Schedule) -> None:
    """The parts of a sub-graph make every element of its outputs exactly once."""
    problem = schedule.problem
    for subgraph in schedule.instances.subgraphs:
        parts = [i for i in schedule.instances.instances if i.subgraph == subgraph.index]
        assert [i.part for i in parts] == list(range(subgraph.split.instances))
        for tensor in problem.layers[subgraph.layers[-1]].outputs:
            whole = problem.graph.tensors[tensor].whole
            regions = [as_region(i.outputs[tensor]) for i in parts]
            assert all(meet(r, whole) == r for r in regions)
            assert sum(volume(r) for r in regions) == volume(whole)
            for index, region in enumerate(regions):
                assert all(not volume(meet(region, other)) for other in regions[:index])


def check_inputs(schedule: Schedule) -> None:
    """Every part reads what its outputs need, and its producers make all of it."""
    problem = schedule.problem
    instances = schedule.instances.instances
    maker = {t: i.index for i in instances for t in i.outputs}
    for instance in instances:
        layers = schedule.instances.subgraphs[instance.subgraph].layers
        outputs = {t: as_region(r) for t, r in instance.outputs.items()}
        regions, _ = needed_regions(problem, layers, outputs)
        for tensor, array in instance.inputs.items():
            need = as_region(array)
            assert regions[tensor] == need if tensor in regions else not (need and volume(need))
            if tensor in maker:
                _check_producers(schedule, instance, tensor, need)
            else:
                assert tensor in problem.graph.inputs


def _check_producers(schedule: Schedule, instance: Instance, tensor: int, need: Region) -> None:
    instances = schedule.instances.instances
    given = 0
    for other in instances:
        if tensor in other.outputs:
            common = volume(meet(as_region(other.outputs[tensor]), need)) if need else 1
            linked = other.index in schedule.instances.producers[instance.index]
            assert not common or linked
            given += common
    assert given == volume(need)


def check_order(schedule: Schedule) -> None:
    """Every instance once, after all whose output it reads; edges are the same both ways."""
    graph = schedule.instances
    position = {instance: at for at, instance in enumerate(schedule.order)}
    assert sorted(position) == list(range(len(graph.instances)))
    assert len(schedule.order) == len(position)
    if not schedule.cluster:
        assert [step.instance for step in schedule.timeline.steps] == list(schedule.order)
    for reader, producers in enumerate(graph.producers):
        assert all(position[p] < position[reader] for p in producers)
        assert all(reader in graph.consumers[p] for p in producers)
    assert sum(map(len, graph.consumers)) == sum(map(len, graph.producers))


def check_bindings(schedule: Schedule) -> None:
    """No instance and no layer of a kernel is spread over more cores than there are."""
    cores = schedule.problem.target.cores
    for instance, binding in zip(
        schedule.instances.instances, schedule.placement.bindings, strict=True
    ):
        assert len(binding) == len(next(iter(instance.outputs.values())))
        assert 1 <= cores_used(binding) <= cores
    for step in steps_of(schedule):
        assert step.template.binding == schedule.placement.bindings[step.instance]
        assert all(1 <= cores_used(b) <= cores for b in step.template.bindings)


def check_buffers(schedule: Schedule) -> None:
    """Buffers of a cluster that live at the same time do not overlap, and none passes its zone."""
    for timeline in schedule.timelines:
        _check_buffers(schedule, timeline)


def _check_buffers(schedule: Schedule, timeline: Timeline) -> None:
    target = schedule.problem.target
    zones = Zones.of(target)
    assert zones.lb + zones.lb_staging <= target.lb.capacity
    assert zones.gb + zones.gb_staging <= target.gb.capacity
    buffers = timeline.buffers
    assert len(buffers.scope) == len(timeline.names)
    assert (buffers.birth <= buffers.death).all()
    assert (buffers.core_bytes >= 0).all()
    assert ((buffers.address < 0) == (buffers.scope == Scope.DDR)).all()
    for level, sizes, room in (
        (Scope.LB, buffers.core_bytes, zones.lb),
        (Scope.GB, buffers.cluster_bytes, zones.gb),
    ):
        here = np.flatnonzero(buffers.scope == level)
        low, high = buffers.address[here], buffers.address[here] + sizes[here]
        assert (low % ALIGNMENT == 0).all()
        assert (high <= room).all()
        born, dead = buffers.birth[here], buffers.death[here]
        space = (low[:, None] < high[None]) & (low[None] < high[:, None])
        space &= (sizes[here] > 0)[:, None] & (sizes[here] > 0)[None]
        time = (born[:, None] <= dead[None]) & (born[None] <= dead[:, None])
        np.fill_diagonal(space, val=False)
        assert not (space & time).any()


class _Replay:
    """Which buffer of a cluster holds which tensor of which instance while time passes."""

    def __init__(self, timeline: Timeline) -> None:
        self.timeline = timeline
        self.clock = 0
        names = timeline.names
        self.buffers: dict[tuple[str, int, int], list[int]] = {}
        for buffer, name in enumerate(names):
            self.buffers.setdefault((name.kind, name.tensor, name.instance), []).append(buffer)
        self.holds: dict[int, tuple[int, int]] = {}
        self.where: dict[tuple[int, int], int] = {}

    def read(self, buffer: int, content: tuple[int, int], clock: int) -> Scope:
        """A buffer is read: it must be alive and still hold what is meant."""
        buffers = self.timeline.buffers
        assert self.holds[buffer] == content
        assert buffers.birth[buffer] <= clock <= buffers.death[buffer]
        return Scope(int(buffers.scope[buffer]))

    def write(self, tensor: int, instance: int, dying: list[int], clock: int) -> int:
        """A tensor is made: in a buffer of its own, or over one that dies here."""
        own = self.buffers.get(("tensor", tensor, instance))
        buffers = self.timeline.buffers
        if own is not None:
            assert len(own) == 1
            assert buffers.birth[own[0]] == clock
            buffer = own[0]
        else:
            assert dying, "a tensor without a buffer is not made in place"
            buffer = self.where[instance, dying[0]]
            assert buffers.birth[buffer] <= clock <= buffers.death[buffer]
        self.holds[buffer] = (instance, tensor)
        self.where[instance, tensor] = buffer
        return buffer


def check_replay(schedule: Schedule) -> None:
    """Run the schedule step by step: reads find their data, and streams are what scopes imply.

    Clusters run side by side, each in its own time; a kernel comes once all it reads is there.
    """
    replays = [_Replay(timeline) for timeline in schedule.timelines]
    steps = {step.instance: step for step in steps_of(schedule)}
    for instance in schedule.order:
        cluster = schedule.cluster[instance] if schedule.cluster else 0
        _replay_step(schedule, replays, replays[cluster], steps[instance])


def _replay_step(
    schedule: Schedule, replays: Sequence[_Replay], replay: _Replay, step: Step
) -> None:
    moved = _replay_movements(replays, replay, step, replay.clock)
    replay.clock += 1
    expected = np.zeros((len(step.template.layers), STREAM_COLUMNS), np.int64)
    for position in range(len(step.template.layers)):
        _replay_layer(schedule, replays, replay, step, position, moved, expected)
        replay.clock += 1
    np.testing.assert_array_equal(step.streams, expected)


def _check_handed_over(replays: Sequence[_Replay], producer: int, tensor: int) -> None:
    """What another cluster made lies in DDR, was written before, and stays until the pass ends."""
    found = [other for other in replays if (producer, tensor) in other.where]
    assert len(found) == 1
    maker, buffer = found[0], found[0].where[producer, tensor]
    buffers = maker.timeline.buffers
    assert maker.holds[buffer] == (producer, tensor)
    assert buffers.scope[buffer] == Scope.DDR
    assert (
        buffers.death[buffer] == sum(1 + len(s.template.layers) for s in maker.timeline.steps) - 1
    )


def _replay_movements(
    replays: Sequence[_Replay], replay: _Replay, step: Step, clock: int
) -> dict[tuple[int, int], int]:
    """Copies before a kernel, by producer and tensor; what they read is accounted for.

    All moved pieces of an input share one buffer in LB; where it found no room they are read from
    where they lie, by the layers that read them.
    """
    moved: dict[tuple[int, int], int] = {}
    copied = [0, 0, 0]
    for concat in step.concats:
        brought = replay.buffers.get(("moved", concat.tensor, step.instance), [])
        streamed = replay.buffers.get(("streamed", concat.tensor, step.instance), [])
        assert len(brought) + len(streamed) == bool(concat.moved)
        for piece in concat.pieces:
            if (piece.producer, piece.tensor) not in replay.where:
                _check_handed_over(replays, piece.producer, piece.tensor)
                assert piece.movement is None
                continue
            source = replay.where[piece.producer, piece.tensor]
            scope = replay.read(source, (piece.producer, piece.tensor), clock)
            if piece.movement is not None and brought:
                moved[piece.producer, piece.tensor] = brought[0]
                copied[scope] += piece.cluster_bytes
        for buffer in brought:
            assert replay.timeline.buffers.birth[buffer] == clock
            assert replay.timeline.buffers.scope[buffer] == Scope.LB
            replay.holds[buffer] = (step.instance, concat.tensor)
    assert step.copied == (copied[Scope.GB], copied[Scope.DDR])
    return moved


def _replay_layer(
    schedule: Schedule, replays: Sequence[_Replay], replay: _Replay, step: Step, position: int,
    moved: dict[tuple[int, int], int], expected: np.ndarray,
) -> None:  # fmt: skip
    problem, template, clock = schedule.problem, step.template, replay.clock
    layer = problem.layers[template.layers[position]]
    sizes = dict(template.reads[position])
    assert set(sizes) == set(layer.inputs)
    row = expected[position]
    inner = {t for x in template.layers[:position] for t in problem.layers[x].outputs}
    for tensor in layer.inputs:
        if tensor in inner:
            buffer = replay.where[step.instance, tensor]
            scope = replay.read(buffer, (step.instance, tensor), clock)
            if scope is not Scope.LB:
                row[LATE_GB if scope is Scope.GB else LATE_DDR] += sizes[tensor]
        elif tensor in problem.graph.inputs:
            row[IN_DDR] += sizes[tensor]
        else:
            _replay_pieces(schedule, replays, replay, step, tensor, moved, row)
    later = {t for x in template.layers[position + 1 :] for t in problem.layers[x].inputs}
    dying = [t for t in layer.inputs if t in inner and t not in later] if layer.in_place else []
    for tensor, size, _ in template.writes[position]:
        buffer = replay.write(tensor, step.instance, dying, clock)
        scope = Scope(int(replay.timeline.buffers.scope[buffer]))
        if scope is not Scope.LB:
            row[OUT_GB if scope is Scope.GB else OUT_DDR] += size
        if tensor in problem.graph.outputs and problem.consumers[tensor]:
            row[OUT_DDR] += size
        if tensor in problem.graph.outputs and not problem.consumers[tensor]:
            assert scope is Scope.DDR


def _replay_pieces(
    schedule: Schedule, replays: Sequence[_Replay], replay: _Replay, step: Step, tensor: int,
    moved: dict[tuple[int, int], int], row: np.ndarray,
) -> None:  # fmt: skip
    """An input from other instances is read piece by piece, each where it lies."""
    clock = replay.clock
    instances = schedule.instances.instances
    need = as_region(instances[step.instance].inputs[tensor])
    for producer in schedule.instances.producers[step.instance]:
        made = instances[producer].outputs
        size = volume(meet(as_region(made[tensor]), need)) if tensor in made else 0
        if not size:
            continue
        brought = moved.get((producer, tensor))
        if (producer, tensor) not in replay.where:
            _check_handed_over(replays, producer, tensor)
            scope = Scope.DDR
        elif brought is None:
            scope = replay.read(replay.where[producer, tensor], (producer, tensor), clock)
        else:
            scope = replay.read(brought, (step.instance, tensor), clock)
        if scope is not Scope.LB:
            size *= int(schedule.problem.arrays.element[tensor])
            row[IN_GB if scope is Scope.GB else IN_DDR] += size


def check_work(schedule: Schedule, step: Step) -> None:
    """The busiest core's work, times the cores at work, is no less than a kernel's work."""
    problem, template = schedule.problem, step.template
    instance = schedule.instances.instances[step.instance]
    outputs = {t: as_region(r) for t, r in instance.outputs.items()}
    regions, boxes = needed_regions(problem, template.layers, outputs)
    loose = _loose_operators(problem, template.layers, regions, boxes)
    for position, layer in enumerate(template.layers):
        busy = cores_used(template.bindings[position])
        row = template.stages[position]
        macs = vector = special = 0.0
        for index in sorted(set(problem.layers[layer].operators) - loose):
            operator, box = problem.graph.operators[index], boxes.get(index, ((0, 0),))
            points = volume(box)
            shown = volume(
                tuple(i for a, i in zip(operator.axes, box, strict=False) if a.kind.value in _SHOWN)
            )
            code = problem.work.engine[index]
            macs += points * operator.work.macs if code == MATRIX else 0
            vector += points * operator.work.macs if code == VECTOR else 0
            if points:
                vector += shown * operator.work.vector + points * operator.work.vector_per_point
                special += shown * operator.work.special
        assert row[Stage.MACS] * busy >= macs
        assert row[Stage.VECTOR] * busy >= vector * (1 - 1e-9)
        assert row[Stage.SPECIAL] * busy >= special * (1 - 1e-9)
        product = row[Stage.COUNT] * row[Stage.ROWS] * row[Stage.COLUMNS] * row[Stage.DEPTH]
        assert product == row[Stage.MACS] or not row[Stage.MACS]


_SHOWN = ("parallel", "whole")


def _loose_operators(
    problem: Problem,
    layers: Sequence[int],
    regions: Regions,
    boxes: Mapping[int, tuple[Interval, ...]],
) -> set[int]:
    """Operators inside a layer whose region is larger than any single reader's.

    The rows 0 and 2 of a tensor, read by the two operands of one concatenation, have row 1 in
    their hull; a core that makes only one of them repeats nothing. Neither does one that makes
    every other channel for a shuffle.
    """  # fmt: skip
    loose: set[int] = set()
    for layer in layers:
        inside = problem.layers[layer].operators
        for index in reversed(inside):
            for tensor in problem.graph.operators[index].outputs:
                readers = [r for r in problem.graph.consumers[tensor] if r in inside and r in boxes]
                slots = [
                    problem.graph.operators[r].input_region(
                        p, boxes[r], problem.graph.tensors[tensor].shape
                    )
                    for r in readers
                    for p, t in enumerate(problem.graph.operators[r].inputs)
                    if t == tensor
                ]
                moves = {problem.graph.operators[r].engine.value for r in readers}
                scattered = moves & {"move", "none"} or any(r != regions[tensor] for r in slots)
                if loose & set(readers) or scattered:
                    loose.add(index)
    return loose


def check_instructions(schedule: Schedule, step: Step) -> None:
    """A kernel's program does all the work of its template and moves all of its streams."""
    program = schedule.instructions(step)
    where, amounts = program.where, program.amounts
    stages, streams = step.template.stages, step.streams
    engine, layer = where[:, Column.ENGINE], where[:, Column.LAYER]
    assert set(engine.tolist()) <= set(range(len(ENGINES)))
    assert (amounts >= 0).all()
    assert np.isfinite(amounts).all()
    waits = where[:, Column.AFTER :]
    assert (waits >= -1).all()
    assert (waits < np.arange(len(where))[:, None]).all()
    for position in range(len(stages)):
        mine = layer == position
        _check_tiles(where, mine, matrix=bool(stages[position, Stage.MACS] > 0))
        product = amounts[mine][:, [Amount.COUNT, Amount.ROWS, Amount.COLUMNS, Amount.DEPTH]]
        close(
            product.prod(axis=1)[engine[mine] == MATRIX_ENGINE].sum(), stages[position, Stage.MACS]
        )
        close(amounts[mine, Amount.VECTOR].sum(), stages[position, Stage.VECTOR])
        close(amounts[mine, Amount.SPECIAL].sum(), stages[position, Stage.SPECIAL])
        stored = amounts[mine & (engine == DMA_OUT), Amount.DDR].sum()
        close(stored, streams[position, OUT_DDR])
        loaded = amounts[mine & (engine == DMA_IN), Amount.DDR].sum()
        weights = 0.0 if step.weights_resident else float(stages[position, Stage.WEIGHTS])
        read = streams[position, IN_DDR] + streams[position, LATE_DDR] + weights
        assert loaded >= read * (1 - 1e-9)
        if schedule.rules.has_gb:
            passed = amounts[mine & (engine == TRANSFER), Amount.GB].sum()
            assert passed >= streams[position].sum() * (1 - 1e-9)
    _check_dependences(schedule, step, program)


def _check_tiles(where: np.ndarray, mine: np.ndarray, *, matrix: bool) -> None:
    """Every tile of a layer is computed once on the engine that its work is on."""
    engine = MATRIX_ENGINE if matrix else VECTOR_ENGINE
    tiles = where[mine & (where[:, Column.ENGINE] == engine), Column.TILE].tolist()
    assert tiles == list(range(len(tiles)))
    assert tiles


def _check_dependences(schedule: Schedule, step: Step, program: Instructions) -> None:
    """Whatever computes a layer comes after all that computes the layers it reads.

    "After" is by waiting, directly or through others, or by standing later on the same engine.
    """
    problem, where = schedule.problem, program.where
    done = _latest_done(where)
    computes = (where[:, Column.ENGINE] == MATRIX_ENGINE) | (
        where[:, Column.ENGINE] == VECTOR_ENGINE
    )
    stores = (where[:, Column.ENGINE] == DMA_OUT) | (where[:, Column.ENGINE] == TRANSFER)
    position = {layer: at for at, layer in enumerate(step.template.layers)}
    for layer, at in position.items():
        readers = np.flatnonzero(computes & (where[:, Column.LAYER] == at))
        for tensor in problem.layers[layer].inputs:
            before = position.get(problem.producer[tensor], -1)
            if before < 0:
                continue
            late = step.streams[at, LATE_GB] + step.streams[at, LATE_DDR] > 0
            last = computes | stores if late else computes
            for index in np.flatnonzero(last & (where[:, Column.LAYER] == before)).tolist():
                assert (done[readers, where[index, Column.ENGINE]] >= index).all()


def _latest_done(where: np.ndarray) -> np.ndarray:
    """Per instruction and engine, the last instruction that has ended before it starts."""
    done = np.full((len(where), len(ENGINES)), -1, np.int64)
    previous = [-1] * len(ENGINES)
    for index, row in enumerate(where.tolist()):
        engine = row[Column.ENGINE]
        for before in (previous[engine], *(w for w in row[Column.AFTER :] if w >= 0)):
            if before >= 0:
                np.maximum(done[index], done[before], out=done[index])
                other = where[before, Column.ENGINE]
                done[index, other] = max(done[index, other], before)
        previous[engine] = index
    return done


def check_bound(schedule: Schedule) -> None:
    """No schedule is faster or moves less than what the model and the target allow."""
    measured = simulate(schedule)
    bound, share = measured.bound, schedule.share
    assert measured.latency >= max(bound.matrix_s, bound.vector_s) * (1 - 1e-9)
    moved = least_traffic(schedule) * share.loops * share.copies
    assert measured.ddr_bytes >= moved * (1 - 1e-6) - 1
    assert measured.latency >= moved / schedule.problem.target.ddr.bandwidth * (1 - 1e-9)
    assert measured.kernels == max(len(t.order) for t in schedule.timelines) * share.loops
    assert all(seconds >= 0 for seconds in measured.busy.values())
    longest = max(measured.busy.values())
    assert measured.latency >= longest * (1 - 1e-9)


def least_traffic(schedule: Schedule) -> int:
    """Bytes of DDR that one pass cannot avoid, of one cluster where clusters work alike.

    Outputs, and of inputs and weights what their largest reader touches: a pooling may leave out
    the last row, a lookup most of its table.
    """
    problem = schedule.problem
    graph, element = problem.graph, problem.arrays.element
    total = sum(graph.tensors[t].elements * int(element[t]) for t in set(graph.outputs))
    whole = {t: graph.tensors[t].whole for t in graph.outputs}
    regions, boxes = needed_regions(problem, [x.index for x in problem.layers], whole)
    touched: dict[int, int] = {}
    for index, box in boxes.items():
        operator = graph.operators[index]
        written = sum(volume(regions[t]) for t in operator.outputs if t in regions)
        for position, tensor in enumerate(operator.inputs):
            if graph.producer[tensor] < 0:
                size = volume(operator.input_region(position, box, graph.tensors[tensor].shape))
                moves = operator.engine.value in ("move", "none")
                touched[tensor] = max(touched.get(tensor, 0), min(size, written) if moves else size)
    return total + sum(size * int(element[tensor]) for tensor, size in touched.items())
