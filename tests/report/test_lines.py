from __future__ import annotations

from dataclasses import replace

import pytest

from autoturbo.commands.tuning.tuned_pairs import confidence_json
from autoturbo.database import HandedOut, Race, RunInfo
from autoturbo.report.gains import gain_sentence
from autoturbo.report.live_lines import WAITING, RunStatus, live_line, live_lines
from tests.database.database_samples import measurement, run_info

MIDWAY = RunStatus(
    model="resnet50",
    target="stcp920",
    done=412,
    total=1000,
    best=7.41e-3,
    best_trial=288,
    default=10.74e-3,
    bound_fraction=0.88,
    rate=840.3,
    screened=18_400,
    infeasible={"GB": 3, "LB": 24},
    elapsed=38,
    expected=91,
)


def test_the_line_of_the_specification() -> None:
    assert live_line(MIDWAY) == (
        "resnet50 @ stcp920 | ####...... 412/1000 trials | best 7.41 ms, 1.45x vs heuristic"
        " | 0:38, ~0:53 left | 88 % of bound | infeasible 7 % (LB 24, GB 3)"
        " | 840 measured/s, 18.4 k screened"
    )


def test_before_the_first_trial() -> None:
    assert live_line(RunStatus("a", "b", 0, 10)) == (
        "a @ b | .......... 0/10 trials | starting | 0:00"
    )


def test_what_comes_before_the_first_trial_is_named() -> None:
    line = live_line(RunStatus("a", "b", 0, 10, phase="placing cuts"))
    assert line.startswith("a @ b | .......... 0/10 trials | placing cuts | ")
    assert "placing" not in live_line(RunStatus("a", "b", 1, 10, phase="placing cuts"))


def test_when_nothing_fits() -> None:
    standing = RunStatus("a", "b", 4, None, infeasible={"LB": 4}, elapsed=5)
    assert live_line(standing) == (
        "a @ b | 4 trials | nothing fits yet | 0:05 | infeasible 100 % (LB 4)"
        " | 0 measured/s, 0 screened"
    )


def test_without_a_default_that_fits() -> None:
    line = live_line(replace(MIDWAY, default=None))
    assert "| best 7.41 ms | 0:38, ~0:53 left | 88 % of bound |" in line


def test_without_bound_and_trial() -> None:
    line = live_line(replace(MIDWAY, default=None, bound_fraction=None, best_trial=None))
    assert "| best 7.41 ms | 0:38, ~0:53 left | infeasible" in line


def test_what_matters_least_goes_first_where_the_terminal_is_narrow() -> None:
    whole = live_line(MIDWAY)
    assert live_line(MIDWAY, len(whole)) == whole
    shown = {width: live_line(MIDWAY, width) for width in (150, 120, 110, 84, 78, 72, 50, 20)}
    assert shown[150].endswith("~0:53 left | 88 % of bound | infeasible 7 % (LB 24, GB 3)")
    assert shown[120].endswith("~0:53 left | 88 % of bound")
    assert shown[110].endswith(
        "412/1000 trials | best 7.41 ms, 1.45x vs heuristic | 0:38, ~0:53 left"
    )
    least = "412/1000 | best 7.41 ms, 1.45x | ~0:53 left"
    assert shown[84] == f"resnet50 @ stcp920 | ####...... {least.replace('~', '0:38, ~')}"
    assert shown[78] == f"resnet50 @ stcp920 | ####...... {least}"
    assert shown[72] == f"resnet50 @ stcp920 | {least}"
    assert shown[50] == shown[20] == least
    assert all(len(line) <= width for width, line in shown.items() if width >= len(least))


def test_a_limit_of_time_has_a_bar_and_a_clock() -> None:
    line = live_line(replace(MIDWAY, total=None, expected=76.0))
    assert line.startswith("resnet50 @ stcp920 | #####..... 412 trials | best 7.41 ms, 1.45x")
    assert " | 0:38, 0:38 left | " in line


def test_equally_frequent_reasons_are_in_a_fixed_order() -> None:
    one = live_line(replace(MIDWAY, infeasible={"LB": 2, "DDR": 2, "GB": 0}))
    other = live_line(replace(MIDWAY, infeasible={"DDR": 2, "LB": 2}))
    assert one == other
    assert "(DDR 2, LB 2)" in one


def test_hostile_names_stay_on_the_line() -> None:
    line = live_line(replace(MIDWAY, model="\x1b[2J\nx"))
    assert line.startswith(r"\x1b[2J\nx @ stcp920 | ")


SHORT = replace(MIDWAY, model="dlrm", done=1000, elapsed=91, ended=True, infeasible={})
WAITS = RunStatus("bert_base_s512", "ascend-910", 0, None, phase=WAITING)


