"""The command that says where a tuning run's time goes."""

from __future__ import annotations

import subprocess
import sys
import time

import loop_overhead
import pytest
from loop_overhead import PARTS, WHERE, Shares

from autoturbo.commands.registry import build_parser


def test_what_is_counted_is_there() -> None:
    missing = [name for _, own, names in WHERE for name in names if not hasattr(own, name)]
    assert missing == []


def test_a_second_counts_for_the_innermost_that_is_under_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = iter([0.0, 1.0, 3.0, 6.0, 10.0, 15.0])  # made, into, into, out of, out of, read
    monkeypatch.setattr(time, "process_time", lambda: next(clock))
    found = Shares()
    inner = found.counting("predict", lambda: "answer")
    assert found.counting("propose", inner)() == "answer"
    found.switch()
    expected = {"rest": 1.0 + 5.0, "propose": 2.0 + 4.0, "predict": 3.0}
    assert found.seconds == {**dict.fromkeys((*PARTS, "rest"), 0.0), **expected}


def test_the_whole_command_is_one_that_users_can_give(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[list[str]] = []
    monkeypatch.setattr(subprocess, "run", lambda words, **_: said.append(words))
    assert loop_overhead.command("resnet50", "mlu100", 40) >= 0
    assert said[0][:3] == [sys.executable, "-m", "autoturbo"]
    asked = build_parser().parse_args(said[0][3:])
    assert (asked.models, asked.targets, asked.trials) == (["resnet50"], ["mlu100"], 40)
