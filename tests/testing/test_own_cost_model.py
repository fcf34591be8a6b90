"""A cost model of one's own: the page's code works, the kit finds what is wrong, a search obeys."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import re
import sys
import types
from collections.abc import Callable, Sequence
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import autoturbo
from autoturbo.cost_models.contract import Example, Kernels, ModelStart
from autoturbo.cost_models.model import KernelTrees
from autoturbo.errors import PluginError, UsageError
from autoturbo.hardware import load_target
from autoturbo.registry import COST_MODELS
from autoturbo.schedule.work import Floats
from autoturbo.simulator.measurement import Measurement
from autoturbo.testing import COST_MODEL_CHECKS, ContractError, CostModelCase, check_cost_model
from autoturbo.testing.contract import small_networks
from autoturbo.tuning.result import TuneResult

PAGE = Path(__file__).resolve().parents[2] / "docs" / "own-cost-model.md"


class Inverted(KernelTrees):
    """Ours, turned round: what takes long is said to take little."""

    def predict(self, kernels: Kernels) -> tuple[Floats, Floats]:
        logarithms, deviations = super().predict(kernels)
        return -logarithms - 2 * np.log(np.maximum(kernels.base, 1e-12)) - 24, 0 * deviations


class Failing(KernelTrees):
    def fit(self, examples: Sequence[Example]) -> None:
        raise RuntimeError(f"no licence for {len(examples)}\nfound")


class Short(KernelTrees):
    def predict(self, kernels: Kernels) -> tuple[Floats, Floats]:
        del kernels
        return np.zeros(1), np.zeros(1)


class Nothing:
    def __init__(self, start: ModelStart) -> None:
        del start


@pytest.fixture
def page() -> dict[str, Any]:
    """What the page's Python defines; its last block runs the checks."""
    module = types.ModuleType("own_cost_model_page")
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    exec(blocks[0], vars(module))  # noqa: S102  our own page
    return {**vars(module), "blocks": blocks}


