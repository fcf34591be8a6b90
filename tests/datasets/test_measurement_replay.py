"""Latency of sub-graphs on clusters, against sums by hand."""

from __future__ import annotations

import numpy as np

from autoturbo.datasets.measurements.load import replay


def _replay(
    seconds: list[float], first: list[int], clusters: list[int], reads: list[list[int]], loops: int
) -> float:
    homes = np.asarray([first, clusters], np.int64)
    return replay(np.asarray(seconds), homes[0], homes[1], reads, loops, barrier=0.5)


def test_one_cluster_takes_the_sum() -> None:
    assert _replay([1.0, 2.0, 4.0], [0, 0, 0], [1, 1, 1], [[], [0], [1]], loops=3) == 21.0


def test_a_consumer_elsewhere_waits_and_one_barrier_more() -> None:
    assert _replay([1.0, 2.0], [0, 1], [1, 1], [[], [0]], loops=1) == 3.5


def test_passes_of_a_pipeline_overlap() -> None:
    """The slower stage sets the pace."""
    assert _replay([1.0, 4.0], [0, 1], [1, 1], [[], [0]], loops=5) == 1.0 + 0.5 + 5 * 4.0


def test_what_nothing_reads_runs_side_by_side() -> None:
    assert _replay([3.0, 4.0], [0, 1], [1, 1], [[], []], loops=1) == 4.0


def test_parts_wait_for_the_other_clusters_parts() -> None:
    assert _replay([1.0, 2.0], [0, 0], [4, 4], [[], [0]], loops=1) == 3.5
    assert _replay([1.0, 2.0], [0, 0], [4, 4], [[], []], loops=1) == 3.0
