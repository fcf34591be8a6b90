"""Runs of small networks, and what reports know of them."""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from chains import chain

from autoturbo.database import Database
from autoturbo.graph.operators import Graph
from autoturbo.hardware.target import Target
from autoturbo.report.facts import Facts, Measured, gap_shares, gather
from autoturbo.report.search_course import judged_predictions
from autoturbo.schedule.knobs import Knobs
from autoturbo.search.progress import Trial
from autoturbo.simulator.evaluator import Evaluator
from autoturbo.simulator.measurement import Failure, Measurement, Outcome
from autoturbo.tuning.tuner import tune
from tests.schedule.schedule_samples import STCP920, Net, workload

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
    return gather(info, "done", records, info.handed_out, best.verified, graph, evaluator)


@functools.cache
def small_facts() -> Facts:
    """A run of 32 trials: enough to judge knobs by."""
    return facts_of(residual(), trials=32)


@functools.cache
def measured(split: str = "auto", *, batch: int = 4, passes: int = 1) -> Measured:
    """The published schedule, or one whose clusters do not work alike, or one of several passes."""
    evaluator = Evaluator(workload("squeezenet1_1", batch), STCP920, "float16")
    each = Knobs().batches_per_cluster if passes == 1 else batch // STCP920.clusters // passes
    schedule = evaluator.schedule(Knobs(cluster_partitioning=split, batches_per_cluster=each))
    outcome = evaluator.measure(schedule)
    assert isinstance(outcome, Measurement)
    return Measured.of(schedule, outcome)


@functools.cache
def fetching() -> Measured:
    """A schedule that fetches weights while the kernels before theirs run."""
    evaluator = Evaluator(workload("squeezenet1_1", 4), STCP920, "float16")
    schedule = evaluator.schedule(Knobs(fetch_ahead=16, max_layers=4))
    outcome = evaluator.measure(schedule)
    assert isinstance(outcome, Measurement)
    return Measured.of(schedule, outcome)


@functools.cache
def deep_facts() -> Facts:
    """A network of 400 layers, a kernel each, with the search of the small run."""
    evaluator = Evaluator(chain(400, 4), STCP920, "float16")
    schedule = evaluator.schedule(Knobs(max_layers=1))
    outcome = evaluator.measure(schedule)
    assert isinstance(outcome, Measurement)
    best = Measured.of(schedule, outcome)
    return dataclasses.replace(
        small_facts(), best=best, default=None, others={}, gap=gap_shares(schedule)
    )


def long_facts(count: int) -> Facts:
    """The small run as if it had made so many trials; only the first ones were."""
    small, rng = small_facts(), np.random.default_rng(0)
    base = small.best.measurement
    slower = 1.0 + rng.exponential(0.3, count) + 1.0 / (1 + np.arange(count) / 500)
    outcomes: list[Outcome] = [
        Failure("LB", "too full")
        if number % 37 == 0
        else dataclasses.replace(base, latency=base.latency * float(factor))
        for number, factor in enumerate(slower)
    ]
    further = [Trial(n, Knobs(), outcomes[n]) for n in range(len(small.trials), count)]
    pairs = [(n, base.latency * (1 + n % 7 / 7), base.latency * (1 + n % 5 / 5)) for n in
             range(2000)]  # fmt: skip
    return dataclasses.replace(
        small, trials=(*small.trials, *further), predictions=judged_predictions(pairs)
    )
