"""What a scheduled model says of its schedule, beside its nodes."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from onnx import NodeProto

from autoturbo.hardware.machine import AnyTarget
from autoturbo.schedule.files import buffer_entries
from autoturbo.schedule.knobs import SCHEDULER_VERSION
from autoturbo.schedule.schedule import Schedule

if TYPE_CHECKING:
    from autoturbo.schedule.units.machine_schedule import MachineSchedule, OnUnits


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
        self._of_parts = [] if on is None else [InstanceFacts(s) for s in on.schedule.schedules]
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
        machine, subgraph = on.schedule.machine, int(graph.subgraph[instance])
        return {
            **self._of_parts[part].of(own, 0),
            "order": self._place[instance],
            "subgraph": subgraph,
            "unit": machine.units[on.schedule.assignment.parts[part].unit].name,
            "unit_part": part,
        }


def model_facts(schedule: Schedule) -> dict[str, str]:
    """Return metadata of a whole model; on a machine also its units and when parts run."""
    on = schedule.on_units
    if on is not None:
        known = _facts(on.schedule, on.schedule.machine, on.schedule.dtype)
        return {**known, **_facts_of_units(on.schedule)}
    known = _facts(schedule, schedule.problem.target, schedule.problem.dtype)
    return {**known, PREFIX + "share": json.dumps(dataclasses.asdict(schedule.share))}


def _facts(schedule: Schedule | MachineSchedule, target: AnyTarget, dtype: str) -> dict[str, str]:
    return {
        PREFIX + "scheduler": schedule.scheduler,
        PREFIX + "scheduler_version": SCHEDULER_VERSION,
        PREFIX + "model_hash": schedule.model.hash,
        PREFIX + "target": target.name,
        PREFIX + "target_hash": target.hash,
        PREFIX + "dtype": dtype,
        PREFIX + "knobs": json.dumps(schedule.knobs.as_dict()),
    }


def _facts_of_units(schedule: MachineSchedule) -> dict[str, str]:
    """Return units by number, and when each part runs and is copied."""
    names = [unit.name for unit in schedule.machine.units]
    runs = [{**dataclasses.asdict(run), "unit": names[run.unit]} for run in schedule.runs]
    return {PREFIX + "units": json.dumps(names), PREFIX + "runs": json.dumps(runs)}
