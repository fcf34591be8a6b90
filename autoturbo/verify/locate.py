"""Where a scheduled model goes wrong: the first instance whose results differ, and its layer.

Every call's results are compared with the region of the original's tensors that they stand for, in
the order of the schedule, a chunk of calls at a time. Of the first call that differs, the inputs
are compared next: if they are wrong, what is between the instances is; otherwise the layers of the
instance are run on the original's inputs, and the first one that differs is named.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import onnx
from onnx import ModelProto, ValueInfoProto, helper

from autoturbo.graph.batch import BatchTrace, trace_batch
from autoturbo.graph.domain import Region, volume
from autoturbo.graph.model_nodes import ModelNodes, load_nodes
from autoturbo.graph.weight_values import Array
from autoturbo.schedule.schedule import Schedule
from autoturbo.verify.body import Body, used
from autoturbo.verify.compare import Comparison, compare, described
from autoturbo.verify.findings import Check, Finding
from autoturbo.verify.names import instance_name
from autoturbo.verify.needs import made_regions, read_regions
from autoturbo.verify.passes import Pass
from autoturbo.verify.plain_model import elements_of, plain_model
from autoturbo.verify.repeats import repeat
from autoturbo.verify.samples import samples_of
from autoturbo.verify.scheduled_model import Call, ScheduledModel
from autoturbo.verify.sessions import open_session, run, with_outputs
from autoturbo.verify.setting import Setting

CHUNK_BYTES = 512 << 20
"""Bytes of results that are kept at a time."""


def locate(schedule: Schedule, setting: Setting, model: ScheduledModel) -> tuple[Finding, ...]:
    """The first instance and layer that differ; empty if every instance's results agree."""
    search = _Search(schedule, setting, model)
    for chunk in search.chunks():
        call = search.first_that_differs(chunk)
        if call is not None:
            return (search.explained(call),)
    return ()


@dataclass(eq=False)
class _Search:
    schedule: Schedule
    setting: Setting
    model: ScheduledModel

    @functools.cached_property
    def nodes(self) -> ModelNodes:
        """Of the original at the samples that are run."""
        if not self.setting.whole:
            return self.setting.nodes
        graph = self.schedule.model
        shapes = {graph.tensors[t].name: graph.tensors[t].shape for t in graph.inputs}
        return load_nodes(self.setting.original, shapes=shapes)

    @functools.cached_property
    def plain(self) -> ModelProto:
        """The original with the graph's names for all tensors."""
        return plain_model(self.nodes)

    @functools.cached_property
    def trace(self) -> BatchTrace:
        """Where samples are."""
        return trace_batch(self.schedule.model)

    def chunks(self) -> Iterator[list[Call]]:
        """The calls in order, so many at a time as may be compared at once."""
        chunk: list[Call] = []
        size = 0
        for call in self.model.calls:
            size += 4 * sum(volume(region) for region in self._made(call).values())
            chunk.append(call)
            if size > CHUNK_BYTES:
                yield chunk
                chunk, size = [], 0
        yield chunk

    def _made(self, call: Call) -> dict[int, Region]:
        made = made_regions(self.schedule, call.instance)
        return {t: region for t, region in made.items() if t in call.outputs}

    def _read(self, call: Call) -> dict[int, Region]:
        read = read_regions(self.schedule, call.instance)
        return {t: read[t] for t in call.inputs}

    # ---------------------------------------------------------------------------------- values

    def _originals(self, tensors: Sequence[int]) -> dict[int, Array]:
        """Whole tensors of the original, of the samples that are run."""
        names = {t: self.nodes.graph.tensors[t].name for t in tensors}
        values = self._values(self.plain, "original", list(names.values()))
        return {t: values[name] for t, name in names.items()}

    def _scheduled(self, names: Sequence[str]) -> dict[str, Array]:
        """Values of the scheduled model."""
        return self._values(self.model.proto, "scheduled", names)

    def _values(self, model: ModelProto, kind: str, names: Sequence[str]) -> dict[str, Array]:
        """Values of a model on the setting's inputs."""
        feeds = self.setting.feeds
        asked = [name for name in dict.fromkeys(names) if name not in feeds]
        given = {name: feeds[name] for name in names if name in feeds}
        if not asked:
            return given
        path = self.setting.folder / f"{kind}-values.onnx"
        onnx.save(with_outputs(model, asked), path)
        return given | run(open_session(path), feeds, asked)

    def _pass(self, call: Call) -> Pass:
        return next(one for one in self.model.passes if one.index == call.number)

    def _part(self, whole: Array, tensor: int, call: Call, region: Region) -> Array:
        """What a call should have of a tensor."""
        one, trace = self._pass(call), self.trace
        own = samples_of(whole, trace, tensor, (one.start, one.samples), self.setting.samples)
        return own[tuple(slice(low, high) for low, high in region)]

    # ------------------------------------------------------------------------------- comparison

    def first_that_differs(self, calls: Sequence[Call]) -> Call | None:
        """The first call whose results are not the original's."""
        originals = self._originals([t for call in calls for t in call.outputs])
        values = self._scheduled([name for call in calls for name in call.outputs.values()])
        for call in calls:
            for tensor, region in self._made(call).items():
                want = self._part(originals[tensor], tensor, call, region)
                if not self._compared(tensor, want, values[call.outputs[tensor]]).ok:
                    return call
        return None

    def _compared(self, tensor: int, want: Array, got: Array) -> Comparison:
        name = self.nodes.graph.tensors[tensor].name
        return compare({name: want}, {name: got}, self.setting.arithmetic)[0]

    def explained(self, call: Call) -> Finding:
        """Why a call's results differ: its inputs, or the first of its layers that does."""
        label = instance_name(self.schedule, call.instance)
        regions = self._read(call)
        originals = self._originals(list(regions))
        want = {t: self._part(originals[t], t, call, r) for t, r in regions.items()}
        values = self._scheduled(list(call.inputs.values()))
        for tensor, name in call.inputs.items():
            found = self._compared(tensor, want[tensor], values[name])
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
        originals, values = self._originals(tensors), self._run_alone(call, tensors, inputs)
        for layer, tensor in made:
            want = self._part(originals[tensor], tensor, call, held[tensor])
            found = self._compared(tensor, want, values[tensor])
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
        nodes, function = self.setting.nodes, call.function
        names = {t: nodes.graph.tensors[t].name for t in (*tensors, *inputs)}
        elements = elements_of(nodes)
        given = [_info(names[t], elements[t], array.shape) for t, array in inputs.items()]
        given += [_info(o.name, o.element, o.shape) for o in nodes.given]
        start = self._pass(call).start
        before = Body(nodes.opsets[""], taken=set(names.values()) | set(nodes.stored))
        before.nodes.extend(nodes.constants)
        repeat(before, nodes.repeated, {}, start)
        graph = helper.make_graph(
            [*before.nodes, *function.body.nodes], "instance", given,
            [ValueInfoProto(name=names[t]) for t in dict.fromkeys(tensors)],
            used([*before.nodes, *function.body.nodes], nodes.stored),
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
