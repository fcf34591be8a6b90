"""Prove that a schedule computes its model: regions, memory, and numbers in ONNX Runtime.

A reader's map::

    regions: parts tile every tensor and read what is made
    memory: buffers in space, and times of several units -> replay: contents in time -> trace,
        races: what nothing orders
    numbers: both models in ONNX Runtime (execution, random_values, comparison), apart: in a
        process of its own
    onnx_writer: the schedule as an ONNX model, which ``apply`` hands out and ``numbers`` runs

Imports are inside of :func:`verify_schedule`: records need no more than the version.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from autoturbo.registry import VERIFIERS

if TYPE_CHECKING:
    from pathlib import Path

    from autoturbo.schedule.schedule import AnySchedule, Schedule
    from autoturbo.verifier.findings import Finding, Verification

VERIFIER_VERSION = "1"
"""Raised whenever a check finds more than before; kept with every verified schedule."""


def verify_schedule(
    schedule: AnySchedule,
    *,
    path: str | Path | None = None,
    seed: int = 0,
    numbers: bool = True,
    whole: bool | None = None,
) -> Verification:
    """Check the regions and the memory of a schedule, and run it beside its model.

    Args:
        schedule: The schedule, on a target or on a machine of several units: there the whole
            model, and every part on its unit.
        path: The model's file; where it is not given, nothing is run.
        seed: Seed of the random inputs and weights.
        numbers: Run it.
        whole: Run all samples, or those of one pass; None decides by memory and work. On a
            machine there is one pass.

    Returns:
        The findings of each check, and what running the models showed; None where nothing was to be
        run.

    Raises:
        ModelError: The model's file is not usable.
    """
    from contextlib import suppress

    from autoturbo.errors import VerifyError
    from autoturbo.verifier.findings import Verification
    from autoturbo.verifier.memory import check_memory
    from autoturbo.verifier.regions import check_regions

    parts = schedule.schedules
    regions = [finding for part in parts for finding in check_regions(part)]
    memory = [finding for part in parts for finding in check_memory(part)]
    memory += VERIFIERS.make(type(schedule).__name__, schedule)
    if schedule not in parts:
        with suppress(VerifyError):  # parts in several passes have no whole; numbers say so
            regions += check_regions(schedule.whole)
    if path is None or not numbers:
        return Verification(tuple(regions), tuple(memory))
    from autoturbo.verifier.apart import check_numbers_apart

    ran = check_numbers_apart(schedule, path, seed=seed, whole=whole)
    return Verification(tuple(regions), tuple(memory), ran)


def nothing_more(schedule: Schedule) -> list[Finding]:
    """Return the additional findings about a schedule of a single target: none."""
    del schedule
    return []
