"""Movements as objects: the inputs of a kernel, put together from pieces of several instances."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from autoturbo.schedule.memory.movement import Movements, move
from autoturbo.schedule.memory.timeline import Timeline
from autoturbo.schedule.place.bind import Placement
from autoturbo.schedule.place.instances import InstanceGraph
from autoturbo.schedule.stitch.templates import Template, templates_of


class MovementKind(StrEnum):
    """What has to be done to a piece before a kernel can read it in place."""

    COPY = "copy"
    REDISTRIBUTE = "redistribute"


_KINDS = (None, MovementKind.COPY, MovementKind.REDISTRIBUTE)


@dataclass(frozen=True, slots=True)
class Piece:
    """What one producer contributes to an input of a consumer.

    Attributes:
        producer: instance that made it.
        tensor: which tensor.
        cluster_bytes: bytes of the region that the consumer reads.
        movement: what must be done first, None if it is read where it lies.
        crossing_bytes: bytes that the busiest core gets from other cores.
    """

    producer: int
    tensor: int
    cluster_bytes: int
    movement: MovementKind | None
    crossing_bytes: int


@dataclass(frozen=True, slots=True)
class Concat:
    """An input of a kernel, put together from pieces.

    Attributes:
        tensor: which tensor.
        pieces: in order of their producers.
        core_bytes: bytes of all moved pieces on the busiest core, once the input is bound as
            wanted: pieces that go to different cores share one address.
    """

    tensor: int
    pieces: tuple[Piece, ...]
    core_bytes: int

    @property
    def moved(self) -> tuple[Piece, ...]:
        """Pieces that a movement brings in before the kernel."""
        return tuple(piece for piece in self.pieces if piece.movement is not None)


def concats(timeline: Timeline, instance: int) -> tuple[Concat, ...]:
    """The inputs of an instance's kernel that other instances make."""
    return concats_of(timeline.graph, timeline.movements, instance)


def concats_of(graph: InstanceGraph, movements: Movements, index: int) -> tuple[Concat, ...]:
    """The inputs of an instance's kernel that other instances make, as objects."""
    links, inputs = graph.links, graph.parts[int(graph.subgraph[index])].inputs
    own = range(int(links.start[index]), int(links.start[index + 1]))
    slots = dict.fromkeys(int(links.slot[link]) for link in own)
    found = []
    for slot in slots:
        mine = [link for link in own if links.slot[link] == slot]
        pieces = tuple(_piece(graph, movements, link, inputs[slot]) for link in mine)
        found.append(Concat(inputs[slot], pieces, int(movements.core_bytes[mine[0]])))
    return tuple(found)


def _piece(graph: InstanceGraph, movements: Movements, link: int, tensor: int) -> Piece:
    links = graph.links
    return Piece(
        int(links.maker[link]), tensor, int(links.size[link]),
        _KINDS[int(movements.kind[link])], int(movements.crossing[link]),
    )  # fmt: skip


def concatenations(
    graph: InstanceGraph, placement: Placement, index: int, template: Template
) -> tuple[Concat, ...]:
    """The inputs of one instance's kernel, whatever kernel that is."""
    templates = templates_of(graph, placement)
    if templates[index].binding != template.binding:
        msg = f"instance {index} is bound {placement.bindings[index]}, not {template.binding}"
        raise ValueError(msg)
    movements = move(graph, np.arange(graph.count), placement, templates)
    return concats_of(graph, movements, index)
