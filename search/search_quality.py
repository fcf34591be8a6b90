"""How near a search comes to the best known schedule, against the number of measurements.

Every sampler searches every model on every target with every seed, in this process, with one
evaluator per pair of model and target: what one run learns of kernels, all use. Results go to a
file run by run; runs that it holds are not repeated, so a long series can be made in pieces.

The gap of a run is its best latency over the best known of its pair, less 1. The best known is the
lowest of ``best_known.json`` (which ``best_known.py`` makes), of all runs in the file and, with
``--exact``, of the dynamic programme of ``autoturbo.search.warm_starts``: its schedule with outputs
in DDR, and the same cuts with outputs kept where they fit. (Its cuts may lie outside the space that
samplers see.) Samplers of Optuna's search
the model's knobs, ours those of sub-graphs too, as ``autoturbo tune`` does. A sampler whose package
is missing is passed over with a note.

::

    python search/search_quality.py --models resnet18,dlrm --targets stcp920 --seeds 10
    python search/search_quality.py --exact --models resnet18     # add the dynamic programme
    python search/search_quality.py --table search_quality.json
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench_tools import print_table

from autoturbo.config import searched_subgraphs
from autoturbo.datasets import workloads
from autoturbo.errors import UsageError
from autoturbo.files import atomic_write
from autoturbo.graph.onnx_import import import_model
from autoturbo.graph.operators import Graph
from autoturbo.hardware import load_target
from autoturbo.hardware.target import Target
from autoturbo.registry import COST_MODEL
from autoturbo.search.constants import SEARCH, SearchConstants, Starts
from autoturbo.search.loop import Search, SearchLoop
from autoturbo.search.objectives import find_objectives
from autoturbo.search.progress import Trial, schedules_of
from autoturbo.search.space import Space, batch_share
from autoturbo.search.warm_starts.starts import starts_of
from autoturbo.simulator.evaluator import Evaluator
from autoturbo.simulator.measurement import Measurement

if TYPE_CHECKING:
    from autoturbo.cost_models.ranker import Ranker

FORMAT = 1
"""Of the file; another one is refused."""

KNOWN = Path(__file__).with_name("best_known.json")
"""The best known schedules that the repository keeps."""

CHECKPOINTS = (10, 20, 50, 100, 200)
"""Measurements after which gaps are told."""

SAMPLERS = (COST_MODEL, "random", "tpe", "cmaes", "gp", "nsgaii")
TARGETS = ("stcp920", "ipu-mk2", "mlu100")

Results = dict[str, Any]
"""``runs``: by pair, sampler and seed the best seconds after each measurement (null while nothing
ran); ``exact``: by pair what the dynamic programme found; ``notes``: samplers passed over; beside
what the file holds, ``known``: by pair the best known schedule."""


@dataclass
class NoJournal:
    """Outcomes are kept nowhere but in the loop."""

    recorded: Mapping[int, Trial] = field(default_factory=dict)

    def add(self, trial: Trial) -> None:
        """Do nothing."""

    def flush(self) -> None:
        """Do nothing."""

    def log(self, line: str) -> None:
        """Do nothing."""


@dataclass(eq=False)
class Pair:
    """A model on a target, with an evaluator that all runs share."""

    model: str
    target: Target
    graph: Graph
    evaluator: Evaluator
    spaces: dict[tuple[int, Starts | None], Space] = field(default_factory=dict)

    @staticmethod
    def of(model: str, target: str) -> Pair:
        """Load both."""
        graph, machine = import_model(workloads.get(model).file), load_target(target)
        evaluator = Evaluator(graph, machine, machine.default_dtype)
        return Pair(model, machine, graph, evaluator)

    def space(self, sampler: str, limits: Starts | None = SEARCH.starts) -> Space:
        """Return what a sampler searches by default, from the starts within some limits."""
        count = searched_subgraphs(None, sampler)
        if (count, limits) not in self.spaces:
            starts = starts_of(self.evaluator, limits) if count else ()
            model_scheduler = self.evaluator.model_scheduler
            space = Space.of(model_scheduler, subgraphs=count, starts=starts)
            self.spaces[count, limits] = space
        return self.spaces[count, limits]


def run(
    pair: Pair,
    sampler: str,
    seed: int,
    trials: int,
    *,
    constants: SearchConstants = SEARCH,
    climbs: int = 0,
) -> list[float | None]:
    """Return the best seconds after each measurement of one search.

    Args:
        pair: The model and the target.
        sampler: Name of the sampler.
        seed: Of all chance.
        trials: Schedules that are measured.
        constants: Of the search.
        climbs: Schedules that are measured beside these, where it climbs.

    Raises:
        UsageError: The sampler needs a package that is not installed.
    """
    space, size = pair.space(sampler, constants.starts), constants.rounds.round_trials
    more: dict[str, Any] = {"constants": constants, "round": size, "climbs": climbs}
    loop = searched(pair, space, sampler, seed, trials, **more)
    return running_best(t.outcome for t in schedules_of(loop.trials))


def searched(
    pair: Pair,
    space: Space,
    sampler: str,
    seed: int,
    trials: int,
    objective: str = "latency",
    **more: Any,
) -> SearchLoop:
    """Return one search of a space, ended.

    Args:
        pair: The model and the target.
        space: Of the knobs.
        sampler: Name of the sampler.
        seed: Of all chance.
        trials: Schedules that are measured.
        objective: What is sought; several are parted by commas.
        more: Further fields of the :class:`~autoturbo.search.loop.Search`.

    Raises:
        UsageError: The sampler needs a package that is not installed.
    """
    from autoturbo.search.executors.base import InProcessExecutor
    from autoturbo.tuning.campaign import Campaign

    search = Search(
        f"{pair.model}-{sampler}-{seed}", pair.model, pair.target.name, space,
        find_objectives(objective), sampler, seed, trials, **more,
    )  # fmt: skip
    ranker = advisor_of(pair, seed) if sampler == COST_MODEL else None
    executor = InProcessExecutor()
    executor.introduce(search.run, lambda: pair.evaluator)
    loop = SearchLoop(search, NoJournal(), () if ranker is None else (ranker,))
    Campaign([loop], executor).run()
    return loop


def advisor_of(pair: Pair, seed: int, *, taught: bool = True) -> Ranker:
    """Return what guides our sampler on a pair, before it has seen anything.

    Args:
        pair: The model and the target.
        seed: Of all chance.
        taught: Whether it begins with the trees of the package.
    """
    from autoturbo.cost_models.features import target_vector
    from autoturbo.cost_models.ranker import Ranker, prior_of

    vector = target_vector(pair.target, pair.evaluator.model_scheduler.dtype)
    share = batch_share(pair.graph, pair.target)
    prior = prior_of(pair.evaluator) if taught else None
    return Ranker(pair.evaluator, vector, share, seed, prior)


def running_best(outcomes: Iterable[object]) -> list[float | None]:
    """Return the best seconds after each of some outcomes; None while nothing ran."""
    best: float | None = None
    found = []
    for outcome in outcomes:
        if isinstance(outcome, Measurement):
            best = outcome.latency if best is None else min(best, outcome.latency)
        found.append(best)
    return found


def exact(pair: Pair) -> dict[str, Any]:
    """Return the dynamic programme's seconds with outputs in DDR, and kept where they fit."""
    from exact_search import best_freed, best_over_grid

    start = time.perf_counter()
    answer = best_over_grid(pair.evaluator)
    knobs, freed = best_freed(pair.evaluator, answer.knobs)
    return {
        "seconds": answer.predicted, "exact": answer.exact, "space": answer.space,
        "freed_seconds": freed, "freed_knobs": knobs.as_dict(), "segments": answer.segments,
        "took_s": round(time.perf_counter() - start, 1),
    }  # fmt: skip


