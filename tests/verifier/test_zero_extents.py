"""What is empty is folded away: nothing ends in a traceback, and numbers are ONNX Runtime's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, save

from autoturbo.errors import ModelError
from autoturbo.graph.model_nodes import load_nodes
from autoturbo.graph.onnx_import import import_model
from autoturbo.schedule.knobs import Knobs
from autoturbo.schedule.pipeline import ModelScheduler, build_schedule
from autoturbo.verifier import verify_schedule
from autoturbo.verifier.execution import plain_model
from tests.graph.onnx_import.import_models import INT64, ints, model, node, value, weight
from tests.graph.operator_table.operator_cases import CASES
from tests.schedule.schedule_samples import target
from tests.verifier.zero_extents import Zeroed, cuts, run_apart, zeroed

BEYOND_ITS_DATA = frozenset(("RoiAlign",))
"""Operators with which ONNX Runtime reads what is not there."""

BY_DATA = frozenset(("Compress",))
"""Operators whose extents are taken at their largest."""


def _models(*, every: bool) -> Iterator[Zeroed]:
    rows: set[tuple[str, str]] = set()
    for number, case in enumerate(CASES):
        first = (case.domain, case.op) not in rows
        rows.add((case.domain, case.op))
        if case.op in BEYOND_ITS_DATA | BY_DATA or not (first or every):
            continue
        values = case.draw(np.random.default_rng(0))
        found = list(cuts(case, values))
        for cut in found if every else found[number % max(len(found), 1) :][:1]:
            yield zeroed(case, values, cut)


def _written(one: Zeroed, path: Path) -> ModelProto | None:
    """The model as it is written again; None if it is refused."""
    save(one.model, path)
    try:
        import_model(path)
        return plain_model(load_nodes(path))
    except ModelError:
        return None


def _check(models: Sequence[Zeroed], path: Path) -> None:
    before = run_apart([(one.model, one.feeds) for one in models])
    written = [_written(one, path) for one in models]
    both = [
        (one, again, result)
        for one, again, result in zip(models, written, before, strict=True)
        if again is not None and not isinstance(result, str)
    ]
    after = run_apart([(again, one.feeds) for one, again, _ in both])
    assert len(both) > len(models) * 0.4
    for (one, _, wanted), found in zip(both, after, strict=True):
        assert not isinstance(found, str), (one.label, found)
        for name, array in wanted.items():
            assert found[name].shape == array.shape, one.label
            np.testing.assert_allclose(found[name], array, 1e-4, 1e-4, err_msg=one.label)


@pytest.mark.full
def test_an_empty_dimension_of_each_row(tmp_path: Path) -> None:
    _check(list(_models(every=False)), tmp_path / "model.onnx")


@pytest.mark.full
def test_every_empty_dimension_of_every_case(tmp_path: Path) -> None:
    _check(list(_models(every=True)), tmp_path / "model.onnx")


# ---------------------------------------------------------------- what is left is scheduled


NONE = TensorProto(name="none", data_type=1, dims=[4, 0, 8], raw_data=b"")

X, Y = value("x", [4, 6, 8]), value("y", None)

MODELS = {
    "a part of a Concat": model(
        [node("Concat", ["none", "x"], ["c"], axis=1), node("Relu", ["c"], ["y"])], [X], [Y], [NONE]
    ),
    "some parts of a Concat": model(
        [node("Concat", ["x", "none", "x", "none"], ["y"], axis=1)], [X], [Y], [NONE]
    ),
    "an input": model(
        [node("Concat", ["past", "x"], ["c"], axis=1), node("Relu", ["c"], ["y"])],
        [X, value("past", [4, 0, 8])],
        [Y],
    ),
    "an empty slice": model(
        [
            node("Slice", ["x", "zero", "zero", "one"], ["s"]),
            node("Concat", ["x", "s"], ["c"], axis=1),
            node("Relu", ["c"], ["y"]),
        ],
        [X], [Y], [ints("zero", 0), ints("one", 1)],
    ),
    "an output beside others": model(
        [node("Slice", ["x", "zero", "zero", "one"], ["s"]), node("Relu", ["x"], ["y"])],
        [X], [Y, value("s", None)], [ints("zero", 0), ints("one", 1)],
    ),
    "parts of a Split": model(
        [
            node("Split", ["x", "sizes"], ["a", "b", "c", "d"], axis=1),
            node("Relu", ["b"], ["y"]),
            node("Concat", ["c", "a", "d"], ["z"], axis=1),
        ],
        [X], [Y, value("z", None), value("a", None)], [ints("sizes", 0, 2, 4, 0)],
    ),
    "a Split that is one part": model(
        [node("Split", ["x", "sizes"], ["a", "b"], axis=1), node("Relu", ["b"], ["y"])],
        [X], [Y], [ints("sizes", 0, 6)],
    ),
    "a sum over nothing": model(
        [node("MatMul", ["a", "b"], ["p"]), node("Add", ["p", "x"], ["y"])],
        [X, value("a", [4, 6, 0]), value("b", [0, 8])],
        [Y],
    ),
    "a Gemm over nothing": model(
        [node("Relu", ["c"], ["r"]), node("Gemm", ["a", "b", "r"], ["y"], transA=1, beta=0.5)],
        [value("a", [0, 4]), value("b", [0, 8]), value("c", [8])],
        [Y],
    ),
    "an Einsum with nothing": model(
        [
            node("Einsum", ["x", "b"], ["p"], equation="bij,jkl->bil"),
            node("Add", ["p", "x"], ["y"]),
        ],
        [X, value("b", [8, 0, 8])],
        [Y],
    ),
    "integers over nothing": model(
        [
            node("MatMulInteger", ["a", "b", "z"], ["p"]),
            node("Cast", ["p"], ["q"], to=1),
            node("Add", ["q", "x"], ["y"]),
        ],
        [
            X, value("a", [6, 0], TensorProto.UINT8), value("b", [0, 8], TensorProto.UINT8),
            value("z", [], TensorProto.UINT8),
        ],
        [Y],
    ),
    "a scatter of nothing": model(
        [node("ScatterND", ["x", "i", "u"], ["s"]), node("Relu", ["s"], ["y"])],
        [X, value("i", [0, 1], INT64), value("u", [0, 6, 8])],
        [Y],
    ),
    "a mean of nothing": model(
        [node("ReduceMean", ["e"], ["m"], axes=[1]), node("Add", ["x", "m"], ["y"])],
        [X, value("e", [4, 0, 8])],
        [Y],
    ),
    "attention without a past": model(
        [
            node("Concat", ["past", "x"], ["k"], axis=1),
            node("Transpose", ["k"], ["t"], perm=[0, 2, 1]),
            node("MatMul", ["x", "t"], ["s"]),
            node("Softmax", ["s"], ["a"]),
            node("MatMul", ["a", "k"], ["y"]),
        ],
        [X, value("past", [4, 0, 8])],
        [Y, value("k", None)],
    ),
}  # fmt: skip

UNWRITTEN = ("integers over nothing",)
"""ONNX Runtime leaves its output as the memory was: there are no numbers to compare."""


@pytest.mark.parametrize("name", MODELS)
def test_a_model_with_nothing_in_it_is_scheduled_and_checked(name: str, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    save(MODELS[name], path)
    scheduler = ModelScheduler(
        import_model(path), target(cores=2, lb=1024, gb=1 << 13, clusters=2, weights=512), "float16"
    )
    assert scheduler.model.opaque == ()
    given = None if name in UNWRITTEN else path
    result = verify_schedule(build_schedule(scheduler, Knobs()), path=given)
    assert [finding.message for finding in result.findings] == []
    assert name in UNWRITTEN or (result.numbers is not None and result.numbers.whole)


def test_a_model_that_only_makes_what_is_empty_says_so(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    save(model([node("Relu", ["x"], ["y"])], [value("x", [0, 8])], [value("y", None)]), path)
    with pytest.raises(ModelError) as refused:
        import_model(path)
    assert str(refused.value) == (
        f"{path}: y: its only output is empty, of shape [0, 8]: nothing to schedule;"
        " give its input elements: --shape x=1,8"
    )
    assert import_model(path, batch=3).batch == 3
    assert import_model(path, shapes={"x": (2, 8)}).batch == 2


def test_an_operator_that_has_too_little_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    made = model(
        [node("Conv", ["x", "w"], ["y"])],
        [value("x", [1, 3, 0, 2])], [value("y", None)], [weight("w", 4, 3, 3, 3)],
    )  # fmt: skip
    save(made, path)
    with pytest.raises(ModelError) as caught:
        import_model(path)
    assert caught.value.at.field == "Conv of 'y'"
