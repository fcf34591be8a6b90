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
from autoturbo.cost_models.numbering import Numbering, RowNumbering, digests, firsts
from autoturbo.cost_models.pretrained import Pretrained
from autoturbo.cost_models.ratios import RATIOS, base_seconds, ratios
from autoturbo.cost_models.screened_parts import OWN, Part, Parts, Place
from autoturbo.cost_models.ways import FIELDS, Ways
from autoturbo.graph.arrays import Ints
from autoturbo.schedule.knobs import Knobs
from autoturbo.schedule.layer_sets import Flags
from autoturbo.schedule.pipeline import RULE_KNOBS, KernelRules, rules_of
from autoturbo.schedule.stores import Store
from autoturbo.schedule.work import Floats
from autoturbo.simulate.alone import ANCHORS, anchor_rows
from autoturbo.simulate.plan import COLUMNS

_NEAR = ANCHORS.index("near_s")
_FINAL = Place._fields.index("final")
_PLACING = [OVERRIDE_NAMES.index(name) for name in PLACING]


_ROOM = 1 << 17
"""Kernels that there is room for at first where each takes much: copying them is dear, and room
that is not used takes no memory."""


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
        self._numbers, self._rows = Numbering(), Store((len(_Kernel),))
        self._seconds = Store((), np.float64)
        self._rule_sets, self._rules = RowNumbering(len(RULE_KNOBS)), list[KernelRules]()
        self._known_numbers, self._finals = Numbering(), Store()
        self._anchors = Store((len(ANCHORS),), np.float64, _ROOM)
        self._ratios = Store((len(RATIOS),), np.float32, _ROOM)
        self._squashed = Store((len(COLUMNS),), np.float32)
        self._alone = Store((), np.float64)
        self._looks = RowNumbering(len(OVERRIDE_NAMES))
        self._own = Store((len(OVERRIDE_NAMES),), np.float32)
        self._price_numbers, self._prices = Numbering(), Store((len(_Price),))
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
        new = firsts(numbers, self._rows.count)
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
        new = firsts(numbers, self._prices.count)
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
        new = firsts(numbers, self._own.count)
        if len(new):
            self._own.add(self._ways.features(own[new]))
        return numbers

    def _known_numbers_of(self, final: Ints, codes: Ints) -> Ints:
        """Numbers of what is known of kernels before they are measured, but for their knobs."""
        places, rules = self._parts.place(final, codes), self._rule_numbers(codes)
        numbers = self._known_numbers.of_pairs(places, rules)
        new = firsts(numbers, self.known)
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
        problems, laid, _ = self._parts.places.rows[places].T
        found = np.empty((len(places), len(ANCHORS)))
        for number in np.unique(problems).tolist():
            own = np.flatnonzero(problems == number)
            used, which = np.unique(rules[own], return_inverse=True)
            found[own] = anchor_rows(
                self._parts.problems[number], laid[own], [self._rules[r] for r in used], which
            )
        return found

    def _rule_numbers(self, codes: Ints) -> Ints:
        """Numbers of the rules of buffers and instructions, which are of the target's alone."""
        columns = [FIELDS.index(name) for name in RULE_KNOBS]
        own = codes[:, columns]
        numbers = self._rule_sets.of(own)
        for at in firsts(numbers, len(self._rules)).tolist():
            knobs = Knobs(**self._ways.chosen(columns, own[at]))  # type: ignore[arg-type]
            self._rules.append(rules_of(self._parts.problems[0], knobs))
        return numbers


def _launches(rows: Ints) -> Ints:
    """By one cluster."""
    found: Ints = rows[:, _Kernel.INSTANCES] * rows[:, _Kernel.LOOPS]
    return found
