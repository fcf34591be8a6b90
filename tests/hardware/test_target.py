"""The values themselves: derived rates, data types, hash, round trips."""

from __future__ import annotations

import dataclasses
import json
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoturbo.errors import TargetError
from autoturbo.hardware import (
    DTYPES,
    GlobalBuffer,
    MatrixEngine,
    Target,
    known_error,
    load_target,
    preset_names,
    scaffold,
    with_field,
)
from autoturbo.hardware.document import parse_document
from autoturbo.hardware.fields import Figure, Rates, file_fields
from autoturbo.hardware.parts import Calibration
from autoturbo.hardware.target import ENGINES, PARTS
from tests.tiers import spread

STCP920 = load_target("stcp920")
EVERY = ("stcp920", "ascend-910", "goya", "ipu-mk2", "mlu100", "tpu-v4i")


def numeric_paths() -> list[tuple[str, Figure]]:
    """Dotted path and row of every numeric field, one path per data type where it has several."""
    paths = [(field.name, field) for field in file_fields(Target)]
    for key, (kind, rule) in {**ENGINES, **PARTS}.items():
        start = f"engines[{key}]" if rule.engine else key
        paths += [(f"{start}.{field.name}", field) for field in file_fields(kind)]
    return [
        (f"{path}.{dtype}" if isinstance(field.rule, Rates) else path, field.rule)
        for path, field in paths
        if isinstance(field.rule, Figure) and not path.startswith("calibration.")  # inert
        for dtype in (("float16", "int8") if isinstance(field.rule, Rates) else ("",))
    ]


def at(document: Any, path: str) -> Any:
    for step in re.findall(r"\w+", path):
        kinds = list(ENGINES)
        document = document[kinds.index(step) if isinstance(document, list) else step]
    return document


def test_stcp920_in_si_units() -> None:
    target = STCP920
    assert (target.clusters, target.cores, target.clock) == (4, 8, 1e9)
    assert (target.matrix.rows, target.matrix.columns, target.matrix.depth) == (64, 32, 1)
    assert (target.lb.capacity, target.lb.weight_capacity) == (1 << 20, 1 << 18)
    assert (target.gb.capacity, target.gb.bandwidth) == (8 << 20, 256e9)
    assert (target.ddr.capacity, target.ddr.bandwidth) == (4 << 30, 119.4e9)
    assert target.lb.bandwidth == 512e9
    assert target.transfer.bandwidth == 64e9
    assert target.dma.channels == 2
    assert target.overheads.kernel_launch == 3e-6
    assert target.ddr_bandwidth_per_cluster == pytest.approx(29.85e9)


def test_rates_of_the_whole_chip() -> None:
    assert STCP920.matrix_macs_per_second("float16") == 64 * 32 * 32 * 1e9
    assert STCP920.matrix_macs_per_second("int8") == 2 * 64 * 32 * 32 * 1e9
    assert STCP920.vector_ops_per_second("float16") == 64 * 32 * 1e9


def test_depth_multiplies_the_rate() -> None:
    cube = MatrixEngine(16, 16, "output_stationary", 16, (("float16", 1.0),), 0)
    assert cube.macs_per_cycle("float16") == 4096
    assert cube.macs_per_cycle("int8") == 0


def test_supported_data_types() -> None:
    assert STCP920.dtypes == ("float16", "int8")
    assert STCP920.supports("int8")
    assert not STCP920.supports("float32")
    assert not STCP920.supports("no such type")


@pytest.mark.parametrize(
    ("rate", "default"),
    [
        ({"float32": 1.0, "int8": 1.0, "bfloat16": 1.0, "float16": 1.0}, "float16"),
        ({"float32": 1.0, "int8": 1.0, "bfloat16": 1.0}, "bfloat16"),
        ({"float32": 1.0, "int8": 1.0}, "int8"),
        ({"float32": 1.0}, "float32"),
    ],
)
def test_default_dtype(rate: dict[str, float], default: str) -> None:
    matrix = dataclasses.replace(STCP920.matrix, rate=tuple(rate.items()))
    assert dataclasses.replace(STCP920, matrix=matrix).default_dtype == default


