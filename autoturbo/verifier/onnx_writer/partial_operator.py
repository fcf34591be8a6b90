"""One operator to be computed on a part of its domain: its inputs, its node, its outputs.

Normalisations that ONNX Runtime cannot run inside of a function are decomposed into simpler
operators: there it takes the definition of MeanVarianceNormalization, whose constants it refuses,
and crashes on SimplifiedLayerNormalization.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np
from onnx import NodeProto, helper

from autoturbo.graph.domain import AccessMap, Interval, Region, interval_of, meet, volume
from autoturbo.graph.model_nodes import ModelNode, Operand
from autoturbo.graph.node_builder import attributes_of
from autoturbo.graph.operators import Operator
from autoturbo.verifier.onnx_writer.builder import GraphBuilder
from autoturbo.verifier.regions import within

Box = tuple[Interval, ...]
"""Intervals of the axes of an operator's domain."""


class RegionError(Exception):
    """A region that an operator needs is not held: a halo is too small, for example."""


@dataclass(frozen=True, eq=False)
class PartialOperator:
    """One operator to be computed on a part of its domain.

    Attributes:
        builder: The builder that takes the nodes.
        node: Node of the operator.
        operator: The operator with its domain and access maps.
        shapes: Shapes of the graph's tensors.
        box: The part of the domain.
    """

    builder: GraphBuilder
    node: ModelNode
    operator: Operator
    shapes: Sequence[tuple[int, ...]]
    box: Box

    @functools.cached_property
    def values(self) -> tuple[Operand | None, ...]:
        """Return all values that the node reads, by ONNX position, captured ones last."""
        return (*self.node.inputs, *self.node.captured)

    @functools.cached_property
    def operands(self) -> tuple[Operand, ...]:
        """Return the value of each input of the operator."""
        values = [self.values[position] for position in self.node.positions]
        return tuple(operand for operand in values if operand is not None)

    @functools.cached_property
    def needs(self) -> tuple[Region, ...]:
        """Return the region of each input of the operator that the box reads."""
        return self.reads(self.box)

    @functools.cached_property
    def wanted(self) -> tuple[Region | None, ...]:
        """Return the region of each output of the operator to make; None if there is none."""
        regions = [self.builder.regions.get(tensor) for tensor in self.operator.outputs]
        return tuple(
            None if region is None or (volume(region) == 0 and volume(whole(shape)) > 0) else region
            for region, shape in zip(regions, self.output_shapes, strict=True)
        )

    @functools.cached_property
    def attributes(self) -> Mapping[str, Any]:
        """Return the node's attributes as Python values."""
        return attributes_of(self.node.proto)

    @functools.cached_property
    def input_shapes(self) -> tuple[tuple[int, ...], ...]:
        """Return the shape of each input of the operator."""
        return tuple(self.shapes[tensor] for tensor in self.operator.inputs)

    @functools.cached_property
    def output_shapes(self) -> tuple[tuple[int, ...], ...]:
        """Return the shape of each output of the operator."""
        return tuple(self.shapes[tensor] for tensor in self.operator.outputs)

    @functools.cached_property
    def maps(self) -> tuple[AccessMap, ...]:
        """Return the access maps of all tensors, inputs first."""
        return (*self.operator.input_maps, *self.operator.output_maps)

    @functools.cached_property
    def full(self) -> Box:
        """Return the whole domain."""
        return tuple((0, axis.extent) for axis in self.operator.axes)

    def check(self) -> None:
        """Refuse a box that lacks points of the wanted regions.

        Raises:
            RegionError: Naming the output.
        """
        for output, wanted in enumerate(self.wanted):
            if wanted is not None:
                points = self.operator.axis_region({output: wanted})
                if not within(points, self.box):
                    have = self.makes(self.box)[output]
                    name = self.name(output)
                    raise RegionError(_missing(self.operator.name, name, wanted, have))

    def reads(self, box: Box) -> tuple[Region, ...]:
        """Return, per input of the operator, the region that a part of the domain reads."""
        regions = enumerate(self.input_shapes)
        return tuple(self.operator.input_region(i, box, shape) for i, shape in regions)

    def makes(self, box: Box) -> tuple[Region, ...]:
        """Return the smallest region of each output that contains what a box makes."""
        pairs = zip(self.operator.output_maps, self.output_shapes, strict=True)
        return tuple(
            tuple(interval_of(d, box, e) for d, e in zip(access.dims, shape, strict=True))
            for access, shape in pairs
        )

    def axis(self, name: str) -> int | None:
        """Return the index of an axis by name, or None."""
        names = [axis.name for axis in self.operator.axes]
        return names.index(name) if name in names else None

    def span(self, box: Box, name: str) -> Interval:
        """Return the interval of an axis by name; an axis left out has one point."""
        axis = self.axis(name)
        return (0, 1) if axis is None else box[axis]

    def input_at(self, position: int) -> int | None:
        """Return the index of the operator's input at an ONNX position, or None."""
        places = self.node.positions
        return places.index(position) if position in places else None

    def fit(self, index: int, frame: Region) -> tuple[str, bool]:
        """Return a region of an input of the operator, zeros where it is not needed.

        Args:
            index: Position of the input among the operator's inputs.
            frame: The region; it may reach beyond the tensor.

        Returns:
            The name of the value, and whether there are zeros in it.

        Raises:
            RegionError: A needed part is not held.
        """
        operand, need = self.operands[index], self.needs[index]
        have = self.builder.regions.get(operand.tensor) if operand.tensor >= 0 else None
        if have is None and operand.constant:
            self.builder.operand(operand)
            have = whole(operand.shape)
            # Constants are held whole: what the box does not read of them is there as well.
            need = meet(have, frame)
        if volume(need) == 0 and volume(frame) > 0:
            return self.builder.zeros([high - low for low, high in frame], operand.element), True
        if have is None or not within(need, have):
            raise RegionError(_missing(self.operator.name, operand.name, need, have))
        core = meet(need, frame)
        part = self.builder.slice(operand.name, have, core)
        return self.builder.surround(part, core, frame, operand.element), core != frame

    def absorbed(self, position: int) -> str:
        """Return the name of an input whose values the domain has absorbed."""
        operand = self.values[position] if position < len(self.values) else None
        if operand is None:
            return ""
        if operand.constant and self.builder.regions.get(operand.tensor) is None:
            return self.builder.operand(operand)
        if self.builder.regions.get(operand.tensor) == whole(operand.shape):
            return operand.name
        return self.builder.zeros(operand.shape, operand.element)

    def finish(self, made: Sequence[tuple[str, Region]]) -> None:
        """Crop the outputs to the wanted regions, under the tensors' names.

        Args:
            made: Per output of the operator, a value and the region of the tensor that it is.

        Raises:
            RegionError: An output was not made as far as wanted.
        """
        for position, (value, region) in enumerate(made):
            wanted, name = self.wanted[position], self.name(position)
            if wanted is None or value == name:
                continue
            if not within(wanted, region):
                raise RegionError(_missing(self.operator.name, name, wanted, region))
            self.builder.slice(value, region, wanted, to=name)

    def name(self, output: int) -> str:
        """Return the name of an output of the operator."""
        tensor = self.operator.outputs[output]
        return next(o.name for o in self.node.outputs if o is not None and o.tensor == tensor)


