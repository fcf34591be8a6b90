"""The records of the database, as frozen values, and their JSON form.

A record's JSON form (``as_dict``) is what stands in the database and on a line of an export, beside
``"kind"`` and ``"schema"``; :func:`autoturbo.database.record_schema` describes it for others.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, Self, get_args

from autoturbo.errors import RunError
from autoturbo.passwords import masked
from autoturbo.registry import HEURISTIC, HOST, SIMULATOR
from autoturbo.schedule.knobs import Knobs
from autoturbo.schema import Choice, Described, Positive
from autoturbo.simulator.measurement import ROUNDING, Failure, Measurement, Outcome
from autoturbo.verifier.findings import Check

RECORD_SCHEMA = 1
"""Version of the JSON form of every record, in the database and in exports."""

OTHER_EVALUATOR = "+evaluator"
"""End of the scheduler's version where an evaluator given from Python makes the schedules."""

PINNED = "+pinned-"
"""Before the hash of what people have fixed, at the end of the scheduler's version: a schedule that
was found under constraints is never handed out as one that was found without."""

RunState = Literal["running", "done", "interrupted", "failed"]
RUN_STATES: tuple[RunState, ...] = get_args(RunState)


# Identifiers and hashes are printable ASCII: they are compared, sorted and typed in. Names for
# people may be anything, half a surrogate pair from a strange file name included.
Token = Annotated[str, Described(pattern="[!-~]([ -~]*[!-~])?", example="3f2a90c1d4")]
Time = Annotated[
    str,
    Described(
        pattern="[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}"
        r"(\.[0-9]+)?(Z|[+-][0-9]{2}:[0-9]{2})",
        example="2026-01-31T12:00:00Z",
    ),
]
Verifier = Annotated[str, Described(pattern="[0-9]{1,9}", example="1")]
Batch = Positive

DERIVED = ("trials", "best_trial", "best_latency", "default_latency")
"""Fields of a run that follow from its trials."""

_OPTIONAL = ("refused", "verified", "decisions", "lacking", "handed_out", "entrants")
"""Fields that are left out where they are empty."""

_OUTCOMES = ("measurement", "failure")
"""What the field ``outcome`` is called in JSON."""


class Document:
    """A frozen dataclass that is kept as JSON."""

    __slots__ = ()

    def as_dict(self) -> dict[str, Any]:
        """Return the stored fields as JSON values, without secrets."""
        values = dict[str, Any]()
        for one in dataclasses.fields(self):  # type: ignore[arg-type]  # every subclass is one
            value = getattr(self, one.name)
            if one.name in DERIVED or (one.name in _OPTIONAL and not value):
                continue
            name = one.name
            if name == "outcome":
                name = _OUTCOMES[isinstance(value, Failure)]
            values[name] = _without_password(value) if name == "settings" else _plain(value)
        return values

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Return what :meth:`as_dict` gave; passwords that earlier releases kept are hidden.

        Raises:
            KnobsError: Knobs that this version does not know.
        """
        known = cls.__dataclass_fields__  # type: ignore[attr-defined]
        read = dict[str, Any]()
        for name, value in values.items():
            own = "outcome" if name in _OUTCOMES and name not in known else name
            read[own] = _READERS[name](value) if name in _READERS else value
        return cls(**read)


def _plain(value: Any) -> Any:
    """Return a field's value as JSON has it."""
    match value:
        case tuple():
            return [_plain(one) for one in value]
        case Mapping():
            return {name: _plain(one) for name, one in value.items()}
        case enum.Enum():
            return value.value
        case _:
            return value.as_dict() if hasattr(value, "as_dict") else value


@dataclass(frozen=True, slots=True, order=True)
class PairKey(Document):
    """The key of reusable measurements: all fields must be equal.

    Attributes:
        graph_hash: The imported graph, its batch and shapes included.
        target_hash: The target description.
        dtype: Element type the model is scheduled in.
        scheduler_version: Scheduler, simulator and knob set.
    """

    graph_hash: Token
    target_hash: Token
    dtype: Token
    scheduler_version: Token

    @property
    def free(self) -> PairKey:
        """Return the key of what is found without constraints."""
        return dataclasses.replace(self, scheduler_version=self.scheduler_version.split(PINNED)[0])


