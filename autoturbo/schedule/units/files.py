"""Schedule files of machines: the one canonical text, and reading it back.

A file holds decisions: which layers make which part, and which unit runs it; how a part is
scheduled on its unit follows from them. When everything runs is there to be read by others, and is
checked where it is given.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autoturbo.errors import KnobsError, Location, ScheduleFileError
from autoturbo.graph.layers import Layer, layers_of
from autoturbo.graph.operators import Graph
from autoturbo.hardware.machine import Machine
from autoturbo.schedule.documents import (
    MACHINE_FORMAT,
    MACHINE_SCHEDULE_SCHEMA,
    MachineScheduleDocument,
)
from autoturbo.schedule.files import (
    check_identity,
    document_text,
    parsed,
    read_text,
    validated,
    wrong_knobs,
)
from autoturbo.schedule.knobs import Knobs
from autoturbo.schedule.schedule import SCHEDULER_VERSION
from autoturbo.schedule.unit_knobs import IN_TURN, SIDE_BY_SIDE
from autoturbo.schedule.units.machine_schedule import MachineSchedule, Run
from autoturbo.schedule.units.parts import Assignment, Part, layer_producers
from autoturbo.schedule.units.support import units_of
from autoturbo.schema import json_schema


@dataclass(frozen=True, slots=True)
class Decided:
    """What a file says.

    Attributes:
        scheduler: what made it.
        dtype: the compute type.
        knobs: the setting.
        assignment: of the layers.
        runs: when everything runs; None where the file does not say.
        expected: what a measurement of it gave, or None.
    """

    scheduler: str
    dtype: str
    knobs: Knobs
    assignment: Assignment
    runs: tuple[Run, ...] | None
    expected: Mapping[str, Any] | None


def machine_schedule_text(schedule: MachineSchedule) -> str:
    """The canonical text: one top-level field a line, one element of a list a line."""
    model, machine = schedule.model, schedule.machine
    names = [unit.name for unit in machine.units]
    assignment = schedule.assignment
    return document_text(
        {
            "format": MACHINE_FORMAT,
            "schema_version": MACHINE_SCHEDULE_SCHEMA,
            "scheduler_version": SCHEDULER_VERSION,
            "scheduler": schedule.scheduler,
            "model": {"name": model.name, "hash": model.hash, "batch": model.batch},
            "target": {"name": machine.name, "hash": machine.hash},
            "dtype": schedule.dtype,
            "knobs": schedule.knobs.as_dict(),
            "layers": [{"name": x.name, "operators": list(x.operators)} for x in schedule.layers],
            "branches": IN_TURN if assignment.in_turn else SIDE_BY_SIDE,
            "parts": [{"unit": names[p.unit], "layers": list(p.layers)} for p in assignment.parts],
            "runs": [_run_entry(run, names) for run in schedule.runs],
            "expected": None if schedule.expected is None else dict(schedule.expected),
        }
    )


def _run_entry(run: Run, names: Sequence[str]) -> dict[str, Any]:
    """A part on its unit, or the copy of what it made to another one."""
    copied = {"copied_bytes": run.copied} if run.copied else {}
    times = {"begin_s": run.begin, "end_s": run.end}
    return {"part": run.part, "unit": names[run.unit], **copied, **times}


def machine_schedule_schema() -> dict[str, Any]:
    """Return the JSON schema of schedule files of machines (draft 2020-12)."""
    title = "AutoTurbo schedule of a machine of several processing units"
    return json_schema(MachineScheduleDocument, title)


def read_machine_schedule(path: str | Path, graph: Graph, machine: Machine) -> Decided:
    """Read a schedule file for a model and a machine.

    Raises:
        ScheduleFileError: the file cannot be read, is of another version, was made for something
            else, or describes no valid schedule.
    """
    return decided(read_text(Path(path)), graph, machine, path)


def decided(text: str, graph: Graph, machine: Machine, place: str | Path) -> Decided:
    """What the text of a schedule file says.

    Args:
        text: as :func:`machine_schedule_text` writes it.
        graph: the model.
        machine: what it runs on.
        place: where the text is from, for errors.

    Raises:
        ScheduleFileError: the text is of another version, was made for something else, or describes
            no valid schedule.
    """
    path = Path(place)
    document = validated(
        parsed(text, path), path, MachineScheduleDocument, MACHINE_FORMAT, MACHINE_SCHEDULE_SCHEMA
    )
    check_identity(document, graph, machine, path)
    try:
        knobs = Knobs.from_dict(document["knobs"])
    except KnobsError as error:
        raise wrong_knobs(error, path) from None
    reader = _Reader(graph, machine, path)
    parts = reader.parts(document)
    in_turn = document.get("branches") == IN_TURN
    return Decided(
        document["scheduler"], document["dtype"], knobs, Assignment(parts, in_turn),
        reader.runs(document), document.get("expected"),
    )  # fmt: skip


class _Reader:
    """Checks what a file says of a model on a machine."""

    def __init__(self, graph: Graph, machine: Machine, path: Path) -> None:
        self.graph, self.path = graph, path
        self.layers: tuple[Layer, ...] = layers_of(graph)
        self.may = units_of(machine, graph, self.layers)
        self.names = {unit.name: index for index, unit in enumerate(machine.units)}

    def wrong(self, field: str, reason: str, hint: str | None = None) -> ScheduleFileError:
        """An error at a field."""
        return ScheduleFileError(reason, Location(self.path, field=field), hint)

    def unit(self, name: str, field: str) -> int:
        """The index of a unit."""
        if name not in self.names:
            raise self.wrong(
                field, f"no unit is called {name!r}", f"one of {', '.join(self.names)}"
            )
        return self.names[name]

    def parts(self, document: Mapping[str, Any]) -> tuple[Part, ...]:
        """Parts that hold every layer once, each after those that it reads from."""
        if [x["operators"] for x in document["layers"]] != [list(x.operators) for x in self.layers]:
            raise self.wrong("layers", "layers are cut in another way than this release cuts them")
        found = tuple(
            Part(self.unit(entry["unit"], f"parts[{i}].unit"), tuple(entry["layers"]))
            for i, entry in enumerate(document["parts"])
        )
        held = sorted(layer for part in found for layer in part.layers)
        if held != list(range(len(self.layers))):
            raise self.wrong("parts", "every layer must be in exactly one part")
        owner = {layer: index for index, part in enumerate(found) for layer in part.layers}
        reads = layer_producers(self.graph, self.layers)
        for index, part in enumerate(found):
            self._check(index, part, {owner[r] for layer in part.layers for r in reads[layer]})
        return found

    def _check(self, index: int, part: Part, read: set[int]) -> None:
        field = f"parts[{index}]"
        if not part.layers or list(part.layers) != sorted(part.layers):
            raise self.wrong(f"{field}.layers", "a part has layers, in ascending order")
        if max(read, default=0) > index:
            raise self.wrong(field, f"reads from part {max(read)}, which comes later")
        for layer in part.layers:
            if part.unit not in self.may[layer]:
                name = list(self.names)[part.unit]
                reason = f"unit {name} does not take layer {self.layers[layer].name}"
                raise self.wrong(f"{field}.unit", reason)

    def runs(self, document: Mapping[str, Any]) -> tuple[Run, ...] | None:
        """When everything runs, where the file says so."""
        if "runs" not in document:
            return None
        return tuple(
            Run(
                run["part"], self.unit(run["unit"], f"runs[{i}].unit"), run.get("copied_bytes", 0),
                run["begin_s"], run["end_s"],
            )
            for i, run in enumerate(document["runs"])
        )  # fmt: skip
