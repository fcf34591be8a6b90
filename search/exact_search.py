"""Search exactly where costs of sub-graphs add up, and propose from there where they do not.

The dynamic programme keeps every output in DDR, so that sub-graphs do not depend on each other.
Kept in the local buffers where they fit, outputs cost less, and the same cuts are a good start.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from autoturbo.schedule.knobs import AUTO, Knobs, Stage, SubGraphKnobs, Value, knob_names
from autoturbo.search.encoding import dimension_name
from autoturbo.search.space import Space
from autoturbo.search.warm_starts.best_sets import Grid
from autoturbo.search.warm_starts.dp_partition import FREE, PartitionOptimum, PartitionProgram
from autoturbo.simulator.evaluator import Evaluator
from autoturbo.simulator.measurement import Measurement


def best_over_grid(
    evaluator: Evaluator,
    grid: Grid | None = None,
    *,
    knobs: Knobs = FREE,
    batches: Sequence[int | str] = (AUTO,),
    prune: bool = True,
) -> PartitionOptimum:
    """Return the best schedule of a model over a grid of cuts and of sub-graphs' knobs.

    Args:
        evaluator: Of the model on the target.
        grid: The default's if None.
        knobs: The model's, :data:`FREE` with changes.
        batches: Samples at once that are tried.
        prune: Whether to leave out what bounds rule out.

    Raises:
        UsageError: Knobs under which sub-graphs depend on each other.
        KnobsError: More samples at once than there are.
    """
    settings = [dataclasses.replace(knobs, batches_per_cluster=b) for b in batches]
    answers = [
        PartitionProgram.over(evaluator, grid or Grid(), setting, prune=prune).answer()
        for setting in settings
    ]
    best = min(answers, key=lambda a: (not isinstance(a.outcome, Measurement), a.predicted))
    return dataclasses.replace(
        best,
        exact=all(a.exact for a in answers),
        segments=sum(a.segments for a in answers),
        left_out=sum(a.left_out for a in answers),
        space="; or ".join(a.space for a in answers),
    )


_FREED = ("scope", "cores")
"""Knobs of sub-graphs that only keep them apart."""


def freed(knobs: Knobs) -> Iterator[Knobs]:
    """Yield a setting's cuts and splits, with outputs, bindings and weights by the model's knobs.

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
    """Return the fastest of :func:`freed` and its seconds; None where nothing runs."""
    best, seconds = knobs, None
    for setting in freed(knobs):
        outcome = evaluator.evaluate(setting)
        if isinstance(outcome, Measurement) and (seconds is None or outcome.latency < seconds):
            best, seconds = setting, outcome.latency
    return best, seconds


def projected(space: Space, knobs: Knobs) -> Knobs:
    """Return the point of a space that says most of what a setting says.

    Numbers go to the nearest choice. Alike sub-graphs, which share their choices in the space, take
    what most of them have; where a setting names cuts, a sub-graph's end that is none is merged.

    Raises:
        ValueError: A choice is outside the space.
    """
    params: dict[str, Value] = {d.name: AUTO for d in space.dimensions}
    for dimension in space.dimensions:
        if hasattr(knobs, dimension.name):
            wanted = getattr(knobs, dimension.name)
            params[dimension.name] = _nearest(wanted, dimension.choices)
    own = {override.layer: override for override in knobs.overrides}
    cutting = any(override.boundary == "cut" for override in knobs.overrides)
    merged = SubGraphKnobs("", boundary="merge") if cutting else SubGraphKnobs("")
    for block in space.blocks:
        found = [own.get(layer, merged) for layer in block.layers]
        for field, choices in block.choices.items():
            said = Counter(getattr(override, field) for override in found).most_common(1)[0][0]
            params[dimension_name(block, field)] = _nearest(said, (AUTO, *choices))
    genes = space.genes_of(params)
    if genes is None:
        raise ValueError("a choice outside the space")
    normal = space.normal(np.asarray([genes], np.int64))[0]
    return space.knobs_of(normal.tolist())


def _nearest(value: Value, choices: Sequence[Value]) -> Value:
    """Return the choice that is the value, else the nearest number, else ``"auto"``."""
    if value in choices or isinstance(value, str):
        return value if value in choices else AUTO
    numbers = [choice for choice in choices if not isinstance(choice, str)]
    return min(numbers, key=lambda n: abs(float(n) - float(value)), default=AUTO)


_GROUPING = tuple(n for n in knob_names("model", upto=Stage.PARTITION) if getattr(FREE, n) != AUTO)
"""Knobs that let Algorithm 2 merge whatever is not cut."""


def proposals(space: Space, knobs: Knobs) -> list[Knobs]:
    """Propose points of a space to start a search from, given a setting of the dynamic programme.

    A space has cuts after some layers only. Where the others matter, merging whatever is not cut
    merges too much, so each setting is proposed with the published rules of grouping as well.

    Returns:
        The points, without repetitions.
    """
    published: dict[str, Any] = dict.fromkeys(_GROUPING, AUTO)
    found = []
    for setting in freed(knobs):
        plain = dataclasses.replace(setting, **published)
        found += [projected(space, setting), projected(space, plain), _unmerged(space, plain)]
    return list(dict.fromkeys(found))


def _unmerged(space: Space, knobs: Knobs) -> Knobs:
    """Return a projection that forces no merge."""
    own = projected(space, knobs).overrides
    kept = tuple(
        dataclasses.replace(o, boundary=AUTO if o.boundary == "merge" else o.boundary) for o in own
    )
    return space.canonical(dataclasses.replace(projected(space, knobs), overrides=kept))
