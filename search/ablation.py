"""What each constant of the search is worth, on models that no table of ours reports.

Every row hands other constants to every search: with one changed, or with a mechanism left out.
Told is the latency over that with the constants as they are, in the geometric mean over pairs and
seeds, after some numbers of measurements. Seeds alone move a pair by about 1 %.

Searches climb where the change is one of climbing. Where that is left out, the sampler proposes
what would have been climbed, so that both measure as many schedules.

::

    PYTHONPATH=benchmarks python search/ablation.py
    PYTHONPATH=benchmarks python search/ablation.py "climbing.joined 8" "starts off" --seeds 4
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import sys
from collections.abc import Mapping, Sequence
from typing import Any, get_args, get_type_hints

from bench_tools import print_table
from search_quality import Pair, run

from autoturbo.registry import COST_MODEL
from autoturbo.search.constants import SEARCH, Climbing, SearchConstants

PAIRS = (
    "squeezenet1_1@mlu100",
    "whisper_base_enc@mlu100",
    "zfnet@ipu-mk2",
    "alexnet@stcp920",
    "efficientnet_b0@mlu100",
)
"""Models that are in neither the README nor docs/search-quality.md."""

TRIALS = 96


def changed(name: str) -> SearchConstants:
    """Return the constants with a change, as its name says.

    Args:
        name: ``MECHANISM.CONSTANT VALUE``, or ``MECHANISM off`` for one that is left out.

    Raises:
        ValueError: There is no such mechanism or constant, or the value is none of its.
    """
    where, _, value = name.partition(" ")
    mechanism, _, constant = where.partition(".")
    kinds, record = get_type_hints(SearchConstants), None
    if not constant and (value != "off" or type(None) not in get_args(kinds.get(mechanism))):
        raise ValueError(f"{name!r} is neither 'MECHANISM.CONSTANT VALUE' nor 'MECHANISM off'")
    try:
        own = getattr(SEARCH, mechanism)
        if constant:
            kind = type(getattr(own, constant))
            record = dataclasses.replace(own, **{constant: kind(float(value))})
    except (AttributeError, TypeError, ValueError) as error:
        raise ValueError(f"{name!r} changes nothing: {error}") from None
    changes: dict[str, Any] = {mechanism: record}
    return dataclasses.replace(SEARCH, **changes)


CHANGES: Mapping[str, SearchConstants] = {
    name: changed(name)
    for name in (
        "choice_model.trees 20",
        "evolution.parents 4",
        "evolution.mutants 192",
        "evolution.explored_share 0",
        "evolution.explored_share 0.4",
        "evolution.opening_mutants 1",
        "screening off",
        "screening.screened_share 0",
        "screening.screened_share 0.5",
        "screening.far_share 0.1",
        "screening.far_share 0.6",
        "screening.screened_trials 1",
        "screening.screened_trials 99",
        "screening.stale_trials 10",
        "screening.stale_trials 1e9",
        "screening.no_gain 0",
        "screening.crowded_share 0",
        "screening.crowded_share 1e9",
        "draws.subgraph_moves 0",
        "draws.subgraph_moves 0.6",
        "draws.subgraph_reverts 0",
        "draws.subgraph_choices 1",
        "starts off",
        "reversions off",
        "climbing off",
        "climbing.climbed 1",
        "climbing.joined 0",
    )
}
"""Constants that are tried in place of those of every search, by what is changed in them."""

Latencies = dict[tuple[str, int], list[float | None]]


def searched(
    pairs: Sequence[Pair],
    seeds: int,
    trials: int,
    constants: SearchConstants = SEARCH,
    *,
    climbing: bool = False,
) -> Latencies:
    """Return the best seconds after each measurement of a search, by pair and seed.

    Args:
        pairs: Of models and targets.
        seeds: How many.
        trials: Of each search.
        constants: Of each search.
        climbing: Whether it climbs as well, as a run does where measuring is cheap.
    """
    climbs = int((constants.climbing or Climbing()).climbs * trials) if climbing else 0
    return {
        (pair.model, seed): run(pair, COST_MODEL, seed, trials, constants=constants, climbs=climbs)
        for pair in pairs
        for seed in range(seeds)
    }


def change_percent(changed: Latencies, plain: Latencies, count: int | None = None) -> float:
    """Return how much longer schedules take than without the change, in the geometric mean.

    Args:
        changed: Best seconds with the change.
        plain: Best seconds without it.
        count: Measurements after which they are compared; at the end if None.
    """
    logarithms = [
        math.log(one / other)
        for name, best in plain.items()
        if (one := changed[name][:count][-1]) and (other := best[:count][-1])
    ]
    return 100.0 * math.expm1(math.fsum(logarithms) / len(logarithms))


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a row for each change."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("changes", nargs="*", metavar="CHANGE", help="default: all")
    parser.add_argument("--pairs", default=",".join(PAIRS), help="comma-separated")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--trials", type=int, default=TRIALS)
    options = parser.parse_args(arguments)
    try:
        changes = {name: changed(name) for name in options.changes} or CHANGES
    except ValueError as error:
        parser.error(str(error))
    pairs = [Pair.of(*pair.split("@")) for pair in options.pairs.split(",")]
    size = pairs, options.seeds, options.trials
    checkpoints = [options.trials * thirds // 3 for thirds in (1, 2, 3)]
    plain, rows = dict[bool, Latencies](), []
    for name, constants in changes.items():
        climbing = constants.climbing != SEARCH.climbing
        if climbing not in plain:
            plain[climbing] = searched(*size, climbing=climbing)
        found = searched(*size, constants, climbing=climbing)
        told = [change_percent(found, plain[climbing], count) for count in (*checkpoints, None)]
        rows.append((name, *(f"{percent:+.2f}" for percent in told)))
        print(*rows[-1], file=sys.stderr, flush=True)
    print_table(("change", *(f"% after {n}" for n in checkpoints), "% at the end"), rows)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
