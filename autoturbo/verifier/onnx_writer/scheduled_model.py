"""A schedule and its model as one ONNX model: a call per instance, in the order of the schedule.

Per pass (the samples that the clusters process at once) every instance is a call of a model-local
function that holds its layers at its region. Between the calls stand the splits, concatenations,
copies and redistributions that feed them. Weights are initializers of the model, stored once and
handed to the functions whole. Order, cluster, cores, scope and buffers are metadata of the calls.

Files are checked and written atomically. Values kept in files beside the original stay where they
are if the new file stands beside it too; otherwise they go into one file beside the new one. What
the original holds in itself, the new file holds in itself as well, as long as the format allows
(2 GiB).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import onnx
from onnx import ModelProto, TensorProto, ValueInfoProto, helper
from onnx.external_data_helper import ExternalDataInfo, uses_external_data

from autoturbo.errors import VerifyError
from autoturbo.files import NO_OTHERS, Kind, Outputs, atomic_write
from autoturbo.graph.batch import trace_batch
from autoturbo.graph.domain import Region, meet, volume
from autoturbo.graph.importer.external_data import put_outside
from autoturbo.graph.model_nodes import ModelNodes, Operand
from autoturbo.graph.source import one_line
from autoturbo.schedule.memory.movement import COPIED, REDISTRIBUTED
from autoturbo.schedule.place.bind import Scope
from autoturbo.schedule.schedule import Schedule
from autoturbo.verifier.findings import instance_name
from autoturbo.verifier.onnx_writer.builder import (
    GraphBuilder,
    RegionValue,
    UncoveredError,
    concatenate_pieces,
    declared,
    element_types,
    model_of,
    no_tensors,
    slice_region,
    tensor_info,
    without_unread_constants,
)
from autoturbo.verifier.onnx_writer.calls import (
    FUNCTION_DOMAIN,
    FunctionTable,
    InstanceFacts,
    PartFunction,
    Pass,
    SampleSlicer,
    annotate,
    model_facts,
    nodes_at,
    passes_of,
    write_repeated,
)
from autoturbo.verifier.onnx_writer.narrow import NARROW, widen_moves
from autoturbo.verifier.regions import made_regions, read_regions
from autoturbo.version import __version__

IR_VERSION = 10
"""The first version of the format in which nodes have metadata."""

_MOVEMENTS = {COPIED: "copy", REDISTRIBUTED: "redistribute"}


class BuildError(Exception):
    """A schedule that cannot be written as a model, because it does not compute it.

    Attributes:
        kind: The defect in one or two words, as findings name it.
        instance: The instance that cannot be written.
    """

    def __init__(self, kind: str, instance: str, message: str) -> None:
        super().__init__(message)
        self.kind, self.instance = kind, instance


@dataclass(frozen=True, slots=True)
class Call:
    """One call of an instance's function.

    Attributes:
        number: Number of the pass.
        instance: Number of the instance.
        function: The function that it calls.
        inputs: Names of the values that it is given, tensor by tensor.
        outputs: Names of the values that it makes, tensor by tensor.
    """

    number: int
    instance: int
    function: PartFunction
    inputs: Mapping[int, str]
    outputs: Mapping[int, str]


@dataclass(frozen=True, slots=True, eq=False)
class ScheduledModel:
    """A scheduled model and its calls.

    Attributes:
        proto: The model; large weights are references to the files of the original.
        calls: Calls of the model, in order.
        passes: Over the batch.
    """

    proto: ModelProto
    calls: tuple[Call, ...]
    passes: tuple[Pass, ...]


def _check_nodes(schedule: Schedule, nodes: ModelNodes) -> None:
    """Refuse nodes that are not those of the schedule's graph.

    Raises:
        VerifyError: A baseline that expands operators differently, or another model.
    """
    graph, file_graph = schedule.context.graph, nodes.graph
    if len(graph.operators) != len(file_graph.operators):
        message = f"{schedule.scheduler} writes operators out that are one in the model"
        raise VerifyError(message, hint="such a schedule is simulated, not applied")
    same = all(
        (a.kind, a.inputs, a.outputs) == (b.kind, b.inputs, b.outputs)
        for a, b in zip(graph.operators, file_graph.operators, strict=True)
    )
    same_shapes = [t.shape for t in graph.tensors] == [t.shape for t in file_graph.tensors]
    if not (same and same_shapes):
        raise VerifyError("the model is not the one that was scheduled", hint="give its own file")


def scheduled_model(
    schedule: Schedule, nodes: ModelNodes, passes: Sequence[Pass] | None = None
) -> ScheduledModel:
    """Return a schedule and its model as one ONNX model.

    Args:
        schedule: The schedule.
        nodes: The model at the samples of one pass (those of ``schedule.context.graph``).
        passes: The passes to write; all of them if None. Given only one, the model has that pass's
            samples, otherwise the whole batch.

    Raises:
        VerifyError: The nodes are not those of the schedule.
        BuildError: The schedule does not compute the model: a part lacks an input that it needs.
    """
    _check_nodes(schedule, nodes)
    writer = _Writer(schedule, nodes, tuple(passes or passes_of(schedule)))
    writer.write()
    return writer.model()


class _Writer:
    """Writes the nodes of a scheduled model.

    Attributes:
        calls: Calls written so far, in order.
        outputs: Per output of the model that a node makes, the names of its parts by pass.
        one: The pass at hand.
        given: Names of its samples of every input.
        constants: Names of the constants that are written for its samples.
        made: Per instance and tensor, the value that a call of it makes.
    """

    def __init__(self, schedule: Schedule, nodes: ModelNodes, passes: tuple[Pass, ...]) -> None:
        self.schedule, self.nodes, self.passes = schedule, nodes, passes
        self.builder = GraphBuilder(nodes.opsets[""])
        self.builder.taken.update(nodes.stored, (tensor.name for tensor in nodes.graph.tensors))
        self.builder.nodes.extend(nodes.constants)
        self.functions = FunctionTable(nodes, schedule.context)
        self.facts = InstanceFacts(schedule)
        self.batch = max(one.start + one.samples for one in passes)
        model = schedule.model
        self.samples = SampleSlicer(model.tensors, trace_batch(model), model.batch)
        self.elements, self.no_tensors = element_types(nodes), no_tensors(nodes)
        self.calls: list[Call] = []
        made = [t for t in nodes.graph.outputs if self._is_made(t)]
        self.outputs: dict[int, list[str]] = {tensor: [] for tensor in made}
        self.one, self.given, self.constants = passes[0], dict[int, str](), dict[str, str]()
        self.made: dict[tuple[int, int], RegionValue] = {}

    # ------------------------------------------------------------------------------------ nodes

    def write(self) -> None:
        """Write all passes, then the outputs."""
        for one in self.passes:
            self.builder.operator = f"pass{one.index}"
            self.one, self.made, bounds = one, {}, (one.start, one.start + one.samples)
            self.given = {
                t: self.samples.cut(self.builder, self.name(t), t, *bounds, self.batch)
                for t in self.nodes.graph.inputs
            }
            self.constants = {r.name: f"{r.name}@{one.index}" for r in self.nodes.repeated}
            write_repeated(self.builder, self.nodes.repeated, self.constants, one.start)
            for instance in self.schedule.order:
                self._call(instance)
            for tensor, names in self.outputs.items():
                names.append(self._whole(tensor))
        self.builder.operator = "outputs"
        self._finish()

    def _is_made(self, tensor: int) -> bool:
        """Return whether a node makes a tensor: inputs and constants are whole in the file."""
        graph = self.nodes.graph
        return tensor not in graph.read and not graph.tensors[tensor].constant

    def name(self, tensor: int) -> str:
        """Return the name of a tensor in the file."""
        return self.nodes.graph.tensors[tensor].name

    def _call(self, instance: int) -> None:
        """Write a call of an instance and its inputs."""
        graph, one = self.schedule.instances, self.one
        label = instance_name(self.schedule, instance)
        read = read_regions(self.schedule, instance)
        regions = {t: region for t, region in read.items() if volume(region)}
        wanted = made_regions(self.schedule, instance)
        layers = graph.subgraphs[int(graph.subgraph[instance])].layers
        try:
            function = self.functions.function(layers, regions, wanted)
            inputs = {t: self._input(instance, t, regions[t]) for t in function.inputs}
        except UncoveredError as error:
            raise BuildError("uncovered", label, f"{label}: {error}") from None
        part = instance - int(graph.first[graph.subgraph[instance]])
        outputs = {t: self._made_name(t, f"#{part}@{one.index}") for t in function.outputs}
        constants = [self.constants.get(name, name) for name in function.constants]
        self.builder.node(
            function.proto.name, [*inputs.values(), *constants],
            list(outputs.values()), domain=FUNCTION_DOMAIN,
        )  # fmt: skip
        node = self.builder.nodes[-1]
        node.name = f"{label}@{one.index}"
        facts = self.facts.of(instance, one.cluster)
        facts |= {"regions": {self.name(t): region for t, region in wanted.items()}}
        annotate(node, {"instance": label, "pass": one.index, **facts})
        for tensor, name in outputs.items():
            self.made[instance, tensor] = RegionValue(name, wanted[tensor])
        self.calls.append(Call(one.index, instance, function, inputs, outputs))

    def _made_name(self, tensor: int, suffix: str) -> str:
        """Return the name of what a call makes; a sequence of the first pass has its own.

        The Identity that would name an output takes no sequences before opset 14.
        """
        own = tensor in self.no_tensors and self.one is self.passes[0]
        return self.name(tensor) + ("" if own else suffix)

    def _input(self, instance: int, tensor: int, want: Region) -> str:
        """Return the name of the region of a tensor that an instance reads."""
        if tensor in self.given:
            whole = self.nodes.graph.tensors[tensor].whole
            return slice_region(self.builder, RegionValue(self.given[tensor], whole), want)
        graph = self.schedule.instances
        tensors = graph.parts[int(graph.subgraph[instance])].inputs
        links = range(int(graph.links.start[instance]), int(graph.links.start[instance + 1]))
        pieces = [
            self._piece(instance, link, want)
            for link in links
            if tensors[int(graph.links.slot[link])] == tensor
        ]
        joined = concatenate_pieces(self.builder, pieces, want)
        if len(pieces) > 1:
            annotate(self.builder.nodes[-1], {"movement": "concat"})
        return joined

    def _piece(self, reader: int, link: int, want: Region) -> RegionValue:
        """Return an instance's part of a region, moved if the schedule moves it."""
        graph, schedule = self.schedule.instances, self.schedule
        maker, output = int(graph.links.maker[link]), int(graph.links.output[link])
        tensor = graph.parts[int(graph.subgraph[maker])].outputs[output]
        value = self.made.get((maker, tensor))
        if value is None:
            label, late = instance_name(schedule, reader), instance_name(schedule, maker)
            raise BuildError("order", label, f"{label} runs before {late}, whose output it reads")
        region = meet(value.region, want)
        name = slice_region(self.builder, value, region)
        timeline = schedule.timelines[schedule.cluster[reader] if schedule.cluster else 0]
        movement = _MOVEMENTS.get(int(timeline.movements.kind[link]))
        if movement is not None and tensor not in self.no_tensors:
            name = self.builder.op("Identity", name)
            source = schedule.placement.scopes[maker].name
            facts = {"movement": movement, "from": source, "to": Scope.LB.name}
            annotate(self.builder.nodes[-1], facts)
        return RegionValue(name, region)

    def _whole(self, tensor: int) -> str:
        """Return the name of a whole output of the model, as the current pass makes it."""
        name, record = self.name(tensor), self.nodes.graph.tensors[tensor]
        pieces = [value for (_, made), value in self.made.items() if made == tensor]
        try:
            return concatenate_pieces(self.builder, pieces, record.whole)
        except UncoveredError as error:
            raise BuildError("gap", name, f"output {name}: {error}") from None

    def _finish(self) -> None:
        """Name every output of the file once: a file may list one twice."""
        for name, value in dict(self.nodes.outputs).items():
            made = value.name
            if value.tensor in self.outputs:
                names = self.outputs[value.tensor]
                made = self.samples.join(self.builder, names, value.tensor, self.passes)
            if made != name:
                self.builder.op("Identity", made, to=name)

    def model(self) -> ScheduledModel:
        """Return the model of the nodes written."""
        shapes = {t: self.samples.shape(t, self.batch) for t in self.nodes.graph.inputs}
        inputs = [tensor_info(self.name(t), self.elements[t], shapes[t]) for t in shapes]
        outputs = [self._output(name, value) for name, value in self.nodes.outputs]
        leaving = [value.name for value in outputs]
        nodes = without_unread_constants(self.builder.nodes, len(self.nodes.constants), leaving)
        functions = [function.proto for function in self.functions.functions.values()]
        opsets = {FUNCTION_DOMAIN: 1}
        opsets |= self.functions.opsets(
            n for n in self.builder.nodes if n.domain != FUNCTION_DOMAIN
        )
        opsets |= {one.domain: one.version for own in functions for one in own.opset_import}
        proto = model_of(
            self.nodes, nodes, inputs, outputs,
            functions=functions,
            opset_imports=[helper.make_opsetid(d, v) for d, v in sorted(opsets.items())],
            ir_version=max(self.nodes.ir_version, IR_VERSION),
            producer_name="autoturbo", producer_version=__version__,
        )  # fmt: skip
        if not NARROW.isdisjoint(self.elements.values()):
            widen_moves(proto)
        helper.set_model_props(proto, model_facts(self.schedule))
        return ScheduledModel(proto, tuple(self.calls), self.passes)

    def _output(self, name: str, value: Operand) -> ValueInfoProto:
        given = value.tensor < 0
        shape = value.shape if given else self.samples.shape(value.tensor, self.batch)
        return declared(name, value, shape)


