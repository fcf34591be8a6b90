"""Propagation of shapes, small values and constants, in one topological pass over the nodes.

For each node, in this order: its inputs are looked up; an ``If`` whose condition is known is
replaced by its branch; operators that pass their input on are dropped; its output types are
inferred with the values known so far; and if it depends on no real input it is folded away, its
value computed where it is small. What is left are the steps of the graph.

Because values are known when the next node is inferred, one pass resolves what whole-model
inference needs several rounds for, and nothing larger than a few thousand elements is ever made.
"""

from __future__ import annotations

import contextlib
import math
import shlex
from collections import ChainMap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
from onnx import GraphProto, NodeProto, TensorProto, TypeProto, checker, defs, helper

from autoturbo.errors import ModelError
from autoturbo.graph.expand import expand, first_trip
from autoturbo.graph.expand.bodies import MOST_NODES
from autoturbo.graph.importer.external_data import most_elements
from autoturbo.graph.importer.fitting import (
    RECURRENCES,
    UNCHECKED,
    MisfitError,
    channels,
    misfit,
    states_apart,
)
from autoturbo.graph.importer.fold import (
    RANDOM,
    TOO_LARGE,
    Folder,
    FoldError,
    constant_array,
    small_array,
)
from autoturbo.graph.importer.negative_axes import positive_axes
from autoturbo.graph.importer.origins import deciding, inputs_behind, regrown
from autoturbo.graph.importer.shapes import (
    InferenceError,
    foreign_types,
    infer,
    merge,
    schema_of,
    upper_bounds,
)
from autoturbo.graph.source import Source, domain_of, kind_of, label, one_line
from autoturbo.graph.stored import DEQUANTISE, QUANTISE, stored_as, view_of
from autoturbo.graph.structure import (
    bodies,
    captured_names,
    check_names,
    in_order,
    loop_condition,
    outer_names,
    stored_tensor,
)
from autoturbo.graph.values import (
    Inside,
    NotFolded,
    Step,
    Value,
    element_type,
    holds_nothing,
    holds_tensors,
    nothing,
    static_shape,
    tensor_type,
)

if TYPE_CHECKING:
    from autoturbo.graph.importer.rebatch import Rebatch

CHOSEN_BRANCH = "--value "
"""How the note begins of a branch that a given value has chosen."""

Scope = ChainMap[str, Value]
"""Values by name; the bodies of control flow see those around them."""


@dataclass(slots=True)
class Program:
    """A model after propagation: the steps that depend on its inputs, with static shapes.

    Attributes:
        inputs: The real inputs.
        steps: The nodes that depend on them, in topological order.
        outputs: The outputs of the graph, without repetition.
        shapes: Static shapes by value name, folded values included.
        constants: The nodes that make constants whose elements are not known, likewise in order.
        results: The value of every output of the graph, by its place in the file.
        samples: The dimension that counts samples, of inputs of which something says it.
        batch: The number of samples that was asked for, if any was.
    """

    inputs: list[Value]
    steps: list[Step]
    outputs: list[Value]
    shapes: dict[str, tuple[int, ...]]
    constants: list[Step]
    results: list[Value]
    samples: Mapping[str, int] = field(default_factory=dict)
    batch: int | None = None


