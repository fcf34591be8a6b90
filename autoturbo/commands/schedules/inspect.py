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
from autoturbo.commands.model_facts import ModelFacts, model_facts, opaque_sentence, sentence
from autoturbo.commands.parser import Parser
from autoturbo.graph.operators import Graph
from autoturbo.report.sharing import MixedSamples, mixed_samples, mixed_sentence
from autoturbo.report.units import duration, macs
from autoturbo.report.views import View, Viewed
from autoturbo.schema import Duration, Natural

if TYPE_CHECKING:
    from autoturbo.hardware.target import Target
    from autoturbo.simulator.measurement import LowerBound

USAGE = "MODEL [options]"
EXAMPLE = "autoturbo inspect resnet50 --batch 1"


class InspectLine(ModelFacts, ModelNotes):
    """What a model consists of; by target, its lower bound and MACs on the vector engine.

    Bytes are those of the model's own data types.
    """

    mixed_samples: MixedSamples | None
    lower_bound_s: dict[str, Duration]
    vector_macs: dict[str, Natural]


LINES = {"": InspectLine}


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
        facts: Operators, layers, MACs and bytes of the model, by the names of ``inspect --json``.
        mixed: Why samples of the model cannot be told apart; None where they can.
        bounds: Lower bound of the latency by target.
        dtypes: Data type by target.
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
        dtype: Data type that they compute in; each target's default if None.
        sign: Text before the name of an argument, in an error.

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