@dataclass(frozen=True, slots=True)
class Verified(Document):
    """The checks that a schedule has passed.

    Attributes:
        checks: Those that passed, in the order of :class:`autoturbo.verifier.findings.Check`.
        verifier: Version of the checks, a whole number as text.
        created: When, ISO 8601, UTC.
    """

    checks: tuple[Check, ...]
    verifier: Verifier
    created: Time

    @property
    def strength(self) -> tuple[int, int]:
        """Return a sort key: the number of checks, then the verifier's version."""
        return (len(self.checks), int(self.verifier))


@dataclass(frozen=True, slots=True)
class RefusedTrial(Document):
    """A trial whose schedule failed a check, so that it was not handed out.

    Attributes:
        trial: Its number.
        verifier: Version of the checks.
        failures: What they found, one line each.
    """

    trial: int
    verifier: Verifier
    failures: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Race(Document):
    """The result of a race of candidates, measured in turn where measurements vary.

    Attributes:
        objective: What it was about.
        reference: The entrant to beat: trial 0 where it is an entrant.
        leader: The entrant that did best against the others.
        gain: How many times as much the reference takes as the leader.
        low: Lower end of the interval of that gain; 0 where too little was measured for one.
        high: Upper end of it; None likewise.
        confidence: That the interval holds the gain.
        noise: Relative standard deviation of one figure, as the race found it.
        measurements: Made for the race.
        rounds: The last of them, in which leader and reference alone were measured.
        refuted: Entrants that looked better than what is handed out, and are not shown to be.
    """

    objective: str
    reference: int
    leader: int
    gain: float
    low: float
    high: float | None
    confidence: float
    noise: float
    measurements: int
    rounds: int
    refuted: tuple[int, ...] = ()

    @property
    def demonstrated(self) -> bool:
        """Return whether the leader is better than the reference at the stated confidence."""
        return self.low > 1

    @property
    def winner(self) -> int:
        """Return what is handed out: the leader, or the reference where no gain is shown."""
        return self.leader if self.demonstrated else self.reference


@dataclass(frozen=True, slots=True)
class HandedOut(Document):
    """What a run handed out at its end, and what that was compared with.

    Attributes:
        trial: The trial whose schedule it is.
        covers: Settings recorded by then.
        measurement: Of it: the recorded one, or what the last rounds of a race gave.
        heuristic: Of trial 0, the published heuristic, likewise; None where it has none or is
            refused.
        baselines: Of other schedulers by name.
        race: How it was chosen where measurements vary; None where they repeat, or without time.
        doubt: Why the measurement was not confirmed; empty where it was.
        varies: Whether the same schedule does not always take as long.
        entrants: On this computer, the trials of the plans that were compared, by name.
        schedules: How many schedules the settings are; None where nobody counted.
    """

    trial: int
    covers: int
    measurement: Measurement
    heuristic: Measurement | None = None
    baselines: Mapping[str, Measurement] = field(default_factory=dict)
    race: Race | None = None
    doubt: str = ""
    varies: bool = False
    entrants: Mapping[str, int] = field(default_factory=dict)
    schedules: int | None = None

    @property
    def is_single(self) -> bool:
        """Return whether a single figure that varies stands for it: the best of many is luck."""
        return self.varies and self.race is None

    def base(self, name: str) -> Measurement | None:
        """Return what it is compared with: ``"heuristic"`` or a scheduler by name."""
        return self.heuristic if name == HEURISTIC else self.baselines.get(name)


LIMITS = "limits"
"""Setting of a run that was resumed with other limits (trials, time, ...): the new ones.

Those that it was begun with stay as they are: its id and its first trials follow from them."""

CALL = "call"
"""Setting of a run that was begun together with others: the id of the first of them."""

PLACE = "place"
"""Setting of such a run: how many were begun before it in the call."""

