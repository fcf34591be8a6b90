from __future__ import annotations

import dataclasses
import json
import math
from typing import Any, get_args

import jsonschema
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoturbo.database import BestSchedule, RunInfo, TrialRecord, record_schema
from autoturbo.database.formats import KINDS, decode, encode, parse_line, record_type
from autoturbo.database.records import RECORD_SCHEMA
from autoturbo.errors import DatabaseError, Location, MeasurerError
from autoturbo.simulator.measurement import Failure, Measurement
from tests.database import database_samples as samples

HERE = Location("export.jsonl", 3)
VALIDATOR = jsonschema.Draft202012Validator(record_schema())


@given(samples.runs)
def test_a_run_survives_its_dict(run: RunInfo) -> None:
    assert RunInfo.from_dict(json.loads(json.dumps(run.as_dict()))) == run


@given(samples.trials)
def test_a_trial_survives_its_dict(trial: TrialRecord) -> None:
    assert TrialRecord.from_dict(json.loads(json.dumps(trial.as_dict()))) == trial


@given(samples.bests)
def test_a_best_schedule_survives_its_dict(best: BestSchedule) -> None:
    assert BestSchedule.from_dict(json.loads(json.dumps(best.as_dict()))) == best


@given(samples.records)
def test_text_and_back_and_the_same_text(record: Any) -> None:
    text = encode(record)
    assert text.isascii()
    assert "\n" not in text
    assert decode(text, HERE) == record
    assert parse_line(text.encode(), HERE) == record


@given(samples.records)
def test_every_record_obeys_the_published_schema(record: Any) -> None:
    VALIDATOR.validate(json.loads(encode(record)))


def test_the_published_schema_is_a_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(record_schema())
    assert len(record_schema()["oneOf"]) == len(KINDS)


WRONG: tuple[Any, ...] = (None, True, -1, 1.5, "", "x y", [], {}, [1], {"a": 1})


def spoilt() -> dict[str, list[dict[str, Any]]]:
    """Records with a field too many, with one too few, and with one of another type.

    One field for each rule that the schema has, which others obey as well.
    """
    schema = record_schema()
    names = {
        kind: ref.rpartition("/")[2] for kind, ref in schema["discriminator"]["mapping"].items()
    }
    shapes = {kind: schema["$defs"][name] for kind, name in names.items()}
    cases: dict[str, list[dict[str, Any]]] = {}
    rules = []
    for record in samples.sample_records():
        whole = json.loads(encode(record))
        kind = whole["kind"]
        less = [{k: value for k, value in whole.items() if k != name} for name in whole]
        cases[f"{kind}, a field more or less"] = [{**whole, "extra": 1}, *less]
        for name, rule in shapes[kind]["properties"].items():
            if name in whole and rule not in rules:
                rules.append(rule)
                cases[f"{kind} {name}"] = [{**whole, name: wrong} for wrong in WRONG]
    return cases


SPOILT = spoilt()


@pytest.mark.parametrize("case", SPOILT)
def test_our_check_and_the_published_schema_agree(case: str) -> None:
    for values in SPOILT[case]:
        text = json.dumps(values).encode()
        # The schema leaves what an object of knobs may hold to the knobs.
        if VALIDATOR.is_valid(values) and values.get("knobs") != {"a": 1}:
            parse_line(text, HERE)
            continue
        with pytest.raises(DatabaseError) as caught:
            parse_line(text, HERE)
        assert str(caught.value).startswith("export.jsonl:3: ")
        assert "\n" not in str(caught.value)


def test_the_shapes_follow_the_measurement_and_the_failure() -> None:
    """A field added to either is in the records without a word here."""
    trial = get_args(record_type("trial"))[0].__annotations__
    for name, kind in (("measurement", Measurement), ("failure", Failure)):
        fields = {field.name for field in dataclasses.fields(kind)}
        assert set(get_args(trial[name])[0].__annotations__) == fields


def test_numpy_scalars_become_plain_numbers() -> None:
    found = samples.measurement(
        np.float64(0.5), ddr_bytes=np.int64(7), energy=np.float32(0.25), kernel_times={"k": 1}
    )
    record = dataclasses.replace(samples.trial(0), outcome=found)
    plain = decode(encode(record), HERE)
    assert isinstance(plain, TrialRecord)
    assert plain == record
    assert isinstance(plain.outcome, Measurement)
    assert type(plain.outcome.ddr_bytes) is int


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"latency": math.nan}, "measurement.latency: must be a finite number, not nan"),
        ({"latency": 0.0}, "measurement.latency: must be above 0, not 0.0"),
        ({"ddr_bytes": -1}, "measurement.ddr_bytes: must be at least 0, not -1"),
        (
            {"kernel_times": {"k": math.inf}},
            "measurement.kernel_times.k: must be a finite number, not inf",
        ),
        ({"busy": {1: 2.0}}, "measurement.busy[1]: the name 1 is not text"),
        ({"bound": None}, "measurement.bound: must be a mapping of fields, not nothing"),
    ],
)
def test_what_no_record_may_hold(changes: dict[str, Any], message: str) -> None:
    outcome = samples.measurement()
    values = {**outcome.as_dict(), **changes}

    class Odd(Measurement):
        def as_dict(self) -> dict[str, Any]:
            return values

    odd = Odd(*(getattr(outcome, field.name) for field in dataclasses.fields(outcome)))
    with pytest.raises(MeasurerError) as caught:
        encode(dataclasses.replace(samples.trial(0), outcome=odd))
    assert str(caught.value) == f"trial record: {message}"


