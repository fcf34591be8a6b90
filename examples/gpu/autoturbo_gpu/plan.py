"""What runs of a schedule on a GPU, in order: steps, each of which becomes one launch or more.

A schedule is read from its kernels file, attributes and weights from the model. Operators of one
kernel of the file, which is an instance of a sub-graph, are put together into steps: a convolution
or a product with what follows it, chains of these with nothing in memory between, attention.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper

from autoturbo.plugin import Knobs, ModelScheduler, Schedule, build_schedule, kernels_text

Region = tuple[tuple[int, int], ...]
"""Begin and end of each dimension."""

Follower = Callable[[str], int | None]
"""Tells the place of the only reader of a tensor; None where there are others, or none."""

NO_ACTIVATION, RELU, GELU = 0, 1, 2
"""What follows the sums of a convolution; kernels are compiled for it."""

ACTIVATIONS = {"Relu": RELU, "Gelu": GELU}

VIEWS = ("Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "Identity")
"""Kinds that move nothing where their input lies as they want it."""

ELEMENTWISE = (
    "Add", "Sub", "Mul", "Div", "Relu", "Gelu", "Sigmoid", "Tanh", "Sqrt", "Pow", "Erf", "Clip",
)  # fmt: skip
"""Kinds each of whose elements depends on the same one of each input."""

SAMPLES_APART = (
    "MaxPool", "AveragePool", "GlobalAveragePool", "LayerNormalization", "Softmax",
    "BatchNormalization",
)  # fmt: skip
"""Kinds whose samples have nothing to do with each other."""

MOST_KEPT_BYTES = 128 * 1024
"""FP32 sums of one layer that a program holds at most: half the registers of an SM."""

MOST_LAST_CHANNELS = 64
"""Channels of a chain's last layer that are summed at a time: its input needs registers too."""

MOST_REPEATED = 2.0
"""Products of a chain, with those that neighbours compute again, over those of its layers alone."""

MOST_OUT_OF_TWO = 1024
"""Outputs of a pair of products that a program holds for its rows."""


class NotLoweredError(Exception):
    """Something that this lowering cannot do."""


@dataclass(frozen=True)
class Operator:
    """An operator of the model.

    Attributes:
        name: In the model's file.
        kind: ONNX's name of the operator.
        inputs: Names of tensors.
        outputs: Names of tensors.
        attributes: By name.
    """

    name: str
    kind: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Convolved:
    """A convolution, or a product with a weight, and what follows it in the same launch.

    Attributes:
        x: The input.
        y: The output.
        weight: Name of the weight.
        bias: Name of the bias; empty for none.
        residual: What is added before the activation; empty for none.
        activation: One of the constants above.
        before: Height, width and channels of the input; of a product rows, 1 and depth.
        after: The same of the output.
        side: Height and width of the kernel.
        stride: Of both dimensions.
        pads: Rows above and columns to the left.
        product: Whether it is a product: its weight is a matrix.
        transposed: Whether that matrix is stored as output by input.
    """

    x: str
    y: str
    weight: str
    bias: str
    residual: str
    activation: int
    before: tuple[int, int, int]
    after: tuple[int, int, int]
    side: tuple[int, int] = (1, 1)
    stride: int = 1
    pads: tuple[int, int] = (0, 0)
    product: bool = False
    transposed: bool = False

    @property
    def products(self) -> int:
        """Return the multiplications of one sample."""
        return self.after[0] * self.after[1] * self.after[2] * self.before[2] * self.taps

    @property
    def taps(self) -> int:
        """Return the positions of the kernel."""
        return self.side[0] * self.side[1]

    @property
    def reads(self) -> tuple[str, ...]:
        """Return the tensors that it reads, without weights."""
        return (self.x, self.residual) if self.residual else (self.x,)


@dataclass(frozen=True)
class Convolutions:
    """One or more convolutions in one launch; what lies between them stays on the SM.

    Attributes:
        layers: In order.
        region: Of the last one's output: samples, rows, columns, channels.
        rows: Rows of the last output that a program makes; 0 for a layer by itself.
    """

    layers: tuple[Convolved, ...]
    region: Region = ()
    rows: int = 0

    @property
    def y(self) -> str:
        """Return the output."""
        return self.layers[-1].y

    @property
    def reads(self) -> tuple[str, ...]:
        """Return the tensors that it reads, without weights and what it keeps."""
        made = {layer.y for layer in self.layers}
        return tuple(r for layer in self.layers for r in layer.reads if r not in made)


