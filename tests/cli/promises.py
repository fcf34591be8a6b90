"""The faults that the product promises one clear line for, beside the bad files of ``bad_files``.

Each row says how a fault is made and the exit status; the exact lines are in
``promised_errors.txt``. Where the product does better than to fail, the row says why.
"""

from __future__ import annotations

import dataclasses
import re
import shutil
from collections.abc import Callable

from onnx import ModelProto, TensorProto, helper

from tests.cli.bad_files import saved, tiny
from tests.cli.command_line import Cli
from tests.database.small_disk import make_read_only


@dataclasses.dataclass(frozen=True)
class Promise:
    """A promise, and how it is kept.

    Attributes:
        make: writes what is needed; gives the command.
        status: the exit status.
        keeps: trials that are in the database afterwards; None where there is no run.
        disk: needs a small file system of its own, at ``disk``.
    """

    make: Callable[[Cli], list[str]]
    status: int = 2
    keeps: int | None = None
    disk: bool = False


def inspected(model: ModelProto) -> Callable[[Cli], list[str]]:
    return lambda cli: ["inspect", saved(cli, model)]


def without_shape() -> ModelProto:
    model = tiny()
    model.graph.input[0].type.tensor_type.ClearField("shape")
    return model


def without_weights() -> ModelProto:
    model = tiny()
    weight = model.graph.initializer[0]
    weight.ClearField("float_data")
    weight.data_location = TensorProto.EXTERNAL
    weight.external_data.add(key="location", value="weights.bin")
    return model


def foreign(*, shaped: bool) -> ModelProto:
    node = helper.make_node("Foo", ["x"], ["y"], name="odd", domain="com.acme")
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("com.acme", 1)]
    model = tiny(nodes=[node], opset_imports=imports)
    if shaped:
        for size in (4, 8):
            model.graph.output[0].type.tensor_type.shape.dim.add().dim_value = size
    return model


def measured(name: str, *flags: str, trials: int = 2) -> Callable[[Cli], list[str]]:
    """A run with a measurer of :mod:`faulty_measurers`."""

    def make(cli: Cli) -> list[str]:
        found = ["tune", saved(cli, tiny()), "-q", "--measurer", name, "--trials", str(trials)]
        return [*found, "--sampler", "random", *flags]

    return make


def too_large(cli: Cli) -> list[str]:
    text = cli("targets", "show", "stcp920").out
    cli.write("small.yaml", re.sub(r"capacity_gib: [\d.]+", "capacity_gib: 0.001", text))
    return ["tune", "alexnet", "-q", "--trials", "2", "--target", "small.yaml"]


def misspelt_twice(cli: Cli) -> list[str]:
    text = cli("targets", "scaffold").out.replace("bandwidth_gb_s", "bandwith_gb_s")
    cli.write("mine.yaml", text)
    return ["inspect", saved(cli, tiny()), "--target", "mine.yaml"]


def on_a_full_disk(cli: Cli) -> list[str]:
    place = cli.folder / "disk"
    (place / "ballast").write_bytes(b"x" * (shutil.disk_usage(place).free - 8192))
    return ["tune", saved(cli, tiny()), "-q", "--trials", "2", "--db", "disk/at.db"]


def into_a_read_only_folder(cli: Cli) -> list[str]:
    make_read_only(cli.folder / "disk")
    return ["tune", saved(cli, tiny()), "-q", "--trials", "2", "-o", "disk/best.json"]


def database_in_a_read_only_folder(cli: Cli) -> list[str]:
    make_read_only(cli.folder / "disk")
    return ["tune", saved(cli, tiny()), "-q", "--trials", "2", "--db", "disk/at.db"]


PROMISES = {
    "shapes": Promise(inspected(without_shape())),
    "unknown-operator": Promise(inspected(foreign(shaped=False))),
    "alike": Promise(misspelt_twice),
    "ray": Promise(
        lambda cli: ["tune", saved(cli, tiny()), "-q", "--trials", "2", "--ray", "127.0.0.1:1"]
    ),
    "worker": Promise(measured("dying", "--baselines", "graphturbo", trials=1), 1, 1),
    "hangs": Promise(measured("hanging", "--timeout", "0.3s"), 1, 2),
    "raises": Promise(measured("raising"), 1, 2),
    "nan": Promise(measured("nan"), 1, 2),
    "plugin": Promise(measured("absent")),
    "full-disk": Promise(on_a_full_disk, disk=True),
    "read-only": Promise(into_a_read_only_folder, disk=True),
    "read-only-database": Promise(database_in_a_read_only_folder, disk=True),
    "no-fit": Promise(too_large, 3, 2),
}


BETTER = {
    # scheduling needs shapes only: a model of which the weights were left behind is tuned as well
    "external-data": inspected(without_weights()),
    # one operator must not stop a network: it runs alone, counted and named
    "opaque": inspected(foreign(shaped=True)),
}
"""Commands that the product does not end with an error, and why not."""
