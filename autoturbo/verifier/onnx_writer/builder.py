"""Build an ONNX graph node by node, on regions of tensors.

ONNX Runtime runs ``DequantizeLinear -> node -> QuantizeLinear`` as one integer node where the three
follow each other. A part that cuts or joins values in between would end that: it cuts the quantised
values instead, and quantises again what it is given, which gives the very same numbers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

from autoturbo.graph.domain import Interval, Region
from autoturbo.graph.model_nodes import ModelNode, ModelNodes, Operand
from autoturbo.graph.node_builder import Cut, NodeBuilder, attributes_of
from autoturbo.graph.structure import captured_names
from autoturbo.verifier.findings import region_text
from autoturbo.verifier.regions import within

DEQUANTIZE = "DequantizeLinear"

_AXIS = 1
"""The dimension along which scales differ where a node does not say."""

_ACTIVATIONS = frozenset((TensorProto.UINT8, TensorProto.INT8))
"""Types that every version of QuantizeLinear gives."""

_CUT = _ACTIVATIONS | frozenset((TensorProto.INT16, TensorProto.UINT16, TensorProto.INT32))
"""Types of quantised constants that are sliced before they are dequantised."""

_EXACT = frozenset((TensorProto.FLOAT, TensorProto.FLOAT16))
"""Types of real values that tell any two bytes apart, also after a division by the scale."""


Dequantised = tuple[NodeProto, tuple[Operand, ...]]
"""How a constant is made from a quantised one: the node that makes it, and what that reads: the
quantised constant, its scale, and its zero point if it has one."""


def is_dequantize(proto: NodeProto) -> bool:
    """Return whether a node is ONNX's DequantizeLinear with a scale per tensor or per axis."""
    standard = proto.op_type == DEQUANTIZE and proto.domain in ("", "ai.onnx")
    return standard and not attributes_of(proto).get("block_size")


def axis_of(proto: NodeProto, rank: int) -> int:
    """Return the dimension along which the scales of a DequantizeLinear differ."""
    return int(attributes_of(proto).get("axis", _AXIS)) % max(rank, 1)


def dequantised_constants(nodes: ModelNodes) -> Mapping[str, Dequantised]:
    """Return the DequantizeLinear that makes each dequantised constant, by name.

    Constants of types that ``Slice`` does not support (4 bits, 8-bit floats) are left out: the
    dequantised values are sliced.
    """
    by_name = {}
    for proto in filter(is_dequantize, nodes.constants):
        names = [name for name in proto.input if name]
        stored = [nodes.stored[name] for name in names if name in nodes.stored]
        if len(stored) == len(names) and stored[0].data_type in _CUT:
            inputs = (
                Operand(t.name, -1, tuple(t.dims), t.data_type, constant=True, data=None)
                for t in stored
            )
            by_name[proto.output[0]] = proto, tuple(inputs)
    return by_name


def quantisation_of(node: ModelNode) -> tuple[Operand, Operand] | None:
    """Return the scale and zero point with which a node's result can be quantised again.

    They are None unless the node is a DequantizeLinear of bytes with one constant scale.
    """
    given = [value for value in node.inputs if value is not None]
    if not is_dequantize(node.proto) or len(given) != 3:  # noqa: PLR2004 - with a zero point
        return None
    values, scale, zero = given
    single = all(value.constant and value.shape in ((), (1,)) for value in (scale, zero))
    exact = values.element in _ACTIVATIONS and scale.element in _EXACT
    return (scale, zero) if single and exact else None


def plain_dequantize(proto: NodeProto, inputs: Iterable[str], output: str) -> NodeProto:
    """Return a DequantizeLinear with other names."""
    node = helper.make_node(DEQUANTIZE, list(inputs), [output])
    node.attribute.extend(proto.attribute)
    return node


LAYER = "autoturbo.layer"
"""Key under which the metadata of every node names its layer."""

_ANY_CONSTANT = 9
"""Opset since which Constant has every element type."""

PAD_INPUTS = 11
"""Opset since which the widths of Pad are an input."""


