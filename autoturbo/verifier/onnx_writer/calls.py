"""Calls of a scheduled model: functions of parts, passes over the batch, and their metadata.

Samples are cut out of the inputs for a pass and joined after all passes. The model's nodes, and
constants with the file's own batch written into them, are made at the samples of a pass.
"""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onnx import FunctionProto, NodeProto, helper

from autoturbo.errors import ModelError, VerifyError
from autoturbo.graph.batch import BatchTrace
from autoturbo.graph.domain import Region
from autoturbo.graph.model_nodes import ModelNodes, Repeated, load_nodes
from autoturbo.graph.onnx_import import samples_by_name
from autoturbo.graph.operators import Graph, Tensor
from autoturbo.schedule.context import BATCH, SchedulingContext
from autoturbo.schedule.schedule import Schedule, UnitSchedules, buffer_entries, header
from autoturbo.verifier.onnx_writer.builder import (
    DEQUANTIZE,
    GraphBuilder,
    dequantised_constants,
    quantisation_of,
)
from autoturbo.verifier.onnx_writer.restriction import restrict
from autoturbo.verifier.regions import part_needs
from autoturbo.verifier.weight_values import Array


@dataclass(frozen=True, slots=True)
class Pass:
    """One run through the schedule.

    A last pass that would have too few samples starts earlier, so that it is full like all others;
    its results for samples of an earlier pass are not used.

    Attributes:
        index: Number of the run.
        cluster: The cluster that runs it; -1 where all clusters work on it together.
        start: First sample that it processes.
        samples: Number of samples in the run.
        used: Samples whose results leave the model, first and one past the last.
    """

    index: int
    cluster: int
    start: int
    samples: int
    used: tuple[int, int]


def passes_of(schedule: Schedule) -> tuple[Pass, ...]:
    """Return all passes over the batch, in the order of their samples."""
    full = schedule.share.batches
    return tuple(
        Pass(index, cluster, max(high - full, 0), full, (low, high))
        for index, (cluster, low, high) in enumerate(_turns(schedule))
    )


def _turns(schedule: Schedule) -> Iterator[tuple[int, int, int]]:
    """Yield the cluster of each pass, its first sample and one past its last."""
    share, batch = schedule.share, schedule.model.batch
    identical = share.split == BATCH
    for copy in range(share.copies):
        first = copy * share.samples
        end = min(first + share.samples, batch)
        for low in range(first, end, share.batches):
            yield copy if identical else -1, low, min(low + share.batches, end)


def one_pass(schedule: Schedule) -> Pass:
    """Return a single pass, as if the batch had no more samples than that."""
    samples = schedule.share.batches
    cluster = 0 if schedule.share.split == BATCH else -1
    return Pass(0, cluster, 0, samples, (0, samples))


