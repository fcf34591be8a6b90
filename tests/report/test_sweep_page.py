"""The page of a sweep: what it says in words, and that it loads nothing."""

from __future__ import annotations

import dataclasses
import html
import itertools
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from autoturbo.files import Kind
from autoturbo.hardware import load_target
from autoturbo.hardware.grid import Axis, Value, cost_of, field_in_words, grid_of
from autoturbo.report.sweep import Course, Sweep, SweepPoint
from autoturbo.report.sweep_page import sweep_page
from tests.report.browser import CHROMIUM, Page, browser
from tests.report.test_html_text import Seen, assert_names_are_text
from tests.search.search_doubles import measurement

SIZES: Mapping[str, tuple[Value, ...]] = {"lb.capacity_kib": (256, 512, 1024)}
RATES: Mapping[str, tuple[Value, ...]] = {"ddr.bandwidth_gb_s": (60, 120)}
COUNTS: Mapping[str, tuple[Value, ...]] = {"clusters": (1, 2, 4)}
COST = "lb.capacity_kib=0.3,ddr.bandwidth_gb_s=1.2"


def swept(axes: Mapping[str, tuple[Value, ...]], cost: str = "") -> Sweep:
    """A grid on which the last point does not fit; every other search was still improving."""
    axes_of_grid = tuple(Axis(path, values) for path, values in axes.items())
    points = []
    for number, values in enumerate(itertools.product(*axes.values())):
        best = measurement(4e-3 / (number + 1))
        course = Course(3, 0.25 * (number % 2))
        points.append(
            SweepPoint(values, f"t{number}", f"run{number}", 4, best, 5e-3, course=course)
        )
    points[-1] = dataclasses.replace(points[-1], best=None, course=None, failure="LB is too small")
    found = Sweep("net", "npu", "float16", axes_of_grid, tuple(points))
    if not cost:
        return found
    grid = grid_of(load_target("stcp920"), axes_of_grid)
    stated = cost_of(cost, [one.target for one in grid], ["energy_j"])
    priced = (p.costing(stated, one.target) for p, one in zip(points, grid, strict=True))
    return dataclasses.replace(found, points=tuple(priced), cost=stated)


def visible(page: str) -> Seen:
    return Seen(page.partition('<script type="application/json"')[0])


def drawn_data(page: str) -> dict[str, Any]:
    found = re.search(
        r'<script type="application/json" id="figures">(.*?)</script>', page, re.DOTALL
    )
    assert found is not None
    figures: dict[str, Any] = json.loads(found[1])
    return figures


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("lb.capacity_kib", "local buffer per core, KiB"),
        ("gb.capacity_kib", "global buffer per cluster, KiB"),
        ("ddr.bandwidth_gb_s", "off-chip memory: bandwidth, GB/s"),
        ("engines[matrix].rows", "matrix engine of one core: rows"),
        ("matrix.rate.int8", "matrix engine of one core: rate, int8"),
        ("clock_mhz", "clock of cores and engines, MHz"),
        ("no.such", "no.such"),
    ],
)
def test_fields_are_named_in_words(path: str, words: str) -> None:
    assert field_in_words(path) == words


def test_one_field_is_lines_of_the_tuned_and_the_heuristic() -> None:
    page = sweep_page(swept(SIZES), "simulated; this chip was never calibrated")
    text = visible(page).text
    said = (
        "net on npu", "local buffer per core, KiB", "simulated; this chip was never calibrated",
        "published heuristic", "Pareto front", "LB is too small", "does not fit",
    )  # fmt: skip
    assert [words for words in said if words not in text] == []
    assert "4.00\N{NO-BREAK SPACE}ms" in page
    chart = drawn_data(page)["latency"]
    rows = chart["data"]["rows"]
    assert rows["who"]["of"] == ["tuned", "published heuristic"]
    assert rows["ms"] == [4, 5, 2, 5, 5]
    assert chart["data"]["bands"] == {"at": [512], "low": [2], "high": [2.66667]}
    scales = {scale["name"]: scale for scale in chart["spec"]["scales"]}
    assert scales["y"]["zero"] is True
    assert scales["x"]["type"] == "log"
    assert "(logarithmic, without zero)" in json.dumps(chart["spec"]["axes"])


