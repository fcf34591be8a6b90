"""From exact answers to proposals where exactness ends.

The dynamic programme keeps every output in DDR, so that sub-graphs do not depend on each other.
Kept in the local buffers where they fit, outputs cost less, and the same cuts are a good start.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from autoturbo.schedule.knobs import AUTO, Knobs
from autoturbo.simulate.evaluator import Evaluator
from autoturbo.simulate.measurement import Measurement

_FREED = ("scope", "cores")
"""Knobs of sub-graphs that only keep them apart."""


def freed(knobs: Knobs) -> Iterator[Knobs]:
    """The cuts and splits of a setting with outputs, bindings and weights as the model's knobs say.

    The setting itself comes first; then outputs wherever they fit, with weights streamed and kept.
    """
    own = tuple(dataclasses.replace(o, **dict.fromkeys(_FREED, AUTO)) for o in knobs.overrides)
    yield knobs
    for scope in (AUTO, "GB", "DDR"):
        for residence in (AUTO, "GB", "LB"):
            for order in (AUTO, "dfs"):
                yield dataclasses.replace(
                    knobs, output_scope=scope, weight_residency=residence, instance_order=order,
                    overrides=own,
                )  # fmt: skip


def best_freed(evaluator: Evaluator, knobs: Knobs) -> tuple[Knobs, float | None]:
    """The fastest of :func:`freed` and its seconds; None where nothing runs."""
    best, seconds = knobs, None
    for setting in freed(knobs):
        outcome = evaluator.evaluate(setting)
        if isinstance(outcome, Measurement) and (seconds is None or outcome.latency < seconds):
            best, seconds = setting, outcome.latency
    return best, seconds
