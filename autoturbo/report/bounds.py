"""What bounds a schedule, where it loses most, and what would help: one value for all of it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from autoturbo.report.remedies import Remedy, Trials
from autoturbo.report.spots import WORST, Spot, spots_of
from autoturbo.simulate.measurement import LowerBound
from autoturbo.simulate.sequence import KernelMemory, simulate
from autoturbo.simulate.shares import LayerShare, ScheduleShares, Shares, schedule_shares

if TYPE_CHECKING:
    from autoturbo.schedule.schedule import Schedule

TUNABLE = "graphturbo"
"""The scheduler whose schedules follow from knobs, so that they can be built anew."""


@dataclass(frozen=True, slots=True)
class Advice:
    """A spot and what was tried for it, most gained first."""

    spot: Spot
    remedies: tuple[Remedy, ...]

    def helpful(self, least: float) -> tuple[Remedy, ...]:
        """The best knob, change of the model and change of the target that gain so much.

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
        """All of it for ``explain --json`` (docs/explain.md)."""
        found = self.shares
        return {
            "latency_s": found.latency,
            **_shared(found.shares),
            "lower_bound_s": self.bound.parts,
            "bound_fraction": self.bound.seconds / found.latency,
            "kernels": [
                {
                    "instance": one.instance, "cluster": one.cluster, "seconds": one.seconds,
                    "critical_passes": one.critical, "slack_s": one.slack, **_shared(one.shares),
                }
                for one in found.kernels
            ],
            "subgraphs": [
                {
                    "subgraph": one.subgraph, "layer": one.layer, "layers": one.layers,
                    "launches": one.launches, "seconds": one.seconds, "slack_s": one.slack,
                    **_shared(one.shares),
                }
                for one in found.subgraphs
            ],
            "layers": [
                {
                    "layer": self.names[one.layer], "subgraph": one.subgraph,
                    "seconds": one.seconds,
                    "slack_s": one.slack if math.isfinite(one.slack) else None,
                    **_shared(one.shares),
                }
                for one in found.layers
            ],
            "spots": [_advised(one) for one in self.advice],
            "model_knobs": [_tried(one) for one in self.model_knobs],
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


def _advised(advice: Advice) -> dict[str, Any]:
    spot = advice.spot
    return {
        "part": spot.part, "layers": list(spot.layers), "subgraphs": list(spot.subgraphs),
        "anchors": list(spot.anchors), "seconds": spot.seconds, "needs_s": spot.needs,
        "lost_s": spot.lost, **_shared(spot.shares),
        "remedies": [_tried(one) for one in advice.remedies],
    }  # fmt: skip


def _tried(one: Remedy) -> dict[str, Any]:
    return {
        "kind": one.kind, "text": one.text, "change": dict(one.change),
        "latency_s": one.latency, "gain_s": one.gain, "failure": one.failure,
    }  # fmt: skip


__all__ = ["TUNABLE", "Advice", "Bounds", "bounds_of"]