@dataclass(slots=True)
class Propagation:
    """The pass over one graph.

    Attributes:
        source: The file that the model comes from.
        declared: Types that the file states for its values, and that hold.
        missing: Data file by tensor, where the file does not exist.
        rebatch: The change of batch, if any.
        trial: Stop at the first node whose inputs have extents that do not fit together.
        steps: The nodes kept so far.
        constants: Nodes whose constant outputs are not known element by element.
        shapes: Static shapes found so far, by value name.
    """

    source: Source
    declared: Mapping[str, TypeProto]
    missing: Mapping[str, str]
    rebatch: Rebatch | None = None
    trial: bool = False
    steps: list[Step] = field(default_factory=list)
    constants: list[Step] = field(default_factory=list)
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    _folder: Folder = field(init=False)
    _context: checker.C.CheckerContext = field(init=False)
    _used: set[str] = field(default_factory=set)
    _conversions: dict[tuple[object, ...], int] = field(default_factory=dict)
    _inputs: Sequence[Value] = ()
    _asides: int = 0

    def __post_init__(self) -> None:
        self._folder = Folder(self.source.opsets)
        self._context = checker.C.CheckerContext()
        self._context.ir_version = self.source.ir_version
        self._context.opset_imports = self.source.opsets

    # ---------------------------------------------------------------------------------- graphs

    def run(self, graph: GraphProto, inputs: list[Value], weights: Sequence[Value]) -> Program:
        """Propagate through the whole graph.

        Args:
            graph: The graph.
            inputs: Its real inputs, of static shape.
            weights: Inputs that are weights, of static shape.

        Returns:
            The graph's steps in order, with the shape of every value and the constants found on the
            way.

        Raises:
            ModelError: A node that is not valid, or names that do not fit together.
        """
        self._inputs = inputs
        for value in inputs:
            self.shapes[value.name] = value.shape or ()
            if self.rebatch:
                self.rebatch.place(value)
        outputs = self._graph(graph, ChainMap({v.name: v for v in (*inputs, *weights)}))
        distinct = list(dict.fromkeys(outputs))
        return Program(inputs, self.steps, distinct, self.shapes, self.constants, outputs)

    def _graph(self, graph: GraphProto, scope: Scope) -> list[Value]:
        """Propagate through a graph or a branch that is certain to run; return its outputs."""
        check_names(graph, scope, self.source)
        self._used.update(value.name for value in graph.output)
        for node in graph.node:
            self._used.update((*node.input, *captured_names(node)))
        for tensor in graph.initializer:
            scope[tensor.name] = self._stored(tensor)
        for node in in_order(graph.node, self.source):
            self._node(node, scope)
        return [scope[value.name] for value in graph.output]

    def _stored(self, tensor: TensorProto) -> Value:
        kind = tensor_type(tensor.data_type, tensor.dims)
        try:
            data = small_array(tensor)
        except (ValueError, TypeError) as error:
            raise self.source.error(one_line(error), tensor.name) from None
        missing = self.missing.get(tensor.name)
        return Value(tensor.name, kind, constant=True, data=data, literal=True, missing=missing)

    # ------------------------------------------------------------------------------------ nodes

    def _node(self, node: NodeProto, scope: Scope) -> None:
        read = [scope[name] if name else None for name in node.input]
        node, inputs = positive_axes(node, read, self.source.opsets.get("", 1))
        if self.rebatch:
            # Before its shapes are inferred: constants of the file's batch would contradict them.
            inputs = self.rebatch.adjust(node, inputs)
        step = Step(node, label(node), inputs, [], [])
        self._check_fit(step, scope)
        if node.op_type == "Loop" and not domain_of(node):
            step.trips = self._trips(step, scope)
        branch = _certain_branch(node, inputs)
        if branch is not None:
            self._note_choice(step)
            results = self._graph(branch, scope.new_child())
            if len(results) < len(node.output):
                message = f"its branch has {len(results)} outputs, not {len(node.output)}"
                raise self.source.error(message, step.name)
            scope.update(zip(node.output, results, strict=False))
        # After the choice of a branch: what does not run need not be written out.
        elif self._written_out(step, scope):
            return
        elif _passes_on(node, inputs, self._used):
            scope[node.output[0]] = next(value for value in inputs if value is not None)
        # Last, since its key takes the bytes of constants.
        elif (made := self._converted(node, inputs)) is not None:
            scope[node.output[0]] = made
        else:
            self._kept_whole(step, scope)

    def _kept_whole(self, step: Step, scope: Scope) -> None:
        """Add a node as it stands, with what its bodies do where it has any."""
        node = step.node
        step.captured = [scope[name] for name in outer_names(node)]
        if node.op_type in ("Loop", "Scan") and not domain_of(node):
            step.inside = (self._trip(step, scope),)
        elif node.op_type == "If" and not domain_of(node):
            step.inside = self._branches(step, scope)
        step.outputs = self._outputs(step)
        self._keep(step)
        if self.rebatch:
            self.rebatch.follow(step)
        scope.update((value.name, value) for value in step.outputs if value is not None)
        step.outputs = _made(step.outputs)

    def _note_choice(self, step: Step) -> None:
        """Tell which branch of an If values that the user gave have chosen."""
        condition = step.inputs[0]
        if condition is not None and condition.data is not None and condition.given:
            which = "then" if bool(condition.data.ravel()[0]) else "else"
            numbers = dict(self.source.given)
            flags = (f"{name}={','.join(map(str, numbers[name]))}" for name in condition.given)
            chosen = f"{CHOSEN_BRANCH}{' '.join(flags)}"
            self.source.note(f"{chosen} takes the {which} branch of {step.name}")

    def _check_fit(self, step: Step, scope: Scope) -> None:
        """Refuse what inference lets pass: channels, samples of states, an attention's inputs.

        Raises:
            MisfitError: This is a trial, and extents that any node reads differ.
        """
        if not self.trial and step.node.op_type not in UNCHECKED:
            return
        pair = misfit(step, self.source.opsets.get("", 1))
        if pair is not None and self.trial:
            raise MisfitError(pair)
        if pair is not None:
            raise self._unfit(step, pair)
        for body in bodies(step.node) if step.node.op_type == "If" else ():
            with contextlib.suppress(ModelError):
                self._graph(body, scope.new_child())

    def _unfit(self, step: Step, pair: tuple[int, int]) -> ModelError:
        """Return the error of a node that reads two extents that would have to be equal."""
        if pair in channels(step):
            text = f"its input has {pair[0]} channels, its weights take {pair[1]}"
            return self.source.error(text, step.name, "give shapes that the model was made for")
        if step.node.op_type in RECURRENCES:
            return self._other_samples(step)
        return self._misfit(step, f"extents {pair[0]} and {pair[1]} would have to be equal")

    def _other_samples(self, step: Step) -> ModelError:
        """Return the error of a recurrence whose states are for more or fewer samples."""
        place, had, wanted = next(states_apart(step))
        ends = inputs_behind([step.inputs[place]], self.steps, self._inputs) or []
        shape = regrown(ends, had, wanted)
        state = next((f"state {value.name!r}" for value in ends), "initial state")
        text = f"its input has {wanted} samples, its {state} has {had}"
        hint = f"give --shape {shlex.quote(shape)}" if shape else "give both the same"
        return self.source.error(text, step.name, hint)

    def _written_out(self, step: Step, scope: Scope) -> bool:
        """Propagate through the graph that replaces a node; return False if there is none."""
        schema = schema_of(step.node, self.source)
        body = expand(step, schema, self.source)
        if body is None:
            return False
        self._check(step.node, schema)
        kept = len(self.steps), len(self.constants)
        try:
            results = self._graph(body, scope.new_child())
            if any(v and v.unknown for one in self.steps[kept[0] :] for v in one.outputs):
                raise self.source.error("extents within are not known", step.name)
        except ModelError:
            # The node is kept whole instead, as if its body had never been tried.
            del self.steps[kept[0] :], self.constants[kept[1] :]
            return False
        scope.update(zip(filter(None, step.node.output), results, strict=True))
        return True

    def _aside(self, graph: GraphProto, scope: Scope) -> Inside:
        """Propagate through a graph that is not certain to run, without keeping its nodes."""
        kept, told = (len(self.steps), len(self.constants)), len(self.source.notes)
        self._asides += 1
        try:
            outputs = tuple(self._graph(graph, scope))
            steps = tuple(self.steps[kept[0] :])
            if any(value and value.unknown for step in steps for value in step.outputs):
                return Inside(0, "extents within are not known")
            return Inside(1, "", steps, tuple(self.constants[kept[1] :]), outputs)
        except ModelError as error:
            return Inside(0, error.message)
        finally:
            self._asides -= 1
            del self.steps[kept[0] :], self.constants[kept[1] :]
            self.source.take_back(told)

    def _trips(self, step: Step, scope: Scope) -> int | None:
        """Return how often a Loop goes through its body; None if that is not known or too often.

        What its condition hangs on is computed trip by trip.
        """
        most, begins = [*step.inputs, None, None][:2]
        if any(value and value.data is None for value in (most, begins)):
            return None
        if begins and begins.data is not None and not begins.data.all():
            return 0
        try:
            limit = math.inf if most is None else int(np.asarray(most.data).item())
            return self._counted(step, limit, scope)
        except (ValueError, LookupError):  # not as its definition says
            return None

    def _counted(self, step: Step, limit: float, scope: Scope) -> int | None:
        body = next(bodies(step.node), GraphProto())
        condition = loop_condition(body)
        number, on, *formal = (value.name for value in body.input)
        values: Sequence[Value | None] = [step.inputs[2 + place] for place in condition.carried]
        trips = 0
        # Each trip writes a node at least: more are never written out.
        while trips < min(limit, MOST_NODES + 1):
            given = {number: _known(np.array(trips)), on: _known(np.array(True))}  # noqa: FBT003
            given |= {formal[k]: v for k, v in zip(condition.carried, values, strict=True) if v}
            goes_on, *values = self._aside(condition.graph, scope.new_child(given)).outputs
            trips += 1
            if goes_on.data is None:
                return None
            if not goes_on.data.all():
                return trips
            # It goes on in every trip, so only the limit ends it.
            if condition.constant:
                return None if math.isinf(limit) else int(limit)
        return trips if trips == limit else None

    def _trip(self, step: Step, scope: Scope) -> Inside:
        """Return the body of a loop that stays whole: its first trip, as often as it runs."""
        first = first_trip(step, self.source)
        if isinstance(first, str):
            return Inside(0, first)
        (body, trips), inner = first, scope.new_child()
        found = self._aside(body, inner)
        if found.times and any(inner[old].shape != inner[new].shape for old, new in trips.carried):
            return Inside(0, "extents change from trip to trip")
        why = f"{trips.count} trips of {trips.nodes} nodes are not written out"
        why = f"{why}: counted as the first trip {trips.count} times"
        return replace(found, times=trips.count, why=why) if found.times else found

    def _branches(self, step: Step, scope: Scope) -> tuple[Inside, ...]:
        """Return the branches of an If whose condition depends on data."""
        found = [
            (item.name, self._aside(item.g, scope.new_child()))
            for item in step.node.attribute
            if item.HasField("g")
        ]
        return tuple(
            replace(one, why=f"{name}: {one.why}" if one.why else name) for name, one in found
        )

    def _outputs(self, step: Step) -> list[Value | None]:
        """Return the outputs of a node; they are constant if it depends on no real input."""
        schema = schema_of(step.node, self.source)
        self._check(step.node, schema)
        types = self._types(step, schema)
        # Shapes are static by now: what follows from them is known, whatever the elements are.
        constant = _only_shape_matters(step) or all(value.constant for value in step.read)
        data, unfolded = self._data(step, types) if constant else (None, None)
        missing = next((v.missing for v in step.read if v.missing and v.constant), None)
        given = tuple(dict.fromkeys(name for value in step.read for name in value.given))
        outputs = [
            Value(
                name,
                types[name] if data is None else _type_of(data[k], types[name]),
                constant=constant,
                data=None if data is None else data[k],
                literal=constant and all(value.literal for value in step.inputs if value),
                missing=missing if constant else None,
                unfolded=unfolded,
                stored=stored_as(step) if constant else None,
                view=view_of(step, k) if constant else None,
                given=given if constant else (),
            )
            if name
            else None
            for k, name in enumerate(step.node.output)
        ]
        outputs = [_without_elements(value) for value in outputs]
        self._record(step, schema, outputs)
        return outputs

    def _converted(self, node: NodeProto, inputs: Sequence[Value | None]) -> Value | None:
        """Return the output of an earlier node that converts the same value in the same way.

        Quantisers give every reader a pair of its own, which would part the readers.
        """
        place = self._conversions.get(_conversion(node, inputs), len(self.steps))
        step = self.steps[place] if place < len(self.steps) else None
        if step is None or _conversion(step.node, step.inputs) != _conversion(node, inputs):
            return None  # the steps of a body that is not written out are gone
        return step.outputs[0]

    def _keep(self, step: Step) -> None:
        """Keep a node that depends on a real input or whose constants are not all known."""
        outputs = [value for value in step.outputs if value is not None]
        if not all(value.constant for value in outputs):
            if kind_of(step.node) in QUANTISE | DEQUANTISE:
                self._conversions[_conversion(step.node, step.inputs)] = len(self.steps)
            self.steps.append(step)
        elif (
            self._asides
            or any(value.data is None for value in outputs)
            or _is_kept(step.node, outputs)
        ):
            self.constants.append(step)

    def _check(self, node: NodeProto, schema: defs.OpSchema | None) -> None:
        """Refuse a node that its operator's schema does not allow."""
        has_inner = any(a.HasField("g") or a.graphs or a.HasField("t") for a in node.attribute)
        if schema is None or has_inner:
            return
        try:
            checker.check_node(node, self._context)
        except checker.ValidationError as error:
            raise self.source.error(f"invalid node: {one_line(error)}", label(node)) from None

    # ------------------------------------------------------------------------------------ types

    def _types(self, step: Step, schema: defs.OpSchema | None) -> dict[str, TypeProto]:
        """Return the types of a node's outputs: inferred, else as the file states, else bounded."""
        named = dict(zip(step.node.input, step.inputs, strict=True))
        named.update(zip(outer_names(step.node), step.captured, strict=True))
        read = {name: value for name, value in named.items() if value is not None}
        inferred = self._inferred(step, schema, read)
        names = [name for name in step.node.output if name]
        agreed = _agreed(step)
        types = {
            # What is inferred comes first: what the file states may be of another batch.
            name: merge(merge(inferred.get(name), self.declared.get(name)), agreed.get(name))
            for name in names
        }
        if any(static_shape(kind) is None for kind in types.values()):
            self._bound(step, types)
        return types

    def _inferred(
        self, step: Step, schema: defs.OpSchema | None, read: Mapping[str, Value]
    ) -> dict[str, TypeProto]:
        ruled = foreign_types(step)
        if schema is None or (ruled and not schema.has_type_and_shape_inference_function):
            return ruled
        stored = stored_tensor(step.node)
        if stored is not None:  # exporters write whole numbers before opset 9 allows them
            return {step.node.output[0]: tensor_type(stored.data_type, stored.dims)}
        try:
            inferred = infer(step.node, schema, read, self.source)
            return ruled | {name: merge(k, ruled.get(name)) for name, k in inferred.items()}
        except InferenceError as error:
            # It contradicts nothing if what it reads is not known.
            if any(value.unknown for value in read.values()):
                return {}
            raise self._misfit(step, one_line(error)) from None

    def _misfit(self, step: Step, why: str) -> ModelError:
        shapes = ", ".join(str(list(v.shape or ())) for v in step.inputs if v is not None)
        hint = "export with a dynamic batch" if self.rebatch else None
        text = f"{kind_of(step.node)} does not fit its inputs {shapes}: {why}"
        return self.source.error(text, step.name, hint)

    def _bound(self, step: Step, types: dict[str, TypeProto]) -> None:
        """Set data-dependent extents to their upper bounds."""
        for name, kind in upper_bounds(step, types).items():
            types[name] = kind
            shape = list(static_shape(kind) or ())
            self.source.note(
                f"the extent of {name!r} depends on data: taken at its largest, {shape}"
            )

    def _record(
        self, step: Step, schema: defs.OpSchema | None, outputs: Sequence[Value | None]
    ) -> None:
        """Record the shapes of new values, or why they are not known."""
        for value in outputs:
            if value is None:
                continue
            shape = value.shape if element_type(value.type) else None
            if shape is not None and min(shape, default=0) >= 0:
                self.shapes[value.name] = shape
            else:
                value.unknown = self._why(step, schema, value)

    def _why(self, step: Step, schema: defs.OpSchema | None, value: Value) -> ModelError:
        # The first that was not known is what a user has to mend.
        for earlier in step.read:
            if earlier.unknown is not None:
                return earlier.unknown
        if value.shape and min(value.shape) < 0:
            text = f"its output {value.name!r} would have shape {list(value.shape)}"
            return self.source.error(text, step.name, "give the inputs larger extents")
        missing = next((v.missing for v in step.read if v.missing), None)
        if missing:
            text = f"the shape of its output {value.name!r} depends on values in {missing}"
            return self.source.error(f"{text}, which is missing", step.name, "add the file")
        hint = "state its shape in the file (value_info)"
        if schema is None:
            text = f"unknown operator {kind_of(step.node)}, and the file does not state the shape"
            return self.source.error(f"{text} of its output {value.name!r}", step.name, hint)
        unfolded = next((v.unfolded for v in step.read if v.unfolded), None)
        if unfolded is not None:
            text = f"{unfolded.why}, and the shape of {value.name!r} depends on it"
            return self.source.error(text, unfolded.node, hint)
        text = f"the shape of its output {value.name!r} cannot be inferred"
        given = deciding(step, self.steps, self._inputs)
        flags = " ".join(f"--value {shlex.quote(f'{name}={number}')}" for name, number in given)
        if flags and step.node.op_type == "If":
            hint = f"choose its branch with {flags} (or 0), or {hint}"
        elif flags:
            text = f"the shape of its output {value.name!r} depends on values of inputs"
            hint = f"give them, for example {flags}"
        return self.source.error(text, step.name, hint)

    # ------------------------------------------------------------------------------------- data

    def _data(
        self, step: Step, types: Mapping[str, TypeProto]
    ) -> tuple[list[np.ndarray] | None, NotFolded | None]:
        """Return the elements of constant outputs, or why they were not computed."""
        earlier = next((value.unfolded for value in step.inputs if value and value.unfolded), None)
        if earlier is not None and not _only_shape_matters(step):
            return None, earlier
        try:
            return self._computed(step, types), None
        except FoldError as error:
            version = self.source.opsets.get(domain_of(step.node), 1)
            text = f"{kind_of(step.node)} of opset {version} was not computed ({error})"
            return None, NotFolded(step.name, text)

    def _computed(self, step: Step, types: Mapping[str, TypeProto]) -> list[np.ndarray]:
        """Compute the elements of constant outputs; raise FoldError if they cannot be computed."""
        node = step.node
        if not domain_of(node) and node.op_type in _FROM_SHAPE:
            return _shape_data(step)
        # Before the operator is looked at: what makes no element needs no implementation.
        if all(map(holds_nothing, types.values())):
            return [nothing(types[name]) if name else np.zeros(0) for name in node.output]
        if node.op_type == "Constant" and not domain_of(node):
            array = constant_array(node)
            if array is None:
                raise FoldError(TOO_LARGE)
            return [array]
        _check_computable(step, types)
        return self._folder.evaluate(node, step.inputs)


