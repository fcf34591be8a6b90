"""Plug-ins are found by name and loaded when asked for; broken ones are named in one line."""

from __future__ import annotations

import importlib.metadata
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path
from typing import Any

import pytest

import autoturbo
from autoturbo.cli import main
from autoturbo.errors import PluginError, UsageError
from autoturbo.hardware import load_target
from autoturbo.registry import MEASURERS, SAMPLERS, SCHEDULERS, TARGETS
from autoturbo.schedule.by_name import candidates
from autoturbo.schedule.pipeline import ModelScheduler
from autoturbo.search import make_sampler
from autoturbo.search.samplers import check_sampler
from autoturbo.simulator.measurement import Failure, Measurement
from autoturbo.simulator.measurers import find_measurer, measurer_version
from autoturbo.testing.contract import small_networks
from autoturbo.tuning.keys import scheduler_version

MODULE = """\
from optuna.samplers import RandomSampler


class Board:
    def measure(self, schedules):
        return []


class Ordinal(RandomSampler):
    ordinal = True
    several = False


def broken(*_):
    raise RuntimeError("no licence\\nfound")


number = 42


def nothing(*_):
    return None
"""
GROUPS = (MEASURERS.group, SAMPLERS.group, SCHEDULERS.group)


@pytest.fixture(autouse=True)
def _installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "their_plugins.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    names = {name: name for name in ("broken", "number", "nothing", "absent")}
    entries = [
        EntryPoint(name, f"their_plugins:{value}", group)
        for group in GROUPS
        for name, value in names.items()
    ]
    entries += [
        EntryPoint("board", "their_plugins:Board", MEASURERS.group),
        EntryPoint("simulator", "their_plugins:Board", MEASURERS.group),
        EntryPoint("ordinal", "their_plugins:Ordinal", SAMPLERS.group),
        EntryPoint("tpe", "their_plugins:Ordinal", SAMPLERS.group),
        EntryPoint("gone", "their_plugins:gone", TARGETS.group),
    ]

    def entry_points(**asked: Any) -> EntryPoints:
        return EntryPoints(entries).select(**asked)

    monkeypatch.setattr(importlib.metadata, "entry_points", entry_points)


def test_names_come_after_ours_and_once() -> None:
    theirs = ("absent", "board", "broken", "nothing", "number")
    assert MEASURERS.names() == ("simulator", *theirs)
    others = ("absent", "broken", "nothing", "number", "ordinal")
    assert SAMPLERS.names() == (*SAMPLERS.builtin, *others)
    assert SCHEDULERS.names()[-4:] == ("absent", "broken", "nothing", "number")


def test_ours_cannot_be_replaced() -> None:
    assert type(find_measurer("simulator")).__name__ == "Simulator"
    assert type(make_sampler("tpe", 0).sampler).__name__ == "TPESampler"


def test_what_they_register() -> None:
    assert type(find_measurer("board")).__name__ == "Board"
    choice = make_sampler("ordinal", 3)
    assert (choice.name, choice.ordinal) == ("ordinal", True)
    with pytest.raises(UsageError):
        check_sampler("ordinal", 2)


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("broken", "failed: RuntimeError: no licence found"),
        ("number", "is a value of type 'int', not a function"),
        ("nothing", "gives a value of type 'NoneType', no"),
        ("absent", "cannot be loaded: AttributeError: module 'their_plugins' has no attribute"),
    ],
)
def test_broken_ones_are_named(name: str, what: str) -> None:
    for find, group in ((find_measurer, MEASURERS.group), (_sampler, SAMPLERS.group)):
        with pytest.raises(PluginError) as caught:
            find(name)
        text = str(caught.value)
        assert text.startswith(f"the plug-in {name!r} {what}")
        assert text.endswith(f"; it is 'their_plugins:{name}' in the group {group!r}")
        assert caught.value.exit_status == 2
        assert "\n" not in text


def _sampler(name: str) -> object:
    return make_sampler(name, 0)


def test_a_broken_scheduler_is_named() -> None:
    model_scheduler = ModelScheduler(small_networks()[0], load_target("stcp920"), "float16")
    with pytest.raises(PluginError):
        candidates("broken", model_scheduler)


def test_unknown_names_say_what_there_is() -> None:
    with pytest.raises(UsageError) as caught:
        find_measurer("bord")
    assert "'board'" in str(caught.value.hint)
    with pytest.raises(UsageError) as caught:
        check_sampler("ordnal")
    assert "'ordinal'" in str(caught.value.hint)


def test_measurements_of_others_have_a_version_of_their_own() -> None:
    assert scheduler_version("board") == f"{scheduler_version()}+board"
    assert measurer_version("simulator") == ""
    with pytest.raises(UsageError):
        scheduler_version("gone")


def test_what_is_broken_stops_no_command_that_goes_through_all(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["targets", "list", "-q"]) == 0
    said = capsys.readouterr()
    assert "stcp920" in said.out
    assert said.err.startswith("left out: the plug-in target 'gone' failed: AttributeError: ")
    found = autoturbo.compare(small_networks()[2], load_target("stcp920")).outcomes
    assert isinstance(found["tvm"], Measurement)
    assert isinstance(found["broken"], Failure)
    assert found["broken"].message.startswith("the plug-in 'broken' failed: RuntimeError")
