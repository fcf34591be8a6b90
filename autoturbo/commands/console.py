"""Where a command's output goes: tables and sentences for people, JSON for scripts, a live line."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self, TextIO

from autoturbo.compiled import CompileProgress, watched_compiling
from autoturbo.errors import AutoTurboError
from autoturbo.report.live_lines import WAITING, RunStatus, compiling_line, live_line, live_lines
from autoturbo.report.units import plain
from autoturbo.schema import Choice, DeferredType, Described, Positive, TypedDict
from autoturbo.signals import check

if TYPE_CHECKING:
    from rich.console import Console as RichConsole
    from rich.live import Live
    from rich.table import Table
    from rich.text import Text as RichText

    from autoturbo.search.progress import Progress
    from autoturbo.simulator.measurement import Outcome

EVERY_S = 10.0
"""Seconds between lines where there is no terminal to redraw one on."""

_FILE_WIDTH = 160
"""Columns of a table that does not go to a terminal: enough that nothing has to be folded."""


Moment = Annotated[str, Described(extra={"format": "date-time"})]
Digest = Annotated[str, Described(pattern="[0-9a-f]{64}")]
Dtype = Annotated[str, DeferredType(of="autoturbo.hardware.fields:Dtype")]
"""Values that lines of several commands tell."""

_KINDS = (
    *("error", "input", "usage", "model", "target", "knobs", "schedule", "database", "plugin"),
    *("run", "infeasible", "measurer", "refused", "executor", "verify", "unrunnable", "stream"),
    *("interrupted", "internal"),
)
"""Kinds of errors."""


FaultJson = TypedDict("FaultJson", {
    "kind": Annotated[str, Choice(_KINDS)], "message": str, "file": str | None,
    "line": Positive | None, "field": str | None, "hint": str | None,
})  # fmt: skip
"""What is wrong, where, and how to mend it."""


class ErrorLine(TypedDict):
    """What a command prints that fails, as its last line.

    The exit status says the same as for people.
    """

    error: FaultJson


def fault_json(error: AutoTurboError) -> FaultJson:
    """Return an error as commands print it."""
    return {
        "kind": error.kind, "message": error.message,
        "file": None if error.at.file is None else str(error.at.file),
        "line": error.at.line, "field": error.at.field, "hint": error.hint,
    }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Console:
    """The two streams of a command: its answer, and lines for people.

    Attributes:
        json: Standard output is for one JSON object a line, and everything for people goes to
            standard error.
        verbosity: 1 with ``-v``, -1 with ``-q``.
        progress: Whether to show a live line.
    """

    json: bool = False
    verbosity: int = 0
    progress: bool = True

    @property
    def people(self) -> TextIO:
        """Return the stream for people."""
        return sys.stderr if self.json else sys.stdout

    def say(self, text: str = "") -> None:
        """Print a line for people, unless ``-q`` is given; show hidden characters as escapes."""
        if self.verbosity >= 0:
            print(plain(text), file=self.people, flush=True)

    def detail(self, text: str) -> None:
        """Print a line for people who asked for more with ``-v``."""
        if self.verbosity > 0:
            print(plain(text), file=self.people, flush=True)

    def answer(self, text: str) -> None:
        """Print the result as a line; under ``--json`` the object says it."""
        if not self.json:
            print(plain(text))

    def document(self, text: str) -> None:
        """Print the result as a whole file's text; under ``--json`` the object says it."""
        if not self.json:
            print(text.rstrip("\n"))

    def show(self, table: Table) -> None:
        """Print the result as a table; under ``--json`` the object says it."""
        if not self.json:
            self.rich(sys.stdout).print(table)

    def table(self, headers: Sequence[str], rows: Iterable[Sequence[object]], **how: Any) -> None:
        """Show a table; see :func:`autoturbo.report.tables.table`."""
        if not self.json:
            from autoturbo.report.tables import table

            self.show(table(headers, rows, **how))

    def titled(
        self, title: str, headers: Sequence[str], rows: Iterable[Sequence[object]], **how: Any
    ) -> None:
        """Show a table of close columns below a title and an empty line."""
        self.answer("")
        self.answer(title)
        self.table(headers, rows, close=True, **how)

    def compare(self, outcomes: Mapping[str, Outcome], *how: Any) -> None:
        """Show schedulers side by side; see :func:`autoturbo.report.tables.comparison`."""
        if not self.json:
            from autoturbo.report.tables import comparison

            self.show(comparison(outcomes, *how))

    def emit(self, value: Mapping[str, Any]) -> None:
        """Print the result as one line of JSON; nothing without ``--json``."""
        if self.json:
            print(json.dumps(value, allow_nan=False, default=str), flush=True)

    def rich(self, stream: TextIO) -> RichConsole:
        """Return a console of the rich library that prints text as it stands."""
        from rich.console import Console as RichConsole

        width = None if stream.isatty() else _FILE_WIDTH
        return RichConsole(file=stream, width=width, markup=False, highlight=False, emoji=False)


