"""What ``tune`` and ``resume`` share: the live line, and the end of a run."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypedDict

from autoturbo.commands.values import whole_number
from autoturbo.report.live import live_line

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator, Sequence
    from types import TracebackType

    from rich.live import Live

    from autoturbo.commands.console import Console
    from autoturbo.commands.loading import Pair
    from autoturbo.commands.parser import Parser
    from autoturbo.report.live import Standing
    from autoturbo.simulate.measurement import Outcome
    from autoturbo.tuner import Progress, TuneResult

_EVERY_S = 10.0
"""Seconds between lines where there is no terminal to redraw one on."""


class LiveLine:
    """Shows how a run stands, on standard error: redrawn on a terminal, else a line now and then.

    A context manager; hand the object itself to the tuner as ``on_progress``.
    """

    def __init__(
        self, console: Console, clock: Callable[[], float] = time.monotonic
    ) -> None:
        import sys

        self._stream = sys.stderr
        self._on = console.progress and console.verbosity >= 0
        self._console = console
        self._clock = clock
        self._last = clock()
        self._live: Live | None = None

    def __enter__(self) -> Self:
        if self._on and self._stream.isatty():
            from rich.live import Live

            terminal = self._console.rich(self._stream)
            self._live = Live(console=terminal, transient=True, refresh_per_second=5)
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def __call__(self, progress: Progress) -> None:
        """Show it, if it is time to."""
        self.update(standing_of(progress))

    def update(self, standing: Standing) -> None:
        """Show a standing, if it is time to."""
        if self._live is not None:
            from rich.text import Text

            self._live.update(Text(live_line(standing), no_wrap=True, overflow="ellipsis"))
        elif self._on and self._clock() - self._last >= _EVERY_S:
            self._last = self._clock()
            print(live_line(standing), file=self._stream, flush=True)


def standing_of(progress: Progress) -> Standing:
    """What the live line says of the tuner's progress."""
    from autoturbo.report.live import Standing

    return Standing(
        model=progress.model,
        target=progress.target,
        done=progress.done,
        total=progress.total,
    )


def add_machine_options(parser: Parser) -> None:
    """Where measuring is done; the result is the same wherever it is."""
    add = parser.add_argument
    jobs = "processes that measure (default: 1)"
    add("--jobs", metavar="N", type=whole_number("--jobs", 1), default=1, help=jobs)
    ray = "measure on a Ray cluster; a local one without ADDRESS"
    add("--ray", metavar="ADDRESS", nargs="?", const="local", help=ray)


def machine_options(options: argparse.Namespace) -> MachineOptions:
    """The same as arguments of the tuner."""
    return {"jobs": options.jobs, "ray": options.ray}


def introduce(pair: Pair, options: argparse.Namespace, console: Console) -> None:
    """Say what was loaded and what is assumed."""
    from autoturbo.commands.facts import model_facts, opaque_sentence, sentence
    from autoturbo.report.units import plain

    model, target = pair.model, pair.target
    facts = model_facts(model)
    lines = {
        "model": f"{plain(model.source)}: {sentence(facts)}",
        "opaque": opaque_sentence(facts),
        "target": plain(f"{target.name}: {target.description}; {pair.dtype}"),
        "search": _search(options),
    }
    console.say(plain(f"{model.name} @ {target.name}"))
    for name, line in lines.items():
        if line:
            console.say(f"  {name:<8}{line}")
    for note in model.notes:
        console.say(f"  {'note':<8}{plain(note)}")


def finish(
    result: TuneResult, console: Console, database: str, written: Sequence[Path] = ()
) -> None:
    """Print the table, the files and what to do next; the object of ``tune --json``."""
    console.emit(as_json(result))
    if console.json:
        return
    from autoturbo.report.tables import comparison

    console.show(comparison(_outcomes(result), REFERENCE))
    for name, value in _files(result, database, written):
        console.say(f"  {name:<14}{value}")
    console.say("next:")
    for command in _next_commands(result):
        console.say(f"  {command}")
