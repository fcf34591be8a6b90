"""What people fix holds in what is handed out, is told, and is never taken for a free result."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from autoturbo.graph.layers import layers_of
from autoturbo.graph.onnx_import import import_model
from tests.cli.bad_files import saved, tiny
from tests.cli.command_line import Cli, cli_in


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    return cli_in(tmp_path, monkeypatch)


@pytest.fixture
def model(cli: Cli) -> str:
    return saved(cli, tiny())


def layer(model: str) -> str:
    return layers_of(import_model(model))[-1].name


@pytest.mark.full
def test_a_pinned_result_has_the_pins_and_is_told_as_pinned(cli: Cli, model: str) -> None:
    name = layer(model)
    flags = ["--fix", "prefetch_depth=3", "--fix", f"{name}.tile_subdivision=2"]
    ran = cli("--json", "tune", model, "--trials", "8", *flags, "--allow", "split_dims=auto,batch")
    assert ran.status == 0, ran.err
    run = ran.object["run"]
    schedule = json.loads((cli.folder / ran.object["schedule_file"]).read_text())
    knobs = schedule["knobs"]
    assert knobs["prefetch_depth"] == 3
    assert {"layer": name, "tile_subdivision": 2}.items() <= knobs["overrides"][-1].items()
    shown = cli("show", run).out
    (said,) = [line for line in shown.splitlines() if line.startswith("pinned: by you: ")]
    for pin in ("prefetch_depth=3", f"{name}.tile_subdivision=2", "split_dims=auto,batch allowed"):
        assert pin in said
    assert "--fix prefetch_depth=3" in shown
    assert f"--fix {name}.tile_subdivision=2" in shown
    assert f"{run} (pinned)" in cli("db", "best").out
    assert cli("report", run).status == 0
    assert "Pinned by you: " in next(
        " ".join(page.read_text().split()) for page in cli.folder.glob("runs/*/report.html")
    )
    free = cli("--json", "tune", model, "--trials", "8").object
    assert free["run"] != run
    keys = {best["scheduler_version"] for best in cli("--json", "db", "best").object["best"]}
    assert len(keys) == 2
    again = cli("--json", "resume", run, "--trials", "12", "--fix", "prefetch_depth=3")
    assert again.status == 2
    assert "began with other constraints (fixed)" in again.out
    assert cli("--json", "resume", run, "--trials", "12", *flags).status == 0


def test_what_is_shown_can_be_pasted_back_and_files_are_taken(cli: Cli, model: str) -> None:
    found = cli("--json", "tune", model, "--trials", "8").object
    knobs = cli("--json", "show", found["run"]).object["knobs"]
    (cli.folder / "knobs.json").write_text(json.dumps(knobs))
    pinned = cli("--json", "tune", model, "--trials", "4", "--fix", "knobs.json").object
    assert pinned["best"]["latency_s"] <= found["best"]["latency_s"]
    begun = cli(
        "--json", "tune", model, "--trials", "2", "--no-warm-starts",
        "--begin", found["schedule_file"], "--db", "other.db",
    )  # fmt: skip
    assert begun.status == 0, begun.err
    assert begun.object["best"]["latency_s"] == found["best"]["latency_s"]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (
            ["--fix", "prefech_depth=3"],
            "prefech_depth: unknown knob; did you mean 'prefetch_depth'",
        ),
        (["--fix", "prefetch_depth=99"], "prefetch_depth: 99 is out of range"),
        (["--fix", "nothing.json"], "--fix: 'nothing.json' is no KNOB=VALUE and no file"),
        (["--fix", "binding=always", "--fix", "binding=printed"], "--fix: binding is fixed twice"),
        (["--allow", "split_dims"], "--allow: 'split_dims' is no KNOB=V1,V2"),
        (["--cut", "nothing"], "nothing.boundary: the model has no layer 'nothing'"),
        (["--target", "ipu-mk2", "--fix", "output_scope=GB"], "'GB' has no place on ipu-mk2"),
        (["--begin", "nothing.json"], "nothing.json: cannot read"),
    ],
)
def test_a_pin_that_makes_no_sense_is_one_line(
    cli: Cli, model: str, flags: list[str], message: str
) -> None:
    ran = cli("tune", model, "-q", "--trials", "2", *flags)
    assert (ran.status, ran.err.count("\n")) == (2, 1)
    assert message in ran.err


def test_a_search_that_ends_before_anything_has_the_pins_says_so(cli: Cli, model: str) -> None:
    ran = cli("tune", model, "--trials", "1", "--fix", "tile_subdivision=2")
    assert (ran.status, "no trial so far has what is pinned" in ran.err) == (1, True)
