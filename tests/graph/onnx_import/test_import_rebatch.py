"""Another batch for a file that has its own written into its constants, checked by running both."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

from autoturbo.errors import ModelError
from autoturbo.graph.batch import trace_batch
from autoturbo.graph.importer.rebatch import Rebatch
from autoturbo.graph.values import Value, tensor_type
from tests.graph.onnx_import.import_models import (
    INT64,
    ints,
    kinds,
    model,
    node,
    out_shapes,
    shape_of,
    value,
    weight,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from onnx import ModelProto

    from tests.graph.onnx_import.import_models import Load


def flat(batch: int) -> ModelProto:
    """A convolution, a constant reshape with -1, a matrix product."""
    return model(
        [
            node("Conv", ["x", "k"], ["c"], pads=[1, 1, 1, 1]),
            node("Reshape", ["c", "target"], ["r"]),
            node("MatMul", ["r", "w"], ["y"]),
        ],
        [value("x", [batch, 2, 4, 4])],
        [value("y", None)],
        [weight("k", 3, 2, 3, 3), weight("w", 48, 5), ints("target", batch, -1)],
    )


def attention(batch: int) -> ModelProto:
    """Two heads, split and joined by constant reshapes, batch first."""
    return model(
        [
            node("Reshape", ["x", "rows"], ["f"]),
            node("Gemm", ["f", "w"], ["g"]),
            node("Reshape", ["g", "heads"], ["h"]),
            node("Transpose", ["h"], ["q"], perm=[0, 2, 1, 3]),
            node("Transpose", ["h"], ["k"], perm=[0, 2, 3, 1]),
            node("MatMul", ["q", "k"], ["s"]),
            node("Softmax", ["s"], ["p"], axis=-1),
            node("MatMul", ["p", "q"], ["o"]),
            node("Transpose", ["o"], ["t"], perm=[0, 2, 1, 3]),
            node("Reshape", ["t", "joined"], ["y"]),
        ],
        [value("x", [batch, 3, 8])],
        [value("y", None)],
        [
            weight("w", 8, 8),
            ints("rows", batch * 3, 8),
            ints("heads", batch, 3, 2, 4),
            ints("joined", batch, 3, 8),
        ],
    )


def sequence_first(batch: int) -> ModelProto:
    """``torch.nn.MultiheadAttention``'s layout: heads merged with a batch that is second."""
    return model(
        [
            node("Transpose", ["x"], ["t"], perm=[1, 0, 2]),
            node("Reshape", ["t", "rows"], ["f"]),
            node("Gemm", ["f", "w"], ["g"]),
            node("Reshape", ["g", "back"], ["b"]),
            node("Reshape", ["b", "heads"], ["h"]),
            node("Transpose", ["h"], ["q"], perm=[1, 0, 2]),
            node("Transpose", ["h"], ["k"], perm=[1, 2, 0]),
            node("MatMul", ["q", "k"], ["s"]),
            node("MatMul", ["s", "q"], ["o"]),
            node("Transpose", ["o"], ["u"], perm=[1, 0, 2]),
            node("Reshape", ["u", "back"], ["v"]),
            node("Transpose", ["v"], ["y"], perm=[1, 0, 2]),
        ],
        [value("x", [batch, 3, 8])],
        [value("y", None)],
        [
            weight("w", 8, 8),
            ints("rows", 3 * batch, 8),
            ints("back", 3, batch, 8),
            ints("heads", 3, batch * 2, 4),
        ],
    )


def class_token(batch: int) -> ModelProto:
    """A token in front of the patches, expanded to the batch when the file was made."""
    token = np.repeat(np.ones((1, 1, 8), np.float32), batch, axis=0)
    return model(
        [node("Concat", ["token", "x"], ["c"], axis=1), node("Add", ["c", "place"], ["y"])],
        [value("x", [batch, 3, 8])],
        [value("y", None)],
        [onnx.numpy_helper.from_array(token, "token"), weight("place", 1, 4, 8)],
    )


