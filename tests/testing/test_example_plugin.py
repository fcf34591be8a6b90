"""The example plug-ins, installed as a user would, keep the contracts and are found by name."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PLUGINS = {"plugin": 25, "launches": 8}
"""Folders of ``examples`` and how many tests each has."""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment that has the plug-ins, which nothing else sees."""
    site = tmp_path_factory.mktemp("site")
    command = ["pip", "install", "-q", "--no-deps", "--no-build-isolation", "--no-index"]
    folders = [str(ROOT / "examples" / name) for name in PLUGINS]
    subprocess.run(
        [sys.executable, "-m", *command, "--target", str(site), *folders], check=True, text=True
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
@pytest.mark.parametrize("name", PLUGINS)
def test_its_own_tests_pass(name: str, installed: dict[str, str], tmp_path: Path) -> None:
    folder = ROOT / "examples" / name
    options = ["-q", "-c", os.devnull, "--rootdir", str(folder), "-p", "no:cacheprovider"]
    done = run(installed, tmp_path, "pytest", *options, str(folder / "tests"))
    assert done.returncode == 0, done.stdout
    assert f"{PLUGINS[name]} passed" in done.stdout


@pytest.mark.full
def test_a_measurer_is_found_by_name(installed: dict[str, str], tmp_path: Path) -> None:
    asked = ["squeezenet1_1", "--batch", "1", "--measurer", "launches"]
    done = run(installed, tmp_path, "autoturbo", "--json", "simulate", *asked)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["kernels"] > 0


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