# ------------------------------------------------------------------------------------------ files


_MOST_INSIDE = 1 << 30
"""Bytes of values that a file holds in itself; beyond, they go into a file beside it."""

_FEW = 1024
"""Bytes of a value that always stays inside."""

_PIECE = 1 << 24


@dataclass(frozen=True, slots=True)
class Applied:
    """A scheduled model that was written.

    Attributes:
        file: The model.
        data_files: What was written beside it; empty where it holds its values itself or refers to
            the original's files.
        instances: Calls of instances in it, of all passes.
        functions: Model-local functions.
        nodes: Nodes of the main graph.
        passes: Over the batch.
        missing: Data files that the original names and that are not there.
    """

    file: Path
    data_files: tuple[Path, ...]
    instances: int
    functions: int
    nodes: int
    passes: int
    missing: tuple[str, ...] = ()


def nodes_of(schedule: Schedule, path: Path) -> ModelNodes:
    """Return the model's nodes at the samples that a pass of the schedule processes.

    Raises:
        ModelError: The file is not usable.
        VerifyError: It cannot be written for so many samples.
    """
    return nodes_at(path, schedule.context.graph, schedule.model)


def write_scheduled_model(
    schedule: Schedule, path: str | Path, out: str | Path, outputs: Outputs = NO_OTHERS
) -> Applied:
    """Write a schedule and its model as one ONNX file.

    Args:
        schedule: The schedule to apply.
        path: The model's file.
        out: The file to write; another one than ``path``.
        outputs: Files that it may not replace besides the model and its data files.

    Returns:
        The files that were written, and what the model consists of.

    Raises:
        ModelError: The model's file is not usable.
        UsageError: ``out`` cannot be written, is the model itself, or may not be replaced.
        VerifyError: The schedule cannot be written as a model.
        BuildError: The schedule does not compute the model.
    """
    source, place = Path(path), Path(out)
    outputs = outputs.reading(source)
    outputs.check(place, Kind.MODEL)
    written = scheduled_model(schedule, nodes_of(schedule, source))
    data, missing = _keep_values(written.proto, source, place, outputs)
    _check_and_write(written.proto, place, complete=not missing)
    return Applied(
        place, data, len(written.calls), len(written.proto.functions),
        len(written.proto.graph.node),
        len(written.passes), missing,
    )  # fmt: skip


