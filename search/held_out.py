"""Our search beside a climber, TPE and random search: in one space, on held-out pairs.

All have the heuristic, the same warm starts and the same knobs, those of sub-graphs included, and
go on until they have measured as many schedules as ours and spent as much CPU. ``models`` is ours
without climbing: models propose every trial. ``climber`` measures a random neighbour of the best
and moves there if it is faster. CPU seconds are those of the process; warm starts, which are the
same for all, are not in them. Everything else follows from the seed.

::

    PYTHONPATH=benchmarks python search/held_out.py                   # ten pairs, three seeds
    PYTHONPATH=benchmarks python search/held_out.py --pairs resnext50@goya --seeds 1
    PYTHONPATH=benchmarks python search/held_out.py --table held_out.json
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
from bench_tools import print_table
from search_quality import NoJournal, Pair, advisor_of

from autoturbo.config import EFFORTS
from autoturbo.files import atomic_write
from autoturbo.registry import COST_MODEL
from autoturbo.schedule.knobs import Knobs
from autoturbo.search.constants import Climbing
from autoturbo.search.loop import Search, SearchLoop
from autoturbo.search.objectives import find_objectives
from autoturbo.search.openings import initial_settings
from autoturbo.search.space import Space
from autoturbo.simulator.evaluator import Evaluator
from autoturbo.simulator.measurement import Measurement

PAIRS = (
    "squeezenet1_1@goya", "yolov5s_like@stcp920", "whisper_base_enc@tpu-v4i",
    "swin_t@ascend-910", "unet@stcp920", "llama_prefill@mlu100", "shufflenet_v2@goya",
    "efficientnet_b0@ipu-mk2", "googlenet@mlu100", "convnext_tiny@tpu-v4i",
)  # fmt: skip
"""In no other table; only that a climb leaves far places alone was found on one of these."""

TRIALS: Final = EFFORTS["quick"]
ALL: Final = int(TRIALS * (1 + Climbing().climbs))
"""Schedules that ours measures by default, those it climbs over included."""

OURS, MODELS, CLIMBER = "ours", "models", "climber"
SEARCHERS = (OURS, MODELS, CLIMBER, "tpe", "random")

Results = dict[str, Any]
"""By pair, searcher and seed the course of a run: schedules, CPU seconds and the best seconds at
every gain and at the end."""


class Enough(BaseException):
    """Ends a run from within; no error, so that nothing catches it as one."""


@dataclass
class Counted:
    """An evaluator that keeps the course of a run, and ends it.

    Attributes:
        evaluator: Measures.
        limit: Schedules and CPU seconds after which a run ends, once it has both.
        course: Schedules, CPU seconds and best seconds at every gain, and at the end.
        known: Digests of the schedules so far.
    """

    evaluator: Evaluator
    limit: tuple[int, float]
    began: float = field(default_factory=time.process_time)
    course: list[tuple[int, float, float]] = field(default_factory=list)
    known: set[str] = field(default_factory=set)

    def evaluate(self, knobs: Knobs) -> Any:
        """Measure, and keep the course.

        Returns:
            What the evaluator does.

        Raises:
            Enough: The run has used up what it has.
        """
        outcome, spent_s = self.evaluator.evaluate(knobs), time.process_time() - self.began
        latency = outcome.latency if isinstance(outcome, Measurement) else math.inf
        if isinstance(outcome, Measurement):
            self.known.add(outcome.program or "")
        best = self.course[-1][2] if self.course else math.inf
        if latency < best:
            self.course.append((len(self.known), spent_s, latency))
        if len(self.known) >= self.limit[0] and spent_s >= self.limit[1]:
            raise Enough
        return outcome

    def ended(self) -> list[tuple[int, float, float]]:
        """Return the course, with the end of the run last."""
        spent_s = time.process_time() - self.began
        return [*self.course, (len(self.known), spent_s, self.course[-1][2])]


def run(pair: Pair, searcher: str, seed: int, cpu_s: float) -> list[tuple[int, float, float]]:
    """Return the course of one run.

    Args:
        pair: The model on the target.
        searcher: One of :data:`SEARCHERS`.
        seed: Of all chance.
        cpu_s: CPU seconds that others than ours go on for at least.
    """
    fresh = Pair.of(pair.model, pair.target.name)  # what a run learns is its own
    space = pair.space(COST_MODEL)
    counted = Counted(fresh.evaluator, (ALL, 0.0 if searcher == OURS else cpu_s))
    heuristic = fresh.evaluator.heuristic()
    initial = initial_settings(space, every_batch=False)
    try:
        if searcher == CLIMBER:
            _climb(space, counted.evaluate, [heuristic, *initial], seed)
        else:
            _search(fresh, space, counted, searcher, seed, heuristic, initial)
    except Enough:
        pass
    return counted.ended()


def _climb(
    space: Space, evaluate: Callable[[Knobs], Any], first: Sequence[Knobs], seed: int
) -> None:
    """Measure random neighbours of the best, again and again."""
    rng, scores = np.random.default_rng(seed), dict[tuple[int, ...], float]()

    def measure(point: tuple[int, ...]) -> float:
        outcome = evaluate(space.knobs_of(point))
        scores[point] = outcome.latency if isinstance(outcome, Measurement) else math.inf
        return scores[point]

    for knobs in first:
        measure(space.point_of(knobs))
    while True:
        best = min(scores, key=scores.__getitem__)
        near = rng.permutation(space.neighbours(best)).tolist()
        new = [point for point in map(tuple, near) if point not in scores]
        if not new:
            return
        next((point for point in new if measure(point) < scores[best]), None)


def _search(
    fresh: Pair, space: Space, counted: Counted, searcher: str, seed: int,
    heuristic: Knobs, initial: tuple[Knobs, ...],
) -> None:  # fmt: skip
    """Run a search of ours or of a sampler of Optuna's."""
    from autoturbo.search.executors.base import InProcessExecutor
    from autoturbo.tuning.campaign import Campaign

    mine = searcher in (OURS, MODELS)
    search = Search(
        f"{fresh.model}-{searcher}-{seed}", fresh.model, fresh.target.name, space,
        find_objectives("latency"), COST_MODEL if mine else searcher, seed,
        TRIALS if searcher == OURS else None, heuristic=heuristic, initial=initial,
        climbs=ALL - TRIALS if searcher == OURS else 0,
    )  # fmt: skip
    rankers = [advisor_of(fresh, seed)] if mine else []
    executor = InProcessExecutor()
    executor.introduce(search.run, lambda: counted)  # type: ignore[arg-type,return-value]
    Campaign([SearchLoop(search, NoJournal(), rankers)], executor).run()


