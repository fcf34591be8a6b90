"""The other systems' decisions on the same data types: what our schedules are compared with.

Every scheduler turns a workbench into candidates that differ in the batches per cluster only ("a
round of beforehand autotuning executions" chose them for all systems of the paper, section 5.1);
whoever measures takes the fastest.
"""

from __future__ import annotations

import difflib
import importlib.metadata
from collections.abc import Callable, Iterator

from autoturbo.errors import UsageError
from autoturbo.schedule.baselines.ladder import LEVELS, layer_by_layer
from autoturbo.schedule.baselines.tvm import fused_layers, largest_working_set
from autoturbo.schedule.bind import Scope
from autoturbo.schedule.knobs import Knobs
from autoturbo.schedule.pipeline import Workbench, build_schedule
from autoturbo.schedule.problem import make_problem
from autoturbo.schedule.schedule import Schedule

Candidates = Callable[[Workbench], Iterator[Schedule]]

_GROUP = "autoturbo.schedulers"


def scheduler_names() -> tuple[str, ...]:
    """Schedulers by name, the weakest first, then plug-ins'.

    A plug-in registers a :data:`Candidates` function under the entry-point group
    ``autoturbo.schedulers``; it cannot take the place of a built-in one.
    """
    plugged = {entry.name for entry in importlib.metadata.entry_points(group=_GROUP)}
    return (*_SCHEDULERS, *sorted(plugged - set(_SCHEDULERS)))


def candidates(name: str, bench: Workbench) -> Iterator[Schedule]:
    """The schedules that a scheduler would choose from.

    Raises:
        UsageError: no scheduler of that name.
    """
    if name in _SCHEDULERS:
        return _SCHEDULERS[name](bench)
    for entry in importlib.metadata.entry_points(group=_GROUP, name=name):
        found: Iterator[Schedule] = entry.load()(bench)
        return found
    names = scheduler_names()
    close = difflib.get_close_matches(name, names, 1)
    known = f"did you mean {close[0]!r}?" if close else f"one of {', '.join(names)}"
    raise UsageError(f"no scheduler is called {name!r}", hint=known)


def _ladder(name: str) -> Candidates:
    def build(bench: Workbench) -> Iterator[Schedule]:
        for batches in bench.batch_choices():
            problem, share = bench.problem(batches), bench.share(batches)
            yield layer_by_layer(bench.model, problem, share, name, LEVELS[name])

    return build


def _tvm(bench: Workbench) -> Iterator[Schedule]:
    choices = bench.batch_choices()
    target = bench.target
    room = target.gb.capacity or target.cores * target.lb.capacity
    for batches in choices:
        graph = bench.problem(batches).graph
        problem = make_problem(graph, target, bench.dtype, fused_layers(graph))
        if largest_working_set(problem) <= room or batches == choices[-1]:
            share = bench.share(batches)
            yield layer_by_layer(bench.model, problem, share, "tvm", Scope.DDR)
            return


def _graphturbo(bench: Workbench) -> Iterator[Schedule]:
    for batches in bench.batch_choices():
        yield build_schedule(bench, Knobs(batches_per_cluster=batches))


_SCHEDULERS: dict[str, Candidates] = {
    "O0": _ladder("O0"),
    "O1": _ladder("O1"),
    "O2": _ladder("O2"),
    "tvm": _tvm,
    "graphturbo": _graphturbo,
}
