"""Tuning on a real cluster of three machines' processes while things go wrong."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import ray_faults
from ray_cluster import Cluster, namespaces_allowed
from ray_faults import FAULTS, Ground, alone, differences, driver_killed, run
from ray_measurers import CLASSES

from autoturbo.search.executors.ray_session import connect
from autoturbo.simulator.measurement import Failure
from autoturbo.tuning.result import TuneResult

pytestmark = [pytest.mark.ray, pytest.mark.full]
TRIALS = 49


@pytest.fixture(scope="module")
def ground() -> Iterator[Ground]:
    """One cluster for all tests, mended before each."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_AUTH_MODE", "disabled")  # as the cluster's
        patch.setattr(ray_faults, "MEASURING_S", 0.02)
        with pytest.MonkeyPatch.context() as unset:
            unset.delenv("RAY_AUTH_MODE")  # one that asks for a token, which the cluster does not
            connect("local", 1).close()
        with Cluster(networked=namespaces_allowed()) as cluster:
            cluster.wait()
            session = connect(cluster.address)
            yield Ground(cluster)
            session.close()
            nodes = [cluster.head, *cluster.nodes]
    assert [pid for node in nodes for pid in node.pids] == []


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> TuneResult:
    """The same search in this process without faults."""
    return alone(str(tmp_path_factory.mktemp("alone")), TRIALS)


STRUCK = ["worker killed", "node killed"]


@pytest.mark.parametrize("name", STRUCK)
def test_what_happens_to_the_cluster_changes_nothing(
    ground: Ground, reference: TuneResult, tmp_path: Path, name: str
) -> None:
    result = run(ground, FAULTS[name], str(tmp_path), TRIALS)
    assert differences(result, reference) == []
    assert not [t for t in result.trials if isinstance(t.outcome, Failure)]
    assert result.schedule_file.read_bytes() == reference.schedule_file.read_bytes()


@pytest.mark.parametrize("spoil", ["NaN", "dies"])
def test_a_measurer_that_fails_is_told_by_class(
    ground: Ground, reference: TuneResult, tmp_path: Path, spoil: str
) -> None:
    result = run(ground, FAULTS[spoil], str(tmp_path), TRIALS)
    assert differences(result, reference, spoil) == []
    failed = [t.outcome for t in result.trials if isinstance(t.outcome, Failure)]
    assert failed
    assert {failure.reason for failure in failed} == {CLASSES[spoil]}
    if spoil == "dies":
        assert {f.message for f in failed} == {"the worker died while measuring it, 2 times"}


@pytest.mark.parametrize("after", [20])
def test_a_killed_tuner_goes_on_where_it_was(
    ground: Ground, reference: TuneResult, tmp_path: Path, after: int
) -> None:
    result, again = driver_killed(ground, str(tmp_path), after=after, trials=TRIALS)
    assert differences(result, reference) == []
    assert again <= 49 - after
    assert result.state == "done"
