"""The explanation of a schedule: its bounds, bottlenecks and remedies, and their tables."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NotRequired

from rich.table import Table

from autoturbo.report.alike import Line, layer_lines, subgraph_lines
from autoturbo.report.bottlenecks import Bottleneck, Part, Remedy, Trials, bottlenecks_of
from autoturbo.report.names import layer_labels
from autoturbo.report.tables import table
from autoturbo.report.units import duration, percent
from autoturbo.schedule.schedule import Schedule
from autoturbo.schema import Duration, Natural, TypedDict
from autoturbo.simulator.breakdown.attribution import LIMITS
from autoturbo.simulator.breakdown.shares import ScheduleShares, Shares, schedule_shares
from autoturbo.simulator.gap import gap_parts, idle_ddr_seconds
from autoturbo.simulator.measurement import LowerBound
from autoturbo.simulator.sequence import KernelMemory, simulate

TUNABLE = "graphturbo"
"""The scheduler whose schedules follow from knobs, so that they can be built anew."""


_Shared = TypedDict("_Shared", {"limit": str, "shares_s": dict[str, float]})
"""Seconds by what they are spent on, and what most of them are spent on."""

BoundJson = TypedDict("BoundJson", {
    "matrix": Duration, "vector": Duration, "ddr": Duration, "steps": NotRequired[Duration],
})  # fmt: skip
"""Parts of a latency that no schedule can beat; steps only where there is a recurrence."""

KernelJson = TypedDict("KernelJson", {
    "limit": str, "shares_s": dict[str, float], "instance": Natural, "cluster": Natural,
    "seconds": Duration, "critical_passes": Natural, "slack_s": float,
})  # fmt: skip
"""One kernel of a pass."""

SubGraphJson = TypedDict("SubGraphJson", {
    "limit": str, "shares_s": dict[str, float], "subgraph": Natural, "layer": str,
    "layers": Natural, "launches": Natural, "seconds": Duration, "slack_s": float,
})  # fmt: skip
"""All kernels of a sub-graph."""

LayerJson = TypedDict("LayerJson", {
    "limit": str, "shares_s": dict[str, float], "layer": str, "subgraph": Natural,
    "seconds": Duration, "slack_s": float | None,
})  # fmt: skip
"""One layer; nothing bounds its slack where all its work hides behind other work."""

RemedyJson = TypedDict("RemedyJson", {
    "kind": str, "text": str, "change": dict[str, Any], "latency_s": Duration | None,
    "gain_s": float | None, "failure": str | None,
})  # fmt: skip
"""A change that was tried, and what it gained."""

BottleneckJson = TypedDict("BottleneckJson", {
    "limit": str, "shares_s": dict[str, float], "part": Part, "layers": list[str],
    "subgraphs": list[Natural], "anchors": list[str], "seconds": Duration, "needs_s": Duration,
    "lost_s": float, "remedies": list[RemedyJson],
})  # fmt: skip
"""Where time is lost, and what was tried for it."""

BoundsJson = TypedDict("BoundsJson", {
    "limit": str, "shares_s": dict[str, float], "latency_s": Duration, "lower_bound_s": BoundJson,
    "bound_fraction": float, "tight_bound_s": Duration | None, "gap_s": dict[str, float],
    "ddr_idle_s": float, "kernels": list[KernelJson], "subgraphs": list[SubGraphJson],
    "layers": list[LayerJson], "bottlenecks": list[BottleneckJson], "model_knobs": list[RemedyJson],
})  # fmt: skip
"""What bounds a schedule, where it loses most and what would help."""


@dataclass(frozen=True, slots=True)
class Advice:
    """A bottleneck and the remedies tried for it, most gained first."""

    bottleneck: Bottleneck
    remedies: tuple[Remedy, ...]

    def helpful(self, least: float) -> tuple[Remedy, ...]:
        """Return the best knob, change of the model and change of the target that gain so much.

        Args:
            least: Seconds that a remedy must gain more than.
        """
        best: dict[str, Remedy] = {}
        for remedy in self.remedies:
            if remedy.gain is not None and remedy.gain > least:
                best.setdefault(remedy.kind, remedy)
        return tuple(best.values())


@dataclass(frozen=True, slots=True)
class Bounds:
    """The bounds of a schedule's latency.

    Attributes:
        labels: Labels of the context's layers, by name.
        subgraphs: Lines of sub-graphs, alike ones on one, those that take longest first.
        layers: Lines of layers, likewise.
        shares: The latency, shared out among what bounds it.
        bound: Lower bound of the latency.
        gap: Latency above the bound, by cause (:func:`autoturbo.simulator.gap.gap_parts`).
        idle_ddr_s: Seconds in which DDR stood idle though weights could have been fetched.
        advice: The worst bottlenecks, the worst first.
        model_knobs: Knobs of the model that were changed alone, most gained first.
    """

    labels: Mapping[str, str]
    subgraphs: tuple[Line, ...]
    layers: tuple[Line, ...]
    shares: ScheduleShares
    bound: LowerBound
    gap: Mapping[str, float]
    idle_ddr_s: float
    advice: tuple[Advice, ...]
    model_knobs: tuple[Remedy, ...] = ()

    def as_json(self) -> BoundsJson:
        """Return the object of ``explain --json`` (docs/explain.md)."""
        shares, bound = self.shares, self.bound
        least: BoundJson = {
            "matrix": bound.matrix_s, "vector": bound.vector_s, "ddr": bound.ddr_s
        }  # fmt: skip
        if bound.steps_s:
            least["steps"] = bound.steps_s
        return {
            "latency_s": shares.latency, **_shared(shares.shares),
            "lower_bound_s": least,
            "bound_fraction": bound.seconds / shares.latency,
            "tight_bound_s": bound.tight,
            "gap_s": dict(self.gap),
            "ddr_idle_s": self.idle_ddr_s,
            "kernels": [
                {"instance": one.instance, "cluster": one.cluster, "seconds": one.seconds,
                 **_shared(one.shares), "slack_s": one.slack, "critical_passes": one.critical}
                for one in shares.kernels
            ],
            "subgraphs": [
                {"subgraph": one.subgraph, "layer": one.layer, "layers": one.layers,
                 "launches": one.launches, "seconds": one.seconds, **_shared(one.shares),
                 "slack_s": one.slack}
                for one in shares.subgraphs
            ],
            "layers": [
                {"layer": name, "subgraph": one.subgraph, "seconds": one.seconds,
                 **_shared(one.shares),
                 "slack_s": None if one.slack == math.inf else one.slack}
                for name, one in zip(self.labels, shares.layers, strict=True)
            ],
            "bottlenecks": [_bottleneck_json(one.bottleneck, one.remedies) for one in self.advice],
            "model_knobs": [_remedy_json(one) for one in self.model_knobs],
        }  # fmt: skip


def bounds_of(schedule: Schedule, *, what_if: bool = True) -> Bounds:
    """Return the bounds of a schedule, and try remedies.

    Args:
        schedule: The schedule that is asked about.
        what_if: Try changes; only schedules that follow from knobs can be built anew, for others
            bottlenecks are named without remedies.
    """
    memory = KernelMemory()
    measured = simulate(schedule, memory)
    shares = schedule_shares(schedule, memory)
    bottlenecks = bottlenecks_of(schedule, shares)
    trials = Trials(schedule, measured.latency)
    tries = what_if and schedule.scheduler == TUNABLE
    advice = tuple(
        Advice(bottleneck, trials.remedies(bottleneck) if tries else ())
        for bottleneck in bottlenecks
    )
    gap, idle_s = gap_parts(schedule, measured), idle_ddr_seconds(schedule, memory)
    knobs = trials.model_knobs() if tries else ()
    lines = subgraph_lines(schedule, shares), layer_lines(schedule, shares)
    return Bounds(
        layer_labels(schedule), *lines, shares, measured.bound, gap, idle_s, advice, knobs
    )


def _shared(shares: Shares) -> _Shared:
    return {"limit": shares.limit.value, "shares_s": shares.as_dict()}


def _bottleneck_json(bottleneck: Bottleneck, remedies: tuple[Remedy, ...]) -> BottleneckJson:
    return {
        "part": bottleneck.part, "layers": list(bottleneck.layers),
        "subgraphs": list(bottleneck.subgraphs), "anchors": list(bottleneck.anchors),
        "seconds": bottleneck.seconds, **_shared(bottleneck.shares),
        "needs_s": bottleneck.needs, "lost_s": bottleneck.lost,
        "remedies": [_remedy_json(remedy) for remedy in remedies],
    }  # fmt: skip


def _remedy_json(one: Remedy) -> RemedyJson:
    return {
        "kind": one.kind, "text": one.text, "change": dict(one.change), "latency_s": one.latency,
        "failure": one.failure, "gain_s": one.gain,
    }  # fmt: skip


SHOWN = 10
"""Sub-graphs and layers in a table, without --verbose."""

MATTERS = 0.001
"""Share of the latency that a remedy must gain to be shown."""


def time_sentence(bounds: Bounds, *, told: bool = False) -> str:
    """Return a sentence on the parts of the latency, the largest shares first.

    Args:
        bounds: Bounds of the schedule.
        told: Whether readers know already that the latency is simulated, and what it is.
    """
    shares = bounds.shares.shares
    order = sorted(LIMITS, key=lambda limit: -shares.part(limit))[:_NAMED]
    spent = [f"{limit} {percent(shares.part(limit))}" for limit in order if shares.part(limit)]
    latency = "" if told else f"simulated {duration(bounds.shares.latency)}, "
    return f"{latency}bound by {', '.join(spent)}"


_NAMED = 4
"""Limits in a sentence; what the others take is in the tables and under ``--json``."""


def bound_lines(bounds: Bounds) -> list[str]:
    """Return the lower bound, its cause, and how near the schedule is; the tight one if nearer."""
    parts, tight = bounds.bound.parts, bounds.bound.tight
    of = max(parts, key=lambda name: parts[name])
    near = percent(bounds.bound.seconds / bounds.shares.latency)
    least = duration(bounds.bound.seconds)
    lines = [f"lower bound {least} ({of}), which is {near} of the schedule's latency"]
    if tight is not None and (nearer := percent(tight / bounds.shares.latency)) != near:
        lines.append(f"tight bound {duration(tight)}, which is {nearer}")
    return lines


GAP_TITLES: Final = {
    "waits": "launches, barriers and latencies", "ddr": "DDR not overlapped", "gb": "GB and links",
    "engines": "engines one after the other", "padding": "padding and filling",
    "efficiency": "DDR below its peak", "traffic": "traffic beyond the least",
}  # fmt: skip
"""Causes of the gap, as they are told."""


def gap_table(bounds: Bounds) -> Table:
    """Return a table of what lies between the lower bound and the latency, largest causes first."""
    causes = sorted(bounds.gap.items(), key=lambda item: -item[1])
    least = MATTERS * bounds.shares.latency
    told = [(GAP_TITLES[cause], seconds) for cause, seconds in causes if seconds > least]
    if min(bounds.idle_ddr_s, bounds.gap["ddr"]) > least:
        told.append(("(DDR idle while weights had room in GB)", bounds.idle_ddr_s))
    rows = ((w, duration(s), percent(s / bounds.shares.latency)) for w, s in told)
    return table(("between lower bound and latency", "time", "share"), rows, close=True)


def subgraph_table(bounds: Bounds, *, everything: bool) -> Table:
    """Return a table of sub-graphs, those that take longest first."""
    of = bounds.shares.subgraphs
    rows = (
        (line.label, str(sum(of[i].layers for i in line.members)),
         str(sum(of[i].launches for i in line.members)), *_timed(bounds, line))
        for line in bounds.subgraphs[: None if everything else SHOWN]
    )  # fmt: skip
    headers = ("sub-graph", "layers", "launches", "time", "share", "bound by", "slack")
    return table(headers, rows, close=True)


def layer_table(bounds: Bounds, *, everything: bool) -> Table:
    """Return a table of layers, those that take longest first."""
    lines = bounds.layers[: None if everything else SHOWN]
    rows = ((line.label, *_timed(bounds, line)) for line in lines)
    headers = ("layer", "time", "share", "bound by", "slack")
    return table(headers, rows, close=True)


def bottleneck_table(bounds: Bounds) -> Table:
    """Return a table of the worst bottlenecks, with the remedies of each, by gain."""
    return table(BOTTLENECKS, bottleneck_rows(bounds), close=True)


BOTTLENECKS: Final = (
    "worst bottlenecks, and what would help", "time", "bound by", "above ideal", "saves",
)  # fmt: skip
"""The headers of :func:`bottleneck_rows`."""


def bottleneck_rows(bounds: Bounds) -> list[tuple[str, ...]]:
    """Return the rows of the worst bottlenecks, with the remedies of each, by gain.

    A remedy that helps several stands with the first of them.
    """
    told = dict[str, int]()
    return [
        row
        for number, one in enumerate(bounds.advice, 1)
        for row in _spot(bounds, number, one, told)
    ]


def model_knob_sentence(bounds: Bounds) -> str:
    """Return which knob of the model gains most when it alone is changed."""
    best = next(iter(bounds.model_knobs), None)
    if best is None or best.gain is None or best.gain <= MATTERS * bounds.shares.latency:
        return f"no change of a single knob of the model helps ({len(bounds.model_knobs)} tried)"
    gain = percent(best.gain / bounds.shares.latency)
    return f"of the model's knobs, changed alone, {best.text} saves most: {gain}"


def _spot(
    bounds: Bounds, number: int, advice: Advice, told: dict[str, int]
) -> Iterator[tuple[str, ...]]:
    """Yield the rows of a bottleneck.

    Args:
        bounds: Bounds of the schedule.
        number: Number of the bottleneck.
        advice: What would help against it.
        told: Remedies that stand with an earlier one, by its number; this one's are added.
    """
    bottleneck, latency = advice.bottleneck, bounds.shares.latency
    yield (
        f"{number}. {bottleneck.label}",
        duration(bottleneck.seconds),
        bottleneck.shares.limit.value,
        percent(bottleneck.lost / latency),
        "",
    )
    helpful = advice.helpful(MATTERS * latency)
    texts = {f"{remedy.kind}: {remedy.text}": remedy for remedy in helpful}
    for text in (text for text in texts if text not in told):
        yield f"   {text}", "", "", "", percent((texts[text].gain or 0.0) / latency)
    if before := sorted({told[text] for text in texts if text in told}):
        yield f"   what helps {' and '.join(map(str, before))}", "", "", "", ""
    told.update({text: number for text in texts if text not in told})
    if advice.remedies and not helpful:
        yield f"   no change helps ({len(advice.remedies)} tried)", "", "", "", ""


def _timed(bounds: Bounds, one: Line) -> tuple[str, ...]:
    """Return a time, its share, what bounds it for how much of it, and the slack."""
    shares, slack = one.shares, duration(one.slack) if one.slack else "0"
    bound = f"{shares.limit.value} {percent(shares.part(shares.limit))}" if one.seconds else "-"
    share = percent(one.seconds / bounds.shares.latency)
    return duration(one.seconds), share, bound, slack if math.isfinite(one.slack) else "-"
