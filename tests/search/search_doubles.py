"""Stand-ins for evaluators: a landscape that costs nothing, and ones that misbehave.

All are made from module-level functions, so that worker processes can build them.
"""

from __future__ import annotations

import dataclasses
import os
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from autoturbo.graph.operators import Graph, Tensor
from autoturbo.hardware import load_target
from autoturbo.hardware.target import Target
from autoturbo.schedule.knobs import AUTO, Knobs, model_knobs
from autoturbo.schedule.pipeline import ModelScheduler
from autoturbo.search.space import Dimension, Space
from autoturbo.simulator.contract import PlanStatistics
from autoturbo.simulator.measurement import Failure, LowerBound, Measurement, Outcome

KERNELS = 6


def toy_graph(batch: int = 64) -> Graph:
    """A model without operators: the landscape does not look at it."""
    tensor = Tensor("x", (batch, 8), "float32")
    return Graph("toy", (tensor,), (), (0,), (0,), batch)


def toy_target() -> Target:
    return load_target("stcp920")


def toy_space() -> Space:
    return Space.of(ModelScheduler(toy_graph(), toy_target()))


def small_space() -> Space:
    """Eighteen points."""
    return Space(
        (
            Dimension("prefetch_depth", (AUTO, 2, 3)),
            Dimension("tile_subdivision", (AUTO, 2, 4)),
            Dimension("binding", (AUTO, "always")),
        )
    )


@dataclass(frozen=True)
class ToySchedule:
    text: str

    def save(self, path: Path) -> None:
        path.write_text(self.text)


@dataclass
class Landscape:
    """Kernel times that depend on every knob, pairs of knobs that matter together, a few walls."""

    seed: int = 0
    walls: bool = True
    calls: list[Knobs] = field(default_factory=list)

    def evaluate(self, knobs: Knobs) -> Outcome:
        self.calls.append(knobs)
        if self.walls and knobs.prefetch_depth in {3, 4} and knobs.weight_residency == "GB":
            return Failure("LB", "too full", 200, 100, ("x",), ("a smaller prefetch depth",))
        if self.walls and knobs.output_scope == "GB" and knobs.tile_subdivision == 2:
            return Failure("GB", "too full", 20, 10)
        times = self.times(knobs)
        launches = self.launches(knobs)
        return measurement(float(times @ launches), tuple(times.tolist()))

    def statistics(self, knobs: Knobs) -> PlanStatistics | None:
        work = 1e6 * np.arange(1, KERNELS + 1, dtype=np.float64)
        scale = 1.0 if knobs.lb_occupancy_limit == AUTO else 1 / float(knobs.lb_occupancy_limit)
        values = np.stack([work, work * scale], axis=1)
        return PlanStatistics(values, self.launches(knobs))

    def launches(self, knobs: Knobs) -> NDArray[np.int64]:
        count = 1 if knobs.instance_multiplier == AUTO else int(knobs.instance_multiplier)
        return np.full(KERNELS, count, np.int64)

    def times(self, knobs: Knobs) -> NDArray[np.float64]:
        indices = [_index(name, getattr(knobs, name)) for name in model_knobs()]
        rng = np.random.default_rng(self.seed)
        tables = rng.uniform(0.8, 1.25, (len(indices), 8, KERNELS))
        pairs = rng.uniform(0.9, 1.1, (len(indices), 8, 8))
        effects = np.ones(KERNELS)
        for position, index in enumerate(indices):
            effects *= tables[position, index % 8]
            other = indices[(position + 5) % len(indices)]
            effects *= pairs[position, index % 8, other % 8]
        share = 1.0 / int(self.launches(knobs)[0]) ** 0.9
        return np.asarray(1e-6 * np.arange(1, KERNELS + 1) * effects * share, np.float64)

    def schedule(self, knobs: Knobs) -> ToySchedule:
        return ToySchedule(knobs.canonical() + "\n")

    def heuristic(self) -> Knobs:
        return Knobs()

    def measure_scheduler(self, name: str) -> Outcome:
        if name == "tvm":
            return measurement(1.0)
        return self.evaluate(Knobs()) if name == "graphturbo" else Failure("DDR", "too small")


def _index(name: str, value: object) -> int:
    knob = model_knobs()[name]
    choices = (*knob.choices, *getattr(knob, "untried", ()))
    if value == AUTO:
        return 0
    return 1 + (choices.index(value) if value in choices else int(str(value)))


def measurement(latency: float, times: tuple[float, ...] = (), energy: float = 1.0) -> Measurement:
    bound = LowerBound(1e-6, 1e-7, 1e-7)
    ddr = max(int(1e-3 / latency), 1) if latency > 0 else 1
    return Measurement(
        latency, 64, ddr, 2, 0.5, 0.1, 10, 20, KERNELS, bound, energy=energy, subgraph_times=times
    )


