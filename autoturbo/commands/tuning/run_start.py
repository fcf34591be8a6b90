"""The start of a run, for tune, resume and sweep: where it is kept, and what it begins with."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from autoturbo.commands.console import Console, warn
from autoturbo.commands.flag_values import wrong
from autoturbo.commands.parser import command_line
from autoturbo.config import RUNS

if TYPE_CHECKING:
    from autoturbo.database import RunInfo


def origins(found: Sequence[str], *, on_machine: bool) -> str:
    """Return in words what a search begins with.

    Args:
        found: Origins of its starts, besides the heuristic.
        on_machine: Whether the search is on a machine of several units.
    """
    counts = Counter(found)
    if on_machine:
        return "every unit alone, and the schedules of published schedulers"
    more = [f"{number} x {text}" if number > 1 else text for text, number in counts.items()]
    return ", ".join(["the heuristic", *more])


def tell_start(info: RunInfo, console: Console, database: str, pair: str = "") -> None:
    """Say which run it is and what resumes it, what it starts from and what it leaves out.

    Args:
        info: The run.
        console: Console on which it is said.
        database: Path of the database that keeps the run.
        pair: Stands before each line, where several are tuned together.
    """
    settings = info.settings
    on_machine = "units" in settings["target_description"]
    console.say(f"  run     {pair}{info.id} of {database}")
    if console.verbosity >= 0:  # on standard error: whoever keeps the output must still see it
        resume = command_line(database, "resume", info.id)
        with suppress(OSError):  # a search does not end because nobody can read it
            warn(f"run {info.id}: if it ends early, go on with: {resume}")
    console.say(f"  starts  {pair}{origins(settings.get('origins', ()), on_machine=on_machine)}")
    for note in settings.get("notes", ()):
        console.say(f"  note    {pair}{note}")


def check_places(options: argparse.Namespace) -> None:
    """Refuse a database and a folder of runs that cannot be written, before the work.

    Raises:
        InputError: One cannot.
    """  # noqa: DOC501  wrong() makes the error
    from autoturbo.database import Database

    Database.check_place(options.db)
    runs = Path(options.runs_folder or RUNS)
    if runs.exists() and not runs.is_dir():
        raise wrong("--runs-folder", f"{runs} is a file", "name a folder")
