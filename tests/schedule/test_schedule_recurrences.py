"""Kernels that hold a recurrence beside convolutions or products: every schedule passes the checks.

The recurrence's weights may stay in memory that the kernel has to spare; the tiles of the other
layers may not take it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from autoturbo.graph.onnx_import import import_model
from autoturbo.hardware import load_target, preset_names
from autoturbo.schedule.knobs import Knobs
from autoturbo.schedule.pipeline import ModelScheduler, build_schedule
from autoturbo.simulator.sequence import simulate
from autoturbo.verifier import verify_schedule

if TYPE_CHECKING:
    from pathlib import Path

    from autoturbo.graph.operators import Graph

GATES = {"LSTM": 4, "GRU": 3}

STEPS, SAMPLES = 6, 2

KINDS = st.sampled_from(("Conv", "MatMul"))


def network(
    folder: Path, front: tuple[str, ...], widths: tuple[int, ...], cell: str, hidden: int
) -> Graph:
    """Layers over ``[samples, channels, steps]``, and a recurrence over what they make."""
    rng, nodes, stored, data = np.random.default_rng(0), [], [], "x"

    def keep(name: str, *shape: int) -> str:
        values = rng.normal(0, 0.1, shape).astype(np.float32)
        stored.append(numpy_helper.from_array(values, name))
        return name

    for place, kind in enumerate(front):
        shape = (widths[place + 1], widths[place])
        if kind == "Conv":
            made = helper.make_node(kind, [data, keep(f"w{place}", *shape, 3)], [f"y{place}"])
            made.attribute.append(helper.make_attribute("pads", [1, 1]))
        else:
            made = helper.make_node(kind, [keep(f"w{place}", *shape), data], [f"y{place}"])
        data = f"y{place}"
        nodes.append(made)
    gates = GATES[cell] * hidden
    nodes += [
        helper.make_node("Transpose", [data], ["t"], name="turned", perm=[2, 0, 1]),
        helper.make_node(
            cell, ["t", keep("w", 1, gates, widths[-1]), keep("r", 1, gates, hidden)],
            ["y"], name="cell", hidden_size=hidden,
        ),
    ]  # fmt: skip
    graph = helper.make_graph(
        nodes, "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (SAMPLES, widths[0], STEPS))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (STEPS, 1, SAMPLES, hidden))],
        stored,
    )  # fmt: skip
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=8), folder / "net.onnx")
    return import_model(folder / "net.onnx")


@st.composite
def fronts(draw: st.DrawFn) -> tuple[tuple[str, ...], tuple[int, ...]]:
    kinds = tuple(draw(st.lists(KINDS, min_size=1, max_size=3)))
    width = st.sampled_from((16, 129, 256, 520, 1024))
    return kinds, tuple(draw(width) for _ in range(len(kinds) + 1))


def check(graph: Graph, target: str, knobs: Knobs) -> None:
    machine = load_target(target)
    schedule = build_schedule(ModelScheduler(graph, machine, machine.default_dtype), knobs)
    found = verify_schedule(schedule)
    assert found.ok, found.findings
    assert simulate(schedule).latency > 0


@pytest.mark.parametrize("target", preset_names())
@settings(max_examples=6, deadline=None, suppress_health_check=[*HealthCheck])
@given(
    front=fronts(), cell=st.sampled_from(tuple(GATES)), hidden=st.sampled_from((16, 128, 384)),
    depth=st.sampled_from((1, 2, 4)),
)  # fmt: skip
@example(front=(("Conv", "Conv"), (1, 258, 520)), cell="LSTM", hidden=128, depth=1)
@example(front=(("MatMul",), (520, 1024)), cell="GRU", hidden=384, depth=4)
def test_layers_beside_a_recurrence_pass_the_checks(
    target: str, front: tuple[tuple[str, ...], tuple[int, ...]], cell: str, hidden: int,
    depth: int, tmp_path_factory: pytest.TempPathFactory,
) -> None:  # fmt: skip
    graph = network(tmp_path_factory.mktemp("net"), *front, cell, hidden)
    check(graph, target, Knobs(prefetch_depth=depth))