def whole(shape: Sequence[int]) -> Region:
    """Return the region of a whole shape."""
    return tuple((0, extent) for extent in shape)


def extents(region: Region) -> tuple[int, ...]:
    """Return the number of positions in each dimension of a region."""
    return tuple(max(high - low, 0) for low, high in region)


def _missing(operator: str, tensor: str, need: Region, have: Region | None) -> str:
    return f"{operator} needs {need} of {tensor}; held is {have or 'nothing'}"


_DEVIATION_FLOOR = 1e-9
"""Added to the standard deviation by the definition of MeanVarianceNormalization."""


def _mean(partial: PartialOperator, name: str, axes: Iterable[int]) -> str:
    return partial.builder.reduce("ReduceMean", name, *axes)


def _number(partial: PartialOperator, value: float) -> str:
    """Return the name of a number in the element type of the data."""
    return partial.builder.number(value, partial.operands[0].element)


def _mean_variance(partial: PartialOperator, inputs: Sequence[str], outputs: Sequence[str]) -> None:
    op, axes = partial.builder.op, partial.attributes.get("axes", (0, 2, 3))
    centred = op("Sub", inputs[0], _mean(partial, inputs[0], axes))
    deviation = op("Sqrt", _mean(partial, op("Mul", centred, centred), axes))
    divisor = op("Add", deviation, _number(partial, _DEVIATION_FLOOR))
    op("Div", centred, divisor, to=outputs[0])


def _root_mean_square(
    partial: PartialOperator, inputs: Sequence[str], outputs: Sequence[str]
) -> None:
    op, attributes, rank = partial.builder.op, partial.attributes, len(partial.input_shapes[0])
    axes = range(int(attributes.get("axis", -1)) % rank, rank)
    epsilon = _number(partial, float(attributes.get("epsilon", 1e-5)))
    square = _mean(partial, op("Mul", inputs[0], inputs[0]), axes)
    further = outputs[1] if len(outputs) > 1 else None
    inverse = op("Reciprocal", op("Sqrt", op("Add", square, epsilon)), to=further)
    op("Mul", op("Mul", inputs[0], inverse), inputs[1], to=outputs[0])


