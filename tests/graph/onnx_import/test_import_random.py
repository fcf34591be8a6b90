"""Random small networks: every shape agrees with a run in ONNX Runtime."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import hypothesis.strategies as st
import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings

from autoturbo.graph.onnx_import import import_model
from tests.graph.onnx_import.import_models import ints, model, node, value, weight

if TYPE_CHECKING:
    from pathlib import Path

    from onnx import ModelProto, NodeProto, TensorProto

pytestmark = pytest.mark.full


ort = pytest.importorskip("onnxruntime")

bounded = settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


class Net:
    """Grows a network one operator at a time."""

    def __init__(self) -> None:
        self.nodes: list[NodeProto] = []
        self.stored: list[TensorProto] = []
        self.last = "x"

    def add(self, kind: str, *stored: TensorProto, **attributes: Any) -> None:
        """One more operator on the last value, with weights of its own."""
        made = f"v{len(self.nodes)}"
        self.stored.extend(stored)
        reads = [self.last, *(tensor.name for tensor in stored)]
        self.nodes.append(node(kind, reads, [made], **attributes))
        self.last = made

    def model(self, shape: list[int | str | None]) -> ModelProto:
        """The network, every value an output so that a run shows its shape."""
        outputs = [value(name, None) for made in self.nodes for name in made.output]
        return model(self.nodes, [value("x", shape)], outputs, self.stored)


@st.composite
def mlps(draw: st.DrawFn) -> ModelProto:
    net, width = Net(), draw(st.integers(1, 9))
    first: list[int | str | None] = ["N", width]
    for k in range(draw(st.integers(1, 5))):
        wide = draw(st.integers(1, 9))
        match draw(st.sampled_from(["gemm", "gemm_t", "matmul", "relu", "softmax", "layernorm"])):
            case "gemm":
                net.add("Gemm", weight(f"w{k}", width, wide), weight(f"b{k}", wide))
                width = wide
            case "gemm_t":
                net.add("Gemm", weight(f"w{k}", wide, width), transB=1)
                width = wide
            case "matmul":
                net.add("MatMul", weight(f"w{k}", width, wide))
                width = wide
            case "relu":
                net.add("Relu")
            case "softmax":
                net.add("Softmax", axis=-1)
            case _:
                net.add("LayerNormalization", weight(f"s{k}", width), weight(f"t{k}", width))
    return net.model(first)


@st.composite
def convnets(draw: st.DrawFn) -> ModelProto:
    net, channels = Net(), draw(st.integers(1, 4))
    first: list[int | str | None] = ["N", channels, 12, draw(st.integers(9, 14))]
    for k in range(draw(st.integers(1, 4))):
        kernel, stride, pad = (
            draw(st.integers(1, 3)),
            draw(st.integers(1, 2)),
            draw(st.integers(0, 1)),
        )
        match draw(st.sampled_from(["conv", "depthwise", "max", "mean", "relu"])):
            case "conv":
                wide = draw(st.integers(1, 5))
                net.add("Conv", weight(f"k{k}", wide, channels, kernel, kernel),
                        strides=[stride] * 2, pads=[1] * 4)  # fmt: skip
                channels = wide
            case "depthwise":
                net.add("Conv", weight(f"k{k}", channels, 1, kernel, kernel), group=channels,
                        pads=[1] * 4)  # fmt: skip
            case "max":
                # Rounding up with padding is left out: until opset 22 the definition did not say
                # that windows which begin in the padding do not count, and runtimes differ.
                ceil = 0 if pad else draw(st.integers(0, 1))
                net.add("MaxPool", kernel_shape=[2, 2], strides=[1, stride], pads=[pad] * 4,
                        ceil_mode=ceil)  # fmt: skip
            case "mean":
                net.add("AveragePool", kernel_shape=[2, 2], pads=[pad] * 4)
            case _:
                net.add("Relu")
    if draw(st.booleans()):
        net.add("GlobalAveragePool")
        net.add("Flatten")
    else:
        net.add("Reshape", ints("flat", 0, -1))
    return net.model(first)


def assert_shapes_as_run(made: ModelProto, batch: int, folder: Path) -> None:
    path = folder / "model.onnx"
    onnx.save(made, path)
    graph = import_model(path, batch=batch)
    session = ort.InferenceSession(path, providers=["CPUExecutionProvider"])
    x = np.ones(graph.tensors[graph.inputs[0]].shape, np.float32)
    names = [output.name for output in session.get_outputs()]
    run = {n: tuple(a.shape) for n, a in zip(names, session.run(None, {"x": x}), strict=True)}
    ours = {graph.tensors[index].name: graph.tensors[index].shape for index in graph.outputs}
    assert ours == run
    assert graph.batch == batch
    assert not graph.opaque
    assert graph.hash == import_model(path, batch=batch).hash


@bounded
@given(made=mlps(), batch=st.integers(1, 5))
def test_shapes_of_mlps_are_those_of_a_run(made: ModelProto, batch: int, tmp_path: Path) -> None:
    assert_shapes_as_run(made, batch, tmp_path)


@bounded
@given(made=convnets(), batch=st.integers(1, 3))
def test_shapes_of_convnets_are_those_of_a_run(
    made: ModelProto, batch: int, tmp_path: Path
) -> None:
    assert_shapes_as_run(made, batch, tmp_path)


@bounded
@given(made=convnets(), baked=st.integers(1, 4), batch=st.integers(1, 4))
def test_a_static_copy_rebatched_is_the_dynamic_one(
    made: ModelProto, baked: int, batch: int, tmp_path: Path
) -> None:
    onnx.save(made, tmp_path / "model.onnx")
    dynamic = import_model(tmp_path / "model.onnx", batch=batch)
    made.graph.input[0].type.tensor_type.shape.dim[0].dim_value = baked
    onnx.save(made, tmp_path / "model.onnx")
    assert import_model(tmp_path / "model.onnx", batch=batch).hash == dynamic.hash
