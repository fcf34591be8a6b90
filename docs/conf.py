"""How the documentation becomes a site: ``python -m sphinx -W --keep-going -b html docs OUT``.

Sphinx reads these names; ``docs/decisions/documentation.md`` says why it is Sphinx.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tools"))
os.environ["COLUMNS"] = "88"  # the width that help texts are wrapped to

import reference_pages  # noqa: E402 - beside the site, not in the package

import autoturbo  # noqa: E402 - after the path

if TYPE_CHECKING:
    from sphinx.application import Sphinx

project = "AutoTurbo"
author = "the AutoTurbo authors"
project_copyright = author
version = release = autoturbo.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build"]
myst_heading_anchors = 4

autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
napoleon_use_ivar = True  # attributes are listed, not documented a second time
python_use_unqualified_type_names = True

highlight_language = "text"  # of blocks that name none

html_theme = "furo"
html_title = f"AutoTurbo {version}"
html_copy_source = False


def fill_in(app: Sphinx, page: str, source: list[str]) -> None:  # noqa: ARG001 - Sphinx's signature
    """Put the generated part into a page of the reference where it is marked."""
    source[0] = reference_pages.filled(page, source[0])


def never_current(*_: object) -> list[str]:
    """Return the pages to read again in every build: what fills them is not in their files."""
    return [page for page, _ in reference_pages.PARTS.values()]


def setup(app: Sphinx) -> None:
    """Connect the hooks; Sphinx calls it."""
    app.connect("env-get-outdated", never_current)
    app.connect("source-read", fill_in)
