"""What a network runs on: the accelerator as frozen values, all in SI units.

The abstraction is that of GraphTurbo (OSDI '23, section 1 and figure 1)::

    host -- DDR -- DMA -- clusters x { GB -- interconnect -- cores x { LB, engines } }

Bytes, seconds, hertz and bytes per second throughout; a target *file* carries the units in its
field names instead (``bandwidth_gb_s``), see :mod:`autoturbo.hardware.fields`. Rates are peaks
unless a field says otherwise.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any

from autoturbo.errors import TargetError
from autoturbo.hardware.fields import (
    DTYPES,
    As,
    Figure,
    Section,
    bandwidth,
    capacity,
    latency,
    number,
    rates,
    size,
    whole,
)
from autoturbo.schema import Choice, Flag, Text

if TYPE_CHECKING:
    from autoturbo.report.notebook import Printer

_BLOCK_BYTES = {"bfloat8": 1088 / 1024, "bfloat4": 576 / 1024}
"""Bytes an element of block floats: a tile of 32 x 32 is 1024 or 512 bytes of signs and mantissas
and 64 bytes of exponents (Tenstorrent, tt-metal tech report on data formats)."""

DATAFLOWS = (
    "output_stationary",
    "weight_stationary",
    "input_stationary",
    "ideal",
    "channel_stationary",
)
"""What stays in a matrix engine's array while the other operands stream through it."""

_PREFERRED = ("float16", "bfloat16", "int8", "float32", "bfloat8", "bfloat4")
"""Order in which a default data type is looked for: the cheapest that needs no quantisation."""


def storage_ratio(dtype: str) -> float:
    """Bytes in memory for each byte that a graph counts: elements of block floats count as one."""
    return _BLOCK_BYTES.get(dtype, 1.0)


PerDtype = tuple[tuple[str, float], ...]
"""One figure per data type, in the order of :data:`DTYPES`."""


def _startup(about: str, example: int) -> Figure:
    return whole(about, example, low=0, high=1_000_000)


def _flag(about: str, *, default: bool | None = None, example: bool | None = None) -> As:
    shown = default if example is None else example
    return As(about=about, example=shown, default=default, rule=Flag())


def _energy(about: str, example: float, **more: Any) -> Figure:
    return number(about, example, high=1e6, suffix="pj_per_byte", **more)


@dataclass(frozen=True, slots=True)
class MatrixEngine:
    """The matrix engine of one core.

    Attributes:
        rows: native tile along M (or N of a transposed product), in elements.
        columns: native tile along N, in elements.
        dataflow: one of :data:`DATAFLOWS`; "ideal" loses nothing to filling the array,
            "channel_stationary" holds weights of one kernel position, channels over the rows (no
            im2col: few channels leave rows idle).
        depth: elements of the reduction consumed per cycle at each (row, column) point: 1 for a
            plain array, 16 for a 16 x 16 x 16 cube.
        rate: multiplier per data type on ``rows * columns * depth`` multiply-accumulates per
            cycle; a data type that is not listed is not supported.
        startup_cycles: pipeline fill and issue overhead of one tile, in cycles.
        folds_overlap: whether operands are double-buffered in the array, so that a fold streams in
            while the one before it drains; otherwise every fold pays for filling and draining.
        swap_operands: whether a product may run transposed, N along the rows, where that is
            shorter; otherwise the operands keep their sides.
        rereads_operands: whether every rows x columns block of a result reads its operands from LB
            anew; otherwise registers between LB and the array hold what a tile reads again.
    """

    rows: Annotated[int, whole("native tile along M", 32)]
    columns: Annotated[int, whole("native tile along N", 32)]
    dataflow: Annotated[
        str,
        As(
            about=f"what stays in the array: one of {', '.join(DATAFLOWS)}",
            example="output_stationary",
            default="output_stationary",
            rule=Choice(of=DATAFLOWS, kind="dataflow"),
        ),
    ]
    depth: Annotated[
        int,
        whole(
            "elements of the reduction per cycle at each point: 1 for a plain array", 1, default=1
        ),
    ]
    rate: Annotated[
        PerDtype,
        rates(
            "times rows x columns x depth MAC per cycle; a data type not listed cannot run",
            {"float16": 1.0, "int8": 2.0},
            1 / 1024,
            1024,
        ),
    ]
    startup_cycles: Annotated[int, _startup("pipeline fill and issue of one tile, in cycles", 32)]
    folds_overlap: Annotated[
        bool, _flag("a fold streams into the array while the one before it drains", default=True)
    ] = True
    swap_operands: Annotated[
        bool, _flag("a product may run transposed where that is shorter", default=True)
    ] = True
    rereads_operands: Annotated[
        bool,
        _flag(
            "every rows x columns block of a result reads its operands from LB anew", default=False
        ),
    ] = False

    def macs_per_cycle(self, dtype: str) -> float:
        """Multiply-accumulates per cycle at peak; 0 for a data type without a path."""
        return self.rows * self.columns * self.depth * dict(self.rate).get(dtype, 0.0)


