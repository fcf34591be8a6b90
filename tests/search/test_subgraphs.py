"""Anchors and their values on real models: what is offered can be done."""

from __future__ import annotations

import dataclasses
import functools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import autoturbo
from autoturbo.graph.operators import Graph
from autoturbo.hardware import load_target
from autoturbo.schedule.knobs import AUTO, Knobs, SubGraphKnobs
from autoturbo.schedule.knobs.kinds import MOST_PARTS, RAGGED
from autoturbo.schedule.partition.overrides import resolve
from autoturbo.schedule.pipeline import ModelScheduler, plan
from autoturbo.search.space import Space
from autoturbo.search.subgraphs import blocks_of
from autoturbo.simulator.plan import COLUMNS, KernelStatistics

STCP920 = load_target("stcp920")
BATCHES = {"resnet50": 64, "mobilenet_v2": 128, "bert_base_s128": 32}
NAMES = [
    "mobilenet_v2",
    *(pytest.param(n, marks=pytest.mark.full) for n in ("resnet50", "bert_base_s128")),
]


@functools.cache
def model(name: str) -> Graph:
    return autoturbo.load_model(name, batch=BATCHES[name])


@functools.cache
def scheduler_of(name: str) -> ModelScheduler:
    return ModelScheduler(model(name), STCP920, "float16")


@functools.cache
def space(name: str, subgraphs: int = 8) -> Space:
    return Space.of(ModelScheduler(model(name), STCP920, "float16"), subgraphs=subgraphs)


@pytest.mark.parametrize("name", NAMES)
def test_anchors_are_last_layers_of_the_heuristic_s_sub_graphs_the_heaviest_first(
    name: str,
) -> None:
    planned = plan(scheduler_of(name), Knobs())
    context, subgraphs = planned.context, planned.subgraphs
    found = KernelStatistics(scheduler_of(name)).of_plan(Knobs())
    assert found is not None
    macs = found.values[:, COLUMNS.index("macs")] * found.launches
    last = {context.layers[s.layers[-1]].name: s for s in subgraphs}
    work = []
    for block in space(name).blocks:
        assert set(block.layers) <= set(last)
        assert {last[layer].split.instances for layer in block.layers} == {block.parts}
        indices = [last[layer].index for layer in block.layers]
        work.append(float(macs[indices].sum()))
    assert max(work[:2]) == max(work)
    few = space(name, 2).blocks
    assert few == space(name).blocks[:2]


def test_no_more_kinds_of_sub_graphs_are_offered_than_asked_for() -> None:
    name = "mobilenet_v2"
    for most in (0, 1, 2):
        assert (
            len(blocks_of(ModelScheduler(model(name), STCP920, "float16"), most, (AUTO,))) == most
        )


def test_blocks_of_a_transformer_share_their_knobs() -> None:
    """Twelve blocks of three sub-graphs each."""
    assert [len(block.layers) for block in space("bert_base_s128").blocks[:3]] == [12, 12, 12]
    layers = [layer for block in space("bert_base_s128").blocks for layer in block.layers]
    assert len(layers) == len(set(layers))


def test_values_of_resnet_s_first_stage() -> None:
    first = {block.layers[0]: block for block in space("resnet50").blocks}["node_relu_12"]
    assert first.extents[0] == (16, 8, 4, 2, 1)
    assert first.extents[1] == (28,) * 5
    assert first.choices["dim"] == first.choices["core_parallel_dim"] == (0, 1, 2, 3)
    factors = first.choices["factor"]
    assert factors[0] == 1
    assert {2, 4, 7, 8, 14, 16, 28, 32, 64} <= set(factors)
    assert max(map(int, factors)) == MOST_PARTS
    rest = {f for f in map(int, factors) if all(n % f for n in (16, 28, 512))}
    assert rest <= set(RAGGED)
    assert first.choices["cores"] == (4, 2, 1)
    assert first.choices["scope"] == ("LB", "GB", "DDR")


def test_nothing_is_merged_with_what_nobody_reads() -> None:
    last = {block.layers[0]: block for block in space("resnet50").blocks}["node_linear"]
    assert "boundary" not in last.choices
    assert "dim" in last.choices


def test_a_target_without_a_global_buffer_offers_none() -> None:
    bare = dataclasses.replace(STCP920, gb=dataclasses.replace(STCP920.gb, capacity=0))
    for block in blocks_of(ModelScheduler(model("resnet50"), bare, "float16"), 4, (AUTO,)):
        assert "GB" not in block.choices["scope"]
        assert "GB" not in block.choices.get("weight_residency", ())


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_every_split_that_is_offered_can_be_done(name: str, seed: int) -> None:
    """With the heuristic's cuts; where other knobs move them, an anchor may get another sink."""
    found = space(name)
    points = found.random(np.random.default_rng(seed), 4, dense=True)
    kept = [
        d.name in ("batches_per_cluster", "factor_policy")
        or d.name.split(":")[-1] in ("dim", "factor")
        for d in found.dimensions
    ]
    for point in found.normal(points * np.asarray(kept)):
        knobs = found.knobs_of(point)
        at_default = dataclasses.replace(knobs, factor_policy=AUTO)
        if at_default.batches_per_cluster == AUTO:
            plan(scheduler_of(name), at_default)


def test_of_two_anchors_in_one_sub_graph_the_later_layer_wins_field_by_field() -> None:
    model_scheduler = scheduler_of("resnet50")
    planned = plan(model_scheduler, Knobs())
    context, subgraphs = planned.context, planned.subgraphs
    early, late = (context.layers[subgraphs[0].layers[i]].name for i in (3, -1))
    overrides = (
        SubGraphKnobs(late, factor=4),
        SubGraphKnobs(early, dim=0, factor=2, scope="GB"),
    )
    knobs = Knobs(overrides=overrides)
    held = resolve(context, subgraphs, knobs)
    assert held == {0: SubGraphKnobs(late, dim=0, factor=4, scope="GB")}
    assert plan(model_scheduler, knobs).subgraphs[0].split.instances == 4
    found = KernelStatistics(model_scheduler).of_plan(knobs)
    assert found is not None
    assert found.overrides == held


def test_no_override_is_none() -> None:
    planned = plan(scheduler_of("resnet50"), Knobs())
    context, subgraphs = planned.context, planned.subgraphs
    assert resolve(context, subgraphs, Knobs()) == {}
