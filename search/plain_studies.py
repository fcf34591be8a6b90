"""How samplers do in studies that are not kernels': conditions, changing ranges, outliers.

Each study is an Optuna objective with a known optimum of 0, written as people write them:
parameters of one branch, a range that follows from another parameter or from the trial, values of
1e9 where something went wrong, constraints. What is printed is the mean over seeds of how far the
best trial is from the optimum, the best feasible one where there are constraints, and in brackets
the standard error of that mean.

::

    PYTHONPATH=benchmarks python search/plain_studies.py --seeds 20
    PYTHONPATH=benchmarks python search/plain_studies.py --studies branches,outliers --trials 50
"""

from __future__ import annotations

import argparse
import itertools
import math
import random
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import optuna
from bench_tools import print_table
from optuna.samplers import BaseSampler, RandomSampler, TPESampler

from autoturbo.search import CostModelSampler

Objective = Callable[[optuna.Trial], float]
Limits = Callable[[optuna.trial.FrozenTrial], Sequence[float]]

NONSENSE = 1e9
"""What a study gets in place of a value where something went wrong."""


def mixed(trial: optuna.Trial) -> float:
    """Return a bowl over numbers of every kind, with a category."""
    x, y = trial.suggest_float("x", -5, 5), trial.suggest_float("y", -5, 5)
    rate = math.log10(trial.suggest_float("rate", 1e-6, 1, log=True))
    n, kind = trial.suggest_int("n", 0, 100), trial.suggest_categorical("kind", ["a", "b", "c"])
    far = (x - 1) ** 2 + (y + 2) ** 2 + (rate + 3) ** 2 + (n / 20 - 2) ** 2
    return far / 10 + {"a": 0.5, "b": 0.0, "c": 1.0}[kind]


def valley(trial: optuna.Trial) -> float:
    """Return Rosenbrock's function of four numbers, whose values span many powers of ten."""
    x = [trial.suggest_float(f"x{i}", -2, 2) for i in range(4)]
    pairs = itertools.pairwise(x)
    return math.log1p(sum(100 * (b - a * a) ** 2 + (1 - a) ** 2 for a, b in pairs))


def branches(trial: optuna.Trial) -> float:
    """Return a bowl in one of three branches, each with parameters of its own."""
    kind = trial.suggest_categorical("kind", ["linear", "tree", "net"])
    x = trial.suggest_float("x", 0, 1)
    if kind == "linear":
        return 0.3 + (trial.suggest_float("alpha", 0, 1) - 0.5) ** 2 + (x - 0.3) ** 2
    if kind == "tree":
        depth = trial.suggest_int("depth", 1, 20)
        return 0.15 + abs(depth - 7) / 20 + (trial.suggest_float("eta", 0, 1) - 0.2) ** 2
    rate = math.log10(trial.suggest_float("rate", 1e-5, 1e-1, log=True))
    width, drop = trial.suggest_int("width", 8, 512), trial.suggest_float("drop", 0, 1)
    return (rate + 3) ** 2 / 4 + abs(width - 200) / 500 + (drop - 0.1) ** 2 + (x - 0.8) ** 2


def layers(trial: optuna.Trial) -> float:
    """Return a bowl over as many widths as another parameter says."""
    count = trial.suggest_int("layers", 1, 5)
    widths = [trial.suggest_int(f"width{i}", 4, 256, log=True) for i in range(count)]
    rate = math.log10(trial.suggest_float("rate", 1e-5, 1, log=True))
    off = sum(math.log2(width / 64 * 2**i) ** 2 for i, width in enumerate(widths)) / 8
    return abs(count - 3) / 2 + off + (rate + 2) ** 2 / 4


def dependent(trial: optuna.Trial) -> float:
    """Return a bowl over numbers whose ranges follow from other numbers."""
    total = trial.suggest_int("total", 4, 64)
    part = trial.suggest_int("part", 1, total)
    low = trial.suggest_float("low", 0, 1)
    high = trial.suggest_float("high", low, 2)
    return abs(total - 40) / 40 + abs(part - 10) / 20 + (low - 0.4) ** 2 + (high - 0.9) ** 2


