"""What findings call instances, layers, tensors and buffers."""

from __future__ import annotations

from autoturbo.schedule.schedule import Schedule
from autoturbo.schedule.timeline import Timeline


def instance_name(schedule: Schedule, index: int) -> str:
    """An instance by the last layer of its sub-graph, its part and their number.

    ``"layer4.0.conv1[2/8]"`` is the second of eight; a sub-graph that is not cut has its name only.
    """
    instances = schedule.instances
    if not 0 <= index < instances.count:
        return f"instance {index}"
    subgraph = int(instances.subgraph[index])
    name = schedule.problem.layers[instances.subgraphs[subgraph].layers[-1]].name
    count = instances.parts[subgraph].count
    part = index - int(instances.first[subgraph]) + 1
    return name if count == 1 else f"{name}[{part}/{count}]"


def tensor_name(schedule: Schedule, tensor: int) -> str:
    """A tensor by its name in the model file."""
    return schedule.problem.graph.tensors[tensor].name


def layer_name(schedule: Schedule, layer: int) -> str:
    """A layer by its anchor's name in the model file."""
    return schedule.problem.layers[layer].name


def buffer_name(schedule: Schedule, timeline: Timeline, buffer: int) -> str:
    """A buffer by its number, what it holds and for which instance."""
    held = timeline.names[buffer]
    what = tensor_name(schedule, held.tensor) if held.tensor >= 0 else held.kind
    moved = "" if held.kind in ("tensor", what) else f"{held.kind} "
    return f"buffer {buffer} ({moved}{what} of {instance_name(schedule, held.instance)})"
