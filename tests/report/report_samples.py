"""Runs of small networks, and what reports know of them."""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from schedule_samples import STCP920, Net, workload

from autoturbo.database import Database, PairKey, RunInfo, TrialRecord
from autoturbo.graph.operators import Graph
from autoturbo.hardware.target import Target
from autoturbo.report.page.facts import Facts, Measured, gather
from autoturbo.schedule.knobs import Knobs
from autoturbo.search.space import Space
from autoturbo.simulate.evaluator import Evaluator
from autoturbo.simulate.measurement import Failure, Measurement
from autoturbo.tuner import pair_key, tune

HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(2)>',
    "</script><svg onload=alert(3)>",
    "{{7*7}}${alert(4)}",
    "' onmouseover='alert(5)",
    "<!--\u202egnp.\x1b[31m",
    "&lt;b&gt;",
)
"""Names that would do something where they were not shown as text."""


def residual(names: tuple[str, ...] = ()) -> Graph:
    """Two residual blocks and a classifier, nodes renamed in order where there are names."""
    net = Net(x=(8, 8, 16, 16))
    stem = net.relu(net.conv("x", 16))
    first = net.relu(net.sum(net.conv(net.relu(net.conv(stem, 16)), 16), stem))
    main = net.conv(net.relu(net.conv(first, 32, stride=2)), 32)
    second = net.relu(net.sum(main, net.conv(first, 32, kernel=1, stride=2)))
    net.linear(net.reshape(net.pool(second, 8, 8, "AveragePool"), 8, 32), 10)
    for node, name in zip(net.nodes, names, strict=False):
        _rename(net, node.output[0], name)
    graph = net.graph()
    return dataclasses.replace(graph, name=names[0]) if names else graph


def _rename(net: Net, old: str, new: str) -> None:
    for node in net.nodes:
        node.name = new if node.name == old else node.name
        for names in (node.input, node.output):
            for at, name in enumerate(names):
                names[at] = new if name == old else name
    net.shapes[new] = net.shapes.pop(old)
    net.read = {new if name == old else name for name in net.read}


def facts_of(graph: Graph, target: Target = STCP920, **how: object) -> Facts:
    """Tune in a folder of its own and gather."""
    with TemporaryDirectory() as folder:
        place = Path(folder)
        given = {"trials": 20, **how}
        result = tune(graph, target, database=place / "a.db", runs_folder=place / "runs",
                      model_file=f"{graph.name}.onnx", **given)  # type: ignore[arg-type]  # fmt: skip
        with Database.open(place / "a.db") as database:
            info, records = database.run(result.run), database.trials(result.run)
            (best,) = database.best(**dataclasses.asdict(info.key))
    evaluator = Evaluator(graph, target, info.key.dtype)
    return gather(info, "done", records, best.verified, graph, evaluator)


@functools.cache
def small_facts() -> Facts:
    """A run of 40 trials."""
    return facts_of(residual(), trials=40)


@functools.cache
def measured(split: str = "auto") -> Measured:
    """The published schedule, or one whose clusters do not work alike."""
    evaluator = Evaluator(workload("squeezenet1_1", 4), STCP920, "float16")
    schedule = evaluator.schedule(Knobs(cluster_split=split))
    outcome = evaluator.measure(schedule)
    assert isinstance(outcome, Measurement)
    return Measured.of(schedule, outcome)


def long_run(count: int) -> tuple[RunInfo, tuple[TrialRecord, ...], Graph, Evaluator]:
    """A run of many trials: a few are measured, the others have their figures changed a little."""
    graph, target = residual(), STCP920
    evaluator = Evaluator(graph, target, "float16")
    space = Space.of(graph, target, dtype="float16", subgraphs=8)
    rng = np.random.default_rng(0)
    points = np.unique(space.random(rng, 2 * count), axis=0)
    points = rng.permutation(points)[: count - 1]
    knobs = [Knobs(), *(space.knobs_of(point) for point in points)]
    outcomes = [evaluator.evaluate(one) for one in knobs[:64]]
    real = [o for o in outcomes if isinstance(o, Measurement)]
    base = max(real, key=lambda m: m.latency)
    for number in range(len(outcomes), len(knobs)):
        slower = 1.0 + rng.exponential(0.3) + 1.0 / (1 + number / 500)
        if number % 37 == 0:
            outcomes.append(Failure("LB", "too full"))
        else:
            outcomes.append(dataclasses.replace(base, latency=base.latency * slower))
    records = tuple(
        TrialRecord("0123456789", n, k, o, f"2026-01-01T00:{n // 300:02d}:00.000Z")
        for n, (k, o) in enumerate(zip(knobs, outcomes, strict=True))
    )
    best = min((r for r in records if r.latency is not None), key=lambda r: r.latency or 0.0)
    key: PairKey = pair_key(graph, target, "float16")
    settings = {
        "target_description": target.as_dict(), "dtype": "float16", "subgraphs": 8, "seed": 0,
        "trials": count, "effort": "quick", "sampler": "cost-model", "objective": "latency",
    }  # fmt: skip
    info = RunInfo("0123456789", key, graph.name, "net.onnx", graph.batch, target.name, settings,
                   {"autoturbo": "0"}, records[0].created, best_trial=best.number)  # fmt: skip
    return info, records, graph, evaluator
