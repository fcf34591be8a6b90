"""Schedule files of this computer: plans, what they took, and for which model."""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final

from autoturbo.errors import Location, ScheduleFileError
from autoturbo.files import read_json
from autoturbo.graph.onnx_import import import_model
from autoturbo.graph.operators import Graph
from autoturbo.graph.source import one_line
from autoturbo.host.compare import CONTROL, HostComparison
from autoturbo.host.cpu import Cpu
from autoturbo.host.divided import DividedModel, with_weights_drawn
from autoturbo.host.runner import Runner, SessionCache
from autoturbo.schedule.host_plan import PLANS, WHOLE, HostPlan, distinct
from autoturbo.schema import Choice, InvalidError, checked, document_type, dotted, json_schema

HOST_FORMAT: Final = "autoturbo-host-schedule"
HOST_SCHEMA: Final = 1


@dataclass(frozen=True, slots=True)
class HostModel:
    """The model that a schedule is of, and how its file is read.

    Attributes:
        name: Name of the model.
        file: Path of the model's file.
        hash: Hash of the model's graph.
        batch: Samples of a batch.
        batch_dim: Dimensions that count samples, where they were given.
        shapes: Extents by input name, where they were given.
        dims: Extents by the name of a dimension, where they were given.
        values: Elements by input name, where they were given.
        agreed: Its inputs agree on the batch.
    """

    name: str
    file: str
    hash: str
    batch: int
    batch_dim: tuple[str, ...] = ()
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    dims: Mapping[str, int] = field(default_factory=dict)
    values: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    agreed: bool = True

    def load(self, path: Path) -> Graph:
        """Return the graph of the model in a file."""
        return import_model(
            path, batch=self.batch, batch_dim=self.batch_dim, shapes=self.shapes, dims=self.dims,
            values=self.values,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class HostSchedule:
    """A schedule of this computer: the plan that is handed out, and what it was compared with.

    Attributes:
        model: The model, and how its file is read.
        cpu: The processor that it was found on.
        runtime: The runtime that ran it, with its version.
        chosen: Name of the plan that is handed out.
        plans: The plans that were compared, by name, each once.
        seconds: Those of each round of the comparison, by name, with the control; without, and the
            figures by which each was found, where there was no time for a comparison.
    """

    model: HostModel
    cpu: Cpu
    runtime: str
    chosen: Annotated[str, Choice(PLANS)]
    plans: Mapping[str, HostPlan]
    seconds: Mapping[str, tuple[float, ...]]

    @property
    def plan(self) -> HostPlan:
        """Return the plan that is handed out."""
        return self.plans[self.chosen]

    @property
    def comparison(self) -> HostComparison:
        """Return the comparison by which it was chosen."""
        known = {*self.plans, CONTROL}
        return HostComparison({n: taken for n, taken in self.seconds.items() if n in known})

    @property
    def text(self) -> str:
        """Return the JSON of its file."""
        head = {"format": HOST_FORMAT, "schema_version": HOST_SCHEMA}
        return json.dumps({**head, **dataclasses.asdict(self)}, indent=1) + "\n"

    @staticmethod
    def read(path: str | Path) -> HostSchedule:
        """Return the schedule in a file.

        Raises:
            ScheduleFileError: It is none, or of another version.
        """
        place = Path(path)
        try:
            form = checked(_document(), read_json(place))
        except InvalidError as error:
            issue = error.issues[0]
            location = Location(place, field=dotted(issue.path))
            raise ScheduleFileError(issue.message, location, issue.hint) from None
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or one_line(error)
            hint = "'autoturbo tune MODEL --target host' writes one"
            raise ScheduleFileError(f"cannot be read: {reason}", Location(place), hint) from None
        named, timed = set(form["plans"]), set(form["seconds"]) - {CONTROL}
        if not {WHOLE, form["chosen"]} <= named <= {*PLANS} or not named <= timed:
            location = Location(place, field="plans")
            message = f"are not {', '.join(PLANS)}, or some of these, with seconds of each"
            raise ScheduleFileError(message, location)
        plans = {name: HostPlan.from_dict(plan) for name, plan in form["plans"].items()}
        return HostSchedule(
            HostModel(**_tuples(form["model"])), Cpu(**form["cpu"]), form["runtime"],
            form["chosen"], distinct(plans), _tuples(form["seconds"]),
        )  # fmt: skip


def _tuples(form: Any) -> Any:
    """Return a form with tuples for lists, at any depth."""
    if isinstance(form, dict):
        return {name: _tuples(value) for name, value in form.items()}
    return tuple(form) if isinstance(form, list) else form


@functools.cache
def _document() -> Any:
    """Return the type of what stands in a file."""
    return document_type(
        HostSchedule,
        format=Annotated[str, Choice((HOST_FORMAT,))],
        schema_version=Annotated[int, Choice((HOST_SCHEMA,))],
    )


def host_schedule_schema() -> dict[str, Any]:
    """Return the JSON schema of schedule files of this computer (draft 2020-12)."""
    return json_schema(_document(), "AutoTurbo schedule of this computer")


def divided_model(
    schedule: HostSchedule,
    place: str | Path,
    model: str | Path | None = None,
    weights_folder: Path | None = None,
) -> DividedModel:
    """Return the model of a schedule, read again.

    Args:
        schedule: The schedule.
        place: Place of the schedule's file, for messages.
        model: The model's file; where the schedule says it is, or beside the schedule, if None.
        weights_folder: Where random weights are written in place of those that are not there; None
            where they have to be.

    Raises:
        ScheduleFileError: It is not there or another model, or plans do not fit it.
        ModelError: The file is not usable.
    """
    recorded = Path(schedule.model.file)
    beside = Path(place).absolute().parent / recorded.name
    file = Path(model) if model is not None else recorded if recorded.exists() else beside
    if not file.is_file():
        message = f"its model is not there: {file}"
        raise ScheduleFileError(message, Location(place, field="model.file"), "name it (--model)")
    graph = schedule.model.load(file)
    path = file if weights_folder is None else with_weights_drawn(file, weights_folder)
    check_fits(schedule, graph, place)
    return DividedModel.of(path, graph)


def check_fits(schedule: HostSchedule, graph: Graph, place: str | Path) -> None:
    """Check that a schedule is of a model.

    Raises:
        ScheduleFileError: It is of another one, or plans do not fit it.
    """
    if graph.hash != schedule.model.hash:
        message = f"is of another model than {graph.source}"
        location = Location(place, field="model.hash")
        raise ScheduleFileError(message, location, "name the model that it was tuned for")
    for name, plan in schedule.plans.items():
        if fault := plan.fault(len(graph.operators), graph.batch):
            raise ScheduleFileError(fault, Location(place, field=f"plans.{name}"))


def load_runner(schedule: str | Path, model: str | Path | None = None) -> Runner:
    """Return a runner of batches of a model by a schedule for this computer.

    Args:
        schedule: The file that ``autoturbo tune MODEL --target host`` has written.
        model: The model's file; where the schedule says it is, or beside the schedule, if None.

    Returns:
        A runner: ``runner.run({"input": array})`` gives the outputs by name. Close it, or use it in
        a ``with`` statement.

    Raises:
        ScheduleFileError: It is no such file, of another version, or of another model.
        ModelError: The model's file is not usable.
        UnrunnableError: ONNX Runtime is not installed, or does not run the model.
    """
    found = HostSchedule.read(schedule)
    divided = divided_model(found, schedule, model)
    return Runner(divided, found.plan, SessionCache(divided))
