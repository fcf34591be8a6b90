"""Published tables and figures beside ours: GraphTurbo's evaluation, DLFusion, PartitionTuner.

::

    python benchmarks/paper_tables.py                  # all ten networks
    python benchmarks/paper_tables.py --models A,B     # some
    python benchmarks/paper_tables.py --tuners dlfusion,partition_tuner   # the two other tuners
    python benchmarks/paper_tables.py --json           # the same as one JSON object
    python benchmarks/paper_tables.py --plots          # and Figures 14 to 16 as a picture

Of GraphTurbo, on stcp920 in FP16, prints Tables 1 to 4 and Figures 14 to 16, means with and
without the rows that the paper's own figures make impossible, and says which and why. All figures
are the simulator's and deterministic, but for the seconds of Table 4. Of DLFusion (mlu100) and
PartitionTuner (zcu102-vta), what their abstracts state; ``docs/units.md`` says how to read it.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench_tools import print_table
from other_tuners import (
    dlfusion_rows,
    partition_tuner_rows,
    print_dlfusion,
    print_partition_tuner,
)
from paper_numbers import BERT_BATCHES, ROWS, USE, PaperRow
from paper_plots import Rows, draw

import autoturbo
from autoturbo.datasets import workloads
from autoturbo.hardware.target import Target
from autoturbo.schedule.by_name import candidates
from autoturbo.simulator.evaluator import Evaluator
from autoturbo.simulator.measurement import Measurement

PICTURE = Path(__file__).resolve().parents[1] / "docs" / "paper-figures.svg"
"""The picture of the page."""

LADDER = ("gb_outputs", "lb_outputs", "instance_order", "graphturbo")
"""Our schedulers for the bars of Fig. 15."""

SYSTEMS = ("tvm", "astitch", *LADDER)
DOUBTFUL = 0.2
"""TVM below this share of what DDR allows is probably not TVM on this network."""


@dataclass(frozen=True)
class Ours:
    """One network measured.

    Attributes:
        row: The paper's.
        target: The chip.
        found: Per scheduler, what it measures by batches per cluster.
        seconds: Per scheduler, to build and measure all of them.
    """

    row: PaperRow
    target: Target
    found: dict[str, dict[int, Measurement]] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)

    def best(self, scheduler: str) -> tuple[int, Measurement]:
        """Return the batches per cluster that a scheduler is fastest with, and what it measures."""
        return min(self.found[scheduler].items(), key=lambda item: item[1].latency)

    def at(self, scheduler: str, batches: int) -> Measurement:
        """Return what it measures with some batches per cluster, or with its best without these."""
        return self.found[scheduler].get(batches, self.best(scheduler)[1])

    def over_tvm(self, found: Measurement) -> float:
        """Return the speed-up over TVM at its best."""
        return self.best("tvm")[1].latency / found.latency

    @property
    def tvm_limit(self) -> float:
        """Return the samples per second with which TVM's kernels would use all of DDR."""
        moved = self.at("tvm", self.row.tvm_batches)
        return self.target.ddr.bandwidth * (moved.batch or 1) / moved.ddr_bytes

    @property
    def peak(self) -> float:
        """Return the samples per second with all matrix engines busy all the time."""
        found = self.best("graphturbo")[1]
        return (found.batch or 1) / found.bound.matrix_s

    @property
    def impossible(self) -> list[str]:
        """Return why the paper's figures cannot be those of this network on this chip."""
        tvm, graphturbo = self.row.tvm, self.row.graphturbo
        reasons = []
        if tvm > self.tvm_limit:
            reasons.append(f"TVM's {tvm:,.0f}/s need more than DDR gives ({self.tvm_limit:,.0f}/s)")
        if graphturbo > self.peak:
            share = graphturbo / self.peak
            reasons.append(f"GraphTurbo's {graphturbo:,.0f}/s are {share:.0%} of peak")
        return reasons

    @property
    def doubtful(self) -> list[str]:
        """Return why they are possible, but hardly those of TVM on this network."""
        share = self.row.tvm / self.tvm_limit
        known = [f"TVM's {self.row.tvm:,.0f}/s are {share:.0%} of what DDR allows"]
        return known if share < DOUBTFUL else []