def _check_computable(step: Step, types: Mapping[str, TypeProto]) -> None:
    """Raise FoldError if the elements of constant outputs are not to be computed."""
    if step.node.op_type in RANDOM:
        raise FoldError("it gives other values each time")
    if step.captured or any(True for _ in bodies(step.node)):
        raise FoldError("it runs a body")
    if any(holds_tensors(kind) for kind in types.values()):
        raise FoldError("it makes no tensor")
    for value in step.inputs:
        if value is not None and value.data is None:
            why = f"has {TOO_LARGE}" if _is_large(value.type) else "has no values in the file"
            raise FoldError(f"its input {value.name!r} {why}")
    if any(map(_is_large, types.values())):
        raise FoldError(TOO_LARGE)


_KEPT = frozenset(("DequantizeLinear",))
"""Operators whose small constants are written as they are made: runtimes look for the node."""


def _is_kept(node: NodeProto, outputs: Iterable[Value]) -> bool:
    return kind_of(node) in _KEPT and not any(value.empty for value in outputs)


def _without_elements(value: Value | None) -> Value | None:
    """Return a value as it is, or as a known constant if it holds nothing."""
    if value is None or not value.empty or not element_type(value.type):
        return value
    return Value(value.name, value.type, constant=True, data=nothing(value.type))


