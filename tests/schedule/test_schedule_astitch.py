"""AStitch: stitch operators, dominants, tile loops and schemes of small graphs, by hand."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from autoturbo.baselines.astitch import kernels_of
from autoturbo.baselines.astitch_loops import (
    OperatorClass,
    Plan,
    dominant_groups,
    operator_class,
    plan_of,
)
from autoturbo.baselines.astitch_loops import candidates as dominant_candidates
from autoturbo.baselines.astitch_operators import Contraction, is_memory_intensive, stitch_ops
from autoturbo.graph.operators import Graph
from autoturbo.hardware import Target
from autoturbo.schedule.by_name import candidates
from autoturbo.schedule.pipeline import ModelScheduler
from autoturbo.schedule.place.bind import Scope
from autoturbo.schedule.schedule import Schedule
from autoturbo.simulator.sequence import simulate
from tests.schedule.schedule_checks import check_schedule
from tests.schedule.schedule_samples import STCP920, Net, chain, networks, scheduler_of, target
from tests.schedule.steps import names_of, steps_of

Names = list[str]


def softmax(net: Net, x: str) -> str:
    """A softmax of the last dimension written out."""
    shape = net.shapes[x]
    reduced = (*shape[:-1], 1)
    top = net.add("ReduceMax", [x], reduced, axes=[-1], keepdims=1)
    powers = net.add("Exp", [net.sum(x, top, "Sub")], shape)
    total = net.add("ReduceSum", [powers, net.ints(-1)], reduced, keepdims=1)
    return net.sum(powers, total, "Div")


def layer_norm(net: Net, x: str) -> str:
    """A layer normalisation of the last dimension written out."""
    last = net.shapes[x][-1]
    centred = net.sum(x, net.mean(x), "Sub")
    variance = net.mean(net.sum(centred, centred, "Mul"))
    deviation = net.add("Sqrt", [net.sum(variance, net.weight(1))], net.shapes[variance])
    scaled = net.sum(net.sum(centred, deviation, "Div"), net.weight(last), "Mul")
    return net.sum(scaled, net.weight(last))


def named(graph: Graph, groups: list[list[int]]) -> list[Names]:
    return [[graph.operators[i].name for i in group] for group in groups]


def plan(graph: Graph, machine: Target = STCP920) -> Plan:
    return plan_of(graph, machine, "float16")


def layers(found: Plan) -> list[Names]:
    return named(found.context.graph, [list(x.operators) for x in found.context.layers])


def kernels(found: Plan) -> list[list[Names]]:
    names = layers(found)
    return [[names[layer] for layer in kernel] for kernel in kernels_of(found)]


def only(graph: Graph, machine: Target) -> Schedule:
    schedule = next(candidates("astitch", ModelScheduler(graph, machine, "float16")))
    check_schedule(schedule)
    return schedule


# ------------------------------------------------------------------------------- stitch operators


def test_products_are_boundaries() -> None:
    net = Net(x=(2, 8))
    net.relu(net.linear(net.relu(net.relu("x")), 4))
    graph = net.graph()
    assert named(graph, stitch_ops(graph)) == [["relu0", "relu1"], ["matmul0"], ["relu2"]]


def test_a_softmax_and_a_layer_norm_are_one_stitch_operator_each() -> None:
    for build, count in ((softmax, 5), (layer_norm, 9)):
        net = Net(x=(16, 8))
        build(net, "x")
        assert [len(members) for members in stitch_ops(net.graph())] == [count]


@pytest.mark.full
def test_pooling_and_depthwise_convolutions_are_boundaries() -> None:
    net = Net(x=(1, 4, 8, 8))
    net.pool(net.conv("x", 4, group=4))
    graph = net.graph()
    assert [is_memory_intensive(op) for op in graph.operators] == [False, False]


def test_remote_stitching_of_two_independent_branches() -> None:
    net = Net(x=(2, 8), y=(2, 8))
    net.relu("x")
    net.add("Sigmoid", ["y"], (2, 8))
    graph = net.graph()
    assert named(graph, stitch_ops(graph)) == [["relu0", "sigmoid0"]]


@pytest.mark.full
def test_remote_stitching_of_branches_between_products() -> None:
    """Level by level: what is before the products, what is after them."""
    net = Net(x=(2, 8), y=(2, 8))
    net.relu(net.linear(net.relu("x"), 8))
    net.relu(net.linear(net.relu("y"), 8))
    graph = net.graph()
    assert named(graph, stitch_ops(graph)) == [
        ["relu0", "relu2"], ["matmul0"], ["matmul1"], ["relu1", "relu3"],
    ]  # fmt: skip


def test_a_skip_connection_is_not_stitched_over_the_product_inside() -> None:
    """The sum reads the ReLU directly, but the product stands between them."""
    net = Net(x=(2, 8))
    first = net.relu("x")
    net.sum(net.linear(first, 8), first)
    graph = net.graph()
    assert named(graph, stitch_ops(graph)) == [["relu0"], ["matmul0"], ["add0"]]


@pytest.mark.full
def test_a_skip_connection_over_nothing_that_needs_it_is_stitched() -> None:
    net = Net(x=(2, 8), y=(2, 8))
    net.sum(net.linear("y", 8), net.relu("x"))
    graph = net.graph()
    assert named(graph, stitch_ops(graph)) == [["matmul0"], ["relu0", "add0"]]


def test_joining_is_refused_where_an_earlier_one_would_close_a_cycle() -> None:
    """a -> product -> b and c -> product -> d: with a and d joined, c and b cannot be.

    Each pair alone is independent, so it is the first that makes the second a cycle.
    """
    net = Net(x=(2, 8), y=(2, 8))
    net.relu(net.linear(net.relu("x"), 8))
    net.relu(net.linear(net.relu("y"), 8))
    graph = net.graph()
    a, _, b, c, _, d = range(6)
    assert Contraction(graph).join(c, b)
    contraction = Contraction(graph)
    assert contraction.join(a, d)
    assert not contraction.join(c, b)
    assert len(contraction.in_order()) == 5


@settings(max_examples=12, deadline=None)
@given(graph=networks(most=12))
def test_stitch_operators_are_a_partition_that_can_run_and_cannot_grow(graph: Graph) -> None:
    members = stitch_ops(graph)
    assert sorted(i for found in members for i in found) == list(range(len(graph.operators)))
    contraction = Contraction(graph)
    for first, *rest in members:
        assert all(contraction.join(first, other) for other in rest)
    assert len(contraction.in_order()) == len(members)
    position = {i: at for at, found in enumerate(members) for i in found}
    for index, operator in enumerate(graph.operators):
        made_by = {graph.producer[t] for t in operator.inputs} - {-1}
        assert all(position[p] <= position[index] for p in made_by)
    stitched = [f for f in members if is_memory_intensive(graph.operators[f[0]])]
    for at, later in enumerate(stitched):
        for earlier in stitched[:at]:
            assert not contraction.join(earlier[0], later[0])


# ---------------------------------------------------------------------------------------- dominants


def classes(graph: Graph) -> list[str]:
    return [operator_class(graph, i).value for i in range(len(graph.operators))]


def test_classes_of_a_softmax() -> None:
    net = Net(x=(16, 8))
    softmax(net, "x")
    assert classes(net.graph()) == ["reduce", "broadcast", "heavy", "reduce", "broadcast"]


@pytest.mark.full
def test_classes_of_whole_operators() -> None:
    net = Net(x=(16, 8))
    net.relu(net.norm(net.softmax("x")))
    wanted = [OperatorClass.REDUCE, OperatorClass.REDUCE, OperatorClass.LIGHT]
    assert classes(net.graph()) == wanted


@pytest.mark.full
def test_a_constant_operand_is_no_broadcast() -> None:
    net = Net(x=(16, 8))
    net.sum("x", net.weight(8))
    assert classes(net.graph()) == ["light"]


def test_dominants_of_a_softmax() -> None:
    """The maximum by itself; the sum and the division share the exponential, so they merge."""
    net = Net(x=(16, 8))
    softmax(net, "x")
    graph = net.graph()
    assert named(graph, [dominant_candidates(graph, range(5))]) == [
        ["reducemax0", "reducesum0", "div0"]
    ]
    first, second = dominant_groups(graph, range(5))
    assert named(graph, [[first.dominant], [*first.operators]]) == [["reducemax0"], ["reducemax0"]]
    assert (graph.operators[second.dominant].name, len(second.operators)) == ("reducesum0", 4)
    assert named(graph, [list(second.others)]) == [["div0"]]


@pytest.mark.full
def test_dominants_of_a_layer_norm() -> None:
    """The root is heavy and broadcast afterwards, so it is kept for all elements of its row."""
    net = Net(x=(16, 8))
    layer_norm(net, "x")
    graph = net.graph()
    groups = dominant_groups(graph, range(len(graph.operators)))
    assert sorted(named(graph, [list(g.operators) for g in groups])) == [
        ["add0", "sqrt0"],
        ["reducemean0"],
        ["sub0", "mul0", "reducemean1", "div0", "mul1", "add1"],
    ]
    dominants = {graph.operators[g.dominant].name for g in groups}
    assert dominants == {"sqrt0", "reducemean0", "reducemean1"}


@pytest.mark.full
def test_a_heavy_operator_without_broadcast_is_local() -> None:
    net = Net(x=(16, 8))
    net.relu(net.add("Tanh", ["x"], (16, 8)))
    graph = net.graph()
    assert named(graph, [dominant_candidates(graph, range(2))]) == [["relu0"]]


# ------------------------------------------------------------------------- tile loops and kernels


def test_a_softmax_is_one_kernel_of_two_tile_loops() -> None:
    """All but the maximum is Local to the second loop; the maximum is Regional."""
    net = Net(x=(16, 8))
    softmax(net, "x")
    found = plan(net.graph())
    assert layers(found) == [["reducemax0"], ["sub0", "exp0", "reducesum0", "div0"]]
    assert len(kernels(found)) == 1


@pytest.mark.full
def test_a_layer_norm_is_one_kernel() -> None:
    net = Net(x=(16, 8))
    layer_norm(net, "x")
    (kernel,) = kernels(plan(net.graph()))
    assert kernel == [
        ["reducemean0"], ["sub0"], ["mul0", "reducemean1"], ["add0", "sqrt0"],
        ["div0", "mul1", "add1"],
    ]  # fmt: skip


def test_a_reduction_over_the_dimension_on_the_cores_leaves_the_loop_and_is_global() -> None:
    """Columns are averaged, rows are spread: every core would need all rows of the ReLU.

    The mean has a loop of its own over columns, its input is wanted by rows and by columns, and
    lies in GB behind the end of a kernel.
    """
    net = Net(x=(16, 8))
    net.sum(first := net.relu("x"), net.mean(first, axis=0), "Sub")
    found = plan(net.graph())
    assert layers(found) == [["relu0"], ["reducemean0"], ["sub0"]]
    assert kernels(found)[0] == [["relu0"]]
    schedule = only(net.graph(), target(cores=8, lb=1 << 14))
    assert schedule.placement.scopes[0] is Scope.GB


@pytest.mark.full
def test_few_rows_leave_the_loop() -> None:
    """Two rows on four cores: half a row each, so the sum is no longer one core's."""
    net = Net(x=(2, 8))
    softmax(net, "x")
    found = plan(net.graph(), target(cores=4))
    assert layers(found) == [["reducemax0"], ["sub0", "exp0"], ["reducesum0"], ["div0"]]


