"""Turns the steps that are left into the operators and tensors of a graph."""

from __future__ import annotations

import math
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from onnx import AttributeProto, NodeProto, helper, numpy_helper

from autoturbo.graph.domain import AccessMap, Axis, AxisKind
from autoturbo.graph.importer.external_data import is_stored
from autoturbo.graph.importer.samples import with_samples
from autoturbo.graph.importer.shapes import schema_of
from autoturbo.graph.integers import with_integers, with_unpacking
from autoturbo.graph.operator_table import NodeView, OperatorSpec, ValueView, describe
from autoturbo.graph.operators import Engine, Graph, Operator, Origin, Tensor, Work
from autoturbo.graph.ordering import back_from
from autoturbo.graph.source import MOST_ELEMENTS, Source, domain_of, integer_of, kind_of
from autoturbo.graph.values import Inside, Step, Value, View, element_type, tensor_type

if TYPE_CHECKING:
    from autoturbo.errors import ModelError
    from autoturbo.graph.importer.propagate import Program


@dataclass(frozen=True, slots=True, eq=False)
class Assembled:
    """A graph and the steps of its operators.

    Attributes:
        graph: The graph.
        steps: Per operator, its node.
        positions: Per operator and input of it, the place among the inputs of its node and what the
            bodies of control flow read from outside.
        names: The tensors' numbers and names; further values may be given unique names.
    """

    graph: Graph
    steps: tuple[Step, ...]
    positions: tuple[tuple[int, ...], ...]
    names: Tensors


def build_graph(program: Program, source: Source) -> Assembled:
    """Return the graph of a propagated model.

    Args:
        program: The inputs, steps and outputs of the model.
        source: The file, for messages.

    Raises:
        ModelError: Nothing depends on an input; a needed shape is not known; too large.
    """  # noqa: DOC501  _idle() makes the error
    steps = _joined(_alive(program.steps, program.outputs), program.outputs)
    if not steps:
        raise _idle(program, source)
    read = set(values_read(steps, program.outputs))
    _drop_unused_outputs(steps, read, source)
    _check_values(program, steps, source)
    tensors = Tensors(program.inputs)
    # Names by the file's order, as a user sees it; places by the canonical one, for hashes.
    names, order = _unique_names(steps), _canonical_order(steps, program.outputs)
    operators, positions = zip(
        *(_operator(steps[at], names[at], read, tensors, source) for at in order), strict=True
    )
    inputs, outputs = (
        tuple(tensors.index(value) for value in values)
        for values in (program.inputs, program.outputs)
    )
    for operator in operators:
        if operator.kind == "If" and operator.opaque:
            source.note(f"{operator.name} (If): {operator.opaque}")
    graph = with_integers(
        Graph(
            name=source.path.stem,
            tensors=tensors.all(),
            operators=operators,
            inputs=inputs,
            outputs=outputs,
            file_places=tuple(order),
            source=str(source.path),
            notes=tuple(source.notes),
            given=tuple(dict.fromkeys(source.given)),
        )
    )
    # Samples are followed through the whole graph, so this comes last.
    graph = with_samples(with_unpacking(graph), program.samples, program.batch, source)
    return Assembled(graph, tuple(steps[at] for at in order), positions, tensors)


def _idle(program: Program, source: Source) -> ModelError:
    """Return the error of a model that computes nothing; name what is empty in it."""
    unknown = next((value.unknown for value in program.outputs if value.unknown), None)
    if unknown is not None:
        return unknown
    empty = [value for value in program.outputs if value.empty]
    if not empty or len(empty) < len(program.outputs):
        return source.error("nothing in the model depends on an input: nothing to schedule")
    first, without = empty[0], [value for value in program.inputs if value.empty]
    which = "its only output" if len(empty) == 1 else f"it and all {len(empty) - 1} other outputs"
    hint = None
    if without:
        stated = ",".join(str(extent or 1) for extent in without[0].shape or ())
        hint = f"give its input elements: --shape {shlex.quote(f'{without[0].name}={stated}')}"
    verb = "is" if len(empty) == 1 else "are"
    text = f"{which} {verb} empty, of shape {list(first.shape or ())}: nothing to schedule"
    return source.error(text, first.name, hint)


# -------------------------------------------------------------------------------- what is needed


