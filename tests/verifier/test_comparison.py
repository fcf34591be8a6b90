"""Outputs are compared by what another order of summation explains, also of real networks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, helper

from autoturbo.graph.onnx_import import import_model
from autoturbo.verifier.comparison import (
    Arithmetic,
    Comparison,
    arithmetic_of,
    compare,
    longest_sum,
)
from autoturbo.verifier.execution import open_session, run, with_outputs
from autoturbo.verifier.random_values import random_inputs, seeded_weights, with_weights
from autoturbo.verifier.weight_values import Array
from tests.schedule.schedule_samples import Net
from tests.verifier.verify_samples import (
    SAMPLES,
    halve,
    quantise,
    reordered,
    saved,
    with_wrong_row,
    workload,
)

if TYPE_CHECKING:
    from pathlib import Path


ONE_OF_EACH = [
    pytest.param(
        name, marks=() if name in ("cnn", "cnn-qdq", "transformer-fp16") else pytest.mark.full
    )
    for name in SAMPLES
]
"""Every precision and both networks; the others are of the full tier."""

SINGLE = Arithmetic()
DOUBLE = Arithmetic(TensorProto.DOUBLE)
HALF = Arithmetic(TensorProto.FLOAT16)
BRAIN = Arithmetic(TensorProto.BFLOAT16)
QUANTISED = Arithmetic(quantised=True)


def one(wanted: Array, found: Array, arithmetic: Arithmetic = SINGLE) -> Comparison:
    (comparison,) = compare({"y": wanted}, {"y": found}, arithmetic)
    assert comparison.name == "y"
    return comparison


def normal(*shape: int) -> Array:
    return np.random.default_rng(0).standard_normal(shape, np.float32)


def outputs(model: ModelProto, folder: Path) -> dict[str, Array]:
    path = saved(model, folder / "m.onnx")
    return run(open_session(path), random_inputs(model, 0))


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_another_order_of_summation_passes(name: str, tmp_path: Path) -> None:
    model = with_weights(SAMPLES[name](), seeded_weights(SAMPLES[name](), tmp_path, 0))
    reference, candidate = outputs(model, tmp_path), outputs(reordered(model), tmp_path)
    (comparison,) = compare(reference, candidate, arithmetic_of(model))
    assert comparison.ok, comparison
    assert comparison.remark is None


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_one_wrong_row_in_any_product_is_found(name: str, tmp_path: Path) -> None:
    """Rows are dimension 2 of images and 1 of sequences."""
    model = with_weights(SAMPLES[name](), seeded_weights(SAMPLES[name](), tmp_path, 0))
    reference = outputs(model, tmp_path)
    axis = 2 if name.startswith("cnn") else 1
    kinds = ("Conv",) if name.startswith("cnn") else ("MatMul", "LayerNormalization")
    values = [node.output[0] for node in model.graph.node if node.op_type in kinds]
    assert len(values) >= 4
    for value in values:
        wrong = outputs(with_wrong_row(model, value, axis), tmp_path)
        (comparison,) = compare(reference, wrong, arithmetic_of(model))
        clear = 100 if arithmetic_of(model) == SINGLE else 1
        assert comparison.difference > clear * comparison.tolerance, value


def test_quantised_networks_are_exact_in_any_order(tmp_path: Path) -> None:
    model = with_weights(SAMPLES["cnn-qdq"](), seeded_weights(SAMPLES["cnn-qdq"](), tmp_path, 0))
    assert np.array_equal(outputs(model, tmp_path)["y"], outputs(reordered(model), tmp_path)["y"])


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_arithmetic_is_that_of_the_coarsest_type(name: str) -> None:
    expected = {"cnn": SINGLE, "fp16": HALF, "qdq": QUANTISED}
    last = name.rpartition("-")[2]
    assert arithmetic_of(SAMPLES[name]()) == expected.get(last, SINGLE)


def test_equal_outputs_differ_by_nothing() -> None:
    comparison = one(normal(4, 5), normal(4, 5))
    assert comparison.ok
    assert comparison.difference == comparison.max_abs_error == 0


def test_the_worst_element_is_named_with_its_difference() -> None:
    wrong = normal(4, 5)
    wrong[2, 3] += 0.5
    comparison = one(normal(4, 5), wrong)
    assert not comparison.ok
    assert comparison.index == (2, 3)
    assert comparison.difference == comparison.max_abs_error == pytest.approx(0.5)


def test_a_difference_counts_in_relation_to_how_much_the_output_varies() -> None:
    wanted = 1000 + 0.01 * normal(1000).astype(np.float64)
    wrong = wanted.copy()
    wrong[7] += 0.005
    assert not one(wanted, wrong, SINGLE).ok
    assert one(wanted, wanted.astype(np.float32)).ok


def test_a_mean_of_many_nearly_equal_values_is_held_to_how_many_they_are() -> None:
    """Taken one after another, every addition rounds the same way."""
    values = np.full((64, 1 << 16), 1 / 6, np.float32) + np.float32(1e-5) * normal(64, 1)
    count = values.shape[1]
    wanted = values.mean(axis=1, dtype=np.float64)
    found = np.cumsum(values, axis=1, dtype=np.float32)[:, -1] / count
    assert not one(wanted, found).ok
    assert one(wanted, found, Arithmetic(longest_sum=count)).ok
    assert not one(wanted, wanted * 1.01, Arithmetic(longest_sum=count)).ok
    assert not one(wanted, found, Arithmetic(TensorProto.DOUBLE, longest_sum=count)).ok


def test_the_longest_sum_of_a_network_is_counted(tmp_path: Path) -> None:
    net = Net(x=(2, 4, 80, 64))
    net.add("GlobalAveragePool", ["x"], (2, 4, 1, 1))
    net.add("ReduceMean", ["x"], (2, 4, 1, 64), axes=[2])
    net.add("MaxPool", ["x"], (2, 4, 1, 1), kernel_shape=[80, 64])
    assert longest_sum(import_model(saved(net.proto(), tmp_path / "net.onnx"))) == 80 * 64


def test_a_large_element_does_not_hide_a_small_one() -> None:
    wanted = np.concatenate([normal(1000), np.float32(1e5) * normal(10)])
    wrong = wanted.copy()
    wrong[3] += 0.5
    assert not one(wanted, wrong).ok
    assert one(wanted, wrong).index == (3,)


def test_a_single_number_is_held_to_its_magnitude() -> None:
    assert one(np.full(1, 3.0), np.full(1, 3.00001)).ok
    assert not one(np.full(1, 3.0), np.full(1, 3.001)).ok


def test_coarser_types_allow_more() -> None:
    wanted = normal(1000)
    for finer, coarser in zip(
        (DOUBLE, SINGLE, HALF),
        (SINGLE, HALF, BRAIN),
        strict=True,
    ):
        rounded = wanted * (1 + {SINGLE: 1e-6, HALF: 1e-3}.get(coarser, 0.03))
        assert one(wanted, rounded, coarser).ok
        assert not one(wanted, rounded, finer).ok


def test_the_index_of_the_largest_score_may_differ_for_few_near_ties() -> None:
    wanted = np.arange(10_000)
    few, many = wanted.copy(), wanted.copy()
    few[:2] += 1
    many[:50] += 1
    assert one(wanted, few).ok
    assert not one(wanted, many).ok
    assert one(wanted, many, HALF).ok
    assert not one(wanted[:10], many[:10]).ok


def test_outputs_that_are_missing_or_of_another_shape_differ() -> None:
    (comparison,) = compare({"y": normal(2)}, {}, SINGLE)
    assert not comparison.ok
    assert comparison.remark == "is not computed"
    assert not one(normal(2, 3), normal(3, 2)).ok


def test_numbers_that_are_not_finite_must_be_so_in_both() -> None:
    broken = normal(4)
    broken[1] = np.nan
    assert not one(normal(4), broken).ok
    assert one(normal(4), broken).index == (1,)
    assert not one(broken, normal(4)).ok


def test_a_reference_that_is_not_finite_is_remarked_upon() -> None:
    broken = normal(4)
    broken[1] = np.inf
    assert one(broken, broken).ok
    assert one(broken, broken).remark == "is not finite everywhere"
    assert one(broken, -broken).ok is False
    nothing = np.full(4, np.nan)
    assert one(nothing, nothing).remark == "is not finite anywhere"


def test_a_constant_reference_is_remarked_upon() -> None:
    assert one(np.ones(9), np.ones(9)).remark == "is constant"
    assert one(np.zeros(9, np.int64), np.zeros(9, np.int64)).remark == "is constant"
    assert not one(np.zeros(9), np.full(9, 1e-9)).ok


def test_a_conversion_on_the_way_counts() -> None:
    model = SAMPLES["cnn"]()
    model.graph.node.append(helper.make_node("Cast", ["y"], ["z"], to=TensorProto.FLOAT16))
    assert arithmetic_of(model) == HALF


def test_few_flipped_roundings_of_a_quantised_output_are_no_difference() -> None:
    wanted = np.rint(32 * normal(10_000)).clip(-128, 127)
    few, many, far = wanted.copy(), wanted.copy(), wanted.copy()
    few[:10] += 2
    many[:100] += 2
    far[:10] += 60
    for kind in (np.float32, np.int8):
        first, others = wanted.astype(kind), [a.clip(-128, 127).astype(kind) for a in (few, many)]
        assert one(first, others[0], QUANTISED).ok
        assert not one(first, others[1], QUANTISED).ok
    assert not one(wanted, far, QUANTISED).ok
    assert not one(wanted, few, SINGLE).ok


def test_positions_that_a_quantised_network_computes_are_no_numbers() -> None:
    wanted = np.full(1000, 100_000)
    wrong = wanted + 1
    assert not one(wanted, wrong, QUANTISED).ok


def test_texts_and_truth_values_are_equal_or_not() -> None:
    words, flags = np.array(["a", "b"], object), np.array([True, False])
    assert one(words, words.copy()).ok
    assert one(words, words[::-1]).max_abs_error == 1.0
    assert not one(words, words[::-1]).ok
    assert one(flags, flags).ok
    assert not one(flags, ~flags).ok
    assert not one(flags, ~flags, QUANTISED).ok


def outputs_of_samples(model: ModelProto, path: Path) -> dict[str, Array]:
    return run(open_session(saved(model, path)), random_inputs(model, 0))


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_samples_are_valid_and_understood_to_the_last_operator(name: str, tmp_path: Path) -> None:
    model = SAMPLES[name]()
    onnx.checker.check_model(model, full_check=True)
    graph = import_model(saved(model, tmp_path / "m.onnx"))
    assert [operator.name for operator in graph.operators if operator.opaque] == []


@pytest.mark.parametrize("name", [name for name in SAMPLES if name.endswith("qdq")])
@pytest.mark.parametrize("drawn", [False, True])
def test_integers_of_quantised_samples_use_their_range(
    name: str, drawn: bool, tmp_path: Path
) -> None:
    model = SAMPLES[name]()
    if drawn:
        model = with_weights(model, seeded_weights(model, tmp_path, 0))
    integers = [n.output[0] for n in model.graph.node if n.op_type == "QuantizeLinear"]
    found = outputs_of_samples(with_outputs(model, integers), tmp_path / "m.onnx")
    for name_of_value in integers:
        values = found[name_of_value].astype(int)
        assert np.abs(values).max() >= 10
        assert (np.abs(values) >= 127).mean() < 0.1


@pytest.fixture(name="float_network")
def _float_network(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A workload at batch 2 with drawn weights."""
    model = workload(request.param, 2)
    return saved(with_weights(model, seeded_weights(model, tmp_path, 0)), tmp_path / "m.onnx")


