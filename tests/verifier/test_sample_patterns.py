"""Samples followed through constant indices, cuts and constants, as exporters write them.

A pattern that keeps samples apart is traced: the schedule of fewer samples computes the model, by
regions and by numbers, and is the schedule of the file at that batch. One that mixes them is an
obstacle, with the node's name.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from onnx import TensorProto

from autoturbo.graph.batch import rebatch, trace_batch
from autoturbo.graph.onnx_import import import_model
from autoturbo.schedule.knobs import Knobs
from autoturbo.schedule.pipeline import ModelScheduler, build_schedule
from autoturbo.verifier import verify_schedule
from tests.schedule.schedule_samples import target
from tests.verifier.verify_samples import Writer, saved

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from onnx import ModelProto

CHANNELS = 3

EXAMPLES = settings(
    deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=6
)


@dataclass(frozen=True)
class Pattern:
    """Which elements of every sample are picked, and how samples lie.

    A dimension has ``outer * batch * inner`` elements, sample ``b`` those whose middle digit is
    ``b``; ``picks`` are the outer and inner digits of what is picked of each sample.
    """

    batch: int
    outer: int
    inner: int
    picks: tuple[tuple[int, int], ...]
    samples: tuple[int, ...] = ()

    def indices(self) -> np.ndarray:
        """Positions, sample by sample: a matrix."""
        order = self.samples or tuple(range(self.batch))
        return np.array(
            [[(o * self.batch + b) * self.inner + i for o, i in self.picks] for b in order]
        )

    def tame(self, arranged: str = "b*k") -> bool:
        """Everything in order, or irregular only within a sample: sure to be traced.

        Not where what is irregular stands in front of the samples, in the same dimension.
        """
        if self.picks == tuple(product(range(self.outer), range(self.inner))):
            return True
        return arranged != "k*b" and len({outer for outer, _ in self.picks}) == 1

    @property
    def extent(self) -> int:
        return self.outer * self.batch * self.inner


ARRANGED: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "b k": lambda a: a,
    "b*k": lambda a: a.ravel(),
    "k b": lambda a: a.T,
    "k*b": lambda a: a.T.ravel(),
    "b 1 k": lambda a: a[:, None, :],
}
"""Dimensions of the indices: samples outermost or not, alone or merged."""


@st.composite
def patterns(draw: st.DrawFn) -> Pattern:
    batch, outer, inner = (draw(st.integers(*ends)) for ends in ((2, 6), (1, 2), (1, 4)))
    every = list(product(range(outer), range(inner)))
    picks = draw(
        st.one_of(st.just(every), st.lists(st.sampled_from(every), min_size=1, max_size=6))
    )
    return Pattern(batch, outer, inner, tuple(picks))


def spread(writer: Writer, pattern: Pattern) -> str:
    """The input with samples in the middle of its first dimension."""
    apart = writer.node("Transpose", "x", perm=[1, 0, 2, 3])
    return writer.node("Reshape", apart, writer.ints(pattern.extent, CHANNELS))


def finished(writer: Writer, value: str, pattern: Pattern) -> ModelProto:
    made = writer.node("Relu", value)
    shape = (pattern.batch, pattern.outer, pattern.inner, CHANNELS)
    model = writer.model({"x": shape}, {made: ()})
    model.graph.output[0].type.tensor_type.ClearField("shape")
    return model


def gathered(pattern: Pattern, arranged: str, dtype: type, negative: int) -> ModelProto:
    """Rows of a flattened tensor, some of the indices counted from the end."""
    writer = Writer()
    indices = ARRANGED[arranged](pattern.indices())
    turned = np.arange(indices.size).reshape(indices.shape) % 3 < negative
    indices = np.where(turned, indices - pattern.extent, indices).astype(dtype)
    rows = writer.node("Gather", spread(writer, pattern), writer.constant(indices), axis=0)
    return finished(writer, rows, pattern)


def gathered_tuples(pattern: Pattern, arranged: str) -> ModelProto:
    """Slices found by the sample and a position in it, as a mask is looked up."""
    writer, order = Writer(), pattern.samples or range(pattern.batch)
    pairs = np.array([[[o, b, i] for o, i in pattern.picks] for b in order])
    each = np.stack([ARRANGED[arranged](pairs[..., part]) for part in range(3)], axis=-1)
    apart = writer.node("Transpose", "x", perm=[1, 0, 2, 3])
    return finished(writer, writer.node("GatherND", apart, writer.constant(each)), pattern)


def gathered_elements(pattern: Pattern) -> ModelProto:
    """The same row for every channel."""
    writer = Writer()
    rows = np.repeat(pattern.indices().ravel()[:, None], CHANNELS, axis=1)
    value = writer.node("GatherElements", spread(writer, pattern), writer.constant(rows), axis=0)
    return finished(writer, value, pattern)


def check(
    model: ModelProto, folder: Path, clusters: int, at_once: int, *, sure: bool = True
) -> None:
    """The samples are told apart, and a schedule of some of them computes the model."""
    path = saved(model, folder / "net.onnx")
    graph = import_model(path)
    trace = trace_batch(graph)
    if trace.obstacle is not None:
        assert not sure, str(trace.obstacle)
        assert "indices" in str(trace.obstacle)
        return
    for batch in {1, at_once, graph.batch + 1}:
        ours, files = rebatch(graph, batch, trace), import_model(path, batch=batch)
        assert [t.shape for t in ours.tensors] == [t.shape for t in files.tensors]
        assert [o.inputs for o in ours.operators] == [o.inputs for o in files.operators]
    model_scheduler = ModelScheduler(graph, target(clusters=clusters), "float32")
    most = -(-graph.batch // min(clusters, graph.batch))
    schedule = build_schedule(model_scheduler, Knobs(batches_per_cluster=min(at_once, most)))
    assert schedule.share.copies == -(-graph.batch // most)
    found = verify_schedule(schedule, path=path, whole=True)
    assert [finding.message for finding in found.findings] == []
    assert found.numbers is not None
    assert found.numbers.skipped is None


def obstacle(model: ModelProto, folder: Path) -> str:
    return str(trace_batch(import_model(saved(model, folder / "net.onnx"))).obstacle)


SHARED = (st.integers(1, 4), st.integers(1, 3))


@pytest.mark.full
@EXAMPLES
@given(
    pattern=patterns(), arranged=st.sampled_from(list(ARRANGED)), negative=st.integers(0, 2),
    dtype=st.sampled_from([np.int32, np.int64]), clusters=SHARED[0], at_once=SHARED[1],
)  # fmt: skip
def test_rows_picked_alike_of_every_sample(
    tmp_path: Path, pattern: Pattern, arranged: str, negative: int, dtype: type, clusters: int,
    at_once: int,
) -> None:  # fmt: skip
    model = gathered(pattern, arranged, dtype, negative)
    check(model, tmp_path, clusters, at_once, sure=pattern.tame(arranged))


@pytest.mark.full
@EXAMPLES
@given(
    pattern=patterns(), arranged=st.sampled_from(list(ARRANGED)), clusters=SHARED[0],
    at_once=SHARED[1],
)  # fmt: skip
def test_tuples_with_the_sample_in_them(
    tmp_path: Path, pattern: Pattern, arranged: str, clusters: int, at_once: int
) -> None:
    sure = arranged != "k*b" or pattern.tame(arranged)
    check(gathered_tuples(pattern, arranged), tmp_path, clusters, at_once, sure=sure)


@pytest.mark.full
@EXAMPLES
@given(pattern=patterns(), clusters=SHARED[0], at_once=SHARED[1])
def test_elements_picked_alike_of_every_sample(
    tmp_path: Path, pattern: Pattern, clusters: int, at_once: int
) -> None:
    check(gathered_elements(pattern), tmp_path, clusters, at_once, sure=pattern.tame())


def mixed(pattern: Pattern, order: tuple[int, ...]) -> Pattern:
    return Pattern(pattern.batch, pattern.outer, pattern.inner, pattern.picks, order)


@EXAMPLES
@given(data=st.data(), pattern=patterns(), arranged=st.sampled_from(list(ARRANGED)))
def test_samples_in_another_order_are_an_obstacle(
    tmp_path: Path, data: st.DataObject, pattern: Pattern, arranged: str
) -> None:
    """Reversed, shifted, swapped, or one of them for all."""
    order = tuple(data.draw(st.lists(st.integers(0, pattern.batch - 1), min_size=pattern.batch,
                                     max_size=pattern.batch)))  # fmt: skip
    assume(order != tuple(range(pattern.batch)))
    other = mixed(pattern, order)
    for model in (gathered(other, arranged, np.int64, 0), gathered_tuples(other, arranged)):
        assert "indices" in obstacle(model, tmp_path)
    assert "indices" in obstacle(gathered_elements(other), tmp_path)


@EXAMPLES
@given(data=st.data(), pattern=patterns())
def test_one_sample_picked_otherwise_is_an_obstacle(
    tmp_path: Path, data: st.DataObject, pattern: Pattern
) -> None:
    """Every sample keeps to itself, but what is picked differs: there is no one smaller graph."""
    assume(pattern.outer * pattern.inner > 1)
    indices = pattern.indices()
    sample, place = (data.draw(st.integers(0, n - 1)) for n in indices.shape)
    others = pattern.outer * pattern.inner
    moved = [(o * pattern.batch + sample) * pattern.inner + i
             for o, i in product(range(pattern.outer), range(pattern.inner))]  # fmt: skip
    indices[sample, place] = moved[(moved.index(indices[sample, place]) + 1) % others]
    writer = Writer()
    rows = writer.node("Gather", spread(writer, pattern), writer.constant(indices), axis=0)
    assert "not alike for every sample" in obstacle(finished(writer, rows, pattern), tmp_path)


@EXAMPLES
@given(pattern=patterns(), clusters=SHARED[0], at_once=SHARED[1], split=st.booleans())
def test_cuts_at_whole_batches(
    tmp_path: Path, pattern: Pattern, clusters: int, at_once: int, *, split: bool
) -> None:
    """Two halves joined along the samples, as guidance does, and taken apart again."""
    writer, half = Writer(), pattern.extent
    value = spread(writer, pattern)
    both = writer.node("Concat", value, writer.node("Neg", value), axis=0)
    if split:
        first, second = "first", writer.node("Split", both, writer.ints(half, half), axis=0)
        writer.nodes[-1].output.insert(0, first)
    else:
        axes, steps = writer.ints(0), writer.ints(1)
        first, second = (
            writer.node("Slice", both, writer.ints(low), writer.ints(high), axes, steps)
            for low, high in ((0, half), (-half, 2**62))
        )
    check(finished(writer, writer.node("Sub", first, second), pattern), tmp_path, clusters, at_once)


def test_a_cut_inside_of_a_batch_is_an_obstacle(tmp_path: Path) -> None:
    pattern, writer = Pattern(4, 1, 1, ((0, 0),)), Writer()
    value = spread(writer, pattern)
    both = writer.node("Concat", value, value, axis=0)
    ends = writer.ints(1), writer.ints(5), writer.ints(0), writer.ints(1)
    assert "Slice" in obstacle(
        finished(writer, writer.node("Slice", both, *ends), pattern), tmp_path
    )


def test_a_constant_joined_to_the_samples_is_an_obstacle(tmp_path: Path) -> None:
    pattern, writer = Pattern(4, 1, 1, ((0, 0),)), Writer()
    more = writer.weight((4, CHANNELS), 1)
    joined = writer.node("Concat", spread(writer, pattern), more, axis=0)
    assert "Concat" in obstacle(finished(writer, joined, pattern), tmp_path)


@pytest.mark.full
@EXAMPLES
@given(pattern=patterns(), clusters=SHARED[0], at_once=SHARED[1], product_=st.booleans())
def test_constants_of_their_own_for_every_sample(
    tmp_path: Path, pattern: Pattern, clusters: int, at_once: int, *, product_: bool
) -> None:
    """Broadcast when the file was written, merged with what the samples are merged with."""
    writer = Writer()
    if product_:
        matrices = writer.weight((pattern.batch, pattern.outer, CHANNELS, pattern.inner), 1)
        value = writer.node("MatMul", matrices, "x")
    else:
        value = spread(writer, pattern)
        value = writer.node("Add", value, writer.weight((pattern.extent, CHANNELS), 1))
    check(finished(writer, value, pattern), tmp_path, clusters, at_once)


@pytest.mark.parametrize("size", [5_000, pytest.param(40_000, marks=pytest.mark.full)])
def test_long_indices_are_known_wherever_they_stand(tmp_path: Path, size: int) -> None:
    """Of more elements than shapes have: in the file, computed, and in integers of another form."""
    width = size // 8
    for spell in ("stored", "located", "computed", "varint"):
        writer = Writer()
        flat = writer.node("Reshape", "x", writer.ints(-1))
        numbers = np.arange(8 * width).reshape(8, width, 1, 1)
        name = writer.constant(numbers - (spell == "computed"))
        if spell == "located":
            writer.stored[-1].data_location = TensorProto.DEFAULT
        if spell == "varint":
            del writer.stored[-1].int64_data[:]
            writer.stored[-1].ClearField("raw_data")
            writer.stored[-1].int64_data.extend(numbers.ravel().tolist())
        if spell == "computed":
            name = writer.node("Add", name, writer.ints(1))
        made = writer.node("Gather", flat, name, axis=0)
        model = writer.model({"x": (8, width)}, {made: (8, width, 1, 1)})
        assert obstacle(model, tmp_path) == "None"
