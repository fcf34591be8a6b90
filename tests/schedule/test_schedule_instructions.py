"""Programs of kernels: tiles, prefetching, and what waits for what."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoturbo.schedule.codegen.instructions import (
    DMA_IN,
    DMA_OUT,
    ENGINES,
    INSTRUCTION_COLUMNS,
    MATRIX_ENGINE,
    TRANSFER,
    VECTOR_ENGINE,
    Column,
    Instructions,
    Kernel,
    instruct,
)
from autoturbo.schedule.codegen.tiling import Amount, InstructionRules, best_cut
from autoturbo.schedule.context import make_context
from autoturbo.schedule.knobs import Knobs
from autoturbo.schedule.pipeline import ModelScheduler, build_schedule
from autoturbo.schedule.schedule import Schedule
from autoturbo.schedule.stitch.stages import STAGE_COLUMNS, Stage
from autoturbo.schedule.streams import IN_DDR, OUT_DDR, STREAM_COLUMNS
from autoturbo.simulator.sequence import simulate
from tests.schedule.schedule_checks import check_instructions
from tests.schedule.schedule_samples import STCP920, Net, block, chain, scheduler_of, target
from tests.schedule.steps import program_of, steps_of


def rules(**knobs: object) -> InstructionRules:
    context = make_context(chain("conv"), STCP920, "float16")
    return InstructionRules.of(context, Knobs(**knobs))  # type: ignore[arg-type]


def product(rows: int, columns: int, depth: int, count: int = 1) -> np.ndarray:
    """A stage of one matrix product."""
    stage = np.zeros(STAGE_COLUMNS)
    stage[Stage.COUNT], stage[Stage.ROWS] = count, rows
    stage[Stage.COLUMNS], stage[Stage.DEPTH] = columns, depth
    stage[Stage.MACS] = count * rows * columns * depth
    stage[Stage.WEIGHTS] = stage[Stage.CORE_WEIGHTS] = count * columns * depth * 2
    stage[Stage.READ], stage[Stage.WRITTEN] = count * rows * depth * 2, count * rows * columns * 2
    stage[Stage.STEPS] = count * rows * columns
    return stage


def program(
    stages: list[np.ndarray], streams: np.ndarray | None = None, **knobs: object
) -> Instructions:
    """Stages one after the other."""
    table = np.zeros((len(stages), STREAM_COLUMNS), np.int64) if streams is None else streams
    edges: list[tuple[int, ...]] = [(), *((i,) for i in range(len(stages) - 1))]
    return next(instruct([Kernel(np.asarray(stages), table, edges, rules(**knobs), 0)]))


def on(found: Instructions, engine: int) -> np.ndarray:
    return np.flatnonzero(found.where[:, Column.ENGINE] == engine)


def only(schedule: Schedule) -> Instructions:
    (step,) = steps_of(schedule.timeline)
    return program_of(schedule, step)


@pytest.mark.full
def test_rules_of_stcp920() -> None:
    found = rules()
    assert (found.ahead, found.divisor, found.across) == (1, 1, True)
    assert (found.weight_room, found.staging, found.tile_bytes) == (1 << 18, 1 << 16, 1 << 16)
    assert (found.cores, found.has_gb, found.broadcast) == (8, True, True)
    assert (found.native_rows, found.native_columns) == (64, 32)


def test_rules_follow_the_knobs() -> None:
    found = rules(prefetch_depth=3, tile_subdivision=4, instruction_scheduling="layer")
    assert (found.ahead, found.divisor, found.across, found.serial) == (3, 4, False, False)
    found = rules(prefetch_depth=3, instruction_scheduling="off")
    assert (found.ahead, found.across, found.serial) == (0, False, True)


def test_a_knob_changes_one_rule() -> None:
    base = rules()
    for knobs in (
        {"prefetch_depth": 2},
        {"tile_subdivision": 2},
        {"instruction_scheduling": "layer"},
    ):
        assert sum(a != b for a, b in zip(rules(**knobs), base, strict=True)) == 1


def test_one_small_layer_is_one_tile() -> None:
    """Weights come through GB, the product runs, nothing is stored: its output stays in LB."""
    found = program([product(64, 32, 32)])
    assert found.where.shape == (3, INSTRUCTION_COLUMNS)
    assert found.where[:, Column.ENGINE].tolist() == [DMA_IN, TRANSFER, MATRIX_ENGINE]
    assert found.where[1, Column.AFTER] == 0
    assert 1 in found.where[2, Column.AFTER :]
    assert found.amounts[0, Amount.DDR] == found.amounts[1, Amount.CORE] == 32 * 32 * 2
    assert found.amounts[2, [Amount.COUNT, Amount.ROWS, Amount.COLUMNS, Amount.DEPTH]].tolist() == [
        1, 64, 32, 32
    ]  # fmt: skip


def test_vector_work_follows_its_product() -> None:
    stage = product(64, 32, 32)
    stage[Stage.VECTOR] = 64 * 32
    found = program([stage])
    (matrix,), (vector,) = on(found, MATRIX_ENGINE), on(found, VECTOR_ENGINE)
    assert matrix in found.where[vector, Column.AFTER :]
    assert found.amounts[vector, Amount.VECTOR] == 64 * 32


def test_streams_are_stored_after_compute() -> None:
    streams = np.zeros((1, STREAM_COLUMNS), np.int64)
    streams[0, IN_DDR], streams[0, OUT_DDR] = 4096, 1024
    found = program([product(64, 32, 32)], streams)
    assert found.amounts[on(found, DMA_OUT), Amount.DDR].sum() == 1024
    assert found.amounts[on(found, DMA_IN), Amount.DDR].sum() == 4096 + 2048
    assert on(found, DMA_OUT).min() > on(found, MATRIX_ENGINE).min()


@pytest.mark.full
def test_resident_weights_are_not_asked_of_ddr() -> None:
    streams = np.zeros((1, STREAM_COLUMNS), np.int64)
    found = next(instruct([Kernel(product(64, 32, 32)[None], streams, [()], rules(), 1)]))
    assert not len(on(found, DMA_IN))
    assert found.amounts[on(found, TRANSFER), Amount.CORE].sum() == 2048


def test_weights_larger_than_their_share_are_cut() -> None:
    """4 MiB of weights in 256 KiB with one tile ahead: 32 tiles."""
    found = program([product(64, 2048, 1024)])
    tiles = len(on(found, MATRIX_ENGINE))
    assert tiles >= 32
    largest = found.amounts[on(found, TRANSFER), Amount.CORE].max()
    assert largest * 2 <= 1 << 18


@pytest.mark.full
@pytest.mark.parametrize("ahead", [1, 4])
def test_prefetched_tiles_fit_the_weight_share(ahead: int) -> None:
    found = program([product(64, 2048, 1024)], prefetch_depth=ahead)
    largest = found.amounts[on(found, TRANSFER), Amount.CORE].max()
    assert largest * (ahead + 1) <= 1 << 18


def test_fetches_run_ahead_over_layers() -> None:
    """With scheduling the second layer's weights stand before the first layer's product."""
    ahead = program([product(64, 32, 32)] * 3)
    matrix = on(ahead, MATRIX_ENGINE)
    second = [i for i in on(ahead, TRANSFER) if ahead.where[i, Column.LAYER] == 1]
    assert second[0] < matrix[0]


def test_without_scheduling_a_layer_starts_when_the_one_before_ended() -> None:
    plain = program([product(64, 32, 32)] * 3, instruction_scheduling="layer")
    for layer in (1, 2):
        mine = np.flatnonzero(plain.where[:, Column.LAYER] == layer)
        before = np.flatnonzero(plain.where[:, Column.LAYER] == layer - 1)
        assert mine.min() > before.max()
        fetch = next(i for i in mine if plain.where[i, Column.ENGINE] == DMA_IN)
        assert before.max() in plain.where[fetch, Column.AFTER :]


def test_without_a_pipeline_one_instruction_runs_after_another() -> None:
    found = program([product(64, 32, 32)] * 3, instruction_scheduling="off")
    waits = found.where[:, Column.AFTER :]
    assert waits[:, 0].tolist() == list(range(-1, len(waits) - 1))
    assert (waits[:, 1:] == -1).all()


@pytest.mark.full
@pytest.mark.parametrize("divisor", [2, 8])
def test_tile_subdivision_makes_more_tiles(divisor: int) -> None:
    one = program([product(512, 64, 64)])
    several = program([product(512, 64, 64)], tile_subdivision=divisor)
    assert len(on(several, MATRIX_ENGINE)) > len(on(one, MATRIX_ENGINE))


@pytest.mark.full
@pytest.mark.parametrize(
    ("extent", "native", "least", "tiles"),
    [
        (64, 64, 1, 1),
        (128, 64, 2, 2),
        (192, 64, 2, 3),
        (100, 64, 1, 1),
        (10, 64, 4, 1),
        (256, 32, 3, 4),
    ],
)
def test_cuts_waste_least_of_the_array(extent: int, native: int, least: int, tiles: int) -> None:
    """192 rows in two tiles would take 96 each, two native tiles of 64; in three, one each."""
    assert best_cut(float(extent), native, least) == tiles


@settings(max_examples=30, deadline=None)
@given(
    shapes=st.lists(
        st.tuples(*[st.integers(1, 700)] * 3, st.integers(1, 12)), min_size=1, max_size=4
    ),
    streamed=st.integers(0, 1 << 20), vector=st.booleans(), data=st.data(),
)  # fmt: skip
def test_amounts_are_conserved(
    shapes: list[tuple[int, int, int, int]],
    streamed: int,
    vector: bool,
    data: st.DataObject,
) -> None:
    """Whatever the cut, the tiles' work and stores are the layer's, and loads no less than it."""
    stages = [product(*shape) for shape in shapes]
    for stage in stages:
        stage[Stage.VECTOR] = stage[Stage.WRITTEN] if vector else 0
    streams = np.full((len(stages), STREAM_COLUMNS), 0, np.int64)
    streams[0, IN_DDR] = streams[-1, OUT_DDR] = streamed
    knobs = {
        "prefetch_depth": data.draw(st.sampled_from(("auto", 2, 4))),
        "tile_subdivision": data.draw(st.sampled_from(("auto", 4))),
        "instruction_scheduling": data.draw(st.sampled_from(("auto", "layer", "off"))),
    }
    found = program(stages, streams, **knobs)
    matrix = found.amounts[on(found, MATRIX_ENGINE)]
    macs = matrix[:, [Amount.COUNT, Amount.ROWS, Amount.COLUMNS, Amount.DEPTH]].prod(axis=1).sum()
    assert macs == pytest.approx(sum(s[Stage.MACS] for s in stages))
    assert found.amounts[:, Amount.VECTOR].sum() == pytest.approx(
        sum(s[Stage.VECTOR] for s in stages)
    )
    assert found.amounts[on(found, DMA_OUT), Amount.DDR].sum() == pytest.approx(streamed)
    least = sum(s[Stage.WEIGHTS] for s in stages) + streamed
    assert found.amounts[on(found, DMA_IN), Amount.DDR].sum() >= least * (1 - 1e-9)
    waits = found.where[:, Column.AFTER :]
    assert (waits < np.arange(len(waits))[:, None]).all()
    assert set(found.where[:, Column.ENGINE].tolist()) <= set(range(len(ENGINES)))


@pytest.mark.parametrize(
    ("name", "scheduling"),
    [
        ("squeezenet1_1", "auto"),
        *(
            pytest.param(*case, marks=pytest.mark.full)
            for case in (("resnet50", "off"), ("bert_base_s128", "auto"), ("googlenet", "auto"))
        ),
    ],
)
def test_programs_of_real_kernels(name: str, scheduling: str) -> None:
    """Among them layers that read several others: a pooling branch beside convolutions."""
    schedule = build_schedule(scheduler_of(name), Knobs(instruction_scheduling=scheduling))
    for step in steps_of(schedule.timeline):
        check_instructions(schedule, step)


def test_a_reader_of_several_layers_waits_for_all_of_them() -> None:
    """A convolution on the matrix engine and a pooling on the vector engine meet in one kernel."""
    net = Net(x=(2, 32, 16, 16))
    stem = net.conv("x", 32)
    both = net.concat(1, net.conv(stem, 32), net.pool(stem, 1, 1), net.softmax(stem, 1))
    net.conv(both, 32)
    model_scheduler = ModelScheduler(
        net.graph(), target(cores=4, lb=1 << 20, gb=1 << 22), "float16"
    )
    schedule = build_schedule(model_scheduler, Knobs())
    for step in steps_of(schedule.timeline):
        check_instructions(schedule, step)


def test_scheduling_and_depth_change_time_but_not_traffic_out() -> None:
    model_scheduler = ModelScheduler(block(), target(lb=1 << 16), "float16")
    fast = simulate(build_schedule(model_scheduler, Knobs()))
    slow = simulate(build_schedule(model_scheduler, Knobs(instruction_scheduling="off")))
    assert fast.latency < slow.latency
    assert fast.ddr_bytes == slow.ddr_bytes


def test_without_gb_ddr_feeds_the_cores() -> None:
    schedule = build_schedule(
        ModelScheduler(chain("conv"), target(gb=0, lb=1 << 16), "float16"), Knobs()
    )
    found = only(schedule)
    assert found.amounts[:, Amount.GB].sum() == 0
    assert found.amounts[on(found, DMA_IN), Amount.DDR].sum() > 0
