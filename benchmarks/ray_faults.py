"""Tune on a Ray cluster of several machines' processes while things go wrong; what each costs.

::

    python benchmarks/ray_faults.py                     # every fault
    python benchmarks/ray_faults.py "node killed" ...   # some

A search of 97 trials by a measurer of 50 ms on two nodes of one CPU each. The fault strikes at the
twentieth outcome, or spoils some of the settings. What every run finds is compared with a run in
this process without faults; the ratio is of seconds, to the run on the same cluster without faults.
The cut uses a network of the node's own where this user may make one, and stops the node's
processes otherwise.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from bench_tools import print_table
from ray_cluster import Cluster, Node, namespaces_allowed, wait_until
from ray_measurers import CLASSES, SIDES, lot, making, toy_graph, toy_target

from autoturbo.commands.stored_runs import resume
from autoturbo.schedule.knobs import Knobs
from autoturbo.search.executors.ray_session import connect
from autoturbo.simulator.measurement import Failure, Measurement
from autoturbo.tuning.result import TuneResult
from autoturbo.tuning.tuner import tune

TRIALS = 97
MEASURING_S = 0.05
STRIKES_AT = 20
_SPOILT = 5
"""The lot of settings that are spoilt: one of :data:`ray_measurers.SIDES`."""


@dataclass
class Ground:
    """A cluster with two nodes that measure, mended before every run.

    Attributes:
        cluster: Its processes.
        held: Objects that fill the object store.
    """

    cluster: Cluster
    held: list[Any] = field(default_factory=list)

    def mend(self, nodes: int = 2, *, apart: bool = False) -> None:
        """Keep as many nodes as wanted, all alive, the last behind a network that can be cut."""
        self.held.clear()
        cluster = self.cluster
        for node in [n for n in cluster.nodes if not n.pids or (n.namespace and not apart)]:
            cluster.remove(node)
        while len(cluster.nodes) > nodes - (apart and cluster.networked):
            cluster.remove(cluster.nodes[-1])
        while len(cluster.nodes) < nodes:
            last = len(cluster.nodes) == nodes - 1
            _ = (
                cluster.add_behind_network()
                if apart and last and cluster.networked
                else cluster.add()
            )
        cluster.settle()

    def measuring(self) -> Node:
        """Return a node that measures; the last one if several do."""
        wait_until(lambda: any(n.workers() for n in self.cluster.nodes), "a worker")
        return [n for n in self.cluster.nodes if n.workers()][-1]

    def kill_worker(self) -> None:
        """Kill a worker, as the system does that has no memory left."""
        os.kill(self.measuring().workers()[0], 9)

    def kill_node(self) -> None:
        """Kill a node, as if the power were cut."""
        self.cluster.remove(self.measuring())

    def cut(self) -> None:
        """Cut the last node off: nothing comes from it any more, and nobody is told."""
        self.cluster.cut(self.cluster.nodes[-1])

    def fill_store(self) -> None:
        """Store somebody else's objects, twice as large as the store that the models go to."""
        import numpy as np
        import ray

        for _ in range(6):
            self.held.append(ray.put(np.zeros(30 << 20, np.uint8)))


@dataclass(frozen=True)
class Fault:
    """What goes wrong.

    Attributes:
        strike: Done to the ground at the twentieth outcome.
        before: Done to it before the run.
        spoil: What spoilt settings do.
        timeout_s: For one measurement.
        nodes: At the beginning.
        apart: One of them behind a network that can be cut.
    """

    strike: Callable[[Ground], object] | None = None
    before: Callable[[Ground], object] | None = None
    spoil: str | None = None
    timeout_s: float | None = None
    nodes: int = 2
    apart: bool = False


FAULTS = {
    "none": Fault(),
    "worker killed": Fault(Ground.kill_worker),
    "node killed": Fault(Ground.kill_node),
    "node joins": Fault(lambda ground: ground.cluster.add(), nodes=1),
    "network cut": Fault(Ground.cut, apart=True),
    "object store full": Fault(before=Ground.fill_store),
    **{name: Fault(spoil=name, timeout_s=1.0 if name == "hangs" else None) for name in CLASSES},
}


def run(ground: Ground, fault: Fault, folder: str, trials: int = TRIALS) -> TuneResult:
    """Tune on the cluster while a fault strikes."""
    struck: list[int] = []

    def look(progress: Any) -> None:
        if fault.strike is not None and progress.done >= STRIKES_AT and not struck:
            struck.append(progress.done)
            fault.strike(ground)

    ground.mend(fault.nodes, apart=fault.apart)
    if fault.before is not None:
        fault.before(ground)
    return tune(
        toy_graph(), toy_target(), trials=trials, sampler="random", baselines=(),
        database=Path(folder) / "a.db", runs_folder=folder, ray=ground.cluster.address, jobs=0,
        timeout=fault.timeout_s, on_progress=look,
        evaluator=making(MEASURING_S, spoils={_SPOILT: fault.spoil} if fault.spoil else None,
                         ballast=bytes(20 << 20)),
    )  # fmt: skip


def alone(folder: str, trials: int = TRIALS) -> TuneResult:
    """Run the same search in this process, nothing spoilt and without waiting."""
    return tune(
        toy_graph(), toy_target(), trials=trials, sampler="random", baselines=(),
        database=Path(folder) / "alone.db", runs_folder=folder, evaluator=making(),
    )  # fmt: skip


