"""Kernels by number: parts of sub-graphs in the ways that they run, and what they are worth.

Each step has fewer different things than the one before, and is made once of each::

    part and way -> final split            (autoturbo.cost_models.screened_parts)
                 -> where its part lies, given cores and the loop they spread from
                 -> what is known of it, given the rules of buffers and instructions
                 -> seconds of a launch, given its knobs
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple

import numpy as np

from autoturbo.cost_models.features import OVERRIDE_NAMES, PLACING, Rows, squash
from autoturbo.cost_models.numbering import Numbering, RowNumbering, digests, firsts, present
from autoturbo.cost_models.pretrained import Pretrained
from autoturbo.cost_models.ratios import RATIOS, base_seconds, ratios
from autoturbo.cost_models.screened_parts import OWN, Part, Parts, Place
from autoturbo.cost_models.ways import FIELDS, Ways
from autoturbo.graph.arrays import Ints
from autoturbo.schedule.knobs import Knobs
from autoturbo.schedule.layer_sets import Flags
from autoturbo.schedule.pipeline import RULE_KNOBS, rules_of
from autoturbo.schedule.stores import Store
from autoturbo.schedule.work import Floats
from autoturbo.simulate.alone import ANCHORS, RESIDENCE, RULE_COLUMNS, anchor_rows, rule_row
from autoturbo.simulate.plan import COLUMNS

_NEAR = ANCHORS.index("near_s")
_FINAL, _STAYS = (Place._fields.index(name) for name in ("final", "stays"))
_PLACING = [OVERRIDE_NAMES.index(name) for name in PLACING]
_SHARE = FIELDS.index("weight_share")

_RULE_FIELDS = [FIELDS.index(name) for name in RULE_KNOBS if name != "spill_victim"]
"""What spills of a part alone is found with the published victim."""

_ROOM = 1 << 19
"""Kernels that there is room for at first: copying them is dear, and room that is not used takes
no memory."""


_NUMBERS = 1 << 16
"""Kernels that have numbers before those are spread anew."""


class _Kernel(IntEnum):
    """Columns of a kernel; it has no price where its split is impossible."""

    PRICE = 0
    INSTANCES = 1
    LOOPS = 2
    SAMPLES = 3


class _Price(IntEnum):
    """What a kernel's seconds follow from: what is known of it, and its knobs as numbers."""

    KNOWN = 0
    LOOK = 1


class Described(NamedTuple):
    """What a cost model is told of kernels, one row each.

    Attributes:
        statistics: :data:`autoturbo.simulate.plan.COLUMNS`.
        squashed: the same, of :func:`autoturbo.cost_models.features.squash`.
        ratios: :data:`autoturbo.cost_models.ratios.RATIOS`.
        own: knobs as numbers, of :meth:`autoturbo.cost_models.ways.Ways.features`.
        base: seconds of a launch.
        launches: by one cluster.
    """

    statistics: Floats
    squashed: Rows
    ratios: Rows
    own: Rows
    base: Floats
    launches: Ints


