"""Runs one-node models beside their description, for the tests of the operator table."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnxruntime
from onnx import ModelProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from autoturbo.graph.domain import SHOWN, AccessMap, AxisKind, DimAccess, Interval, Region
from autoturbo.graph.operator_table import NodeView, OperatorSpec, ValueView, describe
from autoturbo.graph.operators import Operator

Array = np.ndarray[Any, Any]
Draw = Callable[[np.random.Generator], Array]
"""Makes one input's values; called again for the values that must not matter."""

Input = Draw | Array | None
"""A varying input, a constant one (its value is known to the row), or an absent one."""


def real(*shape: int) -> Draw:
    return lambda rng: np.asarray(rng.normal(size=shape) * rng.choice([1, 20]), dtype=np.float32)


def positive(*shape: int) -> Draw:
    return lambda rng: rng.uniform(0.5, 9.0, size=shape).astype(np.float32)


def unit(*shape: int) -> Draw:
    return lambda rng: rng.uniform(-0.95, 0.95, size=shape).astype(np.float32)


def whole(high: int, *shape: int, dtype: str = "int64", low: int = 0) -> Draw:
    return lambda rng: rng.integers(low, high, size=shape).astype(dtype)


def truth(*shape: int) -> Draw:
    return lambda rng: rng.integers(0, 2, size=shape).astype(bool)


def ints(*values: int) -> Array:
    return np.array(values, dtype=np.int64)


def scalar(value: float, dtype: str = "float32") -> Array:
    return np.array(value, dtype=dtype)


def distinct(high: int, *shape: int) -> Draw:
    """Indices without repetition along the last dimension."""

    def draw(rng: np.random.Generator) -> Array:
        rows = math.prod(shape[:-1])
        picks = [rng.permutation(high)[: shape[-1]] for _ in range(rows)]
        return np.array(picks, dtype=np.int64).reshape(shape)

    return draw


@dataclass(frozen=True)
class Case:
    """One node with generators for its inputs."""

    op: str
    inputs: tuple[Input, ...]
    attributes: Mapping[str, object] = field(default_factory=dict)
    opset: int = 21
    domain: str = ""
    outputs: int = 1
    runtime: bool = False

    @property
    def label(self) -> str:
        shapes = ["x".join(map(str, a.shape)) for a in self.draw(np.random.default_rng(0)).values()]
        settings = ",".join(f"{k}={v}" for k, v in self.attributes.items())
        return f"{self.domain}.{self.op}({' '.join(shapes)};{settings};{self.opset})"

    def draw(self, rng: np.random.Generator) -> dict[int, Array]:
        """Values of all inputs that are present, by position."""
        pairs = enumerate(self.inputs)
        return {i: g if isinstance(g, np.ndarray) else g(rng) for i, g in pairs if g is not None}

    def model(self, values: Mapping[int, Array]) -> ModelProto:
        names = [f"i{i}" if g is not None else "" for i, g in enumerate(self.inputs)]
        results = [f"o{i}" for i in range(self.outputs)]
        attributes: dict[str, Any] = {
            k: list(v) if isinstance(v, tuple) else v for k, v in self.attributes.items()
        }
        node = helper.make_node(self.op, names, results, domain=self.domain, **attributes)
        given = [
            helper.make_tensor_value_info(
                f"i{i}", helper.np_dtype_to_tensor_dtype(v.dtype), v.shape
            )
            for i, v in values.items()
        ]
        made = [helper.make_empty_tensor_value_info(name) for name in results]
        opsets = [helper.make_opsetid("", self.opset)]
        if self.domain:
            opsets.append(helper.make_opsetid(self.domain, 1))
        graph = helper.make_graph([node], "one", given, made)
        return helper.make_model(graph, opset_imports=opsets, ir_version=10)

    def stated(self, seed: int = 0) -> ModelProto:
        """The model as an exporter writes it: shapes stated, arrays as initializers."""
        values = self.draw(np.random.default_rng(seed))
        model = self.model(values)
        for info, result in zip(model.graph.output, self.run(values), strict=True):
            dtype = helper.np_dtype_to_tensor_dtype(result.dtype)
            info.CopyFrom(helper.make_tensor_value_info(info.name, dtype, result.shape))
        fixed = {f"i{i}": v for i, v in values.items() if isinstance(self.inputs[i], np.ndarray)}
        given = [info for info in model.graph.input if info.name not in fixed]
        del model.graph.input[:]
        model.graph.input.extend(given)
        model.graph.initializer.extend(numpy_helper.from_array(v, n) for n, v in fixed.items())
        return model

    def run(self, values: Mapping[int, Array]) -> list[Array]:
        return Runner(self, values)(values)

    def view(self, values: Mapping[int, Array], results: Sequence[Array]) -> NodeView:
        return NodeView(
            name=self.op,
            op_type=self.op,
            domain=self.domain,
            opset=self.opset,
            attributes=self.attributes,
            inputs=tuple(self._value(i, values) for i in range(len(self.inputs))),
            outputs=tuple(ValueView(f"o{i}", r.shape, str(r.dtype)) for i, r in enumerate(results)),
        )

    def _value(self, position: int, values: Mapping[int, Array]) -> ValueView | None:
        if position not in values:
            return None
        known = isinstance(self.inputs[position], np.ndarray)
        value = values[position]
        kept = value if known else None
        return ValueView(f"i{position}", value.shape, str(value.dtype), known, kept)


