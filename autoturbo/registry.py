"""Registries by name: measurers, samplers, schedulers, cost models, targets, ours and plug-ins'.

=========================  =====================================================================
``autoturbo.measurers``    a function without arguments that gives a measurer
``autoturbo.samplers``     a function of a seed that gives an Optuna sampler
``autoturbo.schedulers``   a function of a workbench that yields schedules
``autoturbo.cost_models``  a function of a seed and estimates that gives a cost model
``autoturbo.targets``      a target, the path of its file, or a function that gives either
=========================  =====================================================================

Ours are registered as others' are, by an entry point (*module:object*), and nothing is loaded until
a name is asked for. A name of ours cannot be taken. A plug-in that does not load, or does not do as
its group says, is one line that names it. ``docs/extending.md`` shows one of each.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol

from autoturbo.errors import PluginError, UsageError, did_you_mean

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint, EntryPoints


@dataclass(frozen=True, slots=True)
class Registry:
    """Things of one kind by name.

    Attributes:
        group: Of entry points, under which other packages register theirs.
        kind: What messages call one.
        builtin: Where ours are, by name, in the order in which they are told.
        aliases: Other names of ours.
        here: What this process alone has registered, by name.
    """

    group: str
    kind: str
    builtin: Mapping[str, str] = field(default_factory=dict)
    aliases: Mapping[str, str] = field(default_factory=dict)
    here: dict[str, Any] = field(default_factory=dict)

    def register(self, name: str, made: Any) -> None:
        """Register something in this process alone, for a notebook or a test.

        Other processes do not see it: workers that measure, and a later ``resume``. What they need
        is registered by an entry point of a package.

        Args:
            name: Its name.
            made: What an entry point would name. A later one of the same name takes its place.

        Raises:
            UsageError: The name is one of ours.
        """
        if self.is_ours(name):
            raise UsageError(f"the {self.kind} {name!r} is one of ours", hint="choose another name")
        self.here[name] = made

    def names(self) -> tuple[str, ...]:
        """Return the names of ours, then those of plug-ins; nothing is loaded."""
        entries = _installed(group=self.group)
        others = {*self.here, *(entry.name for entry in entries)}
        return (*self.builtin, *sorted(others.difference(self.builtin, self.aliases)))

    def find(self, name: str) -> EntryPoint:
        """Return the entry point of a name, not loaded.

        Raises:
            UsageError: There is none of that name.
        """
        name = self.aliases.get(name, name)
        if name in self.builtin or name in self.here:
            from importlib.metadata import EntryPoint

            where = self.builtin.get(name) or f"{self.here[name].__module__}:{name}"
            return EntryPoint(name, where, self.group)
        entries = _installed(group=self.group, name=name)
        if not entries:
            known = did_you_mean(name, (*self.names(), *self.aliases))
            hint = f"{known}, or install the package that brings it"
            raise UsageError(f"no {self.kind} is called {name!r}", hint=hint)
        return next(iter(entries))

    def is_ours(self, name: str) -> bool:
        """Return whether a name is one of ours."""
        return self.aliases.get(name, name) in self.builtin

    def load(self, name: str) -> Any:
        """Return the object registered under a name.

        Raises:
            UsageError: There is none of that name.
            PluginError: A plug-in cannot be imported.
        """
        return self._loaded(self.find(name))

    def _loaded(self, entry: EntryPoint) -> Any:
        if entry.name in self.here:
            return self.here[entry.name]
        try:
            return entry.load()
        except (Exception, SystemExit) as error:  # code of others may fail in any way: tell whose
            if entry.name in self.builtin:
                raise
            raise broken(entry, f"cannot be loaded: {type(error).__name__}: {error}") from error

    def make(self, name: str, *arguments: Any) -> Any:
        """Return the result of the function registered under a name, for some arguments.

        Raises:
            UsageError: There is none of that name.
            PluginError: A plug-in cannot be imported, is no function, or raises.
        """  # noqa: DOC501  broken() makes the error
        entry = self.find(name)
        factory = self._loaded(entry)
        if entry.name in self.builtin:
            return factory(*arguments)
        if not callable(factory):
            raise broken(entry, f"is a value of type {type(factory).__name__!r}, not a function")
        try:
            return factory(*arguments)
        except (Exception, SystemExit) as error:  # likewise
            raise broken(entry, f"failed: {type(error).__name__}: {error}") from error

    def version(self, name: str) -> str:
        """Return the version of the package that brings a plug-in; empty where it is not known.

        What this process alone has registered has a digest of its source, for two of one name are
        two.

        Raises:
            UsageError: There is none of that name.
        """
        if name in self.here:
            return _digest(self.here[name])
        entry = self.find(name)
        return str(entry.dist.version) if entry.dist is not None else ""


def _digest(made: Any) -> str:
    """Return a digest of the source of something; empty where there is none."""
    import hashlib
    import inspect
    from contextlib import suppress

    with suppress(OSError, TypeError):
        return hashlib.sha256(inspect.getsource(made).encode()).hexdigest()[:10]
    return ""


def _installed(**asked: str) -> EntryPoints:
    """Return entry points of installed packages; their reader is loaded on first use."""
    import importlib.metadata

    found: Any = importlib.metadata.entry_points  # typed for constant names alone
    entries: EntryPoints = found(**asked)
    return entries


def broken(entry: EntryPoint, what: str) -> PluginError:
    """Return the error of a plug-in that breaks its group's contract."""
    package = f", of the package {entry.dist.name}" if entry.dist is not None else ""
    hint = f"it is {entry.value!r} in the group {entry.group!r}{package}"
    return PluginError(f"the plug-in {entry.name!r} {what}", hint=hint)