def measured(row: PaperRow, target: Target) -> Ours:
    """Measure all schedulers of the comparison on one network."""
    ours = Ours(row, target)
    evaluator = evaluator_of(row.workload, target)
    for name in SYSTEMS:
        start = time.perf_counter()
        ours.found[name] = by_batches(evaluator, name)
        ours.seconds[name] = time.perf_counter() - start
    return ours


def evaluator_of(workload: str, target: Target, batch: int | None = None) -> Evaluator:
    """Return the evaluator of a bundled workload on a target in FP16."""
    graph = autoturbo.load_model(workloads.get(workload).file, batch=batch)
    return Evaluator(graph, target, "float16")


def by_batches(evaluator: Evaluator, scheduler: str) -> dict[int, Measurement]:
    """Measure every candidate of a scheduler; return those that fit by batches per cluster."""
    tried = [
        (s.share.batches, evaluator.measure(s))
        for s in candidates(scheduler, evaluator.model_scheduler)
    ]
    return {batches: found for batches, found in tried if isinstance(found, Measurement)}


# ------------------------------------------------------------------------------------------- means


def means(values: Sequence[float]) -> tuple[float, float]:
    """Return the arithmetic and the geometric mean; nan for none."""
    if not values:
        return math.nan, math.nan
    return sum(values) / len(values), math.exp(sum(map(math.log, values)) / len(values))


def subsets(all_ours: Sequence[Ours]) -> list[tuple[str, list[Ours]]]:
    """Return the rows that means are taken over, with their names."""
    possible = [ours for ours in all_ours if not ours.impossible]
    sure = [ours for ours in possible if not ours.doubtful]
    named = [("all", list(all_ours)), ("possible", possible), ("credible", sure)]
    return [(name, rows) for name, rows in named if rows]


Pair = Callable[[Ours], "tuple[float, float] | None"]
"""The paper's figure and ours for a network."""


def mean_rows(all_ours: Sequence[Ours], columns: Sequence[Pair]) -> list[list[object]]:
    """Return both means of the paper's and of our figures, for each subset of rows."""
    lines: list[list[object]] = []
    for name, rows in subsets(all_ours):
        pairs = [[p for p in map(column, rows) if p is not None] for column in columns]
        for kind, label in enumerate(("arith.", "geom.")):
            line: list[object] = [f"{label} mean, {name} ({''.join(o.row.letter for o in rows)})"]
            for column in pairs:
                line += [means([p[side] for p in column])[kind] for side in (0, 1)]
            lines.append(line)
    return lines


# ------------------------------------------------------------------------------------------ tables


def table_2(all_ours: Sequence[Ours]) -> list[dict[str, Any]]:
    """Return throughput and batches per cluster with TVM and GraphTurbo."""
    return [
        {
            "model": f"{ours.row.letter} {ours.row.workload}",
            "batch": ours.best("tvm")[1].batch,
            "paper_batches": (ours.row.tvm_batches, ours.row.batches),
            "batches": (ours.best("tvm")[0], ours.best("graphturbo")[0]),
            "tvm": (ours.row.tvm, ours.best("tvm")[1].throughput),
            "graphturbo": (ours.row.graphturbo, ours.best("graphturbo")[1].throughput),
            "same_batches": ours.at("graphturbo", ours.row.batches).throughput,
            "impossible": ours.impossible,
            "doubtful": ours.doubtful,
        }
        for ours in all_ours
    ]


def print_table_2(all_ours: Sequence[Ours]) -> None:
    """Print Table 2 with the speed-up of Fig. 14, then what is wrong with the paper's rows."""
    heading("Table 2: samples per second; batches per cluster of TVM -> GraphTurbo")
    head = (
        "model", "batch", "p. b/cl", "ours", "p. TVM", "ours", "ratio", "p. GT", "ours", "ratio",
        "at p. b/cl", "ratio",
    )  # fmt: skip
    lines = []
    for row in table_2(all_ours):
        line = [row["model"], row["batch"], *map(_arrow, (row["paper_batches"], row["batches"]))]
        for paper, found in (row["tvm"], row["graphturbo"]):
            line += [f"{paper:,.0f}", f"{found:,.0f}", f"{found / paper:.2f}"]
        same = row["same_batches"]
        lines.append([*line, f"{same:,.0f}", f"{same / row['graphturbo'][0]:.2f}"])
    print_table(head, lines)
    for ours in all_ours:
        for verdict, reasons in (("impossible", ours.impossible), ("doubtful", ours.doubtful)):
            for reason in reasons:
                print(f"{ours.row.letter} {verdict}: {reason}")


