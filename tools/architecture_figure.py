"""Draw the figure of docs/explanation/architecture.md: the way of the data through a run.

::

    python tools/architecture_figure.py            # write it
    python tools/architecture_figure.py --check    # say whether it is current
"""

from __future__ import annotations

import html
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FILE = ROOT / "docs" / "explanation" / "architecture.svg"

BOX_WIDTH, BOX_HEIGHT, GAP_X, GAP_Y, MARGIN = 196, 72, 36, 40, 12
"""Pixels."""

STYLE = (
    "text{font:12.5px sans-serif;fill:#333}.title{font-weight:bold;font-size:14px;fill:#111}"
    "rect{fill:#eef3f8;stroke:#7a9cc6}.yours rect{fill:#fbf3e2;stroke:#c9a24f}"
    ".loop rect{fill:#e6f3ea;stroke:#62a578}path{fill:none;stroke:#666;stroke-width:1.5}"
    "marker path{fill:#666;stroke:none}"
    "@media(prefers-color-scheme:dark){text{fill:#ccc}.title{fill:#fff}"
    "rect{fill:#1d2733;stroke:#5c7ea8}.yours rect{fill:#332b18;stroke:#a2833f}"
    ".loop rect{fill:#1a2e21;stroke:#4d8a61}path{stroke:#aaa}marker path{fill:#aaa}}"
)
HEAD = (
    '<marker id="end" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
    'orient="auto"><path d="M0 0L8 4L0 8z"/></marker>'
)


@dataclass(frozen=True)
class Box:
    """A station of the data.

    Attributes:
        column: From the left.
        row: From the top.
        title: Its name.
        lines: What happens there, or what it has.
        kind: ``"yours"`` for what a user gives or gets, ``"loop"`` for what each trial passes.
    """

    column: int
    row: int
    title: str
    lines: tuple[str, str]
    kind: str = ""

    @property
    def left(self) -> int:
        """Return the left edge."""
        return MARGIN + self.column * (BOX_WIDTH + GAP_X)

    @property
    def top(self) -> int:
        """Return the upper edge."""
        return MARGIN + self.row * (BOX_HEIGHT + GAP_Y)

    @property
    def middle(self) -> tuple[int, int]:
        """Return the centre."""
        return self.left + BOX_WIDTH // 2, self.top + BOX_HEIGHT // 2

    def drawn(self) -> str:
        """Return the box as SVG."""
        x, y = self.left + 12, self.top + 22
        lines = "".join(
            f'<text x="{x}" y="{y + 19 * place}">{html.escape(line)}</text>'
            for place, line in enumerate(self.lines, 1)
        )
        return (
            f'<g class="{self.kind}"><rect x="{self.left}" y="{self.top}" width="{BOX_WIDTH}" '
            f'height="{BOX_HEIGHT}" rx="6"/><text class="title" x="{x}" y="{y}">{self.title}</text>'
            f"{lines}</g>"
        )


MODEL = Box(0, 0, "Model", ("an ONNX file,", "or a workload's name"), "yours")
TARGET = Box(0, 1, "Target", ("the chip: a YAML file,", "or a preset's name"), "yours")
ASKED = Box(0, 2, "What you ask for", ("budget, objective,", "what is fixed already"), "yours")
READER = Box(0, 3, "You, your compiler", ("read the page,", "build from the files"), "yours")
GRAPH = Box(1, 0, "Graph", ("operators, shapes, and which", "elements each one reads"))
CHIP = Box(1, 1, "Description", ("cores, engines, buffers", "and their rates"))
SEARCH = Box(
    1, 2, "Search", ("proposes what to try next,", "a round of settings at a time"), "loop"
)
RESULT = Box(1, 3, "Report and export", ("HTML page; schedule file,", "ONNX, kernels file"))
SCHEDULER = Box(2, 0, "Scheduler", ("cuts, orders, places,", "gives addresses"), "loop")
KNOBS = Box(2, 1, "Knobs", ("one setting: where to cut,", "how to split, what to keep"), "loop")
PREDICTOR = Box(
    2, 2, "Cost model", ("learns from every trial,", "ranks thousands of settings"), "loop"
)
CHECKS = Box(2, 3, "Verifier", ("proves that the best one", "computes the model"))
SCHEDULE = Box(3, 0, "Schedule", ("kernels and instructions", "of every core"), "loop")
MEASURER = Box(3, 1, "Simulator or board", ("runs the schedule,", "engine by engine"), "loop")
TIMES = Box(3, 2, "Measurements", ("seconds, bytes, energy,", "or why it does not fit"), "loop")
DATABASE = Box(3, 3, "Database", ("every run and trial,", "the best schedules"))

