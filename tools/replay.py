"""The replay corpus: what settings and searches gave when it was made.

``replay.json`` has 50 settings of every bundled workload on six targets, each with the digest of
its schedule, its latency and the digest of its counters: settings give the same to the bit.
``replay_searches.json`` has the latency that ``autoturbo.tune`` found for ten workloads on three
targets with three seeds: searches change, so what they find is compared in the mean.

``tests/test_replay.py`` checks a part of both. ``python tools/replay.py settings`` checks all
settings, ``searches`` all searches; with ``--make`` they write results anew: only for a change that
is meant to give others, and the commit says which.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import multiprocessing
import random
import sys
from pathlib import Path
from statistics import geometric_mean
from typing import TYPE_CHECKING, Any

import autoturbo
from autoturbo.datasets import workloads
from autoturbo.errors import KnobsError
from autoturbo.files import atomic_write
from autoturbo.schedule.knobs import Knobs, fitting, model_knobs, subgraph_knobs
from autoturbo.search.warm_starts.transfer import with_possible_splits
from autoturbo.simulator.evaluator import Evaluator
from autoturbo.simulator.measurement import Measurement

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from multiprocessing.pool import Pool

    from autoturbo import Graph

CORPUS = Path(__file__).with_suffix(".json")

SEARCHES = Path(__file__).with_name("replay_searches.json")

TARGETS = ("ascend-910", "goya", "ipu-mk2", "mlu100", "stcp920", "tpu-v4i")

SETTINGS = 50
"""Settings of each workload; the first is the published heuristic, others are drawn at random."""

TUNED = (
    "resnet50", "bert_base_s128", "bert_base_s512", "dlrm", "mobilenet_v2", "vit_b16", "conformer",
    "squeezenet1_1", "llama_decode", "yolov5s_like",
)  # fmt: skip
"""Workloads of the searches."""

SEARCHED = ("stcp920", "ipu-mk2", "tpu-v4i")

SEEDS, TRIALS = 3, 48

SLOWER = 1.005
"""What all searches may find, over what they found, in the geometric mean."""

OF_MODEL = {
    "dim": (0, 1, 2, 3), "factor": (2, 3, 4, 8), "inner_dim": (0, 1, 2, 3), "inner_factor": (2, 4),
    "cores": (1, 2, 4), "core_parallel_dim": (0, 1, 2),
}  # fmt: skip
"""Values of knobs of sub-graphs whose values depend on the model: those that do not fit are made
to where that is possible, and are a result of their own where it is not."""

OTHERWISE = 0.25
"""Probability that a knob of a random setting is not ``"auto"``."""


def main() -> None:
    """Check or make a part of the corpus; status 1 if something differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=("settings", "searches"))
    parser.add_argument("--make", action="store_true", help="write results anew")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--only", default="", help="workloads, separated by commas; all if empty")
    options = parser.parse_args()
    names = options.only.split(",") if options.only else list(workloads.names())
    with multiprocessing.get_context("spawn").Pool(options.jobs, maxtasksperchild=4) as pool:
        if options.kind == "settings":
            _make_settings(names, pool) if options.make else _check_settings(names, pool)
        else:
            pairs = [pair for pair in itertools.product(TUNED, SEARCHED) if pair[0] in names]
            asked = [(*pair, seed) for pair in pairs for seed in range(SEEDS)]
            _found(asked, pool.starmap(searched, asked, chunksize=1), make=options.make)


def _make_settings(names: Sequence[str], pool: Pool) -> None:
    corpus = json.loads(CORPUS.read_text())
    corpus["settings"] |= {name: drawn_settings(name) for name in names}
    asked = [(name, corpus["settings"][name]) for name in names]
    for results in pool.starmap(_measured, asked, chunksize=1):
        corpus["results"] |= {of: list(values.values()) for of, values in results.items()}
    atomic_write(CORPUS, _text(corpus))


def _check_settings(names: Sequence[str], pool: Pool) -> None:
    lines = [line for found in pool.imap(differing, names) for line in found]
    print("\n".join([*lines, f"{len(lines)} results of {len(names)} workloads differ"]))
    sys.exit(bool(lines))


def _found(
    asked: Sequence[tuple[str, str, int]], latencies: Sequence[float], *, make: bool
) -> None:
    ratios = over_known(asked, latencies)
    for (name, target, seed), ratio in zip(asked, ratios, strict=True):
        print(f"{name} @ {target} seed {seed}: {ratio:.4f}")
    mean = geometric_mean(ratios)
    print(f"{len(asked)} searches: {mean:.4f} of the latency that was found, in the mean")
    if make:
        found = json.loads(SEARCHES.read_text())
        for (name, target, seed), latency in zip(asked, latencies, strict=True):
            found[f"{name} @ {target}"][seed] = latency
        lines = (f"{json.dumps(pair)}: {json.dumps(values)}" for pair, values in found.items())
        atomic_write(SEARCHES, "{\n" + ",\n".join(lines) + "\n}\n")
        return
    sys.exit(mean > SLOWER)


def in_part(number: int, target: int, part: int) -> bool:
    """Return whether a setting is checked on a target, of N parts: others on each target."""
    return (number + 3 * target) % part == 0


