"""Quantised models are computed in int8 where the target has it, and take no longer for it."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

from autoturbo.commands.model_facts import model_facts
from autoturbo.datasets import workloads
from autoturbo.graph.arrays import graph_arrays
from autoturbo.graph.batch import rebatch, trace_batch
from autoturbo.graph.integers import CONVERT, REQUANTISE
from autoturbo.graph.layers import layers_of
from autoturbo.graph.onnx_import import import_model
from autoturbo.graph.operators import NO_WORK, Graph, Work
from autoturbo.hardware import Target
from autoturbo.schedule.knobs import Knobs
from autoturbo.schedule.work import MATRIX, NONE, priced
from autoturbo.simulator.bound import lower_bound, weight_bytes
from autoturbo.simulator.evaluator import Evaluator
from autoturbo.simulator.measurement import Measurement
from autoturbo.tuning.tuner import tune
from tests.simulator.quantised_nets import (
    Net,
    detector,
    quantised,
    quantised_dynamically,
    residual,
    with_pairs_at_products,
)
from tests.simulator.simulate_samples import target_of

FASTER = ("stcp920", "ascend-910")
"""Targets of which the matrix engine is twice as fast in int8."""

NETS = {"residual": residual, "detector": detector}


@functools.cache
def graphs(kind: str, folder: Path) -> tuple[Graph, Graph]:
    """A network as it is, and quantised with pairs."""
    onnx.save(NETS[kind](), folder / f"{kind}.onnx")
    file = quantised(folder / f"{kind}.onnx", per_channel=kind == "detector")
    return import_model(folder / f"{kind}.onnx"), import_model(file)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("nets")


def measured(graph: Graph, target: Target, dtype: str | None = None) -> Measurement:
    found = Evaluator(graph, target, dtype or target.default_dtype).evaluate(Knobs())
    assert isinstance(found, Measurement)
    assert found.latency >= found.bound.seconds
    return found


@pytest.mark.parametrize(
    ("preset", "kind"),
    [
        ("stcp920", "residual"),
        ("ascend-910", "detector"),
        pytest.param("mlu100", "detector", marks=pytest.mark.full),
    ],
)
def test_pairs_take_no_longer_than_real_values(preset: str, kind: str, folder: Path) -> None:
    plain, pairs = graphs(kind, folder)
    before, after = (measured(graph, target_of(preset)) for graph in (plain, pairs))
    assert after.latency <= before.latency
    assert after.bound.matrix_s == pytest.approx(before.bound.matrix_s / 2, rel=0.1)
    assert after.bound.ddr_s < before.bound.ddr_s
    assert after.energy is not None
    assert before.energy is not None
    assert after.energy < before.energy


@pytest.mark.full
@pytest.mark.parametrize("preset", FASTER[:1])
def test_tuned_pairs_take_no_longer_either(preset: str, folder: Path, tmp_path: Path) -> None:
    best = [
        tune(
            graph, target_of(preset), trials=16, baselines=(), database=tmp_path / "a.db",
            runs_folder=tmp_path / f"runs{place}",
        ).best.measurement
        for place, graph in enumerate(graphs("detector", folder))
    ]  # fmt: skip
    assert best[1].latency <= best[0].latency
    assert best[1].latency >= best[1].bound.seconds


@pytest.mark.full
@pytest.mark.parametrize("preset", FASTER[:2])
def test_a_quantised_mobilenet_is_faster(preset: str, tmp_path: Path) -> None:
    file = tmp_path / "net.onnx"
    onnx.save(onnx.load(workloads.materialize("mobilenet_v2", tmp_path)), file)
    plain, pairs = import_model(file), import_model(quantised(file))
    target = target_of(preset)
    assert measured(pairs, target).latency < 0.7 * measured(plain, target).latency


def test_operators_on_8_bit_values_are_priced_like_pairs(tmp_path: Path) -> None:
    onnx.save(residual(), tmp_path / "net.onnx")
    target = target_of()
    pairs = measured(import_model(quantised(tmp_path / "net.onnx")), target)
    operators = measured(import_model(quantised(tmp_path / "net.onnx", pairs=False)), target)
    plain = measured(import_model(tmp_path / "net.onnx"), target)
    assert operators.bound.matrix_s == pytest.approx(pairs.bound.matrix_s)
    assert operators.bound.vector_s == pytest.approx(pairs.bound.vector_s)
    assert operators.latency <= plain.latency


def test_what_stands_between_operators_on_8_bit_values_is_computed_in_them(tmp_path: Path) -> None:
    onnx.save(residual(), tmp_path / "net.onnx")
    graph = import_model(quantised(tmp_path / "net.onnx", pairs=False))
    (pool,) = (operator for operator in graph.operators if operator.kind == "MaxPool")
    assert pool.integer == pool.work
    real = dataclasses.replace(pool, integer=None)
    own, other = (priced(one, target_of("ascend-910"), "float16") for one in (pool, real))
    assert own.per_point == other.per_point / 2


@pytest.mark.full
def test_integers_beside_real_values_take_the_time_of_a_run_in_int8() -> None:
    """Products alone, so that nothing but their rate counts."""

    def product(kind: str, dtype: int) -> Graph:
        shapes = {"a": (4, 512, 512), "b": (4, 512, 512)}
        given = [helper.make_tensor_value_info(n, dtype, s) for n, s in shapes.items()]
        whole = TensorProto.INT32 if kind == "MatMulInteger" else dtype
        out = helper.make_tensor_value_info("y", whole, (4, 512, 512))
        node = helper.make_node(kind, ["a", "b"], ["y"])
        return imported(helper.make_model(helper.make_graph([node], "g", given, [out])))

    integer = product("MatMulInteger", TensorProto.INT8)
    real = product("MatMul", TensorProto.FLOAT)
    for preset in FASTER:
        target = target_of(preset)
        mixed = measured(integer, target)
        alone = measured(integer, target, "int8")
        assert mixed.busy["matrix"] == pytest.approx(alone.busy["matrix"], rel=0.05)
        assert mixed.bound.matrix_s == pytest.approx(alone.bound.matrix_s)
        assert mixed.busy["matrix"] < 0.7 * measured(real, target).busy["matrix"]


def imported(model: ModelProto) -> Graph:
    with TemporaryDirectory() as folder:
        onnx.save(model, Path(folder) / "g.onnx")
        return import_model(Path(folder) / "g.onnx")


def test_without_int8_a_quantised_model_costs_what_its_nodes_say(folder: Path) -> None:
    target = target_of("ipu-mk2")
    assert not target.supports("int8")
    _, graph = graphs("residual", folder)
    unmarked = dataclasses.replace(
        graph,
        operators=tuple(dataclasses.replace(x, integer=None) for x in graph.operators),
        tensors=tuple(dataclasses.replace(x, integer_bytes=None) for x in graph.tensors),
    )
    assert measured(graph, target) == measured(unmarked, target)
    assert lower_bound(unmarked, target_of(), "float16").matrix_s == pytest.approx(
        2 * lower_bound(graph, target_of(), "float16").matrix_s
    )


# ------------------------------------------------------------------------- what is an integer


PAIR = 0.1, 3


class Pairs(Net):
    """A network with pairs that are written out."""

    def there(self, data: str) -> str:
        return self.node("QuantizeLinear", [data, *self.scales()])

    def back(self, data: str) -> str:
        return self.node("DequantizeLinear", [data, *self.scales()])

    def pair(self, data: str) -> str:
        return self.back(self.there(data))

    def scales(self) -> tuple[str, str]:
        names = (f"s{len(self.stored)}", f"z{len(self.stored)}")
        self.stored.append(helper.make_tensor(names[0], TensorProto.FLOAT, (), [PAIR[0]]))
        self.stored.append(helper.make_tensor(names[1], TensorProto.UINT8, (), [PAIR[1]]))
        return names

    def weights(self, *shape: int) -> str:
        name = f"q{len(self.stored)}"
        values = self.rng.integers(0, 255, shape).astype(np.uint8)
        self.stored.append(onnx.numpy_helper.from_array(values, name))
        return self.back(name)


def built(make: Callable[[Pairs], str], shape: tuple[int, ...] = (1, 64, 8, 8)) -> Graph:
    net = Pairs(shape)
    return imported(net.model(make(net)))


def integers(graph: Graph) -> dict[str, Work | None]:
    """Per kind of operator the arithmetic in integers, of the last of its kind."""
    return {operator.kind: operator.integer for operator in graph.operators}


def test_a_pair_on_either_side_makes_an_operator_one_in_integers() -> None:
    graph = built(lambda net: net.pair(net.relu(net.node(
        "Conv", [net.pair("x"), net.weights(80, 64, 1, 1)]
    ))))  # fmt: skip
    conv, target = next(x for x in graph.operators if x.kind == "Conv"), target_of()
    unpacking = 2.0 * 80 * 64  # where weights are made real as they are read
    assert (conv.work, conv.unpacking) == (conv.integer, unpacking)
    assert priced(conv, target, "float16").macs == 0.5
    assert priced(conv, target, "float16").engine == MATRIX
    (relu,) = [x for x in graph.operators if x.kind == "Relu"]
    assert relu.integer == NO_WORK
    assert priced(relu, target, "float16").engine == NONE
    first, last = [x for x in graph.operators if x.kind == "QuantizeLinear"]
    assert (first.integer, last.integer) == (CONVERT, REQUANTISE)
    back = [x for x in graph.operators if x.kind == "DequantizeLinear"]
    assert [x.integer for x in back] == [NO_WORK, NO_WORK]
    held = {t.name: t.integer_bytes for t in graph.tensors if t.integer_bytes is not None}
    sizes = dict(zip((t.name for t in graph.tensors), graph_arrays(
        graph, "float16", integers=True).element.tolist(), strict=True))  # fmt: skip
    weights = graph.tensors[conv.inputs[1]]
    assert weights.integer_bytes == sizes[weights.name] == 1
    assert sizes["x"] == 2
    assert sizes[graph.tensors[conv.inputs[0]].name] == 1
    assert sorted(held.values()).count(1) == 2


NOT_INTEGER: dict[str, Callable[[Pairs], str]] = {
    "real weights": lambda net: net.pair(net.conv(net.pair("x"), (8, 64, 1))),
    "a real operand": lambda net: net.pair(net.node("Add", [net.pair("x"), "x"])),
    "a real result": lambda net: net.node("Conv", [net.pair("x"), net.weights(8, 64, 1, 1)]),
    "a result read twice": lambda net: net.node("Add", [
        made := net.node("Conv", [net.pair("x"), net.weights(64, 64, 1, 1)]), net.pair(made)
    ]),
    "weights alone": lambda net: net.node("Conv", ["x", net.weights(8, 64, 1, 1)]),
}  # fmt: skip


@pytest.mark.parametrize("case", NOT_INTEGER)
def test_what_holds_real_values_is_computed_in_them(case: str) -> None:
    graph = built(NOT_INTEGER[case])
    assert {operator.integer for operator in graph.operators} == {None}
    assert {tensor.integer_bytes for tensor in graph.tensors} == {None}


def test_who_reads_real_values_beside_integers_pays_for_them() -> None:
    def both(net: Pairs) -> str:
        shared = net.pair("x")
        inner = net.pair(net.node("Conv", [shared, net.weights(64, 64, 1, 1)]))
        return net.node("Concat", [shared, inner], axis=1)

    graph = built(both)
    shared = next(x for x in graph.operators if x.kind == "DequantizeLinear")
    assert shared.integer == CONVERT
    assert graph.tensors[shared.outputs[0]].integer_bytes == 1


VECTORS: dict[str, Callable[[Pairs, str], str]] = {
    "between pairs": lambda net, x: net.back(net.there(net.node("Erf", [net.pair(x)]))),
    "several in reals": lambda net, x: net.pair(net.node("Erf", [net.node("Tanh", [net.pair(x)])])),
    "a reduction": lambda net, x: net.pair(net.node("Softmax", [net.pair(x)])),
    "read by two": lambda net, x: net.pair(
        net.node("Mul", [made := net.pair(x), net.pair(net.node("Sigmoid", [made]))])
    ),
}


@pytest.mark.parametrize("case", VECTORS)
def test_conversions_beside_the_vector_engine_are_no_work(case: str) -> None:
    """Between two products, of which the first has no bias: nothing but what reals would take."""

    def net_of(net: Pairs) -> str:
        first = net.node("Conv", [net.pair("x"), net.weights(64, 64, 1, 1)])
        second = net.node("Conv", [VECTORS[case](net, first), net.weights(64, 64, 1, 1)])
        return net.pair(second)

    graph = built(net_of)
    inner = [x for x in graph.operators if x.kind.endswith("quantizeLinear")][2:-2]
    inner += [x for x in graph.operators if x.kind == "QuantizeLinear"][1:-1]
    assert {x.integer for x in inner} == {NO_WORK}
    assert {priced(x, target_of("ascend-910"), "float16").engine for x in inner} == {NONE}


def test_a_run_in_int8_converts_nothing() -> None:
    """Its real values are held in 8 bits as well: quantised, a layer takes what it takes."""

    def layer(net: Pairs, *, pairs: bool) -> str:
        pair = net.pair if pairs else str
        real = net.store("real", np.zeros((64, 64, 1, 1)))
        weights = net.weights(64, 64, 1, 1) if pairs else real
        bias = net.store("bias", np.zeros(64))
        made = pair(net.node("Conv", [pair("x"), weights, bias]))
        return pair(net.node("Mul", [made, pair(net.node("Sigmoid", [made]))]))

    plain, pairs = (built(functools.partial(layer, pairs=given)) for given in (False, True))
    target = target_of("goya")
    bounds = [lower_bound(graph, target, "int8") for graph in (plain, pairs)]
    assert bounds[1].vector_s == bounds[0].vector_s
    assert measured(pairs, target).latency <= measured(plain, target).latency


# ------------------------------------------------------- activations of elementwise operators


def gelu(net: Net, data: str) -> str:
    root, one, half = (net.store(f"{n}{len(net.nodes)}", v) for n, v in _GELU.items())
    above = net.node("Add", [net.node("Erf", [net.node("Div", [data, root])]), one])
    return net.node("Mul", [net.node("Mul", [data, above]), half])


_GELU = {"root": np.sqrt(2.0), "one": 1.0, "half": 0.5}


def silu(net: Net, data: str) -> str:
    return net.node("Mul", [data, net.node("Sigmoid", [data])])


def hard_swish(net: Net, data: str) -> str:
    three, none, six = (net.store(f"{n}{len(net.nodes)}", n) for n in (3.0, 0.0, 6.0))
    bounded = net.node("Clip", [net.node("Add", [data, three]), none, six])
    return net.node("Div", [net.node("Mul", [data, bounded]), six])


ACTIVATIONS = {"gelu": gelu, "silu": silu, "hard_swish": hard_swish}
FORMS = ("pairs", "pairs at products", "pairs of 16 bits", "operators", "dynamic")


@functools.cache
def activated(kind: str, folder: Path) -> dict[str, Graph]:
    """Convolutions with an activation behind each, as they are and in all quantised forms."""
    net = Net((1, 32, 64, 64))
    data = "x"
    for _ in range(3):
        data = ACTIVATIONS[kind](net, net.conv(data, (32, 32, 3)))
    file = folder / f"{kind}.onnx"
    onnx.save(net.model(data), file)
    pairs, operators = quantised(file), quantised(file, pairs=False)
    some, wide = with_pairs_at_products(pairs), quantised(file, wide=True)
    made = (pairs, some, wide, operators, quantised_dynamically(file))
    return {"real": import_model(file), **dict(zip(FORMS, map(import_model, made), strict=True))}


MARGINS = {"dynamic": 1.2, "pairs of 16 bits": 1.05}
"""What quantised forms may take beyond reals: to find a range, every element is compared twice and
all wait for the last; reals that are only rounded have their input rounded as well. Others: biases
have 32 bits."""


@pytest.mark.parametrize("preset", ["stcp920", "goya", "ascend-910"])
@pytest.mark.parametrize("kind", ACTIVATIONS)
def test_activations_written_out_are_not_slower_quantised(
    preset: str, kind: str, folder: Path
) -> None:
    target, forms = target_of(preset), activated(kind, folder)
    found = {form: measured(graph, target) for form, graph in forms.items()}
    plain = found.pop("real")
    for form, one in found.items():
        margin = MARGINS.get(form, 1.001)
        assert one.latency <= margin * plain.latency, form
        if form != "dynamic":
            assert one.bound.seconds <= margin * plain.bound.seconds, form


def test_readers_with_pairs_of_their_own_share_them() -> None:
    """Scales by name or by value, the second pair from the same real or the same 8-bit values."""

    def layer(net: Pairs, *, apart: str) -> str:
        conv = net.node("Conv", [net.pair("x"), net.weights(64, 64, 1, 1)])
        there = net.there(conv)
        first = net.back(there)
        again = {"shared": lambda: first, "back": lambda: net.back(there)}
        second = again.get(apart, lambda: net.pair(conv))()
        return net.pair(net.node("Mul", [first, net.pair(net.node("Sigmoid", [second]))]))

    whole, *others = (
        built(functools.partial(layer, apart=apart)) for apart in ("shared", "back", "pair")
    )
    assert [graph.hash for graph in others] == [whole.hash] * 2
    assert len(layers_of(whole)) == 1


def test_the_scale_of_a_dynamic_quantisation_ends_its_product(folder: Path) -> None:
    graph = activated("silu", folder)["dynamic"]
    layers = [[graph.operators[i].kind for i in layer.operators] for layer in layers_of(graph)]
    ends = ["ConvInteger", "Cast", "Mul", "Mul", "Add", "Sigmoid", "Mul"]
    assert layers == [["DynamicQuantizeLinear"], ends] * 3
    held = {t for layer in layers_of(graph) for t in (*layer.inputs, *layer.outputs)}
    assert "int32" not in {graph.tensors[t].dtype for t in held}
    kinds = {operator.kind: operator.integer for operator in graph.operators}
    assert kinds["ConvInteger"] == Work(macs=1)
    assert (kinds["Cast"], kinds["Add"]) == (NO_WORK, NO_WORK)


def dynamic_sums(net: Net) -> str:
    """Make a convolution of dynamically quantised values real: ``s`` is their scale."""
    net.nodes += [helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"])]
    net.stored.append(numpy_helper.from_array(np.ones((64, 64, 1, 1), np.uint8), "w"))
    return net.node("Cast", [net.node("ConvInteger", ["q", "w", "z"])], to=TensorProto.FLOAT)


def test_scales_of_both_operands_one_after_the_other_are_one_step() -> None:
    def net_of(net: Pairs) -> str:
        channels = [net.store(name, np.ones((1, 64, 1, 1))) for name in ("scales", "bias")]
        scaled = net.node("Mul", [net.node("Mul", [dynamic_sums(net), "s"]), channels[0]])
        return net.node("Add", [scaled, channels[1]])

    works = [x.integer for x in built(net_of).operators if x.kind in ("Mul", "Add")]
    assert works == [CONVERT, NO_WORK, NO_WORK]


def test_a_scale_from_elsewhere_stays_outside_of_the_product() -> None:
    """It may depend on the product itself, or be another's: that would be a circle."""

    def net_of(net: Pairs) -> str:
        real = dynamic_sums(net)
        largest = net.node("ReduceMax", [net.node("Relu", ["x"])], keepdims=0)
        return net.node("Mul", [real, net.node("Mul", ["s", largest])])

    graph = built(net_of)
    layers = [[graph.operators[i].kind for i in layer.operators] for layer in layers_of(graph)]
    assert ["ConvInteger", "Cast"] in layers


