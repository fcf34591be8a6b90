"""The search space: dimensions, each a list of choices, and candidates as encodings.

A reader's map::

    Space.of: what is worth trying here, from which starts      subgraphs: with knobs of their own
        points: choice indices                                  conditions: canonical form
        moves: draws, mutants, children

A space may have several starts: complete candidates, the first one the published heuristic. One
dimension chooses the start, ``"auto"`` leaves every knob as the start has it, and each start has
sub-graphs of its own with knobs that mean something where it is chosen.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
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
    knob_names,
    knob_specs,
    subgraph_knob_specs,
)
from autoturbo.search.constants import SEARCH
from autoturbo.search.encoding import (
    START,
    Dimension,
    Genes,
    ProductSpace,
    dimension_name,
    effective,
)
from autoturbo.search.subgraphs import Block, blocks_of

if TYPE_CHECKING:
    from autoturbo.graph.operators import Graph
    from autoturbo.hardware.target import Target
    from autoturbo.schedule.pipeline import ModelScheduler


def batch_share(graph: Graph, target: Target) -> int:
    """Return the samples of the busiest cluster when the batch is shared out."""
    batch = max(graph.batch, 1)
    return -(-batch // min(target.clusters, batch))


def choices_of(
    name: str, spec: KnobSpec, share: int, layers: int, target: Target
) -> tuple[Value, ...]:
    """Return the values of a knob worth trying besides ``"auto"``.

    Args:
        name: Of the knob.
        spec: Of the knob.
        share: Samples of the busiest cluster; 1 where samples cannot be told apart.
        layers: Layers of the model.
        target: The accelerator.
    """
    choices = spec.choices
    if name == "batches_per_cluster":
        choices = tuple(b for b in range(share, 0, -1) if share % b == 0)
    if name == "cluster_partitioning" and target.clusters == 1:
        choices = ()
    return tuple(c for c in choices if canonical(name, spec, c, share, layers) != AUTO)


def canonical(name: str, spec: KnobSpec, value: Value, share: int, layers: int) -> Value:
    """Return ``"auto"`` for a value that means the same, else the value.

    Args:
        name: Of the knob.
        spec: Of the knob.
        value: The value in question.
        share: Samples of the busiest cluster: so many batches per cluster mean ``"auto"``.
        layers: Layers of the model: so many or more per sub-graph mean ``"auto"``.
    """
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


# Moves between points of a search space, by chance: draws, mutants, children.
#
# Sub-graphs' dimensions are many and each matters little: points drawn at random and mutants leave
# most of them at ``"auto"``, and children have all of a sub-graph's choices from one parent.


class Moves(ProductSpace):
    """Candidates, and the moves from some to others."""

    def random(self, rng: np.random.Generator, count: int, *, dense: bool = False) -> Genes:
        """Return candidates drawn at random, with repetitions: the model's choices uniformly.

        Args:
            rng: Where chance comes from.
            count: How many.
            dense: Sub-graphs' choices uniformly too, instead of one block's or none.
        """
        genes = rng.integers(0, self.widths, (count, len(self.dimensions)))
        if not self.blocks:
            return genes
        if not dense:
            beside = np.bincount([b.start for b in self.blocks])[[b.start for b in self.blocks]]
            chosen = rng.random((count, len(self.blocks) + 1)) < 1 / np.maximum([1, *beside], 2)
            chosen[:, 0] = True
            rate = np.where(self.unit_of > 0, SEARCH.subgraph_choices / self._unit_size, 1.0)
            genes *= chosen[:, self.unit_of] & (rng.random(genes.shape) < rate)
        return self.normal(genes)

    def mutate(self, rng: np.random.Generator, genes: Genes, rate: float = 0.0) -> Genes:
        """Return copies of candidates with at least one choice changed each.

        Args:
            rng: Where chance comes from.
            genes: ``(points, dimensions)``.
            rate: Chance of each further dimension of the model to change, and of each further
                block to change in one dimension.
        """
        points, dimensions = genes.shape
        if not dimensions:
            return genes.copy()
        change = rng.random(genes.shape) < np.where(self.unit_of > 0, rate / self._unit_size, rate)
        model = int((self.unit_of == 0).sum())
        certain = np.asarray(rng.integers(0, model, points), np.int64)
        change[np.arange(points), self._first(rng, certain, genes, model)] = True
        shift = rng.integers(1, np.maximum(self.widths, 2), genes.shape)
        moved = np.where(change, (genes + shift) % self.widths, genes)
        if not self.blocks:
            return moved
        return self._settled(rng, genes, moved, certain)

    def _first(self, rng: np.random.Generator, certain: Genes, genes: Genes, model: int) -> Genes:
        """Return the dimension that each mutant is sure to change, one of its start's.

        Args:
            rng: All chance.
            certain: Per mutant, a dimension of the model's knobs, drawn before.
            genes: The parents, ``(points, dimensions)``.
            model: How many dimensions are the model's; they come first.
        """
        if not self.blocks:
            return certain
        first = model + np.searchsorted(self._start_at[model:], np.arange(len(self.starts) + 1))
        start = genes[:, self._start] if self._start is not None else np.zeros(len(genes), np.int64)
        start = np.where(first[start] < first[start + 1], start, 0)
        subgraph = rng.integers(first[start], first[start + 1])
        return np.where(rng.random(len(certain)) < SEARCH.subgraph_moves, subgraph, certain)

    def _settled(
        self, rng: np.random.Generator, genes: Genes, moved: Genes, certain: Genes
    ) -> Genes:
        """Return mutants in canonical form; one equal to its parent mutates the model's knobs.

        Args:
            rng: All chance.
            genes: The parents, ``(points, dimensions)``.
            moved: Their mutants, likewise.
            certain: Per mutant, the dimension that changes where nothing else did.
        """
        relapse = (genes > 0) & (moved != genes) & (self.unit_of > 0)
        moved = np.where(relapse & (rng.random(genes.shape) < SEARCH.subgraph_reverts), 0, moved)
        owners, partners = self._partners
        drawn = rng.integers(1, self.widths[partners][:, None], (len(partners), len(genes)))
        alone = (moved[:, owners] > 0) & (moved[:, partners] == 0) & (genes[:, owners] == 0)
        point, pair = np.nonzero(alone)  # never both ways round
        moved[point, partners[pair]] = drawn[pair, point]
        moved = self.normal(moved)
        same = np.flatnonzero((moved == genes).all(axis=1))
        position = certain[same]
        step = rng.integers(1, np.maximum(self.widths[position], 2))
        moved[same, position] = (moved[same, position] + step) % self.widths[position]
        moved[same] = self.normal(moved[same])
        return moved

    def cross(self, rng: np.random.Generator, first: Genes, second: Genes) -> Genes:
        """Return children that take each choice of the model, and each block, from one parent."""
        model = int((self.unit_of == 0).sum())
        unit = np.where(self.unit_of > 0, model + self.unit_of - 1, np.arange(len(self.unit_of)))
        coins = rng.random((len(first), model + len(self.blocks))) < 0.5  # noqa: PLR2004  fair
        return self.normal(np.where(coins[:, unit], first, second))

    def neighbours(self, genes: Sequence[int]) -> Genes:
        """Return all candidates that differ from one in a single choice, in canonical form."""
        changed = [
            (*genes[:index], choice, *genes[index + 1 :])
            for index, dimension in enumerate(self.dimensions)
            for choice in range(len(dimension.choices))
            if choice != genes[index]
        ]
        near = self.normal(
            np.asarray(changed, np.int64).reshape(len(changed), len(self.dimensions))
        )
        points = dict.fromkeys(map(tuple, near.tolist()))
        points.pop(tuple(int(g) for g in genes), None)
        return np.asarray(list(points), np.int64).reshape(len(points), len(self.dimensions))

    @cached_property
    def unit_of(self) -> Genes:
        """Return the number of each dimension's block, from 1; 0 for the model's dimensions."""
        units = [np.full(len(b.choices), i) for i, b in enumerate(self.blocks, 1)]
        model = np.zeros(len(self.dimensions) - sum(map(len, units)))
        return np.concatenate([model, *units]).astype(np.int64)

    @cached_property
    def _unit_size(self) -> Genes:
        """Return, per dimension, the number of dimensions of its block or of the model."""
        sizes: Genes = np.bincount(self.unit_of)[self.unit_of]
        return sizes

    @cached_property
    def _start(self) -> int | None:
        """Return the position of the dimension that chooses the start, if there is a choice."""
        names = [d.name for d in self.dimensions]
        return names.index(START) if len(self.starts) > 1 else None

    @cached_property
    def _start_at(self) -> Genes:
        """Return the start that each dimension belongs to; 0 for the model's."""
        starts = np.asarray([0, *(b.start for b in self.blocks)], np.int64)
        start_at: Genes = starts[self.unit_of]
        return start_at

    @cached_property
    def _partners(self) -> tuple[Genes, Genes]:
        """Return the positions of the second axis and its parts, each with its partner."""
        names = [d.name for d in self.dimensions]
        fields = knob_names("subgraph", group="inner")
        having = [block for block in self.blocks if set(fields) <= set(block.choices)]
        pairs = [
            [names.index(dimension_name(block, field)) for field in fields] for block in having
        ]
        positions = np.asarray(pairs, np.int64).reshape(-1, 2)
        return positions.ravel(), positions[:, ::-1].ravel()


