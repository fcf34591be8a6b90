"""Plans of settings, thousands at once: which sub-graphs they have, how each is cut and run.

::

    settings -> how clusters share out the work -> rules of grouping -> sub-graphs (Algorithm 2)
        -> which override holds for which sub-graph -> final splits -> effective knobs

What settings make of a model before instances exist: a cost model sees the plans of all candidates
of a search. :mod:`autoturbo.schedule.pipeline` plans the setting that a schedule is built from.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

import numpy as np
from numba import njit

from autoturbo.errors import KnobsError, Location
from autoturbo.graph.arrays import Ints
from autoturbo.schedule.cluster_parts import shared_out
from autoturbo.schedule.clusters import PARTS, cluster_axes, rows_for
from autoturbo.schedule.group import (
    GroupRules,
    alike,
    group_rows,
    layer_sets_of,
    rules_table,
    subgraph_of,
)
from autoturbo.schedule.interning import Interner, Memo, whole_numbers
from autoturbo.schedule.knobs import Knobs, SubGraphKnobs
from autoturbo.schedule.layer_sets import Flags, Rules
from autoturbo.schedule.merging import FOUND
from autoturbo.schedule.own_splits import Own, Wrong, own_row, settle, split_error
from autoturbo.schedule.problem import Problem
from autoturbo.schedule.schedule import BATCH, Share
from autoturbo.schedule.settings_table import (
    MODEL_COLUMNS,
    MODEL_KNOBS,
    UNSAID,
    SettingsTable,
    own_numbers,
    value_of_number,
)
from autoturbo.schedule.split import SplitColumn, axis_table
from autoturbo.schedule.work import Floats

_RULES: Final = {
    "producer_factor_ratio": "producer_ratio", "merged_factor_ratio": "merged_ratio",
    "max_layers": "max_layers", "lb_fill": "room", "recompute_limit": "limit",
    "merge_order": "order", "split_key": "key", "split_dims": "dims", "factor_policy": "policy",
}  # fmt: skip
"""Fields of :class:`autoturbo.schedule.layer_sets.Rules` by the knob of the model that each follows
from."""

_RULE_COLUMNS: Final = [MODEL_KNOBS.index(name) for name in _RULES]
_SHARING: Final = [MODEL_KNOBS.index(name) for name in ("batches_per_cluster", "cluster_split")]
_SCALE: Final = MODEL_KNOBS.index("factor_scale")
_SET: Final = FOUND.index("set")
_CUT: Final = [FOUND.index(name) for name in ("axis", "factor")]


@dataclass(frozen=True, slots=True, eq=False)
class PlanTable:
    """Sub-graphs of settings that fit the model, those of each in topological order.

    All but the last four have one entry per sub-graph, setting after setting.

    Attributes:
        owner: position of its setting, ascending.
        samples: that a cluster processes at once, which tells its problem.
        loops: passes of a cluster.
        sets: number of its set of layers in its problem.
        alike: the same number for sets of layers that are alike.
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
    sets: Ints
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
    sets: Ints
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
    rows = _Rows(*map(np.concatenate, zip(*blocks, strict=True)))
    possible = np.ones(len(settings.knobs), np.bool_)
    possible[[*errors]] = False
    order = np.argsort(rows.owner, kind="stable")
    order = order[possible[rows.owner[order]]]
    rows = _Rows(*(column[order] for column in rows))
    runs, kernel_knobs = _kernel_knobs(settings, rows, own_numbers(overrides.each))
    return PlanTable(*rows, runs, tuple(overrides.each), kernel_knobs, possible, errors)


_NONE: Final = np.zeros(0, np.int64)
_NO_ROWS: Final = _Rows(
    _NONE, _NONE, _NONE, _NONE, _NONE, np.zeros((0, len(SplitColumn)), np.int64), _NONE, _NONE
)


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
    rules = _rules_of(problem, knobs, *flags)
    keys = _keys(knobs, rules)
    numbers, first = Interner(keys.shape[1]).of(keys)
    rules = rules.taken(first)
    plain = share.split == BATCH
    found, counts = group_rows(problem, rules) if plain else rows_for(problem, rules, share.split)
    kinds = alike(problem, found[:, _SET])
    over, shared = _over_clusters(problem, share.split, found, kinds, np.repeat(rules.room, counts))
    # from different groupings to all settings
    sizes, begins = counts[numbers], np.cumsum(counts)[numbers] - counts[numbers]
    owner, ends = np.repeat(np.arange(len(mine)), sizes), np.cumsum(sizes)
    which = np.arange(len(owner)) + np.repeat(begins - (ends - sizes), sizes)
    start, members = layer_sets_of(problem)
    sets = found[which, _SET]
    lasts = members[start[sets + 1] - 1, 1] - 1
    rows = _rows_with(at, layer, ends - sizes, begins, sizes, found[:, _SET], start, members)
    order = np.lexsort((layer, rows))
    own, named = _resolved(
        overrides, rows[order], own[order], (layer == lasts[rows])[order], len(owner)
    )
    said = np.asarray([own_row(1, one, named=False) for one in overrides.each], np.int64)[own]
    said[:, Own.SCALE] = np.maximum(knobs[owner, _SCALE], 1)
    said[:, Own.NAMED] = named
    splits, wrong = settle(
        axis_table(problem), _split_rows(found)[which], shared[which], lasts, over[which], said,
        problem.target.clusters,
    )  # fmt: skip
    for row in np.flatnonzero(wrong[:, 0] != Wrong.NOTHING).tolist():
        name = problem.layers[lasts[row]].name
        errors.setdefault(int(mine[owner[row]]), split_error(name, wrong[row].tolist()))
    # 0 parts: none fits, it stays whole
    parts = np.maximum(splits[:, SplitColumn.FACTOR], 1) * splits[:, SplitColumn.INNER_FACTOR]
    instances = -(-parts // np.where(over[which] >= 0, problem.target.clusters, 1))
    samples, loops = (np.full(len(owner), n) for n in (share.batches, share.loops))
    return _Rows(mine[owner], samples, loops, sets, kinds[which], splits, instances, own)


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
) -> tuple[Flags, Flags]:
    """Per setting and layer, whether it must be cut, and whether merged, after the layer."""
    found = np.zeros((2, count, len(problem.layers)), np.bool_)
    for flags, word in zip(found, ("cut", "merge"), strict=True):
        said = np.asarray([one.boundary == word for one in each])[own]
        flags[at[said], layer[said]] = True
    return found[0], found[1]