def differing(name: str, part: int = 1) -> list[str]:
    """Return a line for every setting of a workload whose result is not the corpus's.

    Args:
        name: The workload.
        part: Take every N-th setting of each target.
    """
    corpus = json.loads(CORPUS.read_text())
    found = _measured(name, corpus["settings"][name], part)
    return [
        f"{of}, setting {number}: {one}, was {corpus['results'][of][number]}"
        for of, results in found.items()
        for number, one in results.items()
        if one != corpus["results"][of][number]
    ]


def over_known(asked: Sequence[tuple[str, str, int]], latencies: Sequence[float]) -> list[float]:
    """Return what searches found over what they found when the corpus was made."""
    known = json.loads(SEARCHES.read_text())
    return [
        latency / known[f"{name} @ {target}"][seed]
        for (name, target, seed), latency in zip(asked, latencies, strict=True)
    ]


def drawn_settings(name: str) -> list[dict[str, Any]]:
    """Return settings of a workload, as knobs that differ from the heuristic."""
    rng = random.Random(name)  # noqa: S311
    evaluator = _evaluator(_graph(name), "stcp920")
    model_scheduler = evaluator.model_scheduler
    samples = model_scheduler.batch_choices()
    found: list[dict[str, Any]] = [{}]
    while len(found) < SETTINGS:
        values = _drawn(rng, {n: s.choices for n, s in model_knobs().items()})
        if rng.random() < OTHERWISE and values.get("cluster_partitioning", "batch") == "batch":
            values["batches_per_cluster"] = rng.choice(samples)
        layers = [
            layer.name for layer in model_scheduler.context(model_scheduler.share().batches).layers
        ]
        chosen = rng.sample(layers, min(rng.choice((0, 0, 1, 2, 6)), len(layers)))
        own = {n: OF_MODEL.get(n, s.choices) for n, s in subgraph_knobs().items()}
        overrides = [{"layer": layer, **_drawn(rng, own)} for layer in chosen]
        values["overrides"] = [one for one in overrides if len(one) > 1]
        try:
            knobs, _ = with_possible_splits(model_scheduler, Knobs.from_dict(values))
        except KnobsError:
            continue  # more samples at once than some way of sharing has
        found.append(knobs.as_dict())
    return found


def _drawn(rng: random.Random, choices: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
    """Return random values for some of the knobs that have a list of them."""
    some = [name for name, values in choices.items() if values and rng.random() < OTHERWISE]
    return {name: rng.choice(choices[name]) for name in some}


def _graph(name: str) -> Graph:
    return autoturbo.load_model(str(workloads.get(name).file))


def _evaluator(graph: Graph, target_name: str) -> Evaluator:
    target = autoturbo.load_target(target_name)
    return Evaluator(graph, target, target.default_dtype)


def _measured(
    name: str, settings: Sequence[Mapping[str, Any]], part: int = 1
) -> dict[str, dict[int, str]]:
    """Return digests of schedules, latencies and digests of counters, by target and setting."""
    graph, found = _graph(name), {}
    for index, target in enumerate(TARGETS):
        evaluator = _evaluator(graph, target)
        evaluator_target = evaluator.model_scheduler.target
        found[f"settings {name} @ {target}"] = {
            number: _result(evaluator, fitting(Knobs.from_dict(values), evaluator_target))
            for number, values in enumerate(settings)
            if in_part(number, index, part)
        }
    return found


def _result(evaluator: Evaluator, knobs: Knobs) -> str:
    try:
        schedule = evaluator.schedule(knobs)
    except KnobsError:
        return "does not fit the model"
    outcome = evaluator.measure(schedule)
    if not isinstance(outcome, Measurement):
        return f"{_schedule_digest(schedule.text)} {outcome.reason} {outcome.demand}"
    counters = _digest([outcome.counters(), outcome.subgraph_times])
    return f"{_schedule_digest(schedule.text)} {outcome.latency!r} {counters}"


def searched(name: str, target: str, seed: int) -> float:
    """Return the least latency that a search finds, in seconds."""
    result = autoturbo.tune(
        _graph(name), autoturbo.load_target(target), trials=TRIALS, seed=seed, verify=False
    )
    return float(result.best.measurement.latency)


def _schedule_digest(text: str) -> str:
    """Return a digest of what a schedule file decides, whatever its layers are called."""
    document = json.loads(text)
    buffers = [
        [value for key, value in one.items() if key != "tensor"] for one in document["buffers"]
    ]
    layers = [one["operators"] for one in document["layers"]]
    parts = [[*one.values()] for name in ("subgraphs", "order") for one in document[name]]
    return _digest([document["share"], layers, parts, buffers])


def _text(corpus: Mapping[str, Mapping[str, Sequence[Any]]]) -> str:
    """Return the corpus as JSON, a setting or a result a line."""

    def of(values: Mapping[str, Sequence[Any]]) -> str:
        each = {
            n: ",\n".join(json.dumps(v, separators=(",", ":")) for v in values[n]) for n in values
        }
        return ",\n".join(f"{json.dumps(name)}:[\n{text}\n]" for name, text in each.items())

    groups = (f"{json.dumps(group)}:{{\n{of(values)}\n}}" for group, values in corpus.items())
    return "{" + ",\n".join(groups) + "}\n"


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:12]


if __name__ == "__main__":
    main()
