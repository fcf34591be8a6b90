"""What a search tries before it has learned anything, and what it makes sure of soon after.

Chance alone leaves a search that draws badly far from one that draws well. So the first points
follow from the space only, and early batches probe the best point measured so far: one choice of
those that often matter is changed at a time.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from autoturbo.errors import AutoTurboError
from autoturbo.graph.operators import Graph
from autoturbo.hardware.target import Target
from autoturbo.schedule.knobs import AUTO, SAMPLES, Knobs, Stage, Value, knob_names, model_knobs
from autoturbo.search.encoding import START, Genes, dimension_name
from autoturbo.search.space import Space, batch_share
from autoturbo.simulator.contract import CandidateEvaluator

if TYPE_CHECKING:
    from autoturbo.cost_models.ranker import Ranker

_OPENING = {name: (AUTO, *d.opens) for name, d in model_knobs().items() if d.opens}
FREED: tuple[Mapping[str, Value], ...] = tuple(
    chosen
    for values in itertools.product(*_OPENING.values())
    if (chosen := {n: v for n, v in zip(_OPENING, values, strict=True) if v != AUTO})
)
"""Where outputs and weights may live, which the starts' costs leave out."""


def placed(space: Space) -> Genes:
    """Return every start but the published heuristic, unchanged."""
    return _points(space, [*_each(space, START), *(_said(space, knobs) for knobs in space.given)])


def _said(space: Space, knobs: Knobs) -> dict[str, Any]:
    """Return the parameters of a candidate whose sub-graphs are the heuristic's."""
    base = space.starts[0].as_dict()  # the part of the chip has no dimensions
    params = {n: v for n, v in knobs.as_dict().items() if n == "overrides" or base.get(n) != v}
    for override in params.pop("overrides", ()):
        block = next(b for b in space.blocks if b.start == 0 and override["layer"] in b.layers)
        params |= {dimension_name(block, n): v for n, v in override.items() if n != "layer"}
    return params


def initial_settings(space: Space, *, every_batch: bool) -> tuple[Knobs, ...]:
    """Return the candidates that every search tries first, whatever its sampler.

    Args:
        space: Of the knobs.
        every_batch: Try also the heuristic at every number of samples, which was measured to find
            its best one: by another objective than latency another may be the best.
    """
    own: list[dict[str, Any]] = (
        [{}] if space.starts[0] != Knobs() else []
    )  # as people have fixed it
    batches = [{}, *_each(space, SAMPLES)] if every_batch else own
    points = np.concatenate([_points(space, batches), placed(space)])
    return tuple(dict.fromkeys(space.knobs_of(point) for point in points.tolist()))


def openings(space: Space) -> Genes:
    """Return starts, the heuristic at every number of samples, and cluster splits.

    A baseline scheduler may choose the number of samples as well, so the search starts no worse.
    """
    starts = _each(space, START)
    freed = [{**start, **more} for start in starts[:1] for more in FREED]
    batches, *splits = (_each(space, name) for name in knob_names("model", upto=Stage.SHARE))
    return _points(space, [*batches, *starts, *freed, *itertools.chain(*splits)])


def single_changes(space: Space, base: Genes) -> Genes:
    """Return a candidate with one choice of the model's changed, for every such choice."""
    owned = {dimension_name(block, field) for block in space.blocks for field in block.choices}
    names = [d.name for d in space.dimensions if d.name not in owned]
    return _points(space, [change for name in names for change in _each(space, name)], base)


def _each(space: Space, name: str) -> list[dict[str, Any]]:
    """Return every choice of a dimension besides the first, as parameters."""
    return [{name: c} for d in space.dimensions if d.name == name for c in d.choices[1:]]


def _points(
    space: Space, settings: Iterable[Mapping[str, Any]], base: Genes | None = None
) -> Genes:
    """Return a base with some parameters changed, for each candidate that the space has."""
    where = {d.name: (index, d.choices) for index, d in enumerate(space.dimensions)}
    start = np.zeros(len(where), np.int64) if base is None else base
    rows = []
    for setting in settings:
        if all(n in where and v in where[n][1] for n, v in setting.items()):
            row = start.copy()
            for name, value in setting.items():
                row[where[name][0]] = where[name][1].index(value)
            rows.append(row)
    points = np.asarray(rows, np.int64).reshape(len(rows), len(where))
    return space.normal(points)


def make_ranker(
    evaluator: CandidateEvaluator,
    graph: Graph,
    target: Target,
    dtype: str,
    seed: int,
    log: Callable[[str], None],
    cost_model: str | None = None,
) -> Ranker:
    """Return the kernel model of a run, with a pretrained model as its prior.

    Args:
        evaluator: Of the run.
        graph: The model of the run.
        target: The target of the run.
        dtype: What it computes in.
        seed: Of the run.
        log: Called with a line where the package's cost model cannot be used.
        cost_model: Folder of the pretrained model, or a plug-in's name; the package's if None.

    Raises:
        AutoTurboError: The folder has no model that this release can use, or there is no such
            plug-in.
    """
    from autoturbo.cost_models.contract import plugged
    from autoturbo.cost_models.features import target_vector
    from autoturbo.cost_models.model import KernelTrees
    from autoturbo.cost_models.ranker import Ranker, prior_of

    vector, prior = target_vector(target, dtype), None
    make = plugged(cost_model)
    try:
        prior = prior_of(evaluator, cost_model if make is None else None)
    except AutoTurboError as error:
        if cost_model is not None and make is None:
            raise
        log(f"the search starts without the cost model of the package: {error}")
    share = batch_share(graph, target)
    return Ranker(evaluator, vector, share, seed, prior, make=make or KernelTrees)
