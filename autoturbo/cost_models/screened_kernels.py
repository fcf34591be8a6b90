"""Kernels by number: parts of sub-graphs in the ways that they run, and what they are worth."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from autoturbo.cost_models.features import portable_rows
from autoturbo.cost_models.numbering import Columns, Numbering, firsts
from autoturbo.cost_models.pretrained import Pretrained
from autoturbo.cost_models.ratios import base_seconds
from autoturbo.cost_models.ways import FIELDS, NAMED, Ways
from autoturbo.errors import KnobsError
from autoturbo.graph.arrays import Ints
from autoturbo.schedule.group import SubGraph
from autoturbo.schedule.knobs import AUTO, Knobs, SubGraphKnobs, Value
from autoturbo.schedule.own_splits import settled
from autoturbo.schedule.pipeline import RULE_KNOBS, KernelRules, rules_of
from autoturbo.schedule.problem import Problem
from autoturbo.schedule.statistics import STATISTICS, part_row
from autoturbo.schedule.stores import Store
from autoturbo.schedule.work import Floats
from autoturbo.simulate.alone import anchor_rows, part_numbers
from autoturbo.simulate.plan import COLUMNS

_SPLIT: Final = ("factor_scale", "dim", "factor", "inner_dim", "inner_factor")
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
    """

    problem: Problem
    subgraph: SubGraph
    kind: str
    room: int
    clusters: int
    loops: int