def collect(file: Path, pairs: Sequence[str], searchers: Sequence[str], seeds: int) -> Results:
    """Make the runs that a file does not hold, saving after each."""
    results: Results = json.loads(file.read_text("utf-8")) if file.exists() else {}
    for name in pairs:
        runs, pair = results.setdefault(name, {}), None
        for seed in range(seeds):
            for searcher in (OURS, *(s for s in searchers if s != OURS)):
                if f"{searcher}/{seed}" not in runs:
                    pair = pair or Pair.of(*name.split("@"))
                    cpu_s = runs[f"{OURS}/{seed}"][-1][1] if searcher != OURS else 0.0
                    runs[f"{searcher}/{seed}"] = run(pair, searcher, seed, cpu_s)
                    atomic_write(file, (json.dumps(results) + "\n").encode())
        print(f"{name}: {len(runs)} runs", flush=True)
    return results


def best_at(course: Sequence[Sequence[float]], at: int, most: float) -> float:
    """Return the best seconds of a course once it had spent so much.

    Args:
        course: Of a run.
        at: 0 for schedules, 1 for CPU seconds.
        most: Of these.
    """
    return min((best for *spent, best in course if spent[at] <= most), default=math.inf)


def gaps(runs: Mapping[str, Any], searcher: str, terms: str) -> list[float]:
    """Return how far a searcher is from the best that any run of the pair found, by seed.

    Args:
        runs: Of one pair.
        searcher: Whose.
        terms: A number of schedules, or ``"cpu"`` for the CPU seconds that ours took.
    """
    least = min(course[-1][2] for course in runs.values())
    found = []
    for name, course in runs.items():
        who, seed = name.split("/")
        if who == searcher:
            cpu = terms == "cpu"
            most = runs[f"{OURS}/{seed}"][-1][1] if cpu else float(terms)
            found.append(best_at(course, int(cpu), most) / least - 1.0)
    return found


TERMS = (str(TRIALS), str(ALL), "cpu")


def rows(results: Results) -> Iterator[tuple[object, ...]]:
    """Yield pairs with the mean gaps of all searchers, and means over pairs."""
    sums: dict[tuple[str, str], list[float]] = {}
    for name, runs in results.items():
        for searcher in SEARCHERS:
            found = [gaps(runs, searcher, terms) for terms in TERMS]
            if not found[0]:
                continue
            means = [statistics.fmean(each) for each in found]
            for terms, mean in zip(TERMS, means, strict=True):
                sums.setdefault((searcher, terms), []).append(mean)
            ends = [course[-1] for one, course in runs.items() if one.split("/")[0] == searcher]
            cpu_s = statistics.fmean(end[1] * ALL / end[0] for end in ends)
            yield name, searcher, *(f"{100 * mean:.2f}" for mean in means), f"{cpu_s:.0f}"
    for searcher in SEARCHERS:
        if (searcher, TERMS[0]) in sums:
            means = [statistics.fmean(sums[searcher, terms]) for terms in TERMS]
            yield "mean", searcher, *(f"{100 * mean:.2f}" for mean in means), ""


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", default=",".join(PAIRS), help="comma-separated")
    parser.add_argument("--searchers", default=",".join(SEARCHERS), help="comma-separated")
    parser.add_argument("--seeds", type=int, default=3, help="seeds 0 to N - 1")
    parser.add_argument("--out", type=Path, default=Path("held_out.json"))
    parser.add_argument("--table", type=Path, help="print what a file holds; run nothing")
    options = parser.parse_args(arguments)
    if options.table is not None:
        results = json.loads(options.table.read_text("utf-8"))
    else:
        asked = options.pairs.split(","), options.searchers.split(","), options.seeds
        results = collect(options.out, *asked)
    print("gap to the best of the pair's runs in %, mean over seeds")
    head = ("pair", "searcher", *(f"{t} schedules" for t in TERMS[:2]), "CPU of ours", "CPU s")
    print_table(head, rows(results))


if __name__ == "__main__":
    main()