def _check_and_write(proto: ModelProto, place: Path, *, complete: bool) -> None:
    """Write the file once ONNX's checker has passed it.

    The checker looks for data files, so it reads the file at its final place.

    Raises:
        VerifyError: ONNX's checker refuses it; a file that is there stays as it is.
    """
    draft = place.with_name(f".{place.name}.draft")
    try:
        atomic_write(draft, proto.SerializeToString(deterministic=True))
        if complete:
            onnx.checker.check_model(str(draft), full_check=_all_known(proto))
        else:
            _check_without_values(proto)
        draft.replace(place)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        raise VerifyError(f"the scheduled model is not valid ONNX: {one_line(error)}") from None
    finally:
        with suppress(OSError):
            draft.unlink(missing_ok=True)


def _check_without_values(proto: ModelProto) -> None:
    """Check a model whose data files are missing, with its weights as inputs."""
    copy = ModelProto()
    copy.CopyFrom(proto)
    gone = [tensor for tensor in copy.graph.initializer if uses_external_data(tensor)]
    for tensor in gone:
        copy.graph.input.append(tensor_info(tensor.name, tensor.data_type, tensor.dims))
        copy.graph.initializer.remove(tensor)
    onnx.checker.check_model(copy, full_check=_all_known(proto))


def _all_known(proto: ModelProto) -> bool:
    """Return whether ONNX knows every operator: inference fails behind unknown ones."""
    versions = {entry.domain: entry.version for entry in proto.opset_import}
    nodes = [*proto.graph.node, *(node for one in proto.functions for node in one.node)]
    local_domains = {one.domain for one in proto.functions}
    kinds = {(node.domain, node.op_type) for node in nodes if node.domain not in local_domains}
    return all(
        onnx.defs.has(op_type, max_inclusive_version=versions.get(domain, 1), domain=domain)
        for domain, op_type in kinds
    )


