"""PartitionTuner's branches and its dynamic programme, on costs made by hand."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoturbo.baselines.partition_tuner import partition_tuner, profiled, static
from autoturbo.graph.layers import Layer, layers_of
from autoturbo.graph.operators import Graph
from autoturbo.hardware.machine import Machine
from autoturbo.hardware.machine_files import load_machine
from autoturbo.heterogeneous.parts import branches_of


def test_a_chain_is_one_branch() -> None:
    (branch,) = branches_of([[], [0], [1]])
    assert branch.layers == (0, 1, 2)
    assert branch.beside == (0,)


def test_branches_between_a_fork_and_a_join_are_beside_each_other() -> None:
    # 0 -> (1 -> 2), (3), 4 reads 2 and 3
    found = branches_of([[], [0], [1], [0], [2, 3]])
    assert [b.layers for b in found] == [(0,), (1, 2), (3,), (4,)]
    assert [b.beside for b in found] == [(0,), (1, 2), (1, 2), (3,)]


@pytest.mark.full
def test_a_shortcut_is_no_branch() -> None:
    # 0 -> 1 -> 2, and 2 reads 0 as well: only one branch lies between
    found = branches_of([[], [0], [0, 1]])
    assert [b.layers for b in found] == [(0,), (1,), (2,)]
    assert all(len(b.beside) == 1 for b in found)


@given(st.data())
def test_branches_hold_every_layer_once_and_in_order(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 12))
    producers = [
        sorted(data.draw(st.sets(st.integers(0, layer - 1), max_size=2))) if layer else []
        for layer in range(count)
    ]
    found = branches_of(producers)
    assert sorted(x for b in found for x in b.layers) == list(range(count))
    for branch in found:
        for one, two in itertools.pairwise(branch.layers):
            assert producers[two] == [one]


Times = dict[tuple[int, tuple[int, ...]], float]


@dataclass
class HandMade:
    """Costs of a chain by hand: seconds by unit and layers, the same price for every handover."""

    graph: Graph
    times: Times
    price: float
    npu: set[int]
    machine: Machine = field(default_factory=lambda: load_machine("zcu102-vta"))

    @property
    def layers(self) -> tuple[Layer, ...]:
        return layers_of(self.graph)

    @property
    def units(self) -> tuple[tuple[int, ...], ...]:
        return tuple((0, 1) if i in self.npu else (0,) for i in range(len(self.layers)))

    def seconds(self, unit: int, layers: Sequence[int]) -> float:
        return self.times.get((unit, tuple(layers)), float(len(layers) * (10 if unit == 0 else 4)))

    def handover(self, first: int, second: int, layer: int) -> float:
        del first, second, layer
        return self.price


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    """Four convolutions in a row, each a layer."""
    import onnx
    from onnx import TensorProto, helper

    from autoturbo.graph.onnx_import import import_model

    nodes, weights = [], []
    for i in range(4):
        value = helper.make_tensor(f"w{i}", TensorProto.FLOAT, [16, 16, 1, 1], [0.0] * 256)
        weights.append(value)
        nodes.append(helper.make_node("Conv", [f"x{i}", f"w{i}"], [f"x{i + 1}"], f"c{i}"))
    shape = [1, 16, 8, 8]
    ends = [helper.make_tensor_value_info(f"x{i}", TensorProto.FLOAT, shape) for i in (0, 4)]
    graph = helper.make_graph(nodes, "chain", ends[:1], ends[1:], weights)
    file: Path = tmp_path_factory.mktemp("chain") / "chain.onnx"
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=8), str(file))
    return import_model(file)


def test_by_type_everything_that_may_goes_to_the_other_unit(chain: Graph) -> None:
    costs = HandMade(chain, {}, 100.0, {1, 3})
    assert static(costs).units == (0, 1, 0, 1)


def test_a_layer_goes_there_and_back_only_where_that_pays(chain: Graph) -> None:
    # on the NPU the two in the middle take 4 instead of 10 each; there and back costs twice
    assert profiled(HandMade(chain, {}, 2.0, {1, 2})).units == (0, 1, 1, 0)
    assert profiled(HandMade(chain, {}, 4.0, {1, 2})).units == (0, 0, 0, 0)


@pytest.mark.full
def test_a_group_that_is_faster_than_its_layers_is_taken(chain: Graph) -> None:
    together: Times = {(0, (1, 2)): 5.0}
    found = partition_tuner(HandMade(chain, together, 100.0, set()))
    assert [part.layers for part in found.parts] == [(0,), (1, 2), (3,)]
    slower: Times = {(0, (1, 2)): 25.0}
    found = partition_tuner(HandMade(chain, slower, 100.0, set()))
    assert [part.layers for part in found.parts] == [(0,), (1,), (2,), (3,)]


@given(
    st.dictionaries(st.tuples(st.integers(0, 1), st.integers(0, 3)), st.integers(1, 20)),
    st.dictionaries(
        st.tuples(
            st.integers(0, 1), st.sampled_from([(0, 1), (1, 2), (2, 3), (0, 1, 2), (1, 2, 3)])
        ),
        st.integers(1, 40),
    ),
    st.integers(0, 10),
    st.sets(st.integers(0, 3)),
)
def test_the_dynamic_programme_finds_the_best_way_along_a_branch(
    chain: Graph,
    singles: dict[tuple[int, int], int],
    groups: dict[tuple[int, tuple[int, ...]], int],
    price: int,
    npu: set[int],
) -> None:
    times: Times = {(u, (i,)): float(t) for (u, i), t in singles.items()}
    times |= {key: float(t) for key, t in groups.items()}
    costs = HandMade(chain, times, float(price), npu)
    found = partition_tuner(costs)
    units = list(found.units)
    heads = {part.layers[0] for part in found.parts}
    assert price_of(costs, units, heads) == pytest.approx(
        min(
            price_of(costs, list(u), set(h) | {0})
            for u in itertools.product((0, 1), repeat=4)
            if all(u[i] in costs.units[i] for i in range(4))
            for count in range(4)
            for h in itertools.combinations((1, 2, 3), count)
        )
    )


def price_of(costs: HandMade, units: list[int], heads: set[int]) -> float:
    """What the paper counts for a chain cut at some layers; groups of more than three are none."""
    total, at = 0.0, 0
    while at < 4:
        end = next((i for i in range(at + 1, 4) if i in heads), 4)
        group = list(range(at, end))
        if len({units[i] for i in group}) > 1 or len(group) > 3:
            return float("inf")
        single = sum(costs.seconds(units[at], [i]) for i in group)
        own = costs.seconds(units[at], group)
        total += min(own, single)
        total += 2 * costs.price if at and units[at] != units[at - 1] else 0.0
        at = end
    return total