class Kernels:
    """What kernels are worth, each found out once.

    Args:
        model: trained beforehand.
        ways: that kernels run in.
    """

    def __init__(self, model: Pretrained, ways: Ways) -> None:
        self._model, self._ways, self._parts = model, ways, Parts(ways)
        self._numbers = Numbering(_NUMBERS)
        self._rows = Store((len(_Kernel),), np.int64, _ROOM)
        self._seconds = Store((), np.float64, _ROOM)
        self._rule_sets, self._rule_of = RowNumbering(len(_RULE_FIELDS)), Store((2,))
        self._rule_rows, self._rules = RowNumbering(1 + RULE_COLUMNS), Store((RULE_COLUMNS,))
        self._known_numbers, self._finals = Numbering(_NUMBERS), Store()
        self._anchors = Store((len(ANCHORS),), np.float64, _ROOM)
        self._ratios = Store((len(RATIOS),), np.float32, _ROOM)
        self._squashed = Store((len(COLUMNS),), np.float32)
        self._alone = Store((), np.float64)
        self._looks = RowNumbering(len(OVERRIDE_NAMES))
        self._own = Store((len(OVERRIDE_NAMES),), np.float32)
        self._price_numbers, self._prices = Numbering(_NUMBERS), Store((len(_Price),))
        self._factors = Store((), np.float64)
        self._kinds = Store()

    def add(self, parts: Sequence[Part]) -> int:
        """The number of the first of some new parts of one problem and kind; the others' follow."""
        return self._parts.add(parts)

    @property
    def known(self) -> int:
        """How many kernels are known apart from their knobs: what takes most memory."""
        return self._anchors.count

    def numbers(self, parts: Ints, ways: Ints) -> Ints:
        """Numbers of kernels, found out where they are new.

        Args:
            parts: numbers of :meth:`add`.
            ways: numbers of :meth:`autoturbo.cost_models.ways.Ways.numbers`.
        """
        numbers = self._numbers.of_pairs(parts, ways)
        new = firsts(numbers, self._rows.count, self._numbers.count)
        if len(new):
            self._find_out(parts[new], ways[new])
        return numbers

    def possible(self, kernels: Ints) -> Flags:
        """Whether kernels can be cut as their ways say."""
        found: Flags = self._rows.rows[kernels, _Kernel.PRICE] >= 0
        return found

    def seconds(self, kernels: Ints) -> Floats:
        """Seconds of all launches of kernels that are possible."""
        found: Floats = self._seconds.rows[kernels]
        return found

    def weights(self, kernels: Ints) -> Floats:
        """The same as launches times the rounded seconds of one, which differs in the last bit."""
        rows = self._rows.rows[kernels]
        found: Floats = _launches(rows).astype(np.float64) * self._base(rows[:, _Kernel.PRICE])
        return found

    def least(self, kernels: Ints) -> Floats:
        """Seconds of all launches with all that crosses boundaries in LB: it can hardly be less."""
        rows = self._rows.rows[kernels]
        known = self._prices.rows[rows[:, _Kernel.PRICE], _Price.KNOWN]
        found: Floats = _launches(rows).astype(np.float64) * self._anchors.rows[known, _NEAR]
        return found

    def kinds(self, kernels: Ints) -> Ints:
        """Digests of what possible kernels do, the same whatever else is known.

        Equal where statistics and the knobs of
        :data:`autoturbo.cost_models.features.PLACING` are.
        """
        count = self._kinds.count
        if count < self._rows.count:
            rows = self._rows.rows[count : self._rows.count]
            there = rows[:, _Kernel.PRICE] >= 0
            known, looks = self._prices.rows[rows[there, _Kernel.PRICE]].T
            own = self._own.rows[looks][:, _PLACING]
            keys = np.column_stack((self._statistics(known), own, rows[there, _Kernel.INSTANCES :]))
            new = np.zeros(len(rows), np.int64)
            new[there] = digests(keys)
            self._kinds.add(new)
        found: Ints = self._kinds.rows[kernels]
        return found

    def _base(self, prices: Ints) -> Floats:
        known = self._prices.rows[prices, _Price.KNOWN]
        found: Floats = self._alone.rows[known] * self._factors.rows[prices]
        return found

    def described(self, kernels: Ints) -> Described:
        """What a cost model is told of kernels that are possible."""
        rows = self._rows.rows[kernels]
        known, looks = self._prices.rows[rows[:, _Kernel.PRICE]].T
        self._squash()
        statistics, squashed = self._statistics(known), self._squashed.rows[known]
        statistics[:, OWN] = rows[:, _Kernel.INSTANCES :]
        squashed[:, OWN] = squash(statistics[:, OWN])
        return Described(
            statistics, squashed, self._ratios.rows[known], self._own.rows[looks],
            self._base(rows[:, _Kernel.PRICE]), _launches(rows),
        )  # fmt: skip

    def _squash(self) -> None:
        """Bring what is known up to date as a cost model sees it: a screen never asks for it."""
        count = self._squashed.count
        if count < self.known:
            self._squashed.add(squash(self._statistics(np.arange(count, self.known))))

    def _find_out(self, parts: Ints, ways: Ints) -> None:
        codes = self._ways.rows.rows[ways]
        final, instances = self._parts.cut(parts, codes).T
        there = np.flatnonzero(final >= 0)
        prices, seconds = np.full(len(parts), -1), np.full(len(parts), np.inf)
        prices[there] = self._price(final[there], codes[there])
        loops, samples = self._parts.passes.rows[parts].T
        known = self._prices.rows[prices[there], _Price.KNOWN]
        worth = (instances * loops)[there] * self._alone.rows[known]
        seconds[there] = worth * self._factors.rows[prices[there]]
        self._rows.add(np.column_stack((prices, instances, loops, samples)))
        self._seconds.add(seconds)

    def _price(self, final: Ints, codes: Ints) -> Ints:
        """Numbers of what one launch takes."""
        known, looks = self._known_numbers_of(final, codes), self._looks_of(codes)
        numbers = self._price_numbers.of_pairs(known, looks)
        new = firsts(numbers, self._prices.count, self._price_numbers.count)
        if len(new):
            rows = np.concatenate(
                [self._ratios.rows[known[new]], self._own.rows[looks[new]]], axis=1
            )
            self._prices.add(np.column_stack((known[new], looks[new])))
            self._factors.add(np.exp(self._model.factors.predict(rows)))
        return numbers

    def _looks_of(self, codes: Ints) -> Ints:
        """Numbers of ways' knobs as a cost model sees them."""
        own = codes[:, : len(OVERRIDE_NAMES)]
        numbers = self._looks.of(own)
        new = firsts(numbers, self._own.count, self._looks.count)
        if len(new):
            self._own.add(self._ways.features(own[new]))
        return numbers

    def _known_numbers_of(self, final: Ints, codes: Ints) -> Ints:
        """Numbers of what is known of kernels before they are measured, but for their knobs."""
        places = self._parts.place(final, codes)
        rules = self._rule_numbers(codes, self._parts.places.rows[places, _STAYS] > 0)
        numbers = self._known_numbers.of_pairs(places, rules)
        new = firsts(numbers, self.known, self._known_numbers.count)
        if len(new):
            self._anchors.add(self._anchor_rows(places[new], rules[new]))
            self._finals.add(self._parts.places.rows[places[new], _FINAL])
            statistics = self._statistics(np.arange(self.known - len(new), self.known))
            share = self._ways.feature("weight_share", codes[new])
            self._alone.add(base_seconds(statistics))
            self._ratios.add(ratios(statistics, share))
        return numbers

    def _statistics(self, known: Ints) -> Floats:
        """Rows of :data:`autoturbo.simulate.plan.COLUMNS`; those of :data:`OWN` are 0."""
        facts = self._parts.facts.rows[self._finals.rows[known]]
        return np.concatenate((facts, self._anchors.rows[known]), axis=1)

    def _anchor_rows(self, places: Ints, rules: Ints) -> Floats:
        problems, laid = self._parts.places.rows[places, :_FINAL].T
        found = np.empty((len(places), len(ANCHORS)))
        for number in present(problems):
            own = np.flatnonzero(problems == number)
            problem, table = self._parts.problems[number], self._rules.rows
            found[own] = anchor_rows(problem, laid[own], table, rules[own])
        return found

    def _rule_numbers(self, codes: Ints, stays: Flags) -> Ints:
        """Numbers of the rules of buffers and instructions, which are of the target's alone.

        The same where what follows from them is, given the share of weight tiles, which ratios ask
        for.

        Args:
            codes: rows of ways.
            stays: whether it matters where weights stay.
        """
        own = codes[:, _RULE_FIELDS]
        numbers = self._rule_sets.of(own)
        new = firsts(numbers, self._rule_of.count, self._rule_sets.count)
        if len(new):
            self._rule_of.add(self._new_rules(codes[new]))
        found: Ints = self._rule_of.rows[numbers, stays.astype(np.int64)]
        return found

    def _new_rules(self, codes: Ints) -> Ints:
        """Numbers of ways' rules: where weights cannot stay, and where they can."""
        problem = self._parts.problems[0]
        said = [self._ways.chosen(_RULE_FIELDS, row) for row in codes[:, _RULE_FIELDS]]
        rows = [rule_row(rules_of(problem, Knobs(**own))) for own in said]  # type: ignore[arg-type]
        can = np.column_stack((codes[:, _SHARE], rows))
        cannot = can.copy()
        cannot[:, 1 + RESIDENCE] = 0
        every = np.concatenate((cannot, can))
        found = self._rule_rows.of(every)
        self._rules.add(every[firsts(found, self._rules.count, self._rule_rows.count), 1:])
        return np.column_stack(np.split(found, 2))


def _launches(rows: Ints) -> Ints:
    """By one cluster."""
    found: Ints = rows[:, _Kernel.INSTANCES] * rows[:, _Kernel.LOOPS]
    return found
