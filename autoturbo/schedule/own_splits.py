"""How a sub-graph is cut in the end: more parts, parts of its own choice, parts for clusters.

Everything here is about one sub-graph: grouping is over, and no other sub-graph's split matters.
"""

from __future__ import annotations

from autoturbo.errors import KnobsError, Location
from autoturbo.schedule.clusters import PARTS, cut_over_clusters
from autoturbo.schedule.group import SubGraph
from autoturbo.schedule.knobs import AUTO, SubGraphKnobs
from autoturbo.schedule.problem import Problem
from autoturbo.schedule.split import Split, sink, split_axes


def room_for_parts(problem: Problem, lb_fill: float) -> int:
    """Bytes of a cluster's local buffers that the parts that clusters share out may take."""
    return int(problem.cluster_lb_bytes * lb_fill)


def settled(
    problem: Problem,
    subgraph: SubGraph,
    scale: int,
    override: SubGraphKnobs | None,
    kind: str,
    room: int,
) -> SubGraph:
    """A sub-graph with its final split.

    Args:
        problem: where it comes from.
        subgraph: as it was grouped.
        scale: instances over the smallest number that fits.
        override: its own knobs; its factors count the parts of a cluster.
        kind: how clusters share out the work; where it is one of
            :data:`autoturbo.schedule.clusters.PARTS` each has parts of its own.
        room: of :func:`room_for_parts`.

    Raises:
        KnobsError: a split of its own that is impossible.
    """
    found = _scaled(problem, subgraph, scale)
    if override is not None:
        found = _overridden(problem, found, override)
    if kind not in PARTS:
        return found
    if override is not None and _decides_split(override):
        return cut_over_clusters(problem, found, kind, room, exact=True)
    own = cut_over_clusters(problem, subgraph, kind, room, exact=False)
    return _scaled(problem, own, scale)


def _decides_split(override: SubGraphKnobs) -> bool:
    return {override.dim, override.factor, override.inner_factor} != {AUTO}


def _scaled(problem: Problem, subgraph: SubGraph, scale: int) -> SubGraph:
    """More instances than needed, where the innermost axis that is cut divides."""
    if scale == 1:
        return subgraph
    split = subgraph.split
    if split.inner_axis >= 0:
        extent = sink(problem, subgraph.layers).axes[split.inner_axis].extent
        factor = split.inner_factor * scale
        if factor > extent or extent % factor:
            return subgraph
        return subgraph.recut(split.inside(split.inner_axis, factor))
    if split.axis < 0:
        axes = split_axes(problem, subgraph.layers)
        if not axes or split.instances != 1:
            return subgraph
        split = split.along(axes[0][1], split.factor, axes[0][0])
    extent = sink(problem, subgraph.layers).axes[split.axis].extent
    factor = split.instances * scale
    if factor > extent or extent % factor:
        return subgraph
    return subgraph.recut(split.along(split.axis, factor, split.depth))


def _overridden(problem: Problem, subgraph: SubGraph, override: SubGraphKnobs) -> SubGraph:
    """Apply the split decisions made for a sub-graph.

    One that is impossible because other knobs moved the cuts, so that another layer makes the
    sub-graph's output, is left to the heuristic.

    Raises:
        KnobsError: a split that is impossible where the layer named makes the output.
    """
    found = subgraph
    try:
        if override.dim != AUTO or override.factor != AUTO:
            found = _forced(problem, found, override.dim, override.factor)
        if override.inner_factor != AUTO:
            found = _inner(problem, found, override.inner_dim, override.inner_factor)
    except KnobsError:
        if problem.layers[subgraph.layers[-1]].name == override.layer:
            raise
    return found


def _forced(problem: Problem, subgraph: SubGraph, dim: int | str, factor: int | str) -> SubGraph:
    axes = dict(split_axes(problem, subgraph.layers))
    known = subgraph.split.depth if subgraph.split.axis >= 0 else min(axes, default=0)
    depth = known if dim == AUTO else int(dim)
    parts = subgraph.split.instances if factor == AUTO else max(int(factor), 1)
    axis = _splittable(problem, subgraph, depth, parts)
    split = Split(axis if parts > 1 else -1, parts, depth, 0, subgraph.split.footprint)
    return subgraph.recut(split)


def _inner(problem: Problem, subgraph: SubGraph, dim: int | str, factor: int | str) -> SubGraph:
    """A second axis cut inside every part; the outermost other one if none is named."""
    parts = int(factor)
    others = [d for d, a in split_axes(problem, subgraph.layers) if a != subgraph.split.axis]
    depth = min(others, default=0) if dim == AUTO else int(dim)
    axis = _splittable(problem, subgraph, depth, parts)
    if parts <= 1 or axis == subgraph.split.axis:
        return subgraph
    if subgraph.split.axis < 0:
        split = subgraph.split.along(axis, parts, depth)
    else:
        split = subgraph.split.inside(axis, parts)
    return subgraph.recut(split)


def _splittable(problem: Problem, subgraph: SubGraph, depth: int, parts: int) -> int:
    """The axis of a dimension of a sub-graph's output.

    Raises:
        KnobsError: it cannot be cut into so many parts.
    """
    axis = dict(split_axes(problem, subgraph.layers)).get(depth, -1)
    name = problem.layers[subgraph.layers[-1]].name
    if parts > 1 and (axis < 0 or parts > sink(problem, subgraph.layers).axes[axis].extent):
        at = Location(field="overrides")
        raise KnobsError(f"{name} cannot be split into {parts} along dimension {depth}", at)
    return axis
