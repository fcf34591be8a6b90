"""GraphTurbo's own examples (OSDI '23), figure by figure."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest

from autoturbo.graph.operators import Engine
from autoturbo.schedule.codegen.instructions import ENGINES, Column
from autoturbo.schedule.context import make_context
from autoturbo.schedule.knobs import Knobs
from autoturbo.schedule.partition.boxes import box_regions
from autoturbo.schedule.partition.grouping import GroupRules, Merging, SubGraph
from autoturbo.schedule.partition.split import Split, SplitRules, best_split
from autoturbo.schedule.pipeline import ModelScheduler, assemble, build_schedule
from autoturbo.schedule.place.bind import Placement, Scope
from autoturbo.schedule.place.instances import PartBook, make_instances
from autoturbo.schedule.stitch.templates import stitch
from tests.schedule.concats import Concat, MovementKind, concatenations, concats
from tests.schedule.schedule_checks import check_schedule
from tests.schedule.schedule_samples import STCP920, Net, capacity, scheduler_of, target
from tests.schedule.steps import instance_of, names_of, program_of, steps_of

if TYPE_CHECKING:
    from autoturbo.schedule.codegen.instructions import Instructions
    from autoturbo.schedule.schedule import Schedule


# Section 3.1, Algorithm 1


def test_candidates_are_one_two_four_eight_nine_and_on() -> None:
    """A footprint of that many local buffers; below 8 only what leaves 8, 4, 2 cores to others."""
    samples = 2 * 3 * 4 * 5 * 7 * 9 * 11
    net = Net(x=(samples, 1, 1, 1))
    net.conv("x", 1, 1)
    found = {}
    for rooms in range(2, 12):
        machine = target(cores=1, lb=capacity(-(-2 * samples * 2 // rooms)))
        context = make_context(net.graph(), machine, "float16")
        found[rooms] = best_split(context, (0,), SplitRules()).factor
    assert found == {2: 2, 3: 4, 4: 4, 5: 8, 6: 8, 7: 8, 8: 8, 9: 9, 10: 10, 11: 11}


@pytest.mark.parametrize(
    ("key", "depth", "factor"), [("operators-factor-depth", 0, 3), ("factor-operators-depth", 3, 2)]
)
def test_the_best_split_cuts_most_operators_before_it_has_fewest_parts(
    key: str, depth: int, factor: int
) -> None:
    """Equation 1: three parts along the samples cut both operators, two along channels one."""
    net = Net(x=(9, 4, 1, 1))
    net.conv(net.relu("x"), 16, 1)
    context = make_context(net.graph(), target(cores=1, lb=capacity(220)), "float16")
    rules = SplitRules(split_key=key, factor_policy="divisors", recompute_limit=4.0)
    split = best_split(context, (0,), rules)
    assert (split.depth, split.factor) == (depth, factor)


# Section 3.2, Algorithm 2, Fig. 4 and 5


def bottleneck(net: Net, x: str, channels: int) -> str:
    inner = net.relu(net.conv(net.relu(net.conv(x, channels, 1)), channels))
    return net.conv(inner, 4 * channels, 1)


def two_blocks() -> Net:
    """A block with a convolution on its shortcut and an identity block."""
    net = Net(x=(2, 8, 8, 8))
    first = net.relu(net.sum(bottleneck(net, "x", 4), net.conv("x", 16, 1)))
    net.relu(net.sum(bottleneck(net, first, 4), first))
    return net


def test_merges_of_the_example_step_by_step() -> None:
    """Straight merges give 1 to 5, branch merges {2, 3} and {4, 5}, then all become one."""
    context = make_context(two_blocks().graph(), target(lb=1 << 20), "float16")
    merger = Merging(context, GroupRules())

    def now() -> list[list[str]]:
        sets = [node.layers for _, node in sorted(merger.nodes.items())]
        return [[context.layers[x].name for x in layers] for layers in sets]

    three, shortcut, second = ["conv0", "conv1", "conv2"], ["conv3"], ["conv4", "conv5", "conv6"]
    assert merger.merge("straight") == 4
    assert now() == [three, shortcut, ["relu2"], second, ["relu5"]]
    assert merger.merge("diamond") == 0
    assert merger.merge("branch") == 2
    assert now() == [three, [*shortcut, "relu2"], [*second, "relu5"]]
    assert merger.merge("straight") == 2
    assert now() == [[*three, *shortcut, "relu2", *second, "relu5"]]
    assert (merger.merge("straight"), merger.merge("diamond"), merger.merge("branch")) == (0, 0, 0)


def test_a_diamond_leaves_its_entry_out() -> None:
    """Fig. 4: {SG2, SG3, SG4} are fused in one step, SG1 is not among them."""
    net = Net(x=(2, 4, 8, 8))
    entry = net.conv("x", 4)
    net.sum(net.conv(entry, 4), net.conv(entry, 4))
    context = make_context(net.graph(), target(lb=1 << 20), "float16")
    merger = Merging(context, GroupRules())
    assert (merger.merge("straight"), merger.merge("diamond")) == (0, 1)
    assert sorted(n.layers for n in merger.nodes.values()) == [(0,), (1, 2, 3)]


# Section 3.3, Fig. 6 and 7


def label(schedule: Schedule, index: int) -> str:
    """The paper's name: a letter per sub-graph, parts from 1."""
    instance = instance_of(schedule.instances, index)
    return "abcd"[instance.subgraph] + str(instance.part + 1)