@dataclass(frozen=True, slots=True)
class VectorEngine:
    """The vector engine of one core."""

    lanes: Annotated[
        PerDtype,
        rates(
            "elements per cycle of add, multiply and the like, per data type",
            {"float16": 32, "int8": 64},
            1e-3,
            1e6,
        ),
    ]
    special_lanes: Annotated[
        float, number("elements per cycle of exp, div, sqrt, erf, tanh", 8, 1e-3, 1e6)
    ]
    startup_cycles: Annotated[int, _startup("issue of one vector operation, in cycles", 8)]

    def elements_per_cycle(self, dtype: str) -> float:
        """Elements per cycle of a simple operation; 0 for a data type without lanes."""
        return dict(self.lanes).get(dtype, 0.0)


@dataclass(frozen=True, slots=True)
class TransferEngine:
    """The memory transfer engine of one core: LB to and from GB or a remote LB."""

    bandwidth: Annotated[float, bandwidth("each direction", 64)]
    latency: Annotated[float, latency("issue to first byte", 100)]
    broadcast: Annotated[bool, _flag("one read of GB can feed all cores", example=True)]


@dataclass(frozen=True, slots=True)
class DmaEngine:
    """The DMA engine of one cluster: DDR to and from GB or LB."""

    channels: Annotated[int, whole("transfers at once", 2)]
    bandwidth: Annotated[float, bandwidth("of each channel", 32)]
    latency: Annotated[float, latency("start of one transfer", 500)]


@dataclass(frozen=True, slots=True)
class LocalBuffer:
    """The scratchpad of one core."""

    capacity: Annotated[int, capacity("activations, per core", 512)]
    weight_capacity: Annotated[int, capacity("weights, per core", 128)]
    bandwidth: Annotated[float, bandwidth("per core", 256)]


@dataclass(frozen=True, slots=True)
class GlobalBuffer:
    """The scratchpad that the cores of a cluster share."""

    capacity: Annotated[int, capacity("per cluster", 4096)]
    bandwidth: Annotated[float, bandwidth("per cluster", 128)]
    latency: Annotated[float, latency("to the first byte", 100)]


NO_GLOBAL_BUFFER = GlobalBuffer(capacity=0, bandwidth=0.0, latency=0.0)
"""What a target without one has."""


@dataclass(frozen=True, slots=True)
class OffChip:
    """Off-chip memory (DDR, whatever its technology).

    Attributes:
        capacity: bytes per cluster.
        bandwidth: peak bytes per second of the whole chip, shared by its clusters.
        latency: seconds to the first byte.
        efficiency: fraction of the bandwidth that long transfers reach, in (0, 1]; what short runs
            cost on top is :class:`DramTiming`'s.
    """

    capacity: Annotated[int, number("per cluster, in GiB", 4, 1e-3, 1e6, suffix="gib")]
    bandwidth: Annotated[float, bandwidth("peak of the whole chip, shared by its clusters", 64)]
    latency: Annotated[float, latency("to the first byte", 200)]
    efficiency: Annotated[
        float, number("fraction of the peak that long transfers reach", 0.85, 1e-3, 1.0)
    ]