def test_several_results_are_several_kernels_in_a_row() -> None:
    net = Net(x=(16, 8), y=(16, 8))
    net.linear(net.relu("x"), 8)
    net.linear(net.add("Sigmoid", ["y"], (16, 8)), 8)
    schedule = only(net.graph(), STCP920)
    names = [
        schedule.context.layers[step.template.layers[0]].name
        for step in steps_of(schedule.timeline)
    ]
    assert names == ["relu0", "sigmoid0", "matmul0", "matmul1"]


# ----------------------------------------------------------------------------------------- schemes


def scopes(schedule: Schedule) -> dict[str, str]:
    """Where the buffer of each layer's result is."""
    timeline, tensors = schedule.timeline, schedule.context.graph.tensors
    return {
        tensors[name.tensor].name: Scope(scope).name
        for name, scope in zip(names_of(timeline), timeline.buffers.scope.tolist(), strict=True)
        if name.kind == "tensor"
    }


def products_and_norm() -> Graph:
    net = Net(x=(16, 32))
    net.linear(layer_norm(net, net.linear("x", 64)), 8)
    return net.graph()


def test_everything_in_the_local_buffer_where_it_fits() -> None:
    found = scopes(only(products_and_norm(), target(cores=4, lb=1 << 16, gb=1 << 20)))
    assert found.pop("matmul1") == "DDR"
    assert set(found) >= {"matmul0", "reducemean0", "sub0", "reducemean1"}
    assert set(found.values()) == {"LB"}


