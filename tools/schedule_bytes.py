"""Hashes of schedules and of a short search, one a line: the same wherever the package is right.

Run by the interpreter whose packages are to be compared with others' (``tools/full_tier.py``).
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import autoturbo
from autoturbo.datasets import workloads
from autoturbo.registry import SCHEDULERS
from autoturbo.simulator.evaluator import Evaluator

if TYPE_CHECKING:
    from collections.abc import Iterator

PAIRS = (
    ("squeezenet1_1", "stcp920"),
    ("mobilenet_v2", "goya"),
    ("bert_base_s128", "tpu-v4i"),
    ("dlrm", "ipu-mk2"),
)
"""Networks of several kinds, each on another kind of accelerator."""

TUNED = (("resnet18", "stcp920", "cost-model", 33), ("dlrm", "mlu100", "tpe", 9))
"""Searches: model, target, sampler, trials. Ours learns trees from its first round on."""


def texts() -> Iterator[tuple[str, str]]:
    """Yield schedules of every scheduler for every pair, and what searches hand out."""
    for name, target_name in PAIRS:
        graph = autoturbo.load_model(str(workloads.get(name).file))
        target = autoturbo.load_target(target_name)
        evaluator = Evaluator(graph, target, target.default_dtype)
        for scheduler in SCHEDULERS.names():
            schedule, _ = evaluator.scheduler(scheduler)
            yield f"{name} @ {target_name}: {scheduler}", schedule.text
    for name, target_name, sampler, trials in TUNED:
        yield f"{name} @ {target_name}: {sampler}", _tuned(name, target_name, sampler, trials)


def _tuned(name: str, target: str, sampler: str, trials: int) -> str:
    """Return all trials of a search with their outcomes, and the schedule that it hands out."""
    with TemporaryDirectory() as folder:
        result = autoturbo.tune(
            autoturbo.load_model(str(workloads.get(name).file)), autoturbo.load_target(target),
            trials=trials, sampler=sampler, database=Path(folder) / "tuned.db",
            runs_folder=Path(folder) / "runs", verify=sampler == "cost-model",
        )  # fmt: skip
        story = [(t.number, t.knobs.as_dict(), repr(t.outcome)) for t in result.trials]
        return json.dumps([story, result.schedule_file.read_text()])


def main() -> None:
    """Print a hash and a name a line."""
    for name, text in texts():
        print(hashlib.sha256(text.encode()).hexdigest()[:16], name, flush=True)


if __name__ == "__main__":
    main()
