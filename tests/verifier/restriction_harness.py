"""Runs an operator restricted to a part of its domain beside the whole, for the tests."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnxruntime
from onnx import ModelProto, checker, helper
from onnx.reference import ReferenceEvaluator

from autoturbo.graph.domain import Interval, Region, hull, volume
from autoturbo.graph.model_nodes import ModelNode, Operand
from autoturbo.graph.operators import Operator
from autoturbo.verifier.onnx_writer.builder import GraphBuilder
from autoturbo.verifier.onnx_writer.restriction import Rule, restrict
from tests.graph.operator_table.operator_harness import (
    Array,
    Case,
    Described,
    random_region,
    slices,
)

Evaluate = Callable[[ModelProto, Mapping[str, Array]], list[Array]]

_LACKING = (
    onnxruntime.capi.onnxruntime_pybind11_state.NotImplemented,
    onnxruntime.capi.onnxruntime_pybind11_state.InvalidGraph,
    onnxruntime.capi.onnxruntime_pybind11_state.Fail,
)


def in_runtime(model: ModelProto, feeds: Mapping[str, Array]) -> list[Array]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    providers = ["CPUExecutionProvider"]
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers)
    return [np.asarray(value) for value in session.run(None, dict(feeds))]


def in_reference(model: ModelProto, feeds: Mapping[str, Array]) -> list[Array]:
    with np.errstate(all="ignore"):
        results = ReferenceEvaluator(model).run(None, dict(feeds))
    return [np.asarray(value) for value in results]


@dataclass(frozen=True)
class Whole:
    """A case, run once."""

    case: Case
    values: Mapping[int, Array]
    results: Sequence[Array]
    described: Described
    evaluate: Evaluate

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        count = len(self.case.inputs)
        given = [self.values[i].shape if i in self.values else () for i in range(count)]
        return [*given, *(result.shape for result in self.results)]

    def first_output(self) -> int:
        return len(self.case.inputs)

    def node(self, weights: Sequence[int] = ()) -> ModelNode:
        """The node; inputs in ``weights`` are constants whose elements are not known."""
        described = self.described
        inputs = [self._operand(i, i in weights) for i in range(len(self.case.inputs))]
        outputs = [
            Operand(f"o{k}", self.first_output() + k, r.shape, element(r), False, None)  # noqa: FBT003
            for k, r in enumerate(self.results)
        ]
        proto = self.case.model(self.values).graph.node[0]
        return ModelNode(proto, tuple(inputs), (), tuple(outputs), tuple(described.positions))

    def _operand(self, position: int, weight: bool) -> Operand | None:
        if position not in self.values:
            return None
        value = self.values[position]
        known = isinstance(self.case.inputs[position], np.ndarray)
        tensor = position if position in self.described.positions or not known else -1
        data = value if known else None
        return Operand(f"i{position}", tensor, value.shape, element(value), known or weight, data)


def checks(model: ModelProto) -> bool:
    """Whether ONNX's checker knows the operator."""
    try:
        checker.check_model(model)
    except checker.ValidationError:
        return False
    return True


def element(value: Array) -> int:
    return helper.np_dtype_to_tensor_dtype(value.dtype)


def run_whole(case: Case, rng: np.random.Generator) -> Whole:
    values = case.draw(rng)
    model = case.model(values)
    feeds = {f"i{i}": value for i, value in values.items()}
    try:
        evaluate: Evaluate = in_runtime
        results = in_runtime(model, feeds)
    except _LACKING:
        evaluate = in_reference
        results = in_reference(model, feeds)
    return Whole(case, values, results, Described(case.view(values, results)), evaluate)


def operator_of(whole: Whole) -> Operator:
    """The operator, its outputs counted after the inputs."""
    operator, case, first = whole.described.operator, whole.case, whole.first_output()
    outputs = tuple(first + k for k in range(len(whole.results)))
    kind = f"{case.domain}.{case.op}" if case.domain else case.op
    return replace(operator, outputs=outputs, kind=kind)


def grown(need: Region, shape: Sequence[int], rng: np.random.Generator) -> Region:
    """A region that holds another one."""
    if volume(need) == 0:
        return need

    def interval(part: Interval, extent: int) -> Interval:
        low = int(rng.integers(0, part[0] + 1)) if rng.random() < 0.5 else part[0]
        high = int(rng.integers(part[1], extent + 1)) if rng.random() < 0.5 else part[1]
        return (low, high)

    return tuple(interval(part, extent) for part, extent in zip(need, shape, strict=True))


def spoiled(value: Array, kept: Region) -> Array:
    """Not-a-number, or the greatest integer, everywhere but in a region."""
    worst: Any = np.nan
    if value.dtype == bool:
        result = ~value
    else:
        if np.issubdtype(value.dtype, np.integer):
            worst = np.iinfo(value.dtype).max
        result = np.full_like(value, worst)
    result[slices(kept)] = value[slices(kept)]
    return result


