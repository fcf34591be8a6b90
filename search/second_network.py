"""How much sooner a search ends on a machine whose first network a cost model was trained on.

The machine is simulated, and differs from its description in kind and not in rates alone: each
further layer of a kernel makes the kernel 5 % slower, as one does that has to load its program
anew. So layers grouped as the description suggests are grouped too far. Its first network is
measured (``dataset collect``), a model is trained on it (``cost-model train --from kernels``), and
other networks are tuned with the package's model and with this one (``tune --cost-model``). All get
latencies alone, with noise; what counts is the true latency of what is handed out.

::

    PYTHONPATH=benchmarks python search/second_network.py [--first MODEL] [--networks MODEL,...]
        [--target T] [--trials N,M] [--seeds N,M] [--slower PERCENT]
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory

import numpy as np
from bench_tools import print_table
from latency_only import NoisyLatency

from autoturbo.cli import main as command_line
from autoturbo.datasets import workloads
from autoturbo.graph.onnx_import import import_model
from autoturbo.graph.operators import Graph
from autoturbo.hardware import load_target
from autoturbo.hardware.target import Target
from autoturbo.schedule.schedule import Schedule
from autoturbo.simulator.evaluator import Evaluator
from autoturbo.simulator.measurers import Timed
from autoturbo.simulator.sequence import KernelMemory, launched_seconds
from autoturbo.tuning.tuner import tune

NETWORKS = ("googlenet", "mobilenet_v2", "resnet50", "densenet121", "squeezenet1_1", "vgg19")
"""The second networks."""

NOISE = 0.02
"""Relative standard deviation of a latency."""

SLOWER = "AUTOTURBO_BENCHMARK_SLOWER"
"""Environment variable with the percent by which each further layer makes a kernel slower."""


class GroupingBoard(NoisyLatency):
    """A machine whose kernels take longer the more layers they have."""

    def __init__(self, seed: int = 0) -> None:
        """Begin the noise."""
        super().__init__(NOISE, seed)
        self.memory = KernelMemory()

    def build(self, schedule: Schedule) -> float:
        """Return the true latency."""
        simulated, instances = super().build(schedule), schedule.instances
        count = len(schedule.timelines)
        seconds = np.concatenate([launched_seconds(schedule, self.memory, c) for c in range(count)])
        groups = [instances.subgraphs[int(instances.subgraph[i])] for i in schedule.order]
        further = np.asarray([len(group.layers) - 1 for group in groups])
        slower = 1 + float(os.environ[SLOWER]) / 100 * further
        return simulated * float((slower * seconds).sum() / seconds.sum())


def evaluator(seed: int, graph: Graph, target: Target, dtype: str) -> Evaluator:
    """Return an evaluator that measures on the machine."""
    return Evaluator(graph, target, dtype, Timed(GroupingBoard(seed)))


def trained(first: str, target: str, folder: Path) -> Path:
    """Return the folder of the model that was trained on the machine's first network."""
    plugin = folder / "grouping_board-1.0.dist-info"
    plugin.mkdir()
    (plugin / "METADATA").write_text("Metadata-Version: 2.1\nName: grouping-board\nVersion: 1.0\n")
    points = f"[autoturbo.measurers]\ngrouping-board = {Path(__file__).stem}:GroupingBoard\n"
    (plugin / "entry_points.txt").write_text(points)
    sys.path.append(str(folder))
    data, model = folder / "measurements", folder / "model"
    for command in (
        f"dataset collect {first} --target {target} --measurer grouping-board -o {data}",
        f"cost-model train {data} --from kernels -o {model}",
    ):
        if status := command_line([*command.split(), "--quiet"]):
            sys.exit(status)
    return model


def handed_out(
    network: str, target_name: str, trials: int, seeds: Sequence[int], model: str | None
) -> float:
    """Return the mean true seconds of what searches hand out."""
    graph, target = import_model(workloads.get(network).file), load_target(target_name)
    ours, board = Evaluator(graph, target, target.default_dtype), GroupingBoard()
    found = []
    for seed in seeds:
        make: Callable[..., Evaluator] = partial(evaluator, seed)
        result = tune(
            graph, target, trials=trials, seed=seed, transfer=False, baselines=(),
            evaluator=make, cost_model=model,
        )  # fmt: skip
        found.append(board.build(ours.schedule(result.best.knobs)))
    return fmean(found)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print, for each second network, what is handed out without and with the trained model."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--first", default="resnet18", metavar="MODEL")
    parser.add_argument("--networks", default=",".join(NETWORKS))
    parser.add_argument("--target", default="stcp920")
    parser.add_argument("--trials", default="16,32")
    parser.add_argument("--seeds", default="0,1,2", help="means over these are printed")
    parser.add_argument("--slower", type=float, default=5.0, metavar="PERCENT")
    options = parser.parse_args(arguments)
    os.environ[SLOWER] = str(options.slower)
    budgets, seeds = ([int(n) for n in text.split(",")] for text in (options.trials, options.seeds))
    rows = []
    with TemporaryDirectory() as folder:
        model = str(trained(options.first, options.target, Path(folder)))
        for network in options.networks.split(","):
            row = [network]
            for trials in budgets:
                without, learned = (
                    handed_out(network, options.target, trials, seeds, own) for own in (None, model)
                )
                gain = 100 * (without / learned - 1)
                row += [f"{1e3 * without:.3f}", f"{1e3 * learned:.3f}", f"{gain:+.1f}"]
            rows.append(row)
            print("  ".join(row), flush=True)
    heads = [f"{what}, {n}" for n in budgets for what in ("package's, ms", "trained, ms", "% gain")]
    print_table(("network", *heads), rows)


if __name__ == "__main__":
    main()
