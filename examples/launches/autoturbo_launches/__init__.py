"""A measurer that counts: the lower bound of the work, and a launch for every kernel."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence

from autoturbo.plugin import Measurement, Outcome, Schedule, kernels_text, lower_bound


class Launches:
    """Measures what kernels cost by their number: no transfer and no engine waits."""

    def measure(self, schedules: Sequence[Schedule]) -> Sequence[Outcome]:
        """One outcome per schedule, in their order."""
        return [_measured(schedule) for schedule in schedules]


def _measured(schedule: Schedule) -> Measurement:
    target = schedule.context.target
    bound = lower_bound(schedule.model, target, schedule.context.dtype)
    document = json.loads(kernels_text(schedule))
    by_cluster = Counter(kernel["cluster"] or 0 for kernel in document["kernels"])
    passes = document["share"]["passes"]
    launches = passes * max(by_cluster.values())
    seconds = bound.seconds + launches * target.overheads.kernel_launch
    return Measurement(
        latency=seconds,
        batch=schedule.model.batch,
        ddr_bytes=round(bound.ddr_s * target.ddr.bandwidth),
        gb_bytes=0,
        matrix_utilization=bound.matrix_s / seconds,
        vector_utilization=bound.vector_s / seconds,
        peak_lb_bytes=0,
        peak_gb_bytes=0,
        kernels=passes * len(document["kernels"]),
        bound=bound,
    )
