"""A measurer: work at peak rates, kernel after kernel. A board or a vendor's simulator is as short.

What a schedule consists of is read from its published form (``docs/schedule-format.md``), which a
program in any language could be given as well.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

from autoturbo.plugin import Measurement, Outcome, Schedule, Target, kernels_text, lower_bound


class Roofline:
    """Measures by counting: no transfer takes time, no engine waits for another one.

    A measurer that cannot measure a schedule answers with a
    :class:`~autoturbo.simulator.measurement.Failure`. It gives the same figures each time;
    ``board`` shows one that varies.
    """

    def measure(self, schedules: Sequence[Schedule]) -> Sequence[Outcome]:
        """Return one outcome per schedule, in their order."""
        return [_measured(schedule) for schedule in schedules]


def _measured(schedule: Schedule) -> Measurement:
    target, dtype = schedule.context.target, schedule.context.dtype
    bound = lower_bound(schedule.model, target, dtype)
    document = json.loads(kernels_text(schedule))
    seconds = seconds_of(schedule, document)
    return Measurement(
        latency=seconds,
        batch=schedule.model.known_batch,
        ddr_bytes=round(bound.ddr_s * target.ddr.bandwidth),
        gb_bytes=0,
        matrix_utilization=bound.matrix_s / seconds,
        vector_utilization=bound.vector_s / seconds,
        peak_lb_bytes=0,
        peak_gb_bytes=0,
        kernels=len(document["kernels"]) * document["share"]["passes"],
        bound=bound,
    )


def seconds_of(schedule: Schedule, document: dict[str, Any]) -> float:
    """Return the seconds of a schedule that is spelled out: its clusters work side by side."""
    target, dtype = schedule.context.target, schedule.context.dtype
    by_cluster: Counter[int] = Counter()
    for kernel in document["kernels"]:
        by_cluster[kernel["cluster"] or 0] += _kernel_seconds(kernel, target, dtype)
    seconds = document["share"]["passes"] * max(by_cluster.values())
    return max(seconds, lower_bound(schedule.model, target, dtype).seconds)


def _kernel_seconds(kernel: dict[str, Any], target: Target, dtype: str) -> float:
    """Return the seconds of a launch: each layer takes as long as its busier engine."""
    macs = target.matrix.macs_per_cycle(dtype) or float("inf")
    elements = target.vector.elements_per_cycle(dtype) or float("inf")
    cycles = 0.0
    for layer in kernel["layers"]:
        work = layer["core_work"]
        products = work["products"] * work["rows"] * work["columns"] * work["depth"]
        cycles += max(products / macs, work["vector_operations"] / elements)
    return target.overheads.kernel_launch + cycles / target.clock
