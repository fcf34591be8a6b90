"""JSON schemas of what commands print under ``--json``: a declaration for each command.

Nothing is unknown in a line, and nothing may be missing but what is ``optional``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from operator import or_
from typing import Annotated, Any, Final, Literal, NotRequired

from autoturbo.errors import UsageError, did_you_mean
from autoturbo.hardware.fields import DTYPES
from autoturbo.hardware.target_file import target_type
from autoturbo.schema import (
    SCHEMA_URL,
    Bool,
    Choice,
    Duration,
    Entries,
    Number,
    Real,
    Rule,
    Text,
    Whole,
    json_schema,
    mapping_type,
)
from autoturbo.schema import list_type as many
from autoturbo.schema import map_type as by_name

ERROR: Final = "error"
"""Name of the schema of errors, which every command may print."""


def schema_names() -> tuple[str, ...]:
    """Return commands that have a schema, actions after a blank; :data:`ERROR` comes last."""
    return (*sorted(name for name in _LINES if name != ERROR), ERROR)


def output_schema(name: str) -> dict[str, Any]:
    """Return the schema of one line that a command prints; an error is a line of its own.

    Args:
        name: of a command, ``"targets list"`` where it has actions, or :data:`ERROR`.

    Raises:
        UsageError: there is none of that name.
    """
    if name not in _LINES:
        raise UsageError(f"no schema of {name!r}", hint=did_you_mean(name, schema_names()))
    what = f"A line of 'autoturbo {name} --json'" if name != ERROR else "An error under --json"
    text, kind = _LINES[name]
    return json_schema(kind(), what, text)


# How lines are declared


def record(name: str, /, **fields: Any) -> Any:
    """Return an object of exactly these fields."""
    return mapping_type(name, fields)


def also(kind: Any) -> dict[str, Any]:
    """Return the fields of an object, for another that has them besides its own."""
    return dict(kind.__annotations__)


def optional(kind: Any) -> Any:
    """Return the type of a field that may be missing."""
    return NotRequired[kind]


def or_null(kind: Any) -> Any:
    """Return a type or null."""
    return kind | None


def one_of(*kinds: Any) -> Any:
    """Return one of several types."""
    return reduce(or_, kinds)


def words(*known: str) -> Any:
    """Return one of several words."""
    return Annotated[str, Choice(of=known)]


class _JsonSchema(Rule):
    """Any JSON schema."""

    __slots__ = ()

    def published(self) -> dict[str, Any]:
        """Return the schema of schemas."""
        return {"$ref": SCHEMA_URL}


# Values that lines have in common

TEXTS: Final = list[str]
COUNT: Final = Annotated[int, Whole(most=None)]
OBJECT: Final = dict[str, Any]
SIZE: Final = Annotated[float, Number(least=0.0, unit="bytes")]
POSITIVE: Final = Annotated[float, Number(above=0.0)]
LINE: Final = Annotated[int, Whole(least=1)]
TIME: Final = Annotated[str, Text(form="date-time")]
DIGEST: Final = Annotated[str, Text(pattern="[0-9a-f]{64}")]
DTYPE: Final = words(*DTYPES)
CHECK: Final = words("regions", "memory", "numbers")
STATE: Final = words("running", "killed", "done", "interrupted", "failed")
KNOB: Final = one_of(str, Real)
VARIED: Final = one_of(Real, str, Bool)
PAIR: Final = Annotated[list[Any], Entries(least=2, most=2)]
JSON_SCHEMA: Final = Annotated[dict[str, Any], _JsonSchema()]
KNOBS: Final = by_name(one_of(str, Real, many(by_name(KNOB))))
"""Knobs that are not "auto", by name; overrides are a list, of single sub-graphs."""

BY_VALUE: Final = by_name(by_name(COUNT))
"""Settings that have each value of a knob, by knob."""

FAULT = record(
    "ErrorObject", kind=words("error", "input", "usage", "model", "target", "knobs", "schedule",
    "database", "plugin", "run", "infeasible", "measurer", "refused", "executor", "verify",
    "unrunnable", "stream", "interrupted", "internal"), message=str, file=or_null(str),
    line=or_null(LINE), field=or_null(str), hint=or_null(str),
)  # fmt: skip

UNCOUNTED = record("Uncounted", operators=by_name(COUNT), tensor_share=Real)

MEASUREMENT = record(
    "Measurement", latency_s=POSITIVE, throughput_per_s=POSITIVE, ddr_bytes=COUNT,
    gb_bytes=COUNT, matrix_utilization=Real, vector_utilization=Real, peak_lb_bytes=COUNT,
    peak_gb_bytes=COUNT, kernels=COUNT, lower_bound_s=Duration, bound_fraction=Real,
    energy_j=or_null(Duration), incomplete=or_null(UNCOUNTED),
)  # fmt: skip

FAILURE = record(
    "Failure", reason=words("LB", "GB", "DDR", "timeout", "raised", "invalid", "worker",
    "memory"), message=str, demand=or_null(COUNT), capacity=or_null(COUNT), tensors=TEXTS,
    levers=TEXTS,
)  # fmt: skip

FAILED = record("Failed", failure=FAILURE)

REFUSED = record("Refused", trial=COUNT, verifier=str, failures=TEXTS)

VERIFIED = record("Verified", checks=many(CHECK), verifier=str, created=TIME)

COUNTS = record("Counts", runs=COUNT, trials=COUNT, best=COUNT, kernels=COUNT)

RUN = record(
    "Run", run=str, model=str, target=str, batch=COUNT, dtype=DTYPE, state=STATE,
    created=TIME, trials=COUNT, budget=or_null(COUNT), seed=or_null(COUNT),
    default_s=or_null(Real), best_s=or_null(Real), best_trial=or_null(COUNT),
    refused=many(REFUSED),
)  # fmt: skip

MIXED_SAMPLES = record(
    "MixedSamples", node=str, op_type=str, reason=str, change=str, clusters=by_name(COUNT),
    clusters_at_work=COUNT,
)  # fmt: skip

FRONT_POINT = record("FrontPoint", **also(MEASUREMENT), trial=COUNT, knobs=KNOBS)

TUNED = record(
    "Tuned", model=str, target=str, run=str, trials=COUNT, seed=COUNT,
    default=or_null(MEASUREMENT), best=MEASUREMENT, best_trial=COUNT,
    baselines=by_name(MEASUREMENT), schedule_file=str, state=words("done", "interrupted"),
    stopped=words("trials", "time", "space", "no-progress", "bound", "hopeless",
    "interrupted"), begun_with=TEXTS, mixed_samples=or_null(MIXED_SAMPLES),
    verified=many(CHECK), refused=many(REFUSED), numbers_skipped=optional(str),
    notes=optional(TEXTS), front=optional(many(FRONT_POINT)),
)  # fmt: skip

BEST = record(
    "Best", graph_hash=DIGEST, target_hash=DIGEST, dtype=DTYPE, scheduler_version=str,
    model=str, target=str, batch=COUNT, run=str, trial=COUNT, created=TIME, knobs=KNOBS,
    best=MEASUREMENT, verified=or_null(VERIFIED),
)  # fmt: skip

TAKEN_IN = record("TakenIn", file=str, read=COUNTS, changed=COUNTS, left_out=COUNTS, findings=TEXTS)

UNIT = record(
    "Unit", name=str, description=str, clusters=COUNT, cores=COUNT, dtypes=many(DTYPE),
    default_dtype=DTYPE, macs_per_s=Real, lb_bytes=COUNT, gb_bytes=COUNT,
    ddr_bytes_per_s=Real, hash=DIGEST,
)  # fmt: skip

QUANTILES = record("Quantiles", min=Real, p10=Real, median=Real, p90=Real, max=Real)

DATA_CARD = record(
    "DataCard", schema=COUNT, license=str, versions=by_name(str), seed=COUNT, settings=COUNT,
    recipe=record("DataCardRecipe", command=str, subgraphs=COUNT),
    shards=record("DataCardShards", there=COUNT, all=COUNT), rows=record("DataCardRows",
    settings=COUNT, kernels=COUNT), repeats_left_out=COUNT, outcomes=by_name(COUNT),
    pairs=many(record("DataCardPairs", model=str, target=str, dtype=DTYPE, batch=COUNT,
    settings=COUNT, measured=COUNT, kernels=COUNT, default_latency_s=or_null(Duration),
    latency_over_default=or_null(QUANTILES))), origins=by_name(record("DataCardOrigins",
    settings=COUNT, measured=COUNT, latency_over_default=or_null(QUANTILES))),
    latency_over_default=or_null(QUANTILES), kernel_sums=record("DataCardKernelSums",
    alike=record("DataCardKernelSumsAlike", settings=COUNT,
    largest_relative_error=or_null(Real)), joint=record("DataCardKernelSumsJoint",
    settings=COUNT, relative_error=or_null(QUANTILES),
    replayed_relative_error=or_null(QUANTILES))), knobs=record("DataCardKnobs",
    model=BY_VALUE, subgraph=BY_VALUE),
)  # fmt: skip

SCORES = record(
    "Scores", pairwise=Real, tau=Real, top1=Real, top5=Real, top10=Real, error=or_null(Real),
    bias=or_null(Real),
)  # fmt: skip

GUESSES = record("Guesses", pools=COUNT, better=COUNT, as_good=COUNT, speedup=Real)

JUDGED = record("Judged", **also(SCORES), first_guess=GUESSES)

MODEL_CARD = record(
    "ModelCard", versions=by_name(str), data=record("ModelCardData", schema=COUNT, seed=COUNT,
    settings=COUNT), reproduce=TEXTS, accuracy=optional(by_name(JUDGED)),
    features_schema=COUNT, factors_sha256=optional(str), names=TEXTS, settings=COUNT,
    kernels=COUNT, trees=COUNT, models=TEXTS, targets=TEXTS,
)  # fmt: skip

REMEDY = record(
    "Remedy", kind=str, text=str, change=OBJECT, latency_s=or_null(Duration),
    gain_s=or_null(Real), failure=or_null(str),
)  # fmt: skip

BOUNDS = record(
    "Bounds", latency_s=Duration, limit=str, shares_s=by_name(Real),
    lower_bound_s=record("BoundsLowerBoundS", matrix=Duration, vector=Duration, ddr=Duration),
    bound_fraction=Real, kernels=many(record("BoundsKernels", instance=COUNT, cluster=COUNT,
    seconds=Duration, critical_passes=COUNT, slack_s=Real, limit=str,
    shares_s=by_name(Real))), subgraphs=many(record("BoundsSubgraphs", subgraph=COUNT,
    layer=str, layers=COUNT, launches=COUNT, seconds=Duration, slack_s=Real, limit=str,
    shares_s=by_name(Real))), layers=many(record("BoundsLayers", layer=str, subgraph=COUNT,
    seconds=Duration, slack_s=or_null(Real), limit=str, shares_s=by_name(Real))),
    spots=many(record("BoundsSpots", part=words("layer", "between"), layers=TEXTS,
    subgraphs=many(COUNT), anchors=TEXTS, seconds=Duration, needs_s=Duration, lost_s=Real,
    limit=str, shares_s=by_name(Real), remedies=many(REMEDY))), model_knobs=many(REMEDY),
)  # fmt: skip


# The lines of commands


def _target_file() -> Any:
    from autoturbo.hardware.machine_file import machine_type

    return one_of(target_type(), machine_type())


# fmt: off
_LINES: Final[dict[str, tuple[str, Callable[[], Any]]]] = {
    "apply": ("What was written; a kernels file (.json) has no functions.", lambda: record(
        "Apply", model=str, target=str, dtype=DTYPE, scheduler=str, file=str,
        data_files=optional(TEXTS), missing=optional(TEXTS), functions=optional(COUNT),
        instances=optional(COUNT), nodes=optional(COUNT), passes=optional(COUNT),
        verified=many(CHECK), notes=optional(TEXTS),
    )),
    "compare": (
        ("Every scheduler's best schedule. On a machine of several units: every way to "
         "share the model out."),
        lambda: record(
            "Compare", model=str, target=str, notes=optional(TEXTS),
            mixed_samples=or_null(MIXED_SAMPLES), incomplete=optional(or_null(UNCOUNTED)),
            schedulers=by_name(one_of(MEASUREMENT, FAILED, record("CompareSchedulersLast",
            latency_s=Duration, throughput_per_s=Real, ddr_bytes=SIZE, copied_bytes=SIZE,
            copying_s=Duration, busy_s=by_name(Duration), peak_bytes=SIZE, held_bytes=by_name(SIZE),
            parts=COUNT))),
        )),
    "completion": ("The script that makes a shell complete what is typed.",
        lambda: record("Completion", shell=words("bash", "zsh", "fish"), script=str)),
    "cost-model evaluate": ("How good each method is on what was held out.", lambda: record(
        "CostModelEvaluate", results=many(record("CostModelEvaluateResults", method=str,
        held_out=words("model", "target"), mean=SCORES, first_guess=GUESSES,
        groups=by_name(SCORES))),
    )),
    "cost-model list": ("The cost models of the package.",
        lambda: record("CostModelList", models=by_name(MODEL_CARD))),
    "cost-model train": ("Where the model is, and what it was trained on.",
        lambda: record("CostModelTrain", folder=str, card=MODEL_CARD)),
    "dataset collect": ("Where the data set is, and what is in it.", lambda: record(
        "DatasetCollect", folder=str, rows=record("DatasetCollectRows", settings=COUNT,
        kernels=COUNT), card=DATA_CARD,
    )),
    "dataset stats": ("What is in a data set.", lambda: DATA_CARD),
    "db best": ("The schedules that match; with --explain-miss, why none does.",
        lambda: record("DbBest", best=many(BEST), miss=or_null(str))),
    "db check": ("Whether a database is sound, and what was saved of it.", lambda: record(
        "DbCheck", sound=Bool, records=COUNT, findings=TEXTS, more=COUNT, unchecked=COUNT,
        saved=or_null(str),
    )),
    "db export": ("What was written.", lambda: record("DbExport", file=str, counts=COUNTS)),
    "db import": ("What was read, and what of it was new or better.", lambda: TAKEN_IN),
    "db list": ("What a database holds.", lambda: record("DbList", counts=COUNTS, best=many(BEST))),
    "db merge": ("A line for each file: what was read, and what of it was new or better.",
        lambda: TAKEN_IN),
    "db schema": ("A JSON schema.", lambda: JSON_SCHEMA),
    "db stats": ("How much a database holds, and of what.", lambda: record(
        "DbStats", counts=COUNTS, bytes=COUNT, bytes_per_record=or_null(Real),
        states=by_name(COUNT), pairs=many(record("DbStatsPairs", model=str, target=str,
        scheduler_version=str, runs=COUNT, trials=COUNT)),
    )),
    "diff": ("Two schedules or runs; 'of' has what makes a comparison doubtful, each as [A, B].",
        lambda: record(
            "Diff", a=MEASUREMENT, b=MEASUREMENT, latency_ratio=Real, of=by_name(PAIR),
            knobs=by_name(PAIR), slower_than_allowed=Bool,
        )),
    "doctor": ("What AutoTurbo stands on.", lambda: record(
        "Doctor", ok=Bool, versions=OBJECT, cache=record("DoctorCache", ok=Bool, folder=str,
        files=COUNT, bytes=COUNT, writable=Bool, state=str, compiled=optional(COUNT)),
        ray=record("DoctorRay", ok=Bool, state=str),
        database=record("DoctorDatabase", ok=Bool, state=str, path=str, bytes=optional(COUNT),
        integrity=optional(str), user_version=optional(COUNT), journal_mode=optional(str),
        sqlite=optional(str), counts=optional(COUNTS)),
    )),
    "error": (
        ("What a command prints that fails, as its last line. The exit status says the "
         "same as for people."),
        lambda: record("Error", error=FAULT)),
    "explain": (
        ("What bounds a schedule and what would help. Of a run also which knobs mattered, "
         "and how much of each was tried."),
        lambda: one_of(
            record("Explain", run=str, objective=str, bounds=or_null(BOUNDS), measured=COUNT,
            failed=COUNT, explained=or_null(Real), obstacle=or_null(str),
            knobs=many(record("ExplainKnobs", knob=str, layers=TEXTS, start=COUNT,
            share=or_null(Real), best=or_null(KNOB), border=or_null(str), tried=COUNT,
            offered=COUNT))),
            record("ExplainOtherwise", schedule=str, model=str, target=str, scheduler=str,
            bounds=BOUNDS, notes=optional(TEXTS)),
        )),
    "inspect": (
        ("What a model consists of, and its lower bound by target. Bytes are those of the "
         "model's own data types."),
        lambda: record(
            "Inspect", model=str, batch=COUNT, operators=COUNT, layers=COUNT, macs=COUNT,
            weight_bytes=COUNT, activation_bytes=COUNT, opaque=many(record("InspectOpaque",
            name=str, op_type=str, reason=str)), mixed_samples=or_null(MIXED_SAMPLES),
            incomplete=or_null(UNCOUNTED), lower_bound_s=by_name(Duration), notes=optional(TEXTS),
        )),
    "replay": ("One trial measured again; 'changed' names the fields that differ.",
        lambda: one_of(record("Replay", **also(MEASUREMENT), run=str, trial=COUNT, same=Bool,
            changed=TEXTS, begun_with=TEXTS), record("ReplayOtherwise", **also(FAILED), run=str,
            trial=COUNT, same=Bool, changed=TEXTS, begun_with=TEXTS))),
    "report": ("Where the report is, and whether its predictions can be trusted.",
        lambda: record("Report", run=str, trial=COUNT, file=str, bytes=COUNT, trusted=Bool)),
    "resume": (
        "As 'tune' prints it; with --all a line for each run that was begun together with it.",
        lambda: TUNED),
    "runs": ("The runs of a database, the oldest first.", lambda: record("Runs", runs=many(RUN))),
    "schema": ("The names of the schemas, or one of them.",
        lambda: one_of(record("Schema", schemas=TEXTS), JSON_SCHEMA)),
    "show": ("One run: what it was asked for, what it found, what failed.", lambda: record(
        "Show", **also(RUN), settings=OBJECT, versions=by_name(str), failures=by_name(COUNT),
        default=or_null(MEASUREMENT), best=or_null(MEASUREMENT), knobs=or_null(KNOBS),
        verified=or_null(VERIFIED),
    )),
    "simulate": ("One schedule measured, and where its time went.", lambda: record(
        "Simulate", **also(MEASUREMENT), scheduler=str, notes=optional(TEXTS),
        counters=record("SimulateCounters", busy_s=by_name(Duration), overlap_s=by_name(Duration),
        waits_s=by_name(Duration), bytes=by_name(COUNT), tensors=by_name(COUNT)),
    )),
    "space": ("The knobs that a search would try; sizes are exact, however large.", lambda: record(
        "Space", model=str, target=str, knobs=many(record("SpaceKnobs", knob=str, help=str,
        choices=many(KNOB), published=str)), subgraph_knobs=many(record("SpaceSubgraphKnobs",
        knob=str, help=str, choices=many(KNOB), published=str, kinds=COUNT)),
        subgraphs=many(record("SpaceSubgraphs", layers=TEXTS, knobs=by_name(many(KNOB)),
        size=COUNT)), model_size=COUNT, size=COUNT, expected_s=by_name(Duration),
        notes=optional(TEXTS),
    )),
    "sweep": (
        ("Tuned latency over a grid of targets. Points that no other beats in every field "
         "that was varied and in latency are on the front."),
        lambda: record(
            "Sweep", model=str, target=str, dtype=DTYPE, vary=by_name(many(VARIED)), known=COUNT,
            points=many(record("SweepPoints", values=by_name(VARIED), target=str, run=or_null(str),
            trials=COUNT, default_s=or_null(Duration), best=or_null(MEASUREMENT), front=Bool,
            **{"from": or_null(str)}, slower_than=or_null(str), failure=or_null(str))), files=TEXTS,
            notes=optional(TEXTS),
        )),
    "targets list": ("The presets and what plug-ins bring; machines have several units.",
        lambda: record(
            "TargetsList", targets=many(UNIT), machines=many(record("TargetsListMachines", name=str,
            description=str, units=many(record("TargetsListMachinesUnits", **also(UNIT),
            kind=str)), dtypes=many(DTYPE), ddr_bytes_per_s=Real, hash=DIGEST)),
        )),
    "targets scaffold": ("A commented template, as text.",
        lambda: record("TargetsScaffold", scaffold=str)),
    "targets schema": ("The JSON schema of target files.", lambda: JSON_SCHEMA),
    "targets show": ("The description itself, as a file of it would be.", _target_file),
    "targets validate": (
        "A line for each file; 'errors' has all that is wrong with it, 'error' the first.",
        lambda: one_of(record("TargetsValidate", file=str, valid=Literal[True]),
            record("TargetsValidateOtherwise", file=str, valid=Literal[False], error=FAULT,
            errors=many(FAULT)))),
    "trace": (
        ("Where the timeline is, and how many events it has. With --netron the file for "
         "Netron as well."),
        lambda: record(
            "Trace", run=str, trial=COUNT, file=str, events=COUNT,
            netron=optional(record("TraceNetron", file=str, nodes=COUNT, unnamed=COUNT)),
        )),
    "tune": (
        ("An object for each model on each target, in the order in which they were given. "
         "A pair that has no schedule has none, and the first of these is the error."),
        lambda: TUNED),
    "verify": ("Whether a schedule computes its model, and what was found.", lambda: record(
        "Verify", model=str, target=str, scheduler=str, notes=optional(TEXTS), regions=words("ok",
        "failed"), memory=words("ok", "failed"), numbers=words("ok", "failed", "skipped"),
        max_abs_error=or_null(Real), failures=many(record("VerifyFailures", check=CHECK, kind=str,
        message=str, instance=or_null(int), layer=or_null(str))), checked=by_name(COUNT),
        ran=record("VerifyRan", skipped=or_null(str), batch=optional(COUNT), whole=optional(Bool),
        seed=optional(COUNT), remarks=optional(TEXTS),
        outputs=optional(many(record("VerifyRanOutputs", output=str, difference=Real,
        tolerance=Real)))),
    )),
}
"""What a command's line tells, and what gives its type, by the name of the command."""
# fmt: on
