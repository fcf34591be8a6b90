"""Schedule files of machines: the canonical text, and reading it back.

A file holds decisions: which layers make which part, and which unit runs it; how a part is
scheduled on its unit follows from them. When everything runs is there to be read by others, and is
checked where it is given.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NotRequired

from typing_extensions import TypedDict

from autoturbo.graph.layers import Layer, layers_of
from autoturbo.graph.operators import Graph
from autoturbo.hardware.machine import Machine
from autoturbo.heterogeneous.machine_schedule import MACHINE_SCHEDULE_SCHEMA, Run
from autoturbo.heterogeneous.parts import Assignment, Part, layer_producers, units_of
from autoturbo.schedule.files import (
    LayerEntry,
    MadeFor,
    located,
    read_document,
    require,
)
from autoturbo.schedule.knobs import Knobs
from autoturbo.schedule.schedule import MACHINE_FORMAT
from autoturbo.schedule.unit_knobs import BRANCHES, IN_TURN
from autoturbo.schema import Bytes, Choice, Duration, Index, json_schema


class PartEntry(TypedDict):
    """Layers that a unit runs together."""

    unit: str
    layers: list[Index]


class RunEntry(TypedDict):
    """When a part runs on its unit, or is copied to another."""

    part: Index
    unit: str
    begin_s: Duration
    end_s: Duration
    copied_bytes: NotRequired[Bytes]


class MachineScheduleDocument(TypedDict):
    """A schedule file of a machine of several processing units."""

    format: Annotated[str, Choice((MACHINE_FORMAT,))]
    schema_version: Annotated[int, Choice((MACHINE_SCHEDULE_SCHEMA,))]
    scheduler_version: str
    scheduler: str
    model: MadeFor
    target: MadeFor
    dtype: str
    knobs: dict[str, Any]
    layers: list[LayerEntry]
    parts: list[PartEntry]
    branches: NotRequired[Annotated[str, Choice(BRANCHES)]]
    runs: NotRequired[list[RunEntry]]
    expected: NotRequired[dict[str, Any] | None]


@dataclass(frozen=True, slots=True)
class Decided:
    """The decisions in a file.

    Attributes:
        scheduler: Name of the scheduler that made the schedule.
        dtype: The compute type.
        knobs: The candidate.
        assignment: Parts of the model, each with the unit that runs it.
        runs: Times at which everything runs; None where the file does not say.
        expected: Result of a measurement of it, or None.
    """

    scheduler: str
    dtype: str
    knobs: Knobs
    assignment: Assignment
    runs: tuple[Run, ...] | None
    expected: Mapping[str, Any] | None


def machine_schedule_schema() -> dict[str, Any]:
    """Return the JSON schema of schedule files of machines (draft 2020-12)."""
    title = "AutoTurbo schedule of a machine of several processing units"
    return json_schema(MachineScheduleDocument, title)


def decided(text: str, graph: Graph, machine: Machine, place: str | Path) -> Decided:
    """Return the decisions in the text of a schedule file.

    Args:
        text: The text of the file, as :func:`machine_schedule_text` writes it.
        graph: The model.
        machine: The machine that it runs on.
        place: Name of what the text is from, for errors.

    Raises:
        ScheduleFileError: The text is of another version, was made for something else, or describes
            no valid schedule.
    """
    with located(Path(place)):
        document = read_document(
            text, MachineScheduleDocument, MACHINE_FORMAT, MACHINE_SCHEDULE_SCHEMA, graph, machine
        )
        reader, in_turn = _Reader(graph, machine), document.get("branches") == IN_TURN
        return Decided(
            document["scheduler"], document["dtype"], Knobs.from_dict(document["knobs"]),
            Assignment(reader.parts(document), in_turn), reader.runs(document),
            document.get("expected"),
        )  # fmt: skip


class _Reader:
    """A reader that checks a file against a model and a machine."""

    def __init__(self, graph: Graph, machine: Machine) -> None:
        self.graph = graph
        self.layers: tuple[Layer, ...] = layers_of(graph)
        self.may = units_of(machine, graph, self.layers)
        self.names = {unit.name: index for index, unit in enumerate(machine.units)}

    def unit(self, name: str, field: str) -> int:
        """Return the index of a unit."""
        known = f"one of {', '.join(self.names)}"
        require(name in self.names, field, f"no unit is called {name!r}", known)
        return self.names[name]

    def parts(self, document: Mapping[str, Any]) -> tuple[Part, ...]:
        """Return parts that hold every layer once, each after those that it reads from."""
        alike = [x["operators"] for x in document["layers"]] == [
            list(x.operators) for x in self.layers
        ]
        require(alike, "layers", "layers are cut in another way than this release cuts them")
        parts = tuple(
            Part(self.unit(entry["unit"], f"parts[{i}].unit"), tuple(entry["layers"]))
            for i, entry in enumerate(document["parts"])
        )
        held = sorted(layer for part in parts for layer in part.layers)
        all_once = held == list(range(len(self.layers)))
        require(all_once, "parts", "every layer must be in exactly one part")
        owner = {layer: index for index, part in enumerate(parts) for layer in part.layers}
        reads = layer_producers(self.graph, self.layers)
        for index, part in enumerate(parts):
            self._check(index, part, {owner[r] for layer in part.layers for r in reads[layer]})
        return parts

    def _check(self, index: int, part: Part, read: set[int]) -> None:
        field, latest = f"parts[{index}]", max(read, default=0)
        ascending = bool(part.layers) and list(part.layers) == sorted(part.layers)
        require(ascending, f"{field}.layers", "a part has layers, in ascending order")
        require(latest <= index, field, f"reads from part {latest}, which comes later")
        for layer in part.layers:
            name = list(self.names)[part.unit]
            reason = f"unit {name} does not take layer {self.layers[layer].name}"
            require(part.unit in self.may[layer], f"{field}.unit", reason)

    def runs(self, document: Mapping[str, Any]) -> tuple[Run, ...] | None:
        """Return the times of all runs, where the file has them."""
        if "runs" not in document:
            return None
        return tuple(
            Run(
                run["part"], self.unit(run["unit"], f"runs[{i}].unit"), run.get("copied_bytes", 0),
                run["begin_s"], run["end_s"],
            )
            for i, run in enumerate(document["runs"])
        )  # fmt: skip