@pytest.fixture
def plugged(page: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Plug-ins by these names."""
    theirs = {"inverted": Inverted, "failing": Failing, "short": Short, "nothing": Nothing}
    module = types.SimpleNamespace(nearest=page["Nearest"], **theirs)
    monkeypatch.setitem(sys.modules, "their_cost_models", module)
    entries = EntryPoints(
        EntryPoint(name, f"their_cost_models:{name}", COST_MODELS.group)
        for name in ("nearest", *theirs, "gone")
    )
    monkeypatch.setattr(importlib.metadata, "entry_points", entries.select)


def tuned(folder: Path, trials: int = 12, seed: int = 0, **asked: Any) -> TuneResult:
    folder.mkdir(exist_ok=True)
    return autoturbo.tune(
        small_networks()[0], load_target("stcp920"),
        trials=trials, seed=seed, transfer=False, jobs=1,
        database=folder / "db", runs_folder=folder / "runs", **asked,
    )  # fmt: skip


def best(result: TuneResult) -> float:
    return result.best.measurement.latency


@pytest.mark.parametrize("check", COST_MODEL_CHECKS, ids=lambda check: check.__name__)
def test_ours_keeps_the_contract(check: Callable[[CostModelCase], None]) -> None:
    check(CostModelCase(COST_MODELS.load("kernels")))


def test_the_pages_model_has_forty_lines_and_keeps_the_contract(page: dict[str, Any]) -> None:
    model, test = page["blocks"]
    assert len(model[model.index("class ") :].splitlines()) <= 40
    exec(test, page)  # noqa: S102  our own page


class Blind(KernelTrees):
    """It says that every estimate is right."""

    def predict(self, kernels: Kernels) -> tuple[Floats, Floats]:
        return np.zeros(len(kernels.rows)), np.zeros(len(kernels.rows))


class Drifting(KernelTrees):
    made = 0

    def predict(self, kernels: Kernels) -> tuple[Floats, Floats]:
        Drifting.made += 1
        return np.full(len(kernels.rows), float(Drifting.made)), np.zeros(len(kernels.rows))


class Relative(KernelTrees):
    def predict(self, kernels: Kernels) -> tuple[Floats, Floats]:
        logarithms, deviations = super().predict(kernels)
        return logarithms - (logarithms.mean() if len(logarithms) else 0), deviations


class Endless(KernelTrees):
    def predict(self, kernels: Kernels) -> tuple[Floats, Floats]:
        return np.full(len(kernels.rows), np.inf), np.zeros(len(kernels.rows))


class TimesOnly(KernelTrees):
    def fit(self, examples: Sequence[Example]) -> None:
        super().fit([dataclasses.replace(e, times=e.times + 0) for e in examples])  # type: ignore[operator, arg-type]


@pytest.mark.parametrize(
    ("model", "wrong"),
    [
        (Short, "arrays of shapes"),
        pytest.param(Blind, "3 times", marks=pytest.mark.full),
        (Drifting, "seed"),
        pytest.param(Relative, "depends on the others", marks=pytest.mark.full),
        pytest.param(Endless, "not finite", marks=pytest.mark.full),
        pytest.param(TimesOnly, "TypeError", marks=pytest.mark.full),
        (lambda _: None, "AttributeError"),
    ],
)
def test_the_kit_says_what_is_wrong(model: Any, wrong: str) -> None:
    with pytest.raises(ContractError, match=wrong):
        check_cost_model(model)


@pytest.mark.usefixtures("plugged")
@pytest.mark.parametrize("name", ["failing", "short", "nothing", "gone"])
def test_a_broken_one_is_one_line(name: str, tmp_path: Path) -> None:
    with pytest.raises(PluginError, match=f"'{name}'"):
        tuned(tmp_path, 40, cost_model=name, round=4)


@pytest.mark.full
def test_a_process_may_register_its_own(tmp_path: Path, page: dict[str, Any]) -> None:
    try:
        COST_MODELS.register("here", page["Nearest"])
        nearest = tuned(tmp_path / "nearest", cost_model="here")
        COST_MODELS.register("here", Inverted)
        inverted = tuned(tmp_path / "inverted", cost_model="here")
        assert "here" in COST_MODELS.names()
    finally:
        COST_MODELS.here.clear()
    assert nearest.run != inverted.run  # of one name, but two
    with pytest.raises(UsageError):
        COST_MODELS.register("kernels", Inverted)
    assert COST_MODELS.names() == ("kernels",)


@pytest.mark.full
@pytest.mark.usefixtures("plugged")
def test_a_run_says_which_it_had(tmp_path: Path) -> None:
    ours, named, theirs = (
        tuned(tmp_path / str(n), cost_model=n) for n in (None, "kernels", "nearest")
    )
    assert ours.run != theirs.run
    assert best(named) == best(ours)
    assert [run.info.settings["cost_model"] for run in (ours, named, theirs)] == [
        None, "kernels", "nearest",
    ]  # fmt: skip
    again = tuned(tmp_path / "again", cost_model="nearest")
    assert (again.run, best(again)) == (theirs.run, best(theirs))


@pytest.mark.full
@pytest.mark.usefixtures("plugged")
def test_a_model_that_turns_the_ranking_round_makes_the_search_worse(tmp_path: Path) -> None:
    """What it has measured once the model has learned is slower, and nothing is better."""

    def later(result: TuneResult) -> float:
        outcomes = [trial.outcome for trial in result.trials[12:]]
        times = [own.latency for own in outcomes if isinstance(own, Measurement)]
        return float(np.log(times).mean())

    ours, inverted = (
        [tuned(tmp_path / f"{name}{s}", 28, s, cost_model=name, round=4) for s in range(2)]
        for name in ("kernels", "inverted")
    )
    assert min(map(best, inverted)) >= min(map(best, ours))
    assert np.mean([*map(later, inverted)]) > np.mean([*map(later, ours)]) + 0.02
