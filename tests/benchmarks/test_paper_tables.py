"""The command that prints the paper's tables beside ours, on its smallest networks."""

from __future__ import annotations

import dataclasses
import functools
import json
import math
from pathlib import Path
from typing import Any

import paper_plots
import paper_tables
import pytest
from paper_numbers import BERT_BATCHES, ROWS, USE
from paper_tables import Ours, mean_rows, means, measured, subsets

from autoturbo.datasets.workloads import PAPER_TEN
from autoturbo.hardware import load_target
from autoturbo.registry import SCHEDULERS

STCP920 = load_target("stcp920")
BY_LETTER = {row.letter: row for row in ROWS}


@functools.cache
def ours(letter: str) -> Ours:
    return measured(BY_LETTER[letter], STCP920)


def test_rows_are_the_workloads_of_the_paper_and_scopes_add_up() -> None:
    assert tuple(row.workload for row in ROWS) == PAPER_TEN
    assert set(paper_tables.SYSTEMS) <= set(SCHEDULERS.names())
    assert set(USE) <= set(PAPER_TEN)
    assert {row[0] for row in BERT_BATCHES} == {"tvm", "graphturbo"}


def test_figures_of_the_paper_agree_with_its_means() -> None:
    """Recomputed from the bars: 1.40 and 3.84, steps of 2.20 and 1.72, and 9.65 over TVM."""
    columns = list(zip(*(row.ablation for row in ROWS), strict=True))
    found = [means(column)[0] for column in columns]
    assert found == pytest.approx([1.40, 3.84, 5.78, 9.65], abs=0.01)
    steps = [
        means([b / a for a, b in zip(columns[i], columns[i + 1], strict=True)])[0] for i in (1, 2)
    ]
    assert steps == pytest.approx([2.20, 1.72], abs=0.01)


def test_means() -> None:
    assert means([1.0, 4.0]) == (2.5, 2.0)
    assert all(map(math.isnan, means([])))


def test_what_makes_a_row_impossible_or_doubtful() -> None:
    """DLRM with TVM is far below what DDR allows; ten times its figure would be above it."""
    dlrm = ours("F")
    assert dlrm.impossible == []
    assert len(dlrm.doubtful) == 1
    faster = dataclasses.replace(dlrm.row, tvm=dlrm.tvm_limit * 1.01)
    assert "more than DDR gives" in Ours(faster, STCP920, dlrm.found).impossible[0]
    most = dataclasses.replace(dlrm.row, tvm=dlrm.peak / dlrm.row.ablation[-1] * 1.02)
    reasons = Ours(most, STCP920, dlrm.found).impossible
    assert any("of peak" in reason for reason in reasons)


@pytest.mark.full
def test_impossible_rows_of_the_paper() -> None:
    """Section 5.2's BERT-256 and BERT-512 with TVM move more bytes than the chip can."""
    assert ours("E").impossible
    assert len(ours("E").impossible) == 2
    names = [name for name, _ in subsets([ours("E"), ours("F")])]
    assert names == ["all", "possible"]


@pytest.mark.full
def test_our_means_are_of_our_figures() -> None:
    lines = mean_rows([ours("E"), ours("F")], [paper_tables.graphturbo_pair])
    over = [o.over_tvm(o.best("graphturbo")[1]) for o in (ours("E"), ours("F"))]
    label, paper, found = lines[0]
    assert label == "arith. mean, all (EF)"
    assert paper == pytest.approx((7.25 + 3.67) / 2)
    assert found == pytest.approx(sum(over) / 2)


def test_a_batch_that_a_system_has_not_gives_way_to_its_best() -> None:
    dlrm = ours("F")
    best, found = dlrm.best("tvm")
    assert dlrm.at("tvm", 12345) is found
    assert dlrm.at("tvm", best) is found
    assert dlrm.over_tvm(found) == 1.0


def json_of(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    paper_tables.main([*arguments, "--json"])
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


@pytest.mark.full
def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    found = json_of(capsys, "--models", "f")
    assert [row["model"] for row in found["table_2"]] == ["F dlrm"]
    assert len(found["table_1"]) == len(BERT_BATCHES)
    assert found["table_3"][0]["tvm"] == [76, 12]
    rung = found["figure_15"]["rows"]["dlrm"]
    assert rung["order"][0] / rung["L1"][0] == pytest.approx(rung["+order"][0])
    assert rung["order"][1] / rung["L1"][1] == pytest.approx(rung["+order"][1])


def test_the_picture_is_the_same_each_time(tmp_path: Path) -> None:
    file = tmp_path / "figures.svg"
    paper_tables.plot([ours("F")], file)
    text = file.read_text("utf-8")
    assert "AStitch, paper" in text
    assert "+ instruction scheduling, ours" in text
    again = tmp_path / "again.svg"
    paper_tables.plot([ours("F")], again)
    assert again.read_bytes() == file.read_bytes()


def test_a_bar_is_as_high_as_its_number() -> None:
    from matplotlib.figure import Figure
    from matplotlib.patches import Rectangle

    axes = Figure().subplots()
    rows: paper_plots.Rows = {"a": {"X": (2.0, 4.0)}, "b": {"X": None}}
    paper_plots._bars(axes, rows, [paper_plots.Bars("X", "x", "red")], "title")
    heights = [bar.get_height() for bar in axes.patches if isinstance(bar, Rectangle)]
    assert heights[::2] == [2.0, 4.0]
    assert all(map(math.isnan, heights[1::2]))


def test_a_row_that_there_is_not() -> None:
    with pytest.raises(SystemExit, match="no row X; they are A to J"):
        paper_tables.main(["--models", "A,X"])


def test_other_tuners_stand_beside_what_is_published(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import other_tuners

    small = ("squeezenet1_1",)
    rows = {
        "dlfusion": (list, other_tuners.print_dlfusion),
        "partition_tuner": (
            lambda: other_tuners.partition_tuner_rows(small), other_tuners.print_partition_tuner
        ),
    }  # fmt: skip
    monkeypatch.setattr(paper_tables, "TUNERS", rows)
    found = json_of(capsys, "--tuners", "partition_tuner")
    (row,) = found["partition_tuner"]
    assert row["over_profiled"]["published"] == 2.73
    gain = 100 * (row["static"] / row["partition_tuner"] - 1)
    assert row["over_static"]["ours"] == pytest.approx(gain)
    paper_tables.main(["--tuners", "dlfusion,partition_tuner"])
    text = capsys.readouterr().out
    assert "speed-up over no optimisation (p. 3.6 to 7.9)" in text
    assert "+5.03" in text


def test_dlfusions_table_has_every_strategy(monkeypatch: pytest.MonkeyPatch) -> None:
    import other_tuners

    from autoturbo.baselines.dlfusion import CoreModel

    allowed = (1, 2, 4, 8, 16, 32)
    monkeypatch.setattr(
        other_tuners, "core_model", lambda *_: CoreModel(2.0, 0.0, 0.0, 1e8, allowed)
    )
    (row,) = other_tuners.dlfusion_rows(("alexnet",))
    assert row["published"] == (3.6, 7.9)
    assert row["dlfusion"] > 1
    assert set(row) == {
        "model", "published", "fixed_cores", "layer_cores", "fuse_all", "fixed_blocks", "dlfusion",
    }  # fmt: skip


def test_a_tuner_that_there_is_not() -> None:
    with pytest.raises(SystemExit, match="no ios; they are dlfusion, partition_tuner"):
        paper_tables.main(["--tuners", "ios"])
