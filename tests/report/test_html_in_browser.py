"""The report in headless Chromium: it draws, asks for nothing, complains of nothing, obeys keys."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from autoturbo.report.page import LARGEST, document
from tests.report.browser import CHROMIUM, Page, browser
from tests.report.report_samples import HOSTILE, facts_of, long_facts, residual, small_facts
from tests.schedule.schedule_samples import STCP920

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium on this machine"),
]

LONG = 10_000
"""Trials that a report must have room for."""


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with browser(tmp_path_factory.mktemp("profile")) as found:
        yield found


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("report") / "small.html"
    file.write_text(document(small_facts()), encoding="utf-8")
    return file


@pytest.fixture(autouse=True)
def quiet(page: Page) -> Iterator[None]:
    """Nothing is complained of, and nothing but the file itself is asked for."""
    page.complaints.clear()
    page.asked.clear()
    page.prefer("light")
    page.size(1280, 800)
    yield
    assert page.complaints == []
    assert {address.split(":")[0] for address in page.asked} <= {"file"}
    assert len({address.partition("#")[0] for address in page.asked}) <= 1


def test_every_figure_is_drawn(page: Page, small: Path) -> None:
    page.open(small)
    figures = page.run(
        "[...document.querySelectorAll('figure')].map(f => [f.querySelector('.chart').id,"
        " f.querySelectorAll('svg path').length, f.querySelector('svg').clientWidth])"
    )
    names = {name.removeprefix("chart-") for name, _, _ in figures}
    assert names >= {"speed", "time", "timeline", "cores", "lb", "graph", "roofline", "traffic",
                     "convergence", "predicted", "front"}  # fmt: skip
    for name, paths, width in figures:
        assert paths > 5, name
        assert width > 300, name


@pytest.mark.full
def test_the_first_screen_answers(page: Page, small: Path) -> None:
    page.open(small)
    inside = "c.getBoundingClientRect().bottom <= innerHeight"
    cards = f"[...document.querySelectorAll('.card')].filter(c => {inside})"
    seen = page.run(f"{cards}.map(c => c.querySelector('h2').innerText)")
    assert seen == ["How much faster", "Why", "What bounds it now", "Can I trust it"]


@pytest.mark.full
@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (400, "dark")])
def test_nothing_hangs_over_the_edge(page: Page, small: Path, width: int, scheme: str) -> None:
    page.prefer(scheme)
    page.size(width, 800)
    page.open(small)
    assert page.run("document.documentElement.scrollWidth") <= width
    over = page.run(
        "[...document.querySelectorAll('svg')].filter(s =>"
        f" s.getBoundingClientRect().right > {width} + 1).length"
    )
    assert over == 0


def brightness(page: Page, selector: str, what: str) -> float:
    """Mean of red, green and blue of a computed colour, 0 to 255."""
    text = page.run(f"getComputedStyle(document.querySelector('{selector}')).{what}")
    numbers = [float(part) for part in text[text.index("(") + 1 : -1].split(",")[:3]]
    return sum(numbers) / 3


@pytest.mark.full
def test_light_dark_and_paper(page: Page, small: Path) -> None:
    """Colours of the page and inside charts change with the reader's choice; paper is light."""
    page.open(small)
    label = "#chart-speed .mark-text text"
    for scheme, media, light in (("light", "", True), ("dark", "", False), ("dark", "print", True)):
        page.prefer(scheme, media)
        back, ink = brightness(page, "body", "backgroundColor"), brightness(page, label, "fill")
        assert (back > 200) == light, (scheme, media)
        assert abs(back - ink) > 90, (scheme, media)
    page.prefer("light")


@pytest.mark.full
def test_it_prints(page: Page, small: Path, tmp_path: Path) -> None:
    page.open(small)
    page.paper(tmp_path / "report.pdf")
    assert (tmp_path / "report.pdf").read_bytes().count(b"/Type /Page\n") >= 2
    assert page.run("document.querySelectorAll('details[open]').length") == 0


def window_of_time(page: Page) -> list[float]:
    """The first and last tick of the timeline's axis."""
    ticks: Any = page.run(
        "[...document.querySelectorAll('#chart-timeline .role-axis-label text')]"
        ".map(t => Number(t.textContent.replaceAll(',', ''))).filter(Number.isFinite)"
    )
    return [min(ticks), max(ticks)]


@pytest.mark.full
def test_time_is_zoomed_by_keys_and_buttons(page: Page, small: Path) -> None:
    page.open(small)
    whole = window_of_time(page)
    page.run("document.querySelector('#chart-timeline').parentElement.focus()")
    for key in "+++":
        page.press(key)
    page.run("new Promise(done => setTimeout(done, 200))")
    close = window_of_time(page)
    assert close[1] - close[0] < (whole[1] - whole[0]) / 3
    page.press("ArrowRight")
    page.run("new Promise(done => setTimeout(done, 200))")
    assert window_of_time(page)[0] > close[0]
    page.run("document.querySelector('[data-zoom=all]').focus()")
    page.press("Enter")
    page.run("new Promise(done => setTimeout(done, 200))")
    assert window_of_time(page) == whole


@pytest.mark.full
def test_everything_is_reached_by_the_tab_key(page: Page, small: Path) -> None:
    page.open(small)
    wanted = page.run(
        "[...document.querySelectorAll('a, button, summary, [tabindex=\"0\"]')]"
        ".filter(e => e.checkVisibility()).length"
    )
    assert wanted > 20
    page.run("window.reached = new Set(); document.addEventListener('focusin',"
             " e => reached.add(e.target))")  # fmt: skip
    for _ in range(wanted + 2):
        page.press("Tab")
    assert page.run("reached.size") >= wanted
    page.run("document.querySelector('summary').focus()")
    page.press("Space")
    assert page.run("document.querySelector('details').open") is True


@pytest.mark.full
def test_hostile_names_are_text(page: Page, tmp_path: Path) -> None:
    target = dataclasses.replace(STCP920, name=HOSTILE[1])
    facts = facts_of(residual(HOSTILE), target, trials=4)
    file = tmp_path / "hostile.html"
    file.write_text(document(facts), encoding="utf-8")
    page.open(file)
    assert page.run("document.querySelector('h1').innerText") == f"{HOSTILE[0]} on {HOSTILE[1]}"
    assert page.run("document.querySelectorAll('script').length") == 3
    page.point("#chart-timeline .mark-rect path:nth-child(2)")  # after the kernel its first layer
    shown = page.run("document.querySelector('#vg-tooltip-element.visible').textContent")
    assert any(name[:12] in shown for name in HOSTILE)
    dangerous = "img, iframe, object, [onerror], [onload], [onmouseover]"
    assert page.run(f"document.querySelectorAll('{dangerous}').length") == 0
    texts = page.run("[...document.querySelectorAll('#chart-graph text')].map(t => t.textContent)")
    assert any(text.startswith(HOSTILE[0][:10]) for text in texts)


@pytest.mark.full
def test_a_long_run_stays_small(page: Page, tmp_path: Path) -> None:
    text = document(long_facts(LONG))
    assert len(text.encode()) < LARGEST
    file = tmp_path / "long.html"
    file.write_text(text, encoding="utf-8")
    page.open(file)
    said = page.run("document.querySelector('#search figcaption').innerText")
    assert "10000 trials" in said
    assert "measured trials are drawn" in said
