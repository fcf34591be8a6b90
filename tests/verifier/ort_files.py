"""Files as ONNX Runtime's generative exporter, optimisers and quantisers write them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import NodeProto, TensorProto, helper, numpy_helper

from autoturbo.datasets.workloads import get

MS = "com.microsoft"

HIDDEN, HEADS, KEYS, PAST, INNER, WORDS = 64, 4, 2, 7, 96, 50
_WIDTH = HIDDEN // HEADS


class Decoder:
    """Layers of a language model with 4-bit weights and grouped queries, one new token each.

    Lengths of samples are taken from a mask, or are inputs.
    """

    def __init__(self, layers: int, batch: int, rows: int = 1, *, lengths: bool = False) -> None:
        self._rng = np.random.default_rng(1)
        self._nodes: list[NodeProto] = []
        self._stored: list[TensorProto] = []
        total = PAST + rows
        self._inputs = [
            helper.make_tensor_value_info("input_ids", TensorProto.INT64, [batch, rows]),
            helper.make_tensor_value_info("attention_mask", TensorProto.INT64, [batch, total]),
        ]
        self._presents = []
        self._turns()
        if lengths:
            self._inputs[1:] = [
                helper.make_tensor_value_info("seqlens_k", TensorProto.INT32, [batch]),
                helper.make_tensor_value_info("total", TensorProto.INT32, []),
            ]
        else:
            self._lengths()
        hidden = self._first()
        skip = hidden[1]
        name = hidden[0]
        for layer in range(layers):
            shapes = [[batch, KEYS, length, _WIDTH] for length in (PAST, total)]
            for kind in ("key", "value"):
                past, present = (f"{when}.{layer}.{kind}" for when in ("past", "present"))
                self._inputs.append(helper.make_tensor_value_info(past, 1, shapes[0]))
                self._presents.append(helper.make_tensor_value_info(present, 1, shapes[1]))
            name, skip = self._layer(layer, name, skip)
        self._product(name, HIDDEN, WORDS, "logits")
        self._logits = helper.make_tensor_value_info("logits", 1, [batch, rows, WORDS])

    def save(self, path: Path) -> Path:
        outputs = [self._logits, *self._presents]
        graph = helper.make_graph(self._nodes, "decoder", self._inputs, outputs, self._stored)
        opsets = [helper.make_opsetid("", 21), helper.make_opsetid(MS, 1)]
        onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), path)
        return path

    def _node(self, op: str, inputs: list[str], outputs: list[str], **more: Any) -> None:
        self._nodes.append(helper.make_node(op, inputs, outputs, outputs[0] + "_node", **more))

    def _store(self, name: str, array: np.ndarray) -> str:
        self._stored.append(numpy_helper.from_array(array, name))
        return name

    def _real(self, name: str, *shape: int) -> str:
        return self._store(name, self._rng.normal(size=shape).astype(np.float32))

    def _lengths(self) -> None:
        """Lengths of samples, as the exporter takes them from the mask."""
        self._store("one", np.array([1]))
        self._node("ReduceSum", ["attention_mask", "one"], ["kept"], keepdims=0)
        self._node("Sub", ["kept", "one"], ["last"])
        self._node("Cast", ["last"], ["seqlens_k"], to=TensorProto.INT32)
        self._node("Shape", ["attention_mask"], ["extents"])
        self._store("second", np.array(1))
        self._node("Gather", ["extents", "second"], ["columns"], axis=0)
        self._node("Cast", ["columns"], ["total"], to=TensorProto.INT32)

    def _turns(self) -> None:
        angles = np.outer(np.arange(32), np.arange(_WIDTH // 2) / 10).astype(np.float32)
        self._store("cos", np.cos(angles))
        self._store("sin", np.sin(angles))

    def _first(self) -> tuple[str, str]:
        self._real("table", WORDS, HIDDEN)
        self._node("Gather", ["table", "input_ids"], ["embedded"])
        self._real("scale", HIDDEN)
        self._node("SimplifiedLayerNormalization", ["embedded", "scale"], ["first"], axis=-1)
        return "first", "embedded"

    def _product(self, name: str, inner: int, outer: int, to: str) -> str:
        blocks = inner // 32
        packed = self._rng.integers(0, 256, size=(outer, blocks, 16)).astype(np.uint8)
        self._store(f"{to}_packed", packed)
        scales = self._rng.uniform(0.01, 0.03, size=outer * blocks).astype(np.float32)
        self._store(f"{to}_scales", scales)
        self._node(
            "MatMulNBits", [name, f"{to}_packed", f"{to}_scales"], [to],
            domain=MS, K=inner, N=outer, bits=4, block_size=32,
        )  # fmt: skip
        return to

    def _normal(self, skip: str, name: str, to: str) -> tuple[str, str]:
        self._real(f"{to}_scale", HIDDEN)
        outputs = [to, "", "", f"{to}_sum"]
        inputs = [skip, name, f"{to}_scale"]
        self._node("SkipSimplifiedLayerNormalization", inputs, outputs, domain=MS, epsilon=1e-6)
        return to, f"{to}_sum"

    def _layer(self, layer: int, name: str, skip: str) -> tuple[str, str]:
        widths = {"q": HIDDEN, "k": KEYS * _WIDTH, "v": KEYS * _WIDTH}
        projected = [self._product(name, HIDDEN, w, f"{n}{layer}") for n, w in widths.items()]
        caches = [f"past.{layer}.key", f"past.{layer}.value"]
        made = [f"attended{layer}", f"present.{layer}.key", f"present.{layer}.value"]
        self._node(
            "GroupQueryAttention",
            [*projected, *caches, "seqlens_k", "total", "cos", "sin"], made,
            domain=MS, num_heads=HEADS, kv_num_heads=KEYS, do_rotary=1,
        )  # fmt: skip
        out = self._product(made[0], HIDDEN, HIDDEN, f"out{layer}")
        name, skip = self._normal(skip, out, f"middle{layer}")
        gate, up = (self._product(name, HIDDEN, INNER, f"{n}{layer}") for n in ("gate", "up"))
        self._node("Sigmoid", [gate], [f"open{layer}"])
        self._node("Mul", [gate, f"open{layer}"], [f"silu{layer}"])
        self._node("Mul", [f"silu{layer}", up], [f"gated{layer}"])
        down = self._product(f"gated{layer}", INNER, HIDDEN, f"down{layer}")
        return self._normal(skip, down, f"end{layer}")


def decoder_macs(layers: int, batch: int, rows: int = 1) -> int:
    """Worked out by hand, both products of attention over past and new positions."""
    weights = HIDDEN * (2 * HIDDEN + 2 * KEYS * _WIDTH) + 3 * HIDDEN * INNER
    attention = 2 * HEADS * (PAST + rows) * _WIDTH
    return batch * rows * (layers * (weights + attention) + HIDDEN * WORDS)


def bert_layer(path: Path) -> Path:
    """The first layer of the bundled BERT with a small vocabulary and drawn weights."""
    model = onnx.load(get("bert_base_s128").file, load_external_data=False)
    graph, rng = model.graph, np.random.default_rng(3)
    normal = [k for k, node in enumerate(graph.node) if node.op_type == "LayerNormalization"]
    del graph.node[normal[2] + 1 :]
    read = {name for node in graph.node for name in node.input}
    kept = [tensor for tensor in graph.initializer if tensor.name in read]
    drawn = [_drawn(t, rng) if t.data_location == TensorProto.EXTERNAL else t for t in kept]
    del graph.initializer[:], graph.output[:], graph.value_info[:], model.metadata_props[:]
    graph.initializer.extend(drawn)
    graph.output.append(helper.make_tensor_value_info(graph.node[-1].output[0], 1, None))
    onnx.save(model, path)
    return path


def _drawn(tensor: TensorProto, rng: np.random.Generator) -> TensorProto:
    dims = [100 if extent > 5000 else extent for extent in tensor.dims]
    return numpy_helper.from_array((rng.normal(size=dims) * 0.03).astype(np.float32), tensor.name)


def optimised(source: Path, path: Path) -> Path:
    """What ONNX Runtime makes of a model when it loads it."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.optimized_model_filepath = str(path)
    onnxruntime.InferenceSession(str(source), options, providers=["CPUExecutionProvider"])
    return path
