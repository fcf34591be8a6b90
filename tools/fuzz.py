"""Gives damaged inputs to the command line, one process each, and counts what goes wrong.

``python tools/fuzz.py --kind onnx --mutants 5000 --jobs 2`` makes mutants of small sound inputs: of
ONNX files (ranks, extents, attributes, functions, external data, bytes), databases, JSON lines,
cost models and shards of data sets. Mutant ``n`` of a seed is the same everywhere.
Each runs in a fork of a process that has everything loaded, with limits of address space and time.
A finding is a crash, a traceback, ``internal:``, more seconds than are allowed, or a wrong
acceptance: an input that is taken without a word, of which something else is read back than was in
it. Where the harness itself loses a process, what that had to try is a finding too.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import os
import random
import re
import resource
import shutil
import signal
import sqlite3
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import onnx
from onnx import AttributeProto, ModelProto, TensorProto, helper

GIB = 4
"""Address space of a mutant beyond what its process has when it begins."""

SECONDS = 20.0
"""Longest that a mutant may take, unless another limit is given."""

_WRONG = "wrong acceptance: "

_STATUSES = (0, 1, 2, 3)
"""Exit statuses of commands that nobody interrupts."""

_SHOWN = 8
"""Mutants named of every finding."""

_WHOLE = (0, 1, -1, 2, 3, 7, 63, 64, 65, 255, 2**15, 2**31 - 1, 2**31, 2**40, 2**62, -(2**63))


@dataclass(frozen=True, slots=True)
class Finding:
    """A mutant that was not taken as it should be.

    Attributes:
        kind: Of input.
        number: Of the mutant.
        what: The class of the fault: its line without names and figures.
        command: The command line, or the function.
    """

    kind: str
    number: int
    what: str
    command: str


def _nothing_wrong(_said: str) -> str:
    return ""


@dataclass(frozen=True, slots=True)
class Run:
    """What a mutant is given to.

    Attributes:
        name: The command line, or the function.
        run: Returns an exit status.
        accepted: Says of an input that was taken (status 0), from what was printed, in what it
            reads back as something else; empty where it does not.
    """

    name: str
    run: Callable[[], int]
    accepted: Callable[[str], str] = _nothing_wrong


def command(*arguments: str, accepted: Callable[[str], str] = _nothing_wrong) -> Run:
    """Return a call of the command line."""
    from autoturbo.cli import main

    return Run(" ".join(arguments), lambda: main(list(arguments)), accepted)


# ----------------------------------------------------------------------------- what is read back


def _exactly(value: object) -> object:
    """Return a JSON value in a form in which 1 is 1.0, but not true, and order does not matter."""
    match value:
        case dict():
            return "object", tuple(sorted((name, _exactly(v)) for name, v in value.items()))
        case list():
            return "list", tuple(map(_exactly, value))
        case bool() | None | str():
            return type(value).__name__, str(value)
        case _:
            return "number", repr(float(cast("float", value)))


def _records(lines: Iterable[bytes]) -> Counter[object]:
    return Counter(_exactly(json.loads(line)) for line in lines if line.strip())


def _trials(lines: Iterable[bytes]) -> int:
    """Return how many trials there are: of two that say they are one, an import keeps the better.

    Other records count for themselves.
    """
    records = [json.loads(line) for line in lines if line.strip()]
    return len({(r.get("run"), r.get("number", n), r["kind"]) for n, r in enumerate(records)})


def other_records(given: Sequence[bytes], taken: Sequence[bytes], said: str = "") -> str:
    """Return in what the records that were taken are others than those given.

    Args:
        given: Lines of JSON.
        taken: Likewise.
        said: What was printed: records may be missing if it names what is left out.
    """
    if more := _records(taken) - _records(given):
        return f"{more.total()} records that were not in it"
    less = 0 if "left out" in said else _trials(given) - _trials(taken)
    return f"{less} records are missing" if less else ""


def exported(database: str) -> list[bytes]:
    """Return the lines of an export of a database.

    Args:
        database: The file; the export is ``back.jsonl`` in the current folder.

    Returns:
        The records, a line each; none where the command fails.
    """
    from autoturbo.cli import main

    with Path(os.devnull).open("w") as quiet, contextlib.redirect_stdout(quiet):
        status = main(["db", "export", "back.jsonl", "--db", database])
    return [] if status else Path("back.jsonl").read_bytes().splitlines()


# ------------------------------------------------------------------------------- bytes of any file


def shaken(data: bytes, rng: random.Random) -> bytes:
    """Return bytes with a few of them flipped, cut out, doubled or overwritten."""
    found = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 4, 16))):
        at = rng.randrange(max(len(found), 1))
        size = rng.choice((1, 2, 4, 8, 64, 512))
        match rng.randrange(5):
            case 0 if found:
                found[at] ^= 1 << rng.randrange(8)
            case 1:
                found[at : at + size] = rng.randbytes(size)
            case 2:
                del found[at : at + size]
            case 3:
                found[at:at] = found[at : at + size]
            case _:
                found[at : at + size] = rng.choice((b"\0", b"\xff", b"\x7f")) * size
    return bytes(found)


def shake_file(path: Path, rng: random.Random) -> None:
    """Damage a file in place."""
    path.write_bytes(shaken(path.read_bytes(), rng))


# --------------------------------------------------------------------------------------- ONNX files


def small_models() -> list[ModelProto]:
    """Return sound models that have a little of everything."""
    weight = helper.make_tensor("w", TensorProto.FLOAT, [8, 4, 3, 3], [0.5] * 288)
    matrix = helper.make_tensor("m", TensorProto.FLOAT, [8, 6], [0.25] * 48)
    shape = helper.make_tensor("s", TensorProto.INT64, [2], [2, -1])
    axes = helper.make_tensor("a", TensorProto.INT64, [1], [1])
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], "conv", pads=[1] * 4, kernel_shape=[3, 3]),
        helper.make_node("Relu", ["c"], ["r"], "relu"),
        helper.make_node("MaxPool", ["r"], ["p"], "pool", kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Transpose", ["p"], ["t"], "turn", perm=[0, 2, 3, 1]),
        helper.make_node("MatMul", ["t", "m"], ["q"], "product"),
        helper.make_node("Softmax", ["q"], ["z"], "softmax", axis=-1),
        helper.make_node("ReduceMean", ["z"], ["e"], "mean", axes=[1, 2], keepdims=0),
        helper.make_node("Reshape", ["e", "s"], ["y"], "shape"),
        helper.make_node("Unsqueeze", ["y", "a"], ["u"], "wider"),
        helper.make_node("Concat", ["u", "u"], ["k"], "twice", axis=1),
        helper.make_node("Slice", ["k", "a0", "a1"], ["o"], "part"),
    ]
    starts = helper.make_tensor("a0", TensorProto.INT64, [1], [0])
    ends = helper.make_tensor("a1", TensorProto.INT64, [1], [2])
    whole = _model(nodes, [2, 4, 8, 8], "o", [weight, matrix, shape, axes, starts, ends])
    outside = helper.make_tensor("w", TensorProto.FLOAT, [4, 4], [0.5] * 16)
    outside.ClearField("float_data")
    outside.data_location = TensorProto.EXTERNAL
    for key, value in (("location", "data.bin"), ("offset", "0"), ("length", "64")):
        outside.external_data.add(key=key, value=value)
    stored = _model([helper.make_node("MatMul", ["x", "w"], ["y"], "m")], [3, 4], "y", [outside])
    calls = _model([helper.make_node("f", ["x"], ["y"], "call", domain="own")], [3, 4], "y", [])
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    body = [helper.make_node("g", ["a"], ["b"], domain="own"), helper.make_node("Relu", "b", "c")]
    inner = [helper.make_node("Exp", ["a"], ["b"])]
    calls.functions.append(helper.make_function("own", "f", ["a"], ["c"], body, imports))
    calls.functions.append(helper.make_function("own", "g", ["a"], ["b"], inner, imports))
    return [whole, stored, calls, _branching()]


def _model(
    nodes: Sequence[onnx.NodeProto], shape: Sequence[int], output: str, stored: list[TensorProto]
) -> ModelProto:
    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
    made = onnx.ValueInfoProto(name=output)
    made.type.tensor_type.elem_type = TensorProto.FLOAT
    graph = helper.make_graph(nodes, "small", [given], [made], stored)
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8)


def _branching() -> ModelProto:
    bodies = {}
    for name, kind in (("then_branch", "Relu"), ("else_branch", "Exp")):
        made = helper.make_tensor_value_info("v", TensorProto.FLOAT, [3, 4])
        bodies[name] = helper.make_graph([helper.make_node(kind, ["x"], ["v"])], name, [], [made])
    flag = helper.make_tensor("flag", TensorProto.BOOL, [], [True])
    node = helper.make_node("If", ["flag"], ["y"], "choice", **bodies)
    return _model([node, helper.make_node("Relu", ["y"], ["z"], "last")], [3, 4], "z", [flag])


def _mutate_model(model: ModelProto, rng: random.Random) -> None:
    """Change one thing of a model: something that other tools could have written."""
    graph, node = model.graph, rng.choice(model.graph.node)
    match rng.randrange(10):
        case 0:
            _mutate_shape(graph.input[0], rng)
        case 1 if graph.initializer:
            tensor = rng.choice(graph.initializer)
            tensor.dims[:] = [rng.choice(_WHOLE) for _ in range(rng.choice((0, 1, 2, 17, 65)))]
        case 2 if graph.initializer:
            _mutate_values(rng.choice(graph.initializer), rng)
        case 3 if node.attribute:
            _mutate_attribute(rng.choice(node.attribute), rng)
        case 4:
            node.op_type = rng.choice(_KINDS)
        case 5 if node.input:
            node.input[rng.randrange(len(node.input))] = rng.choice(_names(model))
        case 6:
            copy = graph.node.add()
            copy.CopyFrom(node)
            copy.name, copy.output[0] = f"copy{len(graph.node)}", f"v{len(graph.node)}"
        case 7 if model.functions:
            _mutate_function(model, rng)
        case 8:
            place = rng.choice(list(graph.initializer) or [TensorProto()])
            place.data_location = TensorProto.EXTERNAL
            key = rng.choice(("location", "offset", "length", "odd"))
            place.external_data.add(key=key, value=rng.choice(_PLACES))
        case _:
            del graph.node[rng.randrange(len(graph.node))]


_KINDS = ("Relu", "MatMul", "Add", "Gather", "Reshape", "Expand", "Tile", "Range", "Loop", "Pad",
          "ConstantOfShape", "Resize", "Einsum", "TopK", "Split", "NonZero", "ConvTranspose",
          "LSTM", "Cast", "Shape", "OneHot", "EyeLike", "Slice", "Squeeze", "Foo")  # fmt: skip

_PLACES = ("", ".", "..", "/", "a" * 5000, "a\0b", "data.bin", "data.bin/x", "-1", "9" * 30, "1e9",
           "\ud7ff", "d/" * 2000)  # fmt: skip


def _names(model: ModelProto) -> list[str]:
    made = [name for node in model.graph.node for name in node.output]
    return ["", "x", "nowhere", *made, *(t.name for t in model.graph.initializer)]


def _mutate_shape(value: onnx.ValueInfoProto, rng: random.Random) -> None:
    shape = value.type.tensor_type.shape
    if rng.random() < 0.5 and shape.dim:  # noqa: PLR2004
        shape.dim[rng.randrange(len(shape.dim))].dim_value = rng.choice(_WHOLE)
        return
    rank = rng.choice((0, 1, 3, 5, 8, 15, 16, 17, 31, 32, 33, 63, 64, 65, 200))
    del shape.dim[:]
    for _ in range(rank):
        shape.dim.add().dim_value = rng.choice((1, 1, 1, 2, 3))


def _mutate_values(tensor: TensorProto, rng: random.Random) -> None:
    tensor.data_type = rng.choice((tensor.data_type, tensor.data_type, rng.randrange(30)))
    if tensor.int64_data:
        tensor.int64_data[rng.randrange(len(tensor.int64_data))] = rng.choice(_WHOLE)
    elif tensor.float_data:
        del tensor.float_data[rng.randrange(len(tensor.float_data)) :]


def _mutate_attribute(attribute: AttributeProto, rng: random.Random) -> None:
    if attribute.ints:
        attribute.ints[rng.randrange(len(attribute.ints))] = rng.choice(_WHOLE)
        if rng.random() < 0.3:  # noqa: PLR2004
            attribute.ints.extend([rng.choice(_WHOLE)] * rng.randrange(70))
    elif rng.random() < 0.3:  # noqa: PLR2004
        attribute.type = AttributeProto.AttributeType.Value("FLOAT")
    else:
        attribute.i = rng.choice(_WHOLE)


def _mutate_function(model: ModelProto, rng: random.Random) -> None:
    function = rng.choice(model.functions)
    for _ in range(rng.choice((1, 2, 30))):
        function.node.add().CopyFrom(rng.choice(function.node))
    rng.choice(function.node).op_type = rng.choice(("f", "g", "Relu", "Foo"))
    if rng.random() < 0.3:  # noqa: PLR2004
        model.functions.add().CopyFrom(function)


def onnx_mutant(seeds: Path, rng: random.Random) -> Run:
    """Return an import, and every third time a schedule, of a damaged model."""
    del seeds
    model = rng.choice(small_models())
    if rng.random() < 0.75:  # noqa: PLR2004
        for _ in range(rng.choice((1, 1, 2, 3))):
            with contextlib.suppress(ValueError, IndexError, UnicodeEncodeError):
                _mutate_model(model, rng)
        data = model.SerializeToString()
    else:
        data = shaken(model.SerializeToString(), rng)
    Path("net.onnx").write_bytes(data)
    Path("data.bin").write_bytes(bytes(64))
    words = rng.choice((["inspect"], ["inspect"], ["simulate"]))

    def accepted(_said: str) -> str:
        """Run a schedule of it in ONNX Runtime, where that takes the model too."""
        from autoturbo.cli import main

        with Path("verified").open("w") as said, contextlib.redirect_stdout(said):
            main(["--json", "verify", "net.onnx"])
        text = Path("verified").read_text()
        failures = json.loads(text).get("failures") if text else []
        return "a schedule of it fails its checks" if failures else ""

    return command(*words, "net.onnx", accepted=accepted)


# ------------------------------------------------------------------------------- records and models


def database_mutant(seeds: Path, rng: random.Random) -> Run:
    """Return a command that reads a damaged database."""
    shutil.copy(seeds / "autoturbo.db", "autoturbo.db")
    shake = rng.random() < 0.5  # noqa: PLR2004
    if shake:
        shake_file(Path("autoturbo.db"), rng)
    else:
        with (
            contextlib.suppress(sqlite3.Error),
            contextlib.closing(sqlite3.connect("autoturbo.db", isolation_level=None)) as connection,
        ):
            _edit_database(connection, rng)
    run = (seeds / "run").read_text()
    words = rng.choice((
        ["runs"], ["show", run], ["db", "list"], ["db", "stats"], ["db", "check"],
        ["db", "check", "--save", "out.jsonl"],
        ["db", "export", "out.jsonl"], ["explain", run], ["replay", run, "0"],
        ["db", "best"], ["trace", run, "-o", "t.json"],
        ["db", "merge", "autoturbo.db", "--db", "own.db"],
    ))  # fmt: skip

    def accepted(said: str) -> str:
        """Compare with the sound database; what SQL has changed is what is in it."""
        given = (seeds / "records.jsonl").read_bytes().splitlines()
        match words[-1]:
            case "out.jsonl" if shake:
                return other_records(given, Path("out.jsonl").read_bytes().splitlines(), said)
            case "own.db" if shake:
                return other_records(given, exported("own.db"), said)
        return ""

    return command(*words, accepted=accepted)


def _edit_database(connection: sqlite3.Connection, rng: random.Random) -> None:
    """Change a cell, a table or the schema with SQL."""
    tables = [n for (n,) in connection.execute("SELECT name FROM sqlite_master WHERE type='table'")]
    table = rng.choice(tables)
    columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
    column = rng.choice(columns)
    value = rng.choice((None, "", "x", -1, 2**62, float("inf"), b"\xff\0", "{}", "[]", '{"a":1}'))
    match rng.randrange(6):
        case 0:
            connection.execute(f"DELETE FROM {table}")  # noqa: S608
        case 1:
            connection.execute(f"ALTER TABLE {table} DROP COLUMN {column}")
        case 2:
            connection.execute(f"DROP TABLE {table}")
        case 3:
            rows = connection.execute(f"SELECT rowid, {column} FROM {table}").fetchall()  # noqa: S608
            row, old = rng.choice(rows or [(0, b"")])
            raw = shaken(old if isinstance(old, bytes) else str(old or "").encode(), rng)
            new: object = raw if isinstance(old, bytes) else raw.decode(errors="replace")
            connection.execute(f"UPDATE {table} SET {column} = ? WHERE rowid = ?", (new, row))  # noqa: S608
        case _:
            connection.execute("PRAGMA ignore_check_constraints = ON")
            connection.execute(f"UPDATE {table} SET {column} = ?", (value,))  # noqa: S608


def lines_mutant(seeds: Path, rng: random.Random) -> Run:
    """Return an import of damaged JSON lines."""
    lines = (seeds / "records.jsonl").read_bytes().splitlines(keepends=True)
    if rng.random() < 0.5:  # noqa: PLR2004
        at = rng.randrange(len(lines))
        lines[at] = shaken(lines[at], rng)
    else:
        at = rng.randrange(len(lines))
        lines[at] = edited(lines[at], rng)
    Path("records.jsonl").write_bytes(b"".join(lines))

    def accepted(said: str) -> str:
        given = Path("records.jsonl").read_bytes().splitlines()
        return other_records(given, exported("autoturbo.db"), said)

    return command("db", "import", "records.jsonl", accepted=accepted)


def edited(line: bytes, rng: random.Random) -> bytes:
    """Return a line of JSON with one value replaced, at any depth.

    Args:
        line: The object or list.
        rng: Decides which value, and by what.

    Returns:
        The new line, with its end.
    """
    values = json.loads(line)
    at = values
    while True:
        keys = list(at) if isinstance(at, dict) else list(range(len(at)))
        key = rng.choice(keys)
        if isinstance(at[key], (dict, list)) and at[key] and rng.random() < 0.6:  # noqa: PLR2004
            at = at[key]
            continue
        odd: tuple[object, ...] = (
            None,
            [],
            {},
            "",
            "x",
            -1,
            0,
            2**70,
            1e308,
            float("nan"),
            True,
            "\0",
            "a" * 9999,
        )
        at[key] = rng.choice(odd)
        return json.dumps(values).encode() + b"\n"


def model_mutant(seeds: Path, rng: random.Random) -> Run:
    """Return the loading of a damaged cost model, and a prediction."""
    shutil.copytree(seeds / "model", "model")
    path = rng.choice(sorted(p for p in Path("model").iterdir() if p.is_file()))
    if path.suffix == ".json" and rng.random() < 0.5:  # noqa: PLR2004
        path.write_bytes(edited(path.read_bytes(), rng))
    else:
        shake_file(path, rng)

    def predict() -> int:
        from autoturbo.errors import InputError

        try:
            np.save("back.npy", predictions(Path("model")))
        except InputError as error:
            print(error, file=sys.stderr)
            return 2
        return 0

    def accepted(_said: str) -> str:
        same = np.array_equal(np.load("back.npy"), np.load(seeds / "predictions.npy"))
        return "" if same else "other predictions"

    return Run(f"Pretrained.load with a damaged {path.name}", predict, accepted)


def predictions(folder: Path) -> Any:
    """Return what a cost model says of some rows, whatever they mean."""
    from autoturbo.cost_models.pretrained import Pretrained

    found = Pretrained.load(folder)
    rows = np.random.default_rng(0).uniform(-4.0, 30.0, (64, len(found.card["names"])))
    return found.factors.predict(rows.astype(np.float32))


def shard_mutant(seeds: Path, rng: random.Random) -> Run:
    """Return statistics of a data set with a damaged shard, its checksum right again or not."""
    import hashlib

    shutil.copytree(seeds / "data", "data")
    path = rng.choice(sorted(p for p in Path("data").rglob("*") if p.is_file()))
    old = hashlib.sha256(path.read_bytes()).hexdigest()
    if path.suffix == ".json" and rng.random() < 0.5:  # noqa: PLR2004
        path.write_bytes(edited(path.read_bytes(), rng))
    else:
        shake_file(path, rng)
    new = hashlib.sha256(path.read_bytes()).hexdigest()
    sealed = rng.random() < 0.7  # noqa: PLR2004
    for seal in Path("data").rglob("*.json") if sealed else ():
        text = seal.read_bytes()
        if old.encode() in text:
            seal.write_bytes(text.replace(old.encode(), new.encode()))

    def accepted(said: str) -> str:
        """Compare with the sound data set, whose Parquet files are sealed."""
        other = said.strip() != (seeds / "stats").read_text().strip()
        return "other statistics" if other and path.suffix == ".parquet" and not sealed else ""

    return command("dataset", "stats", "data", accepted=accepted)


KINDS: dict[str, Callable[[Path, random.Random], Run]] = {
    "onnx": onnx_mutant,
    "database": database_mutant,
    "json-lines": lines_mutant,
    "cost-model": model_mutant,
    "shards": shard_mutant,
}


# -------------------------------------------------------------------------------------- the harness


def make_seeds(folder: Path) -> None:
    """Write the sound inputs, and load into this process all that reading them needs."""
    from autoturbo.cli import main
    from autoturbo.cost_models.pretrained import bundled

    with _inside(folder):
        onnx.save(_model([helper.make_node("Relu", ["x"], ["y"], "r")], [4, 8], "y", []), "n.onnx")
        for line in (
            "tune n.onnx --trials 3 --sampler random -q", "db export records.jsonl",
            "dataset collect n.onnx -o data --settings 4",
            "simulate n.onnx", "dataset stats data",
        ):  # fmt: skip
            with Path("stats").open("w") as said, contextlib.redirect_stdout(said):
                status = main(line.split())
            if status:
                message = f"the sound input fails: {line}"
                raise RuntimeError(message)
        with contextlib.closing(sqlite3.connect("autoturbo.db")) as connection:
            Path("run").write_text(connection.execute("SELECT id FROM runs").fetchone()[0])
        shutil.copytree(next(iter(bundled().values())), "model")
        np.save("predictions.npy", predictions(Path("model")))


@contextlib.contextmanager
def _inside(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def _child(kind: str, seed: int, number: int, seeds: Path, folder: Path) -> None:
    """Run one mutant in this process, which ends with it."""
    gc.disable()
    os.chdir(folder)
    log = os.open("log", os.O_WRONLY | os.O_CREAT)
    os.dup2(log, 1)
    os.dup2(log, 2)
    sys.stdout, sys.stderr = (os.fdopen(n, "w", buffering=1, closefd=False) for n in (1, 2))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    own = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (own + GIB * 2**30,) * 2)
    found = KINDS[kind](seeds, random.Random(f"{seed} {kind} {number}"))  # noqa: S311
    Path("command").write_text(found.name)
    status = found.run()
    sys.stdout.flush()
    sys.stderr.flush()
    wrong = "" if status else found.accepted(Path("log").read_text(errors="replace"))
    if wrong:
        print(f"\n{_WRONG}{wrong}", flush=True)
    os._exit(status)


def run_mutant(
    kind: str, seed: int, number: int, seeds: Path, folder: Path, *, seconds: float = SECONDS
) -> Finding | None:
    """Run one mutant in a fork, in a folder of its own; return what is wrong with how it ended."""
    process = os.fork()
    if process == 0:
        try:
            _child(kind, seed, number, seeds, folder)
        except BaseException:  # noqa: BLE001  it is what the harness looks for
            import traceback

            traceback.print_exc()
        os._exit(70)
    status = _waited(process, seconds)
    name = folder / "command"
    text = (folder / "log").read_text(errors="replace") if (folder / "log").exists() else ""
    what = f"no end within {seconds:.0f} s" if status is None else _fault(status, text)
    told = name.read_text() if name.exists() else ""
    return Finding(kind, number, what, told) if what else None


def _waited(process: int, seconds: float) -> int | None:
    """Return the exit status of a child, negative for a signal; None where it took too long."""
    end = time.monotonic() + seconds
    pause = 0.001
    while time.monotonic() < end:
        done, status = os.waitpid(process, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(pause)
        pause = min(2 * pause, 0.05)
    os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)
    return None


def _fault(status: int, text: str) -> str:
    """Return what is wrong with an end, in words that alike faults share; empty for nothing."""
    lines = [line for line in text.splitlines() if line.strip()]
    said = next((line for line in reversed(lines) if "internal: " in line or _WRONG in line), "")
    if not said and "Traceback" in text:
        said = lines[-1]
    if status < 0:
        said = f"signal {-status}"
    elif not said and status not in _STATUSES:
        return f"exit status {status}"
    return re.sub(r"\d+", "N", said)[:160]


def fuzz(
    kind: str, numbers: Sequence[int], seeds: Path, *, seed: int = 0, seconds: float = SECONDS
) -> Iterator[Finding]:
    """Yield what is wrong with some mutants of a kind."""
    for number in numbers:
        with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
            found = run_mutant(kind, seed, number, seeds, Path(folder), seconds=seconds)
        if found is not None:
            yield found


def fuzz_together(
    kind: str,
    numbers: Sequence[int],
    seeds: Path,
    *,
    seed: int = 0,
    seconds: float = SECONDS,
    jobs: int = 1,
) -> list[Finding]:
    """Return what is wrong with some mutants, shared out among forks of this process.

    What a fork had still to try that dies is a finding.
    """
    shares = [numbers[job::jobs] for job in range(min(jobs, len(numbers)))]
    reads, everything = [], []
    for share in shares:
        read, write = os.pipe()
        process = os.fork()
        if process == 0:
            with os.fdopen(write, "w") as out:
                for number in share:
                    for found in fuzz(kind, [number], seeds, seed=seed, seconds=seconds):
                        print(json.dumps(astuple(found)), file=out)
                    print(json.dumps(number), file=out, flush=True)
            os._exit(0)
        os.close(write)
        reads.append((process, read))
    for share, (process, read) in zip(shares, reads, strict=True):
        with os.fdopen(read) as lines:
            told = [json.loads(line) for line in lines]
        everything += [Finding(*one) for one in told if isinstance(one, list)]
        status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
        left = [number for number in share if number not in told]
        lost = f"not tried: a process of the harness ended with status {status}"
        everything += [Finding(kind, number, lost, "") for number in left]
    return everything


def main() -> int:
    """Run the harness; 1 if there is a finding."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--kind", choices=KINDS, action="append", help="(default: all)")
    parser.add_argument("--mutants", type=int, default=200, help="of each kind (default: 200)")
    parser.add_argument("--only", type=int, action="append", metavar="N", help="mutant N again")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="allowed for each mutant")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"  # the threads of a pool are not there after a fork
    worst = 0
    with tempfile.TemporaryDirectory(prefix="fuzz-seeds-") as folder:
        make_seeds(Path(folder))
        gc.freeze()  # or every child copies all memory when it collects
        for kind in options.kind or KINDS:
            start = time.monotonic()
            numbers = options.only or range(options.mutants)
            found = fuzz_together(
                kind, numbers, Path(folder),
                seed=options.seed, seconds=options.seconds, jobs=options.jobs,
            )  # fmt: skip
            pace = len(numbers) / (time.monotonic() - start)
            wrong = sum(one.what.startswith(_WRONG) for one in found)
            counts = f"{len(found)} findings, {wrong} of them wrong acceptances"
            print(f"{kind}: {len(numbers)} mutants, {pace:.0f} a second, {counts}", flush=True)
            for what, times in Counter(one.what for one in found).most_common():
                alike = [one for one in found if one.what == what]
                shown = ", ".join(str(one.number) for one in alike[:_SHOWN])
                print(f"  {times} x {what}  (mutant {shown}: {alike[0].command})")
            worst = max(worst, int(bool(found)))
    return worst


if __name__ == "__main__":
    sys.exit(main())