BOXES = (
    *(MODEL, TARGET, ASKED, READER, GRAPH, CHIP, SEARCH, RESULT),
    *(SCHEDULER, KNOBS, PREDICTOR, CHECKS, SCHEDULE, MEASURER, TIMES, DATABASE),
)
STRAIGHT = (
    *((MODEL, GRAPH), (GRAPH, SCHEDULER), (SCHEDULER, SCHEDULE), (SCHEDULE, MEASURER)),
    *((MEASURER, TIMES), (TIMES, PREDICTOR), (PREDICTOR, SEARCH), (KNOBS, SCHEDULER)),
    *((TARGET, CHIP), (ASKED, SEARCH), (TIMES, DATABASE), (DATABASE, CHECKS)),
    *((CHECKS, RESULT), (RESULT, READER)),
)
"""Boxes side by side, or one above the other, from which to which data go."""


def drawing() -> str:
    """Return the figure as SVG."""
    width = 2 * MARGIN + 4 * BOX_WIDTH + 3 * GAP_X
    height = 2 * MARGIN + 4 * BOX_HEIGHT + 3 * GAP_Y
    arrows = [_straight(start, end) for start, end in STRAIGHT]
    about = "The way of the data from a model and a target to a report and an exported schedule"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" role="img"><title>{about}</title><style>{STYLE}</style>'
        f"<defs>{HEAD}</defs>{''.join((*arrows, *_bent()))}"
        f"{''.join(box.drawn() for box in BOXES)}</svg>\n"
    )


def _straight(start: Box, end: Box) -> str:
    (x, y), (to_x, to_y) = start.middle, end.middle
    if y == to_y:
        half = BOX_WIDTH // 2 if x < to_x else -BOX_WIDTH // 2
        return _arrow(f"M{x + half} {y}H{to_x - half}")
    half = BOX_HEIGHT // 2 if y < to_y else -BOX_HEIGHT // 2
    return _arrow(f"M{x} {y + half}V{to_y - half}")


def _bent() -> tuple[str, str]:
    """Return the arrows around a corner: from the chip to the scheduler, from search to knobs."""
    low = SCHEDULER.top + BOX_HEIGHT * 3 // 4
    gap = SCHEDULER.left - GAP_X // 2
    chip = _arrow(f"M{CHIP.left + BOX_WIDTH} {CHIP.middle[1]}H{gap}V{low}H{SCHEDULER.left}")
    between = KNOBS.top + BOX_HEIGHT + GAP_Y // 2
    search = _arrow(
        f"M{SEARCH.middle[0]} {SEARCH.top}V{between}H{KNOBS.middle[0]}V{KNOBS.top + BOX_HEIGHT}"
    )
    return chip, search


def _arrow(way: str) -> str:
    return f'<path d="{way}" marker-end="url(#end)"/>'


def main() -> int:
    """Write the figure, or compare with the one that is there."""
    text = drawing()
    if sys.argv[1:] != ["--check"]:
        FILE.write_text(text, "utf-8")
        return 0
    if FILE.read_text("utf-8") == text:
        return 0
    sys.stderr.write(f"{FILE.name} is not current: run python tools/architecture_figure.py\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
