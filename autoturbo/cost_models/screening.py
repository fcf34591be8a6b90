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
setting. A candidate's start says what ``"auto"`` stands for, and which columns mean something;
what is known of parts, ways and kernels is known whatever the start.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from autoturbo.cost_models.choices import Choices, Said
from autoturbo.cost_models.numbering import present
from autoturbo.cost_models.pretrained import Pretrained
from autoturbo.cost_models.screened_kernels import Kernels
from autoturbo.cost_models.screened_plans import Grouping, Plans
from autoturbo.cost_models.ways import Ways
from autoturbo.graph.arrays import Ints
from autoturbo.schedule.layer_sets import Flags
from autoturbo.schedule.pipeline import Workbench
from autoturbo.schedule.work import Floats


class Screened(NamedTuple):
    """The kernels of candidates.

    Attributes:
        owner: per sub-graph, its candidate; those of one candidate follow each other, in order.
        kernels: per sub-graph, the number of its kernel.
        possible: per candidate, whether it has a plan.
    """

    owner: Ints
    kernels: Ints
    possible: Flags


class Screen:
    """What is known of one model's candidates on one target before they are measured.

    Args:
        bench: the model on the target.
        model: trained beforehand.
        choices: of the candidates' columns.

    Attributes:
        kernels: what kernels are worth, by number.
    """

    def __init__(self, bench: Workbench, model: Pretrained, choices: Choices) -> None:
        self._choices, self._ways = choices, Ways()
        self.kernels = Kernels(model, self._ways)
        grouping = Grouping(bench, self.kernels)
        self._starts = []
        for number in range(len(choices.starts)):
            said = Said(self._ways, choices, number)
            self._starts.append((said, Plans(grouping, said, choices, number)))

    def seconds(self, genes: Ints) -> Floats:
        """Predicted latency, ``(candidates,)``; infinite where a setting does not fit the model.

        Args:
            genes: numbers of choices, ``(candidates, columns)``.
        """
        owner, kernels, possible = self.screened(genes)
        found = np.bincount(owner, self.kernels.seconds(kernels), len(genes))
        return np.where(possible, found, np.inf)

    def screened(self, genes: Ints) -> Screened:
        """The kernels of candidates; none where they have no plan.

        Args:
            genes: numbers of choices, ``(candidates, columns)``.
        """
        starts = self._choices.start_of(genes)
        if len(asked := present(starts)) == 1:
            return self._of_start(asked[0], genes)
        owners, kernels = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        possible = np.zeros(len(genes), np.bool_)
        for number in asked:
            mine = np.flatnonzero(starts == number)
            owner, own, possible[mine] = self._of_start(number, genes[mine])
            owners.append(mine[owner])
            kernels.append(own)
        every = np.concatenate(owners)
        order = np.argsort(every, kind="stable")
        return Screened(every[order], np.concatenate(kernels)[order], possible)

    def _of_start(self, number: int, genes: Ints) -> Screened:
        said, plans = self._starts[number]
        which = plans.of(genes)
        models, own = said.of(genes)
        owner, parts, blocks = plans.entries(which)
        ways = self._ways.numbers(models[owner], said.joined(own, owner, blocks))
        kernels = self.kernels.numbers(parts, ways)
        possible = plans.possible.rows[which].copy()
        possible[owner[~self.kernels.possible(kernels)]] = False
        there = possible[owner]
        if there.all():
            return Screened(owner, kernels, possible)
        return Screened(owner[there], kernels[there], possible)
