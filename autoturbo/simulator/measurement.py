"""Measurements of schedules, their lower bounds and failures."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Annotated, Any, Final, NamedTuple

from annotated_types import Ge, Gt

from autoturbo.errors import MeasurerError
from autoturbo.graph.operators import Uncounted, UncountedJson
from autoturbo.registry import Shown
from autoturbo.schedule.knobs import KNOBS_SCHEMA, SCHEDULER_VERSION
from autoturbo.schema import (
    Bytes,
    Choice,
    Described,
    Duration,
    Natural,
    Positive,
    Seconds,
    TypedDict,
)

SIMULATOR_VERSION = "7"
"""Raised whenever the same schedule would measure differently; part of every record's key."""

VERSION: Final = f"{SCHEDULER_VERSION}.{SIMULATOR_VERSION}.{KNOBS_SCHEMA}"
"""What a record holds for; behind a ``+`` may follow what else measured or made the schedule."""

ROUNDING = 1e-9
"""Share of a bound that rounding may take from a latency: sums of some thousand kernels."""

RESOLUTION: Final = 1e-6
"""Share of a latency below which nothing is told apart: of single precision, and of any clock."""

REASONS: Final = ("LB", "GB", "DDR", "timeout", "raised", "invalid", "worker", "memory", "build")
"""Classes of failures; the first three are the setting's fault, and say demand and capacity."""

_MAPPINGS = ("busy", "overlap", "waits", "bytes", "kernel_times", "kernel_counts", "tensors")


_OPTIONAL = ("samples", "noise", "program")
"""Fields that not every measurement has: what varies, and the program where it is known."""


@dataclass(frozen=True, slots=True)
class LowerBound:
    """The parts of a latency that no schedule of the model on the target can beat.

    Attributes:
        matrix_s: Matrix work of the whole batch at the chip's peak rate.
        vector_s: Vector work at peak.
        ddr_s: Weights, inputs and outputs moved once at full bandwidth.
        uncounted: Work of the model that is in no figure; None where all of it is.
        steps_s: The steps of a recurrence one after another, on the cores that can share one out.
        vector_macs: Multiply-accumulates that the vector engine computes: those of depthwise and
            narrow products, which would leave an array all but empty. They are in ``vector_s``.
        tight_s: All that no schedule can beat on the target as it is described: work with the
            array's padding and filling, what DDR reaches at best, and the head of the first kernel.
            A real machine may; 0 where it is not known.
    """

    matrix_s: Seconds
    vector_s: Seconds
    ddr_s: Seconds
    uncounted: Uncounted | None = None
    steps_s: float = 0.0
    vector_macs: int = 0
    tight_s: float = 0.0

    def as_dict(self) -> dict[str, Any]:
        """Return the fields as JSON values."""
        parts: dict[str, Any] = {f"{name}_s": seconds for name, seconds in self.parts.items()}
        if self.vector_macs:
            parts["vector_macs"] = self.vector_macs
        if self.tight_s:
            parts["tight_s"] = self.tight_s
        return parts if self.uncounted is None else {**parts, "uncounted": self.uncounted.as_dict()}

    @staticmethod
    def from_dict(values: Mapping[str, Any]) -> LowerBound:
        """Return the object that :meth:`as_dict` was called on."""
        given = values.get("uncounted")
        missing = None if given is None else Uncounted.from_dict(given)
        return LowerBound(**{**values, "uncounted": missing})

    @property
    def parts(self) -> dict[str, float]:
        """Return the seconds of each resource; steps only if there is a recurrence."""
        parts = {"matrix": self.matrix_s, "vector": self.vector_s, "ddr": self.ddr_s}
        return {**parts, "steps": self.steps_s} if self.steps_s else parts

    @property
    def seconds(self) -> float:
        """Return the largest of the parts."""
        return max(self.parts.values())

    @property
    def tight(self) -> float | None:
        """Return the tight bound in seconds, which is no less; None where it is not known."""
        return max(self.tight_s, self.seconds) if self.tight_s else None

    def checked(self, latency: float, of: str) -> float:
        """Return a simulated latency, which cannot be below the tight bound.

        Args:
            latency: Seconds of the whole batch.
            of: Name of what was simulated, for the error.

        Raises:
            MeasurerError: It is below; the simulator and the bound count work differently.
        """
        least = self.tight or self.seconds
        if latency < least * (1 - ROUNDING):
            message = f"{of}: {latency!r} s is below the lower bound, {least!r} s"
            raise MeasurerError(message, hint="this is a defect of the simulator; please report it")
        return latency


