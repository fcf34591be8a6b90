from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import get_args
from unittest.mock import ANY

import pytest

from autoturbo.commands.registry import COMMANDS as KNOWN
from autoturbo.commands.registry import GROUPS, build_parser
from autoturbo.config import Group
from autoturbo.version import __version__
from tests.cli.command_line import Cli, cli_in

GOLDEN = Path(__file__).parent / "help"
HEAVY = (
    "numpy",
    "onnx",
    "onnxslim",
    "xgboost",
    "jinja2",
    "optuna",
    "ray",
    "numba",
    "rich",
    "yaml",
    "scipy",
    "vl_convert",
    "matplotlib",
    "argcomplete",
)


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    return cli_in(tmp_path, monkeypatch)


def command_lines() -> list[tuple[str, ...]]:
    """Every command, and every action of those that have several."""
    return [(), *_below(build_parser(), ())]


def _below(parser: argparse.ArgumentParser, names: tuple[str, ...]) -> list[tuple[str, ...]]:
    found = []
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, inner in action.choices.items():
                found += [(*names, name), *_below(inner, (*names, name))]
    return found


COMMANDS = command_lines()


def titled(text: str) -> dict[str, list[str]]:
    """What a help has under each of its titles: the first word of each line that is not wrapped."""
    blocks = re.findall(r"^(\w[^\n]*):\n((?:  +[^\n]+\n)+)", text, re.MULTILINE)
    return {title: re.findall(r"^  ([\w-]+)", lines, re.MULTILINE) for title, lines in blocks}


def test_every_command_stands_under_one_title(cli: Cli) -> None:
    found = titled(cli("--help").out)
    rest = {"options": ["-h"], "example": ["autoturbo"], "global options": ANY}
    assert found == {**dict.fromkeys(GROUPS, ANY), **rest}
    assert [name for title in GROUPS for name in found[title]] == list(KNOWN)


def test_every_flag_of_tune_stands_under_a_title_that_tells_its_use(cli: Cli) -> None:
    found = titled(cli("tune", "--help").out)
    assert found["options"] == ["-h"]
    known = set(get_args(Group))
    assert [title for title in found if title in known] == [
        title for title in get_args(Group) if title in found
    ]
    assert {"--batch", "--shape"} <= {*found["model"]}
    assert {"--trials", "--effort"} <= {*found["how long"]}
    assert {"--jobs", "--ray"} <= {*found["where it is measured"]}


@pytest.mark.parametrize("names", COMMANDS, ids=" ".join)
def test_help_is_as_written(names: tuple[str, ...], cli: Cli) -> None:
    """It says what the command does in one line, and gives an example.

    With AUTOTURBO_UPDATE_GOLDEN=1 it is written anew.
    """
    ran = cli(*names, "--help")
    assert (ran.status, ran.err) == (0, "")
    golden = GOLDEN / f"{'-'.join(names) or 'autoturbo'}.txt"
    if os.environ.get("AUTOTURBO_UPDATE_GOLDEN"):
        golden.parent.mkdir(exist_ok=True)
        golden.write_text(ran.out, encoding="utf-8")
    assert ran.out == golden.read_text(encoding="utf-8")
    lines = ran.out.splitlines()
    title = " ".join(("autoturbo", *names))
    assert lines[0].startswith(f"usage: {title}")
    assert lines[2].endswith(".")
    assert lines[lines.index("example:") + 1].startswith(f"  {title}")


def test_version(cli: Cli) -> None:
    assert cli("--version").out == f"autoturbo {__version__}\n"
    assert cli("tune", "--version").out == f"autoturbo {__version__}\n"


def test_no_help_imports_anything_heavy() -> None:
    script = f"""
import sys
from autoturbo.cli import main
for names in {COMMANDS!r}:
    assert main([*names, "--help"]) == 0
loaded = set({HEAVY!r}) & set(sys.modules)
assert not loaded, loaded
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_importing_the_package_loads_nothing_heavy() -> None:
    script = f"import sys, autoturbo; print(sorted(set({HEAVY!r}) & set(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


@pytest.mark.skipif(not hasattr(os, "wait4"), reason="no processor time of one child")
def test_help_costs_some_times_what_the_parser_of_the_standard_library_does() -> None:
    """In processor time, of the two in turn, so that neither the machine nor its load counts."""
    usual, ours = ["-c", "import argparse, dataclasses, json, pathlib, typing"], ["-m", "autoturbo"]
    measured = [(_processor_seconds(*usual), _processor_seconds(*ours, "--help")) for _ in range(4)]
    least, found = map(min, zip(*measured, strict=True))
    assert found < 8 * least


def _processor_seconds(*arguments: str) -> float:
    process = subprocess.Popen([sys.executable, *arguments], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    return usage.ru_utime + usage.ru_stime
