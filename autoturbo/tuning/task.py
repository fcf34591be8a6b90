"""The task of tuning for a target: its defaults, its space, and its proposer.

A machine of several units answers otherwise (:mod:`autoturbo.heterogeneous.task`). The registry has
both by the name of the target's type; nothing else in tuning tells them apart.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from autoturbo.errors import UsageError
from autoturbo.registry import ANNEALING, TASKS
from autoturbo.search.objectives import OF_KERNELS, Objective

if TYPE_CHECKING:
    from autoturbo.graph.operators import Graph
    from autoturbo.hardware.target import Target
    from autoturbo.hardware.tuning_target import TuningTarget
    from autoturbo.schedule.knobs import Knobs
    from autoturbo.search.proposer import Proposer
    from autoturbo.search.space import Space


class TuningTask(Protocol):
    """A model and what it is tuned for.

    Attributes:
        on_machine: It is a machine of several units: each part is scheduled by the heuristic, no
            kernel model predicts, measurers of others are not asked.
    """

    on_machine: bool

    @staticmethod
    def defaults(config: Any, target: Any, *, own_baselines: bool) -> dict[str, Any]:
        """Return the target's defaults, by the name of the option."""
        ...

    @staticmethod
    def check(
        target: Any, sampler: str, objectives: Sequence[str], measured: Sequence[str] = ()
    ) -> None:
        """Refuse samplers and objectives that do not suit the target; raises UsageError.

        Args:
            target: The target that is tuned for.
            sampler: Name of the sampler.
            objectives: Names of the objectives.
            measured: Objectives that the measurer reports, whatever the target says.
        """

    def space(self, stored: Mapping[str, Any], tuning_evaluator: object) -> Space:
        """Return the search space, by the settings stored with a run; called before the others."""
        ...

    def initial(self, space: Any, objectives: Sequence[Objective]) -> tuple[Knobs, ...]:
        """Return the candidates of the first trials after trial 0, whatever the sampler."""
        ...

    def proposer(self, space: Any, objective: Objective, seed: int) -> Proposer:
        """Return the target's own search, where it has one; raises UsageError."""
        ...


def task_of(graph: Graph, target: TuningTarget, dtype: str) -> TuningTask:
    """Return the task of a model on a target or machine."""
    made: TuningTask = TASKS.make(type(target).__name__, graph, target, dtype)
    return made


class TargetTask:
    """A model and a target; see :class:`TuningTask`.

    Args:
        graph: The whole model.
        target: The target that it runs on.
        dtype: The compute type.
    """

    on_machine = False

    def __init__(self, graph: Graph, target: Target, dtype: str) -> None:
        self._of = graph, target, dtype

    @staticmethod
    def defaults(config: Any, target: Target, *, own_baselines: bool) -> dict[str, Any]:
        """Return no defaults: a target has none."""
        del config, target, own_baselines
        return {}

    @staticmethod
    def check(
        target: Target, sampler: str, objectives: Sequence[str], measured: Sequence[str] = ()
    ) -> None:
        """Refuse an unknown sampler, and energy without figures of the target.

        Raises:
            UsageError: One of both.
        """
        from autoturbo.search.samplers import check_sampler

        check_sampler(sampler, len(objectives))
        if "energy" in {*objectives} - {*measured} and target.energy is None:
            hint = "add an 'energy' section to the target, or take a measurer that reports it"
            raise UsageError(f"target {target.name} gives no energy figures", hint=hint)

    def space(self, stored: Mapping[str, Any], tuning_evaluator: object) -> Space:
        """Return the knobs of the model and of its heaviest sub-graphs."""
        from autoturbo.schedule.pipeline import ModelScheduler
        from autoturbo.search.space import space_of_run

        model_scheduler = getattr(tuning_evaluator, "model_scheduler", None)
        return space_of_run(
            stored,
            model_scheduler
            if isinstance(model_scheduler, ModelScheduler)
            else ModelScheduler(*self._of),
        )

    def initial(self, space: Space, objectives: Sequence[Objective]) -> tuple[Knobs, ...]:
        """Return the heuristic at other numbers of samples, starts, and splits over clusters."""
        from autoturbo.search.openings import initial_settings

        others = [o.name for o in objectives if o.name not in OF_KERNELS]
        return initial_settings(space, every_batch=bool(others))

    def proposer(self, space: Space, objective: Objective, seed: int) -> Proposer:
        """Refuse: a target is searched by samplers."""
        del space, objective, seed
        raise UsageError(
            f"{ANNEALING} is for machines of several units", hint="leave --sampler out"
        )
