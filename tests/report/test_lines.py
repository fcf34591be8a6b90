from __future__ import annotations

from dataclasses import replace

from autoturbo.report.lines import RunStatus, live_line

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
        "resnet50 @ stcp920 | ####...... 412/1000 | best 7.41 ms, 1.45x | 0:38, ~0:53 left"
        " | 88 % of bound | infeasible 7 % (LB 24, GB 3) | 840 measured/s, 18.4 k screened"
    )


def test_before_the_first_trial() -> None:
    assert live_line(RunStatus("a", "b", 0, 10)) == (
        "a @ b | .......... 0/10 | starting | 0:00 | 0 measured/s, 0 screened"
    )


def test_what_comes_before_the_first_trial_is_named() -> None:
    line = live_line(RunStatus("a", "b", 0, 10, phase="placing cuts"))
    assert line.startswith("a @ b | .......... 0/10 | placing cuts | ")
    assert "placing" not in live_line(RunStatus("a", "b", 1, 10, phase="placing cuts"))


def test_when_nothing_fits() -> None:
    standing = RunStatus("a", "b", 4, None, infeasible={"LB": 4}, elapsed=5)
    assert live_line(standing) == (
        "a @ b | 4 | nothing fits yet | 0:05 | infeasible 100 % (LB 4) | 0 measured/s, 0 screened"
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
    shown = {width: live_line(MIDWAY, width) for width in (140, 100, 84, 72, 50, 20)}
    assert shown[140].endswith("~0:53 left | 88 % of bound | infeasible 7 % (LB 24, GB 3)")
    assert shown[100].endswith("~0:53 left | 88 % of bound")
    least = "412/1000 | best 7.41 ms, 1.45x | 0:38, ~0:53 left"
    assert shown[84] == f"resnet50 @ stcp920 | ####...... {least}"
    assert shown[72] == f"resnet50 @ stcp920 | {least}"
    assert shown[50] == shown[20] == least
    assert all(len(line) <= width for width, line in shown.items() if width >= len(least))


def test_a_limit_of_time_has_a_bar_and_a_clock() -> None:
    line = live_line(replace(MIDWAY, total=None, expected=76.0))
    assert line.startswith("resnet50 @ stcp920 | #####..... 412 | best 7.41 ms, 1.45x | 0:38, 0:38")


def test_equally_frequent_reasons_are_in_a_fixed_order() -> None:
    one = live_line(replace(MIDWAY, infeasible={"LB": 2, "DDR": 2, "GB": 0}))
    other = live_line(replace(MIDWAY, infeasible={"DDR": 2, "LB": 2}))
    assert one == other
    assert "(DDR 2, LB 2)" in one


def test_hostile_names_stay_on_the_line() -> None:
    line = live_line(replace(MIDWAY, model="\x1b[2J\nx"))
    assert line.startswith(r"\x1b[2J\nx @ stcp920 | ")
