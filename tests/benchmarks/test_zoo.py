"""Third-party models go through every step; the long tier takes the whole zoo."""

from __future__ import annotations

import pytest
from zoo import entries, try_out
from zoo_models import ZOO

FEW = ("view_opset7", "unread_values", "deeplab_head", "mixture_of_experts", "qdq_conv", "if_given")
"""A symbol and old shape arithmetic, an unread output, fixed batches, quantised pairs, a branch."""


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("name", FEW)
def test_a_model_is_tuned_verified_and_written(name: str) -> None:
    (entry,) = entries([name])
    outcome = try_out(entry, trials=4)
    assert outcome.right, outcome.steps


@pytest.mark.full
@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("name", [name for name in ZOO if name not in FEW])
def test_every_model_comes_out_right(name: str) -> None:
    (entry,) = entries([name])
    outcome = try_out(entry, trials=16)
    assert outcome.right, outcome.steps
