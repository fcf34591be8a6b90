"""Core ids (graphturbo.md 4.4, 4.5): which cores take the parts decides what has to cross."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from autoturbo.errors import ScheduleFileError
from autoturbo.schedule.files import load_schedule
from autoturbo.schedule.knobs import Knobs
from autoturbo.schedule.memory.movement import Pieces, most_crossing
from autoturbo.schedule.pipeline import ModelScheduler, assemble, build_schedule
from autoturbo.schedule.place.bind import Placement, Scope
from autoturbo.schedule.schedule import Schedule
from tests.schedule.concats import concats
from tests.schedule.schedule_samples import STCP920, block, scheduler_of, target
from tests.schedule.steps import steps_of

ROWS = np.asarray([(0, 4), (0, 2)], np.int64)
"""Four samples of two halves; held 4 x 2 by cores [[0, 1], [2, 3], [4, 5], [6, 7]]."""


def gathered(*ids: int) -> Placement:
    """Held by all eight cores in order, wanted by the named ones."""
    return Placement(((4, 2), (4, 1)), (Scope.LB, Scope.LB), ((), ids))


def parts(factors: tuple[int, int]) -> list[set[tuple[int, int]]]:
    """The elements of each core, row-major over the factors."""
    rows, columns = 4 // factors[0], 2 // factors[1]
    return [
        {
            (r, c)
            for r in range(i * rows, (i + 1) * rows)
            for c in range(j * columns, (j + 1) * columns)
        }
        for i in range(factors[0])
        for j in range(factors[1])
    ]


def transfers(placement: Placement) -> int:
    """Parts held by one core of the cluster that another wants."""
    held, wanted = placement.cores_of(0, 8), placement.cores_of(1, 8)
    return sum(
        bool(mine & theirs) and wanted[core] != held[other]
        for core, mine in enumerate(parts((4, 1)))
        for other, theirs in enumerate(parts((4, 2)))
    )


@pytest.mark.parametrize(("ids", "count", "most"), [((0, 1, 2, 3), 7, 2), ((0, 2, 4, 6), 4, 1)])
def test_seven_transfers_or_four(ids: tuple[int, ...], count: int, most: int) -> None:
    """The guide's example; the busiest core gets both halves of a sample, or one."""
    placement = gathered(*ids)
    assert transfers(placement) == count
    held, wanted = np.asarray([(4, 2)], np.int64), np.asarray([(4, 1)], np.int64)
    same = np.argsort(placement.cores_of(0, 8))[list(placement.cores_of(1, 8))]
    pieces = Pieces(ROWS[None], ROWS[None], wanted)
    assert most_crossing(pieces, held, same[None]).tolist() == [most]


def test_cores_that_are_not_named_follow_in_order() -> None:
    assert gathered(6, 4, 2, 0).cores_of(1, 8) == (6, 4, 2, 0, 1, 3, 5, 7)
    assert gathered(6, 4, 2, 0).cores_of(0, 8) == tuple(range(8))


def renamed(schedule: Schedule, ids: tuple[tuple[int, ...], ...]) -> Schedule:
    placement = dataclasses.replace(schedule.placement, core_ids=ids)
    return assemble(
        schedule.model, schedule.context, "test", schedule.knobs, schedule.share,
        schedule.instances, schedule.order, placement,
    )  # fmt: skip


@pytest.mark.full
def test_renaming_all_cores_alike_changes_nothing() -> None:
    schedule = build_schedule(scheduler_of("resnet50"), Knobs())
    turned = tuple(range(7, -1, -1))
    again = renamed(schedule, (turned,) * len(schedule.order))
    assert [s.crossing for s in steps_of(again.timeline)] == [
        s.crossing for s in steps_of(schedule.timeline)
    ]


def test_the_vendors_cores_halve_what_crosses() -> None:
    """One half of every image that comes from L1 is in place, at each of the concatenations."""
    import autoturbo

    examples = Path(__file__).parents[2] / "examples"
    model = autoturbo.load_model(examples / "models" / "resnet50.onnx", batch=64)
    vendor = load_schedule(examples / "schedules" / "resnet50-vendor.json", model, STCP920)
    plain = renamed(vendor, ())
    crossing = [
        [
            p.crossing_bytes
            for s in steps_of(made.timeline)
            for c in concats(made.timeline, s.instance)
            for p in c.moved
            if p.crossing_bytes
        ]
        for made in (vendor, plain)
    ]
    assert len(crossing[0]) == 7
    assert [2 * found for found in crossing[0]] == crossing[1]


@pytest.mark.full
@pytest.mark.parametrize("ids", [[0, 1, 2], [0, 1, 2, 2], [0, 1, 2, 4]])
def test_impossible_cores_are_refused(tmp_path: Path, ids: list[int]) -> None:
    machine = target(cores=4, lb=1 << 16)
    model = block()
    document = json.loads(build_schedule(ModelScheduler(model, machine, "float16"), Knobs()).text)
    document.pop("buffers")
    document["order"][0].update(cores=[4] + [1] * (len(document["order"][0]["cores"]) - 1))
    path = tmp_path / "s.json"
    document["order"][0]["core_ids"] = [3, 1, 0, 2]
    path.write_text(json.dumps(document))
    loaded = load_schedule(path, model, machine)
    loaded.save(tmp_path / "again.json")
    assert load_schedule(tmp_path / "again.json", model, machine).text == loaded.text
    assert '"core_ids": [3, 1, 0, 2]' in loaded.text
    document["order"][0]["core_ids"] = ids
    path.write_text(json.dumps(document))
    with pytest.raises(ScheduleFileError) as caught:
        load_schedule(path, model, machine)
    assert caught.value.at.field == "order[0].core_ids"