def _arrow(pair: tuple[int, int]) -> str:
    return f"{pair[0]}->{pair[1]}"


def table_1(target: Target) -> list[dict[str, Any]]:
    """Return BERT-128 at the paper's batches: paper and ours at the same ones, and at the best."""
    evaluators = {b: evaluator_of("bert_base_s128", target, b) for _, b, *_ in BERT_BATCHES}
    rows = []
    for system, batch, loops, batches, paper in BERT_BATCHES:
        found = by_batches(evaluators[batch], system)
        rows.append({
            "system": system, "batch": batch, "iterations": loops, "batches": batches,
            "paper": paper, "ours": found[batches].throughput if batches in found else None,
            "best": max(m.throughput or 0.0 for m in found.values()),
        })  # fmt: skip
    return rows


def print_table_1(target: Target) -> None:
    """Print Table 1."""
    heading("Table 1: BERT-128, sentences per second")
    head = (
        "system",
        "batch",
        "iterations",
        "batches/cluster",
        "paper",
        "ours",
        "ours, best batches",
    )
    print_table(
        head,
        [
            [r["system"], r["batch"], r["iterations"], r["batches"], r["paper"],
             "-" if r["ours"] is None else f"{r['ours']:.0f}", f"{r['best']:.0f}"]
            for r in table_1(target)
        ],
    )  # fmt: skip


def table_3(all_ours: Sequence[Ours]) -> list[dict[str, Any]]:
    """Count tensors per scope (DDR, GB, LB): TVM's kernels write DDR only, one number says it."""
    return [
        {
            "model": f"{ours.row.letter} {ours.row.workload}",
            "tvm": (ours.row.tvm_scopes[0], ours.best("tvm")[1].tensors["DDR"]),
            "paper": ours.row.scopes,
            "ours": scopes_of(ours.at("graphturbo", ours.row.batches)),
        }
        for ours in all_ours
    ]


def scopes_of(found: Measurement) -> tuple[int, int, int]:
    """Return the tensors in DDR, GB and LB."""
    return found.tensors["DDR"], found.tensors["GB"], found.tensors["LB"]


def print_table_3(all_ours: Sequence[Ours]) -> None:
    """Print Table 3."""
    heading("Table 3: tensors in DDR with TVM; in DDR/LLB/L1 with GraphTurbo at Table 2's batches")
    head = ("model", "paper TVM", "ours", "ratio", "paper GT", "ours")
    lines = [
        [r["model"], *r["tvm"], f"{r['tvm'][1] / r['tvm'][0]:.2f}", _slashes(r["paper"]),
         _slashes(r["ours"])]
        for r in table_3(all_ours)
    ]  # fmt: skip
    print_table(head, lines)


def _slashes(numbers: Iterable[int]) -> str:
    return "/".join(map(str, numbers))


def print_table_4(all_ours: Sequence[Ours]) -> None:
    """Print Table 4: ours builds and simulates schedules, the paper's compilers also make code."""
    heading("Table 4: seconds to compile (paper); to schedule and simulate at every batch (ours)")
    head = ("model", "p. TVM", "ours", "p. AStitch", "ours", "p. GT", "ours")
    lines = []
    for ours in all_ours:
        line: list[object] = [f"{ours.row.letter} {ours.row.workload}"]
        for paper, name in zip(ours.row.seconds, ("tvm", "astitch", "graphturbo"), strict=True):
            line += [paper, f"{ours.seconds[name]:.2f}"]
        lines.append(line)
    print_table(head, lines)


# ----------------------------------------------------------------------------------------- figures


def astitch_pair(*, own: bool) -> Pair:
    """Return Fig. 14, AStitch over TVM: at its own best batches, or at Table 2's for GraphTurbo."""

    def pair(ours: Ours) -> tuple[float, float] | None:
        if ours.row.astitch is None:
            return None
        found = ours.best("astitch")[1] if own else ours.at("astitch", ours.row.batches)
        return ours.row.astitch, ours.over_tvm(found)

    return pair


def graphturbo_pair(ours: Ours) -> tuple[float, float] | None:
    """Return Fig. 14, GraphTurbo over TVM."""
    return ours.row.ablation[-1], ours.over_tvm(ours.best("graphturbo")[1])


