"""Show what a model consists of, and its lower bound per target.

Nothing is scheduled; weights are not read.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from autoturbo.commands.console import Console
from autoturbo.commands.loading import (
    ModelNotes,
    add_model_options,
    add_target_options,
    chosen_dtype,
    load_given,
    load_presets,
    load_targets,
    tell_notes,
)
from autoturbo.commands.parser import Parser
from autoturbo.graph.operators import Graph, UncountedJson, bytes_per_element, tensor_bytes
from autoturbo.report.sharing import MixedSamples, mixed_samples, mixed_sentence
from autoturbo.report.units import duration, macs, size
from autoturbo.report.views import View, Viewed
from autoturbo.schema import Duration, Natural, TypedDict

if TYPE_CHECKING:
    from autoturbo.hardware.target import Target
    from autoturbo.simulator.measurement import LowerBound

USAGE = "MODEL [options]"
EXAMPLE = "autoturbo inspect resnet50 --batch 1"


OpaqueJson = TypedDict("OpaqueJson", {"name": str, "op_type": str, "reason": str})
"""An operator that runs alone, and why."""

ModelFacts = TypedDict("ModelFacts", {
    "model": str, "batch": Natural, "operators": Natural, "layers": Natural, "macs": Natural,
    "weight_bytes": Natural, "activation_bytes": Natural, "opaque": list[OpaqueJson],
    "incomplete": UncountedJson | None,
})  # fmt: skip
"""What a model consists of."""


class InspectLine(ModelFacts, ModelNotes):
    """What a model consists of; by target, its lower bound and MACs on the vector engine.

    Bytes are those of the model's own data types.
    """

    mixed_samples: MixedSamples | None
    lower_bound_s: dict[str, Duration]
    vector_macs: dict[str, Natural]


def add_arguments(parser: Parser) -> None:
    """Add the model, and the targets of the lower bounds."""
    add_model_options(parser)
    add_target_options(parser, several=True, default="every preset")
    parser.add_argument("--layers", action="store_true", help="list every layer")


def run(options: argparse.Namespace, console: Console) -> int:
    """Import and describe."""
    targets = load_targets(options.targets) if options.targets else load_presets()
    if options.dtype and not options.targets:
        targets = [target for target in targets if target.supports(options.dtype)]
    graph = load_given(options.model, options)
    found = inspected(graph, targets, options.dtype)
    if console.json:
        console.emit(found.as_json(tell_notes(graph, console, everything=True)))
        return 0
    console.answer(f"{graph.name}: {sentence(found.facts)}")
    if found.facts["opaque"]:
        console.answer(opaque_sentence(found.facts))
    if graph.uncounted is not None:
        console.answer(graph.uncounted.sentence)
    if found.mixed:
        console.answer(f"samples {mixed_sentence(found.mixed)}")
    tell_notes(graph, console, everything=True)
    _show_kinds(graph, console)
    if options.layers:
        _show_layers(graph, console)
    _show_bounds(found, console)
    return 0


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Inspection(Viewed):
    """What a model consists of, and its lower bound on targets.

    Attributes:
        model: The model.
        facts: Its operators, layers, MACs and bytes, by the names of ``inspect --json``.
        mixed: Why its samples cannot be told apart; None where they can.
        bounds: By target, the lower bound of the latency.
        dtypes: By target, what it computes in.
    """

    model: Graph
    facts: ModelFacts
    mixed: MixedSamples | None
    bounds: Mapping[str, LowerBound]
    dtypes: Mapping[str, str]

    def as_json(self, notes: ModelNotes | None = None) -> InspectLine:
        """Return the object of ``inspect --json``, with notes on the model if any are given."""
        told = notes or ModelNotes()
        return {
            **self.facts, "mixed_samples": self.mixed,
            "lower_bound_s": {name: bound.seconds for name, bound in self.bounds.items()},
            "vector_macs": {name: bound.vector_macs for name, bound in self.bounds.items()},
            **told,
        }  # fmt: skip

    def view(self) -> View:
        """Return the model's facts, and a row for each target."""
        opaque = opaque_sentence(self.facts)
        facts = (("model", sentence(self.facts)), *((("", opaque),) if opaque else ()))
        headers, rows = _bound_rows(self)
        return View(self.model.name, facts, headers, tuple(rows))

    def __repr__(self) -> str:
        return f"<Inspection of {self.model.name!r}: {sentence(self.facts)}>"


def inspected(
    graph: Graph, targets: Sequence[Target], dtype: str | None, sign: str = "--"
) -> Inspection:
    """Return what a model consists of, and its lower bound on each target.

    Args:
        graph: The model.
        targets: The targets.
        dtype: What they compute in; each target's default if None.
        sign: What stands before the name of an argument, in an error.

    Raises:
        UsageError: A target does not compute in the type.
    """
    from autoturbo.simulator.bound import lower_bound

    dtypes = {target.name: chosen_dtype(target, dtype, sign) for target in targets}
    bounds = {target.name: lower_bound(graph, target, dtypes[target.name]) for target in targets}
    mixed = mixed_samples(graph, {target.name: target.clusters for target in targets})
    return Inspection(graph, model_facts(graph), mixed, bounds, dtypes)


def _show_bounds(found: Inspection, console: Console) -> None:
    """Show the bound of each target, its parts, and the products that go to its vector engine."""
    headers, rows = _bound_rows(found)
    console.answer("")
    console.answer("lower bound of the latency: the largest of the parts beside it")
    if any(bound.vector_macs for bound in found.bounds.values()):
        console.answer("MACs on vector: depthwise and narrow layers, which the vector engine does")
    console.table(headers, rows, words=2, close=True)


def _bound_rows(found: Inspection) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return the headers and the rows of a table of bounds, a row for each target."""
    parts = {part: part for bound in found.bounds.values() for part in bound.parts} | {"ddr": "DDR"}
    elsewhere = any(bound.vector_macs for bound in found.bounds.values())
    rows = [
        (
            name, found.dtypes[name], duration(bound.seconds),
            *(duration(bound.parts.get(part, 0.0)) for part in parts),
            *((macs(bound.vector_macs) if bound.vector_macs else "-",) if elsewhere else ()),
        )
        for name, bound in found.bounds.items()
    ]  # fmt: skip
    headers = ("target", "dtype", "lower bound", *parts.values())
    return (*headers, "MACs on vector") if elsewhere else headers, rows


def _show_kinds(graph: Graph, console: Console) -> None:
    number: Counter[str] = Counter()
    work: Counter[str] = Counter()
    for operator in graph.operators:
        number[operator.kind] += 1
        work[operator.kind] += operator.macs
    ordered = sorted(number, key=lambda kind: (-work[kind], -number[kind], kind))
    rows = ((kind, number[kind], macs(work[kind]) if work[kind] else "-") for kind in ordered)
    console.answer("")
    console.table(("operator", "count", "work"), rows)


def _show_layers(graph: Graph, console: Console) -> None:
    from autoturbo.graph.layers import layers_of

    rows = []
    console.answer("")
    for layer in layers_of(graph):
        operators = [graph.operators[index] for index in layer.operators]
        kinds = " ".join(operator.kind for operator in operators)
        work = sum(operator.macs for operator in operators)
        shape = "x".join(map(str, graph.tensors[layer.outputs[0]].shape)) if layer.outputs else "-"
        rows.append((layer.name, kinds, shape, macs(work) if work else "-"))
    console.table(("layer", "operators", "output", "work"), rows, words=2, close=True)


# What there is to say about a model before anything is scheduled

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
