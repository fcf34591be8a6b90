"""Prove that a schedule computes its model: regions, memory, and numbers in ONNX Runtime.

A reader's map::

    regions: parts tile every tensor and read what is made
    memory: buffers in space -> replay: contents in time -> trace, races: what nothing orders
    numbers: both models in ONNX Runtime (execution, weights, inputs, comparison)
    onnx_writer: the schedule as an ONNX model, which ``apply`` hands out and ``numbers`` runs

Imports are inside of :func:`verify_schedule`: records need no more than the version.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from autoturbo.registry import VERIFIERS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from autoturbo.schedule.schedule import AnySchedule, Schedule
    from autoturbo.verify.findings import Verification

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
        schedule: what to check, on a target or on a machine of several units.
        path: the model's file; where it is not given, nothing is run.
        seed: of the random inputs and weights.
        numbers: run it.
        whole: run all samples, or those of one pass; None decides by memory and work. On a
            machine there is one pass.

    Raises:
        ModelError: the model's file is not usable.
    """
    verify: Callable[..., Verification] = VERIFIERS.load(type(schedule).__name__)
    return verify(schedule, path=path, seed=seed, numbers=numbers, whole=whole)


def verify_on_target(
    schedule: Schedule, *, path: str | Path | None, seed: int, numbers: bool, whole: bool | None
) -> Verification:
    """Prove a schedule of a target; see :func:`verify_schedule`."""
    from autoturbo.verify.findings import Verification
    from autoturbo.verify.memory import check_memory
    from autoturbo.verify.regions import check_regions

    regions, memory = check_regions(schedule), check_memory(schedule)
    if path is None or not numbers:
        return Verification(regions, memory)
    from autoturbo.verify.numbers import check_numbers

    ran = check_numbers(schedule, path, seed=seed, whole=whole)
    return Verification(regions, memory, ran)
