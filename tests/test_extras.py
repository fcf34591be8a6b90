"""Libraries that are optional: which there are, and what is said where one is missing."""

from __future__ import annotations

import importlib.metadata
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

import autoturbo
from autoturbo.errors import UsageError
from autoturbo.extras import LIBRARIES, how_to_install
from tests.cli.command_line import Cli, cli_in

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = Path(autoturbo.__file__).resolve().parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    return cli_in(tmp_path, monkeypatch)


def test_the_project_declares_the_extras_that_errors_name() -> None:
    ours = {n: v for n, v in EXTRAS.items() if n not in ("all", "docs", "host", "test")}
    assert ours == {name: [library] for name, library in LIBRARIES.items()}
    assert set(re.split(r"[\[\],]", EXTRAS["all"][0])[1:-1]) == {"host", *LIBRARIES}
    assert set(LIBRARIES.values()) - set(EXTRAS["test"]) == {LIBRARIES["samplers"]}
    names = {re.split("[^a-z-]", library)[0] for library in LIBRARIES.values()}
    assert not {text for text in PROJECT["dependencies"] if re.split("[^a-z-]", text)[0] in names}


class Installed(importlib.metadata.Distribution):
    """An installation that knows where it comes from."""

    def __init__(self, origin: dict[str, Any] | None, package: Path = PACKAGE) -> None:
        self.origin, self.package = origin, package

    def read_text(self, filename: str) -> str | None:
        assert filename == "direct_url.json"
        return None if self.origin is None else json.dumps(self.origin)

    def locate_file(self, path: Any) -> Path:
        assert path == "autoturbo"
        return self.package


def said(monkeypatch: pytest.MonkeyPatch, found: Installed) -> str:
    monkeypatch.setattr(importlib.metadata, "distribution", lambda _: found)
    start, _, command = how_to_install("report").partition("pip install ")
    assert start == "install it with: "
    return command


def test_what_is_installed_from_a_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    place = tmp_path / "a checkout"
    place.mkdir()
    found = Installed({"url": place.as_uri(), "dir_info": {}})
    assert said(monkeypatch, found) == f'"{place}[report]"'
    monkeypatch.chdir(place)
    assert said(monkeypatch, found) == '".[report]"'
    monkeypatch.chdir(tmp_path)
    place.rmdir()
    assert said(monkeypatch, found) == '"vl-convert-python>=1.9,<2"'


def test_what_is_run_from_a_checkout(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    nowhere = tmp_path / "autoturbo"  # an editable installation has no folder of its own
    origin = {"url": PACKAGE.parent.as_uri(), "dir_info": {"editable": True}}
    monkeypatch.chdir(PACKAGE.parent)
    assert said(monkeypatch, Installed(origin, nowhere)) == '-e ".[report]"'
    other = {"url": tmp_path.as_uri(), "dir_info": {"editable": True}}
    assert said(monkeypatch, Installed(other, nowhere)) == '"vl-convert-python>=1.9,<2"'


def test_what_is_installed_from_elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    wheel = tmp_path / "autoturbo-0.1.0-py3-none-any.whl"
    wheel.touch()
    for origin, place in (
        ({"url": wheel.as_uri(), "archive_info": {}}, wheel.as_uri()),
        ({"url": "https://a.org/b.zip", "archive_info": {}}, "https://a.org/b.zip"),
        (
            {
                "url": "https://a.org/b.git",
                "vcs_info": {"vcs": "git", "requested_revision": "main", "commit_id": "0a1b"},
                "subdirectory": "tuner",
            },
            "git+https://a.org/b.git@0a1b#subdirectory=tuner",
        ),
    ):
        assert said(monkeypatch, Installed(origin)) == f'"autoturbo[report] @ {place}"'


def test_where_nothing_is_known_the_library_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert said(monkeypatch, Installed(None)) == '"vl-convert-python>=1.9,<2"'
    another = Installed({"url": "https://a.org/b.zip", "archive_info": {}}, tmp_path)
    assert said(monkeypatch, another) == '"vl-convert-python>=1.9,<2"'

    def missing(name: str) -> None:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "distribution", missing)
    assert how_to_install("ray") == 'install it with: pip install "ray>=2.40"'