@dataclass(eq=False)
class GraphBuilder(NodeBuilder):
    """Nodes of a function, and the values that it reads.

    A tensor of the graph is held under its own name as the region that the instance has of it; a
    constant is held whole. Values made on the way have names of their own. The same calls give the
    same nodes and names, so equal parts give equal graphs.

    Attributes:
        layer: Layer that nodes added now belong to; their names begin with it.
        operator: The operator that they compute a part of, next in their names.
        regions: Per tensor of the graph that is held, which region of it.
        reads: Constants that the function must be given, in order of first use.
        taken: Names in use; values made on the way avoid them.
        dequantised: Makers of constants that are added here, from quantised ones.
    """

    layer: str = ""
    operator: str = ""
    regions: dict[int, Region] = field(default_factory=dict)
    reads: dict[str, Operand] = field(default_factory=dict)
    taken: set[str] = field(default_factory=set)
    dequantised: Mapping[str, Dequantised] = field(default_factory=dict)
    _labels: set[str] = field(default_factory=set)
    _counts: dict[str, int] = field(default_factory=dict)
    _dequantisers: dict[str, NodeProto] = field(default_factory=dict)
    _extents: dict[str, tuple[int, ...]] = field(default_factory=dict)

    def new_name(self, hint: str) -> str:
        """Return an unused name: the hint and a mark that names in files rarely contain."""
        return _unused(f"{hint}@", self.taken, self._counts)

    def add(self, proto: NodeProto) -> tuple[str, ...]:
        """Append a node, named after its layer and operator, and record its layer.

        Returns:
            The names of its outputs.
        """
        parts = (self.layer, self.operator, proto.op_type)
        proto.name = _unused("/".join(part for part in parts if part), self._labels, self._counts)
        if self.layer:
            proto.metadata_props.add(key=LAYER, value=self.layer)
        self.taken.update(proto.output)
        self.nodes.append(proto)
        if is_dequantize(proto):
            self._dequantisers[proto.output[0]] = proto
        return tuple(proto.output)

    def output_name(self, op_type: str, position: int) -> str:  # noqa: ARG002 - names are counted
        """Return a new name for an output of the next node."""
        return self.new_name(op_type.lower())

    def hold(self, array: np.ndarray, hint: str) -> str:
        """Add a constant and return its name."""
        name = self.new_name(hint)
        self._literal(array, name)
        return name

    def operand(self, operand: Operand) -> str:
        """Return the name of a constant operand, which is added or read whole.

        A tensor of the graph, a weight, is an input of the function; a constant that the graph does
        not hold (a target shape, the bounds of a slice) is added here if it is known.
        """
        self._extents[operand.name] = operand.shape
        if operand.name not in self.reads and operand.name not in self._values:
            if operand.name in self.dequantised:
                self._values[operand.name] = operand.name
                proto, inputs = self.dequantised[operand.name]
                self.add(plain_dequantize(proto, map(self.operand, inputs), operand.name))
            elif operand.data is None or operand.tensor >= 0:
                self.reads[operand.name] = operand
            else:
                self._values[operand.name] = operand.name
                self._literal(operand.data, operand.name)
            self.taken.add(operand.name)
        return operand.name

    def _literal(self, array: np.ndarray, name: str) -> None:
        """Add a Constant node; early opsets hold only real numbers, which are cast."""
        if self.opset >= _ANY_CONSTANT or np.issubdtype(array.dtype, np.floating):
            self.op("Constant", to=name, value=numpy_helper.from_array(array, name))
            return
        real = self.op("Constant", value=numpy_helper.from_array(array.astype(np.float64), name))
        self.cast(real, helper.np_dtype_to_tensor_dtype(array.dtype), to=name)

    def slice(
        self,
        name: str,
        have: Region,
        want: Region,
        steps: Sequence[int] | None = None,
        to: str | None = None,
    ) -> str:
        """Return the name of a slice of a value.

        Args:
            name: The value.
            have: The region of its tensor that it is.
            want: The region to keep, inside of ``have``.
            steps: Per dimension; a negative one goes down from the last position of ``want``.
            to: Name of the result; without it, the value itself is returned if nothing is cut off,
                and an earlier equal slice is reused.
        """
        steps = steps or (1,) * len(have)
        if to is None and (have, name) == (want, name) and all(step == 1 for step in steps):
            return name
        key = (name, have, want, tuple(steps))
        if to is None and key in self._values:
            return self._values[key]
        cut = self._slice(name, have, want, steps, to or self.new_name(f"{name}.part"))
        self._values.setdefault(key, cut)
        return cut

    def _slice(self, name: str, have: Region, want: Region, steps: Sequence[int], to: str) -> str:
        rows = zip(range(len(have)), have, want, steps, strict=True)
        cuts = [_slice_bounds(dim, h, w, step) for dim, h, w, step in rows if h != w or step != 1]
        if not cuts:
            return self.op("Identity", name, to=to)
        maker = self._dequantisers.get(name)
        if maker is not None and self._scales_fit(maker, have):
            return self._slice_quantised(maker, have, want, steps, to)
        return self.cut(name, cuts, to)

    def _slice_quantised(
        self, maker: NodeProto, have: Region, want: Region, steps: Sequence[int], to: str
    ) -> str:
        """Return a slice of a DequantizeLinear's output, dequantised from that slice alone.

        Args:
            maker: The DequantizeLinear.
            have: Region that its output has.
            want: Region that the slice has.
            steps: Along each dimension.
            to: Name of the slice.
        """
        values, *parameters = maker.input
        if math.prod(self._extents[maker.input[1]]) > 1:
            axis = axis_of(maker, len(have))
            along_axis = have[axis : axis + 1], want[axis : axis + 1], steps[axis : axis + 1]
            parameters = [self.slice(name, *along_axis) for name in parameters]
        cut = self.slice(values, have, want, steps)
        return self.add(plain_dequantize(maker, [cut, *parameters], to))[0]

    def _scales_fit(self, maker: NodeProto, have: Region) -> bool:
        """Return whether a DequantizeLinear is known to have one scale, or one per position."""
        extents = self._extents.get(maker.input[1])
        if extents is None or math.prod(extents) == 1:
            return extents is not None
        low, high = have[axis_of(maker, len(have))]
        return extents == (high - low,)

    def surround(self, name: str, have: Region, want: Region, element: int) -> str:
        """Return the name of a value of any type inside a larger region, padded with zeros.

        It is concatenated, not padded: Pad has few element types in early opsets, and ONNX Runtime
        fuses it with a following pool into a node that it then refuses.

        Args:
            name: Name of the value.
            have: Region that the value holds.
            want: The larger region.
            element: ONNX element type.
        """
        shape = [high - low for low, high in have]
        for dim, ((low, high), (first, last)) in enumerate(zip(have, want, strict=True)):
            before, after = (
                [self.zeros([*shape[:dim], width, *shape[dim + 1 :]], element)] if width else []
                for width in (low - first, last - high)
            )
            name = self.concat(*before, name, *after, axis=dim)
            shape[dim] = last - first
        return name


