"""What the database holds, as frozen values, and their JSON form.

A record's JSON form (``as_dict``) is what stands in the database and on a line of an export, beside
``"kind"`` and ``"schema"``; :func:`autoturbo.database.record_schema` describes it for others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any, Literal, get_args

from autoturbo.errors import RunError
from autoturbo.files import masked
from autoturbo.schedule.knobs import Knobs
from autoturbo.schema import Choice, Seconds, Text, Whole
from autoturbo.simulate.measurement import Failure, Measurement, Outcome
from autoturbo.verify.findings import Check

DATABASE_SCHEMA = 3
"""Version of the tables (``PRAGMA user_version``); an older one is migrated, a newer refused."""

RECORD_SCHEMA = 1
"""Version of the JSON form of every record, in the database and in exports."""

OTHER_EVALUATOR = "+evaluator"
"""End of the scheduler's version where an evaluator given from Python makes the schedules."""

RunState = Literal["running", "done", "interrupted", "failed"]
RUN_STATES: tuple[RunState, ...] = get_args(RunState)


# Identifiers and hashes are printable ASCII: they are compared, sorted and typed in. Names for
# people may be anything, half a surrogate pair from a strange file name included.
Token = Annotated[str, Text(pattern="[!-~]([ -~]*[!-~])?", hint="for example 3f2a90c1d4")]
Time = Annotated[
    str,
    Text(
        pattern="[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}"
        r"(\.[0-9]+)?(Z|[+-][0-9]{2}:[0-9]{2})",
        hint="for example 2026-01-31T12:00:00Z",
    ),
]
Verifier = Annotated[str, Text(pattern="[0-9]{1,9}", hint="for example 1")]
Batch = Annotated[int, Whole(least=1)]

DERIVED = ("trials", "best_trial", "best_latency", "default_latency")
"""Fields of a run that follow from its trials."""


@dataclass(frozen=True, slots=True, order=True)
class PairKey:
    """What a measurement holds for: another value of any field and it may not be reused.

    Attributes:
        graph_hash: the imported graph, its batch and shapes included.
        target_hash: the target description.
        dtype: element type the model is scheduled in.
        scheduler_version: scheduler, simulator and knob set.
    """

    graph_hash: Token
    target_hash: Token
    dtype: Token
    scheduler_version: Token


@dataclass(frozen=True, slots=True)
class Verified:
    """That checks found nothing wrong with a schedule.

    Attributes:
        checks: those that passed, in the order of :class:`autoturbo.verify.findings.Check`.
        verifier: version of the checks, a whole number as text.
        created: when, ISO 8601, UTC.
    """

    checks: tuple[Check, ...]
    verifier: Verifier
    created: Time

    @property
    def strength(self) -> tuple[int, int]:
        """More checks weigh more, then the newer verifier."""
        return (len(self.checks), int(self.verifier))

    def as_dict(self) -> dict[str, Any]:
        """All fields as JSON values."""
        checks = [check.value for check in self.checks]
        return {"checks": checks, "verifier": self.verifier, "created": self.created}

    @staticmethod
    def from_dict(values: Mapping[str, Any]) -> Verified:
        """Rebuild from :meth:`as_dict`."""
        return Verified(**{**values, "checks": tuple(Check(name) for name in values["checks"])})


@dataclass(frozen=True, slots=True)
class Refused:
    """A trial whose schedule failed a check, so that it was not handed out.

    Attributes:
        trial: its number.
        verifier: version of the checks.
        failures: what they found, one line each.
    """

    trial: int
    verifier: Verifier
    failures: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """All fields as JSON values."""
        return {**asdict(self), "failures": list(self.failures)}

    @staticmethod
    def from_dict(values: Mapping[str, Any]) -> Refused:
        """Rebuild from :meth:`as_dict`."""
        return Refused(**{**values, "failures": tuple(values["failures"])})


LIMITS = "limits"
"""Setting of a run that was resumed with other limits (trials, time, ...): the new ones.

Those that it was begun with stay as they are: its id and its first trials follow from them."""

BORROWS = "borrows"
"""Setting of a run that measured what other points of a sweep found: the run that it belongs to
(``run``) and a hash of the targets (``grid``)."""


