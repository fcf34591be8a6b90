"""Schedules of random small graphs of the operator table compute what the graphs do."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import ModelProto, save

from autoturbo.errors import KnobsError
from autoturbo.graph.onnx_import import import_model
from autoturbo.graph.operator_table import supported
from autoturbo.hardware import Target
from autoturbo.schedule.knobs import Knobs
from autoturbo.schedule.pipeline import ModelScheduler, build_schedule
from autoturbo.schedule.schedule import Schedule
from autoturbo.search.space import Space
from autoturbo.verifier import verify_schedule
from autoturbo.verifier.execution import open_session, run, with_outputs
from autoturbo.verifier.random_values import random_inputs, seeded_weights, with_weights
from tests.graph.operator_table.operator_cases import ELEMENTWISE, REDUCTION
from tests.schedule.schedule_samples import settings_of, target
from tests.verifier.operator_graphs import BY_DATA, PLACEABLE, SPECIAL, Placeable, operator_graph
from tests.verifier.verify_samples import SAMPLES, saved

SPLITS = ("auto", "batch", "spatial", "channel", "pipeline", "branches")

DRAWS = 40
"""Random settings tried for those that fit."""

MOST_PARTS = 150
"""Of a schedule: one of twice as many takes ONNX Runtime many times as long."""

COMPUTED = frozenset(("Constant", "ConstantOfShape", "Range", "Shape", "Size"))
"""Operators that the import computes: their results are constants."""

GONE = frozenset(("Identity", "Dropout", "com.microsoft.FusedConv"))
"""Operators that the import takes out: they hand on what they are given, or are written out."""


def _first_of_each_row() -> list[Placeable]:
    rows: dict[str, Placeable] = {}
    for one in PLACEABLE:
        rows.setdefault(_kind(one), one)
    return list(rows.values())


def _kind(one: Placeable) -> str:
    return f"{one.case.domain}.{one.case.op}" if one.case.domain else one.case.op


ROWS = _first_of_each_row()


def _graph(one: Placeable, seed: int) -> ModelProto:
    return operator_graph(one, Random(f"{one.case.label}/{seed}"))  # noqa: S311


def _small(random: Random) -> Target:
    """A target on which a few dozen elements are split."""
    return target(
        cores=random.choice((1, 2, 4)), lb=random.choice((512, 1024, 4096)),
        gb=random.choice((0, 1 << 13, 1 << 16)), clusters=random.choice((1, 2, 3)),
        weights=random.choice((0, 64, 1024)),
    )  # fmt: skip


def _scheduled(
    model_scheduler: ModelScheduler, count: int, seed: int
) -> Iterator[tuple[Knobs, Schedule]]:
    """The heuristic's schedule, and those of some random settings that fit and are not large."""
    yield Knobs(), build_schedule(model_scheduler, Knobs())
    space = Space.of(model_scheduler, subgraphs=4)
    genes = space.random(np.random.default_rng(seed), DRAWS, dense=True)
    found = 0
    for knobs in (space.knobs_of(row.tolist()) for row in genes):
        if found == count:
            return
        try:
            schedule = build_schedule(model_scheduler, knobs)
        except KnobsError:
            continue
        if schedule.instances.count > MOST_PARTS:
            continue
        found += 1
        yield knobs, schedule
    assert found == count


def _check(schedule: Schedule, path: Path, knobs: Knobs) -> None:
    result = verify_schedule(schedule, path=path)
    assert [finding.message for finding in result.findings] == [], knobs
    assert result.numbers is not None
    skipped = result.numbers.skipped
    # Nothing else may be skipped: the import cannot follow the samples through some reshapes.
    assert skipped is None or "export with a dynamic batch" in skipped
    assert result.numbers.whole


def _check_graph(model: ModelProto, path: Path, count: int, seed: int) -> None:
    save(model, path)
    model_scheduler = ModelScheduler(import_model(path), _small(Random(seed)), "float16")  # noqa: S311
    assert model_scheduler.model.opaque == ()
    for knobs, schedule in _scheduled(model_scheduler, count, seed):
        _check(schedule, path, knobs)


# ------------------------------------------------------------------------------------- each row


def test_every_row_of_the_table_is_in_some_graph() -> None:
    assert {_kind(one) for one in ROWS} == set(supported()) - BY_DATA


@pytest.mark.full
def test_graphs_hold_the_operators_of_their_rows(tmp_path: Path) -> None:
    kinds: set[str] = set()
    for seed in range(8):
        for one in ROWS:
            if _kind(one) not in kinds:
                path = saved(_graph(one, seed), tmp_path / "graph.onnx")
                kinds.update(operator.kind for operator in import_model(path).operators)
    assert set(supported()) - kinds == COMPUTED | GONE | BY_DATA


@pytest.mark.full
def test_graphs_give_numbers_that_say_something(tmp_path: Path) -> None:
    constant = set()
    for one in ROWS:
        for seed in range(2):
            outputs, results = _values(one, seed, tmp_path)
            infinite = one.case.op in SPECIAL
            assert infinite or all(np.isfinite(v).all() for v in outputs), one.case.label
            if any(np.ptp(v) > 0 for v in results):
                break
        else:
            constant.add(one.case.op)
    assert constant == {"ConstantOfShape", "Size"}


