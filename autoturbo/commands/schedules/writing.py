"""Writing a schedule out, as a scheduled model or as its kernels, once its checks pass."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from autoturbo.commands.loading import model_file
from autoturbo.errors import Location, RefusedError, UsageError
from autoturbo.files import NO_OTHERS, Kind, Outputs

if TYPE_CHECKING:
    from autoturbo.schedule.schedule import AnySchedule
    from autoturbo.verifier.onnx_writer.scheduled_model import Applied


def apply_schedule(
    schedule: AnySchedule,
    model: str | Path,
    out: str | Path,
    outputs: Outputs = NO_OTHERS,
) -> Applied:
    """Write a model as its schedule computes it: every instance a call of a function.

    Regions and memory are checked first: a schedule that fails is not written.

    Args:
        schedule: A schedule of the model, on a target or a machine.
        model: File of the model, or the name of a workload.
        out: The ONNX file to write.
        outputs: What it may not replace besides the model.

    Returns:
        The files that were written, and how many calls, functions and nodes the model has.

    Raises:
        UsageError: ``out`` is the model itself, cannot be written, or may not be replaced.
        RefusedError: The schedule does not compute the model.
        VerifyError: The schedule cannot be written as ONNX.
        ModelError: The file is not usable.
    """
    from autoturbo.verifier.onnx_writer.partial_operator import RegionError
    from autoturbo.verifier.onnx_writer.scheduled_model import BuildError, write_scheduled_model

    source, place = model_file(model), Path(out)
    # refused before the checks, which may take long
    outputs.reading(source).check(place, Kind.MODEL)
    _check(schedule, model)
    try:
        return write_scheduled_model(schedule.whole, source, place, outputs)
    except (BuildError, RegionError) as error:
        raise RefusedError(f"the schedule does not compute it: {error}", Location(model)) from None


def write_kernels(
    schedule: AnySchedule,
    model: str | Path,
    out: str | Path,
    outputs: Outputs = NO_OTHERS,
) -> Path:
    """Write a schedule spelled out, for compilers without this code (docs/schedule-format.md).

    Regions and memory are checked first, as :func:`apply_schedule` does.

    Returns:
        The file that was written: ``out``.

    Raises:
        UsageError: ``out`` is the model itself, cannot be written, may not be replaced, or the
            schedule is of a machine.
        RefusedError: The schedule does not compute the model.
    """
    from autoturbo.schedule.kernels_file import kernels_text
    from autoturbo.schedule.schedule import Schedule

    if not isinstance(schedule, Schedule):
        message = "kernels are spelled out for a target, not for a machine of several units"
        raise UsageError(message, Location(out), "give a name that ends in .onnx")

    outputs = outputs.reading(model_file(model))
    outputs.check(out, Kind.KERNELS)
    _check(schedule, model)
    outputs.write(out, Kind.KERNELS, kernels_text(schedule))
    return Path(out)


def _check(schedule: AnySchedule, model: str | Path) -> None:
    """Check regions and memory; raise RefusedError where a check fails."""
    from autoturbo.verifier import verify_schedule

    findings = verify_schedule(schedule, numbers=False).findings
    if findings:
        more = f", and {len(findings) - 1} more" if findings[1:] else ""
        message = f"the schedule fails the {findings[0].check.value} check: {findings[0].message}"
        hint = "nothing was written; 'autoturbo verify' lists all that it finds"
        raise RefusedError(message + more, Location(model), hint)