BORROWS = "borrows"
"""Setting of a run that measured what other points of a sweep found: the run that it belongs to
(``run``) and a hash of the targets (``grid``)."""


_NOT_DECISIVE = frozenset({
    *("folder", "output", "runs_folder", "storage", "cost_model"),  # where it was begun
    *(LIMITS, CALL, PLACE, BORROWS, "verify"),  # with what, how far, what is checked
    *("target_description", "model_batch", "config_hash", "origins", "notes"),  # told elsewhere
})  # fmt: skip
"""Settings that may differ in one run: its first trials do not follow from them."""


@dataclass(frozen=True, slots=True)
class RunInfo(Document):
    """One run of the tuner on one model and target.

    The last four fields follow from the run's trials: the database fills them in when it reads and
    ignores them when it writes.

    Attributes:
        id: Of :func:`autoturbo.database.run_id`, perhaps with ``-2``, ``-3``, ... behind.
        key: What its measurements hold for.
        model: The model's name for people.
        model_file: The file as the user named it.
        batch: Samples evaluated at once.
        target: The target's name for people.
        settings: JSON values; everything that affects the result.
        versions: Of this package and what it stands on.
        created: ISO 8601, UTC.
        state: ``"running"`` also after a kill: nobody was left to say otherwise.
        refused: Trials whose schedules failed a check.
        lacking: Why a base of comparison has no measurement or not all that it should be the best
            of, by its name (``"heuristic"`` or a scheduler's): no gain over it is stated.
        handed_out: What it handed out at its last end; None where it has not ended yet, or where
            an earlier version carried it out.
        trials: Recorded so far.
        best_trial: Number of the trial that was handed out; before that of the one with the least
            latency, the earliest of equals, refused ones left out.
        best_latency: Its latency in seconds.
        default_latency: Of trial 0, the published heuristic at its best, in seconds; None where it
            is refused.
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
    state: Annotated[RunState, Choice(RUN_STATES)] = "running"
    refused: tuple[RefusedTrial, ...] = ()
    lacking: Mapping[str, str] = field(default_factory=dict)
    handed_out: HandedOut | None = None
    trials: int = field(default=0)
    best_trial: int | None = None
    best_latency: float | None = None
    default_latency: float | None = None

    def refuses(self, number: int | None) -> bool:
        """Return whether the schedule of a trial failed a check."""
        return any(one.trial == number for one in self.refused)

    def gain(self, base: str = HEURISTIC) -> float | None:
        """Return how many times as fast as a base its best schedule is; None if that is not known.

        Args:
            base: ``"heuristic"`` or a scheduler that the run was compared with.
        """
        if base in self.lacking:
            return None
        if (handed := self.handed_out) is not None:
            measured = None if handed.is_single else handed.base(base)
            return None if measured is None else measured.latency / handed.measurement.latency
        exact = self.settings.get("measurer", SIMULATOR) == SIMULATOR or self.state == "done"
        if not exact or self.best_latency is None or self.default_latency is None:
            return None
        return self.default_latency / self.best_latency if base == HEURISTIC else None

    def unlike(self, other: RunInfo) -> tuple[str, ...]:
        """Return in what a run of the same id is another one; empty where it is the same."""
        known = sorted({*self.settings, *other.settings} - _NOT_DECISIVE)
        names = [name for name in known if self.settings.get(name) != other.settings.get(name)]
        return ("hashes or versions", *names) if self.key != other.key else tuple(names)

    @property
    def on_host(self) -> bool:
        """Return whether it is of this computer: plans of batches, and no schedule's trials."""
        return self.target == HOST == self.settings.get("measurer")

    @property
    def schedules(self) -> int:
        """Return how many schedules its trials are; until its end the settings that were tried."""
        handed = self.handed_out
        if handed is None or handed.schedules is None or handed.covers != self.trials:
            return self.trials
        return handed.schedules

    @property
    def asked(self) -> Mapping[str, Any]:
        """Return the settings with the limits set when the run was resumed."""
        return {**self.settings, **self.settings.get(LIMITS, {})}


