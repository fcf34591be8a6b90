"""What a user reads when a target file is wrong: place, field, fault and mend, word for word."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING

import pytest

from autoturbo.errors import InputError, TargetError
from autoturbo.hardware import load_target, validate_target_file
from tests.tiers import spread

if TYPE_CHECKING:
    from pathlib import Path

GOOD = """\
schema_version: 1
name: edge
clusters: 2
cores_per_cluster: 4
clock_mhz: 1000
engines:
  - kind: matrix
    rows: 32
    columns: 32
    rate: {float16: 1.0, int8: 2.0}
    startup_cycles: 32
  - kind: vector
    lanes: {float16: 32, int8: 64}
    special_lanes: 8
    startup_cycles: 8
  - kind: transfer
    bandwidth_gb_s: 64
    latency_ns: 100
    broadcast: true
  - kind: dma
    channels: 2
    bandwidth_gb_s: 32
    latency_ns: 500
lb:
  capacity_kib: 512
  weight_capacity_kib: 128
  bandwidth_gb_s: 256
gb:
  capacity_kib: 4096
  bandwidth_gb_s: 128
  latency_ns: 100
ddr:
  capacity_gib: 4
  bandwidth_gb_s: 64
  latency_ns: 200
  efficiency: 0.85
overheads:
  kernel_launch_us: 3
  barrier_us: 0.5