def _alive(steps: Sequence[Step], outputs: Iterable[Value]) -> list[Step]:
    """Return the steps that an output depends on."""
    needed = set(outputs)
    alive = []
    for step in reversed(steps):
        if any(value in needed for value in step.outputs):
            # Before its inputs are noted as needed: a shape alone keeps nobody alive.
            _forget_elements(step)
            needed.update(step.read)
            alive.append(step)
    return alive[::-1]


def _joined(steps: Sequence[Step], outputs: Iterable[Value]) -> list[Step]:
    """Return the steps with a Concat of Concats along one axis as a single one.

    A loop that grows a result copies it in every trip, each time at other extents. Where only the
    next trip reads it, one Concat behind the last trip makes the same.
    """
    axes = {step: _concat_axis(step) for step in steps if kind_of(step.node) == "Concat"}
    readers = Counter(values_read(steps, outputs))
    makers = {(v, axes[s]): s for s in axes for v in s.outputs if v and readers[v] == 1}
    kept: list[Step] = []
    gone: set[Step] = set()
    for step in reversed(steps):
        if step not in gone:
            joined = _with_pieces(step, axes[step], makers, gone) if step in axes else step
            kept.append(joined)
    return kept[::-1]


def _with_pieces(
    step: Step, axis: int | None, makers: Mapping[tuple[Value, int | None], Step], gone: set[Step]
) -> Step:
    """Return a Concat that reads what the Concats before it read.

    Args:
        step: The Concat.
        axis: The axis along which the Concat itself joins.
        makers: Concats whose result is read once, by result and axis.
        gone: Grows by those that are not needed any more.
    """
    pieces: list[Value | None] = []
    # A stack, reversed so that pieces come out in their order.
    waiting = step.inputs[::-1]
    while waiting:
        value = waiting.pop()
        maker = makers.get((value, axis)) if value else None
        if maker is None:
            pieces.append(value)
        else:
            gone.add(maker)
            waiting += maker.inputs[::-1]
    if pieces == step.inputs:
        return step
    node = NodeProto()
    node.CopyFrom(step.node)
    node.input[:] = [value.name if value else "" for value in pieces]
    return replace(step, node=node, inputs=pieces)


def _concat_axis(step: Step) -> int | None:
    """Return the axis of a Concat, counted from the front; None where its rank is not known."""
    value = step.outputs[0]
    rank = len(value.shape or ()) if value else 0
    return integer_of(step.node, "axis", 1) % rank if rank else None


_SHAPE_OR_TYPE = {"EyeLike": 0, "CastLike": 1}
"""Inputs of which a node wants to know the extents or the type, not the elements."""


def _forget_elements(step: Step) -> None:
    """Replace inputs whose extents or type alone a node reads by zeros.

    Their producers may have no other reader: nothing would be computed from them.
    """
    place = _SHAPE_OR_TYPE.get(step.node.op_type)
    value = None if place is None or domain_of(step.node) else step.inputs[place]
    if place is None or value is None or value.constant or value.unknown is not None:
        return
    shape = () if step.node.op_type == "CastLike" else value.shape or ()
    element = element_type(value.type)
    zeros = np.zeros(shape, helper.tensor_dtype_to_np_dtype(element))
    name = f"{value.name} as zeros for {step.node.output[0]}"
    inputs = list(step.inputs)
    inputs[place] = Value(name, tensor_type(element, shape), True, zeros)  # noqa: FBT003
    step.inputs = inputs


def _canonical_order(steps: Sequence[Step], outputs: Iterable[Value]) -> list[int]:
    """Return the steps from what the outputs need first to the outputs, whatever the file's order.

    Inputs have places in their nodes and outputs in the model, so it depends on nothing else: two
    files of the same nodes, named and ordered otherwise, give the same graph.
    """
    maker = {value: at for at, step in enumerate(steps) for value in step.outputs if value}
    needs = [[maker[value] for value in step.read if value in maker] for step in steps]
    return back_from([maker[value] for value in outputs if value in maker], needs)


def values_read(steps: Iterable[Step], outputs: Iterable[Value]) -> Iterator[Value]:
    """Return the values that steps read or that leave the model."""
    for step in steps:
        yield from step.read
    yield from outputs


