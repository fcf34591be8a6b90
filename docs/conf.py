"""How the documentation becomes a site: ``python -m sphinx -W --keep-going -b html docs OUT``.

Sphinx reads these names; ``docs/decisions/documentation.md`` says why it is Sphinx.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tools"))

import reference_pages  # noqa: E402 - beside the site, not in the package

import autoturbo  # noqa: E402 - after the path

if TYPE_CHECKING:
    from sphinx.application import Sphinx

project = "AutoTurbo"
author = "the AutoTurbo authors"
project_copyright = author
version = release = autoturbo.__version__

extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build"]
myst_heading_anchors = 4

highlight_language = "text"  # of blocks that name none

html_theme = "furo"
html_title = f"AutoTurbo {version}"
html_copy_source = False


def add_menus(app: Sphinx, page: str, source: list[str]) -> None:  # noqa: ARG001 - Sphinx's signature
    """Make menus of the lists of links that are marked as such."""
    source[0] = reference_pages.with_menus(source[0])


def setup(app: Sphinx) -> None:
    """Connect the hook; Sphinx calls it."""
    app.connect("source-read", add_menus)