@dataclass(frozen=True)
class Product:
    """A product of two matrices that are both computed.

    Attributes:
        a: The left one.
        b: The right one.
        y: The output.
        region: Of the output.
    """

    a: str
    b: str
    y: str
    region: Region = ()

    @property
    def reads(self) -> tuple[str, ...]:
        """Return the tensors that it reads."""
        return (self.a, self.b)


@dataclass(frozen=True)
class Attended:
    """Attention: softmax(scale q k + mask) v.

    Attributes:
        q: Queries, rows by size.
        k: Keys, size by rows.
        v: Values, rows by size.
        mask: What is added to the scores; empty for none.
        scale: The factor, if it is one number.
        y: The output.
        region: Of the output.
    """

    q: str
    k: str
    v: str
    mask: str
    scale: float
    y: str
    region: Region = ()

    @property
    def reads(self) -> tuple[str, ...]:
        """Return the tensors that it reads."""
        return (self.q, self.k, self.v, self.mask) if self.mask else (self.q, self.k, self.v)


@dataclass(frozen=True)
class Other:
    """An operator that PyTorch carries out, or that only looks at its input in another way.

    Attributes:
        operator: The operator.
        region: Of its output.
    """

    operator: Operator
    region: Region = ()

    @property
    def y(self) -> str:
        """Return the output."""
        return self.operator.outputs[0]

    @property
    def reads(self) -> tuple[str, ...]:
        """Return the tensors that it reads."""
        return self.operator.inputs


Step = Convolutions | Product | Attended | Other


@dataclass(frozen=True)
class Plan:
    """What runs of a schedule.

    Attributes:
        shapes: Of all tensors, at the samples of one pass.
        weights: Constant tensors by name.
        inputs: Of the model.
        outputs: Of the model.
        samples: Of the batch.
        pass_samples: Of one pass.
        kernels: The steps of each kernel of the schedule, in its order.
        operators: Of the model, in an order in which they can run.
    """

    shapes: Mapping[str, tuple[int, ...]]
    weights: Mapping[str, NDArray[Any]]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    samples: int
    pass_samples: int
    kernels: tuple[tuple[Step, ...], ...]
    operators: tuple[Operator, ...]

    @property
    def steps(self) -> tuple[Step, ...]:
        """Return all steps in order."""
        return tuple(step for kernel in self.kernels for step in kernel)


def plan_of(schedule: Schedule, most_chained: int = 8, *, in_one_kernel: bool = False) -> Plan:
    """Return what runs of a schedule.

    Args:
        schedule: On one target, of a model that is a file.
        most_chained: Convolutions in one launch at most; 1 for a launch each.
        in_one_kernel: Whether all operators may go together, whatever the schedule's sub-graphs.

    Raises:
        NotLoweredError: An operator, or the way in which clusters share the work, is not lowered.
    """
    if schedule.model.source is None:
        raise NotLoweredError("the model is not a file")
    model, document = Path(schedule.model.source), json.loads(kernels_text(schedule))
    file = onnx.load(model, load_external_data=False)
    tensors, share = document["tensors"], document["share"]
    if share["split"] != "batch" and share["passes"] > 1:
        raise NotLoweredError("clusters divide other things than samples")
    samples = share["samples"] * (share["clusters"] if share["split"] == "batch" else 1)
    names = [tensor["name"] for tensor in tensors]
    shapes = {tensor["name"]: tuple(tensor["shape"]) for tensor in tensors}
    settings = {n for node in file.graph.node if node.op_type in SETTINGS for n in node.input[1:]}
    wanted = {t["name"] for t in tensors if t["weight"]} | settings - {""}
    weights = _weights(file, model.parent, wanted)
    operators = _operators(document, file, names, weights)
    ends = tuple(names[number] for number in document["outputs"])
    readers = Counter([*ends, *(name for one in operators for name in one.inputs)])
    lowering = Lowering(shapes, weights, readers, most_chained)
    if in_one_kernel:
        kernels = [lowering.steps(operators, {name: whole(shapes[name]) for name in ends})]
    else:
        kernels = [
            lowering.steps(
                [operators[n] for layer in kernel["layers"] for n in layer["operators"]],
                {
                    names[made["tensor"]]: tuple((low, high) for low, high in made["region"])
                    for made in kernel["outputs"]
                },
            )
            for kernel in document["kernels"]
        ]
    return Plan(
        shapes, weights, tuple(names[number] for number in document["inputs"]), ends,
        min(samples, document["model"]["batch"]), share["samples_per_pass"], tuple(kernels),
        tuple(operators),
    )  # fmt: skip


