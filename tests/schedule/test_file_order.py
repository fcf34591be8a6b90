"""A file's order of nodes and its names decide nothing but names, unless a knob asks for it."""

from __future__ import annotations

import json
import random
import tempfile
from pathlib import Path
from typing import Any

import onnx
import onnx.parser
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from autoturbo import tune
from autoturbo.graph.layers import layers_of, places_of
from autoturbo.graph.onnx_import import import_model
from autoturbo.graph.operators import Graph
from autoturbo.hardware import Target
from autoturbo.registry import SCHEDULERS
from autoturbo.schedule.by_name import candidates
from autoturbo.schedule.files import load_schedule
from autoturbo.schedule.knobs import Knobs
from autoturbo.schedule.pipeline import ModelScheduler, build_schedule
from autoturbo.schedule.schedule import Schedule
from autoturbo.search.space import Space
from autoturbo.verifier import verify_schedule
from tests.schedule.schedule_checks import check_schedule
from tests.schedule.schedule_samples import Net, nets, target, targets

FEW = settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
ORDERS = ("auto", "branches", "path")
SMALL = target(cores=4, lb=8192, gb=1 << 14)


@st.composite
def branched(draw: st.DrawFn) -> Net:
    """Random networks in which some values go through equal branches, which meet again or leave."""
    net = draw(nets(5))
    made = [node.output[0] for node in net.nodes]
    for _ in range(draw(st.integers(0, 2))):
        at = draw(st.sampled_from(made))
        wide = net.shapes[at][1 if len(net.shapes[at]) == 4 else -1]
        depth, shared = draw(st.integers(1, 2)), draw(st.booleans())
        ends = []
        for _ in range(draw(st.integers(2, 4))):
            end = at
            for _ in range(depth):
                end = net.relu(
                    net.conv(end, wide) if len(net.shapes[at]) == 4 else _dense(net, end)
                )
            ends.append(net.sum(end, at) if shared else end)
        made.append(
            net.concat(1, *ends) if draw(st.booleans()) else net.add("Sum", ends, net.shapes[at])
        )
    return net


def _dense(net: Net, x: str) -> str:
    return net.linear(x, net.shapes[x][-1])


def heads(number: int = 3) -> Net:
    """Attention with a product of its own for every head's queries, keys and values."""
    net = Net(x=(2, 4, 8))
    ends = []
    for _ in range(number):
        query, key, value = (net.linear("x", 8) for _ in range(3))
        scores = net.softmax(net.matmul(query, net.transpose(key, 0, 2, 1)))
        ends.append(net.matmul(scores, value))
    net.linear(net.concat(2, *ends), 8)
    return net


def experts() -> Net:
    """A gate, and equal experts that it weighs; two outputs."""
    net = Net(x=(2, 4, 8), z=(2, 4, 8))
    at = net.sum("x", "z")
    weights = net.softmax(net.linear(at, 1))
    parts = [net.sum(_dense(net, net.relu(_dense(net, at))), weights, "Mul") for _ in range(4)]
    net.sum(net.sum(parts[0], parts[1]), net.sum(parts[2], parts[3]))
    net.relu(at)
    return net


def otherwise(net: Net, seed: int) -> onnx.ModelProto:
    """The model in another topological order, with other names of everything."""
    model: onnx.ModelProto = net.proto()
    rng = random.Random(seed)  # noqa: S311
    nodes, known = list(model.graph.node), {value.name for value in model.graph.input}
    known |= {"", *(tensor.name for tensor in model.graph.initializer)}
    order = []
    while nodes:
        chosen = rng.choice([node for node in nodes if known.issuperset(node.input)])
        nodes.remove(chosen)
        order.append(chosen)
        known.update(chosen.output)
    names = rng.sample(sorted(known - {""}), len(known) - 1)
    other = {name: f"t{number}" for number, name in enumerate(names)} | {"": ""}
    for node in order:
        node.input[:] = [other[name] for name in node.input]
        node.output[:] = [other[name] for name in node.output]
        node.name = node.output[0]
    for value in (*model.graph.input, *model.graph.output, *model.graph.initializer):
        value.name = other[value.name]
    weights = rng.sample(list(model.graph.initializer), len(model.graph.initializer))
    del model.graph.node[:], model.graph.initializer[:]
    model.graph.node.extend(order)
    model.graph.initializer.extend(weights)
    return model


def branching(*, turned: bool) -> onnx.ModelProto:
    """An If whose branch reads two values from outside, in one order of its nodes or the other."""
    nodes = ["a = Relu(p)", "b = Neg(q)"]
    body = " ".join(nodes[::-1] if turned else nodes)
    return onnx.parser.parse_model(f"""
        <ir_version: 8, opset_import: ["": 17]>
        net (float[4,8] x, bool c) => (float[4,8] y) {{
            p = Exp(x) q = Tanh(x)
            y = If (c) <
                then_branch = t () => (float[4,8] d) {{ {body} d = Sub(a, b) }},
                else_branch = e () => (float[4,8] z) {{ z = Identity(x) }}
            >
        }}""")


