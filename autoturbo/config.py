"""The options of a tuning run, each declared once.

A field of :class:`TuneConfig` or :class:`ExecutionConfig` carries an :class:`Option`: meaning,
unit, spelling on the command line, bounds. From these fields come flags and their help, arguments
and docstrings of :func:`autoturbo.tune`, :func:`autoturbo.resume` and :func:`autoturbo.sweep`, what
the record of a run keeps, its hash, a JSON schema and the page of options
(``docs/decisions/configuration.md``).
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import inspect
import json
import textwrap
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, Self, TypeVar

from autoturbo.errors import RunError, UsageError
from autoturbo.files import JOBS, ROUND, Limit
from autoturbo.registry import COST_MODEL, TASKS

if TYPE_CHECKING:
    from autoturbo.database import RunInfo
    from autoturbo.hardware.tuning_target import TuningTarget
    from autoturbo.search.progress import Progress
    from autoturbo.search.selection.verified_selection import Verifier
    from autoturbo.simulator.contract import EvaluatorFactory

EFFORTS = {"quick": 64, "standard": 400, "thorough": 2000}
"""Trials of each effort, trial 0 (the published heuristic at its best) included."""

SUBGRAPHS = 8
"""Kinds of sub-graphs whose own knobs our sampler searches by default."""

RUNS = "runs"
"""The default folder of run folders, in the working folder."""

PINNING = ("fixed", "allowed", "keep", "cut")
"""Options by which people say what they know; a run that goes on has those that it began with."""

STORAGE_VARIABLE = "AUTOTURBO_STORAGE"
"""The environment variable of the storage's URL, which command lines show to everybody."""

Kind = Literal[
    "count",
    "seconds",
    "share",
    "name",
    "names",
    "text",
    "path",
    "switch",
    "mapping",
    "python",
    "values",
    "offers",
    "layers",
    "groups",
    "candidates",
]
"""What a value is: how a flag is read, and what the JSON schema says.

``"values"`` are fixed and ``"offers"`` allowed by name, ``"groups"`` are of ``"layers"``,
``"candidates"`` are settings: their flags may be given again (:mod:`autoturbo.commands.pin_flags`).
A ``"switch"`` has a flag without a value, which sets what it is not by default; a ``"mapping"`` is
read from a file; ``"python"`` values (functions) have no flag.
"""

Group = Literal[
    "model",
    "target",
    "which schedule",
    "how long",
    "what you decide",
    "how to search",
    "where it is measured",
    "checks and comparisons",
    "what is kept",
]
"""Titles under which a command's help has its flags, in their order."""

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C")
_ConfigT = TypeVar("_ConfigT", bound="ResumeConfig | ExecutionConfig")


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """The declaration of a configuration's field.

    Attributes:
        help: What it is, in the words of the command line's help.
        more: What Python's documentation says besides.
        kind: Of its values.
        group: Where the help has its flag; None if it has no flag.
        flag: On the command line; of the field's name if empty.
        metavar: What the help calls the value.
        usual: What it is if it is not given, where the field's default does not say so.
        unit: Of a number.
        least: The smallest number allowed; of seconds the largest that is not.
        most: The largest number allowed.
        choices: Names allowed, or where they are found (``"module:name"``, a function or names).
        early: An id of a run has it even where it is the default; others came later, and leave the
            ids of runs that do not use them as they are.
        kept: The record of a run has it although it is none of :class:`TuneConfig`.
        absent: Its value in records of releases that did not have it, where not the default.
    """

    help: str
    more: str = ""
    kind: Kind
    group: Group | None = None
    flag: str = ""
    metavar: str = ""
    usual: str = ""
    unit: str = ""
    least: int | None = None
    most: Limit | None = None
    choices: tuple[str, ...] | str = ()
    early: bool = False
    kept: bool = False
    absent: object = None


def option(text: str, kind: Kind, group: Group, **more: Any) -> Mapping[str, Any]:
    """Return the metadata of a field: its :class:`Option`, from the help's text on."""
    return {"option": Option(help=text, kind=kind, group=group, **more)}


