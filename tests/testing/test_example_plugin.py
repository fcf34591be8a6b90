"""The example plug-in, installed as a user would, keeps the contracts and is found by name."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PLUGIN = ROOT / "examples" / "plugin"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment that has the plug-in, which nothing else sees."""
    site = tmp_path_factory.mktemp("site")
    command = ["pip", "install", "-q", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run(
        [sys.executable, "-m", *command, "--target", str(site), str(PLUGIN)], check=True, text=True
    )
    path = os.pathsep.join(filter(None, (str(site), os.environ.get("PYTHONPATH"))))
    return {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}


def run(
    installed: dict[str, str], folder: Path, *arguments: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", *arguments],
        cwd=folder, env=installed, capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.mark.full
def test_its_own_tests_pass(installed: dict[str, str], tmp_path: Path) -> None:
    pytest.importorskip("optuna.testing.pytest_samplers", reason="Optuna 5 has it")
    options = ["-q", "-c", os.devnull, "--rootdir", str(PLUGIN), "-p", "no:cacheprovider"]
    done = run(installed, tmp_path, "pytest", *options, str(PLUGIN / "tests"))
    assert done.returncode == 0, done.stdout
    assert " passed" in done.stdout
    assert "skipped" not in done.stdout


@pytest.mark.full
def test_the_command_line_finds_it_by_name_and_misses_it(
    installed: dict[str, str], tmp_path: Path
) -> None:
    names = ["--target", "example-npu", "--measurer", "roofline", "--sampler", "hillclimb"]
    model = ["squeezenet1_1", "--batch", "1"]
    done = run(installed, tmp_path, "autoturbo", "--json", "tune", *model, *names, "--trials", "6")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["target"], found["trials"]) == ("example-npu", 6)
    again = run(installed, tmp_path, "autoturbo", "--json", "replay", found["run"], "3")
    assert json.loads(again.stdout)["same"] is True
    there = run(installed, tmp_path, "autoturbo", "--json", "show", found["run"])
    shown = json.loads(there.stdout)["settings"]
    assert shown["measurer"] == "roofline"
    assert shown["scheduler_version"].endswith("+roofline@0.1.0")
    without = {**installed, "PYTHONPATH": os.environ.get("PYTHONPATH", "")}
    gone = run(without, tmp_path, "autoturbo", "resume", found["run"], "--trials", "7")
    assert (gone.returncode, gone.stdout) == (2, "")
    assert gone.stderr == (
        "error: no measurer is called 'roofline'; one of simulator, or install the package that"
        " brings it\n"
    )
