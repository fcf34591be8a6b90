"""The command line, run in this process in an empty folder."""

from __future__ import annotations

import contextlib
import io
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import pytest

from autoturbo.cli import main
from autoturbo.commands.console import Console


@dataclass(frozen=True)
class Ran:
    """What a command did."""

    status: int
    out: str
    err: str

    @property
    def objects(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def object(self) -> dict[str, Any]:
        (only,) = self.objects
        return only


@dataclass(frozen=True)
class Cli:
    """Runs commands in a folder."""

    folder: Path

    def __call__(self, *arguments: str | Path) -> Ran:
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = main([str(argument) for argument in arguments])
        return Ran(status, out.getvalue(), err.getvalue())

    def write(self, name: str, content: str | bytes) -> Path:
        """A file in the folder; its name as a command would be given it."""
        data = content.encode() if isinstance(content, str) else content
        (self.folder / name).write_bytes(data)
        return Path(name)


def cli_in(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """The command line with an empty working folder and nothing set around it."""
    monkeypatch.chdir(folder)
    for name in ("AUTOTURBO_DB", "NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "100")
    return Cli(folder)


def narrow_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables are shown as on a terminal of 80 columns."""
    from rich.console import Console as RichConsole

    def narrow(_: Console, stream: TextIO) -> RichConsole:
        return RichConsole(file=stream, width=80, markup=False, highlight=False, emoji=False)

    monkeypatch.setattr(Console, "rich", narrow)
