"""What runs in a worker: the evaluators of the pairs that it measured last."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from autoturbo.errors import AutoTurboError, ExecutorError
from autoturbo.search.executors.base import Answer, MakeEvaluator, Task, answer_of
from autoturbo.simulator.contract import CandidateEvaluator

HELD = 8
"""Pairs of which a worker keeps the evaluator: models with their memories of kernels, of which the
larger ones take 100 MB. A pair that comes back after eight others is built anew."""

Value = TypeVar("Value")


class PairCache(Generic[Value]):
    """A cache of values of the pairs that were used last.

    The tuner keeps one of these for each of its workers, so that it knows without asking what a
    worker still has: both sides see the same pairs in the same order.

    Args:
        most: Values kept.
    """

    def __init__(self, most: int = HELD) -> None:
        self._most = most
        self._values: OrderedDict[str, Value] = OrderedDict()

    def __contains__(self, pair: str) -> bool:
        return pair in self._values

    def get(self, pair: str, make: Callable[[], Value]) -> Value:
        """Return the value of a pair; make it where it is not held."""
        if pair in self._values:
            self._values.move_to_end(pair)
        else:
            while len(self._values) >= self._most:
                self._values.popitem(last=False)
            self._values[pair] = make()
        return self._values[pair]

    def lacks(self, pair: str) -> bool:
        """Return whether a pair is new, and mark it as known."""
        new = pair not in self._values
        self.get(pair, lambda: None)  # type: ignore[arg-type, return-value]
        return new


@dataclass(frozen=True, slots=True)
class EvaluatorNotBuilt:
    """An answer: no evaluator can be built here.

    Attributes:
        reason: What went wrong, one line.
        error: The same, where it is one of ours: a plug-in that cannot be loaded says it best.
    """

    reason: str
    error: AutoTurboError | None = None

    def raised_by(self, worker: str) -> AutoTurboError:
        """Return the exception that the tuner raises."""
        text = f"{worker} cannot build its evaluator: {self.reason}"
        return self.error or ExecutorError(text)


class WorkerEvaluators:
    """The evaluators of a worker, which carry out its orders."""

    def __init__(self) -> None:
        self._held: PairCache[CandidateEvaluator] = PairCache()

    def prepare(self, pair: str, make: MakeEvaluator) -> EvaluatorNotBuilt | None:
        """Build the evaluator of a pair, unless it is held."""
        try:
            self._held.get(pair, make)
        except AutoTurboError as error:
            return EvaluatorNotBuilt(str(error), error)
        except (Exception, SystemExit) as error:  # noqa: BLE001  reported to the tuner
            return EvaluatorNotBuilt(" ".join(f"{type(error).__name__}: {error}".split()))
        return None

    def measure(self, portion: Sequence[Task]) -> list[Answer]:
        """Return the answers to a few tasks of prepared pairs."""
        return [answer_of(self._held.get(task.pair, _never_told), task) for task in portion]


def _never_told() -> CandidateEvaluator:
    raise LookupError("a pair that this worker was never told")
