"""Sets of layers that are alike: what is found out about one holds for the other."""

from __future__ import annotations

import dataclasses

import pytest

from autoturbo.graph.operators import Graph
from autoturbo.schedule.context import make_context
from autoturbo.schedule.knobs import Knobs
from autoturbo.schedule.partition.grouping import GroupRules, SubGraph, group
from autoturbo.schedule.partition.isomorphism import first_alike
from autoturbo.schedule.pipeline import build_schedule, rules_of
from autoturbo.schedule.place.instances import PartBook, part_shape
from autoturbo.schedule.stitch.templates import known_templates, stitch
from autoturbo.simulator.isolated import Bound, isolated_kernels, lay_out
from autoturbo.simulator.plan import part_row
from tests.schedule.schedule_samples import Net, scheduler_of, target

SETTINGS = (
    Knobs(),
    Knobs(max_layers=4),
    Knobs(max_layers=1, lb_occupancy_limit=0.5),
    Knobs(merged_factor_ratio=8, merge_order="diamond-branch-straight", lb_occupancy_limit=0.75),
)


@pytest.mark.full
@pytest.mark.parametrize(("workload", "least"), [("bert_base_s128", 4), ("mobilenet_v2", 1.1)])
def test_what_is_alike_takes_the_same(workload: str, least: float) -> None:
    """To the last bit, and there are several of each: otherwise nothing is gained."""
    model_scheduler = scheduler_of(workload)
    context = model_scheduler.context(model_scheduler.batch_choices()[0])
    grouped = (group(context, GroupRules.of(knobs)) for knobs in SETTINGS)
    own = {s.layers: SubGraph(0, s.layers, s.split) for each in grouped for s in each}
    subgraphs = list(own.values())
    kinds = [(first_alike(context, s.layers), *s.split.axes) for s in subgraphs]
    assert len(kinds) > least * len(set(kinds))
    # each in a problem of its own, which knows of no other
    statistics = [part_row(dataclasses.replace(context), s) for s in subgraphs]
    rules, cores = [rules_of(context, Knobs())] * 2, context.target.cores
    bound = [[Bound(s, own, None) for own in (cores, 3)] for s in subgraphs]
    books = [PartBook(dataclasses.replace(context)) for _ in bound]
    takes = [
        isolated_kernels(book.context, lay_out(book, own), rules).tolist()
        for book, own in zip(books, bound, strict=True)
    ]
    first: dict[tuple[object, ...], int] = {}
    for at, kind in enumerate(kinds):
        like = first.setdefault(kind, at)
        assert statistics[at] == statistics[like]
        assert takes[at] == takes[like]


@pytest.mark.parametrize(
    ("workload", "least"),
    [("bert_base_s128", 20), pytest.param("mobilenet_v2", 2, marks=pytest.mark.full)],
)
def test_a_template_taken_from_an_isomorphic_subgraph_is_as_if_stitched(
    workload: str, least: int
) -> None:
    model_scheduler, taken = scheduler_of(workload), 0
    for knobs in SETTINGS:
        book = build_schedule(model_scheduler, knobs).instances.book
        for (shape, binding, limit), own in known_templates(book).items():
            taken += book.alike[shape] != shape
            layers, part = book.shapes[shape].layers, part_shape(book, shape)
            made = stitch(book.context, layers, part, binding, limit)
            assert (own.stages == made.stages).all()
            for name in {f.name for f in dataclasses.fields(made)} - {"stages"}:
                assert getattr(own, name) == getattr(made, name)
    assert taken > least


def firsts_of(graph: Graph, *sets: tuple[str, ...]) -> list[tuple[int, ...]]:
    """What sets of layers by name are alike with."""
    context = make_context(graph, target(lb=1 << 16), "float16")
    place = {layer.name: layer.index for layer in context.layers}
    return [first_alike(context, tuple(place[name] for name in names)) for names in sets]


def test_sets_differ_by_shapes_operators_and_connections_not_by_names() -> None:
    net = Net(x=(2, 4, 8, 8))
    first = net.conv("x", 4)
    second = net.conv(net.conv(net.conv(first, 4), 4), 4)
    net.conv(net.conv(second, 6), 6, 1)
    found = firsts_of(
        net.graph(), ("conv0",), ("conv1",), ("conv2",), ("conv3",), ("conv4",), ("conv5",),
        ("conv1", "conv2"), ("conv2", "conv3"),
    )  # fmt: skip
    given, one, two, three, wider, pointwise, pair, other = found
    assert one == two == three
    assert pair == other
    assert len({given, one, wider, pointwise, pair}) == 5  # conv0 reads what is given


def test_what_is_read_outside_or_leaves_the_model_is_something_else() -> None:
    net = Net(x=(2, 4, 8, 8))
    at = net.conv("x", 4)
    for _ in range(5):
        at = net.conv(at, 4)
    net.softmax("conv1")
    pairs = [(f"conv{at}", f"conv{at + 1}") for at in range(1, 5)]
    outside, one, two, leaving = firsts_of(net.graph(), *pairs)
    assert one == two
    assert len({outside, one, leaving}) == 3


@pytest.mark.full
def test_how_layers_of_a_set_are_connected_matters() -> None:
    net = Net(x=(2, 4, 8, 8))
    at = net.conv("x", 4)
    for first in (True, True, False, True, True, True):
        left = net.conv(at, 4)
        right = net.conv(left, 4)
        at = net.conv(net.sum(*((right, left) if first else (left, right))), 4)
    names = [tuple(f"conv{at + n}" for n in range(3)) for at in (4, 7, 13)]
    one, other, again = firsts_of(net.graph(), *names)
    assert one == again
    assert one != other


@pytest.mark.full
def test_the_order_of_inputs_matters() -> None:
    net = Net(x=(2, 6, 8))
    a, b = net.linear("x", 8), net.softmax("x")
    net.concat(
        2, net.matmul(a, net.transpose(b, 0, 2, 1)), net.matmul(b, net.transpose(a, 0, 2, 1))
    )
    context = make_context(net.graph(), target(lb=1 << 16), "float16")
    products = [x.name for x in context.layers if x.name.startswith("matmul")]
    one, two = firsts_of(net.graph(), *((name,) for name in products if name != "matmul0"))
    assert one != two
