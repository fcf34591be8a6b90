"""Schedule evaluations per second: knobs in, measurement out, everything between.

The settings are those of a real search (this package's sampler, seed 0), in its order, so that the
figures are what a search pays.

- *cold*: a new workbench for every evaluation of the default;
- *first*: the search's settings one after another, nothing known before the first;
- *times*: the same with nothing known but the times of kernels, by signature;
- *search*: what is known about kernels stays (their times, their programs, how sub-graphs can be
  cut), what is known about schedules is forgotten;
- *no memory*: nothing known at first, all kernels' times forgotten before each evaluation;
- *again*: the same settings once more, everything known.

``--scaling`` measures the cost against layers and instances, ``--profile`` prints where the time of
*search* goes.

::

    python benchmarks/evaluations.py [NAME ...] [--trials N]
    python benchmarks/evaluations.py --scaling
    python benchmarks/evaluations.py --profile resnet50
"""

from __future__ import annotations

import argparse
import cProfile
import dataclasses
import json
import pstats
import tempfile
from pathlib import Path
from typing import Any

from bench_tools import cpu_seconds, in_fresh_process, peak_mib, print_table
from chains import chain, narrow

import autoturbo
from autoturbo.config import SUBGRAPHS
from autoturbo.datasets import workloads
from autoturbo.graph.onnx_import import import_model
from autoturbo.graph.operators import Graph
from autoturbo.hardware import load_target
from autoturbo.schedule.knobs import Knobs
from autoturbo.schedule.partition.grouping import groupings
from autoturbo.schedule.pipeline import SchedulerCache
from autoturbo.simulator.evaluator import Evaluator, Simulator
from autoturbo.simulator.measurement import Measurement

MODELS = ("squeezenet1_1", "resnet18", "resnet50", "bert_base_s128", "densenet121", "unet")
TRIALS, COLD = 400, 3
TARGET, DTYPE = "stcp920", "float16"


def searched(model: Graph, trials: int) -> list[Knobs]:
    """Return the settings that a search tries, in order."""
    with tempfile.TemporaryDirectory() as folder:
        result = autoturbo.tune(
            model, load_target(TARGET), trials=trials, seed=0, subgraphs=SUBGRAPHS,
            database=Path(folder) / "search.db",
            runs_folder=Path(folder),
        )  # fmt: skip
    return [trial.knobs for trial in result.trials]


def with_loads(knobs: Knobs, fetch_ahead: int) -> Knobs:
    """Return a setting in which all loads may run so far ahead."""
    own = tuple(dataclasses.replace(o, fetch_ahead="auto") for o in knobs.overrides)
    return dataclasses.replace(knobs, fetch_ahead=fetch_ahead, overrides=own)


def evaluate_all(model_scheduler: Evaluator, settings: list[Knobs]) -> None:
    """Measure settings one after another."""
    for knobs in settings:
        model_scheduler.evaluate(knobs)


def forget_schedules(model_scheduler: Evaluator) -> None:
    """Forget plans, orders, placements, timelines and outcomes; keep what is known of kernels."""
    books, model_scheduler.model_scheduler.cache = (
        model_scheduler.model_scheduler.cache.books,
        SchedulerCache(),
    )
    model_scheduler.model_scheduler.cache.books = books
    for context in model_scheduler.model_scheduler.contexts.values():
        groupings(context).known.forget()
        groupings(context).runs.clear()
    assert isinstance(model_scheduler.measurer, Simulator)  # noqa: S101  for the type checker
    model_scheduler.measurer = Simulator(model_scheduler.measurer.memory)


def without_memory(model_scheduler: Evaluator, settings: list[Knobs]) -> None:
    """Evaluate settings with kernels and schedules forgotten each time."""
    for knobs in settings:
        model_scheduler.measurer = Simulator()
        model_scheduler.evaluate(knobs)


def warmed(model: Graph, settings: list[Knobs]) -> Evaluator:
    """Return an evaluator that knows the kernels of some settings and nothing else."""
    known = Evaluator(model, load_target(TARGET), DTYPE)
    evaluate_all(known, settings)
    assert isinstance(known.measurer, Simulator)  # noqa: S101  for the type checker
    return Evaluator(model, load_target(TARGET), DTYPE, Simulator(known.measurer.memory))


def measure(name: str, trials: int, fetch_ahead: int | None = None) -> dict[str, Any]:
    """Measure one model on one target: evaluations per CPU second.

    Args:
        name: Of the model.
        trials: Of the search.
        fetch_ahead: Of all settings; their own if None.

    Returns:
        Settings, kernels, rates and MiB.
    """
    model, target = import_model(workloads.get(name).file), load_target(TARGET)
    settings = searched(model, trials)
    if fetch_ahead is not None:
        settings = [with_loads(knobs, fetch_ahead) for knobs in settings]
    before = peak_mib()
    cold = cpu_seconds(
        lambda: [Evaluator(model, target, DTYPE).evaluate(Knobs()) for _ in range(COLD)]
    )
    model_scheduler = Evaluator(model, target, DTYPE)
    first = cpu_seconds(lambda: evaluate_all(model_scheduler, settings))
    again = cpu_seconds(lambda: evaluate_all(model_scheduler, settings))
    warm = warmed(model, settings)
    times = cpu_seconds(lambda: evaluate_all(warm, settings))
    forget_schedules(warm)
    search = cpu_seconds(lambda: evaluate_all(warm, settings))
    forgetful = Evaluator(model, target, DTYPE)
    without = cpu_seconds(lambda: without_memory(forgetful, settings))
    outcome = model_scheduler.evaluate(Knobs())
    count = len(settings)
    return {
        "settings": count,
        "kernels": outcome.kernels if isinstance(outcome, Measurement) else 0,
        "rates": [COLD / cold, *(count / s for s in (first, times, search, without, again))],
        "mib": peak_mib() - before,
    }


