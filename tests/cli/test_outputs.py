"""No output replaces an input, the database, or a file of another kind."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import onnx
import pytest

import autoturbo
from autoturbo.database import Database, check, holding
from autoturbo.errors import AutoTurboError
from autoturbo.files import Kind, Outputs
from tests.cli.bad_files import saved, tiny
from tests.cli.command_line import Cli, cli_in

DATABASE = "autoturbo.db"


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    return cli_in(tmp_path, monkeypatch)


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A folder with a model, a database of one run of it, and the run's id."""
    folder = tmp_path_factory.mktemp("tuned")
    with pytest.MonkeyPatch.context() as patch:
        cli = cli_in(folder, patch)
        flags = ("--trials", "3", "-q", "--no-transfer")
        ran = cli("--json", "tune", saved(cli, tiny()), *flags)
        assert ran.status == 0, ran.err
    return folder, ran.object["run"]


@pytest.fixture
def run(tuned: tuple[Path, str], cli: Cli) -> str:
    """The run's id, in a copy of that folder."""
    shutil.copytree(tuned[0], cli.folder, dirs_exist_ok=True)
    return tuned[1]


def writing(run: str) -> dict[str, tuple[str, ...]]:
    """Commands that write a file, whose name follows."""
    return {
        "tune": ("tune", "tiny.onnx", "--trials", "2", "--no-transfer", "-o"),
        "resume": ("resume", run, "-o"),
        "apply": ("apply", "tiny.onnx", "-o"),
        "report": ("report", run, "-o"),
        "diff": ("diff", run, run, "--html"),
        "trace": ("trace", run, "-o"),
        "db best": ("db", "best", "-o"),
        "db export": ("db", "export"),
    }


COMMANDS = sorted(writing(""))
FAST = ("apply", "db export", "trace", "tune")
EVERY = pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n in FAST else pytest.mark.full) for n in COMMANDS]
)


def contents(folder: Path) -> dict[str, bytes]:
    """Every file that holds something, but those of run folders, which hold times."""
    files = (f for f in folder.rglob("*") if f.is_file() and "runs" not in f.parts)
    found = {str(f.relative_to(folder)): f.read_bytes() for f in files if f.suffix != ".db-shm"}
    return {name: content for name, content in found.items() if content}


def refuses(cli: Cli, command: tuple[str, ...], place: str, why: str) -> None:
    """One located line, status 2, with and without --force, and nothing is touched."""
    for more in ((), ("--force",)):
        before = contents(cli.folder)
        ran = cli(*command, place, *more)
        assert (ran.status, ran.err) == (2, f"error: {place}: {why}; give another name\n")
        assert contents(cli.folder) == before


ITSELF = "it would replace the database itself"
BESIDE = "it would replace what is kept beside the database"
INPUT = "it would replace an input of the same call"


@EVERY
def test_the_database_is_not_replaced(cli: Cli, run: str, name: str) -> None:
    command = writing(run)[name]
    refuses(cli, command, DATABASE, ITSELF)
    assert check(DATABASE).sound


@pytest.mark.parametrize("place", ["link", "hard", "around", "case", "dangling"])
def test_the_database_under_other_names(cli: Cli, run: str, place: str) -> None:
    names = {"around": f"../{cli.folder.name}/{DATABASE}", "case": "AutoTurbo.DB"}
    if place == "hard":
        Path(place).hardlink_to(DATABASE)
    elif place in ("link", "dangling"):
        Path(place).symlink_to(cli.folder / DATABASE)
    command: tuple[str, ...] = ("db", "best", "-o")
    if place == "dangling":  # the command makes the database that the link leads to
        Path(DATABASE).unlink()
        command = writing(run)["tune"]
    refuses(cli, command, names.get(place, place), ITSELF)


@pytest.mark.parametrize(
    ("end", "there"),
    [("-wal", True), ("-journal", False), (".4f1c.lock", False), ("-SHM", False)],
)
def test_what_is_kept_beside_the_database(cli: Cli, run: str, end: str, *, there: bool) -> None:
    place = f"{DATABASE}{end}"
    if there:
        Path(place).touch()
    refuses(cli, ("db", "export"), place, BESIDE)
    refuses(cli, writing(run)["tune"], place, BESIDE)


def test_the_lock_of_a_run_that_goes_on(cli: Cli, run: str) -> None:
    with Database.open(DATABASE) as database, database.holding(run):
        place = holding.lock_file(Path(DATABASE), run).name
        refuses(cli, ("db", "best", "-o"), place, BESIDE)


