"""Real drivers killed at random moments: the bounded form of ``benchmarks/database_kills.py``."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.processes import HANG_S

ROOT = Path(__file__).resolve().parents[2]

RUN = """
import json, sys, tempfile
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import database_kills
with tempfile.TemporaryDirectory() as folder:
    tally = database_kills.kill(6, 0, 32, Path(folder))
print(json.dumps([tally.kills, tally.finished, tally.acknowledged]))
"""


@pytest.mark.full  # the fast tier kills what only writes to a database, not whole drivers
@pytest.mark.skipif(not hasattr(os, "fork"), reason="drivers are forked")
def test_drivers_that_are_killed_lose_nothing_that_was_acknowledged() -> None:
    """In a process of its own: it forks, and threads of other tests would not outlive that."""
    command = [sys.executable, "-c", RUN, str(ROOT / "benchmarks")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        command, capture_output=True, text=True, env=environment, check=False, timeout=HANG_S
    )
    assert done.returncode == 0, done.stderr
    kills, _, acknowledged = json.loads(done.stdout.splitlines()[-1])
    assert kills >= 6
    assert acknowledged > 0
