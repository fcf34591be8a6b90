"""Stitched kernels as flat arrays: what compiled code reads while it writes the timeline.

A template is numbered by its class of parts and its binding. Everything that does not depend on
where buffers end up is here; :class:`autoturbo.schedule.stitch.Template` is the same as an object.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

import numpy as np

from autoturbo.graph.arrays import Ints
from autoturbo.schedule.bind import BindingBook, binding_book
from autoturbo.schedule.instances import part_book, part_shape
from autoturbo.schedule.problem import Problem
from autoturbo.schedule.stitch import Stage, Template, stitch
from autoturbo.schedule.stores import PairTable, Store


class Head(IntEnum):
    """Columns of the table of templates.

    First row and number of layers; first entry and number of external inputs; bytes of weights of
    the cluster and of one core; 1 if every part reads all weights; tensors written.
    """

    ROW = 0
    LAYERS = 1
    SLOT = 2
    SLOTS = 3
    WEIGHTS = 4
    CORE_WEIGHTS = 5
    WHOLE = 6
    WRITES = 7


class Row(IntEnum):
    """Columns of the table of layers.

    First entry and number of tensors read; of tensors written; the tensor of the kernel (by number
    of its write) that an elementwise layer may write over, -1 for none: what other cores still get
    of a tensor is not written over.
    """

    READ = 0
    READS = 1
    WRITE = 2
    WRITES = 3
    REUSE = 4


class Slot(IntEnum):
    """Columns of the table of external inputs: tensor, binding wanted (-1: any), rank, element."""

    TENSOR = 0
    WANTED = 1
    RANK = 2
    ELEMENT = 3


class Read(IntEnum):
    """Columns of the table of reads.

    1 if made in the kernel, then by which write, else which input; bytes of the cluster.
    """

    INSIDE = 0
    WHICH = 1
    BYTES = 2


class Write(IntEnum):
    """Columns of the table of writes.

    Tensor, bytes of the cluster and of the busiest core, 1 for the kernel's own output, 1 if nobody
    reads it, 1 if it is an output of the model that is read too.
    """

    TENSOR = 0
    BYTES = 1
    CORE_BYTES = 2
    LAST = 3
    UNREAD = 4
    ALSO_OUT = 5


class TemplateTables(NamedTuple):
    """All templates for compiled code."""

    heads: Ints
    rows: Ints
    slots: Ints
    reads: Ints
    writes: Ints
    factors: Ints
    ranks: Ints


@dataclass(eq=False)
class TemplateBook:
    """The templates of a problem.

    Attributes:
        number: by class of parts and binding.
        templates: by number.
    """

    bindings: BindingBook
    number: PairTable = field(default_factory=PairTable)
    templates: list[Template] = field(default_factory=list)
    heads: Store = field(default_factory=lambda: Store((len(Head),)))
    rows: Store = field(default_factory=lambda: Store((len(Row),)))
    slots: Store = field(default_factory=lambda: Store((len(Slot),)))
    reads: Store = field(default_factory=lambda: Store((len(Read),)))
    writes: Store = field(default_factory=lambda: Store((len(Write),)))
    digests: Store = field(default_factory=lambda: Store((2,)))
    local_bytes: Store = field(default_factory=lambda: Store((), np.float64))

    def tables(self) -> TemplateTables:
        """Everything for compiled code."""
        return TemplateTables(
            self.heads.rows, self.rows.rows, self.slots.rows, self.reads.rows, self.writes.rows,
            self.bindings.factors.rows, self.bindings.ranks.rows,
        )  # fmt: skip


def template_book(problem: Problem) -> TemplateBook:
    """The book of a problem."""
    found = problem.books.get("templates")
    if not isinstance(found, TemplateBook):
        found = TemplateBook(binding_book(problem))
        problem.books["templates"] = found
    return found


def templates_of(problem: Problem, shapes: Ints, bindings: Ints) -> Ints:
    """Numbers of the templates of some classes of parts, each bound in some way."""
    book = template_book(problem)
    book.number.reach(int(shapes.max(initial=0)) + 1, int(bindings.max(initial=0)) + 1)
    found: Ints = book.number.cells[shapes, bindings]
    if (found < 0).any():
        pairs = np.unique(np.stack((shapes, bindings))[:, found < 0], axis=1)
        for shape, binding in pairs.T.tolist():
            book.number.put(shape, binding, _add(problem, book, shape, binding))
        found = book.number.cells[shapes, bindings]
    return found


def _add(problem: Problem, book: TemplateBook, shape: int, binding: int) -> int:
    layers = part_book(problem).shapes[shape].layers
    bound = book.bindings.bindings[binding]
    template = stitch(problem, layers, part_shape(problem, shape), bound)
    book.templates.append(template)
    book.digests.add(np.frombuffer(template.digest, np.int64))
    touched = [Stage.READ, Stage.WRITTEN, Stage.CORE_WEIGHTS]
    book.local_bytes.add([float(template.stages[:, touched].sum())])
    write_of: dict[int, int] = {}
    last = last_readers(problem, template)
    rows = [
        _row(problem, book, template, position, write_of, last) for position in range(len(layers))
    ]
    weights = template.stages[:, [Stage.WEIGHTS, Stage.CORE_WEIGHTS]].sum(axis=0)
    head = [
        book.rows.add(rows), len(rows),
        book.slots.add([_slot(problem, book, template, t) for t in template.inputs]),
        len(template.inputs), int(weights[0]), int(weights[1]),
        int(int(weights[0]) == _all_weights(problem, template)), len(write_of),
    ]  # fmt: skip
    return book.heads.add([head])


def last_readers(problem: Problem, template: Template) -> dict[int, int]:
    """Per tensor, the position of the last layer of the kernel that reads it."""
    return {
        tensor: position
        for position, layer in enumerate(template.layers)
        for tensor in problem.layers[layer].inputs
    }


def _slot(problem: Problem, book: TemplateBook, template: Template, tensor: int) -> list[int]:
    wanted = template.wanted.get(tensor)
    number = -1 if wanted is None else book.bindings.number(wanted)
    rank = len(problem.graph.tensors[tensor].shape)
    return [tensor, number, rank, int(problem.arrays.element[tensor])]


def _row(
    problem: Problem,
    book: TemplateBook,
    template: Template,
    position: int,
    write_of: dict[int, int],
    last: dict[int, int],
) -> list[int]:
    """One layer's row; notes what it writes in ``write_of``."""
    layer = problem.layers[template.layers[position]]
    reads = [
        [1, write_of[t], size] if t in write_of else [0, template.inputs.index(t), size]
        for t, size in template.reads[position]
    ]
    crossing = template.exchanged[position]
    dying = [
        t for t, crosses in zip(layer.inputs, crossing, strict=True)
        if t in write_of and last[t] == position and not crosses
    ]  # fmt: skip
    reuse = write_of[dying[0]] if layer.in_place and dying else -1
    writes = [
        _write(problem, template, position, tensor, size, core)
        for tensor, size, core in template.writes[position]
    ]
    for tensor, _, _ in template.writes[position]:
        write_of[tensor] = len(write_of)
    return [book.reads.add(reads), len(reads), book.writes.add(writes), len(writes), reuse]


def _write(
    problem: Problem, template: Template, position: int, tensor: int, size: int, core: int
) -> list[int]:
    read = bool(problem.consumers[tensor])
    also_out = read and tensor in problem.graph.outputs
    final = position == len(template.layers) - 1
    return [tensor, size, core, int(final), int(not read), int(also_out)]


def _all_weights(problem: Problem, template: Template) -> int:
    """Bytes of all weights of a sub-graph.

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
