"""The parts of an accelerator: engines, buffers, memory, overheads; frozen, in SI units.

Bytes, seconds, hertz and bytes per second throughout; a target *file* carries the units in its
field names instead (``bandwidth_gb_s``), see :mod:`autoturbo.hardware.fields`. Rates are peaks
unless a field says otherwise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, overload

from annotated_types import MaxLen

from autoturbo.hardware.fields import (
    Figure,
    FileValue,
    bandwidth,
    capacity,
    latency,
    number,
    rates,
    size,
    whole,
)
from autoturbo.schema import Choice

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

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


FIXED = "fixed"

FREE = "free"

DDR_SHARES = (FIXED, FREE)
"""How clusters share the bandwidth of off-chip memory."""


def storage_ratio(dtype: str) -> float:
    """Return the bytes in memory per byte that a graph counts, 1 except for block floats."""
    return _BLOCK_BYTES.get(dtype, 1.0)


PerDtype = tuple[tuple[str, float], ...]
"""One figure per data type, in the order of :data:`DTYPES`."""


def _startup(about: str, example: int) -> Figure:
    return whole(about, example, low=0, high=1_000_000, timed=True)


def _flag(
    about: str, *, default: bool | None = None, example: bool | None = None, timed: bool = False
) -> FileValue:
    shown = default if example is None else example
    return FileValue(about=about, example=shown, default=default, timed=timed)


def _text(about: str, longest: int, pattern: str | None = None, example: str = "") -> FileValue:
    default = None if example else ""
    return FileValue(
        about=about,
        example=example,
        default=default,
        pattern=pattern,
        in_file=Annotated[str, MaxLen(longest)],
    )


def _energy(about: str, example: float, **more: Any) -> Figure:
    return number(about, example, high=1e6, suffix="pj_per_byte", **more)


def _fixed_cost(about: str, example: float, **more: Any) -> Figure:
    return number(about, example, suffix="us", timed=True, **more)


@dataclass(frozen=True, slots=True)
class MatrixEngine:
    """The matrix engine of one core.

    Attributes:
        rows: Native tile along M (or N of a transposed product), in elements.
        columns: Native tile along N, in elements.
        dataflow: One of :data:`DATAFLOWS`; "ideal" loses nothing to filling the array,
            "channel_stationary" holds weights of one kernel position, channels over the rows (few
            channels leave rows idle, but for :attr:`im2col`).
        depth: Elements of the reduction consumed per cycle at each (row, column) point: 1 for a
            plain array, 16 for a 16 x 16 x 16 cube.
        rate: Multiplier per data type on ``rows * columns * depth`` multiply-accumulates per
            cycle; a data type that is not listed is not supported.
        startup_cycles: Pipeline fill and issue overhead of one tile, in cycles.
        folds_overlap: Whether operands are double-buffered in the array, so that a fold streams in
            while the one before it drains; otherwise every fold pays for filling and draining.
        swap_operands: Whether a product may run transposed, N along the rows, where that is
            shorter; otherwise the operands keep their sides.
        rereads_operands: Whether every rows x columns block of a result reads its operands from LB
            anew; otherwise registers between LB and the array hold what a tile reads again.
        im2col: Whether the rows of a "channel_stationary" array take kernel positions beside
            channels, as those of the other dataflows do.
    """

    rows: Annotated[int, whole("native tile along M", 32)]
    columns: Annotated[int, whole("native tile along N", 32)]
    dataflow: Annotated[
        str,
        FileValue(
            about=f"what stays in the array: one of {', '.join(DATAFLOWS)}",
            example="output_stationary",
            default="output_stationary",
            in_file=Annotated[str, Choice(DATAFLOWS)],
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
    im2col: Annotated[
        bool,
        _flag("rows of a channel_stationary array take kernel positions too", default=False),
    ] = False

    def macs_per_cycle(self, dtype: str) -> float:
        """Return the multiply-accumulates per cycle at peak; 0 for an unsupported data type."""
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
        float, number("elements per cycle of exp, div, sqrt, erf, tanh", 8, 1e-3, 1e6, timed=True)
    ]
    startup_cycles: Annotated[int, _startup("issue of one vector operation, in cycles", 8)]

    def elements_per_cycle(self, dtype: str) -> float:
        """Return the elements per cycle of a simple operation; 0 for an unsupported data type."""
        return dict(self.lanes).get(dtype, 0.0)


@dataclass(frozen=True, slots=True)
class TransferEngine:
    """The memory transfer engine of one core: LB to and from GB or a remote LB."""

    bandwidth: Annotated[float, bandwidth("each direction", 64)]
    latency: Annotated[float, latency("issue to first byte", 100)]
    broadcast: Annotated[bool, _flag("one read of GB can feed all cores", example=True)]


@dataclass(frozen=True, slots=True)
class DmaEngine:
    """The DMA engine of one cluster: DDR to and from GB or LB.

    Attributes:
        channels: Transfers at once.
        bandwidth: Bytes per second of each channel.
        latency: Seconds to start one transfer.
        bypasses_gb: Whether a schedule may leave GB out: the way that a chip without GB has is
            there as well. It matters only where there is GB. A file that does not say has it, so
            that a chip to which GB is added is never slower; presets say false, since no public
            source tells of it.
        prefetch_over_kernels: Whether it fetches for a kernel while others run before that, into
            what GB has free; otherwise it knows of one kernel at a time.
    """

    channels: Annotated[int, whole("transfers at once", 2, timed=True)]
    bandwidth: Annotated[float, bandwidth("of each channel", 32)]
    latency: Annotated[float, latency("start of one transfer", 500)]
    bypasses_gb: Annotated[
        bool,
        _flag("also moves between DDR and LB directly, past GB", default=True, example=False),
    ] = True
    prefetch_over_kernels: Annotated[
        bool, _flag("fetches for a kernel to come while others run", default=True)
    ] = True


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
    """Off-chip memory (DDR, of any technology).

    Attributes:
        capacity: Bytes per cluster.
        bandwidth: Peak bytes per second of the whole chip, shared by its clusters.
        latency: Seconds to the first byte.
        efficiency: Fraction of the bandwidth that long transfers reach, in (0, 1]; what short runs
            cost on top is :class:`DramTiming`'s.
        share: How clusters share the bandwidth, one of :data:`DDR_SHARES`: a ``"fixed"`` part each,
            as with channels of their own, or ``"free"``: clusters that work have also what is left
            by those that never do.
        multicast: Whether clusters that compute the same kernel for samples of their own read its
            weights once for all of them. Those that divide outputs are at different layers, and
            read for themselves.
    """

    capacity: Annotated[int, number("per cluster, in GiB", 4, 1e-3, 1e6, suffix="gib")]
    bandwidth: Annotated[float, bandwidth("peak of the whole chip, shared by its clusters", 64)]
    latency: Annotated[float, latency("to the first byte", 200)]
    efficiency: Annotated[
        float, number("fraction of the peak that long transfers reach", 0.85, 1e-3, 1.0, timed=True)
    ]
    share: Annotated[
        str,
        FileValue(
            about="what a cluster has of the bandwidth: fixed, one part of it for each; "
            "free, also the parts of clusters that a schedule leaves idle",
            example=FIXED,
            default=FIXED,
            in_file=Annotated[str, Choice(DDR_SHARES)],
            timed=True,
        ),
    ] = FIXED
    multicast: Annotated[
        bool,
        _flag(
            "clusters that need the same weights at once read them once for all",
            default=False,
            timed=True,
        ),
    ] = False


@dataclass(frozen=True, slots=True)
class DramTiming:
    """Costs of runs of consecutive addresses in off-chip memory (JEDEC's names in brackets)."""

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
    """Seconds that a kernel takes besides its work.

    Attributes:
        kernel_launch: Seconds from the end of the kernel before until the first core begins.
        barrier: Seconds until all cores of a cluster know that the others are done.
        kernel_ramp: Seconds that a long kernel loses until its engines are at rate. They begin at
            half the rate, and what they lack fades with the work that is done; a kernel that ends
            before pays its part, :meth:`ramp`.
    """

    kernel_launch: Annotated[float, _fixed_cost("start of a kernel on a cluster", 3.0)]
    barrier: Annotated[float, _fixed_cost("meeting of a cluster's cores at a kernel's end", 0.5)]
    kernel_ramp: Annotated[
        float,
        _fixed_cost(
            "lost by a long kernel until its engines are at rate, by a short one a part of it",
            0.0,
            default=0.0,
        ),
    ] = 0.0

    @property
    def per_kernel(self) -> float:
        """Return the seconds that every kernel takes besides its work, however short it is."""
        return self.kernel_launch + self.barrier

    @overload
    def ramp(self, work: float) -> float: ...

    @overload
    def ramp(self, work: NDArray[np.float64]) -> NDArray[np.float64]: ...

    def ramp(self, work: float | NDArray[np.float64]) -> float | NDArray[np.float64]:
        """Return the seconds that kernels lose while their engines are not at rate.

        After ``w`` seconds of work at rate, the next takes ``1 + exp(-w / kernel_ramp)`` times as
        long: twice at first. The sum is ``kernel_ramp * (1 - exp(-work / kernel_ramp))``, no more
        than the work itself and no more than ``kernel_ramp`` (docs/decisions/kernel-ramp.md).

        Args:
            work: Seconds of the kernels at rate, from the first instruction to the end of the last.
        """
        if isinstance(work, float):
            share = -math.expm1(-work / self.kernel_ramp) if self.kernel_ramp else 0.0
            return self.kernel_ramp * share
        import numpy as np

        if not self.kernel_ramp:
            return np.zeros_like(work)
        return -self.kernel_ramp * np.expm1(-work / self.kernel_ramp)

    @overload
    def around(self, work: float) -> float: ...

    @overload
    def around(self, work: NDArray[np.float64]) -> NDArray[np.float64]: ...

    def around(self, work: float | NDArray[np.float64]) -> float | NDArray[np.float64]:
        """Return the seconds that kernels take besides their work: launch, ramp and barrier.

        Args:
            work: Seconds of work, as :meth:`ramp` takes them.
        """
        return self.per_kernel + self.ramp(work)

    def before_work(
        self, work: NDArray[np.float64], opens: NDArray[np.bool_]
    ) -> NDArray[np.float64]:
        """Return launch and ramp of kernels, which come before their work; 0 without a launch."""
        return (self.kernel_launch + self.ramp(work)) * opens

    def of_launches(
        self, work: NDArray[np.float64], opens: NDArray[np.bool_]
    ) -> NDArray[np.float64]:
        """Return :meth:`around` of kernels in order that share launches.

        Args:
            work: Seconds of work, as :meth:`ramp` takes them.
            opens: Whether each has a launch of its own; the last before such one pays the barrier.
        """
        goes_on = ~opens
        saved = self.before_work(work, goes_on)
        saved[:-1] += self.barrier * goes_on[1:]
        return self.around(work) - saved


@dataclass(frozen=True, slots=True)
class Energy:
    """Energy of operations and transfers, and static power."""

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


@dataclass(frozen=True, slots=True)
class Calibration:
    """What a comparison of the target with measurements found; it affects no result.

    Attributes:
        error: Median of the relative errors of simulated times, on measurements that no figure was
            fitted to; a fraction.
        rows: Number of measurements that ``error`` is the median of.
        table: Name of the file of measurements.
        sha256: SHA-256 of that file; empty where it is not known.
        date: Day of the comparison, YYYY-MM-DD; empty where it is not known.
        regime: Seconds of a kernel that separate short from long ones; 0 where nobody did.
        error_below: The error of rows of shorter kernels.
        error_above: The error of the others.
        rows_below: Measurements that ``error_below`` is of.
    """

    error: Annotated[
        float,
        number("median error of simulated times on measurements held out", 5.0, suffix="percent"),
    ]
    rows: Annotated[int, whole("measurements that the error is of", 20)]
    table: Annotated[str, _text("name of the file of measurements", 200, example="board.csv")]
    sha256: Annotated[str, _text("SHA-256 of that file", 64, pattern="([0-9a-f]{64})?")] = ""
    date: Annotated[str, _text("day of the comparison", 10, pattern=r"(\d{4}-\d\d-\d\d)?")] = ""
    regime: Annotated[
        float,
        number("length of a kernel that separates two errors", 40.0, suffix="us", default=0.0),
    ] = 0.0
    error_below: Annotated[
        float, number("median error of shorter kernels", 10.0, suffix="percent", default=0.0)
    ] = 0.0
    error_above: Annotated[
        float, number("median error of the others", 5.0, suffix="percent", default=0.0)
    ] = 0.0
    rows_below: Annotated[int, whole("measurements of shorter kernels", 8, low=0, default=0)] = 0

    def error_of(self, kernel_seconds: float) -> float:
        """Return the relative error of a result whose kernels take so long in the mean.

        Of a length that nothing was measured of, the error of all rows is all that is known.
        """
        if not self.regime:
            return self.error
        if kernel_seconds < self.regime:
            return self.error_below if self.rows_below else self.error
        return self.error_above if self.rows > self.rows_below else self.error
