"""Schedule evaluations per second: knobs in, measurement out, everything between.

Cold: a new workbench for every evaluation. Warm: the same setting again and again. Walk: one knob
changes at random from each setting to the next, as in a search. No memory: the walk's settings
with the memory of kernels thrown away before each. ``python benchmarks/evaluations.py [NAME ...]``
"""

from __future__ import annotations

import json
import random
import sys

from bench_tools import cpu_seconds, in_fresh_process, peak_mib, print_table

from autoturbo.datasets import workloads
from autoturbo.graph.onnx_import import import_model
from autoturbo.hardware import load_target
from autoturbo.schedule.knobs import AUTO, Knobs, knob_specs
from autoturbo.simulate.evaluator import Evaluator, Simulator
from autoturbo.simulate.measurement import Measurement, Outcome

MODELS = ("squeezenet1_1", "resnet18", "resnet50", "bert_base_s128", "densenet121", "unet")
COLD, WARM, WALK = 3, 30, 30
"""Evaluations of each kind: all models together take a few minutes."""


def walk(seed: int, length: int, batches: tuple[int, ...]) -> list[Knobs]:
    """Settings that differ in one knob from one to the next."""
    generator = random.Random(seed)  # noqa: S311  a benchmark's settings are no secret
    choices = {name: spec.choices for name, spec in knob_specs().items() if spec.choices}
    choices["batches_per_cluster"] = batches
    knobs, found = Knobs(), []
    for _ in range(length):
        name = generator.choice(sorted(choices))
        values = [value for value in (AUTO, *choices[name]) if value != getattr(knobs, name)]
        knobs = Knobs.from_dict({**knobs.as_dict(), name: generator.choice(values)})
        found.append(knobs)
    return found


def measure(name: str) -> None:
    """One model on ``stcp920``."""
    model, target = import_model(workloads.get(name).file), load_target("stcp920")
    Evaluator(model, target, "float16").evaluate(Knobs())  # compiled code is loaded from its cache
    before = peak_mib()
    cold = cpu_seconds(
        lambda: [Evaluator(model, target, "float16").evaluate(Knobs()) for _ in range(COLD)]
    )
    bench = Evaluator(model, target, "float16")
    bench.evaluate(Knobs())
    warm = cpu_seconds(lambda: [bench.evaluate(Knobs()) for _ in range(WARM)])
    settings = walk(0, WALK, bench.bench.batch_choices())
    search, forgetful = (Evaluator(model, target, "float16") for _ in range(2))
    searched = cpu_seconds(lambda: [search.evaluate(knobs) for knobs in settings])

    def forget(knobs: Knobs) -> Outcome:
        forgetful.measurer = Simulator()
        return forgetful.evaluate(knobs)

    without = cpu_seconds(lambda: [forget(knobs) for knobs in settings])
    outcome = bench.evaluate(Knobs())
    kernels = outcome.kernels if isinstance(outcome, Measurement) else 0
    rates = (COLD / cold, WARM / warm, WALK / searched, WALK / without)
    facts = {"operators": len(model.operators), "kernels": kernels, "rates": rates}
    print(json.dumps({**facts, "mib": peak_mib() - before}))


def main(names: list[str]) -> None:
    """Print evaluations per CPU second and their ratios."""
    found = {name: in_fresh_process(__file__, "--one", name) for name in names or MODELS}
    print("evaluations per CPU second of one core, stcp920, float16")
    print_table(
        ("model", "operators", "kernels", "cold", "warm", "walk", "walk, no memory", "memory MiB"),
        [(n, f["operators"], f["kernels"], *f["rates"], f["mib"]) for n, f in found.items()],
    )
    print_table(
        ("model", "warm/cold", "walk/cold", "walk/no memory"),
        [
            (n, r[1] / r[0], r[2] / r[0], r[2] / r[3])
            for n, r in ((n, f["rates"]) for n, f in found.items())
        ],
    )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        measure(sys.argv[2])
    else:
        main(sys.argv[1:])
