"""What sub-graphs cost where the next ones find their results in the local buffers.

With every output in DDR costs add up exactly (:mod:`autoturbo.search.exact.costs`), and the best
covers have few, large sub-graphs, which hand over little. Where a target keeps most tensors on the
chip, handing over costs next to nothing and large sub-graphs only cramp each other: ViT-B/16 on
ipu-mk2 starts at 67 ms cut the one way and at 16 cut the other. Whether a tensor stays depends on
the whole schedule, so these sums are estimates: covers to start from, and no exact answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from autoturbo.schedule.codegen.tiling import RulesOf
from autoturbo.schedule.codegen.work import Floats
from autoturbo.schedule.memory.timeline import without_outputs
from autoturbo.search.exact.costs import TOGETHER, Costs, Variant, least_of_layers
from autoturbo.search.exact.groups import Layers
from autoturbo.simulate.estimate import Estimate, estimates
from autoturbo.simulate.kernels import rates_of
from autoturbo.simulate.plan import CAPACITIES, capacities

ROOM: Final = 0.25
"""Share of the local buffers that what a sub-graph reads and writes may fill: tiles, weights and
what later sub-graphs wait for want room too. From 0.15 to 0.5 the cheapest covers of seven models
on ipu-mk2 cost the same to 1 %."""


class NearCosts(Costs):
    """Seconds of sub-graphs whose inputs and outputs stay in the local buffers where they fit.

    Those whose inputs and outputs do not fit cost what they cost with both in DDR.
    """

    def seconds(self, variants: Sequence[Variant], limits: Floats | None = None) -> Floats:
        """Of one pass of one cluster, per variant; see :meth:`Costs.seconds`."""
        fits = np.asarray([self._fits(variant.layers) for variant in variants], np.bool_)
        found, near, far = np.empty(len(variants)), np.flatnonzero(fits), np.flatnonzero(~fits)
        for at in range(0, len(near), TOGETHER):
            some = near[at : at + TOGETHER]
            found[some] = self._estimated([variants[i] for i in some.tolist()])
        known = None if limits is None else limits[far]
        found[far] = super().seconds([variants[i] for i in far.tolist()], known)
        return found

    def fitting(self, variants: Sequence[Variant]) -> float:
        """Share of sub-graphs whose inputs and outputs fit the local buffers; 0 of none."""
        return float(np.mean([self._fits(v.layers) for v in variants])) if variants else 0.0

    def _at_full_rate(self, layers: Layers) -> float:
        """What goes from one sub-graph to the next need not pass any memory."""
        return max(least_of_layers(self.problem, layers))

    def _fits(self, layers: Layers) -> bool:
        row = dict(zip(CAPACITIES, capacities(self.problem, layers), strict=True))
        return row["whole_input_bytes"] + row["whole_output_bytes"] <= ROOM * row["lb_bytes"]

    def _estimated(self, variants: Sequence[Variant]) -> Floats:
        """The simulator's sums without its order, for kernels that store no outputs in DDR."""
        laid = self.laid(variants)
        problem, schedule = self.problem, laid.schedule
        timeline, graph = schedule.timeline, laid.layout.graph
        rows, owners = timeline.rows, graph.subgraph[timeline.order].tolist()
        near = without_outputs(timeline.streams, rows[1:] - 1, laid.outputs)
        pairs = zip(owners, timeline.spare, strict=True)
        table = [RulesOf.roomier(schedule.rules_of(own), spare) for own, spare in pairs]
        found = estimates(
            rows, laid.stages, near, np.asarray(table, np.int64), np.zeros(len(rows) - 1, np.int64),
            rates_of(problem.target, problem.dtype),
        )  # fmt: skip
        return laid.sums(found[:, Estimate.SECONDS] + problem.target.overheads.per_kernel)
