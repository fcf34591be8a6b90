"""The numbers: a scheduled model against its original, on the same random inputs and weights.

The original file itself runs where it takes the batch that is checked; a batch that is written into
the file and too large to run whole is changed first, and the report says so. Weights are random in
either case: what a file holds may be zeros and ones that hide a mistake, or may not be there.

The results of every call are compared with the region of the original's tensors that they stand
for, in the order of the schedule, a chunk of calls at a time: a mistake in the middle of a deep
network may be too small to be seen in its outputs. A call whose results differ by more than
rounding makes at once is diagnosed: is it given what others made, does it make of that what its
layers make, do its layers make what the original makes? If all that is so, rounding has added up.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import onnx
from onnx import ValueInfoProto

from autoturbo.errors import ModelError, UnrunnableError, VerifyError
from autoturbo.graph.batch import trace_batch
from autoturbo.graph.domain import Region, meet, volume
from autoturbo.graph.importer.fold import RANDOM
from autoturbo.graph.operators import Graph
from autoturbo.schedule.schedule import AnySchedule, Schedule
from autoturbo.verifier.comparison import Comparison, Scale, compare, compare_part, described
from autoturbo.verifier.execution import (
    BrokenModelError,
    ComparisonSetup,
    ModelRuns,
    open_session,
    prepare_comparison,
    run,
)
from autoturbo.verifier.findings import Check, Finding, Numbers, instance_name
from autoturbo.verifier.onnx_writer.builder import (
    GraphBuilder,
    element_types,
    model_of,
    no_tensors,
    tensor_info,
)
from autoturbo.verifier.onnx_writer.calls import (
    Pass,
    one_pass,
    passes_of,
    samples_of,
    write_repeated,
)
from autoturbo.verifier.onnx_writer.partial_operator import RegionError
from autoturbo.verifier.onnx_writer.scheduled_model import (
    BuildError,
    Call,
    ScheduledModel,
    scheduled_model,
)
from autoturbo.verifier.regions import made_regions, part_needs, read_regions
from autoturbo.verifier.weight_values import Array

CHUNK_BYTES = 1 << 30
"""Bytes of results that are kept at a time."""

SUSPECT = 8.0
"""Times the tolerance by which a call's results may differ: rounding adds up on the way to it, and
can be more in the middle of a network than at its end."""

MOST_BYTES = 4 << 30
"""Bytes of activations that may be alive at once where nothing else is said."""

MOST_MACS = 600 * 10**9
"""Multiply-accumulates of a model that is run whole: seconds to a minute on a few cores."""


def check_numbers(
    schedule: AnySchedule,
    path: str | Path,
    *,
    seed: int = 0,
    whole: bool | None = None,
    memory_bytes: int = MOST_BYTES,
    folder: Path | None = None,
) -> Numbers:
    """Run the original and the scheduled model side by side.

    Args:
        schedule: The schedule, on a target or on a machine of several units.
        path: The model's file; values that it keeps elsewhere need not be there.
        seed: Seed of the random inputs and weights.
        whole: Run all samples, or only those of one pass with the same decisions; None runs all
            where memory and patience allow.
        memory_bytes: Bytes of activations that may be alive at once.
        folder: Where weights and models are kept, for further checks of the same model with the
            same seed; a temporary one if None.

    Returns:
        Errors of each output and what is wrong, or why nothing could be compared.

    Raises:
        ModelError: The file is not usable.
    """
    try:
        schedule = schedule.whole
    except VerifyError as error:
        return Numbers(schedule.model.batch, True, seed, None, skipped=str(error))  # noqa: FBT003
    if whole is None:
        whole = fits_whole(schedule, memory_bytes)
    random = next((o for o in schedule.model.operators if o.kind in RANDOM), None)
    if random is not None:
        reason = f"not comparable: {random.kind} {random.name!r} gives other values each time"
        return Numbers(schedule.model.batch, whole, seed, None, skipped=reason)
    # Passes have the same decisions: one shows what all do.
    passes = passes_of(schedule) if whole else (one_pass(schedule),)
    samples = max(turn.start + turn.samples for turn in passes)
    all_of_it = samples == schedule.model.batch
    with TemporaryDirectory(prefix="autoturbo-verify-") as temporary:
        kept = folder or Path(temporary)
        try:
            setup = prepare_comparison(schedule, Path(path), kept, passes, seed)
            model = scheduled_model(schedule, setup.nodes, passes)
            return compare_models(schedule, setup, model, seed)
        except (VerifyError, UnrunnableError) as error:
            reason = _of_the_model(str(error), kept, path)
            return Numbers(samples, all_of_it, seed, None, skipped=reason)
        except ModelError as error:
            own = replace(error.at, file=path)
            raise ModelError(error.message, own, error.hint) from None
        except BuildError as error:
            finding = Finding(Check.NUMBERS, error.kind, str(error), error.instance)
        except RegionError as error:
            finding = Finding(Check.NUMBERS, "halo", str(error))
        return Numbers(samples, all_of_it, seed, None, findings=(finding,))


def _of_the_model(text: str, folder: Path, path: str | Path) -> str:
    """Return a message about a file that was written for the comparison as one about the model."""
    return re.sub(rf"{re.escape(str(folder))}/[\w.-]+\.onnx", lambda _: str(path), text)


def fits_whole(schedule: Schedule, memory_bytes: int = MOST_BYTES) -> bool:
    """Return whether all samples of the model can be run in reasonable time and memory."""
    model = schedule.model
    return model.macs <= MOST_MACS and 2 * live_bytes(model) <= memory_bytes


def live_bytes(graph: Graph) -> int:
    """Return the most bytes of float32 activations alive at once, operator by operator."""
    last = {t: index for index, op in enumerate(graph.operators) for t in op.inputs}
    last |= dict.fromkeys(graph.outputs, len(graph.operators))
    alive = sum(_tensor_bytes(graph, t) for t in graph.inputs)
    most = alive
    for index, operator in enumerate(graph.operators):
        alive += sum(_tensor_bytes(graph, t) for t in operator.outputs)
        most = max(most, alive)
        dying = [t for t in {*operator.inputs, *operator.outputs} if last.get(t, index) == index]
        alive -= sum(_tensor_bytes(graph, t) for t in dying)
    return most


def _tensor_bytes(graph: Graph, tensor: int) -> int:
    record = graph.tensors[tensor]
    return 0 if record.constant else 4 * record.elements


def compare_models(
    schedule: Schedule, setup: ComparisonSetup, model: ScheduledModel, seed: int
) -> Numbers:
    """Run a scheduled model beside its reference and compare them.

    Args:
        schedule: The schedule that the model was made from.
        setup: Weights, inputs and the reference.
        model: The scheduled one.
        seed: Seed of weights and inputs, for the record.

    Returns:
        Errors of each output, with the first instance that goes wrong where there is one.

    Raises:
        UnrunnableError: ONNX Runtime cannot run the original.
    """
    locator = _FaultLocator(schedule, setup, model)
    try:
        outputs, fault = locator.compare()
    except BrokenModelError as error:
        finding = Finding(Check.NUMBERS, "cannot run", f"the original runs, but {error}")
        return Numbers(setup.samples, setup.whole, seed, None, findings=(finding,))
    wrong = [
        Finding(Check.NUMBERS, "difference", f"output {described(one)}")
        for one in outputs
        if not one.ok
    ]
    return Numbers(
        setup.samples, setup.whole, seed,
        max((one.max_abs_error for one in outputs), default=None),
        tuple((one.name, one.difference, one.tolerance) for one in outputs),
        (*wrong, fault) if fault else tuple(wrong),
        remarks=tuple(
            f"output {one.name} {one.remark}" for one in outputs if one.ok and one.remark
        ),
    )  # fmt: skip


class _FaultLocator:
    """Comparison of a model's outputs and its calls' results, which locates the first fault."""

    def __init__(self, schedule: Schedule, setup: ComparisonSetup, model: ScheduledModel) -> None:
        self.schedule, self.setup, self.model = schedule, setup, model
        self.runs = ModelRuns(setup, schedule.model, model.proto)
        self.trace = trace_batch(schedule.model)
        self.no_tensors = no_tensors(setup.nodes)

    def compare(self) -> tuple[tuple[Comparison, ...], Finding | None]:
        """Return the compared outputs, and a finding about the first instance that differs.

        Raises:
            UnrunnableError: ONNX Runtime cannot run the original.
            BrokenModelError: It cannot run the scheduled model.
        """
        outputs: tuple[Comparison, ...] = ()
        for chunk in self.chunks():
            compared, suspects = self.compare_chunk(chunk)
            outputs = outputs or compared
            finding = next(filter(None, map(self.diagnose, suspects)), None)
            if finding is not None:
                return outputs, finding
        return outputs, None

    def chunks(self) -> Iterator[list[Call]]:
        """Yield the calls in order, in chunks that may be compared at once."""
        chunk: list[Call] = []
        size = 0
        for call in self.model.calls:
            # Four bytes an element, of both models.
            size += 8 * sum(volume(region) for region in self._made(call).values())
            chunk.append(call)
            if size > CHUNK_BYTES:
                yield chunk
                chunk, size = [], 0
        if chunk:
            yield chunk

    def _made(self, call: Call) -> dict[int, Region]:
        regions = made_regions(self.schedule, call.instance)
        return {t: region for t, region in regions.items() if t in call.outputs}

    def _read(self, call: Call) -> dict[int, Region]:
        read = read_regions(self.schedule, call.instance)
        return {t: read[t] for t in call.inputs}

    def _pass(self, call: Call) -> Pass:
        return next(one for one in self.model.passes if one.index == call.number)

    def _original_part(self, whole: Array, tensor: int, call: Call, region: Region) -> Array:
        """Return the expected value of a call's region, from the original tensor.

        Args:
            whole: The original tensor, all samples that are run.
            tensor: The tensor's number.
            call: The call, whose pass says which samples.
            region: Region of the tensor in one pass.
        """
        turn, batch = self._pass(call), self.setup.samples
        samples = samples_of(whole, self.trace, tensor, (turn.start, turn.samples), batch)
        return samples[tuple(slice(low, high) for low, high in region)]

    # ------------------------------------------------------------------------------- comparison

    def compare_chunk(self, calls: Sequence[Call]) -> tuple[tuple[Comparison, ...], list[Call]]:
        """Return the compared outputs of the model, and the calls with suspect results."""
        outputs, originals = self.runs.outputs_and([t for call in calls for t in call.outputs])
        names = [name for call in calls for name in call.outputs.values()]
        values = self.runs.scheduled([*names, *outputs])
        comparisons = compare(outputs, values, self.setup.arithmetic)
        scales = {t: replace(Scale.of(whole), factor=SUSPECT) for t, whole in originals.items()}
        return comparisons, [c for c in calls if not self._matches(c, originals, values, scales)]

    def _matches(
        self,
        call: Call,
        originals: Mapping[int, Array],
        values: Mapping[str, Array],
        scales: Mapping[int, Scale],
    ) -> bool:
        """Return whether a call's results are the original's.

        Args:
            call: The call.
            originals: Values of the tensors that it makes, in the original model.
            values: Values of the scheduled model, by name.
            scales: Scales of the original tensors.
        """
        return all(
            self._compare_tensor(
                tensor, self._original_part(originals[tensor], tensor, call, region),
                values[call.outputs[tensor]], scales[tensor],
            ).ok
            for tensor, region in self._made(call).items()
        )  # fmt: skip

    def _compare_tensor(
        self, tensor: int, want: Array, got: Array | None, scale: Scale
    ) -> Comparison:
        name = self.setup.nodes.graph.tensors[tensor].name
        return compare_part(name, want, got, self.setup.arithmetic, scale)

    def diagnose(self, call: Call) -> Finding | None:
        """Return why a call's results differ; None if only rounding errors have added up.

        A call is right if its inputs are the outputs of others, its outputs are those of its layers
        on these inputs, and its layers reproduce the original on the original's inputs.
        """
        label = instance_name(self.schedule, call.instance)
        if not self.no_tensors.isdisjoint((*call.inputs, *call.outputs)):
            message = f"{label} makes something else; its sequences are not looked into"
            return Finding(Check.NUMBERS, "difference", message, label)
        values = self.runs.scheduled([*call.inputs.values(), *call.outputs.values()])
        given = {t: values[name] for t, name in call.inputs.items()}
        return (
            self._wrong_input(call, label, given)
            or self._wrong_call(call, label, given, values)
            or self._wrong_layer(call, label)
        )

    def _wrong_input(self, call: Call, label: str, given: Mapping[int, Array]) -> Finding | None:
        """Return a finding about an input that differs by a bit from the outputs it is made of."""
        for tensor, region in self._read(call).items():
            made = self._gather_made(call, tensor, region, given[tensor])
            if not np.array_equal(made, given[tensor], equal_nan=made.dtype.kind == "f"):
                name = self.setup.nodes.graph.tensors[tensor].name
                message = f"{label} is given something else of {name} than was made of it"
                return Finding(Check.NUMBERS, "wrong input", message, label)
        return None

    def _gather_made(self, call: Call, tensor: int, region: Region, like: Array) -> Array:
        """Return a region of a tensor, gathered from the outputs of calls of the same pass.

        Args:
            call: A call of the pass.
            tensor: The tensor's number.
            region: The region of the tensor.
            like: An array of the element type.
        """
        name = self.setup.nodes.graph.tensors[tensor].name
        if name in self.setup.feeds:
            return self._original_part(self.setup.feeds[name], tensor, call, region)
        makers = [c for c in self.model.calls if c.number == call.number and tensor in c.outputs]
        parts = [(c, meet(self._made(c)[tensor], region)) for c in makers]
        parts = [(c, common) for c, common in parts if volume(common)]
        values = self.runs.scheduled([c.outputs[tensor] for c, _ in parts])
        gathered = np.zeros([high - low for low, high in region], like.dtype)
        for maker, common in parts:
            made_region = self._made(maker)[tensor]
            gathered[_slices(common, region)] = values[maker.outputs[tensor]][
                _slices(common, made_region)
            ]
        return gathered

    def _wrong_call(
        self, call: Call, label: str, given: Mapping[int, Array], values: Mapping[str, Array]
    ) -> Finding | None:
        """Return a finding about results that the layers do not give on the call's inputs.

        Args:
            call: The call.
            label: Name of the call in messages.
            given: Inputs of the call, by tensor.
            values: Values of the scheduled model, by name.

        Returns:
            None where they do.
        """
        alone = self._run_alone(call, list(call.outputs), given)
        for tensor, name in call.outputs.items():
            comparison = self._compare_tensor(
                tensor, alone[tensor], values[name], Scale.of(alone[tensor])
            )
            if not comparison.ok:
                message = f"{label} does not make what its layers make: {described(comparison)}"
                return Finding(Check.NUMBERS, "wrong call", message, label)
        return None

    def _wrong_layer(self, call: Call, label: str) -> Finding | None:
        """Return a finding about the first layer that is wrong on the original's inputs."""
        context = self.schedule.context
        subgraph = int(self.schedule.instances.subgraph[call.instance])
        layers = self.schedule.instances.subgraphs[subgraph].layers
        held = part_needs(context, layers, self._made(call)).regions
        layer_outputs = [
            (layer, t)
            for layer in layers
            for op in context.layers[layer].operators
            for t in context.graph.operators[op].outputs
            if t in held and volume(held[t])
        ]
        regions, tensors = self._read(call), [t for _, t in layer_outputs]
        _, originals = self.runs.outputs_and([*regions, *tensors])
        inputs = {t: self._original_part(originals[t], t, call, r) for t, r in regions.items()}
        values = self._run_alone(call, tensors, inputs)
        for layer, tensor in layer_outputs:
            want = self._original_part(originals[tensor], tensor, call, held[tensor])
            comparison = self._compare_tensor(
                tensor, want, values[tensor], Scale.of(originals[tensor])
            )
            if not comparison.ok:
                name = context.layers[layer].name
                message = f"{label}: layer {name}: {described(comparison)}"
                return Finding(Check.NUMBERS, "difference", message, label, name)
        return None

    def _run_alone(
        self, call: Call, tensors: Sequence[int], inputs: Mapping[int, Array]
    ) -> dict[int, Array]:
        """Return the outputs of an instance's layers on given inputs, by tensor index."""
        nodes = self.setup.nodes
        name = call.function.proto.name
        own = next(f.node for f in self.model.proto.functions if f.name == name)
        names = {t: nodes.graph.tensors[t].name for t in (*tensors, *inputs)}
        names |= dict(zip(call.function.inputs, call.function.proto.input, strict=False))
        elements = element_types(nodes)
        given = [tensor_info(names[t], elements[t], array.shape) for t, array in inputs.items()]
        start = self._pass(call).start
        before = GraphBuilder(nodes.opsets[""], taken=set(names.values()) | set(nodes.stored))
        made = {name for node in own for name in node.output}
        before.nodes.extend(n for n in nodes.constants if made.isdisjoint(n.output))
        write_repeated(before, nodes.repeated, {}, start)
        outputs = [ValueInfoProto(name=names[t]) for t in dict.fromkeys(tensors)]
        model = model_of(
            nodes, [*before.nodes, *own], given, outputs,
            opset_imports=self.model.proto.opset_import, ir_version=self.model.proto.ir_version,
        )  # fmt: skip
        path = self.setup.folder / "instance.onnx"
        onnx.save(model, path)
        feeds = {names[t]: array for t, array in inputs.items()}
        feeds |= {o.name: self.setup.feeds[o.name] for o in nodes.given}
        values = run(open_session(path), feeds)
        return {t: values[names[t]] for t in tensors}


def _slices(region: Region, within: Region) -> tuple[slice, ...]:
    """Return the slices of a region in an array that holds a larger one."""
    return tuple(slice(a - c, b - c) for (a, b), (c, _) in zip(region, within, strict=True))
