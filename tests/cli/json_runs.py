"""Every command and action once and more under ``--json``, on networks of a layer or two.

A run is what stands behind ``autoturbo --json``; words in braces are filled in by
:func:`prepared`. A command that is not here, or that has no schema, fails a test.
"""

from __future__ import annotations

from pathlib import Path

from onnx import helper

from tests.cli.bad_files import flipped, saved, tiny
from tests.cli.command_line import Cli
from tests.host.host_samples import residual

RUNS: dict[str, tuple[str, ...]] = {
    "tune": (
        "tune tiny.onnx --trials 3",
        "tune tiny.onnx other.onnx --trials 2 --target goya --verify",
        "tune tiny.onnx --trials 8 --objective latency,ddr-bytes",
        "tune tiny.onnx --trials 2 --target zcu102-vta",
        "tune tiny.onnx --trials 2 --seeds 3",
        "tune tiny.onnx --trials 2 --target no-room.yaml",
        "tune flipped.onnx --trials 1",
        "tune batch.onnx --target host --trials 2",
        "tune tiny.onnx --target host --target goya",
    ),
    "bench": ("bench {host}", "bench nothing"),
    "resume": ("resume {run} --trials 18", "resume {host} --trials 2", "resume nothing"),
    "runs": ("runs", "runs --db none.db"),
    "show": ("show {run}", "show {failed}", "show {machine}", "show {host}"),
    "inspect": (
        "inspect tiny.onnx",
        "inspect odd.onnx --batch 4",
        "inspect none.onnx",
        "inspect flipped.onnx",
    ),
    "space": ("space tiny.onnx", "space tiny.onnx --subgraphs 0"),
    "simulate": (
        "simulate tiny.onnx",
        "simulate tiny.onnx --schedule best.json",
        "simulate tiny.onnx --target examples/targets/edge.yaml",
        "simulate tiny.onnx --target zcu102-vta",
        "simulate tiny.onnx --target no-room.yaml",
    ),
    "compare": (
        "compare tiny.onnx",
        "compare tiny.onnx --target no-room.yaml",
        "compare tiny.onnx --target zcu102-vta",
        "compare flipped.onnx",
    ),
    "sweep": (
        "sweep tiny.onnx --vary lb.capacity_kib=256,512 --vary ddr.bandwidth_gb_s=60 --trials 2",
        "sweep tiny.onnx --vary lb.capacity_kib=1,512 --trials 1",
    ),
    "explain": (
        "explain {run}",
        "explain {front}",
        "explain {host}",
        "explain {failed}",
        "explain best.json --model tiny.onnx",
    ),
    "diff": (
        "diff best.json {run}",
        "diff {run} {goya} --fail-if-slower 2%",
        "diff best.json {run} --html both.html",
    ),
    "replay": ("replay {run} 0", "replay {failed} 0", "replay {run} 999"),
    "dashboard": ("dashboard --port 0 --for 0.1", "dashboard --port 70000"),
    "report": ("report {run} -o report.html", "report {host} -o host.html", "report --all"),
    "trace": ("trace {run} -o trace.json",),
    "verify": (
        "verify tiny.onnx --run {run}",
        "verify tiny.onnx --no-numbers",
        "verify other.onnx --run {run}",
    ),
    "apply": (
        "apply tiny.onnx -o out.onnx",
        "apply tiny.onnx -o out.json",
        "apply tiny.onnx -o tiny.onnx",
        "apply tiny.onnx --batch 2 --nearest-batch -o near.onnx",
    ),
    "targets list": ("targets list",),
    "targets show": (
        "targets show stcp920",
        "targets show zcu102-vta",
        "targets show examples/targets/wormhole-n150.yaml",
    ),
    "targets validate": ("targets validate bad.yaml examples/targets/edge.yaml none.yaml",),
    "targets schema": ("targets schema", "targets schema --machine"),
    "targets scaffold": ("targets scaffold",),
    "targets calibrate": (
        "targets calibrate examples/targets/edge.yaml --measurements board.csv -o mine.yaml",
        "targets calibrate stcp920 --measurements bad.yaml -o other.yaml",
    ),
    "db list": ("db list", "db list --db empty.db"),
    "db best": ("db best", "db best --model nobody"),
    "db stats": ("db stats", "db stats --db empty.db"),
    "db export": ("db export records.jsonl",),
    "db import": ("db import kept.jsonl --db new.db", "db import bad.yaml --db new.db"),
    "db merge": ("db merge autoturbo.db kept.jsonl --db merged.db",),
    "db check": (
        "db check",
        "db check --save saved.jsonl",
        "db check --db damaged.db",
        "db check --db damaged.db --save rest.jsonl",
    ),
    "db schema": ("db schema", "db schema kernels"),
    "dataset collect": ("dataset collect tiny.onnx other.onnx --settings 6 -o samples",),
    "dataset stats": ("dataset stats kept-samples",),
    "cost-model train": (
        "cost-model train kept-samples -o model",
        "cost-model train none -o model",
    ),
    "cost-model list": ("cost-model list",),
    "doctor": ("doctor", "doctor --warm", "doctor --db damaged.db", "doctor --db empty.db"),
    "completion": ("completion bash", "completion ksh"),
    "schema": ("schema", "schema tune", "schema targets show", "schema tuna"),
}
"""By command: what is run."""


