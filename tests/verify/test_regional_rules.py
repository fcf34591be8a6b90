"""Parts of nodes beyond the operator table, how each is computed, and what is refused."""

from __future__ import annotations

import zlib
from dataclasses import replace

import numpy as np
import pytest
from operator_cases import CASES as TABLE
from operator_harness import Case, real
from part_cases import CASES
from regional_harness import Part, Whole, part_of, random_part, run_whole

from autoturbo.graph.domain import AxisKind, Region, volume
from autoturbo.verify.onnx_writer.partial_operator import RegionError
from autoturbo.verify.onnx_writer.restriction import Rule

REGIONS = 10


def _seeded(case: Case) -> np.random.Generator:
    return np.random.default_rng(zlib.crc32(case.label.encode()))


def _case(op: str, index: int = 0) -> Case:
    return [case for case in TABLE if case.op == op][index]


def _whole(case: Case) -> Whole:
    return run_whole(case, _seeded(case))


def _part(whole: Whole, region: Region) -> Part:
    """One part of the first output, nothing held but what it needs, no weights."""
    box = whole.described.operator.axis_region({0: region})
    part = part_of(whole, {0: region}, box, np.random.default_rng(0))
    reads = whole.described.reads(region)
    held = {
        i: reads[i] for i, given in enumerate(whole.case.inputs) if i in reads and callable(given)
    }
    return replace(part, held=held, weights=())


@pytest.mark.parametrize("case", CASES, ids=[case.label for case in CASES])
def test_a_part_is_the_region_of_the_whole(case: Case) -> None:
    rng = _seeded(case)
    whole = run_whole(case, rng)
    assert whole.described.spec.opaque is None
    for _ in range(REGIONS):
        random_part(whole, rng).check(rng)


_AT_LEAST = {
    "Attention", "AveragePool", "BatchNormalization", "Conv", "Einsum", "Gemm", "GlobalAveragePool",
    "GroupNormalization", "InstanceNormalization", "LayerNormalization", "MatMul", "MatMulInteger",
    "QLinearConv", "QLinearMatMul", "ReduceMean", "Relu", "Resize", "Softmax", "Transpose",
    "MatMulNBits", "SkipLayerNormalization", "QuantizeLinear", "DequantizeLinear", "Reshape",
    "Concat", "Slice", "Split", "Gather",
}  # fmt: skip


