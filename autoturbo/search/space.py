"""The search space: dimensions, each a list of choices, and candidates as encodings.

A reader's map::

    Space.of: what is worth trying here, from which starts      subgraphs: with knobs of their own
        points: choice indices                                  conditions: canonical form
        moves: draws, mutants, neighbours

A space may have several starts: complete candidates, the first one the published heuristic. One
dimension chooses the start, ``"auto"`` leaves every knob as the start has it, and each start has
sub-graphs of its own with knobs that mean something where it is chosen.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from autoturbo.errors import KnobsError, Location
from autoturbo.graph.layers import layers_of
from autoturbo.schedule.chip_part import ChipPart, used_target
from autoturbo.schedule.knobs import (
    AUTO,
    LAYER_ORDERS,
    SAMPLES,
    Here,
    Knobs,
    SubGraphKnobs,
    Value,
    Words,
    model_knobs,
    subgraph_knobs,
)
from autoturbo.schedule.knobs.pins import NO_PINS, Pins, refuse_impossible
from autoturbo.schedule.pipeline import plan
from autoturbo.search.encoding import START, Genes, dimension_name, effective
from autoturbo.search.moves import Moves
from autoturbo.search.pins import pins_of_run
from autoturbo.search.points import Dimension
from autoturbo.search.subgraphs import Block, blocks_of

if TYPE_CHECKING:
    from autoturbo.graph.operators import Graph
    from autoturbo.hardware.target import Target
    from autoturbo.schedule.pipeline import ModelScheduler


def batch_share(graph: Graph, target: Target) -> int:
    """Return the samples of the busiest cluster when the batch is shared out."""
    batch = max(graph.batch, 1)
    return -(-batch // min(target.clusters, batch))


class Space(Moves):
    """A product of dimensions without equivalent candidates, with decoding and moves.

    Attributes and the constructor's arguments are those of
    :class:`autoturbo.search.points.ProductSpace`.
    """

    @staticmethod
    def of(
        model_scheduler: ModelScheduler,
        *,
        subgraphs: int = 0,
        starts: Sequence[Knobs] = (),
        pins: Pins = NO_PINS,
        base: Knobs = Knobs(),  # noqa: B008  frozen
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
            pins: What people have decided.
            base: What ``"auto"`` stands for in the first start: the published heuristic, perhaps on
                a part of the chip, on which the search then takes place.

        Raises:
            KnobsError: The target has no place for a pin, or the model cannot be cut as pinned.
        """
        part = ChipPart.of(base)
        layers = [layer.name for layer in layers_of(model_scheduler.model)]
        used = used_target(model_scheduler.target, part)
        here = Here(
            batch_share(model_scheduler.model, used),
            len(layers),
            bool(model_scheduler.trace.obstacle),
            used,
            _orders_apart(model_scheduler, part),
        )
        base, starts = pins.over(base, here), [pins.over(start, here) for start in starts]
        refuse_impossible(pins, base, used)
        choices = {
            name: pins.offered(name, decision.offered(here) if decision.searched else (), here)
            for name, decision in model_knobs().items()
        }
        at_once = tuple(map(int, choices[SAMPLES]))
        samples = (base.batches_per_cluster, *at_once)
        blocks = blocks_of(model_scheduler, subgraphs, samples, base, pins=pins)
        others = _apart(starts, blocks, layers)
        named = {layer for block in blocks for layer in block.layers}
        given = tuple(s for s in starts if named.issuperset(own.layer for own in s.overrides))
        if not pins:  # what is pinned has no dimension
            blocks = tuple(_with_values_of(given, block) for block in blocks)
            choices |= _words_of(given, choices)
        if others:
            choices[START] = tuple(range(1, len(others) + 1))
        for number, start in enumerate(others, 1):
            samples, kinds = (start.batches_per_cluster, *at_once), -(-subgraphs // 2)
            blocks += blocks_of(model_scheduler, kinds, samples, start, number, pins)
        for block in blocks:
            choices |= {dimension_name(block, field): v for field, v in block.choices.items()}
        dimensions = [
            Dimension(name, (AUTO, *values)) for name, values in choices.items() if values
        ]
        return Space(tuple(dimensions), here, blocks, (base, *others), given)

    def canonical(self, knobs: Knobs) -> Knobs:
        """Return the canonical form of a candidate: ``"auto"`` wherever a value means the same."""
        chosen: dict[str, Any] = {
            name: decision.canonical(getattr(knobs, name), self.here)
            for name, decision in model_knobs().items()
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
        start_values = {n: getattr(start, n) for n in model_knobs() if model.get(n, AUTO) == AUTO}
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
        values = {n: (getattr(canonical, n), getattr(start, n)) for n in model_knobs()}
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
        """Return knobs with their choices, and how many candidates there are at most."""
        kinds = [
            {"layers": list(block.layers),
             "knobs": {name: [AUTO, *values] for name, values in block.choices.items()},
             "size": math.prod(len(values) + 1 for values in block.choices.values())}
            for block in self.blocks
        ]  # fmt: skip
        model = [d for d in self.dimensions if d.name not in self._owners and d.name != START]
        return {
            "knobs": self.describe(),
            "subgraph_knobs": self.describe_subgraphs(),
            "subgraphs": kinds,
            "model_size": math.prod(len(d.choices) for d in model),
            "size": self.size,
        }

    def describe(self) -> list[dict[str, Any]]:
        """Return one row per knob of the model: name, what it means, choices, published value."""
        decisions = model_knobs()
        return [
            {
                "knob": d.name,
                "help": decisions[d.name].help,
                "choices": list(d.choices),
                "published": decisions[d.name].published,
            }
            for d in self.dimensions
            if d.name not in self._owners and d.name != START
        ]

    def describe_subgraphs(self) -> list[dict[str, Any]]:
        """Return one row per knob of sub-graphs, with the choices of all blocks that have it."""
        rows = []
        for name, decision in subgraph_knobs().items():
            offers = [block.choices[name] for block in self.blocks if name in block.choices]
            values = dict.fromkeys(value for offer in offers for value in offer)
            ordered = list(values) if decision.choices or not values else sorted(map(int, values))
            row = {"knob": name, "help": decision.help, "choices": [AUTO, *ordered]}
            rows.append({**row, "published": decision.published, "kinds": len(offers)})
        return [row for row in rows if row["kinds"]]


def _orders_apart(model_scheduler: ModelScheduler, part: ChipPart) -> tuple[str, ...]:
    """Return the orders of layers with which the heuristic's kernels differ, or their order."""
    if not model_scheduler.model.operators:
        return ()
    apart: dict[tuple[tuple[int, ...], ...], str] = {}
    for word in LAYER_ORDERS:
        planned = plan(model_scheduler, part.on(Knobs(layer_order=word)))
        anchors = [layer.anchor for layer in planned.context.layers]
        kernels = tuple(tuple(anchors[x] for x in s.layers) for s in planned.subgraphs)
        apart.setdefault(kernels, word)
    return tuple(apart.values())


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


def _words_of(
    starts: Iterable[Knobs], choices: Mapping[str, tuple[Any, ...]]
) -> dict[str, tuple[Any, ...]]:
    """Return the choices of the model's knobs where starts choose words that no search tries."""
    found = dict[str, tuple[Any, ...]]()
    for name, decision in model_knobs().items():
        words = decision.untried if isinstance(decision, Words) else ()
        chosen = {getattr(start, name) for start in starts}
        more = tuple(word for word in words if word in chosen)
        if more:
            found[name] = (*choices[name], *more)
    return found


def _with_values_of(starts: Iterable[Knobs], block: Block) -> Block:
    """Return a block that also offers what starts choose there and a search does not try."""
    choices = dict(block.choices)
    for own in (own for start in starts for own in start.overrides if own.layer in block.layers):
        for name, decision in subgraph_knobs().items():
            value = getattr(own, name)
            if not decision.searched and value != AUTO and value not in choices.get(name, ()):
                choices[name] = (*choices.get(name, ()), value)
    return dataclasses.replace(block, choices=choices)


def _beyond(own: SubGraphKnobs, base: SubGraphKnobs) -> dict[str, Value]:
    """Return the values in which an override differs from a start's; ``"auto"`` takes one back.

    An unsplit sub-graph has no dimension to name.
    """
    whole = ("dim",) if own.factor == 1 else ()
    names = [name for name in subgraph_knobs() if name not in whole]
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
    return Space.of(
        model_scheduler,
        subgraphs=stored.get("subgraphs", 0),
        starts=starts,
        pins=pins_of_run(stored, model_scheduler.model),
        base=part_of_run(stored).on(Knobs()),
    )


PART: Final = "part"
"""Setting of a run whose search takes place on a part of the chip: the heuristic there."""


def part_of_run(stored: Mapping[str, Any]) -> ChipPart:
    """Return the part of the chip that a run's search takes place on, from its settings."""
    return ChipPart.of(Knobs.from_dict(stored.get(PART, {})))


__all__ = ["Dimension", "Space", "batch_share"]
