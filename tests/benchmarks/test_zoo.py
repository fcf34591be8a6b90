"""Third-party models go through every step: one of them at once, others in the full tier."""

from __future__ import annotations

import pytest
from zoo import entries, try_out

from tests.tiers import tiered

FEW = (
    "unread_values", "deeplab_head", "mixture_of_experts", "qdq_conv", "if_given", "tf_nhwc",
    "half_precision", "lstm_opset7", "decoder_opset23", "optimised_bert", "custom_operator",
    "int4_blocks", "masked_batch", "stacked_lstm", "qlinear_pool", "loop_long",
)  # fmt: skip
"""An unread output, fixed batches, quantised pairs, branches, other layouts and operators, narrow
weights, masks and states of all samples, long loops."""


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("name", tiered(["view_opset7"], FEW))
def test_a_model_is_tuned_verified_and_written(name: str) -> None:
    (entry,) = entries([name])
    outcome = try_out(entry, trials=4)
    assert outcome.right, outcome.steps
