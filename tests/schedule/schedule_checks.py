"""What must hold for every schedule whatever the model, the target and the knobs.

Regions, links, order and memory are the product's own checks; everything else is recomputed here
from the graph's access maps and the decisions that the schedule file holds, on Python objects and
without the scheduler's compiled code.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from autoturbo.graph.domain import Interval, Region, volume
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
from autoturbo.schedule.codegen.tiling import BY_TILES, Amount
from autoturbo.schedule.place.bind import cores_used
from autoturbo.schedule.stitch.stages import Stage
from autoturbo.schedule.streams import IN_DDR, LATE_DDR, LATE_GB, OUT_DDR, ROOM
from autoturbo.schedule.work import MATRIX, VECTOR
from autoturbo.simulator.sequence import simulate
from autoturbo.verifier.memory import check_memory
from autoturbo.verifier.regions import Regions, check_regions, needs_of, part_needs
from tests.schedule.cluster_checks import all_steps, check_clusters, check_latency, close
from tests.schedule.steps import Step, instance_of, instances_of, program_of, rules_at

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from autoturbo.schedule.context import SchedulingContext
    from autoturbo.schedule.schedule import Schedule


def check_schedule(schedule: Schedule) -> None:
    """Every check of this module."""
    assert check_regions(schedule) == ()
    assert check_memory(schedule) == ()
    check_subgraphs(schedule)
    check_halos(schedule)
    check_bindings(schedule)
    check_clusters(schedule)
    for step in all_steps(schedule):
        check_work(schedule, step)
        check_instructions(schedule, step)
    check_bound(schedule)
    check_latency(schedule)


def as_region(array: np.ndarray) -> Region:
    return tuple((int(low), int(high)) for low, high in array)


def check_subgraphs(schedule: Schedule) -> None:
    """Layers in topological order; what is opaque runs alone; as many parts as the split says."""
    context = schedule.context
    for subgraph in schedule.instances.subgraphs:
        assert list(subgraph.layers) == sorted(subgraph.layers)
        opaque = [
            op for x in subgraph.layers for op in context.layers[x].operators
            if context.graph.operators[op].opaque
        ]  # fmt: skip
        assert not opaque or len(subgraph.layers) == 1
        parts = [i.part for i in instances_of(schedule.instances) if i.subgraph == subgraph.index]
        assert parts == list(range(subgraph.split.instances))


def check_halos(schedule: Schedule) -> None:
    """No part reads more than its outputs need."""
    for instance, needs in zip(instances_of(schedule.instances), needs_of(schedule), strict=True):
        for tensor, array in instance.inputs.items():
            need = as_region(array)
            assert needs[tensor] == need if tensor in needs else not (need and volume(need))


def check_bindings(schedule: Schedule) -> None:
    """No instance and no layer of a kernel is spread over more cores than there are."""
    cores = schedule.context.target.cores
    for instance, binding in zip(
        instances_of(schedule.instances), schedule.placement.bindings, strict=True
    ):
        assert len(binding) == len(next(iter(instance.outputs.values())))
        assert 1 <= cores_used(binding) <= cores
    for step in all_steps(schedule):
        assert step.template.binding == schedule.placement.bindings[step.instance]
        assert all(1 <= cores_used(b) <= cores for b in step.template.bindings)


def check_work(schedule: Schedule, step: Step) -> None:
    """The busiest core's work, times the cores at work, is no less than a kernel's work."""
    context, template = schedule.context, step.template
    instance = instance_of(schedule.instances, step.instance)
    outputs = {t: as_region(r) for t, r in instance.outputs.items()}
    needs = part_needs(context, template.layers, outputs)
    regions, boxes = needs.regions, needs.boxes
    loose = _loose_operators(context, template.layers, regions, boxes)
    for position, layer in enumerate(template.layers):
        row = template.stages[position]
        busy = cores_used(template.bindings[position])
        if not row[Stage.MACS]:  # cores that have no part of the result reduce a part of a whole
            operators = list(context.layers[layer].operators)
            busy = max(busy, int(context.work.sharing[operators].max()))
        macs = vector = special = 0.0
        for index in sorted(set(context.layers[layer].operators) - loose):
            operator, box = context.graph.operators[index], boxes.get(index, ((0, 0),))
            points = volume(box)
            shown = volume(
                tuple(i for a, i in zip(operator.axes, box, strict=False) if a.kind.value in _SHOWN)
            )
            made = [volume(regions[t]) for t in operator.outputs if t in regions]
            if made and not any(a.kind.value == "whole" for a in operator.axes):
                # three rows of an image twice as high are no whole number of rows of the image
                shown = min(shown, max(made))
            code = context.work.engine[index]
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
    context: SchedulingContext,
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
        inside = context.layers[layer].operators
        for index in reversed(inside):
            for tensor in context.graph.operators[index].outputs:
                readers = [r for r in context.graph.consumers[tensor] if r in inside and r in boxes]
                slots = [
                    context.graph.operators[r].input_region(
                        p, boxes[r], context.graph.tensors[tensor].shape
                    )
                    for r in readers
                    for p, t in enumerate(context.graph.operators[r].inputs)
                    if t == tensor
                ]
                moves = {context.graph.operators[r].engine.value for r in readers}
                scattered = moves & {"move", "none"} or any(r != regions[tensor] for r in slots)
                if loose & set(readers) or scattered:
                    loose.add(index)
    return loose


def check_instructions(schedule: Schedule, step: Step) -> None:
    """A kernel's program does all the work of its template and moves all of its streams."""
    program = program_of(schedule, step)
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
            assert passed >= streams[position, :ROOM].sum() * (1 - 1e-9)
    check_dependences(schedule, step, program)