@dataclass(frozen=True, slots=True)
class DramTiming:
    """What runs of consecutive addresses cost the off-chip memory (JEDEC's names in brackets)."""

    channels: Annotated[int, whole("channels side by side", 2)]
    burst: Annotated[int, size("one access of a channel", 32)]
    page: Annotated[int, size("an open row of one channel", 2048)]
    interleave: Annotated[int, size("consecutive bytes in one channel", 256)]
    banks: Annotated[int, whole("banks of a channel, in all ranks", 8)]
    row_cycle: Annotated[float, latency("two openings of one bank's rows, tRC", 60, 1e6)]
    four_activates: Annotated[
        float, latency("in which a channel opens four rows, tFAW over its ranks", 40, 1e6)
    ]
    groups: Annotated[int, whole("bank groups; 1 where there are none", 1)]
    group_gap: Annotated[
        float,
        number("bursts of one bank group over those of several, tCCD_L / tCCD_S", 1.0, 1.0, 16.0),
    ]
    group_interleave: Annotated[
        bool, _flag("neighbouring bursts lie in different bank groups", example=False)
    ]
    turnaround: Annotated[float, latency("idle bus from reading to writing and back", 28, 1e6)]
    write_batch: Annotated[int, size("written by a channel between two turns", 1024)]
    queue: Annotated[int, size("requests that a channel's controller looks ahead", 1024)]


@dataclass(frozen=True, slots=True)
class Overheads:
    """Fixed costs of a kernel."""

    kernel_launch: Annotated[float, number("start of a kernel on a cluster", 3.0, suffix="us")]
    barrier: Annotated[
        float, number("meeting of a cluster's cores at a kernel's end", 0.5, suffix="us")
    ]

    @property
    def per_kernel(self) -> float:
        """Seconds that every kernel takes besides its work."""
        return self.kernel_launch + self.barrier


@dataclass(frozen=True, slots=True)
class Energy:
    """What work costs."""

    mac: Annotated[
        PerDtype,
        rates(
            "picojoules per multiply-accumulate, per data type",
            {"float16": 0.8, "int8": 0.3},
            0.0,
            1e6,
            suffix="pj",
        ),
    ]
    lb: Annotated[float, _energy("picojoules per byte of LB", 1.5)]
    gb: Annotated[float, _energy("picojoules per byte of GB", 6.0, default=0.0)]
    ddr: Annotated[float, _energy("picojoules per byte of DDR", 60.0)]
    static: Annotated[
        float, number("watts of the whole chip whatever it does", 5.0, high=1e6, suffix="w")
    ]


