"""Proposes rounds of candidates: evolution guided by cost models.

A reader's map::

    nothing yet -> openings: the heuristic at every batch, starts, splits over clusters; where the
                   kernel model has a prior, half of them its best predictions: compositions of
                   the best choices of all blocks, openings, single changes of the heuristic, and
                   a greedy descent by single changes
    history -> group screening: a choice or two changed in many blocks of sub-graphs at once,
               the most promising first, and compositions of the best choices of all blocks, as
               the kernel model predicts
            -> parents (best measured) -> generations of children, ranked by the quick model
            -> the best few ranked again by the kernel model -> batch: best predicted + exploration

The quick model, a surrogate on choices alone, takes microseconds a candidate and ranks thousands.
The kernel model needs the plan of a candidate, which takes a hundred times as long, so it ranks the
best few.

A proposal follows from seed, first trial number and history, and from nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from autoturbo.cost_models.predictions import Prediction
from autoturbo.errors import AutoTurboError
from autoturbo.graph.operators import Graph
from autoturbo.hardware.target import Target
from autoturbo.schedule.knobs import Knobs, Value
from autoturbo.search.constants import SEARCH
from autoturbo.search.encoding import START, Genes, dimension_name
from autoturbo.search.group_screening import begun, together
from autoturbo.search.space import Space, batch_share
from autoturbo.search.surrogates.surrogate import ChoiceSurrogate, ScoredCandidate
from autoturbo.simulate.contract import CandidateEvaluator

if TYPE_CHECKING:
    from autoturbo.cost_models.ranker import Ranker

Rerank = Callable[[Genes], NDArray[np.float64] | None]
"""Predicts scores by a dearer model, lower is better; None where it cannot tell yet."""


@dataclass(frozen=True, slots=True)
class Advice:
    """Predictions of a dearer model.

    Attributes:
        rerank: Predicts scores.
        look: Predicts in more detail; None where it cannot tell.
    """

    rerank: Rerank
    look: Callable[[Genes], Prediction | None] = lambda _: None


def propose(
    space: Space,
    rng: np.random.Generator,
    history: Sequence[ScoredCandidate],
    taken: set[tuple[int, ...]],
    *,
    count: int,
    advice: Advice | None = None,
    shuffled: bool = False,
) -> list[tuple[int, ...]]:
    """Return a round of candidates that were not tried before, the most promising first.

    Args:
        space: Where to look.
        rng: Where chance comes from.
        history: Tried candidates, in order.
        taken: Further candidates not to propose.
        count: How many; fewer where the space has no more.
        advice: Of a dearer model, on the best few.
        shuffled: Ties between predictions are broken at random, not by order (small choices first,
            which among knobs means near the published heuristic).
    """
    taken = taken | {tried.genes for tried in history}
    fresh = _UntriedCandidates(space, rng, taken, shuffled)
    parents = _parents(history, SEARCH.parents, space)
    chosen: list[tuple[int, ...]] = []
    rerank = None if advice is None else advice.rerank
    model = ChoiceSurrogate.of(space, history)
    if model is not None:
        chosen = _screened(fresh, history, count, model, advice)
        fresh.taken.update(chosen)
        wanted = count - int(rng.binomial(count, SEARCH.explored_share)) - len(chosen)
        chosen += _children(fresh, parents, model, wanted, rerank)
    else:
        chosen = _begun(fresh, count, rerank)
    fresh.taken.update(chosen)
    mutants = _mutants(space, rng, parents, 8 * count)
    chosen += fresh.unique(mutants)[: count - len(chosen)]
    fresh.taken.update(chosen)
    return chosen + fresh.any(count - len(chosen))


def _evolve(fresh: _UntriedCandidates, parents: Genes, model: ChoiceSurrogate) -> Genes:
    """Return evolved candidates, the best predicted by the quick model first."""
    space, rng = fresh.space, fresh.rng
    ties = rng if fresh.shuffled else None
    pool = np.concatenate([parents, _mutants(space, rng, parents, SEARCH.children)])
    for _ in range(SEARCH.generations):
        pool = pool[model.order(pool, ties)][: 4 * SEARCH.parents]
        children = _crossed(space, rng, pool, SEARCH.children // 2)
        mutants = _mutants(space, rng, pool, SEARCH.children // 2)
        pool = space.distinct(np.concatenate([pool, children, mutants]))
    return pool[model.order(pool, ties)]


def _children(
    fresh: _UntriedCandidates,
    parents: Genes,
    model: ChoiceSurrogate,
    count: int,
    rerank: Rerank | None,
) -> list[tuple[int, ...]]:
    """Return the most promising descendants of some candidates.

    Args:
        fresh: Candidates that may be taken.
        parents: Candidates, ``(points, dimensions)``.
        model: Predicts all of the descendants.
        count: The most to return.
        rerank: Predicts the best of them; None for no dearer model.
    """
    if count <= 0:
        return []
    pool = _evolve(fresh, parents, model)
    best = fresh.unique(pool)[: SEARCH.reranked]
    if not best:
        return []
    scores, dearer = model.predict(np.asarray(best, np.int64)), _dearer(best, rerank)
    if dearer is not None:
        scores = _centred(scores) + _centred(dearer)
    return _lowest(best, scores, count)


def _parents(history: Sequence[ScoredCandidate], count: int, space: Space) -> Genes:
    """Return the best measured candidates; the published heuristic where there are none."""
    measured = [tried for tried in history if tried.score is not None]
    best = sorted(measured, key=lambda tried: tried.score or 0.0)[:count]
    if not best:
        return np.zeros((1, len(space.dimensions)), np.int64)
    return np.asarray([tried.genes for tried in best], np.int64)


def _begun(fresh: _UntriedCandidates, count: int, rerank: Rerank | None) -> list[tuple[int, ...]]:
    """Return the first candidates of a search; the dearer model's best come before openings."""
    space, rng = fresh.space, fresh.rng
    opened = fresh.unique(openings(space))
    if rerank is None or _dearer(opened, rerank) is None:
        return opened[:count]
    heuristic = np.zeros((1, len(space.dimensions)), np.int64)
    parents = np.concatenate([heuristic, np.asarray(opened, np.int64)])
    mutants = space.mutate(rng, parents[rng.integers(0, len(parents), SEARCH.opening_mutants)])
    single = single_changes(space, heuristic[0])
    pool = fresh.unique(np.concatenate([parents[1:], single, mutants]))
    composed = _made_of_blocks(fresh, parents, min(SEARCH.places + 1, count // 2), rerank)
    best = _unlike(pool, _dearer(pool, rerank), count // 2 - len(composed))
    descended = fresh.unique(np.asarray(_descent(space, heuristic[0], rerank), np.int64))
    starts = fresh.unique(placed(space))[: count // 4]
    return list(dict.fromkeys([*starts, *composed, *descended, *best, *opened]))[:count]


def _made_of_blocks(
    fresh: _UntriedCandidates, points: Genes, count: int, rerank: Rerank
) -> list[tuple[int, ...]]:
    """Return compositions of the blocks' best predicted choices.

    Args:
        fresh: Candidates that may be taken.
        points: Bases of the compositions, ``(points, dimensions)``.
        count: Places at which to compose, at most.
        rerank: Predicts choices; where it cannot tell, all are alike.
    """
    if not fresh.space.blocks:
        return []
    expected = _expecting(rerank, lambda genes: np.zeros(len(genes)))
    return fresh.unique(begun(fresh.space, points, expected, count))


def _descent(space: Space, point: Genes, rerank: Rerank | None) -> list[Genes]:
    """Return the last two candidates of a greedy descent by single changes, the last one first.

    Not more of them: where the model is wrong there, a batch of them would hold nothing else.
    """
    path = [point]
    for _ in range(SEARCH.descent_steps):
        steps = single_changes(space, path[-1])
        scores = _dearer([tuple(step) for step in steps.tolist()], rerank)
        if scores is None:
            break
        path.append(steps[int(np.argmin(scores))])
    return path[:0:-1][:2] or [point]


def _unlike(
    pool: list[tuple[int, ...]], scores: NDArray[np.float64] | None, count: int
) -> list[tuple[int, ...]]:
    """Return the best candidates, one per predicted score."""
    if scores is None:
        return []
    kinds: dict[float, tuple[int, ...]] = {}
    for index in np.argsort(scores, kind="stable").tolist():
        kinds.setdefault(round(float(scores[index]), 3), pool[index])
    return list(kinds.values())[:count]


def _screened(
    fresh: _UntriedCandidates,
    history: Sequence[ScoredCandidate],
    count: int,
    model: ChoiceSurrogate,
    advice: Advice | None,
) -> list[tuple[int, ...]]:
    """Return a part of a round that changes choices of many blocks at once.

    Args:
        fresh: Candidates that may be taken.
        history: What was tried.
        count: Trials of the round, of which these are a share.
        model: Predicts where there is no advice.
        advice: Predictions of a dearer model, None for none.
    """
    room, turn = int(count * SEARCH.screened_share), len(history) // count
    if not room or not fresh.space.blocks:
        return []
    expected = _expecting(None if advice is None else advice.rerank, model.predict)

    def look(points: Genes) -> Prediction:
        detailed = None if advice is None else advice.look(points)
        return Prediction.plain(points, expected(points)) if detailed is None else detailed

    return fresh.unique(together(fresh.space, history, room, turn, look))[:room]


def _mutants(space: Space, rng: np.random.Generator, parents: Genes, count: int) -> Genes:
    """Return shuffled mutants, half of them with a single mutation.

    Args:
        space: Of the candidates.
        rng: All chance.
        parents: Candidates, ``(points, dimensions)``.
        count: How many to make.
    """
    picked = _picked(rng, parents, count)
    near = space.mutate(rng, picked[: count // 2])
    far = space.mutate(rng, picked[count // 2 :], rate=0.15)
    mixed = np.concatenate([near, far])
    return mixed[rng.permutation(len(mixed))]


def _picked(rng: np.random.Generator, parents: Genes, count: int) -> Genes:
    """Return parents drawn at random, earlier ones more often."""
    weights = 1.0 / np.arange(1, len(parents) + 1)
    picked: Genes = parents[rng.choice(len(parents), count, p=weights / weights.sum())]
    return picked


def _crossed(space: Space, rng: np.random.Generator, parents: Genes, count: int) -> Genes:
    """Return children of two random parents each.

    Args:
        space: Of the candidates.
        rng: All chance.
        parents: Candidates, ``(points, dimensions)``.
        count: How many to make.
    """
    first = parents[rng.integers(0, len(parents), count)]
    second = parents[rng.integers(0, len(parents), count)]
    return space.cross(rng, first, second)


def _dearer(best: list[tuple[int, ...]], rerank: Rerank | None) -> NDArray[np.float64] | None:
    """Return the dearer model's predictions; None without such a model or an answer."""
    return rerank(np.asarray(best, np.int64)) if rerank is not None and best else None


def _expecting(
    rerank: Rerank | None, otherwise: Callable[[Genes], NDArray[np.float64]]
) -> Callable[[Genes], NDArray[np.float64]]:
    """Return a function that predicts by the dearer model, or by another where it has no answer."""

    def expected(genes: Genes) -> NDArray[np.float64]:
        dearer = None if rerank is None else rerank(genes)
        return otherwise(genes) if dearer is None else dearer

    return expected


def _lowest(
    points: list[tuple[int, ...]], scores: NDArray[np.float64], count: int
) -> list[tuple[int, ...]]:
    """Return the candidates of the lowest scores; ties keep their order."""
    return [points[index] for index in np.argsort(scores, kind="stable")[:count].tolist()]


def _centred(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    known = scores[np.isfinite(scores)]
    return scores - (np.median(known) if len(known) else 0.0)


@dataclass
class _UntriedCandidates:
    """Candidates that are not taken."""

    space: Space
    rng: np.random.Generator
    taken: set[tuple[int, ...]]
    shuffled: bool = False

    def unique(self, genes: Genes) -> list[tuple[int, ...]]:
        """Return the candidates that are not taken, without duplicates, in order."""
        distinct = dict.fromkeys(map(tuple, genes.tolist()))
        return [point for point in distinct if point not in self.taken]

    def any(self, count: int) -> list[tuple[int, ...]]:
        """Return random candidates not taken; fewer than asked for where the space has no more."""
        return fresh_points(self.space, self.rng, self.taken, count)


def fresh_points(
    space: Space, rng: np.random.Generator, taken: set[tuple[int, ...]], count: int
) -> list[tuple[int, ...]]:
    """Return random candidates not taken; fewer than asked for only where the space has no more.

    Args:
        space: Of the candidates.
        rng: All chance.
        taken: Candidates that are not to be returned.
        count: How many to return.
    """
    count = min(count, space.size - len(taken))
    if count <= 0:
        return []
    fresh = _UntriedCandidates(space, rng, taken)
    if space.listed:
        left = fresh.unique(space.everything())
        return [left[i] for i in rng.permutation(len(left))[:count]]
    drawn: dict[tuple[int, ...], None] = {}
    rounds = 0
    while len(drawn) < count:
        batch = space.random(rng, 4 * count, dense=rounds >= SEARCH.sparse_draws)
        drawn.update(dict.fromkeys(fresh.unique(batch)))
        rounds += 1
    return list(drawn)[:count]


# What a search tries before it has learned anything, and what it makes sure of soon after.
#
# Chance alone leaves a search that draws badly far from one that draws well. So the first points
# follow from the space only, and early batches probe the best point measured so far: one choice of
# those that often matter is changed at a time.

FREED: tuple[Mapping[str, Value], ...] = (
    {"weight_residency": "LB"},
    {"weight_residency": "GB"},
    {"output_scope": "GB"},
    {"output_scope": "GB", "weight_residency": "LB"},
)
"""Where outputs and weights may live, which the starts' costs leave out."""


def placed(space: Space) -> Genes:
    """Return every start but the published heuristic, unchanged."""
    return _points(space, [*_each(space, START), *(_said(space, knobs) for knobs in space.given)])


def _said(space: Space, knobs: Knobs) -> dict[str, Any]:
    """Return the parameters of a candidate whose sub-graphs are the heuristic's."""
    params = {**knobs.as_dict()}
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
    batches = [{}, *_each(space, "batches_per_cluster")] if every_batch else []
    points = np.concatenate([_points(space, batches), placed(space)])
    return tuple(dict.fromkeys(space.knobs_of(point) for point in points.tolist()))


def openings(space: Space) -> Genes:
    """Return starts, the heuristic at every number of samples, and cluster splits.

    A baseline scheduler may choose the number of samples as well, so the search starts no worse.
    """
    batches = _each(space, "batches_per_cluster")
    starts = _each(space, START)
    freed = [{**start, **more} for start in starts[:1] for more in FREED]
    splits = _each(space, "cluster_partitioning")
    return _points(space, [*batches, *starts, *freed, *splits])


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
        cost_model: Folder of the pretrained model; the package's if None.

    Raises:
        AutoTurboError: The folder has no model that this release can use.
    """
    from autoturbo.cost_models.features import target_vector
    from autoturbo.cost_models.ranker import Ranker, prior_of

    vector, prior = target_vector(target, dtype), None
    try:
        prior = prior_of(evaluator, cost_model)
    except AutoTurboError as error:
        if cost_model is not None:
            raise
        log(f"the search starts without the cost model of the package: {error}")
    share = batch_share(graph, target)
    return Ranker(evaluator, vector, share, seed, prior)
