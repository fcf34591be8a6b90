"""How clusters or units shared out the work, in a line for people."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from autoturbo.graph.operators import Graph
from autoturbo.report.units import duration, percent, size
from autoturbo.schedule.knobs import AUTO, Knobs
from autoturbo.simulate.measurement import Measurement, Outcome

_WHAT = {
    "spatial": "rows or columns of every output",
    "channel": "channels of every output",
    "pipeline": "sub-graphs, in a pipeline",
}

_COPIES = "copies"
"""What a machine's measurement calls the time that copies take, beside its units'."""


def sharing(knobs: Knobs, best: Measurement, trials: Iterable[tuple[Knobs, Outcome]]) -> str:
    """Return how the best schedule of a run shares out the work; empty where clusters work alike.

    Args:
        knobs: of the best trial.
        best: what it measured.
        trials: all of the run, for the best one whose clusters share out samples: with one sample,
            one cluster has it all.
    """
    if _COPIES in best.busy:
        return _by_units(best)
    if knobs.cluster_split == AUTO:
        return ""
    apart = [
        outcome.latency
        for own, outcome in trials
        if own.cluster_split == AUTO and isinstance(outcome, Measurement)
    ]
    line = f"share out {_WHAT[str(knobs.cluster_split)]}: {duration(best.latency)}"
    if not apart:
        return line
    alone = "one cluster alone" if best.batch == 1 else "each with samples of its own"
    return f"{line}; {alone}: {duration(min(apart))} at best"


def mixed_samples(graph: Graph, clusters: Mapping[str, int]) -> dict[str, Any] | None:
    """Return why samples of a model cannot be told apart; None where they can.

    Args:
        graph: the model.
        clusters: of each target, by its name.
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


def mixed_sentence(mixed: Mapping[str, Any] | None) -> str:
    """Return what :func:`mixed_samples` found on one line; empty where it found nothing."""
    if mixed is None:
        return ""
    idle: dict[int, list[str]] = {}
    for target, count in mixed["clusters"].items():
        if count > 1:
            idle.setdefault(count, []).append(target)
    costs = [f"1 of {count} clusters works on {', '.join(t)}" for count, t in idle.items()]
    costs = costs or ["the batch is processed whole"]
    return (
        f"cannot be told apart: {mixed['node']} ({mixed['op_type']}) {mixed['reason']}; "
        f"{', '.join(costs)}; {mixed['change']}"
        f"{', or let clusters share out other work (knob cluster_split)' if idle else ''}"
    )


def _by_units(best: Measurement) -> str:
    """Return the share of the time that each unit was busy, and what was copied."""
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
