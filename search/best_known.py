"""The best schedules known of pairs of model and target, with the settings that give them.

A yardstick made of searches alone does not see what all of them pass over. So the simulator itself
is asked: from what the file has, from every place (a start with a number of samples at once) and,
with ``--seeds``, from where our sampler's runs end, it is climbed by measuring neighbours. A climb
takes some thousand measurements where a search is given 200.

The file keeps the lowest of each pair with its setting. ``search/search_quality.py`` measures gaps
by it. After a change of the scheduler or the simulator its seconds are others; a later run of this
command measures its settings anew before it goes on with them.

::

    python search/best_known.py --models dlrm --targets mlu100
    python search/best_known.py --seeds 2                # from where two searches end, as well
    python search/best_known.py --check                  # measure every setting of the file
"""

from __future__ import annotations

import argparse
import itertools
import json
import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from bench_tools import print_table
from numpy.typing import NDArray
from search_quality import KNOWN, TARGETS, Pair, known_schedules, searched

from autoturbo.config import searched_subgraphs
from autoturbo.datasets import workloads
from autoturbo.files import atomic_write
from autoturbo.registry import COST_MODEL
from autoturbo.schedule.knobs import Knobs
from autoturbo.search.climbing import climb
from autoturbo.search.constants import Climbing
from autoturbo.search.encoding import START, Genes
from autoturbo.search.space import Space
from autoturbo.search.warm_starts.starts import starts_of
from autoturbo.simulator.measurement import Measurement

AT_ONCE = 16
"""Neighbours that are measured before the climb looks on."""

PLACES = 8
"""Places that are climbed from unless asked otherwise, the fastest first."""

MEASUREMENTS = 6000
"""New measurements of a climb, after which it looks no further, unless asked otherwise."""

TRIALS = 200
"""Measurements of a search whose end is climbed from."""


@dataclass(eq=False)
class Measured:
    """Seconds of points, each measured once.

    Attributes:
        seconds: Of a point.
        known: By point, as bytes.
    """

    seconds: Callable[[Genes], float]
    known: dict[bytes, float] = field(default_factory=dict)

    def __call__(self, points: Genes) -> NDArray[np.float64]:
        """Return the seconds of points ``(points, dimensions)``; infinite for what does not run."""
        return np.asarray([self._one(point) for point in points], np.float64)

    def _one(self, point: Genes) -> float:
        key = np.ascontiguousarray(point, np.int64).tobytes()
        if key not in self.known:
            self.known[key] = self.seconds(point)
        return self.known[key]


def climbed(
    space: Space, points: Sequence[Genes], measured: Measured, most: int = MEASUREMENTS
) -> Genes:
    """Return the best point that climbing from some comes to, ``(dimensions,)``.

    Args:
        space: Where the points are.
        points: Each ``(dimensions,)``.
        measured: Seconds of points.
        most: New measurements after which it looks no further.
    """
    scored = [(tuple(map(int, p)), float(measured(p[None])[0])) for p in points]
    taken, limit = {point for point, _ in scored}, len(measured.known) + most
    while len(measured.known) < limit:
        new = climb(space, scored, taken, AT_ONCE, 0, Climbing())
        if not new:
            break
        taken.update(new)
        seconds = measured(np.asarray(new, np.int64)).tolist()
        scored += [pair for pair in zip(new, seconds, strict=True) if np.isfinite(pair[1])]
    return np.asarray(min(scored, key=operator.itemgetter(1))[0], np.int64)


def places(space: Space, measured: Measured, most: int = PLACES) -> list[Genes]:
    """Return every start with every number of samples at once, the fastest first."""
    placing = [
        [(at, choice) for choice in range(len(dimension.choices))]
        for at, dimension in enumerate(space.dimensions)
        if dimension.name in (START, "batches_per_cluster")
    ]
    chosen = list(itertools.product(*placing))
    made = np.zeros((len(chosen), len(space.dimensions)), np.int64)
    for row, choices in enumerate(chosen):
        for at, choice in choices:
            made[row, at] = choice
    found = space.distinct(space.normal(made))
    return list(found[np.argsort(measured(found), kind="stable")][:most])


