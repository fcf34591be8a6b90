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
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from autoturbo.errors import TargetError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from autoturbo.report.notebook import Printer

DTYPES = ("float32", "float16", "bfloat16", "int8", "bfloat8", "bfloat4")
"""Data types that an engine may compute in; the last two share an exponent among 16 elements."""

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

    rows: int
    columns: int
    dataflow: str
    depth: int
    rate: PerDtype
    startup_cycles: int
    folds_overlap: bool = True
    swap_operands: bool = True
    rereads_operands: bool = False

    def macs_per_cycle(self, dtype: str) -> float:
        """Multiply-accumulates per cycle at peak; 0 for a data type without a path."""
        return self.rows * self.columns * self.depth * dict(self.rate).get(dtype, 0.0)


@dataclass(frozen=True, slots=True)
class VectorEngine:
    """The vector engine of one core.

    Attributes:
        lanes: elements per cycle of a simple operation (add, multiply, compare), per data type.
        special_lanes: elements per cycle of exp, div, sqrt, erf, tanh and their like.
        startup_cycles: issue overhead of one vector operation, in cycles.
    """

    lanes: PerDtype
    special_lanes: float
    startup_cycles: int

    def elements_per_cycle(self, dtype: str) -> float:
        """Elements per cycle of a simple operation; 0 for a data type without lanes."""
        return dict(self.lanes).get(dtype, 0.0)


@dataclass(frozen=True, slots=True)
class TransferEngine:
    """The memory transfer engine of one core: LB to and from GB or a remote LB.

    Attributes:
        bandwidth: bytes per second in each direction.
        latency: seconds from issue to the first byte.
        broadcast: whether one read of GB can feed the LBs of all cores of the cluster.
    """

    bandwidth: float
    latency: float
    broadcast: bool


@dataclass(frozen=True, slots=True)
class DmaEngine:
    """The DMA engine of one cluster: DDR to and from GB or LB.

    Attributes:
        channels: transfers in flight at once.
        bandwidth: bytes per second of each channel.
        latency: seconds to start one transfer.
    """

    channels: int
    bandwidth: float
    latency: float


@dataclass(frozen=True, slots=True)
class LocalBuffer:
    """The scratchpad of one core.

    Attributes:
        capacity: bytes per core for activations.
        weight_capacity: bytes per core for weights.
        bandwidth: bytes per second per core.
    """

    capacity: int
    weight_capacity: int
    bandwidth: float


@dataclass(frozen=True, slots=True)
class GlobalBuffer:
    """The scratchpad that the cores of a cluster share.

    Attributes:
        capacity: bytes per cluster; 0 where the target has none.
        bandwidth: bytes per second per cluster.
        latency: seconds to the first byte.
    """

    capacity: int
    bandwidth: float
    latency: float


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

    capacity: int
    bandwidth: float
    latency: float
    efficiency: float


@dataclass(frozen=True, slots=True)
class DramTiming:
    """What runs of consecutive addresses cost the off-chip memory (JEDEC's names in brackets).

    Attributes:
        channels: channels that work side by side.
        burst: bytes of one access of a channel (bus width times burst length).
        page: bytes of an open row of one channel.
        interleave: consecutive bytes in one channel before the next channel's turn.
        banks: banks of a channel, in all ranks.
        row_cycle: seconds between two openings of rows in one bank (tRC).
        four_activates: seconds in which a channel opens at most four rows (tFAW over its ranks).
        groups: bank groups; 1 where there are none.
        group_gap: time between bursts of one bank group over that between groups (tCCD_L/tCCD_S).
        group_interleave: whether neighbouring bursts lie in different bank groups.
        turnaround: seconds that a channel's bus stands idle between reading, writing and reading
            again (from CL, CWL and tWTR).
        write_batch: bytes that a channel's controller writes between two turns.
        queue: bytes of requests that a channel's controller looks ahead.
    """

    channels: int
    burst: int
    page: int
    interleave: int
    banks: int
    row_cycle: float
    four_activates: float
    groups: int
    group_gap: float
    group_interleave: bool
    turnaround: float
    write_batch: int
    queue: int


@dataclass(frozen=True, slots=True)
class Overheads:
    """Fixed costs.

    Attributes:
        kernel_launch: seconds to start a kernel on a cluster.
        barrier: seconds for the cores of a cluster to meet at a kernel's end.
    """

    kernel_launch: float
    barrier: float

    @property
    def per_kernel(self) -> float:
        """Seconds that every kernel takes besides its work."""
        return self.kernel_launch + self.barrier


@dataclass(frozen=True, slots=True)
class Energy:
    """What work costs.

    Attributes:
        mac: picojoules per multiply-accumulate, per data type.
        lb: picojoules per byte read from or written to LB.
        gb: picojoules per byte of GB; 0 where the target has none.
        ddr: picojoules per byte of DDR.
        static: watts of the whole chip that are drawn whatever it does.
    """

    mac: PerDtype
    lb: float
    gb: float
    ddr: float
    static: float


@dataclass(frozen=True, slots=True)
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

    name: str
    description: str
    clusters: int
    cores: int
    clock: float
    matrix: MatrixEngine
    vector: VectorEngine
    transfer: TransferEngine
    dma: DmaEngine
    lb: LocalBuffer
    gb: GlobalBuffer
    ddr: OffChip
    overheads: Overheads
    energy: Energy | None = None
    dram: DramTiming | None = None

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
        from autoturbo.hardware.fields import to_document

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
