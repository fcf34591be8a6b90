"""What each constant of the search is worth, on models that no table of ours reports.

Every row changes one field of :class:`autoturbo.search.constants.SearchConstants` (or takes a
mechanism out, where the value does) and searches every pair with every seed. Told is the latency
over that with all constants as they are, in the geometric mean over pairs and seeds, after some
numbers of trials. Seeds alone move a pair by about 1 %.

::

    PYTHONPATH=benchmarks python search/ablation.py
    PYTHONPATH=benchmarks python search/ablation.py screened_share=0 restarts=24 --seeds 4
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Mapping, Sequence

from bench_tools import print_table
from search_quality import Pair, run

from autoturbo.registry import COST_MODEL
from autoturbo.search.constants import SEARCH

PAIRS = (
    ("squeezenet1_1", "mlu100"),
    ("whisper_base_enc", "mlu100"),
    ("zfnet", "ipu-mk2"),
    ("alexnet", "stcp920"),
    ("efficientnet_b0", "mlu100"),
)
"""Models that are in neither the README nor docs/search-quality.md."""

TRIALS, CHECKPOINTS = 96, (32, 64, 96)

CHANGES: Mapping[str, Sequence[float]] = {
    "quick_model_trees": (20,),
    "parents": (4,),
    "generations": (1,),
    "children": (64,),
    "reranked": (16,),
    "explored_share": (0.0, 0.4),
    "opening_mutants": (1,),
    "descent_steps": (0,),
    "screened_share": (0.0, 0.5),
    "far_share": (0.1, 0.6),
    "places": (0, 2),
    "screened_trials": (1, 99),
    "stale_trials": (10, 10**9),
    "no_gain": (0.0,),
    "crowded_share": (0.0, 1e9),
    "paired_kinds": (0, 1),
    "subgraph_moves": (0.0, 0.6),
    "subgraph_reverts": (0.0,),
    "subgraph_choices": (1.0,),
}
"""Values that are tried in place of a constant's own; most mechanisms are out at 0 or at 1e9."""

Latencies = dict[tuple[str, int], list[float | None]]


def searched(pairs: Sequence[Pair], seeds: int) -> Latencies:
    """Return the best seconds after each trial of a search, by pair and seed."""
    return {
        (pair.model, seed): run(pair, COST_MODEL, seed, TRIALS)
        for pair in pairs
        for seed in range(seeds)
    }


def change_percent(changed: Latencies, plain: Latencies, trials: int) -> float:
    """Return how much longer schedules take than without the change, in the geometric mean."""
    logarithms = [
        math.log(one / other)
        for name, best in plain.items()
        if (one := changed[name][trials - 1]) and (other := best[trials - 1])
    ]
    return 100.0 * math.expm1(math.fsum(logarithms) / len(logarithms))


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a row for each change."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("changes", nargs="*", metavar="CONSTANT=VALUE", help="default: all")
    parser.add_argument("--seeds", type=int, default=2)
    options = parser.parse_args(arguments)
    given = [text.partition("=")[::2] for text in options.changes]
    every = [(name, value) for name, values in CHANGES.items() for value in values]
    changes = [(name, float(value)) for name, value in given] or every
    pairs = [Pair.of(*pair) for pair in PAIRS]
    plain, values, rows = searched(pairs, options.seeds), vars(SEARCH), []
    for name, value in changes:
        own = values[name]
        values[name] = type(own)(value)
        changed = searched(pairs, options.seeds)
        values[name] = own
        told = [f"{change_percent(changed, plain, count):+.2f}" for count in CHECKPOINTS]
        rows.append((name, own, value, *told))
        print(*rows[-1], file=sys.stderr, flush=True)
    print_table(("constant", "is", "tried", *(f"% after {n}" for n in CHECKPOINTS)), rows)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
