"""The descriptions of cards agree with what is published of them, and the models can be run."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from autoturbo_gpu import models, targets

from autoturbo.api import load_target

CARDS = pytest.mark.parametrize("card", [targets.a100, targets.h100, targets.h200])

# TFLOPS of FP16 without sparsity, GB/s of the memory, SMs, KB of shared memory for one block
PUBLISHED = {
    "a100": (312.0, 1555, 108, 163),
    "h100": (989.4, 3350, 132, 227),
    "h200": (989.5, 4800, 132, 227),
}

SHAPES = {
    "resnet18-tailor": ((1, 64, 56, 56), (1, 512, 7, 7)),
    "bert-feed-forward": ((1, 128, 768), (1, 128, 768)),
    "bert-attention": ((1, 128, 768), (1, 128, 768)),
}


@CARDS
def test_a_description_is_valid_and_has_its_name(card: Callable[[], Path]) -> None:
    command = [sys.executable, "-m", "autoturbo", "targets", "validate", str(card())]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert load_target(card()).name == card.__name__ == card().stem


@CARDS
def test_every_figure_has_a_source_or_is_called_an_estimate(card: Callable[[], Path]) -> None:
    for line in card().read_text(encoding="utf-8").splitlines():
        code, _, comment = line.partition("#")
        figure = code.strip().removeprefix("- ")
        if figure and not figure.startswith("kind:") and not figure.endswith(":"):
            assert "source: " in comment or comment.strip().startswith("estimate: "), line


@CARDS
def test_peaks_agree_with_what_is_published(card: Callable[[], Path]) -> None:
    target = load_target(card())
    tflops, memory, sms, shared = PUBLISHED[target.name]
    assert target.clusters * target.cores == sms
    products = target.matrix.macs_per_cycle("float16") * sms * target.clock
    assert 2 * products == pytest.approx(tflops * 1e12, rel=0.01)
    assert target.matrix_macs_per_second("float16") == pytest.approx(products)
    assert target.ddr.bandwidth == pytest.approx(memory * 1e9)
    assert target.dma.channels * target.dma.bandwidth == pytest.approx(target.ddr.bandwidth)
    assert target.lb.capacity == 256 * 1024
    assert target.lb.weight_capacity == shared * 1024
    # One port of 64 bytes per SM and cycle to L2, 128 bytes of shared memory.
    assert target.transfer.bandwidth == pytest.approx(64 * target.clock, rel=0.01)
    assert target.lb.bandwidth == pytest.approx(128 * target.clock, rel=0.01)


def test_l2_of_the_a100_reads_5120_bytes_per_cycle() -> None:
    target = load_target(targets.a100())
    assert target.gb.bandwidth == pytest.approx(5120 * target.clock, rel=0.001)


@pytest.mark.parametrize("name", models.MODELS)
def test_a_model_passes_the_checker_and_runs(name: str, tmp_path: Path) -> None:
    path = tmp_path / f"{name}.onnx"
    models.save(name, 1, path)
    model = onnx.load(path)
    onnx.checker.check_model(model, full_check=True)
    assert all(node.name for node in model.graph.node)

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    given, expected = SHAPES[name]
    x = np.random.default_rng(1).standard_normal(given).astype(np.float32)
    y: Any = session.run([models.OUTPUT], {models.INPUT: x})[0]
    assert y.shape == expected
    assert np.isfinite(y).all()
    # Neither dead nor out of the range of FP16.
    assert 0.1 < y.std() < 10.0


@pytest.mark.parametrize("name", models.MODELS)
def test_weights_are_always_the_same_and_the_batch_is_free(name: str) -> None:
    one, again, eight = (models.MODELS[name](batch) for batch in (1, 1, 8))
    assert one == again
    weights = [
        value for value in one.graph.initializer if value.data_type == onnx.TensorProto.FLOAT
    ]
    assert weights == [
        value for value in eight.graph.initializer if value.data_type == onnx.TensorProto.FLOAT
    ]
    for value in (*eight.graph.input, *eight.graph.output):
        assert value.type.tensor_type.shape.dim[0].dim_value == 8
