"""Small networks, targets and knob settings for the scheduler's tests, by hand and at random."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper, save

from autoturbo.datasets.workloads import get
from autoturbo.graph.onnx_import import import_model
from autoturbo.hardware import Target, load_target
from autoturbo.schedule.context import STAGING_SHARE
from autoturbo.schedule.knobs import Knobs, SubGraphKnobs, fitting, model_knobs, subgraph_knobs
from autoturbo.schedule.partition.split import box_cost
from autoturbo.schedule.pipeline import ModelScheduler

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from autoturbo.graph.operators import Graph
    from autoturbo.schedule.context import SchedulingContext

Shape = tuple[int, ...]
STCP920 = load_target("stcp920")


class Net:
    """An ONNX model under construction; every method adds a node and returns its output's name."""

    def __init__(self, **inputs: Shape) -> None:
        self.shapes: dict[str, Shape] = dict(inputs)
        self.inputs = tuple(inputs)
        self.nodes: list[Any] = []
        self.weights: list[Any] = []
        self.read: set[str] = set()

    def add(self, kind: str, inputs: Sequence[str], shape: Shape, **attributes: Any) -> str:
        """Any node with one output of a known shape, named after its kind and number."""
        name = f"{kind.lower()}{sum(node.op_type == kind for node in self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], name=name, **attributes))
        self.shapes[name] = shape
        self.read.update(inputs)
        return name

    def weight(self, *shape: int) -> str:
        """A constant of ones."""
        return self.constant(np.ones(shape, np.float32))

    def ints(self, *numbers: int) -> str:
        """A constant vector of integers."""
        return self.constant(np.asarray(numbers, np.int64))

    def constant(self, value: Any) -> str:
        """Any constant."""
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(value, name))
        return name

    def conv(
        self, x: str, channels: int, kernel: int = 3, stride: int = 1, *, group: int = 1,
        bias: bool = False,
    ) -> str:  # fmt: skip
        """A convolution that keeps the size but for its stride."""
        n, c, h, w = self.shapes[x]
        pad = kernel // 2
        size = [(e + 2 * pad - kernel) // stride + 1 for e in (h, w)]
        inputs = [x, self.weight(channels, c // group, kernel, kernel)]
        inputs += [self.weight(channels)] if bias else []
        return self.add(
            "Conv", inputs, (n, channels, *size), kernel_shape=[kernel] * 2, strides=[stride] * 2,
            pads=[pad] * 4, group=group,
        )  # fmt: skip

    def pool(self, x: str, kernel: int = 2, stride: int = 2, kind: str = "MaxPool") -> str:
        """A pooling without padding."""
        n, c, h, w = self.shapes[x]
        size = [(e - kernel) // stride + 1 for e in (h, w)]
        shape = (n, c, *size)
        return self.add(kind, [x], shape, kernel_shape=[kernel] * 2, strides=[stride] * 2)

    def relu(self, x: str) -> str:
        """An elementwise operator."""
        return self.add("Relu", [x], self.shapes[x])

    def sum(self, x: str, y: str, kind: str = "Add") -> str:
        """An elementwise operator of two tensors of one shape."""
        return self.add(kind, [x, y], self.shapes[x])

    def softmax(self, x: str, axis: int = -1) -> str:
        """A softmax along one axis."""
        return self.add("Softmax", [x], self.shapes[x], axis=axis)

    def norm(self, x: str) -> str:
        """A layer normalisation of the last dimension."""
        last = self.shapes[x][-1]
        inputs = [x, self.weight(last), self.weight(last)]
        return self.add("LayerNormalization", inputs, self.shapes[x], axis=-1)

    def linear(self, x: str, columns: int) -> str:
        """A product with a weight matrix."""
        *rows, depth = self.shapes[x]
        return self.add("MatMul", [x, self.weight(depth, columns)], (*rows, columns))

    def matmul(self, x: str, y: str) -> str:
        """A product of two tensors."""
        return self.add("MatMul", [x, y], (*self.shapes[x][:-1], self.shapes[y][-1]))

    def transpose(self, x: str, *order: int) -> str:
        """Dimensions in another order."""
        return self.add("Transpose", [x], tuple(self.shapes[x][d] for d in order), perm=order)

    def reshape(self, x: str, *shape: int) -> str:
        """Other dimensions for the same elements."""
        return self.add("Reshape", [x, self.ints(*shape)], shape)

    def concat(self, axis: int, *parts: str) -> str:
        """Tensors end to end."""
        shape = list(self.shapes[parts[0]])
        shape[axis] = sum(self.shapes[p][axis] for p in parts)
        return self.add("Concat", parts, tuple(shape), axis=axis)

    def mean(self, x: str, axis: int = -1) -> str:
        """A mean along one axis, which stays with one element."""
        shape = list(self.shapes[x])
        shape[axis] = 1
        return self.add("ReduceMean", [x], tuple(shape), axes=[axis], keepdims=1)

    def proto(self, *outputs: str) -> Any:
        """The model with the given outputs, or with all that nobody reads."""
        made = [node.output[0] for node in self.nodes]
        leaving = outputs or tuple(name for name in made if name not in self.read)

        def value(name: str) -> Any:
            return helper.make_tensor_value_info(name, TensorProto.FLOAT, self.shapes[name])

        graph = helper.make_graph(
            self.nodes, "net", [value(n) for n in self.inputs if n in self.read],
            [value(n) for n in leaving], self.weights,
        )  # fmt: skip
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)

    def graph(self, *outputs: str, batch: int | None = None) -> Graph:
        """The model imported."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "net.onnx"
            save(self.proto(*outputs), path)
            return import_model(path, batch=batch)


def target(
    cores: int = 4, lb: int = 4096, gb: int = 1 << 16, clusters: int = 1, weights: int = 1024
) -> Target:
    """STCP920 with other sizes: cores, bytes of LB per core and of GB per cluster."""
    return dataclasses.replace(
        STCP920, name="small", cores=cores, clusters=clusters,
        lb=dataclasses.replace(STCP920.lb, capacity=lb, weight_capacity=weights),
        gb=dataclasses.replace(STCP920.gb, capacity=gb),
    )  # fmt: skip


def capacity(room: int) -> int:
    """The LB, in bytes, that has so much for buffers beside its staging zone."""
    return next(size for size in itertools.count(room) if size - size // STAGING_SHARE >= room)


@functools.cache
def workload(name: str, batch: int | None = None) -> Graph:
    """A bundled workload."""
    return import_model(get(name).file, batch=batch)


@functools.cache
def scheduler_of(name: str) -> ModelScheduler:
    """A bundled workload on STCP920 in float16; what its passes remember is shared by all tests."""
    return ModelScheduler(workload(name), STCP920, "float16")


def chain(*kinds: str, shape: Shape = (2, 4, 8, 8)) -> Graph:
    """A straight line of nodes: names of :class:`Net` methods, ``conv`` with the same channels."""
    net = Net(x=shape)
    at = "x"
    for kind in kinds:
        at = net.conv(at, net.shapes[at][1]) if kind == "conv" else getattr(net, kind)(at)
    return net.graph()


def block() -> Graph:
    """Two residual blocks, the second of which halves the image, then a classifier."""
    net = Net(x=(4, 4, 8, 8))
    stem = net.relu(net.conv("x", 8))
    first = net.relu(net.sum(net.conv(net.relu(net.conv(stem, 8)), 8), stem))
    main = net.conv(net.relu(net.conv(first, 16, stride=2)), 16)
    second = net.relu(net.sum(main, net.conv(first, 16, kernel=1, stride=2)))
    net.linear(net.reshape(net.pool(second, 4, 4, "AveragePool"), 4, 16), 10)
    return net.graph()


_IMAGES = ("conv", "depthwise", "strided", "pool", "relu", "add", "concat", "softmax", "shuffle")
_ROWS = ("linear", "relu", "add", "mul", "softmax", "norm", "mean", "attend", "heads", "concat")


def networks(most: int = 8) -> st.SearchStrategy[Graph]:
    """Random small networks, imported."""
    return nets(most).map(Net.graph)


@st.composite
def nets(draw: st.DrawFn, most: int = 8) -> Net:
    """Random small networks: chains, branches and diamonds of images or of sequences."""
    images = draw(st.booleans())
    batch = draw(st.integers(1, 6))
    if images:
        shape: Shape = (
            batch,
            draw(st.integers(1, 4)) * 2,
            *draw(st.tuples(*[st.integers(3, 9)] * 2)),
        )
    else:
        shape = (batch, draw(st.integers(1, 6)), draw(st.sampled_from((4, 6, 8))))
    net = Net(x=shape)
    values = [net.relu("x") if draw(st.booleans()) else "x"]
    for _ in range(draw(st.integers(1, most))):
        recent = values[-3:]
        at = draw(st.sampled_from(recent))
        kind = draw(st.sampled_from(_IMAGES if images else _ROWS))
        other = draw(st.sampled_from(recent))
        step = _image_step if images else _row_step
        values.append(step(net, kind, at, other, draw))
    return net


def _same(net: Net, at: str, other: str) -> str:
    return other if net.shapes[other] == net.shapes[at] else net.relu(at)


def _image_step(net: Net, kind: str, at: str, other: str, draw: st.DrawFn) -> str:
    _, c, h, w = net.shapes[at]
    if kind in ("strided", "pool") and min(h, w) < 2:
        kind = "relu"
    steps: dict[str, Callable[[], str]] = {
        "conv": lambda: net.conv(
            at, draw(st.sampled_from((2, 4, 6))), draw(st.sampled_from((1, 3)))
        ),
        "depthwise": lambda: net.conv(at, c, 3, group=c),
        "strided": lambda: net.conv(at, c, 3, 2, bias=True),
        "pool": lambda: net.pool(at, 2, draw(st.integers(1, 2))),
        "relu": lambda: net.relu(at),
        "add": lambda: net.sum(at, _same(net, at, other)),
        "concat": lambda: net.concat(draw(st.sampled_from((1, 2))), at, _same(net, at, other)),
        "softmax": lambda: net.softmax(at, draw(st.sampled_from((1, 3)))),
        "shuffle": lambda: _shuffle(net, at),
    }
    return steps[kind]()


def _shuffle(net: Net, at: str) -> str:
    n, c, h, w = net.shapes[at]
    if c % 2:
        return net.relu(at)
    split = net.transpose(net.reshape(at, n, 2, c // 2, h, w), 0, 2, 1, 3, 4)
    return net.reshape(split, n, c, h, w)


def _row_step(net: Net, kind: str, at: str, other: str, draw: st.DrawFn) -> str:
    n, s, d = net.shapes[at]
    steps: dict[str, Callable[[], str]] = {
        "linear": lambda: net.linear(at, draw(st.sampled_from((4, 6, 12)))),
        "relu": lambda: net.relu(at),
        "add": lambda: net.sum(at, _same(net, at, other)),
        "mul": lambda: net.sum(at, net.add("Sigmoid", [at], (n, s, d)), "Mul"),
        "softmax": lambda: net.softmax(at),
        "norm": lambda: net.norm(at),
        "mean": lambda: net.sum(at, net.mean(at), "Sub"),
        "attend": lambda: net.matmul(net.softmax(net.matmul(at, net.transpose(at, 0, 2, 1))), at),
        "heads": lambda: _heads(net, at),
        "concat": lambda: net.concat(draw(st.sampled_from((1, 2))), at, _same(net, at, other)),
    }
    return steps[kind]()


def _heads(net: Net, at: str) -> str:
    n, s, d = net.shapes[at]
    if d % 2:
        return net.relu(at)
    split = net.transpose(net.reshape(at, n, s, 2, d // 2), 0, 2, 1, 3)
    return net.reshape(net.transpose(net.relu(split), 0, 2, 1, 3), n, s, d)


@st.composite
def targets(draw: st.DrawFn) -> Target:
    """Random small accelerators, with and without a global buffer."""
    return target(
        cores=draw(st.integers(1, 32)),
        lb=draw(st.sampled_from((128, 256, 512, 1024, 4096, 1 << 16))),
        gb=draw(st.sampled_from((0, 1 << 10, 1 << 13, 1 << 18))),
        clusters=draw(st.integers(1, 4)),
        weights=draw(st.sampled_from((0, 64, 1024))),
    )


def _values(name: str) -> st.SearchStrategy[Any]:
    spec = model_knobs()[name]
    return st.sampled_from(("auto", "auto", *spec.choices)) if spec.choices else st.just("auto")


OWN_WITH_CHOICES = tuple(
    name for name, spec in subgraph_knobs().items()
    if spec.choices and name not in ("boundary", "scope")
)  # fmt: skip
"""Knobs of sub-graphs whose values do not depend on the model."""


def _own(name: str) -> st.SearchStrategy[Any]:
    return st.sampled_from(("auto", "auto", *subgraph_knobs()[name].choices))


@st.composite
def settings_of(
    draw: st.DrawFn,
    names: Sequence[str] = (),
    samples: int = 1,
    split: str | None = None,
    on: Target | None = None,
) -> Knobs:
    """Random settings; overrides, where layers are given, and samples at once up to a share.

    With a target, what it has a place for.
    """
    values = {name: draw(_values(name)) for name in model_knobs()}
    if split is not None:
        values["cluster_partitioning"] = split
    values["batches_per_cluster"] = draw(st.just("auto") | st.integers(1, samples))
    chosen = draw(st.lists(st.sampled_from(names), max_size=2)) if names else []
    overrides = tuple(
        SubGraphKnobs(
            layer,
            boundary=draw(st.sampled_from(("auto", "cut", "merge"))),
            dim=draw(st.just("auto") | st.integers(0, 3)),
            factor=draw(st.just("auto") | st.integers(1, 4)),
            scope=draw(st.sampled_from(("auto", "LB", "GB", "DDR"))),
            **{name: draw(_own(name)) for name in OWN_WITH_CHOICES},
        )
        for layer in chosen
    )
    knobs = Knobs(**values, overrides=overrides)
    return knobs if on is None else fitting(knobs, on)


def volume_of(region: Any) -> int:
    """Elements of a region given as an array (rank, 2)."""
    return math.prod(max(int(high) - int(low), 0) for low, high in region)


def part_cost(
    context: SchedulingContext, layers: tuple[int, ...], axis: int, start: int, stop: int
) -> tuple[int, int, int]:
    """Footprint, work and operators cut of one part of a sub-graph (whole for a negative axis)."""
    box = ((axis,), ((start, stop),)) if axis >= 0 else ((), ())
    found = box_cost(context, layers, *box)
    return int(found.footprint), int(found.work), int(found.operators)
