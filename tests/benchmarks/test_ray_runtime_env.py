"""A cluster whose interpreter has no autoturbo gets it from the tuner."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from ray_cluster import Cluster

import autoturbo


def interpreter_without(name: str, folder: Path) -> str:
    """One that imports all that this one has installed, but for one package."""
    packages = folder / "packages"
    packages.mkdir()
    for path in Path(sysconfig.get_path("purelib")).iterdir():
        if name not in path.name and not path.name.endswith(".pth"):
            (packages / path.name).symlink_to(path)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder / "env")], check=True)
    python = folder / "env" / "bin" / "python"
    (site,) = (folder / "env").glob("lib/python*/site-packages")
    (site / "others.pth").write_text(f"{packages}\n")
    return str(python)


@pytest.mark.full
@pytest.mark.ray
def test_the_package_travels_to_machines_that_lack_it(tmp_path: Path) -> None:
    python = interpreter_without("autoturbo", tmp_path)
    bare = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    lacking = subprocess.run(
        [python, "-c", "import autoturbo"], cwd=tmp_path, env=bare, capture_output=True, check=False
    )
    assert b"No module named 'autoturbo'" in lacking.stderr
    environment = {**os.environ, "RAY_AUTH_MODE": "disabled"}
    command = [sys.executable, "-m", "autoturbo", "tune", "squeezenet1_1", "--batch", "1"]
    command += ["--trials", "3", "-q"]
    (tmp_path / "env.yaml").write_text(f"py_modules: [{Path(autoturbo.__file__).parent}]\n")
    with Cluster(python=python) as cluster:
        cluster.add()
        told = subprocess.run(
            [*command, "--ray", cluster.address], cwd=tmp_path, env=environment,
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        more = ["--ray", cluster.address, "--ray-runtime-env", "env.yaml"]
        done = subprocess.run(
            [*command, *more], cwd=tmp_path, env=environment,
            capture_output=True, text=True, check=False,
        )  # fmt: skip
    assert told.returncode == 1
    assert "'--ray-runtime-env' brings it there" in told.stderr
    assert (done.returncode, done.stderr) == (0, "")
