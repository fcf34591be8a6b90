"""The engine model against a plain one, and its laws on random programs and on real kernels."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoturbo.hardware import Target
from autoturbo.schedule.codegen.durations import rates_of
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
)
from autoturbo.schedule.codegen.tiling import AMOUNT_COLUMNS, Amount
from autoturbo.schedule.knobs import Knobs
from autoturbo.simulator.kernels import PAIRS, Quantity, run_kernel
from tests.schedule.steps import program_of, signature_of, steps_of
from tests.simulator.simulate_samples import PRESETS, evaluator, target_of


@dataclass
class Run:
    """What the plain simulator finds."""

    begin: list[float]
    end: list[float]
    done: list[float]


def cycles(target: Target, amount: np.ndarray) -> float:
    """Matrix cycles, in words: folds of the array times the steps that each streams."""
    engine = target.matrix
    count, m, n = amount[Amount.COUNT], amount[Amount.ROWS], amount[Amount.COLUMNS]
    k = math.ceil(amount[Amount.DEPTH] / engine.depth)

    def folds(a: float, b: float) -> int:
        return math.ceil(a / engine.rows) * math.ceil(b / engine.columns)

    assert engine.folds_overlap
    if engine.dataflow == "output_stationary":
        assert engine.swap_operands
        return float(count * min(folds(m, n), folds(n, m)) * k)
    if engine.dataflow == "weight_stationary":
        assert not engine.swap_operands
        return float(count * folds(k, n) * max(m, engine.rows))
    return float(count * m * n * k / (engine.rows * engine.columns))


def reading(target: Target, size: float, run: float) -> float:
    """Seconds of a cluster's DMA, in words: data, rows to open, channels that idle."""
    peak, timing = target.ddr.bandwidth * target.ddr.efficiency, target.dram
    own = size / (target.dma.channels * target.dma.bandwidth)
    if timing is None or run == 0:
        return float(max(target.clusters * size / peak, own))
    bursts = math.ceil(run / timing.burst)
    span = min(math.ceil(run / timing.interleave), timing.channels)
    side = timing.groups if timing.group_interleave else 1
    rows = max(min(bursts, side * span), math.ceil(run / timing.page))
    apart = max(timing.four_activates / 4, timing.row_cycle / timing.banks)
    opening = rows * apart / target.ddr.efficiency / timing.channels
    assert timing.group_interleave or timing.group_gap == 1.0
    runs = max(timing.channels * timing.queue / run, 1.0)
    used = runs / (runs + timing.channels / span - 1)
    once = max(bursts * timing.burst / peak, opening) / used
    return float(max(target.clusters * size / run * once, own))


def turning(target: Target, read: float, written: float) -> float:
    """Seconds that the bus loses by turning around, all clusters together."""
    if target.dram is None:
        return 0.0
    batches = min(read, written) * target.clusters / target.dram.write_batch
    return batches / target.dram.channels * target.dram.turnaround


def duration(target: Target, engine: str, amount: np.ndarray) -> tuple[float, float]:
    """Seconds on the engine and latency."""
    if engine in ("dma_in", "dma_out"):
        link = amount[Amount.CORE] / target.transfer.bandwidth
        seconds = max(reading(target, amount[Amount.DDR], amount[Amount.RUN]), link)
        return seconds, target.dma.latency + target.ddr.latency
    if engine == "transfer":
        own, latency = amount[Amount.CORE] / target.transfer.bandwidth, target.transfer.latency
        if amount[Amount.GB] > 0:
            return max(own, amount[Amount.GB] / target.gb.bandwidth), latency + target.gb.latency
        return own, latency
    local = amount[Amount.LOCAL] / target.lb.bandwidth
    if engine == "matrix":
        rate = dict(target.matrix.rate)["float16"]
        steps = cycles(target, amount) / rate + target.matrix.startup_cycles
    else:
        lanes = target.vector.elements_per_cycle("float16")
        steps = amount[Amount.VECTOR] / lanes + amount[Amount.SPECIAL] / target.vector.special_lanes
        steps += target.vector.startup_cycles
    return max(steps / target.clock, local), 0.0