def argument(text: str) -> Mapping[str, Any]:
    """Return the metadata of a field that is a plain argument of a public function."""
    return {"option": Option(help=text, kind="python")}


@dataclass(frozen=True, kw_only=True)
class ResumeConfig:
    """What decides the result of a run and may change, or is said again, when it is resumed."""

    trials: int | None = field(default=None, metadata=option(
        "trials of each run in total, also after a resume", "count", "how long",
        metavar="N", unit="trials", least=1, early=True,
        usual="as the effort says; without limit with a time budget",
    ))  # fmt: skip
    time_budget: float | None = field(default=None, metadata=option(
        "stop all after this long, for example 10m", "seconds", "how long",
        metavar="TIME", unit="seconds", least=0, early=True,
        more="Counts from the call with all that comes first and last. What workers measure then is"
        " ended; what this process simulates is not, so that one trial is always made. Makes the"
        " result depend on the machine.",
    ))  # fmt: skip
    patience: int | None = field(default=None, metadata=option(
        "stop after N trials without a better one", "count", "how long",
        metavar="N", unit="trials", least=1, early=True,
    ))  # fmt: skip
    bound_gap: float | None = field(default=None, metadata=option(
        "stop once the latency is within this of the lower bound, for example 5%", "share",
        "how long", metavar="PERCENT", least=0, early=True, more="In Python a share of one: 0.05.",
    ))  # fmt: skip
    verify: bool | None = field(default=None, metadata=option(
        "also run the best schedule in ONNX Runtime, against the model", "switch",
        "checks and comparisons",
    ))  # fmt: skip
    fixed: Mapping[str, Any] | None = field(default=None, metadata=option(
        "fix a knob, LAYER.KNOB for the sub-graph with a layer, or what a knobs file has", "values",
        "what you decide",
        flag="--fix", metavar="KNOB=VALUE|FILE", more="A mapping of names to values.",
    ))  # fmt: skip
    allowed: Mapping[str, Sequence[Any]] | None = field(default=None, metadata=option(
        "try only these values of a knob of the model", "offers", "what you decide",
        flag="--allow", metavar="KNOB=V1,V2", more="A mapping of names to values.",
    ))  # fmt: skip
    keep: Sequence[Sequence[str]] | None = field(default=None, metadata=option(
        "keep these layers, and what lies between them, in one sub-graph", "groups",
        "what you decide", metavar="LAYER,LAYER", more="Several groups, each a sequence of names.",
    ))  # fmt: skip
    cut: Sequence[str] | None = field(default=None, metadata=option(
        "end a sub-graph behind this layer", "layers",
        "what you decide", metavar="LAYER", more="Several names.",
    ))  # fmt: skip

    def check(self) -> None:
        """Raise UsageError where a value is out of its bounds."""
        check_bounds(self)

    @property
    def limits(self) -> dict[str, Any]:
        """Return the limits that end a search, by name."""
        names = options_of(ResumeConfig).keys() - {"verify", *PINNING}
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True, kw_only=True)
class TuneConfig(ResumeConfig):
    """What decides the result of a run; every field is kept with the run and enters its hash."""

    dtype: str | None = field(default=None, metadata=option(
        "float32, float16, bfloat16, int8, bfloat8 or bfloat4", "name", "target",
        metavar="TYPE", choices="autoturbo.hardware:DTYPES", usual="what suits the target",
        early=True,
    ))  # fmt: skip
    effort: str = field(default="quick", metadata=option(
        "quick, standard or thorough: 64, 400 or 2000 trials", "name", "how long",
        metavar="LEVEL", choices=tuple(EFFORTS), early=True,
    ))  # fmt: skip
    sampler: str = field(default=COST_MODEL, metadata=option(
        "cost-model, random, tpe, ...", "name", "how to search",
        metavar="NAME", choices="autoturbo.registry:SAMPLERS.names", early=True,
        more="One of :data:`autoturbo.registry.SAMPLERS`; on a machine ours is annealing.",
    ))  # fmt: skip
    objective: str | Sequence[str] = field(default="latency", metadata=option(
        "latency, throughput, energy or ddr-bytes; several give a Pareto front", "names",
        "how to search",
        metavar="NAME", choices="autoturbo.search.objectives:OBJECTIVES", early=True,
        more="Several as a sequence, or with commas.",
    ))  # fmt: skip
    round: int | None = field(default=None, metadata=option(
        "trials proposed at a time; more keep more workers busy", "count", "how to search",
        metavar="N", unit="trials", least=1, most=ROUND, usual="16",
        more="With more, each proposal knows less.",
    ))  # fmt: skip
    subgraphs: int | None = field(default=None, metadata=option(
        "heaviest sub-graphs with own knobs", "count", "how to search",
        metavar="N", least=0, usual="8; Optuna's samplers: 0", absent=0,
    ))  # fmt: skip
    transfer: bool = field(default=True, metadata=option(
        "take starts from the database's schedules of models with like layers", "switch",
        "how to search",
    ))  # fmt: skip
    seed: int = field(default=0, metadata=option(
        "the same seed, the same result", "count",
        "how to search", metavar="N", least=0, early=True,
        more="Whatever ``jobs`` and ``ray``.",
    ))  # fmt: skip
    measurer: str = field(default="simulator", metadata=option(
        "what measures schedules: simulator, or a plug-in's", "name", "where it is measured",
        metavar="NAME", choices="autoturbo.registry:MEASURERS.names",
    ))  # fmt: skip
    cost_model: str | None = field(default=None, metadata=option(
        "a plug-in's cost model, or the folder of one to begin with", "text", "how to search",
        metavar="NAME", usual="the package's",
        more="A name of :data:`autoturbo.registry.COST_MODELS`, or a folder that"
        " ``autoturbo cost-model train`` wrote, which is read again when the run is resumed.",
    ))  # fmt: skip
    begin: Sequence[Any] | None = field(default=None, metadata=option(
        "try first what a knobs file or a schedule file has", "candidates",
        "how to search", metavar="FILE",
        more="Several settings: ``Knobs``, mappings, schedules or paths.",
    ))  # fmt: skip
    warm_starts: bool = field(default=True, metadata=option(
        "begin from partitions found by dynamic programming, and from the database", "switch",
        "how to search",
    ))  # fmt: skip
    baselines: Sequence[str] = field(default=("tvm", "graphturbo"), metadata=option(
        "other schedulers measured for comparison", "names", "checks and comparisons",
        metavar="NAME", choices="autoturbo.commands.scheduling:schedulers", least=0,
        more="On a machine, the published ones for machines.",
    ))  # fmt: skip

    def check(self) -> None:
        """Raise UsageError where a value is out of its bounds, or does not go with another."""
        from autoturbo.search.objectives import OF_KERNELS, find_objectives

        super().check()
        others = {objective.name for objective in find_objectives(self.objective)} - {*OF_KERNELS}
        if self.bound_gap is not None and others:
            hint = f"for {' and '.join(OF_KERNELS)} alone"
            raise UsageError("a gap to the lower bound stops no search for others", hint=hint)

    @property
    def total(self) -> int | None:
        """Return the trials to make; None where only time limits them."""
        if self.trials is not None or self.time_budget is not None:
            return self.trials
        return EFFORTS[self.effort]

    def resolved(self, target: TuningTarget) -> Self:
        """Return the configuration with the defaults that depend on the target or the sampler."""
        objective = self.objective if isinstance(self.objective, str) else ",".join(self.objective)
        usual = dataclasses.replace(
            self,
            dtype=self.dtype or target.default_dtype,
            objective=objective,
            verify=bool(self.verify),
            baselines=tuple(self.baselines),
            subgraphs=searched_subgraphs(self.subgraphs, self.sampler),
        )
        own = usual.baselines != TuneConfig.baselines
        task = TASKS.load(type(target).__name__)
        return dataclasses.replace(usual, **task.defaults(usual, target, own_baselines=own))

    def record(self) -> dict[str, Any]:
        """Return all fields as JSON values, as the record of a run has them."""
        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(TuneConfig)}
        known = {
            "fixed": dict(self.fixed or {}),
            "allowed": {name: list(those) for name, those in (self.allowed or {}).items()},
            "keep": [list(group) for group in self.keep or ()],
            "cut": list(self.cut or ()),
            "begin": [as_candidate(one) for one in self.begin or ()],
        }
        asked = {name: value or None for name, value in known.items()}
        return {**values, **asked, "trials": self.total, "baselines": list(self.baselines)}

    @property
    def hash(self) -> str:
        """Return the SHA-256 of the canonical JSON of all fields, hexadecimal."""
        text = json.dumps(self.record(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    def identity(self, target: TuningTarget) -> dict[str, Any]:
        """Return what of a record enters the id of a run on a target; see :attr:`Option.early`."""
        late: dict[str, Any] = {
            name: f.default for name, f in options_of(TuneConfig).items() if not early(f)
        }
        usual = dataclasses.replace(self, **late).resolved(target).record()
        mine = self.resolved(target).record()
        return {name: value for name, value in mine.items() if value != usual[name]} | {
            name: value for name, value in mine.items() if name not in late
        }

    def words(self, target: TuningTarget) -> list[str]:
        """Return the flags of a command line that ask for the same on a target.

        The data type is left out: it belongs to the pair.
        """
        mine, words = self.resolved(target), []
        by_effort = mine.total == EFFORTS.get(mine.effort)
        usual = TuneConfig(sampler=mine.sampler).resolved(target)
        told = {
            "effort": by_effort,
            "trials": not by_effort and mine.trials is not None,
            "sampler": mine.sampler != TuneConfig().resolved(target).sampler,
        }
        for name, declared in options_of(TuneConfig).items():
            value = getattr(mine, name)
            if name != "dtype" and told.get(name, value != getattr(usual, name)):
                words += _words(declared, value)
        return words

    @staticmethod
    def of_run(info: RunInfo) -> TuneConfig:
        """Return what a run was asked for, with the limits that it goes on with.

        Raises:
            RunError: Its record was not made by the tuner.
        """
        values = {}
        for name, f in options_of(TuneConfig).items():
            if name not in info.asked and early(f):
                message = f"run {info.id}: its record lacks {name!r}"
                raise RunError(message, hint="it was not made by 'tune'")
            absent = option_of(f).absent
            values[name] = info.asked.get(name, f.default if absent is None else absent)
        return TuneConfig(**{**values, "baselines": tuple(values["baselines"])})

    def extended(self, new: ResumeConfig) -> TuneConfig:
        """Return the configuration with other limits; itself where none is given.

        A limit that is not given is gone where another one is, but for the time, and for the trials
        where only ``patience`` or ``bound_gap`` are given.
        """
        mine = self if new.verify is None else dataclasses.replace(self, verify=new.verify)
        if set(new.limits.values()) == {None}:
            return mine
        only_rules = new.trials is None and new.time_budget is None
        return dataclasses.replace(
            mine,
            **new.limits
            | {
                "trials": self.trials if only_rules else new.trials,
                "time_budget": self.time_budget if new.time_budget is None else new.time_budget,
            },
        )


def as_candidate(given: Any) -> dict[str, Any]:
    """Return the knobs of a candidate as JSON values.

    Args:
        given: Knobs, a mapping of them, a schedule, or the path of a file of either.

    Raises:
        KnobsError: It is none of these, or a schedule that no knobs of ours made.
    """
    from autoturbo.schedule.knobs.file import candidate_of

    return candidate_of(given).as_dict()


def searched_subgraphs(asked: int | None, sampler: str) -> int:
    """Return how many kinds of sub-graphs have knobs of their own in a search.

    Other samplers know neither conditions nor that most of these choices are best left alone.

    Args:
        asked: The number that the user asked for; None leaves it to the sampler.
        sampler: The sampler's name.
    """
    if asked is not None:
        return asked
    return SUBGRAPHS if sampler == COST_MODEL else 0


def _words(declared: dataclasses.Field[Any], value: Any) -> list[str]:
    """Return a flag with its value as a command line has them."""
    kind, flag = option_of(declared).kind, flag_of(declared)
    if kind == "switch":
        return [flag]
    if kind in _REPEATED:
        return [word for text in _REPEATED[kind](value) for word in (flag, text)]
    texts = {"seconds": "{:g}s", "share": "{:g}%"}
    number = 100 * value if kind == "share" else value
    names = value if isinstance(value, str) else ",".join(value) if kind == "names" else None
    text = texts.get(kind, "{}").format(number) if names is None else names
    return [flag_of(declared), text]


_REPEATED: Mapping[str, Callable[[Any], list[str]]] = {
    "values": lambda fixed: [f"{name}={value}" for name, value in fixed.items()],
    "offers": lambda allowed: [f"{n}={','.join(map(str, those))}" for n, those in allowed.items()],
    "layers": list,
    "groups": lambda groups: [",".join(group) for group in groups],
    "candidates": lambda begin: ["FILE" for _ in begin],
}
"""What stands behind each flag of an option that may be given again."""


def _with_default(name: str, value: Any) -> Any:
    """Return a field of :class:`TuneConfig` with another default."""
    return field(default=value, metadata=options_of(TuneConfig)[name].metadata)


def options_of(config: type) -> dict[str, dataclasses.Field[Any]]:
    """Return the fields of a configuration that are options, by name."""
    return {f.name: f for f in dataclasses.fields(config) if "option" in f.metadata}


@dataclass(frozen=True, kw_only=True)
class SweepConfig(TuneConfig):
    """The configuration of a sweep: its points can be compared, and depend on no other."""

    transfer: bool = _with_default("transfer", value=False)
    baselines: Sequence[str] = _with_default("baselines", ())


@dataclass(frozen=True, kw_only=True, eq=False)
class ExecutionOptions:
    """What a user may say of the execution of a call: where it measures and writes, its callbacks.

    None of it affects the result.
    """

    jobs: int | None = field(default=None, metadata=option(
        "processes that measure", "count",
        "where it is measured", metavar="N", unit="processes", least=1, most=JOBS,
        usual="1; with Ray, one per CPU of the cluster",
    ))  # fmt: skip
    ray: str | None = field(default=None, metadata=option(
        "measure on a Ray cluster; a local one without ADDRESS", "text",
        "where it is measured", metavar="ADDRESS",
        more='In Python, ``"local"`` for one of our own.',
    ))  # fmt: skip
    runtime_env: Mapping[str, Any] | None = field(default=None, metadata=option(
        "JSON or YAML of Ray's runtime_env: brings machines what they lack", "mapping",
        "where it is measured",
        flag="--ray-runtime-env", metavar="FILE", more="In Python, a mapping.",
    ))  # fmt: skip
    ray_resource: str | None = field(default=None, metadata=option(
        "a resource of Ray of which each measurement takes one, such as a board", "text",
        "where it is measured",
        metavar="NAME", more="There are as many workers as the cluster has of it.",
    ))  # fmt: skip
    timeout: float | None = field(default=None, metadata=option(
        "give a measurement up after this long, for example 30s", "seconds", "where it is measured",
        metavar="TIME", unit="seconds", least=0, usual="never",
    ))  # fmt: skip
    runs_folder: str | Path | None = field(default=None, metadata=option(
        "where run folders are made", "path", "what is kept", metavar="PATH", usual=RUNS, kept=True,
        more="Without a database, a temporary folder that goes with the result.",
    ))  # fmt: skip
    proposer: str | None = field(default=None, metadata=option(
        "a program that proposes candidates, by lines of JSON, for --sampler program", "text",
        "how to search", metavar="COMMAND", more="It is kept nowhere: 'resume' is given it again.",
    ))  # fmt: skip
    storage: str | None = field(default=None, repr=False, metadata=option(
        "mirror the Optuna study, for optuna-dashboard (or AUTOTURBO_STORAGE)", "text",
        "what is kept", metavar="URL", kept=True,
        more="Its password is kept nowhere.",
    ))  # fmt: skip
    database: str | Path | None = field(default=None, metadata=option(
        "a file that keeps the trials, and whose schedules a search may start from", "path",
        "what is kept", flag="--db", metavar="PATH",
        more="None keeps nothing: the same call gives the same wherever it is made.",
    ))  # fmt: skip
    on_begin: Callable[[RunInfo], None] | None = field(default=None, metadata=argument(
        "called with the record of each run before its first trial"
    ))  # fmt: skip
    on_progress: Callable[[Progress], None] | None = field(default=None, metadata=argument(
        "called while code is compiled, when cuts are placed, after every outcome, and when the "
        "search has stopped"
    ))  # fmt: skip


@dataclass(frozen=True, kw_only=True, eq=False)
class ExecutionConfig(ExecutionOptions):
    """The execution of a call, with what only this package's own callers say."""

    evaluator: EvaluatorFactory | None = field(default=None, metadata=argument(
        "builds what measures; with ``measurer`` if None"
    ))  # fmt: skip
    verifier: Verifier | None = field(default=None, metadata=argument(
        "checks what is handed out; :func:`autoturbo.verify_schedule` if None"
    ))  # fmt: skip
    began: float = field(default=0.0, metadata=argument(
        "when the time budget began, by the monotonic clock; with the call if 0"
    ))  # fmt: skip

    def check(self) -> None:
        """Raise UsageError where a value is out of its bounds, or Ray is missing."""
        everywhere = self.workers == 0 and self.ray is not None
        check_bounds(dataclasses.replace(self, jobs=None if everywhere else self.workers))
        if self.runtime_env and self.ray is None:
            raise UsageError("a runtime environment is for workers of Ray", hint="add --ray")
        if self.ray_resource and self.ray is None:
            raise UsageError("a resource of Ray is for its workers", hint="add --ray")

    @property
    def workers(self) -> int:
        """Return the processes to measure with; 0 for every CPU of a Ray cluster."""
        if self.jobs is None:
            return 1 if self.ray is None else 0
        return self.jobs

    def started(self) -> Self:
        """Return the configuration with the time at which it began."""
        return self if self.began else dataclasses.replace(self, began=time.monotonic())


def option_of(declared: dataclasses.Field[Any]) -> Option:
    """Return the option of a configuration's field."""
    found: Option = declared.metadata["option"]
    return found


def early(declared: dataclasses.Field[Any]) -> bool:
    """Return whether a field enters every id of a run."""
    return option_of(declared).early


def flag_of(declared: dataclasses.Field[Any]) -> str:
    """Return a field's flag; empty for those that only Python has."""
    what = option_of(declared)
    if what.kind == "python":
        return ""
    start = "--no-" if declared.default is True else "--"
    return what.flag or start + declared.name.replace("_", "-")


def fields_of(config: object) -> dict[str, Any]:
    """Return the options of a configuration by name."""
    return {name: getattr(config, name) for name in options_of(type(config))}


def part_of(config: type[_ConfigT], options: object) -> _ConfigT:
    """Return the fields of one configuration that a call's options have."""
    return config(**{name: getattr(options, name) for name in options_of(config)})


def check_bounds(config: ResumeConfig | ExecutionConfig) -> None:
    """Raise UsageError where a number is out of its bounds, or a name is none of its choices."""
    for name, declared in options_of(type(config)).items():
        what, value = option_of(declared), getattr(config, name)
        if isinstance(what.choices, tuple) and what.choices and value not in what.choices:
            raise UsageError(f"no {name} {value!r}", hint=f"one of {', '.join(what.choices)}")
        if value is None or what.least is None or what.kind == "names":
            continue
        if what.kind == "seconds" and not value > what.least:
            raise UsageError(f"{name}: {value} is not above {what.least} {what.unit}")
        if what.kind != "seconds" and not value >= what.least:
            raise UsageError(f"{name}: {value} is too few", hint=f"at least {what.least}")
        if what.most is not None and value > what.most.most:
            message = f"{name}: {value} {what.unit} are too many"
            raise UsageError(message, hint=what.most.hint)


def config_schema() -> dict[str, Any]:
    """Return the JSON schema of what a run's ``settings`` keep of :class:`TuneConfig`."""
    types: dict[Kind, dict[str, Any]] = {
        "count": {"type": "integer"}, "seconds": {"type": "number"}, "share": {"type": "number"},
        "switch": {"type": "boolean"},
    }  # fmt: skip
    properties: dict[str, Any] = {}
    for name, declared in options_of(TuneConfig).items():
        what = option_of(declared)
        schema: dict[str, Any] = {
            "description": f"{what.help}{f'; in {what.unit}' if what.unit else ''}"
        }
        schema |= types.get(what.kind, {"type": "string"})
        if name == "baselines":
            schema |= {"type": "array", "items": {"type": "string"}}
        if what.least is not None:
            schema["exclusiveMinimum" if what.kind == "seconds" else "minimum"] = what.least
        if isinstance(what.choices, tuple) and what.choices:
            schema["enum"] = list(what.choices)
        elif declared.default is None and what.kind != "switch":
            schema["type"] = [schema["type"], "null"]
        properties[name] = schema
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "configuration of a run",
        "description": "What a run's settings keep of what it was asked for; others may stand"
        " beside them.",
        "type": "object",
        "properties": properties,
        "required": [name for name, f in options_of(TuneConfig).items() if early(f)],
    }


def called_with(call: Callable[P, C]) -> Callable[[Callable[[C], R]], Callable[P, R]]:
    """Return a decorator that turns a function of a call into one of the call's fields.

    Signature and documentation are those of the fields, so that tools which read either show every
    option; to type checkers the function takes what the class takes.

    Args:
        call: A dataclass, whose fields are the arguments.
    """

    def decorate(function: Callable[[C], R]) -> Callable[P, R]:
        @functools.wraps(function)
        def public(*args: P.args, **kwargs: P.kwargs) -> R:
            return function(call(*args, **kwargs))

        returned = inspect.signature(function).return_annotation
        signature = inspect.signature(call).replace(return_annotation=returned)
        public.__signature__ = signature  # type: ignore[attr-defined]
        first, mark, rest = (function.__doc__ or "").partition("\n    Returns:")
        public.__doc__ = f"{first}\n    Args:\n{_described(call)}{mark}{rest}"
        return public

    return decorate


def _described(call: Any) -> str:
    """Return a line or more for each field of a call, as docstrings have them."""
    signature = inspect.signature(call).parameters
    wrap = functools.partial(textwrap.fill, width=100, break_on_hyphens=False)
    fields = {f.name: f for f in dataclasses.fields(call)}
    lines = [
        wrap(f"{name}: {_sentence(fields[name])}", initial_indent=" " * 8,
             subsequent_indent=" " * 12)
        for name in signature
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def _sentence(declared: dataclasses.Field[Any]) -> str:
    what = option_of(declared)
    text = f"{what.help} (default: {what.usual})" if what.usual else what.help
    return f"{text}. {what.more}".rstrip()


def extent_flags(
    batch: int | None,
    batch_dim: Sequence[str] | None,
    shapes: Mapping[str, Sequence[int]] | None,
    dims: Mapping[str, int] | None,
    values: Mapping[str, Sequence[float]] | None,
) -> list[str]:
    """Return the words of a command line that give a model its extents and known elements."""
    words = [] if batch is None else ["--batch", str(batch)]
    for said in batch_dim or ():
        words += ["--batch-dim", said]
    for name, extent in (dims or {}).items():
        words += ["--dim", f"{name}={extent}"]
    for flag, given in (("--shape", shapes), ("--value", values)):
        for name, numbers in (given or {}).items():
            words += [flag, f"{name}={','.join(map(str, numbers))}"]
    return words