@pytest.mark.parametrize(
    "changes",
    [{"created": "yesterday"}, {"id": "a\nb"}, {"id": " a"}, {"state": "lost"}, {"batch": 0}],
)
def test_a_run_that_no_export_could_hold_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"^run record: {next(iter(changes))}: "):
        encode(samples.run_info(**changes))


def line(record: Any, **changes: Any) -> bytes:
    return json.dumps({**json.loads(encode(record)), **changes}).encode()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            b'{"kind": "run",',
            (
                "export.jsonl:3:16: not JSON: Expecting property name enclosed in double quotes; "
                "expected one JSON record a line, as 'autoturbo db export' writes them"
            ),
        ),
        (
            b"\xff\xfe",
            (
                "export.jsonl:3: not UTF-8 text; expected one JSON record a line, as "
                "'autoturbo db export' writes them"
            ),
        ),
        (
            b"[1, 2]",
            (
                "export.jsonl:3: not a JSON object; expected one JSON record a line, as "
                "'autoturbo db export' writes them"
            ),
        ),
        (
            b"[" * 100_000,
            (
                "export.jsonl:3: nested too deeply; expected one JSON record a line, as "
                "'autoturbo db export' writes them"
            ),
        ),
        (
            b'{"kind": "run", "kind": "run"}',
            (
                "export.jsonl:3: the field 'kind' is there twice; expected one JSON record a line, "
                "as 'autoturbo db export' writes them"
            ),
        ),
        (
            b'{"a": 1}',
            (
                "export.jsonl:3: kind: None is not a kind of record; expected a line of "
                "'autoturbo db export': run, trial or best"
            ),
        ),
        (
            line(samples.trial(0), schema=9),
            (
                "export.jsonl:3: schema: a record of version 9; "
                f"this version reads {RECORD_SCHEMA}; export it with a matching version"
            ),
        ),
        (
            line(samples.trial(0), numbr=1),
            "export.jsonl:3: numbr: unknown field; did you mean 'number'?",
        ),
        (
            line(samples.trial(0), run="sp\u00e4t"),
            ("export.jsonl:3: run: not of the right form: 'sp\u00e4t'; for example 3f2a90c1d4"),
        ),
        (
            line(samples.trial(0), number=2**63),
            (
                "export.jsonl:3: number: must be at most 9223372036854775807, "
                "not 9223372036854775808"
            ),
        ),
        (
            line(samples.trial(0), number=0.5),
            "export.jsonl:3: number: must be a whole number, not 0.5",
        ),
        (
            line(samples.trial(0), failure={"reason": "LB", "message": "m"}),
            "export.jsonl:3: exactly one of the fields measurement and failure is needed",
        ),
        (
            line(samples.trial(1, None), failure={"reason": "LB"}),
            "export.jsonl:3: failure.message: missing field; add it",
        ),
        (
            line(samples.trial(1, None), failure={"reason": "LB", "message": "m", "levers": 1}),
            "export.jsonl:3: failure.levers: must be a list, not 1",
        ),
        (
            line(samples.trial(0), knobs={"max_layer": 4}),
            "export.jsonl:3: knobs.max_layer: unknown knob; did you mean 'max_layers'?",
        ),
        (
            line(samples.run_info(), state="lost"),
            (
                "export.jsonl:3: state: unknown state 'lost'; "
                "known states: running, done, interrupted, failed"
            ),
        ),
        (
            line(samples.run_info(), created="today"),
            (
                "export.jsonl:3: created: not of the right form: 'today'; "
                "for example 2026-01-31T12:00:00Z"
            ),
        ),
        (
            line(samples.run_info(), settings={"a\nb": math.nan}),
            "export.jsonl:3: settings.'a\\nb': must be a finite number, not nan",
        ),
        (
            line(samples.run_info(), model=3),
            "export.jsonl:3: model: must be text, not 3",
        ),
    ],
)
def test_a_line_that_is_not_a_record_is_located(text: bytes, message: str) -> None:
    with pytest.raises(DatabaseError) as caught:
        parse_line(text, HERE)
    assert str(caught.value) == message


def test_whole_numbers_may_be_written_with_a_point() -> None:
    record = parse_line(line(samples.trial(0), number=3.0), HERE)
    assert isinstance(record, TrialRecord)
    assert type(record.number) is int


@given(st.binary(max_size=60) | st.text(max_size=60).map(lambda t: t.encode("utf-8", "ignore")))
def test_any_bytes_at_all_give_one_located_line(text: bytes) -> None:
    with pytest.raises(DatabaseError) as caught:
        parse_line(text, HERE)
    assert str(caught.value).startswith("export.jsonl:3:")


@given(samples.records, st.data())
def test_a_cut_line_gives_one_located_line(record: Any, data: st.DataObject) -> None:
    text = encode(record).encode()
    cut = data.draw(st.integers(0, len(text) - 1))
    with pytest.raises(DatabaseError) as caught:
        parse_line(text[:cut], HERE)
    assert caught.value.at.column is not None


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"kind":"trial","schema":1}', "x", "1"])
def test_a_damaged_text_in_the_database_is_located(text: str) -> None:
    with pytest.raises(DatabaseError) as caught:
        decode(text, HERE)
    assert str(caught.value).startswith("export.jsonl:3: a damaged record: ")


def test_a_record_with_knobs_of_another_version_says_so() -> None:
    with pytest.raises(DatabaseError) as caught:
        decode(line(samples.trial(0), knobs={"gone": 1}).decode(), HERE)
    assert caught.value.hint == "another version of the scheduler wrote it"
