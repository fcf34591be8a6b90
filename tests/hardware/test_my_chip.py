"""The page for chips of one's own: each of its blocks makes a valid file of the template."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from autoturbo.hardware import Target, scaffold

PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "my-chip.md"
SECTIONS = re.split(r"^## ", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
BLOCKS = [
    (section.splitlines()[0], block)
    for section in SECTIONS
    for block in re.findall(r"^```yaml\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
]


def filled_in(block: str) -> Target:
    """Return the template with what a block says; engines are replaced by their kind."""
    document, new = yaml.safe_load(scaffold()), yaml.safe_load(block)
    engines = {one["kind"]: one for one in (*document["engines"], *new.get("engines", ()))}
    return Target.from_dict({**document, **new, "engines": list(engines.values())})


@pytest.mark.parametrize(
    "block", [block for _, block in BLOCKS], ids=[title for title, _ in BLOCKS]
)
def test_a_block_makes_another_valid_target(block: str) -> None:
    assert filled_in(block).hash != Target.from_dict(yaml.safe_load(scaffold())).hash


def test_every_row_of_the_table_leads_to_a_section() -> None:
    assert len(BLOCKS) > 5
    anchors = re.findall(r"^\| \[.+?\]\(#(.+?)\)", PAGE.read_text("utf-8"), re.MULTILINE)
    titles = [section.splitlines()[0].lower().replace(" ", "-") for section in SECTIONS]
    assert [re.sub(r"[^\w-]", "", title) for title in titles] == anchors


def test_narrow_types_run_as_the_page_says() -> None:
    block = next(block for title, block in BLOCKS if title == "Narrow data types")
    assert set(filled_in(block).dtypes) == {"bfloat16", "int8", "bfloat8"}


def test_a_chip_without_a_shared_buffer_is_a_file_without_the_section() -> None:
    document = yaml.safe_load(scaffold())
    del document["gb"]
    assert Target.from_dict(document).gb.capacity == 0