@pytest.mark.full
def test_values_that_only_move_are_not_scaled_where_the_scales_are_one() -> None:
    def moved(net: Pairs, *, alike: bool) -> str:
        scales = net.scales()
        data = net.node("DequantizeLinear", [net.node("QuantizeLinear", ["x", *scales]), *scales])
        turned = net.node("Transpose", [data], perm=[0, 2, 3, 1])
        own = scales if alike else net.scales()
        return net.node("DequantizeLinear", [net.node("QuantizeLinear", [turned, *own]), *own])

    for alike, work in ((True, NO_WORK), (False, Work(vector=1.0))):
        graph = built(functools.partial(moved, alike=alike))
        assert integers(graph)["QuantizeLinear"] == work


@pytest.mark.full
def test_marks_are_part_of_what_a_graph_is_known_by(folder: Path) -> None:
    _, graph = graphs("residual", folder)
    changed = dataclasses.replace(
        graph, operators=tuple(dataclasses.replace(x, integer=None) for x in graph.operators)
    )
    assert changed.hash != graph.hash


# ---------------------------------------------------------------------- weights that are narrow


def weight_only(kind: str, blocks: int, nodes: list[onnx.NodeProto] | None = None) -> Graph:
    """``[4, 64] x [64, 96]`` by a weight of a narrow type: a scale per column, or per block."""
    values = np.random.default_rng(5).integers(1, 7, 64 * 96).astype(np.float32)
    scales = np.full((64 // blocks, 96) if blocks else 96, 0.01, np.float32)
    axis: dict[str, Any] = {"axis": 0, "block_size": blocks} if blocks else {"axis": 1}
    graph = helper.make_graph(
        [
            helper.make_node("DequantizeLinear", ["q", "s"], ["w"], **axis),
            *(nodes or [helper.make_node("MatMul", ["x", "w"], ["y"])]),
        ],
        "weight_only",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 64])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [
            helper.make_tensor("q", getattr(TensorProto, kind), (64, 96), values),
            numpy_helper.from_array(scales, "s"),
            numpy_helper.from_array(np.array([5, 7, 5]), "rows"),
        ],
    )
    return imported(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    )


