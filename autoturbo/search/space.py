"""Which settings a search may try: dimensions, each a list of choices, and what points mean.

A reader's map::

    Space.of: what is worth trying here, from which starts      subgraphs: with knobs of their own
        points: choice indices                                  conditions: their one form
        moves: draws, mutants, children

A space may have several starts: complete settings, the first one the published heuristic. One
dimension chooses the start, ``"auto"`` leaves every knob as the start has it, and each start has
sub-graphs of its own with knobs that mean something where it is chosen.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from autoturbo.errors import KnobsError, Location
from autoturbo.graph.layers import layers_of
from autoturbo.schedule.knobs import (
    AUTO,
    Knobs,
    KnobSpec,
    SubGraphKnobs,
    Value,
    knob_specs,
    subgraph_knob_specs,
)
from autoturbo.search.conditions import START, Genes, dimension_name, effective
from autoturbo.search.moves import Moves
from autoturbo.search.points import Dimension
from autoturbo.search.subgraphs import Block, blocks_of

if TYPE_CHECKING:
    from autoturbo.graph.operators import Graph
    from autoturbo.hardware.target import Target
    from autoturbo.schedule.pipeline import Workbench


def batch_share(graph: Graph, target: Target) -> int:
    """Samples of the busiest cluster when the batch is shared out."""
    batch = max(graph.batch, 1)
    return -(-batch // min(target.clusters, batch))


def choices_of(
    name: str, spec: KnobSpec, share: int, layers: int, target: Target
) -> tuple[Value, ...]:
    """What is worth trying besides ``"auto"``."""
    choices = spec.choices
    if name == "batches_per_cluster":
        choices = tuple(b for b in range(share, 0, -1) if share % b == 0)
    if name == "cluster_split" and target.clusters == 1:
        choices = ()
    return tuple(c for c in choices if canonical(name, spec, c, share, layers) != AUTO)


def canonical(name: str, spec: KnobSpec, value: Value, share: int, layers: int) -> Value:
    """``"auto"`` for what means the same."""
    if value == AUTO:
        return AUTO
    if spec.low is None:  # a word that is not tried is the published one's name
        return value if value in spec.choices else AUTO
    number = float(value)
    if name == "batches_per_cluster":
        return AUTO if number == share else value
    if name == "max_layers":
        return AUTO if number >= layers else value
    published = _number(spec.published)
    if published is not None and number == published:
        return AUTO
    return next((choice for choice in spec.choices if choice == value), value)  # 2.0 is 2


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


class Space(Moves):
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

    def canonical(self, knobs: Knobs) -> Knobs:
        """The one way to write a setting: ``"auto"`` wherever a value means the same."""
        chosen: dict[str, Any] = {
            name: canonical(name, spec, getattr(knobs, name), self.share, self.layers)
            for name, spec in knob_specs().items()
        }
        plain = dataclasses.replace(knobs, **chosen)
        own = tuple(SubGraphKnobs(**effective(o, plain)) for o in plain.overrides)
        return dataclasses.replace(plain, overrides=own)

    def to_knobs(self, params: Mapping[str, Any]) -> Knobs:
        """The setting of some parameters; what is left out is ``"auto"``.

        Raises:
            KnobsError: a parameter that is no knob, or a value that it does not take.
        """
        own = {name: value for name, value in params.items() if name in self._owners}
        start = self._start_of(params)
        known = {**own, START: AUTO} if len(self.starts) > 1 else own
        model = {name: value for name, value in params.items() if name not in known}
        said = {n: getattr(start, n) for n in knob_specs() if model.get(n, AUTO) == AUTO}
        overrides = [o.as_dict() for o in self._overrides(own, start)]
        return self.canonical(Knobs.from_dict({**model, **said, "overrides": overrides}))

    def from_knobs(self, knobs: Knobs) -> dict[str, Any]:
        """The parameters of a setting, every dimension named.

        Raises:
            KnobsError: the setting is not a point of the space.
        """
        canonical, refused = self.canonical(knobs), None
        for number in range(len(self.starts)):
            try:
                return self._from_start(canonical, number)
            except KnobsError as error:
                refused = refused or error
        raise refused or KnobsError("a space without a start")

    def point_of(self, knobs: Knobs) -> tuple[int, ...]:
        """Return the choice indices of a setting.

        Raises:
            KnobsError: the setting is not a point of the space.
        """
        genes = self.genes_of(self.from_knobs(knobs))
        if genes is None:
            raise KnobsError("a setting that is not in the search space")
        return genes

    def sparse(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Parameters without the sub-graphs' that are ``"auto"``: they exist where they matter."""
        return {n: v for n, v in params.items() if v != AUTO or n not in self._owners}

    def knobs_of(self, genes: Iterable[int]) -> Knobs:
        """The setting of a point of a knob space."""
        pairs = zip(self.dimensions, genes, strict=True)
        chosen = {d.name: d.choices[index] for d, index in pairs if index}  # 0 is "auto"
        own = {name: chosen.pop(name) for name in [*chosen] if name in self._owners}
        start = self._start_of(chosen)
        if len(self.starts) > 1:
            chosen.pop(START, None)
        overrides = tuple(self._overrides(own, start))
        return dataclasses.replace(start, **chosen, overrides=overrides)

    def settings(self, genes: Genes) -> list[Knobs]:
        """The settings of points of a knob space."""
        return [self.knobs_of(row) for row in genes.tolist()]

    def _start_of(self, params: Mapping[str, Any]) -> Knobs:
        chosen = params.get(START, AUTO)
        return self.starts[0 if chosen == AUTO or len(self.starts) == 1 else int(chosen)]

    def _overrides(self, params: Mapping[str, Any], start: Knobs) -> list[SubGraphKnobs]:
        """What a start says of sub-graphs, with their choices on top."""
        chosen: dict[tuple[str, ...], dict[str, Any]] = {}
        for name, value in params.items():
            block, field = self._owners[name]
            if value != AUTO:
                chosen.setdefault(block.layers, {})[field] = value
        own = {x: SubGraphKnobs(x, **own) for layers, own in chosen.items() for x in layers}
        said = {o.layer: own.pop(o.layer).over(o) if o.layer in own else o for o in start.overrides}
        return [*said.values(), *own.values()]

    def _from_start(self, canonical: Knobs, number: int) -> dict[str, Any]:
        """The parameters of a setting in its one form, seen from one start."""
        known, start = {d.name: d.choices for d in self.dimensions}, self.starts[number]
        params: dict[str, Any] = dict.fromkeys(known, AUTO)
        if number:
            params[START] = number
        values = {n: (getattr(canonical, n), getattr(start, n)) for n in knob_specs()}
        plain = {name: value for name, (value, said) in values.items() if value != said}
        if AUTO in plain.values():
            message = "a setting that no start leads to"
            raise KnobsError(message, Location(field=f"{START} {number}"))
        for name, value in {**plain, **self._own_params(canonical, number)}.items():
            if value not in known.get(name, (AUTO,)):
                raise _outside(name, value, known.get(name, (AUTO,)))
            params[name] = value
        genes = self.genes_of(params)
        if genes is not None and self.normal(np.asarray([genes]))[0].tolist() != list(genes):
            at = Location(field="overrides")
            raise KnobsError("a split that is not in the search space", at)
        return params

    def _own_params(self, knobs: Knobs, number: int) -> dict[str, Any]:
        """Parameters of the overrides, which alike sub-graphs must have in common."""
        left = {o.layer: o for o in knobs.overrides}
        said = {
            o.layer: SubGraphKnobs(**effective(o, knobs)) for o in self.starts[number].overrides
        }
        params = {}
        for block in (b for b in self.blocks if b.start == number):
            own = [left.pop(layer, SubGraphKnobs(layer)) for layer in block.layers]
            base = [said.pop(layer, SubGraphKnobs(layer)) for layer in block.layers]
            values = [_beyond(o, b) for o, b in zip(own, base, strict=True)]
            if AUTO in values[0].values():
                raise _outside("overrides", block.layers[0], ("what the start says",))
            if any(other != values[0] for other in values):
                at = Location(field="overrides")
                message = f"sub-graphs like that of {block.layers[0]!r} have one setting here"
                raise KnobsError(message, at)
            params.update({dimension_name(block, n): v for n, v in values[0].items()})
        for layer in sorted(o.layer for o in {*left.values()} ^ {*said.values()}):
            raise _outside("overrides", layer, tuple(x for b in self.blocks for x in b.layers))
        return params

    def as_json(self) -> dict[str, Any]:
        """Return knobs with their choices, and exact sizes, however large."""
        kinds = [
            {"layers": list(block.layers),
             "knobs": {name: [AUTO, *values] for name, values in block.choices.items()},
             "size": size}
            for block, size in zip(self.blocks, self.conditions.block_sizes, strict=True)
        ]  # fmt: skip
        return {
            "knobs": self.describe(),
            "subgraph_knobs": self.describe_subgraphs(),
            "subgraphs": kinds,
            "model_size": self.conditions.model_size,
            "size": self.size,
        }

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


def _beyond(own: SubGraphKnobs, base: SubGraphKnobs) -> dict[str, Value]:
    """What an override says beyond that of a start; ``"auto"`` takes something back.

    In one part there is no dimension to speak of.
    """
    whole = ("dim",) if own.factor == 1 else ()
    names = [name for name in subgraph_knob_specs() if name not in whole]
    return {n: v for n in names if (v := getattr(own, n)) != getattr(base, n)}


def _outside(name: str, value: object, choices: tuple[Any, ...]) -> KnobsError:
    at = Location(field=name)
    return KnobsError(
        f"{value!r} is not in the search space", at, f"one of {', '.join(map(str, choices))}"
    )


def space_of_run(stored: Mapping[str, Any], bench: Workbench) -> Space:
    """The space of a run.

    Args:
        stored: its settings, as its record has them.
        bench: its model on its target.
    """
    starts = [Knobs.from_dict(kept) for kept in stored.get("starts", ())]
    own = stored.get("subgraphs", 0)
    return Space.of(bench, subgraphs=own, starts=starts)


__all__ = ["Dimension", "Space", "batch_share"]
