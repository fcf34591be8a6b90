"""What rows are written with: reading nodes, padding rules, broadcasting."""

from __future__ import annotations

import numpy as np
import pytest

from autoturbo.graph.domain import AxisKind, along, fixed
from autoturbo.graph.operator_table import NoRowError, ValueView
from autoturbo.graph.operator_table.build import (
    SCALAR,
    Domain,
    broadcast,
    chosen_axes,
    per_channel,
    positive_axis,
    whole_if,
)
from autoturbo.graph.operator_table.convolution import windows
from tests.graph.operator_table.operator_harness import node
from tests.tiers import spread


def test_an_axis_counts_from_the_front() -> None:
    assert positive_axis(-1, 4) == 3
    assert positive_axis(0, 4) == 0
    for axis in (4, -5):
        with pytest.raises(NoRowError):
            positive_axis(axis, 4)


def test_no_axes_means_all() -> None:
    assert chosen_axes(None, 3) == {0, 1, 2}
    assert chosen_axes((), 3) == frozenset()
    assert chosen_axes((-1, 0), 3) == {0, 2}


def test_attributes() -> None:
    view = node("Any", [], [], mode=b"linear", pads=(1, 2), axis=3)
    assert view.text("mode", "nearest") == "linear"
    assert view.text("other", "nearest") == "nearest"
    assert view.integers("pads") == (1, 2)
    assert view.integers("other") is None
    with pytest.raises(NoRowError):
        view.integers("axis")


def test_parameters_are_attributes_or_known_inputs() -> None:
    known, unknown = node("Any", [(2,), np.array([3, 1])], []), node("Any", [(2,), (2,)], [])
    assert known.constant_integers(1) == (3, 1)
    assert known.constant_integers(2) is None
    assert known.parameter("axes", 1) == (3, 1)
    assert node("Any", [(2,), (2,)], [], axes=(5,)).parameter("axes", 1) == (5,)
    with pytest.raises(NoRowError):
        unknown.parameter("axes", 1)


def test_weights_and_optional_outputs() -> None:
    view = node("Any", [(2,), (2,), None], [(2,)], weights=[1])
    assert view.is_weight(1)
    assert view.is_weight(0, 1)
    assert not view.is_weight(0, 2, 7)
    assert view.has_output(0)
    assert not view.has_output(1)


def test_broadcast_aligns_to_the_right() -> None:
    dims = (along(0), along(1), along(2))
    assert broadcast((3, 1), (2, 3, 4), dims).dims == (along(1), fixed())
    assert broadcast((), (2, 3, 4), dims) == SCALAR
    assert broadcast((1,), (2, 3, 1), dims).dims == (along(2),)
    for shape in ((2, 4), (1, 2, 3, 4)):
        with pytest.raises(NoRowError):
            broadcast(shape, (2, 3, 4), dims)


def test_a_parameter_is_per_channel_or_for_all() -> None:
    def of(*shape: int) -> ValueView:
        return ValueView("p", shape, "float32")

    access = per_channel(of(8), along(1), 8)
    assert access is not None
    assert access.dims == (along(1),)
    assert per_channel(of(), along(1), 8) == SCALAR
    assert per_channel(None, along(1), 8) is None
    single = per_channel(of(1), along(1), 8)
    assert single is not None
    assert single.dims == (fixed(),)
    with pytest.raises(NoRowError):
        per_channel(of(4), along(1), 8)


def test_axes_are_named_by_their_index() -> None:
    domain = Domain()
    dims = domain.dims((2, 3), whole_if([1]))
    assert dims == (along(0), along(1))
    assert (domain.reduction("k", 4), domain.window("w", 5), domain.whole("x", 6)) == (2, 3, 4)
    assert [axis.extent for axis in domain.axes] == [2, 3, 4, 5, 6]
    assert [axis.kind for axis in domain.axes] == [
        AxisKind.PARALLEL,
        AxisKind.WHOLE,
        AxisKind.REDUCTION,
        AxisKind.WINDOW,
        AxisKind.WHOLE,
    ]


@pytest.mark.parametrize(
    ("attributes", "source", "target", "pad"),
    spread(
        [
            ({}, 7, 5, 0),
            ({"pads": (1, 2)}, 7, 8, 1),
            ({"auto_pad": "VALID", "pads": (1, 1)}, 7, 5, 0),
            ({"auto_pad": "SAME_UPPER"}, 7, 7, 1),
            ({"auto_pad": "SAME_UPPER", "strides": (2,)}, 8, 4, 0),
            ({"auto_pad": "SAME_LOWER", "strides": (2,)}, 8, 4, 1),
            ({"auto_pad": "SAME_UPPER", "dilations": (2,)}, 7, 7, 2),
            ({"auto_pad": b"SAME_UPPER", "strides": (4,)}, 8, 2, 0),
            ({"auto_pad": "NOTSET", "pads": (2, 0)}, 7, 7, 2),
        ],
        3,
    ),
)
def test_padding_before_the_first_element(
    attributes: dict[str, object], source: int, target: int, pad: int
) -> None:
    (window,) = windows(node("Any", [], [], **attributes), (3,), (source,), (target,))  # type: ignore[arg-type]
    assert window.pad == pad
    assert window.kernel == 3


def test_ranks_of_windows_must_agree() -> None:
    with pytest.raises(NoRowError):
        windows(node("Any", [], []), (3, 3), (7,), (5,))
