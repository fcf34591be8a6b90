"""Small networks that are split in every way, scheduled and saved, for the verifier's tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from onnx import numpy_helper, save

from autoturbo.graph.onnx_import import import_model
from autoturbo.schedule.knobs import Knobs
from autoturbo.schedule.pipeline import ModelScheduler, build_schedule
from autoturbo.verifier.onnx_writer.scheduled_model import ScheduledModel, nodes_of, scheduled_model
from tests.schedule.schedule_samples import Net, target

if TYPE_CHECKING:
    from pathlib import Path

    from onnx import ModelProto

    from autoturbo.hardware import Target
    from autoturbo.schedule.schedule import Schedule


def image_net() -> Net:
    """A residual block on images, then one of half the size."""
    net = Net(x=(4, 4, 9, 8))
    first = net.relu(net.conv("x", 8, bias=True))
    second = net.relu(net.sum(net.conv(net.relu(net.conv(first, 8)), 8), first))
    net.relu(net.conv(net.pool(second), 12, stride=2))
    return net


def row_net() -> Net:
    """Attention and a feed-forward block on sequences."""
    net = Net(x=(4, 6, 8))
    scores = net.softmax(net.matmul("x", net.transpose("x", 0, 2, 1)))
    mixed = net.norm(net.sum(net.matmul(scores, "x"), "x"))
    net.linear(net.relu(net.linear(mixed, 16)), 8)
    return net


def small_target() -> Target:
    """Two clusters whose local buffers hold a few rows."""
    return target(cores=2, lb=1024, gb=1 << 16, clusters=2, weights=64)


def scheduled(
    net: Net, folder: Path, knobs: Knobs | None = None, on: Target | None = None
) -> tuple[Schedule, Path]:
    """A network with random weights saved in a folder, and its schedule."""
    model, rng = net.proto(), np.random.default_rng(7)
    for tensor in model.graph.initializer:
        value = numpy_helper.to_array(tensor)
        if value.dtype.kind == "f":
            drawn = rng.normal(size=value.shape).astype(value.dtype)
            tensor.CopyFrom(numpy_helper.from_array(drawn, tensor.name))
    path = folder / "net.onnx"
    save(model, path)
    model_scheduler = ModelScheduler(import_model(path), on or small_target(), "float16")
    return build_schedule(model_scheduler, knobs or Knobs()), path


def applied(schedule: Schedule, path: Path) -> tuple[ModelProto, ScheduledModel]:
    """The scheduled model of all passes."""
    result = scheduled_model(schedule, nodes_of(schedule, path))
    return result.proto, result