MeasurementJson = TypedDict("MeasurementJson", {
    "latency_s": Annotated[float, Gt(0.0)],
    "throughput_per_s": Annotated[float, Gt(0.0)] | None, "ddr_bytes": Natural | None,
    "gb_bytes": Natural | None, "matrix_utilization": float, "vector_utilization": float,
    "peak_lb_bytes": Natural | None, "peak_gb_bytes": Natural | None, "kernels": Natural,
    "lower_bound_s": Duration, "bound_fraction": float, "tight_bound_s": Duration | None,
    "energy_j": Annotated[float, Ge(0.0), Described(unit="J")] | None,
    "incomplete": UncountedJson | None,
})  # fmt: skip
"""One schedule measured, as commands print it; null for what its measurer does not tell."""

Counters = TypedDict("Counters", {
    "busy_s": dict[str, Duration], "overlap_s": dict[str, Duration], "waits_s": dict[str, Duration],
    "bytes": dict[str, Natural], "tensors": dict[str, Natural],
})  # fmt: skip
"""Where the time went and what was moved, engine by engine and level by level."""


@dataclass(frozen=True, slots=True)
class Measurement(Shown):
    """One schedule measured. Times in seconds, sizes in bytes, for the whole batch on the chip.

    Clusters that do not work alike differ in what "one cluster" has: see there.

    Attributes:
        latency: Seconds of one evaluation of the whole batch.
        batch: Samples in it; None where the model's inputs do not agree on them.
        ddr_bytes: Moved from and to DDR by all clusters; of this and the next figures of bytes
            :attr:`moved` says which are known.
        gb_bytes: Moved from and to global buffers by all clusters.
        matrix_utilization: Multiply-accumulates over peak times latency.
        vector_utilization: Vector operations over peak times latency.
        peak_lb_bytes: Most bytes of one core's local buffer in use.
        peak_gb_bytes: Most bytes of one cluster's global buffer in use.
        kernels: Kernels launched by one cluster over the whole batch, the most of any.
        bound: The lower bound and its parts.
        busy: Busy seconds of each engine of one cluster (dma_in, transfer, matrix, vector,
            dma_out), copies between kernels included; the mean over clusters.
        overlap: Seconds in which two engines were busy at once, by ``"dma_in+matrix"``, and matrix,
            vector and transfer all three; the mean over clusters.
        waits: Seconds that each engine of one cluster stood idle inside a kernel because what its
            next instruction needs was not there; the mean over clusters.
        bytes: Moved by all clusters, by level and direction: ``"ddr_read"``, ``"ddr_written"``,
            ``"gb_read"``, ``"gb_written"``, ``"core_to_core"``, ``"lb"`` (both directions).
        energy: Joules, where the target gives the figures.
        kernel_times: Seconds of each distinct kernel by signature.
        kernel_counts: How often each is launched by one cluster, by signature; by all of them
            together where they do not work alike.
        tensors: Tensors kept in each scope over one pass.
        subgraph_times: Mean seconds of one launch of each sub-graph's kernels, the copies before
            them included, aligned with the rows of the schedule's plan.
        samples: Seconds of every timed run, of which the latency is the median; empty where there
            was one or nothing varies.
        noise: Relative standard deviation of latencies of the same schedule, as its measurer found
            by measuring one again and again; None where nothing varies.
        program: Digest of what ran (:attr:`autoturbo.schedule.schedule.Schedule.digest`): settings
            with the same one are one schedule; empty where it is not known.
    """

    latency: Annotated[float, Gt(0.0), Described(unit="s")]
    batch: Positive | None
    ddr_bytes: Bytes
    gb_bytes: Bytes
    matrix_utilization: float
    vector_utilization: float
    peak_lb_bytes: Bytes
    peak_gb_bytes: Bytes
    kernels: int
    bound: LowerBound
    busy: Mapping[str, Seconds] = field(default_factory=dict)
    overlap: Mapping[str, Seconds] = field(default_factory=dict)
    waits: Mapping[str, Seconds] = field(default_factory=dict)
    bytes: Mapping[str, Bytes] = field(default_factory=dict)
    energy: Annotated[float, Described(unit="J")] | None = None
    kernel_times: Mapping[str, Seconds] = field(default_factory=dict)
    kernel_counts: Mapping[str, int] = field(default_factory=dict)
    tensors: Mapping[str, int] = field(default_factory=dict)
    subgraph_times: tuple[Seconds, ...] = ()
    samples: tuple[Seconds, ...] = ()
    noise: float | None = None
    program: str = ""

    def __repr__(self) -> str:
        """Return one line with the seconds to the last digit: equal ones are equal."""
        return f"<Measurement: {self.latency!r} s, {self.ddr_bytes} bytes of DDR>"

    @property
    def throughput(self) -> float | None:
        """Return the samples per second; None where nobody knows the samples."""
        return None if self.batch is None else self.batch / self.latency

    @property
    def kernel_seconds(self) -> float:
        """Return the seconds of a kernel in the mean, the latency over a cluster's launches."""
        return self.latency / max(self.kernels, 1)

    @property
    def bound_fraction(self) -> float:
        """Return the lower bound over the latency: 1 is optimal."""
        return self.bound.seconds / self.latency

    @property
    def tight_fraction(self) -> float | None:
        """Return the tight bound over the latency; None where it is not known."""
        return None if self.bound.tight is None else self.bound.tight / self.latency

    @property
    def moved(self) -> dict[str, int | None]:
        """Return the figures of bytes by name; None for those that its measurer does not tell.

        A board tells no bytes, or those of DDR; only who counts all of them by level knows that
        there are none in a buffer.
        """
        names = ("ddr_bytes", "gb_bytes", "peak_lb_bytes", "peak_gb_bytes")
        known: dict[str, int] = {name: getattr(self, name) for name in names}
        return {name: count if count or self.bytes else None for name, count in known.items()}

    def agrees(self, other: Measurement) -> bool:
        """Return whether another measurement gives the same latency, as far as that is told."""
        return abs(self.latency - other.latency) <= RESOLUTION * self.latency

    def is_valid(self) -> bool:
        """Return whether the latency is finite and positive, unlike a broken measurer's."""
        return math.isfinite(self.latency) and self.latency > 0

    def as_json(self) -> MeasurementJson:
        """Return the object M of the command line's ``--json`` (product.md)."""
        moved = self.moved
        return {
            "latency_s": self.latency,
            "throughput_per_s": self.throughput,
            "ddr_bytes": moved["ddr_bytes"],
            "gb_bytes": moved["gb_bytes"],
            "matrix_utilization": self.matrix_utilization,
            "vector_utilization": self.vector_utilization,
            "peak_lb_bytes": moved["peak_lb_bytes"],
            "peak_gb_bytes": moved["peak_gb_bytes"],
            "kernels": self.kernels,
            "lower_bound_s": self.bound.seconds,
            "bound_fraction": self.bound_fraction,
            "tight_bound_s": self.bound.tight,
            "energy_j": self.energy,
            "incomplete": None if self.bound.uncounted is None else self.bound.uncounted.as_dict(),
        }

    def counters(self) -> Counters:
        """Return the times, waits, bytes and tensors."""
        return {
            "busy_s": dict(self.busy),
            "overlap_s": dict(self.overlap),
            "waits_s": dict(self.waits),
            "bytes": dict(self.bytes),
            "tensors": dict(self.tensors),
        }

    def as_dict(self) -> dict[str, Any]:
        """Return all fields as JSON values, for the database; :meth:`from_dict` reads it back."""
        values: dict[str, Any] = {f.name: getattr(self, f.name) for f in fields(self)}
        values["bound"] = self.bound.as_dict()
        values["subgraph_times"] = list(self.subgraph_times)
        values["samples"] = list(self.samples)
        for name in _MAPPINGS:
            values[name] = dict(values[name])
        return {n: v for n, v in values.items() if n not in _OPTIONAL or v not in ([], None, "")}

    @staticmethod
    def from_dict(values: Mapping[str, Any]) -> Measurement:
        """Return the object that :meth:`as_dict` was called on."""
        lists = {name: tuple(values.get(name, ())) for name in ("subgraph_times", "samples")}
        bound = LowerBound.from_dict(values["bound"])
        return Measurement(**{**values, "bound": bound, **lists})


