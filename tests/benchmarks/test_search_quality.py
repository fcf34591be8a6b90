"""The command that compares samplers, on one small network."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import search_quality
from search_quality import (
    ahead,
    best_known,
    collect,
    gaps,
    load,
    print_tables,
    quartiles,
    samplers_in,
    save,
)

from autoturbo.errors import UsageError

pytestmark = pytest.mark.full

PAIR = "squeezenet1_1@stcp920"


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("quality") / "results.json"
    collect(found, ["squeezenet1_1"], ["stcp920"], ["cost-model", "random"], [0, 1], 20)
    return found


def test_every_run_is_there_with_the_best_after_each_measurement(file: Path) -> None:
    runs = load(file)["runs"][PAIR]
    assert set(runs) == {"cost-model/0", "cost-model/1", "random/0", "random/1"}
    for run in runs.values():
        assert len(run) == 20
        assert run == sorted(run, reverse=True)
    assert len({run[0] for run in runs.values()}) == 1  # trial 0 is the published heuristic


def test_a_run_does_not_depend_on_what_was_measured_before(file: Path, tmp_path: Path) -> None:
    again = collect(tmp_path / "a.json", ["squeezenet1_1"], ["stcp920"], ["random"], [1], 20)
    assert again["runs"][PAIR]["random/1"] == load(file)["runs"][PAIR]["random/1"]


def test_runs_that_are_there_are_not_made_again(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = tmp_path / "copy.json"
    copy.write_bytes(file.read_bytes())
    made = []

    def run(pair: object, sampler: str, seed: int, trials: int) -> list[float | None]:
        del pair
        made.append((sampler, seed))
        return [1.0] * trials

    monkeypatch.setattr(search_quality, "run", run)
    collect(copy, ["squeezenet1_1"], ["stcp920"], ["cost-model", "random", "tpe"], [0, 1, 2], 20)
    assert made == [("tpe", 0), ("tpe", 1), ("cost-model", 2), ("random", 2), ("tpe", 2)]
    assert load(copy)["runs"][PAIR]["tpe/0"][0] == 1.0


def test_a_sampler_without_its_package_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    out = tmp_path / "out.json"
    found = collect(out, ["squeezenet1_1"], ["stcp920"], ["gp", "random"], [0, 1], 2)
    assert set(found["runs"][PAIR]) == {"random/0", "random/1"}
    assert "torch" in found["notes"]["gp"]
    assert capsys.readouterr().out.count("passed over") == 1


def results() -> dict[str, Any]:
    """Two pairs by hand; in the second nothing runs at first."""
    one = {
        "cost-model/0": [4.0] * 10, "cost-model/1": [3.0] * 9 + [2.2], "cost-model/2": [2.2] * 10,
        "random/0": [4.0] * 10, "random/1": [4.0] * 10, "random/2": [4.0] * 9 + [3.0],
    }  # fmt: skip
    two = {"cost-model/0": [None] * 9 + [6.0], "random/0": [5.0] * 10}
    exact = {"a@t": {"seconds": 2.5, "freed_seconds": 2.0, "exact": True, "took_s": 1.0}}
    return {"format": 1, "runs": {"a@t": one, "b@t": two}, "exact": exact, "notes": {"gp": "torch"}}


def test_gaps_are_to_the_best_of_all_runs_and_of_the_dynamic_programme() -> None:
    found = results()
    assert best_known(found, "a@t") == 2.0
    assert best_known(found, "b@t") == 5.0
    assert gaps(found, "a@t", "cost-model", 9) == pytest.approx([1.0, 0.5, 0.1])
    assert gaps(found, "b@t", "cost-model", 9) == [float("inf")]
    assert gaps(found, "b@t", "random", 10) == [0.0]
    assert gaps(found, "a@t", "random", 11) == []
    assert ahead(found, "random", 10) == (1, 2)
    assert quartiles([1.0, 2.0, 3.0, 4.0, 5.0]) == (2.0, 3.0, 4.0)
    assert quartiles([7.0]) == (7.0, 7.0, 7.0)


def test_the_tables_say_what_the_results_are(capsys: pytest.CaptureFixture[str]) -> None:
    found = results()
    print_tables(found)
    text = capsys.readouterr().out
    assert samplers_in(found) == ["cost-model", "random"]
    assert "10.00 (10.00 to 55.00)" in text
    assert "1 of 2" in text
    assert "25.00" in text
    assert "gp is left out: torch" in text


def test_only_its_own_files_are_read(tmp_path: Path) -> None:
    other = tmp_path / "other.json"
    for text in ("[1, 2", json.dumps({"format": 9})):
        other.write_text(text)
        with pytest.raises(UsageError, match="holds no results"):
            load(other)
    assert load(tmp_path / "none.json")["runs"] == {}
    save(other, results())
    assert load(other) == results()


def test_the_command_prints_a_file(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    search_quality.main(["--table", str(file)])
    text = capsys.readouterr().out
    assert PAIR in text
    assert "pairs in which cost-model is ahead" in text