def graph_of(model: onnx.ModelProto) -> Graph:
    """The model imported."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "net.onnx"
        onnx.save(model, path)
        return import_model(path)


def nameless(schedule: Schedule) -> Any:
    """A schedule's file, with numbers for names."""
    names: dict[str, str] = {}
    for graph in (schedule.context.graph, schedule.model):
        names |= {one.name: f"tensor {number}" for number, one in enumerate(graph.tensors)}
        names |= {one.name: f"operator {number}" for number, one in enumerate(graph.operators)}

    def renamed(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: renamed(item) for key, item in value.items()}
        if isinstance(value, list):
            return [renamed(item) for item in value]
        return names.get(value, value) if isinstance(value, str) else value

    return renamed(json.loads(schedule.text))


def every_schedule(graph: Graph, machine: Target) -> list[Any]:
    """What each order of layers and each baseline gives."""
    scheduler = ModelScheduler(graph, machine, "float16")
    made = [build_schedule(scheduler, Knobs(layer_order=order)) for order in ORDERS]
    for name in SCHEDULERS.builtin:
        made += candidates(name, scheduler)
    return [nameless(schedule) for schedule in made]


@pytest.mark.full
@FEW
@example(net=heads(), machine=SMALL, seed=0)
@example(net=experts(), machine=SMALL, seed=1)
@given(net=branched(), machine=targets(), seed=st.integers(0, 99))
def test_other_orders_and_names_give_the_same_schedules(
    net: Net, machine: Target, seed: int
) -> None:
    graph, other = net.graph(), graph_of(otherwise(net, seed))
    assert other.hash == graph.hash
    assert every_schedule(other, machine) == every_schedule(graph, machine)


@pytest.mark.full
@FEW
@given(net=branched(), machine=targets(), order=st.sampled_from((*ORDERS, "bytes", "file")))
def test_every_order_of_layers_gives_a_valid_schedule(
    net: Net, machine: Target, order: str
) -> None:
    check_schedule(
        build_schedule(ModelScheduler(net.graph(), machine, "float16"), Knobs(layer_order=order))
    )


@pytest.mark.parametrize("order", ["branches", "path", "file"])
def test_a_schedule_in_another_order_computes_its_model(order: str, tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    onnx.save(otherwise(heads(2), 1), path)
    scheduler = ModelScheduler(import_model(path), SMALL, "float16")
    schedule = build_schedule(scheduler, Knobs(layer_order=order))
    assert schedule.text != build_schedule(scheduler, Knobs()).text
    verified = verify_schedule(schedule, path=path)
    assert verified.ok
    assert verified.numbers is not None
    schedule.save(tmp_path / "schedule.json")
    read = load_schedule(tmp_path / "schedule.json", schedule.model, SMALL)
    assert read.text == schedule.text


@pytest.mark.parametrize("make", [pytest.param(heads, marks=pytest.mark.full), experts])
def test_a_search_finds_the_same_whatever_the_file_s_order(make: Any, tmp_path: Path) -> None:
    found = []
    for number, graph in enumerate((make().graph(), graph_of(otherwise(make(), 3)))):
        folder = tmp_path / str(number)
        folder.mkdir()
        result = tune(graph, SMALL, trials=8, database=folder / "runs.db", runs_folder=folder)
        assert result.study is not None
        found.append([trial.values for trial in result.study.trials])
    assert found[0] == found[1]


def test_the_order_of_a_body_decides_nothing_either() -> None:
    graph, other = (graph_of(branching(turned=turned)) for turned in (False, True))
    assert [o.name for o in other.operators] == [o.name for o in graph.operators]
    assert other.hash == graph.hash


def test_a_permuted_file_takes_the_schedules_of_the_other(tmp_path: Path) -> None:
    graph, other = heads().graph(), graph_of(otherwise(heads(), 2))
    build_schedule(ModelScheduler(graph, SMALL, "float16"), Knobs()).save(tmp_path / "one.json")
    read = load_schedule(tmp_path / "one.json", other, SMALL)
    assert nameless(read) == nameless(
        build_schedule(ModelScheduler(other, SMALL, "float16"), Knobs())
    )


def two_sides() -> Net:
    """A long side with little to do and a short one with much; the file has the short one first."""
    net = Net(x=(1, 2, 8))
    short = net.linear(net.relu("x"), 64)
    at = net.softmax("x")
    for _ in range(3):
        at = net.softmax(at)
    net.concat(2, at, short)
    return net


@pytest.mark.parametrize(
    ("order", "first"),
    [("file", "relu0"), ("branches", "softmax0"), ("path", "relu0"), ("bytes", "softmax0")],
)
def test_what_goes_first(order: str, first: str) -> None:
    graph = two_sides().graph()
    assert graph.operators[0].name == "softmax0"
    layer = layers_of(graph, places_of(graph, order))[0]
    assert graph.operators[layer.operators[0]].name == first


def test_a_search_tries_orders_that_change_the_kernels_and_never_the_file_s() -> None:
    def offered(net: Net) -> list[object]:
        space = Space.of(ModelScheduler(net.graph(), SMALL, "float16"))
        return [choice for d in space.dimensions if d.name == "layer_order" for choice in d.choices]

    straight = Net(x=(2, 4, 8))
    straight.softmax(_dense(straight, "x"))
    assert offered(straight) == []
    assert set(offered(heads())) <= {*ORDERS}
    assert len(offered(heads())) > 1
    assert Knobs(layer_order="file").layer_order == "file"