def differences(found: TuneResult, reference: TuneResult, spoil: str | None = None) -> list[str]:
    """Return what is not as it should be: trials lost, other outcomes, another best."""
    wrong = []
    if found.measured != reference.measured:
        wrong.append(f"{found.measured} trials instead of {reference.measured}")
    for mine, theirs in zip(found.trials, reference.trials, strict=False):
        spoilt = spoil is not None and is_spoilt(mine.knobs)
        right = _failed_as(mine.outcome, str(spoil)) if spoilt else mine.outcome == theirs.outcome
        if mine.knobs != theirs.knobs:
            wrong.append(f"trial {mine.number} is another one")
        elif not right:
            wrong.append(f"trial {mine.number}: {mine.outcome}")
    kept = [t for t in reference.trials if spoil is None or not is_spoilt(t.knobs)]
    latencies = [(t.outcome.latency, t.number) for t in kept if isinstance(t.outcome, Measurement)]
    best = min(latencies)[1]
    if found.best.trial != best:
        wrong.append(f"best is trial {found.best.trial}, not {best}")
    return wrong


def is_spoilt(knobs: Knobs) -> bool:
    """Return whether a fault of the measurer shows on a setting."""
    return knobs != Knobs() and lot(knobs, SIDES) == _SPOILT


def _failed_as(outcome: object, spoil: str) -> bool:
    return isinstance(outcome, Failure) and outcome.reason == CLASSES[spoil]


_DRIVER = """
import sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from ray_measurers import making, toy_graph, toy_target
from autoturbo.tuning.tuner import tune

if __name__ == "__main__":
    tune(toy_graph(), toy_target(), trials=int(sys.argv[4]), sampler="random", baselines=(),
         database=Path(sys.argv[2]) / "a.db", runs_folder=sys.argv[2], ray=sys.argv[3], jobs=0,
         evaluator=making(float(sys.argv[5])), on_progress=lambda p: print(p.done, flush=True))
"""


def driver_killed(
    ground: Ground, folder: str, *, after: int = STRIKES_AT, trials: int = TRIALS
) -> tuple[TuneResult, int]:
    """Kill the tuner at an outcome, then resume; the result and how much was measured twice."""
    from autoturbo.database import Database

    ground.mend()
    script = Path(folder) / "driver.py"
    script.write_text(_DRIVER)
    command = [sys.executable, str(script), str(Path(__file__).parent), folder]
    command += [ground.cluster.address, str(trials), str(MEASURING_S)]
    told = 0
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as driver:  # noqa: S603
        for line in driver.stdout or ():
            with suppress(ValueError):
                told = int(line)
            if told >= after:
                break
        driver.kill()
    with Database.open(Path(folder) / "a.db") as store:
        (info,) = store.runs()
    result = resume(
        info.id, database=Path(folder) / "a.db", load_graph=lambda _: toy_graph(),
        ray=ground.cluster.address, jobs=0, evaluator=making(MEASURING_S),
    )  # fmt: skip
    return result, told - info.trials


def main() -> None:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    names = [*FAULTS, "driver killed"]
    parser.add_argument("fault", nargs="*", default=names, help=", ".join(names))
    parser.add_argument("--trials", type=int, default=TRIALS)
    options = parser.parse_args()
    os.environ["RAY_AUTH_MODE"] = "disabled"  # as the cluster's
    networked = namespaces_allowed()
    print(f"network cut: {'a network of its own' if networked else 'processes stopped (SIGSTOP)'}")
    rows = []
    with Cluster(networked=networked) as cluster:
        cluster.wait()
        session = connect(cluster.address)
        try:
            rows = _rows(Ground(cluster), options.fault, options.trials)
        finally:
            session.close()
    print_table(["fault", "s", "ratio", "failed", "same"], rows)
    if any(row[-1] != "yes" for row in rows):
        sys.exit(1)


def _rows(ground: Ground, names: list[str], trials: int) -> list[list[object]]:
    rows: list[list[object]] = []
    usual = 0.0
    for name in ["none", "none", *(n for n in names if n != "none")]:  # the first one warms up
        with tempfile.TemporaryDirectory() as folder:
            reference = alone(folder, trials)
            fault = FAULTS.get(name, Fault())
            ground.mend(fault.nodes, apart=fault.apart)
            start = time.perf_counter()
            if name in FAULTS:
                result, twice = run(ground, fault, folder, trials), 0
            else:
                result, twice = driver_killed(ground, folder, trials=trials)
            seconds = time.perf_counter() - start
            wrong = differences(result, reference, fault.spoil)
        reasons = Counter(t.outcome.reason for t in result.trials if isinstance(t.outcome, Failure))
        told = ", ".join(f"{reason} {count}" for reason, count in reasons.items())
        told += f"{twice} measured again" if twice else ""
        usual = seconds if name == "none" else usual
        rows.append([name, seconds, seconds / usual, told, "; ".join(wrong) or "yes"])
        print(*rows[-1], sep=" | ", file=sys.stderr, flush=True)
    return rows[1:]


if __name__ == "__main__":
    main()
