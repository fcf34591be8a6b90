"""Values show themselves in a notebook: as HTML that nothing can break out of, and as text."""

from __future__ import annotations

import dataclasses
import functools
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

import autoturbo
from autoturbo.commands.schedules.compare import Comparison, compare
from autoturbo.graph.operators import Graph
from autoturbo.hardware import load_target
from autoturbo.report.views import View
from autoturbo.schedule.knobs import Knobs
from autoturbo.simulator.evaluator import Evaluator
from autoturbo.simulator.measurement import Failure, Measurement
from autoturbo.testing.contract import small_networks
from autoturbo.tuning.result import TuneResult

HOSTILE = '</table><script src="//x.test/a.js">alert(1)</script>\x1b[2J\u202e&amp;'
FORBIDDEN = ("script", "style", "link", "img", "iframe", "object", "svg", "a", "form", "base")


class Prompt:
    """What IPython prints text with."""

    def __init__(self) -> None:
        self.said = ""

    def text(self, text: str) -> None:
        self.said += text


class Page(HTMLParser):
    """Takes a fragment apart; elements must be closed in order."""

    def __init__(self, fragment: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.styles = ""
        self.shown = ""
        self.feed(fragment)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open.append(tag)
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        self.styles += "".join(f"{value};" for name, value in attrs if name == "style")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag
        self.shown += " "

    def handle_data(self, data: str) -> None:
        self.shown += data


def displayed(value: Any) -> tuple[Page, str]:
    """What a notebook and a prompt make of a value; pictures are looked at apart."""
    prompt = Prompt()
    value._repr_pretty_(prompt, cycle=False)
    picture = getattr(value, "picture", str)()
    return Page(value._repr_html_().replace(picture, "")), prompt.said


@functools.cache
def tuned(folder: Path) -> TuneResult:
    return autoturbo.tune(
        hostile_graph(), hostile_target(), trials=3, seed=0,
        database=folder / "at.db", runs_folder=folder / "runs",
    )  # fmt: skip


def hostile_graph() -> Graph:
    return dataclasses.replace(small_networks()[0], name=HOSTILE)


def hostile_target() -> autoturbo.Target:
    return dataclasses.replace(load_target("stcp920"), description=HOSTILE)


@pytest.fixture(scope="module")
def values(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    result = tuned(tmp_path_factory.mktemp("notebook"))
    return {
        "result": result,
        "schedule": result.best.schedule,
        "measurement": result.best.measurement,
        "target": hostile_target(),
        "comparison": compare(hostile_graph(), load_target("goya")),
    }


KINDS = ("result", "schedule", "measurement", "target", "comparison")


@pytest.mark.parametrize("kind", KINDS)
def test_html_is_whole_and_takes_nothing_from_elsewhere(kind: str, values: dict[str, Any]) -> None:
    page, _ = displayed(values[kind])
    assert not page.tags & set(FORBIDDEN)
    assert page.attributes <= {"style", "class"}
    assert "url(" not in page.styles


@pytest.mark.parametrize("kind", ["result", "comparison"])
def test_the_picture_takes_nothing_from_elsewhere(kind: str, values: dict[str, Any]) -> None:
    picture = ET.fromstring(values[kind].picture())  # noqa: S314  our own
    tags = {element.tag.rpartition("}")[2] for element in picture.iter()}
    assert tags <= {"svg", "g", "path", "rect", "line", "text"}
    named = {name for element in picture.iter() for name in element.attrib}
    assert not [name for name in named if "href" in name or name.startswith("on")]
    assert "url(" not in values[kind].picture()


@pytest.mark.parametrize("kind", KINDS)
def test_colours_are_the_page_s_own(kind: str, values: dict[str, Any]) -> None:
    """Text in a colour of ours would vanish on some background."""
    styles = displayed(values[kind])[0].styles
    assert set(re.findall(r"(?<![-\w])color: ([^;]+)", styles)) <= {"inherit"}
    assert set(re.findall(r"background: ([^;]+)", styles)) <= {"transparent"}


@pytest.mark.parametrize("kind", ["result", "schedule", "target", "comparison"])
def test_hostile_names_are_text(kind: str, values: dict[str, Any]) -> None:
    page, text = displayed(values[kind])
    assert "<script src=" in page.shown
    assert "&amp;" in page.shown
    for said in (page.shown, text):
        assert "\x1b" not in said
        assert "\u202e" not in said
        assert r"\x1b[2J\u202e" in said


@pytest.mark.parametrize("kind", KINDS)
def test_at_a_prompt_the_same_is_said(kind: str, values: dict[str, Any]) -> None:
    page, text = displayed(values[kind])
    assert sorted(page.shown.split()) == sorted(text.split())


def test_a_result_says_how_much_faster_and_where(values: dict[str, Any]) -> None:
    result = values["result"]
    _, text = displayed(result)
    lines = text.splitlines()
    assert lines[1].startswith("  best      ")
    assert lines[1].endswith("x the heuristic's speed")
    assert f"  run       {result.run}, done (trials)" in lines
    assert f"  schedule  {result.schedule_file}" in lines
    assert lines[6].split() == [
        *["scheduler", "latency", "samples/s", "vs", "tvm", "DDR", "traffic"],
        *["matrix", "use", "%", "of", "bound"],
    ]
    assert lines[-1].startswith("tuned ")


def test_values_are_one_short_line_elsewhere(values: dict[str, Any]) -> None:
    for kind in ("result", "schedule", "comparison"):
        assert len(repr(values[kind])) < 400
        assert "\n" not in repr(values[kind])


def test_what_does_not_fit_is_said() -> None:
    small = Comparison("m", "t", "int8", {"tvm": Failure("LB", "too full", 2, 1)})
    page, text = displayed(small)
    assert "tvm (TVM-like): too full" in page.shown
    assert text.splitlines()[-1].startswith("tvm (TVM-like): too full")


def test_a_comparison_is_what_the_command_prints() -> None:
    graph, target = small_networks()[1], load_target("stcp920")
    found = compare(graph, target)
    evaluator = Evaluator(graph, target, "float16")
    assert found.outcomes["tvm"] == evaluator.measure_scheduler("tvm")
    latencies = [o.latency for o in found.outcomes.values() if isinstance(o, Measurement)]
    assert latencies == sorted(latencies, reverse=True)
    fields = ["model", "target", "mixed_samples", "schedulers", "known_error", "latency_range"]
    assert list(found.as_json()) == fields


def test_energy_and_chips_without_a_global_buffer() -> None:
    assert re.search(r"\n  GB +none\n", displayed(load_target("ipu-mk2"))[1])
    measured = Evaluator(small_networks()[2], load_target("stcp920"), "float16").evaluate(Knobs())
    assert isinstance(measured, Measurement)
    assert ("energy" in displayed(measured)[1]) is (measured.energy is not None)


def test_an_empty_view_is_its_title() -> None:
    assert View("alone").text() == "alone"
    assert Page(View("alone").html()).shown.strip() == "alone"
