"""Parts of sub-graphs by number: as they were grouped, as they are cut in the end, as they lie."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from autoturbo.cost_models.numbering import Columns, Numbering, firsts
from autoturbo.cost_models.ways import FIELDS, NAMED, SPLIT, Ways
from autoturbo.errors import KnobsError
from autoturbo.graph.arrays import Ints
from autoturbo.schedule.group import SubGraph
from autoturbo.schedule.knobs import AUTO, SubGraphKnobs, Value
from autoturbo.schedule.own_splits import settled
from autoturbo.schedule.problem import Problem
from autoturbo.schedule.statistics import STATISTICS, part_row
from autoturbo.schedule.stores import Store
from autoturbo.simulate.alone import part_numbers

OWN: Final = slice(len(STATISTICS) - 3, len(STATISTICS))
"""Statistics that parts do not share: instances, passes and samples."""

_SCALED_SPLIT: Final = ("factor_scale", *SPLIT)
_SPREAD: Final = ("cores", "core_dim")


class Part(NamedTuple):
    """A sub-graph as it was grouped, before its own choices.

    Attributes:
        problem: at its number of samples.
        subgraph: layers and split; the number does not matter.
        kind: how clusters share out the work.
        room: of :func:`autoturbo.schedule.own_splits.room_for_parts`.
        clusters: that share out its parts.
        loops: passes.
        samples: of a pass.
    """

    problem: Problem
    subgraph: SubGraph
    kind: str
    room: int
    clusters: int
    loops: int
    samples: int


class Place(NamedTuple):
    """A final part laid out alone: its problem, its number there, and the part."""

    problem: int
    number: int
    final: int


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
        self._parts: list[Part] = []
        self.passes = Store((2,))
        self._splits, self._cut_numbers = Columns(len(_SCALED_SPLIT) + 1), Numbering()
        self._cuts = Store((2,))
        self._own: dict[tuple[str, bytes], tuple[int, SubGraphKnobs | None]] = {}
        self._final: dict[tuple[int, tuple[int, ...], tuple[tuple[int, int], ...]], int] = {}
        self._subgraphs: list[tuple[int, SubGraph]] = []
        self._problem_of = Store()
        self.facts = Store((len(STATISTICS),), np.float64)
        self.problems: list[Problem] = []
        self._numbers_of: dict[int, int] = {}
        self._spreads, self._laid_numbers, self._laid = Columns(len(_SPREAD)), Numbering(), Store()
        self._place_numbers, self.places = Numbering(), Store((len(Place._fields),))

    def add(self, part: Part) -> int:
        """The number of a new part."""
        self._parts.append(part)
        self.passes.add([[part.loops, part.samples]])
        return len(self._parts) - 1

    def cut(self, parts: Ints, codes: Ints) -> Ints:
        """Per part in a way, the number of the final part (-1 for none), and its instances.

        Args:
            parts: numbers of :meth:`add`.
            codes: rows of ways.
        """
        columns = [FIELDS.index(name) for name in _SCALED_SPLIT]
        splits = codes[:, [*columns, NAMED]]
        numbers = self._cut_numbers.of_pairs(parts, self._splits.of(splits))
        new = firsts(numbers, self._cuts.count)
        if len(new):
            own = zip(parts[new].tolist(), splits[new], strict=True)
            self._cuts.add([self._settle(self._parts[part], columns, codes) for part, codes in own])
            self._note_final()
        found: Ints = self._cuts.rows[numbers]
        return found

    def _settle(self, part: Part, columns: Sequence[int], codes: Ints) -> list[int]:
        problem = part.problem
        last = problem.layers[part.subgraph.layers[-1]].name if codes[-1] else ""
        key = (last, codes.tobytes())
        if key not in self._own:
            self._own[key] = _own_split(last, self._ways.chosen(columns, codes))
        times, own = self._own[key]
        try:
            cut = settled(problem, part.subgraph, times, own, part.kind, part.room)
        except KnobsError:
            return [-1, 0]
        return [self._final_number(problem, cut), -(-cut.split.instances // part.clusters)]

    def _final_number(self, problem: Problem, cut: SubGraph) -> int:
        if id(problem) not in self._numbers_of:
            self._numbers_of[id(problem)] = len(self.problems)
            self.problems.append(problem)
        samples = self._numbers_of[id(problem)]
        key = (samples, cut.layers, cut.split.axes)
        found = self._final.get(key)
        if found is None:
            found = self._final[key] = len(self._subgraphs)
            self._subgraphs.append((samples, cut))
        return found

    def _note_final(self) -> None:
        """Bring what is known of final parts up to date."""
        new = self._subgraphs[self.facts.count :]
        rows = np.zeros((len(new), len(STATISTICS)))
        for row, (samples, cut) in zip(rows, new, strict=True):
            row[: OWN.start] = part_row(self.problems[samples], cut)
        self._problem_of.add([samples for samples, _ in new])
        self.facts.add(rows)

    def place(self, final: Ints, codes: Ints) -> Ints:
        """Numbers of the places of final parts, given cores and the loop they spread from."""
        columns = [FIELDS.index(name) for name in _SPREAD]
        numbers = self._laid_numbers.of_pairs(final, self._spreads.of(codes[:, columns]))
        new = firsts(numbers, self._laid.count)
        if len(new):
            self._laid.add(self._placed(final[new], codes[new][:, columns]))
        found: Ints = self._laid.rows[numbers]
        return found

    def _placed(self, final: Ints, codes: Ints) -> Ints:
        problems, laid = self._problem_of.rows[final], np.empty(len(final), np.int64)
        for number in np.unique(problems).tolist():
            own = np.flatnonzero(problems == number)
            laid[own] = self._laid_out(self.problems[number], final[own], codes[own])
        places = self._place_numbers.of_pairs(problems, laid)
        new = firsts(places, self.places.count)
        self.places.add(np.column_stack((problems[new], laid[new], final[new])))
        return places

    def _laid_out(self, problem: Problem, final: Ints, codes: Ints) -> Ints:
        values = (self._ways.values[FIELDS.index(name)] for name in _SPREAD)
        cores, depths = ([None if v == AUTO else int(v) for v in known] for known in values)
        wanted = [
            (self._subgraphs[part][1], cores[own] or problem.target.cores, depths[depth])
            for part, (own, depth) in zip(final.tolist(), codes.tolist(), strict=True)
        ]
        return part_numbers(problem, wanted)


def _own_split(layer: str, chosen: dict[str, Value]) -> tuple[int, SubGraphKnobs | None]:
    """What the settled split of a sub-graph follows from: its scale and its own choices."""
    scale = chosen.pop("factor_scale")
    times = 1 if scale == AUTO else int(scale)
    if all(value == AUTO for value in chosen.values()):
        return times, None
    return times, SubGraphKnobs(layer, **chosen)  # type: ignore[arg-type]