@dataclass
class Part:
    """A part of a case, ready to be written."""

    whole: Whole
    regions: dict[int, Region]
    box: tuple[Interval, ...]
    held: dict[int, Region]
    weights: tuple[int, ...] = ()

    def write(self) -> tuple[GraphBuilder, Rule]:
        first = self.whole.first_output()
        builder = GraphBuilder(self.whole.case.opset, layer="layer", regions=dict(self.held))
        builder.regions.update({first + k: region for k, region in self.regions.items()})
        node = self.whole.node(self.weights)
        rule = restrict(builder, node, operator_of(self.whole), self.whole.shapes, self.box)
        return builder, rule

    def feeds(self, rng: np.random.Generator) -> dict[str, Array]:
        """Held regions with rubbish where they are not needed; weights with other values there."""
        feeds, fresh = {}, self.whole.case.draw(rng)
        for position, need in needs(self.whole, self.box).items():
            value = self.whole.values[position]
            if position in self.weights:
                other = fresh[position].copy()
                other[slices(need)] = value[slices(need)]
                feeds[f"i{position}"] = other
            elif position in self.held:
                feeds[f"i{position}"] = np.asarray(
                    spoiled(value, need)[slices(self.held[position])]
                )
        for position, value in self.whole.values.items():
            if position in self.weights or isinstance(self.whole.case.inputs[position], np.ndarray):
                feeds.setdefault(f"i{position}", value)
        return feeds

    def model(self, builder: GraphBuilder, feeds: Mapping[str, Array]) -> ModelProto:
        """The body as a function that a model calls once."""
        opsets = list(self.whole.case.model(self.whole.values).opset_import)
        given, made = list(feeds), [f"o{k}" for k in self.regions]
        inputs = [
            helper.make_tensor_value_info(name, element(value), value.shape)
            for name, value in feeds.items()
        ]
        outputs = [
            helper.make_tensor_value_info(
                f"o{k}",
                element(self.whole.results[k]),
                [high - low for low, high in region],
            )
            for k, region in self.regions.items()
        ]
        function = helper.make_function("parts", "part", given, made, builder.nodes, opsets)
        call = helper.make_node("part", given, made, domain="parts")
        graph = helper.make_graph([call], "main", inputs, outputs)
        imports = [*opsets, helper.make_opsetid("parts", 1)]
        return helper.make_model(graph, opset_imports=imports, functions=[function], ir_version=10)

    def check(self, rng: np.random.Generator) -> Rule:
        """Run it, and compare with the region of the whole."""
        builder, rule = self.write()
        feeds = self.feeds(rng)
        feeds = {k: v for k, v in feeds.items() if k in builder.reads or int(k[1:]) in self.held}
        assert set(builder.reads) <= set(feeds)
        model = self.model(builder, feeds)
        if checks(self.whole.case.model(self.whole.values)):
            checker.check_model(model, full_check=True)
        made = self.whole.evaluate(model, feeds)
        for (position, region), actual in zip(self.regions.items(), made, strict=True):
            expected = np.asarray(self.whole.results[position][slices(region)])
            assert actual.shape == expected.shape
            np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-4)
        return rule


def needs(whole: Whole, box: tuple[Interval, ...]) -> dict[int, Region]:
    operator, described = whole.described.operator, whole.described
    return {
        position: operator.input_region(index, box, described.shape_in(position))
        for index, position in enumerate(described.positions)
    }


def random_part(whole: Whole, rng: np.random.Generator) -> Part:
    """Regions of some outputs, a box at least as large, inputs held at least as far as needed."""
    outputs = list(range(len(whole.results)))
    chosen = sorted(rng.permutation(outputs)[: int(rng.integers(1, len(outputs) + 1))].tolist())
    regions = {k: random_region(whole.results[k].shape, rng) for k in chosen}
    box = whole.described.operator.axis_region(regions)
    if volume(box) and rng.random() < 0.2:
        more = {k: random_region(whole.results[k].shape, rng) for k in chosen}
        box = hull(box, whole.described.operator.axis_region(more))
    return part_of(whole, regions, box, rng)


def part_of(
    whole: Whole,
    regions: dict[int, Region],
    box: tuple[Interval, ...],
    rng: np.random.Generator,
) -> Part:
    varying = [i for i, given in enumerate(whole.case.inputs) if callable(given)]
    weights = tuple(i for i in varying if rng.random() < 0.3)
    held = {
        position: grown(need, whole.described.shape_in(position), rng)
        for position, need in needs(whole, box).items()
        if position in varying and position not in weights and volume(need)
    }
    return Part(whole, regions, box, held, weights)
