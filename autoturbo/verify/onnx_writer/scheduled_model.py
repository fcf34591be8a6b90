"""A schedule and its model as one ONNX model: a call per instance, in the order of the schedule.

Per pass (the samples that the clusters process at once) every instance is a call of a model-local
function that holds its layers at its region. Between the calls stand the splits, concatenations,
copies and redistributions that feed them. Weights are initializers of the model, stored once and
handed to the functions whole. Order, cluster, cores, scope and buffers are metadata of the calls.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from onnx import FunctionProto, ModelProto, NodeProto, ValueInfoProto, helper

from autoturbo.errors import VerifyError
from autoturbo.graph.batch import trace_batch
from autoturbo.graph.domain import Region, meet, volume
from autoturbo.graph.model_nodes import ModelNodes, Operand
from autoturbo.schedule.place.bind import Scope
from autoturbo.schedule.place.movement import COPIED, REDISTRIBUTED
from autoturbo.schedule.problem import Problem
from autoturbo.schedule.schedule import Schedule
from autoturbo.verify.findings import instance_name
from autoturbo.verify.onnx_writer.builder import (
    DEQUANTIZE,
    Dequantised,
    GraphBuilder,
    RegionValue,
    UncoveredError,
    concatenate_pieces,
    dequantised_constants,
    element_types,
    quantisation_of,
    slice_region,
    stored_constants,
    tensor_info,
    without_unread_constants,
)
from autoturbo.verify.onnx_writer.metadata import InstanceFacts, annotate, model_facts
from autoturbo.verify.onnx_writer.passes import Pass, SampleSlicer, passes_of, write_repeated
from autoturbo.verify.onnx_writer.restriction import restrict
from autoturbo.verify.regions import made_regions, part_needs, read_regions
from autoturbo.version import __version__

FUNCTION_DOMAIN = "autoturbo.instances"
"""Domain of the functions that a scheduled model calls."""


@dataclass(frozen=True, slots=True, eq=False)
class PartFunction:
    """What a part of a sub-graph computes, as nodes.

    Parts that do the same (all inner parts of an image, say) share one.

    Attributes:
        name: of the function.
        given: the names of ``inputs`` in the function.
        inputs: tensors of the graph that it is given, each as the region that the part needs.
        constants: weights that it is given whole.
        outputs: tensors that it makes, each as the part's region.
        body: its nodes.
    """

    name: str
    given: tuple[str, ...]
    inputs: tuple[int, ...]
    constants: tuple[Operand, ...]
    outputs: tuple[int, ...]
    builder: GraphBuilder


@dataclass(eq=False)
class FunctionTable:
    """The functions of a scheduled model.

    Attributes:
        nodes: what the model consists of.
        problem: where sub-graphs come from.
        functions: by the text of their nodes.
        names: how many functions begin with a name.
    """

    nodes: ModelNodes
    problem: Problem
    functions: dict[tuple[object, ...], PartFunction] = field(default_factory=dict)
    names: dict[str, int] = field(default_factory=dict)
    _by_regions: dict[tuple[object, ...], PartFunction] = field(default_factory=dict)
    _dequantised: Mapping[str, Dequantised] = field(init=False)

    def __post_init__(self) -> None:
        self._dequantised = dequantised_constants(self.nodes)

    def function(
        self, layers: Sequence[int], inputs: Mapping[int, Region], outputs: Mapping[int, Region]
    ) -> PartFunction:
        """Return the function of a part, made now if there is none.

        Args:
            layers: the sub-graph's.
            inputs: per external input that it is given, the region.
            outputs: per output, the region that it makes.

        Raises:
            RegionError: the inputs are not enough for the outputs.
        """
        place = (tuple(layers), tuple(inputs.items()), tuple(outputs.items()))
        if place not in self._by_regions:
            builder = GraphBuilder(self.nodes.opsets[""], dequantised=self._dequantised)
            builder.layer = self.problem.layers[layers[0]].name
            given = tuple(self._given(builder, tensor) for tensor in inputs)
            self._fill(builder, layers, inputs, outputs)
            self._by_regions[place] = self._shared_function(
                layers, given, tuple(inputs), tuple(outputs), builder
            )
        return self._by_regions[place]

    def _given(self, builder: GraphBuilder, tensor: int) -> str:
        """Return the name under which a function is given a tensor.

        One that was dequantised is quantised and dequantised again, which changes no number: the
        nodes that read it stand behind a DequantizeLinear, as in the file.
        """
        name = self.problem.graph.tensors[tensor].name
        maker = self.problem.graph.producer[tensor]
        found = None if maker < 0 else quantisation_of(self.nodes.nodes[maker])
        if found is None:
            return name
        given = builder.new_name(f"{name}.given")
        parameters = [builder.operand(dataclasses.replace(one, data=None)) for one in found]
        quantised = builder.node("QuantizeLinear", (given, *parameters))
        builder.node(DEQUANTIZE, (*quantised, *parameters), (name,))
        return given

    def _fill(
        self,
        builder: GraphBuilder,
        layers: Sequence[int],
        inputs: Mapping[int, Region],
        outputs: Mapping[int, Region],
    ) -> None:
        """Add the nodes of a part to a body."""
        problem, graph = self.problem, self.problem.graph
        needs = part_needs(problem, layers, outputs)
        builder.regions.update(inputs)
        shapes = [tensor.shape for tensor in graph.tensors]
        for layer in layers:
            builder.layer = problem.layers[layer].name
            for index in problem.layers[layer].operators:
                if index not in needs.boxes:
                    continue
                operator = graph.operators[index]
                made = {t: needs.regions[t] for t in operator.outputs if t in needs.regions}
                builder.regions.update(made)
                restrict(builder, self.nodes.nodes[index], operator, shapes, needs.boxes[index])

    def _shared_function(
        self,
        layers: Sequence[int],
        given: tuple[str, ...],
        inputs: tuple[int, ...],
        outputs: tuple[int, ...],
        builder: GraphBuilder,
    ) -> PartFunction:
        """Return the function with these nodes, made now if there is none."""
        text = b"".join(node.SerializeToString(deterministic=True) for node in builder.nodes)
        key = (inputs, outputs, tuple(builder.reads), text)
        if key not in self.functions:
            stem = _identifier(self.problem.layers[layers[-1]].name)
            self.names[stem] = self.names.get(stem, 0) + 1
            name = f"{stem}__{self.names[stem]}"
            constants = tuple(builder.reads.values())
            self.functions[key] = PartFunction(name, given, inputs, constants, outputs, builder)
        return self.functions[key]

    def protos(self) -> list[FunctionProto]:
        """Return all functions, in order of first use."""
        return [self._proto(function) for function in self.functions.values()]

    def _proto(self, function: PartFunction) -> FunctionProto:
        tensors = self.nodes.graph.tensors
        return helper.make_function(
            FUNCTION_DOMAIN, function.name,
            [*function.given, *(c.name for c in function.constants)],
            [tensors[t].name for t in function.outputs], function.builder.nodes,
            [helper.make_opsetid(d, v) for d, v in self.opsets(function.builder.nodes).items()],
        )  # fmt: skip

    def opsets(self, nodes: Sequence[NodeProto]) -> dict[str, int]:
        """Return versions of the domains that some nodes use, ONNX's own among them."""
        stored_constants = {
            "",
            *("" if node.domain == "ai.onnx" else node.domain for node in nodes),
        }
        return {domain: self.nodes.opsets.get(domain, 1) for domain in sorted(stored_constants)}


