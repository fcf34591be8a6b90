"""HTML from texts: what comes from files is shown as the text that it is."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence
from typing import NewType

from autoturbo.report.units import plain

Markup = NewType("Markup", str)
"""Text that is HTML already."""


def text(value: object) -> Markup:
    """Return any text as markup; hidden characters as escapes."""
    return Markup(html.escape(plain(value)))


_UNIT = re.compile(r"(?<=\d) (?=(?:%|[kMGTmunp]?[sBJ]|[KMG]iB|[kMGT])(?![\w/]))")


def prose(value: object) -> Markup:
    """Return our own words as markup: a number and its unit stay on one line."""
    return Markup(_UNIT.sub("\N{NO-BREAK SPACE}", text(value)))


def element(tag: str, *inside: str, **attributes: str | None) -> Markup:
    """Return an element around :data:`Markup`; ``class_`` and ``aria_label`` name attributes.

    Plain ``str`` counts as markup too: pass names through :func:`text` first.
    """
    given = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{html.escape(plain(value))}"'
        for name, value in attributes.items()
        if value is not None
    )
    return Markup(f"<{tag}{given}>{''.join(inside)}</{tag}>")


def paragraph(*inside: str, class_: str | None = None) -> Markup:
    """Return a paragraph."""
    return element("p", *inside, class_=class_)


def table(
    headers: Sequence[str], rows: Iterable[Sequence[object]], *, words: int = 1, label: str
) -> Markup:
    """Return a table that scrolls by itself where it is too wide.

    Args:
        headers: of the columns.
        rows: texts, as many as headers.
        words: columns at the left that are text; the others are numbers.
        label: what it shows, for who does not see it.
    """
    head = "".join(
        element("th", text(h), scope="col", class_=None if at < words else "n")
        for at, h in enumerate(headers)
    )
    body = "".join(_row(row, words) for row in rows)
    inner = element("table", element("thead", element("tr", head)), element("tbody", body))
    return element("div", inner, class_="wide", tabindex="0", role="region", aria_label=label)


def _row(row: Sequence[object], words: int) -> Markup:
    cells = [
        element("td", text(cell), class_=None if at < words else "n") for at, cell in enumerate(row)
    ]
    return element("tr", *cells)


def folded(title: str, *inside: str, long: bool = False) -> Markup:
    """Return something that a click or the space bar opens, and paper unless it is long."""
    kind = "long" if long else None
    return element("details", element("summary", text(title)), *inside, class_=kind)


def definitions(rows: Iterable[tuple[str, object]]) -> Markup:
    """Return a list of names with what they are."""
    pairs = "".join(element("dt", text(n)) + element("dd", text(v)) for n, v in rows)
    return element("dl", pairs)