def _made(outputs: Sequence[Value | None]) -> list[Value | None]:
    """Return a node's outputs with empty ones unread: for other nodes these are constants."""
    if all(value is None or value.constant for value in outputs):
        return list(outputs)
    return [Value(v.name, v.type) if v and v.constant else v for v in outputs]


_FROM_SHAPE = frozenset(("Shape", "Size"))


def _is_large(kind: TypeProto) -> bool:
    """Return whether a value of this type is too large to be computed."""
    shape = static_shape(kind)
    return shape is not None and math.prod(shape) > most_elements(element_type(kind))


def _only_shape_matters(step: Step) -> bool:
    """Return whether the outputs depend on static input shapes alone."""
    plain = not domain_of(step.node) and step.node.op_type in _FROM_SHAPE
    value = step.inputs[0] if plain and step.inputs else None
    return value is not None and value.shape is not None


def _shape_data(step: Step) -> list[np.ndarray]:
    shape = (step.inputs[0].shape if step.inputs[0] else None) or ()
    if step.node.op_type == "Size":
        return [np.asarray(math.prod(shape), dtype=np.int64)]
    bounds = {attribute.name: int(attribute.i) for attribute in step.node.attribute}
    part = shape[bounds.get("start", 0) : bounds.get("end", len(shape))]
    return [np.asarray(part, dtype=np.int64)]


