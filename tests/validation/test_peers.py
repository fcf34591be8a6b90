"""Schedules for a peer's machine: what was once found there is found still."""

from __future__ import annotations

from pathlib import Path

import pytest

import autoturbo
from tests.schedule.schedule_samples import workload

SOMA_EDGE = Path(__file__).with_name("peers") / "soma-edge.yaml"


@pytest.mark.full
@pytest.mark.parametrize(
    ("batch", "microseconds", "megabytes"), [(1, 1624, 27), (4, 3000, 31), (16, 15_600, 190)]
)
def test_resnet_50_on_soma_s_edge_machine(
    tmp_path: Path, batch: int, microseconds: float, megabytes: float
) -> None:
    """SoMa's own take 1,624, 2,639 and 9,153 us.

    At batch 16 ours took 13,732 us and 116 MB while inputs stayed in LB that had no room there
    (docs/decisions/streams.md); since they stay only where they fit and loads run over kernels,
    seeds take 14 to 16 ms.
    """
    graph, target = workload("resnet50", batch), autoturbo.load_target(SOMA_EDGE)
    found = autoturbo.tune(
        graph, target, trials=64, database=tmp_path / "a.db", runs_folder=tmp_path
    )
    measured = found.best.measurement
    assert measured.latency <= microseconds * 1e-6
    assert measured.ddr_bytes <= megabytes * 1e6