class SampleSlicer:
    """Cutter of samples from a model's tensors.

    Sample ``i`` of a tensor has the positions of one dimension whose digit of some weight is ``i``.
    Where other digits stand before it (heads times samples), the dimension is taken apart first.
    """

    def __init__(self, tensors: Sequence[Tensor], trace: BatchTrace, batch: int) -> None:
        self._tensors, self._trace, self._batch = tensors, trace, batch

    def cut(
        self, builder: GraphBuilder, name: str, tensor: int, first: int, stop: int, batch: int
    ) -> str:
        """Return the name of some samples of a value.

        Args:
            builder: The graph that gets the nodes.
            name: The value's name.
            tensor: The number of the tensor that the value is.
            first: First sample.
            stop: One past the last.
            batch: Samples that the value holds.
        """
        if tensor not in self._trace.tensors or (first, stop) == (0, batch):
            return name
        shape, dim = self._digits(tensor, batch)
        apart = shape != self.shape(tensor, batch)
        whole = tuple((0, extent) for extent in shape)
        want = (*whole[:dim], (first, stop), *whole[dim + 1 :])
        part = builder.slice(builder.reshape(name, *shape) if apart else name, whole, want)
        return builder.reshape(part, *self.shape(tensor, stop - first)) if apart else part

    def join(
        self, builder: GraphBuilder, names: Sequence[str], tensor: int, passes: Sequence[Pass]
    ) -> str:
        """Return the name of a tensor joined from several passes: the used samples of each.

        Args:
            builder: The graph that gets the nodes.
            names: Names of the tensor's values, one per pass.
            tensor: The tensor's number.
            passes: Samples that each runs, and those of them that are used.
        """
        if tensor not in self._trace.tensors:
            return names[0]
        used = [tuple(sample - one.start for sample in one.used) for one in passes]
        parts = [
            self.cut(builder, name, tensor, first, stop, one.samples)
            for name, one, (first, stop) in zip(names, passes, used, strict=True)
        ]
        shape, dim = self._digits(tensor, self._batch)
        whole = self.shape(tensor, self._batch)
        if len(parts) == 1 or shape == whole:
            return builder.concat(*parts, axis=dim)
        apart = [
            builder.reshape(part, *self._digits(tensor, stop - first)[0])
            for part, (first, stop) in zip(parts, used, strict=True)
        ]
        return builder.reshape(builder.concat(*apart, axis=dim), *whole)

    def shape(self, tensor: int, samples: int) -> tuple[int, ...]:
        """Return the extents of a tensor that holds ``samples`` samples."""
        shape = self._tensors[tensor].shape
        if tensor not in self._trace.tensors:
            return shape
        dim, _ = self._trace.tensors[tensor]
        return (*shape[:dim], shape[dim] // self._batch * samples, *shape[dim + 1 :])

    def _digits(self, tensor: int, samples: int) -> tuple[tuple[int, ...], int]:
        return _digits(self.shape(tensor, samples), self._trace.tensors[tensor], samples)


def _digits(
    shape: tuple[int, ...], place: tuple[int, int], samples: int
) -> tuple[tuple[int, ...], int]:
    """Return a shape with the samples in a dimension of their own, and that dimension.

    Args:
        shape: The shape of a tensor.
        place: The dimension with the samples, and the weight of their digit.
        samples: Samples of the tensor.
    """
    dim, unit = place
    outer = shape[dim] // (unit * samples)
    if outer == 1 and unit == 1:
        return shape, dim
    return (*shape[:dim], outer, samples, unit, *shape[dim + 1 :]), dim + 1


def samples_of(
    array: Array, trace: BatchTrace, tensor: int, wanted: tuple[int, int], batch: int
) -> Array:
    """Return some samples of a tensor.

    Args:
        array: The tensor with ``batch`` samples.
        trace: Record of where samples are.
        tensor: Index of the tensor.
        wanted: The first, and how many.
        batch: Samples of the array.
    """
    first, count = wanted
    if tensor not in trace.tensors or count == batch:
        return array
    shape, axis = _digits(array.shape, trace.tensors[tensor], batch)
    extents, (dim, _) = list(array.shape), trace.tensors[tensor]
    extents[dim] = extents[dim] // batch * count
    return array.reshape(shape).take(range(first, first + count), axis=axis).reshape(extents)


def input_shapes(graph: Graph) -> dict[str, tuple[int, ...]]:
    """Return the extents of a graph's inputs by name."""
    return {graph.tensors[t].name: graph.tensors[t].shape for t in graph.inputs}


def nodes_at(path: Path, graph: Graph, model: Graph) -> ModelNodes:
    """Return the nodes of a file at the extents of a graph.

    Args:
        path: The file.
        graph: The model for some samples.
        model: The whole model, which can be read from the file.

    Raises:
        ModelError: The file is not usable.
        VerifyError: It cannot be written for these samples: they cannot be followed through its
            constants.
    """
    try:
        return load_nodes(
            path,
            shapes=input_shapes(graph),
            values=dict(model.given),
            samples=samples_by_name(model),
        )
    except ModelError as error:
        if graph.batch == model.batch:
            raise
        why = f"{error.at}: {error.message}"
        message = f"the model cannot be written for {graph.batch} samples: {why}"
        raise VerifyError(message, hint=error.hint) from None


def write_repeated(
    builder: GraphBuilder, constants: Iterable[Repeated], names: Mapping[str, str], start: int = 0
) -> None:
    """Write every constant for the samples that begin with ``start``.

    Args:
        builder: The builder that takes the nodes.
        constants: The constants.
        names: Per constant, the name of the value; the constant's if it is not there.
        start: The first sample.
    """
    for constant in constants:
        indices = builder.integers(*constant.taken(start).tolist(), hint="samples")
        name = names.get(constant.name, constant.name)
        builder.op("Gather", constant.original, indices, to=name, axis=constant.dim)


# -------------------------------------------------------------------------------------- functions


FUNCTION_DOMAIN = "autoturbo.instances"
"""Domain of the functions that a scheduled model calls."""


@dataclass(frozen=True, slots=True, eq=False)
class PartFunction:
    """Computation of a part of a sub-graph, as a function of nodes.

    Parts that do the same (all inner parts of an image, say) share one.

    Attributes:
        proto: The function; it is given the inputs, then the constants.
        inputs: Tensors of the graph that it is given, each as the region that the part needs.
        constants: Names of the weights that it is given whole.
        outputs: Tensors that it makes, each as the part's region.
    """

    proto: FunctionProto
    inputs: tuple[int, ...]
    constants: tuple[str, ...]
    outputs: tuple[int, ...]


class FunctionTable:
    """The functions of a scheduled model, in order of first use.

    Attributes:
        nodes: The nodes of the model.
        context: The context that the sub-graphs come from.
        functions: Functions by the text of their nodes.
    """

    def __init__(self, nodes: ModelNodes, context: SchedulingContext) -> None:
        self.nodes, self.context = nodes, context
        self.functions: dict[tuple[object, ...], PartFunction] = {}
        self._by_regions: dict[tuple[object, ...], PartFunction] = {}
        self._names: Counter[str] = Counter()
        self._dequantised = dequantised_constants(nodes)

    def function(
        self, layers: Sequence[int], inputs: Mapping[int, Region], outputs: Mapping[int, Region]
    ) -> PartFunction:
        """Return the function of a part, a new one unless one has the same nodes.

        Args:
            layers: The sub-graph's.
            inputs: Per external input that it is given, the region.
            outputs: Per output, the region that it makes.

        Raises:
            RegionError: The inputs are not enough for the outputs.
        """
        place = (tuple(layers), tuple(inputs.items()), tuple(outputs.items()))
        if place not in self._by_regions:
            builder = GraphBuilder(self.nodes.opsets[""], dequantised=self._dequantised)
            builder.layer = self.context.layers[layers[0]].name
            given = [self._given(builder, tensor) for tensor in inputs]
            self._fill(builder, layers, inputs, outputs)
            text = b"".join(node.SerializeToString(deterministic=True) for node in builder.nodes)
            key = (tuple(inputs), tuple(outputs), tuple(builder.reads), text)
            if key not in self.functions:
                proto = self._proto(layers, builder, [*given, *builder.reads], outputs)
                self.functions[key] = PartFunction(
                    proto, tuple(inputs), tuple(builder.reads), tuple(outputs)
                )
            self._by_regions[place] = self.functions[key]
        return self._by_regions[place]

    def _given(self, builder: GraphBuilder, tensor: int) -> str:
        """Return the name under which a function receives a tensor.

        A dequantised tensor is quantised and dequantised again, which changes no number: its
        readers follow a DequantizeLinear, as in the file.
        """
        name = self.context.graph.tensors[tensor].name
        maker = self.context.graph.producer[tensor]
        quantisation = None if maker < 0 else quantisation_of(self.nodes.nodes[maker])
        if quantisation is None:
            return name
        given = builder.new_name(f"{name}.given")
        parameters = [
            builder.operand(dataclasses.replace(operand, data=None)) for operand in quantisation
        ]
        quantised = builder.op("QuantizeLinear", given, *parameters)
        builder.op(DEQUANTIZE, quantised, *parameters, to=name)
        return given

    def _fill(
        self,
        builder: GraphBuilder,
        layers: Sequence[int],
        inputs: Mapping[int, Region],
        outputs: Mapping[int, Region],
    ) -> None:
        """Add the nodes of a part to a body.

        Args:
            builder: Builder of the body.
            layers: Layers of the part.
            inputs: Regions that the part reads, by tensor.
            outputs: Regions that it makes, by tensor.
        """
        context, graph = self.context, self.context.graph
        needs = part_needs(context, layers, outputs)
        builder.regions.update(inputs)
        shapes = [tensor.shape for tensor in graph.tensors]
        for layer in layers:
            builder.layer = context.layers[layer].name
            for index in context.layers[layer].operators:
                if index not in needs.boxes:
                    continue
                operator = graph.operators[index]
                output_regions = {
                    t: needs.regions[t] for t in operator.outputs if t in needs.regions
                }
                builder.regions.update(output_regions)
                restrict(builder, self.nodes.nodes[index], operator, shapes, needs.boxes[index])

    def _proto(
        self, layers: Sequence[int], builder: GraphBuilder, inputs: Sequence[str],
        outputs: Iterable[int],
    ) -> FunctionProto:  # fmt: skip
        """Return a new function, named after the last layer of a part.

        Args:
            layers: Layers of the part.
            builder: Builder with the nodes of the function's body.
            inputs: Names of its inputs.
            outputs: Tensors that it makes.
        """
        stem = _identifier(self.context.layers[layers[-1]].name)
        self._names[stem] += 1
        return helper.make_function(
            FUNCTION_DOMAIN, f"{stem}__{self._names[stem]}", inputs,
            [self.nodes.graph.tensors[t].name for t in outputs], builder.nodes,
            [helper.make_opsetid(d, v) for d, v in self.opsets(builder.nodes).items()],
        )  # fmt: skip

    def opsets(self, nodes: Iterable[NodeProto]) -> dict[str, int]:
        """Return the versions of the domains that nodes use, ONNX's among them."""
        domains = {"" if node.domain == "ai.onnx" else node.domain for node in nodes}
        return {domain: self.nodes.opsets.get(domain, 1) for domain in sorted({"", *domains})}


def _identifier(name: str) -> str:
    """Return a name of letters, digits and underscores."""
    text = "".join(c if c.isascii() and c.isalnum() else "_" for c in name).strip("_")
    return text or "part"


# --------------------------------------------------------------------------------------- metadata

PREFIX = "autoturbo."
"""Keys of ours in ``metadata_props`` begin so."""

_OF_INSTANCE = ("subgraph", "part")
"""What a schedule file says of a buffer and a call says once for all of its own."""


def annotate(node: NodeProto, values: Mapping[str, object]) -> None:
    """Add entries to the metadata of a node; values that are not text are written as JSON."""
    for key, value in values.items():
        text = value if isinstance(value, str) else json.dumps(value)
        node.metadata_props.add(key=PREFIX + key, value=text)


class InstanceFacts:
    """Metadata of each instance's call: order, cluster, cores, scope and buffers.

    On a machine of several units, its unit too; cores and buffers are those of the unit.
    """

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self._place = {instance: position for position, instance in enumerate(schedule.order)}
        self._buffers: dict[int, list[dict[str, Any]]] = {}
        on = schedule.on_units
        self._of_parts = [] if on is None else [InstanceFacts(s) for s in on.schedules]
        for timeline in schedule.timelines:
            entries = buffer_entries(schedule, timeline)
            for instance, entry in zip(timeline.owner.tolist(), entries, strict=True):
                facts = {key: entry[key] for key in entry if key not in _OF_INSTANCE}
                self._buffers.setdefault(instance, []).append(facts)

    def of(self, instance: int, cluster: int) -> dict[str, object]:
        """Return the facts of an instance.

        Args:
            instance: Index of the instance.
            cluster: The cluster that runs it if all clusters do the same.
        """
        if self._schedule.on_units is not None:
            return self._on_unit(instance, self._schedule.on_units)
        schedule, graph = self._schedule, self._schedule.instances
        placement = schedule.placement
        subgraph = int(graph.subgraph[instance])
        named = placement.core_ids[instance] if placement.core_ids else ()
        return {
            "order": self._place[instance],
            "subgraph": subgraph,
            "part": instance - int(graph.first[subgraph]),
            "parts": int(graph.first[subgraph + 1] - graph.first[subgraph]),
            "cluster": schedule.cluster[instance] if schedule.cluster else cluster,
            "cores": list(placement.bindings[instance]),
            **({"core_ids": list(named)} if named else {}),
            **({"most_cores": limit} if (limit := placement.limit_of(instance)) else {}),
            "scope": placement.scopes[instance].name,
            "buffers": self._buffers.get(instance, []),
        }

    def _on_unit(self, instance: int, on: UnitSchedules) -> dict[str, object]:
        """Return the facts of an instance in its unit's schedule, at its place in the whole."""
        graph, (part, own) = self._schedule.instances, on.origin[instance]
        return {
            **self._of_parts[part].of(own, 0),
            "order": self._place[instance],
            "subgraph": int(graph.subgraph[instance]),
            "unit": on.units[part],
            "unit_part": part,
        }


def model_facts(schedule: Schedule) -> dict[str, str]:
    """Return metadata of a whole model; on a machine also its units and the times of parts."""
    on, context = schedule.on_units, schedule.context
    facts = on.facts if on else header("", 0, schedule, context.chip, context.dtype)
    own = {key: facts[key] for key in ("units", "runs")} if on else {"share": schedule.share}
    return {
        PREFIX + "scheduler": facts["scheduler"],
        PREFIX + "scheduler_version": facts["scheduler_version"],
        PREFIX + "model_hash": facts["model"]["hash"],
        PREFIX + "target": facts["target"]["name"],
        PREFIX + "target_hash": facts["target"]["hash"],
        PREFIX + "dtype": facts["dtype"],
        PREFIX + "knobs": json.dumps(facts["knobs"]),
        **{
            PREFIX + key: json.dumps(value, default=dataclasses.asdict)
            for key, value in own.items()
        },
    }