def _check_tiles(where: np.ndarray, mine: np.ndarray, *, matrix: bool) -> None:
    """Every tile of a layer is computed once on the engine that its work is on."""
    engine = MATRIX_ENGINE if matrix else VECTOR_ENGINE
    tiles = where[mine & (where[:, Column.ENGINE] == engine), Column.TILE].tolist()
    assert tiles == list(range(len(tiles)))
    assert tiles


def check_dependences(schedule: Schedule, step: Step, program: Instructions) -> None:
    """Whatever computes a layer comes after all that computes the layers it reads.

    "After" is by waiting, directly or through others, or by standing later on the same engine.
    Tiles that wait for tiles, the memory check looks at.
    """
    if rules_at(schedule, step).across == BY_TILES:
        return
    context, where = schedule.context, program.where
    done = _latest_done(where)
    computes = (where[:, Column.ENGINE] == MATRIX_ENGINE) | (
        where[:, Column.ENGINE] == VECTOR_ENGINE
    )
    stores = (where[:, Column.ENGINE] == DMA_OUT) | (where[:, Column.ENGINE] == TRANSFER)
    position = {layer: at for at, layer in enumerate(step.template.layers)}
    for layer, at in position.items():
        readers = np.flatnonzero(computes & (where[:, Column.LAYER] == at))
        for tensor in context.layers[layer].inputs:
            before = position.get(context.producer[tensor], -1)
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
    assert measured.latency >= moved / schedule.context.target.ddr.bandwidth * (1 - 1e-9)
    launches = max(int(schedule.opens(c).sum()) for c in range(len(schedule.timelines)))
    assert measured.kernels == launches * share.loops
    assert all(seconds >= 0 for seconds in measured.busy.values())
    longest = max(measured.busy.values())
    assert measured.latency >= longest * (1 - 1e-9)


def least_traffic(schedule: Schedule) -> int:
    """Bytes of DDR that one pass cannot avoid, of one cluster where clusters work alike.

    Outputs, and of inputs and weights what their largest reader touches: a pooling may leave out
    the last row, a lookup most of its table.
    """
    context = schedule.context
    graph, element = context.graph, context.arrays.element
    total = sum(graph.tensors[t].elements * int(element[t]) for t in set(graph.outputs))
    whole = {t: graph.tensors[t].whole for t in graph.outputs}
    needs = part_needs(context, [x.index for x in context.layers], whole)
    regions, boxes = needs.regions, needs.boxes
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
