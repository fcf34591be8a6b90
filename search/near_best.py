"""How well the cost model ranks the neighbours of the best point that a run has found.

Models propose all trials of a run, as ``models`` of ``held_out.py`` does. Then random neighbours of
its best point that are schedules of their own are measured, and rankers that have seen the run's
trials, and none of these, rank them. ``taught`` begins with the trees of the package, ``untaught``
without, as in a run that climbs; ``totals`` begins with them and sees latencies alone.

``rank`` is Spearman's correlation of predictions and latencies, ``recall`` the share of the five
predicted best that are among the five best, and ``regret`` how much slower the predicted best is
than the best, in %. Everything follows from the seed.

::

    PYTHONPATH=benchmarks:cost_models python search/near_best.py   # ten pairs, two seeds
    PYTHONPATH=benchmarks:cost_models python search/near_best.py --pairs resnext50@goya --seeds 1
"""

from __future__ import annotations

import argparse
import dataclasses
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from bench_tools import print_table
from held_out import PAIRS, TRIALS
from judge import NearScores
from search_quality import Pair, advisor_of, searched

from autoturbo.registry import COST_MODEL
from autoturbo.schedule.knobs import Knobs
from autoturbo.schedule.work import Floats
from autoturbo.search.constants import SEARCH
from autoturbo.search.openings import initial_settings
from autoturbo.search.progress import Trial
from autoturbo.simulator.measurement import Measurement, Outcome

NEIGHBOURS: Final = 40
"""Neighbours that are ranked."""

RANKERS = ("taught", "untaught", "totals")


@dataclass(frozen=True, eq=False)
class Course:
    """A run, and neighbours of its best point.

    Attributes:
        trials: Of the run.
        near: The neighbours.
        latencies: Of these, seconds.
    """

    trials: tuple[Trial, ...]
    near: tuple[Knobs, ...]
    latencies: Floats


def course_of(pair: Pair, seed: int) -> Course:
    """Return a run of a pair, with neighbours of its best point.

    Args:
        pair: The model on the target; what the run learns of kernels stays there.
        seed: Of all chance.
    """
    space = pair.space(COST_MODEL)
    loop = searched(
        pair, space, COST_MODEL, seed, TRIALS,
        heuristic=pair.evaluator.heuristic(), initial=initial_settings(space, every_batch=False),
        constants=dataclasses.replace(SEARCH, reversions=None),
    )  # fmt: skip
    best = min(loop.trials, key=lambda trial: getattr(trial.outcome, "latency", math.inf))
    neighbours = space.neighbours(space.point_of(best.knobs))
    seen = {getattr(trial.outcome, "program", None) for trial in loop.trials}
    found: list[tuple[Knobs, float]] = []
    for point in np.random.default_rng(seed).permutation(neighbours).tolist():
        knobs = space.knobs_of(point)
        outcome = pair.evaluator.evaluate(knobs)
        if isinstance(outcome, Measurement) and outcome.program not in seen:
            seen.add(outcome.program)
            found.append((knobs, outcome.latency))
        if len(found) == NEIGHBOURS:
            break
    latencies = np.asarray([latency for _, latency in found])
    return Course(tuple(loop.trials), tuple(knobs for knobs, _ in found), latencies)


def scores_of(pair: Pair, course: Course, ranker: str, seed: int) -> NearScores:
    """Return how well a ranker that has seen a run ranks its neighbours.

    Args:
        pair: The model on the target.
        course: The run.
        ranker: One of :data:`RANKERS`.
        seed: Of the ranker.

    Raises:
        SystemExit: It cannot rank.
    """
    advisor = advisor_of(pair, seed, taught=ranker != "untaught")
    for trial in course.trials:
        advisor.observe(trial.knobs, _seen(trial.outcome, ranker))
    predicted = advisor.rank(course.near)
    if predicted is None:
        raise SystemExit(f"{pair.model}: {advisor.obstacle}")
    return NearScores.of(predicted, course.latencies)


def _seen(outcome: Outcome, ranker: str) -> Outcome:
    """Return what a ranker sees of an outcome."""
    if ranker == "totals" and isinstance(outcome, Measurement):
        return dataclasses.replace(outcome, subgraph_times=())
    return outcome


def _cells(scores: NearScores) -> tuple[str, ...]:
    """Return the figures as the table has them."""
    return f"{scores.rank:.2f}", f"{scores.recall:.2f}", f"{100 * scores.regret:.2f}"


def rows(pairs: Sequence[str], seeds: int) -> Iterator[tuple[str, ...]]:
    """Yield pairs with the mean scores of all rankers, and means over pairs."""
    means: dict[str, list[NearScores]] = {ranker: [] for ranker in RANKERS}
    for name in pairs:
        scores: dict[str, list[NearScores]] = {ranker: [] for ranker in RANKERS}
        for seed in range(seeds):
            pair = Pair.of(*name.split("@"))  # what a run learns is its own
            course = course_of(pair, seed)
            for ranker, found in scores.items():
                found.append(scores_of(pair, course, ranker, seed))
        for ranker, found in scores.items():
            means[ranker].append(NearScores.mean(found))
            yield name, ranker, *_cells(means[ranker][-1])
    for ranker, found in means.items():
        yield "mean", ranker, *_cells(NearScores.mean(found))


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", default=",".join(PAIRS), help="comma-separated")
    parser.add_argument("--seeds", type=int, default=2, help="seeds 0 to N - 1")
    options = parser.parse_args(arguments)
    head = ("pair", "ranker", "rank", "recall", "regret %")
    print_table(head, rows(options.pairs.split(","), options.seeds))


if __name__ == "__main__":
    main()
