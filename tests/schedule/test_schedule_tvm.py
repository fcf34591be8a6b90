"""TVM's operator fusion: hand-made cases of each rule, and the kernel counts of Table 3."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from autoturbo.baselines.tvm import (
    fuse,
    fused_layers,
    fused_problem,
    largest_working_set,
)
from autoturbo.graph.operators import Graph
from autoturbo.schedule.by_name import candidates
from autoturbo.schedule.pipeline import ModelScheduler
from autoturbo.schedule.place.bind import Scope
from autoturbo.schedule.simplify import simplified
from autoturbo.simulator.sequence import simulate
from tests.schedule.front_ends import densenet, encoder
from tests.schedule.schedule_checks import check_schedule
from tests.schedule.schedule_samples import (
    STCP920,
    Net,
    chain,
    networks,
    scheduler_of,
    target,
    workload,
)
from tests.schedule.steps import steps_of


def groups(net: Net, *outputs: str) -> list[list[str]]:
    graph = net.graph(*outputs)
    return [[graph.operators[i].name for i in members] for members in fuse(graph)]


def test_convolution_bias_activation() -> None:
    net = Net(x=(1, 4, 8, 8))
    biased = net.sum(net.conv("x", 4), net.weight(1, 4, 1, 1))
    net.relu(biased)
    assert groups(net) == [["conv0", "add0", "relu0"]]


def test_a_residual_add_joins_the_last_convolution() -> None:
    """The skip connection has an activation, so only the convolution before the sum can."""
    net = Net(x=(1, 4, 8, 8))
    first = net.relu(net.conv("x", 4))
    net.relu(net.sum(net.conv(first, 4), first))
    assert groups(net) == [["conv0", "relu0"], ["conv1", "add0", "relu1"]]


def test_only_one_of_two_convolutions_gets_the_sum() -> None:
    net = Net(x=(1, 4, 8, 8))
    net.relu(net.sum(net.conv("x", 4), net.conv("x", 4)))
    assert sorted(map(sorted, groups(net))) == [["add0", "conv0", "relu0"], ["conv1"]]


@pytest.mark.full
def test_two_convolutions_are_never_one_kernel() -> None:
    net = Net(x=(1, 4, 8, 8))
    net.conv(net.relu(net.conv("x", 4)), 4)
    assert groups(net) == [["conv0", "relu0"], ["conv1"]]


def test_injective_operators_fuse_among_themselves() -> None:
    net = Net(x=(2, 3, 4))
    net.transpose(net.reshape(net.transpose("x", 0, 2, 1), 2, 2, 6), 0, 2, 1)
    assert len(groups(net)) == 1


def test_injective_operators_do_not_fuse_into_a_convolution() -> None:
    net = Net(x=(1, 8, 8, 4))
    net.conv(net.transpose("x", 0, 3, 1, 2), 4)
    assert groups(net) == [["transpose0"], ["conv0"]]


@pytest.mark.full
def test_a_convolution_does_not_fuse_with_a_reshape() -> None:
    """The edge must be elementwise: a change of layout is its own kernel."""
    net = Net(x=(1, 4, 8, 8))
    net.reshape(net.conv("x", 4), 1, 256)
    assert groups(net) == [["conv0"], ["reshape0"]]


def test_softmax_is_not_fused_onward() -> None:
    """Softmax is an anchor of its own, and a reshape after it no elementwise operator."""
    net = Net(x=(2, 8))
    net.reshape(net.softmax("x"), 16)
    assert groups(net) == [["softmax0"], ["reshape0"]]


@pytest.mark.full
def test_elementwise_does_not_join_an_anchor_that_follows() -> None:
    """The edge into a softmax has its class, which is stronger than injective."""
    net = Net(x=(2, 8))
    net.softmax(net.relu("x"))
    assert groups(net) == [["relu0"], ["softmax0"]]


def test_elementwise_joins_a_reduction_but_nothing_follows_it() -> None:
    net = Net(x=(2, 8))
    net.relu(net.mean(net.relu("x")))
    assert groups(net) == [["relu0", "reducemean0"], ["relu1"]]


def test_an_output_of_the_model_is_not_swallowed() -> None:
    net = Net(x=(1, 4, 8, 8))
    first = net.conv("x", 4)
    second = net.relu(first)
    assert groups(net, first, second) == [["conv0"], ["relu0"]]


def test_an_elementwise_diamond_is_one_kernel() -> None:
    net = Net(x=(2, 8))
    first = net.relu("x")
    net.sum(net.add("Sigmoid", [first], (2, 8)), first, "Mul")
    assert groups(net) == [["relu0", "sigmoid0", "mul0"]]


@pytest.mark.full
def test_a_product_with_an_elementwise_diamond() -> None:
    """SiLU after a convolution: every node on the way is elementwise, so all of it joins."""
    net = Net(x=(1, 4, 8, 8))
    first = net.conv("x", 4)
    net.sum(net.add("Sigmoid", [first], (1, 4, 8, 8)), first, "Mul")
    assert groups(net) == [["conv0", "sigmoid0", "mul0"]]


def test_a_path_through_another_anchor_blocks() -> None:
    """The sum post-dominates the ReLU, but a convolution stands on one of the paths."""
    net = Net(x=(1, 4, 8, 8))
    first = net.relu("x")
    net.sum(net.conv(first, 4), first)
    assert groups(net) == [["relu0"], ["conv0", "add0"]]


KERNELS = {
    "resnet50": (57, 58),
    "bert_base_s128": (235, 242),
    "mobilenet_v2": (55, 56),
    "vit_b16": (222, 214),
}
"""Ours, normalisations written out as SimplifyInference does, and the paper's (Table 3)."""


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=[] if n == "mobilenet_v2" else pytest.mark.full) for n in KERNELS],
)
def test_kernel_counts_near_table_3(name: str) -> None:
    ours, paper = KERNELS[name]
    assert len(fuse(simplified(workload(name)))) == ours
    assert abs(ours - paper) <= 0.05 * paper


