"""The command that trains cost models and judges them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from autoturbo.cost_models.pretrained import Pretrained
from tests.cli.command_line import Cli, cli_in

pytest.importorskip("pyarrow")

COLLECT = (
    *("-q", "dataset", "collect", "alexnet", "--batch", "1", "--target", "goya"),
    *("--target", "ascend-910", "--settings", "8", "-o", "data"),
)


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    return cli_in(tmp_path, monkeypatch)


def test_train_and_evaluate(cli: Cli, tmp_path: Path) -> None:
    assert cli(*COLLECT).status == 0
    trained = cli("--json", "cost-model", "train", "data", "-o", "model").object
    written = Pretrained.load(tmp_path / "model").card
    assert {**trained["card"], "factors_sha256": written["factors_sha256"]} == written
    assert trained["card"]["targets"] == ["ascend-910", "goya"]
    assert "accuracy" not in trained["card"]
    asked = ("cost-model", "evaluate", "data", "--method", "alone", "--method", "squared")
    found = cli("--json", *asked, "--held-out", "target").object["results"]
    assert [r["method"] for r in found] == ["alone", "squared"]
    assert set(found[0]["groups"]) == {"ascend-910", "goya"}
    assert found[0]["mean"]["pairwise"] > 0.6
    assert "targets held out" in cli(*asked, "--held-out", "target").out
    given = ("cost-model", "evaluate", "data", "--model", "model", "--held-out", "model")
    (judged,) = cli("--json", *given).object["results"]
    assert (judged["method"], list(judged["groups"])) == ("model", ["alexnet"])
    assert judged["mean"]["pairwise"] > 0.8  # it learned from these
    (named,) = cli("--json", *given[:4], "kernels", *given[5:]).object["results"]
    assert 0.6 < named["mean"]["pairwise"] < judged["mean"]["pairwise"]
    ran = cli(*asked, "--held-out", "model")
    assert (ran.status, ran.out) == (2, "")
    assert "the data set has one model" in ran.err


def test_a_search_begins_with_a_model_of_one_s_own(cli: Cli) -> None:
    assert cli(*COLLECT).status == 0
    assert cli("-q", "cost-model", "train", "data", "-o", "model").status == 0
    words = ("--json", "tune", "alexnet", "--batch", "1", "--target", "goya", "--trials", "20")
    ours, own = cli(*words).object, cli(*words, "--cost-model", "model").object
    assert ours["run"] != own["run"]
    manifest = json.loads(Path(own["schedule_file"]).with_name("manifest.json").read_text())
    assert manifest["settings"]["cost_model"] == "model"
    more = cli("--json", "resume", own["run"], "--trials", "24").object
    assert (more["run"], more["trials"]) == (own["run"], 24)
    refused = {"absent": "read; a plug-in of that name is not", "data": "not the card of a"}
    for folder, wrong in refused.items():
        ran = cli("tune", "alexnet", "--cost-model", folder)
        assert (ran.status, ran.err.count("\n")) == (2, 1)
        assert wrong in ran.err
    (Path("model") / "factors.ubj").unlink()
    ran = cli("resume", own["run"], "--trials", "40")
    assert (ran.status, ran.err.count("error: ")) == (2, 1), ran.err


def test_judging_needs_more_than_one_of_a_kind(cli: Cli) -> None:
    assert cli(*COLLECT).status == 0
    ran = cli("cost-model", "train", "data", "--judge", "-o", "model")
    assert (ran.status, ran.out) == (2, "")
    assert "the data set has one model" in ran.err


def test_list(cli: Cli) -> None:
    ran = cli("cost-model", "list")
    assert (ran.status, ran.err) == (0, "")
    assert ran.out.startswith("kernels: ")
    assert " right on targets held out\n" in ran.out
    found = cli("--json", "cost-model", "list").object["models"]
    assert len(found["kernels"]["targets"]) == 6


def test_a_model_of_another_release_is_one_clear_line(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "old"
    folder.mkdir()
    (folder / "card.json").write_text('{"features_schema": 1}')
    monkeypatch.setattr("autoturbo.cost_models.pretrained.bundled", lambda: {"old": folder})
    ran = cli("cost-model", "list")
    assert (ran.status, ran.out) == (2, "")
    assert ran.err.endswith("; train it again\n")
    assert "features of version 1" in ran.err
    assert ran.err.count("\n") == 1