def _rules_of(problem: Problem, knobs: Floats, cuts: Flags, merges: Flags) -> Rules:
    """What grouping follows from, one row per setting."""
    each, rows = list[GroupRules](), dict[str, Ints]()
    for knob, column in zip(_RULES, _RULE_COLUMNS, strict=True):
        values, which = np.unique(knobs[:, column], return_inverse=True)
        rows[knob] = len(each) + which
        each += [_rule_of(knob, value) for value in values.tolist()]
    table = rules_table(problem, each)
    fields = {field: getattr(table, field)[rows[knob]] for knob, field in _RULES.items()}
    return Rules(**fields, cuts=cuts, merges=merges)


@functools.cache
def _rule_of(knob: str, number: float) -> GroupRules:
    """What a value of one knob of the model means for grouping."""
    return GroupRules.of(Knobs(**{knob: value_of_number(knob, number)}))


def _keys(knobs: Floats, rules: Rules) -> Ints:
    """Whole numbers that are equal where settings group alike, one row each."""
    flags = np.concatenate((rules.cuts, rules.merges), axis=1)
    room = -flags.shape[1] % 64
    bits = np.packbits(np.pad(flags, ((0, 0), (0, room))), axis=1)
    return np.column_stack((whole_numbers(knobs[:, _RULE_COLUMNS]), bits.view(np.int64)))


def _split_rows(found: Ints) -> Ints:
    """Splits of rows of :data:`autoturbo.schedule.merging.FOUND`, with nothing cut inside."""
    inner = np.tile((-1, 1), (len(found), 1))
    return np.concatenate((found[:, FOUND.index("axis") :], inner), axis=1)


def _over_clusters(
    problem: Problem, split: str, found: Ints, kinds: Ints, rooms: Ints
) -> tuple[Ints, Ints]:
    """Axes along which clusters share out sub-graphs (-1: none), and splits where they do."""
    splits = _split_rows(found)
    if split not in PARTS:
        return np.full(len(found), -1), splits
    memo = problem.memory.get(("shared out", split))
    if not isinstance(memo, Memo):
        memo = problem.memory["shared out", split] = Memo(4, (len(SplitColumn),))
    start, members = layer_sets_of(problem)

    def make(new: Ints) -> Ints:
        subgraphs = [subgraph_of(problem, 0, row) for row in found[new].tolist()]
        return shared_out(problem, subgraphs, split, rooms[new].tolist())

    lasts = members[start[found[:, _SET] + 1] - 1, 1] - 1
    shared = memo.of(np.column_stack((kinds, rooms, found[:, _CUT])), make)
    return cluster_axes(problem, split)[lasts], shared


@njit(cache=True)
def _rows_with(
    at: Ints,
    layer: Ints,
    first: Ints,
    begins: Ints,
    sizes: Ints,
    sets: Ints,
    start: Ints,
    members: Ints,
) -> Ints:
    """Per override, the sub-graph that has its layer.

    Args:
        at: setting of each override, ascending.
        layer: of each override.
        first: per setting, number of its first sub-graph.
        begins: per setting, where its sub-graphs begin in ``sets``.
        sizes: per setting, how many it has.
        sets: their sets of layers.
        start: where each set begins in ``members``.
        members: layers, in rows of first and one past the last.
    """
    found, before = np.empty(len(at), np.int64), -1
    place = np.empty(layer.max() + 1 if len(layer) else 0, np.int64)
    for number in range(len(at)):
        if at[number] != before:
            before = at[number]
            for row in range(sizes[before]):
                own = sets[begins[before] + row]
                for at_row in range(start[own], start[own + 1]):
                    for member in range(members[at_row, 0], min(members[at_row, 1], len(place))):
                        place[member] = first[before] + row
        found[number] = place[layer[number]]
    return found


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
