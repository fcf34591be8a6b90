"""The whole file: one HTML document with all that it needs, which may load nothing.

Its content security policy names the two scripts by their hashes and forbids everything else, so
that not even a name that slipped through could run.
"""

from __future__ import annotations

import base64
import hashlib
from importlib import resources
from typing import Final

from autoturbo.report.html.charts import Figures, script
from autoturbo.report.html.comparison import roof_section, side_section
from autoturbo.report.html.facts import Facts
from autoturbo.report.html.graph_view import graph_section
from autoturbo.report.html.markup import Markup, element, paragraph, text
from autoturbo.report.html.origin import origin_section
from autoturbo.report.html.search_sections import (
    course_section,
    front_section,
    knob_section,
    prediction_section,
)
from autoturbo.report.html.summary import summary
from autoturbo.report.html.timeline import time_section

LARGEST: Final = 5_000_000
"""Bytes that a report stays under."""


def document(facts: Facts) -> str:
    """Return the report of a run as one HTML document.

    Raises:
        UsageError: the plotting library is not installed.
    """
    figures = Figures()
    parts = _parts(facts, figures)
    library, page = _harmless(script()), _file("page.js")
    policy = (
        "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none';"
        f" script-src '{_digest(library)}' '{_digest(page)}'"
    )
    info = facts.info
    title = f"{info.model} on {info.target}"
    links = [element("a", text(name), href=f"#{key}") for key, name, _ in parts]
    navigation = element("nav", *links, aria_label="sections", class_="screen")
    no_script = paragraph(text("Charts need JavaScript; the tables do not."))
    sections = [
        element("section", element("h2", text(name)), *content, id=key)
        for key, name, content in parts
    ]
    body = [
        element("a", text("to the content"), href="#content", class_="skip"),
        element("header", element("h1", text(title)), _under(facts)),
        element(
            "main",
            summary(facts),
            navigation,
            element("noscript", no_script),
            *sections,
            id="content",
        ),
        element("footer", paragraph(text(_made(facts)))),
        f'<script type="application/json" id="figures">{figures.json()}</script>',
        f"<script>{library}</script>",
        f"<script>{page}</script>",
    ]
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f"<title>{text(title)}</title><style>{_file('page.css')}</style></head>"
        f"<body>{''.join(body)}</body></html>\n"
    )


def _parts(facts: Facts, figures: Figures) -> list[tuple[str, str, list[Markup]]]:
    """Return the sections: their ids, titles and content."""
    return [
        ("schedulers", "Schedulers side by side", side_section(facts, figures)),
        ("pass", "One pass in time", time_section(facts, figures)),
        ("subgraphs", "Sub-graphs, splits and scopes", graph_section(facts, figures)),
        ("roof", "Roofline and traffic", roof_section(facts, figures)),
        ("search", "Course of the search", course_section(facts, figures)),
        ("model", "Predicted and measured", prediction_section(facts, figures)),
        ("decisions", "Which knobs mattered", knob_section(facts, figures)),
        ("pareto", "Pareto front", front_section(facts, figures)),
        ("origin", "Environment, and how to get the same", origin_section(facts)),
    ]


def _under(facts: Facts) -> Markup:
    info = facts.info
    return paragraph(
        text(
            f"batch {info.batch}, {info.key.dtype}, {info.settings.get('objective', 'latency')};"
            f" run {info.id}, {facts.state}, begun {info.created[:16].replace('T', ' ')} UTC"
        ),
        class_="soft",
    )


def _made(facts: Facts) -> str:
    return (
        f"AutoTurbo's report of run {facts.info.id}. The file is whole: it loads nothing. Charts by"
        " Vega (vega.github.io), BSD-3-Clause."
    )


def _file(name: str) -> str:
    place = resources.files("autoturbo.report.html") / name
    return _harmless(place.read_text(encoding="utf-8"))


def _harmless(code: str) -> str:
    """Return code that may stand inside an element: nothing in it ends or opens one."""
    return code.replace("</script", r"<\/script").replace("<!--", r"<\!--")


def _digest(code: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()}"
