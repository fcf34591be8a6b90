"""Predicts thousands of candidates of a search at once, from their choices alone.

Candidates have most things in common, so everything is numbered and computed once: the choices that
decide the cuts give a *plan*, which has *parts* (layers of a sub-graph and how they are cut); the
other choices, the model's or a sub-graph's own, are a *way*; a part in a way is a *kernel*::

    choices (candidates x dimensions)
        -> number of the plan    -> its parts              grouped where it is new
        -> number of the way that holds for each of its parts
        -> number of the kernel  -> launches x seconds     predicted where it is new
        -> sum

It says of every candidate what :class:`autoturbo.cost_models.pretrained.Predictor` says of the same
setting.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
from numba import njit

from autoturbo.cost_models.numbering import RowNumbering, firsts
from autoturbo.cost_models.pretrained import Pretrained
from autoturbo.cost_models.screened_kernels import Kernels, Part
from autoturbo.cost_models.ways import Choice, Ways
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
from autoturbo.schedule.work import Floats

GROUPING: Final = (
    "batches_per_cluster", "cluster_split", "producer_factor_ratio", "merged_factor_ratio",
    "max_layers", "lb_fill", "recompute_limit", "merge_order", "split_key", "split_dims",
    "factor_policy", "boundary",
)  # fmt: skip
"""Knobs that decide which layers are grouped and how sub-graphs are cut before their own say."""


class _Entry(NamedTuple):
    """One sub-graph of a plan: its part and the blocks whose knobs it has (0 for none)."""

    part: int
    blocks: int


class Screen:
    """Predicted latencies of one model's candidates on one target.

    Args:
        bench: the model on the target.
        model: trained beforehand.
        choices: of the candidates' columns.
    """

    def __init__(self, bench: Workbench, model: Pretrained, choices: Sequence[Choice]) -> None:
        self._bench, self._choices = bench, tuple(choices)
        grouping = [at for at, c in enumerate(choices) if c.knob in GROUPING]
        self._grouping = np.asarray(grouping, np.int64)
        widths = np.asarray([len(choices[at].values) for at in grouping], np.int64)
        self._numbers = RowNumbering(widths)
        self._ways = Ways(self._choices)
        self._kernels = Kernels(model, self._ways)
        self._rows: dict[tuple[int, int, str, int], dict[tuple[int, int, int], _Entry]] = {}
        self._start = Store()
        self._start.add([0])
        self._entries = Store((len(_Entry._fields),))
        self._possible = Store((), np.bool_)

    def seconds(self, genes: Ints) -> Floats:
        """Predicted latency, ``(candidates,)``; infinite where a setting does not fit the model.

        Args:
            genes: numbers of choices, ``(candidates, dimensions)``.
        """
        plans = self._plans(genes)
        models, own = self._ways.of(genes)
        owner, entry = _entries(plans, self._start.rows)
        parts, blocks = self._entries.rows[entry].T
        ways = self._ways.numbers(models, np.zeros(len(genes), np.int64))[owner]
        theirs = np.flatnonzero(blocks)
        values = self._ways.joined(own, owner[theirs], blocks[theirs])
        said = values > 0
        theirs = theirs[said]
        ways[theirs] = self._ways.numbers(models[owner[theirs]], values[said])
        worth = self._kernels.seconds(parts, ways)
        found = np.bincount(owner, worth, len(genes))
        return np.where(self._possible.rows[plans], found, np.inf)

    def _plans(self, genes: Ints) -> Ints:
        """Numbers of the candidates' plans."""
        rows = genes[:, self._grouping]
        numbers = self._numbers.of(rows)
        for row in rows[firsts(numbers, self._possible.count)].tolist():
            self._plan(row)
        return numbers

    def _plan(self, row: Sequence[int]) -> None:
        """Group the layers as some choices say."""
        try:
            entries = self._grouped(self._knobs(row))
        except KnobsError:
            entries = None
        self._entries.add(np.asarray(entries or [], np.int64).reshape(-1, len(_Entry._fields)))
        self._start.add([self._entries.count])
        self._possible.add([entries is not None])

    def _knobs(self, row: Sequence[int]) -> Knobs:
        model, own = {}, []
        for at, gene in zip(self._grouping.tolist(), row, strict=True):
            choice = self._choices[at]
            value = choice.values[gene]
            if value != AUTO and choice.layers:
                own += [SubGraphKnobs(layer, boundary=value) for layer in choice.layers]
            elif value != AUTO:
                model[choice.knob] = value
        return Knobs(**model, overrides=tuple(own))

    def _grouped(self, knobs: Knobs) -> list[_Entry]:
        share = self._bench.share(knobs.batches_per_cluster, knobs.cluster_split)
        problem, rules, room = self._bench.problem(share.batches), GroupRules.of(knobs), 0
        if share.split == BATCH:
            rows = group_rows(problem, rules)
        else:
            rows = rows_for(problem, rules, share.split)
        kind = share.split if share.split in PARTS else BATCH
        if kind != BATCH:
            room = room_for_parts(problem, rules.splits.lb_fill)
        known = self._rows.setdefault((share.batches, share.loops, kind, room), {})
        entries = []
        for row in rows.tolist():
            key = (row[1], row[2], row[3])
            if key not in known:
                known[key] = self._entry(problem, share, kind, room, subgraph_of(problem, 0, row))
            entries.append(known[key])
        return entries

    def _entry(
        self, problem: Problem, share: Share, kind: str, room: int, subgraph: SubGraph
    ) -> _Entry:
        shared = kind != BATCH and cluster_axis(problem, subgraph.layers, kind) >= 0
        clusters = problem.target.clusters if shared else 1
        number = self._kernels.add(Part(problem, subgraph, kind, room, clusters, share.loops))
        blocks = self._ways.blocks_in([problem.layers[x].name for x in subgraph.layers])
        return _Entry(number, blocks)


@njit(cache=True)
def _entries(plans: Ints, start: Ints) -> tuple[Ints, Ints]:
    """Per sub-graph of every candidate: the candidate, and the row of the sub-graph."""
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
