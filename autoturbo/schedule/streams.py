"""Columns of a kernel's stream table: bytes of the cluster per layer, read and written.

``LATE`` is read from buffers that the same kernel wrote, so it cannot be fetched ahead.
"""

from __future__ import annotations

import numpy as np

from autoturbo.graph.arrays import Ints

IN_GB, IN_DDR, OUT_GB, OUT_DDR, LATE_GB, LATE_DDR = range(6)

STREAM_COLUMNS = 6


def without_outputs(streams: Ints, last: Ints, outputs: Ints) -> Ints:
    """Streams of kernels whose outputs stay in the local buffers; what they spill goes to DDR.

    Args:
        streams: with outputs in DDR, layer by layer of every kernel.
        last: per kernel, the row of its last layer.
        outputs: per kernel, bytes that it hands over.
    """
    found = streams.copy()
    found[last, OUT_DDR] = np.maximum(found[last, OUT_DDR] - outputs, 0)
    return found
