"""A schedule and its model as one ONNX model: a call per instance, in the order of the schedule.

Per pass (the samples that the clusters process at once) every instance is a call of a model-local
function that holds its layers at its region. Between the calls stand the splits, concatenations,
copies and redistributions that feed them. Weights are initializers of the model, stored once and
handed to the functions whole. Order, cluster, cores, scope and buffers are metadata of the calls.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from onnx import ModelProto, ValueInfoProto, helper

from autoturbo.errors import VerifyError
from autoturbo.graph.batch import trace_batch
from autoturbo.graph.domain import Region, meet, volume
from autoturbo.graph.model_nodes import ModelNodes, Operand
from autoturbo.schedule.bind import Scope
from autoturbo.schedule.movement import COPIED, REDISTRIBUTED
from autoturbo.schedule.schedule import Schedule
from autoturbo.verify.body import Body, used, without_unread
from autoturbo.verify.functions import FUNCTION_DOMAIN, FunctionBook, PartFunction
from autoturbo.verify.metadata import InstanceFacts, annotate, model_facts
from autoturbo.verify.names import instance_name
from autoturbo.verify.needs import made_regions, read_regions
from autoturbo.verify.passes import Pass, passes_of
from autoturbo.verify.pieces import Held, UncoveredError, cut_out, put_together
from autoturbo.verify.plain_model import elements_of
from autoturbo.verify.repeats import repeat
from autoturbo.verify.samples import Samples
from autoturbo.version import __version__

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
    alike = [t.shape for t in graph.tensors] == [t.shape for t in own.tensors]
    if not (same and alike):
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
    body: Body = field(init=False)
    book: FunctionBook = field(init=False)
    calls: list[Call] = field(default_factory=list)
    made: dict[tuple[int, int, int], Held] = field(default_factory=dict)
    outputs: dict[tuple[int, int], str] = field(default_factory=dict)
    constants: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.body = Body(self.nodes.opsets[""])
        graph = self.nodes.graph
        self.body.taken.update(self.nodes.stored, (tensor.name for tensor in graph.tensors))
        self.book = FunctionBook(self.nodes, self.schedule.problem)
        self.body.nodes.extend(self.nodes.constants)
        self.facts = InstanceFacts(self.schedule)
        self.batch = max(one.start + one.samples for one in self.passes)
        model = self.schedule.model
        self.samples = Samples(model.tensors, trace_batch(model), model.batch)
        self.elements = elements_of(self.nodes)

    # ------------------------------------------------------------------------------------ nodes

    def write(self) -> None:
        """All passes, then the outputs."""
        for one in self.passes:
            self.body.operator = f"pass{one.index}"
            given = self._given(one)
            self.constants = {r.name: f"{r.name}@{one.index}" for r in self.nodes.repeated}
            repeat(self.body, self.nodes.repeated, self.constants, one.start)
            for instance in self.schedule.order:
                self._call(one, instance, given)
            for tensor in self.nodes.graph.outputs:
                self.outputs[one.index, tensor] = self._whole(one, tensor, given)
        self.body.operator = "outputs"
        self._finish()

    def _given(self, one: Pass) -> dict[int, str]:
        """The samples of every input that a pass processes."""
        graph = self.nodes.graph
        return {
            tensor: self.samples.cut(
                self.body, graph.tensors[tensor].name, tensor, one.start, one.start + one.samples,
                self.batch,
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
            function = self.book.function(layers, regions, wanted)
            inputs = {t: self._input(one, instance, t, regions[t], given) for t in function.inputs}
        except UncoveredError as error:
            raise BuildError("uncovered", label, f"{label}: {error}") from None
        outputs = {t: self._name(one, instance, t) for t in function.outputs}
        constants = [self.constants.get(c.name, c.name) for c in function.constants]
        self.body.node(
            function.name, [*inputs.values(), *constants],
            list(outputs.values()), domain=FUNCTION_DOMAIN,
        )  # fmt: skip
        node = self.body.nodes[-1]
        node.name = f"{label}@{one.index}"
        spelt = {self.nodes.graph.tensors[t].name: r for t, r in wanted.items()}
        facts = self.facts.of(instance, one.cluster)
        annotate(node, {"instance": label, "pass": one.index, **facts, "regions": spelt})
        for tensor, name in outputs.items():
            self.made[one.index, instance, tensor] = Held(name, wanted[tensor])
        self.calls.append(Call(one.index, instance, function, inputs, outputs))

    def _name(self, one: Pass, instance: int, tensor: int) -> str:
        graph = self.schedule.instances
        subgraph = int(graph.subgraph[instance])
        part = instance - int(graph.first[subgraph])
        return f"{self.nodes.graph.tensors[tensor].name}#{part}@{one.index}"

    def _input(
        self, one: Pass, instance: int, tensor: int, want: Region, given: Mapping[int, str]
    ) -> str:
        """The region of a tensor that an instance reads."""
        if tensor in given:
            whole = self.nodes.graph.tensors[tensor].whole
            return cut_out(self.body, Held(given[tensor], whole), want)
        pieces = [self._piece(one, *link, want) for link in self._links(instance, tensor)]
        joined = put_together(self.body, pieces, want)
        if len(pieces) > 1:
            annotate(self.body.nodes[-1], {"movement": "concat"})
        return joined

    def _links(self, instance: int, tensor: int) -> Iterator[tuple[int, int, int]]:
        """Reader, maker and number of what an instance reads of a tensor from others."""
        graph = self.schedule.instances
        own = graph.parts[int(graph.subgraph[instance])]
        for link in range(int(graph.links.start[instance]), int(graph.links.start[instance + 1])):
            if own.inputs[int(graph.links.slot[link])] == tensor:
                yield instance, int(graph.links.maker[link]), link

    def _piece(self, one: Pass, reader: int, maker: int, link: int, want: Region) -> Held:
        """What one instance made of a region, moved if the schedule moves it."""
        graph, schedule = self.schedule.instances, self.schedule
        output = int(graph.links.output[link])
        tensor = graph.parts[int(graph.subgraph[maker])].outputs[output]
        held = self.made.get((one.index, maker, tensor))
        label = instance_name(schedule, reader)
        if held is None:
            late = instance_name(schedule, maker)
            raise BuildError("order", label, f"{label} runs before {late}, whose output it reads")
        region = meet(held.region, want)
        name = cut_out(self.body, held, region)
        timeline = schedule.timelines[schedule.cluster[reader] if schedule.cluster else 0]
        movement = _MOVEMENTS.get(int(timeline.movements.kind[link]))
        if movement is None:
            return Held(name, region)
        (moved,) = self.body.node("Identity", [name], 1)
        scope = schedule.placement.scopes[maker]
        annotate(
            self.body.nodes[-1], {"movement": movement, "from": scope.name, "to": Scope.LB.name}
        )
        return Held(moved, region)

    def _whole(self, one: Pass, tensor: int, given: Mapping[int, str]) -> str:
        """All of an output of the model, as one pass makes it."""
        if tensor in given:
            return given[tensor]
        graph = self.nodes.graph
        if graph.tensors[tensor].constant:
            return graph.tensors[tensor].name
        pieces = [
            held for (number, _, made), held in self.made.items()
            if number == one.index and made == tensor
        ]  # fmt: skip
        try:
            return put_together(self.body, pieces, graph.tensors[tensor].whole)
        except UncoveredError as error:
            name = graph.tensors[tensor].name
            raise BuildError("gap", name, f"output {name}: {error}") from None

    def _finish(self) -> None:
        """Give every output of the file its name, once: a file may list one twice."""
        for name, value in dict(self.nodes.outputs).items():
            made = value.name
            if value.tensor >= 0 and not value.constant:
                names = [self.outputs[one.index, value.tensor] for one in self.passes]
                made = self.samples.join(self.body, names, value.tensor, self.passes)
            if made != name:
                self.body.node("Identity", [made], [name])

    # ------------------------------------------------------------------------------------ model

    def model(self) -> ScheduledModel:
        """The model of what was written."""
        graph = self.nodes.graph
        inputs = [self._info(graph.tensors[t].name, t) for t in graph.inputs]
        inputs += [_value(o.name, o.element, o.shape) for o in self.nodes.given]
        outputs = [self._output(name, value) for name, value in self.nodes.outputs]
        leaving = [value.name for value in outputs]
        nodes = without_unread(self.body.nodes, len(self.nodes.constants), leaving)
        proto = helper.make_model(
            helper.make_graph(
                nodes, graph.name, inputs, outputs, used(nodes, self.nodes.stored, leaving)
            ),
            functions=self.book.protos(),
            opset_imports=[helper.make_opsetid(d, v) for d, v in self._opsets().items()],
            ir_version=max(self.nodes.ir_version, IR_VERSION),
            producer_name="autoturbo", producer_version=__version__,
        )  # fmt: skip
        helper.set_model_props(proto, model_facts(self.schedule))
        return ScheduledModel(proto, tuple(self.calls), self.passes, len(self.book.functions))

    def _opsets(self) -> dict[str, int]:
        found = {FUNCTION_DOMAIN: 1}
        for nodes in [self.body.nodes, *(f.body.nodes for f in self.book.functions.values())]:
            found |= self.book.opsets([n for n in nodes if n.domain != FUNCTION_DOMAIN])
        return dict(sorted(found.items()))

    def _info(self, name: str, tensor: int) -> ValueInfoProto:
        return _value(name, self.elements[tensor], self.samples.shape(tensor, self.batch))

    def _output(self, name: str, value: Operand) -> ValueInfoProto:
        if value.tensor >= 0:
            shape = self.samples.shape(value.tensor, self.batch)
            return _value(name, value.element, shape)
        return _value(name, value.element, value.shape)


def _value(name: str, element: int, shape: Sequence[int]) -> ValueInfoProto:
    return helper.make_tensor_value_info(name, element, list(shape))