def test_no_rate_for_an_unsupported_type() -> None:
    with pytest.raises(TargetError) as caught:
        STCP920.matrix_macs_per_second("float32")
    assert str(caught.value) == (
        "the matrix engine of stcp920 does not compute in 'float32'; it computes in float16, int8"
    )
    with pytest.raises(TargetError):
        STCP920.vector_ops_per_second("f4")


def test_targets_are_frozen_and_hashable() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        STCP920.clock = 2e9  # type: ignore[misc]
    assert len({STCP920, load_target("stcp920"), load_target("goya")}) == 2


# Round trips


@pytest.mark.parametrize("name", spread(EVERY, 5))
def test_dict_round_trip(name: str) -> None:
    target = load_target(name)
    document = json.loads(json.dumps(target.as_dict()))
    assert Target.from_dict(document) == target
    assert Target.from_dict(document).hash == target.hash


def test_dict_is_a_valid_file() -> None:
    text = json.dumps(STCP920.as_dict(), indent=2)
    assert Target.from_dict(parse_document(text, "x.json").value) == STCP920


def test_dict_has_units_in_names() -> None:
    document = STCP920.as_dict()
    assert document["lb"] == {
        "capacity_kib": 1024,
        "weight_capacity_kib": 256,
        "bandwidth_gb_s": 512.0,
    }
    assert document["ddr"]["bandwidth_gb_s"] == 119.4
    assert [engine["kind"] for engine in document["engines"]] == [
        "matrix",
        "vector",
        "transfer",
        "dma",
    ]


def test_absent_parts_stay_absent() -> None:
    bare = dataclasses.replace(STCP920, gb=GlobalBuffer(0, 0.0, 0.0), energy=None, ranges=())
    document = bare.as_dict()
    assert "gb" not in document
    assert "energy" not in document
    assert Target.from_dict(document) == bare


def test_a_calibration_is_kept_and_changes_no_result() -> None:
    compared = dataclasses.replace(STCP920, calibration=Calibration(0.07, 20, "board.csv"))
    assert compared.as_dict()["calibration"]["error_percent"] == 7
    assert Target.from_dict(compared.as_dict()) == compared
    assert compared.hash == STCP920.hash
    assert (known_error(compared), known_error(STCP920)) == (0.07, None)
    assert "calibration" not in scaffold()


def test_an_error_is_that_of_kernels_as_long() -> None:
    known = Calibration(
        0.06, 20, "board.csv", regime=40e-6, error_below=0.11, error_above=0.05, rows_below=4
    )
    compared = dataclasses.replace(STCP920, calibration=known)
    assert Target.from_dict(compared.as_dict()) == compared
    assert compared.hash == STCP920.hash
    errors = [known_error(compared, seconds) for seconds in (39e-6, 40e-6, None)]
    assert errors == [0.11, 0.05, 0.06]


@pytest.mark.parametrize(
    "known",
    [
        Calibration(0.06, 20, "board.csv"),
        Calibration(0.06, 20, "board.csv", regime=40e-6, error_above=0.05, rows_below=0),
        Calibration(0.06, 20, "board.csv", regime=5e-6, error_below=0.05, rows_below=20),
    ],
    ids=["not told apart", "none below", "none above"],
)
def test_of_lengths_that_nobody_measured_the_error_is_that_of_all(known: Calibration) -> None:
    assert known.error_of(20e-6) == 0.06


@given(st.floats(1e-3, 1e9))
def test_any_bandwidth_survives(bandwidth: float) -> None:
    target = with_field(STCP920, "ddr.bandwidth_gb_s", bandwidth)
    assert target.ddr.bandwidth == pytest.approx(bandwidth * 1e9, rel=1e-11)
    assert Target.from_dict(target.as_dict()) == target


# Hash