def _keep_values(
    proto: ModelProto, source: Path, place: Path, outputs: Outputs
) -> tuple[tuple[Path, ...], tuple[str, ...]]:
    """Update references to data files for the new place.

    Args:
        proto: The model to write.
        source: The original's file.
        place: Folder that the model goes to.
        outputs: Files that may not be replaced.

    Returns:
        The data file written, if any, and the files that are missing.
    """
    outside = [tensor for tensor in proto.graph.initializer if uses_external_data(tensor)]
    folder = source.absolute().parent
    names = {tensor.name: ExternalDataInfo(tensor).location for tensor in outside}
    missing = sorted({name for name in names.values() if not (folder / name).is_file()})
    beside = place.absolute().parent.resolve() == folder.resolve()
    moved = [t for t in outside if not beside and names[t.name] not in missing]
    moved += _too_large(proto)
    if not moved:
        return (), tuple(missing)
    data = place.with_name(f"{place.name}.data")
    with outputs.reading(*(folder / name for name in set(names.values()))).open(
        data, Kind.WEIGHTS
    ) as stream:
        for tensor in moved:
            put_outside(tensor, _values(tensor, folder), stream, data.name)
    return (data,), tuple(missing)


def _too_large(proto: ModelProto) -> list[TensorProto]:
    """Return values inside the file that make it larger than the format allows."""
    inside = [t for t in proto.graph.initializer if len(t.raw_data) > _FEW]
    return inside if sum(len(t.raw_data) for t in inside) > _MOST_INSIDE else []


def _values(tensor: TensorProto, folder: Path) -> Iterator[bytes]:
    if not uses_external_data(tensor):
        yield tensor.raw_data
        return
    info = ExternalDataInfo(tensor)
    file = folder / info.location
    with file.open("rb") as stream:
        stream.seek(info.offset or 0)
        left = info.length or file.stat().st_size
        while left > 0 and (piece := stream.read(min(left, _PIECE))):
            left -= len(piece)
            yield piece