class Space(Moves):
    """A product of dimensions without equivalent candidates, with decoding and moves.

    Attributes and the constructor's arguments are those of
    :class:`autoturbo.search.encoding.ProductSpace`.
    """

    @staticmethod
    def of(
        model_scheduler: ModelScheduler,
        *,
        subgraphs: int = 0,
        starts: Sequence[Knobs] = (),
    ) -> Space:
        """Return the space of the knobs worth trying for a model on a target.

        A knob without a second value that makes sense here is left out.

        Args:
            model_scheduler: The model on the target.
            subgraphs: Kinds of sub-graphs, the heaviest first, whose own knobs are tried.
            starts: Candidates besides the heuristic
                (:func:`autoturbo.search.warm_starts.starts.starts_of`); each has half as many
                kinds of sub-graphs. One whose partition is another start's is left out; one
                whose partition is the heuristic's is a candidate of this.
        """
        share, whole = (
            batch_share(model_scheduler.model, model_scheduler.target),
            model_scheduler.trace.obstacle,
        )
        layers = [layer.name for layer in layers_of(model_scheduler.model)]
        choices = {
            name: choices_of(name, spec, 1 if whole else share, len(layers), model_scheduler.target)
            for name, spec in knob_specs().items()
        }
        at_once = tuple(map(int, choices["batches_per_cluster"]))
        blocks = blocks_of(model_scheduler, subgraphs, (AUTO, *at_once))
        others = _apart(starts, blocks, layers)
        named = {layer for block in blocks for layer in block.layers}
        given = tuple(s for s in starts if named.issuperset(own.layer for own in s.overrides))
        if others:
            choices[START] = tuple(range(1, len(others) + 1))
        for number, start in enumerate(others, 1):
            samples, kinds = (start.batches_per_cluster, *at_once), -(-subgraphs // 2)
            blocks += blocks_of(model_scheduler, kinds, samples, start, number)
        for block in blocks:
            choices |= {dimension_name(block, field): v for field, v in block.choices.items()}
        dimensions = [
            Dimension(name, (AUTO, *values)) for name, values in choices.items() if values
        ]
        return Space(tuple(dimensions), share, len(layers), blocks, (Knobs(), *others), given)

    def canonical(self, knobs: Knobs) -> Knobs:
        """Return the canonical form of a candidate: ``"auto"`` wherever a value means the same."""
        chosen: dict[str, Any] = {
            name: canonical(name, spec, getattr(knobs, name), self.share, self.layers)
            for name, spec in knob_specs().items()
        }
        plain = dataclasses.replace(knobs, **chosen)
        overrides = tuple(SubGraphKnobs(**effective(o, plain)) for o in plain.overrides)
        return dataclasses.replace(plain, overrides=overrides)

    def to_knobs(self, params: Mapping[str, Any]) -> Knobs:
        """Return the candidate of some parameters; those left out are ``"auto"``.

        Raises:
            KnobsError: A parameter is no knob, or does not take its value.
        """
        subgraph_params = {name: value for name, value in params.items() if name in self._owners}
        start = self._start_of(params)
        known = {**subgraph_params, START: AUTO} if len(self.starts) > 1 else subgraph_params
        model = {name: value for name, value in params.items() if name not in known}
        start_values = {n: getattr(start, n) for n in knob_specs() if model.get(n, AUTO) == AUTO}
        overrides = [o.as_dict() for o in self._overrides(subgraph_params, start)]
        return self.canonical(Knobs.from_dict({**model, **start_values, "overrides": overrides}))

    def from_knobs(self, knobs: Knobs) -> dict[str, Any]:
        """Return the parameters of a candidate, every dimension named.

        Raises:
            KnobsError: The candidate is outside the space.
        """
        canonical, refused = self.canonical(knobs), None
        for number in range(len(self.starts)):
            try:
                return self._from_start(canonical, number)
            except KnobsError as error:
                refused = refused or error
        raise refused or KnobsError("a space without a start")

    def point_of(self, knobs: Knobs) -> tuple[int, ...]:
        """Return the encoding of a candidate.

        Raises:
            KnobsError: The candidate is outside the space.
        """
        genes = self.genes_of(self.from_knobs(knobs))
        if genes is None:
            raise KnobsError("a setting that is not in the search space")
        return genes

    def sparse(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Return the parameters without sub-graph knobs that are ``"auto"``."""
        return {n: v for n, v in params.items() if v != AUTO or n not in self._owners}

    def knobs_of(self, genes: Iterable[int]) -> Knobs:
        """Return the candidate of an encoding."""
        pairs = zip(self.dimensions, genes, strict=True)
        chosen = {d.name: d.choices[index] for d, index in pairs if index}  # 0 is "auto"
        subgraph_params = {name: chosen.pop(name) for name in [*chosen] if name in self._owners}
        start = self._start_of(chosen)
        if len(self.starts) > 1:
            chosen.pop(START, None)
        overrides = tuple(self._overrides(subgraph_params, start))
        return dataclasses.replace(start, **chosen, overrides=overrides)

    def settings(self, genes: Genes) -> list[Knobs]:
        """Return the candidates of encodings."""
        return [self.knobs_of(row) for row in genes.tolist()]

    def _start_of(self, params: Mapping[str, Any]) -> Knobs:
        chosen = params.get(START, AUTO)
        return self.starts[0 if chosen == AUTO or len(self.starts) == 1 else int(chosen)]

    def _overrides(self, params: Mapping[str, Any], start: Knobs) -> list[SubGraphKnobs]:
        """Return a start's overrides, with further choices on top."""
        chosen: dict[tuple[str, ...], dict[str, Any]] = {}
        for name, value in params.items():
            block, field = self._owners[name]
            if value != AUTO:
                chosen.setdefault(block.layers, {})[field] = value
        own = {x: SubGraphKnobs(x, **own) for layers, own in chosen.items() for x in layers}
        said = {o.layer: own.pop(o.layer).over(o) if o.layer in own else o for o in start.overrides}
        return [*said.values(), *own.values()]

    def _from_start(self, canonical: Knobs, number: int) -> dict[str, Any]:
        """Return the parameters of a canonical candidate, relative to one start."""
        known, start = {d.name: d.choices for d in self.dimensions}, self.starts[number]
        params: dict[str, Any] = dict.fromkeys(known, AUTO)
        if number:
            params[START] = number
        values = {n: (getattr(canonical, n), getattr(start, n)) for n in knob_specs()}
        plain = {
            name: value for name, (value, start_value) in values.items() if value != start_value
        }
        if AUTO in plain.values():
            message = "a setting that no start leads to"
            raise KnobsError(message, Location(field=f"{START} {number}"))
        for name, value in {**plain, **self._own_params(canonical, number)}.items():
            if value not in known.get(name, (AUTO,)):
                raise _outside(name, value, known.get(name, (AUTO,)))
            params[name] = value
        genes = self.genes_of(params)
        if genes is not None and self.normal(np.asarray([genes]))[0].tolist() != list(genes):
            location = Location(field="overrides")
            raise KnobsError("a split that is not in the search space", location)
        return params

    def _own_params(self, knobs: Knobs, number: int) -> dict[str, Any]:
        """Return the parameters of the overrides, which alike sub-graphs must have in common."""
        overrides = {o.layer: o for o in knobs.overrides}
        start_overrides = {
            o.layer: SubGraphKnobs(**effective(o, knobs)) for o in self.starts[number].overrides
        }
        params = {}
        for block in (b for b in self.blocks if b.start == number):
            alike = [overrides.pop(layer, SubGraphKnobs(layer)) for layer in block.layers]
            base = [start_overrides.pop(layer, SubGraphKnobs(layer)) for layer in block.layers]
            values = [_beyond(o, b) for o, b in zip(alike, base, strict=True)]
            if AUTO in values[0].values():
                raise _outside("overrides", block.layers[0], ("what the start says",))
            if any(differing != values[0] for differing in values):
                location = Location(field="overrides")
                message = f"sub-graphs like that of {block.layers[0]!r} have one setting here"
                raise KnobsError(message, location)
            params.update({dimension_name(block, n): v for n, v in values[0].items()})
        for layer in sorted(o.layer for o in {*overrides.values()} ^ {*start_overrides.values()}):
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
        """Return one row per knob of the model: name, what it means, choices, published value."""
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
        """Return one row per knob of sub-graphs, with the choices of all blocks that have it."""
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
    """Return the starts that stay distinct: each overrides a layer that the others do not.

    One that names only layers that the heuristic's blocks name gets one more, merged with what
    reads it, as it is anyway: it is no cut of the start.
    """
    heuristic = {layer for block in blocks for layer in block.layers}
    named: dict[frozenset[str], Knobs] = {}
    for start in starts:
        cuts = frozenset(overrides.layer for overrides in start.overrides)
        inside = next((x for x in layers if x not in heuristic | cuts), None)
        if not cuts <= heuristic:
            named.setdefault(cuts, start)
        elif inside is not None and cuts:
            overrides = (*start.overrides, SubGraphKnobs(inside, boundary="merge"))
            named.setdefault(cuts, dataclasses.replace(start, overrides=overrides))
    return tuple(named.values())


def _beyond(own: SubGraphKnobs, base: SubGraphKnobs) -> dict[str, Value]:
    """Return the values in which an override differs from a start's; ``"auto"`` takes one back.

    An unsplit sub-graph has no dimension to name.
    """
    whole = ("dim",) if own.factor == 1 else ()
    names = [name for name in subgraph_knob_specs() if name not in whole]
    return {n: v for n in names if (v := getattr(own, n)) != getattr(base, n)}


def _outside(name: str, value: object, choices: tuple[Any, ...]) -> KnobsError:
    location = Location(field=name)
    return KnobsError(
        f"{value!r} is not in the search space", location, f"one of {', '.join(map(str, choices))}"
    )


def space_of_run(stored: Mapping[str, Any], model_scheduler: ModelScheduler) -> Space:
    """Return the search space of a run.

    Args:
        stored: Its settings, as its record has them.
        model_scheduler: Its model on its target.
    """
    starts = [Knobs.from_dict(kept) for kept in stored.get("starts", ())]
    kinds = stored.get("subgraphs", 0)
    return Space.of(model_scheduler, subgraphs=kinds, starts=starts)


__all__ = ["Dimension", "Space", "batch_share"]
