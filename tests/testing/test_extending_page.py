"""The code of ``docs/extending.md`` works as it stands."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from autoturbo.hardware import load_target
from autoturbo.schedule.knobs import Knobs
from autoturbo.simulator.evaluator import Evaluator
from autoturbo.simulator.measurement import Failure, Measurement
from autoturbo.testing import measurers as checks
from autoturbo.testing.contract import small_networks

PAGE = Path(__file__).resolve().parents[2] / "docs" / "extending.md"


@pytest.fixture
def names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the page's Python defines, with the program that it calls."""
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    found: dict[str, Any] = {"__file__": str(tmp_path / "target.py")}
    for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL):
        exec(block, found)  # noqa: S102  our own page
    return found


def program(folder: Path, script: str) -> None:
    file = folder / "my-simulator"
    file.write_text(f"#!/bin/sh\ncat > /dev/null\n{script}\n")
    file.chmod(0o755)


def test_the_measurer(names: dict[str, Any], tmp_path: Path) -> None:
    evaluator = Evaluator(
        small_networks()[0], load_target("stcp920"), "float16", names["External"]()
    )
    program(tmp_path, "echo 0.25")
    measured = evaluator.evaluate(Knobs())
    assert isinstance(measured, Measurement)
    assert measured.latency == 0.25
    program(tmp_path, "echo no licence >&2; exit 1")
    assert evaluator.evaluate(Knobs()) == Failure("raised", "no licence")


def test_the_measurer_keeps_what_it_can_of_the_contract(
    names: dict[str, Any], tmp_path: Path
) -> None:
    program(tmp_path, "echo 0.00001")
    case = checks.MeasurerCase(names["External"])
    checks.outcomes_are_sound(case)
    checks.the_same_schedule_measures_the_same(case)
    checks.figures_are_in_their_units(case)


def test_the_other_code(names: dict[str, Any]) -> None:
    assert names["example_npu"]().name == "example-npu.yaml"
    assert callable(names["test_measurer"])
