"""Whether a candidate whose worker was lost is tried again, or failed.

The pool (:mod:`autoturbo.search.executors.worker_pool`) asks, once its transport (``processes`` or
``ray_actors`` beside it) says that a worker is lost.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from autoturbo.search.executors.base import Answer, Task
from autoturbo.simulator.measurement import Failure

TRIES = 2
"""Tries of a candidate whose worker dies: the second time it is the candidate's fault."""

TRIES_AMONG_KILLS = 4
"""Tries once :data:`ACQUITTED` candidates that had lost a worker were measured in the end: somebody
kills workers."""

ACQUITTED = 2
"""Such candidates: one may be chance, a machine short of memory for a moment."""

EXCUSED = 8
"""Retries of a candidate whose machine is lost: after these it counts as failed."""


@dataclass
class RetryPolicy:
    """Counts the workers that candidates have lost."""

    tries: Counter[tuple[str, int]] = field(default_factory=Counter)
    excused: Counter[tuple[str, int]] = field(default_factory=Counter)
    acquitted: int = 0

    def verdict(self, task: Task, reason: str = "worker", *, guilty: bool = True) -> Answer | None:
        """Return the answer of a task whose worker has died; None where it is to be tried again.

        Args:
            task: What was being measured.
            reason: The class of the failure, ``"worker"`` or ``"memory"``.
            guilty: Whether the candidate may be what killed the worker; not so where the whole
                machine was lost, nor where the worker had others too, of which any may have done
                it.
        """
        most = TRIES_AMONG_KILLS if self.acquitted >= ACQUITTED else TRIES
        counts, most = (self.tries, most) if guilty else (self.excused, EXCUSED)
        counts[task.key] += 1
        if counts[task.key] < most:
            return None
        lives = counts.pop(task.key)
        return Answer(task.pair, task.number, lost(lives, reason))

    def acquit(self, answer: Answer) -> None:
        """Record an answer: a candidate that lost a worker and then none had not killed it."""
        key = (answer.pair, answer.number)
        self.excused.pop(key, None)
        if self.tries.pop(key, 0):
            self.acquitted += 1


def lost(tries: int, reason: str = "worker") -> Failure:
    """Return the failure of a candidate whose workers die."""
    how = "ran out of memory" if reason == "memory" else "died"
    return Failure(reason, f"the worker {how} while measuring it, {tries} times")