def landscape(graph: Graph, target: Target, dtype: str) -> Landscape:
    del graph, target, dtype
    return Landscape()


def make_landscape() -> Landscape:
    return Landscape()


def walled_in(graph: Graph, target: Target, dtype: str) -> Landscape:
    del graph, target, dtype
    return WalledIn()


def raising(graph: Graph, target: Target, dtype: str) -> Landscape:
    del graph, target, dtype
    return Raising()


def unsteady(graph: Graph, target: Target, dtype: str) -> Landscape:
    del graph, target, dtype
    return Unsteady()


def interrupting(graph: Graph, target: Target, dtype: str) -> Landscape:
    del graph, target, dtype
    return Interrupting()


def slow(graph: Graph, target: Target, dtype: str) -> Landscape:
    del graph, target, dtype
    return Slow()


def lingering(graph: Graph, target: Target, dtype: str) -> Landscape:
    del graph, target, dtype
    return Slow(seconds=0.1)


def patchy(graph: Graph, target: Target, dtype: str) -> Landscape:
    del graph, target, dtype
    return Patchy()


class WalledIn(Landscape):
    """Nothing fits."""

    def evaluate(self, knobs: Knobs) -> Outcome:
        del knobs
        return Failure("LB", "core 0 needs 2 MiB of 1 MiB", 2, 1, ("conv1",), ("a smaller batch",))


class Raising(Landscape):
    def evaluate(self, knobs: Knobs) -> Outcome:
        raise RuntimeError(f"board\non fire: {knobs.canonical()}")


class Unsteady(Landscape):
    """Another number each time."""

    def evaluate(self, knobs: Knobs) -> Outcome:
        self.calls.append(knobs)
        return measurement(1.0 + len(self.calls))


class Interrupting(Landscape):
    """Ctrl-C comes while the thirtieth setting is measured."""

    def evaluate(self, knobs: Knobs) -> Outcome:
        if len(self.calls) == 30:
            self.calls.append(knobs)
            raise KeyboardInterrupt
        return super().evaluate(knobs)


@dataclass
class Slow(Landscape):
    seconds: float = 0.02

    def evaluate(self, knobs: Knobs) -> Outcome:
        time.sleep(self.seconds)
        return super().evaluate(knobs)


class Patchy(Landscape):
    """Some raise, some are nonsense; no statistics."""

    def evaluate(self, knobs: Knobs) -> Outcome:
        if knobs.prefetch_depth == 2:
            raise ValueError("no")
        if knobs.prefetch_depth == 3:
            return measurement(float("nan"))
        return super().evaluate(knobs)

    def statistics(self, knobs: Knobs) -> PlanStatistics | None:
        del knobs
        return None


class Dying(Landscape):
    """Takes its process down on one setting."""

    def evaluate(self, knobs: Knobs) -> Outcome:
        if knobs.prefetch_depth == 2:
            os._exit(3)
        return super().evaluate(knobs)


class DyingOnce(Landscape):
    """Takes its process down the first time; a file remembers."""

    def __init__(self, mark: str) -> None:
        super().__init__()
        self.mark = Path(mark)

    def evaluate(self, knobs: Knobs) -> Outcome:
        if knobs.prefetch_depth == 2 and not self.mark.exists():
            self.mark.touch()
            os._exit(3)
        return super().evaluate(knobs)


class Hanging(Landscape):
    def evaluate(self, knobs: Knobs) -> Outcome:
        if knobs.prefetch_depth == 2:
            time.sleep(600)
        return super().evaluate(knobs)


def make_unbuildable() -> Landscape:
    raise OSError("no board is connected")


def make_vanishing() -> Landscape:
    os._exit(1)


@dataclass
class Repeating(Landscape):
    """A landscape on which some knobs change nothing: settings with the same rest are one."""

    few: bool = False

    def evaluate(self, knobs: Knobs) -> Outcome:
        plain = self.plain(knobs)
        outcome = super().evaluate(plain)
        if isinstance(outcome, Failure):
            return outcome
        return dataclasses.replace(outcome, program=plain.id)

    def plain(self, knobs: Knobs) -> Knobs:
        """What of a setting means something."""
        if self.few:
            return Knobs(prefetch_depth=knobs.prefetch_depth)
        return dataclasses.replace(knobs, spill_victim=AUTO, binding=AUTO, split_key=AUTO)

    def program(self, knobs: Knobs) -> str:
        return self.plain(knobs).id