@pytest.mark.full
def test_with_a_softmax_at_the_end_the_image_networks_have_the_papers_counts() -> None:
    """Front-ends of classifiers end in one, a kernel of its own; torchvision's exports do not."""
    for name in ("resnet50", "mobilenet_v2"):
        graph = workload(name)
        assert all(op.kind != "Softmax" for op in graph.operators)
        assert len(fuse(graph)) + 1 == KERNELS[name][1]


@pytest.mark.full
def test_bert_large_has_the_papers_count_with_its_normalisations_in_primitives() -> None:
    """463 against 515, 10 % less: no form of one layer fits both BERTs of Table 3.

    SimplifyInference makes three kernels of a normalisation, 19 a layer. In primitives there are
    four, because the difference from the mean is read twice: 21 a layer, and 509 for 24 layers.
    515 is 24 x 21 + 11, but 242 is less than 12 x 21: the paper's two BERTs came from two
    front-ends.
    """
    assert len(fuse(simplified(workload("bert_large_s384")))) == 463
    counts = [len(fuse(encoder(n, stacked=True).graph())) for n in (1, 2)]
    assert counts == [26, 47]
    primitive = len(fuse(encoder(24, stacked=True).graph()))
    assert primitive == 509
    assert abs(primitive - 515) <= 0.05 * 515


@pytest.mark.full
def test_products_of_rank_3_cost_two_more_kernels_a_layer() -> None:
    """A reshape after the scores and one after the softmax cannot join a product or a softmax."""
    counts = [len(fuse(encoder(2, stacked=stacked).graph())) for stacked in (True, False)]
    assert counts[1] - counts[0] == 2 * 2


@pytest.mark.full
def test_densenet_has_the_papers_count_if_it_appends_to_one_tensor() -> None:
    """189 against 247: torchvision lists all parts in each concatenation, which has one reader.

    As Keras writes it, the next concatenation reads the result too, with convolutions on the way,
    so it does not join the normalisation after it: a kernel more for each of 58 but the last of
    a block. 243, within 2 %.
    """
    counts = [len(fuse(densenet(appended=appended).graph())) for appended in (False, True)]
    assert counts == [189, 189 + 58 - 4]
    assert len(fuse(workload("densenet121"))) == 189
    assert counts[1] == pytest.approx(247, rel=0.05)


