"""Records to test with: one of each kind by hand, and any of each kind by hypothesis."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import sqlite3
from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

from autoturbo.database import (
    BestSchedule,
    Database,
    HandedOut,
    PairKey,
    Race,
    RefusedTrial,
    RunInfo,
    TrialRecord,
    Verified,
    opening,
)
from autoturbo.schedule.knobs import Knobs, SubGraphKnobs, model_knobs
from autoturbo.simulator.measurement import Failure, LowerBound, Measurement
from autoturbo.verifier.findings import Check

if TYPE_CHECKING:
    from pathlib import Path

    from autoturbo.database.records import Record

NOW = "2026-01-31T12:00:00Z"
KEY = PairKey("9f31", "77aa", "fp16", "0.1.0/1/1")


def measurement(latency: float = 0.01, **changes: Any) -> Measurement:
    bound = LowerBound(4e-6, 1e-6, 2e-6)
    given = Measurement(latency, 64, 1000, 2000, 0.5, 0.1, 512, 1024, 7, bound)
    return dataclasses.replace(given, **changes)


def run_info(run: str = "aa00", **changes: Any) -> RunInfo:
    settings = {"seed": 0, "trials": 20, "effort": "quick", "shapes": {"x": [64, 3, 224, 224]}}
    versions = {"autoturbo": "0.1.0", "python": "3.11.7"}
    file = "models/resnet50.onnx"
    info = RunInfo(run, KEY, "resnet50", file, 64, "stcp920", settings, versions, NOW)
    return dataclasses.replace(info, **changes)


def trial(number: int, latency: float | None = 0.01, run: str = "aa00") -> TrialRecord:
    failed = Failure("LB", "local buffer overflows", 4096, 2048, ("conv1",), ("split more",))
    outcome = failed if latency is None else measurement(latency)
    knobs = Knobs(max_layers=number + 1)
    return TrialRecord(run, number, knobs, outcome, NOW)


def schedule_text(key: PairKey = KEY, knobs: Knobs | None = None, **more: Any) -> str:
    """What the database checks of a schedule file."""
    model, target = {"hash": key.graph_hash}, {"hash": key.target_hash}
    chosen = (knobs or trial(0).knobs).as_dict()
    document = {"format": "autoturbo-schedule", "model": model, "target": target}
    return json.dumps({**document, "dtype": key.dtype, "knobs": chosen, **more})


def best(latency: float = 0.01, **changes: Any) -> BestSchedule:
    key, knobs = changes.get("key", KEY), changes.get("knobs", trial(0).knobs)
    text = schedule_text(key, knobs)
    found = BestSchedule(
        key, "resnet50", 64, "stcp920", knobs, measurement(latency), text, "aa00", 0, NOW
    )
    return dataclasses.replace(found, **changes)


def verified(*checks: str, verifier: str = "1", created: str = NOW) -> Verified:
    names = checks or ("regions", "memory")
    return Verified(tuple(Check(name) for name in names), verifier, created)


def refused(trial: int = 1) -> RefusedTrial:
    return RefusedTrial(trial, "1", ("memory: race: two kernels write x",))


def sample_records() -> list[Record]:
    run, found = run_info(refused=(refused(),)), best(verified=verified())
    return [run, trial(0), trial(1, None), found]


def filled(path: Path, trials: int = 3) -> Database:
    """An open database with one of everything."""
    database = Database.open(path)
    database.add_run(run_info())
    database.add_trials([trial(n, 0.01 / (n + 1)) for n in range(trials)])
    database.put_best(best())
    return database


def connected(path: Path) -> tuple[Database, sqlite3.Connection]:
    """An open database, and its connection."""
    connection = opening.connect(path, create=True, read_only=False, timeout_s=30.0)
    return Database(connection, path, read_only=False), connection


def raw(path: Path, *statements: str) -> None:
    """Change a file behind our back."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)


def content(database: Database, path: Path) -> bytes:
    """All that a database holds, as its sorted export."""
    database.export(path)
    return path.read_bytes()


# Whatever a record may hold. Identifiers come from small sets, so that they meet.

tokens = st.text("ab/.-1", min_size=1, max_size=4)
names = st.text(st.characters(exclude_categories=()), max_size=6)
counts = st.integers(0, 2**63 - 1)
numbers = st.floats(allow_nan=False, allow_infinity=False)
positive = st.floats(0, exclude_min=True, allow_nan=False, allow_infinity=False)
times = st.sampled_from([NOW, "2026-01-31T12:00:01.25+00:00", "2025-12-01T00:00:00Z"])
texts = st.dictionaries(names, names, max_size=2)
scalars = st.none() | st.booleans() | st.integers() | numbers | names
json_values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(names, inner, max_size=2),
    max_leaves=4,
)


def _knobs(values: dict[str, Any]) -> Knobs:
    return Knobs(**values)


