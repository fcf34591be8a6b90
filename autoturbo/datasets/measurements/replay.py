"""Latency from the times of sub-graphs, also where clusters hand over to each other.

The simulator puts a latency together from kernels (:mod:`autoturbo.simulate.sequence`). Here the
same is done with whole sub-graphs: on each of its clusters a sub-graph takes its launches times the
mean time of one, and starts when the cluster is free and the sub-graphs that it reads from are done
on all other clusters. What is lost is that a consumer's first kernels may begin before the
producer's last have ended, and that a cluster's kernels of several sub-graphs may take turns.
"""

from __future__ import annotations

import numpy as np

from autoturbo.graph.arrays import Ints
from autoturbo.schedule.codegen.work import Floats
from autoturbo.simulate.sequence import run_passes


def replay(
    seconds: Floats,
    first: Ints,
    clusters: Ints,
    reads_start: Ints,
    reads: Ints,
    loops: int,
    barrier: float,
) -> float:
    """Seconds until all clusters have run all passes.

    Args:
        seconds: of each sub-graph on each of its clusters in one pass, ``(sub-graphs,)``.
        first: first cluster of each.
        clusters: how many clusters each has, from the first on.
        reads_start: sub-graph ``s`` reads from ``reads[reads_start[s]:reads_start[s + 1]]``.
        reads: see there; each comes before its readers.
        loops: number of passes.
        barrier: seconds until another cluster knows of a kernel's end.
    """
    owner = np.repeat(np.arange(len(seconds)), clusters)
    begin = np.concatenate([[0], np.cumsum(clusters)])
    cluster = first[owner] + np.arange(len(owner)) - begin[owner]
    makers = [
        [part for m in made for part in range(begin[m], begin[m + 1])]
        for made in np.split(reads, reads_start[1:-1])
    ]
    return run_passes(
        range(len(owner)), cluster.tolist(), seconds[owner].tolist(),
        [makers[s] for s in owner.tolist()], loops, barrier,
    )  # fmt: skip