def plan_of_model(scheduler: ModelScheduler, most_chained: int) -> Plan:
    """Return what runs of a model with all samples at once, whatever its sub-graphs.

    Args:
        scheduler: Of the model.
        most_chained: Convolutions in one launch at most; 1 for a launch each.
    """
    at_once = Knobs(batches_per_cluster=scheduler.batch_choices()[0])
    return plan_of(build_schedule(scheduler, at_once), most_chained, in_one_kernel=True)


def _weights(file: onnx.ModelProto, folder: Path, wanted: set[str]) -> dict[str, NDArray[Any]]:
    """Return constant tensors; random ones where a model is stored without its weights.

    Times do not depend on them.

    Raises:
        NotLoweredError: One is neither stored nor a constant node.
    """
    found = {}
    for one in file.graph.initializer:
        if one.name in wanted:
            place = {entry.key: entry.value for entry in one.external_data}.get("location", "")
            if place and not (folder / place).exists():
                random = np.random.default_rng(0).standard_normal(one.dims, np.float32)
                found[one.name] = random * max(np.prod(one.dims[1:]), 1) ** -0.5
            else:
                found[one.name] = numpy_helper.to_array(one, str(folder))
    for node in file.graph.node:
        if node.op_type == "Constant" and node.output[0] in wanted:
            values = {one.name: onnx.helper.get_attribute_value(one) for one in node.attribute}
            if "value" in values:
                found[node.output[0]] = numpy_helper.to_array(values["value"])
    if missing := wanted - set(found):
        raise NotLoweredError(f"{min(missing)} is computed from constants: fold them first")
    return found


SETTINGS = {"ReduceMean": ("axes",), "Clip": ("min", "max")}
"""What some kinds take as further inputs, which are attributes of older models."""


def _operators(
    document: Mapping[str, Any], file: onnx.ModelProto, names: Sequence[str],
    weights: Mapping[str, NDArray[Any]],
) -> list[Operator]:  # fmt: skip
    nodes = {node.output[0]: node for node in file.graph.node}
    found = []
    for one in document["operators"]:
        outputs = tuple(names[number] for number in one["outputs"])
        node = nodes.get(outputs[0])
        if node is None or node.op_type != one["kind"]:
            raise NotLoweredError(f"{one['name']} ({one['kind']}) is not a node of the model")
        if len(outputs) > 1:
            raise NotLoweredError(f"{one['name']} ({one['kind']}) has several outputs")
        attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
        inputs = tuple(names[number] for number in one["inputs"])
        for name, given in zip(SETTINGS.get(one["kind"], ()), node.input[1:], strict=False):
            if given:
                attributes[name] = weights[given].tolist()
                inputs = inputs[:1]
        found.append(Operator(one["name"], one["kind"], inputs, outputs, attributes))
    return found