@pytest.mark.usefixtures("run")
def test_the_log_of_another_database(cli: Cli) -> None:
    shutil.copy(DATABASE, "other.db")
    why = "it is for what SQLite keeps beside a database"
    refuses(cli, ("db", "best", "-o"), "other.db-wal", why)


@pytest.mark.parametrize(
    ("name", "way"),
    [("tune", "same"), ("apply", "link"), ("report", "hard"), ("trace", "around"),
     ("resume", "same"), ("diff", "hard")],
)  # fmt: skip
def test_the_model_is_not_replaced(cli: Cli, run: str, name: str, way: str) -> None:
    place = {"same": "tiny.onnx", "around": f"../{cli.folder.name}/tiny.onnx"}.get(way, "out.onnx")
    if way == "link":
        Path(place).symlink_to("tiny.onnx")
    if way == "hard":
        Path(place).hardlink_to("tiny.onnx")
    refuses(cli, writing(run)[name], place, INPUT)


@pytest.mark.usefixtures("run")
def test_other_inputs_are_not_replaced(cli: Cli) -> None:
    Path("knobs.json").write_text("{}")
    refuses(cli, ("apply", "tiny.onnx", "--knobs", "knobs.json", "-o"), "knobs.json", INPUT)
    assert cli("db", "best", "-o", "best.json").status == 0
    refuses(cli, ("apply", "tiny.onnx", "--schedule", "best.json", "-o"), "best.json", INPUT)
    assert cli("targets", "scaffold").status == 0
    Path("mine.yaml").write_text(cli("targets", "scaffold").out)
    command = ("tune", "tiny.onnx", "--target", "mine.yaml", "--trials", "2", "-o")
    refuses(cli, command, "mine.yaml", INPUT)


@EVERY
def test_a_file_of_another_kind_is_replaced_only_by_force(cli: Cli, run: str, name: str) -> None:
    suffix = ".jsonl" if name == "db export" else ".txt"
    place = f"precious{suffix}"
    for content, what in (
        ("my notes\n", "another file"),
        ('{"my": "settings"}', "a JSON file"),
        (b"SQLite format 3\0 and more", "an SQLite database"),
    ):
        cli.write(place, content)
        before = contents(cli.folder)
        ran = cli(*writing(run)[name], place)
        assert ran.status == 2
        assert ran.err.startswith(f"error: {place}: {what} is there, which is not a")
        assert ran.err.endswith("; give another name, or replace it with --force\n")
        assert contents(cli.folder) == before
        ran = cli(*writing(run)[name], place, "--force")
        assert ran.status == 0, ran.err
        assert contents(cli.folder)[place] != before[place]


@pytest.mark.parametrize(
    ("name", "place"),
    [("tune", "out.out"), ("trace", "out.out"), ("db export", "out.db"),
     *(pytest.param(name, place, marks=pytest.mark.full) for name, place in (
         ("apply", "out.out"), ("report", "out.out"), ("db best", "out.out"),
         ("apply", "out.json"), ("db export", "out.jsonl")))],
)  # fmt: skip
def test_an_output_replaces_its_own_kind_and_what_is_empty(
    cli: Cli, run: str, name: str, place: str
) -> None:
    Path(place).touch()
    for _ in range(2):
        ran = cli(*writing(run)[name], place)
        assert ran.status == 0, ran.err


@pytest.mark.full
def test_what_one_command_wrote_another_does_not_replace(cli: Cli, run: str) -> None:
    kinds = ["apply", "report", "trace", "db best", "db export"]
    places = {name: f"{name}.jsonl" if name == "db export" else f"{name}.out" for name in kinds}
    for name in kinds:
        assert cli(*writing(run)[name], places[name]).status == 0
    for name in kinds:
        for other, place in places.items():
            if name != other:
                assert cli(*writing(run)[name], place).status == 2, (name, other)


def test_a_working_database_is_not_replaced_by_an_export(cli: Cli, run: str) -> None:
    shutil.copy(DATABASE, "other.db")
    ran = cli("db", "export", "other.db")
    assert ran.status == 2
    assert "an SQLite database is there, which is not an exported database" in ran.err
    assert run in cli("runs", "--db", "other.db").out


@pytest.mark.full
@pytest.mark.usefixtures("run")
def test_sweeps(cli: Cli) -> None:
    command = ("sweep", "tiny.onnx", "--vary", "clusters=1,2", "--trials", "2")
    Path("sweep.csv").write_text("a,b\n1,2\n")
    assert "another file is there" in cli(*command, "-o", "sweep.csv").err
    Path("sweep.csv").unlink()
    Path("targets").mkdir()
    both = (*command, "-o", "sweep.csv", "--save-targets", "targets")
    for _ in range(2):
        ran = cli(*both)
        assert ran.status == 0, ran.err
    (file, *_) = Path("targets").iterdir()
    file.write_text("precious")
    assert cli(*both).status == 2
    assert file.read_text() == "precious"


