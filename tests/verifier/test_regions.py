"""The region check on tilings by hand, and on schedules of random networks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from autoturbo.errors import KnobsError
from autoturbo.schedule.knobs import Knobs, SubGraphKnobs
from autoturbo.schedule.pipeline import ModelScheduler, build_schedule
from autoturbo.verifier.regions import check_regions, tiling_findings
from tests.schedule.schedule_samples import chain, scheduler_of, target

if TYPE_CHECKING:
    from autoturbo.schedule.schedule import Schedule


def cut_schedule() -> Schedule:
    """Convolutions and rectifiers of (2, 4, 8, 8), in four parts along the rows."""
    graph = chain("conv", "relu", "conv", "relu")
    knobs = Knobs(overrides=(SubGraphKnobs("conv1", dim=1, factor=4),))
    return build_schedule(ModelScheduler(graph, target(lb=1 << 16), "float16"), knobs)


def kinds(boxes: list[list[tuple[int, int]]]) -> list[str]:
    """Kinds of what is found about boxes that should tile the last tensor of (2, 4, 8, 8)."""
    schedule = cut_schedule()
    tensor = schedule.context.graph.outputs[0]
    table = np.asarray(boxes, np.int64)
    return [f.kind for f in tiling_findings(schedule, tensor, table, np.arange(len(table)))]


WHOLE = [(0, 2), (0, 4), (0, 8), (0, 8)]


def rows(*bounds: tuple[int, int]) -> list[list[tuple[int, int]]]:
    return [[*WHOLE[:2], bound, WHOLE[3]] for bound in bounds]


@pytest.mark.parametrize(
    ("boxes", "wanted"),
    [
        ([WHOLE], []),
        (rows((0, 3), (3, 8)), []),
        (rows((0, 3), (3, 3), (3, 8)), []),
        (rows((0, 3), (4, 8)), ["gap"]),
        (rows((0, 4), (3, 8)), ["overlap"]),
        (rows((0, 4), (3, 7)), ["gap", "overlap"]),
        (rows((0, 4), (4, 9)), ["outside"]),
        (rows((-1, 4), (4, 8)), ["outside"]),
        (rows((0, 0)), ["gap"]),
    ],
)
def test_tilings_by_hand(boxes: list[list[tuple[int, int]]], wanted: list[str]) -> None:
    assert kinds(boxes) == wanted


@pytest.mark.parametrize(
    ("name", "split"),
    [
        ("squeezenet1_1", "spatial"),
        ("dlrm", "auto"),
        *(
            pytest.param(*case, marks=pytest.mark.full)
            for case in (
                ("resnet50", "channel"), ("resnet50", "pipeline"),
                ("shufflenet_v2", "channel"), ("unet", "spatial"),
            )
        ),
    ],
)  # fmt: skip
def test_workloads_have_no_findings(name: str, split: str) -> None:
    try:
        schedule = build_schedule(scheduler_of(name), Knobs(cluster_partitioning=split))
    except KnobsError:
        pytest.skip("the model cannot be shared out so")
    assert check_regions(schedule) == ()
