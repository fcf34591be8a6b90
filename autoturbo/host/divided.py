"""A model divided for this computer: where it may be cut, and its parts for some samples.

A part is a run of operators. What it takes and gives are tensors whose samples lie one after
another, so that a few samples of a batch are a piece of its memory and nothing is ever copied.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from autoturbo.graph.batch import BatchTrace, rebatch, trace_batch
from autoturbo.graph.extract import entering, leaving
from autoturbo.graph.importer.external_data import attach
from autoturbo.graph.model_nodes import ModelNodes, Repeated
from autoturbo.graph.operators import Graph
from autoturbo.graph.source import Source
from autoturbo.verifier.execution import plain_model, with_random_weights
from autoturbo.verifier.onnx_writer.builder import element_types
from autoturbo.verifier.onnx_writer.calls import nodes_at

MOST_PARTS = 12
"""Parts at most: each is measured for every number of samples, and each call takes time."""

_STEP = 1.5
"""Times as many samples that the next number has at least, of those that are tried."""


@dataclass(frozen=True, slots=True)
class Placement:
    """The memory of a tensor that enters or leaves a part.

    Attributes:
        name: Name of the tensor, as the part's model spells it.
        shape: Extents for the whole batch.
        dtype: Type of the tensor's elements.
        dim: The dimension that counts samples; -1 where none does.
        batch: Samples of the whole batch.
    """

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    dim: int
    batch: int

    def extents(self, samples: int) -> tuple[int, ...]:
        """Return the extents for a number of samples."""
        if self.dim < 0:
            return self.shape
        here = self.shape[self.dim] // self.batch * samples
        return (*self.shape[: self.dim], here, *self.shape[self.dim + 1 :])

    @property
    def sample_bytes(self) -> int:
        """Return the bytes of one sample; 0 for a tensor without samples."""
        if self.dim < 0:
            return 0
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize // self.batch


@dataclass(eq=False)
class DividedModel:
    """A model, its samples, and the operators in front of which it may be cut.

    Attributes:
        path: The model's file, with weights.
        graph: The model for the whole batch.
        bytes_per_mac: Bytes that are moved while one multiplication is made: parts shall take about
            as long as each other.
        obstacle: Why samples cannot run apart; empty where they can.
    """

    path: Path
    graph: Graph
    bytes_per_mac: float = 0.25
    obstacle: str = ""
    _kept: dict[int, ModelNodes] = field(default_factory=dict)

    @staticmethod
    def of(path: Path, graph: Graph, bytes_per_mac: float = 0.25) -> DividedModel:
        """Return a model that can run in parts, as far as its samples can be told apart.

        Args:
            path: A file with weights.
            graph: The graph that was imported of it.
            bytes_per_mac: Bytes per multiplication of the processor; it says where cuts suit.
        """
        model = DividedModel(path, graph, bytes_per_mac)
        model.obstacle = model._obstacle()
        return model

    @functools.cached_property
    def proto(self) -> onnx.ModelProto:
        """Return the model in its file, without the data files beside it."""
        return onnx.load(self.path, load_external_data=False)

    @functools.cached_property
    def trace(self) -> BatchTrace:
        """Return the dimensions and axes that count samples."""
        return trace_batch(self.graph)

    @functools.cached_property
    def sizes(self) -> tuple[int, ...]:
        """Return the numbers of samples that may run at once, ascending: they divide the batch."""
        batch, sizes = self.graph.batch, [1]
        if self.obstacle:
            return (batch,)
        for samples in range(2, batch + 1):
            if batch % samples == 0 and (samples >= _STEP * sizes[-1] or samples == batch):
                sizes.append(samples)
        return tuple(sizes)

    def model_of(self, part: range, samples: int) -> bytes:
        """Return the ONNX model of a part for some samples; it may refer to files beside the model.

        Raises:
            VerifyError: The model cannot be written for so many samples.
        """
        text: bytes = plain_model(self.nodes(samples), part).SerializeToString()
        return text

    def inputs_of(self, part: range) -> list[Placement]:
        """Return the memory of the tensors that a part takes."""
        return [self.placements[tensor] for tensor in entering(self.graph, part)]

    def outputs_of(self, part: range) -> list[Placement]:
        """Return the memory of the tensors that a part gives."""
        return [self.placements[tensor] for tensor in leaving(self.graph, part)]

    @functools.cached_property
    def inputs(self) -> dict[str, Placement]:
        """Return the model's inputs by name."""
        return {self.graph.tensors[t].name: self.placements[t] for t in self.graph.inputs}

    @functools.cached_property
    def outputs(self) -> dict[str, Placement]:
        """Return the model's outputs by their names in its file."""
        given = self.nodes(self.graph.batch).outputs
        return {name: self.placements[value.tensor] for name, value in given}

    @functools.cached_property
    def placements(self) -> dict[int, Placement]:
        """Return the memory of every tensor that is not constant, by its index."""
        found = {}
        for index, element in element_types(self.nodes(self.graph.batch)).items():
            tensor = self.graph.tensors[index]
            dim, _ = self.trace.tensors.get(index, (-1, 0))
            dtype = np.dtype(helper.tensor_dtype_to_np_dtype(element))
            found[index] = Placement(tensor.name, tensor.shape, dtype, dim, self.graph.batch)
        return found

    def nodes(self, samples: int) -> ModelNodes:
        """Return the nodes of the model for some samples.

        Raises:
            VerifyError: The model cannot be written for so many samples.
        """
        if samples not in self._kept:
            whole = samples == self.graph.batch
            graph = self.graph if whole else rebatch(self.graph, samples, self.trace)
            self._kept[samples] = nodes_at(self.path, graph, self.graph)
        return self._kept[samples]

    # ------------------------------------------------------------------------------------- cuts

    @functools.cached_property
    def parts(self) -> tuple[range, ...]:
        """Return runs of operators that take about as long each, cut where little is handed on."""
        operators, work = self.graph.operators, self._work()
        total, cuts = work[-1], [0]
        handed = dict(self._handed_on())
        for number in range(1, MOST_PARTS):
            near = [
                at for at in handed
                if at > cuts[-1]
                and abs(work[at] - number * total / MOST_PARTS) < total / (2 * MOST_PARTS)
            ]  # fmt: skip
            if near:
                # Where least is handed on; of equal places the first.
                cuts.append(min(near, key=lambda at: (handed[at], at)))
        return tuple(map(range, cuts, [*cuts[1:], len(operators)]))

    def _work(self) -> list[float]:
        """Return, before each operator and at the end, about how long all earlier ones take."""
        work = [0.0]
        for operator in self.graph.operators:
            moved = sum(
                self.placements[t].sample_bytes
                for t in (*operator.inputs, *operator.outputs)
                if t in self.placements
            )
            work.append(work[-1] + moved + self.bytes_per_mac * operator.macs / self.graph.batch)
        return work

    def _handed_on(self) -> Iterator[tuple[int, int]]:
        """Yield the operators in front of which to cut, with the bytes handed on of a sample.

        These are the operators with products: what follows one is mostly computed along with it.
        """
        if self.obstacle:
            return
        last = {t: max(self.graph.consumers[t], default=-1) for t in self.placements}
        for at, operator in enumerate(self.graph.operators):
            if at == 0 or not operator.macs:
                continue
            handed = [
                t
                for made in self.graph.operators[:at]
                for t in made.outputs
                if last.get(t, -1) >= at
            ]
            # Calls are bound to rows of one array: samples have to lie one after another.
            if all(self._is_row(t) for t in handed):
                yield at, sum(self.placements[t].sample_bytes for t in handed)

    def _is_row(self, tensor: int) -> bool:
        """Return whether the samples of a tensor lie one after another, or it has none."""
        if tensor not in self.trace.tensors:
            return True
        (dim, unit), shape = self.trace.tensors[tensor], self.graph.tensors[tensor].shape
        return shape[dim] == unit * self.graph.batch and set(shape[:dim]) <= {1}

    def _obstacle(self) -> str:
        """Return why samples cannot run apart; empty where they can."""
        graph = self.graph
        if graph.batch == 1 or not graph.operators:
            return "there is one sample alone"
        if self.trace.obstacle is not None:
            return str(self.trace.obstacle)
        for tensor in (*graph.inputs, *graph.outputs):
            if not self._is_row(tensor):
                name = graph.tensors[tensor].name
                return f"the samples of {name} do not lie one after another"
        for constant in self.nodes(1).repeated:
            if not self._is_alike(constant):
                return f"the constant {constant.original} is another one for each sample"
        return ""

    def _is_alike(self, constant: Repeated) -> bool:
        """Return whether a constant of the file has the same elements for every sample."""
        stored = self.nodes(1).stored.get(constant.original)
        if stored is None or not stored.raw_data:
            return False
        values = numpy_helper.to_array(stored)
        first = values.take(constant.taken(0), axis=constant.dim)
        others = (values.take(constant.taken(i), axis=constant.dim) for i in range(constant.batch))
        return all(np.array_equal(first, other) for other in others)


def with_weights_drawn(path: Path, folder: Path) -> Path:
    """Return a model's file; one with random weights, in a folder, where its own are not there."""
    proto = onnx.load(path, load_external_data=False)
    if not attach(proto.graph, Source(path), seeded=True).missing:
        return path
    return with_random_weights(path, folder, 0)