def _drop_unused_outputs(steps: Iterable[Step], read: set[Value], source: Source) -> None:
    """Drop optional outputs that nobody reads (a dropout's mask, a recurrent net's state)."""
    for step in steps:
        optional = _optional_outputs(step, source)
        step.outputs = [
            None if position in optional and value not in read else value
            for position, value in enumerate(step.outputs)
        ]


def _optional_outputs(step: Step, source: Source) -> set[int]:
    """Return the outputs that may be left out; of unknown operators, those of unknown shape."""
    schema = schema_of(step.node, source)
    if schema is None:
        return {k for k, value in enumerate(step.outputs) if value and value.unknown}
    kinds = schema.FormalParameterOption
    return {k for k, formal in enumerate(schema.outputs) if formal.option == kinds.Optional}


def _values_of(program: Program, steps: Iterable[Step]) -> Iterator[Value]:
    """Return every value of the graph, in order of first appearance."""
    yield from program.inputs
    for step in steps:
        yield from step.read
        yield from filter(None, step.outputs)
    yield from program.outputs


def _check_values(program: Program, steps: Iterable[Step], source: Source) -> None:
    values = list(dict.fromkeys(_values_of(program, steps)))
    for value in values:
        if value.unknown is not None:
            raise value.unknown
    check_size(values, source)


def check_size(values: Sequence[Value], source: Source) -> None:
    """Refuse tensors that no machine can hold: they come from a mistake in a shape.

    Raises:
        ModelError: Naming the largest tensor.
    """
    sizes = [math.prod(value.shape or ()) for value in values]
    # The sum bounds each of them, too.
    if sum(sizes) < MOST_ELEMENTS:
        return
    largest = max(range(len(values)), key=sizes.__getitem__)
    raise source.too_large(values[largest].shape or (), values[largest].name)


# --------------------------------------------------------------------------- tensors and operators


class Tensors:
    """Numbering of values in order of first use, with unique names, which inputs choose first."""

    def __init__(self, inputs: Iterable[Value]) -> None:
        self._index: dict[Value, int] = {}
        self._tensors: list[Tensor] = []
        self._names: Counter[str] = Counter()
        self._others: dict[Value, str] = {}
        self._stored: dict[Value, str] = {}
        self._stored_names: Counter[str] = Counter()
        for value in inputs:
            self.name(value)

    def index(self, value: Value) -> int:
        """Return the index of a value's tensor, which is added if it is new."""
        if value not in self._index:
            self._index[value] = len(self._tensors)
            name = self._others.pop(value, None) or _fresh(value.name, self._names)
            shape = value.shape or ()
            int_bytes = 1 if value.stored and value.stored.integer else None
            origin = self._origin(value) if value.constant else None
            tensor = Tensor(
                name, shape, value.dtype, value.constant, int_bytes, value.stored, origin
            )
            self._tensors.append(tensor)
        return self._index[value]

    def _origin(self, value: Value) -> Origin:
        view = value.view or View(value)
        elements = math.prod(view.stored.shape or ())
        beside = tuple(map(self._stored_name, view.beside))
        return Origin(self._stored_name(view.stored), elements, view.part, beside)

    def _stored_name(self, value: Value) -> str:
        """Return a name that tells a stored constant from all others, those of branches too."""
        if value not in self._stored:
            self._stored[value] = _fresh(value.name, self._stored_names)
        return self._stored[value]

    def values(self) -> list[Value]:
        """Return the values whose tensors were added so far."""
        return list(self._index)

    def known(self, value: Value) -> int:
        """Return the index of a value's tensor, or -1 if the graph does not hold it."""
        return self._index.get(value, -1)

    def name(self, value: Value) -> str:
        """Return the unique name of a value, which is chosen now if the graph does not hold it."""
        if value in self._index:
            return self._tensors[self._index[value]].name
        if value not in self._others:
            self._others[value] = _fresh(value.name, self._names)
        return self._others[value]

    def all(self) -> tuple[Tensor, ...]:
        """Return the tensors added so far."""
        return tuple(self._tensors)


def _fresh(name: str, taken: Counter[str]) -> str:
    """Return ``name`` or the first free one of ``name_2``, ``name_3``, ...; mark it as taken."""
    candidate = name
    while taken[candidate]:
        taken[name] += 1
        candidate = f"{name}_{taken[name]}"
    taken[candidate] += 1
    return candidate


