"""Pages of runs by their records alone: what they count, draw and show."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoturbo.database import RunInfo, TrialRecord
from autoturbo.report.runs import (
    MOST_RUNS,
    ListedRun,
    RunPage,
    dashboard_part,
    index,
    knob_words,
    light_page,
    wanted,
)
from autoturbo.report.sparklines import CURVE, MOST_DOTS, Course
from autoturbo.schedule.knobs import Knobs
from autoturbo.schedule.knobs.candidate import SubGraphKnobs
from autoturbo.simulator.measurement import Failure
from tests.report.browser import CHROMIUM, Page, browser
from tests.report.report_samples import HOSTILE, small_facts

LATENCIES = st.lists(st.one_of(st.none(), st.floats(1e-6, 1e3)), max_size=40)


def course_of(latencies: list[float | None]) -> Course:
    return Course.of(tuple(enumerate(latencies)))


@given(LATENCIES)
def test_steps_are_the_best_so_far(latencies: list[float | None]) -> None:
    course = course_of(latencies)
    measured = [latency for latency in latencies if latency is not None]
    assert (course.measured, course.failed) == (len(measured), len(latencies) - len(measured))
    seconds = [latency for _, latency in course.steps]
    assert seconds == sorted(set(seconds), reverse=True)
    assert bool(course.spark) == bool(measured)
    if measured:
        assert (seconds[0], seconds[-1]) == (measured[0], min(measured))


@given(LATENCIES, st.one_of(st.none(), st.floats(1e-6, 1e3)), st.integers(0, 100))
def test_a_curve_stays_in_its_box(
    latencies: list[float | None], base: float | None, end: int
) -> None:
    drawn = course_of(latencies).curve(base, end)
    assert (drawn is None) == (not any(latencies))
    if drawn is None:
        return
    assert drawn.low < min(s for s in latencies if s is not None) <= drawn.high
    assert base is None or base <= drawn.high
    for path in (drawn.line, drawn.dots):
        numbers = path.replace("M", " ").replace("H", " ").replace("V", " ").replace("h0", " ")
        assert all(0 <= float(number) <= max(CURVE) for number in numbers.split())


def test_of_many_trials_an_even_share_is_drawn_and_slow_ones_are_at_the_edge() -> None:
    drawn = course_of([1.0, 0.5, *[0.7] * 2000, 90.0]).curve()
    assert drawn is not None
    assert drawn.dots.count("h0") == drawn.drawn == MOST_DOTS
    assert (drawn.beyond, drawn.high < 2) == (1, True)
    assert f"M{CURVE[0]:.1f} 0.0h0" in drawn.dots  # the last one


def test_what_failed_a_check_is_no_best_so_far() -> None:
    course = Course.of(((0, 3.0), (1, 1.0), (2, 2.0)), refused=(1,))
    assert course.steps == ((0, 3.0), (2, 2.0))


def test_a_candidate_is_told_by_what_differs() -> None:
    one = Knobs(max_layers=2, overrides=(SubGraphKnobs("a", prefetch_depth=2),))
    two = Knobs(max_layers=4, overrides=(SubGraphKnobs("a", prefetch_depth=3),))
    assert knob_words(Knobs()) == "as the heuristic"
    assert knob_words(one) == "max_layers=2, knobs of 1 sub-graph"
    assert knob_words(two, one) == "max_layers=4, knobs of 1 sub-graph"
    assert knob_words(Knobs(), one) == "max_layers=auto, knobs of 1 sub-graph"
    assert knob_words(one, one) == "the same setting"
    many = Knobs(max_layers=2, prefetch_depth=2, tile_subdivision=4, fetch_ahead=1024)
    assert knob_words(many, most=3).endswith(", 1 more knob")


def small_info(**changed: object) -> RunInfo:
    return dataclasses.replace(small_facts().info, **changed)  # type: ignore[arg-type]


def listed(info: RunInfo, state: str = "done", **more: object) -> ListedRun:
    course = Course.of([
        (t.number, None if isinstance(t.outcome, Failure) else t.outcome.latency)
        for t in small_facts().trials
    ])  # fmt: skip
    return ListedRun(info, state, f"{info.id}.html", course, **more)  # type: ignore[arg-type]


def records(info: RunInfo, course: Course) -> dict[int, TrialRecord]:
    """Records of the small run that its page asks for; one of them failed."""
    made = {
        t.number: TrialRecord(info.id, t.number, t.knobs, t.outcome, info.created)
        for t in small_facts().trials
    }
    chosen = {number: made[number] for number in wanted(info, course)}
    last = max(chosen)
    failed = dataclasses.replace(chosen[last], outcome=Failure("LB", HOSTILE[0]))
    return chosen | {last: failed}


def test_progress_says_what_is_asked_for_made_and_to_come() -> None:
    info = small_info(handed_out=None)
    trials = small_info().trials
    going = listed(dataclasses.replace(info, settings={**info.settings, "trials": trials + 5}),
                   "running", climb=15)  # fmt: skip
    assert going.waiting == 20
    said = going.progress
    assert said.startswith(f"{trials + 5} trials asked for, 15 more by climbing at most: ")
    assert said.endswith("about 20 to go")
    assert dataclasses.replace(going, state="interrupted").waiting == 0
    timed = dataclasses.replace(
        info, settings={**info.settings, "trials": None, "time_budget": 90.0}
    )
    assert listed(timed, "running").progress.startswith("1:30 at most: ")


def test_hostile_names_are_text() -> None:
    info = small_info(model=HOSTILE[1], target=HOSTILE[0])
    run = listed(info, "running")
    page = RunPage(run, records(info, run.course), note=HOSTILE[2])
    for text in (
        index([run], HOSTILE[0]), light_page(page), dashboard_part([run], HOSTILE[0], ()),
    ):  # fmt: skip
        shown = text.replace('<script>"use strict', "")
        for name in HOSTILE[:3]:
            assert name not in shown
        assert "&lt;script&gt;alert(1)" in shown


def test_older_runs_are_folded_away() -> None:
    runs = [listed(small_info(id=f"r{n}")) for n in range(MOST_RUNS + 3)]
    page = index(runs, "autoturbo.db")
    assert "<summary>3 older runs</summary>" in page
    assert page.index("run-r52") < page.index("run-r3") < page.index("<summary>")
    assert page.index("<summary>") < page.index('run-r2"')


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with browser(tmp_path_factory.mktemp("profile")) as found:
        yield found


ORDER = "[...document.querySelectorAll('#pairs tbody tr')].map(r => r.cells[0].innerText).join()"


@pytest.mark.browser
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium")
def test_columns_sort_by_value_with_missing_ones_last(page: Page, tmp_path: Path) -> None:
    """9 ms come before 80 us as text; ``net10`` after ``net9`` as names; no gain is no number."""

    def named(model: str, latency: float, base: float | None) -> ListedRun:
        return listed(small_info(model=model, handed_out=None, best_latency=latency,
                                 default_latency=base))  # fmt: skip

    runs = [named("net9", 9e-3, None), named("net10", 80e-6, 90e-6), named("alex", 1e-3, 5e-3)]
    file = tmp_path / "index.html"
    file.write_text(index(runs, "autoturbo.db"), encoding="utf-8")
    page.open(file, drawn=False)
    sorted_by = "document.querySelectorAll('#pairs th[aria-sort]')"

    def click(title: str) -> tuple[str, str]:
        heads = "[...document.querySelectorAll('#pairs th')]"
        page.run(f"{heads}.find(h => h.innerText === '{title}').querySelector('button').click()")
        assert page.run(f"[...{sorted_by}].map(h => h.innerText)") == [title]
        return page.run(f"{sorted_by}[0].getAttribute('aria-sort')"), page.run(ORDER)

    assert page.run(ORDER) == "net9,net10,alex"
    assert page.run(f"{sorted_by}.length") == 0
    assert click("tuned") == ("ascending", "net10,alex,net9")
    assert click("tuned") == ("descending", "net9,alex,net10")
    assert click("model") == ("ascending", "alex,net9,net10")
    assert click("gain") == ("ascending", "net10,alex,net9")
    assert click("gain") == ("descending", "alex,net10,net9")
    page.run("document.querySelector('#pairs th button').focus()")
    page.press("Enter")
    assert page.run(ORDER) == "alex,net9,net10"
    assert page.complaints == []
