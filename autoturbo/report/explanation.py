"""What bounds a schedule, where it loses most, and what would help: one value, and its tables."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rich.table import Table

from autoturbo.report.bottlenecks import WORST, Remedy, Spot, Trials, spots_of
from autoturbo.report.tables import table
from autoturbo.report.units import duration, percent
from autoturbo.schedule.schedule import Schedule
from autoturbo.simulate.attribution import LIMITS
from autoturbo.simulate.measurement import LowerBound
from autoturbo.simulate.sequence import KernelMemory, simulate
from autoturbo.simulate.shares import (
    KernelShare,
    LayerShare,
    ScheduleShares,
    Shares,
    SubGraphShare,
    schedule_shares,
)

TUNABLE = "graphturbo"
"""The scheduler whose schedules follow from knobs, so that they can be built anew."""


@dataclass(frozen=True, slots=True)
class Advice:
    """A spot and what was tried for it, most gained first."""

    spot: Spot
    remedies: tuple[Remedy, ...]

    def helpful(self, least: float) -> tuple[Remedy, ...]:
        """Return the best knob, change of the model and change of the target that gain so much.

        Args:
            least: seconds.
        """
        best: dict[str, Remedy] = {}
        for remedy in self.remedies:
            if remedy.gain is not None and remedy.gain > least:
                best.setdefault(remedy.kind, remedy)
        return tuple(best.values())


@dataclass(frozen=True, slots=True)
class Bounds:
    """What is known of a schedule's latency.

    Attributes:
        names: of the problem's layers.
        shares: the latency, handed out.
        bound: what no schedule can beat.
        advice: the worst spots, the worst first.
        model_knobs: knobs of the model that were changed alone, most gained first.
    """

    names: tuple[str, ...]
    shares: ScheduleShares
    bound: LowerBound
    advice: tuple[Advice, ...]
    model_knobs: tuple[Remedy, ...] = ()

    @property
    def heaviest(self) -> tuple[LayerShare, ...]:
        """Layers, those that add most to the latency first."""
        return tuple(sorted(self.shares.layers, key=lambda one: (-one.seconds, one.layer)))

    def as_json(self) -> dict[str, Any]:
        """Return the object of ``explain --json`` (docs/explain.md)."""
        found = self.shares
        layers = [{**_as_json(one), "layer": self.names[one.layer]} for one in found.layers]
        return {
            "latency_s": found.latency,
            **_shared(found.shares),
            "lower_bound_s": self.bound.parts,
            "bound_fraction": self.bound.seconds / found.latency,
            "kernels": [_as_json(one) for one in found.kernels],
            "subgraphs": [_as_json(one) for one in found.subgraphs],
            "layers": layers,
            "spots": [
                {**_as_json(one.spot), "lost_s": one.spot.lost,
                 "remedies": [_as_json(remedy) for remedy in one.remedies]}
                for one in self.advice
            ],
            "model_knobs": [_as_json(one) for one in self.model_knobs],
        }  # fmt: skip


def bounds_of(schedule: Schedule, *, what_if: bool = True, most: int = WORST) -> Bounds:
    """Say what bounds a schedule, and try what would help.

    Args:
        schedule: what is asked about.
        what_if: try changes; only schedules that follow from knobs can be built anew, for others
            spots are named without remedies.
        most: spots at most.
    """
    memory = KernelMemory()
    measured = simulate(schedule, memory)
    shares = schedule_shares(schedule, memory)
    spots = spots_of(schedule, shares, most)
    trials = Trials(schedule, measured.latency)
    tries = what_if and schedule.scheduler == TUNABLE
    advice = tuple(Advice(spot, trials.remedies(spot) if tries else ()) for spot in spots)
    names = tuple(layer.name for layer in schedule.problem.layers)
    return Bounds(names, shares, measured.bound, advice, trials.model_knobs() if tries else ())


def _shared(shares: Shares) -> dict[str, Any]:
    return {"limit": shares.limit.value, "shares_s": shares.as_dict()}


_RENAMED = {
    "critical": "critical_passes", "slack": "slack_s", "needs": "needs_s", "latency": "latency_s",
    "gain": "gain_s",
}  # fmt: skip
"""Fields that scripts know by another name."""


def _as_json(one: KernelShare | SubGraphShare | LayerShare | Spot | Remedy) -> dict[str, Any]:
    """Return the fields of a part of the schedule or a remedy; None for an endless slack."""
    found: dict[str, Any] = {}
    for each in dataclasses.fields(one):
        value = getattr(one, each.name)
        if isinstance(value, Shares):
            found |= _shared(value)
        elif isinstance(value, tuple):
            found[each.name] = list(value)
        else:
            found[_RENAMED.get(each.name, each.name)] = None if value == math.inf else value
    return found


SHOWN = 10
"""Sub-graphs and layers in a table, without --verbose."""

MATTERS = 0.001
"""Share of the latency that a remedy must gain to be shown."""


def time_sentence(bounds: Bounds) -> str:
    """Return what the latency is spent on in a sentence, the largest shares first."""
    shares = bounds.shares.shares
    order = sorted(LIMITS, key=lambda limit: -shares.part(limit))[:_NAMED]
    spent = [f"{limit} {percent(shares.part(limit))}" for limit in order if shares.part(limit)]
    return f"{duration(bounds.shares.latency)}: {', '.join(spent)}"


_NAMED = 5
"""Limits in a sentence; what the others take is in the tables and under ``--json``."""


def bound_sentence(bounds: Bounds) -> str:
    """Return the lower bound, what it follows from, and how near the schedule is."""
    parts = bounds.bound.parts
    of = max(parts, key=lambda name: parts[name])
    near = percent(bounds.bound.seconds / bounds.shares.latency)
    return f"lower bound {duration(bounds.bound.seconds)}, of {of}: {near} of it is reached"


def subgraph_table(bounds: Bounds, *, everything: bool) -> Table:
    """Return a table of sub-graphs, those that take longest first."""
    ordered = sorted(bounds.shares.subgraphs, key=lambda one: (-one.seconds, one.subgraph))
    rows = (
        (one.layer, str(one.layers), str(one.launches), *_timed(bounds, one))
        for one in ordered[: None if everything else SHOWN]
    )
    headers = (
        "kernels of sub-graph", "layers", "launches", "time", "share", "bound by", "of it", "slack"
    )  # fmt: skip
    return table(headers, rows, close=True)


def layer_table(bounds: Bounds, *, everything: bool) -> Table:
    """Return a table of layers, those that take longest first."""
    rows = (
        (bounds.names[one.layer], *_timed(bounds, one))
        for one in bounds.heaviest[: None if everything else SHOWN]
    )
    headers = ("layer", "time", "share", "bound by", "of it", "slack")
    return table(headers, rows, close=True)


def spot_table(bounds: Bounds) -> Table:
    """Return a table of the worst spots, and below each what would help, by its gain."""
    rows = (
        row for number, one in enumerate(bounds.advice, 1) for row in _spot(bounds, number, one)
    )
    headers = ("worst spots, and what would help", "time", "bound by", "lost", "gain")
    return table(headers, rows, close=True)


def model_knob_sentence(bounds: Bounds) -> str:
    """Return which knob of the model gains most when it alone is changed."""
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


def _timed(bounds: Bounds, one: SubGraphShare | LayerShare) -> tuple[str, ...]:
    """Return a time, its share, what bounds it and by how much, and the slack: ``-`` for none."""
    shares, slack = one.shares, duration(one.slack) if one.slack else "0"
    bound = (shares.limit.value, percent(shares.part(shares.limit))) if one.seconds else ("-", "-")
    share = percent(one.seconds / bounds.shares.latency)
    return duration(one.seconds), share, *bound, slack if math.isfinite(one.slack) else "-"
