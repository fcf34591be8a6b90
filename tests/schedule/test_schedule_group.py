"""Algorithm 2: the patterns, the two rules, and the sub-graphs of real networks."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoturbo.graph.operators import Graph
from autoturbo.hardware import Target
from autoturbo.schedule.context import SchedulingContext, make_context
from autoturbo.schedule.knobs import Knobs, SubGraphKnobs
from autoturbo.schedule.partition.grouping import GroupRules, SubGraph, group
from autoturbo.schedule.partition.split import best_split
from tests.schedule.front_ends import densenet
from tests.schedule.schedule_samples import (
    STCP920,
    Net,
    block,
    chain,
    networks,
    scheduler_of,
    target,
)

ROOMY = target(lb=1 << 20)


def names(context: SchedulingContext, subgraphs: tuple[SubGraph, ...]) -> list[list[str]]:
    return [[context.layers[x].name for x in s.layers] for s in subgraphs]


def groups(graph: Graph, knobs: Knobs | None = None, machine: Target = ROOMY) -> list[list[str]]:
    context = make_context(graph, machine, "float16")
    return names(context, group(context, GroupRules.of(knobs or Knobs())))


def diamond() -> Net:
    """One entry, two paths of convolutions, one exit."""
    net = Net(x=(2, 4, 8, 8))
    entry = net.conv("x", 4)
    net.sum(net.conv(entry, 4), net.conv(entry, 4))
    return net


def test_straight_lines_become_one() -> None:
    assert groups(chain("conv", "relu", "conv", "relu", "conv")) == [["conv0", "conv1", "conv2"]]


def test_a_diamond_becomes_one() -> None:
    assert groups(diamond().graph()) == [["conv0", "conv1", "conv2", "add0"]]


@pytest.mark.full
def test_a_branch_becomes_one() -> None:
    """Two inputs meet: neither is a diamond's path, both have the sum as their only reader."""
    net = Net(x=(2, 4, 8, 8), y=(2, 4, 8, 8))
    net.sum(net.conv("x", 4), net.conv("y", 4))
    assert groups(net.graph()) == [["conv0", "conv1", "add0"]]


def test_without_branch_merges_a_branch_stays_apart() -> None:
    """All patterns are in every order: a limit of one layer is the way to turn them off."""
    assert len(groups(chain("conv", "conv"), Knobs(max_layers=1))) == 2


def test_an_output_of_the_model_is_read_from_outside() -> None:
    """The first convolution leaves the model, so it may not disappear inside a kernel."""
    net = Net(x=(2, 4, 8, 8))
    first = net.conv("x", 4)
    second = net.conv(first, 4)
    assert groups(net.graph(first, second)) == [["conv0"], ["conv1"]]


def test_two_readers_keep_a_straight_line_apart() -> None:
    net = Net(x=(2, 4, 8, 8))
    first = net.conv("x", 4)
    net.conv(first, 4)
    net.conv(first, 4)
    assert groups(net.graph()) == [["conv0"], ["conv1"], ["conv2"]]


@pytest.mark.parametrize("limit", [1, 3])
def test_most_layers(limit: int) -> None:
    sizes = [len(g) for g in groups(chain(*["conv"] * 6), Knobs(max_layers=limit))]
    assert max(sizes) <= limit
    assert sum(sizes) == 6


def test_rule_one_keeps_a_large_factor_from_leaking() -> None:
    """The image is halved: f(P) = 2 before, 1 after. Merging would split the rest for nothing."""
    net = Net(x=(4, 4, 16, 16))
    net.conv(net.pool(net.conv("x", 4, 1), 4, 4), 4, 1)
    machine = target(cores=1, lb=8192)
    apart = groups(net.graph(), machine=machine)
    assert apart == [["conv0"], ["conv1"]]
    loose = Knobs(producer_factor_ratio=0.125, merged_factor_ratio=8.0)
    assert groups(net.graph(), loose, machine) == [["conv0", "conv1"]]


def test_a_merge_that_no_split_makes_fit_is_refused() -> None:
    machine = target(cores=1, lb=64)
    assert groups(chain("conv", "conv"), machine=machine) == [["conv0"], ["conv1"]]


def test_a_cut_keeps_a_layer_from_its_consumers() -> None:
    knobs = Knobs(overrides=(SubGraphKnobs("conv1", boundary="cut"),))
    assert groups(chain(*["conv"] * 4), knobs) == [["conv0", "conv1"], ["conv2", "conv3"]]


def test_a_merge_override_breaks_the_rule_but_not_the_memory() -> None:
    """f = 4 before the pooling and 1 after it: the rule keeps them apart, the override does not."""
    net = Net(x=(4, 4, 16, 16))
    net.conv(net.pool(net.conv("x", 4, 1), 4, 4), 4, 1)
    machine = target(cores=1, lb=8192)
    knobs = Knobs(overrides=(SubGraphKnobs("conv0", boundary="merge"),))
    assert groups(net.graph(), knobs, machine) == [["conv0", "conv1"]]
    tiny = target(cores=1, lb=64)
    assert groups(net.graph(), knobs, tiny)[0] == ["conv0"]


