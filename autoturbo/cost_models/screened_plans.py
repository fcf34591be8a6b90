"""Plans by number: which parts candidates have, from the choices that decide the cuts."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
from numba import njit

from autoturbo.cost_models.choices import Choices, Said
from autoturbo.cost_models.numbering import Columns, RowNumbering, firsts
from autoturbo.cost_models.screened_kernels import Kernels
from autoturbo.cost_models.screened_parts import Part
from autoturbo.errors import KnobsError
from autoturbo.graph.arrays import Ints
from autoturbo.schedule.clusters import PARTS, cluster_axis, rows_for
from autoturbo.schedule.group import GroupRules, SubGraph, group_rows, subgraph_of
from autoturbo.schedule.knobs import AUTO, Knobs
from autoturbo.schedule.own_splits import room_for_parts
from autoturbo.schedule.pipeline import Workbench
from autoturbo.schedule.problem import Problem
from autoturbo.schedule.schedule import BATCH, Share
from autoturbo.schedule.stores import Store

GROUPING: Final = (
    "batches_per_cluster", "cluster_split", "producer_factor_ratio", "merged_factor_ratio",
    "max_layers", "lb_fill", "recompute_limit", "merge_order", "split_key", "split_dims",
    "factor_policy",
)  # fmt: skip
"""Knobs of the model that decide which layers are grouped and how sub-graphs are cut before their
own say; sub-graphs have ``boundary``."""

_CUT: Final = slice(1, 4)
"""Columns of a row of :func:`autoturbo.schedule.group.group_rows` that tell sub-graphs apart: the
set of layers, axis and factor."""


class _Terms(NamedTuple):
    """What a part depends on besides its sub-graph; see :class:`Part`."""

    samples: int
    loops: int
    kind: str
    room: int


class _Numbered(NamedTuple):
    """Sub-graphs that were grouped under some terms: what tells them apart, and their parts."""

    rows: Columns
    parts: Store


class Grouping:
    """Groups layers, and numbers the parts that come of it.

    Args:
        bench: the model on the target.
        kernels: numbers parts.

    Attributes:
        layers: of each part, in order.
    """

    def __init__(self, bench: Workbench, kernels: Kernels) -> None:
        self._bench, self._kernels = bench, kernels
        self._known: dict[_Terms, _Numbered] = {}
        self.layers: list[list[str]] = []

    def share(self, knobs: Knobs) -> Share:
        """How the clusters share out the work.

        Raises:
            KnobsError: more samples at once than there are.
        """
        return self._bench.share(knobs.batches_per_cluster, knobs.cluster_split)

    def parts(self, share: Share, rules: GroupRules) -> Ints:
        """Numbers of a plan's parts, in order."""
        problem, room = self._bench.problem(share.batches), 0
        if share.split == BATCH:
            rows = group_rows(problem, rules)
        else:
            rows = rows_for(problem, rules, share.split)
        kind = share.split if share.split in PARTS else BATCH
        if kind != BATCH:
            room = room_for_parts(problem, rules.splits.lb_fill)
        terms = _Terms(share.batches, share.loops, kind, room)
        if terms not in self._known:
            self._known[terms] = _Numbered(Columns(_CUT.stop - _CUT.start), Store())
        known = self._known[terms]
        numbers = known.rows.of(rows[:, _CUT] + 1)  # no axis is -1, and numbers are from 0
        if known.parts.count < known.rows.count:
            for at in firsts(numbers, known.parts.count).tolist():
                subgraph = subgraph_of(problem, 0, rows[at].tolist())
                known.parts.add([self._part(problem, terms, subgraph)])
        found: Ints = known.parts.rows[numbers]
        return found

    def _part(self, problem: Problem, terms: _Terms, subgraph: SubGraph) -> int:
        samples, loops, kind, room = terms
        shared = kind != BATCH and cluster_axis(problem, subgraph.layers, kind) >= 0
        clusters = problem.target.clusters if shared else 1
        self.layers.append([problem.layers[x].name for x in subgraph.layers])
        return self._kernels.add(Part(problem, subgraph, kind, room, clusters, loops, samples))


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
        self._grouping, self._said, self._each = grouping, said, choices.each
        base = choices.starts[start]
        self._base = dataclasses.replace(base, overrides=())
        self._boundaries = {o.layer: o.boundary for o in base.overrides if o.boundary != AUTO}
        own = [
            at for at, c in enumerate(self._each)
            if c.layers and c.start == start and c.knob == "boundary"
        ]  # fmt: skip
        self._model = choices.of_model(GROUPING)
        self._columns = [*self._model, *own]
        self._numbers = RowNumbering(
            np.asarray([len(self._each[at].values) for at in self._columns], np.int64)
        )
        self._rules: dict[tuple[int, ...], tuple[Share, GroupRules] | None] = {}
        self._blocks = Store()
        self._start = Store()
        self._start.add([0])
        self._entries = Store((2,))
        self.possible = Store((), np.bool_)

    def of(self, genes: Ints) -> Ints:
        """Numbers of the candidates' plans, ``(candidates,)``."""
        rows = genes[:, self._columns]
        numbers = self._numbers.of(rows)
        for row in rows[firsts(numbers, self.possible.count)].tolist():
            self._plan(row)
        return numbers

    def entries(self, plans: Ints) -> tuple[Ints, Ints, Ints]:
        """Per sub-graph of every plan in turn: position of the plan, part, and blocks.

        Blocks are of :meth:`autoturbo.cost_models.choices.Said.blocks_in`.
        """
        owner, entry = _entries(plans, self._start.rows)
        parts, blocks = self._entries.rows[entry].T
        return owner, parts, blocks

    def _plan(self, row: Sequence[int]) -> None:
        """Group the layers as some choices say."""
        rules = self._rules_of(row)
        if rules is not None:
            parts = self._grouping.parts(*rules)
            self._entries.add(np.column_stack((parts, self._blocks_of(parts))))
        self._start.add([self._entries.count])
        self.possible.add([rules is not None])

    def _blocks_of(self, parts: Ints) -> Ints:
        layers, known = self._grouping.layers, self._blocks.count
        if known < len(layers):
            self._blocks.add([self._said.blocks_in(own) for own in layers[known:]])
        found: Ints = self._blocks.rows[parts]
        return found

    def _rules_of(self, row: Sequence[int]) -> tuple[Share, GroupRules] | None:
        """What grouping follows from; None where the choices do not fit the model."""
        count = len(self._model)
        model, own = tuple(row[:count]), dict(self._boundaries)
        if model not in self._rules:
            self._rules[model] = self._rules_of_model(model)
        found = self._rules[model]
        for at, gene in zip(self._columns[count:], row[count:], strict=True):
            if (value := self._each[at].values[gene]) != AUTO:
                own |= dict.fromkeys(self._each[at].layers, value)
        if found is None or not own:
            return found
        cuts, merges = (
            frozenset(layer for layer, said in own.items() if said == boundary)
            for boundary in ("cut", "merge")
        )
        return found[0], dataclasses.replace(found[1], cuts=cuts, merges=merges)

    def _rules_of_model(self, model: Sequence[int]) -> tuple[Share, GroupRules] | None:
        """The same without what is said of boundaries."""
        pairs = zip(self._model, model, strict=True)
        chosen = {self._each[at].knob: self._each[at].values[gene] for at, gene in pairs}
        said = {name: value for name, value in chosen.items() if value != AUTO}
        knobs = dataclasses.replace(self._base, **said)
        try:
            return self._grouping.share(knobs), GroupRules.of(knobs)
        except KnobsError:
            return None


@njit(cache=True)
def _entries(plans: Ints, start: Ints) -> tuple[Ints, Ints]:
    """Per sub-graph of every plan: position of the plan, and the row of the sub-graph."""
    total = 0
    for plan in plans:
        total += start[plan + 1] - start[plan]
    owner, entry = np.empty(total, np.int64), np.empty(total, np.int64)
    at = 0
    for candidate in range(len(plans)):
        for row in range(start[plans[candidate]], start[plans[candidate] + 1]):
            owner[at], entry[at] = candidate, row
            at += 1
    return owner, entry