def _unique_names(steps: Sequence[Step]) -> list[str]:
    """Return unique node names; ``Kind_index`` where there is none."""
    taken: Counter[str] = Counter()
    return [
        _fresh(step.node.name or f"{step.node.op_type}_{index}", taken)
        for index, step in enumerate(steps)
    ]


def _operator(
    step: Step, name: str, needed: set[Value], tensors: Tensors, source: Source
) -> tuple[Operator, tuple[int, ...]]:
    """Return an operator and the positions of its inputs in its node.

    An output that its node must have but that nobody reads is in the node only: nothing is
    computed or stored for it.
    """
    inputs = [*step.inputs, *step.captured]
    spec = describe(
        NodeView(
            name=name,
            op_type=step.node.op_type,
            domain=domain_of(step.node),
            opset=source.opsets.get(domain_of(step.node), 1),
            attributes=plain_attributes(step.node),
            inputs=tuple(_view(value) for value in inputs),
            outputs=tuple(_view(value) for value in step.outputs),
        )
    )
    if step.inside:
        spec = _with_work(spec, inputs, [_work_inside(one, source) for one in step.inside])
    read, input_maps, positions = _addressed(inputs, spec.inputs, tensors)
    results = [value if value in needed else None for value in step.outputs]
    output_tensors, output_maps, _ = _addressed(results, spec.outputs, tensors)
    operator = Operator(
        name=name,
        kind=kind_of(step.node),
        inputs=read,
        outputs=output_tensors,
        axes=spec.axes,
        input_maps=input_maps,
        output_maps=output_maps,
        work=spec.work,
        engine=spec.engine,
        pattern=spec.pattern,
        parameterised=spec.parameterised,
        attributes=spec.attributes,
        opaque=spec.opaque,
        counted=spec.counted,
        unpacking=spec.unpacking,
    )
    return operator, positions


@dataclass(frozen=True, slots=True, eq=False)
class _WorkInside:
    """The work of a body of control flow.

    Attributes:
        inside: The body.
        macs: Multiply-accumulates, of all times.
        vector: Plain vector operations, of all times.
        special: Transcendental operations, of all times.
        axes: Axes of one product that has all multiply-accumulates.
        counted: Whether nothing is missing.
        read: The constants that its operators read, and those that these are made of.
    """

    inside: Inside
    macs: int = 0
    vector: float = 0.0
    special: float = 0.0
    axes: tuple[Axis, ...] = ()
    counted: bool = False
    read: frozenset[Value] = frozenset()


def _work_inside(inside: Inside, source: Source) -> _WorkInside:
    """Return the work of a body as often as it runs.

    Its products are counted in units of the largest one's shape, or of the nearest that divides
    their work, so that no multiply-accumulate is lost.
    """
    if not inside.times:
        return _WorkInside(inside)
    alive = _alive(inside.steps, inside.outputs)
    steps = [alive[at] for at in _canonical_order(alive, inside.outputs)]
    values = {value for step in steps for value in step.outputs if value}
    tensors = Tensors(())
    inner = [
        _operator(step, f"{step.name}_{number}", values, tensors, source)[0]
        for number, step in enumerate(steps)
    ]
    macs = sum(operator.macs for operator in inner)
    axes = _product_axes(inside.times, macs, max(inner, key=lambda one: one.macs)) if macs else ()
    return _WorkInside(
        inside,
        inside.times * macs,
        float(inside.times * sum(operator.vector_ops for operator in inner)),
        float(inside.times * sum(operator.special_ops for operator in inner)),
        axes,
        all(operator.counted for operator in inner),
        frozenset(_made_of([v for v in tensors.values() if v.constant], inside.constants)),
    )


def _made_of(values: Sequence[Value], makers: Iterable[Step]) -> set[Value]:
    """Return constants with those that they are made of."""
    makers_of = {value: step for step in makers for value in step.outputs}
    found: set[Value] = set()
    waiting = list(values)
    while waiting:
        value = waiting.pop()
        if value not in found:
            found.add(value)
            waiting += makers_of[value].read if value in makers_of else []
    return found


