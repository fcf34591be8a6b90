"""Where a command's output goes: tables and sentences for people, JSON for scripts."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TextIO

from autoturbo.report.units import plain

if TYPE_CHECKING:
    from rich.console import Console as RichConsole
    from rich.table import Table

_FILE_WIDTH = 160
"""Columns of a table that does not go to a terminal: enough that nothing has to be folded."""


@dataclass(frozen=True, slots=True)
class Console:
    """What a command prints with.

    Attributes:
        json: standard output is for one JSON object a line, and everything for people goes to
            standard error.
        verbosity: 1 with ``-v``, -1 with ``-q``.
        progress: whether to show a live line.
    """

    json: bool = False
    verbosity: int = 0
    progress: bool = True

    @property
    def people(self) -> TextIO:
        """The stream for people."""
        return sys.stderr if self.json else sys.stdout

    def say(self, text: str = "") -> None:
        """A line for people, left out with ``-q``; hidden characters are shown as escapes."""
        if self.verbosity >= 0:
            print(plain(text), file=self.people, flush=True)

    def detail(self, text: str) -> None:
        """A line for people who asked for more with ``-v``."""
        if self.verbosity > 0:
            print(plain(text), file=self.people, flush=True)

    def answer(self, text: str) -> None:
        """What was asked for, as a line; under ``--json`` the object says it."""
        if not self.json:
            print(plain(text))

    def document(self, text: str) -> None:
        """What was asked for, as a whole file's text; under ``--json`` the object says it."""
        if not self.json:
            print(text.rstrip("\n"))

    def show(self, table: Table) -> None:
        """What was asked for, as a table; under ``--json`` on standard error, gone with ``-q``."""
        if not self.json or self.verbosity >= 0:
            self.rich(self.people).print(table)

    def emit(self, value: Mapping[str, Any]) -> None:
        """What was asked for, as one line of JSON; nothing without ``--json``."""
        if self.json:
            print(json.dumps(value, allow_nan=False, default=str), flush=True)

    def rich(self, stream: TextIO) -> RichConsole:
        """A console of the rich library that prints text as it stands."""
        from rich.console import Console as RichConsole

        width = None if stream.isatty() else _FILE_WIDTH
        return RichConsole(file=stream, width=width, markup=False, highlight=False, emoji=False)
