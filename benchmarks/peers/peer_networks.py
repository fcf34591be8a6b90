"""The networks that peers are compared on, as ONNX without weights.

Those of SoMa's repository have the layers that it lists: convolutions, pools, sums and products,
no activations, one operation an element where it has vector work, ResNet with the stride in the
first convolution of a block (v1). Batches are a symbol.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper, save

from autoturbo.datasets import workloads
from autoturbo.errors import UsageError, did_you_mean
from autoturbo.graph.onnx_import import import_model
from autoturbo.graph.operators import Graph

BATCH = "batch"
"""Name of the dimension of samples."""

OPSET = 17


@dataclass
class Network:
    """An ONNX graph under construction; a method adds a node and returns its output's name."""

    inputs: dict[str, tuple[int, ...]]
    nodes: list[NodeProto] = field(default_factory=list)
    constants: list[TensorProto] = field(default_factory=list)
    channels: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, **inputs: tuple[int, ...]) -> Network:
        """Return a graph with inputs of these extents, samples not among them."""
        return cls(inputs, channels={name: shape[0] for name, shape in inputs.items()})

    def add(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """Add a node, named after its kind and number."""
        name = f"{kind.lower()}{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [name], name=name, **attributes))
        self.channels[name] = self.channels.get(inputs[0], 0)
        return name

    def weight(self, *shape: int) -> str:
        """Declare a constant whose values are in a file that need not exist: shapes schedule."""
        name = f"w{len(self.constants)}"
        weight = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=shape)
        weight.data_location = TensorProto.EXTERNAL
        weight.external_data.add(key="location", value="weights.bin")
        self.constants.append(weight)
        return name

    def integers(self, *values: int) -> str:
        """Add a constant vector of integers."""
        name = f"i{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(values, np.int64), name))
        return name

    def conv(
        self,
        x: str,
        channels: int,
        kernel: int | tuple[int, int] = 1,
        stride: int = 1,
        *,
        padded: bool = True,
    ) -> str:
        """Add a convolution that keeps the size but for its stride, or takes no padding."""
        sides = (kernel, kernel) if isinstance(kernel, int) else kernel
        pads = [side // 2 if padded else 0 for side in sides]
        weight = self.weight(channels, self.channels[x], *sides)
        name = self.add(
            "Conv", x, weight, kernel_shape=sides, strides=[stride] * 2, pads=pads * 2
        )  # fmt: skip
        self.channels[name] = channels
        return name

    def chain(self, x: str, *layers: tuple[Any, ...]) -> str:
        """Add convolutions one after another, each given as the arguments of :meth:`conv`."""
        for layer in layers:
            x = self.conv(x, *layer)
        return x

    def pool(
        self, x: str, kernel: int, stride: int, *, padded: bool = False, kind: str = "MaxPool"
    ) -> str:
        """Add a pool; a padded one keeps the size but for its stride."""
        pads = [kernel // 2 if padded else 0] * 4
        return self.add(kind, x, kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=pads)

    def sum(self, *parts: str) -> str:
        """Add tensors elementwise; one alone is returned as it is."""
        first, *others = parts
        for other in others:
            first = self.add("Add", first, other)
        return first

    def concat(self, *parts: str) -> str:
        """Join tensors along their channels; one alone is returned as it is."""
        if len(parts) == 1:
            return parts[0]
        name = self.add("Concat", *parts, axis=1)
        self.channels[name] = sum(self.channels[part] for part in parts)
        return name

    def classifier(self, x: str, *widths: int) -> str:
        """Average the positions, then multiply by a matrix for each width."""
        depth = self.channels[x]
        x = self.add("Flatten", self.add("GlobalAveragePool", x), axis=1)
        for width in widths:
            x, depth = self.add("MatMul", x, self.weight(depth, width)), width
        return x

    def linear(self, x: str, depth: int, width: int) -> str:
        """Multiply the last dimension by a matrix."""
        return self.add("MatMul", x, self.weight(depth, width))

    def model(self, *outputs: str) -> ModelProto:
        """Return the model with these outputs, all of unknown extents but the samples."""
        given = [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, [BATCH, *shape])
            for name, shape in self.inputs.items()
        ]
        made = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
        body = helper.make_graph(self.nodes, "network", given, made, self.constants)
        return helper.make_model(body, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8)


def imported(model: ModelProto, batch: int) -> Graph:
    """Return a model as a graph for a number of samples."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "network.onnx"
        save(model, path)
        return import_model(path, batch=batch)


# ------------------------------------------------------------------------ networks of convolutions

IMAGE = (3, 224, 224)

STAGES = ((64, 56), (128, 28), (256, 14), (512, 7))
"""Channels and size of ResNet's four stages."""


def resnet_v1(blocks: Sequence[int]) -> ModelProto:
    """Return ResNet with bottlenecks whose stride is in the 1 x 1."""
    net = Network.of(image=IMAGE)
    x = net.pool(net.conv("image", 64, 7, 2), 3, 2, padded=True)
    for stage, ((channels, _), count) in enumerate(zip(STAGES, blocks, strict=True)):
        for block in range(count):
            stride = 2 if stage and not block else 1
            inner = net.chain(x, (channels, 1, stride), (channels, 3), (4 * channels,))
            x = net.sum(x if block else net.conv(x, 4 * channels, 1, stride), inner)
    return net.model(net.classifier(x, 1000))


def densenet(blocks: Sequence[int] = (6, 12, 24, 16), growth: int = 32) -> ModelProto:
    """Return DenseNet (121 layers by default): a layer reads all before it in its block."""
    net = Network.of(image=IMAGE)
    x = net.pool(net.conv("image", 64, 7, 2), 3, 2, padded=True)
    for block, count in enumerate(blocks):
        parts = [x]
        for _ in range(count):
            parts.append(net.chain(net.concat(*parts), (4 * growth,), (growth, 3)))
        x = net.concat(*parts)
        if block + 1 < len(blocks):
            x = net.pool(net.conv(x, net.channels[x] // 2), 2, 2, kind="AveragePool")
    return net.model(net.classifier(x, 1000))


def inception_resnet_v1() -> ModelProto:
    """Return Inception-ResNet v1; SoMa writes its dropout as a matrix, and so does this."""
    net = Network.of(image=(3, 299, 299))
    x = net.conv("image", 32, 3, 2, padded=False)
    x = net.conv(net.conv(x, 32, 3, padded=False), 64, 3)
    x = net.conv(net.pool(x, 3, 2), 80)
    x = net.conv(net.conv(x, 192, 3, padded=False), 256, 3, 2, padded=False)
    short, long = [(32,), (32, 3)], [(32,), (32, 3), (32, 3)]
    for _ in range(5):
        x = _residual(net, x, [(32,)], short, long)
    x = _reduction(net, x, [(384, 3)], [(192,), (192, 3), (256, 3)])
    for _ in range(10):
        x = _residual(net, x, [(128,)], [(128,), (128, (1, 7)), (128, (7, 1))])
    narrow = [(256,), (256, 3)]
    x = _reduction(net, x, [(256,), (384, 3)], narrow, [(256,), (256, 3), (256, 3)])
    for _ in range(5):
        x = _residual(net, x, [(192,)], [(192,), (192, (1, 3)), (192, (3, 1))])
    return net.model(net.classifier(x, 1792, 1000))


def _residual(net: Network, x: str, *branches: Sequence[tuple[Any, ...]]) -> str:
    """Join branches, bring them to the channels of their input and add it."""
    joined = net.concat(*(net.chain(x, *branch) for branch in branches))
    return net.sum(x, net.conv(joined, net.channels[x]))


def _reduction(net: Network, x: str, *branches: Sequence[tuple[Any, ...]]) -> str:
    """Join a pool with branches whose last convolution has a stride of 2 and no padding."""
    parts = []
    for *layers, (channels, kernel) in branches:
        parts.append(net.conv(net.chain(x, *layers), channels, kernel, 2, padded=False))
    return net.concat(*parts, net.pool(x, 3, 2))


def inception_v3() -> ModelProto:
    """Return Inception-v3 without its second classifier and without activations."""
    net = Network.of(image=(3, 299, 299))
    x = net.conv("image", 32, 3, 2, padded=False)
    x = net.conv(net.conv(x, 32, 3, padded=False), 64, 3)
    x = net.conv(net.conv(net.pool(x, 3, 2), 80), 192, 3, padded=False)
    x = net.pool(x, 3, 2)
    for pooled in (32, 64, 64):
        x = _joined(net, x, pooled, [(64,)], [(48,), (64, 5)], [(64,), (96, 3), (96, 3)])
    x = _reduction(net, x, [(384, 3)], [(64,), (96, 3), (96, 3)])
    for c in (128, 160, 160, 192):
        once = [(c,), (c, (1, 7)), (192, (7, 1))]
        twice = [(c,), (c, (7, 1)), (c, (1, 7)), (c, (7, 1)), (192, (1, 7))]
        x = _joined(net, x, 192, [(192,)], once, twice)
    x = _reduction(net, x, [(192,), (320, 3)], [(192,), (192, (1, 7)), (192, (7, 1)), (192, 3)])
    for _ in range(2):
        x = _forked(net, x)
    return net.model(net.classifier(x, 1000))


def _joined(net: Network, x: str, pooled: int, *branches: Sequence[tuple[Any, ...]]) -> str:
    """Join branches with one that averages first."""
    parts = [net.chain(x, *branch) for branch in branches]
    average = net.pool(x, 3, 1, padded=True, kind="AveragePool")
    return net.concat(*parts, net.conv(average, pooled))


def _forked(net: Network, x: str) -> str:
    """Add a block of Inception-v3's last stage, whose branches end in two."""
    middle, long = net.conv(x, 384), net.chain(x, (448,), (384, 3))
    ends = [net.conv(y, 384, kernel) for y in (middle, long) for kernel in ((1, 3), (3, 1))]
    average = net.pool(x, 3, 1, padded=True, kind="AveragePool")
    return net.concat(net.conv(x, 320), *ends, net.conv(average, 192))


# ----------------------------------------------------------------------------------------- RandWire


def small_world(nodes: int, neighbours: int, rewired: float, seed: int) -> list[tuple[int, int]]:
    """Return the edges of Watts and Strogatz's random graph, each from the lower node.

    Args:
        nodes: On a ring.
        neighbours: That a node has at first, half of them on each side.
        rewired: Probability that an edge gets another end.
        seed: Of the draws.
    """
    rng = np.random.default_rng(seed)
    edges: set[tuple[int, int]] = set()
    for step in range(1, neighbours // 2 + 1):
        for node in range(nodes):
            edges.add(_ascending(node, (node + step) % nodes))
    for node, end in sorted(edges):
        free = [n for n in range(nodes) if n != node and _ascending(node, n) not in edges]
        if rng.random() < rewired and free:
            edges.remove((node, end))
            edges.add(_ascending(node, int(rng.choice(free))))
    return sorted(edges)


def _ascending(a: int, b: int) -> tuple[int, int]:
    return min(a, b), max(a, b)


def randwire(nodes: int = 10, channels: int = 64, seed: int = 0) -> ModelProto:
    """Return RandWire of the small regime: three random stages, 64, 128 and 256 channels.

    A node adds what it reads and has a 3 x 3 and a 1 x 1 convolution, as in SoMa's file. The
    graphs are drawn here (Watts-Strogatz, 4 neighbours, 0.75 rewired: the published choice).
    """
    net = Network.of(image=IMAGE)
    x = net.chain("image", (channels // 2, 3, 2), (channels, 3, 2))
    for stage in range(3):
        edges = small_world(nodes, 4, 0.75, seed + stage)
        x = _random_stage(net, x, nodes, edges, channels << stage)
    return net.model(net.conv(x, 1024))


def _random_stage(
    net: Network, x: str, nodes: int, edges: Iterable[tuple[int, int]], channels: int
) -> str:
    """Add a random stage: nodes without a source read `x` at half the size, loose ends add up."""
    sources: list[list[int]] = [[a for a, b in edges if b == node] for node in range(nodes)]
    made: list[str] = []
    for read in sources:
        entry = net.sum(*(made[a] for a in read)) if read else x
        kept = net.channels[entry]
        made.append(net.chain(entry, (kept, 3, 1 if read else 2), (channels,)))
    used = {a for read in sources for a in read}
    return net.sum(*(name for node, name in enumerate(made) if node not in used))


# ----------------------------------------------------------------------------------- transformers


@dataclass(frozen=True)
class Block:
    """Extents of a transformer block.

    Attributes:
        tokens: That are computed.
        heads: Of 64 elements each.
        cached: Tokens whose keys and values are read.
        gpt: Whether it normalises before attention and MLP, with GELU; otherwise it is BERT's.
    """

    tokens: int
    heads: int
    cached: int = 0
    gpt: bool = False

    @property
    def width(self) -> int:
        """Return the elements of a token."""
        return 64 * self.heads


def transformer_block(block: Block) -> ModelProto:
    """Return a block as SoMa writes it: norms, softmax, GELU, dropout are one operation each."""
    width = block.width
    net = Network.of(x=(block.tokens, width), **_caches(block))
    first = net.add("Relu", "x")  # the norm, or the embedding
    attention = net.linear(_attention(net, first, block), width, width)
    if not block.gpt:
        attention = net.add("Relu", attention)  # dropout
    residual = net.sum("x" if block.gpt else first, attention)
    inner = net.add("Relu", residual) if block.gpt else residual
    inner = net.linear(inner, width, 4 * width)
    if block.gpt:
        inner = net.add("Relu", inner)
    return net.model(net.sum(residual, net.linear(inner, 4 * width, width)))


def _caches(block: Block) -> dict[str, tuple[int, ...]]:
    if not block.cached:
        return {}
    return {"keys": (block.heads, 64, block.cached), "values": (block.heads, block.cached, 64)}


def _attention(net: Network, x: str, block: Block) -> str:
    """Add multi-head attention without its last product."""
    split = net.integers(0, block.tokens, block.heads, 64)
    orders = {"query": (0, 2, 1, 3), "keys": (0, 2, 3, 1), "values": (0, 2, 1, 3)}
    heads = {}
    for name, order in orders.items():
        product = net.linear(x, block.width, block.width)
        heads[name] = net.add("Transpose", net.add("Reshape", product, split), perm=order)
    if block.cached:
        heads["keys"] = net.add("Concat", "keys", heads["keys"], axis=3)
        heads["values"] = net.add("Concat", "values", heads["values"], axis=2)
    scores = net.add("Relu", net.add("MatMul", heads["query"], heads["keys"]))
    read = net.add("Transpose", net.add("MatMul", scores, heads["values"]), perm=(0, 2, 1, 3))
    return net.add("Reshape", read, net.integers(0, block.tokens, block.width))


# ------------------------------------------------------------------------- for traffic, of one core


def product(rows: int, depth: int, columns: int) -> ModelProto:
    """Return one product with a weight matrix."""
    net = Network.of(x=(rows, depth))
    return net.model(net.linear("x", depth, columns))


def product_chain(rows: int, widths: Sequence[int]) -> ModelProto:
    """Return products with weight matrices, one after another."""
    net, x = Network.of(x=(rows, widths[0])), "x"
    for depth, width in pairwise(widths):
        x = net.linear(x, depth, width)
    return net.model(x)


def plain_attention(heads: int, tokens: int, width: int) -> ModelProto:
    """Return softmax attention of queries, keys and values from DRAM."""
    shape = (heads, tokens, width)
    net = Network.of(query=shape, key=(heads, width, tokens), value=shape)
    scores = net.add("Softmax", net.add("MatMul", "query", "key"), axis=-1)
    return net.model(net.add("MatMul", scores, "value"))


def conv_chain(channels: int, size: int, layers: int) -> ModelProto:
    """Return 3 x 3 convolutions, one after another."""
    net = Network.of(x=(channels, size, size))
    return net.model(net.chain("x", *[(channels, 3)] * layers))


# ------------------------------------------------------------------------------------------ by name

BUILT: dict[str, Callable[[], ModelProto]] = {
    "resnet50_v1": partial(resnet_v1, (3, 4, 6, 3)),
    "resnet101_v1": partial(resnet_v1, (3, 4, 23, 3)),
    "densenet121_plain": densenet,
    "inception_resnet_v1": inception_resnet_v1,
    "randwire_small": randwire,
    "bert_block_128": partial(transformer_block, Block(128, 12)),
    "gpt2_prefill_block_512": partial(transformer_block, Block(512, 12, gpt=True)),
    "gpt2_decode_block_512": partial(transformer_block, Block(1, 12, cached=512, gpt=True)),
    "gpt2_xl_prefill_block_1024": partial(transformer_block, Block(1024, 25, gpt=True)),
    "inception_v3": inception_v3,
    "matmul_4096x512x2048": partial(product, 4096, 512, 2048),
    "matmul_chain": partial(product_chain, 4096, (512, 2048, 512, 2048, 512)),
    "attention": partial(plain_attention, 8, 1024, 64),
    "conv_chain": partial(conv_chain, 64, 112, 3),
}
"""Makers of the networks that no data set has, by name."""


def network(name: str, batch: int) -> Graph:
    """Return a network of this module or of the data set for a number of samples.

    Raises:
        UsageError: There is none of the name.
    """
    if name in BUILT:
        return imported(BUILT[name](), batch)
    if name in workloads.names():
        return import_model(workloads.get(name).file, batch=batch)
    known = (*BUILT, *workloads.names())
    raise UsageError(f"no network is called '{name}'", hint=did_you_mean(name, known))
