"""Findings of the checks of a schedule, and names of instances, layers and buffers in them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Final, NotRequired

from autoturbo.schema import Choice, Natural, TypedDict

if TYPE_CHECKING:
    from autoturbo.graph.domain import Region
    from autoturbo.schedule.memory.timeline import Timeline
    from autoturbo.schedule.schedule import Schedule


_WORDS: Final = ("ok", "failed", "skipped")
"""What is said of a check."""


class Check(StrEnum):
    """The checks of a schedule."""

    REGIONS = "regions"
    MEMORY = "memory"
    NUMBERS = "numbers"


CheckName = Annotated[str, Choice(tuple(check.value for check in Check))]
"""The name of a check, as commands print it."""


FindingJson = TypedDict("FindingJson", {
    "check": CheckName, "kind": str, "message": str, "instance": str | None, "layer": str | None,
})  # fmt: skip
"""One thing that is wrong with a schedule."""

VerificationJson = TypedDict("VerificationJson", {
    "regions": Annotated[str, Choice(_WORDS[:2])],
    "memory": Annotated[str, Choice(_WORDS[:2])], "numbers": Annotated[str, Choice(_WORDS)],
    "max_abs_error": float | None, "failures": list[FindingJson],
})  # fmt: skip
"""Whether a schedule passed each check, and what they found."""

OutputJson = TypedDict("OutputJson", {"output": str, "difference": float, "tolerance": float})
"""How far an output of the schedule is from the model's."""

RanJson = TypedDict("RanJson", {
    "skipped": str | None, "batch": NotRequired[Natural], "whole": NotRequired[bool],
    "seed": NotRequired[Natural], "remarks": NotRequired[list[str]],
    "outputs": NotRequired[list[OutputJson]],
})  # fmt: skip
"""What was run, or why nothing was."""


class VerifyLine(VerificationJson):
    """Whether a schedule computes its model, and what was found."""

    model: str
    target: str
    scheduler: str
    checked: dict[str, Natural]
    ran: RanJson
    notes: NotRequired[list[str]]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong with a schedule.

    Attributes:
        check: The check that found it.
        kind: What it is in one or two words (``"gap"``, ``"freed buffer"``, ``"race"``): the same
            defect always has the same kind.
        message: One line for people; names the instance, the layer, the tensor or the buffer.
        instance: The instance concerned, as :func:`instance_name` says it, or None.
        layer: The layer concerned, or None.
    """

    check: Check
    kind: str
    message: str
    instance: str | None = None
    layer: str | None = None

    def as_json(self) -> FindingJson:
        """Return the object that ``verify --json`` lists under ``failures``."""
        return {
            "check": self.check.value, "kind": self.kind, "message": self.message,
            "instance": self.instance, "layer": self.layer,
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Numbers:
    """Result of running the original and the scheduled model side by side.

    Attributes:
        batch: Samples that were run.
        whole: All samples of the model were run; otherwise one pass with the same decisions.
        seed: Seed of the random inputs and weights.
        max_abs_error: Largest absolute difference of any output.
        outputs: Per output, its largest absolute difference and the tolerance that it was held to.
        findings: Outputs, instances and layers that differ; empty where all agree.
        skipped: Why nothing was run, or None.
        remarks: Outputs that prove little, one line each: constant ones, ones that are not finite.
    """

    batch: int
    whole: bool
    seed: int
    max_abs_error: float | None
    outputs: tuple[tuple[str, float, float], ...] = ()
    findings: tuple[Finding, ...] = ()
    skipped: str | None = None
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, repr=False)
class Verification:
    """All checks of one schedule.

    Attributes:
        regions: Findings of the region check.
        memory: Findings of the memory check.
        numbers: Result of running it, or None where that was not asked for.
    """

    regions: tuple[Finding, ...]
    memory: tuple[Finding, ...]
    numbers: Numbers | None = None

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Return all findings."""
        return self.regions + self.memory + (self.numbers.findings if self.numbers else ())

    @property
    def ok(self) -> bool:
        """Return whether there are no findings."""
        return not self.findings

    def __repr__(self) -> str:
        """Return one line: what was found is in :attr:`findings`."""
        found = self.as_json()
        checks = ", ".join(f"{check.value} {found[check.value]}" for check in Check)
        return f"<Verification: {checks}>"

    def as_json(self) -> VerificationJson:
        """Return the JSON object that ``verify --json`` prints."""
        numbers = self.numbers
        ran = numbers is not None and numbers.skipped is None
        largest = numbers.max_abs_error if numbers else None
        return {
            "regions": _word(self.regions), "memory": _word(self.memory),
            "numbers": _word(numbers.findings) if numbers and ran else "skipped",
            # JSON has no infinity; what is not there, or not finite, is among the failures
            "max_abs_error": largest if largest is not None and math.isfinite(largest) else None,
            "failures": [finding.as_json() for finding in self.findings],
        }  # fmt: skip


def _word(findings: tuple[Finding, ...]) -> str:
    return "failed" if findings else "ok"


def instance_name(schedule: Schedule, index: int) -> str:
    """Return an instance's name: the last layer of its sub-graph, its part and the number of parts.

    ``"layer4.0.conv1[2/8]"`` is the second of eight; a sub-graph that is not split has its name
    only.
    """
    instances = schedule.instances
    if not 0 <= index < instances.count:
        return f"instance {index}"
    subgraph = int(instances.subgraph[index])
    name = schedule.context.layers[instances.subgraphs[subgraph].layers[-1]].name
    count = instances.parts[subgraph].count
    part = index - int(instances.first[subgraph]) + 1
    return name if count == 1 else f"{name}[{part}/{count}]"


def tensor_name(schedule: Schedule, tensor: int) -> str:
    """Return a tensor's name in the model file."""
    return schedule.context.graph.tensors[tensor].name


def layer_name(schedule: Schedule, layer: int) -> str:
    """Return the name of a layer's anchor in the model file."""
    return schedule.context.layers[layer].name


def buffer_name(schedule: Schedule, timeline: Timeline, buffer: int) -> str:
    """Return a text on a buffer: its number, its content and its instance."""
    from autoturbo.schedule.memory.timeline import KINDS

    kind, tensor = KINDS[timeline.kind[buffer]], int(timeline.tensor[buffer])
    what = tensor_name(schedule, tensor) if tensor >= 0 else kind
    moved = "" if kind in ("tensor", what) else f"{kind} "
    owner = instance_name(schedule, int(timeline.owner[buffer]))
    return f"buffer {buffer} ({moved}{what} of {owner})"


def buffer_finding(
    schedule: Schedule, timeline: Timeline, kind: str, buffer: int, message: str
) -> Finding:
    """Return a finding of the memory check about a buffer, whose name begins the message.

    Args:
        schedule: The schedule.
        timeline: The timeline of the buffer's cluster.
        kind: Kind of the finding.
        buffer: The buffer's number in the timeline.
        message: Fault of the buffer, as text to follow its name.
    """
    name = buffer_name(schedule, timeline, buffer)
    owner = int(timeline.owner[buffer])
    return Finding(Check.MEMORY, kind, f"{name} {message}", instance_name(schedule, owner))


def region_text(region: Region) -> str:
    """Return a region as ``[first:end, ...]``, an interval for each dimension."""
    return f"[{', '.join(f'{low}:{high}' for low, high in region)}]"
