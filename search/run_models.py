"""How well a run's own cost model ranks the settings that the search tries next.

One search of every pair; the model learns from its first 24, 48, 80, 112 and 160 trials and
predicts the 24 that follow. Printed are the error of latencies, that of kernels (both shares of
the measured latency), and the rank correlation of latencies, means over all of these. What was
measured before is not predicted, as in a run. The search was guided by the model as it is, which
counts against it: what it took for good by mistake is among what it has to predict.

::

    python search/run_models.py [--models M,...] [--targets T,...]
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Sequence
from contextlib import ExitStack
from unittest.mock import patch

import numpy as np
from bench_tools import print_table
from search_quality import TARGETS, Pair, advisor_of, searched

from autoturbo.cost_models import model as run_model
from autoturbo.cost_models.contract import Example, Kernels
from autoturbo.cost_models.model import CostModel
from autoturbo.registry import COST_MODEL

LEARNED = (24, 48, 80, 112, 160)
"""Trials that are learned from."""

NEXT = 24
"""Trials that are predicted then."""

MODELS = ("resnet50", "bert_base_s256", "mobilenet_v2", "vit_b16", "conformer")

VARIANTS: dict[str, dict[str, object]] = {
    "as it is": {},
    "128 bins a column": {"BINS": 128},
    "every column for every split": {"COLUMNS": 1.0, "BINS": 128},
    "twice as many trees, half as bold": {"TREES": 80, "RATE": 0.15},
}
"""Names of the model's module that are replaced, by what that makes of it."""


def examples_of(pair: Pair) -> list[Example]:
    """Return the measured trials of one search, as the model sees them."""
    loop = searched(pair, pair.space(COST_MODEL), COST_MODEL, 0, LEARNED[-1] + NEXT)
    ranker = advisor_of(pair, 0)
    for trial in loop.trials:
        ranker.observe(trial.knobs, trial.outcome)
    return [example for example in ranker.examples if example.times is not None]


def judged(examples: Sequence[Example]) -> list[tuple[float, float, float]]:
    """Return errors of latencies and kernels and the rank correlation, by number learned from."""
    found = []
    for count in LEARNED:
        learned, following = examples[:count], examples[count : count + NEXT]
        if len(following) < NEXT:
            continue
        model = CostModel.of(learned)
        factors = [model.times.predict(Kernels(e.rows, e.base))[0] for e in following]
        said = [np.exp(f) * e.launches * e.base for f, e in zip(factors, following, strict=True)]
        true = [e.launches * e.times for e in following if e.times is not None]
        kernels = [abs(s - t).sum() / t.sum() for s, t in zip(said, true, strict=True)]
        latencies = np.asarray([[s.sum(), t.sum()] for s, t in zip(said, true, strict=True)])
        errors = np.abs(np.log(latencies[:, 0]) - np.log(latencies[:, 1]))
        ranks = latencies.argsort(axis=0).argsort(axis=0)
        rank = statistics.correlation(*ranks.T.tolist())
        found.append((float(errors.mean()), statistics.mean(kernels), rank))
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse, search, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", default=",".join(MODELS), help="comma-separated")
    parser.add_argument("--targets", default=",".join(TARGETS), help="comma-separated presets")
    options = parser.parse_args(arguments)
    names = [(m, t) for m in options.models.split(",") for t in options.targets.split(",")]
    pools = [examples_of(Pair.of(model, target)) for model, target in names]
    rows = []
    for name, replaced in VARIANTS.items():
        with ExitStack() as stack:
            for attribute, value in replaced.items():
                stack.enter_context(patch.object(run_model, attribute, value))
            each = [row for pool in pools for row in judged(pool)]
        error, kernels, rank = (statistics.mean(column) for column in zip(*each, strict=True))
        rows.append((name, f"{error:.4f}", f"{kernels:.4f}", f"{rank:.3f}"))
    print(f"{len(names)} pairs, means")
    print_table(("model", "error", "of kernels", "rank correlation"), rows)


if __name__ == "__main__":
    main()