NAME = As(
    about="short name: small letters, digits, '.', '_' and '-'",
    example="my-npu",
    rule=Text(
        pattern="[a-z0-9][a-z0-9._-]*",
        longest=64,
        wrong="not usable as a name",
        hint="use small letters, digits, '.', '_' and '-', a letter or digit first",
    ),
)
"""The annotation of a target's or a machine's name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """An accelerator.

    Attributes:
        name: short name, usable in a file name.
        description: one line for people; affects nothing.
        clusters: clusters on the chip, data-parallel.
        cores: cores in each cluster, in one dimension.
        clock: hertz of cores and engines.
        matrix: one per core.
        vector: one per core.
        transfer: one per core.
        dma: one per cluster.
        lb: one per core.
        gb: one per cluster.
        ddr: one, shared by the clusters.
        overheads: launch and barrier.
        energy: None where nothing is known.
        dram: timing of ``ddr``; None where the length of runs does not matter or is not known.
    """

    name: Annotated[str, NAME]
    description: Annotated[
        str,
        As(about="one line for people", example="", default="", rule=Text(longest=200)),
    ]
    clusters: Annotated[int, whole("clusters on the chip", 2, high=4096)]
    cores: Annotated[int, whole("cores per cluster", 4, suffix="per_cluster")]
    clock: Annotated[float, number("clock of cores and engines", 1000, 1e-3, 1e6, suffix="mhz")]
    matrix: Annotated[MatrixEngine, Section(about="the matrix engine of one core", engine=True)]
    vector: Annotated[VectorEngine, Section(about="the vector engine of one core", engine=True)]
    transfer: Annotated[
        TransferEngine,
        Section(
            about="the transfer engine of one core: LB to and from GB and other cores' LB",
            engine=True,
        ),
    ]
    dma: Annotated[
        DmaEngine,
        Section(about="the DMA engine of one cluster: DDR to and from GB or LB", engine=True),
    ]
    lb: Annotated[LocalBuffer, Section(about="local buffer: the scratchpad of one core")]
    gb: Annotated[
        GlobalBuffer,
        Section(
            about="global buffer: the scratchpad that a cluster shares; "
            "leave it out where there is none",
            optional=True,
        ),
    ] = NO_GLOBAL_BUFFER
    ddr: Annotated[OffChip, Section(about="off-chip memory, whatever its technology")]
    dram: Annotated[
        DramTiming | None,
        Section(
            about="timing of the off-chip memory; "
            "leave it out and short runs cost no more than long ones",
            optional=True,
        ),
    ] = None
    overheads: Annotated[Overheads, Section(about="fixed costs")]
    energy: Annotated[
        Energy | None, Section(about="energy; leave it out where nothing is known", optional=True)
    ] = None

    @property
    def dtypes(self) -> tuple[str, ...]:
        """Data types that the matrix engine computes in, in the order of :data:`DTYPES`."""
        return tuple(dtype for dtype in DTYPES if self.supports(dtype))

    @property
    def default_dtype(self) -> str:
        """The first supported of float16, bfloat16, int8, float32, bfloat8, bfloat4."""
        return next(dtype for dtype in _PREFERRED if self.supports(dtype))

    @property
    def ddr_bandwidth_per_cluster(self) -> float:
        """Peak DDR bytes per second of one cluster when all of them load it alike."""
        return self.ddr.bandwidth / self.clusters

    @property
    def hash(self) -> str:
        """SHA-256 over all that affects results: every figure, not the name or description."""
        return _hash(self)

    def supports(self, dtype: str) -> bool:
        """Whether the matrix engine has a path for ``dtype``."""
        return self.matrix.macs_per_cycle(dtype) > 0

    def matrix_macs_per_second(self, dtype: str) -> float:
        """Peak multiply-accumulates per second of the whole chip.

        Raises:
            TargetError: the matrix engine has no path for ``dtype``.
        """
        return self._chip_rate(self.matrix.macs_per_cycle(dtype), "matrix", dtype)

    def vector_ops_per_second(self, dtype: str) -> float:
        """Peak simple element operations per second of the whole chip.

        Raises:
            TargetError: the vector engine has no lanes for ``dtype``.
        """
        return self._chip_rate(self.vector.elements_per_cycle(dtype), "vector", dtype)

    def peak_seconds(
        self, dtype: str, macs: float, plain: float, special: float
    ) -> tuple[float, float]:
        """Return the seconds of work of the whole chip at its peak rates, engine by engine.

        Args:
            dtype: the compute type.
            macs: multiply-accumulates on the matrix engine.
            plain: simple operations on the vector engine.
            special: its slow operations.
        """
        slow = self.vector.special_lanes * self.clusters * self.cores * self.clock
        matrix_s = macs / self.matrix_macs_per_second(dtype) if macs else 0.0
        vector_s = plain / self.vector_ops_per_second(dtype) if plain else 0.0
        return matrix_s, vector_s + (special / slow if special else 0.0)

    def _chip_rate(self, per_cycle: float, engine: str, dtype: str) -> float:
        if per_cycle <= 0:
            supported = ", ".join(self.dtypes)
            raise TargetError(
                f"the {engine} engine of {self.name} does not compute in {dtype!r}",
                hint=f"it computes in {supported}",
            )
        return per_cycle * self.clock * self.clusters * self.cores

    def _repr_html_(self) -> str:
        from autoturbo.report.notebook import target_view

        return target_view(self).html()

    def _repr_pretty_(self, printer: Printer, cycle: bool) -> None:
        from autoturbo.report.notebook import target_view

        del cycle
        printer.text(target_view(self).text())

    def as_dict(self) -> dict[str, Any]:
        """The target as a target file holds it (units in field names), ready for JSON.

        Figures are written with 12 significant digits, so that units convert without residue.
        """
        from autoturbo.hardware.target_file import to_document

        return to_document(self)

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Target:
        """The target that a document in the layout of :meth:`as_dict` describes.

        Raises:
            TargetError: the document is not a valid target.
        """
        from autoturbo.hardware.loader import from_document

        return from_document(document)


@lru_cache(maxsize=256)
def _hash(target: Target) -> str:
    document = target.as_dict()
    for inert in ("schema_version", "name", "description"):
        document.pop(inert, None)
    canonical = json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(canonical.encode()).hexdigest()