def warn(text: str) -> None:
    """Print a line on standard error; hidden characters are shown as escapes."""
    print(plain(text), file=sys.stderr, flush=True)


class LiveLine:
    """Shows what goes on, on standard error: redrawn on a terminal, else a line now and then.

    That is how a run stands, and while code is compiled how far that is: nothing else moves then.
    On a terminal each of several runs that are expected has a line of its own.
    A context manager; hand the object itself to the tuner as ``on_progress``. The command line has
    one around every command; of several the innermost shows.
    """

    _open: ClassVar[list[LiveLine]] = []

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = sys.stderr
        self._on = console.progress and console.verbosity >= 0
        self._console = console
        self._clock = clock
        self._last = clock()
        self._standing: RunStatus | None = None
        self._expected: dict[tuple[str, str], RunStatus] = {}
        self._compiling = CompileProgress(self._show_compiling)
        self._held = ExitStack()
        self._live: Live | None = None

    def __enter__(self) -> Self:
        self._open.append(self)
        if self._on:
            self._held.enter_context(watched_compiling(self._compiling))
        return self

    def __exit__(self, *_: object) -> None:
        self._open.remove(self)
        self._held.close()
        self._redraw(shown=False)

    def __call__(self, progress: Progress) -> None:
        """Show the progress, if it is time to; compiling is shown without being told here."""
        if not progress.to_compile:
            self.update(standing_of(progress))

    def expect(self, model: str, target: str) -> None:
        """Keep a line for a run on a terminal, which waits."""
        self._expected[model, target] = RunStatus(model, target, 0, None, phase=WAITING)

    def update(self, standing: RunStatus) -> None:
        """Show a standing, if it is time to."""
        if self._on:
            self._standing = standing
            names = standing.model, standing.target
            if names in self._expected:
                for other, before in self._expected.items():
                    if not before.done:  # its warm starts are found, or to be found
                        self._expected[other] = replace(before, phase=WAITING)
                self._expected[names] = standing
            self._show()

    def _show_compiling(self) -> None:
        self._show()
        if not self._compiling.running:
            check()  # LLVM may have swallowed a Ctrl-C

    def _show(self) -> None:
        if self._open[-1:] != [self]:
            return
        if self._stream.isatty():
            self._redraw(shown=bool(self._line()))
        else:
            self._print_now_and_then(self._line())

    def _line(self, width: int | None = None) -> str:
        compiling = self._compiling
        if not compiling.running:
            return live_line(self._standing, width) if self._standing else ""
        return compiling_line(
            compiling.functions, compiling.total, compiling.left_s, kept=compiling.kept
        )

    def _text(self) -> RichText:
        from rich.text import Text as RichText

        width, height = (None, None) if self._live is None else self._live.console.size
        lines = [self._line(width)]
        if len(self._expected) > 1 and self._standing and not self._compiling.running:
            rows = None if height is None else height - 1  # one is for the cursor
            lines = live_lines(list(self._expected.values()), width, rows)
        return RichText("\n".join(lines), no_wrap=True, overflow="ellipsis")

    def _redraw(self, *, shown: bool) -> None:
        """Begin to redraw a line, or take it away; what is printed meanwhile stands above it."""
        if shown and self._live is None:
            from rich.live import Live

            terminal = self._console.rich(self._stream)
            self._live = Live(
                console=terminal, get_renderable=self._text, transient=True, refresh_per_second=5,
                redirect_stdout=sys.stdout.isatty(),
            )  # fmt: skip
            self._live.start(refresh=True)
        elif not shown and self._live is not None:
            self._live.stop()
            self._live = None

    def _print_now_and_then(self, line: str) -> None:
        if line and self._clock() - self._last >= EVERY_S:
            self._last = self._clock()
            try:
                print(line, file=self._stream, flush=True)
            except OSError:  # a search does not end because nobody can watch it
                self._on = False


def standing_of(progress: Progress) -> RunStatus:
    """Return what the live line says of the tuner's progress."""
    left = progress.remaining_s
    p = progress
    return RunStatus(
        p.model, p.target, p.done, p.total, p.best_latency, p.best_trial, p.default_latency,
        p.bound_fraction, p.measured_per_s, p.screened, p.infeasible, p.elapsed_s,
        expected=None if left is None else p.elapsed_s + left, phase=p.phase, ended=p.ended,
    )  # fmt: skip