def _identifier(name: str) -> str:
    """Return a name of letters, digits and underscores."""
    text = "".join(c if c.isascii() and c.isalnum() else "_" for c in name).strip("_")
    return text or "part"


IR_VERSION = 10
"""The first version of the format in which nodes have metadata."""

_MOVEMENTS = {COPIED: "copy", REDISTRIBUTED: "redistribute"}


class BuildError(Exception):
    """A schedule that cannot be written as a model, because it does not compute it.

    Attributes:
        kind: what is wrong, in one or two words, as findings say it.
        instance: the instance that cannot be written.
    """

    def __init__(self, kind: str, instance: str, message: str) -> None:
        super().__init__(message)
        self.kind, self.instance = kind, instance


@dataclass(frozen=True, slots=True)
class Call:
    """One call of an instance's function.

    Attributes:
        number: of the pass.
        instance: which.
        function: what it calls.
        inputs: names of the values that it is given, tensor by tensor.
        outputs: names of the values that it makes, tensor by tensor.
    """

    number: int
    instance: int
    function: PartFunction
    inputs: Mapping[int, str]
    outputs: Mapping[int, str]


@dataclass(frozen=True, slots=True, eq=False)
class ScheduledModel:
    """A scheduled model and what its values stand for.

    Attributes:
        proto: the model; large weights are references to the files of the original.
        calls: in order.
        passes: over the batch.
        functions: number of functions.
    """

    proto: ModelProto
    calls: tuple[Call, ...]
    passes: tuple[Pass, ...]
    functions: int


