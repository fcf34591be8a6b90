"""Workloads of several families tune, on several presets, never worse than the heuristic."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.cli.command_line import Cli, cli_in

if TYPE_CHECKING:
    from pathlib import Path

TRIALS = 3
"""Trial 0 and some more: enough to go through every part of a run."""

DEFAULT = "stcp920"

PAIRS = (
    ("resnet18", "tpu-v4i"), ("alexnet", DEFAULT), ("whisper_base_enc", DEFAULT),
    ("mobilenet_v2", "goya"), ("llama_decode", "ipu-mk2"), ("dlrm", "mlu100"),
)  # fmt: skip
"""Workloads of some families and some presets; the replay corpus has all of them."""


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    return cli_in(tmp_path, monkeypatch)


def tune(cli: Cli, model: str, target: str, trials: int) -> dict[str, Any]:
    ran = cli("--json", "tune", model, "--target", target, "--trials", str(trials))
    assert ran.status == 0, ran.err
    return ran.object


@pytest.mark.full
@pytest.mark.parametrize(("name", "preset"), PAIRS)
def test_workloads_tune(name: str, preset: str, cli: Cli) -> None:
    result = tune(cli, name, preset, TRIALS)
    assert result["trials"] == TRIALS
    assert result["best"]["latency_s"] <= result["default"]["latency_s"]
    for measured in (result["best"], result["default"], *result["baselines"].values()):
        assert measured["latency_s"] >= measured["lower_bound_s"]
        assert 0 < measured["matrix_utilization"] <= 1
        assert measured["ddr_bytes"] > 0


@pytest.mark.full
def test_tuned_is_no_worse_than_the_heuristic_at_its_best_batch(cli: Cli) -> None:
    result = tune(cli, "mobilenet_v2", "mlu100", 17)
    assert result["best"]["latency_s"] <= result["baselines"]["graphturbo"]["latency_s"]


def test_an_input_with_other_channels_is_refused(cli: Cli) -> None:
    ran = cli("inspect", "resnet18", "--shape", "input=1,5,224,224")
    assert ran.status == 2
    assert "its input has 5 channels, its weights take 3" in ran.err
    assert ran.err.count("\n") == 1


def test_a_local_buffer_without_room_for_tiles_is_infeasible(cli: Cli) -> None:
    description = cli("targets", "show", "stcp920").out
    tiny = description.replace("capacity_kib: 1024", "capacity_kib: 1")
    assert tiny != description
    ran = cli("simulate", "resnet18", "--target", cli.write("tiny.yaml", tiny))
    assert ran.status == 3
    assert "tiles in flight need" in ran.err
