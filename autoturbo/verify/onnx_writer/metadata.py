"""What a scheduled model says of its schedule, beside its nodes."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

from onnx import NodeProto

from autoturbo.schedule.schedule import OnUnits, Schedule, buffer_entries, header

PREFIX = "autoturbo."
"""Keys of ours in ``metadata_props`` begin so."""

_OF_INSTANCE = ("subgraph", "part")
"""What a schedule file says of a buffer and a call says once for all of its own."""


def annotate(node: NodeProto, values: Mapping[str, object]) -> None:
    """Add entries to the metadata of a node; what is not text is written as JSON."""
    for key, value in values.items():
        entry = node.metadata_props.add()
        entry.key = PREFIX + key
        entry.value = value if isinstance(value, str) else json.dumps(value)


class InstanceFacts:
    """What each instance's call says of it: order, cluster, cores, scope and buffers.

    On a machine of several units, its unit too; cores and buffers are those of the unit.
    """

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self._place = {instance: at for at, instance in enumerate(schedule.order)}
        self._buffers: dict[int, list[dict[str, Any]]] = {}
        on = schedule.on_units
        self._of_parts = [] if on is None else [InstanceFacts(s) for s in on.schedules]
        for timeline in schedule.timelines:
            entries = buffer_entries(schedule, timeline)
            for instance, entry in zip(timeline.owner.tolist(), entries, strict=True):
                own = {key: entry[key] for key in entry if key not in _OF_INSTANCE}
                self._buffers.setdefault(instance, []).append(own)

    def of(self, instance: int, cluster: int) -> dict[str, object]:
        """Return the facts of an instance.

        Args:
            instance: which.
            cluster: the cluster that runs it where all clusters do the same.
        """
        if self._schedule.on_units is not None:
            return self._on_unit(instance, self._schedule.on_units)
        schedule, graph = self._schedule, self._schedule.instances
        placement = schedule.placement
        subgraph = int(graph.subgraph[instance])
        named = placement.core_ids[instance] if placement.core_ids else ()
        return {
            "order": self._place[instance],
            "subgraph": subgraph,
            "part": instance - int(graph.first[subgraph]),
            "parts": int(graph.first[subgraph + 1] - graph.first[subgraph]),
            "cluster": schedule.cluster[instance] if schedule.cluster else cluster,
            "cores": list(placement.bindings[instance]),
            **({"core_ids": list(named)} if named else {}),
            "scope": placement.scopes[instance].name,
            "buffers": self._buffers.get(instance, []),
        }

    def _on_unit(self, instance: int, on: OnUnits) -> dict[str, object]:
        """Return what the schedule of its unit says of an instance, at its place in the whole."""
        graph, (part, own) = self._schedule.instances, on.origin[instance]
        return {
            **self._of_parts[part].of(own, 0),
            "order": self._place[instance],
            "subgraph": int(graph.subgraph[instance]),
            "unit": on.units[part],
            "unit_part": part,
        }


def model_facts(schedule: Schedule) -> dict[str, str]:
    """Return metadata of a whole model; on a machine also its units and when parts run."""
    on, problem = schedule.on_units, schedule.problem
    said = on.facts if on else header("", 0, schedule, problem.target, problem.dtype)
    own = {key: said[key] for key in ("units", "runs")} if on else {"share": schedule.share}
    return {
        PREFIX + "scheduler": said["scheduler"],
        PREFIX + "scheduler_version": said["scheduler_version"],
        PREFIX + "model_hash": said["model"]["hash"],
        PREFIX + "target": said["target"]["name"],
        PREFIX + "target_hash": said["target"]["hash"],
        PREFIX + "dtype": said["dtype"],
        PREFIX + "knobs": json.dumps(said["knobs"]),
        **{
            PREFIX + key: json.dumps(value, default=dataclasses.asdict)
            for key, value in own.items()
        },
    }