def _type_of(data: np.ndarray, kind: TypeProto) -> TypeProto:
    """Return the type of computed elements; the inferred element type has precedence."""
    element = element_type(kind) or helper.np_dtype_to_tensor_dtype(data.dtype)
    return tensor_type(element, data.shape)


def _agreed(step: Step) -> dict[str, TypeProto]:
    """Return the types of outputs of an If on which its branches agree."""
    branches = [one.outputs for one in step.inside] if step.node.op_type == "If" else []
    outputs = zip(step.node.output, *branches, strict=False) if len(branches) > 1 else ()
    return {
        name: first.type
        for name, first, *others in outputs
        if first.shape is not None and all(one.type == first.type for one in others)
    }


def _known(array: np.ndarray) -> Value:
    """Return a constant that no name of the file has."""
    kind = tensor_type(helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
    return Value("", kind, constant=True, data=array, literal=True)


def _conversion(node: NodeProto, inputs: Sequence[Value | None]) -> tuple[object, ...]:
    """Return a key of a conversion: kind, attributes, operands; of other nodes the kind alone."""
    kind = kind_of(node)
    if kind not in QUANTISE | DEQUANTISE:
        return (kind,)
    attributes = sorted(item.SerializeToString(deterministic=True) for item in node.attribute)
    return (kind, *attributes, *map(_known_by, inputs))


def _known_by(value: Value | None) -> tuple[object, ...]:
    """Return the elements of a small constant; what tells any other value from the rest."""
    if value is None or value.data is None:
        return (id(value),)
    return (value.data.dtype.str, value.data.shape, value.data.tobytes())


def _certain_branch(node: NodeProto, inputs: Sequence[Value | None]) -> GraphProto | None:
    """Return the branch that an If of known condition takes."""
    if node.op_type != "If" or domain_of(node) or not inputs or inputs[0] is None:
        return None
    condition = inputs[0].data
    if condition is None or condition.size != 1:
        return None
    wanted = "then_branch" if bool(condition.ravel()[0]) else "else_branch"
    return next((a.g for a in node.attribute if a.name == wanted), None)


def _passes_on(node: NodeProto, inputs: Sequence[Value | None], used: set[str]) -> bool:
    """Return whether a node passes its first input on: Identity, and Dropout outside training."""
    if domain_of(node) or not inputs or inputs[0] is None or not node.output:
        return False
    if node.op_type == "Identity":
        return True
    if node.op_type != "Dropout" or any(name in used for name in node.output[1:] if name):
        return False
    training = inputs[2] if len(inputs) > 2 else None  # noqa: PLR2004 - ONNX's position
    if training is None:
        return True
    return training.data is not None and not bool(training.data.any())
