"""What a call of the tuner is asked for, and what the record of a run gives back of it."""

from __future__ import annotations

import dataclasses
import os
import shutil
import tempfile
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autoturbo.errors import RunError
from autoturbo.hardware.machine import Machine
from autoturbo.masking import is_masked
from autoturbo.run import Means
from autoturbo.search.names import OURS
from autoturbo.search.settings import Settings, searched_subgraphs
from autoturbo.simulate.contract import SIMULATOR

if TYPE_CHECKING:
    from autoturbo.database import RunInfo
    from autoturbo.graph.operators import Graph
    from autoturbo.hardware.machine import AnyTarget
    from autoturbo.search.handover import Verifier
    from autoturbo.search.progress import Progress
    from autoturbo.search.workshop import MakeWorkshop


STORAGE_VARIABLE = "AUTOTURBO_STORAGE"
"""The environment variable of the storage's URL, which command lines show to everybody."""

LIMITED = ("trials", "time_budget", "patience", "bound_gap")
"""The settings that limit a run, which may be others when it is resumed."""

RUNS = "runs"
"""The default folder of run folders, in the working folder."""


class Scratch:
    """A temporary folder, removed with the last that holds this.

    Attributes:
        path: the folder.
    """

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="autoturbo-"))
        weakref.finalize(self, _remove, self.path, os.getpid())


def _remove(path: Path, process: int) -> None:
    """Remove a folder in the process that made it; forked ones leave it alone."""
    if os.getpid() == process:
        shutil.rmtree(path, ignore_errors=True)


@dataclass(frozen=True, slots=True, eq=False)
class Pair:
    """What is tuned: arguments of :func:`autoturbo.tuner.tune`."""

    graph: Graph
    target: AnyTarget
    dtype: str | None = None
    model_file: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Options:
    """How: the other arguments of :func:`autoturbo.tuner.tune`, which says what they mean.

    Attributes:
        began: when the time budget began, by the monotonic clock; with the call if None.
    """

    trials: int | None = None
    effort: str = "quick"
    seed: int = 0
    jobs: int = 1
    ray: str | None = None
    runtime_env: Mapping[str, Any] | None = None
    time_budget: float | None = None
    sampler: str = OURS
    objective: str | Sequence[str] = "latency"
    database: str | Path | None = None
    runs_folder: str | Path | None = None
    baselines: Sequence[str] = ("tvm", "graphturbo")
    on_progress: Callable[[Progress], None] | None = None
    storage: str | None = field(default=None, repr=False)
    timeout_s: float | None = None
    evaluator: MakeWorkshop | None = None
    subgraphs: int | None = None
    transfer: bool = True
    verify: bool = False
    verifier: Verifier | None = None
    patience: int | None = None
    bound_gap: float | None = None
    round: int | None = None
    measurer: str = SIMULATOR
    on_begin: Callable[[RunInfo], None] | None = None
    scratch: Scratch | None = None
    began: float | None = None

    def asked_of(self, pair: Pair) -> Settings:
        """What the run of a pair stores."""
        one = isinstance(self.objective, str)
        objective = self.objective if one else ",".join(self.objective)
        settings = Settings(
            dtype=pair.dtype or pair.target.default_dtype,
            trials=self.trials,
            effort=self.effort,
            seed=self.seed,
            time_budget=self.time_budget,
            sampler=self.sampler,
            objective=str(objective),
            baselines=tuple(self.baselines),
            runs_folder=RUNS if self.runs_folder is None else str(self.runs_folder),
            storage=self.storage,
            subgraphs=searched_subgraphs(self.subgraphs, self.sampler),
            patience=self.patience,
            bound_gap=self.bound_gap,
            round=self.round,
            measurer=self.measurer,
        )
        if isinstance(pair.target, Machine):
            from autoturbo.search.units.settings import on_machine

            return on_machine(settings, pair.target)
        return settings

    def placed(self) -> Options:
        """Return the same with a place for all that is written.

        Without a database it is a temporary folder, so that nothing in the working folder is read,
        and nothing written but the run folders where they are asked for.
        """
        if self.database is not None:
            return self
        scratch = Scratch()
        runs = self.runs_folder or scratch.path / RUNS
        return dataclasses.replace(
            self, database=scratch.path / "autoturbo.db", runs_folder=runs, scratch=scratch
        )

    def means(self) -> Means:
        """What does not affect results."""
        return Means(
            self.jobs, self.ray, self.timeout_s, self.runtime_env, self.on_progress,
            self.evaluator, self.verifier,
            time.monotonic() if self.began is None else self.began, self.scratch,
        )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Changes:
    """How runs go on: arguments of :func:`autoturbo.tuner.resume`, which says what they mean."""

    load_graph: Callable[[RunInfo], Graph]
    load_target: Callable[[RunInfo], AnyTarget] | None = None
    jobs: int = 1
    ray: str | None = None
    runtime_env: Mapping[str, Any] | None = None
    trials: int | None = None
    time_budget: float | None = None
    on_progress: Callable[[Progress], None] | None = None
    timeout_s: float | None = None
    evaluator: MakeWorkshop | None = None
    verify: bool | None = None
    verifier: Verifier | None = None
    patience: int | None = None
    bound_gap: float | None = None
    storage: str | None = field(default=None, repr=False)
    began: float | None = None
    on_begin: Callable[[RunInfo], None] | None = None

    @property
    def limits(self) -> bool:
        """Whether any limit is another one from now on."""
        return any(getattr(self, name) is not None for name in LIMITED)

    def means(self) -> Means:
        """What does not affect results."""
        return Means(
            self.jobs, self.ray, self.timeout_s, self.runtime_env, self.on_progress,
            self.evaluator, self.verifier,
            time.monotonic() if self.began is None else self.began,
        )  # fmt: skip

    def storage_of(self, info: RunInfo) -> str | None:
        """Return the URL of the storage that mirrors a run, with its password.

        Raises:
            RunError: the run's own had a password, which is not kept, and none is given.
        """
        own: str | None = info.settings.get("storage")
        if self.storage is not None or own is None or not is_masked(own):
            return own if self.storage is None else self.storage
        if given := os.environ.get(STORAGE_VARIABLE):
            return given
        message = f"run {info.id} is mirrored to {own}, whose password is not kept"
        raise RunError(message, hint=f"give the URL with --storage or in {STORAGE_VARIABLE}")


def stored_target(info: RunInfo) -> AnyTarget:
    """The target of a run, or its machine, from the description that is kept with it.

    Raises:
        RunError: there is none.
    """
    from autoturbo.hardware.machine_file import target_from_dict

    description = info.settings.get("target_description")
    if description is None:
        hint = "it was not made by 'tune'"
        raise RunError(f"run {info.id}: its target is not recorded", hint=hint)
    return target_from_dict(description)


def stored_settings(info: RunInfo) -> Settings:
    """What a run was asked for.

    Raises:
        RunError: its record was not made by the tuner.
    """
    defaults = {
        "subgraphs": 0,
        "patience": None,
        "bound_gap": None,
        "round": None,
        "measurer": SIMULATOR,
    }  # of earlier releases
    given = {**defaults, **info.asked}
    try:
        values = {f.name: given[f.name] for f in dataclasses.fields(Settings)}
    except KeyError as error:
        message = f"run {info.id}: its record lacks {error.args[0]!r}"
        raise RunError(message, hint="it was not made by 'tune'") from None
    return Settings(**{**values, "baselines": tuple(values["baselines"])})