def test_results_at_products_overflow_to_ddr_and_others_to_the_global_buffer() -> None:
    """A core's part has 512 bytes and finds no room in 480; the 8 bytes of a statistic do."""
    found = scopes(only(products_and_norm(), target(cores=4, lb=512, gb=1 << 20)))
    assert (found["matmul0"], found["sub0"], found["add1"]) == ("DDR", "GB", "DDR")
    assert (found["reducemean0"], found["reducemean1"]) == ("LB", "LB")


@pytest.mark.full
def test_without_room_in_the_global_buffer_global_is_ddr() -> None:
    found = scopes(only(products_and_norm(), target(cores=4, lb=512, gb=1 << 10)))
    assert found["sub0"] == "DDR"


def test_unsplit_in_order_and_without_overlap() -> None:
    for schedule in candidates("astitch", scheduler_of("resnet50")):
        assert all(s.split.instances == 1 for s in schedule.instances.subgraphs)
        assert schedule.scheduler == "astitch"
        assert schedule.rules.serial


@pytest.mark.full
def test_larger_batches_spill_to_ddr_on_resnet() -> None:
    """What GraphTurbo saw (section 5.2): without a split, large batches spill to DDR."""
    moved = {
        s.share.batches: simulate(s).ddr_bytes
        for s in candidates("astitch", scheduler_of("resnet50"))
    }
    weights = 2 * 25.5e6
    assert moved[2] < moved[16]
    activations = {b: moved[b] - 4 * weights * 16 / b for b in (2, 16)}
    assert activations[16] > 3 * activations[2]


@pytest.mark.full
@pytest.mark.parametrize("kinds", [("relu",), ("conv", "relu"), ("softmax", "conv", "softmax")])
def test_chains(kinds: tuple[str, ...]) -> None:
    only(chain(*kinds), target())