"""


def message_of(text: str | bytes, folder: Path) -> str:
    """The error of a file with that text, with the file named as ``edge.yaml``."""
    path = folder / "edge.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(TargetError) as caught:
        load_target(path)
    error = caught.value
    assert isinstance(error, InputError)
    assert error.exit_status == 2
    assert "\n" not in str(error)
    assert str(pickle.loads(pickle.dumps(error))) == str(error)  # noqa: S301
    return str(error).replace(str(path), "edge.yaml")


def test_the_good_file_is_good(tmp_path: Path) -> None:
    path = tmp_path / "edge.yaml"
    path.write_text(GOOD)
    assert load_target(path).matrix.depth == 1
    assert load_target(path).matrix.dataflow == "output_stationary"
    assert load_target(path).description == ""
    assert load_target(path).energy is None
    assert validate_target_file(path) == []


EDITS: dict[str, tuple[str, str, str]] = {
    "misspelt field": (
        "    bandwidth_gb_s: 64\n",
        "    bandwith_gb_s: 64\n",
        "edge.yaml:17:5: engines[2].bandwith_gb_s: unknown field; did you mean 'bandwidth_gb_s'?",
    ),
    "unknown field": (
        "clusters: 2\n",
        "clusters: 2\nzzz: 1\n",
        (
            "edge.yaml:4:1: zzz: unknown field; known fields: schema_version, name, description, "
            "clusters, cores_per_cluster, clock_mhz, engines, lb, gb, ddr, dram, overheads, "
            "energy, calibration, ranges"
        ),
    ),
    "field of another section": (
        "  capacity_gib: 4\n",
        "  capacity_kib: 4\n",
        "edge.yaml:33:3: ddr.capacity_kib: unknown field; did you mean 'capacity_gib'?",
    ),
    "terminal escape in a field": (
        "clusters: 2\n",
        'clusters: 2\n"\\e[31mx": 1\n',
        (
            "edge.yaml:4:1: '\\x1b[31mx': unknown field; known fields: schema_version, name, "
            "description, clusters, cores_per_cluster, clock_mhz, engines, lb, gb, ddr, dram, "
            "overheads, "
            "energy, calibration, ranges"
        ),
    ),
    "missing field": (
        "  weight_capacity_kib: 128\n",
        "",
        "edge.yaml:24:1: lb.weight_capacity_kib: missing field; add it (weights, per core, in KiB)",
    ),
    "missing section": (
        "overheads:\n  kernel_launch_us: 3\n  barrier_us: 0.5\n",
        "",
        "edge.yaml:1:1: overheads: missing field; add it (fixed costs)",
    ),
    "newer version": (
        "schema_version: 1\n",
        "schema_version: 2\n",
        "edge.yaml:1:17: schema_version: unsupported version 2; this release reads version 1",
    ),
    "zero cores": (
        "cores_per_cluster: 4\n",
        "cores_per_cluster: 0\n",
        "edge.yaml:4:20: cores_per_cluster: must be at least 1, not 0",
    ),
    "negative bandwidth": (
        "bandwidth_gb_s: 256\n",
        "bandwidth_gb_s: -256\n",
        "edge.yaml:27:19: lb.bandwidth_gb_s: must be at least 0.001, not -256",
    ),
    "NaN": (
        "bandwidth_gb_s: 256\n",
        "bandwidth_gb_s: .nan\n",
        "edge.yaml:27:19: lb.bandwidth_gb_s: must be a finite number, not nan",
    ),
    "overflow": (
        "clock_mhz: 1000\n",
        "clock_mhz: 1e999\n",
        "edge.yaml:5:12: clock_mhz: must be a finite number, not inf",
    ),
    "too large": (
        "clusters: 2\n",
        "clusters: 99999\n",
        "edge.yaml:3:11: clusters: must be at most 4096, not 99999",
    ),
    "thousands of digits": (
        "clusters: 2\n",
        f"clusters: {'9' * 5000}\n",
        (
            "edge.yaml:3:11: clusters: must be a whole number, "
            "not '999999999999999999999999999999999999..."
        ),
    ),
    "zero capacity of the global buffer": (
        "  capacity_kib: 4096\n",
        "  capacity_kib: 0\n",
        (
            "edge.yaml:29:17: gb.capacity_kib: must be at least 1, not 0; "
            "leave 'gb' out for a chip without a global buffer"
        ),
    ),
    "text for a number": (
        "clock_mhz: 1000\n",
        "clock_mhz: 1 GHz\n",
        "edge.yaml:5:12: clock_mhz: must be a number, not '1 GHz'",
    ),
    "octal": (
        "clusters: 2\n",
        "clusters: 010\n",
        "edge.yaml:3:11: clusters: must be a whole number, not '010'",
    ),
    "fraction": (
        "clusters: 2\n",
        "clusters: 2.5\n",
        "edge.yaml:3:11: clusters: must be a whole number, not 2.5",
    ),
    "word for a truth value": (
        "broadcast: true\n",
        "broadcast: on\n",
        "edge.yaml:19:16: engines[2].broadcast: must be true or false, not 'on'",
    ),
    "nothing": (
        "clusters: 2\n",
        "clusters:\n",
        "edge.yaml:3:10: clusters: must be a whole number, not nothing",
    ),
    "list for a number": (
        "clusters: 2\n",
        "clusters: [2]\n",
        "edge.yaml:3:11: clusters: must be a whole number, not a list",
    ),
    "number for a section": (
        "lb:\n  capacity_kib: 512\n  weight_capacity_kib: 128\n  bandwidth_gb_s: 256\n",
        "lb: 512\n",
        "edge.yaml:24:5: lb: must be a mapping of fields, not 512",
    ),
    "unusable name": (
        "name: edge\n",
        "name: ../edge\n",
        (
            "edge.yaml:2:7: name: not of the right form: '../edge'; "
            "short name: small letters, digits, '.', '_' and '-'; for example my-npu"
        ),
    ),
    "long name": (
        "name: edge\n",
        f"name: {'e' * 65}\n",
        "edge.yaml:2:7: name: must be at most 64 characters, not 65",
    ),
    "unknown engine kind": (
        "- kind: matrix\n",
        "- kind: matirx\n",
        "edge.yaml:7:11: engines[0].kind: unknown kind 'matirx'; did you mean 'matrix'?",
    ),
    "engine without a kind": (
        "  - kind: dma\n    channels: 2\n",
        "  - channels: 2\n",
        (
            "edge.yaml:20:5: engines[3].kind: missing field; "
            "add it (one of matrix, vector, transfer, dma)"
        ),
    ),
    "missing engine": (
        "  - kind: dma\n    channels: 2\n    bandwidth_gb_s: 32\n    latency_ns: 500\n",
        "",
        "edge.yaml:6:1: engines: no engine of kind 'dma'; add an entry '- kind: dma'",
    ),
    "second engine": (
        "lb:\n",
        "  - {kind: dma, channels: 1, bandwidth_gb_s: 1, latency_ns: 1}\nlb:\n",
        (
            "edge.yaml:24:5: engines[4]: a second engine of kind 'dma'; "
            "engines[3] is the first; keep one"
        ),
    ),
    "engine that is a word": (
        "  - kind: dma\n    channels: 2\n    bandwidth_gb_s: 32\n    latency_ns: 500\n",
        "  - dma\n",
        "edge.yaml:20:5: engines[3]: must be a mapping of fields, not 'dma'",
    ),
    "unknown dataflow": (
        "    columns: 32\n",
        "    columns: 32\n    dataflow: weights_stationary\n",
        (
            "edge.yaml:10:15: engines[0].dataflow: unknown dataflow 'weights_stationary'; "
            "did you mean 'weight_stationary'?"
        ),
    ),
    "unknown data type": (
        "rate: {float16: 1.0, int8: 2.0}",
        "rate: {float16: 1.0, fp8: 2.0}",
        (
            "edge.yaml:10:26: engines[0].rate.fp8: unknown field; "
            "known fields: float32, float16, bfloat16, int8, bfloat8, bfloat4"
        ),
    ),
    "misspelt data type": (
        "rate: {float16: 1.0, int8: 2.0}",
        "rate: {float16: 1.0, uint8: 2.0}",
        "edge.yaml:10:26: engines[0].rate.uint8: unknown field; did you mean 'int8'?",
    ),
    "no data type": (
        "rate: {float16: 1.0, int8: 2.0}",
        "rate: {}",
        (
            "edge.yaml:10:11: engines[0].rate: must not be empty; times rows x columns x depth MAC"
            " per cycle; a data type not listed cannot run;"
            " for example {'float16': 1.0, 'int8': 2.0}"
        ),
    ),
    "data type without lanes": (
        "lanes: {float16: 32, int8: 64}",
        "lanes: {int8: 64}",
        (
            "edge.yaml:13:5: engines[1].lanes: no figure for float16; "
            "the matrix engine's rate lists it; add it here or remove it there"
        ),
    ),
    "duplicate key": (
        "clusters: 2\n",
        "clusters: 2\nclusters: 4\n",
        "edge.yaml:4:1: clusters: given twice; it was first given in line 3",
    ),
    "several errors": (
        "clusters: 2\ncores_per_cluster: 4\nclock_mhz: 1000\n",
        "clusters: 0\ncores_per_cluster: -4\nclok_mhz: 1000\n",
        "edge.yaml:3:11: clusters: must be at least 1, not 0 (and 2 more)",
    ),
    "several errors, the first with a hint": (
        "clusters: 2\ncores_per_cluster: 4\n",
        "cluster: 2\ncores_per_cluster: 0\n",
        "edge.yaml:3:1: cluster: unknown field; did you mean 'clusters'? (and 1 more)",
    ),
    "tag": (
        "clusters: 2\n",
        "clusters: !!python/object/apply:os.system ['true']\n",
        "edge.yaml:3:11: the tag '!!python/object/apply:os.system' is not allowed in a target",
    ),
    "alias": (
        "clusters: 2\ncores_per_cluster: 4\n",
        "clusters: &a 2\ncores_per_cluster: *a\n",
        "edge.yaml:4:20: aliases are not allowed in a target; write the value out",
    ),
    "merge key": (
        "clusters: 2\n",
        "clusters: 2\n<<: {name: x}\n",
        (
            "edge.yaml:4:1: <<: unknown field; known fields: schema_version, name, description, "
            "clusters, cores_per_cluster, clock_mhz, engines, lb, gb, ddr, dram, overheads, "
            "energy, calibration, ranges"
        ),
    ),
    "key that is a list": (
        "clusters: 2\n",
        "clusters: 2\n? [a, b]\n: 1\n",
        "edge.yaml:4:3: a field's name must be text",
    ),
    "tab": (
        "  - kind: vector\n",
        "\t- kind: vector\n",
        (
            "edge.yaml:12:1: not YAML: found character '\\t' that cannot start any token; "
            "indent with spaces"
        ),
    ),
    "colon in a value": (
        "name: edge\n",
        "name: edge: two\n",
        "edge.yaml:2:11: not YAML: mapping values are not allowed here",
    ),
    "unclosed bracket": (
        "rate: {float16: 1.0, int8: 2.0}",
        "rate: {float16: 1.0, int8: 2.0",
        "edge.yaml:11:19: not YAML: expected ',' or '}', but got ':'",
    ),
    "second document": (
        "clusters: 2\n",
        "clusters: 2\n---\nname: other\n",
        "edge.yaml:4:1: not YAML: more than one document; one file describes one target",
    ),
    "control character": (
        "name: edge\n",
        "name: ed\x07ge\n",
        "edge.yaml:2: not YAML: character U+0007 is not allowed; a target is a text file",
    ),
}


@pytest.mark.parametrize("case", spread(EDITS, 2))
def test_one_edit(case: str, tmp_path: Path) -> None:
    before, after, message = EDITS[case]
    assert GOOD.count(before) == 1
    assert message_of(GOOD.replace(before, after), tmp_path) == message
