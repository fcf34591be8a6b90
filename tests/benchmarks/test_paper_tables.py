"""The command that prints the paper's tables beside ours, on its smallest networks."""

from __future__ import annotations

import dataclasses
import functools
import json
from typing import Any

import paper_tables
import pytest
from paper_numbers import BERT_BATCHES, ROWS, USE
from paper_tables import Ours, means, measured, subsets

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


@pytest.mark.full
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
