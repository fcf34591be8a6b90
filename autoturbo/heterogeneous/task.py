"""Tuning for a machine of several units: its space, its proposer, and what is refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from autoturbo.errors import UsageError
from autoturbo.heterogeneous.annealing import ROUND
from autoturbo.heterogeneous.evaluator import MachineEvaluator, scheduler_names
from autoturbo.heterogeneous.space import AnnealingProposer, UnitSpace, initial_settings
from autoturbo.registry import ANNEALING, COST_MODEL, PROGRAM
from autoturbo.search.samplers import check_sampler

if TYPE_CHECKING:
    from autoturbo.graph.operators import Graph
    from autoturbo.hardware.machine import Machine
    from autoturbo.schedule.knobs import Knobs
    from autoturbo.search.objectives import Objective

EFFORTS = {"quick": 400, "standard": 2000, "thorough": 10000}
"""Settings of each effort: one takes about a millisecond once its parts are known."""


class MachineTask:
    """A model and a machine; see :class:`autoturbo.tuning.task.TuningTask`.

    Args:
        graph: The whole model.
        machine: The machine that it runs on.
        dtype: The compute type of all units.
    """

    on_machine = True

    def __init__(self, graph: Graph, machine: Machine, dtype: str) -> None:
        self._of = graph, machine, dtype

    @staticmethod
    def defaults(config: Any, machine: Machine, *, own_baselines: bool) -> dict[str, Any]:
        """Return the machine's defaults: sampler, effort, rounds and baselines.

        Args:
            config: Configuration that was asked for.
            machine: The machine of several units.
            own_baselines: The user asked for baselines.
        """
        limited = config.trials is not None or config.time_budget is not None
        return {
            "trials": config.trials if limited else EFFORTS.get(config.effort),
            "sampler": ANNEALING if config.sampler == COST_MODEL else config.sampler,
            "baselines": config.baselines if own_baselines else scheduler_names(machine),
            "subgraphs": 0,
            "round": config.round or ROUND,
        }

    @staticmethod
    def check(
        machine: Machine, sampler: str, objectives: Sequence[str], measured: Sequence[str] = ()
    ) -> None:
        """Refuse samplers and objectives that a machine cannot be tuned by or for.

        Raises:
            UsageError: The sampler or an objective is not for machines.
        """
        del machine, measured  # measurers of others are not asked
        if sampler == PROGRAM:
            hint = "leave --sampler out"
            raise UsageError("programs propose for targets of one kind of unit", hint=hint)
        if sampler != ANNEALING:
            check_sampler(sampler, len(objectives))
        elif len(objectives) > 1:
            hint = "take nsgaii, tpe or random with --sampler"
            raise UsageError("annealing over units works on one objective", hint=hint)
        if "energy" in objectives:
            hint = "latency, throughput or ddr-bytes"
            raise UsageError("machines of several units give no energy figures", hint=hint)

    def space(self, stored: Mapping[str, Any], tuning_evaluator: object) -> UnitSpace:
        """Return units of layers and cuts; nothing of them is stored with a run."""
        del stored
        if isinstance(tuning_evaluator, MachineEvaluator):
            self._units = tuning_evaluator
        else:
            self._units = MachineEvaluator(*self._of)
        return UnitSpace.on(self._units)

    def initial(self, space: UnitSpace, objectives: Sequence[Objective]) -> tuple[Knobs, ...]:
        """Return the first candidates of annealing, for other samplers too."""
        del objectives
        return initial_settings(self._units, space)

    def proposer(self, space: UnitSpace, objective: Objective, seed: int) -> AnnealingProposer:
        """Return the annealing over units and cuts."""
        return AnnealingProposer(self._units, space, objective, seed)
