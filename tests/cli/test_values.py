"""What flags' values look like."""

from __future__ import annotations

from argparse import Namespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoturbo.commands import flag_values as values
from autoturbo.errors import UsageError, did_you_mean


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 90),
        ("90s", 90),
        ("0.5", 0.5),
        ("1.5s", 1.5),
        ("10m", 600),
        ("2h", 7200),
        ("1h30m", 5400),
        ("1h5s", 3605),
        ("1h2m3s", 3723),
    ],
)
def test_durations(text: str, seconds: float) -> None:
    assert values.duration("--time-budget")(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "m", "10 m", "-5", "10d", "1m1h", "nan", "inf", "1e3", "0", "0h", "9" * 20, "1.5m"]
)
def test_not_durations(text: str) -> None:
    with pytest.raises(UsageError, match="is not a duration") as raised:
        values.duration("--time-budget")(text)
    assert raised.value.at.field == "--time-budget"
    assert raised.value.hint == "for example 90s, 10m or 1h30m"


@given(st.integers(0, 99), st.integers(0, 99), st.integers(1, 99))
def test_durations_add_up(hours: int, minutes: int, seconds: int) -> None:
    text = f"{hours}h{minutes}m{seconds}s"
    assert values.duration("")(text) == 3600 * hours + 60 * minutes + seconds


@pytest.mark.parametrize(
    ("text", "shape"),
    [
        ("data=1,3,224,224", ("data", (1, 3, 224, 224))),
        ("data=7", ("data", (7,))),
        ("scalar=", ("scalar", ())),
        ("a=b=2,2", ("a=b", (2, 2))),
        ("data= 1, 2", ("data", (1, 2))),
    ],
)
def test_shapes(text: str, shape: tuple[str, tuple[int, ...]]) -> None:
    assert values.shape(text) == shape


@pytest.mark.parametrize("text", ["", "=1", "data", "data=1,", "data=-1", "data=1.5", "data=1x2"])
def test_not_shapes(text: str) -> None:
    with pytest.raises(UsageError) as raised:
        values.shape(text)
    assert raised.value.at.field == "--shape"


def test_dimensions() -> None:
    assert values.dimension("seq_len=128") == ("seq_len", 128)
    assert values.dimension("past + 1=7") == ("past + 1", 7)
    assert values.dimension("past=0") == ("past", 0)
    assert values.merged("--dim", [("a", 1), ("b", 2)]) == {"a": 1, "b": 2}
    with pytest.raises(UsageError, match="'a' is given twice"):
        values.merged("--dim", [("a", 1), ("a", 1)])


@pytest.mark.parametrize("text", ["", "N", "=1", "N=", "N=-1", "N=x", "N=1,2", "N=1.5"])
def test_not_dimensions(text: str) -> None:
    with pytest.raises(UsageError) as raised:
        values.dimension(text)
    assert raised.value.at.field == "--dim"


def test_each_shape_once() -> None:
    assert values.merged("--shape", [("a", (1,)), ("b", (2,))]) == {"a": (1,), "b": (2,)}
    with pytest.raises(UsageError, match="'a' is given twice"):
        values.merged("--shape", [("a", (1,)), ("a", (1,))])


@pytest.mark.parametrize(("text", "value"), [("1", 1), ("007", 7), (" 8 ", 8), ("1_000", 1000)])
def test_whole_numbers(text: str, value: int) -> None:
    assert values.whole_number("--trials", 1)(text) == value


@pytest.mark.parametrize("text", ["", "x", "1.0", "1e3", "--"])
def test_not_whole_numbers(text: str) -> None:
    with pytest.raises(UsageError, match="is not a whole number"):
        values.whole_number("--trials", 1)(text)


@pytest.mark.parametrize("text", ["0", "-1", "99999999999999999999"])
def test_whole_numbers_out_of_range(text: str) -> None:
    with pytest.raises(UsageError, match="is out of range"):
        values.whole_number("--trials", 1)(text)


def test_objectives() -> None:
    read = values.ManyOf(values.OneOf("--objective", ("latency", "energy")))
    assert read("latency") == ["latency"]
    assert read("latency, energy") == ["latency", "energy"]
    assert values.ManyOf(values.OneOf("--baselines", ("tvm",)), empty=True)("") == []
    with pytest.raises(UsageError, match="'' is not known"):
        read("latency,")


def test_names_are_looked_up_only_when_needed() -> None:
    convert = values.OneOf("--x", "autoturbo.no_such_module:NAMES")
    with pytest.raises(ModuleNotFoundError):
        convert("a")


def test_hints() -> None:
    assert did_you_mean("quik", ["quick", "slow"]) == "did you mean 'quick'?"
    assert did_you_mean("zzz", ["quick", "slow"]) == "one of quick, slow"


def test_how_a_model_is_loaded_is_kept_as_json(monkeypatch: pytest.MonkeyPatch) -> None:
    import json
    from pathlib import Path

    from autoturbo.commands.loading import how_to_load

    monkeypatch.setattr(Path, "cwd", lambda: Path("/somewhere"))
    plain = how_to_load(Namespace(batch=None, batch_dim=[], shape=[], dim=[], value=[]))
    assert plain == {"folder": "/somewhere", "model_batch": None}
    given = Namespace(
        batch=4,
        batch_dim=["N", "x:0"],
        shape=[("x", (4, 8))],
        dim=[("N", 2)],
        value=[("sr", (16000,))],
    )
    kept = json.loads(json.dumps(how_to_load(given)))
    assert (kept["shapes"], kept["dims"]) == ({"x": [4, 8]}, {"N": 2})
    assert (kept["values"], kept["batch_dim"]) == ({"sr": [16000]}, ["N", "x:0"])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("sr=16000", ("sr", (16000,))),
        ("a=b=0.5,-2", ("a=b", (0.5, -2))),
        ("on=True,false", ("on", (1, 0))),
    ],
)
def test_values_of_inputs(text: str, expected: tuple[str, tuple[float, ...]]) -> None:
    assert values.value(text) == expected


@pytest.mark.parametrize("text", ["sr", "=1", "sr=", "sr=fast", "sr=1,"])
def test_values_that_are_no_numbers(text: str) -> None:
    with pytest.raises(UsageError, match="is not a name with numbers"):
        values.value(text)
