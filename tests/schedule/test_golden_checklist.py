"""The checklist of the paper names tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
CHECKLIST = ROOT / "docs" / "decisions" / "0005-checklist.md"


def test_every_named_test_exists() -> None:
    named = set(re.findall(r"`(test_\w+)`", CHECKLIST.read_text(encoding="utf-8")))
    files = (path.read_text(encoding="utf-8") for path in ROOT.glob("tests/*/**/test_*.py"))
    defined = {name for text in files for name in re.findall(r"\ndef (test_\w+)", text)}
    assert len(named) > 40
    assert named <= defined
