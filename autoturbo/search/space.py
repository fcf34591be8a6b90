"""Which settings a search may try: one dimension per knob, each a list of choices.

A point of the space is a tuple of choice indices (its *genes*), ``"auto"`` being index 0 of every
dimension of a knob space; arrays of genes are what samplers work on. Settings that mean the same
are one point: a value that is what ``"auto"`` stands for is written as ``"auto"``.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from autoturbo.cost_models.features import KNOB_NAMES, knob_vector
from autoturbo.errors import KnobsError, Location
from autoturbo.graph.batch import trace_batch
from autoturbo.graph.layers import layers_of
from autoturbo.schedule.knobs import AUTO, Knobs, KnobSpec, Value, knob_specs

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

    from autoturbo.graph.operators import Graph
    from autoturbo.hardware.target import Target

Genes = NDArray[np.int64]
"""Choice indices: ``(dimensions,)`` for one point, ``(points, dimensions)`` for several."""

ENUMERABLE = 1 << 14
"""Spaces up to this size are listed whole where points not yet tried are looked for."""


@dataclass(frozen=True, slots=True)
class Dimension:
    """One thing to choose.

    Attributes:
        name: of a knob, or of a parameter of any Optuna study.
        choices: at least two; ``"auto"`` first where it is a knob.
    """

    name: str
    choices: tuple[Any, ...]


@dataclass(frozen=True)
class Space:
    """A product of dimensions.

    Attributes:
        dimensions: in the order of the knobs.
        share: samples of the busiest cluster, which ``batches_per_cluster="auto"`` stands for.
        layers: layers of the model, the most that one sub-graph can hold.
    """

    dimensions: tuple[Dimension, ...]
    share: int = 1
    layers: int = 1 << 30

    @staticmethod
    def of(graph: Graph, target: Target) -> Space:
        """The knobs worth trying for a model on a target.

        A knob without a second value that makes sense here is left out.
        """
        share = batch_share(graph, target)
        whole = trace_batch(graph).obstacle
        layers = len(layers_of(graph))
        dimensions = []
        for name, spec in knob_specs().items():
            choices = _choices(name, spec, 1 if whole else share, layers)
            if choices:
                dimensions.append(Dimension(name, (AUTO, *choices)))
        return Space(tuple(dimensions), share, layers)

    @property
    def size(self) -> int:
        """Number of points."""
        return math.prod(len(d.choices) for d in self.dimensions)

    @cached_property
    def widths(self) -> Genes:
        """Number of choices of each dimension."""
        return np.asarray([len(d.choices) for d in self.dimensions], np.int64)

    def distributions(self, *, ordinal: bool = False) -> dict[str, BaseDistribution]:
        """The space as Optuna has it.

        Args:
            ordinal: choice indices as integers, for samplers that know no categories.
        """
        from optuna.distributions import CategoricalDistribution, IntDistribution

        if ordinal:
            return {d.name: IntDistribution(0, len(d.choices) - 1) for d in self.dimensions}
        return {d.name: CategoricalDistribution(d.choices) for d in self.dimensions}

    def canonical(self, knobs: Knobs) -> Knobs:
        """The one way to write a setting: ``"auto"`` wherever a value means the same."""
        chosen: dict[str, Any] = {
            name: _canonical(name, spec, getattr(knobs, name), self.share, self.layers)
            for name, spec in knob_specs().items()
        }
        return dataclasses.replace(knobs, **chosen)

    def to_knobs(self, params: Mapping[str, Any]) -> Knobs:
        """The setting of some parameters; what is left out is ``"auto"``.

        Raises:
            KnobsError: a parameter that is no knob, or a value that it does not take.
        """
        return self.canonical(Knobs.from_dict(params))

    def from_knobs(self, knobs: Knobs) -> dict[str, Any]:
        """The parameters of a setting, every dimension named.

        Raises:
            KnobsError: the setting is not a point of the space.
        """
        canonical = self.canonical(knobs)
        params = {d.name: getattr(canonical, d.name) for d in self.dimensions}
        for dimension in self.dimensions:
            if params[dimension.name] not in dimension.choices:
                raise _outside(dimension.name, params[dimension.name], dimension.choices)
        fixed = {n: v for n, v in canonical.as_dict().items() if n not in params}
        for name, value in fixed.items():
            raise _outside(name, value, (AUTO,))
        return params

    def genes_of(self, params: Mapping[str, Any]) -> tuple[int, ...] | None:
        """Choice indices of parameters; None where they are not a point of the space."""
        try:
            return tuple(d.choices.index(params[d.name]) for d in self.dimensions)
        except (KeyError, ValueError):
            return None

    def params_of(self, genes: Iterable[int]) -> dict[str, Any]:
        """Parameters of a point."""
        pairs = zip(self.dimensions, genes, strict=True)
        return {d.name: d.choices[int(index)] for d, index in pairs}

    def knobs_of(self, genes: Iterable[int]) -> Knobs:
        """The setting of a point of a knob space."""
        return Knobs(**self.params_of(genes))

    def features(self, genes: Genes) -> NDArray[np.float32]:
        """Points as numbers for a cost model, ``(points, dimensions)``; see :func:`_as_number`."""
        columns = [table[genes[:, index]] for index, table in enumerate(self._tables)]
        return np.stack(columns, axis=1) if columns else np.zeros((len(genes), 0), np.float32)

    @cached_property
    def _tables(self) -> list[NDArray[np.float32]]:
        return [
            np.asarray([_as_number(d, c, self.share) for c in d.choices], np.float32)
            for d in self.dimensions
        ]

    def random(self, rng: np.random.Generator, count: int) -> Genes:
        """Points drawn uniformly, repetitions possible."""
        return rng.integers(0, self.widths, (count, len(self.dimensions)))

    def mutate(self, rng: np.random.Generator, genes: Genes, rate: float = 0.0) -> Genes:
        """Copies of points with at least one choice changed each.

        Args:
            rng: where chance comes from.
            genes: ``(points, dimensions)``.
            rate: chance of each further dimension to change.
        """
        points, dimensions = genes.shape
        if not dimensions:
            return genes.copy()
        change = rng.random(genes.shape) < rate
        change[np.arange(points), rng.integers(0, dimensions, points)] = True
        shift = rng.integers(1, np.maximum(self.widths, 2), genes.shape)
        return np.where(change, (genes + shift) % self.widths, genes)

    def neighbours(self, genes: Sequence[int]) -> Genes:
        """All points that differ from one in exactly one choice."""
        found = [
            (*genes[:index], other, *genes[index + 1 :])
            for index, dimension in enumerate(self.dimensions)
            for other in range(len(dimension.choices))
            if other != genes[index]
        ]
        return np.asarray(found, np.int64).reshape(len(found), len(self.dimensions))

    def everything(self) -> Genes:
        """All points in lexical order; for spaces up to :data:`ENUMERABLE` points."""
        shape = tuple(self.widths.tolist())
        return np.indices(shape).reshape(len(shape), -1).T.astype(np.int64)

    def describe(self) -> list[dict[str, Any]]:
        """One row per dimension of a knob space: name, what it means, choices, published value."""
        specs = knob_specs()
        return [
            {
                "knob": d.name,
                "help": specs[d.name].help,
                "choices": list(d.choices),
                "published": specs[d.name].published,
            }
            for d in self.dimensions
        ]


def batch_share(graph: Graph, target: Target) -> int:
    """Samples of the busiest cluster when the batch is shared out."""
    batch = max(graph.batch, 1)
    return -(-batch // min(target.clusters, batch))


def _choices(name: str, spec: KnobSpec, share: int, layers: int) -> tuple[Value, ...]:
    """What is worth trying besides ``"auto"``."""
    choices = spec.choices
    if name == "batches_per_cluster":
        choices = tuple(b for b in range(share, 0, -1) if share % b == 0)
    return tuple(c for c in choices if _canonical(name, spec, c, share, layers) != AUTO)


def _canonical(name: str, spec: KnobSpec, value: Value, share: int, layers: int) -> Value:
    """``"auto"`` for what means the same."""
    if value == AUTO:
        return AUTO
    if spec.low is None:  # a word that is not tried is the published one's name
        return value if value in spec.choices else AUTO
    number = float(value)
    if name == "batches_per_cluster":
        return AUTO if number == share else value
    if name == "max_layers":
        return AUTO if number >= layers else value
    published = _number(spec.published)
    if published is not None and number == published:
        return AUTO
    return next((choice for choice in spec.choices if choice == value), value)  # 2.0 is 2


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _as_number(dimension: Dimension, choice: Any, share: int) -> float:
    """A choice on an axis where order means something: knobs as the cost model has them."""
    if dimension.name in KNOB_NAMES:
        knobs = Knobs(**{dimension.name: choice})
        return float(knob_vector(knobs, share)[KNOB_NAMES.index(dimension.name)])
    if isinstance(choice, int | float):
        return float(choice)
    return float(dimension.choices.index(choice))


def _outside(name: str, value: object, choices: tuple[Any, ...]) -> KnobsError:
    at = Location(field=name)
    return KnobsError(
        f"{value!r} is not in the search space", at, f"one of {', '.join(map(str, choices))}"
    )
