"""A measurer that varies and gives seconds alone, as a board or a user's own computer does.

This one computes its seconds from the published form of a schedule and adds noise; one that runs
something has the same three members.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Sequence

from autoturbo.plugin import MeasurerInfo, Schedule, kernels_text
from autoturbo_example.measurer import seconds_of


class Board:
    """Times what was built of a schedule.

    Attributes:
        info: What AutoTurbo is told: that it varies, what it takes, and how often to run it.
    """

    info = MeasurerInfo(
        cost_s=0.05, repeats=5, warm_up=1, build_limit_s=60.0, run_limit_s=60.0, at_once=1
    )

    def __init__(self) -> None:
        """Open the board; a worker has one of its own."""
        self.chance = random.Random(0)  # noqa: S311  no secret

    def build(self, schedule: Schedule) -> float:
        """Return what is run; an exception is a failure of this schedule alone."""
        return seconds_of(schedule, json.loads(kernels_text(schedule)))

    def run(self, built: float, repeats: int) -> Sequence[float]:
        """Return the seconds of each run of the whole batch."""
        return [built * math.exp(self.chance.gauss(0, 0.02)) for _ in range(repeats)]
