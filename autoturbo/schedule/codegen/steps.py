"""What one core makes of a recurrence, for compiled code."""

from __future__ import annotations

from autoturbo.compiled import borrowing
from autoturbo.graph.arrays import GraphArrays, Ints, narrow_axes
from autoturbo.schedule.codegen.work import WorkArrays


@borrowing
def narrow_spread(
    g: GraphArrays,
    w: WorkArrays,
    op: int,
    low: Ints,
    high: Ints,
    seen: Ints,
    box_low: Ints,
    box_high: Ints,
    room: Ints,
) -> float:
    """Narrow the axes that cores share out to what one makes; return its share of their points.

    Its part of the first output that is wanted says what it makes. ``room`` is ``(2, MAX_AXES)``.
    """
    first, end = g.axis_start[op], g.axis_start[op + 1]
    if w.spread[first:end].sum() == 0:
        return 1.0
    share = 1.0
    for position in range(g.out_start[op], g.out_start[op + 1]):
        tensor = g.out_tensor[position]
        if not seen[tensor]:
            continue
        for axis in range(first, end):
            room[0, axis - first], room[1, axis - first] = box_low[axis], box_high[axis]
        slot = g.out_slot[position]
        narrow_axes(g, slot, low, high, g.dim_start[tensor], room[0], room[1])
        for axis in range(first, end):
            if w.spread[axis]:
                own = max(room[1, axis - first] - room[0, axis - first], 0)
                share *= own / max(box_high[axis] - box_low[axis], 1)
                box_low[axis], box_high[axis] = room[0, axis - first], room[1, axis - first]
        break
    return share