def scale(layers: int, samples: int) -> dict[str, Any]:
    """Measure a chain whose every layer is cut into one part per sample: CPU seconds and MiB."""
    model, target = chain(layers, samples), narrow()
    knobs = {"max_layers": 1}
    Evaluator(chain(2, 16), target, DTYPE).evaluate(Knobs(**knobs))  # type: ignore[arg-type]
    model_scheduler = Evaluator(model, target, DTYPE)
    first = cpu_seconds(lambda: model_scheduler.evaluate(Knobs.from_dict(knobs)))
    other = Knobs.from_dict({**knobs, "spill_victim": "largest"})
    second = cpu_seconds(lambda: model_scheduler.evaluate(other))
    third = Knobs.from_dict({**knobs, "instance_order": "bfs"})
    broad = cpu_seconds(lambda: model_scheduler.evaluate(third))
    return {"instances": layers * samples, "seconds": [first, second, broad], "mib": peak_mib()}


def print_scaling() -> None:
    """Print microseconds per instance against the number of layers and of instances."""
    rows = []
    for layers, samples in (
        (10, 100),
        (100, 100),
        (1000, 100),
        (10, 1000),
        (100, 1000),
        (1000, 1000),
    ):
        found = in_fresh_process(__file__, "--scale", str(layers), str(samples))
        per = [s / found["instances"] * 1e6 for s in found["seconds"]]
        rows.append((f"{layers} x {samples}", f"{found['instances']:,}", *per, round(found["mib"])))
    head = ("layers x parts", "instances", "us new", "us next", "us breadth-first", "MiB")
    print("CPU microseconds per instance of one evaluation; new: nothing known; next: another")
    print("spill rule; breadth-first: another order")
    print_table(head, rows)


def print_profile(name: str, trials: int) -> None:
    """Print where the time of a search goes, kernels known."""
    model = import_model(workloads.get(name).file)
    settings = searched(model, trials)
    model_scheduler = warmed(model, settings)
    evaluate_all(model_scheduler, settings)
    forget_schedules(model_scheduler)
    profile = cProfile.Profile()
    profile.runcall(evaluate_all, model_scheduler, settings)
    stats = pstats.Stats(profile)
    total = stats.total_tt  # type: ignore[attr-defined]
    by_module: dict[str, float] = {}
    for (file, _, function), (_, _, own, _, _) in stats.stats.items():  # type: ignore[attr-defined]
        inside = "autoturbo" in file
        module = Path(file).stem if inside else "Python and libraries"
        by_module[module] = by_module.get(module, 0.0) + own
        del function
    print(f"{name}: {len(settings)} settings of a search, kernels known; share of time by module")
    rows = sorted(by_module.items(), key=lambda item: -item[1])[:14]
    print_table(("module", "share"), [(m, f"{s / total:.1%}") for m, s in rows])


def main() -> None:
    """Parse and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", default=[])
    parser.add_argument("--trials", type=int, default=TRIALS)
    parser.add_argument("--scaling", action="store_true")
    parser.add_argument("--profile", action="store_true")
    parser.add_argument(
        "--fetch-ahead", type=int, help="of all settings: 0 without loads over kernels, 1024 with"
    )
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--scale", nargs=2, type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(options.one, options.trials, options.fetch_ahead)))
    elif options.scale:
        print(json.dumps(scale(*options.scale)))
    elif options.scaling:
        print_scaling()
    elif options.profile:
        print_profile((options.names or ["resnet50"])[0], options.trials)
    else:
        _print_rates(options.names or list(MODELS), options.trials, options.fetch_ahead)


def _print_rates(names: list[str], trials: int, fetch_ahead: int | None) -> None:
    trial = ["--trials", str(trials)]
    if fetch_ahead is not None:
        trial += ["--fetch-ahead", str(fetch_ahead)]
    found = {n: in_fresh_process(__file__, "--one", n, *trial) for n in names}
    print(f"evaluations per CPU second of one core, {TARGET}, {DTYPE}, settings of a search")
    print_table(
        (
            "model",
            "settings",
            "kernels",
            "cold",
            "first",
            "times",
            "search",
            "no memory",
            "again",
            "MiB",
        ),
        [(n, f["settings"], f["kernels"], *f["rates"], f["mib"]) for n, f in found.items()],
    )
    print_table(
        ("model", "search/cold", "search/no memory", "again/search"),
        [
            (n, r[3] / r[0], r[3] / r[4], r[5] / r[3])
            for n, r in ((n, f["rates"]) for n, f in found.items())
        ],
    )


if __name__ == "__main__":
    main()