def prepared(cli: Cli) -> dict[str, str]:
    """Write what the runs read; ids of runs by the name in braces."""
    root = Path(__file__).resolve().parents[2]
    (cli.folder / "examples").symlink_to(root / "examples")
    saved(cli, tiny())
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], name="mm"),
        helper.make_node("Relu", ["a"], ["y"], name="relu"),
    ]
    saved(cli, tiny([2, 8], nodes), "other.onnx")
    foreign = [helper.make_node("Foo", ["x"], ["y"], name="odd", domain="com.acme")]
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("com.acme", 1)]
    odd = tiny(nodes=foreign, opset_imports=imports)
    odd.graph.output[0].type.tensor_type.shape.dim.add().dim_value = 4
    saved(cli, odd, "odd.onnx")
    saved(cli, flipped(), "flipped.onnx")
    residual(cli.folder, 2).rename(cli.folder / "batch.onnx")
    scaffold = cli("targets", "scaffold").out
    cli.write("bad.yaml", scaffold.replace("bandwidth_gb_s", "bandwith_gb_s", 1))
    preset = cli("targets", "show", "stcp920").out
    board = "".join(f"8,{extent},16,int8,{12 + extent / 100}\n" for extent in (16, 32, 48, 64))
    cli.write("board.csv", f"m,k,n,dtype,latency_us\n{board}")
    cli.write("no-room.yaml", preset.replace("capacity_kib: 1024", "capacity_kib: 1"))
    return ids(cli)


def ids(cli: Cli) -> dict[str, str]:
    """Tune what the runs look at."""

    def tuned(*words: str) -> str:
        ran = cli("--json", "tune", "-q", *words)
        assert ran.status == 0, ran.err
        return str(ran.object["run"])

    run = tuned("tiny.onnx", "--trials", "17", "-o", "best.json")
    goya = tuned("tiny.onnx", "--trials", "2", "--target", "goya")
    front = tuned("tiny.onnx", "--trials", "4", "--objective", "latency,ddr-bytes")
    assert cli("tune", "-q", "tiny.onnx", "--trials", "2", "--target", "no-room.yaml").status == 3
    machine = tuned("tiny.onnx", "--trials", "2", "--target", "zcu102-vta")
    host = tuned("batch.onnx", "--trials", "2", "--target", "host")
    failed = next(r["run"] for r in cli("--json", "runs").object["runs"] if r["state"] == "failed")
    assert cli("db", "export", "kept.jsonl").status == 0
    assert cli("db", "import", "kept.jsonl", "--db", "damaged.db").status == 0
    damage(cli.folder / "damaged.db")
    from autoturbo.database import Database

    Database.open(cli.folder / "empty.db").close()
    samples = ["dataset", "collect", "tiny.onnx", "other.onnx", "--settings", "6"]
    assert cli(*samples, "-q", "-o", "kept-samples").status == 0
    found = {"run": run, "goya": goya, "front": front, "machine": machine, "host": host}
    return {**found, "failed": failed}


def damage(path: Path) -> None:
    """Make a record of a database unreadable."""
    import sqlite3

    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE trials SET record = 'nonsense' WHERE rowid = 1")
    connection.close()