NETWORKS = ["resnet18"]


@pytest.mark.full
@pytest.mark.parametrize("float_network", NETWORKS, indirect=True)
def test_large_networks_agree_with_themselves_in_another_order(float_network: Path) -> None:
    model = onnx.load(float_network, load_external_data=False)
    folder = float_network.parent
    reference = outputs_of_samples(model, folder / "a.onnx")
    candidate = outputs_of_samples(reordered(model), folder / "b.onnx")
    assert all(c.ok for c in compare(reference, candidate, arithmetic_of(model)))


@pytest.mark.full
@pytest.mark.parametrize("float_network", NETWORKS, indirect=True)
def test_half_precision_networks_agree_with_themselves_in_another_order(
    float_network: Path,
) -> None:
    folder = float_network.parent
    model = onnx.load(halve(float_network, folder / "half.onnx"))
    graph = import_model(folder / "half.onnx")
    assert not any(operator.opaque for operator in graph.operators)
    reference = outputs_of_samples(model, folder / "a.onnx")
    candidate = outputs_of_samples(reordered(model), folder / "b.onnx")
    assert arithmetic_of(model).element == onnx.TensorProto.FLOAT16
    assert all(c.ok for c in compare(reference, candidate, arithmetic_of(model)))


@pytest.mark.full
@pytest.mark.parametrize("float_network", NETWORKS, indirect=True)
def test_quantised_networks_are_exact_in_another_order(float_network: Path) -> None:
    folder = float_network.parent
    feeds = [random_inputs(onnx.load(float_network, load_external_data=False), s) for s in (5, 6)]
    model = onnx.load(quantise(float_network, folder / "q.onnx", feeds))
    graph = import_model(folder / "q.onnx")
    assert not any(operator.opaque for operator in graph.operators)
    drawn = with_weights(model, seeded_weights(model, folder, 1, "q.bin"))
    assert arithmetic_of(drawn).quantised
    reference = outputs_of_samples(drawn, folder / "a.onnx")
    candidate = outputs_of_samples(reordered(drawn), folder / "b.onnx")
    assert all(np.array_equal(reference[name], candidate[name]) for name in reference)
    assert all(float(value.std()) > 0 for value in reference.values())