@dataclass(frozen=True, slots=True)
class RunInfo:
    """One run of the tuner on one model and target.

    The last four fields follow from the run's trials: the database fills them in when it reads and
    ignores them when it writes.

    Attributes:
        id: of :func:`autoturbo.database.run_id`, perhaps with ``-2``, ``-3``, ... behind.
        key: what its measurements hold for.
        model: the model's name for people.
        model_file: the file as the user named it.
        batch: samples evaluated at once.
        target: the target's name for people.
        settings: JSON values; everything that affects the result.
        versions: of this package and what it stands on.
        created: ISO 8601, UTC.
        state: ``"running"`` also after a kill: nobody was left to say otherwise.
        refused: trials whose schedules failed a check.
        trials: recorded so far.
        best_trial: number of the trial with the least latency, the earliest of equals, refused
            ones left out.
        best_latency: its latency in seconds.
        default_latency: of trial 0, the published heuristic at its best, in seconds.
    """

    id: Token
    key: PairKey
    model: str
    model_file: str
    batch: Batch
    target: str
    settings: Mapping[str, Any]
    versions: Mapping[str, str]
    created: Time
    state: Annotated[RunState, Choice(of=RUN_STATES, kind="state")] = "running"
    refused: tuple[Refused, ...] = ()
    trials: int = field(default=0)
    best_trial: int | None = None
    best_latency: float | None = None
    default_latency: float | None = None

    @property
    def asked(self) -> Mapping[str, Any]:
        """The settings with the limits that it goes on with since it was resumed."""
        return {**self.settings, **self.settings.get(LIMITS, {})}

    def as_dict(self) -> dict[str, Any]:
        """The stored fields as JSON values, without what follows from the trials, nor secrets."""
        return {
            "id": self.id,
            "key": asdict(self.key),
            "model": self.model,
            "model_file": self.model_file,
            "batch": self.batch,
            "target": self.target,
            "settings": _without_password(self.settings),
            "versions": dict(self.versions),
            "created": self.created,
            "state": self.state,
            **({"refused": [trial.as_dict() for trial in self.refused]} if self.refused else {}),
        }

    @staticmethod
    def from_dict(values: Mapping[str, Any]) -> RunInfo:
        """Rebuild from :meth:`as_dict`; earlier releases kept passwords, which are hidden."""
        settings = _without_password(values["settings"])
        key = PairKey(**values["key"])
        refused = tuple(Refused.from_dict(trial) for trial in values.get("refused", ()))
        return RunInfo(**{**values, "key": key, "settings": settings, "refused": refused})


