"""How a batch runs on this computer.

GraphTurbo's decisions, as far as they mean something to a processor with caches: sub-graphs, each
with its own number of samples at once; samples that pass through all of them before the next ones
begin; the order in which sub-graphs take turns within such a pass; workers that share the passes
out, and threads of each.

A plan stands in :class:`autoturbo.schedule.knobs.Knobs` as one field, ``host``, so that runs on
this computer are kept as all others are.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Annotated, Any, Final

from autoturbo.errors import KnobsError, Location
from autoturbo.schema import Choice, Index, Positive

WHOLE: Final = "whole batch"
LOOP: Final = "best loop"
TUNED: Final = "tuned"
PLANS: Final = (WHOLE, LOOP, TUNED)
"""What is compared: two baselines, and the plan that was searched for."""

DEPTH_FIRST: Final = "depth-first"
"""A sub-graph runs as soon as enough samples have left the one before it."""

BREADTH_FIRST: Final = "breadth-first"
"""All samples of a pass leave a sub-graph before the next one begins."""

ORDERS: Final = (DEPTH_FIRST, BREADTH_FIRST)


@dataclass(frozen=True, slots=True)
class HostSubGraph:
    """A run of operators, and how many samples it takes at once.

    Attributes:
        first: Its first operator.
        stop: One past the last.
        samples: That one call takes.
    """

    first: Index
    stop: Positive
    samples: Positive

    @property
    def operators(self) -> range:
        """Return the indices of its operators."""
        return range(self.first, self.stop)


@dataclass(frozen=True, slots=True)
class HostChoice:
    """What is chosen for the parts of a model.

    Attributes:
        samples: That each part takes at once; they divide the batch.
        joined: Whether each part but the first is one sub-graph with the part before it, which
            takes as many samples.
        order: One of :data:`ORDERS`; a pass is as short as it can be, or as long.
    """

    samples: tuple[int, ...]
    joined: tuple[bool, ...]
    order: str = DEPTH_FIRST

    @staticmethod
    def loop(samples: int, parts: int) -> HostChoice:
        """Return the choice of one sub-graph for all parts."""
        return HostChoice((samples,) * parts, (True,) * (parts - 1))


@dataclass(frozen=True, slots=True)
class HostPlan:
    """How a batch runs.

    Attributes:
        subgraphs: Every operator once, in order.
        pass_samples: Samples that pass through all sub-graphs before the next ones begin.
        order: Of the calls of a pass, one of :data:`ORDERS`.
        workers: That share out the passes, each in a thread of its own.
        threads: Of each worker.
    """

    subgraphs: tuple[HostSubGraph, ...]
    pass_samples: Positive
    order: Annotated[str, Choice(ORDERS)] = DEPTH_FIRST
    workers: Positive = 1
    threads: Positive = 1

    def as_dict(self) -> dict[str, Any]:
        """Return the fields as JSON values."""
        return {**asdict(self), "subgraphs": [asdict(part) for part in self.subgraphs]}

    @staticmethod
    def from_dict(values: Any, at: Location | None = None) -> HostPlan:
        """Return the checked plan of plain values.

        Raises:
            KnobsError: An unknown field, or a value that it does not take.
        """
        from autoturbo.schema import InvalidError, checked, dotted, form_of

        try:
            form = checked(form_of(HostPlan), values)
        except InvalidError as error:
            place = replace(at or Location(), field=dotted(("host", *error.first.path)))
            raise KnobsError(error.first.message, place, error.first.hint) from None
        subgraphs = tuple(HostSubGraph(**part) for part in form["subgraphs"])
        return HostPlan(**{**form, "subgraphs": subgraphs})

    @staticmethod
    def of(
        parts: Sequence[range],
        choice: HostChoice,
        batch: int,
        workers: int = 1,
        threads: int = 1,
    ) -> HostPlan:
        """Return the plan of a choice.

        Args:
            parts: Of the model.
            choice: What is chosen for them.
            batch: Of the model.
            workers: That share out the passes.
            threads: Of each worker.
        """
        merged: list[HostSubGraph] = []
        for part, count, joined in zip(parts, choice.samples, (False, *choice.joined), strict=True):
            if joined:
                merged[-1] = HostSubGraph(merged[-1].first, part.stop, count)
            else:
                merged.append(HostSubGraph(part.start, part.stop, count))
        order, passed = choice.order, math.lcm(*choice.samples)
        if len(merged) == 1:
            order = DEPTH_FIRST
        elif order == BREADTH_FIRST:
            possible = range(passed, max(batch // workers, passed) + 1, passed)
            passed = max(n for n in possible if batch % n == 0)
        return HostPlan(tuple(merged), passed, order, workers, threads)

    def choice(self, parts: Sequence[range]) -> HostChoice:
        """Return the choice that it is the plan of.

        Args:
            parts: Of the model; none lies in two sub-graphs.
        """
        homes = [next(g for g in self.subgraphs if part.start in g.operators) for part in parts]
        joined = (a is b for a, b in itertools.pairwise(homes))
        return HostChoice(tuple(g.samples for g in homes), tuple(joined), self.order)

    def fault(self, operators: int, batch: int) -> str:
        """Return what is wrong with it for a model; empty where nothing is.

        Args:
            operators: Of the model.
            batch: Of the model.
        """
        ends = (0, *(part.stop for part in self.subgraphs))
        firsts = (*(part.first for part in self.subgraphs), operators)
        if ends != firsts or not all(part.operators for part in self.subgraphs):
            return "sub-graphs do not hold every operator once, in order"
        if not all(
            part.samples and self.pass_samples % part.samples == 0 for part in self.subgraphs
        ):
            return "the samples of a sub-graph do not divide those of a pass"
        if not self.pass_samples or batch % self.pass_samples:
            return "the samples of a pass do not divide the batch"
        if self.order not in ORDERS or not self.workers or not self.threads:
            return f"its order is none of {', '.join(ORDERS)}, or nothing works on it"
        return ""

    def calls(self) -> Iterator[tuple[int, int]]:
        """Yield the calls of a pass in order: the sub-graph, and its first sample of the pass."""
        done = [0] * len(self.subgraphs)
        while done[-1] < self.pass_samples:
            able = [i for i, part in enumerate(self.subgraphs) if self._is_ready(i, part, done)]
            chosen = able[-1] if self.order == DEPTH_FIRST else able[0]
            yield chosen, done[chosen]
            done[chosen] += self.subgraphs[chosen].samples

    def _is_ready(self, index: int, part: HostSubGraph, done: Sequence[int]) -> bool:
        made = done[index - 1] if index else self.pass_samples
        return done[index] + part.samples <= made

    @property
    def sentence(self) -> str:
        """Return what it does, for people."""
        sizes = [part.samples for part in self.subgraphs]
        order = f" {self.order}" if len(sizes) > 1 else ""
        layout = f"{self.workers} x {self.threads} threads"
        return f"{'-'.join(map(str, sizes))}{order}, {layout}"


def distinct(plans: Mapping[str, HostPlan]) -> dict[str, HostPlan]:
    """Return plans under the first of the names that each has."""
    names: dict[HostPlan, str] = {}
    for name, plan in plans.items():
        names.setdefault(plan, name)
    return {name: plan for plan, name in names.items()}
