"""JSON schemas of what commands print under ``--json``: a declaration for each command.

Nothing is unknown in a line, and nothing may be missing but fields whose names end in "?".
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, reduce
from operator import or_
from typing import Annotated, Any, Final, Literal

from autoturbo.errors import UsageError, did_you_mean
from autoturbo.hardware.fields import DTYPES
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
    list_type,
    map_type,
    mapping_type,
)

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
    text, declared = _LINES[name]
    return json_schema(_typed(name.title(), declared), what, text)


# How lines are declared


def record(name: str, fields: Mapping[str, Any]) -> Any:
    """Return an object of exactly these fields; one may be missing whose name ends in "?"."""
    types = {f.rstrip("?"): _typed(f"{name} {f.title()}", kind) for f, kind in fields.items()}
    missing = [field.rstrip("?") for field in fields if field.endswith("?")]
    return mapping_type("".join(filter(str.isalnum, name)), types, missing)


def _typed(name: str, declared: Any) -> Any:
    """Return the type that a declaration stands for, which is written as it looks in JSON.

    ``{"field": kind}`` is an object and ``{str: kind}`` one whose names are free, ``[kind]`` is a
    list, and ``(one, other)`` one of several; ``None`` is null.
    """
    if isinstance(declared, dict):
        free = str in declared
        return map_type(_typed(name, declared[str])) if free else record(name, declared)
    if isinstance(declared, list):
        return list_type(_typed(name, declared[0]))
    if isinstance(declared, tuple):
        return reduce(or_, (_typed(f"{name}{i or ''}", one) for i, one in enumerate(declared)))
    return _any_target() if declared is _any_target else declared


def also(kind: Any) -> dict[str, Any]:
    """Return the fields of an object, for another that has them besides its own."""
    return dict(kind.__annotations__)


def words(*known: str) -> Any:
    """Return one of several words."""
    return Annotated[str, Choice(of=known)]


class _JsonSchema(Rule):
    """Any JSON schema."""

    __slots__ = ()

    def published(self) -> dict[str, Any]:
        """Return the schema of schemas."""
        return {"$ref": SCHEMA_URL}


@cache
def _any_target() -> Any:
    """Return what a target file says, or a machine's."""
    from autoturbo.hardware.machine import machine_type
    from autoturbo.hardware.target import target_type

    return target_type() | machine_type()


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
KNOB: Final = (str, Real)
VARIED: Final = (Real, str, Bool)
PAIR: Final = Annotated[list[Any], Entries(least=2, most=2)]
JSON_SCHEMA: Final = Annotated[dict[str, Any], _JsonSchema()]
KNOBS: Final = {str: (str, Real, [{str: KNOB}])}
"""Knobs that are not "auto", by name; overrides are a list, of single sub-graphs."""

BY_VALUE: Final = {str: {str: COUNT}}
"""Settings that have each value of a knob, by knob."""

# fmt: off
FAULT = record("ErrorObject", {"kind": words("error", "input", "usage", "model", "target",
    "knobs", "schedule", "database", "plugin", "run", "infeasible", "measurer", "refused",
    "executor", "verify", "unrunnable", "stream", "interrupted", "internal"), "message": str,
    "file": (str, None), "line": (LINE, None), "field": (str, None), "hint": (str, None)})

UNCOUNTED = record("Uncounted", {"operators": {str: COUNT}, "tensor_share": Real})

MEASUREMENT = record("Measurement", {"latency_s": POSITIVE, "throughput_per_s": POSITIVE,
    "ddr_bytes": COUNT, "gb_bytes": COUNT, "matrix_utilization": Real, "vector_utilization": Real,
    "peak_lb_bytes": COUNT, "peak_gb_bytes": COUNT, "kernels": COUNT, "lower_bound_s": Duration,
    "bound_fraction": Real, "energy_j": (Duration, None), "incomplete": (UNCOUNTED, None)})

FAILURE = record("Failure", {"reason": words("LB", "GB", "DDR", "timeout", "raised", "invalid",
    "worker", "memory"), "message": str, "demand": (COUNT, None), "capacity": (COUNT, None),
    "tensors": TEXTS, "levers": TEXTS})

