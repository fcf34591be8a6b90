from __future__ import annotations

from dataclasses import replace

from autoturbo.report.lines import Standing, live_line

MIDWAY = Standing(
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
        "resnet50 @ stcp920 | 412/1000 | best 7.41 ms (-31 % vs default, 88 % of bound) at #288"
        " | 840 measured/s, 18.4 k screened | infeasible 7 % (LB 24, GB 3) | 0:38 / ~1:31"
    )


def test_before_the_first_trial() -> None:
    assert live_line(Standing("a", "b", 0, 10)) == (
        "a @ b | 0/10 | starting | 0 measured/s, 0 screened | infeasible 0 % | 0:00"
    )


def test_what_comes_before_the_first_trial_is_named() -> None:
    line = live_line(Standing("a", "b", 0, 10, phase="placing cuts"))
    assert line.startswith("a @ b | 0/10 | placing cuts | ")
    assert "placing" not in live_line(Standing("a", "b", 1, 10, phase="placing cuts"))


def test_when_nothing_fits() -> None:
    standing = Standing("a", "b", 4, None, infeasible={"LB": 4}, elapsed=5)
    assert live_line(standing) == (
        "a @ b | 4 | nothing fits yet | 0 measured/s, 0 screened | infeasible 100 % (LB 4) | 0:05"
    )


def test_without_a_default_that_fits() -> None:
    line = live_line(replace(MIDWAY, default=None))
    assert "best 7.41 ms (88 % of bound) at #288" in line


def test_without_bound_and_trial() -> None:
    line = live_line(replace(MIDWAY, default=None, bound_fraction=None, best_trial=None))
    assert "| best 7.41 ms |" in line


def test_equally_frequent_reasons_are_in_a_fixed_order() -> None:
    one = live_line(replace(MIDWAY, infeasible={"LB": 2, "DDR": 2, "GB": 0}))
    other = live_line(replace(MIDWAY, infeasible={"DDR": 2, "LB": 2}))
    assert one == other
    assert "(DDR 2, LB 2)" in one


def test_hostile_names_stay_on_the_line() -> None:
    line = live_line(replace(MIDWAY, model="\x1b[2J\nx"))
    assert line.startswith(r"\x1b[2J\nx @ stcp920 | ")
