"""Which settings a search may try: dimensions, each a list of choices, and what depends on what.

A reader's map::

    Space.of: what is worth trying here (knob_choices, subgraphs), from which starts
        points: choice indices and their one form     meanings: settings and back
        moves: draws, mutants, children               conditions: what depends on what
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from autoturbo.graph.layers import layers_of
from autoturbo.schedule.knobs import AUTO, Knobs, SubGraphKnobs, knob_specs, subgraph_knob_specs
from autoturbo.search.conditions import START, dimension_name
from autoturbo.search.knob_choices import batch_share, choices_of
from autoturbo.search.meanings import Meanings
from autoturbo.search.moves import Moves
from autoturbo.search.points import Dimension
from autoturbo.search.subgraphs import Block, blocks_of

if TYPE_CHECKING:
    from autoturbo.schedule.pipeline import Workbench


class Space(Moves, Meanings):
    """A product of dimensions, less what means the same; what its points mean; moves between them.

    Attributes and what the constructor takes are those of :class:`autoturbo.search.points.Points`.
    """

    @staticmethod
    def of(
        bench: Workbench,
        *,
        subgraphs: int = 0,
        starts: Sequence[Knobs] = (),
    ) -> Space:
        """The knobs worth trying for a model on a target.

        A knob without a second value that makes sense here is left out.

        Args:
            bench: the model on the target.
            subgraphs: kinds of sub-graphs, the heaviest first, whose own knobs are tried.
            starts: settings besides the heuristic (:func:`autoturbo.search.starts.starts_of`);
                each has half as many kinds of sub-graphs. One whose cuts are those of another
                start is left out; one whose cuts are the heuristic's is a point of this.
        """
        share, whole = batch_share(bench.model, bench.target), bench.trace.obstacle
        layers = [layer.name for layer in layers_of(bench.model)]
        choices = {
            name: choices_of(name, spec, 1 if whole else share, len(layers), bench.target)
            for name, spec in knob_specs().items()
        }
        at_once = tuple(map(int, choices["batches_per_cluster"]))
        blocks = blocks_of(bench, subgraphs, (AUTO, *at_once))
        others = _apart(starts, blocks, layers)
        named = {layer for block in blocks for layer in block.layers}
        given = tuple(s for s in starts if named.issuperset(own.layer for own in s.overrides))
        if others:
            choices[START] = tuple(range(1, len(others) + 1))
        for number, start in enumerate(others, 1):
            samples, kinds = (start.batches_per_cluster, *at_once), -(-subgraphs // 2)
            blocks += blocks_of(bench, kinds, samples, start, number)
        for block in blocks:
            choices |= {dimension_name(block, field): v for field, v in block.choices.items()}
        dimensions = [
            Dimension(name, (AUTO, *values)) for name, values in choices.items() if values
        ]
        return Space(tuple(dimensions), share, len(layers), blocks, (Knobs(), *others), given)

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


def _apart(
    starts: Iterable[Knobs], blocks: Iterable[Block], layers: Sequence[str]
) -> tuple[Knobs, ...]:
    """Starts whose points no other start can say: each names a layer that the others do not.

    One that names only layers that the heuristic's blocks name gets one more, merged with what
    reads it, as it is anyway: it is not among the start's cuts.
    """
    heuristic = {layer for block in blocks for layer in block.layers}
    named: dict[frozenset[str], Knobs] = {}
    for start in starts:
        cuts = frozenset(own.layer for own in start.overrides)
        inside = next((x for x in layers if x not in heuristic | cuts), None)
        if not cuts <= heuristic:
            named.setdefault(cuts, start)
        elif inside is not None and cuts:
            own = (*start.overrides, SubGraphKnobs(inside, boundary="merge"))
            named.setdefault(cuts, dataclasses.replace(start, overrides=own))
    return tuple(named.values())


__all__ = ["Dimension", "Space", "batch_share"]