FAILED = record("Failed", {"failure": FAILURE})

REFUSED = record("Refused", {"trial": COUNT, "verifier": str, "failures": TEXTS})

VERIFIED = record("Verified", {"checks": [CHECK], "verifier": str, "created": TIME})

COUNTS = record("Counts", {"runs": COUNT, "trials": COUNT, "best": COUNT, "kernels": COUNT})

RUN = record("Run", {"run": str, "model": str, "target": str, "batch": COUNT, "dtype": DTYPE,
    "state": STATE, "created": TIME, "trials": COUNT, "budget": (COUNT, None), "seed": (COUNT,
    None), "default_s": (Real, None), "best_s": (Real, None), "best_trial": (COUNT, None),
    "refused": [REFUSED]})

MIXED_SAMPLES = record("MixedSamples", {"node": str, "op_type": str, "reason": str, "change": str,
    "clusters": {str: COUNT}, "clusters_at_work": COUNT})

FRONT_POINT = record("FrontPoint", {**also(MEASUREMENT), "trial": COUNT, "knobs": KNOBS})

TUNED = record("Tuned", {"model": str, "target": str, "run": str, "trials": COUNT, "seed": COUNT,
    "default": (MEASUREMENT, None), "best": MEASUREMENT, "best_trial": COUNT,
    "baselines": {str: MEASUREMENT}, "schedule_file": str, "state": words("done", "interrupted"),
    "stopped": words("trials", "time", "space", "no-progress", "bound", "hopeless",
    "interrupted"), "begun_with": TEXTS, "mixed_samples": (MIXED_SAMPLES, None),
    "verified": [CHECK], "refused": [REFUSED], "numbers_skipped?": str, "notes?": TEXTS,
    "front?": [FRONT_POINT]})

BEST = record("Best", {"graph_hash": DIGEST, "target_hash": DIGEST, "dtype": DTYPE,
    "scheduler_version": str, "model": str, "target": str, "batch": COUNT, "run": str,
    "trial": COUNT, "created": TIME, "knobs": KNOBS, "best": MEASUREMENT, "verified": (VERIFIED,
    None)})

TAKEN_IN = record("TakenIn", {"file": str, "read": COUNTS, "changed": COUNTS, "left_out": COUNTS,
    "findings": TEXTS})

UNIT = record("Unit", {"name": str, "description": str, "clusters": COUNT, "cores": COUNT,
    "dtypes": [DTYPE], "default_dtype": DTYPE, "macs_per_s": Real, "lb_bytes": COUNT,
    "gb_bytes": COUNT, "ddr_bytes_per_s": Real, "hash": DIGEST})

QUANTILES = record("Quantiles", {"min": Real, "p10": Real, "median": Real, "p90": Real,
    "max": Real})

DATA_CARD = record("DataCard", {"schema": COUNT, "license": str, "versions": {str: str},
    "seed": COUNT, "settings": COUNT, "recipe": {"command": str, "subgraphs": COUNT},
    "shards": {"there": COUNT, "all": COUNT}, "rows": {"settings": COUNT, "kernels": COUNT},
    "repeats_left_out": COUNT, "outcomes": {str: COUNT}, "pairs": [{"model": str, "target": str,
    "dtype": DTYPE, "batch": COUNT, "settings": COUNT, "measured": COUNT, "kernels": COUNT,
    "default_latency_s": (Duration, None), "latency_over_default": (QUANTILES, None)}],
    "origins": {str: {"settings": COUNT, "measured": COUNT, "latency_over_default": (QUANTILES,
    None)}}, "latency_over_default": (QUANTILES, None),
    "kernel_sums": {"alike": {"settings": COUNT, "largest_relative_error": (Real, None)},
    "joint": {"settings": COUNT, "relative_error": (QUANTILES, None),
    "replayed_relative_error": (QUANTILES, None)}}, "knobs": {"model": BY_VALUE,
    "subgraph": BY_VALUE}})

