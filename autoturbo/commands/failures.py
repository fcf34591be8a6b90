"""What a failed measurement means for a command that needs it."""

from __future__ import annotations

from autoturbo.errors import AutoTurboError, InfeasibleError, Location, MeasurerError
from autoturbo.simulate.measurement import Failure, Measurement, Outcome


def required(outcome: Outcome, of: str) -> Measurement:
    """The measurement.

    Raises:
        InfeasibleError: the schedule does not fit, with demand, capacity and what would help.
        MeasurerError: measuring itself failed.
    """
    if isinstance(outcome, Failure):
        raise explained(outcome, of)
    return outcome


def explained(failure: Failure, of: str) -> AutoTurboError:
    """The error that says what failed and what would mend it."""
    kind = InfeasibleError if failure.infeasible else MeasurerError
    message = failure.message
    if failure.tensors:
        message += f" (largest tensors: {', '.join(failure.tensors)})"
    hint = f"what would help: {'; '.join(failure.levers)}" if failure.levers else None
    return kind(message, Location(field=of), hint)
