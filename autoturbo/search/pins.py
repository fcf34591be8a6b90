"""Pins on a model: layers that stay together, and whether a schedule has what is fixed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from autoturbo.errors import KnobsError, Location, did_you_mean
from autoturbo.graph.layers import layers_of
from autoturbo.schedule.knobs import AUTO
from autoturbo.schedule.knobs.pins import CUT, MERGE, Pins, checked, parts_of_name, with_value
from autoturbo.schedule.partition.overrides import resolve

if TYPE_CHECKING:
    from autoturbo.graph.layers import Layer
    from autoturbo.graph.operators import Graph
    from autoturbo.schedule.schedule import Schedule


def pins_of(
    fixed: Mapping[str, Any],
    allowed: Mapping[str, Sequence[Any]],
    keep: Iterable[Sequence[str]] = (),
    cut: Iterable[str] = (),
    *,
    graph: Graph,
) -> Pins:
    """Return the pins of a model.

    Args:
        fixed: Values by knob, or by ``LAYER.KNOB``.
        allowed: Values by knob.
        keep: Groups of layers that are one sub-graph each, with what lies between them.
        cut: Layers that end their sub-graphs.
        graph: The model.

    Raises:
        KnobsError: A knob or a layer that there is not, or a value that a knob does not take.
    """
    layers, asked = layers_of(graph), dict(fixed)
    merged = [name for group in keep for name in _merged(layers, group)]
    for name, (knob, value) in (*((m, MERGE) for m in merged), *((c, CUT) for c in cut)):
        with_value(asked, f"{name}.{knob}", value)
    return checked(asked, allowed, [layer.name for layer in layers])


def pins_of_run(stored: Mapping[str, Any], graph: Graph) -> Pins:
    """Return what is pinned in a run, by its settings."""
    names = ("fixed", "allowed", "keep", "cut")
    fixed, allowed, keep, cut = (stored.get(name) or () for name in names)
    return pins_of(dict(fixed), dict(allowed), keep, cut, graph=graph)


def _merged(layers: Sequence[Layer], group: Sequence[str]) -> list[str]:
    """Return the layers that merge with what reads them, so that a group is one sub-graph.

    Args:
        layers: Of the model.
        group: Names of some; what lies on a path between them belongs to them.

    Raises:
        KnobsError: A layer that there is not, or a group that is none.
    """
    index = {layer.name: layer.index for layer in layers}
    for name in group:
        if name not in index:
            hint = did_you_mean(name, index)
            raise KnobsError(f"the model has no layer {name!r}", Location(field="keep"), hint)
    if len(group) < 2:  # noqa: PLR2004
        hint = "name the first and the last, with commas between"
        raise KnobsError("one layer is a sub-graph by itself", Location(field="keep"), hint)
    maker = {tensor: layer.index for layer in layers for tensor in layer.outputs}
    makers = [{maker[t] for t in layer.inputs if t in maker} for layer in layers]
    ends = {index[name] for name in group}
    after, before = set(ends), set(ends)
    for layer in layers:
        if makers[layer.index] & after:
            after.add(layer.index)
    for layer in reversed(layers):
        if layer.index in before:
            before |= makers[layer.index]
    inside = after & before
    read = {maker for reader in inside for maker in makers[reader]}
    if len(inside - read) > 1:
        names = ", ".join(layers[i].name for i in sorted(inside - read))
        message = f"{names} lead to no common layer"
        raise KnobsError(message, Location(field="keep"), "name one that reads them all as well")
    return [layers[i].name for i in sorted(inside & read)]


def broken(pins: Pins, schedule: Schedule) -> str:
    """Return what a schedule has otherwise than it is fixed for a layer; empty for nothing.

    Other choices move the cuts, so that another layer may decide for a sub-graph, and limits
    keep apart what is asked to be one.

    Args:
        pins: What is fixed.
        schedule: Of a candidate that has the pins.
    """
    context, subgraphs = schedule.context, schedule.instances.subgraphs
    decided = resolve(context, subgraphs, schedule.knobs)
    home = {layer: subgraph for subgraph in subgraphs for layer in subgraph.layers}
    for name, value in pins.fixed.items():
        layer, knob = parts_of_name(name)
        if not layer or layer not in context.layer_index:
            continue
        index = context.layer_index[layer]
        outputs = context.layers[index].outputs
        inside = [r for t in outputs for r in context.consumers[t] if home[r] is home[index]]
        readers = [r for t in outputs for r in context.consumers[t]]
        if (knob, value) == CUT and inside:
            return f"{layer} is not cut from {context.layers[inside[0]].name}"
        if (knob, value) == MERGE and len(inside) < len(readers):
            apart = next(r for r in readers if r not in inside)
            return f"{layer} and {context.layers[apart].name} do not fit one sub-graph"
        own = decided.get(home[index].index)
        if knob != CUT[0] and (AUTO if own is None else getattr(own, knob)) != value:
            return f"{name} is not {value}"
    return ""
