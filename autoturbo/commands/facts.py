"""What there is to say about a model before anything is scheduled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from autoturbo.commands.console import Console
from autoturbo.graph.operators import Graph, tensor_bytes
from autoturbo.report.units import macs, size

_SHOWN = 3
"""Opaque operators named on one line."""


def model_facts(graph: Graph) -> dict[str, Any]:
    """The object of ``inspect --json``, without the lower bounds.

    Bytes are those of the model's own data types; an activation is a tensor that layers hand on.
    """
    from autoturbo.graph.layers import layers_of

    layers = layers_of(graph)
    weights = {tensor for layer in layers for tensor in layer.weights}
    handed = {tensor for layer in layers for tensor in (*layer.inputs, *layer.outputs)}
    return {
        "model": graph.name,
        "batch": graph.batch,
        "operators": len(graph.operators),
        "layers": len(layers),
        "macs": graph.macs,
        "weight_bytes": _total(graph, weights),
        "activation_bytes": _total(graph, handed),
        "incomplete": None if graph.uncounted is None else graph.uncounted.as_dict(),
        "opaque": [_opaque(graph, index) for index in _opaque_operators(graph)],
    }


def sentence(facts: dict[str, Any]) -> str:
    """The facts on one line."""
    counted = " (incomplete)" if facts["incomplete"] else ""
    return (
        f"batch {facts['batch']}, {facts['operators']} operators in {facts['layers']} layers,"
        f" {macs(facts['macs'])}{counted}, {size(facts['weight_bytes'])} of weights,"
        f" {size(facts['activation_bytes'])} of activations"
    )


def opaque_sentence(facts: dict[str, Any]) -> str:
    """The operators that run alone, on one line, the first unusual reason behind them.

    Empty if there are none.
    """
    opaque = facts["opaque"]
    if not opaque:
        return ""
    names = ", ".join(f"{o['name']} ({o['op_type']})" for o in opaque[:_SHOWN])
    more = f" and {len(opaque) - _SHOWN} more" if len(opaque) > _SHOWN else ""
    told = (o for o in opaque if o["reason"] != f"no row for {o['op_type']}")
    why = next((f"; {o['name']}: {o['reason']}" for o in told), "")
    return f"{len(opaque)} opaque, each runs alone: {names}{more}{why}"


def assumed(graph: Graph) -> tuple[str, ...]:
    """Return the notes of a model without which its figures may be taken for others."""
    from autoturbo.graph.freeze import ASSUMED_BATCH

    return tuple(note for note in graph.notes if note == ASSUMED_BATCH)


def notes_field(notes: Sequence[str]) -> dict[str, Any]:
    """Return notes as a field of a command's object; nothing where there are none."""
    return {"notes": list(notes)} if notes else {}


def say_notes(notes: Sequence[str], console: Console) -> None:
    """Tell people what the import assumed, a line each."""
    for note in notes:
        console.say(f"note: {note}")


def _opaque_operators(graph: Graph) -> list[int]:
    return [index for index, operator in enumerate(graph.operators) if operator.opaque]


def _opaque(graph: Graph, index: int) -> dict[str, Any]:
    operator = graph.operators[index]
    return {"name": operator.name, "op_type": operator.kind, "reason": operator.opaque}


def _total(graph: Graph, tensors: set[int]) -> int:
    """Return the bytes of some tensors; of constants with the same elements, once."""
    values = (graph.tensors[tensor] for tensor in sorted(tensors))
    distinct = {value.original or value.name: value for value in values}.values()
    return sum(tensor_bytes(value, _stored(value.dtype)) for value in distinct)


def _stored(dtype: str) -> str:
    """The type that a tensor of the file keeps on a device that computes in the file's own."""
    return dtype if dtype in ("float16", "bfloat16") else "float32"
