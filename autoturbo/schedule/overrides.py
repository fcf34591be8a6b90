"""Which override holds for which sub-graph, once the layers are grouped."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from autoturbo.errors import KnobsError, Location
from autoturbo.schedule.knobs import AUTO, Knobs, Stage, SubGraphKnobs, knob_names

if TYPE_CHECKING:
    from autoturbo.schedule.group import SubGraph
    from autoturbo.schedule.problem import Problem


def resolve(
    problem: Problem, subgraphs: Iterable[SubGraph], knobs: Knobs, upto: Stage = Stage.CODEGEN
) -> dict[int, SubGraphKnobs]:
    """The override of each sub-graph that has one, by :attr:`SubGraph.index`.

    An override names a layer because cuts move with other knobs. Where several such layers share
    a sub-graph, each field is that of the last of them, in topological order, that sets it; the
    result carries that layer's name.

    Args:
        problem: the model.
        subgraphs: all of them.
        knobs: the setting.
        upto: the last pass that reads the result; what says nothing up to it is left out.

    Raises:
        KnobsError: an override names a layer that the model has not.
    """
    if not knobs.overrides:
        return {}
    layers = problem.layer_index
    for override in knobs.overrides:
        if override.layer not in layers:
            at = Location(field="overrides")
            raise KnobsError(f"the model has no layer {override.layer!r}", at)
    said = knobs.overrides
    if upto < Stage.CODEGEN:  # each says something to one of all passes
        names = knob_names("layer", "subgraph", upto=upto)
        said = tuple(o for o in said if any(getattr(o, name) != AUTO for name in names))
    named = {layers[override.layer] for override in said}
    owner = {layer: s.index for s in subgraphs for layer in named.intersection(s.layers)}
    found: dict[int, SubGraphKnobs] = {}
    for override in sorted(said, key=lambda o: layers[o.layer]):
        index = owner[layers[override.layer]]
        found[index] = override.over(found[index]) if index in found else override
    return found
