"""The paper's case study on a GPU (section 5.6): ``python -m autoturbo_gpu.case_study``.

Tunes each model on this computer's card, then runs what it is compared with in turn, and prints
the paper's table beside the one that was measured. With ``--rehearse`` everything but the times is
gone through at small sizes on the CPU, in Triton's interpreter.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from autoturbo.api import load_model, load_schedule, load_target, tune
from autoturbo.plugin import Knobs, ModelScheduler, Schedule, build_schedule
from autoturbo_gpu import models, targets
from autoturbo_gpu.card import obstacle

PAPER_MS = {
    "a kernel per layer": {64: 0.99, 128: 1.88, 256: 3.51, 512: 6.76},
    "pairs": {64: 0.84, 128: 1.62, 256: 3.04, 512: 5.83},
    "sub-graphs": {64: 0.83, 128: 1.50, 256: 2.83, 512: 5.44},
}
"""Milliseconds on an A100: TVM, CUTLASS with convolutions fused, GraphTurbo (section 5.6)."""

CARDS = {"A100": targets.a100, "H100": targets.h100, "H200": targets.h200}
"""Descriptions by what is in a card's name."""

BLOCKS_BATCH = 32
"""Samples of BERT's blocks."""

LEAST_REPEATS = 50

WARM_UP = 3
"""Turns that are not counted."""

ERROR = 0.05
"""Probability that a median lies outside its interval."""

CLOSE = 2e-2
"""Largest difference from PyTorch's outputs, over the largest of these, in FP16."""

SMALL: Mapping[str, Mapping[str, int]] = {
    "bert-feed-forward": {"tokens": 16, "width": 32, "inner": 64},
    "bert-attention": {"tokens": 16, "width": 32, "heads": 2},
}
"""Sizes of BERT's blocks in a rehearsal."""


@dataclass(frozen=True)
class Timed:
    """What a row took.

    Attributes:
        name: Of the row.
        median_s: Of its runs.
        low_s: Lower end of the median's interval at 95 % confidence.
        high_s: Upper end.
        error: Largest difference from PyTorch's outputs over the largest of these.
        launches: Kernels and operators of a run; 0 where that is not counted.
    """

    name: str
    median_s: float
    low_s: float
    high_s: float
    error: float
    launches: int = 0


@dataclass
class Study:
    """Everything that was measured of one model at one batch.

    Attributes:
        model: Its name.
        batch: Samples.
        rows: What each row took.
        profile: Seconds of each launch of the tuned schedule, alone.
        before: Conditions of the card before the runs.
        after: Conditions after them.
    """

    model: str
    batch: int
    rows: list[Timed]
    profile: list[tuple[str, float]] = field(default_factory=list)
    before: str = ""
    after: str = ""

    def seconds(self, name: str) -> float:
        """Return the median of a row."""
        return next(row.median_s for row in self.rows if row.name == name)