def test_no_source_names_the_package_as_if_an_index_had_it() -> None:
    for file in PACKAGE.rglob("*.py"):
        text = file.read_text(encoding="utf-8")
        assert not re.search(r"pip install [\"'\\]*(autoturbo|ray)\b", text), file


WITHOUT_RAY = """
import importlib.abc, importlib.metadata, sys

class Hidden(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        assert name.partition(".")[0] != "ray", f"{name} is imported"

sys.modules["ray"] = None
sys.meta_path.insert(0, Hidden())
version = importlib.metadata.version

def installed(name):
    if name == "ray":
        raise importlib.metadata.PackageNotFoundError(name)
    return version(name)

importlib.metadata.version = installed
"""


def without_ray(folder: Path, program: str) -> subprocess.CompletedProcess[str]:
    """Run a program in a process where Ray is not installed, and any import of it fails."""
    return subprocess.run(
        [sys.executable, "-c", WITHOUT_RAY + program],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.full
def test_all_but_ray_works_where_ray_is_not_installed(tmp_path: Path) -> None:
    program = """
import autoturbo
from autoturbo.api import tune
from autoturbo.cli import main

for name in autoturbo.__all__:
    getattr(autoturbo, name)
short = ["alexnet", "--batch", "1", "-q"]
assert main(["tune", *short, "--trials", "2"]) == 0
assert main(["tune", *short, "--trials", "2", "--jobs", "2"]) == 0
assert main(["space", "alexnet", "--batch", "1"]) == 0
print("here")
assert main(["doctor"]) == 0
"""
    done = without_ray(tmp_path, program)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.split("here\n")[1].splitlines()
    cells = (re.split(r"  +", line.strip(), maxsplit=1) for line in lines[2:])
    found = dict(both for both in cells if both[1:])  # a long path goes on in the next line
    assert found["ray"] == "not installed"
    assert found["Ray cluster"].startswith("not installed, and only --ray needs it; install it")


NEEDS_RAY = "--ray: needs Ray, which is not installed; install it with: pip install "


def test_the_flag_for_ray_is_one_line_where_it_is_not_installed(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    short = ("alexnet", "--batch", "1")
    for words in (
        ("tune", *short, "--trials", "2", "--ray"),
        ("tune", *short, "--trials", "2", "--ray", "127.0.0.1:1"),
        ("sweep", *short, "--trials", "2", "--vary", "clusters=1,2", "--ray"),
    ):
        ran = cli(*words)
        assert (ran.status, ran.out, ran.err.count("\n")) == (2, "", 1)
        assert ran.err.startswith(f"error: {NEEDS_RAY}")
        assert ran.err.endswith("; '--jobs N' measures without it\n")
    assert list(cli.folder.iterdir()) == []
    found = cli("--json", "doctor", "--ray").object["ray"]
    assert (found["ok"], found["state"][: len(NEEDS_RAY)]) == (False, NEEDS_RAY)


@pytest.mark.full
def test_a_run_is_not_resumed_with_ray_where_it_is_not_installed(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = cli("--json", "tune", "alexnet", "--batch", "1", "--trials", "2").object["run"]
    monkeypatch.setitem(sys.modules, "ray", None)
    ran = cli("resume", run, "--trials", "3", "--ray", "auto")
    assert (ran.status, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert ran.err.startswith(f"error: {NEEDS_RAY}")
    assert cli("--json", "resume", run, "--trials", "3").object["run"] == run


def test_the_argument_for_ray_is_an_error_where_it_is_not_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.chdir(tmp_path)
    model, target = autoturbo.load_model("alexnet", batch=1), autoturbo.load_target("stcp920")
    with pytest.raises(UsageError) as caught:
        autoturbo.tune(model, target, trials=2, ray="local")
    assert str(caught.value).startswith(NEEDS_RAY)
    with pytest.raises(UsageError) as caught:
        autoturbo.sweep(model, target, {"clusters": (1, 2)}, trials=2, ray="local")
    assert str(caught.value).startswith(NEEDS_RAY)