overrides = st.builds(SubGraphKnobs, layer=names, factor=st.sampled_from(["auto", 2]))
knob_settings: st.SearchStrategy[Knobs] = st.fixed_dictionaries(
    {},
    optional={
        **{n: st.sampled_from(spec.choices) for n, spec in model_knobs().items() if spec.choices},
        "overrides": st.lists(overrides, max_size=2).map(tuple),
    },
).map(_knobs)
_any_measurements = st.builds(
    Measurement,
    latency=positive,
    batch=st.integers(1, 2**63 - 1),
    ddr_bytes=counts,
    gb_bytes=counts,
    matrix_utilization=numbers,
    vector_utilization=numbers,
    peak_lb_bytes=counts,
    peak_gb_bytes=counts,
    kernels=counts,
    bound=st.builds(LowerBound, numbers, numbers, numbers),
    busy=st.dictionaries(names, numbers, max_size=2),
    energy=st.none() | numbers,
    kernel_times=st.dictionaries(tokens, positive, max_size=2),
    kernel_counts=st.dictionaries(tokens, counts, max_size=2),
    subgraph_times=st.lists(numbers, max_size=2).map(tuple),
)


def _bounded(found: Measurement) -> Measurement:
    """The same with a bound that its latency does not break."""
    bound = found.bound
    matrix, vector, ddr = (
        min(p, found.latency) for p in (bound.matrix_s, bound.vector_s, bound.ddr_s)
    )
    return dataclasses.replace(found, bound=LowerBound(matrix, vector, ddr))


measurements = _any_measurements.map(_bounded)
failures = st.builds(
    Failure,
    reason=st.sampled_from(["LB", "timeout", "raised"]),
    message=names,
    demand=st.none() | counts,
    capacity=st.none() | counts,
    tensors=st.lists(names, max_size=2).map(tuple),
)
keys = st.builds(PairKey, *[st.sampled_from(["a", "b"])] * 4)
verifiers = st.sampled_from(["1", "2", "10"])
refusals = st.builds(
    RefusedTrial, trial=counts, verifier=verifiers, failures=st.lists(names, max_size=2).map(tuple)
)
races = st.builds(
    Race, objective=names, reference=counts, leader=counts, gain=numbers, low=numbers,
    high=st.none() | numbers, confidence=numbers, noise=numbers, measurements=counts, rounds=counts,
    refuted=st.lists(counts, max_size=2).map(tuple),
)  # fmt: skip
few_measurements = st.sampled_from([measurement(0.01), measurement(0.02)])
hand_outs = st.builds(
    HandedOut, trial=counts, covers=counts, measurement=few_measurements,
    heuristic=st.none() | few_measurements,
    baselines=st.dictionaries(names, few_measurements, max_size=1),
    race=st.none() | races, doubt=names, varies=st.booleans(),
)  # fmt: skip
verifications = st.builds(
    Verified,
    checks=st.sampled_from([tuple(Check)[:1], tuple(Check)[:2], tuple(Check)]),
    verifier=verifiers,
    created=times,
)
runs = st.builds(
    RunInfo,
    id=tokens,
    key=keys,
    model=names,
    model_file=names,
    batch=st.integers(1, 9),
    target=names,
    settings=st.dictionaries(names, json_values, max_size=2),
    versions=texts,
    created=times,
    state=st.sampled_from(["running", "done", "interrupted", "failed"]),
    refused=st.lists(refusals, max_size=2).map(tuple),
    lacking=texts,
    handed_out=st.none() | hand_outs,
    trials=st.just(0),
    best_trial=st.none(),
    best_latency=st.none(),
    default_latency=st.none(),
)
trials = st.builds(
    TrialRecord,
    run=tokens,
    number=counts,
    knobs=knob_settings,
    outcome=measurements | failures,
    created=times,
)
_any_bests = st.builds(
    BestSchedule,
    key=keys,
    model=names,
    batch=st.integers(1, 9),
    target=names,
    knobs=knob_settings,
    measurement=measurements,
    schedule=names,
    run=tokens,
    trial=counts,
    created=times,
    versions=texts,
    verified=st.none() | verifications,
    decisions=st.dictionaries(names, json_values, max_size=2),
)
bests = _any_bests.map(
    lambda b: dataclasses.replace(b, schedule=schedule_text(b.key, b.knobs, note=b.schedule))
)


def agreeing(trial: TrialRecord) -> TrialRecord:
    """The same where a number stands for one candidate that takes one time, or fails."""
    number = trial.number % 50
    measured = isinstance(trial.outcome, Measurement)
    outcome = measurement(0.01 / (number + 1)) if measured else trial.outcome
    return dataclasses.replace(trial, knobs=Knobs(max_layers=number + 1), outcome=outcome)


agreeing_trials = trials.map(agreeing)
"""Trials of runs that are carried out at several places, which find the same."""

loose_bests = bests.map(lambda b: dataclasses.replace(b, run="elsewhere"))
"""Best schedules whose runs are not there, so that nothing contradicts them."""

records: st.SearchStrategy[Record] = runs | trials | bests