def test_every_edge_of_figure_6() -> None:
    schedule = build_schedule(scheduler_of("resnet50"), Knobs())
    edges = {
        f"{label(schedule, before)}-{label(schedule, after)}"
        for after, made_by in enumerate(schedule.instances.producers)
        for before in made_by
    }
    assert edges == {
        "a1-b1", "a2-b1", "a3-b2", "a4-b2", "a5-b3", "a6-b3", "a7-b4", "a8-b4",
        "b1-c1", "b2-c1", "b3-c2", "b4-c2", "c1-d1", "c2-d1",
    }  # fmt: skip


def test_the_order_of_figure_7f_on_the_network_itself() -> None:
    """It needs less memory than breadth-first, so it is chosen."""
    schedule = build_schedule(scheduler_of("resnet50"), Knobs())
    order = " ".join(label(schedule, index) for index in schedule.order)
    assert order == "a8 a7 b4 a6 a5 b3 c2 a4 a3 b2 a2 a1 b1 c1 d1"


# Section 3.5, Fig. 8 and 9


def figure_9() -> Concat:
    """Two operands [2, 28, 28, 512]: one in GB bound 2 x 2, one in LB bound 2 x 4 (NCHW here)."""
    net = Net(x=(4, 512, 28, 28))
    net.conv(net.conv("x", 512, 1), 512, 1)
    context = make_context(net.graph(), STCP920, "float16")
    subgraphs = (SubGraph(0, (0,), Split(0, 2, 0, 0, 0)), SubGraph(1, (1,), Split(-1, 1, 0, 0, 0)))
    graph = make_instances(PartBook(context), subgraphs)
    output = (4, 1, 2, 1)
    template = stitch(context, (1,), box_regions(context, (1,)), output)
    placement = Placement(((2, 1, 2, 1), (2, 1, 4, 1), output), (Scope.GB, Scope.LB, Scope.LB))
    (concat,) = concatenations(graph, placement, 2, template)
    assert template.wanted[concat.tensor] == output
    return concat


