"""Presets and plug-ins: names, provenance, published peaks; the template; the schema."""

from __future__ import annotations

import importlib
import itertools
import json
import re
import subprocess
import sys
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from autoturbo.errors import TargetError
from autoturbo.hardware import (
    Target,
    load_target,
    preset_names,
    scaffold,
    target_schema,
    validate_target_file,
)
from autoturbo.hardware.document import parse_document
from autoturbo.hardware.presets import preset_text
from autoturbo.schedule.knobs import Knobs
from autoturbo.simulator.evaluator import Evaluator
from autoturbo.simulator.measurement import Measurement
from autoturbo.testing.contract import small_networks
from tests.tiers import spread

EVERY = ("ascend-910", "goya", "ipu-mk2", "mlu100", "stcp920", "stcp920-unified", "tpu-v4i")
EXAMPLES = Path(__file__).parents[2] / "examples" / "targets"

LEAF = re.compile(r"\s*(?:- )?\w+:\s*[^\s#]")
SOURCED = re.compile(r"#.*\b(?:source|estimate): \S+")
KIND = re.compile(r"\s*- kind: ")


def test_names() -> None:
    assert preset_names()[: len(EVERY)] == EVERY


@pytest.mark.parametrize("name", spread(EVERY, 5))
def test_every_field_names_its_source(name: str) -> None:
    lines = [line for line in preset_text(name).splitlines() if LEAF.match(line)]
    fields = [line for line in lines if not KIND.match(line)]
    assert len(fields) > 30
    assert [line for line in fields if not SOURCED.search(line)] == []


@pytest.mark.parametrize("name", spread(EVERY, 5))
def test_every_field_is_given(name: str) -> None:
    """A preset leaves nothing to a default, so that nothing lacks a source."""
    given = parse_document(preset_text(name), name).value
    written = load_target(name).as_dict()
    assert given.keys() == written.keys()
    for mine, full in zip(given["engines"], written["engines"], strict=True):
        assert mine.keys() == full.keys()


@pytest.mark.parametrize("name", spread(EVERY, 5))
def test_name_is_the_file(name: str) -> None:
    target = load_target(name)
    assert target.name == name
    assert target.description


PEAKS = [  # published tera-operations per second, from the figures that the presets name
    ("stcp920", "float16", 128, 131.1),
    ("stcp920", "int8", 256, 262.2),
    ("ascend-910", "float16", 256, 262.2),
    ("ascend-910", "int8", 512, 524.3),
    ("goya", "int8", 123, 135),
    ("ipu-mk2", "float16", 249, 251),
    ("ipu-mk2", "float32", 62, 63),
    ("mlu100", "float16", 64, 65.6),
    ("mlu100", "int8", 128, 131.1),
    ("tpu-v4i", "bfloat16", 137, 139),
    ("tpu-v4i", "int8", 137, 139),
]


@pytest.mark.parametrize(("name", "dtype", "low", "high"), spread(PEAKS, 5))
def test_published_peaks(name: str, dtype: str, low: float, high: float) -> None:
    assert low <= 2 * load_target(name).matrix_macs_per_second(dtype) / 1e12 <= high


def test_data_types() -> None:
    assert {name: load_target(name).dtypes for name in EVERY} == {
        "ascend-910": ("float16", "int8"),
        "goya": ("float32", "int8"),
        "ipu-mk2": ("float32", "float16"),
        "mlu100": ("float16", "int8"),
        "stcp920": ("float16", "int8"),
        "stcp920-unified": ("float16", "int8"),
        "tpu-v4i": ("bfloat16", "int8"),
    }


def test_memories_in_all() -> None:
    """Chip totals that are published, against per-core and per-cluster figures."""
    ipu, goya, stcp = (load_target(name) for name in ("ipu-mk2", "goya", "stcp920"))
    tiles = ipu.cores * (ipu.lb.capacity + ipu.lb.weight_capacity)
    assert tiles == pytest.approx(900e6, rel=0.05)
    assert ipu.cores * ipu.lb.bandwidth == pytest.approx(47.5e12, rel=0.01)
    assert ipu.gb.capacity == 0
    assert goya.gb.capacity == 50.625 * 2**20
    assert stcp.clusters * stcp.gb.capacity == 32 << 20
    assert stcp.clusters * stcp.ddr.capacity == 16 << 30


FIGURES = {  # clusters, cores, clock, LB per core, GB, DDR in all, DDR bandwidth: published, in SI
    "stcp920": (4, 8, 1e9, 1.25 * 2**20, 8 << 20, 16 << 30, 119.4e9),
    "stcp920-unified": (1, 32, 1e9, 1.25 * 2**20, 32 << 20, 16 << 30, 119.4e9),
    "ascend-910": (1, 32, 1e9, 2**20, 32 << 20, 32 << 30, 1.2e12),
    "goya": (1, 8, 1e9, 320 * 2**10, 51840 << 10, 16 << 30, 40e9),
    "ipu-mk2": (1, 1472, 1.325e9, 624 * 2**10, 0, 64 << 30, 20e9),
    "mlu100": (1, 32, 1e9, 2**20, 8 << 20, 16 << 30, 102.4e9),
    "tpu-v4i": (1, 1, 1.05e9, 16 << 20, 128 << 20, 8 << 30, 614e9),
}


@pytest.mark.parametrize("name", spread(EVERY, 5))
def test_figures(name: str) -> None:
    target = load_target(name)
    assert FIGURES[name] == (
        target.clusters,
        target.cores,
        target.clock,
        target.lb.capacity + target.lb.weight_capacity,
        target.gb.capacity,
        target.ddr.capacity * target.clusters,
        target.ddr.bandwidth,
    )


