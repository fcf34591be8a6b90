"""Plans by number: which parts candidates have, from the choices that decide the cuts."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numba import njit

from autoturbo.cost_models.choices import Choice, Choices, Said
from autoturbo.cost_models.numbering import Numbering, RowNumbering, firsts
from autoturbo.cost_models.screened_kernels import Kernels
from autoturbo.cost_models.screened_parts import Part
from autoturbo.errors import KnobsError
from autoturbo.graph.arrays import Ints
from autoturbo.schedule.clusters import PARTS, rows_for
from autoturbo.schedule.group import (
    GroupRules,
    alike,
    group_rows,
    layers_in,
    rules_table,
    subgraph_of,
)
from autoturbo.schedule.knobs import AUTO, Knobs
from autoturbo.schedule.layer_sets import Rules
from autoturbo.schedule.merging import FOUND
from autoturbo.schedule.pipeline import Workbench
from autoturbo.schedule.problem import Problem
from autoturbo.schedule.schedule import BATCH, Share
from autoturbo.schedule.stores import Store

_SHARING: Final = ("batches_per_cluster", "cluster_split")

_RULES: Final = {
    "producer_factor_ratio": "producer_ratio", "merged_factor_ratio": "merged_ratio",
    "max_layers": "max_layers", "lb_fill": "room", "recompute_limit": "limit",
    "merge_order": "order", "split_key": "key", "split_dims": "dims", "factor_policy": "policy",
}  # fmt: skip
"""Fields of :class:`autoturbo.schedule.layer_sets.Rules` by the knob of the model that each follows
from."""

GROUPING: Final = (*_SHARING, *_RULES)
"""Knobs of the model that decide which layers are grouped and how sub-graphs are cut before their
own say; sub-graphs have ``boundary``."""

_BOUNDARIES: Final = (AUTO, "cut", "merge")

_SET: Final = FOUND.index("set")

_CUT: Final = [FOUND.index(name) for name in ("axis", "factor")]
"""Columns that tell sub-graphs of the same layers apart."""


_ROOM = 1 << 18
"""Sub-graphs of plans that there is room for at first; what is not used takes no memory."""


class _Terms(NamedTuple):
    """What a part depends on besides its sub-graph and the room for parts; see :class:`Part`."""

    samples: int
    loops: int
    kind: str


class _Numbered(NamedTuple):
    """Sub-graphs that were grouped under some terms: what tells them apart, and their parts."""

    rows: RowNumbering
    parts: Store


class Grouped(NamedTuple):
    """Sub-graphs of several plans, in order, plan after plan.

    Attributes:
        parts: numbers of their parts; alike sub-graphs have the same.
        sets: numbers of their sets of layers.
        counts: sub-graphs of each plan, ``(plans,)``.
    """

    parts: Ints
    sets: Ints
    counts: Ints


class Grouping:
    """Groups layers, and numbers the parts that come of it.

    Args:
        bench: the model on the target.
        kernels: numbers parts.

    Attributes:
        layers: names of the layers of each set, in order.
    """

    def __init__(self, bench: Workbench, kernels: Kernels) -> None:
        self._bench, self._kernels = bench, kernels
        self._known: dict[_Terms, _Numbered] = {}
        self._problems: dict[int, Problem] = {}
        self._rooms, self._sets = Numbering(), RowNumbering(2)
        self.layers: list[list[str]] = []

    def share(self, knobs: Knobs) -> Share:
        """How the clusters share out the work.

        Raises:
            KnobsError: more samples at once than there are.
        """
        return self._bench.share(knobs.batches_per_cluster, knobs.cluster_split)

    def problem(self, share: Share) -> Problem:
        """What the clusters schedule, always the same: parts are known by its books' numbers."""
        if share.batches not in self._problems:
            self._problems[share.batches] = self._bench.problem(share.batches)
        return self._problems[share.batches]

    def grouped(self, share: Share, rules: Rules) -> Grouped:
        """Sub-graphs of several plans."""
        problem = self.problem(share)
        if share.split == BATCH:
            rows, counts = group_rows(problem, rules)
        else:
            rows, counts = rows_for(problem, rules, share.split)
        terms = _Terms(share.batches, share.loops, share.split if share.split in PARTS else BATCH)
        if terms not in self._known:
            self._known[terms] = _Numbered(RowNumbering(2 + len(_CUT)), Store())
        known = self._known[terms]
        room = np.repeat(rules.room if terms.kind != BATCH else 0 * rules.room, counts)
        layers = alike(problem, rows[:, _SET])
        numbers = known.rows.of(np.column_stack((self._rooms.of(room), layers, rows[:, _CUT])))
        new = firsts(numbers, known.parts.count, known.rows.count)
        own = zip(layers[new].tolist(), room[new].tolist(), rows[new].tolist(), strict=True)
        made = [_part(problem, terms, *one) for one in own]
        known.parts.add(np.arange(len(made)) + self._kernels.add(made))
        sets = self._set_numbers(problem, share.batches, rows[:, _SET])
        return Grouped(known.parts.rows[numbers], sets, counts)

    def _set_numbers(self, problem: Problem, samples: int, sets: Ints) -> Ints:
        """Numbers of sets of layers, whatever the problem."""
        numbers = self._sets.of(np.column_stack((np.full(len(sets), samples), sets)))
        for number in sets[firsts(numbers, len(self.layers), self._sets.count)].tolist():
            self.layers.append([problem.layers[x].name for x in layers_in(problem, number)])
        return numbers


