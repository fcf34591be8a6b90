"""What original and scheduled model are run on: random weights and inputs, in a folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import onnx
from onnx import ModelProto, helper, inliner

from autoturbo.graph.infer import drop_unknown_attributes
from autoturbo.graph.model_nodes import ModelNodes
from autoturbo.graph.operators import Graph
from autoturbo.graph.source import Source
from autoturbo.graph.values import spread
from autoturbo.graph.weight_values import Array
from autoturbo.schedule.schedule import Schedule
from autoturbo.verify.at_batch import input_shapes, nodes_at
from autoturbo.verify.compare import Arithmetic, arithmetic_of
from autoturbo.verify.inputs import random_inputs
from autoturbo.verify.passes import Pass
from autoturbo.verify.plain_model import plain_model
from autoturbo.verify.weights import seeded_weights, with_weights


@dataclass(frozen=True, slots=True, eq=False)
class Setting:
    """What two models are run on.

    Attributes:
        folder: with the weights; models are saved in it.
        original: the model's file there, its weights random.
        nodes: of the model at the samples of one pass.
        passes: that are run.
        samples: of the batch that is run.
        whole: these are all samples of the model.
        feeds: an array per input.
        reference: the model that is compared with.
        arithmetic: what it computes in.
    """

    folder: Path
    original: Path
    nodes: ModelNodes
    passes: tuple[Pass, ...]
    samples: int
    whole: bool
    feeds: Mapping[str, Array]
    reference: Path
    arithmetic: Arithmetic


def prepare(
    schedule: Schedule, path: Path, folder: Path, passes: tuple[Pass, ...], seed: int
) -> Setting:
    """Random weights and inputs, and the model to compare with, in a folder.

    What an earlier check of the same model with the same seed left there is used again.

    Raises:
        ModelError: the file is not usable.
        VerifyError: it cannot be written for the samples of a pass.
    """
    original = folder / "original.onnx"
    if not original.exists():
        proto = _readable(onnx.load(path, load_external_data=False), path)
        onnx.save(with_weights(proto, seeded_weights(proto, folder, seed)), original)
    seeded = onnx.load(original, load_external_data=False)
    nodes = nodes_at(original, schedule.problem.graph, schedule.model)
    samples = max(one.start + one.samples for one in passes)
    whole = samples == schedule.model.batch
    graph = schedule.model if whole else schedule.problem.graph
    given = {operand.name: operand.shape for operand in nodes.given}
    feeds = random_inputs(seeded, seed, input_shapes(graph) | given, tuple(given))
    feeds |= _given(feeds, schedule.model)
    reference = original
    if not _takes(seeded, feeds):
        reference = folder / "reference.onnx"
        onnx.save(plain_model(nodes_at(original, graph, schedule.model)), reference)
    arithmetic = arithmetic_of(seeded)
    return Setting(folder, original, nodes, passes, samples, whole, feeds, reference, arithmetic)


def _given(feeds: Mapping[str, Array], graph: Graph) -> dict[str, Array]:
    """The elements that the user gave to inputs."""
    kinds = {name: helper.np_dtype_to_tensor_dtype(feeds[name].dtype) for name, _ in graph.given}
    return {name: spread(numbers, feeds[name].shape, kinds[name]) for name, numbers in graph.given}


def _readable(proto: ModelProto, path: Path) -> ModelProto:
    """Return a model without local functions, and without attributes that nobody knows."""
    if proto.functions:
        proto = inliner.inline_local_functions(proto)
    source = Source(path)
    for entry in proto.opset_import:
        source.opsets["" if entry.domain == "ai.onnx" else entry.domain] = entry.version
    for node in proto.graph.node:
        drop_unknown_attributes(node, source)
    return proto


def _takes(proto: ModelProto, feeds: Mapping[str, Array]) -> bool:
    """Whether a model's inputs may have the extents of some arrays."""
    for value in proto.graph.input:
        if value.name not in feeds:
            continue
        dims = value.type.tensor_type.shape.dim
        pairs = zip(dims, feeds[value.name].shape, strict=True)
        if any(dim.HasField("dim_value") and dim.dim_value != extent for dim, extent in pairs):
            return False
    return True
