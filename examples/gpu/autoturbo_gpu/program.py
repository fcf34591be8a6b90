"""A plan as launches on a GPU, or in Triton's interpreter on a CPU.

Tensors are FP16 and stay where they are for the life of a program, so that its launches can be
recorded once (a CUDA graph) and played again. Feature maps lie with their channels innermost.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
import triton
from numpy.typing import NDArray
from torch import Tensor

from autoturbo_gpu import kernels, timing
from autoturbo_gpu.operators import CARRIED_OUT
from autoturbo_gpu.plan import (
    ELEMENTWISE,
    MOST_KEPT_BYTES,
    MOST_LAST_CHANNELS,
    SAMPLES_APART,
    VIEWS,
    Attended,
    Convolutions,
    Convolved,
    NotLoweredError,
    Other,
    Plan,
    Product,
    Region,
    Step,
    apart,
    blocks_of_chain,
    permutation,
    power,
    rows_of_chain,
    under,
)

Run = Callable[[], None]

HALF = torch.float16


class DoesNotFitError(NotLoweredError):
    """A kernel that no choice of blocks makes small enough for the card."""


class Launch(NamedTuple):
    """A launch, or what PyTorch launches for an operator.

    Attributes:
        name: Its kind and what it makes, for people.
        run: Launches it.
    """

    name: str
    run: Run


@dataclass(frozen=True)
class Blocks:
    """How a kernel cuts its work: one of the choices of which the fastest is taken on a GPU.

    Attributes:
        positions: Rows of a program's product.
        channels: Columns of it.
        depth: Terms of the sums at a time.
        warps: Of 32 threads.
        stages: Loads that run ahead of the products.
    """

    positions: int
    channels: int
    depth: int
    warps: int = 4
    stages: int = 3

    @property
    def launch(self) -> dict[str, int]:
        """Return the options that Triton takes beside a kernel's arguments."""
        return {"num_warps": self.warps, "num_stages": self.stages}


CONVOLUTION_BLOCKS = (
    Blocks(64, 64, 32), Blocks(128, 64, 32), Blocks(128, 128, 32), Blocks(128, 128, 64, 8),
    Blocks(128, 256, 64, 8),
)  # fmt: skip
"""Few, since each is compiled for each shape of a layer."""

PRODUCT_BLOCKS = (Blocks(64, 64, 32), Blocks(128, 128, 32), Blocks(128, 64, 64))

ATTENTION_BLOCKS = (Blocks(64, 64, 64), Blocks(128, 64, 64, 8), Blocks(64, 32, 64))

CHAIN_LAUNCH = {"num_warps": 8, "num_stages": 2}
"""Of a chain: a choice of rows takes seconds to compile, so there are no others."""

FEED_FORWARD_BLOCKS = (Blocks(16, 64, 64), Blocks(32, 64, 64, 8), Blocks(32, 32, 64, 8))

_TRIES = 5
"""Runs of a choice of blocks, of which the fastest counts."""

_chosen: dict[tuple[Any, ...], int] = {}
"""The choice of blocks of each shape that was tried on this machine's GPU."""


