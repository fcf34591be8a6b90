"""Every error that a user can meet, as one tree.

::

    AutoTurboError                    status 1
    |-- InputError                    status 2   something the user gave is not usable
    |   |-- UsageError                           a flag or an argument
    |   |-- ModelError                           an ONNX file
    |   |-- TargetError                          a target description
    |   |-- KnobsError                           a knobs file or a knob's value
    |   |-- ScheduleFileError                    a schedule file
    |   |-- DatabaseError                        a database or an export of one
    |   |-- PluginError                          a package that plugs something in
    |   `-- RunError                             a run folder, or a run that may not be resumed
    |-- InfeasibleError               status 3   no schedule fits the target
    |-- MeasurerError                 status 1   a measurer broke its contract
    |-- RefusedError                  status 1   a result failed a check and is not handed out
    |-- ExecutorError                 status 1   workers or the cluster failed
    |-- VerifyError                   status 1   a schedule cannot be written as a model
    |   `-- UnrunnableError                         ONNX Runtime is missing or cannot run a model
    |-- OutputStreamError             status 1   standard output or standard error takes nothing
    `-- InterruptedRunError           status 130 Ctrl-C; everything measured is saved

The printed form is ``FILE:LINE:COLUMN: FIELD: MESSAGE; HINT`` with the parts that are known.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

_LONGEST = 1500
"""Characters of a message that are shown: names and shapes of a file may have thousands."""

_LONGEST_FIELD = 200


@dataclass(frozen=True)
class Location:
    """The place of an error in the user's input.

    Attributes:
        file: The file as the user named it.
        line: 1-based line, or None for binary files.
        column: 1-based column.
        field: Dotted path of the offending field, node or tensor (``engines[0].rows``).
    """

    file: str | Path | None = None
    line: int | None = None
    column: int | None = None
    field: str | None = None

    def __str__(self) -> str:
        position = ":".join(str(p) for p in (self.file, self.line, self.column) if p is not None)
        return ": ".join(part for part in (position, self.field) if part)


class AutoTurboError(Exception):
    """Base of all errors of this package.

    Args:
        message: What is wrong, one line, no trailing full stop.
        at: Where it is.
        hint: How to mend it, one line.
    """

    kind: ClassVar[str] = "error"
    exit_status: ClassVar[int] = 1

    def __init__(self, message: str, at: Location | None = None, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = _cut(" ".join(message.split()), _LONGEST)
        self.at = at or Location()
        if self.at.field and len(self.at.field) > _LONGEST_FIELD:
            self.at = replace(self.at, field=_cut(self.at.field, _LONGEST_FIELD))
        self.hint = " ".join(hint.split()) if hint else None

    def __str__(self) -> str:
        text = ": ".join(part for part in (str(self.at), self.message) if part)
        return f"{text}; {self.hint}" if self.hint else text

    def __reduce__(self) -> tuple[object, ...]:
        """Return the three arguments to rebuild from, so that workers can hand errors back."""
        return (type(self), (self.message, self.at, self.hint))


def _cut(text: str, most: int) -> str:
    """Return a text without its middle, where it is too long to be read."""
    return text if len(text) <= most else f"{text[: most * 2 // 3]} ... {text[-most // 4 :]}"


class InputError(AutoTurboError):
    """Something that the user gave is not usable."""

    kind = "input"
    exit_status = 2


class UsageError(InputError):
    """A flag, an argument or a combination of them."""

    kind = "usage"


class ModelError(InputError):
    """An ONNX file that cannot be scheduled."""

    kind = "model"


class TargetError(InputError):
    """A target description that is not valid."""

    kind = "target"


class KnobsError(InputError):
    """A knobs file or a knob's value."""

    kind = "knobs"


class ScheduleFileError(InputError):
    """A schedule file that cannot be read or belongs to something else."""

    kind = "schedule"


class DatabaseError(InputError):
    """A database, or an export of one, that cannot be used."""

    kind = "database"


class PluginError(InputError):
    """A package that plugs something in and does not do as it should."""

    kind = "plugin"


class RunError(InputError):
    """A run that does not exist or may not be resumed."""

    kind = "run"


class InfeasibleError(AutoTurboError):
    """No schedule of the model fits the target."""

    kind = "infeasible"
    exit_status = 3


class MeasurerError(AutoTurboError):
    """A measurer broke its contract."""

    kind = "measurer"


class RefusedError(AutoTurboError):
    """A schedule or a calibrated target that failed a check, so that it is not handed out."""

    kind = "refused"


class ExecutorError(AutoTurboError):
    """Workers or the cluster failed."""

    kind = "executor"


class VerifyError(AutoTurboError):
    """A schedule that cannot be written as a model."""

    kind = "verify"


class UnrunnableError(VerifyError):
    """ONNX Runtime is not installed, or it cannot run a model."""

    kind = "unrunnable"


class OutputStreamError(AutoTurboError):
    """Standard output or standard error is full or closed."""

    kind = "stream"


class InterruptedRunError(AutoTurboError):
    """The user interrupted; everything measured is saved."""

    kind = "interrupted"
    exit_status = 130


_LONGEST_LIST = 16
"""Known names that a hint lists."""


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that is spelt most like another; None where none is close."""
    import difflib

    folded = {one.casefold().replace("-", "_"): one for one in known}
    close = difflib.get_close_matches(name.casefold().replace("-", "_"), folded, 1)
    return folded[close[0]] if close else None


def did_you_mean(
    name: str, known: Iterable[str], otherwise: str | None = None, *, kind: str | None = None
) -> str:
    """Return the hint for a name that is not known.

    Args:
        name: As the user spelt it.
        known: The names that there are.
        otherwise: The hint where none of them is close; by default they are listed.
        kind: What they are, in the plural, for the list.
    """
    names = list(known)
    if close := nearest(name, names):
        return f"did you mean {close!r}?"
    if otherwise is not None:
        return otherwise
    listed = ", ".join(names[:_LONGEST_LIST]) + (", ..." if names[_LONGEST_LIST:] else "")
    return f"known {kind}: {listed}" if kind else f"one of {', '.join(names)}"
