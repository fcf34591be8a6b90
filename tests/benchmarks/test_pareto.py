"""The areas that the comparison of fronts is made of."""

from __future__ import annotations

import numpy as np
import pytest
from pareto import hypervolume, shares


def test_an_area_counts_what_any_point_dominates_once() -> None:
    points = np.asarray([[0.0, 2.0], [1.0, 1.0], [1.5, 1.5], [4.0, 0.0]])
    assert hypervolume(points, np.asarray([3.0, 3.0])) == pytest.approx(3 * 1 + 2 * 1)


def test_a_run_that_found_the_joint_front_has_all_of_it() -> None:
    heuristic = [3.0, 3.0]
    whole = np.asarray([heuristic, [0.0, 2.0], [2.0, 0.0]])
    half = np.asarray([heuristic, [0.0, 2.0]])
    found = shares({"a": [whole], "b": [half]})
    assert found["a"] == pytest.approx([1.0])
    assert found["b"] == pytest.approx([3 / 5], rel=1e-2)
    assert shares({"a": [whole], "b": [whole[:1]]})["b"][0] < 1e-2
