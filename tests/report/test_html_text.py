"""What a report says in words: names as text, sums that add up, commands that can be run."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable
from html.parser import HTMLParser

import pytest
from jinja2 import UndefinedError
from markupsafe import Markup

from autoturbo.commands.registry import build_parser
from autoturbo.database import RunInfo
from autoturbo.errors import RunError
from autoturbo.report.diff_page import Compared, difference
from autoturbo.report.explanation import GAP_TITLES, bounds_of
from autoturbo.report.facts import LIMIT_TITLES, Evidence, Facts, Measured, gather
from autoturbo.report.filling import Chart, Columns, as_script, rendered, united
from autoturbo.report.page import commands, values
from autoturbo.report.side_by_side import parts_saved
from autoturbo.report.units import duration, percent, ratio
from autoturbo.schedule.knobs import Knobs
from autoturbo.simulator.breakdown.shares import schedule_shares
from autoturbo.simulator.evaluator import Evaluator
from autoturbo.simulator.measurement import Failure, Measurement
from tests.graph.graph_samples import model
from tests.report.report_samples import HOSTILE, facts_of, measured, residual, small_facts
from tests.schedule.schedule_samples import STCP920


class Seen(HTMLParser):
    """Elements and the text between them."""

    def __init__(self, markup: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.text = ""
        self.feed(markup)
        self.text = " ".join(self.text.split())

    def handle_starttag(self, tag: str, _attrs: object) -> None:
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        self.text += data


def seen(facts: Facts, name: str) -> Seen:
    """What one template shows of a run."""
    without = dict.fromkeys(("policy", "figures", "library", "code"), "")
    return Seen(rendered(f"{name}.html", **without, **values(facts)))


def named(name: str) -> Seen:
    """The page of a run whose model and one of whose schedulers have this name."""
    facts = small_facts()
    trust = dataclasses.replace(facts.trust, findings=(name,))
    info = dataclasses.replace(facts.info, model=name)
    others = {**facts.others, name: Failure("LB", name)}
    return seen(dataclasses.replace(facts, info=info, trust=trust, others=others), "report")


def assert_names_are_text(named: Callable[[str], Seen], least: int) -> None:
    """A name of a file is text on a page wherever it stands, at least so many times."""
    harmless = named("harmless")
    times = harmless.text.count("harmless")
    assert times >= least
    for name in HOSTILE:
        page = named(name)
        assert page.tags == harmless.tags
        shown = name.replace("\u202e", "\\u202e").replace("\x1b", "\\x1b")
        assert page.text.count(shown) == times


def test_names_are_text_wherever_they_stand() -> None:
    assert_names_are_text(named, 5)


@pytest.mark.full
def test_names_are_text_beside_another_schedule() -> None:
    def laid(name: str) -> Seen:
        side = Compared(f"run {name}", name, small_facts().best, "simulated")
        knobs = {f"{name}: scope": ("auto", name)}
        page = difference(side, side, (), [(name, "1", "1", "1.00x")], knobs)
        return Seen(page.partition('<script type="application/json"')[0])

    assert_names_are_text(laid, 6)


def test_what_a_template_is_not_given_is_an_error() -> None:
    with pytest.raises(UndefinedError):
        rendered("summary.html")


def test_data_of_charts_cannot_leave_their_element() -> None:
    dumped = as_script({"one": Chart("knobs", {"rows": Columns({"knob": list(HOSTILE)})})})
    assert "<" not in dumped
    kept = json.loads(dumped)["one"]["data"]["rows"]["knob"]["of"]
    assert kept[:4] == list(HOSTILE[:4])


def test_a_number_keeps_its_unit() -> None:
    shown = united(Markup("6.62 ms for 9.67 k samples/s, 79 % of 5 sheep, 1 MiB, 3 samples"))
    assert re.findall("\\S*\N{NO-BREAK SPACE}\\S*", shown) == [
        "6.62\N{NO-BREAK SPACE}ms", "9.67\N{NO-BREAK SPACE}k", "79\N{NO-BREAK SPACE}%",
        "1\N{NO-BREAK SPACE}MiB,",
    ]  # fmt: skip


def test_what_is_saved_adds_up_to_the_difference() -> None:
    slow, fast = measured("channel"), measured()
    gone = slow.measurement.latency - fast.measurement.latency
    by_limit = {limit: slow.seconds(limit) - fast.seconds(limit) for limit in LIMIT_TITLES}
    assert sum(by_limit.values()) == pytest.approx(gone)
    largest = max(by_limit, key=lambda limit: abs(by_limit[limit]))
    assert parts_saved(slow, fast)[0].startswith(f"bound by {LIMIT_TITLES[largest]}: ")


def answers(facts: Facts) -> dict[str, str]:
    """The sentence that begins each question's section and stands right above its picture."""
    without = dict.fromkeys(("policy", "figures", "library", "code"), "")
    page = rendered("report.html", **without, **values(facts))
    found = re.findall(
        r'<section id="(\w+)"><h2>[^<]+</h2>\s*<p class="answer">([^<]*)</p>\s*<figure>', page
    )
    return {name: " ".join(text.replace("\N{NO-BREAK SPACE}", " ").split()) for name, text in found}