@pytest.mark.full
@settings(max_examples=12, deadline=None)
@given(graph=networks(most=12))
def test_groups_are_a_partition_without_cycles(graph: Graph) -> None:
    members = fuse(graph)
    assert sorted(i for group in members for i in group) == list(range(len(graph.operators)))
    layers = fused_layers(graph)
    assert [sorted(x.operators) for x in layers] != [] or not graph.operators
    owner = {i: x.index for x in layers for i in x.operators}
    for index, operator in enumerate(graph.operators):
        made_by = {graph.producer[t] for t in operator.inputs} - {-1}
        assert all(owner[p] <= owner[index] for p in made_by)
    for layer in layers:
        assert not set(layer.outputs) - set(graph.operators[layer.operators[-1]].outputs)


@settings(max_examples=12, deadline=None)
@given(graph=networks(most=12))
def test_a_group_has_at_most_one_anchor(graph: Graph) -> None:
    for members in fuse(graph):
        anchors = [i for i in members if graph.operators[i].engine.value == "matrix"]
        assert len(anchors) <= 1


def largest_batches(name: str) -> int:
    return max(schedule.share.batches for schedule in candidates("tvm", scheduler_of(name)))


@pytest.mark.parametrize(
    ("name", "batches"),
    [
        ("mobilenet_v2", 2),
        *(
            pytest.param(*case, marks=pytest.mark.full)
            for case in (("resnet50", 2), ("bert_base_s256", 2), ("vit_b16", 4), ("conformer", 1))
        ),
    ],
)
def test_batches_are_limited_by_the_global_buffer(name: str, batches: int) -> None:
    """The limit of section 6.1 ("because of the LLB") gives the batches of Table 2."""
    assert largest_batches(name) == batches
    larger = fused_problem(
        scheduler_of(name), batches * 2 if batches > 1 else scheduler_of(name).share().samples
    )
    assert largest_working_set(larger) > STCP920.gb.capacity


@pytest.mark.full
def test_every_batch_within_the_limit_is_a_candidate() -> None:
    found = [
        schedule.share.batches for schedule in candidates("tvm", scheduler_of("bert_base_s128"))
    ]
    assert found == [4, 2, 1]


def test_one_sample_is_taken_even_if_it_does_not_fit() -> None:
    model_scheduler = ModelScheduler(chain("conv", shape=(4, 4, 8, 8)), target(gb=64), "float16")
    (schedule,) = candidates("tvm", model_scheduler)
    assert schedule.share.batches == 1
    check_schedule(schedule)


def test_every_group_output_is_in_ddr() -> None:
    schedule = next(candidates("tvm", scheduler_of("resnet50")))
    assert set(schedule.placement.scopes) == {Scope.DDR}
    assert simulate(schedule).tensors == {"LB": 0, "GB": 0, "DDR": 57}
    assert all(len(step.template.layers) == 1 for step in steps_of(schedule.timeline))


@pytest.mark.full
@pytest.mark.parametrize(("name", "scope"), [("gb_outputs", "GB"), ("lb_outputs", "LB")])
def test_outputs_at_another_scope_are_the_same_kernels(name: str, scope: str) -> None:
    tvm = next(candidates("tvm", scheduler_of("bert_base_s128")))
    found = {s.share.batches: s for s in candidates(name, scheduler_of("bert_base_s128"))}
    assert list(found) == [8, 4, 2, 1]
    other = found[tvm.share.batches]
    assert other.scheduler == name
    assert [x.operators for x in other.context.layers] == [x.operators for x in tvm.context.layers]
    assert min(other.placement.scopes) is Scope[scope]
    assert simulate(other).ddr_bytes < simulate(tvm).ddr_bytes