def best_of(
    pair: Pair,
    known: Knobs | None,
    seeds: Sequence[int],
    most: int = PLACES,
    measurements: int = MEASUREMENTS,
) -> tuple[float, Knobs]:
    """Return the lowest seconds of a pair that climbs come to, and their setting.

    Args:
        pair: The model on the target.
        known: The best so far, a place of its own; None for none.
        seeds: Of searches from whose ends is climbed too.
        most: Places that are climbed from.
        measurements: Of a climb.
    """
    starts = (*starts_of(pair.evaluator), *([] if known is None else [known]))
    count = searched_subgraphs(None, COST_MODEL)
    space = Space.of(pair.evaluator.model_scheduler, subgraphs=count, starts=starts)

    def seconds(point: Genes) -> float:
        outcome = pair.evaluator.evaluate(space.knobs_of(point.tolist()))
        return outcome.latency if isinstance(outcome, Measurement) else np.inf

    measured = Measured(seconds)
    points = [*places(space, measured, most), *(_end(pair, space, seed) for seed in seeds)]
    ends = np.asarray([climbed(space, [point], measured, measurements) for point in points])
    found = measured(ends)
    least = float(found.min())
    said = None if known is None else pair.evaluator.evaluate(known)
    if known is not None and isinstance(said, Measurement) and said.latency <= least:
        return said.latency, known  # a start may say more than its dimensions can
    return least, space.knobs_of(ends[int(np.argmin(found))].tolist())


def _end(pair: Pair, space: Space, seed: int) -> Genes:
    """Return the best point of a search."""
    trials = searched(pair, space, COST_MODEL, seed, TRIALS).trials
    ran = [t for t in trials if isinstance(t.outcome, Measurement)]
    best = min(ran, key=lambda t: t.outcome.latency)  # type: ignore[union-attr]
    genes = space.genes_of(space.from_knobs(best.knobs))
    return np.asarray(genes, np.int64)


def keep(file: Path, pair: str, seconds: float, knobs: Knobs) -> None:
    """Write a pair's schedule down."""
    known = known_schedules(file)
    known[pair] = {"seconds": seconds, "knobs": knobs.as_dict()}
    atomic_write(file, (json.dumps(known, indent=1, sort_keys=True) + "\n").encode())


def checked(file: Path, pairs: Sequence[str]) -> Iterator[tuple[str, float, float]]:
    """Yield, of pairs, the seconds that a file has and what measuring its setting gives."""
    known = known_schedules(file)
    for name in pairs:
        said = known[name]
        pair = Pair.of(*name.split("@"))
        outcome = pair.evaluator.evaluate(Knobs.from_dict(said["knobs"]))
        took = outcome.latency if isinstance(outcome, Measurement) else np.inf
        yield name, said["seconds"], took


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse, climb, keep."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", default=",".join(workloads.PAPER_TEN), help="comma-separated")
    parser.add_argument("--targets", default=",".join(TARGETS), help="comma-separated presets")
    parser.add_argument("--seeds", type=int, default=0, help="ends of searches 0 to N - 1 too")
    parser.add_argument("--places", type=int, default=PLACES, help="to climb from")
    parser.add_argument("--measurements", type=int, default=MEASUREMENTS, help="of a climb")
    parser.add_argument("--out", type=Path, default=KNOWN)
    parser.add_argument("--check", action="store_true", help="measure what the file holds")
    options = parser.parse_args(arguments)
    if options.check:
        rows = checked(options.out, sorted(known_schedules(options.out)))
        print_table(("pair", "said, s", "measured, s"), rows)
        return
    for model, target in itertools.product(options.models.split(","), options.targets.split(",")):
        name = f"{model}@{target}"
        before = known_schedules(options.out).get(name)
        known = None if before is None else Knobs.from_dict(before["knobs"])
        seconds, knobs = best_of(
            Pair.of(model, target), known, range(options.seeds), options.places,
            options.measurements,
        )  # fmt: skip
        said = "nothing" if before is None else f"{before['seconds']:.6g} s"
        print(f"{name}: {seconds:.6g} s, before {said}", flush=True)
        keep(options.out, name, seconds, knobs)


if __name__ == "__main__":
    main()
