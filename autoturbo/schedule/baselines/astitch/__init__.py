"""AStitch (ASPLOS '22) on a scratchpad accelerator, as GraphTurbo (OSDI '23, section 5.2) ran it.

What its schemes become here (AStitch keeps data in registers, shared or global memory of a GPU):

========  ====================================================================================
Local     inside the tile loop of a layer: a group's operators are one layer
Regional  in LB, between layers of one kernel or between kernels, where producer and consumer
          are bound to the cores alike (AStitch: their thread blocks match)
Global    in GB, or DDR on overflow, behind a barrier of the cluster: the end of a kernel
========  ====================================================================================

A layer follows its consumer's binding if that keeps as many cores busy (element-wise groups adapt
proactively), otherwise it keeps its own and the bindings are compared (reductions: passively). LB
is shared out by liveness, and where it overflows Regional results are demoted to Global one by one:
the longest-lived first, as our allocator does it, where AStitch goes by its dominance tree.

Products and convolutions have kernels of their own and keep results in LB if they fit, else in DDR:
AStitch has no place for them but global memory, and GraphTurbo's reproduction spilled to DDR too.
Nothing is split into instances, reordered, or overlapped across kernels.

A kernel of ours hands over the results of one operator (its last), so a stitch operator with
several results becomes as many kernels, one after another. It costs launches that AStitch saves,
and no traffic, because LB outlives a kernel.
"""

from __future__ import annotations

from collections.abc import Iterator

from autoturbo.schedule.baselines.astitch.mapping import plan_of
from autoturbo.schedule.baselines.astitch.schemes import scheduled
from autoturbo.schedule.pipeline import Workbench
from autoturbo.schedule.schedule import Schedule


def astitch(bench: Workbench) -> Iterator[Schedule]:
    """A schedule for every batch per cluster."""
    for batches in bench.batch_choices():
        plan = plan_of(bench.problem(batches).graph, bench.target, bench.dtype)
        yield scheduled(bench.model, plan, bench.share(batches))