def expanded(batch: int) -> ModelProto:
    return model(
        [node("ReduceMean", ["x"], ["m"], axes=[1]), node("Expand", ["m", "full"], ["y"])],
        [value("x", [batch, 3, 8])],
        [value("y", None)],
        [ints("full", batch, 3, 8)],
    )


def masked(batch: int) -> ModelProto:
    """A mask of the batch's size, and ``GatherND`` with indices that count the samples."""
    indices = np.stack([np.arange(batch), np.zeros(batch)], axis=-1).astype(np.int64)
    return model(
        [
            node("Add", ["x", "mask"], ["a"]),
            node("GatherND", ["a", "first"], ["y"]),
        ],
        [value("x", [batch, 3, 8])],
        [value("y", None)],
        [
            onnx.numpy_helper.from_array(np.ones((batch, 3, 8), np.float32), "mask"),
            onnx.numpy_helper.from_array(indices, "first"),
        ],
    )


def resized(batch: int) -> ModelProto:
    """A segmentation head: sizes of all dimensions are given to ``Resize``."""
    return model(
        [
            node("GlobalAveragePool", ["x"], ["p"]),
            node("Resize", ["p", "", "", "sizes"], ["r"], mode="linear"),
            node("Concat", ["x", "r"], ["y"], axis=1),
        ],
        [value("x", [batch, 3, 4, 4])],
        [value("y", None)],
        [ints("sizes", batch, 3, 4, 4)],
    )


def gated(batch: int) -> ModelProto:
    """Experts: gates are scattered into a constant of the batch's size."""
    zeros = onnx.numpy_helper.from_array(np.zeros((batch, 4), np.float32), "zeros")
    return model(
        [
            node("TopK", ["x", "k"], ["v", "i"], axis=-1),
            node("ScatterElements", ["zeros", "i", "v"], ["y"], axis=1),
        ],
        [value("x", [batch, 4])],
        [value("y", None)],
        [zeros, ints("k", 2)],
    )


def shared_mask(batch: int) -> ModelProto:
    """Two layers of attention with one mask of the batch's size, positions of the same size."""
    mask = np.repeat(np.triu(np.full((1, 1, 3, 3), -1e9, np.float32), 1), batch, axis=0)
    places = np.repeat(np.arange(3)[None], batch, axis=0)
    nodes = [
        node("Gather", ["words", "x"], ["e"]),
        node("Gather", ["table", "places"], ["p"]),
        node("Add", ["e", "p"], ["h0"]),
    ]
    for k in (0, 1):
        nodes += [
            node("Reshape", [f"h{k}", "heads"], [f"s{k}"]),
            node("Transpose", [f"s{k}"], [f"q{k}"], perm=[0, 2, 1, 3]),
            node("Transpose", [f"s{k}"], [f"k{k}"], perm=[0, 2, 3, 1]),
            node("MatMul", [f"q{k}", f"k{k}"], [f"a{k}"]),
            node("Add", [f"a{k}", "mask"], [f"m{k}"], name=f"masked_{k}"),
            node("Softmax", [f"m{k}"], [f"w{k}"], axis=-1),
            node("MatMul", [f"w{k}", f"q{k}"], [f"o{k}"]),
            node("Transpose", [f"o{k}"], [f"t{k}"], perm=[0, 2, 1, 3]),
            node("Reshape", [f"t{k}", "joined"], ["y" if k else "h1"]),
        ]
    return model(
        nodes,
        [value("x", [batch, 3], INT64)],
        [value("y", None)],
        [
            weight("words", 9, 8),
            weight("table", 3, 8),
            onnx.numpy_helper.from_array(places, "places"),
            onnx.numpy_helper.from_array(mask, "mask"),
            ints("heads", batch, 3, 2, 4),
            ints("joined", batch, 3, 8),
        ],
    )


