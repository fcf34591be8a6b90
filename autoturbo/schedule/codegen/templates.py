"""Kernel templates of a model, numbered, with what the timeline reads of each.

A template is numbered by its class of parts and its binding. :class:`Outline` leaves out all that
depends on where buffers end up.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from autoturbo.graph.arrays import Ints
from autoturbo.schedule.codegen.stitch import Stage, Template, stitch
from autoturbo.schedule.place.bind import BindingBook, binding_book
from autoturbo.schedule.place.instances import PartBook, part_shape
from autoturbo.schedule.problem import Problem
from autoturbo.stores import Store, remembered


class Input(NamedTuple):
    """A tensor that a kernel reads from outside.

    Attributes:
        tensor: which.
        wanted: number of the binding that the kernel wants of it, -1 for any.
        rank: its dimensions.
        element: bytes of an element.
    """

    tensor: int
    wanted: int
    rank: int
    element: int


class Read(NamedTuple):
    """A tensor that a layer reads.

    Attributes:
        inside: whether the kernel makes it.
        which: the number of the write that makes it, else of the input that it is.
        size: bytes of the cluster.
    """

    inside: bool
    which: int
    size: int


class Write(NamedTuple):
    """A tensor that a layer writes.

    Attributes:
        tensor: which.
        size: bytes of the cluster.
        core_size: bytes of the busiest core.
        unread: whether nobody reads it.
        also_out: whether it is an output of the model that is read too.
    """

    tensor: int
    size: int
    core_size: int
    unread: bool
    also_out: bool


class LayerOutline(NamedTuple):
    """What a layer of a kernel reads and writes.

    Attributes:
        reads: in order.
        writes: likewise.
        reuse: the number of the write that an elementwise layer may write over, -1 for none: what
            other cores still get of a tensor is not written over.
    """

    reads: tuple[Read, ...]
    writes: tuple[Write, ...]
    reuse: int


@dataclass(frozen=True, slots=True)
class Outline:
    """What the timeline reads of a template.

    Attributes:
        inputs: tensors from outside.
        layers: in order; the last one's writes are the kernel's outputs.
        weights: bytes of weights of the cluster.
        core_weights: of one core.
        whole: whether every part reads all weights.
    """

    inputs: tuple[Input, ...]
    layers: tuple[LayerOutline, ...]
    weights: int
    core_weights: int
    whole: bool

    def renamed(self, tensors: Mapping[int, int]) -> Outline:
        """Return the outline of an isomorphic sub-graph, given its tensors by those of this one."""
        inputs = tuple(own._replace(tensor=tensors[own.tensor]) for own in self.inputs)
        layers = tuple(
            own._replace(writes=tuple(w._replace(tensor=tensors[w.tensor]) for w in own.writes))
            for own in self.layers
        )
        return dataclasses.replace(self, inputs=inputs, layers=layers)


@dataclass(eq=False)
class TemplateBook:
    """The templates of a problem.

    Attributes:
        bindings: that inputs are wanted in.
        number: by class of parts and number of the binding.
        templates: by number.
        outlines: likewise.
        digests: likewise, of all that a kernel's time depends on.
        local_bytes: likewise, what a core reads and writes in its local buffer.
        layers: of all templates together.
        first: by class of parts and binding, the template that others differ from in their tensors
            only.
    """

    bindings: BindingBook
    number: dict[tuple[int, int], int] = field(default_factory=dict)
    templates: list[Template] = field(default_factory=list)
    outlines: list[Outline] = field(default_factory=list)
    digests: Store = field(default_factory=lambda: Store((2,)))
    local_bytes: Store = field(default_factory=lambda: Store((), np.float64))
    layers: int = 0
    first: dict[tuple[int, int], int] = field(default_factory=dict)


@remembered(1)
def template_book(book: PartBook) -> TemplateBook:
    """Return the templates of a book of parts."""
    return TemplateBook(binding_book(book))


def templates_of(parts: PartBook, shapes: Ints, bindings: Ints) -> Ints:
    """Return the numbers of the templates of some classes of parts, each bound in some way."""
    book = template_book(parts)
    pairs = list(zip(shapes.tolist(), bindings.tolist(), strict=True))
    for shape, binding in dict.fromkeys(pairs):
        if (shape, binding) not in book.number:
            book.number[shape, binding] = len(book.templates)
            _add(parts, book, shape, binding)
    return np.asarray([book.number[pair] for pair in pairs], np.int64)


def _add(parts: PartBook, book: TemplateBook, shape: int, binding: int) -> None:
    problem, layers = parts.problem, parts.shapes[shape].layers
    alike, number = (parts.alike[shape], binding), len(book.templates)
    first = book.first.setdefault(alike, number)
    if first == number:
        bound = book.bindings.bindings[binding]
        template = stitch(problem, layers, part_shape(parts, shape), bound)
        outline = _outline(problem, book.bindings, template)
    else:
        template = book.templates[first]
        tensors = dict(zip(*(_tensors(problem, x) for x in (template.layers, layers)), strict=True))
        template, outline = template.renamed(layers, tensors), book.outlines[first].renamed(tensors)
    book.templates.append(template)
    book.outlines.append(outline)
    book.digests.add(np.frombuffer(template.digest, np.int64))
    touched = [Stage.READ, Stage.WRITTEN, Stage.CORE_WEIGHTS]
    book.local_bytes.add([float(template.stages[:, touched].sum())])
    book.layers += len(layers)


def _tensors(problem: Problem, layers: tuple[int, ...]) -> dict[int, None]:
    """Return what layers read and make, in an order that isomorphic sub-graphs share."""
    return dict.fromkeys(
        t for index in layers
        for t in (*problem.layers[index].inputs, *problem.layers[index].outputs)
    )  # fmt: skip


def _outline(problem: Problem, bindings: BindingBook, template: Template) -> Outline:
    write_of: dict[int, int] = {}
    last = last_readers(problem, template)
    layers = tuple(
        _layer(problem, template, position, write_of, last)
        for position in range(len(template.layers))
    )
    weights, core = template.stages[:, [Stage.WEIGHTS, Stage.CORE_WEIGHTS]].sum(axis=0).tolist()
    inputs = tuple(_input(problem, bindings, template, t) for t in template.inputs)
    whole = int(weights) == _all_weights(problem, template)
    return Outline(inputs, layers, int(weights), int(core), whole)


def last_readers(problem: Problem, template: Template) -> dict[int, int]:
    """Return, per tensor, the position of the last layer of the kernel that reads it."""
    return {
        tensor: position
        for position, layer in enumerate(template.layers)
        for tensor in problem.layers[layer].inputs
    }


def _input(problem: Problem, bindings: BindingBook, template: Template, tensor: int) -> Input:
    wanted = template.wanted.get(tensor)
    number = -1 if wanted is None else bindings.number(wanted)
    rank = len(problem.graph.tensors[tensor].shape)
    return Input(tensor, number, rank, int(problem.arrays.element[tensor]))


def _layer(
    problem: Problem,
    template: Template,
    position: int,
    write_of: dict[int, int],
    last: dict[int, int],
) -> LayerOutline:
    """Return one layer's outline; note what it writes in ``write_of``."""
    layer = problem.layers[template.layers[position]]
    reads = tuple(
        Read(t in write_of, write_of[t] if t in write_of else template.inputs.index(t), size)
        for t, size in template.reads[position]
    )  # fmt: skip
    crossing = template.exchanged[position]
    dying = [
        t for t, crosses in zip(layer.inputs, crossing, strict=True)
        if t in write_of and last[t] == position and not crosses
    ]  # fmt: skip
    reuse = write_of[dying[0]] if layer.in_place and dying else -1
    writes = tuple(_write(problem, *each) for each in template.writes[position])
    for tensor, _, _ in template.writes[position]:
        write_of[tensor] = len(write_of)
    return LayerOutline(reads, writes, reuse)


def _write(problem: Problem, tensor: int, size: int, core: int) -> Write:
    read = bool(problem.consumers[tensor])
    return Write(tensor, size, core, not read, read and tensor in problem.graph.outputs)


def _all_weights(problem: Problem, template: Template) -> int:
    """Return the bytes of all weights of a sub-graph.

    A part that reads them all shares them with the other parts; parts along output channels each
    have weights of their own, lookups different rows.
    """
    return sum(
        problem.graph.tensors[t].elements * int(problem.arrays.element[t])
        for layer in template.layers
        for index in problem.layers[layer].operators
        for t in problem.graph.operators[index].inputs
        if problem.graph.tensors[t].constant
    )
