"""The instruction builder: all work is done once, in an order that respects data and buffers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoturbo.schedule.codegen.instructions import (
    DMA_IN,
    DMA_OUT,
    MATRIX_ENGINE,
    TRANSFER,
    VECTOR_ENGINE,
    Column,
    Instructions,
)
from autoturbo.schedule.codegen.tiling import Amount, InstructionRules
from autoturbo.schedule.knobs import Knobs
from autoturbo.schedule.stitch.stages import Stage
from autoturbo.schedule.stitch.templates import local_edges
from autoturbo.schedule.streams import IN_DDR, LATE_DDR, OUT_DDR, OUT_GB, STREAM_COLUMNS
from autoturbo.schedule.work import Floats
from tests.schedule.steps import program_of, steps_of
from tests.simulator.simulate_samples import (
    chain,
    evaluator,
    program,
    rules_of,
    stage,
    streams,
    table,
    target_of,
)

WORKLOADS = ("llama_decode", "shufflenet_v2")


def work(found: Instructions) -> float:
    """Multiply-accumulates of a program."""
    shape = found.amounts[:, [Amount.COUNT, Amount.ROWS, Amount.COLUMNS, Amount.DEPTH]]
    return float(shape.prod(axis=1).sum())


def on(found: Instructions, *engines: int) -> np.ndarray:
    return np.isin(found.where[:, Column.ENGINE], engines)


@st.composite
def layers(draw: st.DrawFn) -> Floats:
    """A few layers of any size."""
    rows = []
    for _ in range(draw(st.integers(1, 5))):
        size = draw(st.sampled_from([1, 3, 32, 33, 64, 197, 1000, 4096]))
        weights = draw(st.sampled_from([0, 100, 70_000, 3_000_000]))
        values: dict[str, float] = {"weights": weights, "read": 100 * size, "written": 2 * size}
        values["exchanged"] = draw(st.sampled_from([0, 0, 5000, 200_000]))
        values["vector"] = draw(st.sampled_from([0, 64 * size]))
        if draw(st.booleans()):
            values |= {"rows": size, "columns": draw(st.sampled_from([1, 31, 768, 4096]))}
            values |= {"depth": draw(st.sampled_from([1, 27, 576, 25088]))}
            values |= {"count": draw(st.sampled_from([1, 1, 5, 12]))}
        rows.append(stage(steps=size, **values))
    return table(*rows)


def rule_choices() -> st.SearchStrategy[InstructionRules]:
    return st.builds(
        lambda preset, ahead, divisor, across: rules_of(
            target_of(preset), ahead=ahead, divisor=divisor, across=across
        ),
        st.sampled_from(["stcp920", "ipu-mk2", "tpu-v4i"]),
        st.integers(1, 4), st.sampled_from([1, 2, 8]), st.booleans(),
    )  # fmt: skip


@settings(max_examples=40, deadline=None)
@given(rows=layers(), rules=rule_choices(), seed=st.integers(0, 1000))
def test_all_work_is_done_once(rows: Floats, rules: InstructionRules, seed: int) -> None:
    random = np.random.default_rng(seed)
    moved = np.zeros((len(rows), STREAM_COLUMNS), np.int64)
    moved[0, IN_DDR] = random.integers(0, 2) * 300_000
    moved[-1, OUT_DDR], moved[-1, OUT_GB] = random.integers(0, 2, 2) * 100_000
    found = program(rows, moved, chain(len(rows)), rules)
    assert work(found) == pytest.approx(rows[:, Stage.MACS].sum())
    vector = found.amounts[on(found, VECTOR_ENGINE)].sum(axis=0)
    assert vector[Amount.VECTOR] == pytest.approx(rows[:, Stage.VECTOR].sum())
    assert found.amounts[on(found, DMA_OUT), Amount.DDR].sum() == pytest.approx(moved[:, 3].sum())
    loaded = found.amounts[on(found, DMA_IN), Amount.DDR].sum()
    assert loaded >= (rows[:, Stage.WEIGHTS].sum() + moved[:, IN_DDR].sum()) * (1 - 1e-9)
    waits = found.where[:, Column.AFTER :]
    assert (waits < np.arange(len(waits))[:, None]).all()


@pytest.mark.full
@settings(max_examples=30, deadline=None)
@given(rows=layers(), rules=rule_choices())
def test_a_weight_tile_has_a_slot(rows: Floats, rules: InstructionRules) -> None:
    """No more weight tiles are on their way or in use than the weight share of LB holds."""
    found = program(rows, streams(len(rows)), chain(len(rows)), rules)
    carrier = TRANSFER if rules.has_gb else DMA_IN
    room = rules.weight_room / (rules.ahead + 1)
    size = Amount.CORE if rules.has_gb else Amount.DDR
    for row, amount in zip(found.where, found.amounts, strict=True):
        layer = row[Column.LAYER]
        whole = rows[layer, Stage.CORE_WEIGHTS]
        narrow = rows[layer, Stage.MACS] == 0 or whole / max(rows[layer, Stage.COLUMNS], 1) > room
        if row[Column.ENGINE] == carrier and not rows[layer, Stage.EXCHANGED] and not narrow:
            assert amount[size] <= room * 1.05


@pytest.mark.parametrize(
    "workload",
    ["squeezenet1_1", *(pytest.param(w, marks=pytest.mark.full) for w in WORKLOADS)],
)
def test_a_layer_starts_after_the_layers_that_it_reads(workload: str) -> None:
    """All results of all producers, not just of the last one in the list."""
    schedule = evaluator(workload).schedule(Knobs())
    for step in steps_of(schedule.timeline):
        found = program_of(schedule, step)
        edges = local_edges(schedule.context, step.template.layers)
        if len(found.where) < 4000:
            ordered(found, edges)


def ordered(found: Instructions, edges: list[tuple[int, ...]]) -> None:
    """Every compute instruction follows the last compute of each producer, by engine order too."""
    last: dict[int, list[int]] = {}
    compute = on(found, MATRIX_ENGINE, VECTOR_ENGINE)
    for index in np.flatnonzero(compute):
        last.setdefault(int(found.where[index, Column.LAYER]), []).append(int(index))
    before = ancestors(found)
    for layer, befores in enumerate(edges):
        for producer in befores:
            final = max(last[producer])
            assert all(before[index] >> final & 1 for index in last[layer])


def ancestors(found: Instructions) -> list[int]:
    """Bit sets of what must be complete before each instruction starts."""
    known: list[int] = []
    on_engine = [-1] * 5
    for index, row in enumerate(found.where.tolist()):
        bits = 0
        for other in (*row[Column.AFTER :], on_engine[row[Column.ENGINE]]):
            if other >= 0:
                bits |= known[other] | 1 << other
        known.append(bits)
        on_engine[row[Column.ENGINE]] = index
    return known


def test_a_layer_with_several_producers_waits_for_all_of_them() -> None:
    slow = stage(vector=640_000, written=100)
    quick = stage(rows=64, columns=32, depth=10, written=100)
    join = stage(rows=64, columns=32, depth=10, written=100)
    edges: list[tuple[int, ...]] = [(), (), (0, 1)]
    found = program(table(slow, quick, join), streams(3), edges, rules_of(target_of()))
    ordered(found, edges)


@pytest.mark.full
def test_weights_are_fetched_once_whatever_the_rows() -> None:
    row = stage(rows=4096, columns=256, depth=1024, weights=524_288, written=2_097_152)
    found = program(table(row), streams(1), chain(1), rules_of(target_of()))
    assert on(found, MATRIX_ENGINE).sum() >= 32
    assert found.amounts[on(found, DMA_IN), Amount.DDR].sum() == pytest.approx(524_288)


def test_a_long_reduction_is_cut_rather_than_a_tile_narrower_than_the_array() -> None:
    row = stage(rows=128, columns=1024, depth=4096, weights=8_388_608, written=262_144)
    found = program(table(row), streams(1), chain(1), rules_of(target_of()))
    tiles = found.amounts[on(found, MATRIX_ENGINE)]
    assert tiles[:, Amount.COLUMNS].min() >= 32
    assert tiles[:, Amount.DEPTH].max() < 4096
    assert work(found) == pytest.approx(row[Stage.MACS])


@pytest.mark.full
def test_vector_work_waits_for_the_whole_reduction() -> None:
    row = stage(
        rows=128, columns=1024, depth=4096, weights=8_388_608, written=262_144, vector=131_072
    )
    found = program(table(row), streams(1), chain(1), rules_of(target_of()))
    assert on(found, VECTOR_ENGINE).sum() < on(found, MATRIX_ENGINE).sum()
    assert found.amounts[:, Amount.VECTOR].sum() == pytest.approx(131_072)


@pytest.mark.full
def test_deeper_prefetch_takes_smaller_tiles() -> None:
    row = stage(rows=64, columns=2048, depth=512, weights=2_097_152, written=262_144)
    counts = [
        on(program(table(row), streams(1), chain(1), rules_of(target_of(), ahead=ahead)), DMA_IN)
        for ahead in (1, 2, 3)
    ]
    assert counts[0].sum() < counts[1].sum() <= counts[2].sum()


def test_inputs_from_ddr_are_read_from_there_once_if_gb_holds_them() -> None:
    row = stage(
        rows=512, columns=2048, depth=1024, weights=4_194_304, read=1_000_000, written=2_097_152
    )
    moved = streams(1, IN_DDR=(0, 1_048_576))
    found = program(table(row), moved, chain(1), rules_of(target_of(), ddr_cost=4))
    loaded = found.amounts[on(found, DMA_IN), Amount.DDR].sum()
    assert loaded == pytest.approx(4_194_304 + 1_048_576)


def test_late_inputs_come_after_their_producer() -> None:
    rows = [stage(vector=64, written=1000), stage(vector=64, read=1000)]
    moved = streams(2, OUT_DDR=(0, 8000), LATE_DDR=(1, 8000))
    assert moved[1, LATE_DDR] == 8000
    found = program(table(*rows), moved, chain(2), rules_of(target_of()))
    before = ancestors(found)
    store = np.flatnonzero(on(found, DMA_OUT))
    load = np.flatnonzero(on(found, DMA_IN))
    assert all(before[int(index)] >> int(store.max()) & 1 for index in load)
