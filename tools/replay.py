"""Makes and checks the replay corpus: what settings and searches gave when it was made.

``python tools/replay.py check`` builds and measures 50 settings of every bundled workload on six
targets, and runs ten workloads on three targets with three seeds through ``autoturbo.tune``. It
compares schedules, latencies and counters with ``tools/replay.json`` and names what differs; with
``--part 10`` it takes every tenth setting and search, with ``--only A,B`` two workloads. ``make``
writes results anew: only for a change that is meant to give others, and the commit says which.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import multiprocessing
import random
import resource
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import autoturbo
from autoturbo.atomic import atomic_write
from autoturbo.datasets import workloads
from autoturbo.errors import KnobsError
from autoturbo.schedule.knobs import Knobs, knob_specs, subgraph_knob_specs
from autoturbo.schedule.pipeline import with_possible_splits
from autoturbo.simulate.evaluator import Evaluator
from autoturbo.simulate.measurement import Measurement

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

CORPUS = Path(__file__).with_suffix(".json")

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

OF_MODEL = {
    "dim": (0, 1, 2, 3), "factor": (2, 3, 4, 8), "inner_dim": (0, 1, 2, 3), "inner_factor": (2, 4),
    "cores": (1, 2, 4), "core_dim": (0, 1, 2),
}  # fmt: skip
"""Values of knobs of sub-graphs whose values depend on the model: those that do not fit are made
to where that is possible, and are a result of their own where it is not."""

OTHERWISE = 0.25
"""Probability that a knob of a random setting is not ``"auto"``."""


def main() -> None:
    """Make or check the corpus; status 1 if something differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("action", choices=("make", "check"))
    parser.add_argument("--part", type=int, default=1, help="take every N-th setting and search")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--only", default="", help="workloads, separated by commas; all if empty")
    options = parser.parse_args()
    names = options.only.split(",") if options.only else list(workloads.names())
    corpus = json.loads(CORPUS.read_text()) if CORPUS.exists() else {"settings": {}, "results": {}}
    settings = corpus["settings"]
    if options.action == "make":
        settings |= {name: drawn_settings(name) for name in names}
    asked = [("settings", name, settings[name], options.part) for name in names]
    searches = list(itertools.product(TUNED, SEARCHED, range(SEEDS)))[:: options.part]
    asked += [("search", *one) for one in searches if one[0] in names]
    with multiprocessing.get_context("spawn").Pool(options.jobs, maxtasksperchild=4) as pool:
        found = dict(itertools.chain(*pool.imap(_results, asked, chunksize=1)))
    if options.action == "make":
        corpus["results"] |= found
        atomic_write(CORPUS, _text(corpus))
        print(f"{CORPUS.name}: {sum(map(len, found.values()))} results made")
        return
    count = differing = 0
    for name, results in found.items():
        known = corpus["results"][name]
        steps = known[:: options.part] if name.startswith("settings") else known
        count += len(results)
        for number, (one, was) in enumerate(zip(results, steps, strict=True)):
            if one != was:
                print(f"{name}, {number * options.part}: {one}, was {was}")
                differing += 1
    print(f"{count - differing} of {count} results are the corpus's")
    sys.exit(bool(differing))


def drawn_settings(name: str) -> list[dict[str, Any]]:
    """Return settings of a workload, as knobs that differ from the heuristic."""
    rng = random.Random(name)  # noqa: S311
    evaluator = _evaluator(name, "stcp920")
    bench = evaluator.bench
    samples = bench.batch_choices()
    found: list[dict[str, Any]] = [{}]
    while len(found) < SETTINGS:
        values = _drawn(rng, {n: s.choices for n, s in knob_specs().items()})
        if rng.random() < OTHERWISE and values.get("cluster_split", "batch") == "batch":
            values["batches_per_cluster"] = rng.choice(samples)
        layers = [layer.name for layer in bench.problem(bench.share().batches).layers]
        chosen = rng.sample(layers, min(rng.choice((0, 0, 1, 2, 6)), len(layers)))
        own = {n: OF_MODEL.get(n, s.choices) for n, s in subgraph_knob_specs().items()}
        overrides = [{"layer": layer, **_drawn(rng, own)} for layer in chosen]
        values["overrides"] = [one for one in overrides if len(one) > 1]
        try:
            knobs, _ = with_possible_splits(bench, Knobs.from_dict(values))
        except KnobsError:
            continue  # more samples at once than some way of sharing has
        found.append(knobs.as_dict())
    return found


def _drawn(rng: random.Random, choices: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
    """Return random values for some of the knobs that have a list of them."""
    some = [name for name, values in choices.items() if values and rng.random() < OTHERWISE]
    return {name: rng.choice(choices[name]) for name in some}


def _evaluator(name: str, target_name: str) -> Evaluator:
    target = autoturbo.load_target(target_name)
    graph = autoturbo.load_model(str(workloads.get(name).file))
    return Evaluator(graph, target, target.default_dtype)


def _results(asked: tuple[Any, ...]) -> list[tuple[str, list[str]]]:
    """Return the results of one request by name; run in a process of its own."""
    kind, *rest = asked
    found = _measured(*rest) if kind == "settings" else [_searched(*rest)]
    used = resource.getrusage(resource.RUSAGE_SELF)
    mib, cpu = used.ru_maxrss / 1024, used.ru_utime + used.ru_stime
    print(f"  {' '.join(map(str, (kind, rest[0])))}: {mib:.0f} MiB, {cpu:.0f} CPU s", flush=True)
    return found


def _measured(
    name: str, settings: Sequence[Mapping[str, Any]], part: int
) -> list[tuple[str, list[str]]]:
    """Return digests of schedules, latencies and digests of counters by target."""
    found = []
    for target in TARGETS:
        evaluator = _evaluator(name, target)
        results = [_result(evaluator, Knobs.from_dict(values)) for values in settings[::part]]
        found.append((f"settings {name} @ {target}", results))
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


def _searched(name: str, target: str, seed: int) -> tuple[str, list[str]]:
    """Return the best latency of a search and a digest of its schedule and of all its trials."""
    result = autoturbo.tune(
        autoturbo.load_model(str(workloads.get(name).file)), autoturbo.load_target(target),
        trials=TRIALS, seed=seed, verify=False,
    )  # fmt: skip
    trials = [getattr(t.outcome, "latency", None) for t in result.history]
    best = result.best
    value = f"{_schedule_digest(best.schedule.text)} {best.measurement.latency!r} {_digest(trials)}"
    return f"tune {name} @ {target} seed {seed}", [value]


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
