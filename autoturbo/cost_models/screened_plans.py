"""Plans by number: which parts candidates have, from the choices that decide the cuts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
from numba import njit

from autoturbo.cost_models.choices import Choices, Said
from autoturbo.cost_models.numbering import RowNumbering, firsts
from autoturbo.cost_models.screened_kernels import Kernels
from autoturbo.cost_models.screened_parts import Part
from autoturbo.errors import KnobsError
from autoturbo.graph.arrays import Ints
from autoturbo.schedule.clusters import PARTS, cluster_axis, rows_for
from autoturbo.schedule.group import GroupRules, SubGraph, group_rows, subgraph_of
from autoturbo.schedule.knobs import AUTO, Knobs, SubGraphKnobs
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
        self._known: dict[tuple[int, int, str, int], dict[tuple[int, int, int], int]] = {}
        self.layers: list[list[str]] = []

    def parts(self, knobs: Knobs) -> list[int]:
        """Numbers of a setting's parts, in order.

        Raises:
            KnobsError: the setting does not fit the model.
        """
        share = self._bench.share(knobs.batches_per_cluster, knobs.cluster_split)
        problem, rules, room = self._bench.problem(share.batches), GroupRules.of(knobs), 0
        if share.split == BATCH:
            rows = group_rows(problem, rules)
        else:
            rows = rows_for(problem, rules, share.split)
        kind = share.split if share.split in PARTS else BATCH
        if kind != BATCH:
            room = room_for_parts(problem, rules.splits.lb_fill)
        known = self._known.setdefault((share.batches, share.loops, kind, room), {})
        found = []
        for row in rows.tolist():
            key = (row[1], row[2], row[3])
            if key not in known:
                known[key] = self._part(problem, share, kind, room, subgraph_of(problem, 0, row))
            found.append(known[key])
        return found

    def _part(
        self, problem: Problem, share: Share, kind: str, room: int, subgraph: SubGraph
    ) -> int:
        shared = kind != BATCH and cluster_axis(problem, subgraph.layers, kind) >= 0
        clusters = problem.target.clusters if shared else 1
        self.layers.append([problem.layers[x].name for x in subgraph.layers])
        passes = (share.loops, share.batches)
        return self._kernels.add(Part(problem, subgraph, kind, room, clusters, *passes))


class _Entry(NamedTuple):
    """One sub-graph of a plan: its part and the blocks whose knobs it has (0 for none)."""

    part: int
    blocks: int


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
        self._base = choices.starts[start]
        boundaries = [
            at for at, c in enumerate(self._each)
            if c.layers and c.start == start and c.knob == "boundary"
        ]  # fmt: skip
        columns = [*choices.of_model(GROUPING), *boundaries]
        self._columns = np.asarray(columns, np.int64)
        self._numbers = RowNumbering(
            np.asarray([len(self._each[at].values) for at in columns], np.int64)
        )
        self._blocks: dict[int, int] = {}
        self._start = Store()
        self._start.add([0])
        self._entries = Store((len(_Entry._fields),))
        self.possible = Store((), np.bool_)

    def of(self, genes: Ints) -> Ints:
        """Numbers of the candidates' plans, ``(candidates,)``."""
        rows = genes[:, self._columns]
        numbers = self._numbers.of(rows)
        for row in rows[firsts(numbers, self.possible.count)].tolist():
            self._plan(row)
        return numbers

    def entries(self, plans: Ints) -> tuple[Ints, Ints, Ints]:
        """Per sub-graph of every plan in turn: position of the plan, part and blocks."""
        owner, entry = _entries(plans, self._start.rows)
        parts, blocks = self._entries.rows[entry].T
        return owner, parts, blocks

    def _plan(self, row: Sequence[int]) -> None:
        """Group the layers as some choices say."""
        try:
            parts = self._grouping.parts(self._knobs(row))
        except KnobsError:
            parts = None
        entries = [_Entry(part, self._blocks_of(part)) for part in parts or ()]
        self._entries.add(np.asarray(entries, np.int64).reshape(-1, len(_Entry._fields)))
        self._start.add([self._entries.count])
        self.possible.add([parts is not None])

    def _blocks_of(self, part: int) -> int:
        if part not in self._blocks:
            self._blocks[part] = self._said.blocks_in(self._grouping.layers[part])
        return self._blocks[part]

    def _knobs(self, row: Sequence[int]) -> Knobs:
        """The start with some choices that decide the cuts; all else as it may be."""
        model = {name: getattr(self._base, name) for name in GROUPING}
        own = {o.layer: o.boundary for o in self._base.overrides}
        for at, gene in zip(self._columns.tolist(), row, strict=True):
            choice = self._each[at]
            value = choice.values[gene]
            if value != AUTO:
                model |= {} if choice.layers else {choice.knob: value}
                own |= dict.fromkeys(choice.layers, value)
        cuts = tuple(SubGraphKnobs(layer, boundary=b) for layer, b in own.items() if b != AUTO)
        return Knobs(**model, overrides=cuts)


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