def by_bits() -> Graph:
    """The same product as the one operator that runtimes have for it."""
    graph = helper.make_graph(
        [helper.make_node("MatMulNBits", ["x", "q", "s"], ["y"], domain="com.microsoft",
                          K=64, N=96, bits=4, block_size=32)],
        "by_bits",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 64])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.zeros((96, 2, 16), np.uint8), "q"),
         numpy_helper.from_array(np.zeros(192, np.float32), "s")],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return imported(helper.make_model(graph, opset_imports=opsets, ir_version=10))


@pytest.mark.parametrize(
    ("kind", "blocks", "size"),
    [
        ("INT4", 32, 64 * 96 // 2 + 2 * 192),
        ("UINT4", 0, 64 * 96 // 2 + 2 * 96),
        ("INT8", 0, 64 * 96 + 2 * 96),
        ("FLOAT8E4M3FN", 16, 64 * 96 + 2 * 384),
    ],
)
def test_weights_take_the_bytes_of_the_type_that_they_are_stored_in(
    kind: str, blocks: int, size: int
) -> None:
    graph = weight_only(kind, blocks)
    assert weight_bytes(graph, "float16") == pytest.approx(size, abs=1)
    assert weight_bytes(graph, "float16") >= size
    (product,) = graph.operators
    assert product.vector_ops == 2 * 64 * 96
    halved = weight_only(kind, blocks, [
        helper.make_node("Cast", ["w"], ["h"], to=TensorProto.FLOAT16),
        helper.make_node("Cast", ["x"], ["z"], to=TensorProto.FLOAT16),
        helper.make_node("MatMul", ["z", "h"], ["y"]),
    ])  # fmt: skip
    assert weight_bytes(halved, "float16") == weight_bytes(graph, "float16")
    found, read = (
        measured(graph, target_of()),
        target_of().clusters * weight_bytes(graph, "float16"),
    )
    assert found.bound.seconds <= found.latency
    assert found.ddr_bytes == read + 4 * (64 + 96) * 2


def test_a_product_by_dequantised_weights_costs_what_one_operator_for_both_does() -> None:
    two, one = weight_only("INT4", 32), by_bits()
    target = target_of()
    assert lower_bound(two, target, "float16") == lower_bound(one, target, "float16")
    assert measured(two, target).latency == pytest.approx(measured(one, target).latency, rel=0.01)
    assert two.hash != weight_only("UINT4", 0).hash


@pytest.mark.parametrize("make", [lambda: weight_only("INT4", 32), by_bits])
def test_fewer_samples_make_as_many_weights_real(make: Callable[[], Graph]) -> None:
    graph = make()
    one = rebatch(graph, 1, trace_batch(graph))
    assert one.macs * 4 == graph.macs
    assert one.operators[0].vector_ops == graph.operators[0].vector_ops == 2 * 64 * 96


def test_rows_that_are_picked_of_a_narrow_table_are_narrow() -> None:
    graph = weight_only("INT8", 0, [
        helper.make_node("ReduceSum", ["x"], ["one"], keepdims=0),
        helper.make_node("Cast", ["one"], ["index"], to=TensorProto.INT64),
        helper.make_node("Gather", ["w", "index"], ["y"]),
    ])  # fmt: skip
    assert weight_bytes(graph, "float16") <= 96 * (1 + 2 / 64 + 0.01)
    gather = graph.operators[-1]
    assert gather.vector_ops == 2 * 96


def test_inspect_counts_what_is_stored_and_tied_weights_once() -> None:
    assert model_facts(weight_only("INT4", 0))["weight_bytes"] == 64 * 96 // 2 + 4 * 96
    tied = weight_only("INT8", 0, [
        helper.make_node("MatMul", ["x", "w"], ["h"]),
        helper.make_node("Transpose", ["w"], ["t"], perm=[1, 0]),
        helper.make_node("MatMul", ["h", "t"], ["y"]),
    ])  # fmt: skip
    assert model_facts(tied)["weight_bytes"] == 64 * 96 + 4 * 96
