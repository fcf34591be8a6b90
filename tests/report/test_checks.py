from __future__ import annotations

import io

from rich.console import Console
from rich.table import Table

from autoturbo.report.tables import checked_sizes, output_table, verdict_table
from autoturbo.verify.findings import Check, Finding, Numbers, Verification

COUNTED = {"subgraphs": 1, "instances": 12, "kernels": 12, "buffers": 2_000_000}
GAP = Finding(Check.REGIONS, "gap", "rows 3 to 5 of 'x' are made by nothing")
RAN = Numbers(2, whole=False, seed=3, max_abs_error=1e-4, outputs=(("y\n", 1.25e-4, 1e-3),))


def rendered(made: Table) -> list[str]:
    stream = io.StringIO()
    Console(file=stream, width=100, markup=False, no_color=True).print(made)
    return [line.rstrip() for line in stream.getvalue().splitlines() if line.strip(" ─")]


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
    from autoturbo.schedule.pipeline import Workbench, build_schedule

    graph = import_model(workloads.get("squeezenet1_1").file, batch=8)
    bench = Workbench(graph, load_target("stcp920"), "float16")
    shared = build_schedule(bench, Knobs(cluster_split="pipeline"))
    found = checked_sizes(shared)
    assert found["kernels"] == found["instances"] == len(shared.order)
    assert found["subgraphs"] == len(shared.instances.subgraphs)
    assert len(shared.timelines) > 1
    assert found["buffers"] == sum(len(t.buffers.scope) for t in shared.timelines)
