"""The timeline for Perfetto: slices that nest, counters that fit, flows that meet kernels."""

from __future__ import annotations

import itertools
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from autoturbo.datasets import workloads
from autoturbo.graph.onnx_import import import_model
from autoturbo.hardware import load_target
from autoturbo.report.trace import DETAILS, trace_events, write_trace
from autoturbo.schedule.knobs import Knobs
from autoturbo.schedule.pipeline import build_schedule
from autoturbo.schedule.schedule import Schedule
from autoturbo.simulator.evaluator import Evaluator

Event = dict[str, Any]


@pytest.fixture(scope="module", params=["auto", "channel"])
def schedule(request: pytest.FixtureRequest) -> Schedule:
    graph = import_model(workloads.get("squeezenet1_1").file, batch=4)
    evaluator = Evaluator(graph, load_target("stcp920"), "float16")
    return build_schedule(evaluator.model_scheduler, Knobs(cluster_partitioning=request.param))


@pytest.mark.parametrize("detail", DETAILS)
def test_slices_of_a_thread_nest(schedule: Schedule, detail: str) -> None:
    threads = defaultdict(list)
    for event in trace_events(schedule, detail):
        if event["ph"] == "X":
            assert event["dur"] >= 0
            threads[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    assert threads
    for slices in threads.values():
        open_ends: list[float] = []
        for begin, end in sorted(slices, key=lambda s: (s[0], -s[1])):
            while open_ends and open_ends[-1] <= begin + 1e-3:
                open_ends.pop()
            assert not open_ends or end <= open_ends[-1] + 1e-3  # rounding to 0.1 ns
            open_ends.append(end)


def test_counters_stay_within_the_buffers(schedule: Schedule) -> None:
    target = schedule.context.target
    limits = {"LB KiB": target.lb.capacity, "GB KiB": target.gb.capacity}
    seen = set()
    for event in trace_events(schedule, "kernels"):
        if event["ph"] == "C" and event["name"] in limits:
            seen.add(event["name"])
            assert 0 <= event["args"]["value"] <= limits[event["name"]] / 1024
    assert "LB KiB" in seen


def test_off_chip_traffic_stays_within_the_bandwidth(schedule: Schedule) -> None:
    peak = schedule.context.target.ddr.bandwidth / 1e9
    rates = [
        e["args"]["value"] for e in trace_events(schedule, "kernels")
        if e["ph"] == "C" and e["name"] == "DDR GB/s"
    ]  # fmt: skip
    assert rates
    assert max(rates) <= peak


def test_every_flow_goes_forward_from_its_maker_to_its_reader(schedule: Schedule) -> None:
    events = trace_events(schedule, "kernels")
    begins = {e["id"]: e for e in events if e["ph"] == "s"}
    ends = {e["id"]: e for e in events if e["ph"] == "f"}
    assert begins.keys() == ends.keys()
    assert len(begins) == sum(len(p) for p in schedule.instances.producers)
    assert all(begins[i]["ts"] <= ends[i]["ts"] for i in begins)


def test_the_file_is_json_that_says_what_it_shows(schedule: Schedule, tmp_path: Path) -> None:
    file = tmp_path / "trace.json"
    count = write_trace(schedule, file)
    document = json.loads(file.read_text())
    assert len(document["traceEvents"]) == count
    assert document["otherData"]["model"] == "squeezenet1_1"
    kernels = [e for e in document["traceEvents"] if e["ph"] == "X" and "subgraph" in e["args"]]
    assert len(kernels) == schedule.instances.count
    by_cluster = itertools.groupby(sorted(k["pid"] for k in kernels))
    assert len(list(by_cluster)) == len(schedule.timelines)
