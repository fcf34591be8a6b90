"""Everything that has to hold before a change is handed on, against the installed package.

Lint, format, types and import contracts read the source tree; the tests import the package that is
installed beside this interpreter. Further arguments go to pytest.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parents[1]
STEPS = (
    ("ruff", "check", "--output-format=concise", "."),
    ("ruff", "format", "--check", "."),
    ("mypy",),
    ("lint-imports",),
)
WARM_UP = ("-m", "autoturbo", "--quiet", "tune", "squeezenet1_1", "--trials", "5")
"""Goes through nearly all compiled functions: they are compiled once, and kept on the disk."""

WORKERS = (os.cpu_count() or 1) + 1
"""One more than there are cores: tests wait for Ray, for locks and for processes to end."""

# PYTHONSAFEPATH keeps the source tree off the path: what is tested is what pip installed
ENVIRONMENT = {**os.environ, "PYTHONSAFEPATH": "1"}


def run(step: tuple[str, ...]) -> bool:
    """Run one tool of this environment in the source tree; True if it is content."""
    print("==", *step, flush=True)
    tool = Path(sysconfig.get_path("scripts")) / step[0]
    command = [str(tool), *step[1:]]
    return subprocess.run(command, cwd=ROOT, env=ENVIRONMENT, check=False).returncode == 0  # noqa: S603


@contextmanager
def warmed_up() -> Iterator[None]:
    """Compile beside what is done within: else every worker of the tests does so for itself."""
    with TemporaryDirectory() as folder:
        command = [sys.executable, *WARM_UP]
        silent = subprocess.DEVNULL  # whatever fails here fails in the tests, which say more
        with subprocess.Popen(command, cwd=folder, env=ENVIRONMENT, stdout=silent, stderr=silent):  # noqa: S603
            yield


def main() -> int:
    """Run every step, the tests last, whatever fails before them."""
    with warmed_up():
        failed = [" ".join(step) for step in STEPS if not run(step)]
    if failed:
        print("== failed:", ", ".join(failed), flush=True)
    # work is taken over from the end of another's: few modules are split, and set up twice
    spread = ("-n", str(WORKERS), "--dist", "worksteal")
    passed = run(("pytest", *spread, "--durations=20", *sys.argv[1:]))
    return 0 if passed and not failed else 1


if __name__ == "__main__":
    sys.exit(main())
