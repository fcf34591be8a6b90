"""What one core makes of a recurrence, for compiled code."""

from __future__ import annotations

from autoturbo.compiled import borrowing
from autoturbo.graph.arrays import GraphArrays, Regions, narrow_axes
from autoturbo.schedule.codegen.work import WorkArrays


@borrowing
def narrow_spread(g: GraphArrays, w: WorkArrays, op: int, regions: Regions) -> float:
    """Narrow the axes that cores share out to what one makes; return its share of their points.

    Its part of the first output that is wanted says what it makes.
    """
    box_low, box_high = regions.box_low, regions.box_high
    own_low, own_high = regions.room[2], regions.room[3]
    first, end = g.axis_start[op], g.axis_start[op + 1]
    if w.spread[first:end].sum() == 0:
        return 1.0
    share = 1.0
    for position in range(g.out_start[op], g.out_start[op + 1]):
        tensor = g.out_tensor[position]
        if not regions.seen[tensor]:
            continue
        for axis in range(first, end):
            own_low[axis - first], own_high[axis - first] = box_low[axis], box_high[axis]
        slot, dim = g.out_slot[position], g.dim_start[tensor]
        narrow_axes(g, slot, regions.low, regions.high, dim, own_low, own_high)
        for axis in range(first, end):
            if w.spread[axis]:
                own = max(own_high[axis - first] - own_low[axis - first], 0)
                share *= own / max(box_high[axis] - box_low[axis], 1)
                box_low[axis], box_high[axis] = own_low[axis - first], own_high[axis - first]
        break
    return share
