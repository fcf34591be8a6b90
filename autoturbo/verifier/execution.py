"""Run the original and the scheduled model in ONNX Runtime on random weights and inputs.

Models run as they are written: no optimisation, the same numbers each time.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import ModelProto, ValueInfoProto, helper, inliner

from autoturbo.errors import Location, UnrunnableError
from autoturbo.extras import how_to_install
from autoturbo.graph.expand import ROUNDED_INSIDE
from autoturbo.graph.extract import entering, leaving
from autoturbo.graph.importer.constants import gather
from autoturbo.graph.importer.external_data import attach, is_stored
from autoturbo.graph.importer.shapes import drop_unknown_attributes
from autoturbo.graph.model_nodes import ModelNodes
from autoturbo.graph.operators import Graph
from autoturbo.graph.source import Source, kind_of
from autoturbo.graph.structure import drop_shared_names, nodes_in
from autoturbo.graph.values import spread
from autoturbo.schedule.schedule import Schedule
from autoturbo.verifier.comparison import Arithmetic, arithmetic_of, longest_sum
from autoturbo.verifier.onnx_writer.builder import (
    GraphBuilder,
    declared,
    element_types,
    model_of,
    tensor_info,
    without_unread_constants,
)
from autoturbo.verifier.onnx_writer.calls import Pass, input_shapes, nodes_at, write_repeated
from autoturbo.verifier.onnx_writer.restriction import restrict
from autoturbo.verifier.random_values import random_inputs, seeded_weights, with_weights
from autoturbo.verifier.weight_values import Array

if TYPE_CHECKING:
    import onnxruntime


THREADS = 4
"""Threads at most: more gain little, and the memory that a run needs grows with them."""

FATAL = 4
"""ONNX Runtime's log level: errors reach the caller as exceptions, so nothing else is printed."""

_CONTEXT = re.compile(r"^\[ONNXRuntimeError\] : \d+ : \w+ : ")


def open_session(path: Path) -> onnxruntime.InferenceSession:
    """Return a session for the model in a file, its nodes run as written.

    Raises:
        UnrunnableError: ONNX Runtime is not installed, or has no implementation of an operator.
    """
    return session_of(path, plain_options(runtime()), path)


def session_of(
    model: Path | bytes, options: Any, path: str | Path | None
) -> onnxruntime.InferenceSession:
    """Return a session for a model.

    Args:
        model: Its file, or what stands in one.
        options: ONNX Runtime's.
        path: The file, for errors.

    Raises:
        UnrunnableError: ONNX Runtime has no implementation of an operator.
    """  # noqa: DOC501  unrunnable() makes the error
    try:
        return runtime().InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # noqa: BLE001 - its classes share no other base
        raise unrunnable(error, path) from None


def run(
    session: onnxruntime.InferenceSession,
    feeds: Mapping[str, Array],
    outputs: Sequence[str] | None = None,
) -> dict[str, Array]:
    """Return the values of a model's outputs by name.

    Args:
        session: Session of the model.
        feeds: An array per input; a written model may lack inputs that nothing is computed with.
        outputs: Names of the outputs to compute; None for all.

    Raises:
        UnrunnableError: A node fails; the message names it.
    """  # noqa: DOC501  unrunnable() makes the error
    names = [value.name for value in session.get_outputs()] if outputs is None else list(outputs)
    taken = {value.name for value in session.get_inputs()}
    try:
        values = session.run(names, {name: v for name, v in feeds.items() if name in taken})
    except Exception as error:  # noqa: BLE001 - its classes share no other base
        raise unrunnable(error, None) from None
    return dict(zip(names, map(_elements, values), strict=True))


def _elements(value: Any) -> Array:
    """Return a value as an array; of a sequence, the elements of all that it holds."""
    if not isinstance(value, list):
        return np.asarray(value)
    return np.concatenate([np.ravel(np.asarray(one)) for one in value] or [np.zeros(0)])


def with_outputs(model: ModelProto, names: Sequence[str]) -> ModelProto:
    """Return a copy of a model with the named values as outputs, before its own.

    ONNX Runtime infers their types and extents; names that are outputs already stay.
    """
    copy = ModelProto()
    copy.CopyFrom(model)
    present = {value.name for value in copy.graph.output}
    added = [ValueInfoProto(name=name) for name in dict.fromkeys(names) if name not in present]
    outputs = list(copy.graph.output)
    del copy.graph.output[:]
    copy.graph.output.extend([*added, *outputs])
    return copy


def runtime() -> Any:
    """Return ONNX Runtime.

    Raises:
        UnrunnableError: It is not installed.
    """
    try:
        import onnxruntime
    except ImportError as error:
        raise UnrunnableError(
            f"ONNX Runtime is not usable: {error}", hint=how_to_install("verify")
        ) from None
    return onnxruntime


