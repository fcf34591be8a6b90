"""Figures 14 to 16 of GraphTurbo's evaluation with ours beside them, as one picture.

``python benchmarks/paper_tables.py --plots FILE`` draws it; the numbers are those of its tables.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

RUNGS = {
    "LLB": "outputs in GB",
    "L1": "+ outputs in LB",
    "order": "+ order of instances",
    "insn": "+ instruction scheduling",
}
"""Columns of Figure 15 in words, from below."""

SYSTEMS = {"AStitch": "AStitch", "GT": "GraphTurbo"}
"""Columns of Figure 14 in words."""

SHADES = ("#b9c6d6", "#86a3c3", "#4f7cac", "#1f4e79")
ASIDE = "#d9a441"
_SALT = "autoturbo"  # ids in the SVG follow from it: the same picture is the same file

Rows = Mapping[str, Mapping[str, tuple[float, float] | None]]
"""The paper's figure and ours, by network and column."""


class Bars(NamedTuple):
    """One kind of bar.

    Attributes:
        column: Of the figure.
        label: In words.
        shade: Its colour.
    """

    column: str
    label: str
    shade: str


def draw(speedups: Rows, steps: Rows, use: Sequence[Mapping[str, Any]], file: Path) -> None:
    """Write the picture.

    Args:
        speedups: Of Figure 14.
        steps: Of Figure 15.
        use: Rows of Figure 16: model, batches, per cent of vector and matrix engine.
        file: SVG, PNG or PDF, by its name.
    """
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context({"svg.hashsalt": _SALT, "svg.fonttype": "none", "font.size": 9}):
        # not "constrained": its solver gives other last digits each time, and SVG other names
        figure = Figure(figsize=(11.0, 10.5), layout="tight")
        networks = max(len({row["model"] for row in use}), 1)
        grid = figure.add_gridspec(3, networks, height_ratios=(1, 1.1, 0.9))
        above, middle = (figure.add_subplot(grid[line, :]) for line in (0, 1))
        names = zip(SYSTEMS.items(), (ASIDE, SHADES[3]), strict=True)
        _bars(above, speedups, [Bars(c, label, s) for (c, label), s in names],
              "Figure 14: speed-up over TVM")  # fmt: skip
        named = zip(RUNGS.items(), SHADES, strict=True)
        _bars(middle, steps, [Bars(c, label, s) for (c, label), s in named],
              "Figure 15: speed-up over TVM, step by step")  # fmt: skip
        _lines([figure.add_subplot(grid[2, at]) for at in range(networks)], use)
        figure.savefig(file, metadata={"Date": None} if file.suffix == ".svg" else {})


def _bars(axes: Any, rows: Rows, kinds: Sequence[Bars], title: str) -> None:
    """Draw a group of bars for each network: of each kind the paper's, hatched, beside ours."""
    width = 0.84 / (2 * len(kinds))
    for place, kind in enumerate(kinds):
        for side, whose in enumerate(("paper", "ours")):
            at = [x - 0.42 + (2 * place + side + 0.5) * width for x in range(len(rows))]
            pairs = [row[kind.column] for row in rows.values()]
            heights = [math.nan if pair is None else pair[side] for pair in pairs]
            look = (
                {"hatch": "////", "color": "white"} if whose == "paper" else {"color": kind.shade}
            )
            axes.bar(at, heights, width * 0.92, edgecolor=kind.shade, linewidth=0.7, **look,
                     label=f"{kind.label}, {whose}")  # fmt: skip
    axes.axhline(1, color="#888", linewidth=0.8)
    axes.set_yscale("log")
    axes.set_yticks([0.5, 1, 2, 5, 10, 20], ["0.5x", "1x", "2x", "5x", "10x", "20x"])
    axes.set_yticks([], minor=True)
    axes.set_xticks(range(len(rows)), [_short(name) for name in rows])
    axes.set_title(f"{title} (ours: TVM-like, not TVM's own kernels)", loc="left")
    axes.grid(visible=True, axis="y", alpha=0.3)
    axes.set_axisbelow(True)
    axes.legend(ncols=min(4, 2 * len(kinds)), loc="upper center", bbox_to_anchor=(0.5, -0.12),
                frameon=False)  # fmt: skip


def _short(workload: str) -> str:
    return workload.replace("_base_s", "-").replace("_large_s", "-large-").replace("_", "-")


def _lines(places: Sequence[Any], rows: Sequence[Mapping[str, Any]]) -> None:
    """Draw the use of both engines over batches, for each network of Figure 16."""
    models = list(dict.fromkeys(row["model"] for row in rows))
    if not models:
        places[0].axis("off")
        return
    title = "Figure 16: per cent of the time that GraphTurbo keeps the engines busy\n\n"
    places[0].set_title(title, loc="left")
    for axes, model in zip(places, models, strict=True):
        mine = [row for row in rows if row["model"] == model]
        batches = [row["batches"] for row in mine]
        for at, (engine, shade) in enumerate((("vector", ASIDE), ("matrix", SHADES[3]))):
            for whose, style in (("paper", "--"), ("ours", "-")):
                axes.plot(batches, [row[whose][at] for row in mine], style, marker="o", color=shade,
                          label=f"{engine} engine, {whose}")  # fmt: skip
        axes.set_xscale("log", base=2)
        axes.set_xticks(batches, [str(batch) for batch in batches])
        axes.set_ylim(0, 100)
        axes.set_xlabel("samples that a cluster processes at once")
        axes.set_ylabel("%")
        axes.set_title(_short(model.partition(" ")[2] or model), fontsize=9)
        axes.grid(visible=True, alpha=0.3)
    places[0].legend(frameon=False, fontsize=7)