@pytest.mark.usefixtures("run")
def test_a_cost_model_does_not_replace_its_data_set(cli: Cli) -> None:
    Path("data").mkdir()
    Path("data/card.json").write_text('{"latency_over_default": 1}')
    before = contents(cli.folder)
    for more in ((), ("--force",)):
        ran = cli("cost-model", "train", "data", "-o", "data", *more)
        assert (ran.status, ran.err.count("\n")) == (2, 1)
        assert "data/card.json: it would replace an input" in ran.err
    assert contents(cli.folder) == before


@pytest.mark.usefixtures("run")
def test_a_data_set_does_not_replace_a_readme(cli: Cli) -> None:
    Path("README.md").write_text("# My project\n")
    ran = cli("dataset", "collect", "tiny.onnx", "-o", ".")
    assert (ran.status, ran.err.count("\n")) == (2, 1)
    assert "README.md: another file is there, which is not the description of a data" in ran.err
    assert Path("README.md").read_text() == "# My project\n"


@pytest.mark.usefixtures("run")
def test_weights_of_the_model_are_not_replaced_by_force(cli: Cli) -> None:
    model = onnx.load("tiny.onnx")
    for tensor in model.graph.initializer:  # raw, as files outside hold them
        values = onnx.numpy_helper.to_array(tensor)
        tensor.CopyFrom(onnx.numpy_helper.from_array(values, tensor.name))
    onnx.save(model, "big.onnx", save_as_external_data=True, location="w.bin", size_threshold=0)
    before = Path("w.bin").read_bytes()
    ran = cli("tune", "big.onnx", "--trials", "2", "-o", "w.bin")
    assert (ran.status, ran.err.count("\n")) == (2, 1)
    ran = cli("tune", "big.onnx", "--trials", "2", "-o", "w.bin", "--force")
    assert ran.status == 2
    assert ran.err == "error: w.bin: it would replace the weights of an input; give another name\n"
    assert Path("w.bin").read_bytes() == before


@pytest.mark.usefixtures("run")
def test_a_device_is_written(cli: Cli) -> None:
    assert cli("db", "best", "-o", "/dev/null").status == 0


@pytest.mark.usefixtures("run")
def test_the_api_too(cli: Cli) -> None:
    model, target = autoturbo.load_model("tiny.onnx"), autoturbo.load_target("stcp920")
    assert cli("db", "best", "-o", "best.json").status == 0
    schedule = autoturbo.load_schedule("best.json", model, target)
    for place in (DATABASE, "tiny.onnx", f"{DATABASE}-wal"):
        before = contents(cli.folder)
        with pytest.raises(AutoTurboError, match=r"is there, which|replace an input|SQLite keeps"):
            schedule.save(place)
        assert contents(cli.folder) == before
    schedule.save("out.json")
    schedule.save("out.json")
    Path("notes.txt").write_text("notes")
    with pytest.raises(AutoTurboError, match="another file is there"):
        schedule.save("notes.txt")
    schedule.save("notes.txt", force=True)
    assert Path("notes.txt").read_text() == schedule.text
    with Database.open(DATABASE) as database:
        with pytest.raises(AutoTurboError, match="replace the database itself"):
            database.export(DATABASE, force=True)
        assert database.counts().runs == 1


def test_a_file_that_cannot_be_read_is_not_replaced(tmp_path: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root reads everything")
    place = tmp_path / "out.json"
    place.write_text("x")
    place.chmod(0)
    with pytest.raises(AutoTurboError, match="cannot be read"):
        Outputs().check(place, Kind.SCHEDULE)


def test_recognition_is_not_fooled_by_beginnings(tmp_path: Path) -> None:
    """Every kind refuses what every other kind accepts, but for plain numbers."""
    samples = {
        Kind.SVG: b"<?xml version='1.0'?>\n<svg>", Kind.PNG: b"\x89PNG\r\n", Kind.PDF: b"%PDF-1.4",
        Kind.TRACE: b'{"traceEvents": []}', Kind.TREES: b"{L\0\0",
    }  # fmt: skip
    for kind, content in samples.items():
        place = tmp_path / "out"
        place.write_bytes(content)
        for other in Kind:
            if other is kind:
                Outputs().check(place, other)
            else:
                with pytest.raises(AutoTurboError, match=f"{kind.value[:6]}"):
                    Outputs().check(place, other)
