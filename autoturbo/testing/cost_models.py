"""The contract of cost models: sound answers that follow from what was measured.

Every check is a function of a :class:`CostModelCase`; all of them are in :data:`COST_MODEL_CHECKS`.
Examples are settings of a small network, simulated.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from autoturbo.testing.contract import ContractError, bounded, check_all, small_networks

if TYPE_CHECKING:
    from autoturbo.cost_models.contract import Example, Kernels, MakeModel
    from autoturbo.cost_models.ranker import Ranker
    from autoturbo.schedule.knobs import Knobs
    from autoturbo.schedule.work import Floats
    from autoturbo.simulator.evaluator import Evaluator

LEARNED = 24
"""Settings that are learned from; as many others are predicted."""

TIMES = 3.0
"""How much longer than estimated everything takes, where a model is to notice it."""


@dataclass(frozen=True, slots=True)
class CostModelCase:
    """A cost model under test.

    Attributes:
        make: Makes one from a :class:`autoturbo.plugin.ModelStart`.
        deadline_s: Seconds after which a check is said never to end.
    """

    make: MakeModel
    deadline_s: float = 120.0


def check_cost_model(make: MakeModel, **claims: Any) -> None:
    """Run every check of :data:`COST_MODEL_CHECKS`.

    Args:
        make: Makes a model.
        claims: Further attributes of :class:`CostModelCase`.

    Raises:
        ContractError: The first thing that is wrong.
    """
    check_all(COST_MODEL_CHECKS, CostModelCase(make, **claims))


@bounded("an answer")
def every_kernel_has_an_answer(case: CostModelCase) -> None:
    """Check for a finite logarithm and a deviation of each kernel, and of none."""
    learned, others = _examples()
    for example in [*others, *learned]:
        _answer(case, learned, _kernels(example))
    nothing = _kernels(others[0])
    _answer(case, learned, nothing._replace(rows=nothing.rows[:0], base=nothing.base[:0]))


@bounded("a second model")
def the_same_examples_give_the_same_answers(case: CostModelCase) -> None:
    """Check that answers follow from the examples, and not from what else is asked."""
    learned, others = _examples()
    kernels = _kernels(others[0])
    once, again = (_answer(case, learned, kernels) for _ in range(2))
    if not np.array_equal(once, again, equal_nan=True):
        raise ContractError("the same examples and seed give other answers")
    rows, base = kernels
    alone = _answer(case, learned, kernels._replace(rows=rows[-1:], base=base[-1:]))
    if not np.allclose(once[:, -1:], alone, equal_nan=True, rtol=1e-6, atol=1e-9):
        raise ContractError("what it says of a kernel depends on the others that are asked about")


@bounded("failed settings")
def failures_are_survived(case: CostModelCase) -> None:
    """Check that settings that failed, of which no time is known, may be among the examples."""
    learned, others = _examples()
    failed = [dataclasses.replace(example, times=None) for example in others]
    _answer(case, [*failed, *learned, *failed], _kernels(others[0]))


@bounded("latencies alone")
def latencies_alone_are_enough(case: CostModelCase) -> None:
    """Check that it learns where a measurer gives no times of kernels, and latencies vary."""
    learned, others = _examples()
    _must_notice(case, [_as_latency(example) for example in _slower(learned)], others)


@bounded("slower kernels")
def what_takes_longer_is_noticed(case: CostModelCase) -> None:
    """Check that a machine slower than estimated, in all it does, is predicted to be slower."""
    learned, others = _examples()
    _must_notice(case, _slower(learned), others)


@bounded("a search")
def a_search_can_rank_by_it(case: CostModelCase) -> None:
    """Check that what a search asks of it comes out: a score of each setting."""
    ranker, settings = _ranker(case.make), _settings()
    _teach(ranker, settings[:LEARNED])
    scores = ranker.rank(settings[LEARNED:])
    if scores is None or not np.isfinite(scores).any():
        raise ContractError(f"a search gets no scores: {ranker.obstacle}")


COST_MODEL_CHECKS: Sequence[Callable[[CostModelCase], None]] = (
    every_kernel_has_an_answer,
    the_same_examples_give_the_same_answers,
    failures_are_survived,
    latencies_alone_are_enough,
    what_takes_longer_is_noticed,
    a_search_can_rank_by_it,
)
"""Every check of a cost model."""


def _answer(case: CostModelCase, examples: Sequence[Example], kernels: Kernels) -> Floats:
    """Return the logarithms and deviations that a new model gives, ``(2, kernels)``."""
    from autoturbo.cost_models.contract import ModelStart, checked

    model = case.make(ModelStart(1))
    model.fit(examples)
    try:
        return np.stack(checked(model.predict(kernels), len(kernels.rows)))
    except ValueError as error:
        raise ContractError(f"it answers {error}") from None


def _must_notice(
    case: CostModelCase, learned: Sequence[Example], others: Sequence[Example]
) -> None:
    """Raise where what takes three times the estimate is not predicted to take about that."""
    said = np.concatenate([_answer(case, learned, _kernels(example))[0] for example in others])
    found = math.exp(float(np.median(said)))
    if not TIMES / 2 < found < TIMES * 2:
        what = f"everything took {TIMES:g} times the estimate, it predicts {found:.2g} times"
        raise ContractError(what)


def _slower(examples: Sequence[Example]) -> list[Example]:
    """Return examples in which every kernel takes a multiple of its estimate."""
    return [dataclasses.replace(e, times=TIMES * e.base) for e in examples]


def _as_latency(example: Example) -> Example:
    """Return an example of which the latency alone is known, by a measurer that varies."""
    return dataclasses.replace(example, times=None, latency=example.total, noise=0.01)


def _kernels(example: Example) -> Kernels:
    from autoturbo.cost_models.contract import Kernels

    return Kernels(example.rows, example.base)


@functools.cache
def _examples() -> tuple[Sequence[Example], Sequence[Example]]:
    """Return measured settings to learn from, and others."""
    from autoturbo.cost_models.model import KernelTrees

    ranker = _ranker(KernelTrees)
    _teach(ranker, _settings())
    measured = [example for example in ranker.examples if example.measured]
    return measured[:LEARNED], measured[LEARNED:]


def _settings() -> list[Knobs]:
    """Return settings of a small network, most of which fit the target."""
    from autoturbo.schedule.knobs import Knobs

    return [
        Knobs(tile_subdivision=tiles, prefetch_depth=depth, max_layers=layers)
        for tiles in (1, 2, 3, 4, 6, 8)
        for depth in (1, 2, 3)
        for layers in (1, 2, 4)
    ]


@functools.cache
def _evaluator() -> Evaluator:
    from autoturbo.hardware.presets import load_target
    from autoturbo.simulator.evaluator import Evaluator

    target = load_target("stcp920")
    return Evaluator(small_networks()[0], target, target.default_dtype)


def _ranker(make: MakeModel) -> Ranker:
    """Return what ranks settings in a search, with a cost model."""
    from autoturbo.cost_models.features import target_vector
    from autoturbo.cost_models.ranker import Ranker

    evaluator = _evaluator()
    of = evaluator.model_scheduler
    vector = target_vector(of.target, of.dtype)
    return Ranker(evaluator, vector, share=1, make=make)


def _teach(ranker: Ranker, settings: Sequence[Knobs]) -> None:
    for knobs in settings:
        ranker.observe(knobs, ranker.evaluator.evaluate(knobs))