def test_hash_is_pinned() -> None:
    """A change here orphans the tuned schedules in every database: say so in the changelog."""
    template = Target.from_dict(parse_document(scaffold(), "template").value)
    assert template.hash == "239d6bda6b5136b6fd0989f482f4b742ee8ec605b78d81982f73c9a3cc1966a5"


def test_a_hash_from_before_ramps_holds_without_one() -> None:
    template = Target.from_dict(parse_document(scaffold(), "template").value)
    ramped = with_field(template, "overheads.kernel_ramp_us", 5)
    assert template.overheads.kernel_ramp == 0
    assert ramped.hash != template.hash
    assert with_field(ramped, "overheads.kernel_ramp_us", 0).hash == template.hash


def test_hash_ignores_name_and_description() -> None:
    renamed = dataclasses.replace(STCP920, name="other", description="something else")
    assert renamed.hash == STCP920.hash


def test_hash_of_equal_numbers_of_other_types() -> None:
    whole = dataclasses.replace(STCP920, clock=1_000_000_000)
    assert whole.hash == STCP920.hash


def test_presets_have_distinct_hashes() -> None:
    names = preset_names()
    assert len({load_target(name).hash for name in names}) == len(names)


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_any_change_of_a_figure_changes_the_hash(data: st.DataObject) -> None:
    path, field = data.draw(st.sampled_from(numeric_paths()))
    before = at(STCP920.as_dict(), path)
    if field.whole:
        after: float = data.draw(st.integers(int(field.low), int(field.high)))
    else:
        after = float(f"{data.draw(st.floats(field.low, field.high)):.6g}")
        after = min(max(after, field.low), field.high)
    changed = with_field(STCP920, path, after)
    same = at(changed.as_dict(), path) == before
    assert (changed.hash == STCP920.hash) == same
    assert (changed == STCP920) == same


def test_every_figure_is_hashed() -> None:
    for path, field in numeric_paths():
        before = at(STCP920.as_dict(), path)
        after = before + 1 if before + 1 <= field.high else before / 2
        changed = with_field(STCP920, path, after)
        assert changed.hash != STCP920.hash, path
        assert with_field(changed, path, before).hash == STCP920.hash, path


@pytest.mark.parametrize(
    ("path", "value"),
    [("engines[matrix].dataflow", "ideal"), ("engines[transfer].broadcast", False)],
)
def test_every_choice_is_hashed(path: str, value: object) -> None:
    assert with_field(STCP920, path, value).hash != STCP920.hash


@given(st.lists(st.sampled_from(["", "# a comment", "  # indented", "#"]), max_size=8), st.data())
@settings(max_examples=30, deadline=None)
def test_comments_and_blank_lines_do_not_matter(noise: list[str], data: st.DataObject) -> None:
    lines = scaffold().splitlines()
    for line in noise:
        lines.insert(data.draw(st.integers(0, len(lines))), line)
    bare = [re.sub(r"\s+#.*", "", line) for line in scaffold().splitlines()]
    for text in ("\n".join(lines), "\n".join(bare)):
        target = Target.from_dict(parse_document(text, "x").value)
        assert target == Target.from_dict(parse_document(scaffold(), "x").value)


def test_order_of_fields_and_engines_does_not_matter() -> None:
    document = STCP920.as_dict()
    document["engines"] = [dict(reversed(e.items())) for e in reversed(document["engines"])]
    document["engines"][3]["rate"] = dict(reversed(document["engines"][3]["rate"].items()))
    shuffled = Target.from_dict(dict(reversed(document.items())))
    assert shuffled == STCP920
    assert shuffled.hash == STCP920.hash


# with_field