def load(file: Path) -> Results:
    """Return what a file holds; nothing where there is none.

    Raises:
        UsageError: It is something else.
    """
    if not file.exists():
        return {"format": FORMAT, "runs": {}, "exact": {}, "notes": {}}
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except ValueError:
        found = None
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise UsageError(f"{file} holds no results of this command", hint="name another file")
    return found


def known_schedules(file: Path) -> dict[str, Any]:
    """Return, by pair, its best known seconds and their setting; empty where there is no file."""
    found: dict[str, Any] = json.loads(file.read_text("utf-8")) if file.exists() else {}
    return found


def save(file: Path, results: Results) -> None:
    """Write all results, whole or not at all."""
    atomic_write(file, (json.dumps(results, indent=1, sort_keys=True) + "\n").encode())


def run_name(sampler: str, seed: int) -> str:
    """Return the key of a run within its pair."""
    return f"{sampler}/{seed}"


def collect(
    file: Path,
    models: Sequence[str],
    targets: Sequence[str],
    samplers: Sequence[str],
    seeds: Sequence[int],
    trials: int,
    *,
    with_exact: bool = False,
) -> Results:
    """Make the runs that a file does not hold, in order, saving after each."""
    results, passed_over = load(file), set[str]()
    for model, target in itertools.product(models, targets):
        name = f"{model}@{target}"
        runs = results["runs"].setdefault(name, {})
        todo = [
            (sampler, seed) for seed in seeds for sampler in samplers
            if len(runs.get(run_name(sampler, seed), ())) < trials
        ]  # fmt: skip
        wanted = with_exact and name not in results["exact"]
        if not todo and not wanted:
            continue
        pair = Pair.of(model, target)
        for sampler, seed in todo:
            if sampler not in passed_over and not _one(results, pair, runs, sampler, seed, trials):
                passed_over.add(sampler)
            save(file, results)
        if wanted:
            results["exact"][name] = exact(pair)
            save(file, results)
        print(f"{name}: {len(todo)} runs", flush=True)
    return results


