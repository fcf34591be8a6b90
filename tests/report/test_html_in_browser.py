"""The report in headless Chromium: it draws, asks for nothing, complains of nothing, obeys keys."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from autoturbo.report.diff_page import Compared, difference
from autoturbo.report.page import document
from autoturbo.report.runs import ListedRun, index
from tests.report.browser import CHROMIUM, Page, browser
from tests.report.report_samples import (
    HOSTILE,
    deep_facts,
    facts_of,
    long_facts,
    measured,
    residual,
    small_facts,
)
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


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory, small: Path) -> dict[str, Path]:
    """One page of each kind: of a run, of 400 layers, of two schedules, of all runs."""
    folder = tmp_path_factory.mktemp("pages")
    one, two = (
        Compared(f"run {letter}", "squeezenet1_1", measured(split), "simulated")
        for letter, split in (("one", "channel"), ("two", "auto"))
    )
    runs = [ListedRun(small_facts().info, "done", "small.html")] * 60
    texts = {
        "deep": document(deep_facts()),
        "both": difference(one, two, (), [("latency", "2 ms", "1 ms", "0.50x")], {}),
        "index": index(runs, "autoturbo.db"),
    }
    files = {name: folder / f"{name}.html" for name in texts}
    for name, text in texts.items():
        files[name].write_text(text, encoding="utf-8")
    return files | {"small": small}


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
    page.run("document.querySelectorAll('details').forEach(d => { d.open = true; })")
    page.run("new Promise(done => setTimeout(done, 300))")
    figures = page.run(
        "[...document.querySelectorAll('figure:has(.chart)')].map(f =>"
        " [f.querySelector('.chart').id, f.querySelectorAll('svg path').length,"
        " f.querySelector('svg').clientWidth])"
    )
    names = {name.removeprefix("chart-") for name, _, _ in figures}
    assert names >= {"speed", "time", "gap", "timeline", "cores", "lb", "roofline",
                     "traffic", "convergence", "predicted"}  # fmt: skip
    for name, paths, width in figures:
        assert paths > 5, name
        assert width > 300, name


@pytest.mark.full
def test_the_first_screen_answers(page: Page, small: Path) -> None:
    page.open(small)
    inside = "c.getBoundingClientRect().bottom <= innerHeight"
    cards = f"[...document.querySelectorAll('.card')].filter(c => {inside})"
    seen = page.run(f"{cards}.map(c => c.querySelector('h2').innerText)")
    assert seen == ["How much faster", "Why", "What bounds it now", "What could still be won"]


WIDTHS, SCHEMES = (420, 800, 1280), ("light", "dark")


@pytest.mark.full
@pytest.mark.parametrize("name", ["small", "deep", "both", "index"])
def test_nothing_hangs_over_the_edge(page: Page, pages: dict[str, Path], name: str) -> None:
    """In both schemes, as it opens and with everything unfolded."""
    for width, scheme in itertools.product(WIDTHS, SCHEMES):
        page.prefer(scheme)
        page.size(width, 800)
        page.open(pages[name], drawn=name != "index")
        for unfolded in (False, True):
            if unfolded:
                page.run("document.querySelectorAll('details').forEach(d => { d.open = true; })")
                page.run("new Promise(done => setTimeout(done, 300))")
            where = (width, scheme, unfolded)
            assert page.run("document.documentElement.scrollWidth") <= width, where
            over = page.run(
                "[...document.querySelectorAll('svg, .legend li, h1, h2, h3, p, button, input')]"
                ".filter(e => e.checkVisibility() && !e.closest('.wide'))"  # tables scroll
                f".filter(e => e.getBoundingClientRect().right > {width} + 1)"
                ".map(e => e.outerHTML.slice(0, 80))"
            )
            assert over == [], where


@pytest.mark.full
@pytest.mark.parametrize("name", ["small", "both"])
def test_letters_of_figures_are_not_cut_off(page: Page, pages: dict[str, Path], name: str) -> None:
    """Every title, label and key of a drawn figure lies inside of it."""
    for width in WIDTHS:
        page.size(width, 800)
        page.open(pages[name])
        cut = page.run(
            "[...document.querySelectorAll('.chart')].flatMap(c => {"
            " if (!c.checkVisibility()) return [];"
            " const r = c.querySelector('svg').getBoundingClientRect();"
            " return [...c.querySelectorAll('.role-axis text, .role-legend text')].filter(t => {"
            " const b = t.getBoundingClientRect(); return b.width && (b.left < r.left - 2"
            " || b.right > r.right + 2 || b.top < r.top - 2 || b.bottom > r.bottom + 2); })"
            " .map(t => c.id + ': ' + t.textContent); })"
        )
        assert cut == [], width


KERNELS = "[...document.querySelectorAll('[aria-label=kernels] tbody tr')]"


def shown_kernels(page: Page) -> list[str]:
    """Names of the kernels in the table that can be seen, by their last layer."""
    labels: list[str] = page.run(
        f"{KERNELS}.filter(r => r.checkVisibility()).map(r => r.cells[0].innerText)"
    )
    return [label.partition("(")[2].removesuffix(")") for label in labels]


def test_four_hundred_layers_are_folded_away(page: Page, pages: dict[str, Path]) -> None:
    page.open(pages["deep"])
    assert page.run(f"{KERNELS}.length") == 400
    assert shown_kernels(page) == []
    assert page.run("document.documentElement.scrollHeight") < 10_000
    graph = "[...document.querySelectorAll('.graph')].at(-1)"
    assert not page.run(f"{graph}.checkVisibility()")
    page.run(f"{graph}.closest('details').open = true")
    page.run("new Promise(done => setTimeout(done, 300))")
    assert page.run(f"{graph}.querySelectorAll('.box').length") == 400
    whole = f"(f => f.scrollHeight <= f.clientHeight + 1)({graph}.parentElement)"
    assert page.run(whole), "the picture is shown whole, nothing in it scrolls"
    page.run("document.querySelector('[aria-label=kernels]').closest('details').open = true")
    assert 10 <= len(shown_kernels(page)) <= 50
    page.run("document.querySelector('[aria-label=kernels] ~ button').click()")
    assert len(shown_kernels(page)) == 400


@pytest.mark.full
def test_one_field_finds_rows_and_bars(page: Page, pages: dict[str, Path]) -> None:
    page.open(pages["deep"])
    page.type("#find", "CONV39")
    assert shown_kernels(page) == ["conv39", *(f"conv39{digit}" for digit in range(10))]
    said = page.run("document.querySelector('.find output').innerText")
    assert int(said.split()[0]) >= 11
    faint = (
        "[...document.querySelectorAll('#chart-timeline .mark-rect path')].filter(p =>"
        " Number(p.getAttribute('opacity') ?? 1) < 0.5).length"
    )
    bars = page.run("document.querySelectorAll('#chart-timeline .mark-rect path').length")
    assert 0 < bars - page.run(faint) < bars / 4
    sought = "[...document.querySelectorAll('.graph .sought title')].map(t => t.textContent)"
    names = [text.partition("(")[2].partition(")")[0] for text in page.run(sought)]
    assert set(names) == {"conv39", *(f"conv39{digit}" for digit in range(10))}
    assert page.run("document.querySelector('.graph').checkVisibility()")
    page.type("#find", "no such layer")
    assert shown_kernels(page) == []
    assert page.run("document.querySelectorAll('details[open]').length") == 0
    page.type("#find", "")
    assert page.run("document.querySelectorAll('details[open]').length") == 0
    assert page.run(faint) == 0
    page.run("document.querySelector('[aria-label=kernels]').closest('details').open = true")
    assert len(shown_kernels(page)) == 30


@pytest.mark.full
def test_all_rows_can_be_read_without_scripts(page: Page, pages: dict[str, Path]) -> None:
    page.call("Emulation.setScriptExecutionDisabled", value=True)
    try:
        page.open(pages["deep"], drawn=False)
        assert page.run("document.querySelector('noscript').checkVisibility()")
        assert not page.run("document.querySelector('#find').checkVisibility()")
        page.run("document.querySelector('[aria-label=kernels]').closest('details').open = true")
        assert len(shown_kernels(page)) == 400
    finally:
        page.call("Emulation.setScriptExecutionDisabled", value=False)


def test_two_timelines_have_one_axis_of_time(page: Page, pages: dict[str, Path]) -> None:
    page.open(pages["both"])
    assert page.run("document.querySelectorAll('[id^=chart-timeline-]').length") >= 2
    for letter in "AB":
        assert page.run(f"document.querySelectorAll('#chart-timeline-{letter} path').length") > 20
    axes = [
        page.run(
            f"[...document.querySelectorAll('#chart-timeline-{letter} .role-axis-label text')]"
            ".map(t => [t.textContent, t.getAttribute('transform')])"
            ".filter(([text]) => /^[0-9,.]+$/.test(text))"
        )
        for letter in "AB"
    ]
    assert len(axes[0]) > 2
    assert axes[0] == axes[1]
    boxes = "['A', 'B'].map(x => document.querySelector(`#side-${x}`).getBoundingClientRect())"
    beside = f"(() => {{ const [a, b] = {boxes}; return [a.top === b.top, a.right <= b.left]; }})()"
    assert page.run(beside) == [True, True]
    page.size(420, 800)
    assert page.run(beside) == [False, False]
    under = f"(() => {{ const [a, b] = {boxes}; return a.bottom <= b.top; }})()"
    assert page.run(under) is True


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
    texts = page.run("[...document.querySelectorAll('.graph title')].map(t => t.textContent)")
    assert any(HOSTILE[0] in text for text in texts)


@pytest.mark.full
def test_a_long_run_stays_small(page: Page, tmp_path: Path) -> None:
    text = document(long_facts(LONG))
    assert len(text.encode()) < 5_000_000
    file = tmp_path / "long.html"
    file.write_text(text, encoding="utf-8")
    page.open(file)
    said = page.run("document.querySelector('#search').innerText")
    assert "Of 10000 trials" in said
    assert "measured trials are drawn" in said