def _parts_of_parallel_axes(whole: Whole) -> list[Region]:
    """Per dimension of the first output, its two halves."""
    shape = whole.results[0].shape
    full = tuple((0, extent) for extent in shape)
    return [
        tuple(half if i == dim else all_ for i, all_ in enumerate(full))
        for dim, extent in enumerate(shape)
        if extent > 1
        for half in ((0, extent // 2), (extent // 2, extent))
    ]


_HEAVY = [case for case in TABLE if case.op in _AT_LEAST]


@pytest.mark.parametrize("case", _HEAVY, ids=[case.label for case in _HEAVY])
def test_common_operators_never_do_the_work_of_the_whole(case: Case) -> None:
    whole = _whole(case)
    for region in _parts_of_parallel_axes(whole):
        box = whole.described.operator.axis_region({0: region})
        axes = zip(whole.described.spec.axes, box, strict=True)
        if all(axis.kind is not AxisKind.PARALLEL or b == (0, axis.extent) for axis, b in axes):
            continue
        assert _part(whole, region).write()[1] is not Rule.EMBEDDED


_SPLIT = [case for case in TABLE if case.inputs and callable(case.inputs[0]) and case.op != "LRN"]


@pytest.mark.parametrize("case", _SPLIT, ids=[case.label for case in _SPLIT])
def test_a_held_region_one_element_too_small_is_refused(case: Case) -> None:
    whole = _whole(case)
    rng = _seeded(case)
    for _ in range(3):
        part = replace(random_part(whole, rng), weights=())
        reads = {i: r for i, r in _needed(part).items() if volume(r)}
        for position, need in ((i, r) for i, r in reads.items() if r):
            dim = int(rng.integers(0, len(need)))
            low, high = need[dim]
            less = (low + 1, high) if rng.random() < 0.5 else (low, high - 1)
            held = {**reads, position: (*need[:dim], less, *need[dim + 1 :])}
            with pytest.raises(RegionError, match=f"of i{position}"):
                replace(part, held=held).write()


def _needed(part: Part) -> dict[int, Region]:
    whole = part.whole
    operator, positions = whole.described.operator, whole.described.positions
    reads = {
        p: operator.input_region(i, part.box, whole.described.shape_in(p))
        for i, p in enumerate(positions)
    }
    return {p: region for p, region in reads.items() if callable(whole.case.inputs[p])}


def test_an_input_that_is_not_held_at_all_is_refused() -> None:
    part = _part(_whole(_case("Relu")), ((0, 1), (0, 3), (0, 5)))
    with pytest.raises(RegionError, match=r"Relu needs .* of i0; held is nothing"):
        replace(part, held={}).write()


def test_a_box_smaller_than_what_is_wanted_is_refused() -> None:
    part = _part(_whole(_case("Relu")), ((0, 1), (0, 3), (0, 5)))
    with pytest.raises(RegionError, match="of o0"):
        replace(part, box=((0, 1), (0, 2), (0, 5))).write()


def test_nothing_is_written_where_nothing_is_wanted() -> None:
    part = _part(_whole(_case("Relu")), ((0, 1), (0, 3), (0, 5)))
    builder, rule = replace(part, regions={0: ((0, 0),) * 3}).write()
    assert rule is Rule.NOTHING
    assert not builder.nodes


def test_the_whole_is_the_node_of_the_file() -> None:
    case = Case("Conv", (real(1, 2, 5, 5), real(3, 2, 3, 3)), {"auto_pad": "SAME_UPPER"})
    whole = _whole(case)
    builder, rule = _part(whole, tuple((0, extent) for extent in whole.results[0].shape)).write()
    assert rule is Rule.WHOLE
    (node,) = builder.nodes
    assert [a.name for a in node.attribute] == ["auto_pad"]
    assert (list(node.input), list(node.output)) == (["i0", "i1"], ["o0"])


@pytest.mark.parametrize("case", TABLE[::7], ids=[case.label for case in TABLE[::7]])
def test_equal_parts_are_equal_byte_for_byte(case: Case) -> None:
    whole = _whole(case)
    part = random_part(whole, _seeded(case))
    first, second = (
        [node.SerializeToString(deterministic=True) for node in part.write()[0].nodes]
        for _ in range(2)
    )
    assert first == second


def test_parts_of_equal_halo_are_equal() -> None:
    """Only positions within what is held count: two inner tiles share one function."""
    case = Case("Conv", (real(1, 2, 16, 4), real(3, 2, 3, 3)), {"pads": (1, 1, 1, 1)})
    whole = _whole(case)
    bodies = [
        _part(whole, ((0, 1), (0, 3), (low, low + 4), (0, 4))).write()[0].nodes for low in (4, 8)
    ]
    assert bodies[0] == bodies[1]


def test_one_group_is_convolved_alone() -> None:
    case = Case("Conv", (real(1, 4, 6, 6), real(6, 2, 3, 3), real(6)), {"group": 2})
    part = _part(_whole(case), ((0, 1), (4, 5), (0, 4), (0, 4)))
    builder, rule = part.write()
    convolution = next(node for node in builder.nodes if node.op_type == "Conv")
    groups = [a.i for a in convolution.attribute if a.name == "group"]
    assert (rule, groups) == (Rule.SLIDING_WINDOW, [1])
    assert part.held[0][1] == (2, 4)


def test_padding_is_explicit_at_the_edges_and_absent_inside() -> None:
    case = Case("Conv", (real(1, 1, 9, 9), real(1, 1, 3, 3)), {"auto_pad": "SAME_UPPER"})
    whole = _whole(case)
    pads = []
    for low, high in ((0, 3), (3, 6), (6, 9)):
        builder, _ = _part(whole, ((0, 1), (0, 1), (low, high), (0, 9))).write()
        node = next(node for node in builder.nodes if node.op_type == "Conv")
        pads.append(next(list(a.ints) for a in node.attribute if a.name == "pads"))
        assert not any(a.name == "auto_pad" for a in node.attribute)
    assert pads == [[1, 1, 0, 1], [0, 1, 0, 1], [0, 1, 1, 1]]
