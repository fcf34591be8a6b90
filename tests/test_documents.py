"""Pages that are written from the code are what the code would write now."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def test_the_page_of_knobs_is_current() -> None:
    command = [sys.executable, str(ROOT / "tools" / "knobs_page.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
