"""Off-chip memory that clusters share freely: those that work have what the others leave."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoturbo.graph.operators import Graph
from autoturbo.hardware import Target, load_target
from autoturbo.hardware.parts import FREE
from autoturbo.registry import SCHEDULERS
from autoturbo.schedule.by_name import candidates
from autoturbo.schedule.knobs import Knobs
from autoturbo.schedule.pipeline import ModelScheduler
from autoturbo.simulator.evaluator import Evaluator
from autoturbo.simulator.measurement import Measurement
from tests.schedule.schedule_samples import networks, target, workload


def roomy(clusters: int) -> Target:
    """A small chip on which every small network runs."""
    return target(cores=8, lb=64 << 10, weights=4 << 10, clusters=clusters)


def shared_freely(chip: Target) -> Target:
    return dataclasses.replace(chip, ddr=dataclasses.replace(chip.ddr, share=FREE))


def measured(graph: Graph, chip: Target, **knobs: Any) -> Measurement:
    outcome = Evaluator(graph, chip, "float16").evaluate(Knobs(**knobs))
    assert isinstance(outcome, Measurement)
    return outcome


@given(networks(), st.sampled_from((1, 2, 4)))
@settings(max_examples=25, deadline=None)
def test_clusters_that_work_have_all_of_the_memory(graph: Graph, clusters: int) -> None:
    chip = roomy(clusters)
    fixed, free = measured(graph, chip), measured(graph, shared_freely(chip))
    assert free.bound == fixed.bound
    working = ModelScheduler(graph, chip, "float16").share().clusters
    fewer = dataclasses.replace(chip, clusters=working)  # with the same memory
    assert free.latency == measured(graph, fewer).latency
    if working == clusters:
        assert free.latency == fixed.latency


@given(networks(), st.sampled_from(("pipeline", "spatial", "channel", "branches")))
@settings(max_examples=15, deadline=None)
def test_clusters_that_work_together_share_as_if_all_worked(graph: Graph, split: str) -> None:
    chip = roomy(2)
    fixed = measured(graph, chip, cluster_partitioning=split)
    free = measured(graph, shared_freely(chip), cluster_partitioning=split)
    assert free.latency == fixed.latency


def test_it_is_worth_more_than_a_rule_where_one_sample_runs() -> None:
    chip = load_target("stcp920")
    graph = workload("resnet50", 1)
    free = measured(graph, shared_freely(chip)).latency
    assert free < 0.6 * measured(graph, chip).latency


@pytest.mark.parametrize("name", SCHEDULERS.names())
def test_every_scheduler_runs_on_the_same_memory(name: str) -> None:
    chip, graph = shared_freely(load_target("stcp920")), workload("alexnet", 1)
    for schedule in candidates(name, ModelScheduler(graph, chip, "float16")):
        assert schedule.context.chip == chip
        assert schedule.context.target.clusters == 1


def test_a_file_that_does_not_say_is_the_chip_it_was() -> None:
    chip = load_target("stcp920")
    document = chip.as_dict()
    del document["ddr"]["share"]
    assert Target.from_dict(document) == chip
    assert shared_freely(chip).hash != chip.hash
