"""The benchmark on tables of others, on a small table of our own."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import numpy as np
import optuna
import pytest
import tuning_spaces
from tuning_spaces import FOLDER, Point, TuningSpace, compare, curve, over_optimum, searcher

from autoturbo.errors import UsageError

SIZES, DEPTHS = (1, 2, 4, 8, 12, 16, 24, 32), (1, 2, 3, 4, 5, 6, 7, 8)


@pytest.fixture(autouse=True)
def _quiet() -> None:
    optuna.logging.set_verbosity(optuna.logging.ERROR)


def table(file: Path, repeats: int = 3) -> TuningSpace:
    """A smooth valley with its bottom at 8 and 3: small areas are forbidden, one row fails."""
    head = ["size", "depth", "flag", "status", *(f"ms_{i}" for i in range(repeats))]
    lines = [",".join(head)]
    for size in SIZES:
        for depth in DEPTHS:
            for flag in (0, 1):
                if size * depth < 4:
                    continue
                time = 1 + math.log2(size / 8) ** 2 + (depth - 3) ** 2 / 4 + flag / 2
                ran = (size, depth, flag) != (32, 8, 1)
                times = [f"{time * (1 + 0.01 * i):.4f}" if ran else "" for i in range(repeats)]
                lines.append(
                    ",".join([f"{size},{depth},{flag}", "correct" if ran else "runtime", *times])
                )
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return TuningSpace.load(file)


class Listed:
    """Proposes what it was given, and the last of it for ever."""

    def __init__(self, *points: Point) -> None:
        self.points, self.told = list(points), list[float | None]()

    def ask(self) -> Point:
        return self.points.pop(0) if len(self.points) > 1 else self.points[0]

    def tell(self, point: Point, time: float | None) -> None:
        del point
        self.told.append(time)


def test_a_table_is_read(tmp_path: Path) -> None:
    space = table(tmp_path / "valley.csv")
    assert space.name == "valley"
    assert space.parameters == {"size": SIZES, "depth": DEPTHS, "flag": (0, 1)}
    assert len(space.rows) == 8 * 8 * 2 - 2 * 4
    assert np.isnan(space.truth).sum() == 1
    assert np.nanmin(space.truth) == pytest.approx(1.01)  # the median of 1, 1.01 and 1.02


def test_who_proposes_the_optimum_is_nothing_over_it(tmp_path: Path) -> None:
    space = table(tmp_path / "valley.csv")
    assert over_optimum([curve(space, Listed((3, 2, 0)), 0, 5)] * 2, 5) == 0


def test_percentages_are_of_geometric_means() -> None:
    assert over_optimum([[2.0, 1.0], [8.0, 1.0]], 1) == pytest.approx(300)
    assert over_optimum([[2.0, 1.0], [8.0, 1.0]], 2) == 0


def test_restrictions_cost_nothing_and_failures_a_measurement(tmp_path: Path) -> None:
    space = table(tmp_path / "valley.csv")
    search = Listed((0, 0, 0), (0, 1, 1), (7, 7, 1), (3, 2, 1), (3, 2, 0))
    ratios = curve(space, search, 0, 3)
    worst = float(np.nanmax(space.truth)) / float(np.nanmin(space.truth))
    assert ratios == [worst, pytest.approx(1.5), 1.0]
    assert search.told[:3] == [None, None, None]


def test_a_search_that_only_breaks_restrictions_ends(tmp_path: Path) -> None:
    ratios = curve(table(tmp_path / "valley.csv"), Listed((0, 0, 0)), 0, 2)
    assert len(ratios) == 2
    assert ratios[0] > 1


def test_a_seed_draws_the_same_repeats_another_one_others(tmp_path: Path) -> None:
    space = table(tmp_path / "valley.csv")
    np.testing.assert_array_equal(space.drawn(1), space.drawn(1))
    assert not np.array_equal(space.drawn(1), space.drawn(2), equal_nan=True)


@pytest.mark.parametrize("sampler", ["cost-model", "random", "local"])
def test_the_same_seed_goes_the_same_way(sampler: str, tmp_path: Path) -> None:
    space = table(tmp_path / "valley.csv")
    once, again = (curve(space, searcher(space, sampler, 3), 3, 14) for _ in range(2))
    assert once == again


def test_ours_beats_chance_in_a_smooth_valley(tmp_path: Path) -> None:
    space = table(tmp_path / "valley.csv")
    ours, chance = (
        over_optimum([curve(space, searcher(space, name, s), s, 24) for s in range(3)], 24)
        for name in ("cost-model", "random")
    )
    assert ours < chance
    assert ours < 5


def test_the_table_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table(tmp_path / "valley.csv")
    file = str(tmp_path / "valley.csv")
    tuning_spaces.main(
        ["--spaces", file, "--seeds", "1", "--samplers", "random,local", "--trials", "30"]
    )
    _, head, random, local = capsys.readouterr().out.splitlines()
    assert head.split() == ["space", "sampler", "after", "25", "30"]
    assert (random.split()[:2], local.split()[:2]) == (["valley", "random"], ["valley", "local"])


def test_a_missing_package_leaves_a_sampler_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    space = table(tmp_path / "valley.csv")
    assert list(compare([space], ["gp"], 1, (2,))) == [("valley", "gp", "-")]
    with pytest.raises(UsageError):
        list(compare([space], ["gpp"], 1, (2,)))


def test_another_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("a,b\n1,2\n", encoding="utf-8")
    with pytest.raises(UsageError):
        TuningSpace.load(tmp_path / "x.csv")


@pytest.mark.full
def test_ours_is_no_worse_than_chance_and_tpe_on_a_kernel_of_others() -> None:
    space = TuningSpace.load(FOLDER / "convolution_a100.csv.gz")
    ours, *others = (
        over_optimum([curve(space, searcher(space, name, s), s, 50) for s in range(3)], 50)
        for name in ("cost-model", "random", "tpe")
    )
    assert ours <= min(others)
