"""Where searches start: latencies of the published heuristic and of the dynamic programme's starts.

Starts are measured as they are, before anything of them is searched. Where outputs stay on the chip
the first start has the cuts made for that, and the others those made for outputs in DDR.

::

    python search/starts.py [--target T] [NAME ...]
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from bench_tools import cpu_seconds, print_table

from autoturbo.datasets import workloads
from autoturbo.graph.onnx_import import import_model
from autoturbo.hardware import load_target
from autoturbo.schedule.knobs import Knobs
from autoturbo.search.warm_starts.starts import starts_of
from autoturbo.simulator.evaluator import Evaluator
from autoturbo.simulator.measurement import Measurement

HEADER = ("workload", "heuristic, ms", "first start", "best of the others", "starts", "CPU s")


def row(name: str, target: str) -> tuple[object, ...]:
    """Return one line of the table; ``-`` where there is no such start."""
    graph, machine = import_model(workloads.get(name).file), load_target(target)
    evaluator, found = Evaluator(graph, machine, machine.default_dtype), list[Knobs]()
    took = cpu_seconds(lambda: found.extend(starts_of(evaluator)))
    heuristic, *starts = (_milliseconds(evaluator, knobs) for knobs in (Knobs(), *found))
    first, others = min(starts[:1], default="-"), min(starts[1:], default="-")
    return name, heuristic, first, others, len(found), took


def _milliseconds(evaluator: Evaluator, knobs: Knobs) -> float:
    outcome = evaluator.evaluate(knobs)
    return outcome.latency * 1e3 if isinstance(outcome, Measurement) else float("inf")


def main(arguments: Sequence[str] | None = None) -> None:
    """Print one row per workload."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", default=workloads.PAPER_TEN, metavar="NAME")
    parser.add_argument("--target", default="ipu-mk2")
    options = parser.parse_args(arguments)
    print_table(HEADER, [row(name, options.target) for name in options.names])


if __name__ == "__main__":
    main()
