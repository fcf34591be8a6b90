"""What there is to say about a model before anything is scheduled."""

from __future__ import annotations

from autoturbo.graph.operators import Graph, UncountedJson, bytes_per_element, tensor_bytes
from autoturbo.report.units import macs, size
from autoturbo.schema import Natural, TypedDict

OpaqueJson = TypedDict("OpaqueJson", {"name": str, "op_type": str, "reason": str})
"""An operator that runs alone, and why."""

ModelFacts = TypedDict("ModelFacts", {
    "model": str, "batch": Natural, "operators": Natural, "layers": Natural, "macs": Natural,
    "weight_bytes": Natural, "activation_bytes": Natural, "opaque": list[OpaqueJson],
    "incomplete": UncountedJson | None,
})  # fmt: skip
"""What a model consists of."""

_SHOWN = 3
"""Operators that run whole, as many as are named on one line."""


def model_facts(graph: Graph) -> ModelFacts:
    """Return the line of ``inspect --json``, without the lower bounds.

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
        "opaque": [
            {"name": o.name, "op_type": o.kind, "reason": o.opaque}
            for o in graph.operators
            if o.opaque
        ],
    }


def sentence(facts: ModelFacts) -> str:
    """Return the facts on one line."""
    counted = " (incomplete)" if facts["incomplete"] else ""
    return (
        f"batch {facts['batch']}, {facts['operators']} operators in {facts['layers']} layers,"
        f" {macs(facts['macs'])}{counted}, {size(facts['weight_bytes'])} of weights,"
        f" {size(facts['activation_bytes'])} of activations"
    )


def opaque_sentence(facts: ModelFacts) -> str:
    """Return the operators that run whole on one line, the first unusual reason behind them.

    Empty if there are none.
    """
    opaque = facts["opaque"]
    if not opaque:
        return ""
    names = ", ".join(f"{o['name']} ({o['op_type']})" for o in opaque[:_SHOWN])
    more = f" and {len(opaque) - _SHOWN} more" if len(opaque) > _SHOWN else ""
    told = (o for o in opaque if o["reason"] != f"no row for {o['op_type']}")
    why = next((f"; {o['name']}: {o['reason']}" for o in told), "")
    number = (
        "1 operator runs whole, not analysed"
        if len(opaque) == 1
        else f"{len(opaque)} operators run whole, not analysed"
    )
    return f"{number}: {names}{more}{why}"


def _total(graph: Graph, tensors: set[int]) -> int:
    """Return the bytes of some tensors; of what the file stores once, once."""
    from autoturbo.graph.stored import stored_bytes

    types = {tensor: _stored(graph.tensors[tensor].dtype) for tensor in sorted(tensors)}
    sizes = [(t, tensor_bytes(graph.tensors[t], dtype)) for t, dtype in types.items()]
    return stored_bytes(graph, sizes, lambda t: bytes_per_element(graph.tensors[t], types[t]))


def _stored(dtype: str) -> str:
    """Return the type of the file's tensors on a device that computes in the file's own."""
    return dtype if dtype in ("float16", "bfloat16") else "float32"