def plain_options(found: Any) -> Any:
    """Return options that run nodes in the file's order, one by one, and repeatably."""
    options = found.SessionOptions()
    options.graph_optimization_level = found.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.execution_mode = found.ExecutionMode.ORT_SEQUENTIAL
    options.intra_op_num_threads = min(THREADS, os.cpu_count() or 1)
    options.use_deterministic_compute = True
    options.log_severity_level = FATAL
    # The arena keeps the peak of every size class and a pattern the peak of every run.
    options.enable_cpu_mem_arena = False
    options.enable_mem_pattern = False
    return options


def unrunnable(error: Exception, path: str | Path | None) -> UnrunnableError:
    """Return ONNX Runtime's error as one of ours."""
    text = " ".join(_CONTEXT.sub("", str(error)).split()).rstrip(".")
    return UnrunnableError(f"ONNX Runtime cannot run the model: {text}", Location(path))


def plain_model(nodes: ModelNodes, part: range | None = None) -> ModelProto:
    """Return the model of the nodes, with each tensor under its name in the graph.

    Args:
        nodes: Nodes of a model.
        part: Operators, as a model of their own: what it takes and gives are tensors that others
            make and read, or that the model takes and gives. None for all of them, with the
            outputs under their names in the file.
    """
    graph = nodes.graph
    chosen = range(len(graph.operators)) if part is None else part
    builder = GraphBuilder(nodes.opsets[""])
    builder.nodes.extend(nodes.constants)
    builder.taken.update(nodes.stored, (tensor.name for tensor in graph.tensors))
    write_repeated(builder, nodes.repeated, {})
    constants = len(builder.nodes)
    shapes = [tensor.shape for tensor in graph.tensors]
    read = graph.inputs if part is None else entering(graph, part)
    builder.regions.update({t: graph.tensors[t].whole for t in read})
    for index in chosen:
        node, operator = nodes.nodes[index], graph.operators[index]
        builder.layer = operator.name
        builder.regions.update({t: graph.tensors[t].whole for t in operator.outputs})
        full = tuple((0, extent) for extent in operator.extents)
        restrict(builder, node, operator, shapes, full)
    types = element_types(nodes)
    inputs = [tensor_info(graph.tensors[t].name, types[t], shapes[t]) for t in read]
    if part is not None:
        names = [(graph.tensors[t].name, types[t], shapes[t]) for t in leaving(graph, part)]
        body = without_unread_constants(builder.nodes, constants, [name for name, *_ in names])
        return model_of(nodes, body, inputs, [tensor_info(*one) for one in names])
    # Names in the file may differ from those in the graph, where these would not be unique.
    for name, value in nodes.outputs:
        if name != value.name:
            builder.node("Identity", [value.name], [name])
    outputs = [declared(name, value, value.shape) for name, value in nodes.outputs]
    return model_of(nodes, builder.nodes, inputs, outputs)


@dataclass(frozen=True, slots=True, eq=False)
class ComparisonSetup:
    """Weights, inputs and reference of a comparison of two models.

    Attributes:
        folder: Folder with the weights; models are saved in it.
        original: The model's file there, its weights random.
        nodes: Nodes of the model at the samples of one pass.
        samples: Samples of the batch that is run.
        whole: Whether these are all samples of the model.
        feeds: An array per input.
        reference: The model that is compared with.
        arithmetic: Arithmetic of the model.
    """

    folder: Path
    original: Path
    nodes: ModelNodes
    samples: int
    whole: bool
    feeds: Mapping[str, Array]
    reference: Path
    arithmetic: Arithmetic


def prepare_comparison(
    schedule: Schedule, path: Path, folder: Path, passes: tuple[Pass, ...], seed: int
) -> ComparisonSetup:
    """Write random weights and the reference model to a folder; draw the inputs.

    Files of an earlier check of the same model with the same seed are reused.

    Args:
        schedule: The schedule to check.
        path: The model's file.
        folder: Folder that weights and models are written to.
        passes: Samples that are run.
        seed: Seed of the random weights and inputs.

    Returns:
        The original model with its weights, the reference for the samples of the passes, and the
        inputs.

    Raises:
        ModelError: The file is not usable.
        VerifyError: It cannot be written for the samples of a pass.
    """
    original = with_random_weights(path, folder, seed)
    seeded = onnx.load(original, load_external_data=False)
    nodes = nodes_at(original, schedule.context.graph, schedule.model)
    samples = max(turn.start + turn.samples for turn in passes)
    whole = samples == schedule.model.batch
    graph = schedule.model if whole else schedule.context.graph
    given = {operand.name: operand.shape for operand in nodes.given}
    shapes = {tensor.name: tensor.shape for tensor in graph.tensors} | input_shapes(graph) | given
    feeds = random_inputs(seeded, seed, shapes, tuple(given), dict(schedule.model.given))
    feeds |= _given_elements(feeds, schedule.model)
    reference = original
    if not takes(seeded, feeds) or _rounds_inside(seeded):
        reference = folder / "reference.onnx"
        onnx.save(plain_model(nodes_at(original, graph, schedule.model)), reference)
    arithmetic = arithmetic_of(seeded, longest_sum(graph))
    return ComparisonSetup(folder, original, nodes, samples, whole, feeds, reference, arithmetic)


