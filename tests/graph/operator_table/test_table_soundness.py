"""What a row says is needed is enough: whatever lies outside of it does not change the result.

Each case runs a one-node model, picks regions of the output, draws anew everything outside of the
regions that the access maps name, and compares the region of the output.
"""

from __future__ import annotations

import collections
import zlib

import numpy as np
import pytest

from autoturbo.graph.domain import AxisKind, hull
from autoturbo.graph.operator_table import supported
from tests.graph.operator_table.operator_cases import CASES, GROUPS
from tests.graph.operator_table.operator_harness import (
    REGIONS,
    Array,
    Case,
    address,
    check_outside,
    describe_case,
    overlaps,
    shown_points,
    single,
)
from tests.tiers import spread


def _seeded(case: Case) -> np.random.Generator:
    return np.random.default_rng(zlib.crc32(case.label.encode()))


ENDS = [case for group in GROUPS.values() for case in (group[0], group[-1])]
"""Two rows of each kind."""


def test_every_row_has_a_case() -> None:
    covered = {f"{case.domain}.{case.op}" if case.domain else case.op for case in CASES}
    assert covered == set(supported())


@pytest.mark.parametrize("case", spread(ENDS, 2), ids=[case.label for case in ENDS])
def test_a_row_is_sound(case: Case) -> None:
    _check(case)


@pytest.mark.full
@pytest.mark.parametrize("kind", GROUPS)
def test_every_row_is_sound(kind: str) -> None:
    for case in GROUPS[kind]:
        try:
            _check(case)
        except AssertionError as error:
            error.add_note(case.label)
            raise


def _check(case: Case) -> None:
    check_outside(case, _seeded(case))
    _the_domain_addresses_every_output_element_once(case)
    _one_element_needs_one_point_of_each_parallel_axis(case)
    _tiles_cover_what_the_whole_needs(case)


def _the_domain_addresses_every_output_element_once(case: Case) -> None:
    described, _, results = describe_case(case, case.draw(_seeded(case)))
    if overlaps(described.spec):
        return
    points = shown_points(described.spec)
    for position, result in enumerate(results):
        access = described.spec.outputs[position]
        assert access is not None
        hits = collections.Counter(address(access, point) for point in points)
        inside = {i: n for i, n in hits.items() if all(p >= 0 for p in i) and _in(i, result)}
        assert set(inside) == set(np.ndindex(result.shape))
        if position == 0:
            assert set(inside.values()) <= {1}


def _in(index: tuple[int, ...], result: Array) -> bool:
    return all(p < extent for p, extent in zip(index, result.shape, strict=True))


def _one_element_needs_one_point_of_each_parallel_axis(case: Case) -> None:
    rng = _seeded(case)
    described, _, results = describe_case(case, case.draw(rng))
    if overlaps(described.spec) or len(results) > 1:
        return
    for _ in range(REGIONS):
        axes = described.operator.axis_region({0: single(results[0].shape, rng)})
        for axis, (low, high) in zip(described.spec.axes, axes, strict=True):
            assert high - low == (1 if axis.kind is AxisKind.PARALLEL else axis.extent)


def _tiles_cover_what_the_whole_needs(case: Case) -> None:
    described, _, results = describe_case(case, case.draw(_seeded(case)))
    shape = results[0].shape
    everything = tuple((0, extent) for extent in shape)
    wanted = described.reads(everything)
    for dim, extent in enumerate(shape):
        if extent < 2:
            continue
        cut = extent // 2
        tiles = [
            tuple(part if i == dim else whole for i, whole in enumerate(everything))
            for part in ((0, cut), (cut, extent))
        ]
        first, second = (described.reads(tile) for tile in tiles)
        for position, region in wanted.items():
            assert hull(first[position], second[position]) == region
