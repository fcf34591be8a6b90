"""Kernels files: what another compiler reads of a schedule, by the schema, by the page's reader."""

from __future__ import annotations

import itertools
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest

from autoturbo.schedule.codegen.instructions import Column
from autoturbo.schedule.codegen.tiling import Amount, Role
from autoturbo.schedule.kernels_file import kernels_schema, kernels_text
from autoturbo.schedule.knobs import Knobs
from autoturbo.schedule.pipeline import ModelScheduler, build_schedule
from autoturbo.schedule.schedule import Schedule
from tests.schedule.schedule_samples import STCP920, workload
from tests.schedule.steps import instance_of

PAGE = Path(__file__).resolve().parents[2] / "docs" / "schedule-format.md"
SETTINGS = {
    "published": Knobs(),
    "cut": Knobs(instance_multiplier=2, output_scope="GB", weight_residency="GB", prefetch_depth=3),
    "pipeline": Knobs(cluster_partitioning="pipeline"),
}


@pytest.fixture(
    scope="module",
    params=["published", *(pytest.param(n, marks=pytest.mark.full) for n in ("cut", "pipeline"))],
)
def schedule(request: pytest.FixtureRequest) -> Schedule:
    model_scheduler = ModelScheduler(workload("resnet18", batch=8), STCP920, "float16")
    return build_schedule(model_scheduler, SETTINGS[request.param])


def document(schedule: Schedule) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(kernels_text(schedule))
    return found


def test_the_file_obeys_its_schema(schedule: Schedule) -> None:
    jsonschema.Draft202012Validator.check_schema(kernels_schema())
    jsonschema.validate(document(schedule), kernels_schema())
    assert kernels_text(schedule) == kernels_text(schedule)


def test_every_kernel_of_the_schedule_is_there_in_order(schedule: Schedule) -> None:
    kernels = document(schedule)["kernels"]
    assert len(kernels) == len(schedule.order)
    for kernel, index in zip(kernels, schedule.order, strict=True):
        instance = instance_of(schedule.instances, index)
        assert (kernel["subgraph"], kernel["part"]) == (instance.subgraph, instance.part)
        layers = schedule.instances.subgraphs[instance.subgraph].layers
        names = [schedule.context.layers[layer].name for layer in layers]
        assert [layer["name"] for layer in kernel["layers"]] == names
        assert kernel["last_step"] - kernel["first_step"] == len(layers)


def test_what_is_read_is_made_before(schedule: Schedule) -> None:
    """By regions alone: what makers made of a tensor covers what is read of it."""
    found = document(schedule)
    shapes = [tensor["shape"] for tensor in found["tensors"]]
    made = {n: np.zeros(shape, bool) for n, shape in enumerate(shapes)}
    for n in found["inputs"]:
        made[n][...] = True
    for n, tensor in enumerate(found["tensors"]):
        made[n][...] |= tensor["weight"]
    for number, kernel in enumerate(found["kernels"]):
        for read in kernel["inputs"]:
            assert made[read["tensor"]][box(read["region"])].all()
            assert set(read["made_by"]) <= set(kernel["waits_for"])
        assert all(one < number for one in kernel["waits_for"])
        for one in kernel["outputs"]:
            made[one["tensor"]][box(one["region"])] = True
    assert all(made[n].all() for n in found["outputs"])


def box(region: list[list[int]]) -> tuple[slice, ...]:
    return tuple(slice(low, high) for low, high in region)


def test_buffers_lie_in_their_scope_and_never_in_each_other(schedule: Schedule) -> None:
    found = document(schedule)
    room = {"LB": found["target"]["lb_bytes"], "GB": found["target"]["gb_bytes"]}
    placed = [b for b in found["buffers"] if b["address"] >= 0 and b["scope"] in room]
    assert placed
    for buffer in placed:
        assert buffer["address"] + buffer["bytes"] <= room[buffer["scope"]]
    for one, other in itertools.combinations(placed[:200], 2):
        if (one["scope"], one["cluster"]) != (other["scope"], other["cluster"]):
            continue
        apart = one["last_step"] < other["first_step"] or other["last_step"] < one["first_step"]
        beside = (
            one["address"] + one["bytes"] <= other["address"]
            or other["address"] + other["bytes"] <= one["address"]
        )
        assert apart or beside


def test_a_buffer_is_first_used_by_its_kernel(schedule: Schedule) -> None:
    found = document(schedule)
    for buffer in found["buffers"]:
        kernel = found["kernels"][buffer["kernel"]]
        assert kernel["first_step"] <= buffer["first_step"] <= kernel["last_step"]
        assert buffer["cluster"] == kernel["cluster"]


def test_work_and_tiles_are_those_of_the_program(schedule: Schedule) -> None:
    """Matrix instructions of a kernel are as many as its tiles, and their work adds up."""
    found = document(schedule)["kernels"][0]
    cluster = found["cluster"] or 0
    program = schedule.program(0, cluster)
    for at, layer in enumerate(found["layers"]):
        multiplies = (program.where[:, Column.LAYER] == at) & (
            program.where[:, Column.ROLE] == Role.MULTIPLY
        )
        amounts = program.amounts[multiplies]
        work = layer["core_work"]
        product = work["products"] * work["rows"] * work["columns"] * work["depth"]
        columns = [Amount.COUNT, Amount.ROWS, Amount.COLUMNS, Amount.DEPTH]
        assert amounts[:, columns].prod(axis=1).sum() == pytest.approx(product, rel=0.02)
        tiles = layer["tiles"]
        count = tiles["products"] * tiles["rows"] * tiles["columns"] * tiles["depth"]
        assert len(amounts) in (0, count)


def reader() -> str:
    found = re.search(r"<!-- example: reader -->\n```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert found
    return found[1]


def test_the_reader_of_the_page_is_short_and_needs_nothing_but_python() -> None:
    lines = [line for line in reader().splitlines() if line.strip()]
    assert len(lines) <= 32
    imported = re.findall(r"^(?:import|from) (\w+)", reader(), re.MULTILINE)
    assert set(imported) == {"json", "sys"}


def test_the_reader_of_the_page_walks_a_schedule(schedule: Schedule, tmp_path: Path) -> None:
    script, file = tmp_path / "reader.py", tmp_path / "kernels.json"
    script.write_text(reader(), encoding="utf-8")
    file.write_text(kernels_text(schedule), encoding="utf-8")
    command = [sys.executable, "-I", "-S", str(script), str(file)]  # no packages at all
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    found = document(schedule)
    assert sum(line.startswith("kernel ") for line in lines) == len(found["kernels"])
    layers = sum(len(kernel["layers"]) for kernel in found["kernels"])
    assert sum(line.startswith("  layer ") for line in lines) == layers
    assert sum(line.startswith("  buffer ") for line in lines) >= len(found["buffers"])


def test_the_reader_refuses_what_it_does_not_know(schedule: Schedule, tmp_path: Path) -> None:
    script, file = tmp_path / "reader.py", tmp_path / "kernels.json"
    script.write_text(reader(), encoding="utf-8")
    newer = {**document(schedule), "schema_version": 2}
    file.write_text(json.dumps(newer), encoding="utf-8")
    command = [sys.executable, "-I", "-S", str(script), str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "not a kernels file of version 1" in done.stderr


def test_published_schemas_are_current() -> None:
    command = [sys.executable, str(PAGE.parents[1] / "tools" / "schema_files.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
