"""Names and defaults of the samplers, known without loading any of them."""

from __future__ import annotations

from autoturbo import plugins

SAMPLERS = {
    "cost-model": "evolution guided by a model of kernel times (the default)",
    "random": "uniformly at random",
    "tpe": "Optuna's tree-structured Parzen estimator, multivariate",
    "cmaes": "Optuna's CMA-ES on choice indices; needs the package cmaes",
    "gp": "Optuna's Gaussian process; needs the package torch",
    "nsgaii": "Optuna's NSGA-II, also for several objectives",
    "qmc": "Optuna's quasi-Monte Carlo on choice indices; needs the package scipy",
    "grid": "every point, in random order",
}
"""Every sampler and what it is, for help texts."""

OURS = "cost-model"

ANNEALING = "annealing"
"""Ours on a machine of several processing units: over units and cuts."""

PROGRAM = "program"
"""A program of the user's (:mod:`autoturbo.search.program`)."""

SUBGRAPHS = 8
"""Kinds of sub-graphs whose own knobs our sampler searches by default."""


def sampler_names() -> tuple[str, ...]:
    """Return samplers by name: :data:`SAMPLERS`, a program of the user's, then plug-ins'."""
    ours = (*SAMPLERS, PROGRAM)
    return (*ours, *(n for n in plugins.plugin_names(plugins.SAMPLERS) if n not in ours))


def searched_subgraphs(asked: int | None, sampler: str) -> int:
    """Kinds of sub-graphs whose own knobs are searched: unless asked, only by our sampler.

    Others know neither conditions nor that most of these choices are best left alone.

    Args:
        asked: by the user; None leaves it to the sampler.
        sampler: name of it.
    """
    if asked is not None:
        return asked
    return SUBGRAPHS if sampler == OURS else 0
