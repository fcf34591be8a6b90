"""Simulates schedules of a database again: a record gains nothing by what it claims."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from autoturbo.commands.loading import Pair, load_model, model_of_run
from autoturbo.commands.scheduling import measured_schedule
from autoturbo.database import BestSchedule, RunInfo, TrialRecord
from autoturbo.database.believing import simulated_otherwise
from autoturbo.errors import AutoTurboError, RunError
from autoturbo.simulator.measurement import VERSION

if TYPE_CHECKING:
    from autoturbo.commands.loading import AnyPair
    from autoturbo.database import PairKey
    from autoturbo.graph.operators import Graph
    from autoturbo.hardware.tuning_target import TuningTarget
    from autoturbo.heterogeneous.evaluator import MachineEvaluator
    from autoturbo.simulator.evaluator import Evaluator


class Again:
    """Simulates records again, each model and target loaded once.

    Attributes:
        simulated: Records that were.
        unknown: Records of the simulator whose model or target is not here.
    """

    def __init__(self) -> None:
        self.simulated = self.unknown = 0
        self._pairs: dict[PairKey, tuple[AnyPair, Evaluator | MachineEvaluator] | None] = {}

    def __call__(self, record: BestSchedule | TrialRecord, info: RunInfo | None) -> str:
        """Return what simulating a record contradicts; empty where nothing, or it cannot be."""
        if isinstance(record, BestSchedule):
            key, latency = record.key, record.measurement.latency
        elif info is not None and record.latency is not None:
            key, latency = info.key, record.latency
        else:
            return ""
        if key.free.scheduler_version != VERSION:  # what measured it is not here
            return ""
        if key not in self._pairs:
            self._pairs[key] = _found(key, record, info)
        if (found := self._pairs[key]) is None:
            self.unknown += 1
            return ""
        self.simulated += 1
        pair, evaluator = found
        if isinstance(record, BestSchedule):
            again = measured_schedule(record.schedule, pair, "", evaluator)
        else:
            again = evaluator.evaluate(record.knobs)
        return simulated_otherwise(latency, again)


def _found(
    key: PairKey, record: BestSchedule | TrialRecord, info: RunInfo | None
) -> tuple[AnyPair, Evaluator | MachineEvaluator] | None:
    """Return the pair of a key and its evaluator; None where model or target are not here."""
    with suppress(AutoTurboError):
        graph, target = _pair_of(record, info)
        if (graph.hash, target.hash) == (key.graph_hash, key.target_hash):
            pair = Pair(graph, target, key.dtype)
            return pair, pair.evaluator()
    return None


def _pair_of(
    record: BestSchedule | TrialRecord, info: RunInfo | None
) -> tuple[Graph, TuningTarget]:
    """Return the model and target of a run; without one, those that have the record's names.

    Raises:
        RunError: The run does not say.
    """
    from autoturbo.hardware.machine_files import find_target
    from autoturbo.tuning.keys import stored_target

    if info is not None:
        return model_of_run(info), stored_target(info)
    if not isinstance(record, BestSchedule):
        raise RunError("a trial without its run")
    return load_model(record.model, batch=record.batch), find_target(record.target)
