"""Buffer stitching: all layers of an instance in one kernel (GraphTurbo, OSDI '23, section 4.2).

A :class:`Template` is what all instances of a sub-graph with the same part shape and binding have
in common: per layer, the work of one core, the weights, and what comes from other cores. Where
buffers end up is decided later and differs from instance to instance.
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from autoturbo.caches import remembered
from autoturbo.graph.arrays import Ints, Regions, whole_bytes
from autoturbo.schedule.context import SchedulingContext
from autoturbo.schedule.partition.boxes import external_inputs
from autoturbo.schedule.place.bind import Binding, Placement, extents_in, layer_bindings
from autoturbo.schedule.place.instances import InstanceGraph, PartBook, part_shape
from autoturbo.schedule.stitch.lines import TileReads, tile_reads
from autoturbo.schedule.stitch.stages import Stage, part_memory, stage_table
from autoturbo.schedule.work import Floats


@dataclass(frozen=True, slots=True, eq=False)
class Template:
    """Code-generation data shared by the instances of one sub-graph, part shape and binding.

    Attributes:
        layers: Layer indices in order.
        binding: Binding of the output.
        stages: Array (layers, :data:`STAGE_COLUMNS`).
        bindings: Per layer, the binding of its output.
        inputs: External input tensors.
        wanted: Per external input, the binding that the kernel wants.
        reads: Per layer, ``(tensor, cluster bytes)`` of its activations.
        writes: Per layer, ``(tensor, cluster bytes, bytes per core)`` of its outputs.
        exchanged: Per layer, of each activation that it reads, bytes that a core gets from others.
        reuse: Per layer, the tensor that an elementwise one may write over, -1 for none: what other
            cores still get of a tensor is not written over.
        local_bytes: Bytes that a core reads and writes in its local buffer.
        digest: Digest of all that its time depends on.
    """

    layers: tuple[int, ...]
    binding: Binding
    stages: Floats
    bindings: tuple[Binding, ...]
    inputs: tuple[int, ...]
    wanted: dict[int, Binding]
    reads: tuple[tuple[tuple[int, int], ...], ...]
    writes: tuple[tuple[tuple[int, int, int], ...], ...]
    exchanged: tuple[tuple[int, ...], ...]
    reuse: tuple[int, ...]
    local_bytes: float
    digest: bytes

    def renamed(self, layers: tuple[int, ...], tensors: Mapping[int, int]) -> Template:
        """Return the template of an isomorphic sub-graph, with its layers and tensors."""
        return dataclasses.replace(
            self, layers=layers, inputs=tuple(tensors[t] for t in self.inputs),
            wanted={tensors[t]: binding for t, binding in self.wanted.items()},
            reads=tuple(tuple((tensors[t], size) for t, size in own) for own in self.reads),
            writes=tuple(tuple((tensors[t], a, b) for t, a, b in own) for own in self.writes),
            reuse=tuple(tensors.get(t, -1) for t in self.reuse),
        )  # fmt: skip


def templates_of(graph: InstanceGraph, placement: Placement) -> tuple[Template, ...]:
    """Return the templates of all instances, given the bindings of their outputs."""
    limits = placement.limits or (0,) * graph.count
    kinds = zip(graph.shape.tolist(), placement.bindings, limits, strict=True)
    return tuple(template_of(graph.book, *kind) for kind in kinds)


def template_of(book: PartBook, shape: int, binding: Binding, limit: int = 0) -> Template:
    """Return the template of a class of parts for a binding of its output; cached.

    Of isomorphic sub-graphs the first is stitched; the others get its template, renamed.

    Args:
        book: The book that the class comes from.
        shape: The number of the class.
        binding: Binding of the output.
        limit: The most cores that a layer is spread over, 0 for all.
    """
    known = known_templates(book)
    template = known.get((shape, binding, limit))
    if template is None:
        context, layers, alike = book.context, book.shapes[shape].layers, book.alike
        if alike[shape] == shape:
            template = stitch(context, layers, part_shape(book, shape), binding, limit)
        else:
            first = template_of(book, alike[shape], binding, limit)
            pairs = zip(*(_tensors(context, own) for own in (first.layers, layers)), strict=True)
            template = first.renamed(layers, dict(pairs))
        known[shape, binding, limit] = template
    return template


def reads_of(book: PartBook, shape: int, template: Template) -> TileReads:
    """Return the tile reads of the kernels of a class of parts; cached.

    Args:
        book: The book that the class comes from.
        shape: The number of the class.
        template: Template of its kernels.
    """
    known, key = _known_reads(book), (book.alike[shape], template.bindings)
    if key not in known:
        layers = template.layers
        known[key] = tile_reads(
            book.context, layers, local_edges(book.context, layers), part_shape(book, shape),
            template.bindings, template.exchanged,
        )  # fmt: skip
    return known[key]


@remembered(1)
def _known_reads(book: PartBook) -> dict[tuple[int, tuple[Binding, ...]], TileReads]:
    """Return the cached tile reads of a book, by class of parts and bindings of its layers."""
    del book  # they are remembered for it
    return {}


@remembered(1)
def known_templates(book: PartBook) -> dict[tuple[int, Binding, int], Template]:
    """Return the cached templates of a book, by class of parts, binding and limit of cores."""
    del book  # they are remembered for it
    return {}


def _tensors(context: SchedulingContext, layers: Sequence[int]) -> tuple[int, ...]:
    """Return the tensors of layers, in an order that isomorphic sub-graphs share."""
    members = (context.layers[layer] for layer in layers)
    return tuple(dict.fromkeys(t for layer in members for t in layer.inputs + layer.outputs))


def stitch(
    context: SchedulingContext,
    layers: tuple[int, ...],
    shape: Regions,
    binding: Binding,
    limit: int = 0,
) -> Template:
    """Return the template of a part for a binding of its output.

    Args:
        context: The model on the target.
        layers: Layers of the part.
        shape: Regions of the part.
        binding: Parts of the output along each dimension, one per core.
        limit: The most cores that a layer is spread over, 0 for all.
    """
    members, memory = [context.layers[x] for x in layers], part_memory(context, layers, shape)
    outputs = [t for layer in members for t in layer.outputs]
    extents = dict(zip(outputs, extents_in(context, outputs, shape), strict=True))
    firsts = tuple(extents[layer.outputs[0]] for layer in members)
    chosen, wanted = layer_bindings(context, layers, firsts, binding, limit)
    bindings = tuple(map(chosen.__getitem__, layers))
    held = dict[int, Binding]()
    for layer, first in zip(members, bindings, strict=True):
        for tensor in layer.outputs:  # dimension by dimension like the first; one has no more parts
            held[tensor] = (*first, *(1,) * len(extents[tensor]))[: len(extents[tensor])]

    def core_bytes(tensor: int) -> int:  # on the busiest core
        element = int(context.arrays.element[tensor]) if shape.seen[tensor] else 0
        pairs = zip(extents[tensor], held[tensor], strict=True)
        return element * math.prod(-(-max(n, 0) // parts) for n, parts in pairs)

    stages, exchanged = stage_table(context, layers, shape, extents, held | wanted, memory, limit)
    digest = hashlib.blake2b(stages.tobytes(), digest_size=16)
    # Waits are not in the stages, but the time depends on them.
    waits = local_edges(context, layers), clearances(context, layers)
    digest.update(repr(waits).encode())
    return Template(
        layers, binding, stages, bindings, external_inputs(context, layers), wanted,
        tuple(tuple((t, memory[t][0]) for t in layer.inputs) for layer in members),
        tuple(tuple((t, memory[t][0], core_bytes(t)) for t in layer.outputs) for layer in members),
        exchanged, _reused(context, layers, exchanged),
        float(stages[:, [Stage.READ, Stage.WRITTEN, Stage.CORE_WEIGHTS]].sum()), digest.digest(),
    )  # fmt: skip


def _reused(
    context: SchedulingContext, layers: tuple[int, ...], exchanged: Sequence[Sequence[int]]
) -> tuple[int, ...]:
    """Return the inputs whose space outputs may reuse, as :attr:`Template.reuse` has them."""
    last, made_tensors, reused = last_readers(context, layers), set[int](), []
    for position, (index, crossing) in enumerate(zip(layers, exchanged, strict=True)):
        layer = context.layers[index]
        pairs = zip(layer.inputs, crossing, strict=True) if layer.in_place else ()
        dying = (t for t, size in pairs if t in made_tensors and last[t] == position and not size)
        # The first that dies; the other one's space is free for the next layer.
        reused.append(next(dying, -1))
        made_tensors.update(layer.outputs)
    return tuple(reused)


def last_readers(context: SchedulingContext, layers: tuple[int, ...]) -> dict[int, int]:
    """Return, per tensor, the position of the last layer of a kernel that reads it."""
    return {
        t: position for position, layer in enumerate(layers) for t in context.layers[layer].inputs
    }


def shares_weights(context: SchedulingContext, template: Template) -> bool:
    """Return whether the sub-graph has weights and every part of it reads all of them.

    Parts along output channels each have weights of their own, lookups different rows.
    """
    total = sum(_weights_of(context, layer)[1] for layer in template.layers)
    return 0 < total == int(template.stages[:, Stage.WEIGHTS].sum())


def weight_hashes(context: SchedulingContext, template: Template) -> Ints:
    """Return a hash of the weights of each layer, 0 for one that has none or reads a part of them.

    Layers that read the same initialisers have the same.
    """
    known = [_weights_of(context, layer) for layer in template.layers]
    sizes = template.stages[:, Stage.WEIGHTS].tolist()
    found = [own if 0 < all_ == size else 0 for (own, all_), size in zip(known, sizes, strict=True)]
    return np.asarray(found, np.int64)


@remembered(1 << 14)
def _weights_of(context: SchedulingContext, layer: int) -> tuple[int, int]:
    """Return a hash of the constants that a layer reads, and their bytes; cached."""
    tensors, operators = context.graph.tensors, context.graph.operators
    weights = [
        t
        for op in context.layers[layer].operators
        for t in operators[op].inputs
        if tensors[t].constant
    ]
    elements = [tensors[t].elements for t in weights]
    # Seven bytes, which a signed integer of 64 bits holds.
    digest = hashlib.blake2b(repr(weights).encode(), digest_size=7).digest()
    size = int(whole_bytes(context.arrays, elements, weights).sum())
    return int.from_bytes(digest, "big"), size


@remembered(1 << 14)
def local_edges(context: SchedulingContext, layers: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Return, per layer of a kernel, the positions of the layers that it waits for; cached."""
    position = {layer: p for p, layer in enumerate(layers)}
    makers = ([context.producer[t] for t in context.layers[layer].inputs] for layer in layers)
    return [tuple(position[maker] for maker in needed if maker in position) for needed in makers]