@pytest.mark.parametrize(
    ("path", "value", "attribute", "expected"),
    spread(
        [
            ("clusters", 2, "clusters", 2),
            ("clock_mhz", 624, "clock", 624e6),
            ("lb.capacity_kib", 512, "lb.capacity", 512 * 1024),
            ("ddr.bandwidth_gb_s", 136, "ddr.bandwidth", 136e9),
            ("engines[0].rows", 128, "matrix.rows", 128),
            ("engines[matrix].rows", 128, "matrix.rows", 128),
            ("engines.matrix.rows", 128, "matrix.rows", 128),
            ("engines[3].channels", 4, "dma.channels", 4),
            ("overheads.kernel_launch_us", 0, "overheads.kernel_launch", 0.0),
            ("engines[transfer].broadcast", False, "transfer.broadcast", False),
        ],
        3,
    ),
)
def test_with_field(path: str, value: object, attribute: str, expected: object) -> None:
    found: Any = with_field(STCP920, path, value)
    for name in attribute.split("."):
        found = getattr(found, name)
    assert found == expected


def test_with_field_leaves_the_original() -> None:
    before = STCP920.as_dict()
    with_field(STCP920, "engines[matrix].rate.float16", 0.5)
    assert STCP920.as_dict() == before


def test_with_field_of_one_data_type() -> None:
    slower = with_field(STCP920, "engines[matrix].rate.int8", 1.0)
    assert slower.matrix.rate == (("float16", 1.0), ("int8", 1.0))


@pytest.mark.parametrize(
    ("path", "value", "message"),
    spread(
        [
            (
                "lb.capacity",
                1,
                "lb.capacity: unknown field; did you mean 'capacity_kib'?",
            ),
            (
                "lbb.capacity_kib",
                1,
                "lbb: unknown field; did you mean 'lb'?",
            ),
            ("clusters", 0, "clusters: must be at least 1, not 0"),
            ("clusters", "four", "clusters: must be a whole number, not 'four'"),
            (
                "clusters.x",
                1,
                (
                    "clusters.x: not a field of a target; "
                    "write it like 'lb.capacity_kib' or 'engines[matrix].rows'"
                ),
            ),
            (
                "clusters.x.y",
                1,
                (
                    "clusters.x.y: not a field of a target; "
                    "write it like 'lb.capacity_kib' or 'engines[matrix].rows'"
                ),
            ),
            (
                "",
                1,
                (
                    "not a field of a target; "
                    "write it like 'lb.capacity_kib' or 'engines[matrix].rows'"
                ),
            ),
            (
                "engines[7].rows",
                1,
                (
                    "engines[7].rows: no engine '7'; "
                    "engines are matrix, vector, transfer, dma, or 0 to 3"
                ),
            ),
            (
                "engines[scalar]",
                1,
                (
                    "engines[scalar]: no engine 'scalar'; "
                    "engines are matrix, vector, transfer, dma, or 0 to 3"
                ),
            ),
            ("engines[0]", 5, "engines[0]: must be a mapping of fields, not 5"),
            ("ddr.efficiency", 1.5, "ddr.efficiency: must be at most 1, not 1.5"),
            ("ddr.efficiency", float("nan"), "ddr.efficiency: must be a finite number, not nan"),
            (
                "gb.capacity_kib",
                0,
                (
                    "gb.capacity_kib: must be at least 1, not 0; "
                    "leave 'gb' out for a chip without a global buffer"
                ),
            ),
        ],
        3,
    ),
)
def test_with_field_errors(path: str, value: object, message: str) -> None:
    with pytest.raises(TargetError) as caught:
        with_field(STCP920, path, value)
    assert str(caught.value) == message


def test_with_field_of_an_absent_part() -> None:
    with pytest.raises(TargetError) as caught:
        with_field(load_target("ipu-mk2"), "gb.capacity_kib", 1024)
    assert str(caught.value) == (
        "gb.bandwidth_gb_s: missing field; add it (per cluster, in 10^9 bytes/s) (and 1 more)"
    )


def test_every_data_type_can_be_described() -> None:
    document = STCP920.as_dict()
    document["engines"][0]["rate"] = dict.fromkeys(DTYPES, 1.0)
    document["engines"][1]["lanes"] = dict.fromkeys(DTYPES, 1.0)
    document["energy"]["mac_pj"] = dict.fromkeys(DTYPES, 1.0)
    assert Target.from_dict(document).dtypes == DTYPES
