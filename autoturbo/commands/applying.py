"""A model with its schedule as one ONNX file, checked before it is written."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from autoturbo.commands.loading import model_file
from autoturbo.errors import Location, RefusedError, UsageError
from autoturbo.files import NO_OTHERS, Kind, Outputs

if TYPE_CHECKING:
    from autoturbo.schedule.schedule import Schedule
    from autoturbo.schedule.units.machine_schedule import MachineSchedule
    from autoturbo.verify.onnx_writer.scheduled_file import Applied


def apply_schedule(
    schedule: Schedule | MachineSchedule,
    model: str | Path,
    out: str | Path,
    outputs: Outputs = NO_OTHERS,
) -> Applied:
    """Write a model as its schedule computes it: every instance a call of a function.

    Regions and memory are checked first: a schedule that fails is not written.

    Args:
        schedule: of the model, on a target or a machine.
        model: its file, or the name of a workload.
        out: the ONNX file to write.
        outputs: what it may not replace besides the model.

    Raises:
        UsageError: ``out`` is the model itself, cannot be written, or may not be replaced.
        RefusedError: the schedule does not compute the model.
        VerifyError: the schedule cannot be written as ONNX.
        ModelError: the file is not usable.
    """
    from autoturbo.verify.onnx_writer.partial_operator import RegionError
    from autoturbo.verify.onnx_writer.scheduled_file import write_scheduled_model
    from autoturbo.verify.onnx_writer.scheduled_model import BuildError

    source, place = model_file(model), Path(out)
    outputs.reading(source).check(place, Kind.MODEL)
    _check(schedule, model)
    try:
        return write_scheduled_model(_one(schedule), source, place, outputs)
    except (BuildError, RegionError) as error:
        raise RefusedError(f"the schedule does not compute it: {error}", Location(model)) from None


def write_kernels(
    schedule: Schedule | MachineSchedule,
    model: str | Path,
    out: str | Path,
    outputs: Outputs = NO_OTHERS,
) -> Path:
    """Write a schedule spelled out, for compilers without this code (docs/schedule-format.md).

    Regions and memory are checked first, as :func:`apply_schedule` does. Gives the file.

    Raises:
        UsageError: ``out`` is the model itself, cannot be written, may not be replaced, or the
            schedule is of a machine.
        RefusedError: the schedule does not compute the model.
    """
    from autoturbo.schedule.kernels_file import kernels_text
    from autoturbo.schedule.units.machine_schedule import MachineSchedule

    if isinstance(schedule, MachineSchedule):
        message = "kernels are spelled out for a target, not for a machine of several units"
        raise UsageError(message, Location(out), "give a name that ends in .onnx")

    outputs = outputs.reading(model_file(model))
    outputs.check(out, Kind.KERNELS)
    _check(schedule, model)
    outputs.write(out, Kind.KERNELS, kernels_text(schedule))
    return Path(out)


def _one(schedule: Schedule | MachineSchedule) -> Schedule:
    """A schedule as one of the whole model."""
    from autoturbo.schedule.units.machine_schedule import MachineSchedule

    return schedule.whole if isinstance(schedule, MachineSchedule) else schedule


def _check(schedule: Schedule | MachineSchedule, model: str | Path) -> None:
    """Regions and memory; raises RefusedError."""
    from autoturbo.verify import verify_schedule

    findings = verify_schedule(schedule, numbers=False).findings
    if findings:
        more = f", and {len(findings) - 1} more" if findings[1:] else ""
        message = f"the schedule fails the {findings[0].check.value} check: {findings[0].message}"
        hint = "nothing was written; 'autoturbo verify' lists all that it finds"
        raise RefusedError(message + more, Location(model), hint)
