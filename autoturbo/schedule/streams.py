"""What kernels stream: the columns of a kernel's stream table, and where weights stay."""

from __future__ import annotations

IN_GB, IN_DDR, OUT_GB, OUT_DDR, LATE_GB, LATE_DDR, ROOM = range(7)
"""Columns of a kernel's stream table: bytes of the cluster per layer, read and written. What is
late is read from buffers that the same kernel wrote, so it cannot be fetched ahead. The last are
bytes of every core's LB that no tensor takes, where streams of a product may stay."""

STREAM_COLUMNS = 7

READ = [IN_GB, IN_DDR, LATE_GB, LATE_DDR]
"""Columns of streams that are read."""

RESIDENCES = {"stream": 0, "GB": 1, "LB": 2}
"""Codes of where weights stay between the instances of a sub-graph."""