def rung_pair(rung: int, *, own: bool) -> Pair:
    """Return Fig. 15, a rung over TVM: at its own best batches, or at Table 2's for GraphTurbo."""

    def pair(ours: Ours) -> tuple[float, float]:
        name = LADDER[rung]
        found = ours.best(name)[1] if own else ours.at(name, ours.row.batches)
        return ours.row.ablation[rung], ours.over_tvm(found)

    return pair


def step_pair(rung: int, *, own: bool) -> Pair:
    """Return a function for what a rung gains over the one below it."""
    upper, lower = rung_pair(rung, own=own), rung_pair(rung - 1, own=own)

    def pair(ours: Ours) -> tuple[float, float] | None:
        high, low = upper(ours), lower(ours)
        return None if high is None or low is None else (high[0] / low[0], high[1] / low[1])

    return pair


FIGURE_14: dict[str, Pair] = {
    "AStitch": astitch_pair(own=True),
    "AStitch, T2": astitch_pair(own=False),
    "GT": graphturbo_pair,
    "GT, T2": rung_pair(3, own=False),
}
"""Columns of Fig. 14; ``T2`` is at the batches per cluster of Table 2."""


def figure_15(*, own: bool) -> dict[str, Pair]:
    """Return the columns of the ablation: rungs, then the gains of the last two."""
    rungs = {name: rung_pair(i, own=own) for i, name in enumerate(("LLB", "L1", "order", "insn"))}
    return {**rungs, "+order": step_pair(2, own=own), "+insn": step_pair(3, own=own)}


def print_figure(title: str, all_ours: Sequence[Ours], columns: dict[str, Pair]) -> None:
    """Print the paper's and our figure of each column, then the means."""
    heading(title)
    head = ["model", *(cell for name in columns for cell in (f"p. {name}", "ours"))]
    lines: list[list[object]] = []
    for ours in all_ours:
        line: list[object] = [f"{ours.row.letter} {ours.row.workload}"]
        for column in columns.values():
            line += column(ours) or (math.nan, math.nan)
        lines.append(line)
    lines += mean_rows(all_ours, list(columns.values()))
    print_table(head, [[_number(cell) for cell in line] for line in lines])


def _number(cell: object) -> str:
    if not isinstance(cell, float):
        return str(cell)
    return "-" if math.isnan(cell) else f"{cell:.2f}"


def figure_16(all_ours: Sequence[Ours]) -> list[dict[str, Any]]:
    """Return how busy the vector and the matrix engine are, in per cent of the time, by batches."""
    return [
        {"model": f"{ours.row.letter} {ours.row.workload}", "batches": batches,
         "paper": paper, "ours": use_of(ours.found["graphturbo"][batches])}
        for ours in all_ours
        for batches, paper in USE.get(ours.row.workload, {}).items()
        if batches in ours.found["graphturbo"]
    ]  # fmt: skip


def use_of(found: Measurement) -> tuple[float, float]:
    """Return how busy the vector and the matrix engine are, in per cent of the time."""
    busy = found.busy["vector"], found.busy["matrix"]
    return 100 * busy[0] / found.latency, 100 * busy[1] / found.latency


def print_figure_16(all_ours: Sequence[Ours]) -> None:
    """Print Fig. 16."""
    rows = figure_16(all_ours)
    if rows:
        heading("Figure 16: per cent of the time that GraphTurbo keeps the engines busy")
        head = ("model", "batches/cluster", "p. vector", "ours", "p. matrix", "ours")
        lines = [
            [r["model"], r["batches"], r["paper"][0], f"{r['ours'][0]:.0f}", r["paper"][1],
             f"{r['ours'][1]:.0f}"]
            for r in rows
        ]  # fmt: skip
        print_table(head, lines)


# --------------------------------------------------------------------------------------- the whole


def heading(text: str) -> None:
    """Print a title with an empty line before it."""
    print(f"\n{text}")


TUNERS: dict[str, tuple[Callable[[], list[dict[str, Any]]], Callable[[Any], None]]] = {
    "dlfusion": (dlfusion_rows, print_dlfusion),
    "partition_tuner": (partition_tuner_rows, print_partition_tuner),
}
"""The other tuners: what gives their rows, and what prints them."""


