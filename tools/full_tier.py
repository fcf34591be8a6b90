"""The full tier: what takes too long for every run, bounded to some minutes on two cores.

First the package with the lowest versions that ``pyproject.toml`` declares, in an environment of
its own: its schedules and searches must be those of this environment's versions, byte by byte. Then
the long tests that are listed here. A step that takes longer than it may fails.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path

from check import ENVIRONMENT, ROOT

LONG_TESTS = (
    "tests/cli/test_limits.py",
    "tests/cli/test_orderly_ends.py",
    "tests/benchmarks/test_kills.py::test_kills_of_drivers_and_workers_lose_nothing",
    "tests/benchmarks/test_zoo.py",
)
"""Files whose long tests are run: those without which something that is promised is not tried."""

LIMIT_S = {"install": 300, "lowest": 420, "newest": 240, "tests": 600}
"""Seconds for each step."""

SCHEDULES = Path(__file__).with_name("schedule_bytes.py")


def lowest(requirements: list[str]) -> list[str]:
    """Return what pins every requirement to the lowest version that it allows.

    Raises:
        ValueError: one has no lower bound.
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
    more = [r for name, needed in extras.items() if name not in ("test", "docs") for r in needed]
    return [*project["dependencies"], *more]


def run(step: str, *command: str | Path, **more: str) -> str:
    """Run a command within the seconds of its step; its standard output.

    Raises:
        SystemExit: it failed, or took too long.
    """
    print("==", step, *command[1:6], flush=True)
    began = time.monotonic()
    try:
        done = subprocess.run(  # noqa: S603
            list(map(str, command)), cwd=ROOT, env={**ENVIRONMENT, **more}, text=True,
            stdout=subprocess.PIPE, timeout=LIMIT_S[step], check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise SystemExit(f"== {step}: longer than {LIMIT_S[step]} s") from None
    print(f"== {step}: {time.monotonic() - began:.0f} s", flush=True)
    if done.returncode:
        raise SystemExit(f"{done.stdout}== {step}: status {done.returncode}")
    return done.stdout


def compare_lowest(folder: Path) -> None:
    """Have the lowest versions give what this environment's give.

    Raises:
        SystemExit: a step failed, or schedules differ.
    """
    pins = folder / "lowest.txt"
    pins.write_text("\n".join(lowest(declared())) + "\n")
    print(pins.read_text(), end="", flush=True)
    python = folder / "bin" / "python"
    run("install", sys.executable, "-m", "venv", folder)
    run("install", python, "-m", "pip", "install", "--quiet", "-r", pins, ROOT)
    old = run("lowest", python, SCHEDULES).splitlines()
    new = run("newest", sys.executable, SCHEDULES).splitlines()
    differing = sorted({*old} ^ {*new})
    if differing:
        raise SystemExit("\n".join(["== the lowest versions give others:", *differing]))
    print(f"== {len(new)} schedules and searches are the same, byte by byte", flush=True)


def main() -> None:
    """Run every step; status 1 if one fails."""
    with tempfile.TemporaryDirectory() as folder:
        compare_lowest(Path(folder))
    tests = ("-m", "pytest", "-q", "-m", "long", "-n", str(os.cpu_count() or 1), *LONG_TESTS)
    print(run("tests", sys.executable, *tests, AUTOTURBO_LONG="1"), end="")


if __name__ == "__main__":
    main()