class Runner:
    """CandidateEvaluator a case: by the ONNX reference, or by ONNX Runtime for what that lacks."""

    def __init__(self, case: Case, values: Mapping[int, Array]) -> None:
        model = case.model(values)
        self._run: Callable[..., Any] = (
            _session(model).run if case.runtime else ReferenceEvaluator(model).run
        )

    def __call__(self, values: Mapping[int, Array]) -> list[Array]:
        feeds = {f"i{i}": value for i, value in values.items()}
        with np.errstate(all="ignore"):
            return [np.asarray(result) for result in self._run(None, feeds)]


def _session(model: ModelProto) -> Any:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    providers = ["CPUExecutionProvider"]
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers)


def node(
    op: str,
    inputs: Sequence[object],
    outputs: Sequence[tuple[int, ...]],
    *,
    opset: int = 21,
    domain: str = "",
    weights: Sequence[int] = (),
    **attributes: object,
) -> NodeView:
    """A node by shapes alone; an array stands for a known constant, None for an absent input."""
    return NodeView(
        op,
        op,
        domain,
        opset,
        attributes,
        tuple(_given(i, value, i in weights) for i, value in enumerate(inputs)),
        tuple(ValueView(f"o{i}", shape, "float32") for i, shape in enumerate(outputs)),
    )


def _given(position: int, value: object, weight: bool) -> ValueView | None:
    if value is None:
        return None
    if isinstance(value, np.ndarray):
        return ValueView(f"i{position}", value.shape, str(value.dtype), constant=True, value=value)
    assert isinstance(value, tuple)
    return ValueView(f"i{position}", value, "float32", constant=weight)


class Described:
    """A node's description as an operator, its tensors counted without the absorbed ones."""

    def __init__(self, view: NodeView, spec: OperatorSpec | None = None) -> None:
        self.view = view
        self.spec = describe(view) if spec is None else spec
        self.positions = [i for i, m in enumerate(self.spec.inputs) if m is not None]
        self.shapes = [value.shape for value in view.inputs if value is not None]
        self.operator = Operator(
            name=view.name,
            kind=view.op_type,
            inputs=tuple(self.positions),
            outputs=tuple(range(len(view.outputs))),
            axes=self.spec.axes,
            input_maps=tuple(m for m in self.spec.inputs if m is not None),
            output_maps=tuple(m for m in self.spec.outputs if m is not None),
            work=self.spec.work,
            engine=self.spec.engine,
            pattern=self.spec.pattern,
            opaque=self.spec.opaque,
        )

    def shape_in(self, position: int) -> tuple[int, ...]:
        value = self.view.inputs[position]
        assert value is not None
        return value.shape

    def shape_out(self, position: int = 0) -> tuple[int, ...]:
        value = self.view.outputs[position]
        assert value is not None
        return value.shape

    def reads(self, region: Region, output: int = 0) -> dict[int, Region]:
        """The region of each input that a region of one output needs, by ONNX position."""
        axes = self.operator.axis_region({output: region})
        return {
            position: self.operator.input_region(index, axes, self.shape_in(position))
            for index, position in enumerate(self.positions)
        }

    def kinds(self) -> list[str]:
        return [axis.kind.value for axis in self.spec.axes]


def slices(region: Region) -> tuple[slice, ...]:
    return tuple(slice(low, max(high, low)) for low, high in region)


def random_region(shape: Sequence[int], rng: np.random.Generator) -> Region:
    """A box, often small, never empty."""

    def interval(extent: int) -> Interval:
        if rng.random() < 0.2:
            return (0, extent)
        low = int(rng.integers(0, extent))
        span = 1 if rng.random() < 0.5 else int(rng.integers(1, extent - low + 1))
        return (low, low + span)

    return tuple(interval(extent) for extent in shape)


def evaluate(access: DimAccess, point: Sequence[int]) -> int:
    """The position that one point of the domain addresses."""
    return access.offset + sum(c * point[axis] for axis, c in access.terms)


def shown_points(spec: OperatorSpec) -> list[tuple[int, ...]]:
    """All assignments of the axes that are not summed over, others held at 0."""
    ranges = [range(axis.extent) if axis.kind in SHOWN else range(1) for axis in spec.axes]
    return list(itertools.product(*ranges))


def address(access: AccessMap, point: Sequence[int]) -> tuple[int, ...]:
    return tuple(evaluate(dim, point) for dim in access.dims)


def single(shape: Sequence[int], rng: np.random.Generator) -> Region:
    """One element."""
    picks = [int(rng.integers(0, extent)) for extent in shape]
    return tuple((pick, pick + 1) for pick in picks)


def overlaps(spec: OperatorSpec) -> bool:
    """Whether window axes appear in an output (transposed convolution)."""
    terms = [t for m in spec.outputs if m is not None for dim in m.dims for t in dim.terms]
    return any(spec.axes[axis].kind is AxisKind.WINDOW for axis, _ in terms)


REGIONS = 6
"""Regions tried per node."""


def describe_case(case: Case, values: Mapping[int, Array]) -> tuple[Described, Runner, list[Array]]:
    """Run a case once and describe it with the shapes that came out."""
    runner = Runner(case, values)
    results = runner(values)
    described = Described(case.view(values, results))
    assert described.spec.opaque is None, described.spec.opaque
    return described, runner, results


def check_outside(case: Case, rng: np.random.Generator, regions: int = REGIONS) -> Described:
    """Draw anew all that lies outside of what a region needs: the region must stay as it is."""
    values = case.draw(rng)
    described, runner, results = describe_case(case, values)
    for trial in range(regions):
        output = trial % len(results)
        region = random_region(results[output].shape, rng)
        changed = dict(values)
        fresh = case.draw(rng)
        for position, read in described.reads(region, output).items():
            replaced = fresh[position].copy()
            replaced[slices(read)] = values[position][slices(read)]
            changed[position] = replaced
        expected, actual = results[output][slices(region)], runner(changed)[output][slices(region)]
        np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-4)
    return described