def as_json(all_ours: Sequence[Ours], target: Target) -> dict[str, Any]:
    """Return everything that is printed of GraphTurbo, as plain values."""
    figures = {
        "figure_14": FIGURE_14,
        "figure_15": figure_15(own=True),
        "figure_15_table_2_batches": figure_15(own=False),
    }
    return {
        "table_1": table_1(target),
        "table_2": table_2(all_ours),
        "table_3": table_3(all_ours),
        "table_4": [
            {"model": o.row.workload, "paper": o.row.seconds, "ours": o.seconds} for o in all_ours
        ],
        **{name: _figure_json(all_ours, columns) for name, columns in figures.items()},
        "figure_16": figure_16(all_ours),
    }  # fmt: skip


def _figure_json(all_ours: Sequence[Ours], columns: dict[str, Pair]) -> dict[str, Any]:
    rows = {o.row.workload: {name: column(o) for name, column in columns.items()} for o in all_ours}
    averages = {
        str(line[0]): [None if math.isnan(float(str(cell))) else cell for cell in line[1:]]
        for line in mean_rows(all_ours, list(columns.values()))
    }
    return {"columns": list(columns), "rows": rows, "means": averages}


def plot(all_ours: Sequence[Ours], file: Path) -> None:
    """Draw Figures 14 to 16, each system at its own best batches."""

    def rows(columns: Mapping[str, Pair]) -> Rows:
        return {
            ours.row.workload: {name: column(ours) for name, column in columns.items()}
            for ours in all_ours
        }

    draw(rows(FIGURE_14), rows(figure_15(own=True)), figure_16(all_ours), file)
    print(f"wrote {file}", file=sys.stderr)


def report(all_ours: Sequence[Ours], target: Target) -> None:
    """Print all tables and figures of GraphTurbo."""
    print(f"{target.name}, float16; p. is the paper's figure, or read from its drawing")
    print_table_1(target)
    print_table_2(all_ours)
    print_table_3(all_ours)
    print_table_4(all_ours)
    print_figure("Figure 14: speed-up over TVM (T2: at Table 2's batches)", all_ours, FIGURE_14)
    title = "Figure 15: speed-up over TVM, step by step;"
    print_figure(f"{title} each at its own best batches", all_ours, figure_15(own=True))
    print_figure(f"{title} all at Table 2's batches", all_ours, figure_15(own=False))
    print_figure_16(all_ours)


def chosen_rows(letters: str) -> list[PaperRow]:
    """Return GraphTurbo's rows with some letters, all of them for an empty text.

    Raises:
        SystemExit: There is no such row.
    """
    wanted = [letter.strip().upper() for letter in letters.split(",") if letter.strip()]
    unknown = sorted(set(wanted) - {row.letter for row in ROWS})
    if unknown:
        sys.exit(f"error: --models: no row {', '.join(unknown)}; they are A to J")
    return [row for row in ROWS if not wanted or row.letter in wanted]


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--models", default="", help="letters of rows, with commas (default: all)")
    text = "only these of dlfusion and partition_tuner, with commas (default: all, with GraphTurbo)"
    parser.add_argument("--tuners", default="", help=text)
    parser.add_argument("--json", action="store_true", help="one JSON object")
    text = "also draw Figures 14 to 16: .svg, .png or .pdf (default: docs/paper-figures.svg)"
    parser.add_argument("--plots", metavar="FILE", nargs="?", type=Path, const=PICTURE, help=text)
    options = parser.parse_args(arguments)
    values: dict[str, Any] = {}
    if options.models or not options.tuners:
        target = autoturbo.load_target("stcp920")
        all_ours = [measured(row, target) for row in chosen_rows(options.models)]
        if options.plots:
            plot(all_ours, options.plots)
        if options.json:
            values |= as_json(all_ours, target)
        else:
            report(all_ours, target)
    for name in chosen_tuners(options.tuners, everything=not options.models):
        rows_of, show = TUNERS[name]
        values[name] = rows_of()
        if not options.json:
            show(values[name])
    if options.json:
        print(json.dumps(values))


def chosen_tuners(names: str, *, everything: bool) -> list[str]:
    """Return tuners by name; where none is named all of them, or none.

    Raises:
        SystemExit: There is no such tuner.
    """
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    unknown = sorted(set(wanted) - set(TUNERS))
    if unknown:
        sys.exit(f"error: --tuners: no {', '.join(unknown)}; they are {', '.join(TUNERS)}")
    return wanted or (list(TUNERS) if everything else [])


if __name__ == "__main__":
    main()
