"""Tuning with measurers that vary, in workers of their own: gains with their confidence."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli import faulty_measurers
from tests.cli.command_line import Cli
from tests.processes import HANG_S


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    return faulty_measurers.cli_with_boards(tmp_path, monkeypatch)


@pytest.mark.full
def test_a_gain_has_its_interval(cli: Cli) -> None:
    words = ("tune", "alexnet", "--batch", "1", "--measurer", "noisy", "--trials", "16")
    ran = cli(*words)
    assert ran.status == 0, ran.err
    assert " at 95 % confidence), " in ran.out
    assert "figures      measured by noisy" in ran.out
    line = cli("--json", *words, "--seed", "1").object
    sure = line["confidence"]
    assert sure["demonstrated"]
    assert 1 < sure["gain_low"] < sure["gain"] < sure["gain_high"]
    assert sure["gain"] == pytest.approx(3.4, rel=0.15)  # simulated without noise
    assert 0.005 < sure["noise"] < 0.1
    ratio = line["default"]["latency_s"] / line["best"]["latency_s"]
    assert ratio == pytest.approx(sure["gain"], rel=0.1)
    shown = cli("show", line["run"])
    assert (shown.status, "measured by noisy" in shown.out) == (0, True)
    again = cli("replay", line["run"], "3")
    assert (again.status, "equal, within the noise of " in again.out) == (0, True), again.out
    more = cli("--json", "resume", line["run"], "--trials", "20").object
    assert (more["trials"], more["confidence"]["demonstrated"]) == (20, True)


@pytest.mark.full
def test_apply_names_the_board_whose_schedule_there_is(cli: Cli) -> None:
    words = ("alexnet", "--batch", "1")
    assert cli("tune", *words, "--measurer", "noisy", "--trials", "4", "-q").status == 0
    ran = cli("apply", *words, "-o", "out.onnx")
    assert (ran.status, ran.out) == (2, "")
    assert ran.err == (
        "error: autoturbo.db: no best schedule of alexnet at batch 1 on stcp920 in float16; there "
        "is one measured by noisy; add --measurer noisy, or --scheduler graphturbo takes the "
        "heuristic's schedule instead\n"
    )
    assert cli("apply", *words, "--measurer", "noisy", "-o", "out.onnx").status == 0
    other = cli("apply", *words, "--measurer", "alike", "-o", "out.onnx")
    assert "; there is one measured by noisy; add --measurer noisy, or " in other.err
    batch = cli("apply", "alexnet", "--batch", "2", "--measurer", "noisy", "-o", "out.onnx")
    assert "; there is one at batch 1; --nearest-batch adapts it, or " in batch.err


@pytest.mark.full
def test_no_demonstrated_gain_is_an_answer(cli: Cli) -> None:
    words = ("tune", "alexnet", "--batch", "1", "--measurer", "alike", "--trials", "16")
    ran = cli(*words)
    assert ran.status == 0, ran.err
    assert "gain         none demonstrated: " in ran.out
    line = cli("--json", *words, "--seed", "1").object
    assert (line["confidence"]["demonstrated"], line["best_trial"]) == (False, 0)


@pytest.mark.full
def test_what_a_measurer_reports_can_be_sought(cli: Cli) -> None:
    words = ("tune", "alexnet", "--batch", "1", "--trials", "16", "--measurer")
    ran = cli(*words, "metered", "--objective", "energy,ddr-bytes", "--jobs", "2")
    assert ran.status == 0, ran.err
    assert "time    about 0:40 by what metered says" in ran.out + ran.err
    line = cli("--json", *words, "metered", "--objective", "energy").object
    best = line["best"]
    assert best["energy_j"] == pytest.approx(40 * best["latency_s"], rel=0.3)
    assert best["ddr_bytes"] > 0
    for objective in ("energy", "ddr-bytes"):
        refused = cli(*words, "noisy", "--objective", objective)
        assert refused.status == 2
        assert f"the measurer noisy does not report {objective}" in refused.err
        assert "it reports latency" in refused.err


@pytest.mark.full
@pytest.mark.parametrize("model", ["mobilenet_v2", "bert_base_s128"])
def test_noise_costs_little(cli: Cli, model: str) -> None:
    """5 % of noise, 1 % of failures and 10 % of drift, against the same board without them."""
    words = ("--json", "tune", model, "--trials", "64", "--measurer")
    exact = cli(*words, "counter").object["best"]["latency_s"]
    noisy = cli(*words, "noisy").object
    knobs = noisy["schedule_file"]
    simulated = cli("--json", "simulate", model, "--schedule", knobs).object["latency_s"]
    assert simulated <= 1.03 * exact
    sure = noisy["confidence"]
    default = cli("--json", "simulate", model, "--scheduler", "graphturbo").object["latency_s"]
    if sure["demonstrated"]:
        assert 0.98 * sure["gain_low"] < default / simulated < 1.02 * sure["gain_high"]
    else:
        assert noisy["best_trial"] == 0


@pytest.mark.full
@pytest.mark.ray
def test_each_board_of_a_cluster_measures_one_schedule_at_a_time(cli: Cli) -> None:
    """A Ray cluster that has two of a resource, of which each worker takes one."""
    site = os.pathsep.join([str(cli.folder / "site"), *sys.path])
    command = [
        *(sys.executable, "-m", "autoturbo", "--json", "tune", "alexnet", "--batch", "1"),
        *("--trials", "16", "--measurer", "noisy", "--ray", "local", "--jobs", "2"),
        *("--ray-resource", "board"),
    ]
    done = subprocess.run(
        command, cwd=cli.folder, env={**os.environ, "PYTHONPATH": site},
        capture_output=True, text=True, check=False, timeout=HANG_S,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["confidence"]["demonstrated"]


def test_a_resource_needs_ray(cli: Cli) -> None:
    ran = cli("tune", "alexnet", "--ray-resource", "board")
    assert (ran.status, ran.err.count("\n")) == (2, 1)
    assert "a resource of Ray is for its workers; add --ray" in ran.err
