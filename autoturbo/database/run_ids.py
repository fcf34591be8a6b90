"""Ids of runs for whoever completes what is being typed: in milliseconds, and never an error."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

_MOST = 200
"""More than anybody looks through."""


def recent_runs(path: str | Path) -> dict[str, str]:
    """Models and targets of the newest runs by id; none where nothing can be read."""
    place = Path(path)
    if not place.is_file():
        return {}
    try:
        with closing(sqlite3.connect(f"{place.absolute().as_uri()}?mode=ro", uri=True)) as opened:
            rows = opened.execute(
                "SELECT id, model, target FROM runs ORDER BY created DESC LIMIT ?", (_MOST,)
            )
            return {run: f"{model} @ {target}" for run, model, target in rows}
    except sqlite3.Error:
        return {}
