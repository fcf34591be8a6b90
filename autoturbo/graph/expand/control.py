"""Loops of a known number of trips, written out trip by trip.

Each trip is then scheduled as what it computes, and values that do not change from trip to trip are
computed once. Loops that a value may end early, or that are long, stay whole; of a long one the
first trip is written, so that its work is known.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from onnx import GraphProto, numpy_helper

from autoturbo.graph.expand.renaming import Renaming
from autoturbo.graph.expand.writer import Writer, refuse_unless
from autoturbo.graph.structure import captured_names

MOST_NODES = 4000
"""Nodes that a loop may become."""


@dataclass(frozen=True, slots=True)
class Trips:
    """How often a loop goes through its body.

    Attributes:
        count: trips.
        nodes: of the body.
        carried: names of the values that go from trip to trip: before the first and behind the
            last that is written.
    """

    count: int
    nodes: int
    carried: tuple[tuple[str, str], ...]


def loop(w: Writer, *, once: bool = False) -> Trips:
    """Write a Loop whose trips are known before it runs; only the first trip if that is asked."""
    body = _body(w)
    trips = w.value(0).data
    refuse_unless(trips is not None and _always_on(w, body), "its end depends on data")
    count = int(np.asarray(trips).item())
    carried = [w.input(k) for k in range(2, len(w.step.inputs))]
    _check(body, count, once=once)
    stacked: list[list[str]] = []
    begun = carried
    on = w.array(np.array(True))  # noqa: FBT003 - ONNX's condition
    for trip in range(1 if once else count):
        number = w.array(np.array(trip, dtype=np.int64))
        made = _trip(w, body, trip, [number, on, *carried])[1:]
        carried, rows = made[: len(carried)], made[len(carried) :]
        stacked.append(rows)
    _finish(w, carried, stacked, [0] * (len(body.output) - 1 - len(carried)))
    return Trips(count, len(body.node), tuple(zip(begun, carried, strict=True)))


def scan(w: Writer, *, once: bool = False) -> Trips:
    """Write a Scan: its trips are the entries of the values that it goes through."""
    body, count = _body(w), int(w.attribute("num_scan_inputs", 0))
    states = len(w.step.inputs) - count
    refuse_unless(w.attribute("directions", None) is None, "a batch of scans")
    axes = [
        axis % len(w.shape(states + k)) for k, axis in enumerate(_list(w, "scan_input_axes", count))
    ]
    turned = _list(w, "scan_input_directions", count)
    trips = w.shape(states)[axes[0]]
    _check(body, trips, once=once)
    begun = carried = [w.input(k) for k in range(states)]
    results = len(body.output) - states
    stacked: list[list[str]] = []
    for trip in range(1 if once else trips):
        places = [trips - 1 - trip if back else trip for back in turned]
        rows = [
            w.pick(w.input(states + k), axis, place)
            for k, (axis, place) in enumerate(zip(axes, places, strict=True))
        ]
        made = _trip(w, body, trip, [*carried, *rows])
        carried = made[:states]
        stacked.append(made[states:])
    backwards = _list(w, "scan_output_directions", results)
    _finish(w, carried, stacked, _list(w, "scan_output_axes", results), backwards)
    return Trips(trips, len(body.node), tuple(zip(begun, carried, strict=True)))


def _body(w: Writer) -> GraphProto:
    found: GraphProto | None = next((a.g for a in w.step.node.attribute if a.name == "body"), None)
    if found is None:
        raise LookupError("body")
    refuse_unless(not found.sparse_initializer, "sparse constants in a body")
    return found


def _list(w: Writer, name: str, count: int) -> list[int]:
    given = w.attribute(name, None)
    return [int(item) for item in given] if given else [0] * count


def _check(body: GraphProto, trips: int, *, once: bool) -> None:
    refuse_unless(trips > 0, "no trip at all")
    short = once or trips * len(body.node) <= MOST_NODES
    refuse_unless(short, "too long to be written out")


def _always_on(w: Writer, body: GraphProto) -> bool:
    """Whether nothing but the number of trips ends a loop."""
    condition = w.step.inputs[1] if len(w.step.inputs) > 1 else None
    if condition is not None and (condition.data is None or not condition.data.all()):
        return False
    name = body.output[0].name
    for node in reversed(body.node):
        if name in node.output:
            if node.op_type == "Constant":
                return all(numpy_helper.to_array(a.t).all() for a in node.attribute)
            if node.op_type not in ("Identity", "Cast"):
                return False
            name = node.input[0]
    stored = (numpy_helper.to_array(t).all() for t in body.initializer if t.name == name)
    return name == body.input[1].name or any(stored)


def _trip(w: Writer, body: GraphProto, trip: int, given: Sequence[str]) -> list[str]:
    """Write one trip, and give the names of what it makes."""
    formal = [value.name for value in body.input]
    names = dict(zip(formal, given, strict=True))
    names |= {name: name for name in _outer(body)}
    for tensor in body.initializer:
        names[tensor.name] = w.array(np.asarray(numpy_helper.to_array(tensor)))
    renaming = Renaming(f"{w.stem}/trip_{trip}", names, {})
    w.nodes.extend(renaming.nodes(body.node))
    return [renaming.name(value.name) for value in body.output]


def _outer(body: GraphProto) -> Iterator[str]:
    """Names that a body reads from outside."""
    own = {value.name for value in body.input} | {tensor.name for tensor in body.initializer}
    own.update(name for node in body.node for name in node.output)
    read = (name for node in body.node for name in (*node.input, *captured_names(node)))
    left = (value.name for value in body.output)
    yield from (name for name in (*read, *left) if name and name not in own)


def _finish(
    w: Writer,
    carried: Sequence[str],
    stacked: Sequence[Sequence[str]],
    axes: Sequence[int],
    backwards: Sequence[int] = (),
) -> None:
    """Write the outputs: what the last trip carries on, and an entry per trip of the others."""
    for position, name in enumerate(carried):
        if w.wants(position):
            w.op("Identity", name, to=w.output(position))
    for k, axis in enumerate(axes):
        position = len(carried) + k
        if not w.wants(position):
            continue
        rows = [w.unsqueeze(trip[k], axis) for trip in stacked]
        if backwards and backwards[k]:
            rows.reverse()
        w.concat(*rows, axis=axis, to=w.output(position))
