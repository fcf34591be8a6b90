"""Plans of settings, thousands at once: which sub-graphs they have, how each is cut and run.

::

    settings -> how clusters share out the work -> rules of grouping -> sub-graphs (Algorithm 2)
        -> which override holds for which sub-graph -> final splits -> effective knobs

What settings make of a model before instances exist: a cost model sees the plans of all candidates
of a search. :mod:`autoturbo.schedule.pipeline` plans the setting that a schedule is built from.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from autoturbo.errors import KnobsError, Location
from autoturbo.graph.arrays import Ints
from autoturbo.schedule.alike import number_of
from autoturbo.schedule.cluster_parts import shared_out
from autoturbo.schedule.clusters import PARTS, cluster_axes, group_for
from autoturbo.schedule.group import GroupRules, SubGraph
from autoturbo.schedule.interning import Interner, Memo, whole_numbers
from autoturbo.schedule.knobs import Knobs, SubGraphKnobs
from autoturbo.schedule.own_splits import (
    Own,
    Wrong,
    own_row,
    room_for_parts,
    settle,
    split_error,
)
from autoturbo.schedule.problem import Problem
from autoturbo.schedule.schedule import Share
from autoturbo.schedule.settings_table import (
    MODEL_COLUMNS,
    MODEL_KNOBS,
    UNSAID,
    SettingsTable,
    own_numbers,
    value_of_number,
)
from autoturbo.schedule.split import SplitColumn, axis_table
from autoturbo.schedule.work import Flags, Floats

_RULES: Final = (
    "producer_factor_ratio", "merged_factor_ratio", "max_layers", "lb_fill", "recompute_limit",
    "merge_order", "split_key", "split_dims", "factor_policy",
)  # fmt: skip
"""Knobs of the model that grouping reads."""

_RULE_COLUMNS: Final = [MODEL_KNOBS.index(name) for name in _RULES]
_SHARING: Final = [MODEL_KNOBS.index(name) for name in ("batches_per_cluster", "cluster_split")]
_SCALE: Final = MODEL_KNOBS.index("factor_scale")
_CUT: Final = [SplitColumn.AXIS, SplitColumn.FACTOR]


@dataclass(frozen=True, slots=True, eq=False)
class PlanTable:
    """Sub-graphs of settings that fit the model, those of each in topological order.

    All but the last four have one entry per sub-graph, setting after setting.

    Attributes:
        owner: position of its setting, ascending.
        samples: that a cluster processes at once, which tells its problem.
        loops: passes of a cluster.
        layers: its layers' indices, a tuple of each.
        alike: the same number for isomorphic sub-graphs.
        splits: rows of :class:`autoturbo.schedule.split.SplitColumn`; footprint -1 where it is that
            of the middle part.
        instances: per pass, of the cluster that has most of them.
        own: position in ``owns`` of the override that holds for it.
        runs: position in ``kernel_knobs`` of the knobs that hold for its kernel.
        owns: overrides without layers' names; the first says nothing.
        kernel_knobs: numbers of values of
            :data:`autoturbo.schedule.settings_table.KERNEL_KNOBS`: the override's, or the model's
            where it has none.
        possible: per setting, whether it fits the model.
        errors: why settings do not, by position.
    """

    owner: Ints
    samples: Ints
    loops: Ints
    layers: NDArray[np.object_]
    alike: Ints
    splits: Ints
    instances: Ints
    own: Ints
    runs: Ints
    owns: tuple[SubGraphKnobs, ...]
    kernel_knobs: Floats
    possible: Flags
    errors: dict[int, KnobsError]


class Bench(Protocol):
    """What plans are asked of: :class:`autoturbo.schedule.pipeline.Workbench`."""

    def problem(self, batches: int) -> Problem:
        """Return the model for some samples, ready to schedule."""

    def share(self, batches: int | str, split: str) -> Share:
        """Return how the clusters share out the work.

        Raises:
            KnobsError: more samples at once than there are.
        """


class _Overrides:
    """Overrides by number, and one over another.

    Args:
        known: the first ones; number 0 says nothing.

    Attributes:
        each: by number, without the names of layers.
    """

    def __init__(self, known: Iterable[SubGraphKnobs]) -> None:
        self.each = list(known)
        self._numbers = {own: at for at, own in enumerate(self.each)}
        self._over: dict[tuple[int, int], int] = {}

    def over(self, first: Ints, second: Ints) -> Ints:
        """Return the numbers of overrides, ``second``, over others, ``first``."""
        numbers, new = Interner(2).of(np.column_stack((first, second)))
        pairs = zip(first[new].tolist(), second[new].tolist(), strict=True)
        return np.asarray([self._found(*pair) for pair in pairs], np.int64)[numbers]

    def _found(self, first: int, second: int) -> int:
        if first == 0:
            return second
        if (first, second) not in self._over:
            both = self.each[second].over(self.each[first])
            self._over[first, second] = self._numbers.setdefault(both, len(self.each))
            if len(self._numbers) > len(self.each):
                self.each.append(both)
        return self._over[first, second]


class _Rows(NamedTuple):
    """Columns of a :class:`PlanTable` that have one entry per sub-graph, but for the knobs."""

    owner: Ints
    samples: Ints
    loops: Ints
    layers: NDArray[np.object_]
    alike: Ints
    splits: Ints
    instances: Ints
    own: Ints


def plan_batch(bench: Bench, settings: SettingsTable) -> PlanTable:
    """Return the plans of settings.

    Args:
        bench: the model on the target.
        settings: as columns.
    """
    overrides, errors = _Overrides(settings.owns), dict[int, KnobsError]()
    blocks = [_NO_ROWS]
    numbers, first = Interner(len(_SHARING)).of(whole_numbers(settings.knobs[:, _SHARING]))
    for number, one in enumerate(first.tolist()):
        mine = np.flatnonzero(numbers == number)
        batches, split = (
            value_of_number(MODEL_KNOBS[column], float(settings.knobs[one, column]))
            for column in _SHARING
        )
        try:
            share = bench.share(batches, split)
        except KnobsError as error:
            errors |= dict.fromkeys(mine.tolist(), error)
        else:
            problem = bench.problem(share.batches)
            blocks.append(_rows(problem, share, settings, mine, overrides, errors))
    columns: list[NDArray[Any]] = [np.concatenate(own) for own in zip(*blocks, strict=True)]
    rows = _Rows(*columns)
    possible = np.ones(len(settings.knobs), np.bool_)
    possible[[*errors]] = False
    order = np.argsort(rows.owner, kind="stable")
    order = order[possible[rows.owner[order]]]
    rows = _Rows(*(column[order] for column in columns))
    runs, kernel_knobs = _kernel_knobs(settings, rows, own_numbers(overrides.each))
    return PlanTable(*rows, runs, tuple(overrides.each), kernel_knobs, possible, errors)


_NONE: Final = np.zeros(0, np.int64)
_NO_ROWS: Final = _Rows(
    _NONE, _NONE, _NONE, np.zeros(0, np.object_), _NONE,
    np.zeros((0, len(SplitColumn)), np.int64), _NONE, _NONE,
)  # fmt: skip


def _rows(
    problem: Problem,
    share: Share,
    settings: SettingsTable,
    mine: Ints,
    overrides: _Overrides,
    errors: dict[int, KnobsError],
) -> _Rows:
    """Sub-graphs of settings that share out the work alike.

    Args:
        problem: what each cluster schedules.
        share: how clusters share out the work.
        settings: all of them.
        mine: positions of those that are meant.
        overrides: what is said of sub-graphs, by number.
        errors: takes the errors of settings.
    """
    knobs = settings.knobs[mine]
    at, layer, own = _said_of(problem, settings, mine, errors)
    flags = _boundaries(problem, len(mine), at, layer, overrides.each, own)
    keys = _keys(knobs, flags)
    numbers, first = Interner(keys.shape[1]).of(keys)
    rules = _rules_of(problem, knobs[first], flags[:, first])
    groupings = [group_for(problem, one, share.split) for one in rules]
    counts = np.asarray([len(own) for own in groupings], np.int64)
    grouped = [subgraph for own in groupings for subgraph in own]
    kinds = np.asarray([number_of(problem, s.layers) for s in grouped], np.int64)
    rooms = [room_for_parts(problem, one.splits.lb_fill) for one in rules]
    over, shared = _over_clusters(problem, share.split, grouped, kinds, np.repeat(rooms, counts))
    # from different groupings to all settings
    sizes, begins = counts[numbers], np.cumsum(counts)[numbers] - counts[numbers]
    owner, ends = np.repeat(np.arange(len(mine)), sizes), np.cumsum(sizes)
    which = np.arange(len(owner)) + np.repeat(begins - (ends - sizes), sizes)
    lasts = np.asarray([s.layers[-1] for s in grouped], np.int64)[which]
    rows = (ends - sizes)[at] + _owners(problem, groupings, numbers[at], layer)
    order = np.lexsort((layer, rows))
    own, named = _resolved(
        overrides, rows[order], own[order], (layer == lasts[rows])[order], len(owner)
    )
    said = np.asarray([own_row(1, one, named=False) for one in overrides.each], np.int64)[own]
    said[:, Own.SCALE] = np.maximum(knobs[owner, _SCALE], 1)
    said[:, Own.NAMED] = named
    splits, wrong = settle(
        axis_table(problem), _split_rows(grouped)[which], shared[which], lasts, over[which], said,
        problem.target.clusters,
    )  # fmt: skip
    for row in np.flatnonzero(wrong[:, 0] != Wrong.NOTHING).tolist():
        name = problem.layers[lasts[row]].name
        errors.setdefault(int(mine[owner[row]]), split_error(name, wrong[row].tolist()))
    # 0 parts: none fits, it stays whole
    parts = np.maximum(splits[:, SplitColumn.FACTOR], 1) * splits[:, SplitColumn.INNER_FACTOR]
    instances = -(-parts // np.where(over[which] >= 0, problem.target.clusters, 1))
    samples, loops = (np.full(len(owner), n) for n in (share.batches, share.loops))
    layers = np.fromiter((s.layers for s in grouped), object, len(grouped))[which]
    return _Rows(mine[owner], samples, loops, layers, kinds[which], splits, instances, own)


def _said_of(
    problem: Problem, settings: SettingsTable, mine: Ints, errors: dict[int, KnobsError]
) -> tuple[Ints, Ints, Ints]:
    """Setting (its position in ``mine``), layer and number of the overrides of settings."""
    index = {layer.name: layer.index for layer in problem.layers} if settings.layers else {}
    layers = np.asarray([index.get(name, -1) for name in settings.layers], np.int64)
    position = np.full(len(settings.knobs), -1)
    position[mine] = np.arange(len(mine))
    at, layer = position[settings.setting], layers[settings.layer]
    for unknown in np.flatnonzero((at >= 0) & (layer < 0)).tolist():
        name = settings.layers[settings.layer[unknown]]
        error = KnobsError(f"the model has no layer {name!r}", Location(field="overrides"))
        errors.setdefault(int(settings.setting[unknown]), error)
    there = (at >= 0) & (layer >= 0)
    return at[there], layer[there], settings.own[there]


def _boundaries(
    problem: Problem, count: int, at: Ints, layer: Ints, each: Sequence[SubGraphKnobs], own: Ints
) -> Flags:
    """Per setting and layer, whether it must be cut, and whether merged, after the layer."""
    found = np.zeros((2, count, len(problem.layers)), np.bool_)
    for flags, word in zip(found, ("cut", "merge"), strict=True):
        said = np.asarray([one.boundary == word for one in each])[own]
        flags[at[said], layer[said]] = True
    return found


def _rules_of(problem: Problem, knobs: Floats, flags: Flags) -> list[GroupRules]:
    """Return what grouping follows from, of each setting."""
    names = [layer.name for layer in problem.layers]
    found = []
    for row, cuts, merges in zip(knobs[:, _RULE_COLUMNS].tolist(), *flags, strict=True):
        values = {k: value_of_number(k, number) for k, number in zip(_RULES, row, strict=True)}
        named = ({names[at] for at in np.flatnonzero(own)} for own in (cuts, merges))
        cut, merged = map(frozenset, named)
        rules = GroupRules.of(Knobs(**values))
        found.append(dataclasses.replace(rules, cuts=cut, merges=merged))
    return found


def _keys(knobs: Floats, boundaries: Flags) -> Ints:
    """Whole numbers that are equal where settings group alike, one row each."""
    flags = np.concatenate(boundaries, axis=1)
    room = -flags.shape[1] % 64
    bits = np.packbits(np.pad(flags, ((0, 0), (0, room))), axis=1)
    return np.column_stack((whole_numbers(knobs[:, _RULE_COLUMNS]), bits.view(np.int64)))


def _split_rows(subgraphs: Sequence[SubGraph]) -> Ints:
    """Return the splits that sub-graphs were grouped with."""
    rows = [subgraph.split.row for subgraph in subgraphs]
    return np.asarray(rows, np.int64).reshape(-1, len(SplitColumn))


def _over_clusters(
    problem: Problem, split: str, subgraphs: Sequence[SubGraph], kinds: Ints, rooms: Ints
) -> tuple[Ints, Ints]:
    """Axes along which clusters share out sub-graphs (-1: none), and splits where they do."""
    splits = _split_rows(subgraphs)
    if split not in PARTS:
        return np.full(len(subgraphs), -1), splits
    memo = problem.memory.get(("shared out", split))
    if not isinstance(memo, Memo):
        memo = problem.memory["shared out", split] = Memo(4, (len(SplitColumn),))

    def make(new: Ints) -> Ints:
        chosen = [subgraphs[at] for at in new.tolist()]
        return shared_out(problem, chosen, split, rooms[new].tolist())

    lasts = [subgraph.layers[-1] for subgraph in subgraphs]
    shared = memo.of(np.column_stack((kinds, rooms, splits[:, _CUT])), make)
    return cluster_axes(problem, split)[lasts], shared


def _owners(
    problem: Problem, groupings: Sequence[Sequence[SubGraph]], numbers: Ints, layer: Ints
) -> Ints:
    """Return the sub-graph that has each override's layer, ``(overrides,)``.

    Args:
        problem: whose layers.
        groupings: different ones.
        numbers: grouping of each override's setting.
        layer: of each override.
    """
    owner = np.zeros((len(groupings) if len(layer) else 0, len(problem.layers)), np.int32)
    for row, subgraphs in zip(owner, groupings, strict=False):
        for subgraph in subgraphs:
            row[list(subgraph.layers)] = subgraph.index
    return owner[numbers, layer].astype(np.int64)


def _resolved(
    overrides: _Overrides, rows: Ints, own: Ints, last: Flags, count: int
) -> tuple[Ints, Flags]:
    """Return the override of each sub-graph, and whether it names the layer that makes the output.

    Where several layers share a sub-graph, each knob is that of the last of them, in topological
    order, that sets it; the result carries that layer's name.

    Args:
        overrides: by number.
        rows: sub-graph of each override, ascending, its layers in topological order.
        own: number of each override.
        last: whether its layer makes the output.
        count: sub-graphs.
    """
    found, named = np.zeros(count, np.int64), np.zeros(count, np.bool_)
    while len(rows):
        first = np.append(True, rows[1:] != rows[:-1])
        at = rows[first]
        found[at], named[at] = overrides.over(found[at], own[first]), last[first]
        rows, own, last = rows[~first], own[~first], last[~first]
    return found, named


def _kernel_knobs(settings: SettingsTable, rows: _Rows, own: Floats) -> tuple[Ints, Floats]:
    """Per sub-graph the number of the knobs that hold for its kernel, and these by number.

    Args:
        settings: whose values hold where overrides have none.
        rows: sub-graphs.
        own: what overrides set, by number.
    """
    columns = np.asarray(MODEL_COLUMNS)
    model = np.where(columns < 0, UNSAID, settings.knobs[:, columns])
    models = Interner(len(columns)).of(whole_numbers(model))[0]
    numbers, new = Interner(2).of(np.column_stack((models[rows.owner], rows.own)))
    mine, theirs = own[rows.own[new]], model[rows.owner[new]]
    return numbers, np.where(mine != UNSAID, mine, theirs)