SIMULATOR: Final = "simulator"
"""The built-in measurer."""

HOST: Final = "host"
"""This computer as a target: what runs on it is measured, never simulated."""

PUBLISHED: Final = "graphturbo"
"""The scheduler that makes the published heuristic."""

HEURISTIC: Final = "heuristic"
"""What people call a run's first trial: GraphTurbo's rules at their best batches per cluster."""

HEURISTICS: Final = (PUBLISHED, "partition_tuner")
"""The schedulers that a run begins with, on a target and on a machine of several units."""

COST_MODEL: Final = "cost-model"
"""Our sampler: evolution guided by a model of kernel times."""

PROGRAM: Final = "program"
"""A program of the user's (:mod:`autoturbo.search.proposer`)."""

ANNEALING: Final = "annealing"
"""Ours on a machine of several processing units, where it is the only one."""

MEASURERS: Final = Registry(
    "autoturbo.measurers", "measurer", {SIMULATOR: "autoturbo.simulator.evaluator:Simulator"}
)

SAMPLERS: Final = Registry(
    "autoturbo.samplers",
    "sampler",
    {
        COST_MODEL: "autoturbo.search.samplers:CostModelSampler",
        **{
            name: f"autoturbo.search.samplers:{name}"
            for name in ("random", "tpe", "cmaes", "gp", "nsgaii", "qmc", "grid")
        },
        PROGRAM: "autoturbo.search.proposer:ProgramProposer",
    },
)

COST_MODELS: Final = Registry(
    "autoturbo.cost_models", "cost model", {"kernels": "autoturbo.cost_models.model:KernelTrees"}
)

SCHEDULERS: Final = Registry(
    "autoturbo.schedulers",
    "scheduler",
    {
        "tvm": "autoturbo.baselines.tvm:tvm",
        "astitch": "autoturbo.baselines.astitch:astitch",
        "O0": "autoturbo.baselines.ladder:level_0",
        "O1": "autoturbo.baselines.ladder:level_1",
        "O2": "autoturbo.baselines.ladder:level_2",
        "gb_outputs": "autoturbo.baselines.tvm:gb_outputs",
        "lb_outputs": "autoturbo.baselines.tvm:lb_outputs",
        "instance_order": "autoturbo.baselines.ladder:instance_order",
        PUBLISHED: "autoturbo.baselines.ladder:graphturbo",
        "prefetching": "autoturbo.baselines.ladder:prefetching",
        "fitted": "autoturbo.baselines.ladder:fitted",
    },
    {"O3": PUBLISHED},  # the vendor's highest level is GraphTurbo (baselines.md, section 1)
)

MACHINE_SCHEDULERS: Final = Registry(
    "autoturbo.machine_schedulers",
    "scheduler of machines",
    {
        name: f"autoturbo.baselines.partition_tuner:{name}"
        for name in ("static", "profiled", "partition_tuner")
    },
)
"""Of the costs of layers on units they make an assignment of layers to units."""

TASKS: Final = Registry(
    "autoturbo.tasks",
    "tuning task",
    {
        "Target": "autoturbo.tuning.task:TargetTask",
        "Machine": "autoturbo.heterogeneous.task:MachineTask",
    },
)
"""What tuning asks of what a model is tuned for, by the name of its type."""

TARGETS: Final = Registry("autoturbo.targets", "target")
"""Of plug-ins alone: ours are files (:mod:`autoturbo.hardware.presets`)."""

VERIFIERS: Final = Registry(
    "autoturbo.verifiers",
    "verifier of schedules",
    {
        "Schedule": "autoturbo.verifier:nothing_more",
        "MachineSchedule": "autoturbo.heterogeneous.verification:check_runs",
    },
)
"""What schedules of a type are checked for besides regions, memory and numbers."""

VIEWS: Final = Registry(
    "autoturbo.views",
    "view",
    {
        name: f"autoturbo.report.views:{name.lower()}_view"
        for name in ("Measurement", "Schedule", "Target")
    },
)
"""How values show themselves in a notebook: made by the report, which stands above them."""


class Printer(Protocol):
    """What IPython hands to ``_repr_pretty_``."""

    def text(self, text: str, /) -> object:
        """Take note of it."""


class Shown:
    """A value that shows itself as HTML in a notebook and as lines at a prompt."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        html: str = VIEWS.make(type(self).__name__, self).html()
        return html

    def _repr_pretty_(self, printer: Printer, cycle: bool) -> None:
        del cycle
        printer.text(VIEWS.make(type(self).__name__, self).text())


def trial_name(number: int) -> str:
    """Return what people call a trial of a run: the first one is the heuristic."""
    return f"trial {number}" if number else f"the {HEURISTIC}"
