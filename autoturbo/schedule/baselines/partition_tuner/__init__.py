"""PartitionTuner and what it was compared with: who runs which layer on a machine of several units.

Yu et al., "PartitionTuner", ETRI Journal 45(2), 2023 (baselines.md, section 3), on our layers and
profiles. Kept as published, holes included: no cost for crossing from one branch to the next, one
price for all links, no contention, no check that side by side is faster.
"""

from autoturbo.schedule.baselines.partition_tuner.assignments import (
    SCHEDULERS,
    Costs,
    partition_tuner,
    profiled,
    static,
)

__all__ = ["SCHEDULERS", "Costs", "partition_tuner", "profiled", "static"]
