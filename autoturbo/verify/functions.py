"""Instances as model-local functions: the layers of a part, each at its region."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from onnx import FunctionProto, NodeProto, helper

from autoturbo.graph.domain import Region
from autoturbo.graph.model_nodes import ModelNodes, Operand
from autoturbo.schedule.problem import Problem
from autoturbo.verify.body import Body
from autoturbo.verify.needs import part_needs
from autoturbo.verify.quantised import (
    DEQUANTIZE,
    Dequantised,
    dequantised_constants,
    quantisation_of,
)
from autoturbo.verify.regional import restrict

FUNCTION_DOMAIN = "autoturbo.instances"
"""Domain of the functions that a scheduled model calls."""


@dataclass(frozen=True, slots=True, eq=False)
class PartFunction:
    """What a part of a sub-graph computes, as nodes.

    Parts that do the same (all inner parts of an image, say) share one.

    Attributes:
        name: of the function.
        given: the names of ``inputs`` in the function.
        inputs: tensors of the graph that it is given, each as the region that the part needs.
        constants: weights that it is given whole.
        outputs: tensors that it makes, each as the part's region.
        body: its nodes.
    """

    name: str
    given: tuple[str, ...]
    inputs: tuple[int, ...]
    constants: tuple[Operand, ...]
    outputs: tuple[int, ...]
    body: Body


@dataclass(eq=False)
class FunctionBook:
    """The functions of a scheduled model.

    Attributes:
        nodes: what the model consists of.
        problem: where sub-graphs come from.
        functions: by the text of their nodes.
        names: how many functions begin with a name.
    """

    nodes: ModelNodes
    problem: Problem
    functions: dict[tuple[object, ...], PartFunction] = field(default_factory=dict)
    names: dict[str, int] = field(default_factory=dict)
    _known: dict[tuple[object, ...], PartFunction] = field(default_factory=dict)
    _dequantised: Mapping[str, Dequantised] = field(init=False)

    def __post_init__(self) -> None:
        self._dequantised = dequantised_constants(self.nodes)

    def function(
        self, layers: Sequence[int], inputs: Mapping[int, Region], outputs: Mapping[int, Region]
    ) -> PartFunction:
        """The function of a part.

        Args:
            layers: the sub-graph's.
            inputs: per external input that it is given, the region.
            outputs: per output, the region that it makes.

        Raises:
            RegionError: the inputs are not enough for the outputs.
        """
        place = (tuple(layers), tuple(inputs.items()), tuple(outputs.items()))
        if place not in self._known:
            body = Body(self.nodes.opsets[""], dequantised=self._dequantised)
            body.layer = self.problem.layers[layers[0]].name
            given = tuple(self._given(body, tensor) for tensor in inputs)
            self._fill(body, layers, inputs, outputs)
            self._known[place] = self._same(layers, given, tuple(inputs), tuple(outputs), body)
        return self._known[place]

    def _given(self, body: Body, tensor: int) -> str:
        """The name under which a function is given a tensor.

        One that was dequantised is quantised and dequantised again, which changes no number: the
        nodes that read it stand behind a DequantizeLinear, as in the file.
        """
        name = self.problem.graph.tensors[tensor].name
        maker = self.problem.graph.producer[tensor]
        found = None if maker < 0 else quantisation_of(self.nodes.nodes[maker])
        if found is None:
            return name
        given = body.fresh(f"{name}.given")
        parameters = [body.operand(dataclasses.replace(one, data=None)) for one in found]
        quantised = body.node("QuantizeLinear", (given, *parameters))
        body.node(DEQUANTIZE, (*quantised, *parameters), (name,))
        return given

    def _fill(
        self,
        body: Body,
        layers: Sequence[int],
        inputs: Mapping[int, Region],
        outputs: Mapping[int, Region],
    ) -> None:
        """Add the nodes of a part to a body."""
        problem, graph = self.problem, self.problem.graph
        needs = part_needs(problem, layers, outputs)
        body.regions.update(inputs)
        shapes = [tensor.shape for tensor in graph.tensors]
        for layer in layers:
            body.layer = problem.layers[layer].name
            for index in problem.layers[layer].operators:
                if index not in needs.boxes:
                    continue
                operator = graph.operators[index]
                made = {t: needs.regions[t] for t in operator.outputs if t in needs.regions}
                body.regions.update(made)
                restrict(body, self.nodes.nodes[index], operator, shapes, needs.boxes[index])

    def _same(
        self,
        layers: Sequence[int],
        given: tuple[str, ...],
        inputs: tuple[int, ...],
        outputs: tuple[int, ...],
        body: Body,
    ) -> PartFunction:
        """The function with these nodes, made now if there is none."""
        text = b"".join(node.SerializeToString(deterministic=True) for node in body.nodes)
        key = (inputs, outputs, tuple(body.reads), text)
        if key not in self.functions:
            stem = _identifier(self.problem.layers[layers[-1]].name)
            self.names[stem] = self.names.get(stem, 0) + 1
            name = f"{stem}__{self.names[stem]}"
            constants = tuple(body.reads.values())
            self.functions[key] = PartFunction(name, given, inputs, constants, outputs, body)
        return self.functions[key]

    def protos(self) -> list[FunctionProto]:
        """All functions, in order of first use."""
        return [self._proto(function) for function in self.functions.values()]

    def _proto(self, function: PartFunction) -> FunctionProto:
        tensors = self.nodes.graph.tensors
        return helper.make_function(
            FUNCTION_DOMAIN, function.name,
            [*function.given, *(c.name for c in function.constants)],
            [tensors[t].name for t in function.outputs], function.body.nodes,
            [helper.make_opsetid(d, v) for d, v in self.opsets(function.body.nodes).items()],
        )  # fmt: skip

    def opsets(self, nodes: Sequence[NodeProto]) -> dict[str, int]:
        """Versions of the domains that some nodes use, ONNX's own always among them."""
        used = {"", *("" if node.domain == "ai.onnx" else node.domain for node in nodes)}
        return {domain: self.nodes.opsets.get(domain, 1) for domain in sorted(used)}


def _identifier(name: str) -> str:
    """A name of letters, digits and underscores."""
    text = "".join(c if c.isascii() and c.isalnum() else "_" for c in name).strip("_")
    return text or "part"
