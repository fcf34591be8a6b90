"""The contract of cost models: what one learns from, is asked for, and answers.

A search knows of a candidate which kernels it launches and what each of them is estimated to take:
by the pretrained model where there is one, else by what it takes alone. What it does not know is
how far such an estimate is off here. That is what a cost model learns: from the candidates that
were measured it predicts, for kernels, the logarithm of their seconds over the estimate, with how
sure it is. The search adds kernels up to latencies and decides what is measured next.

A model is made and fitted anew whenever enough more is known, with all that was tried so far in the
order of trials. So what it says follows from these and its seed alone, and a resumed run goes on as
if nothing had happened.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from autoturbo.cost_models.booster import Booster
from autoturbo.cost_models.features import Rows
from autoturbo.errors import PluginError
from autoturbo.graph.arrays import Ints
from autoturbo.registry import COST_MODELS, broken
from autoturbo.schedule.work import Floats


@dataclass(frozen=True, slots=True, eq=False)
class Example:
    """A candidate tried.

    Attributes:
        rows: Features of its kernels, ``(sub-graphs, columns)``.
        launches: Number of launches of each kernel.
        setting: Features of the candidate as a whole.
        base: Seconds that predictions are relative to, of one launch, ``(sub-graphs,)``.
        times: Seconds of one launch of each kernel; None for a failed candidate, and where only
            the latency is known.
        latency: Seconds of the whole, where that is all that is known.
        noise: Relative standard deviation of it.
    """

    rows: Rows
    launches: Ints
    setting: Rows
    base: Floats
    times: Floats | None = None
    latency: float | None = None
    noise: float = 0.0

    @property
    def measured(self) -> bool:
        """Return whether anything is known of its time."""
        return self.times is not None or self.latency is not None

    @property
    def total(self) -> float:
        """Return the seconds of the whole, where anything is known of them; else infinity."""
        if self.times is not None:
            return float((self.launches * self.times).sum())
        return math.inf if self.latency is None else self.latency


class Kernels(NamedTuple):
    """Kernels to predict.

    Attributes:
        rows: Their features, ``(kernels, columns)``, as an example has them.
        base: Seconds that one launch of each is estimated to take, ``(kernels,)``.
    """

    rows: Rows
    base: Floats


class ModelStart(NamedTuple):
    """Seed and trees that a cost model begins with.

    Attributes:
        seed: Seed of all chance in the model.
        trees: The pretrained model that estimates are of; None where they are of none.
    """

    seed: int = 0
    trees: Booster | None = None


class KernelModel(Protocol):
    """Predicts how far estimates of kernels are off.

    One of ours may also have ``sums``, which knows deviations of sums of kernels
    (:meth:`autoturbo.cost_models.totals.TotalsModel.deviations`).
    """

    def fit(self, examples: Sequence[Example]) -> None:
        """Learn from all candidates tried, failed ones too, in the order of trials.

        Called once, with eight measured ones at least.
        """
        ...

    def predict(self, kernels: Kernels) -> tuple[Floats, Floats]:
        """Return expected logarithms of seconds over the estimate, and their deviations.

        Both are ``(kernels,)``. A deviation is 0 where the kernel was measured, and not a number
        where nothing is known of it: then the search takes it that all of the kernel's data could
        be found in the local buffers.
        """
        ...


MakeModel = Callable[[ModelStart], KernelModel]
"""How a cost model is made."""


def plugged(name: str | None) -> MakeModel | None:
    """Return the factory of a plug-in's cost model by its name; None for a built-in one.

    Args:
        name: A plug-in's name; ours, or a folder of one trained beforehand; None for the package's.

    Raises:
        PluginError: It cannot be imported or made, or is no cost model.
    """
    if name is None or COST_MODELS.is_ours(name) or name not in COST_MODELS.names():
        return None

    def make(start: ModelStart) -> KernelModel:
        model = COST_MODELS.make(name, start)
        if not (hasattr(model, "fit") and hasattr(model, "predict")):
            what = f"gives a value of type {type(model).__name__!r}, no cost model"
            raise broken(COST_MODELS.find(name), what)
        return _Plugged(name, model)

    make(ModelStart())
    return make


@dataclass(frozen=True)
class _Plugged:
    """A plug-in's model, whose answers are looked at.

    Attributes:
        name: Name of the plug-in.
        model: The model that its entry point gave.
    """

    name: str
    model: Any

    def fit(self, examples: Sequence[Example]) -> None:
        """Learn from examples.

        Raises:
            PluginError: The plug-in fails.
        """
        self._guarded("fit", examples)

    def predict(self, kernels: Kernels) -> tuple[Floats, Floats]:
        """Return the plug-in's predictions for kernels, checked.

        Raises:
            PluginError: It fails, or that is no answer.
        """
        answer = self._guarded("predict", kernels)
        try:
            return checked(answer, len(kernels.rows))
        except ValueError as error:
            raise self._broken(f"answers {error}") from None

    def _guarded(self, method: str, given: object) -> Any:
        try:
            return getattr(self.model, method)(given)
        except Exception as error:  # code of others may fail in any way: tell whose
            raise self._broken(f"failed in {method}: {type(error).__name__}: {error}") from error

    def _broken(self, what: str) -> PluginError:
        return broken(COST_MODELS.find(self.name), what)


def checked(answer: object, count: int) -> tuple[Floats, Floats]:
    """Return a model's answer for some kernels.

    Raises:
        ValueError: It is no answer; says what it is.
    """
    try:
        logarithms, deviations = (np.asarray(part, np.float64) for part in answer)  # type: ignore[attr-defined]
    except (TypeError, ValueError):
        raise ValueError("with something else than two arrays of numbers") from None
    if logarithms.shape != (count,) or deviations.shape != (count,):
        shapes = f"{logarithms.shape} and {deviations.shape}"
        raise ValueError(f"with arrays of shapes {shapes} for {count} kernels")
    if not np.isfinite(logarithms).all() or (deviations < 0).any() or np.isinf(deviations).any():
        raise ValueError("with a logarithm that is not finite, or a deviation below 0")
    return logarithms, deviations
