"""Where a scheduled model goes wrong: the first instance whose results differ, and its layer.

The results of every call are compared with the region of the original's tensors that they stand
for, in the order of the schedule, a chunk of calls at a time: a mistake in the middle of a deep
network may be too small to be seen in its outputs. Of the first call that differs, the inputs are
compared next: if they are wrong, what is between the instances is; otherwise the layers of the
instance are run on the original's inputs, and the first one that differs is named.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import onnx
from onnx import ValueInfoProto, helper

from autoturbo.graph.batch import BatchTrace, trace_batch
from autoturbo.graph.domain import Region, volume
from autoturbo.graph.weight_values import Array
from autoturbo.schedule.schedule import Schedule
from autoturbo.verify.body import Body, used
from autoturbo.verify.compare import Comparison, compare, described
from autoturbo.verify.findings import Check, Finding
from autoturbo.verify.names import instance_name
from autoturbo.verify.needs import made_regions, read_regions
from autoturbo.verify.passes import Pass
from autoturbo.verify.plain_model import elements_of
from autoturbo.verify.repeats import repeat
from autoturbo.verify.runs import Runs
from autoturbo.verify.samples import samples_of
from autoturbo.verify.scheduled_model import Call, ScheduledModel
from autoturbo.verify.sessions import open_session, run
from autoturbo.verify.setting import Setting

CHUNK_BYTES = 1 << 30
"""Bytes of results that are kept at a time."""


@dataclass(frozen=True, slots=True)
class Compared:
    """What comparing two models gave.

    Attributes:
        outputs: of the model.
        findings: at most one: the first instance that differs.
    """

    outputs: tuple[Comparison, ...]
    findings: tuple[Finding, ...]


def compare_calls(schedule: Schedule, setting: Setting, model: ScheduledModel) -> Compared:
    """Compare the outputs of a model, and the results of every call.

    Raises:
        UnrunnableError: ONNX Runtime cannot run the original.
        BrokenModelError: it cannot run the scheduled model.
    """
    search = _Search(schedule, setting, model)
    outputs: tuple[Comparison, ...] = ()
    for chunk in search.chunks():
        compared, call = search.compared(chunk)
        outputs = outputs or compared
        if call is not None:
            return Compared(outputs, (search.explained(call),))
    return Compared(outputs, ())


@dataclass(eq=False)
class _Search:
    schedule: Schedule
    setting: Setting
    model: ScheduledModel

    @functools.cached_property
    def runs(self) -> Runs:
        """Values of both models."""
        return Runs(self.setting, self.schedule.model, self.model.proto)

    @functools.cached_property
    def trace(self) -> BatchTrace:
        """Where samples are."""
        return trace_batch(self.schedule.model)

    def chunks(self) -> Iterator[list[Call]]:
        """The calls in order, so many at a time as may be compared at once."""
        chunk: list[Call] = []
        size = 0
        for call in self.model.calls:
            size += 8 * sum(volume(region) for region in self._made(call).values())
            chunk.append(call)
            if size > CHUNK_BYTES:
                yield chunk
                chunk, size = [], 0
        if chunk:
            yield chunk

    def _made(self, call: Call) -> dict[int, Region]:
        made = made_regions(self.schedule, call.instance)
        return {t: region for t, region in made.items() if t in call.outputs}

    def _read(self, call: Call) -> dict[int, Region]:
        read = read_regions(self.schedule, call.instance)
        return {t: read[t] for t in call.inputs}

    def _pass(self, call: Call) -> Pass:
        return next(one for one in self.model.passes if one.index == call.number)

    def _part(self, whole: Array, tensor: int, call: Call, region: Region) -> Array:
        """What a call should have of a tensor."""
        one, trace = self._pass(call), self.trace
        own = samples_of(whole, trace, tensor, (one.start, one.samples), self.setting.samples)
        return own[tuple(slice(low, high) for low, high in region)]

    # ------------------------------------------------------------------------------- comparison

    def compared(self, calls: Sequence[Call]) -> tuple[tuple[Comparison, ...], Call | None]:
        """The outputs of the model, and the first of some calls whose results differ."""
        tensors = [t for call in calls for t in call.outputs]
        outputs, originals = self.runs.outputs_and(tensors)
        made = [name for call in calls for name in call.outputs.values()]
        values = self.runs.scheduled([*made, *outputs])
        own = {name: values[name] for name in outputs}
        found = compare(outputs, own, self.setting.arithmetic)
        return found, self._first(calls, originals, values)

    def _first(
        self, calls: Sequence[Call], originals: Mapping[int, Array], values: Mapping[str, Array]
    ) -> Call | None:
        for call in calls:
            for tensor, region in self._made(call).items():
                want = self._part(originals[tensor], tensor, call, region)
                if not self._alike(tensor, want, values[call.outputs[tensor]]).ok:
                    return call
        return None

    def _alike(self, tensor: int, want: Array, got: Array) -> Comparison:
        name = self.setting.nodes.graph.tensors[tensor].name
        return compare({name: want}, {name: got}, self.setting.arithmetic)[0]

    def explained(self, call: Call) -> Finding:
        """Why a call's results differ: its inputs, or the first of its layers that does."""
        label = instance_name(self.schedule, call.instance)
        regions = self._read(call)
        originals = self.runs.originals(list(regions))
        want = {t: self._part(originals[t], t, call, r) for t, r in regions.items()}
        values = self.runs.scheduled(list(call.inputs.values()))
        for tensor, name in call.inputs.items():
            found = self._alike(tensor, want[tensor], values[name])
            if not found.ok:
                message = f"{label} is given a wrong {described(found)}"
                return Finding(Check.NUMBERS, "wrong input", message, label)
        return self._layer_that_differs(call, label, want)

    def _layer_that_differs(self, call: Call, label: str, inputs: Mapping[int, Array]) -> Finding:
        """Run the instance's layers on the original's inputs."""
        problem = self.schedule.problem
        subgraph = int(self.schedule.instances.subgraph[call.instance])
        layers = self.schedule.instances.subgraphs[subgraph].layers
        held = call.function.body.regions
        made = [
            (layer, t)
            for layer in layers
            for op in problem.layers[layer].operators
            for t in problem.graph.operators[op].outputs
            if t in held and volume(held[t])
        ]
        tensors = [t for _, t in made]
        originals, values = self.runs.originals(tensors), self._run_alone(call, tensors, inputs)
        for layer, tensor in made:
            want = self._part(originals[tensor], tensor, call, held[tensor])
            found = self._alike(tensor, want, values[tensor])
            if not found.ok:
                name = problem.layers[layer].name
                message = f"{label}: layer {name}: {described(found)}"
                return Finding(Check.NUMBERS, "difference", message, label, name)
        message = f"{label}: its results differ, but each of its layers gives the right ones alone"
        return Finding(Check.NUMBERS, "difference", message, label)

    def _run_alone(
        self, call: Call, tensors: Sequence[int], inputs: Mapping[int, Array]
    ) -> dict[int, Array]:
        """What the layers of an instance make of given inputs."""
        nodes = self.setting.nodes
        own = next(f.node for f in self.model.proto.functions if f.name == call.function.name)
        names = {t: nodes.graph.tensors[t].name for t in (*tensors, *inputs)}
        elements = elements_of(nodes)
        given = [_info(names[t], elements[t], array.shape) for t, array in inputs.items()]
        given += [_info(o.name, o.element, o.shape) for o in nodes.given]
        start = self._pass(call).start
        before = Body(nodes.opsets[""], taken=set(names.values()) | set(nodes.stored))
        before.nodes.extend(nodes.constants)
        repeat(before, nodes.repeated, {}, start)
        graph = helper.make_graph(
            [*before.nodes, *own], "instance", given,
            [ValueInfoProto(name=names[t]) for t in dict.fromkeys(tensors)],
            used([*before.nodes, *own], nodes.stored),
        )  # fmt: skip
        model = helper.make_model(
            graph, opset_imports=self.model.proto.opset_import,
            ir_version=self.model.proto.ir_version,
        )  # fmt: skip
        path = self.setting.folder / "instance.onnx"
        onnx.save(model, path)
        feeds = {names[t]: array for t, array in inputs.items()}
        feeds |= {o.name: self.setting.feeds[o.name] for o in nodes.given}
        values = run(open_session(path), feeds)
        return {t: values[names[t]] for t in tensors}


def _info(name: str, element: int, shape: Sequence[int]) -> ValueInfoProto:
    return helper.make_tensor_value_info(name, element, list(shape))