def _without_password(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings with the storage's URL without its password."""
    storage = settings.get("storage")
    return {**settings, "storage": masked(storage)} if isinstance(storage, str) else {**settings}


_READERS: Mapping[str, Callable[[Any], Any]] = {
    "key": PairKey.from_dict,
    "knobs": Knobs.from_dict,
    "measurement": Measurement.from_dict,
    "heuristic": lambda measured: None if measured is None else Measurement.from_dict(measured),
    "baselines": lambda measured: {n: Measurement.from_dict(m) for n, m in measured.items()},
    "race": lambda found: None if found is None else Race.from_dict(found),
    "refuted": tuple,
    "handed_out": lambda found: None if found is None else HandedOut.from_dict(found),
    "failure": Failure.from_dict,
    "verified": Verified.from_dict,
    "refused": lambda trials: tuple(map(RefusedTrial.from_dict, trials)),
    "checks": lambda names: tuple(map(Check, names)),
    "failures": tuple,
    "settings": _without_password,
}
"""How fields are read that are not as JSON has them."""


def no_schedule(info: RunInfo) -> RunError:
    """Return the error of a run without a best trial, since none fits."""
    hint = f"'autoturbo show {info.id}' says what failed"
    return RunError(f"run {info.id} has no schedule", hint=hint)


@dataclass(frozen=True, slots=True)
class TrialRecord(Document):
    """A candidate, measured or failed.

    Attributes:
        run: Id of its run.
        number: Of the proposal, from 0 (the published heuristic).
        knobs: What was proposed.
        outcome: What measuring gave.
        created: ISO 8601, UTC.
    """

    run: Token
    number: int
    knobs: Knobs
    outcome: Outcome
    created: Time

    def unlike(self, other: TrialRecord) -> bool:
        """Return whether a trial of the same number is another one: of other knobs or figures."""
        if self.knobs != other.knobs:
            return True
        mine, theirs = self.latency, other.latency
        return mine is not None and theirs is not None and abs(mine - theirs) > ROUNDING * mine

    @property
    def latency(self) -> float | None:
        """Return the seconds; None for a failure."""
        return self.outcome.latency if isinstance(self.outcome, Measurement) else None


@dataclass(frozen=True, slots=True)
class BestSchedule(Document):
    """The schedule of least latency found for a pair so far.

    Attributes:
        key: What it holds for.
        model: The model's name for people.
        batch: Samples evaluated at once.
        target: The target's name for people.
        knobs: The candidate that gives the schedule.
        measurement: Of the schedule.
        schedule: Text of the schedule file, canonical JSON.
        run: Id of the run that found it.
        trial: Its number there.
        created: ISO 8601, UTC.
        versions: Of this package and what it stands on.
        verified: The checks that it passed; None where it was never checked.
        decisions: Layer by layer, for other models (:mod:`autoturbo.search.warm_starts.transfer`);
            empty where they are not known.
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


@dataclass(frozen=True, slots=True)
class Decided:
    """The decisions of a model's best schedule.

    Attributes:
        graph_hash: Of the model.
        model: Its name.
        decisions: Of :meth:`autoturbo.search.warm_starts.transfer.Decisions.as_dict`.
        run: That found it.
        trial: Its number there.
    """

    graph_hash: str
    model: str
    decisions: Mapping[str, Any]
    run: str
    trial: int


Record = RunInfo | TrialRecord | BestSchedule


@dataclass(frozen=True, slots=True)
class Counts:
    """The number of records of each kind."""

    runs: int = 0
    trials: int = 0
    best: int = 0


@dataclass(frozen=True, slots=True)
class ImportResult:
    """The result of an import.

    Attributes:
        read: Records in the file that were believed.
        changed: Records that were new or better than what the database had.
        left_out: Records that were not believed.
        findings: What is wrong with the first of those, one line each.
        renamed: Runs whose ids others have: theirs, and what they are called here.
    """

    read: Counts
    changed: Counts
    left_out: Counts = Counts()
    findings: tuple[str, ...] = ()
    renamed: Mapping[str, str] = field(default_factory=dict)
