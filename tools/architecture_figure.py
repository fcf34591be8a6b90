"""Draw the figure of docs/explanation/architecture.md: the layers of the package.

::

    python tools/architecture_figure.py            # write it
    python tools/architecture_figure.py --check    # say whether it is current

The layers are those of the contract that import-linter holds (``pyproject.toml``); what a room is
for is the first line of its docstring.
"""

from __future__ import annotations

import ast
import html
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FILE = ROOT / "docs" / "explanation" / "architecture.svg"

WIDTH, ROW, GAP, PAD = 900, 38, 6, 10
"""Pixels: of the figure, of a layer, between layers, within a box."""

STYLE = (
    "text{font:12px sans-serif;fill:#222}.name{font-weight:bold}rect{fill:#eef3f8;stroke:#7a9cc6}"
)


def drawing() -> str:
    """Return the figure as SVG: what is above may import what is below, never the reverse."""
    contract = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    (layers,) = (one["layers"] for one in contract["tool"]["importlinter"]["contracts"])
    height = len(layers) * (ROW + GAP) + GAP
    boxes = "".join(
        box
        for at, layer in enumerate(layers)
        for box in _boxes([name.strip() for name in layer.split("|")], GAP + at * (ROW + GAP))
    )
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}">'
    return f"{head}<style>{STYLE}</style>{boxes}</svg>\n"


def _boxes(names: list[str], top: int) -> Iterator[str]:
    """Yield the rooms of a layer side by side, with as much of their purpose as there is room."""
    width = (WIDTH - GAP * (len(names) + 1)) // len(names)
    for place, name in enumerate(names):
        left = GAP + place * (width + GAP)
        purpose = _purpose(name)
        room = (width - 2 * PAD) // 7 - len(name) - 2
        short = purpose if len(purpose) <= room else f"{purpose[: max(room - 3, 0)].rstrip()}..."
        yield f'<rect x="{left}" y="{top}" width="{width}" height="{ROW}" rx="4"/>'
        label = f'<tspan class="name">{name}</tspan>  {html.escape(short)}'
        yield f'<text x="{left + PAD}" y="{top + ROW // 2 + 4}" xml:space="preserve">{label}</text>'


def _purpose(name: str) -> str:
    """Return the first sentence of a module's or a package's docstring."""
    path = ROOT / "autoturbo" / name
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    line = (ast.get_docstring(ast.parse(file.read_text("utf-8"))) or "").partition("\n")[0]
    return line.partition(". ")[0].rstrip(".")


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