def _part(problem: Problem, terms: _Terms, layers: int, room: int, row: Sequence[int]) -> Part:
    samples, loops, kind = terms
    return Part(problem, layers, subgraph_of(problem, 0, row), kind, room, loops, samples)


class Plans:
    """Plans of the candidates of one start.

    Args:
        grouping: of the model, for all starts.
        said: of the start.
        choices: of the candidates' columns.
        start: number of the start.

    Attributes:
        possible: by number of a plan, whether the choices fit the model.
    """

    def __init__(self, grouping: Grouping, said: Said, choices: Choices, start: int) -> None:
        self._grouping, self._said = grouping, said
        base = choices.starts[start]
        self._base = dataclasses.replace(base, overrides=())
        boundaries = [
            at for at, c in enumerate(choices.each)
            if c.layers and c.start == start and c.knob == "boundary"
        ]  # fmt: skip
        self._columns = [*choices.of_model(GROUPING), *boundaries]
        self._each = [choices.each[at] for at in self._columns]
        self._boundaries = _Boundaries(base, [choices.each[at] for at in boundaries])
        self._numbers = RowNumbering(len(self._each))
        self._shares: dict[tuple[int, ...], Share | None] = {}
        self._rules_said: list[GroupRules] = []
        self._first_rules: dict[int, int] = {}
        self._tables: dict[int, Rules] = {}
        self._blocks = Store()
        self._start = Store()
        self._start.add([0])
        self._entries = Store((2,), np.int64, _ROOM)
        self.possible = Store((), np.bool_)

    def of(self, genes: Ints) -> Ints:
        """Numbers of the candidates' plans, ``(candidates,)``."""
        rows = genes[:, self._columns]
        numbers = self._numbers.of(rows)
        new = firsts(numbers, self.possible.count, self._numbers.count)
        if len(new):
            self._plan(rows[new])
        return numbers

    def entries(self, plans: Ints) -> tuple[Ints, Ints, Ints]:
        """Per sub-graph of every plan in turn: position of the plan, part, and blocks.

        Blocks are of :meth:`autoturbo.cost_models.choices.Said.blocks_in`.
        """
        found: tuple[Ints, Ints, Ints] = _entries(plans, self._start.rows, self._entries.rows)
        return found

    def _plan(self, rows: Ints) -> None:
        """Group the layers as new choices say."""
        sharing = [at for at, c in enumerate(self._each) if not c.layers and c.knob in _SHARING]
        found, owners = [np.zeros((0, 2), np.int64)], [np.zeros(0, np.int64)]
        possible = np.zeros(len(rows), np.bool_)
        said = rows[:, sharing]
        shares = RowNumbering(len(sharing))
        which = shares.of(said)
        for number, genes in enumerate(said[firsts(which, 0, shares.count)].tolist()):
            share = self._share(sharing, tuple(genes))
            if share is not None:
                mine = np.flatnonzero(which == number)
                possible[mine] = True
                grouped = self._grouping.grouped(share, self._rules(share, rows[mine]))
                found.append(np.column_stack((grouped.parts, self._blocks_of(grouped.sets))))
                owners.append(np.repeat(mine, grouped.counts))
        owner = np.concatenate(owners)
        ends = self._entries.count + np.cumsum(np.bincount(owner, minlength=len(rows)))
        self._entries.add(np.concatenate(found)[np.argsort(owner, kind="stable")])
        self._start.add(ends)
        self.possible.add(possible)

    def _blocks_of(self, sets: Ints) -> Ints:
        layers, known = self._grouping.layers, self._blocks.count
        if known < len(layers):
            self._blocks.add([self._said.blocks_in(own) for own in layers[known:]])
        found: Ints = self._blocks.rows[sets]
        return found

    def _share(self, columns: Sequence[int], genes: tuple[int, ...]) -> Share | None:
        """How clusters share out the work; None where the choices do not fit the model."""
        if genes not in self._shares:
            knobs = self._base
            for at, gene in zip(columns, genes, strict=True):
                knobs = self._saying(knobs, at, self._each[at].values[gene])
            try:
                self._shares[genes] = self._grouping.share(knobs)
            except KnobsError:
                self._shares[genes] = None
        return self._shares[genes]

    def _saying(self, knobs: Knobs, at: int, value: Any) -> Knobs:
        return (
            knobs if value == AUTO else dataclasses.replace(knobs, **{self._each[at].knob: value})
        )

    def _rules(self, share: Share, rows: Ints) -> Rules:
        """What grouping follows from, one row each."""
        problem = self._grouping.problem(share)
        if share.batches not in self._tables:
            self._tables[share.batches] = rules_table(problem, self._each_rules())
        table = self._tables[share.batches]
        found = table.taken(np.zeros(len(rows), np.int64))
        for at, first in self._first_rules.items():
            field = _RULES[self._each[at].knob]
            found = found._replace(**{field: getattr(table, field)[first + rows[:, at]]})
        first = len(self._each) - self._boundaries.count
        return self._boundaries.kept(problem, found, rows[:, first:])

    def _each_rules(self) -> list[GroupRules]:
        """The rules of the start, then of each value of each column that rules follow from."""
        if not self._rules_said:
            said = [self._base]
            for at, choice in enumerate(self._each):
                if not choice.layers and choice.knob in _RULES:
                    self._first_rules[at] = len(said)
                    said += [self._saying(self._base, at, value) for value in choice.values]
            self._rules_said = [GroupRules.of(knobs) for knobs in said]
        return self._rules_said