def _one(
    results: Results, pair: Pair, runs: dict[str, Any], sampler: str, seed: int, trials: int
) -> bool:
    """Make one run; False where the sampler cannot be had."""
    try:
        found = run(pair, sampler, seed, trials)
    except UsageError as error:
        results["notes"][sampler] = str(error)
        print(f"{sampler} is passed over: {error}", flush=True)
        return False
    results["notes"].pop(sampler, None)
    # A space with fewer points than trials is used up: nothing better is left in it.
    runs[run_name(sampler, seed)] = found + found[-1:] * (trials - len(found))
    return True


def best_known(results: Results, pair: str) -> float:
    """Return the lowest seconds of a pair: known, of all runs and of the dynamic programme."""
    found = [run[-1] for run in results["runs"].get(pair, {}).values() if run[-1] is not None]
    exact = results["exact"].get(pair, {})
    found += [s for key in ("seconds", "freed_seconds") if (s := exact.get(key)) is not None]
    known = results.get("known", {}).get(pair)
    found += [] if known is None else [known["seconds"]]
    return min(found, default=float("inf"))


def gaps(results: Results, pair: str, sampler: str, count: int) -> list[float]:
    """Return each seed's distance to the best known after some measurements; infinite for none."""
    best = best_known(results, pair)
    runs = results["runs"].get(pair, {})
    mine = [run for name, run in sorted(runs.items()) if name.split("/")[0] == sampler]
    return [
        float("inf") if run[count - 1] is None else run[count - 1] / best - 1
        for run in mine if len(run) >= count
    ]  # fmt: skip


def quartiles(values: Sequence[float]) -> tuple[float, float, float]:
    """Return lower quartile, median and upper quartile."""
    if len(values) < 2:  # noqa: PLR2004  quantiles need two
        return (values[0],) * 3
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, middle, high


def samplers_in(results: Results) -> list[str]:
    """Return the samplers that have runs, ours first."""
    found = {name.split("/")[0] for runs in results["runs"].values() for name in runs}
    return [s for s in SAMPLERS if s in found] + sorted(found - set(SAMPLERS))


def ahead(results: Results, other: str, count: int) -> tuple[int, int]:
    """Count the pairs in which our median after some measurements is lower than another's.

    An equal median counts for ours where both have reached the best known.

    Returns:
        Those pairs, and all pairs that both have.
    """
    won = total = 0
    for pair in results["runs"]:
        ours, theirs = (gaps(results, pair, s, count) for s in (COST_MODEL, other))
        if ours and theirs:
            mine, its = statistics.median(ours), statistics.median(theirs)
            total += 1
            won += mine < its or (mine == its == 0)
    return won, total


