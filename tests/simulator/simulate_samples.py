"""Kernels written by hand, and evaluators that tests share."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import numpy as np
from hypothesis import strategies as st

from autoturbo.datasets import workloads
from autoturbo.graph.arrays import Ints
from autoturbo.graph.onnx_import import import_model
from autoturbo.hardware import Target, load_target
from autoturbo.schedule.codegen.durations import rates_of
from autoturbo.schedule.codegen.instructions import Instructions, Kernel, instruct
from autoturbo.schedule.codegen.tiling import InstructionRules
from autoturbo.schedule.context import Zones
from autoturbo.schedule.knobs import Knobs, model_knobs
from autoturbo.schedule.schedule import Schedule
from autoturbo.schedule.stitch.stages import STAGE_COLUMNS, Stage
from autoturbo.schedule.streams import STREAM_COLUMNS
from autoturbo.schedule.work import Floats
from autoturbo.simulator.estimate import estimates
from autoturbo.simulator.evaluator import Evaluator
from autoturbo.simulator.kernels import KernelTime, run_kernel

PRESETS = ("stcp920", "ascend-910", "goya", "ipu-mk2", "mlu100", "tpu-v4i")

SMALL = (
    "squeezenet1_1",
    "resnet18",
    "dlrm",
    "mobilenet_v2",
    "shufflenet_v2",
    "llama_decode",
    "bert_base_s128",
)


@functools.cache
def target_of(name: str = "stcp920") -> Target:
    return load_target(name)


@functools.cache
def evaluator(workload: str, preset: str = "stcp920", dtype: str = "float16") -> Evaluator:
    graph = import_model(workloads.get(workload).file)
    return Evaluator(graph, target_of(preset), dtype)


def stage(**values: float) -> list[float]:
    """A row of a template's table, zero but for what is named (``macs`` follows)."""
    row = [0.0] * STAGE_COLUMNS
    row[Stage.STEPS] = 1.0
    for name, value in values.items():
        row[Stage[name.upper()]] = value
    if values.get("depth") and "macs" not in values:
        row[Stage.COUNT] = values.get("count", 1.0)
        row[Stage.MACS] = row[Stage.COUNT] * values["rows"] * values["columns"] * values["depth"]
    if values.get("weights") and "core_weights" not in values:
        row[Stage.CORE_WEIGHTS] = values["weights"]
    return row


def table(*rows: list[float]) -> Floats:
    return np.asarray(rows, np.float64)


def streams(layers: int, **columns: tuple[int, int]) -> Ints:
    """A stream table: ``IN_DDR=(layer, bytes)`` and the like."""
    names = ("IN_GB", "IN_DDR", "OUT_GB", "OUT_DDR", "LATE_GB", "LATE_DDR")
    found = np.zeros((layers, STREAM_COLUMNS), np.int64)
    for name, (layer, size) in columns.items():
        found[layer, names.index(name)] = size
    return found


def rules_of(target: Target, **changes: Any) -> InstructionRules:
    zones = Zones.of(target)
    rules = InstructionRules(
        ahead=1, divisor=1, across=True,
        weight_room=max(target.lb.weight_capacity, zones.lb_staging), staging=zones.lb_staging,
        tile_bytes=target.lb.capacity // 16, cores=target.cores, has_gb=target.gb.capacity > 0,
        broadcast=target.transfer.broadcast, native_rows=target.matrix.rows,
        native_columns=target.matrix.columns, gb_staging=zones.gb_staging, ddr_cost=1,
        least_depth=target.matrix.rows, link_cost=target.cores,
        serial=False, rereads=False, alike=1, packed=False, spare=0, gb_spare=0, by_cost=False,
    )  # fmt: skip
    return rules._replace(**changes)


def chain(layers: int) -> list[tuple[int, ...]]:
    return [(layer - 1,) if layer else () for layer in range(layers)]


def program(
    stages: Floats,
    moved: Ints,
    edges: list[tuple[int, ...]],
    rules: InstructionRules,
    *,
    resident: bool = False,
) -> Instructions:
    return next(instruct([Kernel(stages, moved, edges, rules, resident)]))


def timed(
    rows: Floats, moved: Ints | None = None, target: Target | None = None, **changes: Any
) -> KernelTime:
    """Run a chain of layers on the first preset."""
    target = target or target_of()
    resident = changes.pop("resident", False)
    moved = streams(len(rows)) if moved is None else moved
    found = program(rows, moved, chain(len(rows)), rules_of(target, **changes), resident=resident)
    return run_kernel(found, rates_of(target, "float16"))


def estimated(
    rows: Floats, moved: Ints, rules: InstructionRules, resident: int, rates: Floats
) -> Floats:
    """The closed form of one kernel."""
    ends, kept = np.asarray([0, len(rows)]), np.asarray([resident])
    found: Floats = estimates(ends, rows, moved, np.asarray([rules]), kept, rates)[0]
    return found


def with_target(schedule: Schedule, target: Target) -> Schedule:
    """The same program on another target: nothing is decided anew."""
    context = dataclasses.replace(schedule.context, target=target, chip=target)
    return dataclasses.replace(schedule, context=context)


def changed(target: Target, path: str, value: Any) -> Target:
    """The target with one figure changed, ``"ddr.bandwidth"``."""
    owner, _, name = path.rpartition(".")
    if not owner:
        return dataclasses.replace(target, **{name: value})
    part = dataclasses.replace(getattr(target, owner), **{name: value})
    return dataclasses.replace(target, **{owner: part})


def one_core(kib: float, share: float = 0.25, gb: int = 0) -> Target:
    """One core with so much memory, a part of it for weights."""
    target = changed(changed(target_of(), "cores", 1), "clusters", 1)
    target = changed(target, "gb.capacity", gb)
    weights = int(kib * 1024 * share)
    target = changed(target, "lb.weight_capacity", weights)
    return changed(target, "lb.capacity", int(kib * 1024) - weights)


@st.composite
def settings_of_knobs(draw: st.DrawFn) -> Knobs:
    """A few knobs away from the published heuristic."""
    specs = {name: spec for name, spec in model_knobs().items() if spec.choices}
    names = draw(st.lists(st.sampled_from(sorted(specs)), max_size=4, unique=True))
    return Knobs.from_dict({name: draw(st.sampled_from(specs[name].choices)) for name in names})