def median_interval(taken: Sequence[float]) -> tuple[float, float]:
    """Return the interval of the median at 95 % confidence, between two of the sorted figures.

    Whatever the distribution, the number of figures below the median is binomial.
    """
    ordered, count = sorted(taken), len(taken)
    below, rank = 0.0, 0
    while rank < count // 2:
        below += math.comb(count, rank) / 2.0**count
        if below > ERROR / 2:
            break
        rank += 1
    rank = max(rank - 1, 0)
    return ordered[rank], ordered[count - 1 - rank]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the case study; return 2 where there is no GPU."""
    options = _options().parse_args(arguments)
    if options.rehearse:
        os.environ["TRITON_INTERPRET"] = "1"  # before Triton is loaded
    if found := obstacle(interpreted=options.rehearse):
        without = "" if options.rehearse else "; --rehearse goes without a card"
        print(f"error: {found}{without}", file=sys.stderr)
        return 2
    if options.rehearse:
        with tempfile.TemporaryDirectory() as folder:
            for name in models.MODELS:
                _rehearse(name, Path(folder))
        return 0
    import torch

    card = torch.cuda.get_device_name()
    target = next((made() for name, made in CARDS.items() if name in card), targets.h100())
    print(f"{card}, described by {target.name}; FP16 with FP32 sums, CUDA graphs")
    studies = list(_studies(options, target))
    print(table(studies))
    if options.out:
        options.out.write_text(json.dumps([asdict(study) for study in studies], indent=1) + "\n")
    return 0


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="autoturbo_gpu.case_study", description=__doc__)
    parser.add_argument("--batches", type=_counts, default=[64, 128, 256, 512])
    parser.add_argument("--seconds", type=float, default=200.0, help="of all searches together")
    parser.add_argument("--repeats", type=int, default=LEAST_REPEATS)
    parser.add_argument("--cold", action="store_true", help="empty the L2 cache before each run")
    parser.add_argument("--compiled", action="store_true", help="with PyTorch's compiler")
    parser.add_argument("--rehearse", action="store_true", help="small, on the CPU, without times")
    parser.add_argument("--out", type=Path, help="a JSON file of all that was measured")
    return parser


def _counts(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def _studies(options: argparse.Namespace, target: Path) -> Iterator[Study]:
    asked = [("resnet18-tailor", batch) for batch in options.batches]
    asked += [("bert-feed-forward", BLOCKS_BATCH), ("bert-attention", BLOCKS_BATCH)]
    with tempfile.TemporaryDirectory() as folder:
        for name, batch in asked:
            began = time.monotonic()
            study = _study(name, batch, target, Path(folder), options, len(asked))
            print(f"{name}, batch {batch}: {time.monotonic() - began:.0f} s", file=sys.stderr)
            yield study


def _study(
    name: str, batch: int, target: Path, folder: Path, options: argparse.Namespace, shares: int
) -> Study:
    """Tune a model, run all rows in turn, and check their numbers."""
    from autoturbo_gpu import baselines, timing
    from autoturbo_gpu.plan import plan_of
    from autoturbo_gpu.program import Program, seconds_of_launches

    path = folder / f"{name}-{batch}.onnx"
    models.save(name, batch, path)
    model, chip = load_model(path), load_target(target)
    found = tune(
        model, chip, measurer="cuda", trials=200, time_budget=options.seconds / shares, jobs=1,
        database=folder / "studies.db", runs_folder=folder / "runs", baselines=(), progress=False,
    )  # fmt: skip
    tuned = load_schedule(found.schedule_file, model, chip)
    left_out = () if options.compiled else (baselines.COMPILED,)
    rows = baselines.rows_of(ModelScheduler(model, chip, "float16"), tuned, "cuda", left_out)
    errors = errors_of(rows, models.inputs_of(path))
    flush = timing.Flush() if options.cold else (lambda: None)
    before = timing.conditions()
    taken: dict[str, list[float]] = {row.name: [] for row in rows}
    for turn in range(max(options.repeats, LEAST_REPEATS) + WARM_UP):
        for row in rows if turn % 2 else rows[::-1]:
            (one,) = timing.seconds(row.run, 1, flush)
            if turn >= WARM_UP:
                taken[row.name].append(one)
    timed = [
        Timed(row.name, statistics.median(taken[row.name]), *median_interval(taken[row.name]),
              errors[row.name], row.launches)
        for row in rows
    ]  # fmt: skip
    profile = seconds_of_launches(Program(plan_of(tuned), "cuda"))
    return Study(name, batch, timed, profile, str(before), str(timing.conditions()))


def errors_of(rows: Sequence[Any], inputs: Mapping[str, NDArray[Any]]) -> dict[str, float]:
    """Return how far each row's outputs are from PyTorch's, over the largest of these.

    Raises:
        SystemExit: One is not close.
    """
    from autoturbo_gpu.baselines import EAGER

    answers = {row.name: row.answer(inputs) for row in rows}
    right = answers[EAGER]
    errors = {
        name: max(
            float(np.abs(out - right[key]).max() / np.abs(right[key]).max())
            for key, out in answer.items()
        )
        for name, answer in answers.items()
    }
    for name, error in errors.items():
        if not error < CLOSE:
            raise SystemExit(f"error: {name}: outputs differ by {error:.3g} from PyTorch's")
    return errors


def _rehearse(name: str, folder: Path) -> None:
    """Go through all rows of a small model on the CPU, and print how far they agree."""
    from autoturbo_gpu import baselines

    path = folder / f"{name}.onnx"
    if name in SMALL:
        onnx.save(models.MODELS[name](2, **SMALL[name]), path)
    else:
        onnx.save(models.tailored_resnet18(2, side=16, channels=(16, 16, 32, 32)), path)
    model, chip = load_model(path), load_target(targets.h100())
    scheduler = ModelScheduler(model, chip, "float16")
    schedule: Schedule = build_schedule(scheduler, Knobs())
    rows = baselines.rows_of(scheduler, schedule, "cpu", (baselines.COMPILED,))
    for row, error in errors_of(rows, models.inputs_of(path)).items():
        print(f"{name}, batch 2: {row}: within {error:.1e} of PyTorch (interpreter, no times)")


def table(studies: Sequence[Study]) -> str:
    """Return the paper's table and the one that was measured, as Markdown."""
    from autoturbo_gpu.baselines import PAIRS, PER_LAYER, SUBGRAPHS

    lines = ["", "ResNet18-Tailor in the paper (A100, ms):", ""]
    batches = list(PAPER_MS["pairs"])
    lines += ["| | " + " | ".join(f"batch {b}" for b in batches) + " |", "|---" * 5 + "|"]
    lines += [
        f"| {name} | " + " | ".join(f"{ms[b]:.2f}" for b in batches) + " |"
        for name, ms in PAPER_MS.items()
    ]
    for model in dict.fromkeys(study.model for study in studies):
        own = [study for study in studies if study.model == model]
        lines += ["", f"{model}, measured (ms, medians with 95 % intervals):", ""]
        lines += ["| | " + " | ".join(f"batch {one.batch}" for one in own) + " |"]
        lines += ["|---" * (len(own) + 1) + "|"]
        for number, row in enumerate(own[0].rows):
            figures = (_figure(one.rows[number]) for one in own)
            lines.append(f"| {row.name} | " + " | ".join(figures) + " |")
        for base in (PER_LAYER, PAIRS):
            ratios = [one.seconds(base) / one.seconds(SUBGRAPHS) for one in own]
            mean = statistics.geometric_mean(ratios)
            each = ", ".join(f"{ratio:.2f}" for ratio in ratios)
            lines.append(f"\nsub-graphs over '{base}': {each}; geometric mean {mean:.2f}")
        for one in own:
            lines += [f"\nbatch {one.batch}: before {one.before}; after {one.after}"]
            lines += [f"- {seconds * 1e3:.3f} ms {name}" for name, seconds in one.profile]
    return "\n".join(lines)


def _figure(row: Timed) -> str:
    return f"{row.median_s * 1e3:.3f} ({row.low_s * 1e3:.3f} to {row.high_s * 1e3:.3f})"


if __name__ == "__main__":
    raise SystemExit(main())