FailureJson = TypedDict("FailureJson", {
    "reason": Annotated[str, Choice(REASONS)], "message": str, "demand": Natural | None,
    "capacity": Natural | None, "tensors": list[str], "levers": list[str],
})  # fmt: skip
"""Why a setting could not be measured."""

FailedJson = TypedDict("FailedJson", {"failure": FailureJson})
"""A setting that could not be measured."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A measurement that could not be had, as a value.

    Attributes:
        reason: Class of the failure: ``"LB"``, ``"GB"``, ``"DDR"`` (a buffer that overflows),
            ``"timeout"``, ``"raised"``, ``"invalid"``, ``"worker"``, ``"memory"``, ``"build"``
            (what a measurer runs could not be made of the schedule).
        message: One line for people.
        demand: Bytes asked for, where it is about memory.
        capacity: Bytes that the memory has.
        tensors: Names of the tensors that contribute most.
        levers: Changes that would make it fit.
    """

    reason: str
    message: str
    demand: Bytes | None = None
    capacity: Bytes | None = None
    tensors: tuple[str, ...] = ()
    levers: tuple[str, ...] = ()

    @property
    def infeasible(self) -> bool:
        """Return whether the knobs are at fault, not the measurer."""
        return self.reason in REASONS[:3]

    @property
    def may_pass(self) -> bool:
        """Return whether measuring once more may succeed: the measurer is at fault."""
        return not self.infeasible and self.reason != "timeout"

    def as_dict(self) -> FailureJson:
        """Return all fields as JSON values."""
        return {
            "reason": self.reason, "message": self.message, "demand": self.demand,
            "capacity": self.capacity, "tensors": list(self.tensors), "levers": list(self.levers),
        }  # fmt: skip

    @staticmethod
    def from_dict(values: Mapping[str, Any]) -> Failure:
        """Return the object that :meth:`as_dict` was called on."""
        lists = {name: tuple(values.get(name, ())) for name in ("tensors", "levers")}
        return Failure(**{**values, **lists})


Outcome = Measurement | Failure
"""What measuring a setting yields."""


def seconds_of(outcome: object) -> float:
    """Return the latency of an outcome; infinite for a failure, and where there is no outcome."""
    return getattr(outcome, "latency", math.inf)


class RangeJson(TypedDict):
    """Between which seconds a latency lies, by fields of the target that no source settles."""

    low_s: Duration
    high_s: Duration
    fields: list[str]


class LatencyRange(NamedTuple):
    """Between which seconds a schedule's latency lies, by what is not published.

    Attributes:
        low: The least seconds found.
        high: The most.
        fields: The paths of the fields that the latency depends on.
    """

    low: float
    high: float
    fields: tuple[str, ...]

    def as_json(self) -> RangeJson:
        """Return the range as a line of JSON has it."""
        return {"low_s": self.low, "high_s": self.high, "fields": list(self.fields)}
