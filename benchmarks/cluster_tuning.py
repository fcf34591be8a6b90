"""Tune many pairs on a cluster whose workers are killed, and compare with a run in this process.

::

    python benchmarks/cluster_tuning.py                          # ten models x three targets
    python benchmarks/cluster_tuning.py --models 2 --targets 2 --trials 17

Three nodes; every few seconds a worker is killed, and one node is killed and joins again. At the
end the best schedules, exported from the database, must be the same bytes as those of a run without
Ray and without faults; the exit status is 1 if they are not.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

sys.path.insert(0, str(Path(__file__).parent))

from bench_tools import print_table
from ray_cluster import Cluster

import autoturbo
from autoturbo.config import ExecutionConfig, TuneConfig
from autoturbo.database import Database
from autoturbo.datasets import workloads
from autoturbo.search.executors.ray_session import connect
from autoturbo.simulator.measurement import Failure
from autoturbo.tuning.result import TuneResult
from autoturbo.tuning.tuner import Pair, tune_all

TARGETS = ("stcp920", "ipu-mk2", "mlu100")
MODELS = (
    "squeezenet1_1", "resnet18", "mobilenet_v2", "shufflenet_v2", "alexnet", "resnet50",
    "googlenet", "densenet121", "efficientnet_b0", "bert_base_s128",
)  # fmt: skip


@dataclass
class Trouble:
    """Kills workers of a cluster while it is in use, one node once, which then joins again.

    Attributes:
        cluster: Whose.
        every: Seconds between two killed workers.
        workers: Killed so far.
        nodes: Killed so far.
    """

    cluster: Cluster
    every: float
    workers: int = 0
    nodes: int = 0
    _over: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._make, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _make(self) -> None:
        chance = random.Random(0)  # noqa: S311  not for secrets
        while not self._over.wait(self.every):
            found = [pid for node in self.cluster.nodes for pid in node.workers()]
            if not found:
                continue
            if self.workers and not self.nodes:
                self._replace_node()
            with suppress(ProcessLookupError):
                os.kill(chance.choice(found), 9)
                self.workers += 1

    def _replace_node(self) -> None:
        measuring = [node for node in self.cluster.nodes if node.workers()]
        self.cluster.remove(measuring[-1])
        self.nodes += 1
        self.cluster.add()


def exported(path: Path) -> str:
    """Return the best schedules of a database as text, without what says when and by which run."""
    with Database.open(path, create=False, read_only=True) as store:
        best = sorted(store.best(), key=lambda b: (b.model, b.target))
    return "".join(f"{b.model} @ {b.target} trial {b.trial}\n{b.schedule}" for b in best)


def tuned(pairs: list[Pair], folder: Path, trials: int, address: str | None) -> list[TuneResult]:
    """Tune pairs in one call.

    Returns:
        The results, in the order of the pairs.

    Raises:
        AutoTurboError: A pair has none.
    """
    config = TuneConfig(trials=trials, baselines=())
    execution = ExecutionConfig(database=folder / "a.db", runs_folder=folder / "runs", ray=address)
    found = []
    for result in tune_all(pairs, config, execution):
        if not isinstance(result, TuneResult):
            raise result
        found.append(result)
    return found


def compared(models: int, targets: int, trials: int, every: float, nodes: int = 3) -> bool:
    """Run both, print both, and say whether they found the same."""
    os.environ["RAY_AUTH_MODE"] = "disabled"  # as the cluster's
    graphs = [autoturbo.load_model(workloads.get(name).file, batch=1) for name in MODELS[:models]]
    chosen = [autoturbo.load_target(name) for name in TARGETS[:targets]]
    pairs = [Pair(graph, target) for graph in graphs for target in chosen]
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as two:
        start = time.perf_counter()
        tuned(pairs, Path(one), trials, None)
        alone = time.perf_counter() - start
        with Cluster() as cluster:
            cluster.wait()
            session = connect(cluster.address)
            for _ in range(nodes):
                cluster.add()
            cluster.settle()
            start = time.perf_counter()
            with Trouble(cluster, every) as trouble:
                results = tuned(pairs, Path(two), trials, cluster.address)
            troubled = time.perf_counter() - start
            session.close()
        texts = [exported(Path(folder) / "a.db") for folder in (one, two)]
    blamed = sum(
        isinstance(trial.outcome, Failure) and trial.outcome.reason in ("worker", "memory")
        for result in results
        for trial in result.trials
    )
    counts = [trouble.workers, trouble.nodes, blamed]
    print_table(
        ["run", "s", "trials", "workers killed", "nodes killed", "settings blamed"],
        [
            ["this process", alone, len(pairs) * trials, 0, 0, 0],
            ["cluster", troubled, sum(r.measured for r in results), *counts],
        ],
    )
    same = texts[0] == texts[1] and len(texts[0]) > 0
    print(f"exported best schedules ({len(texts[0]):,} bytes): {'the same' if same else 'DIFFER'}")
    return same


def main() -> None:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", type=int, default=len(MODELS))
    parser.add_argument("--targets", type=int, default=len(TARGETS))
    parser.add_argument("--trials", type=int, default=33, help="of each pair")
    parser.add_argument("--every", type=float, default=3.0, help="seconds between killed workers")
    options = parser.parse_args()
    if not compared(options.models, options.targets, options.trials, options.every):
        sys.exit(1)


if __name__ == "__main__":
    main()