@pytest.mark.parametrize("name", spread(EVERY, 5))
def test_figures_make_sense_together(name: str) -> None:
    target = load_target(name)
    cluster = target.cores * target.lb.bandwidth
    assert cluster >= target.ddr_bandwidth_per_cluster
    assert target.dma.channels * target.dma.bandwidth >= target.ddr_bandwidth_per_cluster
    assert target.ddr.capacity > target.gb.capacity
    assert target.vector.special_lanes <= max(lanes for _, lanes in target.vector.lanes)
    assert 1e-6 <= target.overheads.kernel_launch <= 5e-6
    assert target.overheads.barrier < 1e-6
    if target.gb.capacity:
        assert cluster >= target.gb.bandwidth >= target.ddr_bandwidth_per_cluster


# Finding


def test_unknown_name_with_a_suggestion() -> None:
    with pytest.raises(TargetError) as caught:
        load_target("STCP-920")
    assert str(caught.value) == "unknown target 'STCP-920'; did you mean 'stcp920'?"


def test_unknown_name_without() -> None:
    with pytest.raises(TargetError) as caught:
        load_target("zzz")
    known = ", ".join(EVERY)
    assert str(caught.value) == f"unknown target 'zzz'; known targets: {known}, or a file"
    with pytest.raises(TargetError):
        load_target("")


def test_file_without_a_suffix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine").write_text(scaffold())
    (tmp_path / "stcp920").write_text(scaffold())
    monkeypatch.chdir(tmp_path)
    assert load_target("mine").name == "my-npu"
    assert load_target("stcp920").name == "stcp920"
    assert load_target("./stcp920").name == "my-npu"
    assert load_target(Path("stcp920")).name == "my-npu"


# Plug-ins

MODULE = """\
from pathlib import Path
from typing import Any
from autoturbo.hardware import load_target, with_field

slow = with_field(load_target("stcp920"), "clock_mhz", 500)
number = 42


def made():
    return slow


def file():
    return Path(__file__).with_name("theirs.yaml")


def broken():
    raise RuntimeError("no licence\\nfound")
"""


@pytest.fixture
def plugins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "their_targets.py").write_text(MODULE)
    (tmp_path / "theirs.yaml").write_text(scaffold().replace("my-npu", "theirs"))
    monkeypatch.syspath_prepend(tmp_path)
    objects = ["slow", "made", "file", "broken", "number", "absent"]
    entries = [EntryPoint(name, f"their_targets:{name}", "autoturbo.targets") for name in objects]
    entries.append(EntryPoint("stcp920", "their_targets:slow", "autoturbo.targets"))

    def entry_points(**asked: Any) -> EntryPoints:
        return EntryPoints(entries).select(**asked)

    monkeypatch.setattr(importlib.metadata, "entry_points", entry_points)
    return tmp_path


@pytest.mark.usefixtures("plugins")
def test_plugin_names_come_last_and_once() -> None:
    assert preset_names() == (*EVERY, "absent", "broken", "file", "made", "number", "slow")


@pytest.mark.usefixtures("plugins")
def test_plugin_targets() -> None:
    assert load_target("slow").clock == 500e6
    assert load_target("made").clock == 500e6
    assert load_target("file").name == "theirs"


@pytest.mark.usefixtures("plugins")
def test_plugin_cannot_replace_a_preset() -> None:
    assert load_target("stcp920").clock == 1e9


@pytest.mark.usefixtures("plugins")
@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("broken", "failed: RuntimeError: no licence found"),
        ("number", "provides a value of type 'int', not a Target or a path"),
        ("absent", "failed: AttributeError: module 'their_targets' has no attribute 'absent'"),
    ],
)
def test_broken_plugin(name: str, what: str) -> None:
    with pytest.raises(TargetError) as caught:
        load_target(name)
    assert str(caught.value) == (
        f"the plug-in target '{name}' {what}; "
        f"it is 'their_targets:{name}' in the group 'autoturbo.targets'"
    )


# Template, example, schema


def test_template_loads_and_is_commented(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(scaffold())
    assert validate_target_file(path) == []
    assert load_target(path).name == "my-npu"
    bare = [line for line in scaffold().splitlines() if LEAF.match(line) and "#" not in line]
    assert bare == []


def test_small_networks_run_on_example_targets() -> None:
    files = sorted(EXAMPLES.glob("*.yaml"))
    assert files
    for file in files:
        target = load_target(file)
        assert target.name == file.stem
        for graph, dtype in itertools.product(small_networks(), target.dtypes):
            assert isinstance(Evaluator(graph, target, dtype).evaluate(Knobs()), Measurement)


def test_schema_is_valid_and_strict() -> None:
    schema = target_schema()
    Draft202012Validator.check_schema(schema)
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert schema["additionalProperties"] is False
    assert json.loads(json.dumps(schema)) == schema


@pytest.mark.parametrize("name", spread(EVERY, 5))
def test_schema_accepts_presets(name: str) -> None:
    Draft202012Validator(target_schema()).validate(load_target(name).as_dict())


def test_schema_describes_every_field() -> None:
    schema = target_schema()
    assert len(schema["$defs"]) == 11
    for owner in [schema, *schema["$defs"].values()]:
        for field, described in owner["properties"].items():
            assert field == "kind" or described["description"]


def test_schema_is_the_callers_own() -> None:
    target_schema()["properties"].clear()
    assert "lb" in target_schema()["properties"]
    assert isinstance(load_target("goya"), Target)


def test_import_is_light() -> None:
    code = (
        "import sys, autoturbo.hardware as h; h.preset_names.__doc__; "
        "print([m for m in ('yaml', 'pydantic', 'numpy', 'onnx') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_this_computer_is_no_target_of_the_simulator() -> None:
    with pytest.raises(TargetError, match="'tune' and 'bench'"):
        load_target("host")
