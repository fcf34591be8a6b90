"""What a kernel's time is spent on: kernels worked out on paper, and what holds for all."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoturbo.baselines.dlfusion_blocks import convolution
from autoturbo.graph.arrays import Ints
from autoturbo.graph.operators import Graph
from autoturbo.hardware import with_field
from autoturbo.hardware.target import Target
from autoturbo.schedule.codegen.durations import rates_of
from autoturbo.schedule.codegen.instructions import (
    ENGINES,
    INSTRUCTION_COLUMNS,
    Column,
    Instructions,
)
from autoturbo.schedule.codegen.tiling import AMOUNT_COLUMNS, Amount
from autoturbo.schedule.knobs import Knobs, fitting
from autoturbo.schedule.pipeline import build_schedule
from autoturbo.schedule.work import Floats
from autoturbo.simulator.breakdown.attribution import LIMITS, Limit, kernel_shares, later
from autoturbo.simulator.breakdown.shares import schedule_shares
from autoturbo.simulator.evaluator import Evaluator
from autoturbo.simulator.kernels import duration, issue
from autoturbo.simulator.sequence import simulate
from tests.schedule.schedule_samples import Net, networks, targets
from tests.simulator.simulate_samples import (
    chain,
    evaluator,
    program,
    rules_of,
    settings_of_knobs,
    stage,
    streams,
    table,
    target_of,
)

CLOCK = 1e9
DDR = 119.4e9 / 4 * 0.9
LB, TRANSFER, GB = 512e9, 64e9, 256e9
LATENCY = 500e-9 + 200e-9, 100e-9 + 100e-9  # of DDR, of GB
WEIGHTS = 32 * 576 * 2
CONVOLUTION = stage(
    rows=56, columns=32, depth=576, vector=56 * 32, weights=WEIGHTS, read=7e3, written=56 * 64
)


def made(
    rows: Floats, moved: Ints | None = None, *, resident: bool = False, **changes: object
) -> Instructions:
    moved = streams(len(rows)) if moved is None else moved
    rules = rules_of(target_of(), **changes)
    return program(rows, moved, chain(len(rows)), rules, resident=resident)


def spent(found: Floats) -> dict[Limit, float]:
    """Seconds by limit, those that are none left out."""
    sums = dict(zip(LIMITS, found.sum(axis=0).tolist(), strict=True))
    return {limit: seconds for limit, seconds in sums.items() if seconds}


def shares(instructions: Instructions, layers: int = 1) -> dict[Limit, float]:
    return spent(kernel_shares(instructions, rates_of(target_of(), "float16"), layers).layers)


def test_a_convolution_worked_out_on_paper() -> None:
    """One tile: nothing overlaps, so every step is on the path."""
    assert shares(made(table(CONVOLUTION))) == pytest.approx(
        {
            Limit.DDR: WEIGHTS / DDR,
            Limit.TRANSFER: WEIGHTS / TRANSFER,
            Limit.LATENCY: sum(LATENCY),
            Limit.MATRIX: (576 + 96) / CLOCK,
            Limit.VECTOR: (56 * 32 / 64 + 16) / CLOCK,
        }
    )


def test_weights_that_wait_in_gb() -> None:
    assert shares(made(table(CONVOLUTION), resident=True)) == pytest.approx(
        {
            Limit.TRANSFER: WEIGHTS / TRANSFER,
            Limit.LATENCY: LATENCY[1],
            Limit.MATRIX: (576 + 96) / CLOCK,
            Limit.VECTOR: (56 * 32 / 64 + 16) / CLOCK,
        }
    )


@pytest.mark.full
def test_weights_that_every_core_reads_for_itself_are_bound_by_gb() -> None:
    row = stage(rows=56, columns=32, depth=576, weights=WEIGHTS, written=56 * 64, cores=8)
    found = shares(made(table(row), broadcast=False))
    assert found[Limit.GB] == pytest.approx(8 * WEIGHTS / GB)
    assert Limit.TRANSFER not in found


@pytest.mark.parametrize(
    "row",
    [
        stage(rows=64, columns=32, depth=10, read=1e6, written=4096),
        stage(vector=64, read=1e6, written=4096, steps=2048),
    ],
    ids=["product", "elementwise"],
)
def test_compute_that_waits_for_its_local_buffer(row: list[float]) -> None:
    assert shares(made(table(row))) == pytest.approx({Limit.LB: (1e6 + 4096) / LB})


@pytest.mark.parametrize(
    ("row", "limit"),
    [
        (stage(rows=64, columns=32, depth=1000, read=1e3, written=4096), Limit.MATRIX),
        (stage(vector=6400, special=320, read=1000, written=1000, steps=500), Limit.VECTOR),
    ],
    ids=["matrix", "vector"],
)
def test_compute_alone_is_owed_to_its_engine(row: list[float], limit: Limit) -> None:
    instructions = made(table(row))
    found = kernel_shares(instructions, rates_of(target_of(), "float16"), 1)
    assert spent(found.layers) == {limit: found.seconds}
    assert found.busiest == found.seconds


@pytest.mark.full
def test_traffic_in_both_directions_owes_everything_to_ddr() -> None:
    """Loads and stores overlap on their engines, but the memory moves one after the other."""
    size = 8 * 1024 * 1024
    row = stage(vector=64, read=size / 8, written=size / 8, steps=size / 16)
    found = kernel_shares(
        made(table(row), streams(1, IN_DDR=(0, size)) + streams(1, OUT_DDR=(0, size))),
        rates_of(target_of(), "float16"), 1,
    )  # fmt: skip
    assert spent(found.layers) == {Limit.DDR: found.seconds}
    assert found.seconds >= 2 * size / DDR


def test_what_completes_with_the_transfer_before_it_takes_none_of_the_time() -> None:
    """The first waits for GB longer than the second, of the link alone, takes to arrive."""
    where = np.full((3, INSTRUCTION_COLUMNS), -1, np.int64)
    where[:, Column.ENGINE] = [ENGINES.index(name) for name in ("transfer", "transfer", "vector")]
    where[:, Column.LAYER] = 0, 1, 2
    where[:, [Column.TILE, Column.ROLE]] = 0
    where[2, Column.AFTER] = 1
    amounts = np.zeros((3, AMOUNT_COLUMNS))
    amounts[0, [Amount.GB, Amount.CORE]] = 64.0
    amounts[1, Amount.CORE] = 64.0
    amounts[2, Amount.VECTOR] = 64.0
    found = kernel_shares(Instructions(where, amounts), rates_of(target_of(), "float16"), 3)
    seconds = found.layers.sum(axis=1)
    assert seconds[1] == 0
    assert seconds[0] == pytest.approx(64 / TRANSFER + LATENCY[1])


@pytest.mark.full
def test_a_kernel_without_instructions_takes_no_time() -> None:
    nothing = Instructions(np.zeros((0, 12), np.int64), np.zeros((0, AMOUNT_COLUMNS)))
    found = kernel_shares(nothing, rates_of(target_of(), "float16"), 2)
    assert (found.seconds, found.layers.sum(), found.slack.tolist()) == (0, 0, [np.inf, np.inf])


def delayed(instructions: Instructions, rates: Floats, late: int, by: float) -> float:
    """When the last instruction completes if one of them begins later than it could."""
    where = instructions.where
    free, completed, done = [0.0] * len(ENGINES), [0.0] * len(ENGINES), np.zeros(len(where))
    for index, row in enumerate(where):
        engine = int(row[Column.ENGINE])
        start = max([free[engine], *(done[n] for n in row[Column.AFTER :] if n >= 0)])
        length, latency = duration(engine, instructions.amounts[index], rates)
        free[engine] = start + length + (by if index == late else 0.0)
        done[index] = completed[engine] = max(free[engine] + latency, completed[engine])
    return float(done.max())


def test_slack_is_what_an_instruction_can_wait_and_no_more() -> None:
    rows = table(CONVOLUTION, CONVOLUTION, stage(vector=6400, read=1e5, written=1e3, steps=500))
    instructions, rates = made(rows), rates_of(target_of(), "float16")
    begin, _, done = issue(instructions, rates)
    deadline = float(done.max())
    slack = later(instructions.where, instructions.amounts, rates, begin, deadline)
    assert (slack > 0).any()
    assert (slack == 0).any()
    for index, wait in enumerate(slack.tolist()):
        assert delayed(instructions, rates, index, wait) == pytest.approx(deadline, rel=1e-12)
        assert delayed(instructions, rates, index, wait + 1e-9) > deadline + 0.5e-9


def holds(graph_evaluator: Evaluator, knobs: Knobs) -> None:
    """Everything that is true of any schedule."""
    schedule = build_schedule(graph_evaluator.model_scheduler, knobs)
    measured, found = simulate(schedule), schedule_shares(schedule)
    assert found.latency == measured.latency
    assert found.shares.total == pytest.approx(measured.latency, rel=1e-9)
    for kernel in found.kernels:
        assert kernel.shares.total == pytest.approx(kernel.seconds, rel=1e-9)
        assert min(kernel.shares.seconds) >= 0
        assert kernel.slack >= 0
        assert kernel.slack <= kernel.seconds
    assert sum(k.critical for k in found.kernels) >= measured.kernels or schedule.cluster
    assert all(layer.slack >= 0 for layer in found.layers)
    assert all(0 <= one.slack <= one.seconds * (1 + 1e-9) for one in found.subgraphs)
    parts = sum(one.seconds for one in found.subgraphs)
    assert parts <= found.latency * (1 + 1e-9)
    assert parts == pytest.approx(found.latency, rel=1e-9) or schedule.cluster
    assert sum(one.seconds for one in found.layers) <= parts * (1 + 1e-9)
    spent_on = found.shares.as_dict()
    if not schedule.cluster:
        # no engine is on the path for longer than it works
        compute = measured.busy["matrix"] + measured.busy["vector"]
        assert spent_on["matrix"] <= measured.busy["matrix"] * (1 + 1e-9)
        assert spent_on["vector"] <= measured.busy["vector"] * (1 + 1e-9)
        assert spent_on["matrix"] + spent_on["vector"] + spent_on["lb"] <= compute * (1 + 1e-9)
        fixed = schedule.context.target.overheads
        launches = measured.kernels * (fixed.kernel_launch + fixed.barrier)
        assert spent_on["launch"] >= launches * (1 - 1e-9)


@pytest.mark.parametrize("workload", ["dlrm", pytest.param("llama_decode", marks=pytest.mark.full)])
@given(knobs=settings_of_knobs())
@settings(max_examples=6)
def test_shares_of_real_networks_add_up(workload: str, knobs: Knobs) -> None:
    holds(evaluator(workload), knobs)


@given(
    graph=networks(6), target=targets(), split=st.sampled_from(("auto", "channel", "pipeline")),
    scope=st.sampled_from(("auto", "DDR")), samples=st.sampled_from(("auto", 1)),
)  # fmt: skip
@settings(max_examples=15)
def test_shares_of_random_networks_add_up(
    graph: Graph, target: Target, split: str, scope: str, samples: int | str
) -> None:
    knobs = Knobs(cluster_partitioning=split, output_scope=scope, batches_per_cluster=samples)
    holds(Evaluator(graph, target, "float16"), fitting(knobs, target))


@pytest.mark.parametrize(
    ("field", "value", "limit"),
    [
        ("engines[matrix].startup_cycles", 900_000, Limit.MATRIX),
        ("engines[vector].startup_cycles", 900_000, Limit.VECTOR),
        ("lb.bandwidth_gb_s", 0.01, Limit.LB),
        ("engines[transfer].bandwidth_gb_s", 0.01, Limit.TRANSFER),
        ("gb.bandwidth_gb_s", 0.01, Limit.GB),
        ("ddr.bandwidth_gb_s", 0.01, Limit.DDR),
        ("engines[dma].latency_ns", 1e8, Limit.LATENCY),
        ("overheads.kernel_launch_us", 1e6, Limit.LAUNCH),
    ],
)
def test_a_small_network_is_bound_by_what_is_made_slow(
    field: str, value: float, limit: Limit
) -> None:
    """A convolution and its activation: each resource in turn is a thousand times slower."""
    net = Net(x=(1, 32, 16, 16))
    net.relu(net.conv("x", 32))
    target = with_field(target_of(), field, value)
    schedule = build_schedule(Evaluator(net.graph(), target, "float16").model_scheduler, Knobs())
    found = schedule_shares(schedule)
    assert found.shares.limit == limit
    assert found.shares.part(limit) > 0.95
    if limit is not Limit.LAUNCH:
        (layer,) = found.layers
        assert layer.shares.limit == limit


def test_launches_and_barriers_are_owed_to_launch() -> None:
    """One kernel on one cluster: a launch and a barrier, once."""
    schedule = build_schedule(
        Evaluator(convolution(16, 8), target_of(), "float16").model_scheduler, Knobs()
    )
    fixed = target_of().overheads
    found = schedule_shares(schedule)
    assert len(found.kernels) == 1
    assert found.shares.as_dict()["launch"] == pytest.approx(fixed.kernel_launch + fixed.barrier)
