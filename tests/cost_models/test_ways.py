"""What is said of sub-graphs, by number."""

from __future__ import annotations

import dataclasses

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from autoturbo.cost_models.ways import SAID, Ways
from autoturbo.graph.arrays import Ints
from autoturbo.schedule.knobs import AUTO, SubGraphKnobs, Value

VALUES: dict[str, tuple[Value, ...]] = {
    "boundary": (AUTO, "cut", "merge"),
    "dim": (AUTO, 0, 1),
    "factor": (AUTO, 1, 2),
    "inner_dim": (AUTO, 1, 0),
    "inner_factor": (AUTO, 4, 1),
    "priority": (AUTO, 1, 5),
    "scope": (AUTO, "LB", "GB"),
}


@st.composite
def said(draw: st.DrawFn) -> dict[str, Value]:
    """Some values, not in their one form."""
    return {name: draw(st.sampled_from(values)) for name, values in VALUES.items()}


def codes(ways: Ways, values: dict[str, Value]) -> Ints:
    """One row of them."""
    return np.asarray([[ways.own_code(name, values.get(name, AUTO)) for name in SAID]], np.int64)


def knobs(values: dict[str, Value]) -> SubGraphKnobs:
    return SubGraphKnobs("", **values)  # type: ignore[arg-type]


@settings(deadline=None, max_examples=100)
@given(st.lists(st.tuples(said(), said()), min_size=2, max_size=8))
def test_numbers_are_equal_where_knobs_are(pairs: list[tuple[dict[str, Value], ...]]) -> None:
    ways, number = Ways(), dict[SubGraphKnobs, int]()
    for own, base in pairs:
        held = codes(ways, {name: getattr(knobs(base), name) for name in VALUES})
        plain, over = ways.own_numbers(codes(ways, own)), ways.own_numbers(codes(ways, own), held)
        expected = (knobs(own), knobs(own).over(knobs(base)))
        for one, found in zip(expected, (plain, over), strict=True):
            assert number.setdefault(one, int(found[0])) == found[0]
        assert ways.over(ways.own_numbers(held), plain).tolist() == over.tolist()
    assert len(set(number.values())) == len(number)


@settings(deadline=None, max_examples=100)
@given(said(), st.booleans())
def test_boundaries_say_nothing_of_how_kernels_run(values: dict[str, Value], last: bool) -> None:
    ways = Ways()
    own, plain = (
        ways.own_numbers(codes(ways, each)) for each in (values, {**values, "boundary": AUTO})
    )
    flags = np.asarray([last])
    assert ways.named(own, flags).tolist() == ways.named(plain, flags).tolist()
    assert (own == plain).all() == (values["boundary"] == AUTO)
    cut = dataclasses.replace(knobs(values), boundary=AUTO, priority=AUTO, scope=AUTO)
    odd = bool(ways.named(own, flags)[0] % 2)
    assert odd == (last and cut != SubGraphKnobs(""))