def recurrent(batch: int) -> ModelProto:
    """An LSTM of two directions whose states begin at zero, batch first around it."""
    zeros = np.zeros((2, batch, 4), np.float32)
    return model(
        [
            node("Transpose", ["x"], ["t"], perm=[1, 0, 2]),
            node("LSTM", ["t", "w", "r", "", "", "h", "c"], ["s"], hidden_size=4,
                 direction="bidirectional"),
            node("Transpose", ["s"], ["y"], perm=[2, 0, 1, 3]),
        ],
        [value("x", [batch, 3, 8])],
        [value("y", None)],
        [
            weight("w", 2, 16, 8),
            weight("r", 2, 16, 4),
            onnx.numpy_helper.from_array(zeros, "h"),
            onnx.numpy_helper.from_array(zeros, "c"),
        ],
    )  # fmt: skip


def spread_state(batch: int) -> ModelProto:
    """As torch traces a GRU: the zeros of the file's batch are expanded to the input's."""
    zeros = np.zeros((1, batch, 4), np.float32)
    return model(
        [
            node("Shape", ["x"], ["extents"]),
            node("Gather", ["extents", "zero"], ["samples"]),
            node("Concat", ["one", "samples", "four"], ["full"], axis=0),
            node("Expand", ["zeros", "full"], ["h"]),
            node("Transpose", ["x"], ["t"], perm=[1, 0, 2]),
            node("GRU", ["t", "w", "r", "", "", "h"], ["s"], hidden_size=4),
            node("Transpose", ["s"], ["y"], perm=[2, 0, 1, 3]),
        ],
        [value("x", [batch, 3, 8])],
        [value("y", None)],
        [
            weight("w", 1, 12, 8),
            weight("r", 1, 12, 4),
            onnx.numpy_helper.from_array(zeros, "zeros"),
            ints("zero", 0),
            ints("one", 1),
            ints("four", 4),
        ],
    )


def looked_up(batch: int) -> ModelProto:
    """Positions that count the samples, in part by the input's extents; the same for every sample.

    As torch traces a mask of BERT, and the relative positions of DeBERTa.
    """
    starts = np.arange(batch, dtype=np.int64).reshape(batch, 1)
    turned = np.broadcast_to(np.array([2, 0, 1]), (batch, 4, 3)).copy()
    return model(
        [
            node("Reshape", ["x", "flat"], ["f"]),
            node("Shape", ["x"], ["extents"]),
            node("Gather", ["extents", "two"], ["length"]),
            node("Mul", ["starts", "length"], ["offsets"]),
            node("Add", ["offsets", "columns"], ["places"]),
            node("Gather", ["f", "places"], ["g"]),
            node("Unsqueeze", ["g", "two"], ["u"]),
            node("Add", ["x", "u"], ["a"]),
            node("GatherElements", ["a", "turned"], ["b"], axis=2),
            node("GatherElements", ["b", "turned"], ["y"], axis=2),
        ],
        [value("x", [batch, 4, 3])],
        [value("y", None)],
        [
            ints("flat", -1),
            ints("two", 2),
            onnx.numpy_helper.from_array(4 * starts, "starts"),
            onnx.numpy_helper.from_array(np.arange(4)[None], "columns"),
            onnx.numpy_helper.from_array(turned, "turned"),
        ],
    )


MAKERS = [
    flat, attention, sequence_first, class_token, expanded, masked, resized, gated, shared_mask,
    recurrent, spread_state, looked_up,
]  # fmt: skip


@pytest.mark.parametrize(
    ("baked", "batch"),
    [(1, 3), (4, 1), *(pytest.param(*pair, marks=pytest.mark.full) for pair in ((2, 8), (4, 3)))],
)
@pytest.mark.parametrize("make", MAKERS)
def test_a_rebatched_file_is_the_file_made_for_that_batch(
    load: Load, make: Callable[[int], ModelProto], baked: int, batch: int
) -> None:
    changed, made = load(make(baked), batch=batch), load(make(batch))
    # a mask, or a pooled value, of one sample serves every sample
    broadcast = make in (masked, shared_mask) and baked == 1 != batch
    assert (changed.hash == made.hash) is not broadcast
    assert changed.macs == made.macs
    x = changed.tensors[changed.inputs[0]]
    result = ReferenceEvaluator(make(batch)).run(None, {"x": np.ones(x.shape, x.dtype)})
    assert out_shapes(changed) == [np.asarray(array).shape for array in result]


