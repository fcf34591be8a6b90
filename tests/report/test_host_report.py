"""What is told of plans on this computer: in what they differ, and by one estimate."""

from __future__ import annotations

import pytest

from autoturbo.host.compare import CONTROL, HostComparison
from autoturbo.report.host import HostAnswer
from autoturbo.report.host_steps import differences_of, steps, subgraph_rows
from autoturbo.schedule.host_plan import BREADTH_FIRST, LOOP, TUNED, WHOLE, HostChoice, HostPlan

PARTS = [range(3), range(3, 6)]
PLANS = {
    WHOLE: HostPlan.of(PARTS, HostChoice.loop(8, 2), 8, 1, 2),
    LOOP: HostPlan.of(PARTS, HostChoice.loop(1, 2), 8, 2, 1),
    TUNED: HostPlan.of(PARTS, HostChoice((1, 2), (False,)), 8, 2, 1),
}


def answer(tuned: float, control: float = 1.5, rounds: int = 8) -> HostAnswer:
    taken = {WHOLE: 1.5, LOOP: 1.2, TUNED: tuned, CONTROL: control}
    seconds = {name: (one,) * rounds for name, one in taken.items()}
    comparison = HostComparison(seconds)
    return HostAnswer(
        "m", 8, agreed=True, chosen=comparison.winner, plans=PLANS, comparison=comparison
    )


@pytest.mark.parametrize(
    ("base", "plan", "differs"),
    [
        (WHOLE, LOOP, ["1 sample at once, not 8", "2 x 1 threads, not 1 x 2"]),
        (LOOP, TUNED, ["1, 2 samples at once, not 1", "2 sub-graphs, not 1", "depth-first"]),
        (LOOP, LOOP, []),
    ],
)
def test_in_what_plans_differ(base: str, plan: str, differs: list[str]) -> None:
    assert [*differences_of(PLANS[base], PLANS[plan])] == differs


def test_the_order_of_sub_graphs_is_told() -> None:
    other = HostPlan.of(PARTS, HostChoice((1, 2), (False,), BREADTH_FIRST), 8, 2, 1)
    assert [*differences_of(PLANS[TUNED], other)] == [BREADTH_FIRST]


def test_each_step_says_what_it_is_worth() -> None:
    found = steps(answer(1.0))
    assert [(step.base, step.plan) for step in found] == [(WHOLE, LOOP), (LOOP, TUNED)]
    assert [step.gain and round(step.gain.ratio, 3) for step in found] == [1.25, 1.2]
    assert found[0].sentence.endswith("1.25x (1.25x to 1.25x at 95 % confidence)")


def test_the_headline_is_the_gain_over_the_whole_batch_where_it_is_shown() -> None:
    gain = answer(1.0).headline
    assert gain is not None
    assert gain.ratio == pytest.approx(1.5)
    assert answer(1.0, control=0.5).headline is None  # the whole batch differs as much from itself


def test_facts_of_what_is_shown_and_of_what_is_not() -> None:
    shown = dict(answer(1.0).facts)
    assert shown["gain"].startswith("1.50x over the whole batch")
    assert shown[""].startswith("1.20x over the best loop")
    assert shown["handed out"] == "the tuned plan"
    lost = dict(answer(1.3).facts)
    assert lost["gain"].startswith("1.25x over the whole batch")
    assert lost[""].startswith("none demonstrated of the tuned plan")
    noisy = dict(answer(1.0, control=1.0).facts)  # the whole batch is 1.5x as fast as itself
    assert noisy["gain"].startswith("none demonstrated of the tuned plan")
    assert "best loop" in noisy["handed out"]


def test_rows_have_the_gains_that_lines_have() -> None:
    rows = {row[0]: row[1:] for row in answer(1.0).rows}
    assert rows[WHOLE] == ("8, 1 x 2 threads", "1.50 s", "5", "1.50x")
    assert rows[TUNED][-3:] == ("1.00 s", "8", "-")


def test_sub_graphs_with_what_they_take_alone() -> None:
    known = {(0, 1): 0.2, (3, 1): 0.5, (3, 2): 0.4}

    def alone(plan: HostPlan) -> float | None:
        (part,) = plan.subgraphs
        return known.get((part.first, part.samples))

    names = [f"op{i}" for i in range(6)]
    rows = subgraph_rows(answer(1.0), names, PARTS, alone)
    assert rows == [
        ("op0 to op2", "1", "1", "200 ms", "200 ms"),
        ("op3 to op5", "1", "2", "500 ms", "400 ms"),
    ]
    del known[3, 2]
    assert subgraph_rows(answer(1.0), [], PARTS, alone)[1] == (
        "operators 3 to 5", "1", "2", "500 ms", "-",
    )  # fmt: skip