def check_nodes(schedule: Schedule, nodes: ModelNodes) -> None:
    """Refuse nodes that are not those of the schedule's graph.

    Raises:
        VerifyError: a baseline that writes operators out differently, or another model.
    """
    graph, own = schedule.problem.graph, nodes.graph
    if len(graph.operators) != len(own.operators):
        message = f"{schedule.scheduler} writes operators out that are one in the model"
        raise VerifyError(message, hint="such a schedule is simulated, not applied")
    same = all(
        (a.kind, a.inputs, a.outputs) == (b.kind, b.inputs, b.outputs)
        for a, b in zip(graph.operators, own.operators, strict=True)
    )
    same_shapes = [t.shape for t in graph.tensors] == [t.shape for t in own.tensors]
    if not (same and same_shapes):
        raise VerifyError("the model is not the one that was scheduled", hint="give its own file")


def scheduled_model(
    schedule: Schedule, nodes: ModelNodes, passes: Sequence[Pass] | None = None
) -> ScheduledModel:
    """Write a schedule and its model as one ONNX model.

    Args:
        schedule: what to write.
        nodes: the model at the samples of one pass (those of ``schedule.problem.graph``).
        passes: which of its passes; all of them if None. Given only one, the model has that pass's
            samples, otherwise the whole batch.

    Raises:
        VerifyError: the nodes are not those of the schedule.
        BuildError: the schedule does not compute the model: something that a part needs is not
            there.
    """
    check_nodes(schedule, nodes)
    writer = _Writer(schedule, nodes, tuple(passes or passes_of(schedule)))
    writer.write()
    return writer.model()