def _unused(hint: str, taken: set[str], counts: dict[str, int]) -> str:
    """Return the hint with the lowest number that makes it unused, and mark it as used."""
    name, count = hint, counts.get(hint, 1)
    while name in taken:
        count += 1
        name = f"{hint}{count}" if hint.endswith("@") else f"{hint}.{count}"
    taken.add(name)
    counts[hint] = count
    return name


def _slice_bounds(dim: int, have: Interval, want: Interval, step: int) -> Cut:
    """Return dimension, start, end and step of a slice, relative to the begin of ``have``.

    Args:
        dim: The dimension.
        have: Interval that the sliced value has.
        want: Interval that is wanted.
        step: 1, or -1 for the reversed order.
    """
    low, high, extent = want[0] - have[0], want[1] - have[0], have[1] - have[0]
    if step > 0:
        return dim, low, high, step
    # Slice counts a negative end from the back: to go down to 0 it has to be beyond the front.
    return dim, high - 1, low - 1 if low else -extent - 1, step


def stored_constants(
    nodes: Iterable[NodeProto], stored: Mapping[str, TensorProto], leaving: Iterable[str] = ()
) -> list[TensorProto]:
    """Return the stored constants that nodes, or graphs inside them, read and do not make.

    Args:
        nodes: Nodes of a graph.
        stored: Constants by name.
        leaving: Names of the graph's outputs: they may be constants.
    """
    nodes = list(nodes)
    read = {name for node in nodes for name in (*node.input, *captured_names(node))}.union(leaving)
    outputs = {name for node in nodes for name in node.output}
    return [tensor for name, tensor in stored.items() if name in read - outputs]


def without_unread_constants(
    nodes: Sequence[NodeProto], first: int, leaving: Iterable[str] = ()
) -> list[NodeProto]:
    """Return the nodes of a graph without unread constants among the ``first`` ones.

    Args:
        nodes: Nodes of a graph, in order.
        first: The number of nodes, at the front, that make constants.
        leaving: Names of the graph's outputs.
    """
    read = {n for node in nodes[first:] for n in (*node.input, *captured_names(node))}
    read.update(leaving)
    kept: list[NodeProto] = []
    # From the back, since a constant may be read by later constants alone.
    for node in reversed(nodes[:first]):
        if not read.isdisjoint(node.output):
            kept.append(node)
            read.update((*node.input, *captured_names(node)))
    return [*reversed(kept), *nodes[first:]]


class UncoveredError(Exception):
    """Pieces that do not make up the region wanted of them."""


@dataclass(frozen=True, slots=True)
class RegionValue:
    """A value that holds a region of a tensor.

    Attributes:
        name: Name of the value.
        region: Part of the tensor that it is.
    """

    name: str
    region: Region


