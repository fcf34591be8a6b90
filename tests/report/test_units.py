from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoturbo.report import units


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (7.41e-3, "7.41 ms"),
        (12.34e-3, "12.3 ms"),
        (0.1234, "123 ms"),
        (0.9996, "1.00 s"),
        (812.4e-6, "812 us"),
        (999.6e-6, "1.00 ms"),
        (3.2e-9, "3.20 ns"),
        (2e-12, "0.00 ns"),
        (0.0, "0.00 ns"),
        (125.0, "125 s"),
        (math.inf, "-"),
        (math.nan, "-"),
    ],
)
def test_duration(seconds: float, text: str) -> None:
    assert units.duration(seconds) == text


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.00 kB"),
        (51_098_624, "51.1 MB"),
        (1.23e9, "1.23 GB"),
        (25e12, "25.0 TB"),
        (2**50, "1126 TB"),
    ],
)
def test_size(number: float, text: str) -> None:
    assert units.size(number) == text


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0"),
        (24, "24"),
        (840, "840"),
        (8.4, "8.40"),
        (0.5, "0.50"),
        (999.7, "1.00 k"),
        (18_400, "18.4 k"),
        (4_089_184_256, "4.09 G"),
    ],
)
def test_count(number: float, text: str) -> None:
    assert units.count(number) == text


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0 B"),
        (512, "512 B"),
        (2**20, "1 MiB"),
        (8 * 2**20, "8 MiB"),
        (624 * 1024, "624 KiB"),
        (3 * 2**29, "1.50 GiB"),
    ],
)
def test_capacity(number: float, text: str) -> None:
    assert units.capacity(number) == text


def test_macs() -> None:
    assert units.macs(4_089_184_256) == "4.09 GMAC"
    assert units.macs(7) == "7 MAC"


@pytest.mark.parametrize(
    ("share", "text"),
    [(0.88, "88 %"), (0, "0 %"), (1, "100 %"), (0.003, "0.3 %"), (0.00042, "0.042 %")],
)
def test_percent(share: float, text: str) -> None:
    assert units.percent(share) == text


@pytest.mark.parametrize(
    ("new", "old", "text"),
    [(0.69, 1.0, "-31 %"), (1.1, 1.0, "+10 %"), (1.0, 1.0, "0 %"), (0.998, 1.0, "0 %")],
)
def test_change(new: float, old: float, text: str) -> None:
    assert units.change(new, old) == text


def test_joules() -> None:
    assert [units.joules(e) for e in (3.21, 0.512, 4e-6)] == ["3.21 J", "512 mJ", "4.00 uJ"]


def test_ratio() -> None:
    assert [units.ratio(value) for value in (1, 1.449, 12.34, 340)] == [
        "1.00x",
        "1.45x",
        "12.3x",
        "340x",
    ]
    assert units.ratio(math.inf) == "-x"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0:00"), (38.2, "0:38"), (91, "1:31"), (3723, "1:02:03"), (59.7, "1:00"), (-1, "0:00")],
)
def test_clock(seconds: float, text: str) -> None:
    assert units.clock(seconds) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("conv1", "conv1"),
        ("größe 层", "größe 层"),
        ("[red]x[/red]", "[red]x[/red]"),
        ("a\nb\tc", r"a\nb\tc"),
        ("\x1b[31mred", r"\x1b[31mred"),
        ("abc\u202edef", r"abc\u202edef"),
        ("\ud800", r"\ud800"),
        ("two\u2028lines", r"two\u2028lines"),
    ],
)
def test_plain_shows_hidden_characters_as_escapes(text: str, shown: str) -> None:
    assert units.plain(text) == shown


@given(st.text())
def test_plain_text_is_printable_on_one_line(text: str) -> None:
    shown = units.plain(text)
    assert len(shown.splitlines()) <= 1
    shown.encode("utf-8")


@given(st.floats(1e-9, 1e5))
def test_durations_have_three_significant_digits(seconds: float) -> None:
    number, unit = units.duration(seconds).split()
    factor = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}[unit]
    assert float(number) * factor == pytest.approx(seconds, rel=0.0051)
    assert len(number.replace(".", "").lstrip("0")) <= 6


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (1, "1"),
        (999_999, "999999"),
        (1_000_000, "1.0 x 10^6"),
        (1_260_000, "1.3 x 10^6"),
        (9_960_000, "1.0 x 10^7"),
        (46 * 10**45, "4.6 x 10^46"),
    ],
)
def test_many(number: int, text: str) -> None:
    assert units.many(number) == text


@given(st.integers(10**6, 10**400))
def test_many_is_right_to_half_a_digit(number: int) -> None:
    mantissa, power = units.many(number).split(" x 10^")
    shown = int(mantissa.replace(".", "")) * 10 ** (int(power) - 1)
    assert abs(shown - number) <= 6 * 10 ** (int(power) - 2)  # four digits are looked at
