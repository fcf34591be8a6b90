"""Cores share out the hidden units of a recurrence, and pay for every step that they wait for."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from autoturbo.graph.layers import layers_of
from autoturbo.graph.onnx_import import import_model
from autoturbo.graph.operators import Graph
from autoturbo.hardware import Target, load_target
from autoturbo.schedule.codegen.durations import rates_of
from autoturbo.schedule.codegen.instructions import Kernel, instruct
from autoturbo.schedule.codegen.tiling import InstructionRules, Tiling, TilingRules, weight_passes
from autoturbo.schedule.knobs import Knobs, SubGraphKnobs
from autoturbo.schedule.place.instances import part_shape
from autoturbo.schedule.place.recurrence import Recurrence
from autoturbo.schedule.schedule import Schedule
from autoturbo.schedule.stitch.stages import STAGE_COLUMNS, Stage
from autoturbo.schedule.stitch.templates import Template, local_edges, stitch
from autoturbo.simulator.bound import least_steps_seconds, lower_bound
from autoturbo.simulator.estimate import Estimate
from autoturbo.simulator.evaluator import Evaluator
from autoturbo.simulator.kernels import run_kernel
from autoturbo.simulator.measurement import Measurement
from autoturbo.simulator.sequence import simulate
from autoturbo.verifier import verify_schedule
from tests.simulator.simulate_samples import estimated

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
FULL = pytest.mark.full
KINDS = pytest.mark.parametrize(
    "kind", ["LSTM", *(pytest.param(kind, marks=FULL) for kind in ("GRU", "RNN"))]
)


def kinds_on(*others: str) -> pytest.MarkDecorator:
    """Each kind on another target; one in the fast tier."""
    more = zip(("GRU", "RNN"), others, strict=True)
    cases = [("LSTM", "stcp920"), *(pytest.param(*case, marks=FULL) for case in more)]
    return pytest.mark.parametrize(("kind", "target"), cases)


def file_of(
    folder: Path, kind: str, steps: int, samples: int, hidden: int, directions: int = 1,
    *, series: bool = True,
) -> Path:  # fmt: skip
    """A recurrent cell as wide as its input, with what follows it in an export of PyTorch."""
    rng, gates = np.random.default_rng(0), GATES[kind]
    shapes = {
        "w": (directions, gates * hidden, hidden), "r": (directions, gates * hidden, hidden),
        "b": (directions, 2 * gates * hidden),
    }  # fmt: skip
    stored = [
        numpy_helper.from_array(rng.normal(0, 0.05, shape).astype(np.float32), name)
        for name, shape in shapes.items()
    ]
    last = (directions, samples, hidden)
    whole = (steps, directions, samples, hidden)
    names, shape = (["s", "y"], whole) if series else (["", "l"], last)
    direction = "bidirectional" if directions == 2 else "forward"
    nodes = [
        helper.make_node(kind, ["x", "w", "r", "b"], names, name="cell", hidden_size=hidden,
                         direction=direction),
        helper.make_node("Relu", [names[0] or names[1]], ["z"], name="after"),
    ]  # fmt: skip
    graph = helper.make_graph(
        nodes, "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (steps, samples, hidden))],
        [helper.make_tensor_value_info("z", TensorProto.FLOAT, shape)], stored,
    )  # fmt: skip
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=8), folder / "net.onnx")
    return folder / "net.onnx"


def measured(graph: Graph, target: Target, knobs: Knobs | None = None) -> Measurement:
    found = Evaluator(graph, target, target.default_dtype).evaluate(knobs or Knobs())
    assert isinstance(found, Measurement)
    return found


def template_of(schedule: Schedule) -> Template:
    """Of the kernel that the cell is in."""
    context, graph = schedule.context, schedule.instances
    at = next(
        i for i in range(graph.count)
        if context.layers[graph.subgraphs[int(graph.subgraph[i])].layers[0]].name == "cell"
    )  # fmt: skip
    layers = graph.subgraphs[int(graph.subgraph[at])].layers
    shape = part_shape(graph.book, int(graph.shape[at]))
    return stitch(context, layers, shape, schedule.placement.bindings[at])


def on(target: Target, cores: int) -> Target:
    return dataclasses.replace(target, cores=cores)


@kinds_on("ascend-910", "ipu-mk2")
def test_a_long_recurrence_is_near_its_bound(tmp_path: Path, kind: str, target: str) -> None:
    """What is left is the first load of weights, inputs and outputs, and the launch."""
    graph = import_model(file_of(tmp_path, kind, 200, 1, 512))
    machine = load_target(target)
    found = measured(graph, machine)
    rest = found.bound.ddr_s * machine.clusters + found.bound.steps_s
    assert found.bound.seconds <= found.latency < 1.5 * rest + 20e-6


@KINDS
def test_hidden_units_are_shared_out_over_cores(tmp_path: Path, kind: str) -> None:
    graph, target = import_model(file_of(tmp_path, kind, 100, 1, 512)), load_target("stcp920")
    evaluator = Evaluator(graph, target, "float16")
    schedule = evaluator.schedule(Knobs())
    assert template_of(schedule).bindings[0] == (1, 1, 1, 8)
    alone = measured(graph, on(target, 1))
    assert measured(graph, target).latency < alone.latency / 3


def test_every_step_waits_for_the_barrier_and_the_way_between_cores(tmp_path: Path) -> None:
    graph, target = import_model(file_of(tmp_path, "LSTM", 100, 1, 256)), load_target("stcp920")
    slower = dataclasses.replace(
        target, overheads=dataclasses.replace(target.overheads, barrier=5e-6),
        transfer=dataclasses.replace(target.transfer, latency=2e-6),
    )  # fmt: skip
    before, after = measured(graph, target), measured(graph, slower)
    added = 100 * (5e-6 - target.overheads.barrier + 2e-6 - target.transfer.latency)
    assert after.latency - before.latency > 0.99 * added
    assert after.bound.steps_s > before.bound.steps_s


@pytest.mark.full
def test_one_core_waits_for_no_other(tmp_path: Path) -> None:
    graph, target = import_model(file_of(tmp_path, "GRU", 50, 1, 64)), load_target("stcp920")
    alone = on(target, 1)
    slower = dataclasses.replace(
        alone, overheads=dataclasses.replace(target.overheads, barrier=1e-3)
    )
    kernels = measured(graph, alone).kernels
    assert measured(graph, slower).latency - measured(graph, alone).latency < 3e-3 * kernels


@pytest.mark.full
def test_small_cells_of_many_samples_share_out_samples(tmp_path: Path) -> None:
    """No core waits for another, and each has room for all weights; a cluster has 8 samples."""
    target = load_target("stcp920")
    small = import_model(file_of(tmp_path, "LSTM", 20, 32, 64))
    large = import_model(file_of(tmp_path, "LSTM", 20, 8, 512))
    schedules = [Evaluator(g, target, "float16").schedule(Knobs()) for g in (small, large)]
    bindings = [template_of(schedule).bindings[0] for schedule in schedules]
    assert bindings == [(1, 1, 8, 1), (1, 1, 1, 8)]


@pytest.mark.parametrize(("samples", "hidden"), [(8, 64), pytest.param(1, 512, marks=FULL)])
def test_the_order_taken_is_the_faster_one(tmp_path: Path, samples: int, hidden: int) -> None:
    """Of spreading from every loop that can be spread; what follows the cell takes a per cent."""
    graph = import_model(file_of(tmp_path, "LSTM", 50, samples, hidden))
    target = load_target("stcp920")
    own = measured(graph, target).latency
    for depth in range(4):
        forced = Knobs(overrides=(SubGraphKnobs(layer="cell", core_parallel_dim=depth),))
        assert own <= measured(graph, target, forced).latency * 1.01


@pytest.mark.full
def test_weights_that_find_no_room_are_loaded_at_every_step(tmp_path: Path) -> None:
    """Of 2,048 units the weights are 32 MiB, and LB and GB have 8 MiB each; of 512 they fit."""
    target = load_target("stcp920")
    fits = measured(import_model(file_of(tmp_path, "LSTM", 40, 1, 512)), target)
    not_ = measured(import_model(file_of(tmp_path, "LSTM", 40, 1, 2048)), target)
    state = 4 * 2048 * 2048 * 2
    assert not_.bytes["ddr_read"] > 39 * state
    assert fits.bytes["ddr_read"] < 3 * 4 * 512 * 1024 * 2


def test_passes_of_weights_by_room() -> None:
    """All stays; what meets the state stays; nothing does; in the global buffer."""
    rules = InstructionRules(
        1, 1, across=True, weight_room=100, staging=10, tile_bytes=10, cores=4, has_gb=False,
        broadcast=True, native_rows=8, native_columns=8, gb_staging=0, ddr_cost=1, least_depth=8,
        link_cost=4, serial=False, rereads=False, alike=1, packed=False, spare=0, gb_spare=0,
        by_cost=False,
    )  # fmt: skip
    row, tiles = np.zeros(STAGE_COLUMNS), np.ones(len(Tiling), np.int64)
    row[Stage.SEQUENCE], row[Stage.CORE_WEIGHTS], row[Stage.STEP_WEIGHTS] = 50, 150, 60
    row[Stage.WEIGHTS], tiles[Tiling.PRODUCTS] = 4 * 150, 5

    def passes(own: InstructionRules) -> float:
        return float(weight_passes(row, tiles, own)[0])

    assert passes(rules._replace(weight_room=150)) == 1
    assert passes(rules) == pytest.approx((60 + 5 * 90) / 150)
    assert passes(rules._replace(weight_room=50)) == pytest.approx((60 * 50 + 5 * 90) / 150)
    beside = rules._replace(has_gb=True, gb_staging=4 * 90 + 20)
    assert passes(beside) == 1
    row[Stage.SEQUENCE] = 0
    assert passes(rules) == 1


@pytest.mark.full
@KINDS
def test_a_part_of_the_samples_takes_all_steps(tmp_path: Path, kind: str) -> None:
    """So that parts of them one after another are no way to make it fit."""
    graph = import_model(file_of(tmp_path, kind, 64, 64, 512))
    schedule = Evaluator(graph, load_target("stcp920"), "float16").schedule(Knobs())
    context = schedule.context
    cell = next(
        s for s in schedule.instances.subgraphs if context.layers[s.layers[0]].name == "cell"
    )
    assert cell.split.instances == 1


def test_it_is_a_layer_of_its_own(tmp_path: Path) -> None:
    graph = import_model(file_of(tmp_path, "LSTM", 5, 1, 8))
    assert [layer.name for layer in layers_of(graph)] == ["cell", "after"]


@pytest.mark.full
@KINDS
def test_the_bound_without_the_series(tmp_path: Path, kind: str) -> None:
    """Steps are gone through whether all states are kept or the last."""
    target = load_target("mlu100")
    kept = lower_bound(import_model(file_of(tmp_path, kind, 30, 2, 64)), target, "float16")
    last = lower_bound(
        import_model(file_of(tmp_path, kind, 30, 2, 64, series=False)), target, "float16"
    )
    assert last.steps_s == pytest.approx(kept.steps_s)
    assert last.steps_s > 0


@pytest.mark.parametrize(
    ("kind", "samples", "hidden", "directions", "target"),
    [
        ("LSTM", 1, 96, 1, "stcp920"),
        ("GRU", 3, 64, 2, "goya"),
        *(
            pytest.param(*case, marks=FULL)
            for case in (
                ("LSTM", 16, 48, 2, "ipu-mk2"), ("GRU", 1, 96, 1, "ipu-mk2"),
                ("RNN", 16, 48, 2, "goya"), ("RNN", 3, 64, 2, "stcp920"),
            )
        ),
    ],
)  # fmt: skip
def test_no_binding_beats_the_bound(
    tmp_path: Path, kind: str, samples: int, hidden: int, directions: int, target: str
) -> None:
    graph = import_model(file_of(tmp_path, kind, 20, samples, hidden, directions))
    machine = load_target(target)
    for depth in range(4):
        knobs = Knobs(overrides=(SubGraphKnobs(layer="cell", core_parallel_dim=depth),))
        found = measured(graph, machine, knobs)  # would fail loudly
        assert found.latency >= found.bound.steps_s > 0


@pytest.mark.full
def test_fewer_units_a_core_take_less_time_but_an_exchange(tmp_path: Path) -> None:
    operator = import_model(file_of(tmp_path, "LSTM", 20, 1, 512)).operators[0]
    target = load_target("stcp920")
    recurrence = Recurrence(operator, target, "float16")
    alone, eighth = recurrence.step_seconds(1, 1, 512), recurrence.step_seconds(1, 1, 64)
    exchange = target.transfer.latency + target.overheads.barrier
    assert alone / 8 < eighth < alone / 8 + 2 * exchange
    assert least_steps_seconds(recurrence) == pytest.approx(20 * eighth)


@kinds_on("ipu-mk2", "mlu100")
def test_the_estimate_is_near_the_simulation(tmp_path: Path, kind: str, target: str) -> None:
    graph, machine = import_model(file_of(tmp_path, kind, 100, 4, 256)), load_target(target)
    schedule = Evaluator(graph, machine, machine.default_dtype).schedule(Knobs())
    template = template_of(schedule)
    layers = template.layers
    streams, rates = np.zeros((len(layers), 8), np.int64), rates_of(machine, machine.default_dtype)
    edges = local_edges(schedule.context, layers)
    program = next(instruct([Kernel(template.stages, streams, edges, schedule.rules, 0)]))
    exact = run_kernel(program, rates).seconds
    quick = estimated(template.stages, streams, schedule.rules, 0, rates)
    assert quick[Estimate.SECONDS] == pytest.approx(exact, rel=0.15)


@pytest.mark.parametrize(
    ("kind", "directions"),
    [("LSTM", 2), pytest.param("GRU", 1, marks=FULL), pytest.param("RNN", 2, marks=FULL)],
)
def test_the_schedule_computes_the_model(tmp_path: Path, kind: str, directions: int) -> None:
    graph = import_model(file_of(tmp_path, kind, 6, 4, 16, directions))
    for target in ("stcp920", "ipu-mk2"):
        machine = load_target(target)
        schedule = Evaluator(graph, machine, machine.default_dtype).schedule(Knobs())
        found = verify_schedule(schedule)
        assert found.ok, found
        assert simulate(schedule).latency > 0


def test_weights_that_meet_the_state_stay_where_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 6.8 MB of weights, 0.42 MB a core meet the state at each of 35 steps: LB is free."""
    graph = import_model(file_of(tmp_path, "LSTM", 35, 32, 650))
    model_scheduler = Evaluator(graph, load_target("stcp920"), "float16")
    schedule = model_scheduler.schedule(Knobs())
    kept = model_scheduler.measure(schedule)
    assert verify_schedule(schedule).memory == ()
    monkeypatch.setattr(TilingRules, "with_spare", staticmethod(lambda rules, _: rules))
    streamed = Evaluator(graph, load_target("stcp920"), "float16").evaluate(Knobs())
    assert isinstance(kept, Measurement)
    assert isinstance(streamed, Measurement)
    assert kept.ddr_bytes < 0.25 * streamed.ddr_bytes
    assert kept.latency < 0.7 * streamed.latency


def test_room_for_weights_that_buffers_take_is_told(tmp_path: Path) -> None:
    graph = import_model(file_of(tmp_path, "LSTM", 4, 8, 128))
    schedule = Evaluator(graph, load_target("stcp920"), "float16").schedule(Knobs())
    (timeline, *_) = schedule.timelines
    assert timeline.spare.any()
    everything = np.full_like(timeline.spare, schedule.context.target.lb.capacity)
    vars(timeline)["spare"] = everything * (timeline.spare > 0)
    found = verify_schedule(schedule).memory
    assert any("where weights of a recurrence stay" in finding.message for finding in found)
