"""What a run is asked for, stored with it, and enough to begin it again."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from autoturbo.errors import UsageError
from autoturbo.limits import ROUND
from autoturbo.search.names import OURS
from autoturbo.search.objectives import OF_KERNELS, Objective, find_objectives
from autoturbo.simulate.contract import SIMULATOR

if TYPE_CHECKING:
    from autoturbo.graph.operators import Graph
    from autoturbo.hardware.target import Target
    from autoturbo.search.space import Space

EFFORTS = {"quick": 64, "standard": 400, "thorough": 2000}
"""Trials of each effort, trial 0 (the published heuristic at its best) included."""

SUBGRAPHS = 8
"""Kinds of sub-graphs whose own knobs our sampler searches by default."""


def searched_subgraphs(asked: int | None, sampler: str) -> int:
    """Kinds of sub-graphs whose own knobs are searched: unless asked, only by our sampler.

    Others know neither conditions nor that most of these choices are best left alone.

    Args:
        asked: by the user; None leaves it to the sampler.
        sampler: name of it.
    """
    if asked is not None:
        return asked
    return SUBGRAPHS if sampler == OURS else 0


def space_of_run(stored: Mapping[str, Any], graph: Graph, target: Target) -> Space:
    """The space of a run.

    Args:
        stored: its settings, as its record has them.
        graph: its model.
        target: its target.
    """
    from autoturbo.schedule.knobs import Knobs
    from autoturbo.search.space import Space

    starts = [Knobs.from_dict(kept) for kept in stored.get("starts", ())]
    own = stored.get("subgraphs", 0)
    return Space.of(graph, target, dtype=stored["dtype"], subgraphs=own, starts=starts)


@dataclass(frozen=True, slots=True)
class Settings:
    """What a run was asked for and stores; the fields of its record."""

    dtype: str
    trials: int | None
    effort: str
    seed: int
    time_budget: float | None
    sampler: str
    objective: str
    baselines: tuple[str, ...]
    runs_folder: str
    storage: str | None = field(default=None, repr=False)
    subgraphs: int = 0
    patience: int | None = None
    bound_gap: float | None = None
    round: int | None = None
    measurer: str = SIMULATOR

    def check(self) -> tuple[Objective, ...]:
        """Refuse what cannot be, and find the objectives.

        Raises:
            UsageError: a setting that makes no sense.
        """
        if self.effort not in EFFORTS:
            raise UsageError(f"no effort {self.effort!r}", hint=f"one of {', '.join(EFFORTS)}")
        if self.trials is not None and self.trials < 1:
            raise UsageError(f"trials: {self.trials} is too few", hint="at least 1")
        if self.time_budget is not None and not self.time_budget > 0:
            raise UsageError("the time budget must be above 0 seconds")
        if self.subgraphs < 0:
            raise UsageError(f"subgraphs: {self.subgraphs} is negative", hint="0 or more")
        if self.seed < 0:
            raise UsageError(f"seed: {self.seed} is negative", hint="0 or more")
        if self.patience is not None and self.patience < 1:
            raise UsageError(f"patience: {self.patience} is too few", hint="at least 1 trial")
        if self.round is not None and self.round < 1:
            raise UsageError(f"round: {self.round} is too few", hint="at least 1 trial")
        if self.round is not None and self.round > ROUND.most:
            raise UsageError(f"round: {self.round} trials are too many", hint=ROUND.hint)
        objectives = find_objectives(self.objective)
        if self.bound_gap is not None:
            self._check_gap(objectives)
        return objectives

    def _check_gap(self, objectives: tuple[Objective, ...]) -> None:
        if self.bound_gap is None or not self.bound_gap >= 0:
            raise UsageError("the gap to the lower bound must be 0 or more")
        if [o.name for o in objectives if o.name not in OF_KERNELS]:
            hint = f"for {' and '.join(OF_KERNELS)} alone"
            raise UsageError("a gap to the lower bound stops no search for others", hint=hint)

    def extended(
        self,
        trials: int | None,
        time_budget: float | None,
        patience: int | None,
        bound_gap: float | None,
    ) -> Settings:
        """The same with other limits; itself where none is given.

        A limit that is not given is gone where another one is, but for the time, and for the trials
        where only :attr:`patience` or :attr:`bound_gap` are given.
        """
        if {trials, time_budget, patience, bound_gap} == {None}:
            return self
        only_rules = trials is None and time_budget is None
        return dataclasses.replace(
            self,
            trials=self.trials if only_rules else trials,
            time_budget=self.time_budget if time_budget is None else time_budget,
            patience=patience,
            bound_gap=bound_gap,
        )

    @property
    def total(self) -> int | None:
        """Trials to make; None where only time limits them."""
        if self.trials is not None or self.time_budget is not None:
            return self.trials
        return EFFORTS[self.effort]
