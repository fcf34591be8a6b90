"""The command that collects measurements and shows them."""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path

import numpy as np
import pytest

from autoturbo.commands.loading import load_model
from autoturbo.commands.registry import build_parser
from autoturbo.commands.upkeep.dataset import space_draws
from autoturbo.datasets import workloads
from autoturbo.datasets.measurements import load_measurements
from autoturbo.extras import how_to_install
from autoturbo.hardware import load_target, preset_names
from autoturbo.schedule.knobs import AUTO
from tests.cli.command_line import Cli, cli_in

pytest.importorskip("pyarrow")

ROOT = Path(__file__).resolve().parents[2]
COLLECT = (
    *("dataset", "collect", "alexnet", "--batch", "1", "--target", "goya"),
    *("--settings", "6", "-o", "data"),
)


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    return cli_in(tmp_path, monkeypatch)


def test_collect_then_stats(cli: Cli, tmp_path: Path) -> None:
    ran = cli(*COLLECT)
    assert (ran.status, ran.err) == (0, "")
    first, *_, last = ran.out.splitlines()
    assert first.startswith("1/1 alexnet-b1-goya-int8: 6 settings, ")
    assert last == "'autoturbo dataset stats data' shows what is in it"
    card = json.loads((tmp_path / "data" / "card.json").read_text())
    assert cli("--json", "dataset", "stats", "data").object == card
    assert card["recipe"]["command"] == (
        "autoturbo dataset collect alexnet --target goya --batch 1"
        " --vary-targets 0 --settings 6 --seed 0 --subgraphs 8"
    )
    shown = cli("dataset", "stats", "data").out
    assert "data: 6 settings, " in shown
    assert "alexnet" in shown
    assert "weight_residency" not in shown
    assert "weight_residency" in cli("dataset", "stats", "data", "-v").out


def test_collect_again_makes_nothing_anew(cli: Cli) -> None:
    whole = cli("--json", *COLLECT).object
    assert cli("--json", *COLLECT, "-v").object == whole
    assert "already there" in cli(*COLLECT, "-v").out


@pytest.mark.full
def test_several_targets_batches_and_types(cli: Cli, tmp_path: Path) -> None:
    cli(
        *("-q", "dataset", "collect", "alexnet"),
        *("--target", "goya", "--target", "ascend-910"),
        *("--batch", "1", "--batch", "2", "--dtype", "float16", "--dtype", "int8"),
        *("--vary-targets", "1", "--settings", "1", "-o", "data", "--seed", "5"),
    )  # fmt: skip
    data = load_measurements(tmp_path / "data")
    pairs = list(zip(data.settings["target"], data.settings["dtype"], strict=True))
    targets = ["goya", "goya-v5.1", "ascend-910", "ascend-910-v5.1"]
    known = {
        target.name: [d for d in ("float16", "int8") if target.supports(d)]
        for target in data.targets.values()
    }
    assert set(known) == set(targets)
    assert pairs == [(name, dtype) for name in targets for dtype in known[name]] * 2


def test_a_type_that_a_target_lacks(cli: Cli) -> None:
    ran = cli(*COLLECT, "--dtype", "bfloat16")
    assert ran.status == 2
    assert ran.err.startswith("error: --dtype: goya computes in none of bfloat16; one of ")


def test_other_arguments_for_the_same_folder(cli: Cli) -> None:
    cli(*COLLECT)
    ran = cli(*COLLECT, "--seed", "1")
    assert ran.status == 2
    assert ran.err == (
        "error: data/collection.json: another data set was begun here: seed, recipe differ;"
        " give the same arguments to go on with it, or another folder\n"
    )


def test_interrupted_it_says_how_to_go_on(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_arguments: object, **_options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("autoturbo.datasets.measurements.collect", interrupted)
    ran = cli(*COLLECT)
    assert ran.status == 130
    assert ran.err == (
        "error: interrupted; the same command goes on; the shards that are done are kept\n"
    )


def test_stats_of_what_is_none(cli: Cli) -> None:
    ran = cli("dataset", "stats", "nowhere")
    assert ran.status == 2
    assert ran.err == (
        "error: nowhere/collection.json: no data set that can be read;"
        " make one with 'autoturbo dataset collect'\n"
    )


def test_without_pyarrow(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    for arguments in (COLLECT, ("dataset", "stats", "data")):
        ran = cli(*arguments)
        assert ran.status == 2
        assert ran.err == (
            "error: data sets are Parquet files, which need pyarrow, which is not installed;"
            f" {how_to_install('parquet')}\n"
        )


def test_the_pretrained_models_data_set_is_one_that_can_be_collected() -> None:
    script = runpy.run_path(str(ROOT / "datasets" / "collect.py"))
    options = build_parser().parse_args(script["command"](["data", "--jobs", "2"]))
    assert (str(options.output), options.jobs) == ("data", 2)
    assert set(options.models) <= set(workloads.names())
    assert set(options.targets) <= set(preset_names())


def test_a_sample_draws_from_the_space_of_a_search() -> None:
    graph, target = load_model("alexnet", batch=1), load_target("goya")
    draws = space_draws(graph, target, "int8", subgraphs=4)
    rng = np.random.default_rng(0)
    first, *others = map(draws.knobs, draws.starts)
    assert first.as_dict() == {}
    assert any(start.fetch_ahead != AUTO for start in others)  # loads run over kernels
    points = [draws.random(rng, dense=dense) for dense in (False, True) for _ in range(20)]
    own = [len(draws.knobs(point).overrides) for point in points]
    assert sum(own[:20]) < sum(own[20:])
    for point in points:
        near = draws.mutant(rng, point, 0.0)
        assert near != point
        assert draws.knobs(near) != draws.knobs(point)
