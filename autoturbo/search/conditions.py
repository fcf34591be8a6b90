"""When a choice for a sub-graph means nothing: the condition in a conditional space.

Written as tables over choice indices, so that thousands of points are brought into their one form
at once, and the points that differ are counted without listing them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autoturbo.schedule.knobs import (
    AUTO,
    Knobs,
    Stage,
    SubGraphKnobs,
    Value,
    knob_names,
    knob_specs,
)
from autoturbo.search.forms import Rules, Split, Table, Void
from autoturbo.search.subgraphs import RAGGED, Block

START = "start"
"""The dimension that chooses a start: a setting that ``"auto"`` leaves as it is."""

Genes = NDArray[np.int64]
"""Choice indices: ``(dimensions,)`` for one point, ``(points, dimensions)`` for several."""

_HEURISTIC = Knobs()

SPLIT = knob_names("subgraph", upto=Stage.PARTITION)
"""Knobs of a sub-graph that make sense together only."""


def stands_for(name: str, value: Value) -> Value | None:
    """What a value of a model's knob means; None where ``"auto"`` is nothing that has a name."""
    spec = knob_specs()[name]
    if value != AUTO:
        return value
    if spec.low is None:
        return spec.word
    try:
        return float(spec.published)
    except ValueError:
        return None


def means_nothing(field: str, value: Value, model: Value) -> bool:
    """Whether a sub-graph's choice changes nothing, given the model's knob that it depends on."""
    if value == AUTO:
        return False
    if field == "priority":
        return model != "priority"
    return value == stands_for(field, model)


def decides(field: str) -> str | None:
    """The model's knob that says whether a choice for a sub-graph means anything.

    Where it has one of the same name, a sub-graph's own value must differ to be one.
    """
    if field == "priority":
        return "instance_order"
    return field if field in knob_specs() else None


def effective(override: SubGraphKnobs, knobs: Knobs) -> dict[str, Any]:
    """The choices of an override that change something, with the layer."""
    return {
        name: value
        for name, value in override.as_dict().items()
        if (model := decides(name)) is None or not means_nothing(name, value, getattr(knobs, model))
    }


class Conditions:
    """The rules of a space.

    Args:
        names: of the dimensions.
        choices: of the dimensions, ``"auto"`` first in those of knobs.
        blocks: knobs of sub-graphs; their dimensions are named by :func:`dimension_name`.
        base: the setting that ``"auto"`` stands for.
        void: dimensions that mean nothing here.
    """

    def __init__(
        self,
        names: Sequence[str],
        choices: Sequence[tuple[Any, ...]],
        blocks: Sequence[Block],
        base: Knobs = _HEURISTIC,
        void: Iterable[int] = (),
    ) -> None:
        self._widths = [len(c) for c in choices]
        where = {name: index for index, name in enumerate(names)}
        known = dict(zip(names, choices, strict=True))
        self._void = sorted(void)
        self._voids = [
            [v for f in b.choices if (v := _void(where, known, b, f, base))] for b in blocks
        ]
        self._splits = [_split(where, known, block, base) for block in blocks]
        own = {where[dimension_name(b, f)] for b in blocks for f in b.choices}
        self._model = [i for i in range(len(names)) if i not in own and i not in self._void]
        self._news = {
            i: np.asarray([j == 0 or c != getattr(base, names[i], None) for j, c in
                           enumerate(choices[i])])
            for i in self._model
        }  # fmt: skip
        self._rules = Rules(
            self._void, self._news, [v for each in self._voids for v in each], self._splits
        )
        self._free = [
            [self._widths[where[dimension_name(b, f)]] for f in b.choices
             if f not in SPLIT and decides(f) is None]
            for b in blocks
        ]  # fmt: skip

    def normal(self, genes: Genes) -> Genes:
        """Points in the one form of what they mean."""
        if not self._rules:
            return genes
        found = genes.copy()
        self._rules.apply(found)
        return found

    def settle(self, genes: Genes, start: int, number: int) -> None:
        """Bring into their form, in place, the points that have one start.

        Args:
            genes: ``(points, dimensions)``.
            start: position of the dimension that chooses it.
            number: of the start.
        """
        self._rules.apply(genes, start, number)

    @property
    def model_size(self) -> int:
        """Points with no override."""
        return math.prod(int(news.sum()) for news in self._news.values())

    @property
    def block_sizes(self) -> list[int]:
        """Different settings of each block's knobs while the model's are ``"auto"``."""
        return [
            math.prod(free) * math.prod(int(v.counts()[0]) for v in voids)
            * int(split.counts()[0, 0])
            for free, voids, split in zip(self._free, self._voids, self._splits, strict=True)
        ]  # fmt: skip

    @property
    def size(self) -> int:
        """Different points.

        A choice of a sub-graph depends on one knob of the model at most (the split on two), and no
        two groups of choices on the same: sums over each such knob, multiplied.
        """
        if not self._splits:
            return self.model_size
        linked: dict[int, list[NDArray[np.int64]]] = {}
        for void in (v for voids in self._voids for v in voids):
            linked.setdefault(void.model, []).append(void.counts()[self._rows(void.model)])
        unknown = linked.pop(-1, [])  # the model's knob is not searched: it is "auto"
        first = self._splits[0]
        rows = np.ix_(self._rows(first.batches), self._rows(first.policy))
        splits = _total([split.counts()[rows].ravel() for split in self._splits])
        used = {*linked, first.batches, first.policy}
        rest = math.prod(int(n.sum()) for i, n in self._news.items() if i not in used)
        own = math.prod(math.prod(free) for free in self._free)
        fixed = math.prod(int(counts[0]) for counts in unknown)
        return rest * own * fixed * splits * math.prod(_total(c) for c in linked.values())

    def _rows(self, position: int) -> Table:
        """Choices of a dimension of the model that are none of the start's, -1: there is one."""
        return self._news[position] if position >= 0 else np.ones(1, np.bool_)