class Recordable(ABC):
    """A model in FP16 on a device, which can be recorded as a CUDA graph.

    Attributes:
        device: ``"cuda"`` or ``"cpu"``.
        inputs: Of the model, all samples, by name; written before a run.
        outputs: Of the model, all samples, by name; there after a run.
    """

    device: str
    inputs: dict[str, Tensor]
    outputs: dict[str, Tensor]
    _replay: Run | None = None

    @abstractmethod
    def launch(self) -> None:
        """Launch everything once; on a GPU without waiting for it."""

    def run(self) -> None:
        """Run the model once, as recorded where it is."""
        (self._replay or self.launch)()

    def record(self) -> None:
        """Record the launches as a CUDA graph, which costs less to launch; nothing on a CPU."""
        if self.device != "cuda":
            return
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            for _ in range(3):  # nothing may be compiled while they are recorded
                self.launch()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.launch()
        self._replay = graph.replay

    def answer(self, inputs: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Return the outputs for inputs of all samples."""
        for name, values in inputs.items():
            self.inputs[name].copy_(torch.from_numpy(np.ascontiguousarray(values)))
        self.run()
        return {name: out.float().cpu().numpy() for name, out in self.outputs.items()}


class Program(Recordable):
    """A plan that can run.

    Args:
        plan: What runs.
        device: ``"cuda"``, or ``"cpu"`` for Triton's interpreter.

    Attributes:
        launches: In order.
    """

    def __init__(self, plan: Plan, device: str) -> None:
        self.plan, self.device = plan, device
        self._weights: dict[tuple[str, str], Tensor] = {}
        self._channels_inside = any(
            not layer.product
            for step in plan.steps
            if isinstance(step, Convolutions)
            for layer in step.layers
        )
        self._makers = {step.y: step for step in plan.steps}
        self.inputs = {name: self._whole(name) for name in plan.inputs}
        self.outputs = {name: self._whole(name) for name in plan.outputs}
        shared: dict[str, Tensor] = {}
        self.launches: list[Launch] = []
        for first in range(0, plan.samples, plan.pass_samples):
            # the last pass does some samples again rather than fewer
            begin = max(min(first, plan.samples - plan.pass_samples), 0)
            self.launches += self._pass(begin, shared)

    def launch(self) -> None:
        """Launch everything once; on a GPU without waiting for it."""
        for launch in self.launches:
            launch.run()

    def _whole(self, name: str) -> Tensor:
        shape = self.plan.shapes[name]
        if not shape or shape[0] != self.plan.pass_samples:
            raise NotLoweredError(f"{name} has no samples along its first dimension")
        return self._laid((self.plan.samples, *shape[1:]))

    def _laid(self, shape: Sequence[int]) -> Tensor:
        """Return a tensor of zeros, channels innermost where there are feature maps."""
        made = torch.zeros(tuple(shape), dtype=HALF, device=self.device)
        if len(shape) == 4 and self._channels_inside:
            return made.to(memory_format=torch.channels_last)
        return made

    def _pass(self, begin: int, shared: dict[str, Tensor]) -> list[Launch]:
        """Return the launches for the samples of one pass."""
        here = dict(shared)
        end = begin + self.plan.pass_samples
        for name, tensor in (*self.inputs.items(), *self.outputs.items()):
            here[name] = tensor[begin:end]
        launches: list[Launch] = []
        for step in self.plan.steps:
            launches += [Launch(_name(step), run) for run in self._launches(step, here)]
        # each pass has its own part of the model's ends, and the same room for what lies between
        ends = {_storage(tensor) for tensor in (*self.inputs.values(), *self.outputs.values())}
        shared |= {name: tensor for name, tensor in here.items() if _storage(tensor) not in ends}
        return launches

    def _made(self, name: str, here: dict[str, Tensor]) -> Tensor:
        """Return the tensor that a step makes, which is made room for at first."""
        if name not in here:
            here[name] = self._room(name)
        return here[name]

    def _room(self, name: str) -> Tensor:
        shape = self.plan.shapes[name]
        readers = [s for s in self.plan.steps if name in s.reads]
        only = readers[0] if len(readers) == 1 else None
        free = isinstance(self._makers.get(name), Product | Attended | Other)
        if isinstance(only, Other) and only.operator.kind == "Transpose" and free:
            # it lies as its only reader wants it, which then has nothing to move
            order = permutation(only.operator, len(shape))
            room = torch.zeros([shape[axis] for axis in order], dtype=HALF, device=self.device)
            return room.permute([order.index(axis) for axis in range(len(shape))])
        return self._laid(shape)

    def _launches(self, step: Step, here: dict[str, Tensor]) -> list[Run]:
        match step:
            case Convolutions():
                return self._convolutions(step, here)
            case Product():
                return [self._product(step, here)]
            case Attended():
                return [self._attention(step, here)]
            case Other(operator) if operator.kind in VIEWS:
                return self._view(step, here)
            case Other():
                return [self._other(step, here)]

    def _packed(self, tensor: Tensor) -> tuple[Tensor, list[Run]]:
        """Return a tensor with its channels innermost, and the copy that this may take."""
        inside = torch.channels_last if tensor.dim() == 4 and self._channels_inside else None
        if tensor.is_contiguous(memory_format=inside or torch.contiguous_format):
            return tensor, []
        copy = self._laid(tensor.shape)
        return copy, [lambda: (copy.copy_(tensor), None)[1]]

    def _convolutions(self, step: Convolutions, here: dict[str, Tensor]) -> list[Run]:
        """Return the launch of a step; one for each layer where the card has no room for all."""
        try:
            return self._together(step, here)
        except DoesNotFitError:
            if len(step.layers) == 1:
                raise
            return [run for one in apart(step) for run in self._together(one, here)]

    def _together(self, step: Convolutions, here: dict[str, Tensor]) -> list[Run]:
        x, launches = self._packed(here[step.layers[0].x])
        residual, more = x, list[Run]()
        if step.layers[-1].residual:
            residual, more = self._packed(here[step.layers[-1].residual])
        y = self._made(step.y, here)
        region = _positions(step, y.shape)
        if len(step.layers) == 1:
            made = self._convolution(step.layers[0], region, x, residual, y)
        elif step.layers[0].product and not step.rows:
            made = self._feed_forward(step.layers, region, x, residual, y)
        else:
            made = [self._chain(step, region, x, residual, y)]
        return [*launches, *more, *made]

    def _convolution(
        self, layer: Convolved, region: Region, x: Tensor, residual: Tensor, y: Tensor
    ) -> list[Run]:
        samples, rows, columns, channels = region
        weight, bias = self._weight(layer), self._bias(layer)
        extents = [end - begin for begin, end in (samples, rows, columns, channels)]
        positions = extents[0] * extents[1] * extents[2]

        def launch(blocks: Blocks) -> None:
            grid = (triton.cdiv(positions, blocks.positions),
                    triton.cdiv(extents[3], blocks.channels))  # fmt: skip
            kernels.convolution[grid](
                x, weight, bias, residual, y, *layer.before, *layer.after, *layer.side,
                layer.stride, *layer.pads, samples[0], rows[0], columns[0], channels[0], *extents,
                bool(layer.bias), bool(layer.residual), layer.activation,
                blocks.positions, blocks.channels, blocks.depth, **blocks.launch,
            )  # fmt: skip

        key = ("convolution", layer.before, layer.after, layer.side, layer.stride, tuple(extents))
        return [self.fastest(key, CONVOLUTION_BLOCKS, launch)]

    def _chain(
        self, step: Convolutions, region: Region, x: Tensor, residual: Tensor, y: Tensor
    ) -> Run:
        samples, rows, columns, channels = region
        weights = tuple(self._weight(layer) for layer in step.layers)
        biases = tuple(self._bias(layer) for layer in step.layers)
        extents = [end - begin for begin, end in (rows, columns, channels)]
        depth = min(power(step.layers[0].before[2]), 64)
        last = min(power(step.layers[-1].after[2]), MOST_LAST_CHANNELS)
        fewer = rows_of_chain(step.layers, MOST_KEPT_BYTES // 2) or step.rows
        heights = [*dict.fromkeys(min(height, extents[0]) for height in (step.rows, fewer))]

        def launch(height: int) -> None:
            grid = (triton.cdiv(extents[0], height), samples[1] - samples[0])
            kernels.chain[grid](
                x, weights, biases, residual, y, samples[0], rows[0], columns[0], channels[0],
                *extents, geometry(step.layers, height), depth, bool(step.layers[-1].residual),
                last, **CHAIN_LAUNCH,
            )  # fmt: skip

        key = ("chain", geometry(step.layers, step.rows), *extents, samples[1] - samples[0])
        return self.fastest(key, heights, launch)

    def _feed_forward(
        self, layers: Sequence[Convolved], region: Region, x: Tensor, residual: Tensor, y: Tensor
    ) -> list[Run]:
        first, last = layers
        samples, rows, _, _ = region
        height, out = first.before[0], power(last.after[2])
        if rows == (0, height):
            parts = [(samples[0] * height, (samples[1] - samples[0]) * height)]
        else:
            parts = [(n * height + rows[0], rows[1] - rows[0]) for n in range(*samples)]
        weights = [self._weight(first), self._bias(first), self._weight(last), self._bias(last)]
        fitting = [b for b in FEED_FORWARD_BLOCKS if b.positions * out * 4 <= MOST_KEPT_BYTES]

        def launch_of(begin: int, count: int) -> Callable[[Blocks], None]:
            def launch(blocks: Blocks) -> None:
                kernels.feed_forward[(triton.cdiv(count, blocks.positions),)](
                    x, *weights, residual, y, begin, count, first.before[2], first.after[2],
                    last.after[2], bool(first.bias), first.activation, bool(last.bias),
                    bool(last.residual), last.activation, blocks.positions, blocks.channels,
                    blocks.depth, out, **blocks.launch,
                )  # fmt: skip

            return launch

        return [
            self.fastest(
                ("feed_forward", first.before, first.after, last.after, count), fitting,
                launch_of(begin, count),
            )
            for begin, count in parts
        ]  # fmt: skip

    def _product(self, step: Product, here: dict[str, Tensor]) -> Run:
        a, b = self._given(step.a, here), self._given(step.b, here)
        y = self._made(step.y, here)
        a, b, y = (_samples(t, step.region, y.dim()) for t in (a, b, y))
        a, b, y = (_four(t, y.shape[:-2]) for t in (a, b, y))
        rows, columns, depth = y.shape[2], y.shape[3], a.shape[3]

        def launch(blocks: Blocks) -> None:
            grid = (triton.cdiv(rows, blocks.positions), triton.cdiv(columns, blocks.channels),
                    y.shape[0] * y.shape[1])  # fmt: skip
            kernels.product[grid](
                a, b, y, *a.stride(), *b.stride(), *y.stride(), y.shape[1], rows, columns, depth,
                blocks.positions, blocks.channels, blocks.depth, **blocks.launch,
            )  # fmt: skip

        return self.fastest(("product", y.shape, depth), PRODUCT_BLOCKS, launch)

    def _attention(self, step: Attended, here: dict[str, Tensor]) -> Run:
        y = self._made(step.y, here)
        whole = (*(self._given(name, here) for name in (step.q, step.k, step.v)), y)
        q, k, v, y = (_samples(tensor, step.region, y.dim()) for tensor in whole)
        batches = y.shape[:-2]
        mask = q
        if step.mask:
            mask = _samples(self._given(step.mask, here), step.region, y.dim())
            mask = mask.expand(*batches, q.shape[-2], k.shape[-1])
        q, k, v, mask, y = (_four(tensor, batches) for tensor in (q, k, v, mask, y))
        rows, size, keys, out = q.shape[2], q.shape[3], k.shape[3], v.shape[3]

        def launch(blocks: Blocks) -> None:
            kernels.attention[(triton.cdiv(rows, blocks.positions), y.shape[0] * y.shape[1])](
                q, k, v, mask, y, step.scale, *q.stride(), *k.stride(), *v.stride(),
                *mask.stride(), *y.stride(), y.shape[1], rows, keys,
                bool(step.mask), size, out, blocks.positions, blocks.channels, power(size),
                power(out), **blocks.launch,
            )  # fmt: skip

        return self.fastest(("attention", q.shape, k.shape, out), ATTENTION_BLOCKS, launch)

    def _view(self, step: Other, here: dict[str, Tensor]) -> list[Run]:
        """Return what it takes to see a tensor in another way: nothing, where it lies so."""
        operator = step.operator
        x, shape = here[operator.inputs[0]], self.plan.shapes[step.y]
        if operator.kind == "Transpose":
            seen = x.permute(permutation(operator, x.dim()))
        else:
            try:
                seen = x.view(shape)
            except RuntimeError:
                y = self._made(step.y, here)
                return [lambda: (y.copy_(x.reshape(shape)), None)[1]]
        if step.y not in self.outputs:
            here[step.y] = seen
            return []
        y = here[step.y]
        return [lambda: (y.copy_(seen), None)[1]]

    def _other(self, step: Other, here: dict[str, Tensor]) -> Run:
        """Return an operator that PyTorch carries out for a region of its output."""
        operator = step.operator
        carry_out = CARRIED_OUT.get(operator.kind)
        if carry_out is None:
            raise NotLoweredError(f"{operator.name}: {operator.kind} is not lowered")
        given = [self._given(name, here) for name in operator.inputs]
        y = self._made(step.y, here)
        if operator.kind in ELEMENTWISE:
            given = [_part(x, under(x.shape, step.region)) for x in given]
            y = _part(y, step.region)
        elif operator.kind in (*SAMPLES_APART, "Conv"):
            first, *others = given
            given = [first[slice(*step.region[0])], *others]
            y = y[slice(*step.region[0])]
        return lambda: (y.copy_(carry_out(operator, given)), None)[1]

    def _given(self, name: str, here: Mapping[str, Tensor]) -> Tensor:
        """Return a tensor that is made, or a weight as it is in the file, in FP16."""
        return here[name] if name in here else self._kept(name, "plain", lambda values: values)

    def _weight(self, layer: Convolved) -> Tensor:
        """Return a weight as kernels read it: kernel position, input channel, output channel."""
        if layer.product:
            turn = "transposed" if layer.transposed else "plain"
            return self._kept(layer.weight, turn, lambda v: v.T if layer.transposed else v)
        return self._kept(layer.weight, "convolution", lambda v: v.transpose(2, 3, 1, 0))

    def _bias(self, layer: Convolved) -> Tensor:
        if not layer.bias:
            return self._weight(layer)  # is not read
        return self._kept(layer.bias, "bias", lambda values: values, torch.float32)

    def _kept(
        self, name: str, form: str, turned: Callable[[NDArray[Any]], NDArray[Any]],
        dtype: torch.dtype = HALF,
    ) -> Tensor:  # fmt: skip
        if (name, form) not in self._weights:
            values = np.array(turned(self.plan.weights[name]), order="C")  # a copy that is ours
            self._weights[name, form] = torch.from_numpy(values).to(self.device, dtype)
        return self._weights[name, form]

    def fastest(
        self, key: tuple[Any, ...], choices: Sequence[Any], launch: Callable[[Any], None]
    ) -> Run:
        """Return a launch with the choice of blocks that is the fastest, the first on a CPU.

        Raises:
            DoesNotFitError: None of them can be launched.
        """
        if self.device == "cuda" and key not in _chosen:
            taken = [_seconds(lambda one=one: launch(one)) for one in choices]  # type: ignore[misc]
            if min(taken) == float("inf"):
                raise DoesNotFitError(
                    f"{key[0]} does not fit: it wants more of an SM than there is"
                )
            _chosen[key] = int(np.argmin(taken))
        choice = choices[_chosen.get(key, 0) if self.device == "cuda" else 0]
        return lambda: launch(choice)


def geometry(layers: Sequence[Convolved], rows: int) -> tuple[tuple[Any, ...], ...]:
    """Return what the chain's kernel is compiled for, with some rows in a program."""
    return tuple(
        (*layer.before, *layer.after, layer.side[0], layer.stride, layer.pads[0], height,
         positions, channels, bool(layer.bias), layer.activation)
        for layer, (height, positions, channels)
        in zip(layers, blocks_of_chain(layers, rows), strict=True)
    )  # fmt: skip


def _name(step: Step) -> str:
    kinds = {Product: "product", Attended: "attention"}
    if isinstance(step, Convolutions):
        made = " ".join(layer.y for layer in step.layers)
        return f"{len(step.layers)} in one: {made}" if step.layers[1:] else f"layer: {made}"
    kind = step.operator.kind if isinstance(step, Other) else kinds[type(step)]
    return f"{kind}: {step.y}"


def _seconds(launch: Run) -> float:
    """Return what a launch takes on the GPU; infinite where it does not fit."""
    try:
        launch()
        torch.cuda.synchronize()
    except (triton.runtime.errors.OutOfResources, RuntimeError):
        return float("inf")
    return min(timing.seconds(launch, _TRIES))


def _positions(step: Convolutions, shape: Sequence[int]) -> Region:
    """Return a step's region as samples, rows, columns and channels."""
    if not step.layers[-1].product:
        samples, channels, rows, columns = step.region
        return samples, rows, columns, channels
    samples, *between, channels = step.region
    height = step.layers[-1].after[0]
    if len(between) == 1:
        rows = between[0]
    elif between and all(p == (0, e) for p, e in zip(between[1:], shape[2:-1], strict=True)):
        inner = height // shape[1]
        rows = (between[0][0] * inner, between[0][1] * inner)
    else:
        rows = (0, height)
    return samples, rows, (0, 1), channels


def _storage(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _part(tensor: Tensor, region: Region) -> Tensor:
    return tensor[tuple(slice(*part) for part in region)]


def _samples(tensor: Tensor, region: Region, dims: int) -> Tensor:
    """Return the samples of a tensor that a region has, where its first dimension counts them."""
    apart = dims > 2 and tensor.dim() == dims and tensor.shape[0] > 1
    return tensor[slice(*region[0])] if apart else tensor


def _four(tensor: Tensor, batches: Sequence[int]) -> Tensor:
    """Return matrices in two dimensions of batches, those that are repeated with a stride of 0."""
    expanded = tensor.expand(*batches, *tensor.shape[-2:])
    missing = 4 - expanded.dim()
    return expanded[(None,) * missing] if missing > 0 else expanded


def seconds_of_launches(program: Program) -> list[tuple[str, float]]:
    """Return the name and seconds of each launch by itself, the fastest of some runs."""
    return [(launch.name, _seconds(launch.run)) for launch in program.launches]
