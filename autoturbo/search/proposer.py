"""Who is asked for settings in a run, and told what became of them.

Optuna's samplers are asked through a study (:mod:`autoturbo.search.study`). Ours is asked itself:
Optuna's bookkeeping of some hundred parameters a trial takes longer than a measurement. It
proposes what it would in a study of the same trials.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from optuna.study import StudyDirection

from autoturbo.schedule.knobs import Knobs
from autoturbo.search.evolution import fresh_points
from autoturbo.search.samplers import CostModelSampler, SamplerChoice, Told
from autoturbo.search.study import StudyProposer, values_of
from autoturbo.simulate.measurement import Outcome

if TYPE_CHECKING:
    from autoturbo.search.objectives import Objective
    from autoturbo.search.space import Space
    from autoturbo.simulate.measurement import Outcome


class Proposer(Protocol):
    """Gives settings, and learns from outcomes."""

    def ask(self, count: int) -> list[Knobs]:
        """New settings, fewer than asked for only where the space has no more."""
        ...

    def tell(self, knobs: Knobs, outcome: Outcome) -> None:
        """What became of a setting, asked for or not."""
        ...

    def params(self, knobs: Knobs) -> dict[str, Any]:
        """The parameters of a setting that was told, every dimension named."""
        ...


def proposer_of(
    choice: SamplerChoice,
    space: Space,
    objectives: tuple[Objective, ...],
    seed: int,
    initial: tuple[Knobs, ...] = (),
) -> Proposer:
    """The way to ask a sampler.

    Args:
        choice: the sampler.
        space: of the knobs.
        objectives: at least one.
        seed: of what the sampler does not decide.
        initial: settings that are proposed before it is asked.
    """
    if isinstance(choice.sampler, CostModelSampler):
        return CostModelProposer(choice.sampler, choice, space, objectives, seed, initial)
    return StudyProposer(choice, space, objectives, seed, initial)


@dataclass(eq=False)
class CostModelProposer:
    """Our sampler at work without a study.

    Attributes:
        sampler: itself.
        choice: with its advisor.
        space: of the knobs.
        objectives: at least one.
        seed: of what the sampler does not decide.
        initial: settings that are proposed first.
    """

    sampler: CostModelSampler
    choice: SamplerChoice
    space: Space
    objectives: tuple[Objective, ...]
    seed: int
    initial: tuple[Knobs, ...] = ()
    _known: set[tuple[int, ...]] = field(default_factory=set)
    _told: list[Told] = field(default_factory=list)
    _points: dict[Knobs, tuple[int, ...]] = field(default_factory=dict)
    _untaught: list[tuple[Knobs, Outcome]] = field(default_factory=list)

    def ask(self, count: int) -> list[Knobs]:
        """New settings, fewer than asked for only where the space has no more."""
        self._teach()
        count = min(count, self.space.size - len(self._known))
        first = [point for k in self.initial if (point := self._point(k)) not in self._known]
        found, own = dict.fromkeys(first[:count]), dict[tuple[int, ...], None]()
        while len(found) < count and (new := self._proposed(own)):
            own.update(dict.fromkeys(new))  # the sampler goes the way that it would go alone
            found.update(dict.fromkeys(new))
        found = dict.fromkeys([*found][:count])
        rng = np.random.default_rng([self.seed, len(self._known), 1])
        taken = {*self._known, *found}
        found.update(dict.fromkeys(fresh_points(self.space, rng, taken, count - len(found))))
        asked = {self.space.knobs_of(genes): genes for genes in found}
        self._points |= asked
        return list(asked)

    def _proposed(self, found: dict[tuple[int, ...], None]) -> list[tuple[int, ...]]:
        """More points that are new."""
        number = len(self._told) + len(found)
        points = self.sampler.batch_of(number, self._told, {*found}, self._directions)
        return [point for point in points if point not in self._known and point not in found]

    @property
    def _directions(self) -> list[StudyDirection]:
        return [StudyDirection[o.direction.upper()] for o in self.objectives]

    def tell(self, knobs: Knobs, outcome: Outcome) -> None:
        """What became of a setting, asked for or not.

        Raises:
            KnobsError: it is outside the space.
        """
        genes = self._point(knobs)
        self._known.add(genes)
        self._told.append((genes, values_of(outcome, self.objectives)))
        self._untaught.append((knobs, outcome))

    def _teach(self) -> None:
        """Let the advisor have what was told."""
        told, self._untaught = self._untaught, []
        if self.choice.advisor is not None:
            for knobs, outcome in told:
                self.choice.advisor.observe(knobs, outcome)

    def params(self, knobs: Knobs) -> dict[str, Any]:
        """The parameters of a setting that was told, every dimension named."""
        return self.space.params_of(self._point(knobs))

    def _point(self, knobs: Knobs) -> tuple[int, ...]:
        """The point of a setting; of one asked for here it is known."""
        if knobs not in self._points:
            self._points[knobs] = self.space.point_of(knobs)
        return self._points[knobs]
