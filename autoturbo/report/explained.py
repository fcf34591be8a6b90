"""Tables of what bounds a schedule."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from autoturbo.report.tables import table
from autoturbo.report.units import duration, percent
from autoturbo.simulate.attribution import LIMITS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.table import Table

    from autoturbo.report.bounds import Advice, Bounds
    from autoturbo.simulate.shares import Shares

SHOWN = 10
"""Sub-graphs and layers in a table, without --verbose."""

MATTERS = 0.001
"""Share of the latency that a remedy must gain to be shown."""


def sentence(bounds: Bounds) -> str:
    """What the latency is spent on, the most first, and how far it is from the lower bound."""
    shares = bounds.shares.shares
    order = sorted(LIMITS, key=lambda limit: -shares.part(limit))[:_NAMED]
    spent = [f"{limit} {percent(shares.part(limit))}" for limit in order if shares.part(limit)]
    return f"{duration(bounds.shares.latency)}: {', '.join(spent)}"


_NAMED = 5
"""Limits in a sentence; what the others take is in the tables and under ``--json``."""


def distance(bounds: Bounds) -> str:
    """The lower bound, what it follows from, and how near the schedule is."""
    parts = bounds.bound.parts
    of = max(parts, key=lambda name: parts[name])
    near = percent(bounds.bound.seconds / bounds.shares.latency)
    return f"lower bound {duration(bounds.bound.seconds)}, of {of}: {near} of it is reached"


def subgraphs(bounds: Bounds, *, everything: bool) -> Table:
    """Sub-graphs, those that take longest first."""
    ordered = sorted(bounds.shares.subgraphs, key=lambda one: (-one.seconds, one.subgraph))
    rows = (
        (
            one.layer,
            str(one.layers),
            str(one.launches),
            duration(one.seconds),
            percent(one.seconds / bounds.shares.latency),
            *_limit(one.shares),
            _slack(one.slack),
        )
        for one in ordered[: None if everything else SHOWN]
    )
    headers = (
        "kernels of sub-graph", "layers", "launches", "time", "share", "bound by", "of it", "slack"
    )  # fmt: skip
    return table(headers, rows, close=True)


def layers(bounds: Bounds, *, everything: bool) -> Table:
    """Layers, those that take longest first."""
    rows = (
        (
            bounds.names[one.layer],
            duration(one.seconds),
            percent(one.seconds / bounds.shares.latency),
            *(_limit(one.shares) if one.seconds else ("-", "-")),
            _slack(one.slack),
        )
        for one in bounds.heaviest[: None if everything else SHOWN]
    )
    headers = ("layer", "time", "share", "bound by", "of it", "slack")
    return table(headers, rows, close=True)


def spots(bounds: Bounds) -> Table:
    """The worst spots, and below each what would help, by what it gains of the whole."""
    rows = (
        row for number, one in enumerate(bounds.advice, 1) for row in _spot(bounds, number, one)
    )
    headers = ("worst spots, and what would help", "time", "bound by", "lost", "gain")
    return table(headers, rows, close=True)


def of_model(bounds: Bounds) -> str:
    """The knob of the model that gains most when it alone is changed."""
    best = next(iter(bounds.model_knobs), None)
    if best is None or best.gain is None or best.gain <= MATTERS * bounds.shares.latency:
        return f"none of {len(bounds.model_knobs)} changes of one knob of the model helps"
    gain = percent(best.gain / bounds.shares.latency)
    return f"of the model's knobs, changed alone, {best.text} gains most: {gain}"


def _spot(bounds: Bounds, number: int, advice: Advice) -> Iterator[tuple[str, ...]]:
    spot, latency = advice.spot, bounds.shares.latency
    alike = f" and {len(spot.layers) - 1} alike" if len(spot.layers) > 1 else ""
    where = f"{spot.layers[0]}{alike}" if spot.layers else "between kernels"
    yield (
        f"{number}. {where}",
        duration(spot.seconds),
        spot.shares.limit.value,
        percent(spot.lost / latency),
        "",
    )
    helpful = advice.helpful(MATTERS * latency)
    for one in helpful:
        yield f"   {one.kind}: {one.text}", "", "", "", percent((one.gain or 0.0) / latency)
    if advice.remedies and not helpful:
        yield f"   none of {len(advice.remedies)} changes that were tried helps", "", "", "", ""


def _slack(seconds: float) -> str:
    """None at all reads better without a unit; a layer without work has no end of it."""
    if not math.isfinite(seconds):
        return "-"
    return duration(seconds) if seconds else "0"


def _limit(shares: Shares) -> tuple[str, str]:
    return shares.limit.value, percent(shares.part(shares.limit))


__all__ = ["MATTERS", "SHOWN", "distance", "layers", "of_model", "sentence", "spots", "subgraphs"]