def _without_password(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings with the URL of the storage as it may be kept."""
    storage = settings.get("storage")
    return {**settings, "storage": masked(storage)} if isinstance(storage, str) else {**settings}


def no_schedule(info: RunInfo) -> RunError:
    """What is said of a run none of whose trials fits, where its best one is asked for."""
    hint = f"'autoturbo show {info.id}' says what failed"
    return RunError(f"run {info.id} has no schedule", hint=hint)


@dataclass(frozen=True, slots=True)
class TrialRecord:
    """One setting of the scheduler, measured or failed.

    Attributes:
        run: id of its run.
        number: of the proposal, from 0 (the published heuristic).
        knobs: what was proposed.
        outcome: what measuring gave.
        created: ISO 8601, UTC.
    """

    run: Token
    number: int
    knobs: Knobs
    outcome: Outcome
    created: Time

    @property
    def latency(self) -> float | None:
        """Seconds, or None for a failure."""
        return self.outcome.latency if isinstance(self.outcome, Measurement) else None

    def as_dict(self) -> dict[str, Any]:
        """All fields as JSON values; the outcome is under ``measurement`` or ``failure``."""
        name = "measurement" if isinstance(self.outcome, Measurement) else "failure"
        return {
            "run": self.run,
            "number": self.number,
            "knobs": self.knobs.as_dict(),
            name: self.outcome.as_dict(),
            "created": self.created,
        }

    @staticmethod
    def from_dict(values: Mapping[str, Any]) -> TrialRecord:
        """Rebuild from :meth:`as_dict`.

        Raises:
            KnobsError: knobs that this version does not know.
        """
        measured = "measurement" in values
        outcome: Outcome
        if measured:
            outcome = Measurement.from_dict(values["measurement"])
        else:
            outcome = Failure.from_dict(values["failure"])
        knobs = Knobs.from_dict(values["knobs"])
        return TrialRecord(values["run"], values["number"], knobs, outcome, values["created"])


@dataclass(frozen=True, slots=True)
class BestSchedule:
    """The schedule of least latency found for a pair so far.

    Attributes:
        key: what it holds for.
        model: the model's name for people.
        batch: samples evaluated at once.
        target: the target's name for people.
        knobs: the setting that gives the schedule.
        measurement: of the schedule.
        schedule: text of the schedule file, canonical JSON.
        run: id of the run that found it.
        trial: its number there.
        created: ISO 8601, UTC.
        versions: of this package and what it stands on.
        verified: the checks that it passed; None where it was never checked.
        decisions: layer by layer, for other models (:mod:`autoturbo.search.transfer`); empty where
            they are not known.
    """

    key: PairKey
    model: str
    batch: Batch
    target: str
    knobs: Knobs
    measurement: Measurement
    schedule: str
    run: Token
    trial: int
    created: Time
    versions: Mapping[str, str] = field(default_factory=dict)
    verified: Verified | None = None
    decisions: Mapping[str, Any] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """All fields as JSON values."""
        return {
            "key": asdict(self.key),
            "model": self.model,
            "batch": self.batch,
            "target": self.target,
            "knobs": self.knobs.as_dict(),
            "measurement": self.measurement.as_dict(),
            "schedule": self.schedule,
            "run": self.run,
            "trial": self.trial,
            "created": self.created,
            "versions": dict(self.versions),
            **({} if self.verified is None else {"verified": self.verified.as_dict()}),
            **({"decisions": dict(self.decisions)} if self.decisions else {}),
        }

    @staticmethod
    def from_dict(values: Mapping[str, Any]) -> BestSchedule:
        """Rebuild from :meth:`as_dict`.

        Raises:
            KnobsError: knobs that this version does not know.
        """
        parts: dict[str, Any] = {
            "key": PairKey(**values["key"]),
            "knobs": Knobs.from_dict(values["knobs"]),
            "measurement": Measurement.from_dict(values["measurement"]),
        }
        if "verified" in values:
            parts["verified"] = Verified.from_dict(values["verified"])
        return BestSchedule(**{**values, **parts})


@dataclass(frozen=True, slots=True)
class KernelRecord:
    """The measured time of one kernel, reused wherever the kernel occurs again.

    Attributes:
        target_hash: the target description.
        scheduler_version: scheduler, simulator and knob set.
        signature: hash of all that the kernel's time depends on.
        seconds: of one launch.
    """

    target_hash: Token
    scheduler_version: Token
    signature: Token
    seconds: Seconds

    def as_dict(self) -> dict[str, Any]:
        """All fields as JSON values."""
        return asdict(self)

    @staticmethod
    def from_dict(values: Mapping[str, Any]) -> KernelRecord:
        """Rebuild from :meth:`as_dict`."""
        return KernelRecord(**values)


@dataclass(frozen=True, slots=True)
class Decided:
    """What the best schedule of a model decided.

    Attributes:
        graph_hash: of the model.
        model: its name.
        decisions: of :meth:`autoturbo.search.transfer.Decisions.as_dict`.
        run: that found it.
        trial: its number there.
    """

    graph_hash: str
    model: str
    decisions: Mapping[str, Any]
    run: str
    trial: int


Record = RunInfo | TrialRecord | BestSchedule | KernelRecord


@dataclass(frozen=True, slots=True)
class Counts:
    """How many records of each kind."""

    runs: int = 0
    trials: int = 0
    best: int = 0
    kernels: int = 0


@dataclass(frozen=True, slots=True)
class ImportResult:
    """What an import did.

    Attributes:
        read: records in the file that were believed.
        changed: records that were new or better than what the database had.
        left_out: rows of another database that were not believed.
        findings: what is wrong with the first of those, one line each.
    """

    read: Counts
    changed: Counts
    left_out: Counts = Counts()
    findings: tuple[str, ...] = ()