def test_rules_follow_the_knobs() -> None:
    knobs = Knobs(
        producer_factor_ratio=0.5, merged_factor_ratio=2.0, max_layers=4,
        merge_order="diamond-straight-branch",
        overrides=(SubGraphKnobs("a", "cut"), SubGraphKnobs("b", "merge"), SubGraphKnobs("c")),
    )  # fmt: skip
    rules = GroupRules.of(knobs)
    assert (rules.producer_factor_ratio, rules.merged_factor_ratio) == (0.5, 2.0)
    assert (rules.max_layers, rules.merge_order) == (4, "diamond-straight-branch")
    assert (sorted(rules.cuts), sorted(rules.merges)) == (["a"], ["b"])


@pytest.mark.full
def test_groups_are_remembered_per_rules() -> None:
    context = make_context(block(), ROOMY, "float16")
    rules = GroupRules.of(Knobs())
    assert group(context, rules) is group(context, rules)
    assert group(context, rules) is not group(context, GroupRules.of(Knobs(max_layers=2)))


@settings(max_examples=20, deadline=None)
@given(
    graph=networks(most=12), lb=st.sampled_from((256, 1024, 8192)),
    order=st.sampled_from(("straight-diamond-branch", "straight-branch-diamond",
    "diamond-straight-branch", "diamond-branch-straight", "branch-straight-diamond",
    "branch-diamond-straight")),
    limit=st.sampled_from((1, 3, 100)),
)  # fmt: skip
def test_sub_graphs_are_a_partition_that_can_run(
    graph: Graph, lb: int, order: str, limit: int
) -> None:
    context = make_context(graph, target(lb=lb), "float16")
    rules = GroupRules.of(Knobs(merge_order=order, max_layers=limit))
    subgraphs = group(context, rules)
    assert sorted(x for s in subgraphs for x in s.layers) == list(range(len(context.layers)))
    owner = {x: s.index for s in subgraphs for x in s.layers}
    for subgraph in subgraphs:
        assert len(subgraph.layers) <= limit
        for layer in subgraph.layers:
            producers = {context.producer[t] for t in context.layers[layer].inputs} - {-1}
            assert all(owner[p] <= subgraph.index for p in producers)
            readers = {r for t in context.layers[layer].outputs for r in context.consumers[t]}
            inside = layer == subgraph.layers[-1] or {owner[r] for r in readers} == {subgraph.index}
            assert inside


@pytest.mark.full
@settings(max_examples=20, deadline=None)
@given(graph=networks(most=10), lb=st.sampled_from((512, 2048, 8192)))
def test_merging_never_makes_a_sub_graph_unfit(graph: Graph, lb: int) -> None:
    """A sub-graph of several layers always fits; only a single layer may be too large."""
    context = make_context(graph, target(lb=lb), "float16")
    for subgraph in group(context, GroupRules.of(Knobs())):
        assert not math.isinf(subgraph.split.factor) or len(subgraph.layers) == 1


def test_resnet_has_the_papers_four_sub_graphs() -> None:
    """Factors 8/4/2/1; each but the last ends with the down-sampling block of the next stage."""
    context = scheduler_of("resnet50").context(16)
    subgraphs = group(context, GroupRules.of(Knobs()))
    assert [s.split.factor for s in subgraphs] == [8, 4, 2, 1]
    shapes = [
        context.graph.tensors[context.layers[s.layers[-1]].outputs[0]].shape for s in subgraphs
    ]
    assert shapes == [(16, 512, 28, 28), (16, 1024, 14, 14), (16, 2048, 7, 7), (16, 1000)]
    adds = [
        sum(
            context.graph.operators[op].kind == "Add"
            for x in s.layers
            for op in context.layers[x].operators
        )
        for s in subgraphs
    ]
    assert adds == [4, 4, 6, 2]


@pytest.mark.full
def test_resnet_stages_do_not_merge_because_of_rule_one() -> None:
    context = scheduler_of("resnet50").context(16)
    rules = GroupRules.of(Knobs())
    subgraphs = group(context, rules)
    for before, after in itertools.pairwise(subgraphs):
        merged = best_split(context, before.layers + after.layers, rules)
        assert after.split.factor < before.split.factor
        assert merged.factor > after.split.factor


@pytest.mark.full
def test_a_dense_block_joins_where_it_appends_to_one_tensor() -> None:
    """At 8 images: each concatenation needs the factor of all it joins, so rule (i) allows it.

    Where every layer lists all parts anew, nothing but the end of the block reads all.
    """
    found = {}
    for appended in (True, False):
        graph = densenet(32, 8, 224, appended=appended).graph()
        context = make_context(graph, STCP920, "float16")
        parts = group(context, GroupRules.of(Knobs()))
        found[appended] = [(len(part.layers), part.split.factor) for part in parts]
    assert found[True] == [(16, 4), (1, 4), (1, 2), (34, 2), (2, 1), (121, 1)]
    assert max(layers for layers, _ in found[False][:10]) == 2


@pytest.mark.full
def test_smaller_batches_need_fewer_parts() -> None:
    for batch, factors in ((8, [4, 2, 1]), (1, [1])):
        subgraphs = group(scheduler_of("resnet50").context(batch), GroupRules.of(Knobs()))
        assert sorted({s.split.factor for s in subgraphs}, reverse=True) == factors


@pytest.mark.full
def test_bert_at_eight_sentences_needs_no_split() -> None:
    """BERT-128 gains nothing from instance ordering (section 6.2): every sub-graph fits whole."""
    context = scheduler_of("bert_base_s128").context(8)
    subgraphs = group(context, GroupRules.of(Knobs()))
    assert {s.split.factor for s in subgraphs} == {1}
    assert max(s.split.footprint for s in subgraphs) <= context.cluster_lb_bytes
