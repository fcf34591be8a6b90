"""Commands on a real cluster that cannot serve, or whose head dies."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from ray_cluster import Cluster, descendants

from tests import processes
from tests.processes import HANG_S, wait_for_trials

pytestmark = [pytest.mark.ray, pytest.mark.full]

TUNE = ("tune", "alexnet", "--batch", "1", "--trials", "100", "--no-progress")
SOON_S = 15
"""Seconds until a dead head is told of, on a machine with much to do; Ray takes 60."""


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")  # as the cluster's
    with Cluster() as found:
        found.wait()
        found.add(1)
        yield found


def command(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    folder.mkdir(exist_ok=True)
    line = [sys.executable, "-m", "autoturbo", *arguments]
    return processes.started(line, cwd=folder)


def ended(process: subprocess.Popen[str]) -> tuple[int, list[str]]:
    _, err = process.communicate(timeout=HANG_S)
    return process.returncode, err.splitlines()


def schedule(folder: Path) -> bytes:
    (file,) = folder.glob("runs/*/schedule.json")
    return file.read_bytes()


def died(process: subprocess.Popen[str], said: str) -> list[str]:
    """What resumes a run whose head has just died, as its last line says."""
    began = time.monotonic()
    assert process.stderr is not None
    lines: list[str] = []
    while not any(line.startswith(said) for line in lines):
        lines.append(process.stderr.readline())
        assert time.monotonic() - began < SOON_S, lines
        assert lines[-1], lines
    status, more = ended(process)
    assert status == 1
    last = f"error: {re.escape(said)}.*; start Ray again, then go on with '(autoturbo resume .*)'"
    found = re.fullmatch(last, more[-1])
    assert found is not None, more
    return shlex.split(found[1])[1:]


def test_a_run_whose_head_dies_is_resumed_with_the_same_bytes(
    cluster: Cluster, tmp_path: Path
) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    process = command(there, *TUNE, "--ray", cluster.address)
    wait_for_trials(process, there)
    cluster.head.kill()
    resume = died(process, f"Ray's head at {cluster.address} has died: ")
    assert resume[2:] == ["--ray", cluster.address]
    for node in list(cluster.nodes):
        cluster.remove(node)
    cluster.restart_head()
    cluster.add(1)
    status, err = ended(command(there, *resume))
    assert status == 0, err
    assert ended(command(here, *TUNE))[0] == 0
    assert schedule(there) == schedule(here)


@pytest.mark.parametrize(
    ("killed", "said"),
    [
        ("gcs_server", "the Ray that was started for this run has died: "),
        ("raylet", "Ray's node of this machine has died: "),
    ],
)
def test_a_ray_of_our_own_that_dies_is_told_of(tmp_path: Path, killed: str, said: str) -> None:
    folder = tmp_path / "own"
    process = command(folder, *TUNE, "--ray", "--jobs", "1")
    wait_for_trials(process, folder)
    (server,) = [
        pid for pid in descendants(process.pid)
        if Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0].endswith(killed.encode())
    ]  # fmt: skip
    os.kill(server, signal.SIGKILL)
    resume = died(process, said)
    assert resume[2:] == ["--ray", "local", "--jobs", "1"]
    assert ended(command(folder, *resume))[0] == 0


def test_a_resource_that_no_node_has_leaves_nothing(cluster: Cluster, tmp_path: Path) -> None:
    folder = tmp_path / "none"
    on = ("--ray", cluster.address, "--ray-resource", "board", "-q")
    status, err = ended(command(folder, *TUNE, *on))
    assert (status, len(err)) == (2, 1)
    assert "no node of the Ray cluster has the resource 'board'" in err[0]
    assert list(folder.iterdir()) == []


def test_a_time_budget_without_a_worker_is_an_error(cluster: Cluster, tmp_path: Path) -> None:
    cluster.remove(cluster.nodes[0])
    folder = tmp_path / "idle"
    budget = [*TUNE[:4], "--time-budget", "25s", "--no-progress", "--ray", cluster.address]
    status, err = ended(command(folder, *budget))
    assert status == 1
    assert err[-2].startswith("waiting for Ray: no node of the cluster has a CPU")
    assert err[-1].startswith("error: nothing was measured: the time is up, and no node of the")
    assert "; go on with 'autoturbo resume " in err[-1]
