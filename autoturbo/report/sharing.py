"""Sentences on how clusters or units share the work of a model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from autoturbo.graph.operators import Graph
from autoturbo.report.units import duration, percent, size
from autoturbo.schedule.knobs import AUTO, Knobs
from autoturbo.schema import Natural, TypedDict
from autoturbo.simulator.measurement import Measurement, Outcome

_WHAT = {
    "spatial": "rows or columns of every output",
    "channel": "channels of every output",
    "either": "rows or channels of every output, whichever looks faster",
    "pipeline": "sub-graphs, in a pipeline",
    "branches": "sub-graphs that run side by side",
}

_COPIES = "copies"
"""What a machine's measurement calls the time that copies take, beside its units'."""


def sharing(knobs: Knobs, best: Measurement, trials: Iterable[tuple[Knobs, Outcome]]) -> str:
    """Return how the best schedule of a run shares out the work; empty where clusters work alike.

    Args:
        knobs: Knobs of the best trial.
        best: Measurement of the best trial.
        trials: All trials of the run, to find the best whose clusters share out samples: with one
            sample, one cluster has it all.
    """
    if _COPIES in best.busy:
        return _by_units(best)
    if knobs.cluster_partitioning == AUTO:
        return ""
    apart = [
        outcome.latency
        for own, outcome in trials
        if own.cluster_partitioning == AUTO and isinstance(outcome, Measurement)
    ]
    line = f"split {_WHAT[str(knobs.cluster_partitioning)]}: {duration(best.latency)}"
    if not apart:
        return line
    alone = "one cluster alone" if best.batch == 1 else "splitting the batch"
    return f"{line}; {alone}: {duration(min(apart))}"


MixedSamples = TypedDict("MixedSamples", {
    "node": str, "op_type": str, "reason": str, "change": str, "clusters": dict[str, Natural],
    "clusters_at_work": Natural,
})  # fmt: skip
"""Why samples cannot be told apart, how to change that, and the clusters that it costs."""


def mixed_samples(graph: Graph, clusters: Mapping[str, int]) -> MixedSamples | None:
    """Return why samples of a model cannot be told apart; None where they can.

    Args:
        graph: The model.
        clusters: Clusters of each target, by its name.
    """
    from autoturbo.graph.batch import trace_batch

    obstacle = trace_batch(graph).obstacle
    if obstacle is None:
        return None
    return {
        "node": obstacle.operator,
        "op_type": obstacle.kind,
        "reason": obstacle.reason,
        "change": obstacle.mend,
        "clusters": dict(clusters),
        "clusters_at_work": 1,
    }


def mixed_sentence(mixed: MixedSamples | None) -> str:
    """Return the result of :func:`mixed_samples` on one line; empty where there is none."""
    if mixed is None:
        return ""
    idle: dict[int, list[str]] = {}
    for target, clusters in mixed["clusters"].items():
        if clusters > 1:
            idle.setdefault(clusters, []).append(target)
    costs = [f"1 of {clusters} clusters works on {', '.join(t)}" for clusters, t in idle.items()]
    costs = costs or ["the batch is processed whole"]
    return (
        f"cannot be told apart: {mixed['node']} ({mixed['op_type']}) {mixed['reason']}; "
        f"{', '.join(costs)}; {mixed['change']}"
        f"{', or let clusters share out other work (knob cluster_partitioning)' if idle else ''}"
    )


def _by_units(best: Measurement) -> str:
    """Return the share of the time that each unit was busy, and the copied bytes."""
    busy = ", ".join(
        f"{name} {percent(seconds / best.latency)}"
        for name, seconds in best.busy.items()
        if name != _COPIES
    )
    if not best.busy[_COPIES]:
        return f"busy {busy}; nothing is copied"
    copied = f"{size(best.bytes['copied'])} copied in {duration(best.busy[_COPIES])}"
    return f"busy {busy}; {copied}"


def held(best: Measurement) -> str:
    """Return the most bytes of shared memory that each unit holds; empty on a target."""
    names = {n.removeprefix("held:"): b for n, b in best.bytes.items() if n.startswith("held:")}
    return ", ".join(f"{name} {size(number)}" for name, number in names.items())