def test_lines_of_several_runs_are_below_each_other() -> None:
    best = "best 7.41 ms, 1.45x vs heuristic"
    assert live_lines([MIDWAY, SHORT, WAITS], 120) == [
        f"resnet50 @ stcp920          | ####...... 412/1000 trials  | {best} | 0:38, ~0:53 left",
        f"dlrm @ stcp920              | ########## 1000/1000 trials | {best} | 1:31, done",
        "bert_base_s512 @ ascend-910 |                             | waiting",
    ]


@pytest.mark.parametrize("width", [80, 100, 120, 200])
def test_lines_of_several_runs_leave_out_the_same_parts(width: int) -> None:
    lines = live_lines([MIDWAY, SHORT, WAITS], width)
    assert len(lines) == 3
    assert max(map(len, lines)) <= width
    assert [line.split(" ")[0] for line in lines] == ["resnet50", "dlrm", "bert_base_s512"]
    assert "412/1000" in lines[0]
    assert "best 7.41 ms, 1.45x" in lines[0]
    assert "~0:53 left" in lines[0]
    assert ("vs heuristic" in lines[0]) == ("vs heuristic" in lines[1]) == (width > 100)


def test_names_of_several_runs_are_cut_short_and_never_left_out() -> None:
    lines = live_lines([MIDWAY, SHORT, WAITS], 60)
    assert lines == [
        "resnet50 @ .. | 412/1000  | best 7.41 ms, 1.45x | ~0:53 left",
        "dlrm @ stcp.. | 1000/1000 | best 7.41 ms, 1.45x | done",
        "bert_base_s.. |           | waiting",
    ]


@pytest.mark.parametrize(
    ("height", "shown", "last"),
    [
        (5, ["a", "b", "c", "d", "e"], ""),
        (4, ["a", "b", "c"], "2 more pairs: 2 waiting"),
        (3, ["b", "c"], "3 more pairs: 1 done, 2 waiting"),
        (2, ["b"], "4 more pairs: 1 under way, 1 done, 2 waiting"),
        (1, ["b"], "4 more pairs: 1 under way, 1 done, 2 waiting"),
    ],
)
def test_where_there_are_more_runs_than_lines_the_last_sums_them_up(
    height: int, shown: list[str], last: str
) -> None:
    runs = [
        replace(SHORT, model="a"), replace(MIDWAY, model="b"), replace(MIDWAY, model="c"),
        replace(WAITS, model="d"), replace(WAITS, model="e"),
    ]  # fmt: skip
    lines = live_lines(runs, 120, height)
    if last:
        assert lines.pop() == last
    assert [line.split(" ")[0] for line in lines] == shown


ENERGY = "1.001x to 1.035x at 95 % confidence"
LUCK = " once allowed for that only gains that show are stated"


def raced(gain: float, low: float, high: float, objective: str = "latency") -> RunInfo:
    """A run whose best schedule won a race of twelve rounds."""
    race = Race(objective, 0, 7, gain, low, high, 0.95, 0.02, 48, 12)
    base = measurement(0.01 * gain)
    handed = HandedOut(7, 50, measurement(0.01), base, race=race, varies=True)
    return run_info(handed_out=handed, settings={"measurer": "board"}, state="done")


@pytest.mark.parametrize(
    ("info", "sentence", "corrected"),
    [
        (
            raced(1.018, 1.0045, 1.0317),
            f"1.018x over the heuristic (1.004x to 1.032x at 95 % confidence; 1.012x{LUCK})",
            1.0117,
        ),
        (
            raced(1.018, 1.001, 1.0353, "energy"),
            f"1.018x in energy over the heuristic ({ENERGY}; 1.000x{LUCK})",
            1.0,
        ),
        (
            raced(1.018, 1.010, 1.0261),
            "1.018x over the heuristic (1.010x to 1.026x at 95 % confidence)",
            1.018,
        ),
        (
            raced(1.5, 1.08, 2.08),
            f"1.50x over the heuristic (1.08x to 2.08x at 95 % confidence; 1.19x{LUCK})",
            1.187,
        ),
        (raced(3.4, 3.1, 3.7), "3.40x over the heuristic (3.10x to 3.70x at 95 % confidence)", 3.4),
        (
            raced(1.01, 0.998, 1.022),
            "none demonstrated: 0.998x to 1.022x at 95 % confidence, over the heuristic",
            None,
        ),
    ],
)
def test_a_small_gain_says_how_much_of_it_is_for_being_stated(
    info: RunInfo, sentence: str, corrected: float | None
) -> None:
    assert gain_sentence(info) == sentence
    sure = confidence_json(info)
    assert sure is not None
    assert sure["gain_corrected"] == (corrected and pytest.approx(corrected, abs=1e-3))
