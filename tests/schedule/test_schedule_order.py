"""Algorithm 3 and the other orders, on the paper's example and at random."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoturbo.schedule.knobs import Knobs
from autoturbo.schedule.partition.grouping import GroupRules, group
from autoturbo.schedule.place.instances import PartBook, make_instances
from autoturbo.schedule.place.order import (
    breadth_first,
    depth_first,
    footprint_first,
    live_peak,
    order_instances,
    output_sizes,
)
from tests.schedule.schedule_samples import scheduler_of
from tests.schedule.steps import instance_of

NAMES = [
    f"{letter}{n}"
    for letter, count in (("a", 8), ("b", 4), ("c", 2), ("d", 1))
    for n in range(1, count + 1)
]
FIG_6 = {"b": ("a", 2), "c": ("b", 2), "d": ("c", 2)}
FIG_7F = "a8 a7 b4 a6 a5 b3 c2 a4 a3 b2 a2 a1 b1 c1 d1"


def figure_6() -> tuple[list[list[int]], list[list[int]]]:
    """Producers and consumers: every instance reads two of the stage before."""
    producers: list[list[int]] = []
    for name in NAMES:
        before, count = FIG_6.get(name[0], ("", 0))
        first = (int(name[1:]) - 1) * count + 1
        producers.append([NAMES.index(f"{before}{first + i}") for i in range(count)])
    return producers, inverted(producers)


def inverted(producers: list[list[int]]) -> list[list[int]]:
    consumers: list[list[int]] = [[] for _ in producers]
    for reader, made_by in enumerate(producers):
        for instance in made_by:
            consumers[instance].append(reader)
    return consumers


@st.composite
def dags(draw: st.DrawFn) -> list[list[int]]:
    """Producers of each node of a random acyclic graph whose numbers are shuffled."""
    count = draw(st.integers(1, 12))
    names = draw(st.permutations(range(count)))
    producers: list[list[int]] = [[] for _ in range(count)]
    for reader in range(1, count):
        chosen = draw(st.sets(st.integers(0, reader - 1), max_size=3))
        producers[names[reader]] = sorted(names[c] for c in chosen)
    return producers


def literal_depth_first(producers: list[list[int]], consumers: list[list[int]]) -> list[int]:
    """Algorithm 3 word for word: scan the list from its end."""
    waits = [len(p) for p in producers]
    ready = [i for i, w in enumerate(waits) if not w]
    order: list[int] = []
    while ready:
        instance = next(i for i in reversed(ready) if not waits[i])
        ready.remove(instance)
        order.append(instance)
        for reader in consumers[instance]:
            waits[reader] -= 1
            if reader not in ready:
                ready.append(reader)
    return order


def test_depth_first_gives_figure_7f() -> None:
    order = depth_first(*figure_6())
    assert " ".join(NAMES[i] for i in order) == FIG_7F


def test_depth_first_follows_the_first_visit() -> None:
    producers, consumers = figure_6()
    visit = list(range(7, -1, -1)) + list(range(8, 15))
    order = [NAMES[i] for i in depth_first(producers, consumers, visit)]
    assert order[:4] == ["a1", "a2", "b1", "a3"]


def test_breadth_first_goes_stage_by_stage() -> None:
    assert [NAMES[i] for i in breadth_first(*figure_6())] == NAMES


def test_footprint_takes_the_largest_that_waits_for_nothing() -> None:
    producers = [[], [], [0], [1]]
    order = footprint_first(producers, inverted(producers), [1, 5, 9, 2])
    assert order == [1, 3, 0, 2]


@settings(max_examples=60, deadline=None)
@given(producers=dags(), data=st.data())
def test_every_order_is_topological(producers: list[list[int]], data: st.DataObject) -> None:
    consumers = inverted(producers)
    weights = data.draw(
        st.lists(st.integers(0, 9), min_size=len(producers), max_size=len(producers))
    )
    for order in (
        depth_first(producers, consumers),
        breadth_first(producers, consumers),
        footprint_first(producers, consumers, weights),
    ):
        place = {instance: at for at, instance in enumerate(order)}
        assert sorted(order) == list(range(len(producers)))
        assert all(place[p] < place[i] for i, ps in enumerate(producers) for p in ps)


@settings(max_examples=60, deadline=None)
@given(producers=dags())
def test_the_heap_gives_the_printed_order(producers: list[list[int]]) -> None:
    """Consumers go to the end of the list once, when their first producer has run."""
    consumers = inverted(producers)
    assert depth_first(producers, consumers) == literal_depth_first(producers, consumers)


@settings(max_examples=100, deadline=None)
@given(producers=dags(), data=st.data())
def test_live_peak_against_a_walk(producers: list[list[int]], data: st.DataObject) -> None:
    consumers = inverted(producers)
    sizes = data.draw(st.lists(st.integers(0, 9), min_size=len(producers), max_size=len(producers)))
    order = depth_first(producers, consumers)
    place = {instance: at for at, instance in enumerate(order)}
    last = [max((place[c] for c in consumers[i]), default=place[i]) for i in range(len(order))]
    peak = max(
        sum(sizes[i] for i in order if place[i] <= at <= last[i]) for at in range(len(order))
    )
    assert live_peak(order, consumers, sizes) == peak


@pytest.mark.full
def test_live_peak_of_the_paper() -> None:
    """ResNet-50, 16 images, FP16: 13.8 MiB breadth-first against 7.7 MiB depth-first (4.2)."""
    context = scheduler_of("resnet50").context(16)
    graph = make_instances(PartBook(context), group(context, GroupRules.of(Knobs())))
    sizes = output_sizes(graph)
    deep = live_peak(depth_first(graph.producers, graph.consumers), graph.consumers, sizes)
    wide = live_peak(breadth_first(graph.producers, graph.consumers), graph.consumers, sizes)
    assert deep / 2**20 == pytest.approx(7.66, abs=0.05)
    assert wide / 2**20 == pytest.approx(13.78, abs=0.05)
    assert order_instances(graph, "auto") == order_instances(graph, "dfs")


@pytest.mark.full
@pytest.mark.parametrize("rule", ["auto", "bfs"])
def test_rules_on_resnet(rule: str) -> None:
    context = scheduler_of("resnet50").context(16)
    graph = make_instances(PartBook(context), group(context, GroupRules.of(Knobs())))
    order = order_instances(graph, rule)
    assert sorted(order) == list(range(15))
    if rule == "bfs":
        assert list(order) == list(range(15))


@pytest.mark.full
def test_output_sizes_are_bytes_of_the_parts() -> None:
    context = scheduler_of("resnet50").context(16)
    graph = make_instances(PartBook(context), group(context, GroupRules.of(Knobs())))
    by_stage = {instance_of(graph, i).subgraph: s for i, s in enumerate(output_sizes(graph))}
    shapes = (2 * 28 * 28 * 512, 4 * 14 * 14 * 1024, 8 * 7 * 7 * 2048, 16 * 1000)
    assert by_stage == {stage: 2 * elements for stage, elements in enumerate(shapes)}