def narrowed(trial: optuna.Trial) -> float:
    """Return a bowl over ranges that somebody makes narrower as the study goes."""
    half = 8.0 / (1 + trial.number // 20)
    x = [trial.suggest_float(f"x{i}", 1 - half, 1.5 + half) for i in range(4)]
    n = trial.suggest_int("n", 0, 20)
    return sum((v - 1) ** 2 for v in x) / 4 + abs(n - 12) / 10


def outliers(trial: optuna.Trial) -> float:
    """Return :func:`mixed`, or nonsense for every eighth trial about."""
    value = mixed(trial)
    broken = random.Random(repr(sorted(trial.params.items()))).random() < 1 / 8  # noqa: S311
    return NONSENSE if broken else value


def walls(trial: optuna.Trial) -> float:
    """Return :func:`mixed`, or nonsense in a part of the space, as others say *it failed*."""
    value = mixed(trial)
    return NONSENSE if trial.params["x"] + trial.params["y"] + 2 < 0 else value


def edge(trial: optuna.Trial) -> float:
    """Return a slope whose lowest place has a constraint on either side."""
    x, y = trial.suggest_float("x", 0, 4), trial.suggest_float("y", 0, 4)
    n, kind = trial.suggest_int("n", 0, 10), trial.suggest_categorical("kind", ["a", "b"])
    return x + y - 2 + n / 10 + (0.0 if kind == "a" else 0.3)


def inside(trial: optuna.trial.FrozenTrial) -> tuple[float, float]:
    """Return by how much a trial of :func:`edge` breaks its two constraints."""
    x, y = trial.params["x"], trial.params["y"]
    return 1 - x * y, abs(x - y) - 1.5


def narrow(trial: optuna.trial.FrozenTrial) -> tuple[float]:
    """Return by how much a trial of :func:`mixed` is outside a small part of the space."""
    return (abs(trial.params["x"] - 1) + abs(trial.params["y"] + 2) - 1.5,)


STUDIES: Mapping[str, tuple[Objective, Limits | None]] = {
    "mixed": (mixed, None),
    "valley": (valley, None),
    "branches": (branches, None),
    "layers": (layers, None),
    "dependent": (dependent, None),
    "narrowed": (narrowed, None),
    "outliers": (outliers, None),
    "walls": (walls, None),
    "edge": (edge, inside),
    "rarely feasible": (mixed, narrow),
}
"""Objectives by name, with their constraints where they have any."""


def _tpe(seed: int, limits: Limits | None) -> TPESampler:
    return TPESampler(seed=seed, constraints_func=limits)


def _tpe_grouped(seed: int, limits: Limits | None) -> TPESampler:
    return TPESampler(seed=seed, multivariate=True, group=True, constraints_func=limits)


def _random(seed: int, limits: Limits | None) -> RandomSampler:
    del limits
    return RandomSampler(seed)


def _ours(seed: int, limits: Limits | None) -> CostModelSampler:
    return CostModelSampler(seed, constraints_func=limits)


SAMPLERS: Mapping[str, Callable[[int, Limits | None], BaseSampler]] = {
    "ours": _ours,
    "tpe": _tpe,
    "tpe, grouped": _tpe_grouped,
    "random": _random,
}
"""Samplers by name, of a seed and the constraints of a study."""


def best_of(study: str, sampler: str, seed: int, trials: int) -> float:
    """Return how far the best feasible trial of a run is from the optimum.

    Args:
        study: One of :data:`STUDIES`.
        sampler: One of :data:`SAMPLERS`.
        seed: Of all chance.
        trials: How many.

    Returns:
        The worst finite value there was, where no trial was feasible.
    """
    objective, limits = STUDIES[study]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run = optuna.create_study(sampler=SAMPLERS[sampler](seed, limits))
        run.optimize(objective, trials)
    values = [(t.value, limits is None or max(limits(t)) <= 0) for t in run.trials]
    feasible = [value for value, fine in values if fine and value is not None]
    return min(feasible) if feasible else max(value for value, _ in values if value is not None)


def compare(
    studies: Sequence[str], samplers: Sequence[str], seeds: int, trials: int
) -> Iterator[tuple[str, ...]]:
    """Run every study with every sampler and seed; yield a row for each study."""
    for study in studies:
        cells = list[str]()
        for sampler in samplers:
            found = np.asarray([best_of(study, sampler, seed, trials) for seed in range(seeds)])
            error = found.std(ddof=1) / math.sqrt(seeds) if seeds > 1 else math.nan
            cells.append(f"{found.mean():.4f} ({error:.4f})")
        yield (study, *cells)


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=20, help="seeds 0 to N - 1")
    parser.add_argument("--trials", type=int, default=100, help="of a study")
    parser.add_argument("--studies", default=",".join(STUDIES), help="comma-separated")
    parser.add_argument("--samplers", default=";".join(SAMPLERS), help="separated by semicolons")
    options = parser.parse_args(arguments)
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    samplers = options.samplers.split(";")
    rows = compare(options.studies.split(","), samplers, options.seeds, options.trials)
    print("distance of the best trial from the optimum, mean over seeds (standard error)")
    print_table(("study", *samplers), list(rows))


if __name__ == "__main__":
    main()