@dataclass(frozen=True)
class Lowering:
    """The operators of a kernel put together into steps.

    Attributes:
        shapes: Of all tensors.
        weights: Constant tensors.
        readers: How many operators read each tensor.
        most_chained: Convolutions in one launch at most.
    """

    shapes: Mapping[str, tuple[int, ...]]
    weights: Mapping[str, NDArray[Any]]
    readers: Mapping[str, int]
    most_chained: int

    def steps(self, operators: Sequence[Operator], made: Mapping[str, Region]) -> tuple[Step, ...]:
        """Return the steps of a kernel that makes regions of some tensors."""
        found: list[tuple[int, Step]] = []
        taken = set[int]()
        reader = {name: at for at, one in enumerate(operators) for name in one.inputs}

        def follower(name: str) -> int | None:
            """Return who alone reads a tensor that does not leave the kernel, and is still free."""
            alone = self.readers[name] == 1 and name not in made
            place = reader.get(name) if alone else None
            return None if place in taken else place

        for at in range(len(operators)):
            if at not in taken:
                places, step = self._begun(operators, at, follower)
                taken |= set(places)
                found.append((max(places), step))
        ordered = [step for _, step in sorted(found, key=lambda one: one[0])]
        return tuple(self._with_regions(self._chained(ordered, made), made))

    def _begun(
        self, operators: Sequence[Operator], at: int, follower: Follower
    ) -> tuple[list[int], Step]:
        """Return the step that begins with an operator, and which operators are in it."""
        operator = operators[at]
        begun = self._anchored(operator)
        if begun is not None:
            return self._followed(operators, at, begun, follower)
        if operator.kind == "MatMul":
            # attention is two products in a launch
            attended = self._attended(operators, at, follower) if self.most_chained > 1 else None
            if attended is not None:
                return attended
            a, b = operator.inputs
            return [at], Product(a, b, operator.outputs[0])
        return [at], Other(operator)

    def _anchored(self, operator: Operator) -> Convolved | None:
        """Return the convolution or product that an operator is; None for others."""
        if operator.kind == "Conv":
            return self._convolution(operator)
        if operator.kind not in ("MatMul", "Gemm") or operator.inputs[1] not in self.weights:
            return None
        x, weight = operator.inputs[:2]
        given = operator.attributes
        if given.get("transA") or given.get("alpha", 1.0) != 1.0 or given.get("beta", 1.0) != 1.0:
            return None
        matrix, shape = self.shapes[weight], self.shapes[x]
        if len(matrix) != 2 or len(shape) < 2:
            return None
        depth, columns = matrix[::-1] if given.get("transB") else matrix
        rows = int(np.prod(shape[1:-1]))
        bias = operator.inputs[2] if len(operator.inputs) > 2 else ""
        if bias and (self.shapes[bias] != (columns,) or bias not in self.weights):
            return None
        return Convolved(
            x, operator.outputs[0], weight, bias, "", NO_ACTIVATION, (rows, 1, depth),
            (rows, 1, columns), product=True, transposed=bool(given.get("transB")),
        )  # fmt: skip

    def _convolution(self, operator: Operator) -> Convolved | None:
        given = operator.attributes
        x, y, weight = operator.inputs[0], operator.outputs[0], operator.inputs[1]
        strides = tuple(given.get("strides", (1, 1)))
        plain = (
            len(self.shapes[x]) == 4 and given.get("group", 1) == 1 and len(set(strides)) == 1
            and set(given.get("dilations", (1, 1))) == {1} and weight in self.weights
            and given.get("auto_pad", b"NOTSET") in (b"NOTSET", "NOTSET")
        )  # fmt: skip
        bias = operator.inputs[2] if len(operator.inputs) > 2 else ""
        if not plain or (bias and bias not in self.weights):
            return None
        _, channels, *sides = self.shapes[x]
        _, out_channels, *out_sides = self.shapes[y]
        return Convolved(
            x, y, weight, bias, "", NO_ACTIVATION, (sides[0], sides[1], channels),
            (out_sides[0], out_sides[1], out_channels),
            (self.shapes[weight][2], self.shapes[weight][3]), strides[0],
            tuple(given.get("pads", (0, 0)))[:2],
        )  # fmt: skip

    def _followed(
        self, operators: Sequence[Operator], at: int, begun: Convolved, follower: Follower
    ) -> tuple[list[int], Step]:
        """Return a convolution with the bias, residual and activation that follow it."""
        places, found = [at], begun
        while not found.activation:
            place = follower(found.y)
            if place is None:
                break
            nearer = self._more(found, operators[place])
            if nearer is None:
                break
            places, found = [*places, place], nearer
        return places, Convolutions((found,))

    def _more(self, found: Convolved, operator: Operator) -> Convolved | None:
        """Return a convolution with one more operator behind it; None where that cannot be."""
        y = operator.outputs[0]
        if operator.kind in ACTIVATIONS:
            if operator.attributes.get("approximate", b"none") not in (b"none", "none"):
                return None
            return replace(found, y=y, activation=ACTIVATIONS[operator.kind])
        if operator.kind != "Add":
            return None
        (other,) = [name for name in operator.inputs if name != found.y] or [found.y]
        if other in self.weights:
            plain = self.shapes[other] == (found.after[2],) and found.product
            return (
                None
                if found.bias or found.residual or not plain
                else replace(found, y=y, bias=other)
            )
        same = self.shapes[other] == self.shapes[found.y] and other != found.y
        return replace(found, y=y, residual=other) if same and not found.residual else None

    def _attended(
        self, operators: Sequence[Operator], at: int, follower: Follower
    ) -> tuple[list[int], Step] | None:
        """Return attention that begins with the product of queries and keys; None for others."""
        q, k = operators[at].inputs
        found: Attended | None = Attended(q, k, "", "", 1.0, operators[at].outputs[0])
        places = [at]
        while found is not None and (place := follower(found.y)) is not None:
            places.append(place)
            if operators[place].kind == "Softmax":
                last = follower(operators[place].outputs[0])
                if last is None:
                    return None
                attended = self._with_values(found, operators[place], operators[last])
                return None if attended is None else ([*places, last], attended)
            found = self._scored(found, operators[place])
        return None

    def _scored(self, found: Attended, operator: Operator) -> Attended | None:
        """Return scores with a factor or a mask behind them; None for anything else."""
        y, others = operator.outputs[0], [name for name in operator.inputs if name != found.y]
        if found.mask or len(others) != 1 or self.shapes[y] != self.shapes[found.y]:
            return None
        if operator.kind == "Add":
            return replace(found, mask=others[0], y=y)
        factor = self.weights.get(others[0])
        if operator.kind not in ("Mul", "Div") or factor is None or factor.size != 1:
            return None
        number = float(factor.reshape(())[()])
        if operator.kind == "Mul":
            return replace(found, scale=found.scale * number, y=y)
        divided = operator.inputs[0] == found.y
        return replace(found, scale=found.scale / number, y=y) if divided else None

    def _with_values(
        self, found: Attended, softmax: Operator, product: Operator
    ) -> Attended | None:
        """Return attention with its values; None where a softmax and a product are not its."""
        axis = softmax.attributes.get("axis", -1)
        if product.kind != "MatMul" or product.inputs[0] != softmax.outputs[0]:
            return None
        v = product.inputs[1]
        shapes = [self.shapes[name] for name in (found.q, found.k, v)]
        alike = len({shape[:-2] for shape in shapes}) == 1 and 2 < len(shapes[0]) <= 4
        if axis not in (-1, len(shapes[0]) - 1) or not alike or shapes[0][-1] > 256:
            return None
        return replace(found, v=v, y=product.outputs[0])

    def _chained(self, steps: Sequence[Step], made: Mapping[str, Region]) -> list[Step]:
        """Return steps with convolutions put together where the one alone reads the other."""
        found: list[Step] = []
        for step in steps:
            before = next((s for s in found if s.y == step.reads[0]), None) if step.reads else None
            both = self._together(before, step, made)
            if both is None:
                found.append(step)
            else:
                found = [*(s for s in found if s is not before), both]
        return found

    def _together(
        self, before: Step | None, step: Step, made: Mapping[str, Region]
    ) -> Convolutions | None:
        if not isinstance(before, Convolutions) or not isinstance(step, Convolutions):
            return None
        layers = (*before.layers, *step.layers)
        alone = self.readers[before.y] == 1 and before.y not in made
        if not alone or len(layers) > self.most_chained or before.layers[-1].residual:
            return None
        if all(layer.product for layer in layers) and _is_feed_forward(layers):
            return Convolutions(layers)
        rows = rows_of_chain(layers)
        return Convolutions(layers, rows=rows) if rows else None

    def _with_regions(self, steps: Sequence[Step], made: Mapping[str, Region]) -> Iterator[Step]:
        """Return steps with what each has to make for those behind it."""
        wanted = dict(made)
        found: list[Step] = []
        for step in reversed(steps):
            region = wanted.get(step.y, whole(self.shapes[step.y]))
            for name, read in self._read(step, region):
                if name not in self.weights:
                    wanted[name] = joined(wanted.get(name), read)
            found.append(replace(step, region=region))
        return reversed(found)

    def _read(self, step: Step, region: Region) -> Iterator[tuple[str, Region]]:
        """Yield what a step reads for a region of its output."""
        out = self.shapes[step.y]
        for name in step.reads:
            shape = self.shapes[name]
            if isinstance(step, Convolutions) and name == step.layers[0].x:
                yield name, _read_by_chain(step.layers, region)
            elif isinstance(step, Convolutions):
                yield name, region
            elif isinstance(step, Other) and step.operator.kind == "Transpose":
                turned = permutation(step.operator, len(shape))
                yield name, tuple(region[turned.index(axis)] for axis in range(len(shape)))
            elif isinstance(step, Other) and step.operator.kind in ELEMENTWISE:
                yield name, under(shape, region)
            else:
                first = region[:1] if shape[:1] == out[:1] and _keeps_samples(step) else ()
                yield name, (*first, *whole(shape)[len(first) :])


