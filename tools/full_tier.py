"""The full tier: what the fast tier, which ``pytest`` alone runs, leaves out.

The cases marked ``full``, and beside them, in environments of their own: the package with the
lowest versions that ``pyproject.toml`` declares, whose schedules and searches must be those of this
environment's versions, byte by byte; and the package of ``examples/gpu``, with PyTorch and Triton.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

WORKERS = str((os.cpu_count() or 1) + 1)
"""One more than there are cores: tests wait for Ray, for locks and for processes to end."""

SCHEDULES = Path(__file__).with_name("schedule_bytes.py")

GPU = ROOT / "examples" / "gpu"


def lowest(requirements: list[str]) -> list[str]:
    """Return what pins every requirement to the lowest version that it allows.

    Raises:
        ValueError: One has no lower bound.
    """
    pins = []
    for requirement in requirements:
        wanted, _, marker = requirement.partition(";")
        found = re.fullmatch(r"([\w.-]+)>=([\w.]+)(,.*)?", wanted.strip())
        if found is None:
            raise ValueError(f"pyproject.toml: {requirement!r} has no lower bound")
        pins.append(f"{found[1]}=={found[2]}" + (f" ;{marker}" if marker else ""))
    return pins


def declared() -> list[str]:
    """Return what the package needs, and what its extras for users do."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    more = [r for name, needed in extras.items() if name not in ("docs", "test") for r in needed]
    return [*project["dependencies"], *(r for r in more if not r.startswith("autoturbo["))]


def run(step: str, *command: str | Path, folder: Path = ROOT) -> str:
    """Run a command, and say how long it took.

    Returns:
        Its standard output.

    Raises:
        SystemExit: It failed.
    """
    began = time.monotonic()
    done = subprocess.run(  # noqa: S603
        list(map(str, command)), cwd=folder, text=True, stdout=subprocess.PIPE, check=False
    )
    print(f"== {step}: {time.monotonic() - began:.0f} s", flush=True)
    if done.returncode:
        raise SystemExit(f"{done.stdout}== {step}: status {done.returncode}")
    return done.stdout


def compare_lowest(folder: Path) -> None:
    """Have the lowest versions give what this environment's give.

    Raises:
        SystemExit: A step failed, or schedules differ.
    """
    folder.mkdir()
    pins = folder / "lowest.txt"
    pins.write_text("\n".join(lowest(declared())) + "\n")
    python = folder / "bin" / "python"
    run("an environment", sys.executable, "-m", "venv", folder)
    run("the lowest versions", python, "-m", "pip", "install", "--quiet", "-r", pins, ROOT)
    # -P: the package is the one that is installed, not the sources
    old = run("their schedules", python, "-P", SCHEDULES).splitlines()
    new = run("schedules of this environment", sys.executable, "-P", SCHEDULES).splitlines()
    differing = sorted({*old} ^ {*new})
    if differing:
        raise SystemExit("\n".join(["== the lowest versions give others:", *differing]))
    print(f"== {len(new)} schedules and searches are the same, byte by byte", flush=True)


def check_gpu_package(folder: Path) -> None:
    """Have the package for GPUs pass its tests, in Triton's interpreter where there is no GPU.

    Raises:
        SystemExit: A step failed.
    """
    python = folder / "bin" / "python"
    install = (python, "-m", "pip", "install", "--quiet", "-c", GPU / "constraints.txt")
    run("an environment", sys.executable, "-m", "venv", folder)
    run("PyTorch and Triton", *install, ROOT, f"{GPU}[gpu,test]")
    run("types of the package for GPUs", python, "-m", "mypy", folder=GPU)
    print(run("tests of it", python, "-P", "-m", "pytest", "-q", "tests", folder=GPU), end="")


def main() -> None:
    """Run all side by side; status 1 if one fails."""
    pytest = (sys.executable, "-P", "-m", "pytest", "-q", "-m", "full", "-n", WORKERS)
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(max_workers=2) as threads:
        tests = threads.submit(run, "tests", *pytest, "--durations=20", *sys.argv[1:])
        # beside the tests, one after the other
        beside = [
            threads.submit(check, Path(folder) / name)
            for name, check in (("lowest", compare_lowest), ("gpu", check_gpu_package))
        ]
        print(tests.result(), end="", flush=True)
        for check in beside:
            check.result()


if __name__ == "__main__":
    main()