@pytest.mark.parametrize("make", MAKERS)
def test_samples_are_told_apart_at_the_file_s_own_batch(
    load: Load, make: Callable[[int], ModelProto]
) -> None:
    """Two layers that read one mask read one mask for fewer samples too; a state is taken apart."""
    for batch in (None, 16):
        assert trace_batch(load(make(8), batch=batch)).obstacle is None


def test_a_constant_is_repeated_once_however_often_it_is_read(load: Load) -> None:
    graph = load(shared_mask(8), batch=2)
    readers = [operator for operator in graph.operators if operator.name.startswith("masked")]
    assert len({operator.inputs[1] for operator in readers}) == 1
    assert graph.tensors[readers[0].inputs[1]].shape == (2, 1, 3, 3)


def test_targets_that_follow_by_themselves_are_left_alone(load: Load) -> None:
    made = model(
        [
            node("Shape", ["x"], ["s"]),
            node("Reshape", ["x", "keep"], ["a"]),
            node("Reshape", ["a", "s"], ["y"]),
        ],
        [value("x", [2, 6, 4])],
        [value("y", None)],
        [ints("keep", 0, -1)],
    )
    result = load(made, batch=5)
    assert kinds(result) == ["Reshape", "Reshape"]
    assert shape_of(result, "a") == (5, 24)
    assert out_shapes(result) == [(5, 6, 4)]


def test_a_table_s_constants_are_not_taken_for_samples(load: Load) -> None:
    made = model(
        [node("Add", ["x", "bias"], ["y"])],
        [value("x", [4, 4])],
        [value("y", None)],
        [weight("bias", 4)],
    )
    result = load(made, batch=2)
    assert shape_of(result, "bias") == (4,)


def test_a_file_that_mixes_its_samples_is_refused(load: Load) -> None:
    made = model(
        [node("Reshape", ["x", "t"], ["y"])],
        [value("x", [4, 6])],
        [value("y", None)],
        [ints("t", 2, 12)],
    )
    with pytest.raises(ModelError) as caught:
        load(made, batch=8)
    assert caught.value.at.field == "y"


def test_nodes_of_other_domains_are_left_alone() -> None:
    rebatch = Rebatch(1, Fraction(2), {"x": (1, 3), "y": (3,)})
    x = Value("x", tensor_type(1, (2, 3)))
    t = Value("t", tensor_type(7, (1,)), constant=True, data=np.asarray([3]))
    rebatch.place(x)
    assert rebatch.adjust(node("Reshape", ["x", "t"], ["y"], domain="org.acme"), [x, t]) == [x, t]
    changed = rebatch.adjust(node("Reshape", ["x", "t"], ["y"]), [x, t])[1]
    assert changed is not None
    assert changed.data is not None
    assert changed.data.tolist() == [6]


def test_stated_types_grow_with_the_batch() -> None:
    rebatch = Rebatch(2, Fraction(3, 2), {})
    assert rebatch.scaled_type(tensor_type(1, (2, 5))) == tensor_type(1, (3, 5))
    assert rebatch.scaled_type(tensor_type(1, (1, 5))) == tensor_type(1, (1, 5))
    assert rebatch.scaled_type(tensor_type(1, ())) == tensor_type(1, ())


def test_a_file_that_cannot_be_written_for_one_sample_keeps_its_batch(
    load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The space holds only what can be written: samples are not shared out then."""
    assert trace_batch(load(resized(4))).obstacle is None
    monkeypatch.setattr(Rebatch, "adjust", lambda _, __, inputs: inputs)
    obstacle = trace_batch(load(resized(4))).obstacle
    assert obstacle is not None
    assert (obstacle.operator, obstacle.kind) == ("Concat_2", "Concat")
    assert obstacle.reason.startswith("has the batch written into it: ")
    assert obstacle.mend == "export with a dynamic batch"