def apart(step: Convolutions) -> list[Convolutions]:
    """Return the layers of a chain as steps of their own, which make the same together."""
    found: list[Convolutions] = []
    region = step.region
    for layer in reversed(step.layers):
        found.insert(0, Convolutions((layer,), region))
        region = _read_by_chain((layer,), region)
    return found


def _read_by_chain(layers: Sequence[Convolved], region: Region) -> Region:
    """Return what a chain reads of its input for a region of its output."""
    if layers[0].product:
        return (*region[:-1], (0, layers[0].before[2]))
    samples, _, rows, columns = region
    for layer in reversed(layers):
        rows = _read_along(rows, layer, 0)
        columns = _read_along(columns, layer, 1)
    return samples, (0, layers[0].before[2]), rows, columns


def rows_of_chain(layers: Sequence[Convolved], most_kept: int = MOST_KEPT_BYTES) -> int:
    """Return how many rows of a chain's output a program makes; 0 where it had better not be.

    All that lies between is held in registers, a whole row wide; the more rows, the fewer are
    computed twice. Of the numbers of rows that fit, the one with the fewest products is taken.

    Args:
        layers: In order.
        most_kept: Bytes of one layer's sums at most.
    """
    square = all(one.side[0] == one.side[1] and len(set(one.pads)) == 1 for one in layers)
    if not square or any(one.residual for one in layers[:-1]):
        return 0
    alone = sum(one.products for one in layers)
    best, least = 0, MOST_REPEATED * alone
    for rows in range(1, layers[-1].after[0] + 1):
        blocks = blocks_of_chain(layers, rows)
        kept = [positions * channels * 4 for _, positions, channels in blocks[:-1]]
        kept.append(blocks[-1][1] * min(blocks[-1][2], MOST_LAST_CHANNELS) * 4)
        if max(kept) > most_kept:
            break
        programs = -(-layers[-1].after[0] // rows)
        products = programs * sum(
            height * one.after[1] * one.after[2] * one.before[2] * one.taps
            for one, (height, _, _) in zip(layers, blocks, strict=True)
        )
        if products <= least:
            best, least = rows, products
    return best


def blocks_of_chain(layers: Sequence[Convolved], rows: int) -> list[tuple[int, int, int]]:
    """Return rows, block of positions and block of channels of each layer of a chain.

    Args:
        layers: In order.
        rows: Of the last output that a program makes.
    """
    found: list[tuple[int, int, int]] = []
    for layer in reversed(layers):
        found.insert(0, (rows, power(rows * layer.after[1]), power(layer.after[2])))
        rows = (rows - 1) * layer.stride + layer.side[0]
    return found


def _is_feed_forward(layers: Sequence[Convolved]) -> bool:
    """Return whether two products are made by blocks of what lies between."""
    return len(layers) == 2 and layers[1].after[2] <= MOST_OUT_OF_TWO


def power(count: int) -> int:
    """Return the least power of two that a block may have for a count: 16 or more."""
    return max(16, 1 << (count - 1).bit_length())


def whole(shape: Sequence[int]) -> Region:
    """Return the region that is all of a tensor."""
    return tuple((0, extent) for extent in shape)


def joined(one: Region | None, other: Region) -> Region:
    """Return the least region that holds two."""
    if one is None:
        return other
    return tuple((min(a[0], b[0]), max(a[1], b[1])) for a, b in zip(one, other, strict=True))


def under(shape: Sequence[int], region: Region) -> Region:
    """Return what of an operand an elementwise operator reads, whose output may be larger."""
    behind = region[len(region) - len(shape) :]
    return tuple(
        (0, 1) if extent == 1 else part for extent, part in zip(shape, behind, strict=True)
    )


def permutation(operator: Operator, axes: int) -> list[int]:
    """Return which axis of its input each axis of a transposition's output is."""
    return list(operator.attributes.get("perm", reversed(range(axes))))


def _keeps_samples(step: Step) -> bool:
    if not isinstance(step, Other):
        return True
    return step.operator.kind in (*SAMPLES_APART, *VIEWS, "Conv")


def _read_along(part: tuple[int, int], layer: Convolved, axis: int) -> tuple[int, int]:
    first = part[0] * layer.stride - layer.pads[axis]
    end = (part[1] - 1) * layer.stride - layer.pads[axis] + layer.side[axis]
    return max(first, 0), min(end, layer.before[axis])