_DECOMPOSITIONS: Mapping[str, Callable[[PartialOperator, Sequence[str], Sequence[str]], None]] = {
    "MeanVarianceNormalization": _mean_variance,
    "SimplifiedLayerNormalization": _root_mean_square,
}
"""By kind: functions that write a node as simpler ones, from its names by ONNX position."""


@dataclass(frozen=True, slots=True)
class NodeRegions:
    """Regions of its tensors on which a node runs, and the changes of the node for them.

    Attributes:
        inputs: Per input of the operator; larger than needed where the node wants more.
        outputs: Per output of the operator, the region that the node makes.
        attributes: Attributes that get another value, by name; None takes one away.
        parameters: Inputs that get another value, by ONNX position: a constant, or the name of a
            value of the graph; None leaves one out.
    """

    inputs: tuple[Region, ...]
    outputs: tuple[Region, ...]
    attributes: Mapping[str, object] = field(default_factory=dict)
    parameters: Mapping[int, np.ndarray | str | None] = field(default_factory=dict)


def write_node(partial: PartialOperator, plan: NodeRegions) -> bool:
    """Add the node on its regions, its inputs and outputs cropped.

    Returns:
        Whether any input was padded with zeros.

    Raises:
        RegionError: A needed part is not held.
    """
    fitted = [partial.fit(index, frame) for index, frame in enumerate(plan.inputs)]
    names = [name for name, _ in fitted]
    results = output_names(partial, plan.outputs)
    inputs = _input_names(partial, names, plan)
    add_node(partial, inputs, [name for name, _ in results], plan.attributes)
    partial.finish(results)
    return any(filled for _, filled in fitted)


def output_names(partial: PartialOperator, regions: Sequence[Region]) -> list[tuple[str, Region]]:
    """Return each output's name: the tensor's if exactly its region is wanted, else a new one.

    Args:
        partial: The part of the operator.
        regions: The region that is made of each.
    """
    results = []
    for index, (wanted, region) in enumerate(zip(partial.wanted, regions, strict=True)):
        name = partial.name(index)
        results.append(
            (name if wanted == region else partial.builder.new_name(f"{name}.made"), region)
        )
    return results


def _input_names(partial: PartialOperator, names: Sequence[str], plan: NodeRegions) -> list[str]:
    """Return names by ONNX position, without absent ones at the end."""
    input_names, parameters = [], plan.parameters
    for position in range(max(len(partial.node.inputs), *(p + 1 for p in parameters), 0)):
        index = partial.input_at(position)
        if position in parameters:
            input_names.append(_parameter(partial, parameters[position]))
        else:
            input_names.append(partial.absorbed(position) if index is None else names[index])
    while input_names and not input_names[-1]:
        input_names.pop()
    return input_names


def _parameter(partial: PartialOperator, value: np.ndarray | str | None) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    return partial.builder.constant(value, "parameter")


def add_node(
    partial: PartialOperator,
    inputs: Sequence[str],
    results: Sequence[str],
    attributes: Mapping[str, object] = MappingProxyType({}),
) -> None:
    """Add the node with other names and other values of some attributes, or expand it.

    Args:
        partial: The part of the operator.
        inputs: Names by ONNX position.
        results: Names by output of the operator.
        attributes: New values by name; None removes an attribute.
    """
    named = _output_names(partial, results)
    decompose = _DECOMPOSITIONS.get(partial.operator.kind)
    if decompose is not None:
        decompose(partial, inputs, named)
        return
    proto = NodeProto()
    proto.CopyFrom(partial.node.proto)
    kept = [item for item in proto.attribute if item.name not in attributes]
    new = [helper.make_attribute(k, v) for k, v in attributes.items() if v is not None]
    # The file's metadata go too: the builder puts the layer's name there.
    for part in (proto.attribute, proto.input, proto.output, proto.metadata_props):
        del part[:]
    proto.attribute.extend([*kept, *new])
    proto.input.extend(inputs)
    proto.output.extend(named)
    proto.doc_string = ""
    partial.builder.add(proto)


def _output_names(partial: PartialOperator, results: Sequence[str]) -> list[str]:
    """Return names of the outputs by ONNX position."""
    by_tensor = dict(zip(partial.operator.outputs, results, strict=True))
    return [
        ""
        if operand is None
        else by_tensor.get(operand.tensor) or partial.builder.new_name("unused")
        for operand in partial.node.outputs
    ]
