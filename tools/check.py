"""Everything that has to hold before a change is handed on, against the installed package.

Lint, format, types and import contracts read the source tree; the tests import the package that is
installed beside this interpreter. Further arguments go to pytest.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
STEPS = (
    ("ruff", "check", "--output-format=concise", "."),
    ("ruff", "format", "--check", "."),
    ("mypy",),
    ("lint-imports",),
)


def run(step: tuple[str, ...]) -> bool:
    """Run one tool of this environment in the source tree; True if it is content."""
    print("==", *step, flush=True)
    # PYTHONSAFEPATH keeps the source tree off the path: what is tested is what pip installed
    environment = {**os.environ, "PYTHONSAFEPATH": "1"}
    tool = Path(sysconfig.get_path("scripts")) / step[0]
    command = [str(tool), *step[1:]]
    return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode == 0  # noqa: S603


def main() -> int:
    """Run every step, the tests last, whatever fails before them."""
    failed = [" ".join(step) for step in STEPS if not run(step)]
    if failed:
        print("== failed:", ", ".join(failed), flush=True)
    passed = run(("pytest", "-n", "auto", "--durations=20", *sys.argv[1:]))
    return 0 if passed and not failed else 1


if __name__ == "__main__":
    sys.exit(main())