def test_the_movements_of_figure_9() -> None:
    """The operand in GB is copied to LB, the one with other cores redistributed, then all is 4 x 2.

    In the output each operand has two of the four samples, two cores each: bound 2 x 2, the smaller
    factors along each dimension, which is what the paper redistributes to.
    """
    first, second = figure_9().pieces
    operand = 2 * 28 * 28 * 512 * 2
    assert (first.movement, first.cluster_bytes) == (MovementKind.COPY, operand)
    assert (second.movement, second.cluster_bytes) == (MovementKind.REDISTRIBUTE, operand)
    assert tuple(map(min, (2, 2), (2, 4))) == (4 // 2, 2)


@pytest.mark.full
def test_what_crosses_in_figure_9() -> None:
    """A core gets half a sample, 14 of 28 rows; the four of the other operand had none of it."""
    concat = figure_9()
    half_a_sample = 14 * 28 * 512 * 2
    assert [piece.crossing_bytes for piece in concat.pieces] == [0, half_a_sample]
    assert concat.core_bytes == half_a_sample


def test_four_concatenations_before_b_two_before_c_one_before_d() -> None:
    schedule = build_schedule(scheduler_of("resnet50"), Knobs())
    joined = [
        label(schedule, step.instance)[0]
        for step in steps_of(schedule.timeline)
        for concat in concats(schedule.timeline, step.instance)
        if len(concat.pieces) > 1
    ]
    assert sorted(joined) == list("bbbbccd")


# Sections 4.1 and 4.2


def test_every_instance_is_one_kernel() -> None:
    schedule = build_schedule(scheduler_of("resnet50"), Knobs())
    assert [label(schedule, s.instance) for s in steps_of(schedule.timeline)] == [
        label(schedule, index) for index in schedule.order
    ]
    assert len(steps_of(schedule.timeline)) == 8 + 4 + 2 + 1


def test_b3_is_one_kernel_of_38_operators_and_13_convolutions() -> None:
    """Counted as the compiler of the paper does: biases apart, a sum with its activation as one."""
    schedule = build_schedule(scheduler_of("resnet50"), Knobs())
    context = schedule.context
    (b3,) = [s for s in steps_of(schedule.timeline) if label(schedule, s.instance) == "b3"]
    operators = [
        context.graph.operators[op]
        for x in b3.template.layers
        for op in context.layers[x].operators
    ]
    products = [o for o in operators if o.engine is Engine.MATRIX]
    kinds = [o.kind for o in operators]
    assert len(products) == kinds.count("Conv") == 13
    biases = sum(len(o.inputs) == 3 for o in products)
    sums = kinds.count("Add")
    assert (biases, sums, kinds.count("Relu")) == (13, 4, 12)
    assert len(operators) + biases - sums == 38


# Section 4.3, Fig. 12


def seven_tasks() -> Net:
    """The seventh task reads what the first, fifth and sixth made: four tensors with its own."""
    net = Net(x=(1, 4, 8, 8))
    made = [net.conv("x", 4)]
    for _ in range(5):
        made.append(net.conv(made[-1], 4))
    joined = net.add("Sum", [made[0], made[4], made[5]], net.shapes[made[0]])
    net.conv(net.conv(joined, 4), 4)
    return net


def spilled(tensors: float) -> dict[str, str]:
    """Where each output is kept if LB has room for so many tensors, all in one kernel."""
    size = 4 * 8 * 8 * 2
    machine = target(cores=1, lb=round(tensors * size * 16 / 15), gb=1 << 16)
    model_scheduler = ModelScheduler(seven_tasks().graph(), machine, "float16")
    context = model_scheduler.context(1)
    layers = tuple(layer.index for layer in context.layers)
    instances = make_instances(PartBook(context), (SubGraph(0, layers, Split(-1, 1, 0, 0, 0)),))
    placement = Placement(((1, 1, 1, 1),), (Scope.LB,))
    schedule = assemble(
        model_scheduler.model,
        context,
        "test",
        Knobs(),
        model_scheduler.share(),
        instances,
        (0,),
        placement,
    )
    check_schedule(schedule)
    names = [context.graph.tensors[n.tensor].name for n in names_of(schedule.timeline)]
    scopes = schedule.timeline.buffers.scope.tolist()
    return {name: Scope(scope).name for name, scope in zip(names, scopes, strict=True)}


def test_figure_12_spills_the_first_output() -> None:
    """Less than four tensors fit at the seventh task: the one that has lived longest goes to GB."""
    found = spilled(3.5)
    assert found.pop("conv0") == "GB"
    assert found.pop("conv7") == "DDR"
    assert set(found.values()) == {"LB"}


@pytest.mark.full
def test_with_room_for_four_nothing_is_spilled() -> None:
    assert spilled(4)["conv0"] == "LB"


# Section 4.4, Fig. 13


def slots(program: Instructions) -> dict[tuple[int, str], list[int]]:
    """Per layer and engine, the slots in which it works, one slot an instruction.

    Engines issue in order; an instruction waits for those that it names.
    """
    free, done = dict.fromkeys(ENGINES, 0), list[int]()
    found: dict[tuple[int, str], list[int]] = {}
    for row in program.where.tolist():
        engine = ENGINES[row[Column.ENGINE]]
        awaited = [done[before] for before in row[Column.AFTER :] if before >= 0]
        begin = max([free[engine], *awaited])
        found.setdefault((row[Column.LAYER], engine), []).append(begin)
        free[engine] = begin + 1
        done.append(begin + 1)
    return found


def beginnings(program: Instructions) -> dict[tuple[int, str], int]:
    """The first of the slots."""
    return {where: begins[0] for where, begins in slots(program).items()}


def products(count: int, scheduling: str) -> dict[tuple[int, str], int]:
    """A kernel of small products by weights, each one tile."""
    net = Net(x=(64, 32))
    at = "x"
    for _ in range(count):
        at = net.linear(at, 32)
    model_scheduler = ModelScheduler(net.graph(), target(cores=1, lb=1 << 20), "float16")
    schedule = build_schedule(model_scheduler, Knobs(instruction_scheduling=scheduling))
    (step,) = steps_of(schedule.timeline)
    return beginnings(program_of(schedule, step))


def test_figure_13_is_a_staircase() -> None:
    """While a layer computes, the next one's tile is hoisted and the one's after that fetched.

    The paper's dispatching, from LB to the unit's own buffers, is part of compute here.
    """
    begin = products(5, "auto")
    for layer in range(1, 4):
        compute = begin[layer, "matrix"]
        assert begin[layer + 1, "matrix"] == compute + 1
        assert begin[layer + 1, "transfer"] <= compute
        assert begin[layer + 1, "dma_in"] < begin[layer + 1, "transfer"]
        if layer < 3:
            assert begin[layer + 2, "dma_in"] <= compute


def test_without_instruction_scheduling_nothing_runs_under_another_layers_compute() -> None:
    begin = products(5, "off")
    for before, after in itertools.pairwise(range(5)):
        assert begin[after, "dma_in"] > begin[before, "matrix"]
        assert begin[after, "dma_in"] < begin[after, "transfer"] < begin[after, "matrix"]


@pytest.mark.full
def test_the_next_layers_weights_come_under_the_compute_of_a_real_kernel() -> None:
    """In b3 every convolution's first weights are asked for before the one before it has ended."""
    schedule = build_schedule(scheduler_of("resnet50"), Knobs())
    (b3,) = [s for s in steps_of(schedule.timeline) if label(schedule, s.instance) == "b3"]
    found = slots(program_of(schedule, b3))
    layers = sorted({layer for layer, engine in found if engine == "matrix"})
    for before, after in itertools.pairwise(layers):
        fetched, hoisted = found[after, "dma_in"][0], found[after, "transfer"][0]
        assert fetched < hoisted < found[after, "matrix"][0]
        assert fetched <= found[before, "matrix"][-1]