class _Boundaries:
    """What a start and its candidates say of boundaries of sub-graphs.

    Args:
        base: the start.
        each: columns of boundaries; later ones go over earlier ones.

    Attributes:
        count: of columns.
    """

    def __init__(self, base: Knobs, each: Sequence[Choice]) -> None:
        self.count = len(each)
        said = {o.layer: o.boundary for o in base.overrides if o.boundary != AUTO}
        layers = dict.fromkeys([*said, *(layer for c in each for layer in c.layers)])
        self._layers = {layer: at for at, layer in enumerate(layers)}
        self._base = np.asarray(
            [_BOUNDARIES.index(said.get(layer, AUTO)) for layer in layers], np.int64
        )
        self._values = [np.asarray([_BOUNDARIES.index(v) for v in c.values]) for c in each]
        self._own = [np.asarray([self._layers[layer] for layer in c.layers]) for c in each]
        self._known: dict[int, tuple[Ints, Ints]] = {}

    def kept(self, problem: Problem, rules: Rules, rows: Ints) -> Rules:
        """Rules with these boundaries, one row of choices each."""
        if not self._layers:
            return rules
        said = np.tile(self._base, (len(rows), 1))
        for genes, values, own in zip(rows.T, self._values, self._own, strict=True):
            spoken = np.flatnonzero(values[genes])
            said[spoken[:, None], own] = values[genes[spoken], None]
        cuts, merges = np.zeros_like(rules.cuts), np.zeros_like(rules.merges)
        layers, columns = self._layers_of(problem)
        cuts[:, layers] = said[:, columns] == _BOUNDARIES.index("cut")
        merges[:, layers] = said[:, columns] == _BOUNDARIES.index("merge")
        return rules._replace(cuts=cuts, merges=merges)

    def _layers_of(self, problem: Problem) -> tuple[Ints, Ints]:
        """The layers of a problem that something is said of, and where; remembered by samples."""
        samples = problem.graph.batch
        if samples not in self._known:
            own = [(layer.index, self._layers.get(layer.name, -1)) for layer in problem.layers]
            layers, columns = np.asarray(own, np.int64).T
            self._known[samples] = layers[columns >= 0], columns[columns >= 0]
        return self._known[samples]


@njit(cache=True)
def _entries(plans: Ints, start: Ints, rows: Ints) -> tuple[Ints, Ints, Ints]:
    """Per sub-graph of every plan: position of the plan, and the columns of its row."""
    total = 0
    for plan in plans:
        total += start[plan + 1] - start[plan]
    owner, first, second = np.empty((3, total), np.int64)
    at = 0
    for candidate in range(len(plans)):
        for row in range(start[plans[candidate]], start[plans[candidate] + 1]):
            owner[at], first[at], second[at] = candidate, rows[row, 0], rows[row, 1]
            at += 1
    return owner, first, second
