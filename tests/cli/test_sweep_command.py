"""``sweep``: the table, the files, and one line for what cannot be."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from autoturbo.hardware import load_target
from tests.cli import faulty_measurers
from tests.cli.command_line import Cli, cli_in

MODEL = ("alexnet", "--batch", "1", "--trials", "2", "--subgraphs", "0")
VARY = ("--vary", "lb.capacity_kib=512,1024")


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    return cli_in(tmp_path, monkeypatch)


@pytest.mark.full
def test_a_sweep_and_its_files(cli: Cli) -> None:
    ran = cli(
        "sweep",
        *MODEL,
        *VARY,
        "-o",
        "s.csv",
        "-o",
        "s.svg",
        "-o",
        "s.html",
        "--save-targets",
        "grid",
    )
    assert ran.status == 0, ran.err  # a slow machine tells how far it is
    lines = ran.out.splitlines()
    assert lines[0] == (
        "alexnet @ stcp920, float16: 2 targets, 2 trials each, seed 0 "
        "(simulated; this chip was never calibrated)"
    )
    assert lines[1].startswith("time: about ")
    assert [line.split()[:2] for line in lines[2:4]] == [["lb.", "vs"], ["capacity_kib", "latency"]]
    assert lines[-3:] == ["wrote s.csv", "wrote s.svg", "wrote s.html"]
    assert len(Path("s.csv").read_text().splitlines()) == 3
    assert "local buffer per core, KiB" in Path("s.html").read_text()
    assert Path("s.svg").read_text().endswith("</svg>\n")
    files = sorted(Path("grid").iterdir())
    assert [load_target(file).lb.capacity for file in files] == [1024 * 1024, 512 * 1024]

    priced = cli("sweep", *MODEL, *VARY, "--cost", "lb.capacity_kib=0.5", "-o", "s.csv")
    assert "cost: 0.5 * lb.capacity_kib" in priced.out.splitlines()
    assert ",cost,front," in Path("s.csv").read_text().splitlines()[0]

    assert "time: about 0:00" in priced.out.splitlines()  # every point is known

    again = cli("--json", "sweep", *MODEL, *VARY).object
    assert again["vary"] == {"lb.capacity_kib": [512, 1024]}
    assert again["known"] == 2
    assert [point["values"] for point in again["points"]] == [
        {"lb.capacity_kib": 512}, {"lb.capacity_kib": 1024},
    ]  # fmt: skip
    run = again["points"][0]["run"]
    assert cli("--json", "explain", run, "--no-what-if").object["run"] == run
    assert json.loads(files[0].read_text())["name"] == again["points"][1]["target"]


@pytest.mark.full
def test_plug_ins_measure_settings_of_neighbours_too(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Points borrow as they do with the simulator, whose figures this measurer repeats."""
    (cli.folder / "site").mkdir()
    faulty_measurers.install(cli.folder / "site", monkeypatch)
    words = (*MODEL[:3], "--trials", "6", "--sampler", "random", *VARY)
    found = [
        cli("--json", "sweep", *words, "--measurer", measurer).object["points"]
        for measurer in ("simulator", "right")
    ]
    told = [[(p["values"], p["best"]["latency_s"], p["from"]) for p in points] for points in found]
    assert told[0] == told[1]
    assert any(point["trials"] > 6 for point in found[1])


@pytest.mark.parametrize(
    ("flags", "error"),
    [
        ([], "--vary: nothing is varied; write "),
        (["--vary", "lb.capacity_kb=1"], "lb.capacity_kb: unknown field; did you mean 'capac"),
        (
            [*VARY, "-o", "s.txt"],
            "-o: s.txt is no table, page or plot; end its name in one of .csv, .html, .svg, ",
        ),
        ([*VARY, "-o", "no/s.csv"], "no/s.csv: "),
        (
            [*VARY, "--cost", "lb.capacity_kb=1"],
            "--cost: 'lb.capacity_kb' is not a number of the target; did you mean 'lb.capacity_kib",
        ),
        ([*VARY, "--effort", "quik"], "--effort: 'quik' is not known; did you mean 'quick'?"),
    ],
)
def test_what_cannot_be_is_one_line_before_anything_runs(
    cli: Cli, flags: list[str], error: str
) -> None:
    ran = cli("sweep", *MODEL, *flags)
    assert ran.status == 2
    assert ran.err.startswith(f"error: {error}")
    assert ran.err.count("\n") == 1
    assert not Path("autoturbo.db").exists()


@pytest.mark.full
def test_a_long_sweep_wants_to_be_agreed_to(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autoturbo.commands.tuning.sweep.LONG_S", 0.0)
    ran = cli("sweep", *MODEL, *VARY)
    assert ran.status == 2
    assert ran.err.startswith("error: 2 targets are expected to take about ")
    assert "add --yes" in ran.err
    assert not Path("autoturbo.db").exists()
    assert cli("sweep", *MODEL, *VARY, "--yes").status == 0


def test_a_grid_that_nothing_fits_has_status_3(cli: Cli) -> None:
    ran = cli("sweep", *MODEL, "--vary", "lb.capacity_kib=1")
    assert ran.status == 3
    assert "does not fit" in ran.out
    assert ran.err.startswith("error: no target of 1 fits the model: ")