SCORES = record("Scores", {"pairwise": Real, "tau": Real, "top1": Real, "top5": Real,
    "top10": Real, "error": (Real, None), "bias": (Real, None)})

GUESSES = record("Guesses", {"pools": COUNT, "better": COUNT, "as_good": COUNT, "speedup": Real})

JUDGED = record("Judged", {**also(SCORES), "first_guess": GUESSES})

MODEL_CARD = record("ModelCard", {"versions": {str: str}, "data": {"schema": COUNT, "seed": COUNT,
    "settings": COUNT}, "reproduce": TEXTS, "accuracy?": {str: JUDGED}, "features_schema": COUNT,
    "factors_sha256?": str, "names": TEXTS, "settings": COUNT, "kernels": COUNT, "trees": COUNT,
    "models": TEXTS, "targets": TEXTS})

REMEDY = record("Remedy", {"kind": str, "text": str, "change": OBJECT, "latency_s": (Duration,
    None), "gain_s": (Real, None), "failure": (str, None)})

BOUNDS = record("Bounds", {"latency_s": Duration, "limit": str, "shares_s": {str: Real},
    "lower_bound_s": {"matrix": Duration, "vector": Duration, "ddr": Duration},
    "bound_fraction": Real, "kernels": [{"instance": COUNT, "cluster": COUNT, "seconds": Duration,
    "critical_passes": COUNT, "slack_s": Real, "limit": str, "shares_s": {str: Real}}],
    "subgraphs": [{"subgraph": COUNT, "layer": str, "layers": COUNT, "launches": COUNT,
    "seconds": Duration, "slack_s": Real, "limit": str, "shares_s": {str: Real}}],
    "layers": [{"layer": str, "subgraph": COUNT, "seconds": Duration, "slack_s": (Real, None),
    "limit": str, "shares_s": {str: Real}}], "spots": [{"part": words("layer", "between"),
    "layers": TEXTS, "subgraphs": [COUNT], "anchors": TEXTS, "seconds": Duration,
    "needs_s": Duration, "lost_s": Real, "limit": str, "shares_s": {str: Real},
    "remedies": [REMEDY]}], "model_knobs": [REMEDY]})