class StartConditions:
    """The rules of a space with several starts: those of the start that a point has.

    Args:
        names: of the dimensions, :data:`START` among them.
        choices: of the dimensions, ``"auto"`` first in those of knobs.
        blocks: knobs of sub-graphs, those of the first start first.
        starts: settings.
    """

    def __init__(
        self,
        names: Sequence[str],
        choices: Sequence[tuple[Any, ...]],
        blocks: Sequence[Block],
        starts: Sequence[Knobs],
    ) -> None:
        self._start = list(names).index(START)
        where = {name: index for index, name in enumerate(names)}
        self._each = []
        for number, base in enumerate(starts):
            mine = [b for b in blocks if b.start == number]
            others = [b for b in blocks if b.start != number]
            void = {where[dimension_name(b, f)] for b in others for f in b.choices}
            self._each.append(Conditions(names, choices, mine, base, {self._start, *void}))

    def normal(self, genes: Genes) -> Genes:
        """Points in the one form of what they mean."""
        found = genes.copy()
        for number, conditions in enumerate(self._each):
            conditions.settle(found, self._start, number)
        return found

    @property
    def model_size(self) -> int:
        """Points without a choice for a sub-graph."""
        return sum(conditions.model_size for conditions in self._each)

    @property
    def block_sizes(self) -> list[int]:
        """Different settings of each block's knobs while the model's are ``"auto"``."""
        return [size for conditions in self._each for size in conditions.block_sizes]

    @property
    def size(self) -> int:
        """Different points."""
        return sum(conditions.size for conditions in self._each)


def dimension_name(block: Block, field: str) -> str:
    """``subgraph:LAYER:KNOB``; ``subgraph@START:LAYER:KNOB`` where it is not the heuristic's."""
    at = f"@{block.start}" if block.start else ""
    return f"subgraph{at}:{block.layers[0]}:{field}"


def _total(counts: list[NDArray[np.int64]]) -> int:
    """Sum over the shared choices of the product over blocks; exact however large."""
    return sum(math.prod(column) for column in zip(*(c.tolist() for c in counts), strict=True))


def _void(
    where: Mapping[str, int],
    known: Mapping[str, tuple[Any, ...]],
    block: Block,
    field: str,
    base: Knobs,
) -> Void | None:
    model, own = decides(field), dimension_name(block, field)
    if model is None:
        return None
    rows = _meant(known, model, base)
    table = [[means_nothing(field, value, row) for value in known[own]] for row in rows]
    return Void(where.get(model, -1), where[own], np.asarray(table))


def _meant(known: Mapping[str, tuple[Any, ...]], name: str, base: Knobs) -> tuple[Any, ...]:
    """Choices of a knob of the model, the first as what it stands for at a start."""
    return (getattr(base, name), *known.get(name, (AUTO,))[1:])


def _split(
    where: Mapping[str, int], known: Mapping[str, tuple[Any, ...]], block: Block, base: Knobs
) -> Split:
    names = [dimension_name(block, field) for field in SPLIT]
    dims, factors, inner, parts = (known.get(name, (AUTO,)) for name in names)
    policies = _meant(known, "factor_policy", base)
    own = block.base.factor
    samples = range(len(known.get("batches_per_cluster", (AUTO,))))
    depths = [block.depth if d == AUTO else int(d) for d in dims]
    return Split(
        where.get("batches_per_cluster", -1),
        where.get("factor_policy", -1),
        (where.get(names[0], -1), where.get(names[1], -1), where.get(names[2], -1),
         where.get(names[3], -1)),
        np.asarray(depths),
        np.asarray([-1 if d == AUTO else d for d in inner]),
        np.asarray([[d == AUTO or _extent(block, int(d), b) > 1 for d in dims] for b in samples]),
        _fits(
            [[_extent(block, d, b) for d in depths] for b in samples], policies, (own, *factors[1:])
        ),
        _inner_fits(block, inner, parts, policies, samples),
        0 if own == 1 else factors.index(1) if 1 in factors else -1,
    )  # fmt: skip


def _extent(block: Block, depth: int, samples: int) -> int:
    """Extent of a dimension at a choice of samples; 1 where it cannot be split."""
    return block.extents[depth][samples] if depth in block.extents else 1


def _fits(
    sizes: Sequence[Sequence[int]], policies: Sequence[Value], factors: Sequence[Value]
) -> Table:
    """Factors that extents take, by samples, policy, dimension's choice and factor's choice."""
    return np.asarray(
        [[[[f in (AUTO, 1) or _divides(int(f), size, policy) for f in factors] for size in row]
          for policy in policies] for row in sizes]
    )  # fmt: skip


def _inner_fits(
    block: Block,
    inner: Sequence[Value],
    parts: Sequence[Value],
    policies: Sequence[Value],
    samples: range,
) -> Table:
    """The same for the second axis, where both choices must be made."""
    sizes = [[0 if d == AUTO else _extent(block, int(d), b) for d in inner] for b in samples]
    both = np.asarray([[AUTO not in (d, f) for f in parts] for d in inner])
    found: Table = _fits(sizes, policies, parts) & both
    return found


def _divides(parts: int, extent: int, policy: Value) -> bool:
    if parts > extent:
        return False
    return extent % parts == 0 or (policy == "ragged" and parts in RAGGED)
