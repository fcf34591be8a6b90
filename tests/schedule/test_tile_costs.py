"""Tiles that are chosen by what they cost."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoturbo.graph.operators import Graph
from autoturbo.hardware.target import Target
from autoturbo.schedule.codegen.durations import rates_of
from autoturbo.schedule.codegen.tile_costs import TileCut, cut_seconds
from autoturbo.schedule.codegen.tiling import (
    IN_LB,
    InstructionRules,
    Tiling,
    room_of,
    tile_counts,
)
from autoturbo.schedule.context import make_context
from autoturbo.schedule.knobs import Knobs, SubGraphKnobs
from autoturbo.schedule.pipeline import ModelScheduler, build_schedule
from autoturbo.schedule.stitch.stages import Stage
from autoturbo.schedule.streams import IN_DDR, IN_GB, OUT_DDR, READ, ROOM, STREAM_COLUMNS
from autoturbo.simulator.sequence import simulate
from autoturbo.verifier import verify_schedule
from tests.schedule.schedule_checks import check_schedule
from tests.schedule.schedule_samples import STCP920, chain, networks, targets
from tests.schedule.test_schedule_instructions import product
from tests.schedule.test_schedule_properties import EXAMPLES, drawn
from tests.simulator.simulate_samples import evaluator

RATES = rates_of(STCP920, "float16")


def rules(**knobs: object) -> InstructionRules:
    context = make_context(chain("conv"), STCP920, "float16")
    return InstructionRules.of(context, Knobs(**knobs))  # type: ignore[arg-type]


def chosen(stage: np.ndarray, streams: np.ndarray, own: InstructionRules) -> np.ndarray:
    counts: np.ndarray = tile_counts(stage[None], streams[None], own, 0, RATES)[0]
    return counts


def streamed(**columns: int) -> np.ndarray:
    """A row of streams, ``IN_DDR=bytes`` and the like."""
    where = {"IN_DDR": IN_DDR, "IN_GB": IN_GB, "OUT_DDR": OUT_DDR, "ROOM": ROOM}
    found = np.zeros(STREAM_COLUMNS, np.int64)
    for name, size in columns.items():
        found[where[name]] = size
    return found


def test_a_thousand_columns_fill_the_array() -> None:
    """Cut by room alone the classifier has 31 or so parts, each one column wider than the array."""
    stage, streams = product(2, 1000, 2048), streamed(ROOM=1 << 17)

    def blocks(columns: int) -> int:
        return columns * math.ceil(1000 / columns / 32)

    usual = chosen(stage, streams, rules(tile_subdivision=2))
    own = chosen(stage, streams, rules(tile_subdivision=2, tiling="cost"))
    assert blocks(own[Tiling.COLUMNS]) == math.ceil(1000 / 32)
    assert own[: Tiling.ROWS_OUTSIDE].prod() <= usual[: Tiling.ROWS_OUTSIDE].prod()


def test_vector_work_follows_its_product_in_several_tiles() -> None:
    """One tile that fits would leave the vector engine idle until all is multiplied."""
    stage = product(784, 64, 576)
    stage[Stage.VECTOR] = 784 * 64 * 8
    usual, own = (chosen(stage, streamed(), rules(tiling=way)) for way in ("auto", "cost"))
    assert own[Tiling.ROWS] * own[Tiling.COLUMNS] > usual[Tiling.ROWS] * usual[Tiling.COLUMNS]


def test_what_stays_in_lb_is_one_tile_where_nothing_waits() -> None:
    """Each tile of vector work starts the engine anew, and nothing comes or goes meanwhile."""
    stage = np.zeros(len(Stage))
    stage[Stage.VECTOR] = stage[Stage.STEPS] = 1 << 18
    stage[Stage.READ] = stage[Stage.WRITTEN] = 1 << 19
    assert chosen(stage, streamed(), rules())[Tiling.PRODUCTS] > 1
    assert chosen(stage, streamed(), rules(tiling="cost"))[Tiling.PRODUCTS] == 1


def test_weights_that_come_early_are_not_loaded_again() -> None:
    """Row tiles outside read less of the inputs, and weights from DDR for each of them."""
    stage = product(4096, 1024, 1024)
    streams = streamed(IN_GB=int(stage[Stage.READ]) * STCP920.cores)
    own = chosen(stage, streams, rules(tiling="cost", fetch_ahead=1024))
    assert not own[Tiling.ROWS_OUTSIDE] or own[Tiling.ROWS] == 1


@pytest.mark.parametrize("way", ["off", "auto"])
def test_no_pipeline_leaves_nothing_to_choose(way: str) -> None:
    """Without one all instructions are one after the other, and the largest tiles are the best."""
    stage = product(784, 64, 576)
    stage[Stage.VECTOR] = 784 * 64 * 8
    own, usual = (
        chosen(stage, streamed(), rules(instruction_scheduling=way, tiling=tiling))
        for tiling in ("cost", "auto")
    )
    assert (own == usual).all() == (way == "off")


SIZES = st.sampled_from([1, 2, 7, 32, 49, 64, 100, 196, 500, 1000, 3136])
BYTES = st.sampled_from([0, 0, 5_000, 300_000, 3_000_000])


@pytest.mark.full
@settings(max_examples=150, deadline=None)
@given(
    m=SIZES, n=SIZES, k=SIZES, count=st.sampled_from([1, 1, 1, 3, 12]),
    vector=st.sampled_from([0, 1, 40]), moved=st.tuples(BYTES, BYTES, BYTES),
    room=st.sampled_from([0, 1 << 16, 3 << 17]), ahead=st.integers(1, 3),
    parts=st.sampled_from(["auto", 2]), early=st.sampled_from(["auto", 1024]),
)  # fmt: skip
def test_tiles_fit_and_cost_no_more_than_the_usual_ones(
    m: int, n: int, k: int, count: int, vector: int, moved: tuple[int, int, int], room: int,
    ahead: int, parts: int | str, early: int | str,
) -> None:  # fmt: skip
    stage = product(m, n, k, count)
    stage[Stage.VECTOR] = vector * m * n * count
    streams = streamed(IN_DDR=moved[0], IN_GB=moved[1], OUT_DDR=moved[2], ROOM=room)
    knobs = {"prefetch_depth": ahead, "tile_subdivision": parts, "fetch_ahead": early}
    own_rules = rules(**knobs, tiling="cost")
    usual, own = chosen(stage, streams, rules(**knobs)), chosen(stage, streams, own_rules)
    seconds = [
        cut_seconds(stage, streams, room_of(own_rules, 0), RATES, TileCut(*tiles.tolist()))
        for tiles in (usual, own)
    ]
    assert seconds[1] <= seconds[0]
    if (own == usual).all():
        return
    products, columns, depths, rows, outside, kept = own.tolist()
    slots, results = ahead + 1, products * columns * rows
    assert stage[Stage.CORE_WEIGHTS] * slots / (products * columns * depths) <= (
        own_rules.weight_room
    )
    assert stage[Stage.WRITTEN] / results <= own_rules.tile_bytes
    cut = products * (rows if outside else 1)
    read, stay = streams[READ].sum() / STCP920.cores, 0.0
    leaving = streams[OUT_DDR] / STCP920.cores / results * slots
    if kept == IN_LB and columns > 1:
        stay = read / cut * (slots if cut > 1 else 1)
    else:
        leaving += read / (products * rows * depths) * slots
    assert leaving <= own_rules.staging
    if depths > 1 and cut * columns < stage[Stage.STEPS]:
        stay += 2.0 * stage[Stage.WRITTEN] / cut / columns
    assert stay <= own_rules.staging + room


@settings(EXAMPLES, max_examples=12)
@given(graph=networks(6), machine=targets(), data=st.data())
def test_any_schedule_with_tiles_by_cost_is_valid(
    graph: Graph, machine: Target, data: st.DataObject
) -> None:
    knobs = dataclasses.replace(drawn(data, graph, machine).knobs, tiling="cost")
    check_schedule(build_schedule(ModelScheduler(graph, machine, "float16"), knobs))


@pytest.mark.parametrize("workload", ["squeezenet1_1", "mobilenet_v2"])
def test_models_are_faster_with_tiles_by_cost(workload: str) -> None:
    scheduler, seconds = evaluator(workload).model_scheduler, list[float]()
    for way in ("auto", "cost"):
        schedule = build_schedule(scheduler, Knobs(max_layers=8, fetch_ahead=1024, tiling=way))
        assert verify_schedule(schedule).ok
        seconds.append(simulate(schedule).latency)
    assert seconds[1] < seconds[0]


def test_a_sub_graph_may_have_tiles_of_its_own() -> None:
    scheduler = evaluator("squeezenet1_1").model_scheduler
    layer = scheduler.context(scheduler.share().batches).layers[0].name
    own = SubGraphKnobs(layer, tiling="cost")
    schedule = build_schedule(scheduler, Knobs(max_layers=4, overrides=(own,)))
    assert [rules.by_cost for rules in schedule.own_rules.values()] == [True]
    assert not schedule.rules.by_cost
    usual = SubGraphKnobs(layer, tiling="largest")
    back = build_schedule(scheduler, Knobs(max_layers=4, tiling="cost", overrides=(usual,)))
    assert back.rules.by_cost
    assert not any(rules.by_cost for rules in back.own_rules.values())
