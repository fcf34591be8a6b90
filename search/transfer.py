"""How much sooner a search ends that starts from what another model's search decided.

``python search/transfer.py [--trials N] [--seeds N] [--target T]``: for every pair of models
the first one is tuned; then the second, once knowing nothing of the first and once starting from
its decisions (``autoturbo.search.warm_starts.transfer``). A row says how far each was from the best
of both after 1, 10, 20, 50 and all measurements, in percent, medians over seeds, and how many
measurements each needed to come within one percent of where the search that knew nothing ended.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import onnx
from bench_tools import print_table
from deeper import resnet101
from search_quality import Pair, running_best, searched

from autoturbo.config import SUBGRAPHS
from autoturbo.datasets import workloads
from autoturbo.graph.onnx_import import import_model
from autoturbo.graph.operators import Graph
from autoturbo.hardware import load_target
from autoturbo.registry import COST_MODEL
from autoturbo.schedule.knobs import Knobs
from autoturbo.schedule.pipeline import build_schedule
from autoturbo.search.space import Space
from autoturbo.search.warm_starts.starts import starts_of
from autoturbo.search.warm_starts.transfer import decisions_of, transfer
from autoturbo.simulator.evaluator import Evaluator

PAIRS = (
    ("resnet101", "resnet50"),
    ("resnet18", "resnet50"),
    ("resnet50", "resnet101"),
    ("bert_base_s128", "bert_base_s256"),
    ("bert_base_s128", "bert_base_s512"),
    ("mobilenet_v2", "resnet50"),  # shares nothing: no worse for it
)

CHECKPOINTS = (1, 10, 20, 50)

NEAR = 1.01
"""Times the end of the search that knew nothing, which counts as there."""

Curve = list[float]


@dataclass(frozen=True, slots=True)
class Tuned:
    """A search's best seconds after each measurement, and its best setting."""

    curve: Curve
    best: Knobs


def load(name: str) -> Graph:
    """Return a workload, or ResNet-101."""
    if name != "resnet101":
        return import_model(workloads.get(name).file)
    with TemporaryDirectory() as folder:
        file = Path(folder) / "resnet101.onnx"
        small = onnx.load(workloads.get("resnet50").file, load_external_data=False)
        onnx.save(resnet101(small), file)
        return import_model(file, batch=64)


def tune(pair: Pair, starts: Sequence[Knobs], seed: int, trials: int) -> Tuned:
    """Search from some starts."""
    space = Space.of(pair.evaluator.model_scheduler, subgraphs=SUBGRAPHS, starts=starts)
    loop = searched(pair, space, COST_MODEL, seed, trials)
    curve = [seconds or float("inf") for seconds in running_best(t.outcome for t in loop.trials)]
    return Tuned(curve, Knobs() if loop.best is None else loop.best.knobs)


def compared(first: str, second: str, target: str, seeds: int, trials: int) -> list[object]:
    """Return one row of the table."""
    machine = load_target(target)
    graphs = {name: load(name) for name in (first, second)}
    pairs = {
        name: Pair(name, machine, graph, Evaluator(graph, machine, machine.default_dtype))
        for name, graph in graphs.items()
    }
    placed = {name: starts_of(pair.evaluator) for name, pair in pairs.items()}
    known, cold, warm = 0.0, [], []
    for seed in range(seeds):
        donor = tune(pairs[first], placed[first], seed, trials)
        decided = decisions_of(build_schedule(pairs[first].evaluator.model_scheduler, donor.best))
        taken = transfer(pairs[second].evaluator.model_scheduler, [decided])
        starts = placed[second] if taken is None else (*placed[second], taken.knobs)
        known = max(known, taken.known if taken else 0.0)
        cold.append(tune(pairs[second], placed[second], seed, trials).curve)
        warm.append(tune(pairs[second], starts, seed, trials).curve)
    best = min(curve[-1] for curve in (*cold, *warm))
    cells = [_gaps(cold, warm, best, count - 1) for count in (*CHECKPOINTS, trials)]
    ends = [NEAR * curve[-1] for curve in cold]
    needed = [
        statistics.median(_until(curve, end) for curve, end in zip(curves, ends, strict=True))
        for curves in (cold, warm)
    ]
    return [f"{second} after {first}", f"{known:.0%}", *cells, f"{needed[0]:g} / {needed[1]:g}"]


def _gaps(cold: Sequence[Curve], warm: Sequence[Curve], best: float, at: int) -> str:
    far = [
        statistics.median(c[min(at, len(c) - 1)] / best - 1 for c in one) for one in (cold, warm)
    ]
    return f"{far[0]:.1%} / {far[1]:.1%}"


def _until(curve: Curve, end: float) -> int:
    """Count measurements until a curve is there; one more than there are if it never is."""
    return next((n for n, seconds in enumerate(curve, 1) if seconds <= end), len(curve) + 1)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n", maxsplit=1)[0])
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--target", default="stcp920")
    options = parser.parse_args()
    ends = [f"at {count}" for count in (*CHECKPOINTS, options.trials)]
    rows = []
    for first, second in PAIRS:
        rows.append(compared(first, second, options.target, options.seeds, options.trials))
        print(*rows[-1], sep=" | ", flush=True)
    print_table(["model (cold / warm)", "known", *ends, "needed for 1 %"], rows)


if __name__ == "__main__":
    main()
