"""The fields of target files: complete, consistent with its units, and its own inverse."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoturbo.hardware import DTYPES, Target, load_target, scaffold
from autoturbo.hardware.document import parse_document
from autoturbo.hardware.fields import Figure, Rates, file_fields
from autoturbo.hardware.target import ENGINES, PARTS, build_target, to_document
from tests.tiers import spread

SECTIONS = {key: kind for key, (kind, _) in {**ENGINES, **PARTS}.items()}
FIELDS = [field for kind in (Target, *SECTIONS.values()) for field in file_fields(kind)]

UNITS = {  # suffix of a name: power of ten to SI
    "_gb_s": 9,
    "_mhz": 6,
    "_us": -6,
    "_ns": -9,
    "_percent": -2,
}
BLOCKS = {"_kib": 2**10, "_gib": 2**30}


def test_every_attribute_has_one_field() -> None:
    for kind in SECTIONS.values():
        attributes = [field.name for field in dataclasses.fields(kind)]
        assert [field.attribute for field in file_fields(kind)] == attributes


def test_every_attribute_of_a_target_has_one_field_or_section() -> None:
    attributes = [field.name for field in dataclasses.fields(Target)]
    described = [field.attribute for field in file_fields(Target)] + [*SECTIONS]
    assert sorted(described) == sorted(attributes)


def test_names_are_used_once() -> None:
    for kind in SECTIONS.values():
        names = [field.name for field in file_fields(kind)]
        assert len(set(names)) == len(names)
        assert "kind" not in names


def test_units_in_names_are_the_units_used() -> None:
    for name, rule in ((field.name, field.rule) for field in FIELDS):
        if not isinstance(rule, Figure) or isinstance(rule, Rates):
            continue
        exponent = next((power for suffix, power in UNITS.items() if name.endswith(suffix)), 0)
        block = next((size for suffix, size in BLOCKS.items() if name.endswith(suffix)), 1)
        assert rule.to_si(3) == pytest.approx(3 * 10.0**exponent * block, rel=1e-15), name


def test_examples_are_within_bounds() -> None:
    for rule in (field.rule for field in FIELDS):
        figures = rule.example.values() if isinstance(rule, Rates) else [rule.example]
        for figure in figures:
            if isinstance(rule, Figure):
                assert rule.low <= figure <= rule.high


def test_documented_in_one_line() -> None:
    for field in FIELDS:
        assert field.rule.about
        assert "\n" not in field.rule.about
        assert not field.rule.about.endswith(".")


NUMBERS = [rule for rule in (f.rule for f in FIELDS) if type(rule) is Figure and not rule.whole]


@given(st.sampled_from(NUMBERS), st.data())
def test_units_convert_without_residue(rule: Figure, data: st.DataObject) -> None:
    """File to SI to file to SI: the same SI value, bit for bit."""
    value = data.draw(st.floats(rule.low, rule.high))
    once = rule.to_si(value)
    assert rule.to_si(rule.from_si(once)) == once
    assert rule.from_si(rule.to_si(rule.from_si(once))) == rule.from_si(once)


@pytest.mark.parametrize(
    ("name", "value", "si"),
    spread(
        [
            ("clock_mhz", 1325, 1.325e9),
            ("clock_mhz", 0.1, 1e5),
            ("bandwidth_gb_s", 119.4, 119.4e9),
            ("bandwidth_gb_s", 0.1, 1e8),
            ("latency_ns", 0.3, 3e-10),
            ("latency_ns", -0.0, 0.0),
            ("kernel_launch_us", 2.5, 2.5e-6),
            ("capacity_gib", 0.5, 2**29),
            ("capacity_kib", 624, 624 * 1024),
            ("capacity_kib", 1.5, 1536),
        ],
        3,
    ),
)
def test_conversions(name: str, value: float, si: float) -> None:
    rule = next(field.rule for field in FIELDS if field.name == name)
    found = rule.to_si(value)
    assert repr(found) == repr(si)
    assert rule.from_si(found) == value


@given(st.dictionaries(st.sampled_from(DTYPES), st.floats(0.01, 100), min_size=1))
def test_rates_are_in_a_fixed_order(rate: dict[str, float]) -> None:
    rule = next(field.rule for field in FIELDS if field.name == "rate")
    stored = rule.to_si(rate)
    backwards = dict(reversed(rate.items()))
    assert [dtype for dtype, _ in stored] == [dtype for dtype in DTYPES if dtype in rate]
    assert rule.to_si(backwards) == stored
    assert rule.to_si(rule.from_si(stored)) == stored


def test_whole_numbers_may_be_written_as_fractions() -> None:
    """JSON writers turn 4 into 4.0; the value stays an integer."""
    document = load_target("stcp920").as_dict()
    document["clusters"] = 4.0
    clusters = Target.from_dict(document).clusters
    assert (clusters, type(clusters)) == (4, int)


def test_writing_inverts_building() -> None:
    document: dict[str, Any] = parse_document(scaffold(), "x").value
    assert to_document(build_target(document)) == document


def test_defaults() -> None:
    document: dict[str, Any] = parse_document(scaffold(), "x").value
    del document["description"], document["gb"], document["energy"]
    del document["engines"][0]["dataflow"], document["engines"][0]["depth"]
    target = Target.from_dict(document)
    assert target.description == ""
    assert (target.matrix.dataflow, target.matrix.depth) == ("output_stationary", 1)
    assert (target.gb.capacity, target.gb.bandwidth, target.gb.latency) == (0, 0.0, 0.0)
    assert target.energy is None


def test_energy_without_a_global_buffer() -> None:
    document: dict[str, Any] = parse_document(scaffold(), "x").value
    del document["gb"], document["energy"]["gb_pj_per_byte"]
    energy = Target.from_dict(document).energy
    assert energy is not None
    assert energy.gb == 0.0
    assert energy.mac == (("float16", 0.8), ("int8", 0.3))
