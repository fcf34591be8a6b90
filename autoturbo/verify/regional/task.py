"""One operator to be computed on a part of its domain, and what is at hand for it."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from autoturbo.graph.domain import AccessMap, Interval, Region, interval_of, meet, volume
from autoturbo.graph.model_nodes import ModelNode, Operand
from autoturbo.graph.operators import Operator
from autoturbo.verify.body import Body, attributes_of

Box = tuple[Interval, ...]
"""Intervals of the axes of an operator's domain."""


class RegionError(Exception):
    """What an operator needs is not inside of what is held: a halo is too small, say."""


@dataclass(frozen=True, eq=False)
class Task:
    """One operator to be computed on a part of its domain.

    Attributes:
        body: where the nodes go.
        node: of the operator.
        operator: its domain and access maps.
        shapes: of the graph's tensors.
        box: the part of the domain.
    """

    body: Body
    node: ModelNode
    operator: Operator
    shapes: Sequence[tuple[int, ...]]
    box: Box

    @functools.cached_property
    def values(self) -> tuple[Operand | None, ...]:
        """All that the node reads, by ONNX position, captured values last."""
        return (*self.node.inputs, *self.node.captured)

    @functools.cached_property
    def operands(self) -> tuple[Operand, ...]:
        """Per input of the operator, the value that it is."""
        found = [self.values[position] for position in self.node.positions]
        return tuple(operand for operand in found if operand is not None)

    @functools.cached_property
    def needs(self) -> tuple[Region, ...]:
        """Per input of the operator, the region that the box reads."""
        return self.reads(self.box)

    @functools.cached_property
    def wanted(self) -> tuple[Region | None, ...]:
        """Per output of the operator, the region to make; None where there is nothing to make."""
        held = [self.body.held(tensor) for tensor in self.operator.outputs]
        return tuple(
            None if region is None or (volume(region) == 0 and volume(whole(shape)) > 0) else region
            for region, shape in zip(held, self.output_shapes, strict=True)
        )

    @functools.cached_property
    def attributes(self) -> Mapping[str, Any]:
        """Of the node, as Python values."""
        return attributes_of(self.node.proto)

    @functools.cached_property
    def input_shapes(self) -> tuple[tuple[int, ...], ...]:
        """Per input of the operator."""
        return tuple(self.shapes[tensor] for tensor in self.operator.inputs)

    @functools.cached_property
    def output_shapes(self) -> tuple[tuple[int, ...], ...]:
        """Per output of the operator."""
        return tuple(self.shapes[tensor] for tensor in self.operator.outputs)

    @functools.cached_property
    def maps(self) -> tuple[AccessMap, ...]:
        """Of all tensors, inputs first."""
        return (*self.operator.input_maps, *self.operator.output_maps)

    @functools.cached_property
    def full(self) -> Box:
        """The whole domain."""
        return tuple((0, axis.extent) for axis in self.operator.axes)

    def check(self) -> None:
        """Refuse a box that leaves out points of what is wanted.

        Raises:
            RegionError: naming the output.
        """
        for output, wanted in enumerate(self.wanted):
            if wanted is not None:
                points = self.operator.axis_region({output: wanted})
                if not within(points, self.box):
                    have = self.makes(self.box)[output]
                    name = self.name(output)
                    raise RegionError(_missing(self.operator.name, name, wanted, have))

    def reads(self, box: Box) -> tuple[Region, ...]:
        """Per input of the operator, the region that a part of the domain reads."""
        regions = enumerate(self.input_shapes)
        return tuple(self.operator.input_region(i, box, shape) for i, shape in regions)

    def makes(self, box: Box) -> tuple[Region, ...]:
        """Per output of the operator, the smallest region that holds what a part makes."""
        pairs = zip(self.operator.output_maps, self.output_shapes, strict=True)
        return tuple(
            tuple(interval_of(d, box, e) for d, e in zip(access.dims, shape, strict=True))
            for access, shape in pairs
        )

    def axis(self, name: str) -> int | None:
        """An axis by name, or None."""
        names = [axis.name for axis in self.operator.axes]
        return names.index(name) if name in names else None

    def span(self, box: Box, name: str, default: Interval = (0, 1)) -> Interval:
        """The interval of an axis by name; an axis left out has one point."""
        axis = self.axis(name)
        return default if axis is None else box[axis]

    def input_at(self, position: int) -> int | None:
        """Which input of the operator an ONNX position is, or None where it is not one."""
        places = self.node.positions
        return places.index(position) if position in places else None

    def fit(self, index: int, frame: Region) -> tuple[str, bool]:
        """An input of the operator as a region of it; zeros stand where it is not needed.

        Args:
            index: of the input.
            frame: the region; it may reach beyond the tensor.

        Returns:
            The name of the value, and whether there are zeros in it.

        Raises:
            RegionError: what is needed is not held.
        """
        operand, need = self.operands[index], self.needs[index]
        have = self.body.held(operand.tensor) if operand.tensor >= 0 else None
        if have is None and operand.constant:
            self.body.operand(operand)
            have = whole(operand.shape)
            need = meet(have, frame)
        if volume(need) == 0 and volume(frame) > 0:
            return self.body.zeros([high - low for low, high in frame], operand.element), True
        if have is None or not within(need, have):
            raise RegionError(_missing(self.operator.name, operand.name, need, have))
        core = meet(need, frame)
        part = self.body.slice(operand.name, have, core)
        return self.body.surround(part, core, frame, operand.element), core != frame

    def absorbed(self, position: int) -> str:
        """An input of which the domain has taken in all that matters, by ONNX position."""
        operand = self.values[position]
        if operand is None:
            return ""
        if operand.constant and self.body.held(operand.tensor) is None:
            return self.body.operand(operand)
        if self.body.held(operand.tensor) == whole(operand.shape):
            return operand.name
        return self.body.zeros(operand.shape, operand.element)

    def finish(self, made: Sequence[tuple[str, Region]]) -> None:
        """Cut the outputs to what is wanted of them, under the tensors' names.

        Args:
            made: per output of the operator, a value and the region of the tensor that it is.

        Raises:
            RegionError: an output was not made as far as wanted.
        """
        for position, (value, region) in enumerate(made):
            wanted, name = self.wanted[position], self.name(position)
            if wanted is None or value == name:
                continue
            if not within(wanted, region):
                raise RegionError(_missing(self.operator.name, name, wanted, region))
            self.body.slice(value, region, wanted, to=name)

    def name(self, output: int) -> str:
        """The name of an output of the operator."""
        tensor = self.operator.outputs[output]
        return next(o.name for o in self.node.outputs if o is not None and o.tensor == tensor)


def whole(shape: Sequence[int]) -> Region:
    """The region of a shape."""
    return tuple((0, extent) for extent in shape)


def within(inner: Region, outer: Region) -> bool:
    """Whether one region lies inside of another; an empty one lies everywhere."""
    return volume(inner) == 0 or meet(inner, outer) == inner


def extents(region: Region) -> tuple[int, ...]:
    """Elements per dimension."""
    return tuple(max(high - low, 0) for low, high in region)


def _missing(operator: str, tensor: str, need: Region, have: Region | None) -> str:
    return f"{operator} needs {need} of {tensor}; held is {have or 'nothing'}"