def plain(program: Instructions, target: Target) -> Run:
    """In-order engines: start when the engine is free and all that is awaited is complete."""
    free, complete = dict.fromkeys(ENGINES, 0.0), dict.fromkeys(ENGINES, 0.0)
    run = Run([], [], [])
    for row, amount in zip(program.where, program.amounts, strict=True):
        engine = ENGINES[row[Column.ENGINE]]
        awaited = [run.done[before] for before in row[Column.AFTER :] if before >= 0]
        start = max([free[engine], *awaited])
        length, latency = duration(target, engine, amount)
        free[engine] = start + length
        complete[engine] = max(complete[engine], start + length + latency)
        run.begin.append(start)
        run.end.append(start + length)
        run.done.append(complete[engine])
    return run


def check(program: Instructions, target: Target) -> None:
    """Compare with the plain run, and check the laws."""
    run, found = plain(program, target), run_kernel(program, rates_of(target, "float16"))
    intervals: list[list[tuple[float, float]]] = [[] for _ in ENGINES]
    for row, begin, end in zip(program.where, run.begin, run.end, strict=True):
        intervals[row[Column.ENGINE]].append((begin, end))
    for own in intervals:
        assert all(a[1] <= b[0] for a, b in itertools.pairwise(own)), "an engine does one at a time"
    for row, begin in zip(program.where, run.begin, strict=True):
        awaited = [run.done[before] for before in row[Column.AFTER :] if before >= 0]
        assert begin >= max(awaited, default=0.0), "nothing starts before what it waits for"
    assert found.seconds >= longest_chain(program, target) * (1 - 1e-12)
    busy = [sum(end - begin for begin, end in own) for own in intervals]
    assert found.busy == pytest.approx(busy)
    shared = [meeting(intervals[a], intervals[b]) for a, b in PAIRS]
    assert found.overlap == pytest.approx(shared)
    ddr = program.amounts[:, Amount.DDR].sum()
    gb = program.amounts[:, Amount.GB].sum()
    assert (found.ddr_bytes, found.gb_bytes) == pytest.approx((ddr, gb))
    engine, moved = program.where[:, Column.ENGINE], program.amounts[:, Amount.DDR]
    read, written = moved[engine == DMA_IN].sum(), moved[engine == DMA_OUT].sum()
    bus = busy[DMA_IN] + busy[DMA_OUT] + turning(target, read, written)
    memory = max(bus, gb / target.gb.bandwidth if gb else 0.0)
    assert found.seconds == pytest.approx(max(*run.done, memory))
    laws(found.busy, found.overlap, found.seconds)
    counters(found.totals, program, intervals, target)


def longest_chain(program: Instructions, target: Target) -> float:
    """Seconds that instructions take that wait for each other, whatever engines there are."""
    ends: list[float] = []
    for row, amount in zip(program.where, program.amounts, strict=True):
        before = max((ends[index] for index in row[Column.AFTER :] if index >= 0), default=0.0)
        ends.append(before + sum(duration(target, ENGINES[row[Column.ENGINE]], amount)))
    return max(ends)


def counters(
    totals: np.ndarray,
    program: Instructions,
    intervals: list[list[tuple[float, float]]],
    target: Target,
) -> None:
    """Waits, instructions and bytes, each added up the plain way."""
    engine, amounts = program.where[:, Column.ENGINE], program.amounts

    def total(name: str) -> float:
        return float(totals[Quantity[name]])

    for code, own in enumerate(intervals):
        idle = sum(after[0] - before[1] for before, after in itertools.pairwise(own))
        assert totals[Quantity.WAIT_DMA_IN + code] == pytest.approx(idle, abs=1e-12)
        assert totals[Quantity.ISSUED_DMA_IN + code] == len(own)
    three = [
        (max(a[0], b[0]), min(a[1], b[1]))
        for a in intervals[MATRIX_ENGINE]
        for b in intervals[VECTOR_ENGINE]
        if min(a[1], b[1]) > max(a[0], b[0])
    ]
    assert total("OVERLAP_TRANSFER_MATRIX_VECTOR") == pytest.approx(
        meeting(three, intervals[TRANSFER]), abs=1e-15
    )
    assert total("DDR_READ") == pytest.approx(amounts[engine == DMA_IN, Amount.DDR].sum())
    assert total("DDR_WRITTEN") == pytest.approx(amounts[engine == DMA_OUT, Amount.DDR].sum())
    assert total("GB_WRITTEN") == pytest.approx(amounts[:, Amount.GB_WRITTEN].sum())
    local = amounts[:, Amount.LOCAL].sum() + amounts[:, Amount.CORE].sum()
    assert total("LB") == pytest.approx(target.cores * local)
    exchanged = amounts[:, Amount.EXCHANGED].sum()
    assert total("CORE_TO_CORE") == pytest.approx(target.cores * exchanged)