def with_random_weights(path: Path, folder: Path, seed: int) -> Path:
    """Return the file of a model with random weights, which is written where it is not there."""
    original = folder / "original.onnx"
    if not original.exists():
        proto = _readable(onnx.load(path, load_external_data=False), path)
        onnx.save(with_weights(proto, seeded_weights(proto, folder, seed)), original)
    return original


def _given_elements(feeds: Mapping[str, Array], graph: Graph) -> dict[str, Array]:
    """Return the elements that the user gave to inputs, by input name."""
    kinds = {name: helper.np_dtype_to_tensor_dtype(feeds[name].dtype) for name, _ in graph.given}
    return {name: spread(numbers, feeds[name].shape, kinds[name]) for name, numbers in graph.given}


def _readable(proto: ModelProto, path: Path) -> ModelProto:
    """Return a model without local functions, unknown attributes and names that nodes share.

    Constants of bodies become those of the graph. Values beside it that the import reads are moved
    into it: schedules depend on indices.
    """
    if proto.functions:
        proto = inliner.inline_local_functions(proto)
    source = Source(path)
    for entry in proto.opset_import:
        source.opsets["" if entry.domain == "ai.onnx" else entry.domain] = entry.version
    for node in proto.graph.node:
        drop_unknown_attributes(node, source)
    drop_shared_names(proto.graph)
    gather(proto.graph)
    attach(proto.graph, source)
    for tensor in proto.graph.initializer:
        if is_stored(tensor):
            del tensor.external_data[:]
    return proto


def _rounds_inside(proto: ModelProto) -> bool:
    """Return whether the model's own numbers have roundings that no schedule of it has."""
    return any(kind_of(node) in ROUNDED_INSIDE for node in nodes_in(proto.graph.node))


def takes(proto: ModelProto, feeds: Mapping[str, Array]) -> bool:
    """Return whether arrays have extents that a model's inputs allow."""
    for value in proto.graph.input:
        if value.name not in feeds:
            continue
        dims = value.type.tensor_type.shape.dim
        pairs = zip(dims, feeds[value.name].shape, strict=True)
        if any(dim.HasField("dim_value") and dim.dim_value != extent for dim, extent in pairs):
            return False
    return True


class BrokenModelError(Exception):
    """The scheduled model does not run, though the original does."""


class ModelRuns:
    """Runner of both models on the inputs of a comparison.

    Attributes:
        setup: The comparison, with the original.
        graph: The whole model.
        proto: The scheduled model.
    """

    def __init__(self, setup: ComparisonSetup, graph: Graph, proto: ModelProto) -> None:
        self.setup, self.graph, self.proto = setup, graph, proto
        self._reference = onnx.load(setup.reference, load_external_data=False)
        # values that the original names as the graph does
        self._known = {name for node in self._reference.graph.node for name in node.output}

    @functools.cached_property
    def nodes(self) -> ModelNodes:
        """Return the original's nodes at the samples that are run."""
        if not self.setup.whole:
            return self.setup.nodes
        return nodes_at(self.setup.original, self.graph, self.graph)

    def outputs_and(self, tensors: Sequence[int]) -> tuple[dict[str, Array], dict[int, Array]]:
        """Return the original's outputs by name, and the given tensors by index.

        Raises:
            UnrunnableError: ONNX Runtime cannot run it.
        """
        names = {t: self.nodes.graph.tensors[t].name for t in dict.fromkeys(tensors)}
        known = [name for name in names.values() if name in self._known]
        own = [value.name for value in self._reference.graph.output]
        values = self._values(self._reference, "reference", [*known, *own])
        # Tensors that the importer made are not in the original, only in the plain model.
        rest = [name for name in names.values() if name not in values]
        if set(rest) - set(self.setup.feeds):
            values |= self._values(plain_model(self.nodes), "plain", rest)
        values |= {name: self.setup.feeds[name] for name in rest if name in self.setup.feeds}
        outputs = {name: values[name] for name in own}
        return outputs, {t: values[name] for t, name in names.items()}

    def scheduled(self, names: Sequence[str]) -> dict[str, Array]:
        """Return values of the scheduled model by name; its inputs may be among them.

        Raises:
            BrokenModelError: It does not run.
        """
        try:
            return self._values(self.proto, "scheduled", names)
        except UnrunnableError as error:
            raise BrokenModelError(str(error)) from None

    def _values(self, model: ModelProto, kind: str, names: Sequence[str]) -> dict[str, Array]:
        feeds = self.setup.feeds
        asked = [name for name in dict.fromkeys(names) if name not in feeds]
        given = {name: feeds[name] for name in names if name in feeds}
        if not asked:
            return given
        path = self.setup.folder / f"{kind}-values.onnx"
        onnx.save(with_outputs(model, asked), path)
        return given | run(open_session(path), feeds, asked)
