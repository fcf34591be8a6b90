"""What tuning gains on this computer: ``python benchmarks/host.py``.

Every workload is tuned as ``autoturbo tune --target host`` does it, and compared with the whole
batch and the best loop in a process of its own, as ``autoturbo bench`` does it: nothing of the
search is in these figures. They are measured, so they differ from computer to computer and from run
to run: leave it idle.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from tempfile import TemporaryDirectory
from typing import Any

from bench_tools import in_fresh_process, print_table

from autoturbo.host.cpu import this_cpu
from autoturbo.host.runner import runtime_version

WORKLOADS = ("mobilenet_v2:32", "densenet121:32", "efficientnet_b0:32", "bert_base_s128:16",
             "resnet50:16")  # fmt: skip
"""Names with their batches."""

PLANS = ("whole batch", "best loop", "tuned")


def main() -> int:
    """Tune, compare, print; 1 where a plan is slower than a baseline beyond the confidence."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--workloads", default=",".join(WORKLOADS))
    parser.add_argument("--trials", type=int, default=48)
    options = parser.parse_args()
    cpu = this_cpu()
    print(f"{cpu.name}, {cpu.cores} cores, {runtime_version()}")
    found = [bench(name, options.trials) for name in options.workloads.split(",")]
    header = ["workload (batch)", *(f"{plan}, ms" for plan in PLANS), "handed out"]
    over = ["over the whole batch", "over the best loop", "A/A"]
    print_table([*header, *over], map(row, found))
    return int(any(gain["high"] < 1 for one in found for gain in one["gains"].values()))


def bench(workload: str, trials: int) -> Mapping[str, Any]:
    """Return what ``bench`` prints of a workload that was tuned in another process."""
    name, _, batch = workload.partition(":")
    command = ("-m", "autoturbo", "--json", "-q")
    with TemporaryDirectory() as folder:
        where, kept = ("--runs-folder", folder), ("--db", f"{folder}/runs.db")
        tune = (*command, "tune", name, "--batch", batch, "--target", "host", *where)
        tuned = in_fresh_process(*tune, "--trials", str(trials), *kept)
        found = in_fresh_process(*command, "bench", tuned["run"], *where)
    print(name, {plan: one["plan"] for plan, one in found["plans"].items()}, file=sys.stderr)
    return found


def row(found: Mapping[str, Any]) -> list[str]:
    """Return the row of a workload."""
    known = found["plans"]  # a plan that is equal to a simpler one is not among them
    times = [f"{1e3 * known[plan]['seconds']:.1f}" if plan in known else "-" for plan in PLANS]
    gains = [interval(found["gains"].get(base)) for base in PLANS[:2]]
    name = f"{found['model']} ({found['batch']})"
    return [name, *times, found["chosen"], *gains, interval(found["noise"])]


def interval(gain: Mapping[str, float] | None) -> str:
    """Return a gain with its interval; a dash where there is none."""
    return "{ratio:.2f} ({low:.2f} to {high:.2f})".format(**gain) if gain else "-"


if __name__ == "__main__":
    sys.exit(main())
