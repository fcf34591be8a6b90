"""The tuned-schedule database and the run folder.

Importing this package loads the standard library's ``sqlite3`` and nothing heavier.
"""

from __future__ import annotations

from autoturbo.database.checking import check
from autoturbo.database.formats import record_schema
from autoturbo.database.records import (
    BORROWS,
    CALL,
    LIMITS,
    PLACE,
    BestSchedule,
    Counts,
    HandedOut,
    ImportResult,
    PairKey,
    Race,
    RefusedTrial,
    RunInfo,
    RunState,
    TrialRecord,
    Verified,
)
from autoturbo.database.run_folder import RunFolder, run_id
from autoturbo.database.store import BestFilter, Database

__all__ = [
    "BORROWS",
    "CALL",
    "LIMITS",
    "PLACE",
    "BestFilter",
    "BestSchedule",
    "Counts",
    "Database",
    "HandedOut",
    "ImportResult",
    "PairKey",
    "Race",
    "RefusedTrial",
    "RunFolder",
    "RunInfo",
    "RunState",
    "TrialRecord",
    "Verified",
    "check",
    "record_schema",
    "run_id",
]
