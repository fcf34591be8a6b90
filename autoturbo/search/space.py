"""Which settings a search may try: dimensions, each a list of choices, and what depends on what.

A reader's map::

    Space.of: what is worth trying here (knob_choices, subgraphs), from which starts
        points: choice indices and their one form     meanings: settings and back
        moves: draws, mutants, children               conditions: what depends on what
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from autoturbo.graph.batch import trace_batch
from autoturbo.graph.layers import layers_of
from autoturbo.schedule.knobs import AUTO, Knobs, knob_specs, subgraph_knob_specs
from autoturbo.search.conditions import START, dimension_name
from autoturbo.search.knob_choices import batch_share, choices_of
from autoturbo.search.meanings import Meanings
from autoturbo.search.moves import Moves
from autoturbo.search.points import Dimension
from autoturbo.search.subgraphs import Block, blocks_of

if TYPE_CHECKING:
    from autoturbo.graph.operators import Graph
    from autoturbo.hardware.target import Target


class Space(Moves, Meanings):
    """A product of dimensions, less what means the same; what its points mean; moves between them.

    Attributes and what the constructor takes are those of :class:`autoturbo.search.points.Points`.
    """

    @staticmethod
    def of(
        graph: Graph,
        target: Target,
        *,
        dtype: str | None = None,
        subgraphs: int = 0,
        starts: Sequence[Knobs] = (),
    ) -> Space:
        """The knobs worth trying for a model on a target.

        A knob without a second value that makes sense here is left out.

        Args:
            graph: the model.
            target: the accelerator.
            dtype: the compute type, which decides what fits; the target's default if None.
            subgraphs: kinds of sub-graphs, the heaviest first, whose own knobs are tried.
            starts: settings besides the heuristic (:func:`autoturbo.search.starts.starts_of`);
                each has half as many kinds of sub-graphs. One whose cuts are those of another
                start, or can be said by the heuristic's sub-graphs, is left out.
        """
        share = batch_share(graph, target)
        whole = trace_batch(graph).obstacle
        layers = len(layers_of(graph))
        choices = {
            name: choices_of(name, spec, 1 if whole else share, layers, target)
            for name, spec in knob_specs().items()
        }
        dtype = dtype or target.default_dtype
        at_once = tuple(map(int, choices["batches_per_cluster"]))
        blocks = blocks_of(graph, target, dtype, subgraphs, (AUTO, *at_once))
        others = _apart(starts, blocks)
        if others:
            choices[START] = tuple(range(1, len(others) + 1))
        for number, start in enumerate(others, 1):
            samples, kinds = (start.batches_per_cluster, *at_once), -(-subgraphs // 2)
            blocks += blocks_of(graph, target, dtype, kinds, samples, start, number)
        for block in blocks:
            choices |= {dimension_name(block, field): v for field, v in block.choices.items()}
        dimensions = [
            Dimension(name, (AUTO, *values)) for name, values in choices.items() if values
        ]
        return Space(tuple(dimensions), share, layers, blocks, (Knobs(), *others))

    def describe(self) -> list[dict[str, Any]]:
        """One row per knob of the model: name, what it means, choices, published value."""
        specs = knob_specs()
        return [
            {
                "knob": d.name,
                "help": specs[d.name].help,
                "choices": list(d.choices),
                "published": specs[d.name].published,
            }
            for d in self.dimensions
            if d.name not in self._owners and d.name != START
        ]

    def describe_subgraphs(self) -> list[dict[str, Any]]:
        """One row per knob of sub-graphs, with the choices of all blocks that have it."""
        rows = []
        for name, spec in subgraph_knob_specs().items():
            offers = [block.choices[name] for block in self.blocks if name in block.choices]
            values = dict.fromkeys(value for offer in offers for value in offer)
            ordered = list(values) if spec.choices or not values else sorted(map(int, values))
            row = {"knob": name, "help": spec.help, "choices": [AUTO, *ordered]}
            rows.append({**row, "published": spec.published, "kinds": len(offers)})
        return [row for row in rows if row["kinds"]]


def _apart(starts: Iterable[Knobs], blocks: Iterable[Block]) -> tuple[Knobs, ...]:
    """Starts whose points no other start can say: each names a layer that the others do not."""
    heuristic = {layer for block in blocks for layer in block.layers}
    named: dict[frozenset[str], Knobs] = {}
    for start in starts:
        named.setdefault(frozenset(own.layer for own in start.overrides), start)
    return tuple(start for cuts, start in named.items() if not cuts <= heuristic)


__all__ = ["Dimension", "Space", "batch_share"]