class Kernels:
    """What kernels are worth, each found out once.

    Args:
        model: trained beforehand.
        ways: that kernels run in.
    """

    def __init__(self, model: Pretrained, ways: Ways) -> None:
        self._model, self._ways = model, ways
        self._parts: list[Part] = []
        self._numbers, self._worth = Numbering(), Store((), np.float64)
        self._splits, self._spreads, self._rule_sets = Columns(6), Columns(2), Columns(6)
        self._cut_numbers, self._cuts = Numbering(), Store((2,))
        self._final: dict[tuple[int, tuple[int, ...], tuple[tuple[int, int], ...]], int] = {}
        self._final_parts: list[tuple[Problem, SubGraph]] = []
        self._facts = Store((len(STATISTICS),), np.float64)
        self._laid_numbers, self._laid = Numbering(), Store()
        self._rules: list[KernelRules] = []
        self._own: dict[tuple[str, bytes], tuple[int, SubGraphKnobs | None]] = {}
        self._problems: dict[int, int] = {}
        self._problem_of = Store()

    def add(self, part: Part) -> int:
        """The number of a new part."""
        self._parts.append(part)
        return len(self._parts) - 1

    def seconds(self, parts: Ints, ways: Ints) -> Floats:
        """Seconds of all launches of kernels; infinite where a split is impossible.

        Args:
            parts: numbers of :meth:`add`.
            ways: numbers of :meth:`autoturbo.cost_models.ways.Ways.numbers`.
        """
        numbers = self._numbers.of_pairs(parts, ways)
        new = firsts(numbers, self._worth.count)
        if len(new):
            self._worth.add(self._found_out(parts[new], ways[new]))
        found: Floats = self._worth.rows[numbers]
        return found

    def _found_out(self, parts: Ints, ways: Ints) -> Floats:
        codes = self._ways.rows.rows[ways]
        cut = self._cut(parts, codes)
        found = np.full(len(parts), np.inf)
        there = np.flatnonzero(cut[:, 0] >= 0)
        final, launches = cut[there].T
        laid, rules = self._lay(final, codes[there]), self._rule_numbers(final, codes[there])
        statistics = np.empty((len(there), len(COLUMNS)))
        statistics[:, : len(STATISTICS)] = self._facts.rows[final]
        problem = self._problem_of.rows[final]
        for number in np.unique(problem).tolist():
            own = np.flatnonzero(problem == number)
            one = self._final_parts[final[own[0]]][0]
            statistics[own, len(STATISTICS) :] = anchor_rows(
                one, laid[own], self._rules, rules[own]
            )
        rows = portable_rows(statistics, self._ways.features(ways[there]))
        factors = np.exp(self._model.factors.predict(rows))
        found[there] = launches * base_seconds(statistics) * factors
        return found

    def _cut(self, parts: Ints, codes: Ints) -> Ints:
        """Per kernel, the number of its part with its final split (-1 for none), and launches."""
        columns = [FIELDS.index(name) for name in _SPLIT]
        splits = codes[:, [*columns, NAMED]]
        numbers = self._cut_numbers.of_pairs(parts, self._splits.of(splits))
        for at in firsts(numbers, self._cuts.count).tolist():
            self._cuts.add([self._settle(self._parts[parts[at]], columns, splits[at])])
        found: Ints = self._cuts.rows[numbers]
        return found

    def _chosen(self, columns: Sequence[int], codes: Ints) -> dict[str, Value]:
        pairs = zip(columns, codes.tolist(), strict=False)
        return {FIELDS[column]: self._ways.values[column][code] for column, code in pairs}

    def _settle(self, part: Part, columns: Sequence[int], codes: Ints) -> list[int]:
        problem = part.problem
        last = problem.layers[part.subgraph.layers[-1]].name if codes[-1] else ""
        key = (last, codes.tobytes())
        if key not in self._own:
            self._own[key] = self._own_split(last, self._chosen(columns, codes))
        times, own = self._own[key]
        try:
            cut = settled(problem, part.subgraph, times, own, part.kind, part.room)
        except KnobsError:
            return [-1, 0]
        launches = -(-cut.split.instances // part.clusters) * part.loops
        return [self._final_number(problem, cut), launches]

    def _own_split(self, layer: str, chosen: dict[str, Value]) -> tuple[int, SubGraphKnobs | None]:
        """What the settled split of a sub-graph follows from: its scale and its own choices."""
        scale = chosen.pop("factor_scale")
        times = 1 if scale == AUTO else int(scale)
        if all(value == AUTO for value in chosen.values()):
            return times, None
        return times, SubGraphKnobs(layer, **chosen)  # type: ignore[arg-type]

    def _final_number(self, problem: Problem, cut: SubGraph) -> int:
        samples = self._problems.setdefault(id(problem), len(self._problems))
        key = (samples, cut.layers, cut.split.axes)
        if key not in self._final:
            self._final[key] = len(self._final_parts)
            self._final_parts.append((problem, cut))
            self._problem_of.add([samples])
            row = np.zeros(len(STATISTICS))
            row[:-3] = part_row(problem, cut)
            self._facts.add([row])
        return self._final[key]

    def _lay(self, final: Ints, codes: Ints) -> Ints:
        """Numbers of parts laid out alone, given cores and the loop that is spread first."""
        columns = [FIELDS.index(name) for name in _SPREAD]
        numbers = self._laid_numbers.of_pairs(final, self._spreads.of(codes[:, columns]))
        new = firsts(numbers, self._laid.count)
        if len(new):
            laid = np.empty(len(new), np.int64)
            problem = self._problem_of.rows[final[new]]
            for number in np.unique(problem).tolist():
                own = np.flatnonzero(problem == number)
                laid[own] = self._laid_out(final[new[own]], codes[new[own]][:, columns])
            self._laid.add(laid)
        found: Ints = self._laid.rows[numbers]
        return found

    def _laid_out(self, final: Ints, codes: Ints) -> Ints:
        problem = self._final_parts[final[0]][0]
        all_cores, (cores, depths) = (
            problem.target.cores,
            (self._ways.values[FIELDS.index(name)] for name in _SPREAD),
        )
        wanted = [
            (
                self._final_parts[part][1],
                all_cores if cores[own] == AUTO else int(cores[own]),
                None if depths[depth] == AUTO else int(depths[depth]),
            )
            for part, (own, depth) in zip(final.tolist(), codes.tolist(), strict=True)
        ]
        return part_numbers(problem, wanted)

    def _rule_numbers(self, final: Ints, codes: Ints) -> Ints:
        columns = [FIELDS.index(name) for name in RULE_KNOBS]
        own = codes[:, columns]
        numbers = self._rule_sets.of(own)
        for at in firsts(numbers, len(self._rules)).tolist():
            chosen = self._chosen(columns, own[at])
            self._rules.append(rules_of(self._final_parts[final[at]][0], Knobs(**chosen)))  # type: ignore[arg-type]
        return numbers