def _with_work(
    spec: OperatorSpec, inputs: Sequence[Value | None], bodies: Sequence[_WorkInside]
) -> OperatorSpec:
    """Return a node of control flow with the work and the constants of its dearest body."""
    # Either branch may run: the dearer one is counted.
    body = max(bodies, key=lambda one: (one.macs, one.vector + one.special))
    unknown = [one for one in bodies if not one.inside.times]
    if not body.inside.times:
        return replace(spec, opaque=f"{spec.opaque}: {body.inside.why}")
    why = body.inside.why
    if len(bodies) > 1:
        why = f"its condition depends on data: counted as its dearer branch, {why}"
    if unknown:
        why = f"{why}; {unknown[0].inside.why}"
    return replace(
        spec,
        inputs=tuple(
            None if value and value.constant and value not in body.read else access
            for value, access in zip(inputs, spec.inputs, strict=True)
        ),
        axes=body.axes,
        work=Work(macs=int(body.macs > 0), vector=body.vector, special=body.special),
        engine=Engine.MATRIX if body.macs else Engine.VECTOR,
        opaque=why,
        counted=all(one.counted for one in bodies),
    )


def _product_axes(trips: int, macs: int, largest: Operator) -> tuple[Axis, ...]:
    """Return the axes of ``trips`` products with ``macs`` multiply-accumulates each.

    Rows and columns are those of the largest product, or the nearest that divide the work; the
    remaining factor is summed over.
    """
    first, second = largest.input_axes(0), largest.input_axes(min(1, len(largest.inputs) - 1))
    rows = math.prod(largest.extents[axis] for axis in (largest.output_axes & first) - second)
    columns = math.prod(largest.extents[axis] for axis in largest.output_axes - first)
    n = _near_divisor(macs, columns)
    # Columns first, as they fill the array; rows and the sum take what is left.
    m = _near_divisor(macs // n, rows)
    extents = {"trips": trips, "m": m, "n": n, "k": macs // (m * n)}
    return tuple(Axis(name, extent, AxisKind.REDUCTION) for name, extent in extents.items())


_SEARCHED = 1 << 19
"""Numbers on either side that are tried as divisors."""


def _near_divisor(number: int, wanted: int) -> int:
    """Return the divisor nearest to a number within half and twice of it.

    If there is none, it is their greatest common divisor.
    """
    low, high = max(wanted // 2, wanted - _SEARCHED, 1), min(2 * wanted, wanted + _SEARCHED)
    tried = np.arange(low, high + 1)
    found = tried[number % tried == 0]
    if not found.size:
        return math.gcd(number, wanted)
    # Nearest by ratio: half and twice are equally far.
    return int(found[np.argmin(np.abs(np.log(found / wanted)))])


def _addressed(
    values: Sequence[Value | None], maps: Sequence[AccessMap | None], tensors: Tensors
) -> tuple[tuple[int, ...], tuple[AccessMap, ...], tuple[int, ...]]:
    """Return the tensors, access maps and positions of the values that an operator addresses."""
    rows = [
        (tensors.index(value), access, place)
        for place, (value, access) in enumerate(zip(values, maps, strict=True))
        if value is not None and access is not None
    ]
    return tuple(x[0] for x in rows), tuple(x[1] for x in rows), tuple(x[2] for x in rows)


def _view(value: Value | None) -> ValueView | None:
    if value is None:
        return None
    return ValueView(value.name, value.shape or (), value.dtype, value.constant, value.data)


def plain_attributes(node: NodeProto) -> Mapping[str, object]:
    """Return attributes as plain values, without bodies of control flow and large tensors."""
    return {
        attribute.name: _plain(attribute)
        for attribute in node.attribute
        if attribute.type not in _LEFT_OUT
        and (attribute.type != AttributeProto.TENSOR or is_stored(attribute.t))
    }


_LEFT_OUT = frozenset(
    (AttributeProto.GRAPH, AttributeProto.GRAPHS, AttributeProto.TYPE_PROTO,
     AttributeProto.TYPE_PROTOS, AttributeProto.SPARSE_TENSOR, AttributeProto.SPARSE_TENSORS,
     AttributeProto.TENSORS)
)  # fmt: skip


def _plain(attribute: AttributeProto) -> object:
    if attribute.type == AttributeProto.TENSOR:
        return np.asarray(numpy_helper.to_array(attribute.t))
    value = helper.get_attribute_value(attribute)
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, (str, int, float)):
        return value
    return tuple(v.decode(errors="replace") if isinstance(v, bytes) else v for v in value)
