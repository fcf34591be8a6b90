"""The keys under which a run's measurements hold, and the check that they still do."""

from __future__ import annotations

import dataclasses
import importlib
import os
import secrets
from contextlib import suppress

from autoturbo.config import STORAGE_VARIABLE
from autoturbo.database.records import OTHER_EVALUATOR, PINNED, PairKey, RunInfo
from autoturbo.database.store import Database
from autoturbo.errors import Location, RunError
from autoturbo.graph.operators import Graph
from autoturbo.hardware.tuning_target import TuningTarget
from autoturbo.passwords import is_masked
from autoturbo.registry import SIMULATOR
from autoturbo.schedule.knobs.pins import NO_PINS, Pins
from autoturbo.simulator.contract import EvaluatorFactory
from autoturbo.simulator.measurement import VERSION
from autoturbo.version import __version__, interpreter


def hashes(key: PairKey) -> dict[str, str]:
    """Return the parts of a pair's key that a run's settings name, besides the data type."""
    return {name: getattr(key, name) for name in ("graph_hash", "target_hash", "scheduler_version")}


def storage_of(info: RunInfo, given: str | None) -> str | None:
    """Return the URL of the storage that mirrors a run, with its password.

    Raises:
        RunError: The run's own had a password, which is not kept, and none is given.
    """
    storage: str | None = info.settings.get("storage")
    if given is not None or storage is None or not is_masked(storage):
        return storage if given is None else given
    if told := os.environ.get(STORAGE_VARIABLE):
        return told
    message = f"run {info.id} is mirrored to {storage}, whose password is not kept"
    raise RunError(message, hint=f"give the URL with --storage or in {STORAGE_VARIABLE}")


def stored_target(info: RunInfo) -> TuningTarget:
    """Return a run's target, or its machine, from the description that is kept with it.

    Raises:
        RunError: There is none.
    """
    from autoturbo.hardware.machine_files import target_from_dict

    description = info.settings.get("target_description")
    if description is None:
        hint = "it was not made by 'tune'"
        raise RunError(f"run {info.id}: its target is not recorded", hint=hint)
    return target_from_dict(description)


def recorded_error(info: RunInfo) -> float | None:
    """Return the known error of a run's target as it was tuned; None where nobody compared it.

    Where there are several, it is that of kernels as long as those of what was handed out.
    """
    if not (info.settings.get("target_description") or {}).get("calibration"):
        return None
    from autoturbo.hardware.target import known_error

    handed = info.handed_out
    seconds = None if handed is None else handed.measurement.kernel_seconds
    return known_error(stored_target(info), seconds)


def scheduler_version(measurer: str = SIMULATOR) -> str:
    """Return the version of scheduler, simulator and knobs; measurements of another are not reused.

    Args:
        measurer: Name of the measurer; a plug-in's name and version follow those of ours.

    Raises:
        UsageError: No measurer of that name.
    """
    from autoturbo.simulator.measurers import measurer_version

    return VERSION if measurer == SIMULATOR else f"{VERSION}+{measurer_version(measurer)}"


def pair_key(
    graph: Graph,
    target: TuningTarget,
    dtype: str,
    measurer: str = SIMULATOR,
    make: EvaluatorFactory | None = None,
    pins: Pins = NO_PINS,
) -> PairKey:
    """Return the key under which a pair's measurements hold, for this version of the scheduler.

    Args:
        graph: The model.
        target: The accelerator.
        dtype: The compute type.
        measurer: Name of the measurer.
        make: Another evaluator than ours, whose schedules are not mixed with ours.
        pins: Pins of the user; what is found under them is not mixed with the rest.

    Raises:
        UsageError: No measurer of that name.
    """
    version = scheduler_version(measurer) + ("" if make is None else OTHER_EVALUATOR)
    version += f"{PINNED}{pins.digest(graph.file_places)}" if pins else ""
    return PairKey(graph.hash, target.hash, dtype, version)


SESSION = "session"
"""Setting of a run whose measurements vary: which of the runs of one content it is."""


def session_of(measurer: str) -> dict[str, str]:
    """Return the setting that tells a run from others of its content; none where all are the same.

    Where the same schedule does not always take as long, they find other things.

    Args:
        measurer: Name of the measurer.
    """
    from autoturbo.simulator.measurers import declared

    if measurer == SIMULATOR:
        return {}
    info = declared(measurer)
    exact = info is not None and info.deterministic
    return {} if exact else {SESSION: secrets.token_hex(8)}


def measurer_of(info: RunInfo) -> str:
    """Return the name of the measurer of a run's trials."""
    return str(info.settings.get("measurer", SIMULATOR))


def versions_here() -> dict[str, str]:
    """Return the versions that proposals depend on, with this package and the interpreter."""
    versions = {"autoturbo": __version__, **interpreter()}
    for name in ("numpy", "optuna", "xgboost-cpu", "xgboost"):
        with suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    return versions


def register(draft: RunInfo, base: str, store: Database) -> RunInfo:
    """Record a new run under the first id that is free."""
    while True:
        # The same content gives the same id; runs after the first get a number behind it.
        info = dataclasses.replace(draft, id=store.next_run_id(base))
        try:
            store.add_run(info)
        except RunError:  # another process took the id in between
            continue
        return info


def refuse_changed(info: RunInfo, found: PairKey) -> None:
    """Raise RunError if a run's model, target, data type or versions have changed."""
    names = {"graph_hash": "the model", "target_hash": "the target", "dtype": "the data type",
             "scheduler_version": "the scheduler's version"}  # fmt: skip
    changed = [
        f"{text} ({str(getattr(info.key, name))[:12]} then, {str(getattr(found, name))[:12]} now)"
        for name, text in names.items()
        if getattr(info.key, name) != getattr(found, name)
    ]
    if changed:
        message = f"run {info.id} cannot go on: {' and '.join(changed)} changed"
        raise RunError(message, Location(info.model_file or None), "start a new run with 'tune'")
