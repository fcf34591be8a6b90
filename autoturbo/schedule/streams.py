"""Columns of a kernel's stream table: bytes of the cluster per layer, read and written.

``LATE`` is read from buffers that the same kernel wrote, so it cannot be fetched ahead.
"""

from __future__ import annotations

IN_GB, IN_DDR, OUT_GB, OUT_DDR, LATE_GB, LATE_DDR = range(6)

STREAM_COLUMNS = 6
