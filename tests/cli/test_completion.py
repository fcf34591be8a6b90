"""Shells complete commands, flags and names: asked as they ask, in processes of their own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from autoturbo.commands.registry import build_parser
from autoturbo.commands.upkeep.completers import Offer, complete
from autoturbo.commands.upkeep.completion import SHELLS
from autoturbo.config import EFFORTS
from autoturbo.database.opening import recent_runs
from autoturbo.hardware import DTYPES, preset_names
from autoturbo.hardware.machine_files import machine_names
from autoturbo.registry import SAMPLERS
from autoturbo.search.objectives import OBJECTIVES
from tests.cli.bad_files import saved, tiny
from tests.cli.command_line import Cli, cli_in

BASH = """\
eval "$(autoturbo completion bash)"
while IFS= read -r line; do
  COMP_LINE=$line COMP_POINT=${#line} COMP_TYPE=9 COMPREPLY=()
  read -ra COMP_WORDS <<< "$line"
  case $line in *" ") COMP_WORDS+=("");; esac
  COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
  _python_argcomplete autoturbo "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
  echo "${COMPREPLY[*]}"
done
"""
FISH = """\
autoturbo completion fish | source
while read -l line
  echo (complete -C $line | string split -f 1 \\t)
end
"""
ZSH = """\
autoload -Uz compinit && compinit -u -D
eval "$(autoturbo completion zsh)"
print -r -- $_comps[autoturbo]
"""

LINES = {
    "autoturbo tun": {"tune"},
    "autoturbo tune --tria": {"--trials"},
    "autoturbo tune tin": {"tiny.onnx"},
    "autoturbo tune tiny.onnx --target=goy": {"goya"},
    "autoturbo targets show goy": {"goya"},
    "autoturbo --db none.db show ": set[str](),
}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> tuple[Cli, str]:
    """A folder with a model and a run."""
    with pytest.MonkeyPatch.context() as patch:
        cli = cli_in(tmp_path_factory.mktemp("completion"), patch)
        assert cli("tune", "-q", saved(cli, tiny()), "--trials", "1").status == 0
        return cli, str(cli("--json", "runs").object["runs"][0]["run"])


def asked(shell: list[str], script: str, lines: list[str], folder: Path) -> list[set[str]]:
    """What a shell offers for each line."""
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    environment.pop("AUTOTURBO_DB", None)
    done = subprocess.run(
        [*shell, script], cwd=folder, env=environment, input="\n".join([*lines, ""]),
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stderr == ""
    return [set(line.split()) for line in done.stdout.split("\n")[:-1]]


@pytest.mark.full
def test_bash_offers_what_there_is(world: tuple[Cli, str]) -> None:
    cli, run = world
    lines = {**LINES, f"autoturbo verify tiny.onnx --run {run[:3]}": {run}}
    offered = asked(["bash", "-c"], BASH, list(lines), cli.folder)
    assert dict(zip(lines, offered, strict=True)) == lines


@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed")
def test_fish_offers_what_there_is(world: tuple[Cli, str]) -> None:
    cli, run = world
    lines = {**LINES, "autoturbo show ": {run}}
    lines["autoturbo tune tiny.onnx --target=goy"] = {"--target=goya"}  # fish takes whole words
    offered = asked(["fish", "--no-config", "-c"], FISH, list(lines), cli.folder)
    assert dict(zip(lines, offered, strict=True)) == lines


def offer_of(command: str, argument: str) -> Offer:
    """What an argument of a command is completed to."""
    parser = build_parser()
    complete(parser)  # no shell asks
    inner = parser._subparsers._group_actions[0].choices[command]  # type: ignore[union-attr,index]
    (action,) = (a for a in inner._actions if argument in (*a.option_strings, a.dest))
    offer: Offer = action.completer
    return offer


@pytest.mark.parametrize(
    ("flag", "names"),
    [
        ("--sampler", {*SAMPLERS.builtin}),
        ("--target", {*preset_names(), *machine_names()}),
        ("--dtype", set(DTYPES)),
        ("--objective", set(OBJECTIVES)),
        ("--effort", set(EFFORTS)),
    ],
)
def test_values_of_flags(
    flag: str, names: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert set(offer_of("tune", flag)(prefix="", parsed_args=None)) == names


def test_every_command_can_be_asked_for_a_schema() -> None:
    assert set(offer_of("schema", "names")()) >= {"tune", "targets", "error"}


@pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is not installed")
def test_zsh_knows_whom_to_ask(world: tuple[Cli, str]) -> None:
    assert asked(["zsh", "-f", "-c"], ZSH, [], world[0].folder) == [{"_python_argcomplete"}]


def test_shells_that_there_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cli = cli_in(tmp_path, monkeypatch)
    for shell in SHELLS:
        assert "autoturbo" in cli("completion", shell).out
    ran = cli("completion", "ksh")
    assert ran.err == "error: SHELL: 'ksh' is not known; did you mean 'zsh'?\n"


def test_runs_of_a_database(world: tuple[Cli, str], tmp_path: Path) -> None:
    cli, run = world
    assert recent_runs(cli.folder / "autoturbo.db") == {run: "tiny @ stcp920"}
    assert recent_runs(tmp_path / "none.db") == {}
    (tmp_path / "text.db").write_text("no database")
    assert recent_runs(tmp_path / "text.db") == {}


def test_completing_loads_nothing_heavy(tmp_path: Path) -> None:
    """An answer has to be there before the next key."""
    script = (
        "import sys, autoturbo.commands.upkeep.completers as c\n"
        "from autoturbo.commands.registry import build_parser\n"
        "[c._offer(action) for action in c._actions(build_parser())]\n"
        "c._targets(''), c._runs(None), c._models('')\n"
        "print(sorted({'numpy', 'onnx', 'numba', 'optuna', 'ray', 'rich'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"