def test_an_axis_of_values_that_lie_near_begins_at_zero() -> None:
    chart = drawn_data(sweep_page(swept(RATES)))["latency"]
    scales = {scale["name"]: scale for scale in chart["spec"]["scales"]}
    assert scales["x"]["zero"] is True
    assert "without zero" not in json.dumps(chart["spec"]["axes"])


def test_words_are_places_on_an_axis() -> None:
    dataflow: Mapping[str, tuple[Value, ...]] = {"engines[matrix].dataflow": ("ideal", "other")}
    chart = drawn_data(sweep_page(swept(dataflow)))["latency"]
    assert chart["data"]["rows"]["at"]["of"] == ["ideal", "other"]


def test_two_fields_are_a_heat_map_and_more_are_several() -> None:
    charts = drawn_data(sweep_page(swept({**SIZES, **RATES})))
    assert list(charts) == ["latency-1"]
    assert len(charts["latency-1"]["data"]["rows"]["ms"]) == 6
    page = sweep_page(swept({**SIZES, **RATES, **COUNTS}))
    assert list(drawn_data(page)) == ["latency-1", "latency-2", "latency-3"]
    assert "clusters on the chip: 4" in visible(page).text


def test_the_cost_has_its_own_figure_and_is_told_in_words() -> None:
    page = sweep_page(swept({**SIZES, **RATES}, COST))
    text = visible(page).text
    assert "0.3 times local buffer per core, KiB plus 1.2 times off-chip memory: bandwidth" in text
    front = drawn_data(page)["front"]
    assert front["data"]["points"]["x"][0] == pytest.approx(0.3 * 256 + 1.2 * 60)
    scales = {scale["name"]: scale for scale in front["spec"]["scales"]}
    assert scales["x"]["zero"] is scales["y"]["zero"] is True
    assert "energy, J" in visible(sweep_page(swept(SIZES, "energy_j"))).text


def test_where_nothing_fits_the_page_says_so() -> None:
    found = swept(SIZES, "lb.capacity_kib=1")
    points = tuple(dataclasses.replace(p, best=None, default=None) for p in found.points)
    page = visible(sweep_page(dataclasses.replace(found, points=points)))
    assert "The model fits none of 3 targets." in page.text


def test_a_page_is_whole_and_loads_nothing() -> None:
    page = sweep_page(swept({**SIZES, **RATES}, COST))
    assert Kind.REPORT.begins(page[:400].encode())
    assert len(page.encode()) < 5_000_000
    assert "default-src 'none'" in html.unescape(page[:400])
    assert not {"img", "link", "iframe"} & set(visible(page).tags)
    markup = page.partition('<script type="application/json"')[0]
    assert re.findall(r"""(?:href|src)=["'][^"']*""", markup) == ['href="#content']


def test_names_from_files_are_text() -> None:
    def named(name: str) -> Seen:
        axes: Mapping[str, tuple[Value, ...]] = {"engines[matrix].dataflow": ("ideal", name)}
        found = swept({**axes, **COUNTS})
        points = tuple(
            dataclasses.replace(p, target=name, failure=name if p.best is None else None)
            for p in found.points
        )
        renamed = dataclasses.replace(found, model=name, target=name, points=points)
        return visible(sweep_page(renamed))

    assert_names_are_text(named, 5)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with browser(tmp_path_factory.mktemp("profile")) as found:
        yield found


@pytest.mark.full
@pytest.mark.browser
@pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium on this machine")
def test_figures_are_drawn_and_nothing_hangs_over_the_edge(page: Page, tmp_path: Path) -> None:
    for number, axes in enumerate((SIZES, {**SIZES, **RATES}, {**SIZES, **RATES, **COUNTS})):
        file = tmp_path / f"{number}.html"
        file.write_text(sweep_page(swept(axes, COST)), encoding="utf-8")
        for width in (420, 1280):
            page.size(width, 800)
            page.open(file)
            paths = page.run(
                "[...document.querySelectorAll('.chart')]"
                ".map(c => c.querySelectorAll('svg path').length)"
            )
            assert len(paths) >= 2
            assert min(paths) > 3
            assert page.run("document.documentElement.scrollWidth") <= width
    assert page.complaints == []
    assert {address.split(":")[0] for address in page.asked} <= {"file"}
