"""Parts of sub-graphs by number: as they were grouped, as they are cut in the end, as they lie."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Final, NamedTuple

import numpy as np

from autoturbo.cost_models.numbering import Numbering, RowNumbering, firsts, present
from autoturbo.cost_models.ways import FIELDS, NAMED, SPLIT, Ways
from autoturbo.graph.arrays import Ints
from autoturbo.schedule.cluster_parts import shared_out
from autoturbo.schedule.clusters import PARTS, cluster_axis
from autoturbo.schedule.group import SubGraph
from autoturbo.schedule.knobs import AUTO, SubGraphKnobs
from autoturbo.schedule.own_splits import Own, Wrong, own_row, settle
from autoturbo.schedule.problem import Problem
from autoturbo.schedule.split import Split, SplitColumn, axis_table
from autoturbo.schedule.statistics import STATISTICS, part_rows
from autoturbo.schedule.stores import Store
from autoturbo.simulate.alone import part_numbers, weights_stay

OWN: Final = slice(len(STATISTICS) - 3, len(STATISTICS))
"""Statistics that parts do not share: instances, passes and samples."""

_SCALED_SPLIT: Final = ("factor_scale", *SPLIT)
_SPREAD: Final = ("cores", "core_dim")


class Part(NamedTuple):
    """A sub-graph as it was grouped, before its own choices.

    Attributes:
        problem: at its number of samples.
        layers: number of sets of layers that are alike, of :func:`autoturbo.schedule.group.alike`.
        subgraph: layers and split; the number does not matter.
        kind: how clusters share out the work.
        room: of :func:`autoturbo.schedule.own_splits.room_for_parts`.
        loops: passes.
        samples: of a pass.
    """

    problem: Problem
    layers: int
    subgraph: SubGraph
    kind: str
    room: int
    loops: int
    samples: int


class _Grouped(IntEnum):
    """What is known of a part as it was grouped, besides its split.

    Its problem, number of alike layers and last layer, the axis that clusters share out (-1 for
    none), and the clusters that share out its instances.
    """

    PROBLEM = 0
    LAYERS = 1
    LAST = 2
    OVER = 3
    CLUSTERS = 4


_FINAL: Final = 2 + 2 * 2
"""What tells final parts apart: problem and layers, and two axes with their parts."""


class Place(NamedTuple):
    """A final part laid out alone: its problem, its number there, and the part.

    ``stays`` is 1 where its weights can stay between its instances.
    """

    problem: int
    number: int
    final: int
    stays: int


class Parts:
    """Parts, each cut and laid out once.

    Args:
        ways: that kernels run in.

    Attributes:
        passes: per part, passes and samples of one.
        facts: per final part, statistics; those of :data:`OWN` are 0.
        places: rows of :class:`Place`.
        problems: by number.
    """

    def __init__(self, ways: Ways) -> None:
        self._ways = ways
        self._grouped, self._layers = Store((len(_Grouped),)), list[tuple[int, ...]]()
        self._splits, self._shared = Store((len(SplitColumn),)), Store((len(SplitColumn),))
        self.passes = Store((2,))
        self._said_numbers, self._said = RowNumbering(len(_SCALED_SPLIT) + 1), Store((len(Own),))
        self._cut_numbers, self._cuts = Numbering(), Store((2,))
        self._final_numbers, self._subgraphs = RowNumbering(_FINAL), list[SubGraph]()
        self._problem_of = Store()
        self.facts = Store((len(STATISTICS),), np.float64)
        self.problems: list[Problem] = []
        self._numbers_of: dict[int, int] = {}
        self._spreads = RowNumbering(len(_SPREAD))
        self._laid_numbers, self._laid = Numbering(), Store()
        self._place_numbers, self.places = Numbering(), Store((len(Place._fields),))

    def add(self, parts: Sequence[Part]) -> int:
        """The number of the first of some new parts of one problem and kind; the others' follow."""
        if not parts:
            return self._grouped.count
        rows = np.asarray([self._grouped_row(part) for part in parts], np.int64)
        first = self._grouped.add(rows)
        self._layers.extend(part.subgraph.layers for part in parts)
        self._splits.add([part.subgraph.split.row for part in parts])
        self._shared.add(self._shared_out(parts))
        self.passes.add([[part.loops, part.samples] for part in parts])
        return first

    def _shared_out(self, parts: Sequence[Part]) -> Ints:
        """Splits of parts of one problem and kind, as clusters share them out where they do."""
        problem, kind = parts[0].problem, parts[0].kind
        if kind not in PARTS:
            return self._splits.rows[self._splits.count - len(parts) : self._splits.count]
        return shared_out(problem, [p.subgraph for p in parts], kind, [p.room for p in parts])

    def _grouped_row(self, part: Part) -> list[int]:
        problem, layers, subgraph = part[:3]
        if id(problem) not in self._numbers_of:
            self._numbers_of[id(problem)] = len(self.problems)
            self.problems.append(problem)
        over = cluster_axis(problem, subgraph.layers, part.kind) if part.kind in PARTS else -1
        clusters = problem.target.clusters if over >= 0 else 1
        return [self._numbers_of[id(problem)], layers, subgraph.layers[-1], over, clusters]

    def cut(self, parts: Ints, codes: Ints) -> Ints:
        """Per part in a way, the number of the final part (-1 for none), and its instances.

        Args:
            parts: numbers of :meth:`add`.
            codes: rows of ways.
        """
        said = self._said_of(codes)
        numbers = self._cut_numbers.of_pairs(parts, said)
        new = firsts(numbers, self._cuts.count, self._cut_numbers.count)
        if len(new):
            self._cuts.add(self._settled(parts[new], self._said.rows[said[new]]))
        found: Ints = self._cuts.rows[numbers]
        return found

    def _said_of(self, codes: Ints) -> Ints:
        """Numbers of what ways say of splits."""
        columns = [*(FIELDS.index(name) for name in _SCALED_SPLIT), NAMED]
        own = codes[:, columns]
        numbers = self._said_numbers.of(own)
        for at in firsts(numbers, self._said.count, self._said_numbers.count).tolist():
            chosen = self._ways.chosen(columns[:-1], own[at])
            scale = chosen.pop("factor_scale")
            knobs = SubGraphKnobs("", **chosen)  # type: ignore[arg-type]
            self._said.add([own_row(1 if scale == AUTO else int(scale), knobs, named=own[at, -1])])
        return numbers

    def _settled(self, parts: Ints, said: Ints) -> Ints:
        """Numbers of final parts, and instances of a cluster."""
        grouped, found = self._grouped.rows[parts], np.full((len(parts), 2), -1)
        for number in present(grouped[:, _Grouped.PROBLEM]):
            own = np.flatnonzero(grouped[:, _Grouped.PROBLEM] == number)
            problem = self.problems[number]
            cuts, wrong = settle(
                axis_table(problem), self._splits.rows[parts[own]], self._shared.rows[parts[own]],
                grouped[own, _Grouped.LAST], grouped[own, _Grouped.OVER], said[own],
                problem.target.clusters,
            )  # fmt: skip
            factor = np.maximum(cuts[:, SplitColumn.FACTOR], 1)  # 0: none fits, it stays whole
            instances = factor * cuts[:, SplitColumn.INNER_FACTOR]
            there = wrong[:, 0] == Wrong.NOTHING
            found[own[there], 0] = self._finals(parts[own[there]], cuts[there])
            found[own, 1] = -(-instances // grouped[own, _Grouped.CLUSTERS])
        return found

    def _finals(self, parts: Ints, cuts: Ints) -> Ints:
        """Numbers of final parts that some parts of one problem are cut into."""
        axes, inner = cuts[:, SplitColumn.AXIS], cuts[:, SplitColumn.INNER_AXIS]
        keys = np.column_stack((
            self._grouped.rows[parts][:, : _Grouped.LAST],
            axes + 1, np.where(axes < 0, 0, np.maximum(cuts[:, SplitColumn.FACTOR], 1)),
            inner + 1, np.where(inner < 0, 0, cuts[:, SplitColumn.INNER_FACTOR]),
        ))  # fmt: skip
        numbers = self._final_numbers.of(keys)
        new = firsts(numbers, len(self._subgraphs), self._final_numbers.count)
        if len(new):
            samples = self._grouped.rows[parts[new], _Grouped.PROBLEM]
            own = [
                SubGraph(0, self._layers[part], Split.of_row(row))
                for part, row in zip(parts[new].tolist(), cuts[new].tolist(), strict=True)
            ]
            facts = np.zeros((len(new), len(STATISTICS)))
            facts[:, : OWN.start] = part_rows(self.problems[samples[0]], own)
            self._subgraphs.extend(own)
            self._problem_of.add(samples)
            self.facts.add(facts)
        return numbers

    def place(self, final: Ints, codes: Ints) -> Ints:
        """Numbers of the places of final parts, given cores and the loop they spread from."""
        columns = [FIELDS.index(name) for name in _SPREAD]
        numbers = self._laid_numbers.of_pairs(final, self._spreads.of(codes[:, columns]))
        new = firsts(numbers, self._laid.count, self._laid_numbers.count)
        if len(new):
            self._laid.add(self._placed(final[new], codes[new][:, columns]))
        found: Ints = self._laid.rows[numbers]
        return found

    def _placed(self, final: Ints, codes: Ints) -> Ints:
        problems, laid = self._problem_of.rows[final], np.empty(len(final), np.int64)
        stays = np.empty(len(final), np.int64)
        for number in present(problems):
            own = np.flatnonzero(problems == number)
            laid[own] = self._laid_out(self.problems[number], final[own], codes[own])
            stays[own] = weights_stay(self.problems[number], laid[own])
        places = self._place_numbers.of_pairs(problems, laid)
        new = firsts(places, self.places.count, self._place_numbers.count)
        self.places.add(np.column_stack((problems, laid, final, stays))[new])
        return places

    def _laid_out(self, problem: Problem, final: Ints, codes: Ints) -> Ints:
        values = (self._ways.values[FIELDS.index(name)] for name in _SPREAD)
        cores, depths = ([None if v == AUTO else int(v) for v in known] for known in values)
        wanted = [
            (self._subgraphs[part], cores[own] or problem.target.cores, depths[depth])
            for part, (own, depth) in zip(final.tolist(), codes.tolist(), strict=True)
        ]
        return part_numbers(problem, wanted)
