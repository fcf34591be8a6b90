"""How clusters and units shared out the work, as people read it."""

from __future__ import annotations

import dataclasses

from autoturbo.report.sharing import held, mixed_samples, mixed_sentence, sharing
from autoturbo.schedule.knobs import Knobs
from autoturbo.simulator.measurement import Failure, LowerBound, Measurement, Outcome
from tests.graph.graph_samples import model, workload

ALONE = Measurement(2e-3, 1, 0, 0, 0.5, 0.5, 0, 0, 1, LowerBound(1e-3, 0.0, 0.0))
TOGETHER = dataclasses.replace(ALONE, latency=1.5e-3)
CHANNELS = Knobs(cluster_partitioning="channel")


def test_clusters_that_share_out_channels_stand_beside_one_alone() -> None:
    trials: list[tuple[Knobs, Outcome]] = [
        (Knobs(), ALONE),
        (Knobs(prefetch_depth=2), dataclasses.replace(ALONE, latency=1.9e-3)),
        (CHANNELS, TOGETHER),
        (Knobs(prefetch_depth=3), Failure("LB", "too small")),
    ]
    assert sharing(CHANNELS, TOGETHER, trials) == (
        "split channels of every output: 1.50 ms; one cluster alone: 1.90 ms"
    )
    several = dataclasses.replace(TOGETHER, batch=8)
    assert "splitting the batch: 1.90 ms" in sharing(CHANNELS, several, trials)
    assert sharing(CHANNELS, TOGETHER, []) == "split channels of every output: 1.50 ms"


def test_clusters_that_work_alike_need_no_line() -> None:
    assert not sharing(Knobs(), ALONE, [(Knobs(), ALONE)])
    assert not held(ALONE)


def test_units_have_their_shares_of_the_time() -> None:
    busy = {"cpu": 1.2e-3, "npu": 0.75e-3, "copies": 0.3e-3}
    bytes_ = {"copied": 4096, "held": 3000, "held:cpu": 2000, "held:npu": 1000}
    found = dataclasses.replace(TOGETHER, busy=busy, bytes=bytes_)
    line = sharing(Knobs(), found, [])
    assert line == "busy cpu 80 %, npu 50 %; 4.10 kB copied in 300 us"
    assert held(found) == "cpu 2.00 kB, npu 1.00 kB"
    none = dataclasses.replace(found, busy={**busy, "copies": 0.0})
    assert sharing(Knobs(), none, []).endswith("; nothing is copied")


def test_what_idle_clusters_cost_stands_behind_the_node_and_the_reason() -> None:
    graph = model(
        "(float[4,8] x) => (float[1,8] y)", "y = ReduceMean <axes = [0], keepdims = 1> (x)"
    )
    found = mixed_samples(graph, {"a": 4, "b": 1, "c": 4, "d": 2})
    assert mixed_sentence(found) == (
        "cannot be told apart: ReduceMean_0 (ReduceMean) works across the batch; 1 of 4 clusters"
        " works on a, c, 1 of 2 clusters works on d; compute every sample by itself, or export with"
        " a dynamic batch, or let clusters share out other work (knob cluster_partitioning)"
    )
    alone = mixed_sentence(mixed_samples(graph, {"b": 1}))
    assert "; the batch is processed whole; " in alone
    assert "cluster" not in alone
    assert not mixed_sentence(mixed_samples(workload("resnet18"), {"a": 4}))