@dataclass(eq=False)
class _Writer:
    schedule: Schedule
    nodes: ModelNodes
    passes: tuple[Pass, ...]
    builder: GraphBuilder = field(init=False)
    functions: FunctionTable = field(init=False)
    calls: list[Call] = field(default_factory=list)
    made: dict[tuple[int, int, int], RegionValue] = field(default_factory=dict)
    outputs: dict[tuple[int, int], str] = field(default_factory=dict)
    constants: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.builder = GraphBuilder(self.nodes.opsets[""])
        graph = self.nodes.graph
        self.builder.taken.update(self.nodes.stored, (tensor.name for tensor in graph.tensors))
        self.functions = FunctionTable(self.nodes, self.schedule.problem)
        self.builder.nodes.extend(self.nodes.constants)
        self.facts = InstanceFacts(self.schedule)
        self.batch = max(one.start + one.samples for one in self.passes)
        model = self.schedule.model
        self.samples = SampleSlicer(model.tensors, trace_batch(model), model.batch)
        self.elements = element_types(self.nodes)

    # ------------------------------------------------------------------------------------ nodes

    def write(self) -> None:
        """Write all passes, then the outputs."""
        for one in self.passes:
            self.builder.operator = f"pass{one.index}"
            given = self._given(one)
            self.constants = {r.name: f"{r.name}@{one.index}" for r in self.nodes.repeated}
            write_repeated(self.builder, self.nodes.repeated, self.constants, one.start)
            for instance in self.schedule.order:
                self._call(one, instance, given)
            for tensor in self.nodes.graph.outputs:
                self.outputs[one.index, tensor] = self._whole(one, tensor, given)
        self.builder.operator = "outputs"
        self._finish()

    def _given(self, one: Pass) -> dict[int, str]:
        """Return the names of the samples of every input that a pass processes."""
        graph = self.nodes.graph
        return {
            tensor: self.samples.cut(
                self.builder, graph.tensors[tensor].name, tensor, one.start,
                one.start + one.samples, self.batch,
            )
            for tensor in graph.inputs
        }  # fmt: skip

    def _call(self, one: Pass, instance: int, given: Mapping[int, str]) -> None:
        graph = self.schedule.instances
        label = instance_name(self.schedule, instance)
        read = read_regions(self.schedule, instance)
        regions = {t: region for t, region in read.items() if volume(region)}
        wanted = made_regions(self.schedule, instance)
        layers = graph.subgraphs[int(graph.subgraph[instance])].layers
        try:
            function = self.functions.function(layers, regions, wanted)
            inputs = {t: self._input(one, instance, t, regions[t], given) for t in function.inputs}
        except UncoveredError as error:
            raise BuildError("uncovered", label, f"{label}: {error}") from None
        outputs = {t: self._name(one, instance, t) for t in function.outputs}
        constants = [self.constants.get(c.name, c.name) for c in function.constants]
        self.builder.node(
            function.name, [*inputs.values(), *constants],
            list(outputs.values()), domain=FUNCTION_DOMAIN,
        )  # fmt: skip
        node = self.builder.nodes[-1]
        node.name = f"{label}@{one.index}"
        regions_by_name = {self.nodes.graph.tensors[t].name: r for t, r in wanted.items()}
        facts = self.facts.of(instance, one.cluster)
        annotate(node, {"instance": label, "pass": one.index, **facts, "regions": regions_by_name})
        for tensor, name in outputs.items():
            self.made[one.index, instance, tensor] = RegionValue(name, wanted[tensor])
        self.calls.append(Call(one.index, instance, function, inputs, outputs))

    def _name(self, one: Pass, instance: int, tensor: int) -> str:
        graph = self.schedule.instances
        subgraph = int(graph.subgraph[instance])
        part = instance - int(graph.first[subgraph])
        return f"{self.nodes.graph.tensors[tensor].name}#{part}@{one.index}"

    def _input(
        self, one: Pass, instance: int, tensor: int, want: Region, given: Mapping[int, str]
    ) -> str:
        """Return the name of the region of a tensor that an instance reads."""
        if tensor in given:
            whole = self.nodes.graph.tensors[tensor].whole
            return slice_region(self.builder, RegionValue(given[tensor], whole), want)
        pieces = [self._piece(one, *link, want) for link in self._links(instance, tensor)]
        joined = concatenate_pieces(self.builder, pieces, want)
        if len(pieces) > 1:
            annotate(self.builder.nodes[-1], {"movement": "concat"})
        return joined

    def _links(self, instance: int, tensor: int) -> Iterator[tuple[int, int, int]]:
        """Yield reader, maker and number of the links by which an instance reads a tensor."""
        graph = self.schedule.instances
        own = graph.parts[int(graph.subgraph[instance])]
        for link in range(int(graph.links.start[instance]), int(graph.links.start[instance + 1])):
            if own.inputs[int(graph.links.slot[link])] == tensor:
                yield instance, int(graph.links.maker[link]), link

    def _piece(self, one: Pass, reader: int, maker: int, link: int, want: Region) -> RegionValue:
        """Return what one instance made of a region, moved if the schedule moves it."""
        graph, schedule = self.schedule.instances, self.schedule
        output = int(graph.links.output[link])
        tensor = graph.parts[int(graph.subgraph[maker])].outputs[output]
        value = self.made.get((one.index, maker, tensor))
        label = instance_name(schedule, reader)
        if value is None:
            late = instance_name(schedule, maker)
            raise BuildError("order", label, f"{label} runs before {late}, whose output it reads")
        region = meet(value.region, want)
        name = slice_region(self.builder, value, region)
        timeline = schedule.timelines[schedule.cluster[reader] if schedule.cluster else 0]
        movement = _MOVEMENTS.get(int(timeline.movements.kind[link]))
        if movement is None:
            return RegionValue(name, region)
        (moved,) = self.builder.node("Identity", [name], 1)
        scope = schedule.placement.scopes[maker]
        annotate(
            self.builder.nodes[-1], {"movement": movement, "from": scope.name, "to": Scope.LB.name}
        )
        return RegionValue(moved, region)

    def _whole(self, one: Pass, tensor: int, given: Mapping[int, str]) -> str:
        """Return the name of a whole output of the model, as one pass makes it."""
        if tensor in given:
            return given[tensor]
        graph = self.nodes.graph
        if graph.tensors[tensor].constant:
            return graph.tensors[tensor].name
        pieces = [
            value for (number, _, made), value in self.made.items()
            if number == one.index and made == tensor
        ]  # fmt: skip
        try:
            return concatenate_pieces(self.builder, pieces, graph.tensors[tensor].whole)
        except UncoveredError as error:
            name = graph.tensors[tensor].name
            raise BuildError("gap", name, f"output {name}: {error}") from None

    def _finish(self) -> None:
        """Give every output of the file its name, once: a file may list one twice."""
        for name, value in dict(self.nodes.outputs).items():
            made = value.name
            if value.tensor >= 0 and not value.constant:
                names = [self.outputs[one.index, value.tensor] for one in self.passes]
                made = self.samples.join(self.builder, names, value.tensor, self.passes)
            if made != name:
                self.builder.node("Identity", [made], [name])

    # ------------------------------------------------------------------------------------ model

    def model(self) -> ScheduledModel:
        """Return the model of the nodes written."""
        graph = self.nodes.graph
        inputs = [
            tensor_info(graph.tensors[t].name, self.elements[t], self.samples.shape(t, self.batch))
            for t in graph.inputs
        ]
        inputs += [tensor_info(o.name, o.element, o.shape) for o in self.nodes.given]
        outputs = [self._output(name, value) for name, value in self.nodes.outputs]
        leaving = [value.name for value in outputs]
        nodes = without_unread_constants(self.builder.nodes, len(self.nodes.constants), leaving)
        proto = helper.make_model(
            helper.make_graph(
                nodes, graph.name, inputs, outputs,
                stored_constants(nodes, self.nodes.stored, leaving),
            ),
            functions=self.functions.protos(),
            opset_imports=[helper.make_opsetid(d, v) for d, v in self._opsets().items()],
            ir_version=max(self.nodes.ir_version, IR_VERSION),
            producer_name="autoturbo", producer_version=__version__,
        )  # fmt: skip
        helper.set_model_props(proto, model_facts(self.schedule))
        return ScheduledModel(proto, tuple(self.calls), self.passes, len(self.functions.functions))

    def _opsets(self) -> dict[str, int]:
        found = {FUNCTION_DOMAIN: 1}
        for nodes in [
            self.builder.nodes,
            *(f.builder.nodes for f in self.functions.functions.values()),
        ]:
            found |= self.functions.opsets([n for n in nodes if n.domain != FUNCTION_DOMAIN])
        return dict(sorted(found.items()))

    def _output(self, name: str, value: Operand) -> ValueInfoProto:
        if value.tensor >= 0:
            shape = self.samples.shape(value.tensor, self.batch)
            return tensor_info(name, value.element, shape)
        return tensor_info(name, value.element, value.shape)