def counts_in(results: Results) -> list[int]:
    """Return the checkpoints that some run has reached."""
    longest = max((len(r) for runs in results["runs"].values() for r in runs.values()), default=0)
    return [count for count in CHECKPOINTS if count <= longest]


def print_tables(results: Results) -> None:
    """Print gaps per pair and sampler, over all pairs, and who is ahead."""
    counts, samplers = counts_in(results), samplers_in(results)
    print("gap to the best known in %: median (lower quartile to upper quartile) over seeds")
    head = ("pair", "sampler", "seeds", *(f"after {c}" for c in counts))
    print_table(head, _rows(results, samplers, counts))
    print("\nmedian over pairs of the median gap in %, worst pair in brackets")
    print_table(head[1:2] + head[3:], _summary(results, samplers, counts))
    others = [s for s in samplers if s != COST_MODEL]
    if COST_MODEL in samplers and others:
        print(f"\npairs in which {COST_MODEL} is ahead at equal budget")
        lines = [
            (other, *(f"{w} of {n}" for w, n in (ahead(results, other, c) for c in counts)))
            for other in others
        ]
        print_table(("sampler", *(f"after {c}" for c in counts)), lines)
    if results["exact"]:
        print("\ndynamic programme: gap in % with outputs in DDR, and kept where they fit")
        print_table(("pair", "in DDR", "kept", "exact", "s"), _exact_rows(results))
    for sampler, note in sorted(results["notes"].items()):
        print(f"{sampler} is left out: {note}")


def _rows(
    results: Results, samplers: Sequence[str], counts: Sequence[int]
) -> Iterator[tuple[object, ...]]:
    for pair in results["runs"]:
        for sampler in samplers:
            found = [gaps(results, pair, sampler, count) for count in counts]
            if any(found):
                cells = [_cell(values) for values in found]
                yield (pair, sampler, max(map(len, found)), *cells)


def _cell(values: Sequence[float]) -> str:
    if not values:
        return "-"
    low, middle, high = (100 * q for q in quartiles(values))
    return f"{middle:.2f} ({low:.2f} to {high:.2f})"


def _summary(
    results: Results, samplers: Sequence[str], counts: Sequence[int]
) -> Iterator[tuple[str, ...]]:
    for sampler in samplers:
        cells = []
        for count in counts:
            each = [g for pair in results["runs"] if (g := gaps(results, pair, sampler, count))]
            medians = [100 * statistics.median(g) for g in each]
            text = f"{statistics.median(medians):.2f} ({max(medians):.2f})" if medians else "-"
            cells.append(text)
        yield (sampler, *cells)


def _exact_rows(results: Results) -> Iterator[tuple[object, ...]]:
    for pair, found in results["exact"].items():
        best = best_known(results, pair)
        cells = [
            "-" if found[key] is None else f"{100 * (found[key] / best - 1):.2f}"
            for key in ("seconds", "freed_seconds")
        ]
        yield (pair, *cells, "yes" if found["exact"] else "no", found["took_s"])


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", default=",".join(workloads.PAPER_TEN), help="comma-separated")
    parser.add_argument("--targets", default=",".join(TARGETS), help="comma-separated presets")
    parser.add_argument("--samplers", default=",".join(SAMPLERS), help="comma-separated")
    parser.add_argument("--seeds", type=int, default=10, help="seeds 0 to N - 1")
    parser.add_argument("--trials", type=int, default=200, help="measurements of each run")
    parser.add_argument("--out", type=Path, default=Path("search_quality.json"))
    parser.add_argument("--exact", action="store_true", help="the dynamic programme as well")
    parser.add_argument("--table", type=Path, help="print what a file holds; run nothing")
    parser.add_argument("--known", type=Path, default=KNOWN, help="best known schedules")
    options = parser.parse_args(arguments)
    known = known_schedules(options.known)
    if options.table is not None:
        print_tables(load(options.table) | {"known": known})
        return
    print(f"rounds of {SEARCH.rounds.round_trials} measurements", flush=True)
    results = collect(
        options.out, options.models.split(","), options.targets.split(","),
        options.samplers.split(","), range(options.seeds), options.trials,
        with_exact=options.exact,
    )  # fmt: skip
    print_tables(results | {"known": known})


if __name__ == "__main__":
    main()
