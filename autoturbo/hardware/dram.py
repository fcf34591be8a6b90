"""Cost of transfers on the off-chip memory, by the length of their contiguous runs.

A run is a stretch of consecutive addresses. Its data take their time on the bus, its rows have to
be opened first, and whichever takes longer sets the pace (Jacob, Ng and Wang, Memory Systems, 2007,
chapters 11 to 13):

- an access moves whole bursts, so a run shorter than a burst pays for one;
- a run opens a row for each page, or, where consecutive bursts go to different bank groups and
  channels, one in each of them; a channel opens no more than four rows in ``four_activates`` and
  ``banks`` in ``row_cycle``;
- inside one bank group bursts follow each other ``group_gap`` times slower, which the runs before
  and after hide as far as the controller's queue reaches at either end;
- short runs leave channels idle by chance: with ``n`` runs in the queues of ``g`` groups of
  channels a share of ``n / (n + g - 1)`` is busy (a closed network of equal servers; Lazowska et
  al., Quantitative System Performance, 1984, chapter 6);
- the bus turns around once for each batch of writes.

Refresh is in the memory's ``efficiency``; no row is opened meanwhile either. Without a ``dram``
section in the target the length of runs does not matter.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from autoturbo.compiled import arithmetic, borrowing
from autoturbo.hardware.target import Target

Floats = NDArray[np.float64]


class Memory(IntEnum):
    """Entries of :func:`memory_of`: figures of the whole chip in bytes and seconds.

    ``PEAK`` is what long one-way transfers reach; ``SPREAD`` the bank groups over which a
    channel's neighbouring bursts lie; ``ACTIVATE`` the time between two openings of its rows.
    """

    PEAK = 0
    STREAMS = 1
    CHANNELS = 2
    BURST = 3
    PAGE = 4
    INTERLEAVE = 5
    GROUPS = 6
    SPREAD = 7
    ACTIVATE = 8
    GROUP_GAP = 9
    QUEUE = 10
    TURNAROUND = 11
    WRITE_BATCH = 12


def memory_of(target: Target, streams: int | None = None) -> Floats:
    """Return a target's off-chip memory for compiled code.

    Args:
        target: The accelerator.
        streams: Runs asked for at the same time; all DMA channels of the chip if None.
    """
    figures = np.zeros(len(Memory))
    figures[Memory.PEAK] = target.ddr.bandwidth * target.ddr.efficiency
    figures[Memory.WRITE_BATCH] = 1.0  # what is written is divided by it
    timing = target.dram
    if timing is not None:
        streams = target.clusters * target.dma.channels if streams is None else streams
        figures[Memory.STREAMS :] = (
            streams, timing.channels, timing.burst, timing.page, timing.interleave, timing.groups,
            timing.groups if timing.group_interleave else 1,
            max(timing.four_activates / 4, timing.row_cycle / timing.banks) / target.ddr.efficiency,
            timing.group_gap, timing.queue, timing.turnaround,
            timing.write_batch * timing.channels,
        )  # fmt: skip
    return figures


def dram_efficiency(
    target: Target, run: float, *, streams: int | None = None, write_share: float = 0.0
) -> float:
    """Return the share of the off-chip memory's bandwidth that transfers reach.

    Args:
        target: The accelerator.
        run: Bytes of a contiguous run.
        streams: Runs asked for at the same time.
        write_share: Bytes written over bytes moved.
    """
    memory = memory_of(target, streams)
    turning = turnaround_seconds(run * (1 - write_share), run * write_share, memory)
    return float(run / (run_seconds(run, memory) + turning) / target.ddr.bandwidth)


@borrowing
def run_seconds(run: float, m: Floats) -> float:
    """Return the seconds for which a run of bytes occupies the whole off-chip memory."""
    if m[Memory.BURST] == 0:
        return float(run / m[Memory.PEAK])
    bursts = np.ceil(run / m[Memory.BURST])
    span = min(np.ceil(run / m[Memory.INTERLEAVE]), m[Memory.CHANNELS])
    rows = max(min(bursts, m[Memory.SPREAD] * span), np.ceil(run / m[Memory.PAGE]))
    delay = 1.0  # how much longer bursts take because they follow each other in one bank group
    if m[Memory.SPREAD] <= 1:
        piece = min(run, m[Memory.PAGE])
        alone = max(piece - 2 * m[Memory.QUEUE], 0.0) / piece
        together = m[Memory.GROUPS] ** -(m[Memory.STREAMS] - 1.0)
        delay = 1.0 + alone * (m[Memory.GROUP_GAP] - 1.0) * together
    data = bursts * m[Memory.BURST] / m[Memory.PEAK] * delay
    opening = rows * m[Memory.ACTIVATE] / m[Memory.CHANNELS]
    # share of the channels that have work, for runs at random places
    waiting = max(m[Memory.CHANNELS] * m[Memory.QUEUE] / run, 1.0)
    busy = waiting / (waiting + m[Memory.CHANNELS] / span - 1.0)
    return float(max(data, opening) / busy)


@arithmetic
def turnaround_seconds(read: Floats | float, written: Floats | float, m: Floats) -> Floats:
    """Return the seconds that the bus loses turning between concurrent reads and writes."""
    seconds: Floats = np.minimum(read, written) / m[Memory.WRITE_BATCH] * m[Memory.TURNAROUND]
    return seconds