def test_each_question_has_a_sentence_and_a_picture() -> None:
    facts = small_facts()
    best, default = facts.best.measurement, facts.default
    assert default is not None
    found = answers(facts)
    assert list(found) == ["gained", "time", "left", "decided", "search"]
    assert all("simulated" in text and text.endswith(".") for text in found.values())
    ends = [len(re.findall(r"(?<!\.)\.(?![.\d])", text)) for text in found.values()]
    assert max(ends) <= 4
    faster = ratio(default.measurement.latency / best.latency)
    assert f"takes {duration(best.latency)}" in found["gained"]
    assert f"{faster} as fast as the heuristic" in found["gained"]
    limit = facts.best.limits[0]
    share = percent(facts.best.share(limit))
    assert f"{share} are bound by {LIMIT_TITLES[limit]}" in found["time"]
    layers = len(facts.best.schedule.context.layers)
    assert found["decided"].startswith(f"{layers} layers became")
    assert f"{percent(best.bound_fraction)} of the speed that the lower bound" in found["left"]


def test_the_answers_say_what_measured() -> None:
    facts = small_facts()
    settings = {**facts.info.settings, "measurer": "board"}
    info = dataclasses.replace(facts.info, settings=settings)
    found = answers(dataclasses.replace(facts, info=info))
    assert len(found) == 5
    assert all("measured by board" in text for text in found.values())
    assert "How it divides is simulated." in found["time"]
    shown = said(dataclasses.replace(facts, info=info))
    assert "Latencies were measured by board; where the time goes is simulated." in shown
    assert "Simulated, not silicon: docs/calibration.md" in said(facts)


def said(facts: Facts) -> str:
    return seen(facts, "summary").text


def test_the_summary_says_what_speaks_for_the_figures() -> None:
    facts = small_facts()
    assert facts.trust.ok
    assert "the same, to the bit" in said(facts)
    assert "numbers: run in ONNX Runtime, equal to the model: not run yet" in said(facts)


def test_the_summary_repeats_what_explain_says() -> None:
    """One decomposition of the time, and one of what lies above the bound."""
    facts = small_facts()
    shares = schedule_shares(facts.best.schedule).shares
    share = percent(shares.part(shares.limit))
    assert f"{share} {LIMIT_TITLES[shares.limit]}" in said(facts)
    gap = bounds_of(facts.best.schedule, what_if=False).gap
    cause = max(gap, key=lambda name: gap[name])
    assert f"{GAP_TITLES[cause]}: {duration(gap[cause])}" in said(facts)


def test_why_is_told_of_the_heuristic() -> None:
    facts = small_facts()
    assert facts.default is not None
    base = duration(facts.default.measurement.latency)
    assert f"less than the heuristic's {base}" in said(facts)
    assert "TVM" not in said(facts)


def test_the_summary_says_what_speaks_against_them() -> None:
    checks = {"regions": "ok", "memory": "failed", "numbers": "not run"}
    doubtful = Evidence(
        checks,
        same=False,
        again="other numbers than the run recorded",
        refused=2,
        findings=("two <buffers> meet",),
    )
    facts = dataclasses.replace(small_facts(), trust=doubtful)
    assert not doubtful.ok
    assert "other numbers than the run recorded" in said(facts)
    assert "two <buffers> meet" in said(facts)
    assert "2 faster trial(s) failed a check" in said(facts)


@pytest.mark.full
def test_the_commands_can_be_parsed_and_say_what_was_asked() -> None:
    facts = facts_of(residual(), trials=3, seed=5, objective="latency,ddr-bytes", patience=7)
    tune, replay, simulate, verify = (
        build_parser().parse_args(c.split()[1:]) for c in commands(facts)
    )
    assert (tune.command, tune.trials, tune.seed, tune.patience) == ("tune", 3, 5, 7)
    assert tune.objective == ["latency", "ddr-bytes"]
    assert (tune.targets, tune.dtype) == (["stcp920"], "float16")
    assert (replay.run, replay.trial) == (facts.info.id, facts.handed.trial)
    assert (verify.command, verify.run) == ("verify", facts.info.id)
    assert (simulate.command, str(simulate.schedule)) == ("simulate", "schedule.json")


@pytest.mark.parametrize(
    ("versions", "told"),
    [
        ({"python": "3.11.7", "platform": "linux aarch64"}, "Python 3.11.7 on linux aarch64"),
        ({"python": "3.11.7"}, "Python 3.11.7 on a platform not recorded"),
        ({}, "not recorded"),
    ],
)
def test_what_ran_the_tuning_is_named(versions: dict[str, str], told: str) -> None:
    facts = small_facts()
    info = dataclasses.replace(facts.info, versions={"numpy": "2.1.0", **versions})
    shown = seen(dataclasses.replace(facts, info=info), "origin").text
    assert f"versionsnumpy 2.1.0 tuned with{told} report made by" in shown


def test_a_run_without_a_schedule_has_no_report() -> None:
    graph = residual()
    info: RunInfo = dataclasses.replace(small_facts().info, best_trial=None)
    with pytest.raises(RunError):
        gather(info, "failed", (), None, None, graph, Evaluator(graph, STCP920, "float16"))


@pytest.mark.full
def test_samples_that_cannot_be_told_apart_are_on_the_first_screen() -> None:
    graph = model("(float[4,8] x) => (float[4,8] y)", "y = Softmax <axis = 0> (x)")
    evaluator = Evaluator(graph, STCP920, "float16")
    schedule = evaluator.schedule(Knobs())
    outcome = evaluator.measure(schedule)
    assert isinstance(outcome, Measurement)
    best = Measured.of(schedule, outcome)
    shown = said(dataclasses.replace(small_facts(), best=best))
    assert shown.count("samples cannot be told apart: Softmax_0 (Softmax) works across") == 1
    assert "1 of 4 clusters works on stcp920" in shown
    assert "told apart" not in said(small_facts())
