"""Factorisation of reshapes: both sides address the same element, whatever the shapes."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoturbo.graph.domain import AxisKind, volume
from autoturbo.graph.operator_table.build import Domain
from autoturbo.graph.operator_table.layout import factorise
from tests.graph.operator_table.operator_harness import (
    Described,
    address,
    node,
    random_region,
    shown_points,
    slices,
)
from tests.tiers import spread

Shape = tuple[int, ...]


def _described(source: Shape, target: Shape) -> Described:
    described = Described(node("Reshape", [source, np.array(target)], [target]))
    assert described.spec.opaque is None
    return described


def _grouped(factors: list[int], cuts: list[int]) -> Shape:
    ends = [0, *sorted(cuts), len(factors)]
    return tuple(math.prod(factors[a:b]) for a, b in itertools.pairwise(ends))


@st.composite
def grouped_pairs(draw: st.DrawFn) -> tuple[Shape, Shape]:
    """Two groupings of the same factors in the same order: always factorisable."""
    factors = draw(st.lists(st.integers(1, 4), min_size=1, max_size=6))
    cut = st.lists(st.integers(0, len(factors)), max_size=4)
    return _grouped(factors, draw(cut)), _grouped(factors, draw(cut))


@st.composite
def any_pairs(draw: st.DrawFn) -> tuple[Shape, Shape]:
    """The same factors in another order: of equal volume, factorisable or not."""
    factors = draw(st.lists(st.integers(1, 5), min_size=1, max_size=5))
    other = draw(st.permutations(factors))
    cut = st.lists(st.integers(0, len(factors)), max_size=4)
    return _grouped(factors, draw(cut)), _grouped(list(other), draw(cut))


@settings(max_examples=300, deadline=None)
@given(pair=st.one_of(grouped_pairs(), any_pairs()))
def test_both_sides_address_the_same_flat_element(pair: tuple[Shape, Shape]) -> None:
    source, target = pair
    described = _described(source, target)
    read, written = described.spec.inputs[0], described.spec.outputs[0]
    assert read is not None
    assert written is not None
    points = shown_points(described.spec)
    assert len({address(written, point) for point in points}) == len(points) == math.prod(target)
    if any(kind != "parallel" for kind in described.kinds()):
        return
    for point in points:
        left = np.ravel_multi_index(address(read, point), source)
        assert left == np.ravel_multi_index(address(written, point), target)


@settings(max_examples=200, deadline=None)
@given(pair=grouped_pairs())
def test_groupings_of_the_same_factors_split_entirely(pair: tuple[Shape, Shape]) -> None:
    kinds = set(_described(*pair).kinds())
    chain = _is_chain(*pair)
    assert (kinds <= {"parallel"}) == chain


def _is_chain(source: Shape, target: Shape) -> bool:
    """Whether strides of both shapes divide each other in order: a common refinement exists."""
    strides = sorted(
        {math.prod(shape[i:]) for shape in (source, target) for i in range(len(shape) + 1)}
    )
    return all(large % small == 0 for small, large in itertools.pairwise(strides))


@settings(max_examples=300, deadline=None)
@given(pair=any_pairs(), seed=st.integers(0, 2**16))
def test_regions_hold_every_element_that_the_output_copies(
    pair: tuple[Shape, Shape], seed: int
) -> None:
    source, target = pair
    described = _described(source, target)
    flat = np.arange(math.prod(source))
    region = random_region(target, np.random.default_rng(seed))
    wanted = flat.reshape(target)[slices(region)]
    read = described.reads(region)[0]
    held = flat.reshape(source)[slices(read)]
    assert np.isin(wanted, held).all()
    assert volume(read) == held.size


@pytest.mark.parametrize(
    ("source", "target", "parallel", "others"),
    spread(
        [
            ((2, 8, 12), (2, 8, 3, 4), [2, 8, 3, 4], []),
            ((16, 12), (2, 8, 12), [2, 8, 12], []),
            ((2, 6, 5, 5), (2, 2, 3, 5, 5), [2, 2, 3, 5, 5], []),
            ((4, 1, 6), (4, 6), [4, 6], []),
            ((1, 1), (), [], []),
            ((6, 4), (4, 6), [2], [("w1", 3), ("w2", 2), ("w3", 6)]),
            ((2, 3, 5), (2, 5, 3), [2], [("w1", 5), ("w2", 3)]),
            ((2, 3, 5, 7), (2, 5, 3, 7), [2, 7], [("w1", 5), ("w2", 3)]),
            ((8, 3, 5), (40, 3), [8], [("w1", 5), ("w2", 3)]),
        ],
        3,
    ),
)
def test_axes(
    source: Shape, target: Shape, parallel: list[int], others: list[tuple[str, int]]
) -> None:
    domain = Domain()
    factorise(source, target, domain)
    split = [axis.extent for axis in domain.axes if axis.kind is AxisKind.PARALLEL]
    held = [(axis.name, axis.extent) for axis in domain.axes if axis.kind is not AxisKind.PARALLEL]
    assert split == parallel
    assert held == others


@settings(max_examples=200, deadline=None)
@given(pair=grouped_pairs(), seed=st.integers(0, 2**16))
def test_an_aligned_part_needs_a_part_of_its_own_size(pair: tuple[Shape, Shape], seed: int) -> None:
    """One position of the outermost dimension that has any is a contiguous part of the source."""
    source, target = pair
    described = _described(source, target)
    if any(kind != "parallel" for kind in described.kinds()):
        return
    outer = next((i for i, extent in enumerate(target) if extent > 1), None)
    if outer is None:
        return
    at = seed % target[outer]
    region = tuple((at, at + 1) if i == outer else (0, e) for i, e in enumerate(target))
    read = described.reads(region)[0]
    assert volume(read) == volume(region)