_LINES: Final[dict[str, tuple[str, Any]]] = {
    "apply": ("What was written; a kernels file (.json) has no functions.",
        {"model": str, "target": str, "dtype": DTYPE, "scheduler": str, "file": str,
        "data_files?": TEXTS, "missing?": TEXTS, "functions?": COUNT, "instances?": COUNT,
        "nodes?": COUNT, "passes?": COUNT, "verified": [CHECK], "notes?": TEXTS}),
    "compare": (
        ("Every scheduler's best schedule. On a machine of several units: every way to share "
        "the model out."),
        {"model": str, "target": str, "notes?": TEXTS, "mixed_samples": (MIXED_SAMPLES, None),
        "incomplete?": (UNCOUNTED, None), "schedulers": {str: (MEASUREMENT, FAILED,
        {"latency_s": Duration, "throughput_per_s": Real, "ddr_bytes": SIZE, "copied_bytes": SIZE,
        "copying_s": Duration, "busy_s": {str: Duration}, "peak_bytes": SIZE,
        "held_bytes": {str: SIZE}, "parts": COUNT})}}),
    "completion": ("The script that makes a shell complete what is typed.",
        {"shell": words("bash", "zsh", "fish"), "script": str}),
    "cost-model evaluate": ("How good each method is on what was held out.",
        {"results": [{"method": str, "held_out": words("model", "target"), "mean": SCORES,
        "first_guess": GUESSES, "groups": {str: SCORES}}]}),
    "cost-model list": ("The cost models of the package.", {"models": {str: MODEL_CARD}}),
    "cost-model train": ("Where the model is, and what it was trained on.",
        {"folder": str, "card": MODEL_CARD}),
    "dataset collect": ("Where the data set is, and what is in it.",
        {"folder": str, "rows": {"settings": COUNT, "kernels": COUNT}, "card": DATA_CARD}),
    "dataset stats": ("What is in a data set.", DATA_CARD),
    "db best": ("The schedules that match; with --explain-miss, why none does.",
        {"best": [BEST], "miss": (str, None)}),
    "db check": ("Whether a database is sound, and what was saved of it.",
        {"sound": Bool, "records": COUNT, "findings": TEXTS, "more": COUNT, "unchecked": COUNT,
        "saved": (str, None)}),
    "db export": ("What was written.", {"file": str, "counts": COUNTS}),
    "db import": ("What was read, and what of it was new or better.", TAKEN_IN),
    "db list": ("What a database holds.", {"counts": COUNTS, "best": [BEST]}),
    "db merge": ("A line for each file: what was read, and what of it was new or better.",
        TAKEN_IN),
    "db schema": ("A JSON schema.", JSON_SCHEMA),
    "db stats": ("How much a database holds, and of what.",
        {"counts": COUNTS, "bytes": COUNT, "bytes_per_record": (Real, None),
        "states": {str: COUNT}, "pairs": [{"model": str, "target": str, "scheduler_version": str,
        "runs": COUNT, "trials": COUNT}]}),
    "diff": ("Two schedules or runs; 'of' has what makes a comparison doubtful, each as [A, B].",
        {"a": MEASUREMENT, "b": MEASUREMENT, "latency_ratio": Real, "of": {str: PAIR},
        "knobs": {str: PAIR}, "slower_than_allowed": Bool}),
    "doctor": ("What AutoTurbo stands on.",
        {"ok": Bool, "versions": OBJECT, "cache": {"ok": Bool, "folder": str, "files": COUNT,
        "bytes": COUNT, "writable": Bool, "state": str, "compiled?": COUNT}, "ray": {"ok": Bool,
        "state": str}, "database": {"ok": Bool, "state": str, "path": str, "bytes?": COUNT,
        "integrity?": str, "user_version?": COUNT, "journal_mode?": str, "sqlite?": str,
        "counts?": COUNTS}}),
    "error": (
        ("What a command prints that fails, as its last line. The exit status says the same as "
        "for people."),
        {"error": FAULT}),
    "explain": (
        ("What bounds a schedule and what would help. Of a run also which knobs mattered, and "
        "how much of each was tried."),
        ({"run": str, "objective": str, "bounds": (BOUNDS, None), "measured": COUNT,
        "failed": COUNT, "explained": (Real, None), "obstacle": (str, None),
        "knobs": [{"knob": str, "layers": TEXTS, "start": COUNT, "share": (Real, None),
        "best": (KNOB, None), "border": (str, None), "tried": COUNT, "offered": COUNT}]},
        {"schedule": str, "model": str, "target": str, "scheduler": str, "bounds": BOUNDS,
        "notes?": TEXTS})),
    "inspect": (
        ("What a model consists of, and its lower bound by target. Bytes are those of the "
        "model's own data types."),
        {"model": str, "batch": COUNT, "operators": COUNT, "layers": COUNT, "macs": COUNT,
        "weight_bytes": COUNT, "activation_bytes": COUNT, "opaque": [{"name": str, "op_type": str,
        "reason": str}], "mixed_samples": (MIXED_SAMPLES, None), "incomplete": (UNCOUNTED, None),
        "lower_bound_s": {str: Duration}, "notes?": TEXTS}),
    "replay": ("One trial measured again; 'changed' names the fields that differ.",
        ({**also(MEASUREMENT), "run": str, "trial": COUNT, "same": Bool, "changed": TEXTS,
        "begun_with": TEXTS}, {**also(FAILED), "run": str, "trial": COUNT, "same": Bool,
        "changed": TEXTS, "begun_with": TEXTS})),
    "report": ("Where the report is, and whether its predictions can be trusted.",
        {"run": str, "trial": COUNT, "file": str, "bytes": COUNT, "trusted": Bool}),
    "resume": (
        "As 'tune' prints it; with --all a line for each run that was begun together with it.",
        TUNED),
    "runs": ("The runs of a database, the oldest first.", {"runs": [RUN]}),
    "schema": ("The names of the schemas, or one of them.", ({"schemas": TEXTS}, JSON_SCHEMA)),
    "show": ("One run: what it was asked for, what it found, what failed.",
        {**also(RUN), "settings": OBJECT, "versions": {str: str}, "failures": {str: COUNT},
        "default": (MEASUREMENT, None), "best": (MEASUREMENT, None), "knobs": (KNOBS, None),
        "verified": (VERIFIED, None)}),
    "simulate": ("One schedule measured, and where its time went.",
        {**also(MEASUREMENT), "scheduler": str, "notes?": TEXTS,
        "counters": {"busy_s": {str: Duration}, "overlap_s": {str: Duration},
        "waits_s": {str: Duration}, "bytes": {str: COUNT}, "tensors": {str: COUNT}}}),
    "space": ("The knobs that a search would try; sizes are exact, however large.",
        {"model": str, "target": str, "knobs": [{"knob": str, "help": str, "choices": [KNOB],
        "published": str}], "subgraph_knobs": [{"knob": str, "help": str, "choices": [KNOB],
        "published": str, "kinds": COUNT}], "subgraphs": [{"layers": TEXTS,
        "knobs": {str: [KNOB]}, "size": COUNT}], "model_size": COUNT, "size": COUNT,
        "expected_s": {str: Duration}, "notes?": TEXTS}),
    "sweep": (
        ("Tuned latency over a grid of targets. Points that no other beats in every field that "
        "was varied and in latency are on the front."),
        {"model": str, "target": str, "dtype": DTYPE, "vary": {str: [VARIED]}, "known": COUNT,
        "points": [{"values": {str: VARIED}, "target": str, "run": (str, None), "trials": COUNT,
        "default_s": (Duration, None), "best": (MEASUREMENT, None), "front": Bool, "from": (str,
        None), "slower_than": (str, None), "failure": (str, None)}], "files": TEXTS,
        "notes?": TEXTS}),
    "targets list": ("The presets and what plug-ins bring; machines have several units.",
        {"targets": [UNIT], "machines": [{"name": str, "description": str,
        "units": [{**also(UNIT), "kind": str}], "dtypes": [DTYPE], "ddr_bytes_per_s": Real,
        "hash": DIGEST}]}),
    "targets scaffold": ("A commented template, as text.", {"scaffold": str}),
    "targets schema": ("The JSON schema of target files.", JSON_SCHEMA),
    "targets show": ("The description itself, as a file of it would be.", _any_target),
    "targets validate": (
        "A line for each file; 'errors' has all that is wrong with it, 'error' the first.",
        ({"file": str, "valid": Literal[True]}, {"file": str, "valid": Literal[False],
        "error": FAULT, "errors": [FAULT]})),
    "trace": (
        ("Where the timeline is, and how many events it has. With --netron the file for Netron "
        "as well."),
        {"run": str, "trial": COUNT, "file": str, "events": COUNT, "netron?": {"file": str,
        "nodes": COUNT, "unnamed": COUNT}}),
    "tune": (
        ("An object for each model on each target, in the order in which they were given. A "
        "pair that has no schedule has none, and the first of these is the error."),
        TUNED),
    "verify": ("Whether a schedule computes its model, and what was found.",
        {"model": str, "target": str, "scheduler": str, "notes?": TEXTS, "regions": words("ok",
        "failed"), "memory": words("ok", "failed"), "numbers": words("ok", "failed", "skipped"),
        "max_abs_error": (Real, None), "failures": [{"check": CHECK, "kind": str, "message": str,
        "instance": (int, None), "layer": (str, None)}], "checked": {str: COUNT},
        "ran": {"skipped": (str, None), "batch?": COUNT, "whole?": Bool, "seed?": COUNT,
        "remarks?": TEXTS, "outputs?": [{"output": str, "difference": Real,
        "tolerance": Real}]}}),
}
"""What a command's line tells, and its declaration, by the name of the command."""
# fmt: on