@remembered(1 << 14)
def clearances(context: SchedulingContext, layers: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Find the layers whose space in LB each layer of a kernel may overwrite; cached.

    Space in LB is reused as if layers ran one after another. They do not: the matrix engine may be
    at a layer while the vector engine still works on an earlier one of another branch. So a layer
    waits for every earlier one that accesses a tensor whose space may be its own by then, though it
    reads nothing of it. Layers that it waits for anyway, directly or through others, are left out.

    Returns:
        Per layer, the positions in the kernel of the layers that it waits for, the latest first.
    """
    # sets of positions are the bits of integers: a kernel may have all layers
    kernel_layers = [context.layers[layer] for layer in layers]
    maker, last, touching = dict[int, int](), dict[int, int](), defaultdict[int, int](int)
    for position, layer in enumerate(kernel_layers):
        maker |= dict.fromkeys(layer.outputs, position)
        for tensor in layer.inputs + layer.outputs:
            last[tensor], touching[tensor] = position, touching[tensor] | 1 << position
    over, waits, free = list[int](), [], 0
    for position, layer in enumerate(kernel_layers):
        before, waiting, positions = 0, free, []
        for tensor in (t for t in layer.inputs if t in maker):
            before |= over[maker[tensor]] | 1 << maker[tensor]
            waiting |= touching[tensor] if layer.in_place and last[tensor] == position else 0
        waiting &= (1 << position) - 1 & ~before
        while waiting:
            latest = waiting.bit_length() - 1
            positions.append(latest)
            before |= over[latest] | 1 << latest
            waiting &= ~before
        over.append(before)
        waits.append(tuple(positions))
        for tensor in layer.inputs + layer.outputs:
            free |= touching[tensor] if last[tensor] == position else 0
    return waits
