"""The documentation: the site builds without a warning, and its generated parts are complete."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import reference_pages

import autoturbo
from autoturbo.commands.registry import COMMANDS
from autoturbo.commands.upkeep.db import published_schemas
from autoturbo.commands.upkeep.output_schemas import schema_names
from autoturbo.simulator.measurement import VERSION

ROOT = Path(__file__).resolve().parents[1]
NEEDED = ("sphinx", "myst_parser", "furo")
MISSING = [name for name in NEEDED if importlib.util.find_spec(name) is None]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built with warnings as errors."""
    out = tmp_path_factory.mktemp("site")
    # -d: what Sphinx keeps for the next build stays out of the tree and of the site
    options = ["-W", "--keep-going", "-q", "-b", "html", "-d", str(out / "kept")]
    command = [sys.executable, "-m", "sphinx", *options, str(ROOT / "docs"), str(out / "html")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return out / "html"


@pytest.mark.full
@pytest.mark.skipif(bool(MISSING), reason=f"the extra 'docs' is missing: {', '.join(MISSING)}")
def test_the_site_builds_without_a_warning_and_has_what_is_generated(site: Path) -> None:
    pages = {p.relative_to(site).as_posix(): p.read_text("utf-8") for p in site.rglob("*.html")}
    for name in COMMANDS:
        assert f"autoturbo {name}" in pages["reference/cli.html"]
    for name in set(autoturbo.__all__) - {"__version__"}:
        assert f"autoturbo.{name}" in pages["reference/python.html"]
    assert "bandwidth_gb_s" in pages["reference/schemas.html"]
    assert "resnet50-pass.svg" in pages["explanation/algorithm.html"]
    written = {p.relative_to(ROOT / "docs").with_suffix(".html").as_posix() for p in sources()}
    assert written <= set(pages)


def sources() -> list[Path]:
    return [page for page in (ROOT / "docs").rglob("*.md") if "_build" not in page.parts]


def headings(page: Path) -> set[str]:
    """Anchors of a page's headings, as GitHub and MyST make them."""
    text = re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    titles = re.findall(r"^#+ +(.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


def test_links_to_headings_lead_to_one() -> None:
    wrong, seen = [], 0
    for page in sources():
        for address in re.findall(r"\]\(([^)\s:]*#[^)\s]+)\)", page.read_text("utf-8")):
            name, _, anchor = address.partition("#")
            seen += 1
            if anchor not in headings((page.parent / name) if name else page):
                wrong.append(f"{page.relative_to(ROOT)}: {address}")
    assert seen
    assert wrong == []


def test_every_page_is_in_a_menu() -> None:
    menu = (ROOT / "docs" / "index.md").read_text("utf-8")
    named = set(re.findall(r"^- \[.+?\]\((.+?)\.md\)", menu, re.MULTILINE))
    pages = {page.relative_to(ROOT / "docs").with_suffix("").as_posix() for page in sources()}
    assert {page for page in pages - {"index"} if not page.startswith("decisions/")} <= named


def test_the_reference_of_commands_has_every_action_once() -> None:
    text = reference_pages.commands()
    titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    assert len(set(titles)) == len(titles)
    assert {f"autoturbo {name}" for name in COMMANDS} | {"autoturbo db export"} <= set(titles)
    assert text.count("usage: ") == len(titles)


def test_the_reference_of_schemas_has_every_schema_and_nested_fields() -> None:
    text = reference_pages.schemas()
    for name in ("target", *published_schemas()):
        assert f"\n## {reference_pages.LABELS.get(name, name)}\n" in f"\n{text}"
    for name in schema_names():
        assert f"\n### {name}\n" in text
    for field in ("lb.capacity_kib", "engines[matrix].dataflow", "kernels[].layers[].name"):
        assert f"`{field}`" in text


def test_generated_parts_of_pages_are_current() -> None:
    assert reference_pages.main(["--check"]) == 0
    text = "".join(page.read_text("utf-8") for page in sources())
    marked = re.findall(r"^<!-- generated: (\w+) -->$", text, re.MULTILINE)
    assert sorted(marked) == sorted(reference_pages.PARTS)


def test_a_part_is_replaced_between_its_marks() -> None:
    page = "a\n<!-- generated: version -->\nold\n<!-- end -->\nb\n"
    filled = reference_pages.filled(page)
    assert VERSION in filled
    assert "old" not in filled
    assert filled.startswith("a\n<!-- generated: version -->\n")
    assert filled.endswith("\n<!-- end -->\nb\n")
    assert reference_pages.filled(filled) == filled


def test_docstrings_become_markdown() -> None:
    def sample(count: int) -> str:
        """Return ``x`` of :class:`~a.b.Thing`.

        A block::

            1 < 2

        Args:
            count: Of things,
                or of others.

        Returns:
            Text.
        """
        return str(count)

    assert reference_pages.docstring_of(sample) == (
        "Return `x` of `Thing`.\n\nA block:\n\n```\n1 < 2\n```\n\n**Args**\n\n"
        "- `count`: Of things,\n  or of others.\n\n**Returns**\n\nText.\n"
    )
    assert reference_pages.signature_of("sample", sample) == "sample(count: int) -> str"


def test_a_list_of_links_becomes_a_menu() -> None:
    text = "<!-- menu: How to -->\n- [A](a.md): b\n- [C](d/e.md)\n\nrest [f](f.md)\n"
    assert reference_pages.with_menus(text) == (
        "- [A](a.md): b\n- [C](d/e.md)\n\n"
        "```{toctree}\n:caption: How to\n:hidden:\n:maxdepth: 1\n\na\nd/e\n```\n\nrest [f](f.md)\n"
    )


@pytest.mark.parametrize("figure", ["algorithm_figure.py", "architecture_figure.py"])
def test_figures_are_current(figure: str) -> None:
    command = [sys.executable, str(ROOT / "tools" / figure), "--check"]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("AUTOTURBO")}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert (done.returncode, done.stderr) == (0, "")
