"""Algorithm 4: plain bindings, bindings inferred for producers, and scopes."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoturbo.graph.operators import Graph
from autoturbo.schedule.context import SchedulingContext, make_context
from autoturbo.schedule.knobs import Knobs
from autoturbo.schedule.partition.grouping import GroupRules, SubGraph, group
from autoturbo.schedule.partition.split import Split
from autoturbo.schedule.pipeline import ModelScheduler
from autoturbo.schedule.place.bind import (
    Placement,
    Scope,
    bind_instances,
    bindable_dims,
    cores_used,
    infer_input,
    infer_layer,
    layer_bindings,
    plain_binding,
    plain_for,
)
from autoturbo.schedule.place.instances import InstanceGraph, PartBook, make_instances
from autoturbo.schedule.place.order import order_instances
from tests.schedule.schedule_samples import Net, block, chain, networks, scheduler_of, target
from tests.schedule.steps import instance_of, instances_of


def test_plain_binding() -> None:
    """Outermost first: 8, 4, 2, 1, whichever divides (section 4.3)."""
    cases: tuple[tuple[tuple[int, ...], int, tuple[int, ...]], ...] = (
        ((2, 28, 28, 512), 8, (2, 4, 1, 1)),
        ((4, 28, 28, 512), 8, (4, 2, 1, 1)),
        ((8, 14, 14, 1024), 8, (8, 1, 1, 1)),
        ((16, 1000), 8, (8, 1)),
        ((1, 7, 7, 512), 8, (1, 1, 1, 8)),
        ((1, 14, 14, 3), 8, (1, 2, 2, 1)),
        ((3, 5, 7), 8, (1, 1, 1)),
        ((12, 10), 8, (4, 2)),
        ((6, 4), 6, (6, 1)),
        ((4, 9), 6, (4, 1)),
        ((3, 10), 30, (3, 10)),
        ((5, 7), 1, (1, 1)),
        ((), 8, ()),
    )
    for extents, cores, expected in cases:
        order, bindable = range(len(extents)), [True] * len(extents)
        assert plain_binding(extents, order, bindable, cores) == expected


@pytest.mark.full
def test_plain_binding_follows_the_loop_order() -> None:
    """An NCHW tensor is bound over samples, rows, columns, then channels."""
    assert plain_binding((2, 512, 28, 28), (0, 2, 3, 1), [True] * 4, 8) == (2, 1, 4, 1)


def test_plain_binding_skips_what_may_not_be_spread() -> None:
    assert plain_binding((1, 8, 16), (0, 1, 2), [True, True, False], 8) == (1, 8, 1)
    assert plain_binding((1, 3, 16), (0, 1, 2), [True, True, False], 8) == (1, 1, 1)


@given(extents=st.lists(st.integers(0, 40), max_size=5), cores=st.integers(1, 64), data=st.data())
def test_plain_binding_divides_and_never_passes_the_cores(
    extents: list[int], cores: int, data: st.DataObject
) -> None:
    bindable = [data.draw(st.booleans()) for _ in extents]
    order = data.draw(st.permutations(range(len(extents))))
    binding = plain_binding(extents, order, bindable, cores)
    assert cores_used(binding) <= cores
    for factor, extent, allowed in zip(binding, extents, bindable, strict=True):
        assert factor >= 1
        assert factor == 1 or (allowed and extent % factor == 0)


def operator_and_inputs(net: Net) -> tuple[SchedulingContext, int]:
    context = make_context(net.graph(), target(cores=8), "float16")
    return context, len(context.graph.operators) - 1


def test_a_convolution_passes_samples_and_rows_on() -> None:
    net = Net(x=(2, 4, 8, 8))
    net.conv("x", 8)
    context, last = operator_and_inputs(net)
    operator = context.graph.operators[last]
    assert infer_input(operator, 0, (2, 1, 4, 1)) == (2, 1, 4, 1)
    assert infer_input(operator, 0, (1, 8, 1, 1)) == (1, 1, 1, 1)


def test_a_product_passes_rows_to_the_first_and_columns_to_the_second_operand() -> None:
    net = Net(x=(8, 6), y=(6, 4))
    net.matmul("x", "y")
    context, last = operator_and_inputs(net)
    operator = context.graph.operators[last]
    assert infer_input(operator, 0, (4, 2)) == (4, 1)
    assert infer_input(operator, 1, (4, 2)) == (1, 2)


@pytest.mark.full
def test_a_transpose_permutes() -> None:
    net = Net(x=(4, 6, 8))
    net.transpose("x", 2, 0, 1)
    context, last = operator_and_inputs(net)
    assert infer_input(context.graph.operators[last], 0, (2, 4, 1)) == (4, 1, 2)


@pytest.mark.full
def test_a_broadcast_operand_is_not_spread() -> None:
    net = Net(x=(4, 6, 8), y=(1, 6, 8))
    net.sum("x", "y")
    context, last = operator_and_inputs(net)
    operator = context.graph.operators[last]
    assert infer_input(operator, 1, (4, 2, 1)) == (1, 2, 1)


@pytest.mark.full
def test_a_merged_dimension_binds_its_outer_part() -> None:
    net = Net(x=(4, 6, 8))
    net.reshape("x", 24, 8)
    context, last = operator_and_inputs(net)
    assert infer_input(context.graph.operators[last], 0, (4, 2)) == (4, 1, 2)


def test_a_softmax_may_not_be_spread_along_its_axis() -> None:
    net = Net(x=(4, 6, 8))
    net.softmax("x")
    context, _ = operator_and_inputs(net)
    assert bindable_dims(context, len(context.layers) - 1) == (True, True, False)


def test_a_layer_passes_its_binding_through_all_its_operators() -> None:
    """Convolution and ReLU are one layer; its input is bound as its output."""
    context = make_context(chain("conv", "relu"), target(cores=8), "float16")
    assert infer_layer(context, 0, (2, 1, 4, 1)) == {0: (2, 1, 4, 1)}


@pytest.mark.full
def test_weights_have_no_binding() -> None:
    context = make_context(chain("conv"), target(cores=8), "float16")
    constants = {t for t, tensor in enumerate(context.graph.tensors) if tensor.constant}
    assert not constants & set(infer_layer(context, 0, (1, 2, 1, 1)))


def test_inside_a_kernel_a_layer_prefers_more_cores() -> None:
    """A classifier bound over 1 core implies 1; the image before it can use all eight."""
    context = make_context(block(), target(cores=8), "float16")
    layers = tuple(x.index for x in context.layers)
    extents = tuple(context.graph.tensors[x.outputs[0]].shape for x in context.layers)
    chosen, wanted = layer_bindings(context, layers, extents, (1, 1))
    assert chosen[layers[-1]] == (1, 1)
    for layer in layers[:-1]:
        plain = plain_for(context, layer, extents[layer])
        assert cores_used(chosen[layer]) >= cores_used(plain)
    assert set(wanted) == {0}


def placed(
    graph: Graph, cuts: dict[int, int], *, always: bool, cores: int = 8
) -> tuple[InstanceGraph, Placement]:
    """Layers as sub-graphs, cut along samples, bound in ascending order."""
    context = make_context(graph, target(cores=cores), "float16")
    subgraphs = []
    for index in range(len(context.layers)):
        parts = cuts.get(index, 1)
        split = Split(0 if parts > 1 else -1, parts, 0, 0, 0)
        subgraphs.append(SubGraph(index, (index,), split))
    instances = make_instances(PartBook(context), tuple(subgraphs))
    order = range(instances.count)
    return instances, bind_instances(instances, order, always=always)


def test_every_instance_is_bound_and_starts_in_lb() -> None:
    _, placement = placed(chain("conv", "conv", shape=(4, 4, 8, 8)), {}, always=True)
    assert placement.bindings == ((4, 1, 2, 1), (4, 1, 2, 1))
    assert placement.scopes == (Scope.LB, Scope.LB)


def test_a_part_takes_what_its_reader_implies_if_it_divides() -> None:
    """The reader of four samples wants 4 x 2; its producers have two samples: 2 x 4."""
    instances, placement = placed(chain("conv", "conv", shape=(4, 4, 8, 8)), {0: 2}, always=True)
    assert [i.subgraph for i in instances_of(instances)] == [0, 0, 1]
    assert placement.bindings == ((2, 1, 4, 1), (2, 1, 4, 1), (4, 1, 2, 1))


def test_two_readers_that_disagree_park_the_output_in_gb() -> None:
    """One reader wants rows spread, the other is a product over them that wants samples alone."""
    net = Net(x=(1, 8, 8))
    first = net.relu("x")
    net.softmax(first, 2)
    net.softmax(first, 1)
    _, placement = placed(net.graph(), {}, always=True)
    assert placement.scopes[0] is Scope.GB
    assert placement.scopes[1:] == (Scope.LB, Scope.LB)


def test_inference_alternates_as_printed() -> None:
    """Printed, a node that was told its binding does not tell its own producers."""
    net = Net(x=(1, 8, 8))
    net.softmax(net.sum(net.softmax("x", 1), net.weight(8, 8)), 1)
    always = placed(net.graph(), {}, always=True)[1]
    printed = placed(net.graph(), {}, always=False)[1]
    assert all(printed.bindings)
    assert all(always.bindings)


@pytest.mark.parametrize("always", [True, False])
def test_resnet_is_bound_as_the_vendors_schedule(always: bool) -> None:
    """Stage by stage 2 x 4, 4 x 2, 8 x 1 cores (section 4.5)."""
    model_scheduler = scheduler_of("resnet50")
    context = model_scheduler.context(16)
    graph = make_instances(PartBook(context), group(context, GroupRules.of(Knobs())))
    order = order_instances(graph, "dfs")
    placement = bind_instances(graph, order, always=always)
    found = {
        instance_of(graph, i).subgraph: tuple(f for f in b if f > 1)
        for i, b in enumerate(placement.bindings)
    }
    assert found == {0: (2, 4), 1: (4, 2), 2: (8,), 3: (8,)}


@settings(max_examples=12, deadline=None)
@given(graph=networks(), cores=st.integers(1, 33), always=st.booleans())
def test_bindings_of_random_networks(graph: Graph, cores: int, always: bool) -> None:
    model_scheduler = ModelScheduler(graph, target(cores=cores, lb=512), "float16")
    context = model_scheduler.context(model_scheduler.share().batches)
    instances = make_instances(PartBook(context), group(context, GroupRules.of(Knobs())))
    order = order_instances(instances, "auto")
    placement = bind_instances(instances, order, always=always)
    for instance, binding in zip(instances_of(instances), placement.bindings, strict=True):
        region = next(iter(instance.outputs.values()))
        extents = (region[:, 1] - region[:, 0]).tolist()
        assert len(binding) == len(extents)
        assert math.prod(binding) <= cores
        assert all(e % f == 0 for e, f in zip(extents, binding, strict=True))
    assert set(placement.scopes) <= {Scope.LB, Scope.GB}
