"""Measurements and failures as values: JSON, round trips, derived figures."""

from __future__ import annotations

import dataclasses
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoturbo.graph.operators import Uncounted
from autoturbo.schedule.knobs import Knobs
from autoturbo.simulator.measurement import Failure, LowerBound, Measurement
from tests.simulator.simulate_samples import evaluator


def measured() -> Measurement:
    found = evaluator("squeezenet1_1").evaluate(Knobs())
    assert isinstance(found, Measurement)
    return found


def test_json_has_exactly_the_documented_keys() -> None:
    assert list(measured().as_json()) == [
        "latency_s", "throughput_per_s", "ddr_bytes", "gb_bytes", "matrix_utilization",
        "vector_utilization", "peak_lb_bytes", "peak_gb_bytes", "kernels", "lower_bound_s",
        "bound_fraction", "tight_bound_s", "energy_j", "incomplete",
    ]  # fmt: skip


@pytest.mark.full
def test_json_holds_plain_finite_values() -> None:
    found = measured()
    text = json.dumps(found.as_json(), allow_nan=False)
    assert json.loads(text)["latency_s"] == found.latency
    assert found.as_json()["throughput_per_s"] == (found.batch or 0) / found.latency
    assert found.as_json()["bound_fraction"] == found.bound.seconds / found.latency


def test_round_trip_through_json_text() -> None:
    found = measured()
    assert Measurement.from_dict(json.loads(json.dumps(found.as_dict()))) == found


@pytest.mark.full
def test_every_field_survives() -> None:
    varying = dataclasses.replace(measured(), samples=(1.0, 2.0), noise=0.01)
    fields = {f.name for f in dataclasses.fields(Measurement)}
    assert set(varying.as_dict()) == fields
    assert set(measured().as_dict()) == fields - {"samples", "noise"}
    assert Measurement.from_dict(varying.as_dict()) == varying


def test_a_record_from_before_a_field_is_read() -> None:
    values = measured().as_dict()
    for name in ("subgraph_times", "bytes", "waits"):
        del values[name]
    found = Measurement.from_dict(values)
    assert (found.subgraph_times, found.bytes, found.waits) == ((), {}, {})


def test_counters_agree_with_each_other() -> None:
    found = measured()
    assert found.bytes["ddr_read"] + found.bytes["ddr_written"] == pytest.approx(found.ddr_bytes)
    assert found.bytes["gb_read"] + found.bytes["gb_written"] == pytest.approx(found.gb_bytes)
    assert found.bytes["lb"] > found.bytes["gb_read"] > 0
    assert set(found.waits) == set(found.busy)
    assert all(0 <= wait <= found.latency for wait in found.waits.values())
    three = found.overlap["transfer+matrix+vector"]
    assert 0 < three <= min(found.overlap["transfer+matrix"], found.overlap["matrix+vector"])
    assert json.loads(json.dumps(found.counters()))["bytes"] == found.bytes


def test_what_a_broken_measurer_hands_out() -> None:
    assert dataclasses.replace(measured(), latency=1e-3).is_valid()
    for latency in (0.0, -1.0, float("nan"), float("inf")):
        assert not dataclasses.replace(measured(), latency=latency).is_valid()


@given(st.floats(0, 1), st.floats(0, 1), st.floats(0, 1))
def test_the_bound_is_its_largest_part(matrix: float, vector: float, ddr: float) -> None:
    assert LowerBound(matrix, vector, ddr).seconds == max(matrix, vector, ddr)


def test_failures_round_trip() -> None:
    failure = Failure("DDR", "too much", 3, 2, ("a", "b"), ("fewer",))
    assert Failure.from_dict(json.loads(json.dumps(failure.as_dict()))) == failure
    assert Failure.from_dict({"reason": "timeout", "message": "slow"}) == Failure("timeout", "slow")


def test_only_buffers_are_infeasible() -> None:
    for reason in ("LB", "GB", "DDR", "timeout", "raised", "invalid", "worker"):
        assert Failure(reason, "x").infeasible is (reason in {"LB", "GB", "DDR"})


def test_what_is_not_counted_is_kept_with_a_measurement() -> None:
    missing = Uncounted({"com.acme.Foo": 2, "Loop": 1}, 0.25)
    plain = measured()
    one = dataclasses.replace(plain, bound=dataclasses.replace(plain.bound, uncounted=missing))
    assert one.as_json()["incomplete"] == {"operators": missing.operators, "tensor_share": 0.25}
    assert Measurement.from_dict(json.loads(json.dumps(one.as_dict()))) == one
    assert "uncounted" not in plain.as_dict()["bound"]
    assert "the work of 2 com.acme.Foo, 1 Loop (25% of the tensors)" in missing.sentence
