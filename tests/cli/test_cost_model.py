"""The command that trains cost models, and the script that judges them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from judge import judge, put_into_card

from autoturbo.cost_models.pretrained import Pretrained, bundled
from autoturbo.errors import UsageError
from tests.cli.command_line import Cli, cli_in

pytest.importorskip("pyarrow")

COLLECT = (
    *("-q", "dataset", "collect", "alexnet", "--batch", "1", "--target", "goya"),
    *("--target", "ascend-910", "--settings", "8", "-o", "data"),
)


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    return cli_in(tmp_path, monkeypatch)


@pytest.mark.full
def test_train_and_judge(cli: Cli, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def judged(*asked: str) -> list[dict[str, Any]]:
        judge(["data", "--json", *asked])
        results: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["results"]
        return results

    assert cli(*COLLECT).status == 0
    trained = cli("--json", "cost-model", "train", "data", "-o", "model").object
    written = Pretrained.load(tmp_path / "model").card
    assert {**trained["card"], "factors_sha256": written["factors_sha256"]} == written
    assert trained["card"]["targets"] == ["ascend-910", "goya"]
    assert "accuracy" not in trained["card"]
    asked = ("--method", "alone", "--method", "squared", "--held-out")
    found = judged(*asked, "target")
    assert [r["method"] for r in found] == ["alone", "squared"]
    assert set(found[0]["groups"]) == {"ascend-910", "goya"}
    assert found[0]["mean"]["pairwise"] > 0.6
    judge(["data", *asked, "target"])
    assert "targets held out" in capsys.readouterr().out
    (own,) = judged("--model", "model", "--held-out", "model")
    assert (own["method"], list(own["groups"])) == ("model", ["alexnet"])
    assert own["mean"]["pairwise"] > 0.8  # it learned from these
    (named,) = judged("--model", "kernels", "--held-out", "model")
    assert 0.6 < named["mean"]["pairwise"] < own["mean"]["pairwise"]
    for needs_more in ((*asked, "model"), ("--card", "model")):
        with pytest.raises(UsageError, match="the data set has one model"):
            judge(["data", *needs_more])


@pytest.mark.full
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


def test_accuracy_is_put_into_the_card(tmp_path: Path) -> None:
    (kept,) = bundled().values()
    shutil.copytree(kept, tmp_path / "model")
    accuracy = Pretrained.load(kept).card["accuracy"]
    accuracy["model"]["tau"] = 0.5
    put_into_card(tmp_path / "model", accuracy)
    card = Pretrained.load(tmp_path / "model").card
    assert card["accuracy"]["model"]["tau"] == 0.5
    assert card["reproduce"] == Pretrained.load(kept).card["reproduce"]


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