def concatenate_pieces(builder: GraphBuilder, pieces: Sequence[RegionValue], want: Region) -> str:
    """Return the name of a region, concatenated from pieces that tile it.

    Raises:
        UncoveredError: They leave a gap, overlap or stick out.
    """
    if len(pieces) == 1 and pieces[0].region == want:
        return pieces[0].name
    for dim in range(len(want)):
        groups = _along(pieces, dim)
        if len(groups) > 1:
            return _joined(builder, groups, dim, want)
    raise UncoveredError(f"{len(pieces)} pieces for {region_text(want)}")


def _along(pieces: Sequence[RegionValue], dim: int) -> list[list[RegionValue]]:
    """Return pieces in groups that follow each other along a dimension."""
    groups: list[list[RegionValue]] = []
    end = None
    for piece in sorted(pieces, key=lambda p: p.region[dim]):
        low, high = piece.region[dim]
        if end is None or low >= end:
            groups.append([])
        groups[-1].append(piece)
        end = high if end is None else max(end, high)
    return groups


def _joined(builder: GraphBuilder, groups: list[list[RegionValue]], dim: int, want: Region) -> str:
    names, position = [], want[dim][0]
    for group in groups:
        low, high = group[0].region[dim][0], max(piece.region[dim][1] for piece in group)
        if low != position:
            raise UncoveredError(f"nothing from {position} to {low} of dimension {dim}")
        names.append(
            concatenate_pieces(builder, group, (*want[:dim], (low, high), *want[dim + 1 :]))
        )
        position = high
    if position != want[dim][1]:
        raise UncoveredError(f"nothing from {position} to {want[dim][1]} of dimension {dim}")
    return builder.concat(*names, axis=dim)


def slice_region(builder: GraphBuilder, value: RegionValue, want: Region) -> str:
    """Return the name of a slice of a value.

    Raises:
        UncoveredError: The value does not contain it.
    """
    if not within(want, value.region):
        raise UncoveredError(f"{region_text(want)} of {region_text(value.region)}")
    return value.name if value.region == want else builder.slice(value.name, value.region, want)


def element_types(nodes: ModelNodes) -> dict[int, int]:
    """Return the ONNX element type of each tensor that is an input or that a node uses.

    No node reads inputs that only give extents.
    """
    elements = {value.tensor: value.element for value in _held(nodes)}
    for tensor in nodes.graph.inputs:
        dtype = nodes.graph.tensors[tensor].dtype
        if tensor not in elements and dtype == "string":
            elements[tensor] = int(TensorProto.STRING)
        elif tensor not in elements:
            elements[tensor] = int(helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))
    return elements


def no_tensors(nodes: ModelNodes) -> frozenset[int]:
    """Return the values of a graph that are sequences or optional: few operators take them."""
    return frozenset(value.tensor for value in _held(nodes) if value.kind is not None)


def _held(nodes: ModelNodes) -> Iterator[Operand]:
    """Return the values of the graph that nodes use or that leave the model."""
    for node in nodes.nodes:
        values = (*node.inputs, *node.captured, *node.outputs)
        yield from (value for value in values if value is not None and value.tensor >= 0)
    yield from (value for _, value in nodes.outputs if value.tensor >= 0)


def declared(name: str, value: Operand, shape: Sequence[int]) -> ValueInfoProto:
    """Return the declaration of an output, which need not be a tensor."""
    if value.kind is not None:
        return helper.make_value_info(name, value.kind)
    return tensor_info(name, value.element, shape)


def tensor_info(name: str, element: int, shape: Sequence[int]) -> ValueInfoProto:
    """Return the declaration of a graph's input or output."""
    return helper.make_tensor_value_info(name, element, list(shape))


def model_of(
    nodes: ModelNodes,
    body: Sequence[NodeProto],
    inputs: Sequence[ValueInfoProto],
    outputs: Sequence[ValueInfoProto],
    **more: Any,
) -> ModelProto:
    """Return a model of nodes, with the stored constants that they read.

    Args:
        nodes: The nodes of the file; inputs that stand for constants are given to the model too.
        body: The nodes of the model, in order.
        inputs: The other inputs.
        outputs: The outputs, which may be constants.
        more: Further arguments of :func:`onnx.helper.make_model`; versions are the file's.
    """
    given = [tensor_info(one.name, one.element, one.shape) for one in nodes.given]
    stored = stored_constants(body, nodes.stored, (value.name for value in outputs))
    graph = helper.make_graph(body, nodes.graph.name, [*inputs, *given], outputs, stored)
    opsets = [helper.make_opsetid(domain, version) for domain, version in nodes.opsets.items()]
    return helper.make_model(
        graph, **{"opset_imports": opsets, "ir_version": nodes.ir_version, **more}
    )
