"""The other systems' decisions on the same data types: what our schedules are compared with.

Every scheduler turns a workbench into candidates that differ in the batches per cluster only ("a
round of beforehand autotuning executions" chose them for all systems of the paper, section 5.1);
whoever measures takes the fastest.

==================  ================================================================================
``tvm``             TVM v0.8's kernels, all outputs in DDR
``astitch``         AStitch: memory-intensive operators stitched, products on their own
``O0`` ``O1`` ...   levels of the vendor's compiler; ``O3`` is another name of ``graphturbo``
``gb_outputs``      rungs of the paper's ablation (Fig. 15) from ``tvm`` up: TVM's kernels with
``lb_outputs``      outputs in GB, in LB, then
``instance_order``  splitting, grouping and ordering instances, then
``graphturbo``      across-layer instruction scheduling
==================  ================================================================================
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from autoturbo import plugins
from autoturbo.errors import UsageError, did_you_mean
from autoturbo.schedule.baselines.astitch import astitch
from autoturbo.schedule.baselines.ladder import graphturbo, instance_order, level
from autoturbo.schedule.baselines.tvm import outputs_at, tvm
from autoturbo.schedule.pipeline import Workbench
from autoturbo.schedule.place.bind import Scope
from autoturbo.schedule.schedule import Schedule

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

Candidates = Callable[[Workbench], Iterator[Schedule]]

PUBLISHED = "graphturbo"
"""The published heuristic."""

ALIASES = {"O3": PUBLISHED}
"""Other names: the vendor's highest level is GraphTurbo (baselines.md, section 1)."""

_SCHEDULERS: dict[str, Candidates] = {
    "tvm": tvm,
    "astitch": astitch,
    "O0": level("O0"),
    "O1": level("O1"),
    "O2": level("O2"),
    "gb_outputs": outputs_at("gb_outputs", Scope.GB),
    "lb_outputs": outputs_at("lb_outputs", Scope.LB),
    "instance_order": instance_order,
    PUBLISHED: graphturbo,
}


def scheduler_names() -> tuple[str, ...]:
    """Schedulers by name without aliases: other systems, the ladders upwards, then plug-ins'.

    A plug-in registers a :data:`Candidates` function under the entry-point group
    ``autoturbo.schedulers``; it cannot take the place of a built-in one.
    """
    plugged = plugins.plugin_names(plugins.SCHEDULERS)
    return (*_SCHEDULERS, *(n for n in plugged if n not in _SCHEDULERS and n not in ALIASES))


def candidates(name: str, bench: Workbench) -> Iterator[Schedule]:
    """The schedules that a scheduler would choose from.

    Raises:
        UsageError: no scheduler of that name.
        PluginError: it is a plug-in's, which cannot be loaded.
    """
    name = ALIASES.get(name, name)
    if name in _SCHEDULERS:
        return _SCHEDULERS[name](bench)
    entry = plugins.find_plugin(plugins.SCHEDULERS, name)
    if entry is not None:
        return _plugged(entry, plugins.make_plugin(entry, bench))
    names = (*scheduler_names(), *ALIASES)
    raise UsageError(f"no scheduler is called {name!r}", hint=did_you_mean(name, names))


def _plugged(entry: EntryPoint, found: Iterable[Schedule]) -> Iterator[Schedule]:
    """The candidates of a plug-in, which may fail while they are made."""
    try:
        yield from found
    except Exception as error:  # third-party code may fail in any way; the user sees whose
        raise plugins.broken(entry, f"failed: {type(error).__name__}: {error}") from error
