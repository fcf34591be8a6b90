"""DLFusion's core model and strategies on made-up costs, and on synthesised layers."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoturbo.baselines.dlfusion import (
    STRATEGIES,
    Block,
    CoreModel,
    LayerFigures,
    Sample,
    allowed_cores,
    best_blocks,
    fit,
    total,
)
from autoturbo.baselines.dlfusion_blocks import convolution, fused_seconds
from autoturbo.graph.domain import Region
from autoturbo.hardware import load_target

ALLOWED = (1, 2, 4)


@dataclass
class HandMade:
    """Costs by table; a block that the table lacks takes its layers' number."""

    times: dict[tuple[int, int, int], float]
    figures: tuple[LayerFigures, ...]
    cores: int = 4

    def seconds(self, first: int, end: int, cores: int) -> float:
        return self.times.get((first, end, cores), float(end - first))


def layers(*operations: float) -> tuple[LayerFigures, ...]:
    return tuple(LayerFigures(o, 64) for o in operations)


def model(**changes: float) -> CoreModel:
    values = {"constant": 0.0, "by_operations": 0.0, "by_channels": 0.0, "critical": 10.0}
    values |= changes
    return CoreModel(**values, allowed=ALLOWED)


BLOCKS = st.dictionaries(
    st.tuples(st.integers(0, 3), st.integers(1, 4), st.sampled_from(ALLOWED)),
    st.integers(0, 20),
)


@given(BLOCKS, st.integers(1, 4))
def test_the_brute_force_finds_the_best_row_of_blocks(
    table: dict[tuple[int, int, int], int], longest: int
) -> None:
    costs = HandMade({key: float(t) for key, t in table.items()}, layers(1, 1, 1, 1))
    found = best_blocks(costs, longest)
    everything = []
    for count in range(4):
        for cuts in itertools.combinations((1, 2, 3), count):
            ends = [*cuts, 4]
            spans = list(zip([0, *cuts], ends, strict=True))
            if all(end - first <= longest for first, end in spans):
                everything += [
                    [Block(a, b, c) for (a, b), c in zip(spans, cores, strict=True)]
                    for cores in itertools.product(ALLOWED, repeat=len(spans))
                ]
    assert total(costs, found) == min(total(costs, blocks) for blocks in everything)


@given(st.lists(st.integers(1, 40), min_size=1, max_size=12), st.sampled_from(sorted(STRATEGIES)))
def test_every_strategy_covers_all_layers_in_order(operations: list[int], name: str) -> None:
    costs = HandMade({}, layers(*operations))
    blocks = STRATEGIES[name](costs, model(constant=1.0))
    assert [i for block in blocks for i in range(block.first, block.end)] == list(
        range(len(operations))
    )
    assert all(block.cores in ALLOWED for block in blocks)


def test_a_block_closes_when_its_cores_have_enough_to_do() -> None:
    costs = HandMade({}, layers(4, 4, 4, 4, 4))
    # one core each: 12 operations pass the critical 10
    found = STRATEGIES["dlfusion"](costs, model())
    assert [(b.first, b.end, b.cores) for b in found] == [(0, 3, 1), (3, 5, 1)]
    # two cores have half as much to do each
    found = STRATEGIES["dlfusion"](costs, model(constant=1.0))
    assert [(b.first, b.end, b.cores) for b in found] == [(0, 5, 2)]


def test_the_model_finds_the_plane_that_made_the_samples() -> None:
    samples = []
    for power, channels in itertools.product(range(4, 11, 2), (16, 64)):
        best = power // 2 - 2  # log2 of the best number: 0 to 3
        for cores in (1, 2, 4, 8):
            short = max(best - round(math.log2(cores)), 0)
            samples.append(Sample(LayerFigures(2.0**power, channels), cores, 2.0**short))
    found = fit(samples, (1, 2, 4, 8))
    assert found.by_operations == pytest.approx(0.5)
    assert found.by_channels == pytest.approx(0.0, abs=1e-9)
    assert found.cores(LayerFigures(2.0**8, 32)) == 4
    assert found.cores(LayerFigures(2.0**30, 32)) == 8


@pytest.mark.full
def test_allowed_numbers_are_powers_of_two() -> None:
    assert allowed_cores(32) == (1, 2, 4, 8, 16, 32)
    assert allowed_cores(12) == (1, 2, 4, 8)


def test_more_cores_help_a_large_layer_and_not_a_small_one() -> None:
    target = load_target("mlu100")
    large, little = convolution(256, 56), convolution(16, 7)
    assert large.macs == 256 * 256 * 9 * 56 * 56
    assert fused_seconds(large, target, "float16", 1) > 8 * fused_seconds(
        large, target, "float16", 32
    )
    assert fused_seconds(little, target, "float16", 1) < 1.1 * fused_seconds(
        little, target, "float16", 32
    )


HALOS = {
    (56, 4): (1.07, 1.21),
    (28, 32): (2.00, 4.00),
}
"""Rows and strips: work of two and of four fused 3 x 3 convolutions over that of unfused ones
(Alwani et al., MICRO '16, as baselines.md, section 2, works it out)."""


@pytest.mark.full
@pytest.mark.parametrize(("size", "strips"), [(56, 4), (28, 32)])
def test_fused_strips_recompute_their_halo(size: int, strips: int) -> None:
    operator = convolution(16, size).operators[0]
    shape = (1, 16, size, size)
    rows = -(-size // strips)
    first = (size // 2 // rows) * rows  # a strip in the middle, which no border cuts short
    region: Region = ((0, 1), (0, 16), (first, first + rows), (0, size))
    work = []
    for _ in range(4):
        axes = operator.axis_region({0: region})
        work.append(math.prod(high - low for low, high in axes))
        region = operator.input_region(0, axes, shape)
    two, four = sum(work[:2]) / (2 * work[0]), sum(work) / (4 * work[0])
    assert region[2] == (first - 4, first + rows + 4)
    assert (round(two, 2), round(four, 2)) == HALOS[size, strips]