def _values(
    one: Placeable, seed: int, folder: Path
) -> tuple[list[np.ndarray[tuple[int, ...], np.dtype[np.float64]]], ...]:
    """A graph's outputs, and the results of the row's node, on random weights and inputs."""
    model = _graph(one, seed)
    drawn = with_weights(model, seeded_weights(model, folder, 0))
    case = one.case
    node = next(n for n in drawn.graph.node if (n.op_type, n.domain) == (case.op, case.domain))
    own = [value.name for value in drawn.graph.output]
    path = saved(with_outputs(drawn, node.output), folder / "graph.onnx")
    values = run(open_session(path), random_inputs(drawn, 0))
    floats = {name: value.astype(np.float64) for name, value in values.items()}
    return [floats[name] for name in own], [floats[name] for name in node.output]


FAST = frozenset(
    ("Relu", "Add", "MatMul", "Conv", "MaxPool", "Resize", "LayerNormalization", "ReduceMean",
     "Concat", "Gather", "QLinearConv", "LSTM")
)  # fmt: skip
"""One operator of every way in which parts of one are written."""

PLAIN = [*ELEMENTWISE, *REDUCTION]
"""Cases that are alike where their inputs and attributes are."""


def _one_of_each_class() -> list[Any]:
    """Operators, one for all that are cut alike."""
    seen: set[str] = set()
    found: list[Any] = []
    for one in sorted(ROWS, key=lambda row: _kind(row) not in FAST):
        kind = one.case.label.partition("(")[2] if one.case in PLAIN else _kind(one)
        if kind not in seen:
            marks = () if _kind(one) in FAST else pytest.mark.full
            found.append(pytest.param(one, id=_kind(one), marks=marks))
        seen.add(kind)
    return found


@pytest.mark.parametrize("one", _one_of_each_class())
def test_a_graph_around_each_row(one: Placeable, tmp_path: Path) -> None:
    _check_graph(_graph(one, 0), tmp_path / "graph.onnx", 1, 0)


# --------------------------------------------------------------------------------------- at random

EXAMPLES = settings(
    max_examples=8, deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)  # fmt: skip


def _drawn(data: st.DataObject, folder: Path) -> None:
    """A random graph on a random target in a random setting."""
    random = data.draw(st.randoms(use_true_random=False))
    path = saved(operator_graph(random.choice(PLACEABLE), random), folder / "graph.onnx")
    model_scheduler = ModelScheduler(import_model(path), _small(random), "float16")
    split = data.draw(st.sampled_from(SPLITS))
    share = model_scheduler.share(split=split)
    names = [layer.name for layer in model_scheduler.context(share.batches).layers]
    knobs = data.draw(settings_of(names, share.samples, split, model_scheduler.target))
    try:
        schedule = build_schedule(model_scheduler, knobs)
    except KnobsError:
        knobs = dataclasses.replace(knobs, overrides=())
        schedule = build_schedule(model_scheduler, knobs)
    _check(schedule, path, knobs)


@EXAMPLES
@given(data=st.data())
def test_random_graphs_in_random_settings(tmp_path: Path, data: st.DataObject) -> None:
    _drawn(data, tmp_path)


@pytest.mark.full
@settings(EXAMPLES, max_examples=120)
@given(data=st.data())
def test_many_random_graphs_in_random_settings(tmp_path: Path, data: st.DataObject) -> None:
    _drawn(data, tmp_path)


# -------------------------------------------------------------------------------------- precisions


def _sample_bench(name: str, path: Path) -> ModelScheduler:
    return ModelScheduler(import_model(saved(SAMPLES[name](), path)), target(
        cores=2, lb=1024, gb=1 << 16, clusters=2, weights=512
    ), "float16")  # fmt: skip


SHARED = {"cnn": ("batch", "spatial"), "cnn-qdq": ("channel",), "transformer-fp16": ("pipeline",)}
"""The fast tier's, in every way of sharing out the work."""


@pytest.mark.parametrize(
    ("name", "split"),
    [
        pytest.param(name, split, marks=() if split in SHARED.get(name, ()) else pytest.mark.full)
        for name in SAMPLES
        for split in SPLITS[1:]
    ],
)
def test_quantised_and_half_precision_networks_in_every_split(
    name: str, split: str, tmp_path: Path
) -> None:
    path = tmp_path / "sample.onnx"
    model_scheduler = _sample_bench(name, path)
    knobs = Knobs(cluster_partitioning=split)
    schedule = build_schedule(model_scheduler, knobs)
    divided = schedule.instances.count > len(schedule.instances.subgraphs)
    assert divided or split in ("pipeline", "branches")  # whole sub-graphs go to clusters
    _check(schedule, path, knobs)


@pytest.mark.full
@pytest.mark.parametrize("name", SAMPLES)
def test_quantised_and_half_precision_networks_in_random_settings(
    name: str, tmp_path: Path
) -> None:
    path = tmp_path / "sample.onnx"
    for knobs, schedule in _scheduled(_sample_bench(name, path), 2, 0):
        _check(schedule, path, knobs)
