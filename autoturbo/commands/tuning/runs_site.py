"""The pages of the dashboard by their addresses: the runs that go on, all of them, each of them."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final, Protocol

from markupsafe import Markup

from autoturbo.commands.stored_runs import opened, stored_run
from autoturbo.commands.tuning.report import light_page_of, listed_runs, report_of, whole_report
from autoturbo.errors import AutoTurboError
from autoturbo.report.runs import ListedRun, dashboard_part, light_part, shell

EVENTS: Final = "/events"
"""What the address of a page's events begins with; the rest is that of the page."""

_REPORT: Final = "/report/"
_WHOLE: Final = "/whole"

FRESH_S: Final = 0.4
"""Seconds for which what was read of the database is taken to be so."""

_SHARE: Final = 8
"""Times as long as a reading took until the next one: runs need the processor more."""

_MOST_KEPT: Final = 8
"""Whole reports that are kept."""


class Site(Protocol):
    """Pages by their addresses."""

    def page(self, path: str) -> bytes | None:
        """Return the page of a path; None where there is none."""

    def part(self, path: str) -> str | None:
        """Return what the page of a path shows now; None where nothing becomes of it."""


class Watch:
    """Reads the runs of a database for all pages, and remembers which ended meanwhile."""

    def __init__(self, database: str) -> None:
        self._database = database
        self._lock = threading.Lock()
        self._runs: tuple[ListedRun, ...] = ()
        self._next = -1.0
        self._stamp: object = None
        self._seen: set[str] = set()

    def runs(self) -> tuple[ListedRun, ...]:
        """Return the runs, the oldest first; the same object as long as nothing changes."""
        with self._lock:
            began = time.monotonic()
            if began >= self._next:
                self._look()
                took = time.monotonic() - began
                self._next = began + max(FRESH_S, _SHARE * took)
            return self._runs

    def ended(self) -> frozenset[str]:
        """Return the ids of runs that went on once, and do so no more."""
        return frozenset(self._seen - {run.info.id for run in self._runs if run.going})

    def _look(self) -> None:
        """Read the database where it has changed, or where a run may have died."""
        stamp = _stamp(self._database)
        if stamp == self._stamp and not any(run.going for run in self._runs):
            return
        with opened(self._database) as database:
            read = listed_runs(database, before=self._runs)
        found = tuple(replace(run, report=f"{_REPORT}{run.info.id}") for run in read)
        self._stamp = stamp
        if found != self._runs:
            self._runs = found
        self._seen |= {run.info.id for run in found if run.going}


def _stamp(database: str) -> object:
    """Return what changes whenever a database is written."""
    found = []
    # a write goes to the log first, and leaves the database itself as it is
    for name in (database, f"{database}-wal"):
        with suppress(OSError):
            status = Path(name).stat()
            found.append((name, status.st_ino, status.st_mtime_ns, status.st_size))
    return found


class RunsSite:
    """The dashboard of a database."""

    def __init__(self, database: str) -> None:
        self._database = database
        self._watch = Watch(database)
        self._making = threading.Lock()
        self._kept: dict[tuple[str, int, str], bytes] = {}
        self._parts: dict[str, tuple[object, str | None]] = {}
        """What pages show, each with the runs that it was made of."""

    def page(self, path: str) -> bytes | None:
        """Return the page of a path: the dashboard's, or that of a run; None where there is none.

        That of a run is its report. One that goes on, or that has none yet, has a light page.
        """
        if path == "/":
            return self._live(path, f"AutoTurbo: {self._database}", self._dashboard())
        run = self._run(path.removesuffix(_WHOLE))
        if run is None:
            return None
        if path.endswith(_WHOLE):
            return self._whole(run)
        if not run.going:
            if (made := self._kept.get(_now(run))) is not None:
                return made
            if (report := report_of(run.info)) is not None:
                return report.read_bytes()
        return self._live(path, _title(run), self._light(run))

    def part(self, path: str) -> str | None:
        """Return what the page of a path shows now; None where nothing becomes of it."""
        runs = self._watch.runs()
        made_of, part = self._parts.get(path, (None, None))
        if made_of is runs:
            return part
        run = self._run(path)
        made = self._dashboard() if path == "/" else None if run is None else self._light(run)
        if made is not None:
            self._parts[path] = runs, made
        return made

    @staticmethod
    def _live(path: str, title: str, part: Markup) -> bytes:
        return shell(part, title, EVENTS + path).encode()

    def _dashboard(self) -> Markup:
        runs = self._watch.runs()
        return dashboard_part(runs, self._database, self._watch.ended())

    def _run(self, path: str) -> ListedRun | None:
        """Return the run whose page has a path."""
        runs = self._watch.runs()
        return next((run for run in runs if f"{_REPORT}{run.info.id}" == path), None)

    def _light(self, run: ListedRun, note: str = "") -> Markup:
        with opened(self._database) as database:
            page = light_page_of(run, database, whole=f"{run.report}{_WHOLE}", note=note)
        return light_part(page)

    def _whole(self, run: ListedRun) -> bytes:
        """Return the whole report of a run, or its light page with the reason why there is none."""
        key = _now(run)
        with self._making:  # one at a time: the runs need the processor
            if key not in self._kept:
                try:
                    made = whole_report(stored_run(run.info.id, self._database, host=True))
                except AutoTurboError as error:
                    return shell(self._light(run, str(error)), _title(run)).encode()
                self._kept[key] = made.page.encode()
                for old in list(self._kept)[:-_MOST_KEPT]:
                    del self._kept[old]
            return self._kept[key]


def _now(run: ListedRun) -> tuple[str, int, str]:
    """Return what a report of a run is made of: it is made anew when that changes."""
    return run.info.id, run.info.trials, run.state


def _title(run: ListedRun) -> str:
    return f"{run.info.model} on {run.info.target}"
