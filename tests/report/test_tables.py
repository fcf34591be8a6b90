"""Tables for a terminal: schedulers side by side, and what checks found."""

from __future__ import annotations

import dataclasses
import io

import pytest
from rich.console import Console
from rich.table import Table

from autoturbo.registry import SCHEDULERS
from autoturbo.report.tables import (
    checked_sizes,
    comparison,
    definitions,
    front,
    output_table,
    table,
    verdict_table,
)
from autoturbo.simulator.measurement import Failure, LowerBound, Measurement
from autoturbo.verifier.findings import Check, Finding, Numbers, Verification

TUNED = Measurement(
    latency=5e-3,
    batch=64,
    ddr_bytes=123_000_000,
    gb_bytes=0,
    matrix_utilization=0.61,
    vector_utilization=0.2,
    peak_lb_bytes=1000,
    peak_gb_bytes=1000,
    kernels=12,
    bound=LowerBound(4e-3, 1e-3, 2e-3),
)
SLOW = dataclasses.replace(TUNED, latency=20e-3)
TOO_LARGE = Failure("LB", "no room: 2.1 MB of 1 MB", 2_100_000, 1_000_000)


def rendered(made: Table, width: int = 100) -> list[str]:
    stream = io.StringIO()
    Console(file=stream, width=width, markup=False, no_color=True).print(made)
    return [line.rstrip() for line in stream.getvalue().splitlines() if line.strip(" ─")]


def test_schedulers_side_by_side() -> None:
    assert rendered(comparison({"tvm": SLOW, "default": SLOW, "best": TUNED})) == [
        "scheduler       latency  samples/s  vs tvm  DDR traffic  matrix use  % of bound",
        "tvm (TVM-like)  20.0 ms     3.20 k   1.00x       123 MB        61 %        20 %",
        "heuristic       20.0 ms     3.20 k   1.00x       123 MB        61 %        20 %",
        "tuned           5.00 ms     12.8 k   4.00x       123 MB        61 %        80 %",
    ]


@pytest.mark.parametrize(
    ("base", "name"),
    [
        *(("tvm", name) for name in (*SCHEDULERS.names(), "default", "tuned")),
        *(("cpu", name) for name in ("static", "profiled", "partition_tuner", "best")),
        ("default", "best"),
    ],
)
def test_a_comparison_fits_80_columns(base: str, name: str) -> None:
    large = dataclasses.replace(TUNED, latency=0.123456, ddr_bytes=99_400_000_000)
    lines = rendered(comparison({base: large, name: large}), width=80)
    assert len(lines) == 2 + (name != base)
    assert max(map(len, lines)) <= 80


def test_speed_ups_refer_to_the_reference() -> None:
    lines = rendered(comparison({"O0": SLOW, "tvm": TUNED}, "tvm"))
    assert "0.25x" in lines[1]
    assert "1.00x" in lines[2]


def test_a_reference_that_failed_gives_way_to_the_first_that_did_not() -> None:
    lines = rendered(comparison({"tvm": TOO_LARGE, "O0": SLOW}, "tvm"), width=140)
    assert lines[1].startswith("tvm (TVM-like): no room: 2.1 MB of 1 MB   ")
    assert "1.00x" in lines[2]


def test_only_failures() -> None:
    lines = rendered(comparison({"tvm": TOO_LARGE}))
    assert lines[1].split()[-5:] == ["-"] * 5


def test_no_rows() -> None:
    assert len(rendered(comparison({}))) == 1


@pytest.mark.parametrize("name", ["[bold]x[/bold]", ":smile:", "[link=http://a]b[/link]", "{x!r}"])
def test_names_are_shown_as_the_text_that_they_are(name: str) -> None:
    assert rendered(table(("name", "n"), [(name, 1)]))[1].split() == [name, "1"]


def test_control_characters_are_shown_as_escapes() -> None:
    lines = rendered(table(("name",), [("\x1b[31mred\nnext",)]))
    assert lines[1] == r"\x1b[31mred\nnext"


