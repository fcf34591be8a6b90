"""The bad input that the product promises one clear line for, in the words of its specification.

Each row says what is wrong, how it is made and the exit status; the exact lines are in
``promised_errors.txt``. Where the product does better than to fail, the row says why.
"""

from __future__ import annotations

import dataclasses
import re
import shutil
from collections.abc import Callable

from onnx import ModelProto, TensorProto, helper

from tests.cli.bad_files import CASES, saved, tiny
from tests.cli.command_line import Cli
from tests.database.small_disk import make_read_only


@dataclasses.dataclass(frozen=True)
class Promise:
    """A promise, and how it is kept.

    Attributes:
        what: words of the specification.
        make: writes what is needed; gives the command.
        status: the exit status.
        keeps: trials that are in the database afterwards; None where there is no run.
        disk: needs a small file system of its own, at ``disk``.
    """

    what: str
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
    "not-onnx": Promise("Not an ONNX file", CASES["model_text"]),
    "truncated": Promise(
        "truncated",
        CASES["model_truncated"],
    ),
    "opset": Promise(
        "wrong opset",
        CASES["model_newer_opset"],
    ),
    "shapes": Promise(
        "missing shapes",
        inspected(without_shape()),
    ),
    "dynamic": Promise(
        "dynamic dimensions without a value",
        CASES["model_dynamic_dimension"],
    ),
    "cyclic": Promise("cyclic graph", CASES["model_cyclic"]),
    "unknown-operator": Promise(
        "unknown operator",
        inspected(foreign(shaped=False)),
    ),
    "elements": Promise(
        "a tensor of 2^40 elements",
        CASES["model_of_2_to_the_40_elements"],
    ),
    "zero-cores": Promise(
        "a target with zero cores",
        CASES["target_zero_cores"],
    ),
    "negative-bandwidth": Promise(
        "a negative bandwidth",
        CASES["target_negative_bandwidth"],
    ),
    "unknown-key": Promise(
        "an unknown key",
        CASES["target_misspelt_field"],
    ),
    "alike": Promise(
        "alike ones collapsed",
        misspelt_twice,
    ),
    "another-model": Promise(
        "a schedule of another model",
        CASES["schedule_of_another_model"],
    ),
    "newer-database": Promise(
        "a database of a newer version",
        CASES["database_newer_version"],
    ),
    "corrupt-database": Promise(
        "a corrupt database",
        CASES["database_cut_short"],
    ),
    "ray": Promise(
        "an unreachable Ray address",
        lambda cli: ["tune", saved(cli, tiny()), "-q", "--trials", "2", "--ray", "127.0.0.1:1"],
    ),
    "worker": Promise(
        "a worker that dies",
        measured("dying", "--baselines", "graphturbo", trials=1),
        1,
        1,
    ),
    "hangs": Promise(
        "a measurer that hangs",
        measured("hanging", "--timeout", "0.3s"),
        1,
        2,
    ),
    "raises": Promise(
        "or raises",
        measured("raising"),
        1,
        2,
    ),
    "nan": Promise(
        "or returns NaN",
        measured("nan"),
        1,
        2,
    ),
    "plugin": Promise(
        "a measurer that is not there",
        measured("absent"),
    ),
    "data-path": Promise(
        "External data paths may not leave the model's folder",
        CASES["model_external_data_outside_of_its_folder"],
    ),
    "full-disk": Promise(
        "a full disk",
        on_a_full_disk,
        disk=True,
    ),
    "read-only": Promise(
        "a read-only folder",
        into_a_read_only_folder,
        disk=True,
    ),
    "read-only-database": Promise(
        "a read-only folder",
        database_in_a_read_only_folder,
        disk=True,
    ),
    "no-fit": Promise(
        "A model that no schedule fits",
        too_large,
        3,
        2,
    ),
}


@dataclasses.dataclass(frozen=True)
class Better:
    """What the product does in place of an error, and why.

    Attributes:
        what: words of the specification.
        make: writes what is needed; gives the command.
    """

    what: str
    make: Callable[[Cli], list[str]]


BETTER = {
    # scheduling needs shapes only: a model of which the weights were left behind is tuned as well
    "external-data": Better(
        "missing external data",
        inspected(without_weights()),
    ),
    # one operator must not stop a network: it runs alone, counted and named
    "opaque": Better(
        "unknown operator",
        inspected(foreign(shaped=True)),
    ),
}
