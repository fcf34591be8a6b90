"""Samples that are not counted by the first dimension: schedules divide them, and are right."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import numpy_helper

from autoturbo.graph.batch import rebatch, trace_batch
from autoturbo.graph.extract import extract
from autoturbo.graph.onnx_import import import_model
from autoturbo.hardware import load_target
from autoturbo.schedule.knobs import Knobs
from autoturbo.schedule.pipeline import ModelScheduler, build_schedule
from autoturbo.simulator.evaluator import Simulator
from autoturbo.simulator.measurement import Measurement
from autoturbo.verifier import verify_schedule

if TYPE_CHECKING:
    from pathlib import Path

    from onnx import ModelProto

TIME, BATCH, HEADS, WIDTH = 6, 4, 2, 16


def transformer(*, time_first: bool, batch: int = BATCH, named: bool = False) -> ModelProto:
    """A layer as it is exported: heads beside samples or, time first, in one dimension with them.

    A cache of keys has its layers in front.
    """
    depth = WIDTH // HEADS
    shape = (TIME, batch, WIDTH) if time_first else (batch, TIME, WIDTH)
    turn, back = ("1,0,2", "1,2,0") if time_first else ("0,2,1,3", "0,2,3,1")
    body = f"""q = MatMul(x, w) k = MatMul(x, u) v = Mul(x, k)
        qr = Reshape(q, split) kr = Reshape(k, split) vr = Reshape(v, split)
        qt = Transpose<perm=[{turn}]>(qr) kt = Transpose<perm=[{back}]>(kr)
        vt = Transpose<perm=[{turn}]>(vr) s = MatMul(qt, kt) p = Softmax<axis=-1>(s)
        o = MatMul(p, vt) ot = Transpose<perm=[{turn}]>(o) om = Reshape(ot, merge)
        a = MatMul(om, w) m = Gather<axis=0>(cache, last) r = Add(a, m)
        y = LayerNormalization<axis=-1>(r, g)"""
    names = {batch: "batch"} if named else {}
    text = ",".join(str(names.get(extent, extent)) for extent in shape)
    head = f"float[3,{text}] cache, float[{text}] x"
    model = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["": 17]> net ({head}) => (float[{text}] y) {{ {body} }}'
    )
    rng = np.random.default_rng(5)
    heads = [TIME, -1, depth] if time_first else [0, TIME, HEADS, depth]
    merged = [TIME, -1, WIDTH] if time_first else [0, TIME, WIDTH]
    stored: dict[str, np.ndarray] = {
        "w": rng.normal(size=(WIDTH, WIDTH)).astype(np.float32),
        "u": rng.normal(size=(WIDTH, WIDTH)).astype(np.float32),
        "g": np.ones(WIDTH, np.float32),
        "last": np.asarray(2, np.int64),
        "split": np.asarray(heads if named else _whole(heads, shape), np.int64),
        "merge": np.asarray(merged if named else shape, np.int64),
    }
    model.graph.initializer.extend(numpy_helper.from_array(a, n) for n, a in stored.items())
    return model


def _whole(dims: list[int], shape: tuple[int, ...]) -> list[int]:
    """Target extents with nothing left to infer."""
    dims = [shape[at] if dim == 0 else dim for at, dim in enumerate(dims)]
    rest = math.prod(shape) // abs(math.prod(dims))
    return [rest if dim < 0 else dim for dim in dims]


ALONE = """<ir_version: 8, opset_import: ["": 17]> net (float[6,4,8] x) => (float[6,4,8] y)
  { z = Transpose<perm=[1,0,2]>(x) k = Transpose<perm=[0,2,1]>(z) s = MatMul(z, k)
    p = Softmax<axis=-1>(s) o = MatMul(p, z) y = Transpose<perm=[1,0,2]>(o) }"""

CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "named": ({"named": True}, {"dims": {"batch": BATCH}}),
    "by its extent": ({}, {}),
    "of another batch": ({"batch": 2}, {"batch": BATCH}),
    "of one sample": ({"batch": 1}, {"batch": BATCH}),
    "stated": ({"batch": TIME}, {"batch": BATCH, "batch_dim": "x:1"}),
}


@pytest.mark.parametrize("case", CASES)
def test_time_first_divides_samples_as_batch_first_does(case: str, tmp_path: Path) -> None:
    made, asked = CASES[case]
    shares, seconds = [], []
    for time_first in (False, True):
        stated = {**asked, "batch_dim": f"x:{int(time_first)}"} if case == "stated" else asked
        path = tmp_path / f"{time_first}.onnx"
        onnx.save(transformer(time_first=time_first, **made), path)
        graph = import_model(path, **stated)
        assert (graph.batch, graph.known_batch) == (BATCH, BATCH)
        assert trace_batch(graph).obstacle is None
        schedule = build_schedule(ModelScheduler(graph, load_target("stcp920")), Knobs())
        found = verify_schedule(schedule, path=path, whole=True)
        assert [finding.message for finding in found.findings] == []
        assert found.numbers is not None
        assert found.numbers.skipped is None
        (outcome,) = Simulator().measure([schedule])
        assert isinstance(outcome, Measurement)
        shares.append((schedule.share, schedule.share.copies))
        seconds.append(outcome.latency)
    assert shares[0] == shares[1]
    assert shares[0][1] == BATCH
    assert seconds[1] < 1.05 * seconds[0]


def test_samples_are_the_outermost_loop_wherever_they_stand(tmp_path: Path) -> None:
    """One cluster with all samples splits the same loops."""
    seconds = []
    for time_first in (False, True):
        path = tmp_path / f"{time_first}.onnx"
        onnx.save(transformer(time_first=time_first, batch=8, named=True), path)
        graph = import_model(path, dims={"batch": 8})
        scheduler = ModelScheduler(graph, load_target("goya"))
        order, (x, at) = scheduler.context(8).loop_order, list(graph.samples.items())[1]
        assert order[x] == ((1, 0, 2) if time_first else (0, 1, 2))
        assert at == int(time_first)
        (outcome,) = Simulator().measure([build_schedule(scheduler, Knobs())])
        assert isinstance(outcome, Measurement)
        seconds.append(outcome.latency)
    assert seconds[1] < 1.05 * seconds[0]


def test_one_sample_is_asked_for_behind_a_sequence(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(transformer(time_first=True), path)
    graph = import_model(path, batch=1)
    assert [graph.tensors[t].shape for t in graph.inputs] == [(3, TIME, 1, WIDTH), (TIME, 1, WIDTH)]
    turned = onnx.parser.parse_model(ALONE)
    onnx.save(turned, path)
    graph = import_model(path, batch=1)
    assert (graph.tensors[graph.inputs[0]].shape, graph.samples) == ((6, 1, 8), {0: 1})


@given(
    order=st.permutations(range(3)),
    batch=st.integers(2, 5),
    extents=st.tuples(st.integers(2, 5), st.integers(2, 5)),
    mixed=st.booleans(),
    named=st.booleans(),
)
@settings(
    deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25
)
def test_samples_are_followed_wherever_they_stand(
    order: list[int], batch: int, extents: tuple[int, int], mixed: bool, named: bool, tmp_path: Path
) -> None:
    shape = (batch, *extents)
    there = [str(shape[dim]) for dim in order]
    at = order.index(0)
    if named:
        there[at] = "batch"
    back = ",".join(str(order.index(dim)) for dim in range(3))
    rows = "t = Transpose<perm=[0,2,1]>(a) c = MatMul(a, t)" if mixed else "c = Neg(a)"
    ahead = ",".join(map(str, order))
    body = f"a = Transpose<perm=[{back}]>(x) {rows} y = Transpose<perm=[{ahead}]>(c)"
    text = f"net (float[{','.join(there)}] x) => (float[p,q,r] y) {{ {body} }}"
    path = tmp_path / "turned.onnx"
    onnx.save(onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> {text}'), path)
    stated: dict[str, Any] = {"dims": {"batch": batch}} if named else {"batch_dim": f"x:{at}"}
    graph = import_model(path, **stated)
    assert (graph.batch, graph.samples) == (batch, {graph.inputs[0]: at})
    trace = trace_batch(graph)
    assert trace.obstacle is None
    assert trace.tensors[graph.outputs[0]] == (at, 1)
    again = {**stated, "dims": {"batch": 1}} if named else {**stated, "batch": 1}
    assert rebatch(graph, 1, trace).hash == import_model(path, **again).hash


def test_a_part_of_a_model_has_its_samples_where_the_model_has_them(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(transformer(time_first=True, named=True), path)
    graph = import_model(path, dims={"batch": BATCH})
    last = len(graph.operators) - 1
    part = extract(graph, [last])
    assert part.samples == {part.inputs[0]: 1}
    assert trace_batch(part).obstacle is None