def test_long_names_are_folded_and_numbers_are_not() -> None:
    lines = rendered(table(("name", "value"), [("x" * 100, "7.41 ms")]), width=40)
    assert "7.41 ms" in lines[1]
    assert sum(line.count("x") for line in lines) == 100


def test_columns_that_are_never_folded() -> None:
    rows = [("a" * 30, "b" * 10, "7.41 ms")]
    lines = rendered(table(("name", "run", "value"), rows, words=2, whole=("run",)), width=30)
    assert "b" * 10 in lines[1]
    assert "a" * 30 not in lines[1]


def test_columns_that_stand_close() -> None:
    rows = [("a", "b", 1)]
    assert rendered(table(("x", "y", "z"), rows, words=2, close=True))[1] == "a  b  1"
    assert rendered(table(("x", "y", "z"), rows, words=2))[1] == "a   b   1"


def test_pareto_front() -> None:
    cool = dataclasses.replace(SLOW, energy=0.5, ddr_bytes=1000)
    assert rendered(front([(7, cool), (3, TUNED), (4, TOO_LARGE)])) == [
        "Pareto front  latency  samples/s  DDR traffic  energy",
        "#3            5.00 ms     12.8 k       123 MB       -",
        "#7            20.0 ms     3.20 k      1.00 kB   0.5 J",
    ]


def test_definitions_wrap_between_words_and_indent_their_details() -> None:
    made = definitions([("name", "what it means at some length", "one, two, three, four, five")])
    assert rendered(made, 30) == [
        "name  what it means at some",
        "      length",
        "        one, two, three, four,",
        "        five",
    ]


COUNTED = {"subgraphs": 1, "instances": 12, "kernels": 12, "buffers": 2_000_000}
GAP = Finding(Check.REGIONS, "gap", "rows 3 to 5 of 'x' are made by nothing")
RAN = Numbers(2, whole=False, seed=3, max_abs_error=1e-4, outputs=(("y\n", 1.25e-4, 1e-3),))


def test_one_row_a_check() -> None:
    assert rendered(verdict_table(Verification((GAP, GAP), (), RAN), COUNTED)) == [
        "check     verdict     what was checked",
        "regions   failed: 2   12 instances, 1 sub-graph",
        "memory    ok          2.0 x 10^6 buffers, 12 kernels",
        "numbers   ok          batch 2, one pass with the same decisions, seed 3, max error 0.0001",
    ]


def test_numbers_that_were_not_run() -> None:
    skipped = Numbers(2, whole=True, seed=0, max_abs_error=None, skipped="too large")
    assert rendered(verdict_table(Verification((), ()), COUNTED))[-1].endswith("--no-numbers")
    lines = rendered(verdict_table(Verification((), (), skipped), COUNTED))
    assert lines[-1].split() == ["numbers", "not", "checked", "too", "large"]


def test_one_row_an_output() -> None:
    assert rendered(output_table(RAN)) == [
        "output   difference   tolerance",
        r"y\n        0.000125       0.001",
    ]


def test_what_there_is_to_check() -> None:
    from autoturbo.datasets import workloads
    from autoturbo.graph.onnx_import import import_model
    from autoturbo.hardware import load_target
    from autoturbo.schedule.knobs import Knobs
    from autoturbo.schedule.pipeline import ModelScheduler, build_schedule

    graph = import_model(workloads.get("squeezenet1_1").file, batch=8)
    model_scheduler = ModelScheduler(graph, load_target("stcp920"), "float16")
    shared = build_schedule(model_scheduler, Knobs(cluster_partitioning="pipeline"))
    found = checked_sizes([shared])
    assert found["kernels"] == found["instances"] == len(shared.order)
    assert found["subgraphs"] == len(shared.instances.subgraphs)
    assert len(shared.timelines) > 1
    assert found["buffers"] == sum(len(t.buffers.scope) for t in shared.timelines)