def laws(busy: tuple[float, ...], overlap: tuple[float, ...], seconds: float) -> None:
    """Busy times and overlaps that any machine obeys."""
    slack = 1 + 1e-9
    assert all(0 <= b <= seconds * slack for b in busy)
    for (a, b), both in zip(PAIRS, overlap, strict=True):
        # differences of clock times carry the clock's rounding, which short instructions feel
        assert 0 <= both <= min(busy[a], busy[b]) * slack + seconds * 1e-12


def meeting(first: list[tuple[float, float]], second: list[tuple[float, float]]) -> float:
    """Common length of two sets of intervals, the slow way."""
    pairs = itertools.product(first, second)
    return sum(max(min(a[1], b[1]) - max(a[0], b[0]), 0.0) for a, b in pairs)


@st.composite
def programs(draw: st.DrawFn) -> Instructions:
    """Any list of instructions that wait for earlier ones."""
    length = draw(st.integers(1, 40))
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    where = np.full((length, INSTRUCTION_COLUMNS), -1, np.int64)
    where[:, Column.ENGINE] = random.integers(0, len(ENGINES), length)
    for index in range(1, length):
        waits = random.integers(0, INSTRUCTION_COLUMNS - Column.AFTER + 1)
        where[index, Column.AFTER : Column.AFTER + waits] = random.integers(-1, index, waits)
    amounts = np.zeros((length, AMOUNT_COLUMNS))
    engines = where[:, Column.ENGINE]
    scale = {"DDR": (0, 4), "GB": (0, 1, 4), "CORE": (0, 1, 4), "LOCAL": (2, 3), "COUNT": (2,)}
    scale |= {"ROWS": (2,), "COLUMNS": (2,), "DEPTH": (2,), "VECTOR": (3,), "SPECIAL": (3,)}
    scale |= {"RUN": (0, 4)}
    for name, used in scale.items():
        values = np.ceil(10 ** random.uniform(0, 4 if name not in {"COUNT", "ROWS"} else 2, length))
        drop = random.random(length) < (0.2 if name in {"GB", "CORE", "VECTOR", "RUN"} else 0.0)
        amounts[:, Amount[name]] = np.where(np.isin(engines, used) & ~drop, values, 0.0)
    amounts[:, Amount.RUN] = np.minimum(amounts[:, Amount.RUN], amounts[:, Amount.DDR])
    for part, whole in ((Amount.GB_WRITTEN, Amount.GB), (Amount.EXCHANGED, Amount.CORE)):
        amounts[:, part] = amounts[:, whole] * random.integers(0, 2, length)
    return Instructions(where, amounts)


@settings(max_examples=50, deadline=None)
@given(
    program=programs(), preset=st.sampled_from([p for p in PRESETS if p not in {"goya", "tpu-v4i"}])
)
def test_random_programs_against_the_plain_simulator(program: Instructions, preset: str) -> None:
    target = target_of(preset)
    if not target.gb.capacity:
        program.amounts[:, [Amount.GB, Amount.GB_WRITTEN]] = 0.0
    check(program, target)


@pytest.mark.parametrize(
    ("workload", "preset"),
    [
        ("squeezenet1_1", "stcp920"),
        pytest.param("llama_decode", "ipu-mk2", marks=pytest.mark.full),
        pytest.param("squeezenet1_1", "ascend-910", marks=pytest.mark.full),
    ],
)
def test_real_kernels_against_the_plain_simulator(workload: str, preset: str) -> None:
    model_scheduler = evaluator(workload, preset)
    schedule = model_scheduler.schedule(Knobs())
    seen = set()
    for step in steps_of(schedule.timeline):
        if signature_of(schedule, step) not in seen:
            seen.add(signature_of(schedule, step))
            found = program_of(schedule, step)
            if len(found.where) < 3000:
                check(found, target_of(preset))
    assert seen


def test_an_empty_kernel_takes_no_time() -> None:
    nothing = Instructions(
        np.zeros((0, INSTRUCTION_COLUMNS), np.int64), np.zeros((0, AMOUNT_COLUMNS))
    )
    assert run_kernel(nothing, rates_of(target_of(), "float16")).seconds == 0
